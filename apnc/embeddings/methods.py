"""The methods by name: from sampled rows and settings to an embedding."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from apnc.embeddings.base import Embedding, KernelEmbedding, LinearEmbedding
from apnc.embeddings.nystrom import nystrom_coefficients
from apnc.embeddings.spectrum import usable_spectrum, warn_of_flat_kernel
from apnc.embeddings.stable import centre, stable_coefficients
from apnc.errors import InputError, warn
from apnc.hashing import generator
from apnc.kernels import is_sparse, make_kernel, nearest_name
from apnc.landmarks import choose_landmarks

NOISE = 1e-4  # of the embedding's variance: more of float32 rounding is answered with float64
NOISE_ROWS = 256  # of the sample, on which it is measured


class Method(ABC):
    """One member of the family."""

    name: str
    metric = "l2"
    uses_kernel = True
    default_dim: int | None = None

    def next_pass(self, run):
        """Return the next pass of a run from what it has so far, or None when the model is finished.

        Parameters
        ----------
        run : apnc.pipeline.Run
        """
        from apnc.coefficients import CoefficientsFold
        from apnc.embed import EmbedMap
        from apnc.kmeans import KMeansFold

        if run.model is None:
            return CoefficientsFold(run.settings, run.threshold, run.width)
        if not run.embedded:
            return EmbedMap.of(run.model)
        if not run.model.done:
            return KMeansFold(run.model.centroids, run.model.metric)
        return None

    @abstractmethod
    def embedding(self, x, settings) -> tuple[Embedding, dict]:
        """Return the embedding built from scaled sample rows x (s, d) in hash order, and facts about it.

        Parameters
        ----------
        x : ndarray or csr_matrix, shape (s, d)
        settings : Settings
            ``kernel``, ``landmarks``, ``dim``, ``blocks``, ``t_share``, ``seed`` and the like.

        Raises
        ------
        InputError
            If the settings cannot work on these rows.
        """


class Linear(Method):
    """Plain k-means: y = x − μ."""

    name = "linear"
    uses_kernel = False

    def embedding(self, x, settings):
        shift = np.zeros(x.shape[1]) if is_sparse(x) else x.mean(axis=0, dtype=np.float64)
        return LinearEmbedding(shift, settings.dtype), {"dim": x.shape[1]}


class _Landmarks(Method):
    """y = R κ(L, x): the blocks of landmarks and their kernel matrices, common to the kernel methods."""

    def embedding(self, x, settings):
        kernel = make_kernel(settings.kernel, settings.kernel_params)
        undefined, rule = kernel.undefined(x)
        if undefined is not None:
            raise InputError(f"{rule}; {int(undefined.sum())} rows of the sample have smaller ones")
        kernel = kernel.resolve(x)
        total = min(settings.landmarks, x.shape[0])
        if total < settings.landmarks:
            warn(f"--landmarks {settings.landmarks} is more than the rows there are: all {total} are used")
        if settings.blocks > total:
            raise InputError(f"--blocks {settings.blocks} is more than the {total} landmarks")
        landmarks = choose_landmarks(x, total, settings, kernel)
        dims = split_evenly(self.wanted_dim(settings, total), settings.blocks)
        blocks, coefficients, facts = [], [], []
        for b, (start, stop) in enumerate(spans(split_evenly(total, settings.blocks))):
            block = landmarks[start:stop]
            matrix = kernel.prepare(block, np.float64)(block.astype(np.float64))
            matrix = (matrix + matrix.T) / 2
            if not np.isfinite(matrix).all():
                raise InputError(f"kernel {kernel!r} overflows on the sample's values; scale the data (--scale)")
            warn_of_flat_kernel(matrix, kernel)
            r, spectrum = self.block_coefficients(matrix, dims[b], sum(dims), settings, b)
            if not spectrum.rank:
                raise InputError(
                    f"kernel {kernel!r}: the kernel matrix of the landmarks is zero up to rounding, nothing can be "
                    "embedded; choose other parameters or scale the data"
                )
            blocks.append(block)
            coefficients.append(r)
            facts.append(spectrum.describe() | {"landmarks": block.shape[0], "dim": len(r)})
        dtype = np.float64 if kernel.needs_float64(x) else settings.dtype
        embedding = KernelEmbedding(kernel, blocks, coefficients, self.metric, dtype)
        if embedding.dtype == np.float32 and _is_noisy(embedding, x[:NOISE_ROWS]):
            embedding = embedding.with_dtype(np.float64)
        self.tell(embedding.dim, dims, facts, settings)
        return embedding, {"kernel": kernel.to_dict(), "blocks": facts, "dim": embedding.dim, "landmarks": total}

    def wanted_dim(self, settings, total):
        return settings.dim or self.default_dim or min(500, total)

    def tell(self, dim, dims, facts, settings):
        """Warn of what the user asked for and does not get."""

    @abstractmethod
    def block_coefficients(self, matrix, m, total_m, settings, b):
        """Return R (m_b, l_b) and the spectrum it was made from."""


class Nystrom(_Landmarks):
    """APNC-Nys ([EC] Algorithm 3); with several blocks, ensemble Nyström with equal weights."""

    name = "nystrom"

    def block_coefficients(self, matrix, m, total_m, settings, b):
        spectrum = usable_spectrum(matrix)
        return nystrom_coefficients(spectrum, m, 1.0 / settings.blocks), spectrum

    def tell(self, dim, dims, facts, settings):
        if settings.dim and dim < settings.dim:
            rank = sum(f["rank"] for f in facts)
            warn(
                f"--dim {settings.dim} is above the numerical rank {rank} of the landmarks' kernel matrix: "
                f"{dim} dimensions are used"
            )


class Stable(_Landmarks):
    """APNC-SD ([EC] Algorithm 4): distances are ℓ1."""

    name = "stable"
    metric = "l1"
    default_dim = 1000

    def block_coefficients(self, matrix, m, total_m, settings, b):
        if len(matrix) < 2:
            raise InputError("--method stable needs at least 2 landmarks in each block")
        spectrum = usable_spectrum(centre(matrix))
        t = min(max(1, round(settings.t_share * len(matrix))), len(matrix) - 1)
        return stable_coefficients(spectrum, m, total_m, t, generator(settings.seed, "stable", b)), spectrum


def _is_noisy(embedding, rows) -> bool:
    """Return whether float32 rounding of κ, which R divides by √λ, moves rows by over 1 % of their spread."""
    with np.errstate(over="ignore", invalid="ignore"):
        exact = embedding.with_dtype(np.float64).transform(rows)
        noise = np.square(embedding.transform(rows) - exact).sum()
        return bool(noise > NOISE * np.square(exact - exact.mean(axis=0)).sum())


def split_evenly(total: int, parts: int) -> list[int]:
    """Return ``parts`` whole numbers that sum to ``total`` and differ by one at most.

    Examples
    --------
    >>> split_evenly(10, 3)
    [4, 3, 3]
    """
    return [total // parts + (i < total % parts) for i in range(parts)]


def spans(sizes):
    """Return (start, stop) of consecutive stretches of the given sizes."""
    stops = np.cumsum(sizes)
    return [(int(stop - size), int(stop)) for size, stop in zip(sizes, stops, strict=True)]


METHODS = {method.name: method for method in (Nystrom(), Stable(), Linear())}
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
