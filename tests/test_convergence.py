"""Between two passes: when to stop, which centroids to keep, how to number them."""

import numpy as np
import oracles
import pytest
from in_memory import block, fold_rows, model_of, predict, train
from sklearn.datasets import load_digits

from apnc.convergence import advance
from apnc.kmeans import KMeansFold, PassResult

X = np.random.default_rng(0).normal(size=(60, 2)) + np.repeat([[0, 0], [9, 0], [0, 9]], 20, axis=0)


def started(**settings):
    """Return a model of plain k-means before its first pass."""
    return model_of(X, **{"k": 3, "method": "linear", "restarts": 1} | settings)


def result(model, objectives, centroids=None, empty=()):
    """Return a pass result that leads to the given centroids, with the given objectives."""
    centroids = np.asarray(model.centroids if centroids is None else centroids, np.float64)
    counts = np.full(centroids.shape[:2], 2)
    for run, cluster in empty:
        counts[run, cluster] = 0
    return PassResult(centroids * counts[:, :, None], counts, np.array(objectives, float), 60, 0)


def go(model, *objectives, metric="l2", **more):
    """Advance by passes of these objectives, one run, centroids moving each time."""
    model.embedding.metric = metric
    given = []
    for objective in objectives:
        given.append(model.centroids.copy())
        advance(model, result(model, [objective], model.centroids + 0.01, **more))
    return given


def test_passes_end_when_the_relative_gain_falls_below_the_tolerance():
    model = started(tol=0.01)
    go(model, 100.0, 90.0, 89.2)
    assert model.status == "converged" and [p["objective"] for p in model.passes] == [100.0, 90.0, 89.2]


def test_a_gain_at_the_tolerance_goes_on():
    model = started(tol=0.01)
    go(model, 100.0, 90.0, 89.0)
    assert model.status == "started" and not model.done


def test_the_first_pass_alone_never_ends_the_passes():
    model = started(tol=0.5)
    go(model, 1.0)
    assert model.status == "started"


@pytest.mark.parametrize("metric", ["l2", "l1"])
def test_the_cap_is_not_called_convergence(metric):
    model = started(passes=2, tol=1e-9)
    go(model, 100.0, 50.0, metric=metric)
    assert model.status == "cap" and len(model.passes) == 2


def test_convergence_at_the_last_allowed_pass_is_convergence():
    model = started(passes=2, tol=0.01)
    go(model, 100.0, 99.9)
    assert model.status == "converged"


def test_centroids_that_do_not_move_end_the_passes_whatever_the_tolerance():
    model = started(tol=0.0)
    advance(model, result(model, [100.0]))
    assert model.status == "converged"


def test_a_refilled_cluster_keeps_the_passes_going():
    model = started(tol=0.01)
    go(model, 100.0, 99.9, empty=[(0, 2)])
    assert model.passes[-1]["refilled"] == 1 and model.status == "started"


def test_tolerance_zero_runs_all_passes_while_anything_moves():
    model = started(tol=0.0, passes=7)
    go(model, *[100.0] * 7)
    assert model.status == "cap" and len(model.passes) == 7


def test_an_objective_of_zero_is_an_end_and_no_division():
    model = started(tol=1e-4)
    with np.errstate(all="raise"):
        go(model, 0.0, 0.0)
    assert model.status == "converged"


def test_random_starts_imply_tolerance_zero():
    assert started(init="random").settings.gain_to_go_on == 0.0
    assert started(init="random", tol=0.1).settings.gain_to_go_on == 0.1
    assert started().settings.gain_to_go_on == 1e-4


def test_l2_ends_with_the_centroids_the_last_pass_made():
    # case 17: exactly one pass, then labels by the saved centroids
    x = np.array([[0.0], [0.0], [0.0], [0.0], [1.0], [2.0], [3.0], [4.0], [10.0], [20.0], [45.0]])
    model = train(x, k=2, method="linear", init="rows", init_rows=[[0.0], [1.0]], passes=1)
    labels, away = predict(model, x)
    table = oracles.distances(x - model.embedding.shift, model.centroids[0], "l2")
    assert np.array_equal(labels, table.argmin(axis=1)) and model.status == "cap"
    np.testing.assert_allclose(away, table.min(axis=1), atol=1e-5)  # float32 rows
    assert sorted((model.centroids[0] + model.embedding.shift).ravel()) == pytest.approx([0, 85 / 7], abs=1e-5)


