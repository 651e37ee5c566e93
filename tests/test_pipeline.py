"""The whole line on one machine: results that depend on rows and seed, and on nothing else."""

import threading
import warnings

import numpy as np
import oracles
import pytest
from in_memory import predict, train
from scipy.sparse import csr_matrix
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits, make_blobs
from threadpoolctl import threadpool_limits

import apnc.blocks
from apnc.embed import PredictMap
from apnc.engines.in_process import InProcessEngine
from apnc.hashing import row_hashes
from apnc.kmeans import AssignMap
from apnc.metrics import evaluate
from apnc.pipeline import Listener, Run
from apnc.pipeline import train as train_run
from apnc.readers.array import ArrayInput
from apnc.settings import Settings

DIGITS, CLASSES = load_digits(return_X_y=True)
DIGITS = DIGITS[:900] / 16
CLASSES = CLASSES[:900]
METHODS = {
    "nystrom": {"landmarks": 60, "dim": 40},
    "ensemble": {"landmarks": 60, "dim": 40, "blocks": 3},
    "stable": {"method": "stable", "landmarks": 60, "dim": 80},
    "linear": {"method": "linear"},
}
EVERY = pytest.mark.parametrize("method", list(METHODS))


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of about a hundred rows, so that small data make many."""
    monkeypatch.setattr(apnc.blocks, "BLOCK_ELEMENTS", 1 << 13)


def run_of(method, x=DIGITS, weights=None, **more):
    return train(x, weights, **{"k": 8, "restarts": 3, "sample": 400} | METHODS[method] | more)


def same(a, b):
    assert np.array_equal(a.centroids, b.centroids) and a.passes == b.passes and a.status == b.status
    assert a.facts == b.facts


@EVERY
@pytest.mark.parametrize("kind", [np.asarray, csr_matrix])
def test_results_do_not_depend_on_threads_or_on_where_the_embedding_is_kept(method, kind, small_blocks):
    x = kind(DIGITS)
    first = run_of(method, x)
    same(first, run_of(method, x, threads=2))
    same(first, run_of(method, x, threads=2, memory_budget=0))
    same(first, run_of(method, x, memory_budget=100_000))


@EVERY
def test_labels_do_not_depend_on_the_size_of_blocks(method, monkeypatch):
    whole = run_of(method)
    monkeypatch.setattr(apnc.blocks, "BLOCK_ELEMENTS", 1 << 13)
    cut = run_of(method)
    assert np.array_equal(predict(whole, DIGITS)[0], predict(cut, DIGITS)[0])
    np.testing.assert_allclose([p["objective"] for p in whole.passes], [p["objective"] for p in cut.passes], rtol=1e-4)


@EVERY
def test_dense_and_sparse_copies_of_the_rows_agree(method, small_blocks):
    dense, sparse = run_of(method), run_of(method, csr_matrix(DIGITS))
    a, b = predict(dense, DIGITS), predict(sparse, csr_matrix(DIGITS))
    assert np.array_equal(a[0], b[0])
    np.testing.assert_allclose(a[1], b[1], rtol=1e-3)
    assert np.array_equal(predict(dense, csr_matrix(DIGITS))[0], a[0])


@EVERY
def test_whole_numbers_and_other_precisions_are_the_same_rows(method, small_blocks):
    x = (DIGITS * 16).astype(np.uint8)
    labels = [predict(run_of(method, x.astype(t)), x.astype(np.float64))[0] for t in (np.uint8, np.int64, "<f8")]
    assert np.array_equal(labels[0], labels[1]) and np.array_equal(labels[1], labels[2])


@EVERY
def test_predicted_labels_are_the_assigned_ones(method, small_blocks):
    data = ArrayInput(DIGITS)
    run = Run(Settings(k=8, restarts=3, **METHODS[method]).check(), data.estimated_rows(), data.spec.width)
    with InProcessEngine(data, threads=2) as engine:
        model = train_run(run, engine)
        assigned, predicted = (
            list(engine.labels(step, Listener()))
            for step in (AssignMap(model.centroids[0], model.metric), PredictMap.of(model))
        )
    a, p = (np.concatenate([b.x for b in blocks]) for blocks in (assigned, predicted))
    assert np.array_equal(np.concatenate([b.offsets for b in assigned]), np.arange(900)), "in input order"
    assert np.array_equal(a[:, 0], p[:, 0])
    np.testing.assert_allclose(a[:, 1], p[:, 1], rtol=1e-4)
    # every row has the nearest of the saved centroids
    away = oracles.distances(model.embed(DIGITS[:50]), model.centroids[0], model.metric)
    np.testing.assert_allclose(away[np.arange(50), p[:50, 0].astype(int)], away.min(axis=1), rtol=1e-5)


@EVERY
def test_weights_count_like_repeated_rows(method):
    # the sample differs, since it has other rows; a clear clustering does not
    x, classes = make_blobs(150, 4, centers=3, cluster_std=0.6, random_state=2)
    times = np.random.default_rng(0).integers(1, 4, 150)
    settings = {"k": 3, "sample": 1000, "landmarks": 150}
    weighted = predict(run_of(method, x, times.astype(float), **settings), x)[0]
    repeated = predict(run_of(method, np.repeat(x, times, axis=0), **settings), x)[0]
    assert evaluate(weighted, classes)["ari"] == evaluate(repeated, classes)["ari"] == 1.0


def test_weighted_passes_reach_the_weighted_objective():
    weights = np.random.default_rng(0).integers(0, 3, 900).astype(float)
    model = run_of("linear", weights=weights, passes=1)
    # a pass reports the objective of the centroids it was given; those it made are no worse
    _, away = predict(model, DIGITS)
    assert (weights * away**2).sum() <= model.passes[0]["objective"] * (1 + 1e-6)


def test_the_sample_is_the_naive_one(small_blocks):
    data = ArrayInput(DIGITS)
    run = Run(Settings(k=4, method="linear", sample=50, seed=3).check(), data.estimated_rows(), data.spec.width)
    with InProcessEngine(data, threads=2) as engine:
        train_run(run, engine)
    expected = [o for _, o in oracles.sample(3, [("array", i) for i in range(900)], 50)]
    assert run.sample.offsets.tolist() == expected and np.array_equal(run.sample.x, DIGITS[expected])
    assert np.array_equal(np.argsort(row_hashes(3, "sample", "array", np.arange(900)))[:50], expected)


def test_an_estimate_far_too_high_only_costs_a_second_pass():
    data = ArrayInput(DIGITS)
    run = Run(Settings(k=4, landmarks=60, sample=100).check(), 10**9, data.spec.width)
    with InProcessEngine(data, threads=1) as engine:
        model = train_run(run, engine)
    assert np.array_equal(model.centroids, train(DIGITS, k=4, landmarks=60, sample=100).centroids)


def test_plain_k_means_is_as_good_as_scikit_learn():
    model = train(DIGITS, k=10, method="linear")
    _, away = predict(model, DIGITS)
    with threadpool_limits(1):
        theirs = KMeans(10, n_init=10, random_state=0).fit(DIGITS)
    assert (away**2).sum() <= 1.005 * theirs.inertia_
    assert model.status == "converged" and len(model.passes) <= 4


@pytest.mark.parametrize("method", ["nystrom", "stable"])
def test_kernels_separate_what_plain_k_means_cannot(method):
    # two directions, rows of any length along them
    rng = np.random.default_rng(0)
    direction, length = np.repeat([0, 1], 300), rng.uniform(1, 100, 600)
    x = length[:, None] * (np.array([[1.0, 0.2, 0.0], [0.2, 1.0, 0.0]])[direction] + rng.normal(0, 0.05, (600, 3)))
    labels, _ = predict(train(x, k=2, method=method, landmarks=100, kernel="cosine"), x)
    assert evaluate(labels, direction)["accuracy"] == 1.0
    assert evaluate(predict(train(x, k=2, method="linear"), x)[0], direction)["accuracy"] < 0.9


@pytest.mark.parametrize("method", ["nystrom", "stable"])
def test_seeds_change_the_sample_and_little_else(method):
    results = [run_of(method, seed=s, landmarks=150, dim=150, k=10) for s in (0, 1)]
    assert not np.array_equal(results[0].embedding.landmarks[0], results[1].embedding.landmarks[0])
    for model in results:
        assert evaluate(predict(model, DIGITS)[0], CLASSES)["nmi"] > 0.6


def test_bad_rows_are_left_out_everywhere(small_blocks):
    x = DIGITS.copy()
    gone = [0, 17, 450, 899]
    x[gone, 3] = np.nan
    data = ArrayInput(x)
    run = Run(Settings(k=5, landmarks=60, on_bad_row="skip").check(), 900, 64)
    with InProcessEngine(data, memory_budget=0, threads=2) as engine:
        model = train_run(run, engine)
        blocks = list(engine.labels(AssignMap(model.centroids[0], model.metric), Listener()))
    assert model.rows == 896 == sum(b.n for b in blocks)
    assert np.concatenate([b.bad for b in blocks]).tolist() == gone, "known to the last pass, to number rows"
    assert run.sample.rules.total() == 4


def test_listeners_hear_of_every_pass_and_row():
    class Notes(Listener):
        def __init__(self):
            self.heard, self.count = [], {}

        def stage(self, name, detail=""):
            self.heard.append(name)

        def rows(self, done):
            self.count[self.heard[-1]] = self.count.get(self.heard[-1], 0) + done

        def finished(self, run, stage):
            assert stage == self.heard[-1] and stage in run.seconds

    data, notes = ArrayInput(DIGITS), Notes()
    run = Run(Settings(k=3, method="linear", passes=2, tol=0.0, init="random", restarts=1).check(), 900, 64)
    with InProcessEngine(data, threads=2) as engine:
        train_run(run, engine, notes)
    assert notes.heard == ["coefficients", "embed", "kmeans", "kmeans"]
    assert notes.count == {"coefficients": 900, "embed": 900, "kmeans": 1800}


def test_an_error_in_a_pass_ends_the_run_and_leaves_no_threads():
    class Broken(ArrayInput):
        def blocks(self, ranges, max_rows):
            raise OSError("the disk is gone")

    before = threading.active_count()
    with pytest.raises(OSError, match="the disk is gone"), InProcessEngine(Broken(DIGITS), threads=2) as engine:
        train_run(Run(Settings(k=2, method="linear"), 900, 64), engine)
    assert threading.active_count() == before


@pytest.mark.parametrize("method", ["nystrom", "stable", "linear"])
def test_the_smallest_inputs_work(method):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n in (2, 3):
            x = np.arange(2.0 * n).reshape(n, 2)
            labels, away = predict(train(x, k=n, method=method), x)
            assert sorted(labels) == list(range(n)) and np.abs(away).max() < 1e-6
        if method != "stable":
            assert predict(train(np.ones((1, 1)), k=1, method=method), np.ones((1, 1)))[0].tolist() == [0]
