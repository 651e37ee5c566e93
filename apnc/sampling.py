"""The mergeable sample: the rows of smallest hash(seed, row identity), with counts and column statistics.

Which rows it holds depends on the files and the seed only, never on splits, tasks or order. Bad rows are counted
per rule and the first few kept, so that a pass never dies of them.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict, dataclass, field

import numpy as np

from apnc.blocks import KEPT_PROBLEMS, Block, Problem, rows_per_block
from apnc.hashing import row_hashes
from apnc.kernels import is_sparse
from apnc.passes import Fold, State

EVERYTHING = np.uint64(2**64 - 1)


@dataclass
class Sample:
    """Rows in hash order and what the pass learned about all rows.

    Attributes
    ----------
    x : ndarray or csr_matrix, shape (s, d)
        The sampled rows, in the order of their hash.
    offsets : ndarray of int64, shape (s,)
    source_index : ndarray of int64, shape (s,)
        Position of each row's source in ``sources``.
    sources : list of str
    weights : ndarray of float64, shape (s,) or None
    count : int
        Usable rows in the whole input.
    statistics : dict
        count and width, and per column mean, m2 (sum of squared deviations), min, max over all usable rows where
        they were asked for.
    problems : list of Problem
        The first bad rows in input order as far as one pass can know it: smallest (source, offset).
    rules : Counter
        Bad rows per rule.
    complete : bool
        False when the hash threshold left fewer rows than asked for; the pass is then repeated.
    """

    x: object
    offsets: np.ndarray
    source_index: np.ndarray
    sources: list[str]
    weights: np.ndarray | None
    count: int
    statistics: dict
    problems: list[Problem] = field(default_factory=list)
    rules: Counter = field(default_factory=Counter)
    complete: bool = True

    @property
    def width(self) -> int:
        return self.x.shape[1]

    def to_dict(self) -> dict:
        out = {
            "x": self.x,
            "offsets": self.offsets,
            "source_index": self.source_index,
            "sources": self.sources,
            "count": self.count,
            "problems": [asdict(p) for p in self.problems],
            "rules": dict(self.rules),
            "complete": self.complete,
        }
        if self.weights is not None:
            out["weights"] = self.weights
        return out | {f"column.{name}": value for name, value in self.statistics.items()}

    @classmethod
    def from_dict(cls, d: dict) -> Sample:
        return cls(
            d["x"],
            d["offsets"],
            d["source_index"],
            d["sources"],
            d.get("weights"),
            d["count"],
            {name.removeprefix("column."): value for name, value in d.items() if name.startswith("column.")},
            [Problem(**p) for p in d["problems"]],
            Counter(d["rules"]),
            d["complete"],
        )


def hash_threshold(size: int, estimated_rows: int) -> np.uint64:
    """Return the hash below which ``size`` rows are found with near certainty (size + 6 √size expected)."""
    share = (size + 6 * math.sqrt(size)) / max(1, estimated_rows)
    return EVERYTHING if share >= 1 else np.uint64(share * 2.0**64)


class SampleFold(Fold):
    """Keeps the rows of smallest hash, and sums what is worth knowing about all rows.

    Parameters
    ----------
    seed : int
    size : int
        Rows wanted; the input's rows at most.
    threshold : uint64
        Rows of larger hash are not kept, which bounds what a task forwards.
    width : int or None
        Number of features where it is known before the pass.
    columns : bool
        Sum up each column: what some kinds of scaling need, and most of what the pass costs.
    """

    stage = "sample"

    def __init__(self, seed, size, threshold=EVERYTHING, width=None, columns=True):
        self.seed, self.size, self.threshold, self.width = seed, size, np.uint64(threshold), width
        self.columns = columns

    def rows_per_block(self):
        return rows_per_block(self.width or 1)

    def accumulate(self, state: State, block: Block) -> None:
        part = self._part_of(block)
        state["sample"] = self.merge("sample", state["sample"], part) if "sample" in state else part

    def _part_of(self, block: Block) -> dict:
        part = {
            "rows": [],
            "problems": [asdict(p) for p in block.problems],
            "rules": dict(block.rules),
            "statistics": column_statistics(block.x) if self.columns else row_statistics(block.x),
        }
        if block.n:
            hashes = row_hashes(self.seed, "sample", block.source, block.offsets)
            kept = np.flatnonzero(hashes <= self.threshold)
            if len(kept) > self.size:
                kept = np.sort(kept[np.argpartition(hashes[kept], self.size)[: self.size]])
            if len(kept):
                part["rows"] = [
                    {
                        "hash": hashes[kept],
                        "source": np.zeros(len(kept), np.int64),
                        "sources": [block.source],
                        "offset": block.offsets[kept],
                        "x": block.x[kept],
                        "weight": np.ones(len(kept)) if block.weights is None else block.weights[kept],
                    }
                ]
        return part

    def merge(self, key, a, b):
        a["rows"] = a["rows"] + b["rows"]
        if sum(len(r["hash"]) for r in a["rows"]) > 2 * self.size + 4096:
            a["rows"] = [self._smallest(a["rows"])]
        a["problems"] = _first(a["problems"] + b["problems"])
        a["rules"] = dict(Counter(a["rules"]) + Counter(b["rules"]))
        a["statistics"] = merge_statistics(a["statistics"], b["statistics"])
        return a

    def _smallest(self, rows: list[dict]) -> dict:
        """Return one dict of the ``size`` rows of smallest (hash, source, offset), in that order."""
        sources = sorted({name for r in rows for name in r["sources"]})
        position = {name: i for i, name in enumerate(sources)}
        source = np.concatenate([np.array([position[s] for s in r["sources"]], np.int64)[r["source"]] for r in rows])
        hashes = np.concatenate([r["hash"] for r in rows])
        offset = np.concatenate([r["offset"] for r in rows])
        order = np.lexsort((offset, source, hashes))[: self.size]
        return {
            "hash": hashes[order],
            "source": source[order],
            "sources": sources,
            "offset": offset[order],
            "x": stack_rows([r["x"] for r in rows])[order],
            "weight": np.concatenate([r["weight"] for r in rows])[order],
        }

    def seal(self, part):
        """Return the part with plain arrays only, fit for `apnc.blocks.pack`."""
        sealed = {"problems": part["problems"], "rules": part["rules"]}
        sealed |= {f"column.{name}": value for name, value in part["statistics"].items()}
        if part["rows"]:
            sealed |= {f"row.{name}": value for name, value in self._smallest(part["rows"]).items()}
        return sealed

    def unseal(self, sealed):
        row = {n.removeprefix("row."): v for n, v in sealed.items() if n.startswith("row.")}
        return {
            "problems": sealed["problems"],
            "rules": sealed["rules"],
            "statistics": {n.removeprefix("column."): v for n, v in sealed.items() if n.startswith("column.")},
            "rows": [row] if row else [],
        }

    def finish(self, state: State) -> Sample:
        part = state.get("sample") or {"rows": [], "problems": [], "rules": {}, "statistics": {"count": 0, "width": 0}}
        statistics = part["statistics"]
        count = int(statistics["count"])
        problems, rules = [Problem(**p) for p in part["problems"]], Counter(part["rules"])
        if not part["rows"]:
            empty = np.empty(0, np.int64)
            return Sample(np.empty((0, 0)), empty, empty, [], None, count, statistics, problems, rules, count == 0)
        rows = self._smallest(part["rows"])
        x = rows["x"]
        if is_sparse(x) and x.shape[1] < statistics["width"]:
            x.resize(x.shape[0], statistics["width"])
        return Sample(
            x,
            rows["offset"],
            rows["source"],
            rows["sources"],
            None if (rows["weight"] == 1).all() else rows["weight"],
            count,
            statistics,
            problems,
            rules,
            len(rows["hash"]) >= min(self.size, count),
        )


def stack_rows(matrices):
    """Return dense or CSR matrices one below the other, CSR ones padded to the widest."""
    if len(matrices) == 1:
        return matrices[0]
    if is_sparse(matrices[0]):
        from scipy.sparse import csr_matrix, vstack

        width = max(m.shape[1] for m in matrices)
        matrices = [csr_matrix((m.data, m.indices, m.indptr), shape=(m.shape[0], width)) for m in matrices]
        return vstack(matrices, format="csr")
    return np.concatenate(matrices)


def _first(problems):
    return sorted(problems, key=lambda p: (not p["fatal"], p["source"], p["offset"]))[:KEPT_PROBLEMS]


def row_statistics(x) -> dict:
    """Return the count and the width of rows."""
    return {"count": x.shape[0], "width": x.shape[1]}


def column_statistics(x) -> dict:
    """Return count and width, and mean, m2, min and max of each column, the sums in float64."""
    n, d = x.shape
    if n == 0:
        zero = np.zeros(d)
        columns = {"mean": zero, "m2": zero.copy(), "min": zero + np.inf, "max": zero - np.inf}
        return row_statistics(x) | columns
    if is_sparse(x):
        data = x.data.astype(np.float64)
        mean = np.bincount(x.indices, data, d) / n
        stored = np.bincount(x.indices, minlength=d)
        # from differences: Σx² − n·mean² has no digit left where the spread is small against the mean
        m2 = np.bincount(x.indices, np.square(data - mean[x.indices]), d) + (n - stored) * mean * mean
        full = stored == n
        low, high = np.full(d, np.inf), np.full(d, -np.inf)
        np.minimum.at(low, x.indices, data)
        np.maximum.at(high, x.indices, data)
        return row_statistics(x) | {
            "mean": mean,
            "m2": m2,
            "min": np.where(full, low, np.minimum(low, 0)),
            "max": np.where(full, high, np.maximum(high, 0)),
        }
    mean = x.sum(axis=0, dtype=np.float64) / n
    centred = x - mean.astype(x.dtype)
    # the rounding of the mean to the dtype of x is taken out again: Σ(x−c)² − n(mean−c)²
    shift = mean - mean.astype(x.dtype)
    m2 = np.einsum("ij,ij->j", centred, centred, dtype=np.float64) - n * shift * shift
    low, high = (bound.astype(np.float64) for bound in (x.min(axis=0), x.max(axis=0)))
    return row_statistics(x) | {"mean": mean, "m2": np.maximum(m2, 0), "min": low, "max": high}


def merge_statistics(a: dict, b: dict) -> dict:
    """Return the statistics of both sets of rows (Chan, Golub and LeVeque 1983); the narrower one is padded."""
    if not b["count"] or not a["count"]:
        return a if a["count"] else b
    n, width = a["count"] + b["count"], max(a["width"], b["width"])
    if "mean" not in a:
        return {"count": n, "width": width}
    a, b = _widen(a, width), _widen(b, width)
    delta = b["mean"] - a["mean"]
    return {
        "count": n,
        "width": width,
        "mean": a["mean"] + delta * (b["count"] / n),
        "m2": a["m2"] + b["m2"] + delta * delta * (a["count"] * b["count"] / n),
        "min": np.minimum(a["min"], b["min"]),
        "max": np.maximum(a["max"], b["max"]),
    }


def _widen(s, width):
    """Add columns in which all rows so far are zero."""
    missing = width - s["width"]
    if not missing:
        return s
    return {k: np.concatenate([v, np.zeros(missing)]) if isinstance(v, np.ndarray) else v for k, v in s.items()}
