"""APNC-SD: coefficients from stable distributions ([EC] Algorithm 4)."""

from __future__ import annotations

import numpy as np

from apnc.embeddings.spectrum import Spectrum


def centre(matrix: np.ndarray) -> np.ndarray:
    """Return H K H with H = I − eeᵀ/l."""
    rows = matrix - matrix.mean(axis=0)
    return rows - rows.mean(axis=1)[:, None]


def stable_coefficients(spectrum: Spectrum, m: int, total_m: int, t: int, rng: np.random.Generator) -> np.ndarray:
    """Return R, shape (m, l): row j is sᵀE with s the indicator of t landmarks drawn at random.

    E = (H K_LL H)^(−1/2) is the *symmetric* inverse root V Λ^(−1/2) Vᵀ over the usable eigenvalues. R is scaled by
    √(π/2)/m · √(l(l−1)/(t(l−t))), so that ‖y − y'‖₁ estimates ‖φ − φ'‖₂ itself. R e = 0.

    Parameters
    ----------
    spectrum : Spectrum
        H K_LL H = V Λ Vᵀ of the block's landmarks.
    m : int
        Rows of this block.
    total_m : int
        Rows over all blocks: the m of the scale.
    t : int
        Landmarks drawn for each row, below l.
    rng : Generator

    References
    ----------
    Elgohary, Farahat, Kamel and Karray (2014), Embed and Conquer, Algorithm 4.
    """
    vectors = spectrum.vectors
    l = len(vectors)
    indicators = np.zeros((m, l))
    np.put_along_axis(indicators, rng.random((m, l)).argsort(axis=1)[:, :t], 1.0, axis=1)
    scale = np.sqrt(np.pi / 2) / total_m * np.sqrt(l * (l - 1) / (t * (l - t)))
    r = scale * ((indicators @ vectors / np.sqrt(spectrum.values)) @ vectors.T)
    return r - r.mean(axis=1)[:, None]  # R e = 0 also where rounding of a nearly constant K has tilted the vectors
