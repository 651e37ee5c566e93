"""Spectral clustering with Nyström: eigenvectors of the normalised graph from two moments passes over y."""

from __future__ import annotations

import numpy as np

from apnc.embeddings.method import LandmarkMethod
from apnc.embeddings.nystrom import nystrom_coefficients
from apnc.embeddings.spectrum import usable_spectrum
from apnc.embeddings.views import DegreeView, PlainView
from apnc.errors import InputError, warn

SMALLEST = 1e-12  # of the largest eigenvalue of Σ z zᵀ: below it there is no direction


class SpectralNystrom(LandmarkMethod):
    """Spectral clustering with the kernel as affinity, by Nyström: k eigenvectors, rows of length one.

    With K ≈ Y Yᵀ degrees are d_i = y_iᵀ Σ_j y_j, one moments pass. z_i = y_i/√d_i, and the top k eigenvectors of
    Σ z zᵀ, another pass, rotate z. Degrees at or below zero, which an approximation may have, are counted.

    References
    ----------
    Fowlkes, Belongie, Chung and Malik (2004), Spectral Grouping Using the Nyström Method.
    """

    name = "spectral-nystrom"
    options = (*LandmarkMethod.options, "whiten", "unit_rows")
    starts_early = False

    def check(self, settings):
        if settings.landmarks <= settings.k:
            raise InputError(
                f"--landmarks {settings.landmarks} must be above -k {settings.k} with --method {self.name}"
            )

    def block_coefficients(self, matrix, m, total_m, settings, b):
        spectrum = usable_spectrum(matrix)
        return nystrom_coefficients(spectrum, m, 1.0 / settings.blocks), spectrum

    def before_kmeans(self, model):
        from apnc.moments import MomentsFold

        if model.view is None:
            return MomentsFold(PlainView(model.embedding.dim), second=False)
        return MomentsFold(model.view)

    def absorb(self, model, stage, result):
        from apnc.coefficients import begin
        from apnc.moments import leading

        settings, facts = model.settings, model.facts
        unit = settings.unit_rows is not False
        if model.view is None:
            model.view = DegreeView(result.total, unit=unit)
            return
        facts["negative_degrees"] = result.set_aside
        if result.set_aside:
            warn(
                f"{result.set_aside} of {result.rows} rows have a degree of zero or below, as the kernel is negative "
                "or too roughly approximated: they have no place in the graph and cannot be told apart"
            )
        values, rotation = leading(result.second, min(settings.k, len(result.second)))
        used = values > SMALLEST * max(values[0], 0)
        if not used.any():
            raise InputError(
                "no row has a degree above zero, the graph has no edges; choose a kernel without negative values"
            )
        rotation, values = rotation[:, used], values[used]
        if settings.whiten:
            rotation = rotation / np.sqrt(values)
        facts |= {"eigenvalues": values.tolist(), "dim": rotation.shape[1], "sketch_dim": model.embedding.dim}
        model.rows = result.rows
        model.view = DegreeView(model.view.total, rotation, unit, settings.dtype)
        begin(model)
