"""The transfer cut: an eigenproblem of a bipartite graph, solved on its small side ([US] section 3.3)."""

from __future__ import annotations

import numpy as np

from apnc.moments import leading

SMALLEST = 1e-12  # of the largest degree: a node below it has no edges but rounding


def transfer_cut(second: np.ndarray, count: int) -> tuple[np.ndarray, dict]:
    """Return W, with which T W are the eigenvectors of the rows, and facts about the graph.

    With E = Bᵀ D_X⁻¹ B and D its row sums, (D − E) v = λ D v is solved for the ``count`` smallest λ, by way of the
    largest eigenvalues μ = 1 − λ of D^(−1/2) E D^(−1/2). The rows of the graph get u = D_X⁻¹ B v / (1 − γ) with
    γ = 1 − √(1 − λ), which is T v/√μ.

    Parameters
    ----------
    second : ndarray, shape (p, p)
        E = Σ d t tᵀ over the rows t of T = D_X⁻¹ B with degrees d.
    count : int
        Eigenvectors wanted.

    Returns
    -------
    rotation : ndarray of float64, shape (p, count)
        Zero in nodes without edges, and in columns for which the graph has no eigenvalue above zero.
    facts : dict
        ``nodes`` with edges, ``components``: eigenvalues λ that are zero up to rounding, and ``eigenvalues`` λ.
    """
    degrees = second.sum(axis=1)
    kept = np.flatnonzero(degrees > SMALLEST * degrees.max(initial=0.0))
    rotation = np.zeros((len(second), count))
    if not len(kept):
        return rotation, {"nodes": 0, "components": 0, "eigenvalues": []}
    roots = np.sqrt(degrees[kept])
    normalised = second[np.ix_(kept, kept)] / roots / roots[:, None]
    found = min(count, len(kept))
    mu, vectors = leading((normalised + normalised.T) / 2, found)
    mu = np.clip(mu, 0, 1)
    scales = np.where(mu > SMALLEST, 1 / np.sqrt(np.maximum(mu, SMALLEST)), 0)
    rotation[kept, :found] = vectors / roots[:, None] * scales
    facts = {"nodes": len(kept), "components": int((1 - mu < 1e-9).sum()), "eigenvalues": (1 - mu).tolist()}
    return rotation, facts
