"""Mergeable first and second moments of rows, Σ w y and Σ w y yᵀ, and the rotations taken from them.

Rows come dense (an embedding) or as a few weighted nodes each (`apnc.neighbours`). The matrix is kept in stripes of
rows, each a part of its own, so that several reducers share it and no line of a shuffle grows long.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from apnc.blocks import Block, part_of, rows_per_block
from apnc.passes import Fold, State

STRIPE_ELEMENTS = 1 << 20  # 8 MiB of float64


@dataclass
class Moments:
    """What a moments pass learned.

    Attributes
    ----------
    rows : int
    set_aside : int
        Rows that count for nothing, because what is summed is not defined for them.
    total : ndarray of float64, shape (p,)
        Σ w y.
    second : ndarray of float64, shape (p, p), or None
        Σ w y yᵀ, where it was asked for.
    """

    rows: int
    set_aside: int
    total: np.ndarray
    second: np.ndarray | None


class MomentsFold(Fold):
    """Σ w y, and Σ w y yᵀ with ``second``, for the rows that a view makes of what is read.

    Parameters
    ----------
    view : apnc.embeddings.views.View
    embed : EmbedMap, optional
        Applied to blocks first, where rows are read and not their embedding.
    second : bool
    """

    stage = "moments"

    def __init__(self, view, embed=None, second=True):
        self.view, self.embed, self.second = view, embed, second
        self.reads = "embedding" if embed is None else "rows"

    def to_dict(self) -> dict:
        """Return what `moments_from_dict` needs."""
        out = {f"view.{name}": value for name, value in self.view.to_dict().items()} | {"second": self.second}
        return out if self.embed is None else out | {f"rows.{n}": value for n, value in self.embed.to_dict().items()}

    def rows_per_block(self):
        own = rows_per_block(self.view.widest)
        return own if self.embed is None else min(own, self.embed.rows_per_block())

    @property
    def stripe(self) -> int:
        """Rows of the matrix that make a part."""
        return max(1, STRIPE_ELEMENTS // self.view.width)

    def accumulate(self, state: State, block: Block) -> None:
        if self.embed is not None:
            block = self.embed.apply(block)
        if not block.n:
            return
        y, w = self.view.terms(block.x)
        used = block.n if w is None else int(np.count_nonzero(w))
        if block.weights is not None:
            w = block.weights if w is None else w * block.weights
        sparse = isinstance(y, tuple)
        total, matrix = (self._of_nodes if sparse else self._of_rows)(state, y, w)
        self._add(state, "rows", {"rows": block.n, "set_aside": block.n - used, "total": total})
        if matrix is not None:
            for start in range(0, self.view.width, self.stripe):
                self._add(state, f"stripe-{start:06d}", {"second": matrix[start : start + self.stripe]})

    def _of_rows(self, state, y, w):
        wide = y.astype(np.float64, copy=False)
        weighted = wide if w is None else wide * w[:, None]
        return weighted.sum(axis=0), weighted.T @ wide if self.second else None

    def _of_nodes(self, state, y, w):
        """Add the few products of each row to the matrix in place: most blocks have fewer of them than it has cells."""
        nodes, values = y
        values = values.astype(np.float64, copy=False)
        weighted = values if w is None else values * w[:, None]
        p = self.view.width
        total = np.bincount(nodes.ravel(), weighted.ravel(), p)
        if not self.second:
            return total, None
        for start in range(0, p, self.stripe):
            key = f"stripe-{start:06d}"
            if key not in state:
                state[key] = {"second": np.zeros((min(self.stripe, p - start), p))}
            flat = state[key]["second"].reshape(-1)
            for i in range(nodes.shape[1]):  # the few nodes of a row, not rows
                own = slice(None)
                if self.stripe < p:
                    own = np.flatnonzero((nodes[:, i] >= start) & (nodes[:, i] < start + self.stripe))
                cells = (nodes[own, i, None] - start) * p + nodes[own]
                np.add.at(flat, cells.ravel(), (weighted[own, i, None] * values[own]).ravel())
        return total, None

    def _add(self, state, key, part):
        state[key] = self.merge(key, state[key], part) if key in state else part

    def merge(self, key, a, b):
        if key != "rows":
            a["second"] += b["second"]
            return a
        return {name: a[name] + b[name] for name in a}

    def finish(self, state: State) -> Moments:
        p = self.view.width
        rows = state.get("rows", {"rows": 0, "set_aside": 0, "total": np.zeros(p)})
        second = None
        if self.second:
            stripes = [state[key]["second"] for key in sorted(state) if key != "rows"]
            second = np.concatenate(stripes) if stripes else np.zeros((p, p))
            second = (second + second.T) / 2
        return Moments(rows["rows"], rows["set_aside"], rows["total"], second)


def moments_from_dict(d: dict) -> MomentsFold:
    """Return the pass that `MomentsFold.to_dict` described."""
    from apnc.embed import embed_map_from_dict
    from apnc.embeddings.views import view_from_dict

    embed = part_of(d, "rows.")
    return MomentsFold(view_from_dict(part_of(d, "view.")), embed_map_from_dict(embed) if embed else None, d["second"])


def leading(matrix: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the ``count`` largest eigenvalues of a symmetric matrix, largest first, and their vectors (p, count).

    The largest entry of each vector is positive, so that one matrix gives one embedding on any LAPACK.
    """
    from scipy.linalg import eigh

    from apnc.threads import one_blas_thread

    p = len(matrix)
    with one_blas_thread():  # more threads wait for each other most of the time
        values, vectors = eigh(matrix, subset_by_index=[p - count, p - 1])
    values, vectors = values[::-1], vectors[:, ::-1]
    signs = np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(count)])
    return values, vectors * np.where(signs == 0, 1, signs)
