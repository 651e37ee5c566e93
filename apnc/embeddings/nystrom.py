"""APNC-Nys: Nyström coefficients ([EC] Algorithm 3); with q > 1 blocks, ensemble Nyström."""

from __future__ import annotations

import numpy as np

from apnc.embeddings.spectrum import Spectrum


def nystrom_coefficients(spectrum: Spectrum, m: int, weight: float = 1.0) -> np.ndarray:
    """Return R = √μ Λ_m^(−1/2) U_mᵀ, shape (m', l) with m' = min(m, rank).

    Parameters
    ----------
    spectrum : Spectrum
        K_LL = U Λ Uᵀ of the block's landmarks.
    m : int
        Rows asked for.
    weight : float
        μ of the block in the ensemble; the weights of all blocks sum to 1.

    References
    ----------
    Elgohary, Farahat, Kamel and Karray (2014), Embed and Conquer, Algorithm 3.
    """
    values, vectors = spectrum.values[:m], spectrum.vectors[:, :m]
    return np.sqrt(weight) * (vectors / np.sqrt(values)).T
