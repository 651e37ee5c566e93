"""Naive float64 references, written from the papers' formulas with plain loops, never from the code under test.

[EC] is Elgohary et al. 2014, Embed and Conquer. Everything costs O(n²) or more: meant for a few hundred rows.
"""

from __future__ import annotations

import math
from hashlib import blake2b

import numpy as np
import scipy.linalg


def dense(x):
    """Return a float64 matrix from a dense or sparse one."""
    return np.asarray(x.toarray() if hasattr(x, "toarray") else x, np.float64)


# Kernels: each formula for one pair of rows.


def _rbf(x, y, sigma):
    return math.exp(-sum((a - b) ** 2 for a, b in zip(x, y, strict=True)) / (2 * sigma**2))


def _laplacian(x, y, sigma):
    return math.exp(-sum(abs(a - b) for a, b in zip(x, y, strict=True)) / sigma)


def _linear(x, y):
    return math.fsum(a * b for a, b in zip(x, y, strict=True))


def _polynomial(x, y, gamma, c0, degree):
    return (gamma * _linear(x, y) + c0) ** degree


def _neural(x, y, a, b):
    return math.tanh(a * _linear(x, y) + b)


def _cosine(x, y):
    lengths = math.sqrt(_linear(x, x)) * math.sqrt(_linear(y, y))
    return _linear(x, y) / lengths if lengths else 0.0


def _chi2(x, y, gamma):
    return math.exp(-gamma * sum((a - b) ** 2 / (a + b) for a, b in zip(x, y, strict=True) if a + b))


FORMULAS = {
    "rbf": _rbf,
    "laplacian": _laplacian,
    "linear": _linear,
    "polynomial": _polynomial,
    "neural": _neural,
    "cosine": _cosine,
    "chi2": _chi2,
}


def kernel_matrix(name, x, y, **params):
    """Return κ(x_i, y_j), shape (n, l), pair by pair."""
    formula, x, y = FORMULAS[name], dense(x).tolist(), dense(y).tolist()
    return np.array([[formula(a, b, **params) for b in y] for a in x]).reshape(len(x), len(y))


def distance(x, y, metric):
    """Return e(x, y) for two vectors."""
    pairs = [(float(a), float(b)) for a, b in zip(x, y, strict=True)]
    if metric == "l1":
        return math.fsum(abs(a - b) for a, b in pairs)
    return math.sqrt(math.fsum((a - b) ** 2 for a, b in pairs))


def distances(x, y, metric):
    return np.array([[distance(a, b, metric) for b in y] for a in x]).reshape(len(x), len(y))


def mean_pairwise_distance(x, metric="l2"):
    """Return the mean distance over all pairs of different rows."""
    x = dense(x)
    n = len(x)
    return math.fsum(distance(x[i], x[j], metric) for i in range(n) for j in range(i)) / (n * (n - 1) / 2)


# Coefficients.


def centring(l):
    """Return H = I − eeᵀ/l."""
    return np.eye(l) - np.ones((l, l)) / l


def power(matrix, exponent, cut=1e-10):
    """Return the symmetric power of a symmetric matrix over its eigenvalues above cut · λ_max."""
    values, vectors = scipy.linalg.eigh(matrix)
    kept = values > cut * values.max()
    return vectors[:, kept] @ np.diag(values[kept] ** exponent) @ vectors[:, kept].T


def nystrom(matrix, m):
    """Return R = Λ_m^(−1/2) U_mᵀ of [EC] Algorithm 3 from K_LL."""
    values, vectors = scipy.linalg.eigh(matrix)
    order = np.argsort(values)[::-1][:m]
    return np.diag(values[order] ** -0.5) @ vectors[:, order].T


def stable(matrix, indicators, total_m):
    """Return R of [EC] Algorithm 4 from K_LL and the chosen subsets, rows of 0 and 1, with the scale of methods.md."""
    l = len(matrix)
    t = indicators[0].sum()
    h = centring(l)
    e = power(h @ matrix @ h, -0.5)
    scale = math.sqrt(math.pi / 2) / total_m * math.sqrt(l * (l - 1) / (t * (l - t)))
    return scale * np.array([s @ e for s in indicators])


# k-means.


