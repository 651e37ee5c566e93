"""The stored embedding of U-SPEC and U-SENC: nearest representatives and the distances to them."""

from __future__ import annotations

import numpy as np

from apnc.embeddings.base import Embedding
from apnc.kernels import is_sparse
from apnc.neighbours import FEW_DIMENSIONS, Search, packed, unpacked


class NeighbourEmbedding(Embedding):
    """For each row, its K nearest representatives and squared distances, for one or several sets side by side.

    Parameters
    ----------
    representatives : list of ndarray, shapes (p_b, d)
    count : int
        K.
    dtype : dtype
        Of the search.
    approximate : bool
    """

    def __init__(self, representatives, count, dtype=np.float32, approximate=False):
        self.representatives, self.count = representatives, count
        self.dtype, self.approximate = np.dtype(dtype), approximate
        self._searches = None

    @property
    def dim(self):
        return (self.dtype.itemsize // 2 + 1) * self.count * len(self.representatives)

    @property
    def widest(self):
        # a tree needs no table of distances, and a SIMD search only stretches of one
        p, d = self.representatives[0].shape
        return max(d, 8 * self.dim, 0 if d <= FEW_DIMENSIONS else p // 4)

    def prepare(self):
        """Make the searches, once. Called before threads share the embedding."""
        if self._searches is None:
            shift = self.representatives[0].mean(axis=0, dtype=np.float64)
            given = (self.count, self.dtype, self.approximate, shift)
            self._searches = [Search(r, *given) for r in self.representatives]
        return self

    def transform(self, x):
        self.prepare()
        x = x if is_sparse(x) else self._searches[0].shifted(x)
        found = [search.among_shifted(x) for search in self._searches]
        nodes = np.concatenate([nodes for nodes, _ in found], axis=1)
        return packed(nodes, np.concatenate([squares for _, squares in found], axis=1).astype(self.dtype, copy=False))

    def overflown(self, y):
        return ~np.isfinite(unpacked(y, 1, self.dtype)[1][0]).all(axis=1)

    def with_dtype(self, dtype):
        return type(self)(self.representatives, self.count, dtype, self.approximate)

    def __getstate__(self):
        return self.__dict__ | {"_searches": None}

    def to_dict(self):
        out = {"kind": "neighbours", "count": self.count, "dtype": self.dtype.name, "approximate": self.approximate}
        return out | {f"representatives.{b}": r for b, r in enumerate(self.representatives)}
