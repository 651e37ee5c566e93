"""The usable part of a kernel matrix's spectrum: which eigenvalues count, and what was dropped."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from apnc.errors import warn


@dataclass(frozen=True)
class Spectrum:
    """Eigenpairs of a symmetric matrix above the numerical cut, largest first.

    Attributes
    ----------
    values : ndarray, shape (r,)
    vectors : ndarray, shape (l, r)
    dropped : int
        Eigenvalues at or below the cut.
    lowest : float
        The lowest eigenvalue, as a share of the largest.
    """

    values: np.ndarray
    vectors: np.ndarray
    dropped: int
    lowest: float

    @property
    def rank(self) -> int:
        return len(self.values)

    def describe(self) -> dict:
        return {"rank": self.rank, "dropped": self.dropped, "lowest_over_largest": self.lowest}


def usable_spectrum(matrix: np.ndarray) -> Spectrum:
    """Return the eigenpairs with λ > max(l·eps, 1e-10, |λ_min|/λ_max where λ_min < 0) · λ_max, in float64.

    The negative part of an indefinite kernel (tanh) measures how far the rest can be trusted: eigenvalues no
    larger than it are dropped.
    """
    values, vectors = np.linalg.eigh(matrix)
    largest = values[-1]
    if not largest > 0:
        return Spectrum(values[:0], vectors[:, :0], len(values), 0.0)
    lowest = float(values[0] / largest)
    cut = max(len(values) * np.finfo(float).eps, 1e-10, -lowest) * largest
    kept = int((values > cut).sum())
    order = slice(-1, -kept - 1, -1) if kept else slice(0, 0)
    vectors = vectors[:, order]
    # one sign convention, so that the same matrix gives the same embedding on any LAPACK
    flip = np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(kept)])
    return Spectrum(values[order], vectors * np.where(flip == 0, 1, flip), len(values) - kept, lowest)


def warn_of_flat_kernel(matrix: np.ndarray, kernel) -> None:
    """Warn where the kernel tells landmarks apart either not at all or only from themselves."""
    if len(matrix) < 2:
        return
    off = matrix[~np.eye(len(matrix), dtype=bool)]
    scale = np.abs(np.diag(matrix)).mean()
    if np.ptp(matrix) <= 1e-9 * np.abs(matrix).max(initial=1e-300):
        warn(
            f"kernel {kernel!r} has the same value for all landmarks and carries no information: "
            "scale the data (--scale) or choose other kernel parameters"
        )
    elif np.abs(off).max(initial=0.0) <= 1e-9 * scale:
        warn(
            f"kernel {kernel!r} is about zero between any two landmarks and carries no information: "
            "choose a larger width (sigma=auto) or scale the data"
        )
