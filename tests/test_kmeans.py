"""k-means passes against the naive loop and scikit-learn, and what becomes of empty clusters."""

import warnings
from itertools import pairwise

import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from in_memory import block, fold_rows, predict, train
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs

from apnc.blocks import Block, from_line, to_line
from apnc.kmeans import (
    AssignMap,
    KMeansFold,
    best_run,
    closest,
    distances_to,
    numbered,
    refill,
    sum_by_label,
    updated,
)
from apnc.passes import merge_states

quick = settings(max_examples=40, deadline=None)
METRICS = pytest.mark.parametrize("metric", ["l2", "l1"])
CASE_25 = np.array([[-41.0006], [-41.0002], [57.0001], [57.0009]])


def cut(x, rng, weights=None):
    """Return the rows in blocks cut at random, empty ones included."""
    edges = np.sort(np.concatenate([[0, len(x)], rng.integers(0, len(x) + 1, 4)]))
    return [
        Block("s", np.arange(a, b), x[a:b], weights=None if weights is None else weights[a:b])
        for a, b in pairwise(edges)
    ]


@METRICS
@pytest.mark.parametrize("runs", [1, 2, 5])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_pass_is_the_naive_pass_for_every_run(metric, runs, weighted, dtype):
    rng = np.random.default_rng(runs)
    # whole numbers: distances tie, and sums are exact in any order
    y, c = rng.integers(-4, 5, (300, 3)).astype(dtype), rng.integers(-4, 5, (runs, 6, 3)).astype(dtype)
    weights = rng.integers(0, 4, 300).astype(np.float64) if weighted else None
    result = fold_rows(KMeansFold(c, metric), [block(y, weights=weights)])
    for r in range(runs):
        _, sums, counts, objective = oracles.kmeans_step(y, c[r], metric, weights)
        assert np.array_equal(result.sums[r], sums) and np.array_equal(result.counts[r], counts)
        assert result.objectives[r] == pytest.approx(objective, rel=1e-12)
    assert result.rows == 300 and result.zero_rows == (y == 0).all(axis=1).sum()
    assert weighted or result.counts.dtype.kind == "i", "counts are whole numbers"


@METRICS
@pytest.mark.parametrize("runs", [1, 3])
def test_a_pass_over_many_rows_is_the_same_pass(metric, runs):
    # enough rows that pairs of runs share one product
    rng = np.random.default_rng(0)
    y, c = rng.normal(size=(4000, 2)).astype(np.float32), rng.normal(size=(runs, 4, 2)).astype(np.float32)
    result = fold_rows(KMeansFold(c, metric), [block(y)])
    for r in range(runs):
        labels, sums, counts, objective = oracles.kmeans_step(y, c[r], metric)
        np.testing.assert_allclose(result.sums[r], sums, rtol=1e-10, atol=1e-9)
        assert np.array_equal(result.counts[r], counts)
        # ℓ1 distances are float32 before they are squared
        assert result.objectives[r] == pytest.approx(objective, rel=1e-12 if metric == "l2" else 1e-6)
        assert np.array_equal(closest(y, c, metric)[0][r], labels)


@quick
@given(st.integers(0, 2**32), st.sampled_from(["l2", "l1"]), st.booleans())
def test_a_pass_does_not_depend_on_splits_or_order(seed, metric, weighted):
    rng = np.random.default_rng(seed)
    y, c = rng.normal(size=(200, 4)).astype(np.float32), rng.normal(size=(2, 5, 4)).astype(np.float32)
    weights = rng.random(200) if weighted else None
    fold = KMeansFold(c, metric)
    whole = fold_rows(fold, [block(y, weights=weights)])
    states = []
    for some in cut(y, rng, weights):
        state = {}
        fold.accumulate(state, some)
        if rng.random() < 0.5:
            state = {key: fold.unseal(from_line(to_line(fold.seal(part)))) for key, part in state.items()}
        states.append(state)
    total = {}
    for i in rng.permutation(len(states)):
        merge_states(fold, total, states[i])
    found = fold.finish(total)
    np.testing.assert_allclose(found.sums, whole.sums, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.counts, whole.counts, rtol=1e-12)
    np.testing.assert_allclose(found.objectives, whole.objectives, rtol=1e-12)
    assert (found.rows, found.zero_rows) == (whole.rows, whole.zero_rows)


