"""The sample: the rows of smallest hash whatever the splits, with the statistics of all rows."""

from itertools import pairwise

import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from in_memory import block, sample_of
from scipy.sparse import csr_matrix
from scipy.stats import chi2

from apnc.blocks import KEPT_PROBLEMS, Block, from_line, pack, to_line, unpack
from apnc.embeddings import make_method
from apnc.hashing import row_hashes
from apnc.kernels import make_kernel
from apnc.landmarks import choose_landmarks
from apnc.passes import merge_states
from apnc.pipeline import Run
from apnc.sampling import (
    EVERYTHING,
    Sample,
    SampleFold,
    column_statistics,
    hash_threshold,
    merge_statistics,
    stack_rows,
)
from apnc.settings import Settings

quick = settings(max_examples=40, deadline=None)
SOURCES = {"b/part-1.csv": 70, "a.csv": 150, "é,\n": 33, "one": 1}


def data(sparse=False, seed=0):
    """Return {source: rows}; sparse sources are of different widths, as svmlight blocks are."""
    rng = np.random.default_rng(seed)
    out = {}
    for width, (source, n) in enumerate(SOURCES.items(), 3):
        x = rng.normal(size=(n, width if sparse else 4)) * (rng.random((n, width if sparse else 4)) < 0.6)
        out[source] = csr_matrix(x) if sparse else x
    return out


def offsets_of(source, n):
    return np.arange(n) * 17 + len(source)


def blocks_of(rows, cuts, weights=None):
    """Return each source's rows cut into blocks at random places, empty ones included."""
    out = []
    for source, x in rows.items():
        n = x.shape[0]
        edges = [0, *sorted(cuts.integers(0, n + 1, cuts.integers(0, 6)).tolist()), n]
        for a, b in pairwise(edges):
            w = None if weights is None else weights[source][a:b]
            out.append(Block(source, offsets_of(source, n)[a:b], x[a:b], weights=w))
    return out


def shipped(fold, state):
    """Return the state after a trip over the wire, or through a file."""
    return {key: fold.unseal(from_line(to_line(fold.seal(part)))) for key, part in state.items()}


def folded(fold, blocks, rng):
    """Return the fold's result with blocks shared out to tasks and parts merged in a random tree."""
    states = []
    for some in np.array_split(rng.permutation(len(blocks)), rng.integers(1, 6)):
        state = {}
        for i in some:
            fold.accumulate(state, blocks[i])
        states.append(shipped(fold, state) if rng.random() < 0.7 else state)
    while len(states) > 1:
        i, j = rng.choice(len(states), 2, replace=False)
        merged = merge_states(fold, states[i], states[j])
        states = [s for n, s in enumerate(states) if n not in (i, j)]
        states.append(shipped(fold, merged) if rng.random() < 0.3 else merged)
    return fold.finish(states[0])


def expected_rows(rows, seed, size):
    """Return (source, offset) and the values of the rows that belong in the sample."""
    where = {(s, int(o)): (s, i) for s, x in rows.items() for i, o in enumerate(offsets_of(s, x.shape[0]))}
    chosen = oracles.sample(seed, where, size)
    width = max(x.shape[1] for x in rows.values())
    values = np.zeros((len(chosen), width))
    for row, identity in enumerate(chosen):
        source, i = where[identity]
        found = oracles.dense(rows[source][i : i + 1])[0]
        values[row, : len(found)] = found
    return chosen, values


@quick
@given(st.integers(0, 2**32), st.sampled_from([1, 7, 60, 254, 400]), st.booleans(), st.booleans())
def test_the_sample_does_not_depend_on_splits_or_order(seed, size, sparse, limited):
    rng = np.random.default_rng(seed)
    rows = data(sparse)
    n = sum(SOURCES.values())
    # the share that `size` rows need, and a bit: some draws are incomplete, which has a test of its own
    threshold = np.uint64(min(1.0, (size + 4 * np.sqrt(size)) / n) * (2.0**64 - 4096)) if limited else EVERYTHING
    sample = folded(SampleFold(seed % 5, size, threshold), blocks_of(rows, rng), rng)
    chosen, values = expected_rows(rows, seed % 5, size)
    if not sample.complete:
        assert limited and len(sample.offsets) < min(size, n)
        chosen, values = chosen[: len(sample.offsets)], values[: len(sample.offsets)]
    assert [(sample.sources[s], o) for s, o in zip(sample.source_index, sample.offsets.tolist(), strict=True)] == chosen
    assert np.array_equal(oracles.dense(sample.x), values)
    assert hasattr(sample.x, "indptr") == sparse and sample.width == values.shape[1]
    assert sample.count == n and sample.weights is None


@quick
@given(st.integers(0, 2**32), st.booleans())
def test_statistics_do_not_depend_on_splits_and_are_those_of_all_rows(seed, sparse):
    rng = np.random.default_rng(seed)
    rows = data(sparse)
    found = folded(SampleFold(0, 5), blocks_of(rows, rng), rng).statistics
    expected = oracles.column_statistics(oracles.dense(stack_rows(list(rows.values()))))
    assert found["count"] == expected["count"]
    for name in ("mean", "m2", "min", "max"):
        # design §3 asks for 1e-6; Chan's merge is good to a few units of the last place
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-11, atol=1e-12)


