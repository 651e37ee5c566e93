"""The parameters of a run, with what each may be declared once."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field, fields

import numpy as np

from apnc.errors import InputError, warn
from apnc.kernels import make_kernel, nearest_name
from apnc.landmarks import SELECTIONS
from apnc.scaling import SCALES

SAMPLE_ROWS = 10_000


@dataclass
class Settings:
    """Everything that decides the result, apart from the input.

    Parameters
    ----------
    k : int
        Number of clusters.
    method, kernel : str
        Names from ``apnc methods`` and ``apnc kernels``.
    kernel_params : dict
        By name; absent ones have the kernel's default.
    landmarks : int
        l, over all blocks.
    landmark_selection : {'uniform'}
    dim : int or None
        m, over all blocks; None for the method's default.
    blocks : int
        q, blocks of R.
    t_share : float
        t/l of the stable method, in (0, 0.9].
    passes : int
        Cap on full k-means passes.
    tol : float or None
        Relative gain that ends the passes; None is 1e-4, or 0 with random starts.
    restarts : int
        Starts tried on the sample.
    full_restarts : bool
        Carry all starts through the full passes.
    init : {'sample', 'random', 'rows'}
        'rows': the start centroids are ``init_rows``, given in input space.
    init_rows : list of list of float or None
    sample : int or None
        Rows of the sample; None for the default.
    seed : int
    scale : {'none', 'unit', 'standard', 'minmax'}
    on_bad_row : {'fail', 'skip'}
    dtype : {'float32', 'float64'}
        Of embeddings; float64 is taken by itself where float32 cannot tell rows apart.
    whiten : bool
        Give the columns of a rotated embedding equal weight.
    unit_rows : bool or None
        Give the rows of a rotated embedding length one; None is what the method does by itself.
    representatives : int
        p of U-SPEC and U-SENC.
    neighbours : int
        K, nearest representatives of a row.
    neighbour_search : {'exact', 'approximate'}
    base_clusterings, k_min, k_max : int
        M of U-SENC, and the range of their numbers of clusters.
    """

    k: int = 8
    method: str = "nystrom"
    kernel: str = "rbf"
    kernel_params: dict = field(default_factory=dict)
    landmarks: int = 500
    landmark_selection: str = "uniform"
    dim: int | None = None
    blocks: int = 1
    t_share: float = 0.4
    passes: int = 20
    tol: float | None = None
    restarts: int = 10
    full_restarts: bool = False
    init: str = "sample"
    init_rows: list | None = None
    sample: int | None = None
    seed: int = 0
    scale: str = "none"
    on_bad_row: str = "fail"
    dtype: str = "float32"
    whiten: bool = False
    unit_rows: bool | None = None
    representatives: int = 1000
    neighbours: int = 5
    neighbour_search: str = "exact"
    base_clusterings: int = 20
    k_min: int = 20
    k_max: int = 60

    def __post_init__(self):
        for f in fields(self):  # a grid search hands over NumPy's numbers, which JSON does not know
            value = getattr(self, f.name)
            if isinstance(value, np.generic):
                setattr(self, f.name, value.item())

    def check(self) -> Settings:
        """Return the settings if every value is allowed.

        Raises
        ------
        InputError
            Naming the option, the value and the rule.
        """
        method = self._method
        counts = ("representatives", "neighbours", "base_clusterings", "k_min", "k_max")
        for name in ("k", "landmarks", "blocks", "restarts", "passes", *counts):
            _whole(name, getattr(self, name), 1)
        for name in ("dim", "sample"):
            if getattr(self, name) is not None:
                _whole(name, getattr(self, name), 1)
        _whole("seed", self.seed, 0)
        _number("t_share", self.t_share)
        if self.tol is not None:
            _number("tol", self.tol)
        if not 0 < self.t_share <= 0.9:
            raise InputError(f"--t-share {self.t_share:g} must be above 0 and at most 0.9 (at 1 R is zero)")
        if self.tol is not None and not 0 <= self.tol < 1:
            raise InputError(f"--tol {self.tol:g} must be at least 0 and below 1")
        if self.dim is not None and self.dim < self.blocks:
            raise InputError(f"--dim {self.dim} is less than --blocks {self.blocks}")
        if self.landmarks < self.blocks:
            raise InputError(f"--landmarks {self.landmarks} is less than --blocks {self.blocks}")
        _one_of("landmark-selection", self.landmark_selection, SELECTIONS)
        _one_of("scale", self.scale, SCALES)
        _one_of("init", self.init, ("sample", "random", "rows"))
        _one_of("on-bad-row", self.on_bad_row, ("fail", "skip"))
        _one_of("dtype", self.dtype, ("float32", "float64"))
        if not isinstance(self.whiten, bool):
            raise InputError(f"--whiten {self.whiten!r} must be true or false")
        if self.unit_rows is not None and not isinstance(self.unit_rows, bool):
            raise InputError(f"--unit-rows {self.unit_rows!r} must be true or false")
        if self.init == "rows" and len(self.init_rows or ()) != self.k:
            raise InputError(f"--init holds {len(self.init_rows or ())} rows, but -k is {self.k}")
        if method.uses_kernel:
            make_kernel(self.kernel, self.kernel_params)
        method.check(self)
        return self

    def warn_of_unused(self) -> Settings:
        """Warn of each setting that is not as by default but of which the method has no use; return the settings."""
        from apnc.embeddings.methods import METHODS

        of_others = {name for method in METHODS.values() for name in method.options}.difference(self._method.options)
        default = Settings()
        for f in fields(self):
            if f.name in of_others and getattr(self, f.name) != getattr(default, f.name):
                warn(f"{_option(f.name)} is not used by --method {self.method}")
        return self

    @property
    def _method(self):
        from apnc.embeddings.methods import make_method

        return make_method(self.method)

    def sample_rows(self, width: int | None = None) -> int:
        """Return l', the rows of the sample, for rows of ``width`` features where that is known."""
        return max(self.start_rows, self._method.sample_rows(self, width))

    @property
    def start_rows(self) -> int:
        """Rows of the sample that start centroids are found on: all of it for most methods."""
        return max(self.sample or SAMPLE_ROWS, self.landmarks if self._method.uses_kernel else 1, self.k)

    @property
    def gain_to_go_on(self) -> float:
        if self.tol is not None:
            return self.tol
        return 0.0 if self.init == "random" else 1e-4

    @property
    def runs(self) -> int:
        """Centroid sets that go through the full passes."""
        return self.restarts if self.full_restarts and self.init != "rows" else 1

    def check_memory(self, rows: int, width: int | None, available: int | None = None) -> None:
        """Refuse what cannot fit the memory of the process that makes the coefficients.

        Parameters
        ----------
        rows : int
            Of the input, about.
        width : int or None
            Number of features, where it is known.
        available : int, optional
            Bytes; the memory of this machine by default.

        Raises
        ------
        InputError
            Naming the option to lower, what it takes and what there is.
        """
        available = available or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        # the estimate is on the low side
        sampled, started = (min(n, 1 + 5 * rows // 4) for n in (self.sample_rows(width), self.start_rows))
        k, trials = min(self.k, started), 2 + int(np.log(min(self.k, started)))
        takes = {"--sample": 12 * sampled * (width or 1)} | self._method.memory(self, sampled, width or 1)
        takes["--restarts"] = self.restarts * (16 * k * self._method.dim(self, width) + 8 * started * (1 + trials))
        option = max(takes, key=takes.get)
        if takes[option] > available:
            raise InputError(
                f"{option}: about {takes[option] / 2**30:.3g} GiB of memory would be needed, this machine has "
                f"{available / 2**30:.3g}; lower it"
            )

    def to_dict(self) -> dict:
        return asdict(self)

    @classmethod
    def from_dict(cls, d: dict) -> Settings:
        return cls(**{f.name: d[f.name] for f in fields(cls) if f.name in d})


def _whole(name, value, least):
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise InputError(f"{_option(name)} {value!r} must be a whole number of at least {least}")


def _number(name, value):
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise InputError(f"{_option(name)} {value!r} must be a number")


def _option(name):
    return "-k" if name == "k" else f"--{name.replace('_', '-')}"


def _one_of(name, value, allowed):
    if value not in allowed:
        raise nearest_name(f"--{name}", value, allowed)