def kmeans_step(y, centroids, metric="l2", weights=None):
    """Return (labels, Z, g, objective) of one pass over rows y with centroids (k, m); ties go to the lower index."""
    y, centroids = dense(y), dense(centroids)
    weights = np.ones(len(y)) if weights is None else weights
    sums, counts, labels, errors = np.zeros_like(centroids), np.zeros(len(centroids)), [], []
    for row, weight in zip(y, weights, strict=True):
        away = [distance(row, c, metric) for c in centroids]
        j = min(range(len(away)), key=away.__getitem__)
        labels.append(j)
        sums[j] += weight * row
        counts[j] += weight
        errors.append(weight * away[j] ** 2)
    return np.array(labels), sums, counts, math.fsum(errors)


def kernel_kmeans_objective(matrix, labels):
    """Return Σ ‖φ_i − φ̄‖² from the kernel matrix of all rows."""
    total = math.fsum(np.diag(matrix))
    for c in np.unique(labels):
        members = np.flatnonzero(labels == c)
        total -= matrix[np.ix_(members, members)].sum() / len(members)
    return total


def exact_kernel_kmeans(matrix, labels, k, passes):
    """Return the labels after so many passes of exact kernel k-means from start labels."""
    for _ in range(passes):
        away = np.full((len(matrix), k), np.inf)
        for c in range(k):
            members = np.flatnonzero(labels == c)
            if len(members):
                within = matrix[np.ix_(members, members)].sum() / len(members) ** 2
                away[:, c] = np.diag(matrix) - 2 * matrix[:, members].sum(axis=1) / len(members) + within
        labels = away.argmin(axis=1)
    return labels


# Hashes, the sample, column statistics.


def row_hash(seed, purpose, source, offset):
    """Return hash(seed, purpose, row identity) in Python's whole numbers: two rounds of splitmix64 under a key."""
    mask = 2**64 - 1

    def mix(z):
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        return z ^ (z >> 31)

    key = int.from_bytes(blake2b(f"{seed}\0{purpose}\0{source}".encode(), digest_size=8).digest(), "little")
    return mix(mix((offset * 0x9E3779B97F4A7C15 + key) & mask) ^ key)


def sample(seed, identities, size):
    """Return the (source, offset) of smallest hash, in hash order, by sorting all of them."""
    return sorted(identities, key=lambda row: (row_hash(seed, "sample", *row), row))[:size]


def column_statistics(x):
    """Return count, mean, m2, min and max of each column, summed without rounding error in between."""
    columns = dense(x).T.tolist()
    means = [math.fsum(c) / len(c) for c in columns]
    return {
        "count": x.shape[0],
        "mean": np.array(means),
        "m2": np.array([math.fsum((v - m) ** 2 for v in c) for c, m in zip(columns, means, strict=True)]),
        "min": np.array([min(c) for c in columns]),
        "max": np.array([max(c) for c in columns]),
    }


# Graphs and moments.


def moments(rows, weights=None):
    """Return Σ w y and Σ w y yᵀ, row by row."""
    rows = dense(rows)
    total, second = np.zeros(rows.shape[1]), np.zeros((rows.shape[1],) * 2)
    for i, y in enumerate(rows):
        w = 1.0 if weights is None else float(weights[i])
        total += w * y
        second += w * np.outer(y, y)
    return total, second


def affinities(x, representatives, count, sigma):
    """Return B (n, p): exp(−d²/2σ²) to the ``count`` nearest representatives of each row, zero to the others."""
    d = distances(dense(x), dense(representatives), "l2")
    out = np.zeros_like(d)
    for i, row in enumerate(d):
        for j in np.argsort(row, kind="stable")[:count]:
            out[i, j] = math.exp(-(row[j] ** 2) / (2 * sigma**2))
    return out


def bipartite_eigenvectors(b, count):
    """Return the rows' part of the ``count`` smallest eigenvectors of L u = γ D u for the graph of n + p nodes."""
    n, p = b.shape
    w = np.zeros((n + p, n + p))
    w[:n, n:], w[n:, :n] = b, b.T
    degrees = np.diag(w.sum(axis=1))
    _, vectors = scipy.linalg.eigh(degrees - w, degrees)
    return vectors[:n, :count]


def subspace_gap(a, b):
    """Return the largest sine of an angle between the column spaces of two matrices."""
    qa, qb = (np.linalg.qr(dense(m))[0] for m in (a, b))
    return float(np.linalg.norm(qa - qb @ (qb.T @ qa), 2))
