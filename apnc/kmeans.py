"""k-means passes over an embedding: assignment, mergeable (Z, g, objective), update, empty clusters.

Several centroid sets (runs) share a pass. What a pass exchanges per run is Z (sum of y per cluster), g (count per
cluster) and two numbers, whatever the number of rows ([EC] Algorithm 2).
"""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass

import numpy as np

from apnc.blocks import Block, part_of, rows_per_block
from apnc.distances import l1_distances
from apnc.passes import Fold, Map, State

FEW_CLUSTERS = 16  # a dense product costs little more then, and spares a map task the import of scipy.sparse
FEW_ROWS = 256  # tell whether runs agree on most rows of a block
SAME = 1e-6  # objectives closer than this, relatively, count as equal when runs are compared


def closest(y: np.ndarray, centroids: np.ndarray, metric: str):
    """Return the nearest centroid of each row in each run, and for ℓ1 the distances to it.

    Parameters
    ----------
    y : ndarray, shape (n, m)
    centroids : ndarray, shape (R, k, m)
    metric : {'l2', 'l1'}

    Returns
    -------
    labels : ndarray of int, shape (R, n)
        Ties go to the lower index.
    distances : ndarray of float, shape (R, n), or None for ℓ2
    """
    runs, k, m = centroids.shape
    flat = np.ascontiguousarray(centroids.reshape(runs * k, m), y.dtype)
    if metric == "l1":
        table = l1_distances(y, flat).reshape(len(y), runs, k)
        labels = table.argmin(axis=2)
        return labels.T, np.take_along_axis(table, labels[:, :, None], 2)[:, :, 0].T
    # argmin ‖y − c‖² = argmax yᵀc − ‖c‖²/2
    table = y @ flat.T
    table -= (np.einsum("ij,ij->i", flat, flat, dtype=np.float64) / 2).astype(y.dtype)
    return table.reshape(len(y), runs, k).argmax(axis=2).T, None


def distances_to(y: np.ndarray, chosen: np.ndarray, metric: str) -> np.ndarray:
    """Return e(y_i, chosen_i) in float64, from differences: to the digits of y where the expanded form would cancel.

    Each row is summed in the dtype of y, in which its digits end anyway: in float64 it would take thrice the time.
    """
    difference = y - chosen.astype(y.dtype, copy=False)
    if metric == "l1":
        return np.abs(difference, out=difference).sum(axis=1).astype(np.float64)
    return np.sqrt(np.einsum("ij,ij->i", difference, difference).astype(np.float64))


def sum_by_label(wide: np.ndarray, labels: np.ndarray, k: int, weights=None) -> np.ndarray:
    """Return Z: the sum of y per cluster for each run, shape (R, k, m), for float64 rows.

    Rows with the same labels in all runs are added up first, and their sums once for each run, where runs agree on
    most rows. Else runs are taken in pairs where pairs of labels are few: each row is then added once for two runs,
    and the k² sums are added up to 2k by a small product.
    """
    runs, n = labels.shape
    if runs == 1:
        return _sums(wide, labels, k, weights).reshape(1, k, -1)
    if runs > 2:
        joint = _joint(labels, k)
        if len(np.unique(joint[:FEW_ROWS])) < FEW_ROWS / 2 <= n / 4:
            _, first, joint = np.unique(joint, return_index=True, return_inverse=True)
            of_joint = _sums(wide, joint[None], len(first), weights)
            return _sums(of_joint, labels[:, first], k, None).reshape(runs, k, -1)
    if 4 * k * k > n:
        return _sums(wide, labels, k, weights).reshape(runs, k, -1)
    paired = runs // 2
    joint = labels[0 : 2 * paired : 2] * k + labels[1 : 2 * paired : 2]
    of_pairs = _sums(wide, joint, k * k, weights).reshape(paired, k * k, -1)
    first = np.repeat(np.eye(k), k, axis=1)  # row i adds up the pairs (i, ·)
    second = np.tile(np.eye(k), k)
    sums = np.matmul(np.concatenate([first, second]), of_pairs).reshape(2 * paired, k, -1)
    if 2 * paired < runs:
        sums = np.concatenate([sums, _sums(wide, labels[-1:], k, weights)[None]])
    return sums


def _joint(labels, k):
    """Return a number for each row that stands for its labels in all runs, shape (n,)."""
    joint, below = labels[0].astype(np.int64), k
    for run in labels[1:]:
        if below > np.iinfo(np.int64).max // k:
            found, joint = np.unique(joint, return_inverse=True)
            below = len(found)
        joint, below = joint * k + run, below * k
    return joint


def _sums(wide, labels, groups, weights):
    """Return the sum of rows per group, for several labellings side by side, shape (labellings · groups, m)."""
    several, n = labels.shape
    columns = (labels + (np.arange(several) * groups)[:, None]).T.ravel()
    values = np.ones(n * several) if weights is None else np.repeat(weights, several)
    if several * groups <= FEW_CLUSTERS and "scipy.sparse" not in sys.modules:
        dense = np.zeros((n, several * groups))
        dense[np.repeat(np.arange(n), several), columns] = values
        return dense.T @ wide
    from scipy.sparse import csr_matrix

    one_hot = csr_matrix((values, columns, np.arange(0, n * several + 1, several)), shape=(n, several * groups))
    return one_hot.T @ wide


