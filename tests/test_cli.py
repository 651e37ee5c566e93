"""The command line: exit statuses, one line for every bad argument, and the files it writes."""

from __future__ import annotations

import contextlib
import gzip
import os
import pty
import re
import resource
import subprocess
import sys

import numpy as np
import pytest
from command_line import apnc, blobs, cluster, facts, labels, partition, table, write_csv, write_svmlight
from processes import python

import apnc as package
from apnc.embeddings import METHODS
from apnc.kernels import KERNELS
from apnc.model import load_npz, save_npz

COMMANDS = ("cluster", "predict", "evaluate", "sample", "coefficients", "embed", "kmeans", "assign", "collect")
COMMANDS += ("methods", "kernels")
FEW = ("--landmarks", "40")
BY_METHOD = {  # no more landmarks than rows, where there are some
    method: ("--method", method, *(FEW if method != "linear" else ())) for method in ("nystrom", "stable", "linear")
}


def process(*argv, cwd=None, **environment):
    """Run a command in a process of its own."""
    return python("-m", "apnc.cli", *argv, text=False, cwd=cwd, timeout=60, **environment)


@pytest.fixture(scope="module")
def rows():
    return blobs(90, 3)


@pytest.fixture(scope="module")
def source(rows, tmp_path_factory):
    return write_csv(tmp_path_factory.mktemp("input") / "rows.csv", rows)


@pytest.fixture(scope="module")
def trained(source, tmp_path_factory):
    """The folder of a finished run."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    cluster(source, folder, "-k", 3, *FEW).done()
    return folder


@pytest.fixture
def nothing_written(tmp_path):
    """Check that the test's folder is as empty after the test as it was before."""
    yield
    assert os.listdir(tmp_path) == []