def test_l1_ends_with_the_best_centroids_that_were_measured():
    model = started(passes=20, tol=0.01)
    given = go(model, 100.0, 80.0, 85.0, metric="l1")
    assert model.status == "converged"
    np.testing.assert_allclose(np.sort(model.centroids[0], axis=0), np.sort(given[1][0], axis=0))
    assert model.best is None, "not kept in the finished model"


def test_l1_takes_the_unmeasured_centroids_only_where_the_cap_cut_off_a_gain():
    gaining, losing = started(passes=2, tol=1e-9), started(passes=2, tol=1e-9)
    last = go(gaining, 100.0, 50.0, metric="l1")[-1] + 0.01
    np.testing.assert_allclose(np.sort(gaining.centroids[0], axis=0), np.sort(last[0], axis=0))
    first = go(losing, 100.0, 120.0, metric="l1")[0]
    np.testing.assert_allclose(np.sort(losing.centroids[0], axis=0), np.sort(first[0], axis=0))


def test_l1_that_has_converged_keeps_what_was_measured_even_after_a_small_gain():
    model = started(tol=0.01)
    last = go(model, 100.0, 99.9, metric="l1")[-1]
    assert model.status == "converged"
    np.testing.assert_allclose(np.sort(model.centroids[0], axis=0), np.sort(last[0], axis=0))


def test_all_runs_must_settle_before_the_passes_end():
    model = started(full_restarts=True, restarts=2, tol=0.01)
    for objectives in ([100.0, 200.0], [99.9, 100.0]):
        advance(model, result(model, objectives, model.centroids + 0.01))
    assert model.status == "started" and model.passes[-1]["objective"] == 99.9
    advance(model, result(model, [99.8, 99.7], model.centroids + 0.01))
    assert model.status == "converged"
    assert model.centroids.shape == (1, 3, 2)


@pytest.mark.parametrize("metric", ["l2", "l1"])
def test_the_best_run_is_kept(metric):
    model = started(full_restarts=True, restarts=3, tol=0.01)
    for objectives in ([100.0, 60.0, 90.0], [100.0, 60.0, 90.0]):
        before = model.centroids.copy()
        model.embedding.metric = metric
        advance(model, result(model, objectives, model.centroids + 0.01))
    # ℓ1: the first pass measured the best, ℓ2: what the last one made; both of run 1
    expected = before[1] + 0.01 if metric == "l2" else before[1] - 0.01
    np.testing.assert_allclose(np.sort(model.centroids[0], axis=0), np.sort(expected, axis=0), atol=1e-6)


def test_the_finished_centroids_are_numbered_by_the_sample():
    model = train(X, k=3, method="linear")
    labels, _ = predict(model, X)
    from apnc.hashing import row_hashes

    in_hash_order = labels[np.argsort(row_hashes(0, "sample", "array", np.arange(60)))]
    seen, first = np.unique(in_hash_order, return_index=True)
    assert seen.tolist() == [0, 1, 2] and np.array_equal(np.argsort(first), [0, 1, 2])


def test_reported_objectives_are_those_of_the_centroids_the_pass_was_given():
    x = load_digits().data[:300]
    model = model_of(x, k=5, method="linear", init="random", restarts=1, passes=4)
    while not model.done:
        y, given = model.embed(x), model.centroids
        found = fold_rows(KMeansFold(given, "l2"), [block(y)])
        advance(model, found)
        expected = oracles.kmeans_step(y, given[0])[3]
        assert model.passes[-1]["objective"] == pytest.approx(expected, rel=1e-6)
    objectives = [p["objective"] for p in model.passes]
    assert objectives == sorted(objectives, reverse=True), "ℓ2 passes never raise the objective"
    assert model.rows == 300
