"""labels.csv: the right row numbers, texts that survive any csv reader, distances with all their digits."""

import csv
import io
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apnc.blocks import KEPT_PROBLEMS, Block, Problem
from apnc.errors import InputError
from apnc.labels import LabelWriter, read_clusters

ODD = ["plain", "a,b", 'quo"te', "tab\there", "new\nline", "cr\r", " space ", "", "é日本", "'", '"', "-1", "NA", ";"]


def labelled(source, offsets, clusters, distances=None, **more):
    clusters = np.asarray(clusters, float)
    distances = np.zeros(len(clusters)) if distances is None else distances
    return Block(source, np.asarray(offsets, np.int64), np.column_stack([clusters, distances]), **more)


def written(blocks, **settings):
    """Return (writer, records read by Python's csv module)."""
    file = io.BytesIO()
    writer = LabelWriter(file, **settings)
    for block in blocks:
        writer.write(block)
    return writer, list(csv.reader(io.StringIO(file.getvalue().decode(), newline="")))


def test_rows_are_numbered_within_their_source():
    _, rows = written([labelled("a", [0, 9], [1, 0]), labelled("a", [17], [2]), labelled("b", [0, 5], [1, 1])])
    assert rows[0] == ["source", "row", "cluster", "distance"]
    assert [r[:3] for r in rows[1:]] == [
        ["a", "0", "1"],
        ["a", "1", "0"],
        ["a", "2", "2"],
        ["b", "0", "1"],
        ["b", "1", "1"],
    ]


def test_bad_rows_count_but_are_absent():
    blocks = [
        labelled("a", [20, 40], [0, 1], bad=np.array([0, 10, 30]), rules=Counter(r=3)),
        labelled("a", [], [], bad=np.array([50, 60]), rules=Counter(r=2)),
        labelled("a", [70, 90], [0, 1], bad=np.array([80, 100]), rules=Counter(r=2)),
        labelled("b", [7], [1], bad=np.array([3]), rules=Counter(s=1)),
    ]
    writer, rows = written(blocks)
    assert [(r[0], int(r[1])) for r in rows[1:]] == [("a", 2), ("a", 4), ("a", 7), ("a", 9), ("b", 1)]
    assert writer.rules == {"r": 7, "s": 1} and writer.rows == 5


@settings(max_examples=60, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=40), st.integers(1, 7))
def test_row_numbers_do_not_depend_on_blocks(good, size):
    blocks = []
    for first in range(0, len(good), size):
        part = np.array(good[first : first + size])
        offsets = 10 * (first + np.arange(len(part)))
        blocks.append(labelled("a", offsets[part], np.zeros(part.sum()), bad=offsets[~part]))
    _, rows = written(blocks)
    assert [int(r[1]) for r in rows[1:]] == np.flatnonzero(good).tolist()


@pytest.mark.parametrize("text", ODD)
def test_odd_sources_survive(text):
    _, rows = written([labelled(text, [0, 1], [3, 4])])
    assert [r[0] for r in rows[1:]] == [text, text] and [r[2] for r in rows[1:]] == ["3", "4"]


def test_odd_ids_survive_together_and_alone():
    for ids in [ODD, *([i] for i in ODD)]:
        _, rows = written([labelled("s", np.arange(len(ids)), np.arange(len(ids)), ids=ids)], with_ids=True)
        assert rows[0] == ["id", "cluster", "distance"] and [r[0] for r in rows[1:]] == ids
        assert [r[1] for r in rows[1:]] == [str(i) for i in range(len(ids))]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")), min_size=1, max_size=8))
def test_any_ids_survive(ids):
    _, rows = written([labelled("s", np.arange(len(ids)), np.zeros(len(ids)), ids=ids)], with_ids=True)
    assert [r[0] for r in rows[1:]] == ids


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_distances_come_back_as_the_numbers_they_were(dtype):
    rng = np.random.default_rng(0)
    away = np.concatenate([[0, 1e-30, 1e30, 0.1, 1 / 3, 12345678.0, 5e-324], np.exp(rng.normal(0, 20, 500))]).astype(
        dtype
    )
    _, rows = written([labelled("s", np.arange(len(away)), np.zeros(len(away)), away)], dtype=dtype)
    assert np.array_equal(np.array([r[3] for r in rows[1:]], dtype), away)


def test_what_is_counted_on_the_way():
    blocks = [
        labelled("a", [0, 1, 2], [0, 2, 2], [1.0, 2.0, 0.5], labels=["x", "y", "y"]),
        labelled("b", [0], [1], [3.0], labels=["x"]),
    ]
    writer, _ = written(blocks)
    assert writer.rows == 4 and writer.counts.tolist() == [1, 1, 2]
    assert writer.squares == pytest.approx(1 + 4 + 0.25 + 9)
    assert writer.contingency == {(0, "x"): 1, (2, "y"): 2, (1, "x"): 1}
    assert written([labelled("a", [0], [0])])[0].contingency == {}


def test_few_problems_are_kept():
    blocks = [labelled("a", [], [], bad=np.array([i]), problems=[Problem("a", i, None, "", "r")]) for i in range(9)]
    writer, rows = written(blocks)
    assert [p.offset for p in writer.problems] == list(range(KEPT_PROBLEMS)) and len(rows) == 1


@pytest.mark.parametrize("with_ids", [False, True])
def test_clusters_are_read_back(with_ids, tmp_path):
    rng = np.random.default_rng(0)
    clusters = rng.integers(0, 9, 5000)
    ids = [ODD[i % len(ODD)] for i in range(5000)]
    with open(tmp_path / "labels.csv", "wb") as file:
        writer = LabelWriter(file, with_ids)
        for first in range(0, 5000, 999):
            part = slice(first, first + 999)
            writer.write(labelled("s\n,", np.arange(5000)[part], clusters[part], ids=ids[part]))
    assert np.array_equal(read_clusters(tmp_path / "labels.csv"), clusters)


@pytest.mark.parametrize("content", ["", "a,b\n1,2\n", "cluster\nx\n", "cluster,b\n1\n"])
def test_other_files_are_no_labels(content, tmp_path):
    (tmp_path / "labels.csv").write_text(content)
    with pytest.raises(InputError, match=r"labels\.csv: not a labels file written by apnc"):
        read_clusters(tmp_path / "labels.csv")
    with pytest.raises(InputError, match="there is no such labels file"):
        read_clusters(tmp_path / "no.csv")
