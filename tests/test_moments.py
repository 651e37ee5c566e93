"""Moments: the same sums for any cut of the rows, the matrix in stripes, and the rotations taken from them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import oracles
import pytest
from in_memory import block, fold_rows

from apnc import moments as room
from apnc.blocks import pack, unpack
from apnc.embeddings.views import DegreeView, NodeView, PlainView
from apnc.moments import MomentsFold, leading, moments_from_dict
from apnc.neighbours import packed
from apnc.passes import Several, fold_from_dict, merge_states

rng = np.random.default_rng(0)
Y = rng.normal(size=(300, 7))
W = rng.random(300)
# sums of a few hundred float64 products in another order
SUMS = {"rtol": 1e-12, "atol": 1e-12}


def nodes(rows, count=3, p=11):
    """Return stored neighbours: which of p representatives, and how far, for random rows."""
    some = np.random.default_rng(rows)
    chosen = np.stack([some.permutation(p)[:count] for _ in range(rows)])
    return packed(chosen, some.random((rows, count)).astype(np.float32))


def merged(fold, blocks):
    """Fold blocks apart, ship every part, and merge from the last to the first."""
    total = {}
    for one in reversed(blocks):
        state = {}
        fold.accumulate(state, one)
        shipped = {key: fold.unseal(unpack(bytearray(pack(fold.seal(part))))) for key, part in state.items()}
        merge_states(fold, total, shipped)
    return fold.finish(total)


@pytest.mark.parametrize("weights", [None, W])
@pytest.mark.parametrize("stripe", [7, 3, 1])
def test_sums_do_not_depend_on_blocks_or_stripes(weights, stripe, monkeypatch):
    monkeypatch.setattr(room, "STRIPE_ELEMENTS", stripe * 7)
    cuts = [0, 1, 130, 130, 300]
    blocks = [block(Y[a:b], first=a, weights=None if weights is None else weights[a:b]) for a, b in pairwise(cuts)]
    found = merged(MomentsFold(PlainView(7)), blocks)
    total, second = oracles.moments(Y, weights)
    np.testing.assert_allclose(found.total, total, **SUMS)
    np.testing.assert_allclose(found.second, second, **SUMS)
    assert (found.rows, found.set_aside) == (300, 0)


def test_the_first_moment_alone_ships_no_matrix():
    fold, state = MomentsFold(PlainView(7), second=False), {}
    fold.accumulate(state, block(Y))
    assert list(state) == ["rows"] and fold.finish(state).second is None


def test_no_rows_give_sums_of_zero():
    found = MomentsFold(PlainView(7)).finish({})
    assert not found.total.any() and not found.second.any() and found.second.shape == (7, 7)


@pytest.mark.parametrize("weights", [None, W])
@pytest.mark.parametrize("stripe", [11, 4])
def test_sums_over_nodes_are_those_of_the_matrix_they_stand_for(weights, stripe, monkeypatch):
    monkeypatch.setattr(room, "STRIPE_ELEMENTS", stripe * 11)
    x, view = nodes(300), NodeView(11, 0.7)
    (which, shares), degrees = view.terms(x)
    t = np.zeros((300, 11))
    np.put_along_axis(t, which, shares, 1)
    fold = MomentsFold(view)
    halves = [
        block(x[a:b], first=a, weights=None if weights is None else weights[a:b]) for a, b in ((0, 99), (99, 300))
    ]
    total, second = oracles.moments(t, degrees if weights is None else degrees * weights)
    for found in (merged(fold, halves), fold_rows(fold, halves)):
        np.testing.assert_allclose(found.total, total, **SUMS)
        np.testing.assert_allclose(found.second, second, **SUMS)


def test_rows_without_a_degree_are_set_aside_and_never_become_nan():
    y = np.array([[1.0, 0.0], [0.5, 0.1], [-2.0, 0.0], [0.0, 0.0]])
    view = DegreeView(np.array([1.0, 0.0]), np.eye(2))
    found = fold_rows(MomentsFold(view), [block(y)])
    assert found.set_aside == 2 and np.isfinite(found.second).all()
    rows = view.rows(y)
    assert np.isfinite(rows).all() and not rows[2:].any() and np.allclose(np.linalg.norm(rows[:2], axis=1), 1)


def test_several_folds_in_one_pass_are_each_as_if_alone():
    views = [NodeView(11, 0.7), NodeView(11, 0.2)]
    blocks = [block(nodes(80)), block(nodes(50), first=80)]
    found = merged(Several([MomentsFold(v) for v in views]), blocks)
    for view, one in zip(views, found, strict=True):
        np.testing.assert_allclose(one.second, fold_rows(MomentsFold(view), blocks).second, **SUMS)


def test_a_described_pass_is_the_same_pass():
    fold = Several([MomentsFold(NodeView(11, 0.7)), MomentsFold(NodeView(11, 0.2), second=False)])
    again = fold_from_dict(unpack(pack(fold.to_dict())), moments_from_dict)
    one, other = (fold_rows(f, [block(nodes(60))]) for f in (fold, again))
    assert np.array_equal(one[0].second, other[0].second) and other[1].second is None


def test_leading_eigenvectors_have_one_sign_whatever_lapack_does():
    g = Y.T @ Y
    values, vectors = leading(g, 3)
    exact = np.linalg.eigvalsh(g)[::-1][:3]
    np.testing.assert_allclose(values, exact, rtol=1e-12)
    np.testing.assert_allclose(g @ vectors, vectors * values, atol=1e-10 * exact[0])
    assert (vectors[np.abs(vectors).argmax(axis=0), range(3)] > 0).all()
