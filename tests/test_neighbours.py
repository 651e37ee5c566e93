"""Nearest representatives: every way of finding them finds the same, and they survive the way they are stored."""

from __future__ import annotations

import builtins

import numpy as np
import oracles
import pytest
from scipy.sparse import csr_matrix

from apnc.embeddings.neighbour import NeighbourEmbedding
from apnc.neighbours import FEW_DIMENSIONS, Search, packed, unpacked
from apnc.representatives import first_distinct, lloyd_centres


@pytest.fixture(autouse=True)
def _own_draws():
    """The same draws for a test whatever ran before it."""
    global rng
    rng = np.random.default_rng(1)


@pytest.fixture(params=["faiss", "scipy"])
def library(request, monkeypatch):
    """With faiss and, as on a node without it, where it cannot be imported."""
    if request.param == "scipy":
        imported = builtins.__import__

        def without(name, *args, **more):
            if name == "faiss":
                raise ImportError(name)
            return imported(name, *args, **more)

        monkeypatch.setattr(builtins, "__import__", without)


@pytest.mark.parametrize("kind", [np.asarray, csr_matrix], ids=["dense", "csr"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("d", [2, FEW_DIMENSIONS + 9])
def test_the_nearest_are_found_nearest_first(library, kind, dtype, d):
    x, points = rng.normal(size=(200, d)), rng.normal(size=(40, d))
    nodes, squares = Search(points, 4, dtype)(kind(x.astype(dtype)))
    exact = oracles.distances(x.astype(dtype), points, "l2")
    # ‖x‖² − 2xᵀr + ‖r‖² of norms up to 40 in float32
    tolerance = 1e-4 if dtype == np.float32 else 1e-12
    np.testing.assert_allclose(np.sqrt(squares), np.sort(exact, axis=1)[:, :4], atol=tolerance)
    np.testing.assert_allclose(np.take_along_axis(exact, nodes, 1), np.sort(exact, axis=1)[:, :4], atol=tolerance)


def test_far_from_the_origin_nothing_cancels(library):
    x, points = rng.normal(size=(100, 12)), rng.normal(size=(30, 12))
    near = Search(points, 3)(x.astype(np.float32))
    # 1e3 away float32 rows themselves are rounded to 6e-5
    far = Search(points + 1e3, 3)((x + 1e3).astype(np.float32))
    np.testing.assert_allclose(far[1], near[1], rtol=1e-2)


def test_all_of_the_representatives_may_be_asked_for(library):
    x, points = rng.normal(size=(20, 12)), rng.normal(size=(5, 12))
    nodes, _ = Search(points, 5)(x.astype(np.float32))
    assert (np.sort(nodes, axis=1) == np.arange(5)).all()


@pytest.mark.parametrize("d", [2, 16])
def test_the_approximate_search_finds_nearly_all(library, d):
    centres = rng.normal(0, 4, (25, d))
    x = (centres[rng.integers(25, size=2000)] + rng.normal(0, 1, (2000, d))).astype(np.float32)
    points = lloyd_centres(x[:1000], 200)
    exact, found = (Search(points, 5, approximate=a)(x)[0] for a in (False, True))
    shared = np.mean([len(np.intersect1d(a, b)) for a, b in zip(exact, found, strict=True)]) / 5
    assert shared > 0.85  # of what is looked for, 5 of K' = 50 candidates of 200; chance alone gives 0.25


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_stored_neighbours_come_back_to_the_bit(dtype):
    squares = rng.random((30, 8)).astype(dtype)
    nodes = rng.integers(1 << 16, size=(30, 8))
    found, again = unpacked(packed(nodes, squares), 2, dtype)
    assert np.array_equal(np.concatenate(list(found), axis=1), nodes)
    assert np.array_equal(np.concatenate(list(again), axis=1), squares)


def test_several_sets_are_stored_side_by_side():
    x, sets = rng.normal(size=(50, 12)).astype(np.float32), [rng.normal(size=(9, 12)), rng.normal(size=(9, 12))]
    nodes, squares = unpacked(NeighbourEmbedding(sets, 3).transform(x), 2, np.float32)
    for b, points in enumerate(sets):
        one, far = Search(points, 3)(x)
        assert np.array_equal(nodes[b], one)
        np.testing.assert_allclose(squares[b], far, rtol=1e-4)  # float32, about another centre


def test_rows_beyond_float32_are_known_as_such():
    embedding = NeighbourEmbedding([rng.normal(size=(9, 12))], 3)
    x = np.zeros((2, 12), np.float32)
    x[1] = 1e30
    with np.errstate(over="ignore", invalid="ignore"):
        assert embedding.overflown(embedding.transform(x)).tolist() == [False, True]


@pytest.mark.parametrize("kind", [np.asarray, csr_matrix], ids=["dense", "csr"])
def test_representatives_are_centres_and_no_more_than_there_are_distinct_rows(kind):
    x = np.repeat(rng.normal(size=(6, 3)) * 5, 20, axis=0)
    x = x[rng.permutation(len(x))]
    found, rows = (m[np.lexsort(m.T.round(3))] for m in (lloyd_centres(kind(x), 10), np.unique(x, axis=0)))
    np.testing.assert_allclose(found, rows, atol=1e-5)  # in float32
    assert len(first_distinct(kind(x), 4)) == 4


def test_representatives_do_not_depend_on_threads():
    x = rng.normal(size=(3000, 5))
    assert np.array_equal(lloyd_centres(x, 50, threads=1), lloyd_centres(x, 50, threads=3))


def test_k_means_of_representatives_lowers_its_objective():
    x = rng.normal(size=(2000, 5))
    before = oracles_objective(x, x[first_distinct(x, 50)])
    assert oracles_objective(x, lloyd_centres(x, 50)) < 0.8 * before


def oracles_objective(x, centres):
    from scipy.spatial.distance import cdist

    return float(np.square(cdist(x, centres).min(axis=1)).sum())
