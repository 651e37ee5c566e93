"""The mapreduce engine gives what the in-process engine gives, for any runner and any splits."""

from __future__ import annotations

import gzip
import os
from collections import Counter
from functools import cache

import numpy as np
import pytest
from in_memory import flat_labels

from apnc.embed import OVERFLOW, EmbedMap, PredictMap
from apnc.engines.in_process import InProcessEngine
from apnc.engines.mapreduce import MapReduceEngine
from apnc.errors import InputError, StageError
from apnc.hashing import row_hashes
from apnc.kmeans import AssignMap
from apnc.pipeline import Listener, Run, train
from apnc.readers.array import ArrayInput
from apnc.readers.detect import describe
from apnc.settings import Settings

NO_CONF = ("--no-conf",)


class Counting(Listener):
    """Counts the rows of each stage."""

    def __init__(self):
        self.stages: Counter = Counter()

    def stage(self, name, detail=""):
        self.name = name

    def rows(self, done):
        self.stages[self.name] += done


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two files of csv with ids, one of them compressed, with bad rows; and the same numbers as svmlight."""
    folder = tmp_path_factory.mktemp("input")
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(3 * i, 1, (150, 4)) for i in range(3)])
    rng.shuffle(x)
    lines = [f'"id,{i}",' + ",".join(f"{value:.4f}" for value in row) for i, row in enumerate(x)]
    lines[100], lines[301] = "id,1,2,oops,4", "id,nan,2,3,4"
    (folder / "csv").mkdir()
    (folder / "csv" / "a.csv").write_text("\n".join(lines[:300]) + "\n")
    (folder / "csv" / "b.csv.gz").write_bytes(gzip.compress("\n".join(lines[300:]).encode()))
    (folder / "x.svm").write_text("".join(_svmlight(row) for row in x))
    return folder


def _svmlight(row):
    return "1 " + " ".join(f"{j + 1}:{value:.4f}" for j, value in enumerate(row) if value > 0) + "\n"


@cache
def _input(folder, name):
    if name == "csv":
        return describe([str(folder / "csv")], id_column="1", header="no")
    return describe([str(folder / "x.svm")])


def _settings(method, **more):
    return Settings(
        k=3, method=method, landmarks=40, dim=30, sample=200, restarts=2, passes=1, on_bad_row="skip", **more
    ).check()


def _cluster(engine, data, settings):
    """Return the run, the labels as a dict, and the rows that the listener was told of."""
    run, listener = Run(settings, data.estimated_rows(), data.spec.width), Counting()
    with engine:
        model = train(run, engine, listener)
        listener.stage("assign")
        blocks = list(engine.labels(AssignMap(model.centroids[0], model.metric), listener))
    return run, flat_labels(blocks), listener.stages


@cache
def _reference(folder, name, method):
    data = _input(folder, name)
    return _cluster(InProcessEngine(data), data, _settings(method))


CASES = [("inline", splits, "nystrom", "csv") for splits in (1, 3, 8)]
CASES += [("local", 1, "nystrom", "csv"), ("local", 3, "nystrom", "csv")]  # with 8 splits in tests/test_whole_line.py
CASES += [("inline", 1, "stable", "csv"), ("inline", 8, "stable", "svm"), ("local", 3, "stable", "svm")]


@pytest.mark.parametrize(("runner", "splits", "method", "name"), CASES)
def test_sample_and_labels_are_those_of_the_in_process_engine(folder, tmp_path, runner, splits, method, name):
    run, labels, _ = _reference(folder, name, method)
    data = _input(folder, name)
    engine = MapReduceEngine(data, runner, tmp_path, splits, NO_CONF)
    found_run, found, told = _cluster(engine, data, _settings(method))
    for part in ("offsets", "source_index"):
        assert np.array_equal(getattr(found_run.sample, part), getattr(run.sample, part))
    x, expected = found_run.sample.x, run.sample.x
    assert np.array_equal(*(m.toarray() if hasattr(m, "indptr") else m for m in (x, expected)))
    assert found_run.sample.sources == run.sample.sources
    assert found_run.sample.rules == run.sample.rules
    assert found_run.sample.problems == run.sample.problems
    assert found_run.model.passes[0]["objective"] == pytest.approx(run.model.passes[0]["objective"], rel=1e-6)
    # the distances' only difference is the order of float32 sums within blocks
    np.testing.assert_allclose(found.pop("distances"), labels["distances"], atol=2e-5)
    assert found == {key: value for key, value in labels.items() if key != "distances"}
    count = len(labels["rows"])
    assert told == {
        "coefficients": count,
        "embed": count,
        "kmeans": count * len(found_run.model.passes),
        "assign": count,
    }
    assert not os.listdir(tmp_path)


def test_the_labels_of_the_reference_are_right(folder):
    _, labels, _ = _reference(folder, "csv", "nystrom")
    assert len(labels["rows"]) == 448
    assert len(labels["ids"]) == 448
    assert labels["ids"][0] == "id,0"
    assert [source for source, _ in labels["bad"]] == ["a.csv", "b.csv.gz"]
    assert sum(labels["rules"].values()) == 2


def test_without_a_hint_of_the_threshold_the_sample_is_taken_again(folder, tmp_path):
    data = _input(folder, "csv")
    run = Run(_settings("nystrom"), 10**9, data.spec.width)
    with MapReduceEngine(data, "inline", tmp_path, 2, NO_CONF) as engine:
        train(run, engine)
    expected, _, _ = _reference(folder, "csv", "nystrom")
    assert np.array_equal(run.sample.offsets, expected.sample.offsets)


@pytest.mark.parametrize("runner", ["inline", "local"])
def test_predict_labels_rows_without_an_embedding(folder, tmp_path, runner):
    run, labels, _ = _reference(folder, "csv", "nystrom")
    with MapReduceEngine(_input(folder, "csv"), runner, tmp_path, 2, NO_CONF) as engine:
        found = flat_labels(engine.labels(PredictMap.of(run.model), Listener()))
    assert found["clusters"] == labels["clusters"]
    assert (found["bad"], found["rules"], found["problems"]) == (labels["bad"], labels["rules"], labels["problems"])


def test_rows_whose_embedding_overflows_are_told(tmp_path):
    x = np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32)
    hashes = row_hashes(0, "sample", "x.npy", np.arange(60))
    huge = np.sort(np.argsort(hashes)[-3:])  # not in the sample, whose rows must be fit to learn from
    x[huge] = 1e30
    np.save(tmp_path / "x.npy", x)
    data = describe([str(tmp_path / "x.npy")])
    settings = Settings(k=2, kernel="polynomial", landmarks=10, dim=8, sample=40, passes=1)
    with MapReduceEngine(data, "inline", tmp_path / "work", 2, NO_CONF) as engine:
        model = train(Run(settings, 60, 2), engine)
        found = flat_labels(engine.labels(AssignMap(model.centroids[0], model.metric), Listener()))
    assert found["bad"] == [("x.npy", i) for i in huge]
    assert found["rules"] == Counter({OVERFLOW: 3})
    assert [p.offset for p in found["problems"]] == huge.tolist()


def test_an_embedding_may_be_kept_for_another_engine(folder, tmp_path):
    data = _input(folder, "csv")
    run, labels, _ = _reference(folder, "csv", "nystrom")
    assign = AssignMap(run.model.centroids[0], run.model.metric)
    with MapReduceEngine(data, "inline", tmp_path, 3, NO_CONF, embedding=tmp_path / "kept") as engine:
        engine.embed(EmbedMap.of(run.model), Listener())
    assert os.listdir(tmp_path) == ["kept"]
    with MapReduceEngine(data, "inline", tmp_path, 2, NO_CONF, embedding=tmp_path / "kept") as engine:
        assert flat_labels(engine.labels(assign, Listener()))["clusters"] == labels["clusters"]
    with InProcessEngine(data, embedding=tmp_path / "kept") as engine:
        assert flat_labels(engine.labels(assign, Listener()))["clusters"] == labels["clusters"]
    assert os.listdir(tmp_path) == ["kept"]


def test_splits_without_rows_harm_nothing(tmp_path):
    (tmp_path / "x.csv").write_text("1,2\n" + "3,4" + " " * 400 + "\n" + "5,7\n9,9\n")
    data = describe([str(tmp_path / "x.csv")])
    settings = Settings(k=2, landmarks=4, passes=1).check()
    with MapReduceEngine(data, "inline", tmp_path / "work", 8, NO_CONF) as engine:
        run = Run(settings, data.estimated_rows(), 2)
        model = train(run, engine)
        blocks = engine.labels(AssignMap(model.centroids[0], model.metric), Listener())
        assert sum(block.n for block in blocks) == 4


def test_a_pass_that_fails_leaves_what_was_there(folder, tmp_path, monkeypatch):
    data = _input(folder, "csv")
    run, _, _ = _reference(folder, "csv", "nystrom")
    with MapReduceEngine(data, "inline", tmp_path, 2, NO_CONF) as engine:
        assign = AssignMap(run.model.centroids[0][:, :5], "l2")  # of another embedding
        engine.embed(EmbedMap.of(run.model), Listener())
        with pytest.raises(StageError, match=r"^assign: map task 1 of 2 \(part-00000 from 0, .* failed: ValueError: "):
            list(engine.labels(assign, Listener()))
        (own,) = tmp_path.iterdir()
        assert sorted(path.name for path in own.iterdir() if not path.name.startswith("apnc-")) == ["embedding"]
        monkeypatch.setattr(EmbedMap, "apply", lambda self, block: 1 / 0)
        with pytest.raises(StageError, match=r"^embed: .* failed: ZeroDivisionError: division by zero"):
            engine.embed(EmbedMap.of(run.model), Listener())
        assert sorted(path.name for path in own.iterdir() if not path.name.startswith("apnc-")) == ["embedding"]
    assert not os.listdir(tmp_path)


def test_labels_left_early_leave_nothing(folder, tmp_path):
    run, _, _ = _reference(folder, "csv", "nystrom")
    with MapReduceEngine(_input(folder, "csv"), "inline", tmp_path, 2, NO_CONF) as engine:
        blocks = engine.labels(PredictMap.of(run.model), Listener())
        next(blocks)
        blocks.close()
        (own,) = tmp_path.iterdir()
        assert [path.name for path in own.iterdir() if path.name.startswith("labels-")] == []


def test_what_cannot_run_is_refused(folder, tmp_path):
    with pytest.raises(InputError, match="runner 'spork' is not supported; use inline or local"):
        MapReduceEngine(_input(folder, "csv"), "spork", tmp_path)
    with pytest.raises(InputError, match="data in memory cannot be clustered through mrjob"):
        MapReduceEngine(ArrayInput(np.ones((3, 2))), "inline", tmp_path)
    with MapReduceEngine(_input(folder, "csv"), "inline", tmp_path, 1, ["--no-such-option"]) as engine:
        run, _, _ = _reference(folder, "csv", "nystrom")
        with pytest.raises(InputError, match="mrjob: unrecognized arguments: --no-such-option"):
            list(engine.labels(PredictMap.of(run.model), Listener()))
    assert not os.listdir(tmp_path)