# --- what is refused


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--method", "nystorm"], ["unknown method 'nystorm'", "did you mean 'nystrom'?"]),
        (["--kernel", "rfb"], ["unknown kernel 'rfb'", "did you mean 'rbf'?"]),
        (["--kernel", "zzzz"], ["unknown kernel 'zzzz' (allowed: rbf, "]),
        (["--scale", "standart"], ["--scale", "did you mean 'standard'?"]),
        (["--runner", "locale"], ["unknown runner 'locale'", "did you mean 'local'?"]),
        (["--runner", "hadop"], ["unknown runner 'hadop'"]),
        (["--on-bad-row", "skp"], ["--on-bad-row", "did you mean 'skip'?"]),
        (["--header", "ye"], ["header", "'ye'", "yes"]),
        (["--format", "csvv"], ["format", "'csvv'", "csv"]),
        (["--index-base", "2", "--format", "svmlight"], ["2"]),
        (["--landmark-selection", "unifrom"], ["landmark", "'unifrom'", "uniform"]),
        (["--method", "linear", "--landmark-selection", "unifrom"], ["landmark", "'unifrom'", "uniform"]),
        (["-k", "91"], ["-k 91", "90 rows"]),
        (["-k", "0"], ["-k 0", "at least 1"]),
        (["-k", "-3"], ["-k -3", "at least 1"]),
        (["-k", "two"], ["-k", "'two'"]),
        (["-k", 10**30], ["-k 10000000"]),
        (["--landmarks", "0"], ["--landmarks 0", "at least 1"]),
        (["--landmarks", "-1"], ["--landmarks -1", "at least 1"]),
        (["--dim", "0"], ["--dim 0", "at least 1"]),
        (["--passes", "0"], ["--passes 0", "at least 1"]),
        (["--restarts", "0"], ["--restarts 0", "at least 1"]),
        (["--sample", "0"], ["--sample 0", "at least 1"]),
        (["--blocks", "0"], ["--blocks 0", "at least 1"]),
        (["--seed", "-1"], ["--seed -1", "at least 0"]),
        (["--seed", "1.5"], ["--seed", "'1.5'"]),
        (["--splits", "0", "--runner", "inline"], ["--splits 0", "at least 1"]),
        (["--splits", "-3", "--runner", "inline"], ["--splits -3", "at least 1"]),
        (["--memory", "-1"], ["--memory -1", "at least"]),
        (["--t-share", "1"], ["--t-share 1", "at most 0.9"]),
        (["--t-share", "0"], ["--t-share 0", "above 0"]),
        (["--t-share", "nan"], ["--t-share nan"]),
        (["--tol", "-1"], ["--tol -1"]),
        (["--tol", "nan"], ["--tol nan"]),
        (["--dim", "3", "--blocks", "4"], ["--dim 3", "--blocks 4"]),
        (["--landmarks", "3", "--blocks", "4"], ["--landmarks 3", "--blocks 4"]),
        (["--blocks", "500", "--landmarks", "500"], ["--blocks 500", "90 landmarks"]),
        (["--blocks", "90", "--landmarks", "90", "--method", "stable"], ["at least 2 landmarks"]),
        (["--kernel-params", "sigma"], ["--kernel-params sigma", "NAME=VALUE"]),
        (["--kernel-params", "=2"], ["--kernel-params =2", "NAME=VALUE"]),
        (["--kernel-params", "sigma="], ["sigma=", "a number"]),
        (["--kernel-params", "sigma=wide"], ["sigma=wide", "a number"]),
        (["--kernel-params", "sigma=inf"], ["sigma=inf", "a number"]),
        (["--kernel-params", "sigma=-1"], ["sigma=-1", "positive"]),
        (["--kernel-params", "gamma=0"], ["gamma=0", "positive"]),
        (["--kernel-params", "sigma=auto*0"], ["sigma=auto*0", "positive"]),
        (["--kernel-params", "sigma=auto*x"], ["sigma=auto*x", "positive"]),
        (["--kernel-params", "gamma=auto"], ["gamma=auto", "a number"]),
        (["--kernel-params", "sigma=1", "gamma=1"], ["sigma or gamma, not both"]),
        (["--kernel-params", "degree=3"], ["kernel rbf", "'degree'", "sigma, gamma"]),
        (["--kernel-params", "sigma=1e300"], ["sigma=1e+300"]),
        (["--kernel-params", "sigma=auto*1e300"], ["sigma="]),
        (["--kernel-params", "gamma=1e-320"], ["gamma=", "e-32"]),
        (["--kernel", "polynomial", "--kernel-params", "sigma=1"], ["kernel polynomial", "'sigma'"]),
        (["--kernel", "polynomial", "--kernel-params", "degree=1.5"], ["degree=1.5", "whole number"]),
        (["--kernel", "cosine", "--kernel-params", "gamma=1"], ["kernel cosine", "'gamma'", "none"]),
        (["--kernel", "chi2"], ["kernel chi2", "at least 0", "rows of the sample"]),
        (["--init", "no-such-file"], ["--init no-such-file", "no such file"]),
        (["--init", ""], ["--init"]),
        (["--width", "4"], ["width", "3 feature columns", "4"]),
        (["--width", "0"], ["width", "0"]),
        (["--label-column", "4"], ["label column", "4", "1 to 3"]),
        (["--label-column", "class"], ["label column", "'class'"]),
        (["--label-column", "1", "--id-column", "1"], ["label column and id column are the same"]),
        (["--delimiter", "ab"], ["delimiter", "'ab'"]),
        (["--delimiter", ",", "--decimal", ","], ["delimiter", "decimal"]),
        (["--no-such-option"], ["--no-such-option"]),
        (["--resume"], ["--resume", "no interrupted run"]),
    ],
    ids=lambda value: " ".join(map(str, value)) if "-" in str(value[0])[:2] else "",
)
@pytest.mark.usefixtures("nothing_written")
def test_a_bad_argument_is_refused_in_one_line(source, out, options, parts):
    said = cluster(source, out, *(("-k", 3) if "-k" not in options else ()), *options)
    assert said.status == 2, said
    warned = [line for line in said.err.splitlines() if line.startswith("warning: --landmarks 500 is more than")]
    said.err = said.err.replace("".join(f"{line}\n" for line in warned), "")
    assert said.refused(*parts).startswith("apnc")
    assert said.out == ""


@pytest.mark.parametrize(
    "argv", [[], ["clustr"], ["cluster"], ["cluster", "x"], ["cluster", "x", "-k", "3"], ["predict", "x"], ["evaluate"]]
)
def test_what_is_missing_is_named_in_one_line(argv):
    said = apnc(*argv)
    said.refused("--help)")
    assert len(said.err) < 300


def test_more_memory_than_there_is_is_refused_in_one_line(source, out):
    said = cluster(source, out, "-k", 3, *FEW, "--method", "stable", "--dim", 10**13)
    assert said.status in (2, 3)
    assert said.err.count("\n") == 1
    assert not os.listdir(out.parent)


