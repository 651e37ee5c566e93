"""Rank-restricted Nyström: the embedding rotated to its s leading directions over all rows ([WGM])."""

from __future__ import annotations

import numpy as np

from apnc.embeddings.base import KernelEmbedding
from apnc.embeddings.method import LandmarkMethod
from apnc.embeddings.nystrom import nystrom_coefficients
from apnc.embeddings.spectrum import usable_spectrum
from apnc.embeddings.views import PlainView
from apnc.errors import InputError, warn

# columns whose share of the largest singular value is below this are rounding: whitening would only blow that up
SMALLEST = 1e-6
FLOAT32 = 1e-2  # the same for kernel values in float32; below it a whitened embedding is computed in float64


class RankRestricted(LandmarkMethod):
    """Nyström rotated to its leading directions over all rows: sketch size --landmarks, target rank --dim.

    Of c landmarks the ⌈c/2⌉ leading eigenpairs are kept for stability; y of that width has the moments G = Σ y yᵀ, and
    V_s, the top eigenvectors of G, goes into R ← V_sᵀ R. s = ⌈√(kc)⌉ unless given.

    References
    ----------
    Wang, Gittens and Mahoney (2019), Scalable Kernel K-Means Clustering with Nyström Approximation.
    """

    name = "rank-restricted"
    options = (*LandmarkMethod.options, "whiten", "unit_rows")
    starts_early = False
    exact_sample = True

    def check(self, settings):
        c, k = settings.landmarks, settings.k
        if c < 2 * k + 2:
            raise InputError(f"--landmarks {c} must be at least 2k + 2 = {2 * k + 2} with --method {self.name}")
        if settings.blocks != 1:
            raise InputError(f"--blocks {settings.blocks}: --method {self.name} has one block, a rotation mixes all")
        if settings.dim is not None and settings.dim >= -(-c // 2):
            raise InputError(
                f"--dim {settings.dim} must be below half of --landmarks {c}, rounded up, with --method {self.name}"
            )

    def embedding(self, x, settings, threads=None):
        embedding, facts = super().embedding(x, settings, threads)
        return embedding.with_dtype(np.float64) if settings.whiten else embedding, facts

    def wanted_dim(self, settings, total):
        return max(-(-total // 2), min(total, settings.k))

    def target_rank(self, settings, total, width):
        """Return s, below the width of the embedding that is rotated unless that is as small as k."""
        return min(settings.dim or int(np.ceil(np.sqrt(settings.k * total))), max(width - 1, min(width, settings.k)))

    def block_coefficients(self, matrix, m, total_m, settings, b):
        spectrum = usable_spectrum(matrix)
        return nystrom_coefficients(spectrum, m), spectrum

    def before_embedding(self, model):
        from apnc.embed import EmbedMap
        from apnc.moments import MomentsFold

        return MomentsFold(PlainView(model.embedding.dim), EmbedMap.of(model))

    def absorb(self, model, stage, result):
        from apnc.coefficients import begin
        from apnc.moments import leading

        settings, embedding, facts = model.settings, model.embedding, model.facts
        if settings.dim and settings.dim < settings.k:
            warn(f"--dim {settings.dim} is below -k {settings.k}, which {self.name} is not made for")
        s = self.target_rank(settings, facts["landmarks"], embedding.dim)
        if settings.dim and s < settings.dim:
            warn(f"--dim {settings.dim} is above what a sketch of rank {embedding.dim} allows: {s} are used")
        values, rotation = leading(result.second, s)
        singular = np.sqrt(np.maximum(values, 0))
        if settings.whiten:
            used = singular > SMALLEST * singular[0]
            rotation, singular = rotation[:, used] / singular[used], singular[used]
        coefficients = [rotation.T @ embedding.coefficients[0]]
        dtype = embedding.dtype
        if settings.whiten and singular[-1] > FLOAT32 * singular[0]:
            dtype = np.dtype(settings.dtype)
        rotated = KernelEmbedding(embedding.kernel, embedding.landmarks, coefficients, "l2", dtype)
        exact = model.stored @ rotation
        facts |= {"dim": rotated.dim, "sketch_dim": embedding.dim, "singular_values": singular.tolist()}
        model.rows, model.embedding = result.rows, rotated
        model.view = PlainView(rotated.dim, bool(settings.unit_rows), rotated.dtype)
        model.stored = exact.astype(rotated.dtype)
        begin(model, exact)
        facts["dtype"] = model.embedding.dtype.name
