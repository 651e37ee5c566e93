"""Kernel functions by name.

A kernel with its parameters fixed prepares the landmarks once and is then applied to blocks of rows:
``kernel.prepare(landmarks, dtype)`` returns a function from rows (n, d) to kernel values (n, l). The formula
of each kernel stands in its class, nowhere else; float64 reference values and the float32 hot path are the
same code with another ``dtype``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from difflib import get_close_matches

import numpy as np

from apnc.errors import InputError, warn

NON_NEGATIVE = "kernel chi2 needs values of at least 0"
SIGMA_ROWS = 1000  # rows of the sample, in hash order, whose mean distance is the automatic width


class Kernel(ABC):
    """A kernel function κ(x, x') with its parameters.

    Parameters are numbers, ``'auto'`` or ``'auto*F'`` (F times the automatic value). `resolve` fixes the
    automatic ones from a sample.
    """

    name: str
    defaults: dict
    automatic: frozenset = frozenset()

    def __init__(self, **params):
        unknown = set(params) - set(self.defaults)
        if unknown:
            raise InputError(
                f"kernel {self.name} has no parameter {sorted(unknown)[0]!r}; it takes {_list(self.defaults)}"
            )
        given = {name: self._parse(name, value) for name, value in params.items() if value is not None}
        self.params = self.defaults | given
        self._check()

    def _parse(self, name, value):
        text = str(value)
        if name in self.automatic and text.split("*")[0] == "auto":
            factor = text[len("auto*") :] or "1" if text != "auto" else "1"
            try:
                if 0 < float(factor) < np.inf:
                    return text
            except ValueError:
                pass
            raise InputError(f"kernel parameter {name}={value}: the factor after auto* is a positive number")
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = np.nan
        if not np.isfinite(number):
            allowed = "a number, auto or auto*FACTOR" if name in self.automatic else "a number"
            raise InputError(f"kernel parameter {name}={value}: {allowed} is needed")
        return number

    def _check(self):
        """Raise InputError when the parameters do not define the kernel."""

    def _positive(self, *names):
        for name in names:
            value = self.params[name]
            if isinstance(value, float) and value <= 0:
                raise InputError(f"kernel parameter {name}={value:g} must be positive")

    def resolve(self, sample) -> Kernel:
        """Return the kernel with its automatic parameters fixed from sample rows (n, d) in hash order."""
        fixed = dict(self.params)
        for name, value in fixed.items():
            if isinstance(value, str):
                factor = float(value.partition("*")[2] or 1)
                fixed[name] = factor * self._automatic_value(name, sample)
        return type(self)(**fixed)

    def _automatic_value(self, name, sample):
        return 1.0 / sample.shape[1]

    @abstractmethod
    def prepare(self, landmarks, dtype=np.float32):
        """Return the function rows (n, d) → κ(rows, landmarks), shape (n, l), computed in ``dtype``."""

    def needs_float64(self, rows) -> bool:
        """Return whether float32 would lose the kernel values of ``rows`` to cancellation."""
        return False

    def undefined(self, rows):
        """Return the mask of rows on which the kernel is not defined and the rule they break, or (None, '')."""
        return None, ""

    def to_dict(self) -> dict:
        return {"name": self.name, "params": self.params}

    def __repr__(self):
        return f"{self.name}({', '.join(f'{k}={_show(v)}' for k, v in self.params.items() if v is not None)})"


def _show(value):
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _list(names):
    return ", ".join(names) or "none"


def is_sparse(x) -> bool:
    return hasattr(x, "indptr")


def squared_norms(x, dtype=np.float64) -> np.ndarray:
    """Return ‖x_i‖² of each row of a dense or CSR matrix."""
    if is_sparse(x):
        squares = np.square(x.data, dtype=dtype)  # in dtype: float32 squares lose digits, overflow and vanish
        return np.bincount(np.repeat(np.arange(x.shape[0]), np.diff(x.indptr)), squares, x.shape[0]).astype(dtype)
    x = np.asarray(x)
    return np.einsum("ij,ij->i", x, x, dtype=dtype)


def fit_width(x, width):
    """Return CSR rows with exactly ``width`` columns (readers may deliver fewer)."""
    if x.shape[1] == width:
        return x
    if x.shape[1] > width and len(x.indices) and x.indices.max() >= width:
        raise ValueError(f"sparse rows have {x.shape[1]} columns, only {width} are known")
    return type(x)((x.data, x.indices, x.indptr), shape=(x.shape[0], width))


class _DotKernel(Kernel):
    """A kernel that is a function of xᵀx'."""

    scale_parameter: str | None = None  # the factor on xᵀx', folded into the landmarks

    def prepare(self, landmarks, dtype=np.float32):
        factor = self.params[self.scale_parameter] if self.scale_parameter else 1.0
        dot = dot_with(landmarks, factor, dtype)
        return lambda rows: self._of(dot(rows))

    def _of(self, t):
        return t


def dot_with(landmarks, factor=1.0, dtype=np.float32):
    """Return the function rows → factor · rows landmarksᵀ as a dense matrix, for dense or CSR rows."""
    if is_sparse(landmarks):
        right = (landmarks.astype(np.float64) * factor).astype(dtype).T.tocsr()
        width = right.shape[0]
        return lambda rows: np.asarray((fit_width(rows, width).astype(dtype, copy=False) @ right).toarray(order="C"))
    right = np.ascontiguousarray((np.asarray(landmarks, np.float64) * factor).astype(dtype).T)
    return lambda rows: rows.astype(dtype, copy=False) @ right


class Linear(_DotKernel):
    """κ(x, x') = xᵀx'."""

    name = "linear"
    defaults: dict = {}


class Polynomial(_DotKernel):
    """κ(x, x') = (γ xᵀx' + c₀)^degree, with γ = 1, c₀ = 1, degree = 3 unless given."""

    name = "polynomial"
    defaults = {"gamma": 1.0, "c0": 1.0, "degree": 3.0}
    automatic = frozenset({"gamma"})
    scale_parameter = "gamma"

    def _check(self):
        degree = self.params["degree"]
        if degree < 1 or degree != int(degree):
            raise InputError(f"kernel parameter degree={degree:g} must be a whole number of at least 1")

    def _of(self, t):
        t += t.dtype.type(self.params["c0"])
        return _power(t, int(self.params["degree"]))


def _power(t, degree):
    """Return t ** degree by repeated squaring, which is far faster than the general power."""
    result = None
    while degree:
        if degree & 1:
            result = t.copy() if result is None else np.multiply(result, t, out=result)
        degree >>= 1
        if degree:
            t = np.multiply(t, t, out=t)
    return result


class Neural(_DotKernel):
    """κ(x, x') = tanh(a xᵀx' + b), with a = 1/d and b = 0 unless given. Indefinite, and flat where it saturates."""

    name = "neural"
    defaults = {"a": "auto", "b": 0.0}
    automatic = frozenset({"a"})
    scale_parameter = "a"

    def _of(self, t):
        t += t.dtype.type(self.params["b"])
        return np.tanh(t, out=t)


class Cosine(_DotKernel):
    """κ(x, x') = xᵀx' / (‖x‖ ‖x'‖); a zero row has similarity 0 to everything."""

    name = "cosine"
    defaults: dict = {}

    def prepare(self, landmarks, dtype=np.float32):
        dot = dot_with(unit_rows(landmarks.astype(np.float64)), 1.0, dtype)
        return lambda rows: dot(unit_rows(rows.astype(np.result_type(rows, dtype), copy=False)))


def unit_rows(x):
    """Return the rows divided by their length; zero rows stay zero."""
    norms = np.sqrt(squared_norms(x))
    norms[norms == 0] = 1.0
    if is_sparse(x):
        out = x.copy()
        out.data = (x.data / np.repeat(norms, np.diff(x.indptr))).astype(x.dtype, copy=False)
        return out
    if norms.min(initial=1.0) > 1e-30 and norms.max(initial=1.0) < 1e30:
        return x * (1.0 / norms)[:, None].astype(x.dtype, copy=False)
    return (x / norms[:, None]).astype(x.dtype, copy=False)  # whose inverse float32 does not hold


class RBF(Kernel):
    """κ(x, x') = exp(−‖x − x'‖² / 2σ²); σ, or gamma = 1/(2σ²), or σ = mean pairwise distance of sample rows."""

    name = "rbf"
    defaults = {"sigma": "auto", "gamma": None}
    automatic = frozenset({"sigma"})

    def _check(self):
        if self.params["gamma"] is not None:
            if self.params["sigma"] != "auto":
                raise InputError("kernel rbf takes sigma or gamma, not both")
            self._positive("gamma")
            given = f"gamma={self.params['gamma']:g}"
            self.params = {"sigma": float(1.0 / np.sqrt(2.0 * self.params["gamma"])), "gamma": None}
        else:
            self._positive("sigma")
            given = f"sigma={_show(self.params['sigma'])}"
        sigma = self.params["sigma"]
        if isinstance(sigma, float) and (sigma == 0 or sigma * sigma == np.inf):
            raise InputError(f"kernel parameter {given} is beyond the range of numbers")

    def _automatic_value(self, name, sample):
        return _not_zero(mean_distance(sample[:SIGMA_ROWS]), self.name)

    def needs_float64(self, rows) -> bool:
        centred = rows if is_sparse(rows) else rows - rows.mean(axis=0)
        # ‖x‖² − 2xᵀx' + ‖x'‖² in float32 errs by a few units in the last place of the largest norm
        error = 4 * np.finfo(np.float32).eps * squared_norms(centred).max(initial=0.0)
        return bool(error / (2 * self.params["sigma"] ** 2) > 1e-3)

    def prepare(self, landmarks, dtype=np.float32):
        sigma2 = self.params["sigma"] ** 2
        if is_sparse(landmarks):
            return self._prepare_sparse(landmarks, sigma2, dtype)
        landmarks = np.asarray(landmarks, np.float64)
        # rounded so that float32 and float64 rows are shifted by the very same vector
        centre = landmarks.mean(axis=0).astype(np.float32).astype(np.float64)
        shifted = landmarks - centre
        d = shifted.shape[1]
        right = np.empty((d + 2, len(shifted)), dtype)
        right[:d] = shifted.T / sigma2
        right[d] = squared_norms(shifted) / (-2 * sigma2)
        right[d + 1] = 1.0
        centres = {np.dtype(t): centre.astype(t) for t in (np.float32, np.float64)}

        def of(rows):
            # one product yields the whole exponent: [x, 1, −‖x‖²/2σ²] · [L/σ²; −‖L‖²/2σ²; 1]
            left = np.empty((len(rows), d + 2), dtype)
            # dtype: NumPy would subtract float32 rows in float32, whatever ``out`` is
            wide = np.result_type(rows, dtype)
            np.subtract(rows, centres[rows.dtype], out=left[:, :d], dtype=wide, casting="same_kind")
            left[:, d] = 1.0
            np.divide(squared_norms(left[:, :d], dtype), -2 * sigma2, out=left[:, d + 1], casting="same_kind")
            return _exp_nonpositive(left @ right)

        return of

    def _prepare_sparse(self, landmarks, sigma2, dtype):
        dot = dot_with(landmarks, 1 / sigma2, dtype)
        right = (squared_norms(landmarks) / (-2 * sigma2)).astype(dtype)

        def of(rows):
            t = dot(rows)
            t += right
            t += (squared_norms(rows) / (-2 * sigma2)).astype(dtype)[:, None]
            return _exp_nonpositive(t)

        return of


def _exp_nonpositive(t):
    np.minimum(t, 0, out=t)
    return np.exp(t, out=t)


class Laplacian(Kernel):
    """κ(x, x') = exp(−‖x − x'‖₁ / σ); σ auto = mean pairwise ℓ1 distance of sample rows."""

    name = "laplacian"
    defaults = {"sigma": "auto"}
    automatic = frozenset({"sigma"})

    def _check(self):
        self._positive("sigma")

    def _automatic_value(self, name, sample):
        return _not_zero(mean_distance(sample[:SIGMA_ROWS], "l1"), self.name)

    def prepare(self, landmarks, dtype=np.float32):
        from apnc.distances import l1_distances

        sigma = self.params["sigma"]
        if is_sparse(landmarks):
            distances = _by_active_columns(landmarks, l1_distances, dtype)
        else:
            landmarks = np.asarray(landmarks, np.float64)
            centre = landmarks.mean(axis=0)
            shifted = (landmarks - centre).astype(dtype)

            def distances(rows):
                return l1_distances((rows - centre).astype(dtype), shifted)

        def of(rows):
            t = distances(rows)
            np.multiply(t, -1 / sigma, out=t, casting="same_kind")
            return _exp_nonpositive(t)

        return of


class Chi2(Kernel):
    """κ(x, x') = exp(−γ Σ_j (x_j − x'_j)² / (x_j + x'_j)), 0/0 = 0, for values ≥ 0; γ = 1 unless given."""

    name = "chi2"
    defaults = {"gamma": 1.0}

    def _check(self):
        self._positive("gamma")

    def undefined(self, rows):
        negative = rows < 0
        if is_sparse(rows):
            if not negative.nnz:
                return None, ""
            negative = negative.sum(axis=1)
        elif not negative.any():
            return None, ""
        return np.asarray(negative, bool).reshape(rows.shape[0], -1).any(axis=1), NON_NEGATIVE

    def prepare(self, landmarks, dtype=np.float32):
        from sklearn.metrics.pairwise import additive_chi2_kernel

        gamma = self.params["gamma"]

        def distances_to(rows, others):
            if not len(rows):  # which scikit-learn refuses
                return np.empty((0, len(others)), rows.dtype)
            return -additive_chi2_kernel(np.maximum(rows, 0), others)

        if is_sparse(landmarks):
            distances = _by_active_columns(landmarks, distances_to, dtype)
        else:
            fixed = np.asarray(landmarks).astype(dtype)

            def distances(rows):
                return distances_to(rows.astype(dtype, copy=False), fixed)

        def of(rows):
            t = distances(rows)
            np.multiply(t, -gamma, out=t, casting="same_kind")
            return _exp_nonpositive(t)

        return of


def _by_active_columns(landmarks, distances, dtype, step=64):
    """Return the function CSR rows → distances to CSR landmarks, dense only in the columns a few rows use.

    For a distance that is a sum over columns and equals |v| where the row is 0 and the landmark v (ℓ1; χ² on
    non-negative values), the columns no row uses add the rest of the landmark's ℓ1 norm.
    """
    columns = landmarks.astype(dtype).tocsc()
    norms = np.asarray(abs(columns).sum(axis=1)).ravel()

    def of(rows):
        rows = fit_width(rows, columns.shape[1]).astype(dtype, copy=False)
        out = np.empty((rows.shape[0], columns.shape[0]), dtype)
        for start in range(0, rows.shape[0], step):
            some = rows[start : start + step]
            active = np.unique(some.indices)
            near = columns[:, active].toarray(order="C")
            rest = norms - np.abs(near).sum(axis=1)
            part = distances(np.ascontiguousarray(some[:, active].toarray()), near) if len(active) else 0
            out[start : start + step] = part + np.maximum(rest, 0)
        return out

    return of


def mean_distance(rows, metric="l2") -> float:
    """Return the mean distance between two different rows, in float64.

    [WGM] eq. 5 and the self-tuning of [EC] are of this kind.
    """
    n = rows.shape[0]
    if n < 2:
        return 0.0
    if metric == "l1":
        from apnc.distances import l1_distances

        rows = rows.astype(np.float64)
        if is_sparse(rows):
            total = _by_active_columns(rows, l1_distances, np.float64)(rows).sum()
        else:
            total = l1_distances(rows, rows).sum()
    else:
        rows = rows.astype(np.float64)
        if not is_sparse(rows):
            rows -= rows.mean(axis=0)  # so that the expanded form does not cancel
        norms = squared_norms(rows)
        products = rows @ rows.T
        squares = norms[:, None] + norms - 2 * (products.toarray() if is_sparse(rows) else products)
        np.fill_diagonal(squares, 0)
        total = np.sqrt(np.maximum(squares, 0)).sum()
    return float(total / (n * (n - 1)))


def _not_zero(width, name):
    if not np.isfinite(width):
        raise InputError(f"kernel {name}: the sample's values are too large for an automatic width; scale the data")
    if width > 0:
        return width
    warn(f"kernel {name}: the sample rows used for the automatic width are all equal; sigma=1 is used")
    return 1.0


KERNELS = {kernel.name: kernel for kernel in (RBF, Laplacian, Polynomial, Neural, Linear, Cosine, Chi2)}
ALIASES = {"gaussian": "rbf", "poly": "polynomial", "sigmoid": "neural", "tanh": "neural"}


def nearest_name(what, name, allowed):
    """Return the InputError for an unknown name, with the nearest valid one."""
    close = get_close_matches(str(name), list(allowed), 1, 0.5)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return InputError(f"unknown {what} {name!r}{hint} (allowed: {', '.join(allowed)})")


def make_kernel(name: str, params: dict | None = None) -> Kernel:
    """Return the kernel of that name.

    Parameters
    ----------
    name : str
        A key of `KERNELS`, or an alias: gaussian, poly, sigmoid, tanh.
    params : dict, optional
        Parameters by name; what is absent has the kernel's default.

    Raises
    ------
    InputError
        If the name or a parameter is unknown, or a value is not allowed.

    Examples
    --------
    >>> import numpy as np
    >>> kernel = make_kernel("rbf", {"gamma": 0.5})
    >>> kernel.prepare(np.zeros((1, 2)), np.float64)(np.array([[1.0, 1.0]])).round(4)
    array([[0.3679]])
    """
    name = ALIASES.get(name, name)
    if name not in KERNELS:
        raise nearest_name("kernel", name, KERNELS)
    return KERNELS[name](**{k: v for k, v in (params or {}).items() if v is not None})
