"""ℓ1 and ℓ2 distances between blocks of rows and a few points, on SIMD libraries."""

from __future__ import annotations

import numpy as np


def l1_distances(x, y):
    """Return ‖x_i − y_j‖₁, shape (n, p), in the dtype of x.

    faiss serves float32 where it is installed (about six times faster), scipy the rest: the same distances to
    float32 rounding.
    """
    if x.dtype == np.float32:
        try:
            import faiss
        except ImportError:
            pass
        else:
            return faiss.pairwise_distances(
                np.ascontiguousarray(x), np.ascontiguousarray(y, np.float32), metric=faiss.METRIC_L1
            )
    from scipy.spatial.distance import cdist

    return cdist(x, y, "cityblock").astype(x.dtype, copy=False)


def nearest(x, points, norms, count):
    """Return the ``count`` nearest points of each row and the squared distances, nearest first.

    faiss serves float32 where it is installed, a product and a partition the rest.

    Parameters
    ----------
    x : ndarray, shape (n, d)
    points : ndarray, shape (p, d)
    norms : ndarray, shape (p,)
        ‖point‖².
    count : int
        At most p.

    Returns
    -------
    nodes : ndarray of int, shape (n, count)
    squares : ndarray, shape (n, count)
        None below zero; infinite beyond the range of the dtype.
    """
    if x.dtype == np.float32:
        try:
            import faiss
        except ImportError:
            pass
        else:
            squares, nodes = faiss.knn(np.ascontiguousarray(x), points, count)
            lost = nodes < 0  # a distance beyond float32 has no index
            if lost.any():
                nodes[lost], squares[lost] = 0, np.inf
            return nodes, np.maximum(squares, 0, out=squares)
    table = x @ (-2 * points.T)
    table += norms
    table += np.einsum("ij,ij->i", x, x)[:, None]
    return nearest_in(table, count)


def nearest_in(table, count):
    """Return the columns of the ``count`` lowest values of each row of squared distances, and these, lowest first."""
    nodes = np.argpartition(table, count - 1, axis=1)[:, :count]
    squares = np.take_along_axis(table, nodes, 1)
    order = np.lexsort((nodes, squares), axis=1)
    return np.take_along_axis(nodes, order, 1), np.maximum(np.take_along_axis(squares, order, 1), 0)