def test_lloyd_from_given_centres_is_scikit_learns():
    y, _ = make_blobs(500, 5, centers=7, random_state=0)
    centroids = y[None, :7].copy()
    theirs = KMeans(7, init=y[:7], n_init=1, max_iter=10, tol=0, algorithm="lloyd").fit(y)
    for _ in range(theirs.n_iter_):
        result = fold_rows(KMeansFold(centroids), [block(y)])
        centroids, refilled = updated(result, centroids, y, "l2")
        assert refilled.tolist() == [0]
    np.testing.assert_allclose(centroids[0], theirs.cluster_centers_, rtol=1e-10)
    assert fold_rows(KMeansFold(centroids), [block(y)]).objectives[0] == pytest.approx(theirs.inertia_, rel=1e-10)


@METRICS
def test_no_rows_are_a_pass_over_nothing(metric):
    fold = KMeansFold(np.ones((2, 3, 4), np.float32), metric)
    state = {}
    fold.accumulate(state, block(np.empty((0, 4), np.float32)))
    for found in (fold.finish(state), fold.finish({})):
        assert not found.sums.any() and not found.counts.any() and not found.objectives.any() and found.rows == 0


def test_rows_of_weight_zero_move_nothing():
    y = np.array([[0.0], [1.0], [100.0]])
    result = fold_rows(KMeansFold(np.array([[[0.0]]])), [block(y, weights=np.array([1.0, 1.0, 0.0]))])
    assert result.sums.ravel().tolist() == [1.0] and result.counts.ravel().tolist() == [2.0]
    assert result.objectives.tolist() == [1.0]


@METRICS
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_objective_is_never_negative_and_keeps_its_digits(metric, dtype):
    # case 25: in float32 the expanded form gives −3.7e-04 where the truth is 4.0e-07
    y = CASE_25.astype(dtype)
    c = np.array([y[:2].mean(axis=0), y[2:].mean(axis=0)], dtype)[None]
    found = fold_rows(KMeansFold(c, metric), [block(y)]).objectives[0]
    assert found == pytest.approx(oracles.kmeans_step(y, c[0], metric)[3], rel=0.01)
    if dtype == np.float64:  # float32 products cannot tell the close rows apart
        assert 0 <= fold_rows(KMeansFold(y[None], metric), [block(y)]).objectives[0] < 1e-11


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("init", ["sample", "random", "rows"])
def test_a_tight_clustering_is_measured_in_float64_wherever_it_started(init):
    # the first centroids of `random` and `rows` are far off: what counts is where the passes lead
    x = CASE_25.astype(np.float32)
    for seed in range(4):
        rows = [[-100.0], [-41.0]] if init == "rows" else None
        model = train(x, k=2, method="linear", init=init, init_rows=rows, seed=seed)
        labels, away = predict(model, x)
        assert labels[0] == labels[1] != labels[2] == labels[3]
        assert (away**2).sum() == pytest.approx(4.0109e-07, rel=0.01)
        assert model.passes[-1]["objective"] == pytest.approx(4.0109e-07, rel=0.01)


@METRICS
def test_distances_are_taken_from_differences(metric):
    rng = np.random.default_rng(0)
    y = (rng.normal(size=(50, 3)) * 1e-3 + 1000).astype(np.float32)
    c = (rng.normal(size=(2, 3)) * 1e-3 + 1000).astype(np.float32)
    labels = rng.integers(0, 2, 50)
    expected = [oracles.distance(row, c[j], metric) for row, j in zip(y, labels, strict=True)]
    # the differences themselves are exact: the numbers are close
    np.testing.assert_allclose(distances_to(y, c[labels], metric), expected, rtol=1e-7)
    kept = y.copy()
    distances_to(y, y, metric)
    assert np.array_equal(y, kept) and not distances_to(y, y, metric).any()


