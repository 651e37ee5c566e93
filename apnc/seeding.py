"""Start centroids from the embedded sample: k-means++ and Lloyd, all restarts side by side.

The work is cut into fixed blocks of sample rows, one thread each, and sums are added in block order: the same start
centroids on any number of cores.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from apnc.blocks import Block
from apnc.distances import l1_distances
from apnc.hashing import generator
from apnc.kmeans import KMeansFold, updated
from apnc.passes import merge_states

BLOCK_ROWS = 640  # a quarter of the default sample is then four blocks
MAX_ITERATIONS = 100
TOLERANCE = 1e-4  # at most
OF_NOISE = 0.01  # k means of s rows explain k/s of the objective by chance: a gain below 1 % of that is not worth more
QUARTER_TOLERANCE = 1e-3  # goes on with the whole sample anyway
RACE = 2  # iterations between two halvings of the starts that go on
ROWS_PER_CLUSTER = 32
UNLIKE = 1.2  # objectives per row of the sample and of its first quarter: above, the quarter lacks what counts
DIRECTIONS = 5  # per cluster: the best clusters in k/ε principal directions are within 1 + ε of the best in all


def seed_centroids(
    y, k, restarts, metric="l2", seed=0, weights=None, threads=1, wanted=None, tolerance=None, principal=False
):
    """Return start centroids from k-means++ and Lloyd's iterations on the embedded sample.

    Parameters
    ----------
    y : ndarray, shape (s, m)
        Embedded sample rows in hash order.
    k : int
    restarts : int
        R starts, run side by side.
    metric : {'l2', 'l1'}
    seed : int
    weights : ndarray, shape (s,), optional
    threads : int
    wanted : int, optional
        Centroid sets of which only the best will be used; all R by default. Fewer make a race of it: the worse half of
        the starts ends after the first quarter of the sample, and of those left after every second iteration on all of
        it, until ``wanted`` are left. They seldom overtake the better half.
    tolerance : float, optional
        Relative gain that ends a start; by default the smaller of 10⁻⁴ and k/100s.
    principal : bool
        Whether the columns are principal directions of ℓ2 rows, about. The 5k largest then tell clusters apart all but
        as well as all m do: starts run on those, and what comes of them goes on with all.

    Returns
    -------
    centroids : ndarray, shape (R', k, m)
        R' = R, or at least ``wanted`` where others ended early.
    objectives : ndarray, shape (R',)
        Σ e² on the sample.

    References
    ----------
    Cohen, Elder, Musco, Musco and Persu (2015), Dimensionality reduction for k-means clustering and low rank
    approximation: the singular vectors that suffice.
    """
    leading = DIRECTIONS * k
    if tolerance is None:
        tolerance = min(TOLERANCE, OF_NOISE * k / len(y))
    with ThreadPoolExecutor(threads) as pool:
        if not principal or 2 * leading > y.shape[1]:
            return _raced(Blocks(y, weights, metric, pool), k, restarts, seed, tolerance, wanted)
        columns = _largest(y, weights, leading)
        narrow = Blocks(np.ascontiguousarray(y[:, columns]), weights, metric, pool)
        centroids, objectives = _raced(narrow, k, restarts, seed, QUARTER_TOLERANCE, wanted)
        if wanted is not None:
            centroids = centroids[_lowest(objectives, wanted)]
        # argmax yᵀc − ‖c‖²/2 is the same with zeros for the other columns: the first iteration puts means there
        wide = np.zeros((*centroids.shape[:2], y.shape[1]), y.dtype)
        wide[:, :, columns] = centroids
        return _lloyd(Blocks(y, weights, metric, pool), wide, tolerance, wanted)


def _largest(y, weights, count):
    """Return the columns whose squares have the largest sums, which need not be those that the landmarks put first."""
    squares = np.einsum("ij,ij->j", y, y) if weights is None else np.einsum("i,ij,ij->j", weights, y, y)
    return np.sort(np.argsort(-squares, kind="stable")[:count])


def settled_objective(y, centroids, metric, weights=None, threads=1):
    """Return the lowest Σ e² on the sample that Lloyd's iterations reach from given centroids (R, k, m)."""
    with ThreadPoolExecutor(threads) as pool:
        return float(_lloyd(Blocks(y, weights, metric, pool), centroids)[1].min())


def random_centroids(y, k, restarts, seed=0, weights=None):
    """Return k different sample rows for each of R starts, shape (R, k, m): the protocol of [EC]."""
    usable = np.arange(len(y)) if weights is None else np.flatnonzero(weights > 0)
    picks = []
    for r in range(restarts):
        order = generator(seed, "random rows", r).permutation(usable)
        picks.append(np.resize(order, k) if len(order) < k else order[:k])
    return y[np.stack(picks)]


def sample_objectives(y, centroids, metric, weights=None):
    """Return Σ e² on the sample for each centroid set."""
    state: dict = {}
    fold = KMeansFold(centroids, metric)
    for start in range(0, len(y), BLOCK_ROWS):
        fold.accumulate(state, _block(y, weights, start))
    return fold.finish(state).objectives


def _block(y, weights, start):
    rows = slice(start, start + BLOCK_ROWS)
    return Block("", np.empty(0, np.int64), y[rows], weights=None if weights is None else weights[rows])


class Blocks:
    """The sample in fixed blocks, with a pool to work on them in order."""

    def __init__(self, y, weights, metric, pool):
        self.y, self.weights, self.metric, self.pool = y, weights, metric, pool
        self.starts = range(0, len(y), BLOCK_ROWS)
        self.norms = np.einsum("ij,ij->i", y, y)

    @property
    def mass(self):
        return len(self.y) if self.weights is None else self.weights.sum()

    def map(self, function):
        return list(self.pool.map(function, self.starts))

    def squared_distances(self, points, start):
        """Return e(y, point)² for the block's rows, shape (n, p), zero where float32 cannot tell them apart."""
        rows = slice(start, start + BLOCK_ROWS)
        y = self.y[rows]
        if self.metric == "l1":
            return np.square(l1_distances(y, points))
        norms = np.einsum("ij,ij->i", points, points)
        sizes = self.norms[rows, None] + norms
        squares = sizes - 2 * (y @ points.T)
        squares[squares < 4 * np.finfo(y.dtype).eps * sizes] = 0
        return squares

    def fold(self, centroids):
        fold = KMeansFold(centroids, self.metric)

        def work(start):
            state: dict = {}
            fold.accumulate(state, _block(self.y, self.weights, start))
            return state

        total: dict = {}
        for state in self.map(work):
            merge_states(fold, total, state)
        return fold.finish(total)


def _raced(blocks, k, restarts, seed, tolerance, wanted):
    """Return centroids and objectives of starts that begin with a quarter of the sample, if it is large enough.

    Rows are in hash order: the first quarter is itself a uniform sample, and brings most of the way at a quarter of the
    cost as long as it holds enough rows of each cluster.
    """
    first = len(blocks.y) // 4
    if first < ROWS_PER_CLUSTER * k:
        return _lloyd(blocks, _plus_plus(blocks, k, restarts, seed), tolerance)
    quarter = Blocks(
        blocks.y[:first], None if blocks.weights is None else blocks.weights[:first], blocks.metric, blocks.pool
    )
    centroids, objectives = _lloyd(quarter, _plus_plus(quarter, k, restarts, seed), QUARTER_TOLERANCE)
    # few rows far away, or of much weight, may lie outside the quarter; Lloyd's iterations would not find them again
    if blocks.fold(centroids).objectives.min() / blocks.mass > UNLIKE * objectives.min() / quarter.mass:
        return _lloyd(blocks, _plus_plus(blocks, k, restarts, seed), tolerance, wanted)
    if wanted is not None:
        centroids = centroids[_better_half(objectives, wanted)]
    return _lloyd(blocks, centroids, tolerance, wanted)


def _plus_plus(blocks, k, restarts, seed):
    """Return greedy k-means++ starts (Arthur and Vassilvitskii 2007): 2 + ln k candidates a step, in D = e²."""
    y, w = blocks.y, blocks.weights
    s, trials = len(y), 2 + int(np.log(k))
    rngs = [generator(seed, "k-means++", r) for r in range(restarts)]
    mass = np.ones(s) if w is None else w
    picks = np.empty((restarts, k), np.int64)
    picks[:, 0] = [_draw(mass, 1, rng)[0] for rng in rngs]
    nearest = np.concatenate(blocks.map(lambda start: blocks.squared_distances(y[picks[:, 0]], start))).T.copy()
    for step in range(1, k):
        candidates = np.stack([_draw(mass * d, trials, rng) for d, rng in zip(nearest, rngs, strict=True)])
        points = y[candidates.ravel()]

        def compare(start, points=points, nearest=nearest):
            rows = slice(start, start + BLOCK_ROWS)
            new = blocks.squared_distances(points, start).T.reshape(restarts, trials, -1)
            new = np.minimum(new, nearest[:, None, rows])
            return new, (new.astype(np.float64) @ mass[rows] if w is not None else new.sum(axis=2, dtype=np.float64))

        compared = blocks.map(compare)
        best = sum(potential for _, potential in compared).argmin(axis=1)
        runs = np.arange(restarts)
        picks[:, step] = candidates[runs, best]
        nearest = np.concatenate([new[runs, best] for new, _ in compared], axis=1)
    return y[picks]


def _draw(mass, count, rng):
    """Return ``count`` rows drawn in proportion to ``mass``; uniformly where it is zero everywhere."""
    total = np.cumsum(mass, dtype=np.float64)
    if not total[-1] > 0:
        return rng.integers(len(mass), size=count)
    return np.minimum(np.searchsorted(total, rng.random(count) * total[-1], side="right"), len(mass) - 1)


def _better_half(objectives, wanted):
    """Return the indices of the lower half of the objectives, of ``wanted`` at least, in their order."""
    return _lowest(objectives, max(wanted, -(-len(objectives) // 2)))


def _lowest(objectives, count):
    return np.sort(np.argsort(objectives, kind="stable")[:count])


def _lloyd(blocks, centroids, tolerance=TOLERANCE, wanted=None):
    """Return the best centroids of each run under Lloyd's iterations on the sample, and their objectives.

    With ``wanted`` the worse half of the runs that still move ends every `RACE` iterations.
    """
    best, lowest = centroids.copy(), np.full(len(centroids), np.inf)
    active, current = np.arange(len(centroids)), centroids
    for iteration in range(1, MAX_ITERATIONS + 1):
        result = blocks.fold(current)
        gain = lowest[active] - result.objectives
        better = gain > 0
        best[active[better]], lowest[active[better]] = current[better], result.objectives[better]
        moved, refilled = updated(result, current, blocks.y, blocks.metric)
        going = (gain > tolerance * result.objectives) | (refilled > 0)
        if wanted is not None and iteration % RACE == 0:
            going &= np.isin(np.arange(len(active)), _better_half(lowest[active], wanted))
        if not going.any():
            break
        active, current = active[going], moved[going]
    return best, lowest
