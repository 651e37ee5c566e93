"""Start centroids from the sample: as good as scikit-learn's restarts, and the same on any number of threads."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import oracles
import pytest
from scipy.stats import chi2
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits, make_blobs
from threadpoolctl import threadpool_limits

from apnc.seeding import BLOCK_ROWS, Blocks, _draw, _plus_plus, random_centroids, sample_objectives, seed_centroids

METRICS = pytest.mark.parametrize("metric", ["l2", "l1"])


@METRICS
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_start_centroids_do_not_depend_on_threads(metric, weighted, dtype):
    y = make_blobs(3 * BLOCK_ROWS + 100, 6, centers=5, cluster_std=3, random_state=0)[0].astype(dtype)
    weights = np.random.default_rng(0).random(len(y)) if weighted else None
    a, b = (seed_centroids(y, 5, 3, metric, 7, weights, threads) for threads in (1, 3))
    assert np.array_equal(a[0], b[0]) and np.array_equal(a[1], b[1])
    assert a[0].shape == (3, 5, 6) and a[0].dtype == dtype


def test_restarts_and_seeds_differ_and_the_same_seed_does_not():
    y = np.random.default_rng(0).normal(size=(500, 3))
    a, _ = seed_centroids(y, 6, 3, seed=0)
    b, _ = seed_centroids(y, 6, 3, seed=0)
    c, _ = seed_centroids(y, 6, 3, seed=1)
    assert np.array_equal(a, b) and not np.allclose(a, c)
    assert not np.allclose(a[0], a[1]) and not np.allclose(a[1], a[2])
    # restart r is the same start, whatever the number of restarts
    assert np.allclose(seed_centroids(y, 6, 1, seed=0)[0][0], a[0], rtol=1e-9)


@pytest.mark.parametrize("data", ["blobs", "digits"])
def test_the_best_start_is_as_good_as_ten_restarts_of_scikit_learn(data):
    y = load_digits().data if data == "digits" else make_blobs(1500, 10, centers=8, cluster_std=4, random_state=1)[0]
    k = 10 if data == "digits" else 8
    with threadpool_limits(1):  # spinning threads of OpenMP and BLAS take the cores from each other
        theirs = KMeans(k, n_init=10, random_state=0).fit(y).inertia_
        ours = seed_centroids(y.astype(np.float32), k, 10, threads=2)[1].min()
    # both are local optima of the same function, stopped at a relative gain of 1e-4
    assert ours <= 1.004 * theirs


@pytest.mark.parametrize("wanted", [None, 1])
def test_starts_on_leading_directions_are_as_good_as_on_all(wanted):
    x = load_digits().data - load_digits().data.mean(axis=0)
    y = (x @ np.linalg.svd(x, full_matrices=False)[2].T).astype(np.float32)
    with threadpool_limits(1):
        theirs = KMeans(5, n_init=10, random_state=0).fit(y).inertia_
        with_all = seed_centroids(y, 5, 10, wanted=wanted)
        centroids, objectives = seed_centroids(y, 5, 10, wanted=wanted, principal=True, threads=2)
    assert not np.array_equal(centroids[0], with_all[0][0])  # or all columns were used
    # as above; a race may end a start that would have come to the better of two optima 0.7 % apart
    assert objectives.min() <= (1.004 if wanted is None else 1.01) * theirs
    # what counts is the distance in all directions, from centroids that have them all
    expected = [oracles.kmeans_step(y.astype(np.float64), c.astype(np.float64), "l2")[3] for c in centroids]
    np.testing.assert_allclose(objectives, expected, rtol=1e-6)  # float32 rows of 64 columns
    assert len(centroids) == (10 if wanted is None else 1)


def test_clusters_that_leading_directions_cannot_tell_apart_are_found_by_the_others():
    rng = np.random.default_rng(0)
    first = np.sort(rng.normal(size=(10, 600)), axis=0)[::-1].T * 3  # of no use, and where the starts run
    last = 40 * np.eye(2)[np.repeat([0, 1], 300)]
    y = np.hstack([first, np.zeros((600, 8)), last])
    _, objectives = seed_centroids(y, 2, 10, principal=True)
    assert objectives.min() < 1.1 * oracles.kmeans_step(y, np.stack([y[:300].mean(0), y[300:].mean(0)]), "l2")[3]


@METRICS
@pytest.mark.parametrize("weighted", [False, True])
def test_what_the_first_quarter_lacks_is_found(metric, weighted):
    rng = np.random.default_rng(0)
    y, weights = rng.normal(size=(2000, 4)), None
    if weighted:  # most of the weight, in one place of its own
        weights = np.ones(2000)
        weights[1500:1510] = 1e5
        y[1500:1510] += 20
    else:
        y[1500:1503] *= 1e4
    ours = seed_centroids(y, 4, 10, metric, weights=weights, wanted=1)[1].min()
    with_it = seed_centroids(y[::-1].copy(), 4, 10, metric, weights=None if weights is None else weights[::-1])[1].min()
    assert ours <= 1.3 * with_it  # local optima of the same function


def test_columns_that_hold_much_are_used_wherever_they_are():
    y = np.random.default_rng(0).normal(size=(1500, 60)) * 0.01
    y[:, -1] += 100 * (np.arange(1500) % 3)
    assert seed_centroids(y, 3, 10, principal=True, wanted=1)[1].min() < 1500 * 60 * 0.01**2 * 1.1


@METRICS
def test_objectives_are_those_of_the_centroids(metric):
    y = make_blobs(1500, 4, centers=4, random_state=0)[0]
    centroids, objectives = seed_centroids(y, 4, 2, metric)
    expected = [oracles.kmeans_step(y, c, metric)[3] for c in centroids]
    np.testing.assert_allclose(objectives, expected, rtol=1e-9)
    np.testing.assert_allclose(sample_objectives(y, centroids, metric), expected, rtol=1e-9)


def test_objectives_are_weighted():
    y, w = np.random.default_rng(0).normal(size=(BLOCK_ROWS + 9, 2)), np.random.default_rng(1).random(BLOCK_ROWS + 9)
    centroids, objectives = seed_centroids(y, 3, 1, weights=w)
    assert objectives[0] == pytest.approx(oracles.kmeans_step(y, centroids[0], "l2", w)[3])
    assert sample_objectives(y, centroids, "l2", w)[0] == pytest.approx(objectives[0])


@METRICS
def test_weights_count_like_repeated_rows(metric):
    rng = np.random.default_rng(0)
    y = make_blobs(200, 2, centers=4, cluster_std=0.3, random_state=3)[0]
    times = rng.integers(1, 5, 200)
    weighted = seed_centroids(y, 4, 5, metric, weights=times.astype(float))[1].min()
    repeated = seed_centroids(np.repeat(y, times, axis=0), 4, 5, metric)[1].min()
    assert weighted == pytest.approx(repeated, rel=2e-3)


@METRICS
@pytest.mark.parametrize("threads", [1, 3])
def test_k_means_plus_plus_never_takes_the_same_place_twice(metric, threads):
    # sorted rows, over several blocks: a mix-up of blocks would draw from distances of other rows
    y = np.repeat(np.random.default_rng(0).normal(size=(9, 3)), BLOCK_ROWS // 3, axis=0)
    with ThreadPoolExecutor(threads) as pool:
        starts = _plus_plus(Blocks(y, None, metric, pool), 9, 3, 0)
    assert all(len(np.unique(run, axis=0)) == 9 for run in starts)


@METRICS
def test_fewer_distinct_rows_than_clusters_end_at_objective_zero(metric):
    y = np.repeat(np.array([[0.0, 0], [1, 0], [5, 5]]), 4, axis=0)
    centroids, objectives = seed_centroids(y, 7, 2, metric)
    assert np.isfinite(centroids).all() and objectives.tolist() == [0.0, 0.0]
    assert len(np.unique(centroids[0], axis=0)) <= 7


@pytest.mark.parametrize("k", [1, 2])
def test_a_single_row_or_cluster_is_no_special_case(k):
    for y in (np.array([[3.0, 4.0]]), np.array([[3.0, 4.0], [1.0, 0.0], [0.0, 1.0]])):
        centroids, objectives = seed_centroids(y, k, 2)
        assert centroids.shape == (2, k, 2) and np.isfinite(centroids).all() and (objectives >= 0).all()
    if k == 1:
        np.testing.assert_allclose(centroids[0, 0], y.mean(axis=0))


@METRICS
def test_rows_of_weight_zero_never_become_centroids(metric):
    rng = np.random.default_rng(0)
    y = np.concatenate([rng.normal(size=(50, 2)), 1000 + rng.normal(size=(50, 2))])
    weights = np.concatenate([np.ones(50), np.zeros(50)])
    for seed in range(5):
        for centroids in (seed_centroids(y, 3, 3, metric, seed, weights)[0], random_centroids(y, 3, 3, seed, weights)):
            assert np.abs(centroids).max() < 100


def test_random_starts_are_different_rows_uniformly_drawn():
    y = np.arange(20.0)[:, None]
    picks = np.concatenate([random_centroids(y, 5, 10, seed)[:, :, 0] for seed in range(40)]).astype(int)
    assert all(len(set(p)) == 5 for p in picks.tolist())
    counts = np.bincount(picks.ravel(), minlength=20)
    # 400 draws of 5 out of 20: 100 each
    assert ((counts - 100) ** 2 / 100).sum() < chi2.ppf(1 - 1e-6, 19)
    assert np.array_equal(random_centroids(y, 5, 2, 3), random_centroids(y, 5, 2, 3))
    # restart r is the same start, whatever the number of restarts
    assert np.array_equal(random_centroids(y, 5, 1, 3)[0], random_centroids(y, 5, 2, 3)[0])


def test_random_starts_repeat_rows_only_when_there_are_too_few():
    assert random_centroids(np.array([[1.0], [2.0]]), 5, 1).shape == (1, 5, 1)


def test_draws_are_in_proportion_to_the_mass():
    mass = np.array([0.0, 1.0, 0.0, 3.0, 0.0])
    counts = np.bincount(_draw(mass, 4000, np.random.default_rng(0)), minlength=5)
    assert counts[[0, 2, 4]].sum() == 0
    assert abs(counts[1] - 1000) < 5 * np.sqrt(4000 * 0.25 * 0.75)
