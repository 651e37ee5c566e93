"""What passes over a stored embedding make of its blocks, where it is not y itself.

Some methods store what is dear to compute (kernel values, nearest representatives) and get the last step, a rotation
found by a moments pass, only afterwards. A view takes that step block by block, so that rows are never read again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from apnc.neighbours import unpacked


class View(ABC):
    """From a block as it is stored to rows y of k-means, and to the terms of a moments pass.

    Attributes
    ----------
    width : int
        Columns of the rows that moments are taken of.
    widest : int
        Columns of the widest matrix at work, which bounds the rows of a block.
    dim : int
        m, the width of y.
    dtype : dtype
        Of y.
    """

    dtype = np.dtype(np.float32)

    @abstractmethod
    def rows(self, x) -> np.ndarray:
        """Return y, shape (n, m)."""

    @abstractmethod
    def terms(self, x):
        """Return the rows that moments are taken of, and their weights (n,) or None.

        Rows are dense, (n, width), or few values among many: (nodes, values), both (n, K). Rows of weight zero count
        for nothing.
        """

    @abstractmethod
    def to_dict(self) -> dict: ...

    def with_dtype(self, dtype) -> View:
        """Return the same view making rows of another dtype."""
        other = view_from_dict(self.to_dict())
        other.dtype = np.dtype(dtype)
        return other


class PlainView(View):
    """The stored rows themselves, of length one with ``unit``; a row of zeros stays one.

    Parameters
    ----------
    width : int
    unit : bool
    """

    def __init__(self, width, unit=False, dtype=np.float32):
        self.width = self.widest = self.dim = width
        self.unit, self.dtype = unit, np.dtype(dtype)

    def rows(self, x):
        return _of_length_one(x) if self.unit else x

    def terms(self, x):
        return x, None

    def to_dict(self):
        return {"kind": "plain", "width": self.width, "unit": self.unit, "dtype": self.dtype.name}


class DegreeView(View):
    """z = y/√d with the degrees d = yᵀ Σy of spectral clustering, rotated: rows of Z V_k.

    Rows of negative degree, which an approximate kernel matrix can have, are zero.

    Parameters
    ----------
    total : ndarray of float64, shape (width,)
        Σ y over all rows.
    rotation : ndarray of float64, shape (width, k), optional
        V_k, once it is known.
    unit : bool
        Rows of length one.
    """

    def __init__(self, total, rotation=None, unit=True, dtype=np.float32):
        self.total, self.rotation, self.unit, self.dtype = total, rotation, unit, np.dtype(dtype)
        self.width = self.widest = len(total)

    @property
    def dim(self):
        return self.rotation.shape[1]

    def _scales(self, x):
        degrees = x.astype(np.float64, copy=False) @ self.total
        positive = degrees > 0
        return positive, np.where(positive, 1 / np.sqrt(np.where(positive, degrees, 1)), 0)

    def rows(self, x):
        y = (x @ self.rotation) * self._scales(x)[1][:, None]
        return (_of_length_one(y) if self.unit else y).astype(self.dtype, copy=False)

    def terms(self, x):
        positive, scales = self._scales(x)
        return x * scales[:, None], positive.astype(np.float64)

    def to_dict(self):
        out = {"kind": "degree", "total": self.total, "unit": self.unit, "dtype": self.dtype.name}
        return out if self.rotation is None else out | {"rotation": self.rotation}


class NodeView(View):
    """T = D_X⁻¹ B of U-SPEC from nearest representatives, and rows of T W.

    b_ij = exp(−‖x_i − r_j‖²/2σ²) for the K nearest representatives. T is a softmax over them and D_X comes from its
    logarithm, so that a row far from every representative is still near those that are nearest, and never NaN. It is
    zero where these have no edges: no row of the training data near enough to them.

    Parameters
    ----------
    width : int
        p.
    sigma : float
    rotation : ndarray of float64, shape (p, k), optional
        W, once it is known.
    search, searches : int
        Which of how many searches whose results are stored side by side.
    stored : dtype
        Of the squared distances as they are stored.
    unit : bool
        Rows of length one.
    """

    def __init__(
        self, width, sigma, rotation=None, search=0, searches=1, stored=np.float32, unit=True, dtype=np.float32
    ):
        self.width, self.sigma, self.rotation = width, sigma, rotation
        self.search, self.searches, self.stored = search, searches, np.dtype(stored)
        self.unit, self.dtype = unit, np.dtype(dtype)

    @property
    def dim(self):
        return self.rotation.shape[1]

    @property
    def widest(self):
        return 64 * self.searches

    def _shares(self, x):
        nodes, squares = unpacked(x, self.searches, self.stored)
        nodes, squares = nodes[self.search], squares[self.search].astype(np.float64)
        lowest = squares.min(axis=1)
        shares = np.exp((lowest[:, None] - squares) / (2 * self.sigma**2))
        total = shares.sum(axis=1)
        return nodes, shares / total[:, None], -lowest / (2 * self.sigma**2) + np.log(total)

    def rows(self, x):
        nodes, shares, _ = self._shares(x)
        return _rotated(nodes, shares, self.rotation, self.unit, self.dtype)

    def terms(self, x):
        nodes, shares, log_degrees = self._shares(x)
        return (nodes, shares), np.exp(log_degrees)

    def to_dict(self):
        out = {"kind": "nodes", "dtype": self.dtype.name, "stored": self.stored.name}
        for name in ("width", "sigma", "search", "searches", "unit"):
            out[name] = getattr(self, name)
        return out if self.rotation is None else out | {"rotation": self.rotation}


class ConsensusView(View):
    """The base clusters of each row as nodes of a graph of their own, and rows of T W.

    Parameters
    ----------
    bases : list of NodeView
    centroids : list of ndarray, shapes (k_b, m_b)
    rotation : ndarray of float64, shape (Σ k_b, k), optional
        W, once it is known.
    unit : bool
        Rows of length one.
    """

    def __init__(self, bases, centroids, rotation=None, unit=True, dtype=np.float32):
        self.bases, self.centroids, self.rotation = bases, centroids, rotation
        self.unit, self.dtype = unit, np.dtype(dtype)
        self.starts = np.cumsum([0, *(len(c) for c in centroids)])
        self.width = int(self.starts[-1])

    @property
    def dim(self):
        return self.rotation.shape[1]

    @property
    def widest(self):
        return max(64 * len(self.bases), *(len(c) for c in self.centroids))

    def _nodes(self, x):
        from apnc.kmeans import closest

        found = [closest(b.rows(x), c[None], "l2")[0][0] for b, c in zip(self.bases, self.centroids, strict=True)]
        return np.stack(found, axis=1) + self.starts[:-1]

    def rows(self, x):
        nodes = self._nodes(x)
        shares = np.full(nodes.shape, 1 / len(self.bases))
        return _rotated(nodes, shares, self.rotation, self.unit, self.dtype)

    def terms(self, x):
        nodes = self._nodes(x)
        return (nodes, np.full(nodes.shape, 1 / len(self.bases))), np.full(len(x), float(len(self.bases)))

    def to_dict(self):
        out = {"kind": "consensus", "bases": len(self.bases), "unit": self.unit, "dtype": self.dtype.name}
        for b, (base, centroids) in enumerate(zip(self.bases, self.centroids, strict=True)):
            out |= {f"{b}.{name}": value for name, value in base.to_dict().items()} | {f"{b}.centroids": centroids}
        return out if self.rotation is None else out | {"rotation": self.rotation}


def view_from_dict(d: dict) -> View:
    """Return the view that `View.to_dict` described."""
    given = {name: value for name, value in d.items() if name != "kind"}
    if d["kind"] != "consensus":
        return {"plain": PlainView, "degree": DegreeView, "nodes": NodeView}[d["kind"]](**given)
    bases, centroids = [], []
    for b in range(d["bases"]):
        base = {name.removeprefix(f"{b}."): given.pop(name) for name in list(given) if name.startswith(f"{b}.")}
        centroids.append(base.pop("centroids"))
        bases.append(view_from_dict(base))
    del given["bases"]
    return ConsensusView(bases, centroids, **given)


def _rotated(nodes, shares, rotation, unit, dtype):
    """Return T W for rows T of a few shares each."""
    from scipy.sparse import csr_matrix

    n, count = nodes.shape
    shares = shares.astype(dtype, copy=False)
    t = csr_matrix((shares.ravel(), nodes.ravel(), np.arange(0, n * count + 1, count)), shape=(n, len(rotation)))
    y = t @ rotation.astype(dtype, copy=False)
    return _of_length_one(y) if unit else y


def _of_length_one(y):
    norms = np.sqrt(np.einsum("ij,ij->i", y, y))
    return y / np.where(norms > 0, norms, 1)[:, None]
