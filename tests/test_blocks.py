"""Blocks: what is packed comes back the same, on one line, whatever it holds."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.sparse import csr_matrix

from apnc.blocks import (
    BLOCK_ELEMENTS,
    KEPT_PROBLEMS,
    MAX_BLOCK_ROWS,
    Block,
    Problem,
    from_line,
    pack,
    rows_per_block,
    to_line,
    unpack,
)

quick = settings(max_examples=80, deadline=None)
DTYPES = ("<f4", "<f8", "<i4", "<i8", "<u8", "|u1", "|i1", "|b1")
arrays = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=5))
)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=8).filter(lambda name: "." not in name)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
).filter(lambda value: not (isinstance(value, dict) and set(value) == {"csr"}))


@st.composite
def sparse_matrices(draw):
    wide = draw(hnp.arrays(st.sampled_from(("<f4", "<f8")), hnp.array_shapes(min_dims=2, max_dims=2, max_side=6)))
    return csr_matrix(np.where(np.isnan(wide) | draw(hnp.arrays(bool, wide.shape)), 0, wide))


def same(a, b):
    if hasattr(a, "indptr"):
        parts = ("data", "indices", "indptr")
        return a.shape == b.shape and all(same(getattr(a, part), getattr(b, part)) for part in parts)
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return type(a) is type(b) and a == b


@quick
@given(st.dictionaries(names, arrays | plain | sparse_matrices(), max_size=5))
def test_values_survive_the_trip_over_one_line(values):
    line = to_line(values)
    assert not set(line) & set(b"\t\n\r ")
    for back in (unpack(pack(values)), from_line(line), from_line(memoryview(line))):
        assert set(back) == set(values)
        assert all(same(value, back[name]) for name, value in values.items())


def test_packed_arrays_are_aligned_whatever_stands_before_them():
    # NumPy works on copies of unaligned arrays, which would double memory in every merge
    values = {"a": np.arange(3, dtype=np.uint8), "text": "x", "b": np.arange(5.0), "c": np.ones((2, 3), np.float32)}
    back = unpack(pack(values))
    assert all(back[name].flags.aligned for name in "abc")


def test_arrays_that_are_not_contiguous_are_packed_by_their_values():
    wide = np.arange(24.0).reshape(4, 6)
    back = unpack(pack({"t": wide.T, "strided": wide[::2, ::3]}))
    assert np.array_equal(back["t"], wide.T) and np.array_equal(back["strided"], wide[::2, ::3])


def test_packing_never_pickles_objects():
    with pytest.raises((TypeError, ValueError)):
        unpack(pack({"x": np.array([object()])}))
    with pytest.raises(TypeError):
        pack({"x": {1, 2}})


@pytest.mark.parametrize("sparse", [False, True])
def test_a_block_comes_back_whole_with_odd_texts_and_bad_rows(sparse):
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    block = Block(
        "теле\tgrams\n\u2028.csv",
        np.array([0, 7, 2**40]),
        csr_matrix(x) if sparse else x,
        ids=["é,\t", '"', "\n\x00"],
        labels=["a", "", "日本"],
        weights=np.array([0.5, 1.0, 0.0]),
        bad=np.array([3]),
        problems=[Problem("теле\tgrams\n\u2028.csv", 3, None, "n\ta", "a rule", True)],
        rules=Counter({"a rule": 1}),
    )
    line = to_line(block.to_dict())
    assert b"\n" not in line and b"\t" not in line
    back = Block.from_dict(from_line(line))
    for name in ("source", "offsets", "x", "ids", "labels", "weights", "bad"):
        assert same(getattr(block, name), getattr(back, name)), name
    assert back.problems == block.problems and back.rules == block.rules and back.n == 3


def test_a_block_without_rows_or_extras_comes_back_without_them():
    back = Block.from_dict(
        from_line(to_line(Block("s", np.empty(0, np.int64), np.empty((0, 4), np.float32)).to_dict()))
    )
    assert back.x.shape == (0, 4) and back.x.dtype == np.float32 and back.n == 0
    assert back.ids is None and back.labels is None and back.weights is None and not back.rules and not len(back.bad)


def test_rows_taken_out_are_bad_rows_at_their_place():
    block = Block(
        "s", np.array([10, 20, 30, 40]), np.eye(4), list("abcd"), list("wxyz"), np.arange(4.0), np.array([15, 35]),
        [Problem("s", 15, 1, "?", "old")], Counter({"old": 2}),
    )  # fmt: skip
    less = block.without(np.array([False, True, False, True]), "new")
    assert less.offsets.tolist() == [10, 30] and less.bad.tolist() == [15, 20, 35, 40]
    assert less.ids == ["a", "c"] and less.labels == ["w", "y"] and less.weights.tolist() == [0.0, 2.0]
    assert np.array_equal(less.x, np.eye(4)[[0, 2]])
    assert less.rules == {"old": 2, "new": 2}
    assert [(p.offset, p.rule) for p in less.problems] == [(15, "old"), (20, "new"), (40, "new")]
    assert block.n == 4 and block.rules == {"old": 2}, "the block itself must not change"


def test_the_kept_problems_stay_few():
    block = Block("s", np.arange(100), np.zeros((100, 1))).without(np.ones(100, bool), "rule")
    assert len(block.problems) == KEPT_PROBLEMS and block.rules["rule"] == 100


@quick
@given(st.lists(st.integers(0, 10**7), min_size=1, max_size=4))
def test_blocks_stay_within_their_memory(widths):
    rows = rows_per_block(*widths)
    assert 16 <= rows <= MAX_BLOCK_ROWS
    assert rows * max(widths) <= BLOCK_ELEMENTS or rows == 16