def test_weights_stay_with_their_rows():
    rows = data()
    weights = {s: np.random.default_rng(1).random(x.shape[0]) for s, x in rows.items()}
    rng = np.random.default_rng(2)
    sample = folded(SampleFold(3, 40), blocks_of(rows, rng, weights), rng)
    by_identity = {(s, int(o)): w for s in rows for o, w in zip(offsets_of(s, SOURCES[s]), weights[s], strict=True)}
    found = zip(sample.source_index, sample.offsets.tolist(), sample.weights, strict=True)
    assert all(by_identity[sample.sources[s], o] == w for s, o, w in found)


def test_weights_of_one_are_no_weights():
    assert sample_of(np.eye(4), np.ones(4)).weights is None


def test_many_rows_are_cut_down_on_the_way():
    # memory of a task: twice the sample and a little more
    fold, state = SampleFold(0, 100), {}
    for first in range(0, 60_000, 1000):
        fold.accumulate(state, block(np.zeros((1000, 1)), first=first))
        assert sum(len(r["hash"]) for r in state["sample"]["rows"]) <= 2 * 100 + 4096
    assert fold.finish(state).offsets.tolist() == [
        o for _, o in oracles.sample(0, [("array", i) for i in range(60_000)], 100)
    ]
    assert len(fold.seal(state["sample"])["row.hash"]) == 100, "no more than the sample is shipped"


def test_too_low_a_threshold_leaves_an_incomplete_sample_and_not_a_biased_one():
    rows = np.arange(100.0)[:, None]
    hashes = np.sort(row_hashes(0, "sample", "array", np.arange(100)))
    for kept in (0, 9, 10, 50):
        fold, state = SampleFold(0, 10, hashes[kept - 1] if kept else 0), {}
        fold.accumulate(state, block(rows))
        sample = fold.finish(shipped(fold, state))
        assert sample.complete == (kept >= 10) and len(sample.offsets) == min(kept, 10) and sample.count == 100


def test_an_incomplete_sample_is_taken_once_more_with_all_rows():
    run = Run(Settings(k=2, landmarks=10, sample=10), 10**9)
    assert run.threshold < int(EVERYTHING)
    first = make_method("nystrom").next_pass(run)
    state = {}
    first.accumulate(state, block(np.random.default_rng(0).normal(size=(50, 2))))
    run.absorb("coefficients", first.finish(state))
    assert run.model is None and run.threshold == int(EVERYTHING)
    again = make_method("nystrom").next_pass(run)
    state = {}
    again.accumulate(state, block(np.random.default_rng(0).normal(size=(50, 2))))
    run.absorb("coefficients", again.finish(state))
    assert run.model is not None and run.sample.complete and len(run.sample.offsets) == 10


@pytest.mark.parametrize("size", [1, 10, 10_000])
def test_the_threshold_leaves_enough_rows_with_near_certainty(size):
    n = 50 * size
    share = int(hash_threshold(size, n)) / 2**64
    # binomial: the wanted rows lie 6 standard deviations below what is expected, less a little
    assert n * share - 5.9 * np.sqrt(n * share) <= size <= n * share
    assert n * share <= size + 6 * np.sqrt(size) + 1
    assert hash_threshold(size, size) == hash_threshold(size, 1) == hash_threshold(size, 0) == EVERYTHING


