"""The whole line: every engine, any cut of the input, every format: one sample, the same labels."""

from __future__ import annotations

import bz2
import gzip
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from command_line import blobs, cluster, facts, labels, partition, write_csv, write_svmlight

from apnc.engines.in_process import InProcessEngine
from apnc.engines.mapreduce import MapReduceEngine
from apnc.hashing import row_hashes
from apnc.kernels import KERNELS
from apnc.model import Model
from apnc.pipeline import Listener
from apnc.readers.detect import describe
from apnc.sampling import EVERYTHING, SampleFold, hash_threshold

SAMPLES = Path(__file__).parents[1] / "data_samples"
INLINE = [("inline", 1), ("inline", 3), ("inline", 8)]
LOCAL = ("local", 8)
SIZE = 100


def on(runner):
    """Return the options for (runner, splits)."""
    return ("--runner", runner[0], "--splits", runner[1])


@pytest.fixture(scope="module")
def copies(tmp_path_factory):
    """The same rows in every format and layout, by name."""
    x = blobs(600, 4, 3, spread=1.5)
    x[np.random.default_rng(0).random(x.shape) < 0.1] = 0
    here = tmp_path_factory.mktemp("copies")
    text = write_csv(here / "x.csv", x).read_bytes()
    write_svmlight(here / "x.svm", x)
    np.save(here / "x.npy", x)
    np.save(here / "f.npy", np.asfortranarray(x.astype(np.float32)))
    (here / "x.csv.gz").write_bytes(gzip.compress(text))
    (here / "x.csv.bz2").write_bytes(bz2.compress(text))
    lines = text.splitlines(keepends=True)
    (here / "parts" / "deep").mkdir(parents=True)
    for i, (low, high) in enumerate([(0, 7), (7, 7), (7, 390), (390, 599), (599, 600)]):
        part, data = here / "parts" / f"part-{i}", b"".join(lines[low:high])
        if i == 2:
            part.with_suffix(".gz").write_bytes(gzip.compress(data))
        else:
            (part if i < 4 else part.with_name("zz")).write_bytes(data)
    (here / "parts" / "deep" / "empty").write_bytes(b"")
    alone = [here / f"x{i}.csv" for i in range(3)]
    for i, path in enumerate(alone):
        path.write_bytes(b"".join(lines[200 * i : 200 * (i + 1)]))
    return {
        "csv": [here / "x.csv"],
        "svmlight": [here / "x.svm"],
        "npy": [here / "x.npy"],
        "fortran npy": [here / "f.npy"],
        "gz": [here / "x.csv.gz"],
        "bz2": [here / "x.csv.bz2"],
        "directory": [here / "parts"],
        "several": alone,
    }


LAYOUTS = ["csv", "svmlight", "npy", "fortran npy", "gz", "bz2", "directory", "several"]


def sample_of(engine, data, size=SIZE, seed=7, threshold=EVERYTHING):
    with engine:
        return engine.fold(SampleFold(seed, size, threshold, data.spec.width), Listener())


def dense(x):
    return x.toarray() if hasattr(x, "indptr") else x


