"""Scores against scikit-learn, and from files."""

from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix

from apnc.errors import InputError
from apnc.metrics import contingency_table, evaluate, read_truth, scores

labelings = st.integers(1, 60).flatmap(
    lambda n: st.tuples(*[st.lists(st.integers(0, 4), min_size=n, max_size=n) for _ in range(2)])
)


@settings(max_examples=200, deadline=None)
@given(labelings)
@example(([0], [0]))
@example(([0, 0, 0], [0, 1, 2]))
@example(([0, 1, 2], [0, 0, 0]))
@example(([0, 1, 2], [2, 0, 1]))
@example(([3, 3], [1, 1]))
@example(([0, 0, 1, 1], [0, 1, 0, 1]))
def test_scores_are_those_of_scikit_learn_and_of_the_definitions(pair):
    clusters, classes = map(np.array, pair)
    found = evaluate(clusters, classes)
    nmi = normalized_mutual_info_score(classes, clusters, average_method="geometric")
    assert found["nmi"] == pytest.approx(nmi, abs=1e-12)
    assert found["ari"] == pytest.approx(adjusted_rand_score(classes, clusters), abs=1e-12)
    table = contingency_matrix(classes, clusters).T
    assert found["purity"] == pytest.approx(table.max(axis=1).sum() / len(classes))
    square = np.zeros((5, 5), int)
    square[: table.shape[0], : table.shape[1]] = table
    best = max(sum(square[i, j] for i, j in enumerate(p)) for p in permutations(range(5)))
    assert found["accuracy"] == pytest.approx(best / len(classes))
    assert found == scores(table)
    assert evaluate(clusters + 10, classes * 3) == found, "names of clusters do not matter"


def test_millions_of_rows_do_not_overflow():
    table = np.array([[3_000_000, 1_000_000], [500_000, 4_000_000]])
    n = table.sum()

    def pairs(x):
        return sum(int(v) * (int(v) - 1) // 2 for v in np.ravel(x))

    both, a, b, total = pairs(table), pairs(table.sum(axis=1)), pairs(table.sum(axis=0)), pairs([n])
    expected = a * b / total
    assert scores(table)["ari"] == pytest.approx((both - expected) / ((a + b) / 2 - expected))


def test_unused_clusters_and_classes_change_nothing():
    table = np.array([[3, 0, 1], [0, 0, 0], [1, 0, 4]])
    assert scores(table) == scores(np.array([[3, 1], [1, 4]]))


def test_counts_per_pair_become_a_table():
    pairs = Counter({(2, "b"): 3, (0, "a"): 1, (2, "a"): 4})
    assert contingency_table(pairs).tolist() == [[1, 0], [4, 3]]
    assert scores(contingency_table(pairs))["accuracy"] == pytest.approx(4 / 8)


def test_labels_and_classes_of_different_numbers_are_refused_with_both():
    with pytest.raises(InputError, match="there are 2 labels but 3 true classes"):
        evaluate(np.zeros(2), np.zeros(3))
    with pytest.raises(InputError, match="no labels"):
        evaluate(np.zeros(0), np.zeros(0))


def test_classes_may_be_text():
    assert evaluate(np.array([0, 0, 1]), np.array(["a", "a", "ü"]))["nmi"] == pytest.approx(1)


@pytest.mark.parametrize("text", ["a\nb\nb\n", "a\r\nb\r\nb", "\ufeffa\nb\nb\n\n", " a\nb \nb"])
def test_classes_are_read_one_per_line(text, tmp_path):
    (tmp_path / "truth.txt").write_bytes(text.encode())
    assert read_truth(tmp_path / "truth.txt").tolist() == ["a", "b", "b"]


def test_classes_are_read_from_npy_without_pickles(tmp_path):
    np.save(tmp_path / "t.npy", np.array([1, 2, 2]))
    assert read_truth(tmp_path / "t.npy").tolist() == [1, 2, 2]
    np.save(tmp_path / "t.npy", np.ones((2, 2)))
    with pytest.raises(InputError, match=r"shape \(2, 2\); a vector"):
        read_truth(tmp_path / "t.npy")
    np.save(tmp_path / "t.npy", np.array([{}, None]), allow_pickle=True)
    with pytest.raises(InputError, match="not a list of classes"):
        read_truth(tmp_path / "t.npy")
    (tmp_path / "t.npy").write_bytes(b"")
    with pytest.raises(InputError, match="not a list of classes"):
        read_truth(tmp_path / "t.npy")


def test_files_that_cannot_be_read_are_refused_by_name(tmp_path):
    with pytest.raises(InputError, match=r"no\.txt: there is no such file"):
        read_truth(tmp_path / "no.txt")
    (tmp_path / "latin.txt").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(InputError, match=r"latin\.txt: not a list of classes"):
        read_truth(tmp_path / "latin.txt")
    with pytest.raises(InputError, match="not a list of classes"):
        read_truth(tmp_path)
