"""Rows that are in memory already, offered like the rows of files."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from apnc.blocks import Block
from apnc.errors import InputError
from apnc.readers.npy import matrix_block
from apnc.readers.spec import InputSpec, Range

SOURCE = "array"


class ArrayInput:
    """A matrix as input: one source named ``array`` whose offsets are row indices.

    Parameters
    ----------
    X : array-like or sparse matrix, shape (n, d)
        Numbers. Sparse input is read as CSR. Blocks are slices: nothing is copied unless the type must change.
    sample_weight : array-like, shape (n,), optional

    Raises
    ------
    InputError
        If ``X`` is not a matrix of numbers with rows and columns, or the weights do not fit it.
    """

    def __init__(self, X, sample_weight=None):
        sparse = hasattr(X, "tocsr")
        self._x = X.tocsr() if sparse else np.asarray(X)
        if sparse and not self._x.has_canonical_format:
            self._x = self._x.copy()
            self._x.sum_duplicates()
        if self._x.dtype.kind not in "biuf" or (self._x.dtype.kind == "f" and self._x.dtype.itemsize > 8):
            raise InputError(f"array: numbers of type {self._x.dtype} are not supported; use int or float")
        if self._x.ndim != 2 or 0 in self._x.shape:
            raise InputError(f"array: shape {self._x.shape} is not that of a matrix with rows and columns")
        self._weights = None
        if sample_weight is not None:
            self._weights = np.asarray(sample_weight, np.float64)
            if self._weights.shape != (self._x.shape[0],):
                raise InputError(f"sample_weight: shape {self._weights.shape}, but there are {self._x.shape[0]} rows")
        columns = self._x.shape[1]
        self.spec = InputSpec("array", columns=columns, width=columns, sparse=sparse, sources=[SOURCE])

    def estimated_rows(self) -> int:
        """Return the number of rows."""
        return self._x.shape[0]

    def bytes_per_row(self) -> float:
        """Return about how many bytes a row takes."""
        size = (self._x.data.nbytes + self._x.indices.nbytes) if self.spec.sparse else self._x.nbytes
        return max(1.0, size / self._x.shape[0])

    def units(self, target_bytes: int) -> list[list[Range]]:
        """Return ranges of rows of about ``target_bytes`` each."""
        n = self._x.shape[0]
        rows = max(1, int(target_bytes / self.bytes_per_row()))
        return [[Range(SOURCE, "", start, min(start + rows, n))] for start in range(0, n, rows)]

    def blocks(self, ranges: list[Range], max_rows: int) -> Iterator[Block]:
        """Yield the rows of ranges in blocks of at most ``max_rows``."""
        for r in ranges:
            stop = self._x.shape[0] if r.stop is None else r.stop
            for low in range(r.start, stop, max_rows):
                some = slice(low, min(low + max_rows, stop))
                weights = None if self._weights is None else self._weights[some]
                yield matrix_block(SOURCE, low, self._x[some], self.spec, weights)