def _sum_of_squares(wide, weights):
    if weights is None:
        return np.vdot(wide, wide)
    return weights @ np.einsum("ij,ij->i", wide, wide)


def _zero_rows(y):
    candidates = y[y[:, 0] == 0] if y.shape[1] else y
    return len(candidates) - int(candidates.any(axis=1).sum())


_scratch = threading.local()


def _as_float64(y: np.ndarray) -> np.ndarray:
    """Return y in float64, in a buffer that the thread uses again for its next block.

    Fresh memory for each block costs more in page faults than the conversion itself.
    """
    if y.dtype == np.float64:
        return y
    buffer = getattr(_scratch, "buffer", None)
    if buffer is None or buffer.size < y.size:
        buffer = _scratch.buffer = np.empty(y.size)
    wide = buffer[: y.size].reshape(y.shape)
    np.copyto(wide, y)
    return wide


@dataclass
class PassResult:
    """What one k-means pass learned.

    Attributes
    ----------
    sums : ndarray of float64, shape (R, k, m)
        Z.
    counts : ndarray, shape (R, k)
        g: integers, or float64 sums of weights.
    objectives : ndarray of float64, shape (R,)
        Σ e(y, ȳ)² for the centroids the pass was given.
    rows : int
    zero_rows : int
        Rows whose embedding is zero: no similarity to any landmark.
    """

    sums: np.ndarray
    counts: np.ndarray
    objectives: np.ndarray
    rows: int
    zero_rows: int


class KMeansFold(Fold):
    """One pass: Z, g and the objective for each run.

    Parameters
    ----------
    centroids : ndarray, shape (R, k, m)
    metric : {'l2', 'l1'}
    view : View, optional
        Makes y of what is stored, where that is not y itself.
    """

    stage = "kmeans"
    reads = "embedding"

    def __init__(self, centroids, metric="l2", view=None):
        self.centroids, self.metric, self.view = centroids, metric, view

    def to_dict(self) -> dict:
        """Return what `kmeans_from_dict` needs."""
        return {"centroids": self.centroids, "metric": self.metric} | _described(self.view)

    def rows_per_block(self):
        runs, k, m = self.centroids.shape
        return rows_per_block(m, runs * k, self.view.widest if self.view else 1)

    def accumulate(self, state: State, block: Block) -> None:
        if not block.n:
            return
        y, weights = self.view.rows(block.x) if self.view else block.x, block.weights
        runs, k, _ = self.centroids.shape
        labels, distances = closest(y, self.centroids, self.metric)
        wide = _as_float64(y)
        sums = sum_by_label(wide, labels, k, weights)
        counts = np.stack([np.bincount(run, weights, k) for run in labels])
        # ℓ2: Σ‖y‖², to which `finish` adds what depends on the centroids; ℓ1: Σ e² itself
        if distances is None:
            squares = np.full(runs, _sum_of_squares(wide, weights))
        else:
            squares = np.square(distances, dtype=np.float64) @ (np.ones(block.n) if weights is None else weights)
        part = {"rows": block.n, "zero_rows": _zero_rows(y), "squares": squares}
        self._add(state, "rows", part)
        for r in range(runs):
            self._add(state, f"run-{r}", {"sums": sums[r], "counts": counts[r]})

    def _add(self, state, key, part):
        state[key] = self.merge(key, state[key], part) if key in state else part

    def merge(self, key, a, b):
        return {name: a[name] + b[name] for name in a}

    def finish(self, state: State) -> PassResult:
        runs, k, m = self.centroids.shape
        rows = state.get("rows", {"rows": 0, "zero_rows": 0, "squares": np.zeros(runs)})
        empty = {"sums": np.zeros((k, m)), "counts": np.zeros(k, np.int64)}
        parts = [state.get(f"run-{r}", empty) for r in range(runs)]
        sums, counts = np.stack([p["sums"] for p in parts]), np.stack([p["counts"] for p in parts])
        objectives = np.array(rows["squares"], np.float64)
        if self.metric == "l2":
            # Σ‖y − c‖² = Σ‖y‖² − 2 Σ_c cᵀZ_c + Σ_c g_c ‖c‖², all in float64
            c = self.centroids.astype(np.float64)
            objectives += np.einsum("rkm,rkm->r", c, counts[:, :, None] * c - 2 * sums)
            objectives = np.maximum(objectives, 0)
        return PassResult(sums, counts, objectives, rows["rows"], rows["zero_rows"])


def best_run(objectives: np.ndarray) -> int:
    """Return the lowest index whose objective is within 1e-6 of the lowest."""
    return int(np.flatnonzero(objectives <= objectives.min() * (1 + SAME))[0])