@METRICS
def test_assigned_rows_have_their_nearest_cluster_and_their_distance_to_it(metric):
    rng = np.random.default_rng(1)
    y, c = rng.normal(size=(200, 3)), rng.normal(size=(4, 3))
    out = AssignMap(c, metric).apply(block(y, ids=[str(i) for i in range(200)]))
    table = oracles.distances(y, c, metric)
    assert np.array_equal(out.x[:, 0], table.argmin(axis=1))
    np.testing.assert_allclose(out.x[:, 1], table.min(axis=1), rtol=1e-12)
    assert out.ids[7] == "7" and AssignMap(c, metric).apply(block(y[:0])).x.shape == (0, 2)


def test_ties_go_to_the_lower_index():
    for metric in ("l2", "l1"):
        y, c = np.zeros((1, 2)), np.array([[[0.0, 5.0], [0.0, 1.0], [1.0, 0.0], [0.0, -1.0]]])
        assert closest(y, c, metric)[0].tolist() == [[1]]


@pytest.mark.parametrize("agree", [0, 0.9])
@pytest.mark.parametrize("runs", [1, 2, 5, 12])
def test_sums_per_label_are_those_of_the_loop(runs, agree):
    rng = np.random.default_rng(0)
    for n, k in ((0, 3), (5, 4), (2000, 3), (2000, 100)):  # 100^12 is more than an integer holds
        y, w = rng.integers(-9, 9, (n, 2)) * 1.0, rng.integers(0, 5, n) * 1.0
        labels = np.where(rng.random(n) < agree, rng.integers(0, k, n), rng.integers(0, k, (runs, n)))
        for weights in (None, w):
            found = sum_by_label(y, labels, k, weights)
            ones = np.ones(n) if weights is None else weights
            for r in range(runs):
                expected = [(ones[labels[r] == j, None] * y[labels[r] == j]).sum(axis=0) for j in range(k)]
                np.testing.assert_array_equal(found[r], expected)


def test_the_best_run_is_the_first_within_a_millionth_of_the_lowest():
    assert best_run(np.array([3.0, 1.0 + 5e-7, 1.0, 2.0])) == 1
    assert best_run(np.array([1.0 + 5e-6, 1.0])) == 1
    assert best_run(np.array([0.0, 0.0])) == 0
    assert best_run(np.array([5.0])) == 0


# Empty clusters.


def result_of(y, centroids, metric="l2"):
    return fold_rows(KMeansFold(centroids, metric), [block(y)])


