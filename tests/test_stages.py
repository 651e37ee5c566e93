"""One command per stage: together they are `apnc cluster`, and none works on what does not fit."""

from __future__ import annotations

import json
import os
import shutil

import numpy as np
import pytest
from command_line import apnc, blobs, cluster, facts, labels, partition, table, write_csv

from apnc.hashing import row_hashes
from apnc.runs import OutputFolder, alone

INLINE = ("--runner", "inline", "--splits", "3")
LOCAL = ("--runner", "local", "--splits", "2")
OVER_ROWS = ("embed", "kmeans", "assign")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Rows in two files, with names and classes."""
    folder = tmp_path_factory.mktemp("input") / "in"
    folder.mkdir()
    x = blobs(120, 3, 4, spread=1.2)
    for name, some in (("a", x[:70]), ("b", x[70:])):
        rows = "".join(f"id{i},{','.join(map(str, row))},{i % 4}\n" for i, row in enumerate(some))
        (folder / f"{name}.csv").write_text("id,x,y,z,class\n" + rows)
    return folder


READ = ("--id-column", "id", "--label-column", "class")
SETTINGS = ("--landmarks", "60", "--dim", "20", "-k", "4")
LINEAR = ("--method", "linear", "-k", "4")  # which has use for neither


def sample(source, folder, *options):
    return apnc("sample", source, "-o", folder, *READ, *options)


def stages(folder, *coefficients, settings=SETTINGS, runners=()):
    """Run the stages after the sample; ``runners`` are options for embed, kmeans and assign in turn."""
    apnc("coefficients", folder, *settings, *coefficients).done()
    for name, runner in zip(OVER_ROWS, [*runners, (), (), ()], strict=False):
        apnc(name, folder, *runner).done()
    apnc("collect", folder).done()


@pytest.mark.parametrize("method", ["nystrom", "stable", "linear"])
@pytest.mark.parametrize(
    "runners", [[(), (), (), ()], [INLINE, (), INLINE, ()], [(), INLINE, (), INLINE]], ids=["one", "mixed", "mixed too"]
)
def test_stages_together_are_the_whole_run(source, tmp_path, method, runners):
    settings = LINEAR if method == "linear" else (*SETTINGS, "--method", method)
    cluster(source, tmp_path / "whole", *READ, *settings).done()
    sample(source, tmp_path / "stages", *runners[0]).done()
    stages(tmp_path / "stages", settings=settings, runners=runners[1:])
    whole, apart = (table(tmp_path / name / "labels.csv") for name in ("whole", "stages"))
    for column in ("id", "cluster"):
        assert [row[column] for row in apart] == [row[column] for row in whole]
    for one, other in zip(apart, whole, strict=True):
        assert float(one["distance"]) == pytest.approx(float(other["distance"]), abs=1e-5)
    whole, apart = facts(tmp_path / "whole"), facts(tmp_path / "stages")
    for name in ("rows", "features", "status", "cluster_sizes", "scores", "bad_rows"):
        assert apart[name] == whole[name]
    assert apart["settings"] == whole["settings"]
    assert apart["objective"] == pytest.approx(whole["objective"], rel=1e-5)
    assert len(apart["passes"]) == len(whole["passes"])


def test_shards_of_the_local_runner_serve_the_other_engines(source, tmp_path):
    cluster(source, tmp_path / "whole", *READ, *SETTINGS).done()
    sample(source, tmp_path / "stages").done()
    stages(tmp_path / "stages", runners=[LOCAL, (), INLINE])
    assert labels(tmp_path / "stages") == labels(tmp_path / "whole")
    assert sorted(os.listdir(tmp_path / "stages")) == [
        *("embedding", "input.json", "labels", "labels.csv", "model.npz", "run.json", "sample.npz")
    ]


def test_one_sample_serves_another_k_and_another_method(source, tmp_path):
    sample(source, tmp_path / "run").done()
    before = (tmp_path / "run" / "sample.npz").read_bytes()
    for k, settings in ((4, SETTINGS), (3, (*SETTINGS, "--method", "stable")), (2, LINEAR)):
        stages(tmp_path / "run", "-k", k, settings=settings)
        cluster(source, tmp_path / f"whole{k}", *READ, *settings, "-k", k).done()
        assert labels(tmp_path / "run") == labels(tmp_path / f"whole{k}")
        assert facts(tmp_path / "run")["settings"]["k"] == k
    assert (tmp_path / "run" / "sample.npz").read_bytes() == before


def test_options_of_the_sample_hold_for_all_stages(source, tmp_path):
    bad = tmp_path / "in"
    shutil.copytree(source, bad)
    with open(bad / "a.csv", "a") as file:
        file.write("id,oops,1,2,3\n")
    options = ("--seed", 3, "--sample", 50, "--on-bad-row", "skip")
    sample(bad, tmp_path / "run", *options).done()
    stages(tmp_path / "run", "--landmarks", 40)
    cluster(bad, tmp_path / "whole", *READ, *SETTINGS, "--landmarks", 40, *options).done("1 bad rows were skipped")
    assert labels(tmp_path / "run") == labels(tmp_path / "whole")
    found = facts(tmp_path / "run")
    assert found["settings"]["seed"] == 3
    assert list(found["bad_rows"].values()) == [1]
    assert len(labels(tmp_path / "run")) == 120


def test_two_stages_at_once_do_not_write_to_one_folder(source, tmp_path):
    run = tmp_path / "run"
    sample(source, run).done()
    stages(run)
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    with alone(run):
        sample(source, run).refused(f"{run}: another command is writing to it")
        apnc("coefficients", run, *SETTINGS).refused("another command")
        for name in ("embed", "moments", "kmeans", "assign", "collect"):
            apnc(name, run).refused("another command")
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before
    stages(run)


def test_a_stage_without_the_one_before_names_it(source, tmp_path):
    run = tmp_path / "run"
    for name in ("embed", "kmeans", "assign", "collect"):
        apnc(name, run).refused("run apnc sample")
    apnc("coefficients", run, "-k", 2).refused("run apnc sample")
    assert not run.exists()
    sample(source, run).done()
    for name in ("embed", "kmeans", "assign", "collect"):
        apnc(name, run).refused("model.npz", "run apnc coefficients")
    apnc("coefficients", run, *SETTINGS).done()
    apnc("kmeans", run).refused("run apnc embed")
    for name in ("assign", "collect"):
        apnc(name, run).refused("run apnc kmeans")
    apnc("embed", run).done()
    apnc("kmeans", run).done()
    apnc("kmeans", run).refused("passes are over (converged)", "apnc coefficients")
    apnc("collect", run).refused("run apnc assign")
    shutil.rmtree(run / "embedding")
    apnc("assign", run).refused("run apnc embed")
    assert sorted(os.listdir(run)) == ["input.json", "model.npz", "sample.npz"]


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["-k", "0"], ["-k 0"]),
        (["-k", "121"], ["-k 121", "120 rows"]),
        (["-k", "2", "--kernel", "rfb"], ["'rfb'", "'rbf'"]),
        (["-k", "2", "--method", "stabel"], ["'stabel'", "'stable'"]),
        (["-k", "2", "--landmarks", "0"], ["--landmarks 0"]),
        ([], ["-k"]),
    ],
)
def test_bad_coefficients_are_refused_and_leave_no_model(source, tmp_path, options, parts):
    sample(source, tmp_path / "run").done()
    apnc("coefficients", tmp_path / "run", *options).refused(*parts)
    assert sorted(os.listdir(tmp_path / "run")) == ["input.json", "sample.npz"]


def test_more_landmarks_than_the_sample_has_are_refused(source, tmp_path):
    sample(source, tmp_path / "run", "--sample", 50).done()
    apnc("coefficients", tmp_path / "run", "-k", 2, "--landmarks", 60).refused(
        "--landmarks 60", "50 rows", "--sample 60"
    )


@pytest.mark.parametrize(
    ("content", "parts"), [("1,2\n3,x\n", ["line 2, column 2: found 'x'"]), ("", ["no rows"]), (None, ["no such file"])]
)
def test_a_sample_that_cannot_be_taken_leaves_nothing(tmp_path, content, parts):
    path = tmp_path / "x.csv"
    if content is not None:
        path.write_text(content)
    apnc("sample", path, "-o", tmp_path / "run").refused(*parts)
    assert not (tmp_path / "run").exists() or os.listdir(tmp_path / "run") == []
    (tmp_path / "file").write_text("x")
    write_csv(path, blobs(10))
    apnc("sample", path, "-o", tmp_path / "file").refused("-o", "file")


@pytest.mark.parametrize("stage", [*OVER_ROWS, "collect"])
def test_a_changed_input_is_refused(source, tmp_path, stage):
    shutil.copytree(source, tmp_path / "in")
    sample(tmp_path / "in", tmp_path / "run").done()
    stages(tmp_path / "run")
    with open(tmp_path / "in" / "b.csv", "a") as file:
        file.write("new,1,2,3,0\n")
    apnc(stage, tmp_path / "run").refused("input has changed", "run apnc sample again")


# --- what was made from something that is there no more


def test_passes_refuse_an_embedding_of_other_coefficients(source, tmp_path):
    run = tmp_path / "run"
    sample(source, run).done()
    stages(run)
    for other in (("--dim", "10"), ("--kernel", "laplacian"), ("--scale", "standard"), None):
        apnc("coefficients", run, *((*SETTINGS, *other) if other else LINEAR)).done()
        apnc("kmeans", run).refused("run apnc embed")


def test_labels_of_an_earlier_model_are_not_collected(source, tmp_path):
    run = tmp_path / "run"
    sample(source, run).done()
    stages(run)
    apnc("coefficients", run, *SETTINGS, "-k", 2).done()
    apnc("embed", run).done()
    apnc("kmeans", run).done()
    apnc("collect", run).refused("run apnc assign")


def test_nothing_made_of_an_earlier_sample_is_used(source, tmp_path):
    run = tmp_path / "run"
    sample(source, run).done()
    stages(run)
    other = write_csv(tmp_path / "other.csv", blobs(60, 3))
    apnc("sample", other, "-o", run).done()
    for stage in ("embed", "kmeans", "assign", "collect"):
        apnc(stage, run).refused("run apnc coefficients")
    assert not (run / "labels.csv").exists()
    apnc("coefficients", run, *SETTINGS, "-k", 3).done()
    for stage in ("embed", "kmeans", "assign", "collect"):
        apnc(stage, run).done()
    assert partition(labels(run)) == [0, 1, 2] * 20


@pytest.mark.parametrize("name", ["input.json", "sample.npz", "model.npz"])
@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", "other"])
def test_a_damaged_file_of_the_run_is_named(source, tmp_path, name, content):
    run = tmp_path / "run"
    sample(source, run).done()
    apnc("coefficients", run, *SETTINGS).done()
    if content == "other":
        others = {"input.json": "model.npz", "sample.npz": "model.npz", "model.npz": "sample.npz"}
        content = (run / others[name]).read_bytes()
    (run / name).write_bytes(content)
    said = apnc(*(("coefficients", run, "-k", 2) if name == "sample.npz" else ("embed", run)))
    said.refused()
    assert name in said.err or "model format version" in said.err


def test_rows_that_overflow_are_refused_by_the_stages_as_by_the_whole_run(tmp_path):
    x = blobs(60, 2, 2).astype(np.float32)
    huge = np.argsort(row_hashes(0, "sample", "x.npy", np.arange(60)))[-2:]  # not in the sample
    x[huge] = 1e30
    np.save(tmp_path / "x.npy", x)
    settings = ("-k", 2, "--kernel", "polynomial", "--landmarks", 10)
    rule = "the embedding of the row must be finite"
    cluster(tmp_path / "x.npy", tmp_path / "whole", "--sample", 40, *settings).refused("x.npy row", rule)
    run = tmp_path / "run"
    apnc("sample", tmp_path / "x.npy", "-o", run, "--sample", 40).done()
    apnc("coefficients", run, *settings).done()
    for stage in OVER_ROWS:
        apnc(stage, run).done()
    apnc("collect", run).refused("x.npy row", rule)
    assert not (run / "labels.csv").exists()


def test_passes_that_were_interrupted_go_on(monkeypatch, source, tmp_path):
    from apnc.model import Model

    run = tmp_path / "run"
    settings = (*SETTINGS, "-k", 9, "--init", "random", "--passes", 5)
    sample(source, run).done()
    apnc("coefficients", run, *settings).done()
    apnc("embed", run).done()
    save = Model.save

    def interrupted(self, path, with_sample=False):
        save(self, path, with_sample)
        if len(self.passes) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Model, "save", interrupted)
        assert apnc("kmeans", run).status == 130
    for stage in ("kmeans", "assign", "collect"):
        apnc(stage, run).done()
    cluster(source, tmp_path / "whole", *READ, *settings).done("not converged")
    assert labels(run) == labels(tmp_path / "whole")
    assert len(facts(run)["passes"]) == 5


def test_the_files_of_a_run_are_plain(source, tmp_path):
    run = tmp_path / "run"
    sample(source, run).done()
    noted = json.loads((run / "input.json").read_text())
    assert noted["spec"]["width"] == 3
    assert noted["spec"]["sources"] == ["a.csv", "b.csv"]
    with np.load(run / "sample.npz", allow_pickle=False) as file:
        assert file["x"].shape == (120, 3)
    assert OutputFolder(tmp_path / "new").partial.exists()