def updated(result: PassResult, centroids: np.ndarray, sample: np.ndarray, metric: str):
    """Return the next centroids Z/g, with empty clusters refilled from the embedded sample.

    Parameters
    ----------
    result : PassResult
    centroids : ndarray, shape (R, k, m)
        Those the pass was given; an empty cluster that cannot be refilled keeps its own.
    sample : ndarray, shape (s, m)
        Embedded sample rows, whose dtype the centroids take.

    Returns
    -------
    centroids : ndarray, shape (R, k, m)
    refilled : ndarray of int, shape (R,)
        Clusters that got a new place, per run.
    """
    occupied = result.counts[:, :, None] > 0
    means = np.where(occupied, result.sums / np.where(occupied, result.counts[:, :, None], 1), centroids)
    means = means.astype(sample.dtype)
    refilled = [
        refill(run, np.flatnonzero(counts == 0), sample, metric) if (counts == 0).any() else 0
        for run, counts in zip(means, result.counts, strict=True)
    ]
    return means, np.array(refilled)


def refill(centroids: np.ndarray, empty: np.ndarray, sample: np.ndarray, metric: str) -> int:
    """Move each empty centroid, in place, to the sample row farthest from all others; return how many moved.

    A row at distance zero is all its cluster holds, so it is never taken: with fewer distinct rows than clusters
    some stay empty, and passes cannot trade the same row for ever.
    """
    filled = np.setdiff1d(np.arange(len(centroids)), empty)
    if not len(sample):
        return 0
    if len(filled):
        others = centroids[filled]
        labels, _ = closest(sample, others[None], metric)
        distance = distances_to(sample, others[labels[0]], metric)
    else:
        distance = np.full(len(sample), np.inf)
    smallest = _resolution(sample, metric)
    for moved, j in enumerate(empty):
        row = int(distance.argmax())
        if distance[row] <= smallest:
            return moved
        centroids[j] = sample[row]
        distance = np.minimum(distance, distances_to(sample, sample[row][None], metric))
    return len(empty)


def _resolution(y, metric):
    """Return the distance below which `closest` may take two points for one: its expanded form loses half the digits.

    A centroid put on a row nearer than that to another one may win no row, and would be moved again for ever.
    """
    eps = np.finfo(y.dtype).eps
    if metric == "l1":
        return 8 * eps * float(np.abs(y).sum(axis=1).max(initial=0.0))
    return float(np.sqrt(8 * eps * np.einsum("ij,ij->i", y, y, dtype=np.float64).max(initial=0.0)))


def numbered(centroids: np.ndarray, sample: np.ndarray, metric: str) -> np.ndarray:
    """Return centroids (k, m) in the order of the first sample row, by hash rank, assigned to each.

    Those without a sample row come last, in the order they have.
    """
    labels, _ = closest(sample, centroids[None], metric)
    seen, first = np.unique(labels[0], return_index=True)
    order = seen[np.argsort(first)]
    return centroids[np.concatenate([order, np.setdiff1d(np.arange(len(centroids)), order)])]


class AssignMap(Map):
    """Each embedded row's cluster and its distance e(y, ȳ), as a float64 matrix of two columns."""

    stage = "assign"
    reads = "embedding"

    def __init__(self, centroids, metric="l2", view=None):
        self.centroids, self.metric, self.view = centroids, metric, view

    @classmethod
    def of(cls, model, centroids=None) -> AssignMap:
        return cls(model.centroids[0] if centroids is None else centroids, model.metric, model.view)

    def to_dict(self) -> dict:
        """Return what `assign_from_dict` needs."""
        return {"centroids": self.centroids[None], "metric": self.metric} | _described(self.view)

    def rows_per_block(self):
        return rows_per_block(*self.centroids.shape, self.view.widest if self.view else 1)

    def apply(self, block: Block) -> Block:
        if not block.n:
            return block.replace_x(np.empty((0, 2)))
        y = self.view.rows(block.x) if self.view else block.x
        labels, _ = closest(y, self.centroids[None], self.metric)
        labels = labels[0]
        return block.replace_x(np.column_stack([labels, distances_to(y, self.centroids[labels], self.metric)]))


def _described(view):
    return {} if view is None else {f"view.{name}": value for name, value in view.to_dict().items()}


def _parts(d):
    """Return centroids (R, k, m), metric and view of a described pass."""
    view = part_of(d, "view.")
    if not view:
        return d["centroids"], d["metric"], None
    from apnc.embeddings.views import view_from_dict

    return d["centroids"], d["metric"], view_from_dict(view)


def kmeans_from_dict(d: dict) -> KMeansFold:
    """Return the pass that `KMeansFold.to_dict` described."""
    return KMeansFold(*_parts(d))


def assign_from_dict(d: dict) -> AssignMap:
    """Return the pass that `AssignMap.to_dict` described."""
    centroids, metric, view = _parts(d)
    return AssignMap(centroids[0], metric, view)