@METRICS
def test_an_empty_cluster_gets_the_farthest_row_and_nothing_becomes_nan(metric):
    # case 15: two groups, the third centre far from all rows
    y = np.concatenate([np.arange(6.0), 100 + np.arange(6.0)])[:, None]
    centroids = np.array([[[2.0], [102.0], [1e6]]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        moved, refilled = updated(result_of(y, centroids, metric), centroids, y, metric)
    assert refilled.tolist() == [1] and moved[0, :2].ravel().tolist() == [2.5, 102.5]
    assert moved[0, 2, 0] in (0.0, 5.0, 100.0, 105.0), "the rows farthest from the new centroids"


@METRICS
def test_a_cluster_with_one_distinct_row_never_loses_it(metric):
    y = np.array([[0.0], [0.0], [0.0], [1000.0]])
    centroids = np.array([[[0.0], [1000.0], [-5000.0]]])
    moved, refilled = updated(result_of(y, centroids, metric), centroids, y, metric)
    assert refilled.tolist() == [0] and moved.ravel().tolist() == [0.0, 1000.0, -5000.0]


@METRICS
def test_empty_clusters_are_refilled_one_at_a_time_with_distinct_rows(metric):
    y = np.array([[0.0], [10.0], [10.0], [21.0], [5.0]])
    centroids = np.array([[5.0], [0.0], [0.0], [0.0]])
    assert refill(centroids, np.array([1, 2, 3]), y, metric) == 3
    assert sorted(centroids.ravel().tolist()) == [0.0, 5.0, 10.0, 21.0]


def test_without_a_filled_cluster_all_are_taken_from_the_sample():
    centroids = np.full((2, 1), np.nan)
    assert refill(centroids, np.array([0, 1]), np.array([[1.0], [1.0], [4.0]]), "l2") == 2
    assert sorted(centroids.ravel().tolist()) == [1.0, 4.0]
    assert refill(centroids, np.array([0]), np.empty((0, 1)), "l2") == 0


def test_only_runs_with_empty_clusters_are_refilled():
    y = np.arange(8.0)[:, None]
    centroids = np.array([[[1.0], [6.0]], [[3.0], [99.0]]])
    moved, refilled = updated(result_of(y, centroids), centroids, y, "l2")
    assert refilled.tolist() == [0, 1] and moved[0].ravel().tolist() == [1.5, 5.5]


def test_centroids_take_the_precision_of_the_embedding():
    y = np.arange(8, dtype=np.float32)[:, None]
    centroids = np.array([[[1.0], [6.0]]], np.float32)
    assert updated(result_of(y, centroids), centroids, y, "l2")[0].dtype == np.float32


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("spread", [1.0, 1e-4])
@pytest.mark.parametrize("init", ["rows", "random", "sample"])
def test_passes_end_with_fewer_distinct_rows_than_clusters(init, spread):
    # case 13, as a hunt: rows that are duplicates, or so close that float32 products cannot tell them apart, and bad
    # starts. A refilled centroid that wins no row would be refilled for ever.
    for seed in range(25):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(3, 15))
        x = rng.integers(0, 4, (n, 1)) * spread + rng.integers(0, 2, (n, 1)) * 100
        k, distinct = int(rng.integers(1, n + 1)), len(np.unique(x))
        rows = rng.normal(size=(k, 1)).tolist() if init == "rows" else None
        model = train(x, k=k, method="linear", init=init, init_rows=rows, passes=300, tol=0.0, seed=seed)
        labels, away = predict(model, x)
        found = (model.status, len(np.unique(labels)))
        assert found == ("converged", min(k, distinct)), (seed, k, distinct)
        assert len(model.passes) <= 25, seed
        if k >= distinct:
            assert (away**2).sum() == pytest.approx(0, abs=1e-12)


# Numbers of clusters.


@METRICS
def test_clusters_are_numbered_by_the_first_sample_row_assigned_to_each(metric):
    sample = np.array([[20.0], [19.0], [0.0], [21.0], [40.0]])
    centroids = np.array([[41.0], [77.0], [1.0], [20.0], [99.0]])
    assert numbered(centroids, sample, metric).ravel().tolist() == [20.0, 1.0, 41.0, 77.0, 99.0]


def test_numbering_does_not_depend_on_the_order_of_centroids():
    rng = np.random.default_rng(0)
    sample, centroids = rng.normal(size=(100, 3)), rng.normal(size=(6, 3))
    expected = numbered(centroids, sample, "l2")
    for _ in range(5):
        assert np.array_equal(numbered(rng.permutation(centroids), sample, "l2"), expected)
    assert np.array_equal(numbered(expected, sample, "l2"), expected)


def test_an_objective_is_clipped_and_not_reported_negative():
    # the rounding of Σ‖y‖² − 2Σ cᵀZ + Σ g‖c‖² far from the origin
    y = np.full((1000, 3), 12345.678)
    c = y[None, :1]
    result = fold_rows(KMeansFold(c), [block(y)])
    assert 0 <= result.objectives[0] < 1e-13 * (y**2).sum()