@pytest.mark.parametrize(
    "name", ["missing.csv", "empty", "dangling", "pipe", "s3://bucket/x.csv", "ftp://host/x.csv", ""]
)
def test_an_input_that_cannot_be_read_is_named(tmp_path, name):
    os.mkdir(tmp_path / "empty")
    os.symlink("nowhere", tmp_path / "dangling")
    os.mkfifo(tmp_path / "pipe")
    given = name if "://" in name or not name else tmp_path / name
    cluster(given, tmp_path / "out", "-k", 3).refused(str(given))
    assert not [other for other in os.listdir(tmp_path) if other.startswith("out")]


def test_an_existing_folder_is_not_touched_unless_told(source, out):
    cluster(source, out, "-k", 3, *FEW).done()
    before = (out / "run.json").read_bytes()
    cluster(source, out, "-k", 2, *FEW).refused(f"-o {out}", "--overwrite")
    cluster(source, out, "-k", 91, *FEW, "--overwrite").refused("-k 91")
    assert (out / "run.json").read_bytes() == before
    cluster(source, out, "-k", 2, *FEW, "--overwrite").done()
    assert facts(out)["settings"]["k"] == 2
    assert os.listdir(out.parent) == [out.name]


def test_a_folder_that_is_not_ours_is_never_overwritten(source, out):
    out.mkdir()
    (out / "thesis.tex").write_text("x")
    cluster(source, out, "-k", 3, "--overwrite").refused(f"-o {out}", "not a result of apnc")
    assert os.listdir(out) == ["thesis.tex"]
    partial = out.with_name("other.partial")
    partial.mkdir()
    (partial / "thesis.tex").write_text("x")
    cluster(source, out.with_name("other"), "-k", 3, "--overwrite").refused("other.partial", "not made by apnc")
    assert os.listdir(partial) == ["thesis.tex"]


@pytest.mark.parametrize("real_is", ["absent", "empty", "a result"])
def test_a_link_to_a_folder_may_be_the_output(source, out, real_is):
    real = out.with_name("real")
    out.symlink_to("real")
    if real_is == "empty":
        real.mkdir()
    if real_is == "a result":
        cluster(source, real, "-k", 3, *FEW).done()
    cluster(source, out, "-k", 3, *FEW, "--overwrite").done()
    assert len(labels(out)) == 90
    assert sorted(os.listdir(out.parent)) == ["out", "real"]
    assert out.is_symlink()


@pytest.mark.parametrize(
    "folder", ["file", "file/below", "/", ".", "", "x" * 300, "/proc/none/x", "/dev/null/x", "taken"]
)
def test_a_place_where_no_folder_can_be_made_is_named(source, tmp_path, monkeypatch, folder):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("x")
    (tmp_path / "taken.partial").write_text("x")
    cluster(source, folder, "-k", 3, *FEW).refused(f"-o {folder}")
    assert sorted(os.listdir(tmp_path)) == ["file", "taken.partial"]


@pytest.mark.parametrize("runner", [(), ("--runner", "inline", "--splits", 2)])
def test_a_full_disk_ends_the_run_in_one_line(source, out, runner):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (6000, before[1]))
    try:
        said = cluster(source, out, "-k", 3, *FEW, *runner)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert said.status == 3
    assert "File too large" in said.err
    assert said.err.count("\n") == 1
    assert os.listdir(out.parent) == []


# --- start centroids from a file


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("1,1,1\n2,2,2\n", ["--init holds 2 rows", "-k is 3"]),
        ("1,1\n2,2\n3,3\n", ["--init rows have 2 values", "3 features"]),
        ("1,1,1\n2,x,2\n3,3,3\n", ["--init", "line 2", "'x'"]),
        ("", ["--init", "no rows"]),
    ],
)
def test_start_centroids_that_do_not_fit_are_named(source, out, content, parts):
    init = out.with_name("init.csv")
    init.write_text(content)
    said = cluster(source, out, "-k", 3, *FEW, "--init", init)
    said.refused(*parts)
    assert os.listdir(out.parent) == ["init.csv"]


def test_start_centroids_may_come_in_any_format(rows, source, out):
    starts = rows[[4, 0, 2]]
    np.save(out.with_name("init.npy"), starts)
    found = []
    for init in (
        write_csv(out.with_name("init.csv"), starts),
        write_svmlight(out.with_name("init.svm"), starts),
        out.with_name("init.npy"),
    ):
        cluster(source, out, "-k", 3, *FEW, "--init", init, "--overwrite").done()
        found.append((out / "labels.csv").read_text())
    assert len(set(found)) == 1