def test_every_row_is_as_likely_and_splits_do_not_share_offsets():
    # case 81: 4 parts of 25 rows, 8 landmarks, seeds 0..199
    parts = {f"part-{p}": 100.0 * p + np.arange(25.0)[:, None] for p in range(4)}
    picked = np.zeros(400, int)
    alike = 0
    for seed in range(200):
        fold, state = SampleFold(seed, 8), {}
        for source, x in parts.items():
            fold.accumulate(state, block(x, source))
        sample = fold.finish(state)
        rows = choose_landmarks(sample.x, 8, Settings(), make_kernel("rbf")).ravel().astype(int)
        assert len(set(rows)) == 8
        picked[rows] += 1
        chosen = [set(rows[rows // 100 == p] % 100) for p in range(4)]
        alike += all(c == chosen[0] for c in chosen)
    counts = picked.reshape(4, 100)[:, :25]
    assert alike < 5 and counts.sum() == 1600
    # each row 16 times, binomial (200, 0.08): 5 standard deviations are 19.2
    assert np.abs(counts - 16).max() <= 20
    # 99 degrees of freedom; without replacement the spread is a little below χ²
    assert ((counts - 16) ** 2 / 16).sum() < chi2.ppf(1 - 1e-6, 99)
    for row in (0, 24):
        # 64 wanted over the 4 parts, standard deviation 7.7
        assert abs(counts[:, row].sum() - 64) < 5 * 7.7


def test_bad_rows_are_counted_per_rule_and_the_first_in_input_order_kept():
    fold = SampleFold(0, 10)
    order = np.random.default_rng(0).permutation(12)
    state = {}
    for i in order:
        x = block(np.ones((4, 1)), source=f"s{i // 6}", first=4 * (i % 6))
        bad = x.without(np.array([True, False, False, False]), f"rule {i % 2}")
        one = {}
        fold.accumulate(one, bad)
        state = merge_states(fold, state, shipped(fold, one))
    sample = fold.finish(state)
    assert sample.rules == {"rule 0": 6, "rule 1": 6} and sample.count == 36
    assert [(p.source, p.offset) for p in sample.problems] == [("s0", 4 * i) for i in range(KEPT_PROBLEMS)]


def test_damage_comes_first_among_the_problems():
    fold, state = SampleFold(0, 10), {}
    for source, fatal in [("a", False), ("z", True)]:
        b = block(np.ones((3, 1)), source).without(np.ones(3, bool), "rule")
        b.problems = [type(p)(p.source, p.offset, p.column, p.value, p.rule, fatal) for p in b.problems]
        fold.accumulate(state, b)
    assert fold.finish(state).problems[0].source == "z"


def test_no_rows_at_all_are_a_complete_sample_of_nothing():
    fold = SampleFold(0, 10)
    empty = {}
    fold.accumulate(empty, block(np.empty((0, 3))))
    for state in ({}, empty, shipped(fold, empty)):
        sample = fold.finish(state)
        assert sample.count == 0 and sample.complete and sample.x.shape[0] == 0


def test_blocks_without_rows_leave_no_trace():
    x = np.arange(12.0).reshape(4, 3)
    fold, state = SampleFold(0, 10), {}
    for some in (x[:0], x, x[:0]):
        fold.accumulate(state, block(some))
    found = fold.finish(state)
    assert np.array_equal(found.x, sample_of(x).x) and found.count == 4
    assert np.array_equal(found.statistics["min"], x[0])


@pytest.mark.parametrize("sparse", [False, True])
def test_a_sample_survives_the_file(sparse):
    x = csr_matrix(np.eye(5)) if sparse else np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    sample = sample_of(x, np.arange(5.0))
    again = Sample.from_dict(unpack(pack(sample.to_dict())))
    assert np.array_equal(oracles.dense(sample.x), oracles.dense(again.x)) and sample.x.dtype == again.x.dtype
    for name in ("offsets", "source_index", "weights"):
        assert np.array_equal(getattr(sample, name), getattr(again, name))
    for name in ("sources", "count", "problems", "rules", "complete", "width"):
        assert getattr(sample, name) == getattr(again, name)
    assert sample.statistics.keys() == again.statistics.keys()
    assert all(np.array_equal(sample.statistics[n], again.statistics[n]) for n in sample.statistics)


# Column statistics.


@pytest.mark.parametrize("kind", [np.asarray, csr_matrix])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("offset", [0.0, 1e4, 1.5e9])
def test_the_spread_keeps_its_digits_far_from_zero(kind, dtype, offset):
    # time stamps are such columns: Σx² − n·mean² has no digit left
    x = (np.random.default_rng(0).normal(size=(400, 3)) * (1000 if dtype == np.float32 else 1) + offset).astype(dtype)
    found, expected = column_statistics(kind(x)), oracles.column_statistics(x)
    # the difference of a float32 row and the mean is rounded once; means near 1.5e9 end at the seventh decimal
    rtol = 1e-6 if dtype == np.float32 or offset > 1e9 else 1e-9
    np.testing.assert_allclose(found["m2"], expected["m2"], rtol=rtol)
    np.testing.assert_allclose(found["mean"], expected["mean"], rtol=1e-14)
    halves = merge_statistics(column_statistics(kind(x[:150])), column_statistics(kind(x[150:])))
    np.testing.assert_allclose(halves["m2"], expected["m2"], rtol=rtol)


@pytest.mark.parametrize("kind", [np.asarray, csr_matrix])
@pytest.mark.parametrize("value", [0.1, 1 / 3, 1e9 + 0.1])
def test_a_constant_column_has_no_spread(kind, value):
    s = column_statistics(kind(np.full((16384, 1), value)))
    assert np.sqrt(s["m2"] / s["count"])[0] <= 1e-12 * value


def test_least_and_largest_of_sparse_columns_count_what_is_not_stored():
    x = np.array([[1.0, -1.0, 0.0, 2.0], [2.0, 0.0, 0.0, 3.0]])
    s = column_statistics(csr_matrix(x))
    assert s["min"].tolist() == [1, -1, 0, 2] and s["max"].tolist() == [2, 0, 0, 3]
    wide = csr_matrix(np.array([[5.0, 5.0, 5.0, 5.0, 5.0]]))
    for merged in (merge_statistics(s, column_statistics(wide)), merge_statistics(column_statistics(wide), s)):
        assert merged["min"].tolist() == [1, -1, 0, 2, 0] and merged["max"].tolist() == [5] * 5
        assert merged["mean"].tolist() == pytest.approx([8 / 3, 4 / 3, 5 / 3, 10 / 3, 5 / 3])


def test_statistics_are_float64_whatever_the_rows_are():
    s = column_statistics(np.ones((3, 2), np.float32))
    assert all(s[name].dtype == np.float64 for name in ("mean", "m2", "min", "max"))
