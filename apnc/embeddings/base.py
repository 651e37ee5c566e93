"""What an embedding is once its coefficients are known: a function of rows, and arrays in a file."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from apnc.kernels import Kernel, fit_width, is_sparse, make_kernel


class Embedding(ABC):
    """y = f(x) for blocks of rows, of width ``dim``, with the distance ``metric`` that makes sense of it.

    Attributes
    ----------
    metric : {'l2', 'l1'}
        e(y, ȳ) of [EC] property P4.
    dim : int
        m, the width of the embedding.
    dtype : dtype
        What is computed and returned: float32, or float64 where float32 would not do.
    """

    metric = "l2"
    dtype: np.dtype

    @property
    @abstractmethod
    def dim(self) -> int: ...

    @property
    @abstractmethod
    def widest(self) -> int:
        """Columns of the widest intermediate matrix, which bounds the rows of a block."""

    @abstractmethod
    def transform(self, x) -> np.ndarray:
        """Return y, shape (n, m), for scaled rows x (n, d)."""

    def undefined(self, x):
        """Return the mask of scaled rows for which y is not defined and the rule they break, or (None, '')."""
        return None, ""

    def overflown(self, y) -> np.ndarray:
        """Return the mask of embedded rows that are not finite, or whose squares are not."""
        return ~np.isfinite(np.einsum("ij,ij->i", y, y))  # objectives are sums of squares

    @abstractmethod
    def to_dict(self) -> dict: ...

    @abstractmethod
    def with_dtype(self, dtype) -> Embedding:
        """Return the same embedding computing in another dtype."""


class KernelEmbedding(Embedding):
    """y_[b] = R^(b) κ(L^(b), x) for each of q blocks, side by side ([EC] properties P1–P4, Algorithm 1).

    Parameters
    ----------
    kernel : Kernel
        With all parameters fixed.
    landmarks : list of q matrices, shapes (l_b, d)
    coefficients : list of q float64 arrays, shapes (m_b, l_b)
        R, block by block.
    metric : {'l2', 'l1'}
    dtype : dtype
    """

    def __init__(self, kernel: Kernel, landmarks, coefficients, metric="l2", dtype=np.float32):
        self.kernel, self.landmarks, self.coefficients = kernel, landmarks, coefficients
        self.metric, self.dtype = metric, np.dtype(dtype)
        self._prepared = None

    @property
    def dim(self):
        return sum(len(r) for r in self.coefficients)

    @property
    def widest(self):
        first = self.landmarks[0]
        return max(0 if is_sparse(first) else first.shape[1], self.dim, *(block.shape[0] for block in self.landmarks))

    def prepare(self) -> KernelEmbedding:
        """Cast and transpose what the hot path needs, once. Called before threads share the embedding."""
        if self._prepared is None:
            self._prepared = [
                (self.kernel.prepare(block, self.dtype), np.ascontiguousarray(r.T, self.dtype))
                for block, r in zip(self.landmarks, self.coefficients, strict=True)
            ]
        return self

    def transform(self, x):
        self.prepare()
        y = np.empty((x.shape[0], self.dim), self.dtype)
        start = 0
        for kernel_values, right in self._prepared:
            stop = start + right.shape[1]
            np.matmul(kernel_values(x), right, out=y[:, start:stop])
            start = stop
        return y

    def undefined(self, x):
        return self.kernel.undefined(x)

    def with_dtype(self, dtype):
        return type(self)(self.kernel, self.landmarks, self.coefficients, self.metric, dtype)

    def __getstate__(self):
        return self.__dict__ | {"_prepared": None}  # made again where it is needed: functions cannot be pickled

    def to_dict(self):
        out = {"kind": "kernel", "kernel": self.kernel.to_dict(), "metric": self.metric, "dtype": self.dtype.name}
        out["blocks"] = len(self.landmarks)
        for b, (block, r) in enumerate(zip(self.landmarks, self.coefficients, strict=True)):
            out |= {f"landmarks.{b}": block, f"coefficients.{b}": r}
        return out


class LinearEmbedding(Embedding):
    """y = x − μ, the identity up to a shift that spares float32 its digits: plain k-means.

    Parameters
    ----------
    shift : ndarray of float64, shape (d,)
        μ, the mean of the sample; zero for CSR input, whose rows become dense block by block.
    dtype : dtype
    """

    def __init__(self, shift, dtype=np.float32):
        self.shift, self.dtype = np.asarray(shift, np.float64), np.dtype(dtype)

    @property
    def dim(self):
        return len(self.shift)

    @property
    def widest(self):
        return self.dim

    def transform(self, x):
        if is_sparse(x):
            return fit_width(x, self.dim).astype(self.dtype).toarray()
        return (x - self.shift).astype(self.dtype)

    def with_dtype(self, dtype):
        return type(self)(self.shift, dtype)

    def to_dict(self):
        return {"kind": "linear", "dtype": self.dtype.name, "shift": self.shift}


def embedding_from_dict(d: dict) -> Embedding:
    """Return the embedding that `Embedding.to_dict` described."""
    if d["kind"] == "linear":
        return LinearEmbedding(d["shift"], d["dtype"])
    if d["kind"] == "neighbours":
        from apnc.embeddings.neighbour import NeighbourEmbedding

        sets = [d[f"representatives.{b}"] for b in range(sum(name.startswith("representatives.") for name in d))]
        return NeighbourEmbedding(sets, d["count"], d["dtype"], d["approximate"])
    blocks = range(d["blocks"])
    kernel = make_kernel(d["kernel"]["name"], d["kernel"]["params"])
    return KernelEmbedding(
        kernel,
        [d[f"landmarks.{b}"] for b in blocks],
        [d[f"coefficients.{b}"] for b in blocks],
        d["metric"],
        d["dtype"],
    )