def same_sample(found, expected):
    """Two samples are equal to the last bit, column statistics apart, which are sums."""
    for sample in (found, expected):
        assert sample.sources == sorted(sample.sources)
    of_rows = [[sample.sources[i] for i in sample.source_index] for sample in (found, expected)]
    assert of_rows[0] == of_rows[1]
    np.testing.assert_array_equal(found.offsets, expected.offsets)
    np.testing.assert_array_equal(dense(found.x), dense(expected.x))
    assert found.count == expected.count
    for name, value in expected.statistics.items():
        np.testing.assert_allclose(found.statistics[name], value, rtol=1e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_engine_takes_the_identical_sample(copies, tmp_path, layout):
    data = describe([str(path) for path in copies[layout]])
    expected = sample_of(InProcessEngine(data), data)
    assert expected.count == 600
    hashes = [
        int(row_hashes(7, "sample", expected.sources[s], np.array([o]))[0])
        for s, o in zip(expected.source_index, expected.offsets, strict=True)
    ]
    assert hashes == sorted(hashes)
    for runner, splits in INLINE if layout in ("csv", "directory") else INLINE[1:2]:
        same_sample(sample_of(MapReduceEngine(data, runner, tmp_path, splits), data), expected)
    low = hash_threshold(SIZE, 600)
    assert low < EVERYTHING
    same_sample(sample_of(InProcessEngine(data), data, threshold=low), expected)
    larger = sample_of(InProcessEngine(data), data, SIZE + 50)
    np.testing.assert_array_equal(larger.offsets[:SIZE], expected.offsets)


def test_tasks_of_the_local_runner_take_the_identical_sample(copies, tmp_path):
    data = describe([str(path) for path in copies["directory"]])
    expected = sample_of(InProcessEngine(data), data)
    same_sample(sample_of(MapReduceEngine(data, *LOCAL[:1], tmp_path, LOCAL[1]), data), expected)


def test_the_sample_holds_the_rows_of_smallest_hash(copies):
    data = describe([str(copies["npy"][0])])
    x, hashes = np.load(copies["npy"][0]), row_hashes(7, "sample", "x.npy", np.arange(600))
    sample = sample_of(InProcessEngine(data), data)
    smallest = np.argsort(hashes)[:SIZE]
    np.testing.assert_array_equal(sample.offsets, smallest)
    np.testing.assert_array_equal(sample.x, x[smallest])


METHODS = {
    "nystrom": ("--landmarks", 60, "--dim", 25),
    "stable": ("--landmarks", 60, "--dim", 60),
    "linear": (),
}


@pytest.mark.parametrize(
    ("layout", "method"),
    [
        *((layout, "nystrom") for layout in LAYOUTS),
        *((layout, "stable") for layout in ("csv", "svmlight", "npy", "bz2")),
        ("directory", "linear"),
    ],
)
def test_labels_do_not_depend_on_the_engine(copies, tmp_path, layout, method):
    options = ("-k", 3, "--method", method, *METHODS[method], "--sample", 200)
    cluster(copies[layout], tmp_path / "out", *options).done()
    expected = labels(tmp_path / "out")
    assert len(expected) == 600
    cluster(copies[layout], tmp_path / "inline", *options, *on(("inline", 3))).done()
    assert labels(tmp_path / "inline") == expected
    one, other = (Model.load(tmp_path / name / "model.npz") for name in ("out", "inline"))
    for a, b in zip(
        getattr(one.embedding, "coefficients", []), getattr(other.embedding, "coefficients", []), strict=True
    ):
        np.testing.assert_array_equal(a, b)
    assert facts(tmp_path / "inline")["cluster_sizes"] == facts(tmp_path / "out")["cluster_sizes"]


DIGITS = "digits.csv -k 10 --landmarks 150 --label-column digit --kernel-params sigma=auto*0.5 --passes 1"
CANCER = "breast_cancer.svm -k 2 --landmarks 100 --label-column 1 --scale unit --passes 1"
SAMPLE_RUNS = {"digits": DIGITS, "breast_cancer": CANCER}


@cache
def _in_process(folder, name, method):
    file, *options = SAMPLE_RUNS[name].split()
    options += ["--method", method, *(("--dim", 200) if method == "stable" else ())]
    assert cluster(SAMPLES / file, folder, *options).status == 0
    return labels(folder)


@pytest.mark.parametrize(
    ("name", "method", "runner"),
    [
        *(("digits", method, runner) for method in ("nystrom", "stable") for runner in INLINE[::2]),
        *(("breast_cancer", method, ("inline", 3)) for method in ("nystrom", "stable")),
        ("digits", "nystrom", LOCAL),
    ],
)
def test_no_label_of_the_sample_data_depends_on_the_engine(tmp_path_factory, tmp_path, name, method, runner):
    expected = _in_process(tmp_path_factory.getbasetemp() / f"{name}-{method}", name, method)
    file, *options = SAMPLE_RUNS[name].split()
    options += ["--method", method, *(("--dim", 200) if method == "stable" else ()), *on(runner)]
    assert cluster(SAMPLES / file, tmp_path / "out", *options).status == 0
    assert labels(tmp_path / "out") == expected


def test_the_sample_data_are_clustered_well(tmp_path_factory):
    base = tmp_path_factory.getbasetemp()
    for name, method, least in [
        ("digits", "nystrom", 0.7),
        ("digits", "stable", 0.65),
        ("breast_cancer", "nystrom", 0.4),
    ]:
        _in_process(base / f"{name}-{method}", name, method)
        assert facts(base / f"{name}-{method}")["scores"]["nmi"] > least


# --- options, each all the way


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return write_csv(tmp_path_factory.mktemp("input") / "x.csv", blobs(150, 3, 3))


def both(source, tmp_path, *options):
    """Return the partition a run finds in-process, which must be that of the inline runner too."""
    cluster(source, tmp_path / "a", *options, "--overwrite").done()
    cluster(source, tmp_path / "b", *options, "--overwrite", *on(("inline", 3))).done()
    assert labels(tmp_path / "a") == labels(tmp_path / "b")
    return partition(labels(tmp_path / "a"))


@pytest.mark.parametrize("method", ["nystrom", "stable", "ensemble-nystrom"])
def test_blocks_of_landmarks_make_one_embedding(source, tmp_path, method):
    options = ("-k", 3, "--method", method, "--blocks", 3, "--landmarks", 50, "--dim", 20)
    assert both(source, tmp_path, *options) == [0, 1, 2] * 50
    model = Model.load(tmp_path / "a" / "model.npz")
    assert [len(block) for block in model.embedding.landmarks] == [17, 17, 16]
    assert [len(r) for r in model.embedding.coefficients] == [7, 7, 6]
    every = np.concatenate(model.embedding.landmarks)
    assert len(np.unique(every, axis=0)) == len(every) == 50


def test_names_that_are_aliases_give_the_same_run(source, tmp_path):
    for alias, name, more in (("ensemble-nystrom", "nystrom", ("--landmarks", 30)), ("kmeans", "linear", ())):
        found = []
        for method in (alias, name):
            cluster(source, tmp_path / "out", "-k", 3, *more, "--method", method, "--overwrite").done()
            found.append((tmp_path / "out" / "labels.csv").read_bytes())
        assert found[0] == found[1]
    cluster(source, tmp_path / "out", "-k", 3, "--landmarks", 30, "--kernel", "gaussian", "--overwrite").done()
    assert partition(labels(tmp_path / "out")) == [0, 1, 2] * 50


@pytest.mark.parametrize("init", ["sample", "random"])
def test_all_restarts_can_go_through_the_full_passes(source, tmp_path, init):
    options = ("-k", 7, "--landmarks", 40, "--init", init, "--restarts", 4, "--passes", 4)
    objectives = {}
    for full in ((), ("--full-restarts",)):
        cluster(source, tmp_path / "out", *options, *full, "--overwrite")
        found = facts(tmp_path / "out")
        assert all(len(one["objectives"]) == (4 if full else 1) for one in found["passes"])
        assert found["passes"][-1]["objective"] == min(found["passes"][-1]["objectives"])
        assert found["objective"] <= found["passes"][-1]["objective"] * (1 + 1e-6)
        objectives[bool(full)] = found["objective"]
        cluster(source, tmp_path / "inline", *options, *full, "--overwrite", *on(("inline", 3)))
        assert labels(tmp_path / "inline") == labels(tmp_path / "out")
    assert objectives[True] <= objectives[False] * (1 + 1e-6)


@pytest.mark.parametrize("scale", ["none", "unit", "standard", "minmax"])
@pytest.mark.parametrize("suffix", ["csv", "svm"])
def test_every_scale_goes_all_the_way(tmp_path, scale, suffix):
    angle = np.arange(120) % 3 * 2 + np.random.default_rng(0).normal(0, 0.1, 120)
    x = np.column_stack([np.cos(angle), np.sin(angle)]) * np.random.default_rng(1).uniform(1, 2, 120)[:, None]
    x[:, 1] *= 1 if scale in ("none", "unit") else 1000
    source = (write_csv if suffix == "csv" else write_svmlight)(tmp_path / f"x.{suffix}", x)
    options = ("-k", 3, "--landmarks", 60, "--scale", scale)
    warns = f"--scale {scale}: sparse rows are divided" if suffix == "svm" and scale in ("standard", "minmax") else ()
    found = []
    for runner in ((), on(("inline", 3))):
        cluster(source, tmp_path / "out", *options, *runner, "--overwrite").done(warns)
        found.append(labels(tmp_path / "out"))
    assert found[0] == found[1]
    assert partition(found[0]) == partition(np.arange(120) % 3)


@pytest.mark.parametrize("method", ["nystrom", "stable"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_kernel_goes_all_the_way(tmp_path, kernel, method):
    rng = np.random.default_rng(0)
    x = np.abs(rng.normal(0, 0.05, (90, 3)))
    x[np.arange(90), np.arange(90) % 3] += 1  # far apart in length and direction, and never negative
    options = (
        "-k",
        3,
        "--method",
        method,
        "--kernel",
        kernel,
        "--landmarks",
        60,
        "--dim",
        100 if method == "stable" else 3,
    )
    dense, sparse = write_csv(tmp_path / "x.csv", x), write_svmlight(tmp_path / "x.svm", x)
    assert both(dense if method == "nystrom" else sparse, tmp_path, *options) == [0, 1, 2] * 30
    for source in (dense, sparse):
        cluster(source, tmp_path / "a", *options, "--overwrite").done()
        assert partition(labels(tmp_path / "a")) == [0, 1, 2] * 30
        assert facts(tmp_path / "a")["model"]["kernel"]["name"] == kernel


def test_an_embedding_larger_than_its_memory_gives_the_same_labels(source, tmp_path):
    texts = set()
    for memory in (0, 256):
        cluster(source, tmp_path / "out", "-k", 3, "--landmarks", 40, "--memory", memory, "--overwrite").done()
        texts.add((tmp_path / "out" / "labels.csv").read_bytes())
    assert len(texts) == 1


def test_a_second_sample_pass_changes_nothing(monkeypatch, copies, tmp_path):
    from apnc.readers.detect import Input

    expected = None
    for estimate in (600, 10**9):  # of so many rows hardly any would lie under the threshold
        monkeypatch.setattr(Input, "estimated_rows", lambda self, estimate=estimate: estimate)
        options = ("-k", 3, "--landmarks", 30, "--sample", 50, "--overwrite")
        cluster(copies["csv"], tmp_path / "out", *options).done()
        expected = expected or labels(tmp_path / "out")
        assert labels(tmp_path / "out") == expected
