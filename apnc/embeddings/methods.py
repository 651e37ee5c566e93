"""The methods by name."""

from __future__ import annotations

import numpy as np

from apnc.embeddings.base import LinearEmbedding
from apnc.embeddings.method import LandmarkMethod, Method, spans, split_evenly
from apnc.embeddings.nystrom import nystrom_coefficients
from apnc.embeddings.rank_restricted import RankRestricted
from apnc.embeddings.spectral import SpectralNystrom
from apnc.embeddings.spectrum import usable_spectrum
from apnc.embeddings.stable import centre, stable_coefficients
from apnc.embeddings.usenc import USenc
from apnc.embeddings.uspec import USpec
from apnc.errors import InputError, warn
from apnc.hashing import generator
from apnc.kernels import is_sparse, nearest_name

__all__ = ["ALIASES", "METHODS", "Method", "make_method", "spans", "split_evenly"]


class Linear(Method):
    """Plain k-means: y = x − μ."""

    name = "linear"

    def embedding(self, x, settings, threads=None):
        shift = np.zeros(x.shape[1]) if is_sparse(x) else x.mean(axis=0, dtype=np.float64)
        return LinearEmbedding(shift, settings.dtype), {"dim": x.shape[1]}


class Nystrom(LandmarkMethod):
    """APNC-Nys ([EC] Algorithm 3); with several blocks, ensemble Nyström with equal weights."""

    name = "nystrom"

    def block_coefficients(self, matrix, m, total_m, settings, b):
        spectrum = usable_spectrum(matrix)
        return nystrom_coefficients(spectrum, m, 1.0 / settings.blocks), spectrum

    def principal(self, settings):
        return settings.blocks == 1

    def tell(self, dim, dims, facts, settings):
        if settings.dim and dim < settings.dim:
            rank = sum(f["rank"] for f in facts)
            warn(
                f"--dim {settings.dim} is above the numerical rank {rank} of the landmarks' kernel matrix: "
                f"{dim} dimensions are used"
            )


class Stable(LandmarkMethod):
    """APNC-SD ([EC] Algorithm 4): distances are ℓ1."""

    name = "stable"
    options = (*LandmarkMethod.options, "t_share")
    metric = "l1"
    default_dim = 1000

    def block_coefficients(self, matrix, m, total_m, settings, b):
        if len(matrix) < 2:
            raise InputError("--method stable needs at least 2 landmarks in each block")
        spectrum = usable_spectrum(centre(matrix))
        t = min(max(1, round(settings.t_share * len(matrix))), len(matrix) - 1)
        return stable_coefficients(spectrum, m, total_m, t, generator(settings.seed, "stable", b)), spectrum


METHODS = {
    method.name: method
    for method in (Nystrom(), Stable(), Linear(), RankRestricted(), SpectralNystrom(), USpec(), USenc())
}
ALIASES = {"ensemble-nystrom": "nystrom", "kmeans": "linear"}


def make_method(name: str) -> Method:
    """Return the method of that name.

    Raises
    ------
    InputError
        If there is none; the message names the nearest.
    """
    name = ALIASES.get(name, name)
    if name not in METHODS:
        raise nearest_name("method", name, [*METHODS, *ALIASES])
    return METHODS[name]
