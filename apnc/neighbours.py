"""The K nearest representatives of rows, exactly or by the search of U-SPEC, and how they travel in a block."""

from __future__ import annotations

import numpy as np

from apnc.distances import nearest, nearest_in
from apnc.kernels import fit_width, is_sparse

FEW_DIMENSIONS = 8  # up to which a tree over the representatives beats looking at all of them
MOST_REPRESENTATIVES = 1 << 16  # indices travel in 16 bits
CANDIDATES = 10  # K' = 10 K of [US], among which the approximate search looks


class Search:
    """Finds the K nearest of p representatives.

    Rows and representatives are shifted first, because ‖x‖² − 2xᵀr + ‖r‖² cancels far from the origin.

    Parameters
    ----------
    representatives : ndarray, shape (p, d)
    count : int
        K, at most p.
    dtype : dtype
        Of the search: float32, or float64 where float32 cannot tell distances apart.
    shift : ndarray, shape (d,), optional
        Subtracted from rows and representatives; the mean of these by default.
    approximate : bool
        Look among the representatives near the nearest one of the nearest group only ([US] section 3.2): worth it for
        thousands of representatives.

    References
    ----------
    Huang, Wang, Wu, Lai and Kwoh (2019), Ultra-Scalable Spectral Clustering and Ensemble Clustering.
    """

    def __init__(self, representatives, count, dtype=np.float32, approximate=False, shift=None):
        self.count, self.dtype, self.approximate = count, np.dtype(dtype), approximate
        self.width = representatives.shape[1]
        # in the dtype of the search, so that rows of that dtype need no other
        self.shift = (representatives.mean(axis=0, dtype=np.float64) if shift is None else shift).astype(self.dtype)
        self.points = np.ascontiguousarray(representatives - self.shift, self.dtype)
        self.norms = np.einsum("ij,ij->i", self.points, self.points)
        self._tree = self._groups = None
        if self.width <= FEW_DIMENSIONS and not approximate:
            from scipy.spatial import cKDTree

            self._tree = cKDTree(self.points)
        if approximate:
            self._group()

    def __call__(self, x):
        """Return the K nearest representatives of each row.

        Parameters
        ----------
        x : ndarray or csr_matrix, shape (n, d)

        Returns
        -------
        nodes : ndarray of int, shape (n, K)
            Nearest first.
        squares : ndarray, shape (n, K)
            Squared distances, none below zero.
        """
        return self.among_shifted(x if is_sparse(x) else self.shifted(x))

    def shifted(self, x):
        """Return dense rows as searches of one shift take them."""
        return (x - self.shift).astype(self.dtype, copy=False)

    def among_shifted(self, x):
        """Return what calling the search with rows that are not shifted yet, or are sparse, returns."""
        if is_sparse(x):
            return nearest_in(self._table_of_sparse(x), self.count)
        if self._tree is not None:
            distances, nodes = self._tree.query(x, self.count)
            return nodes.reshape(len(x), -1), np.square(distances.reshape(len(x), -1))
        if self._groups is not None:
            return self._approximately(x)
        return nearest(x, self.points, self.norms, self.count)

    def _table_of_sparse(self, x):
        """Return ‖x − r‖² without filling x: the shift goes into the products."""
        x = fit_width(x, self.width).astype(self.dtype)
        own = np.asarray(x.multiply(x).sum(axis=1)).ravel()
        # ‖x − s − r‖² with s the shift: ‖x‖² − 2 xᵀ(r + s) + ‖r + s‖²
        whole = self.points + self.shift
        table = x @ whole.T
        return own[:, None] - 2 * np.asarray(table) + np.einsum("ij,ij->i", whole, whole)

    # the approximate search

    def _group(self):
        """Put the representatives into √p groups, and note the K' nearest representatives of each."""
        from apnc.representatives import lloyd_centres

        p = len(self.points)
        centres = lloyd_centres(self.points.astype(np.float64), max(1, int(np.sqrt(p))))
        centres = np.ascontiguousarray(centres, self.dtype)
        norms = np.einsum("ij,ij->i", centres, centres)
        of_group = nearest(self.points, centres, norms, 1)[0][:, 0]
        self._groups = centres, norms, [np.flatnonzero(of_group == g) for g in range(len(centres))]
        wide = min(p, CANDIDATES * self.count)
        self._near = nearest(self.points, self.points, self.norms, wide)[0]

    def _approximately(self, x):
        centres, norms, members = self._groups
        group = nearest(x, centres, norms, 1)[0][:, 0]
        first = np.empty(len(x), np.int64)
        for g in np.unique(group):
            rows, own = np.flatnonzero(group == g), members[g]
            first[rows] = own[nearest(x[rows], self.points[own], self.norms[own], 1)[0][:, 0]]
        nodes = np.empty((len(x), self.count), np.int64)
        squares = np.empty((len(x), self.count), self.dtype)
        order = np.argsort(first, kind="stable")
        starts = np.flatnonzero(np.diff(first[order], prepend=-1))
        for start, stop in zip(starts, np.append(starts[1:], len(x)), strict=True):
            rows = order[start:stop]
            near = self._near[first[rows[0]]]
            found, squares[rows] = nearest(x[rows], self.points[near], self.norms[near], self.count)
            nodes[rows] = near[found]
        return nodes, squares


def packed(nodes: np.ndarray, squares: np.ndarray) -> np.ndarray:
    """Return nodes and squared distances (n, K) as one matrix of 16-bit words: six bytes a pair, ten in float64.

    Examples
    --------
    >>> words = packed(np.array([[3, 1]]), np.array([[0.5, 2.0]], np.float32))
    >>> words.shape
    (1, 6)
    >>> nodes, squares = unpacked(words, 1, np.float32)
    >>> nodes.tolist(), squares.tolist()
    ([[[3, 1]]], [[[0.5, 2.0]]])
    """
    squares = np.ascontiguousarray(squares, squares.dtype.newbyteorder("<"))
    return np.concatenate([squares.view("<u2").reshape(len(nodes), -1), nodes.astype("<u2")], axis=1)


def unpacked(x: np.ndarray, searches: int, dtype):
    """Return nodes and squared distances, each of shape (searches, n, K), from the words of `packed`.

    Parameters
    ----------
    x : ndarray of uint16, shape (n, w)
    searches : int
        How many searches of K each were packed side by side.
    dtype : dtype
        Of the squared distances.
    """
    dtype = np.dtype(dtype).newbyteorder("<")
    count = x.shape[1] // (dtype.itemsize // 2 + 1)
    words = x.shape[1] - count
    squares = np.ascontiguousarray(x[:, :words]).view(dtype).reshape(len(x), searches, count // searches)
    nodes = x[:, words:].reshape(squares.shape)
    return nodes.astype(np.int64).swapaxes(0, 1), squares.swapaxes(0, 1)
