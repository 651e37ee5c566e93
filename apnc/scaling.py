"""``--scale``: what is done to the columns or rows before anything else, and kept in the model."""

from __future__ import annotations

import numpy as np

from apnc.errors import warn
from apnc.kernels import is_sparse, unit_rows

SCALES = ("none", "unit", "standard", "minmax")
BY_COLUMN = ("standard", "minmax")


class Scaler:
    """(x − shift) · factor per column, or rows of length one, or nothing.

    Parameters
    ----------
    kind : {'none', 'unit', 'standard', 'minmax'}
    shift, factor : ndarray of float64, shape (d,), optional
        Needed by 'standard' and 'minmax'. CSR rows are only multiplied: shifting would fill them.
    """

    def __init__(self, kind="none", shift=None, factor=None):
        self.kind, self.shift, self.factor = kind, shift, factor

    @classmethod
    def from_statistics(cls, kind, statistics, sparse) -> Scaler:
        """Return the scaler for column statistics (count, mean, m2, min, max) of the whole input."""
        if kind not in BY_COLUMN:
            return cls(kind)
        if kind == "standard":
            shift, spread = statistics["mean"], np.sqrt(statistics["m2"] / max(1, statistics["count"]))
        else:
            shift, spread = statistics["min"], statistics["max"] - statistics["min"]
        # a column that is constant up to rounding is left at zero, not blown up
        constant = spread <= 1e-12 * np.maximum(np.abs(shift), np.finfo(float).tiny)
        if sparse:
            warn(f"--scale {kind}: sparse rows are divided, not centred")
            shift = None
        return cls(kind, shift, 1.0 / np.where(constant, 1.0, spread))

    def __call__(self, x):
        """Return the scaled rows in their dtype; float64 arithmetic where columns are shifted."""
        if self.kind == "none":
            return x
        if self.kind == "unit":
            return unit_rows(x)
        if is_sparse(x):
            out = x.copy()
            out.data = x.data * self.factor[x.indices].astype(x.dtype)
            return out
        return ((x - self.shift) * self.factor).astype(x.dtype, copy=False)