def test_sparse_start_centroids_may_be_narrower_than_the_input(out):
    x = blobs(30, 5, 2)
    x[:, 4] = 0
    x[0, 4] = 0.5
    starts = x[[2, 3]]
    source, init = (write_svmlight(out.with_name(name), rows) for name, rows in (("x.svm", x), ("init.svm", starts)))
    cluster(source, out, "-k", 2, "--landmarks", 30, "--init", init).done()
    assert partition(labels(out)) == [0, 1] * 15


# --- predict


@pytest.mark.parametrize("suffix", [".csv", ".npy", ".csv.gz"])
def test_predict_refuses_rows_of_another_width(trained, tmp_path, suffix):
    path = tmp_path / f"new{suffix}"
    if suffix == ".npy":
        np.save(path, np.ones((4, 2)))
    else:
        path.write_bytes((gzip.compress if "gz" in suffix else bytes)(b"1,2\n3,4\n"))
    said = apnc("predict", trained / "model.npz", path, "-o", tmp_path / "labels.csv")
    said.refused(path.name, "2 features", "trained on 3")
    assert os.listdir(tmp_path) == [path.name]


def test_predict_refuses_bad_rows_and_leaves_nothing(trained, tmp_path):
    path = tmp_path / "new.csv"
    path.write_text("1,2,3\n1,x,3\n")
    predict = ("predict", trained / "model.npz", path, "-o", tmp_path / "labels.csv")
    for runner in ((), ("--runner", "inline")):
        apnc(*predict, *runner).refused("new.csv line 2, column 2: found 'x'")
        assert os.listdir(tmp_path) == ["new.csv"]
    apnc(*predict, "--on-bad-row", "skip").done("1 bad rows were skipped")
    assert [row["row"] for row in table(tmp_path / "labels.csv")] == ["0"]


