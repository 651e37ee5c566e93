"""An embedding whose blocks stay in the file they came in, one R^(b) and L^(b) in memory at a time ([EC] Algorithm 1).

A model of q blocks may be larger than a task; its blocks need not be. Each block of rows takes them one after the
other: reading one again costs about as much as computing it for fifty rows, and blocks of rows have more.
"""

from __future__ import annotations

import json
import zipfile

import numpy as np

from apnc.embeddings.base import KernelEmbedding
from apnc.kernels import make_kernel


class StoredKernelEmbedding(KernelEmbedding):
    """y_[b] = R^(b) κ(L^(b), x) for each of q blocks, read from a file when their turn comes.

    Parameters
    ----------
    file : NpzFile
        Written by `apnc.model.save_npz`; stays open.
    header : dict
        Its JSON values.
    prefix : str
        Of the embedding's names in it.
    """

    def __init__(self, file, header: dict, prefix: str):
        kernel = header[f"{prefix}kernel"]
        super().__init__(
            make_kernel(kernel["name"], kernel["params"]),
            None,
            None,
            header[f"{prefix}metric"],
            header[f"{prefix}dtype"],
        )
        self._file, self._header, self._prefix = file, header, prefix
        self._blocks = range(header[f"{prefix}blocks"])
        shapes = [self._shape(f"{prefix}coefficients.{b}") for b in self._blocks]
        self._dims = [m for m, _ in shapes]
        dense = [self._shape(f"{prefix}landmarks.{b}")[1] for b in self._blocks if not self._is_sparse(b)]
        self._widest = max(sum(self._dims), *(l for _, l in shapes), *dense[:1])

    @property
    def dim(self):
        return sum(self._dims)

    @property
    def widest(self):
        return self._widest

    def prepare(self):
        return self

    def transform(self, x):
        y = np.empty((x.shape[0], self.dim), self.dtype)
        start = 0
        for b, m in zip(self._blocks, self._dims, strict=True):
            values = self.kernel.prepare(self._landmarks(b), self.dtype)(x)
            right = np.ascontiguousarray(self._array(f"coefficients.{b}").T, self.dtype)
            np.matmul(values, right, out=y[:, start : start + m])
            start += m
        return y

    def with_dtype(self, dtype):
        raise NotImplementedError("a stored embedding has the dtype it was stored with")

    def to_dict(self):
        raise NotImplementedError("a stored embedding is in a file already")

    def _is_sparse(self, b):
        return f"{self._prefix}landmarks.{b}" in self._header

    def _landmarks(self, b):
        if not self._is_sparse(b):
            return self._array(f"landmarks.{b}")
        from scipy.sparse import csr_matrix

        parts = tuple(self._array(f"landmarks.{b}.{part}") for part in ("data", "indices", "indptr"))
        return csr_matrix(parts, shape=self._header[f"{self._prefix}landmarks.{b}"]["csr"])

    def _array(self, name):
        return self._file[self._prefix + name]

    def _shape(self, name):
        """Return an array's shape without reading the array."""
        with self._file.zip.open(f"{name}.npy") as member:
            version = np.lib.format.read_magic(member)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            return read(member)[0]


def stored_embedding(path, prefix: str = "embedding."):
    """Return (header, embedding) of a file with several blocks, or None if it holds another embedding.

    Raises
    ------
    InputError
        If the file is missing or damaged; `apnc.model.load_npz` says how.
    """
    try:
        file = np.load(path, allow_pickle=False)
        header = json.loads(str(file["header"]))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    if header.get(f"{prefix}kind") != "kernel" or header[f"{prefix}blocks"] < 2:
        file.close()
        return None
    values = {name: value for name, value in header.items() if not name.startswith(prefix)}
    values |= {name: file[name] for name in file.files if not name.startswith(prefix) and name != "header"}
    return values, StoredKernelEmbedding(file, header, prefix)