def test_predict_writes_where_it_may(trained, source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    predict = ("predict", trained / "model.npz", source, "-o")
    (tmp_path / "taken").write_text("x")
    os.mkdir("folder")
    apnc(*predict, "taken").refused("-o taken", "--overwrite")
    assert (tmp_path / "taken").read_text() == "x"
    apnc(*predict, "taken", "--overwrite").done()
    assert labels(tmp_path / "taken") == labels(trained)
    for place in ("folder", "none/x.csv", "taken/x.csv", "x" * 300, "/", "", "."):
        apnc(*predict, place, "--overwrite").refused("-o")
    assert sorted(os.listdir()) == ["folder", "taken"]
    os.mkfifo("pipe")  # stands for /dev/null and /dev/stdout, which a rename would replace
    apnc(*predict, "pipe", "--overwrite").refused("-o pipe", "file")
    assert not os.path.isfile("pipe")


def _damaged(trained, path, kind):
    """Make a file that is no model, in one of many ways."""
    raw = (trained / "model.npz").read_bytes()
    values = load_npz(trained / "model.npz", "model")
    if kind == "other version":
        save_npz(path, values | {"format_version": 99})
    elif kind == "lacks settings":
        save_npz(path, {name: value for name, value in values.items() if name != "settings"})
    elif kind == "lacks centroids":
        save_npz(path, {name: value for name, value in values.items() if name != "centroids"})
    elif kind == "unknown kernel":
        save_npz(path, values | {"embedding.kernel": {"name": "os:system", "params": {}}})
    elif kind == "centroids of another shape":
        save_npz(path, values | {"centroids": np.ones((1, 3, 7))})
    elif kind == "passes not over":
        save_npz(path, values | {"status": "started"})
    elif kind == "pickled":
        np.savez(path.with_suffix(".npz"), header=np.array([{"format_version": 1}], object))
    elif kind == "list as header":
        np.savez(path.with_suffix(".npz"), header=np.array("[1, 2]"))
    elif kind == "array":
        np.save(path.with_suffix(".npy"), np.ones(3))
        path.with_suffix(".npy").rename(path)
    elif kind == "other arrays":
        np.savez(path, x=np.ones(3))
    elif kind == "cut":
        path.write_bytes(raw[: len(raw) // 2])
    elif kind == "flipped":
        path.write_bytes(raw[: len(raw) // 2] + bytes([raw[len(raw) // 2] ^ 255]) + raw[len(raw) // 2 + 1 :])
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "text":
        path.write_text("1,2\n")
    elif kind == "folder":
        path.mkdir()


@pytest.mark.parametrize(
    "kind",
    [
        *("missing", "empty", "text", "folder", "cut", "flipped", "array", "other arrays", "pickled", "list as header"),
        *("other version", "lacks settings", "lacks centroids", "unknown kernel", "centroids of another shape"),
        "passes not over",
    ],
)
def test_a_file_that_is_no_model_is_refused(trained, source, tmp_path, kind):
    path = tmp_path / "model.npz"
    _damaged(trained, path, kind)
    said = apnc("predict", path, source, "-o", tmp_path / "labels.csv")
    said.refused("99" if kind == "other version" else "os:system" if kind == "unknown kernel" else "model.npz")
    assert not (tmp_path / "labels.csv").exists()


def test_predicting_the_training_rows_gives_their_labels(source, tmp_path):
    for method, options in BY_METHOD.items():
        out = tmp_path / method
        cluster(source, out, "-k", 3, *options).done()
        said = apnc("predict", out / "model.npz", source, "-o", out / "again.csv").done()
        assert said.out == f"90 rows labelled: {out / 'again.csv'}\n"
        assert (out / "again.csv").read_text() == (out / "labels.csv").read_text()


@pytest.mark.parametrize("method", BY_METHOD)
@pytest.mark.parametrize("trained_on", ["csv", "svm"])
def test_one_model_predicts_the_same_from_copies_in_any_format(tmp_path, method, trained_on):
    x = blobs(80, 6, 4, seed=1, spread=2.0)
    x[np.random.default_rng(1).random(x.shape) < 0.3] = 0
    write_csv(tmp_path / "x.csv", x)
    write_svmlight(tmp_path / "x.svm", x)
    np.save(tmp_path / "x.npy", x)
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress((tmp_path / "x.csv").read_bytes()))
    out = tmp_path / "out"
    cluster(tmp_path / f"x.{trained_on}", out, "-k", 4, *BY_METHOD[method]).done()
    for name in ("x.csv", "x.svm", "x.npy", "x.csv.gz"):
        apnc("predict", out / "model.npz", tmp_path / name, "-o", tmp_path / "labels.csv", "--overwrite").done()
        assert labels(tmp_path / "labels.csv") == labels(out), name


def test_predict_reads_indices_from_the_base_the_model_was_trained_with(tmp_path):
    x = blobs(40, 3, 2)
    lines = ["0 " + " ".join(f"{j}:{v}" for j, v in enumerate(row) if v) for row in x]
    lines[1:] = [line.replace(" 0:", " 3:") if i % 2 else line for i, line in enumerate(lines[1:])]
    (tmp_path / "x.svm").write_text("\n".join(lines) + "\n")
    out = tmp_path / "out"
    cluster(tmp_path / "x.svm", out, "-k", 2, "--method", "linear").done()
    without_zero = [i for i, line in enumerate(lines) if " 0:" not in line]
    (tmp_path / "new.svm").write_text("".join(lines[i] + "\n" for i in without_zero))
    apnc("predict", out / "model.npz", tmp_path / "new.svm", "-o", tmp_path / "new.csv").done()
    expected = [row["distance"] for i, row in enumerate(table(out / "labels.csv")) if i in without_zero]
    assert [row["distance"] for row in table(tmp_path / "new.csv")] == expected


# --- evaluate


def test_evaluate_scores_labels_against_classes(trained, tmp_path):
    (tmp_path / "truth.txt").write_text("\n".join(f"class {i % 3}" for i in range(90)) + "\n")
    np.save(tmp_path / "truth.npy", np.arange(90) % 3)
    for truth in ("truth.txt", "truth.npy"):
        said = apnc("evaluate", trained / "labels.csv", tmp_path / truth).done()
        assert said.out == "NMI 100.00 (geometric mean)   ARI 100.00   accuracy 100.00   purity 100.00\n"


@pytest.mark.parametrize(
    ("labelled", "truth", "parts"),
    [
        (None, b"1\n2\n", ["90 labels", "2 true classes"]),
        (None, b"", ["90 labels", "0 true classes"]),
        (None, b"\xff\xfe1\n", ["truth", "not a list of classes"]),
        (None, None, ["truth", "no such file"]),
        (b"", b"1\n", ["labels", "not a labels file"]),
        (b"a,b\n1,2\n", b"1\n", ["labels", "cluster"]),
        (b"cluster\nx\n", b"1\n", ["labels", "'x'"]),
        (b"cluster\n", b"", ["no labels"]),
    ],
)
def test_evaluate_refuses_what_it_cannot_compare(trained, tmp_path, labelled, truth, parts):
    paths = [trained / "labels.csv" if labelled is None else tmp_path / "labels.csv", tmp_path / "truth"]
    for path, content in zip(paths[labelled is None :], [labelled, truth][labelled is None :], strict=True):
        if content is not None:
            path.write_bytes(content)
    apnc("evaluate", *paths).refused(*parts)


# --- what has no effect


@pytest.mark.parametrize(
    ("method", "options", "unused"),
    [
        (
            "uspec",
            {"--landmarks": 300, "--blocks": 3, "--dim": 7, "--representatives": 40},
            "--landmarks --dim --blocks",
        ),
        ("usenc", {"--t-share": 0.3, "--representatives": 40, "--k-min": 3, "--k-max": 5}, "--t-share"),
        ("nystrom", {**dict([FEW]), "--representatives": 500, "--neighbours": 3}, "--representatives --neighbours"),
        ("nystrom", {**dict([FEW]), "--t-share": 0.3, "--dim": 2, "--blocks": 2, "--kernel": "cosine"}, "--t-share"),
        ("stable", {**dict([FEW]), "--t-share": 0.3, "--dim": 30, "--k-min": 3, "--k-max": 9}, "--k-min --k-max"),
        ("linear", {"--landmarks": 7, "--kernel": "laplacian"}, "--kernel --landmarks"),
        ("kmeans", {"--kernel-params": "sigma=2"}, "--kernel-params"),
        ("rank-restricted", {**dict([FEW]), "--neighbour-search": "approximate", "--dim": 5}, "--neighbour-search"),
        ("spectral-nystrom", {**dict([FEW]), "--base-clusterings": 3, "--blocks": 2}, "--base-clusterings"),
        ("linear", {"--landmarks": 500, "--t-share": 0.4, "--kernel": "rbf"}, ""),
    ],
)
def test_an_option_that_the_method_has_no_use_for_is_a_warning(source, out, method, options, unused):
    given = [part for option in options.items() for part in option]
    said = cluster(source, out, "-k", 3, "--method", method, *given)
    said.done(tuple(f"warning: {name} is not used by --method {method}" for name in unused.split()))


def test_a_stage_warns_of_what_has_no_effect_only_when_it_is_given(source, tmp_path):
    apnc("sample", source, "-o", tmp_path).done()
    said = apnc("coefficients", tmp_path, "-k", 3, "--method", "linear", "--landmarks", 7)
    said.done("warning: --landmarks is not used by --method linear")
    for stage in ("embed", "kmeans", "assign", "collect"):
        apnc(stage, tmp_path).done()


# --- what is written


def test_labels_are_in_input_order_with_row_numbers_that_count_skipped_rows(tmp_path):
    (tmp_path / "in" / "b").mkdir(parents=True)
    (tmp_path / "in" / "a.csv").write_text("x,y\n1,1\n\n# note\n1,oops\n1.1,1\n9,9\n")
    (tmp_path / "in" / "b" / "c,d.csv").write_text("x,y\nnan,0\n9.1,9\n,\n1,1.2\n")
    for runner in ((), ("--runner", "inline", "--splits", 3)):
        said = cluster(tmp_path / "in", tmp_path / "out", "-k", 2, "--landmarks", 5, "--on-bad-row", "skip", *runner)
        said.done("3 bad rows were skipped (counts per reason in run.json)")
        lines = (tmp_path / "out" / "labels.csv").read_text().splitlines()
        assert lines[0] == "source,row,cluster,distance"
        rows = table(tmp_path / "out" / "labels.csv")
        assert [(row["source"], row["row"]) for row in rows] == [
            *(("a.csv", "0"), ("a.csv", "2"), ("a.csv", "3")),
            *(("b/c,d.csv", "1"), ("b/c,d.csv", "3")),
        ]
        assert partition(int(row["cluster"]) for row in rows) == [0, 0, 1, 1, 0]
        assert all(float(row["distance"]) >= 0 for row in rows)
        assert sum(facts(tmp_path / "out")["bad_rows"].values()) == 3
        again = cluster(tmp_path / "in", tmp_path / "out", "-k", 2, "--overwrite")
        again.refused("a.csv line 5, column 2: found 'oops'")
        (tmp_path / "out").rename(tmp_path / f"kept{len(runner)}")


def test_several_inputs_have_their_ordinal_before_their_sources(tmp_path):
    for name in ("p", "q"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.csv").write_text("1,1\n7,7\n")
    cluster([tmp_path / "q" / "x.csv", tmp_path / "p"], tmp_path / "out", "-k", 2, "--landmarks", 4).done()
    assert [row["source"] for row in table(tmp_path / "out" / "labels.csv")] == ["0/x.csv"] * 2 + ["1/x.csv"] * 2


def test_names_of_rows_take_the_place_of_source_and_row(tmp_path):
    ids = ["plain", "a,b", 'say ""hi""', " blank ", "näme", ""]
    lines = "".join(f'"{name}",{i % 2 * 9},{i},c{i % 2}\n' for i, name in enumerate(ids))
    (tmp_path / "x.csv").write_text("id,a,b,class\n" + lines)
    options = ("-k", 2, "--landmarks", 6, "--id-column", "id", "--label-column", "class", "--scale", "minmax")
    for runner in ((), ("--runner", "inline", "--splits", 2)):
        said = cluster(tmp_path / "x.csv", tmp_path / "out", *options, "--overwrite", *runner).done()
        assert (tmp_path / "out" / "labels.csv").read_text().startswith("id,cluster,distance\n")
        assert [row["id"] for row in table(tmp_path / "out" / "labels.csv")] == [n.replace('""', '"') for n in ids]
        assert "accuracy 100.00" in said.out
    predict = ("predict", tmp_path / "out" / "model.npz", tmp_path / "x.csv", "-o", tmp_path / "again.csv")
    said = apnc(*predict, "--id-column", 1, "--label-column", "last").done()
    assert "accuracy 100.00" in said.out
    assert labels(tmp_path / "again.csv") == labels(tmp_path / "out")
    assert [row["id"] for row in table(tmp_path / "again.csv")] == [n.replace('""', '"') for n in ids]


def test_run_json_tells_what_was_done(source, tmp_path):
    out = tmp_path / "out"
    (tmp_path / "x.csv").write_text("".join(f"{line},{i % 3}\n" for i, line in enumerate(source.read_text().split())))
    cluster(
        tmp_path / "x.csv", out, "-k", 3, *FEW, "--label-column", "last", "--kernel-params", "sigma=auto*0.5"
    ).done()
    assert sorted(os.listdir(out)) == ["labels.csv", "model.npz", "run.json"]
    found = facts(out)
    assert found["apnc"] == package.__version__
    assert found["numpy"] == np.__version__
    assert found["settings"]["k"] == 3
    assert found["settings"]["kernel_params"] == {"sigma": "auto*0.5"}
    assert isinstance(found["model"]["kernel"]["params"]["sigma"], float)
    (file,) = found["input"]["files"]
    assert (file["source"], file["size"]) == ("x.csv", (tmp_path / "x.csv").stat().st_size)
    assert found["rows"] == sum(found["cluster_sizes"]) == 90
    assert found["features"] == 3
    assert found["status"] == "converged"
    assert {"coefficients", "embed", "kmeans"} <= set(found["seconds"])
    assert found["passes"][-1]["objective"] >= found["objective"] * (1 - 1e-6)
    assert found["objective"] == pytest.approx(
        sum(float(row["distance"]) ** 2 for row in table(out / "labels.csv")), rel=1e-6
    )
    assert found["scores"] == pytest.approx({"nmi": 1, "ari": 1, "accuracy": 1, "purity": 1})
    assert found["bad_rows"] == {}


def test_a_clean_run_sums_up_on_stdout_and_says_nothing_on_stderr(source, tmp_path):
    said = process("cluster", source, "-o", "out", "-k", 3, *FEW, cwd=tmp_path)
    assert said.returncode == 0
    assert said.stderr == b""
    assert b"\x1b" not in said.stdout
    text = said.stdout.decode()
    assert "90 rows, 3 features, 3 clusters" in text
    assert re.search(
        r"nystrom, kernel rbf\(sigma=[0-9.]+\), 40 landmarks of rank \d+ \(\d+ eigenvalues dropped\)", text
    )
    assert re.search(r"\d+ full pass(es)?, objective ", text)
    assert text.endswith("labels: out/labels.csv   model: out/model.npz\n")


def test_the_same_seed_gives_the_same_bytes_on_any_number_of_threads(source, tmp_path):
    texts = set()
    for threads in ("1", "4"):
        said = process("cluster", source, "-o", threads, "-k", 3, *FEW, cwd=tmp_path, OMP_NUM_THREADS=threads)
        assert said.returncode == 0, said.stderr
        texts.add((tmp_path / threads / "labels.csv").read_bytes())
    cluster(source, tmp_path / "here", "-k", 3, *FEW).done()
    texts.add((tmp_path / "here" / "labels.csv").read_bytes())
    assert len(texts) == 1
    cluster(source, tmp_path / "other", "-k", 3, *FEW, "--seed", 1).done()
    assert (tmp_path / "other" / "labels.csv").read_bytes() not in texts


def test_progress_is_shown_on_a_terminal_only(source, tmp_path):
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "apnc.cli", "cluster", source, "-o", tmp_path / "out", "-k", "3", *FEW]
    with subprocess.Popen(command, stderr=theirs, stdout=subprocess.PIPE) as job:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # what Linux says where the other side has closed
            while piece := os.read(ours, 1 << 16):
                shown += piece
        assert b"\x1b" not in job.stdout.read()
    os.close(ours)
    assert job.returncode == 0
    for name in (b"sampling", b"k-means", b"rows"):
        assert name in shown
    assert b"Traceback" not in shown


def test_a_reader_that_goes_away_is_no_error(source, tmp_path):
    command = f'"$0" -m apnc.cli cluster {source} -o {tmp_path}/out -k 3 --landmarks 40 | true; exit ${{PIPESTATUS[0]}}'
    said = subprocess.run(["bash", "-c", command, sys.executable], capture_output=True, timeout=60)
    assert (said.returncode, said.stderr) == (0, b"")
    assert len(labels(tmp_path / "out")) == 90


# --- help and lists


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_fits_a_terminal_of_80_columns(monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    said = apnc(*[command] * bool(command), "--help").done()
    assert max(map(len, said.out.splitlines())) <= 80
    if command == "":
        for name in COMMANDS:
            assert re.search(rf"^ +{name}\b", said.out, re.MULTILINE), name
        assert "Exit status: 0 done; 2 bad arguments" in said.out


@pytest.mark.parametrize("argv", [["--help"], ["cluster", "--help"], ["methods"], ["kernels"]])
def test_letters_the_terminal_lacks_are_replaced(argv):
    said = process(*argv, PYTHONIOENCODING="ascii")
    assert (said.returncode, said.stderr) == (0, b"")
    assert b"Embed and Conquer" in said.stdout or b"rbf" in said.stdout or b"APNC-Nys" in said.stdout


def test_version_is_told():
    assert apnc("--version").done().out == f"apnc {package.__version__}\n"


def test_methods_and_kernels_are_listed():
    listed = apnc("methods").done().out
    assert [line.split()[0] for line in listed.splitlines()] == list(METHODS)
    listed = apnc("kernels").done().out
    for name, kernel in KERNELS.items():
        assert re.search(rf"^{name}\b.*κ", listed, re.MULTILINE)
        for parameter in kernel.defaults:
            assert parameter in listed


# --- numbers at the edge of float32


@pytest.mark.parametrize("method", BY_METHOD)
@pytest.mark.parametrize("runner", [(), ("--runner", "inline", "--splits", 2)])
def test_groups_closer_than_float32_can_tell_are_told_apart(tmp_path, method, runner):
    x = np.full((40, 2), 1e6)
    x[:, 0] += (np.arange(40) % 2) * 0.01 + np.random.default_rng(0).normal(0, 1e-4, 40)
    np.save(tmp_path / "x.npy", x)
    options = ("-k", 2, *BY_METHOD[method], *runner)
    cluster(tmp_path / "x.npy", tmp_path / "out", *options).done()
    assert partition(labels(tmp_path / "out")) == [0, 1] * 20
    apnc("predict", tmp_path / "out" / "model.npz", tmp_path / "x.npy", "-o", tmp_path / "again.csv").done()
    assert labels(tmp_path / "again.csv") == labels(tmp_path / "out")


def test_rows_too_large_for_the_kernel_are_refused_not_labelled(tmp_path):
    x = blobs(60, 2)
    x[7] = 1e200
    np.save(tmp_path / "x.npy", x)
    said = cluster(tmp_path / "x.npy", tmp_path / "out", "-k", 3, "--kernel", "polynomial", "--landmarks", 60)
    said.refused("scale the data")
    assert os.listdir(tmp_path) == ["x.npy"]
