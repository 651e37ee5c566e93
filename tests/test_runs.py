"""Runs that are interrupted, killed, gone on with: what is left, what is refused, what comes out."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import posixpath
import signal
import subprocess
import sys

import numpy as np
import psutil
import pytest
from command_line import apnc, cluster, facts, labels, table, write_csv, write_svmlight
from processes import environment, wait_for

from apnc.runs import LOCK, OutputFolder

# all passes are run: neither a tolerance nor, on noise, a fixed point ends them earlier
OPTIONS = ("-k", "12", "--landmarks", "30", "--init", "random", "--passes", "6")
CAP = "not converged: the passes ended at their limit of 6"
SECONDS = 60  # until a process that hangs fails its test

# Runs the command line and, once a function of apnc has returned so many times, makes a file and waits for a signal.
HELD = """
import importlib, pathlib, sys, time
from apnc.cli import main
module, name, count, marker, *sys.argv[1:] = sys.argv[1:]
*owners, name = name.split(".")
owner = importlib.import_module(module)
for part in owners:
    owner = getattr(owner, part)
function, calls = getattr(owner, name), []
def held(*args, **kwargs):
    result = function(*args, **kwargs)
    calls.append(1)
    if len(calls) == int(count):
        pathlib.Path(marker).touch()
        time.sleep(600)
    return result
setattr(owner, name, held)
sys.exit(main())
"""
# Runs the command line, which makes a file and waits for a signal when it imports a module; that takes any exception.
IMPORTING = """
import contextlib, pathlib, sys, time
from apnc.cli import main
class Finder:
    def find_spec(self, name, *_):
        if name == "apnc.kernels":
            pathlib.Path(marker).touch()
            with contextlib.suppress(BaseException):
                time.sleep(600)
marker = sys.argv.pop(1)
sys.meta_path.insert(0, Finder())
sys.exit(main())
"""
IN_THE_SAMPLE = ("apnc.coefficients", "check_sample", 1)
IN_THE_PASSES = ("apnc.runs", "OutputFolder.checkpoint", 4)  # coefficients, embed, two passes
IN_THE_LABELS = ("apnc.labels", "LabelWriter.write", 1)


@pytest.fixture(scope="module")
def noise():
    return np.random.default_rng(0).random((1200, 5)).round(6)


@pytest.fixture(scope="module")
def source(noise, tmp_path_factory):
    return write_csv(tmp_path_factory.mktemp("input") / "noise.csv", noise)


@pytest.fixture(scope="module")
def undisturbed(source, tmp_path_factory):
    """The labels of the run that nobody interrupts."""
    out = tmp_path_factory.mktemp("undisturbed") / "out"
    cluster(source, out, *OPTIONS).done(CAP)
    return labels(out)


@pytest.fixture
def partial(out):
    return out.with_name("out.partial")


def started(*command, **more):
    return subprocess.Popen(
        [sys.executable, *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment(), start_new_session=True, **more,
    )  # fmt: skip


def held(place, out, *command):
    """Start a command that writes ``out`` and return its process once it has come to a place."""
    marker = out.with_name("marker")
    job = started("-c", HELD, *place, marker, *command, "-o", out)
    wait_for(marker.exists, job)
    marker.unlink()
    return job


def ended(job, number, times=1):
    """Signal a process and return its exit status and what it said on stderr."""
    for _ in range(times):
        job.send_signal(number)
    _, err = job.communicate(timeout=SECONDS)
    assert "Traceback" not in err
    return job.returncode, err


def interrupt_after(monkeypatch, passes):
    """Let runs of this process meet an interrupt after so many k-means passes."""
    whole, done = OutputFolder.checkpoint, []

    def checkpoint(self, run, stage):
        whole(self, run, stage)
        done.append(stage)
        if done.count("kmeans") == passes:
            raise KeyboardInterrupt

    monkeypatch.setattr(OutputFolder, "checkpoint", checkpoint)


def interrupted(monkeypatch, source, out, *options, passes=2):
    """Leave behind what an interrupted run leaves."""
    with monkeypatch.context() as patch:
        interrupt_after(patch, passes)
        said = cluster(source, out, *options)
    assert said.status == 130
    assert "--resume" in said.err
    assert not out.exists() or "--overwrite" in options


def whole(out):
    """Nothing but a finished run is there."""
    assert sorted(os.listdir(out)) == ["labels.csv", "model.npz", "run.json"]
    assert sorted(os.listdir(out.parent)) == [out.name]
    return True


# --- signals


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_run_that_is_interrupted_in_its_passes_goes_on_to_the_same_labels(
    source, out, partial, undisturbed, number, status
):
    job = held(IN_THE_PASSES, out, "cluster", source, *OPTIONS)
    assert partial.is_dir()
    found, err = ended(job, number)
    assert found == status
    assert err.splitlines() == [f"interrupted; go on with --resume (what was reached is in {partial})"]
    assert not out.exists()
    cluster(source, out, *OPTIONS, "--resume").done(CAP)
    assert labels(out) == undisturbed
    assert len(facts(out)["passes"]) == 6
    assert whole(out)


def test_an_interrupt_before_there_is_a_model_leaves_nothing(source, out):
    found, err = ended(held(IN_THE_SAMPLE, out, "cluster", source, *OPTIONS), signal.SIGINT)
    assert found == 130
    assert err == "interrupted; nothing was kept\n"
    assert os.listdir(out.parent) == []


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_while_modules_are_imported_is_quiet_and_not_lost(source, out, number, status):
    marker = out.with_name("marker")
    job = started("-c", IMPORTING, marker, "cluster", source, "-o", out, *OPTIONS)
    wait_for(marker.exists, job)
    assert ended(job, number) == (status, "")
    assert os.listdir(out.parent) == ["marker"]


def test_impatience_changes_nothing(source, out, partial):
    found, _ = ended(held(IN_THE_PASSES, out, "cluster", source, *OPTIONS), signal.SIGINT, times=3)
    assert found == 130
    assert not out.exists()
    assert partial.exists()


@pytest.mark.parametrize(
    ("runner", "place"), [((), IN_THE_LABELS), (("--runner", "inline", "--splits", "2"), IN_THE_PASSES)]
)
def test_a_killed_run_leaves_no_result_and_goes_on(source, out, partial, undisturbed, runner, place):
    found, _ = ended(held(place, out, "cluster", source, *OPTIONS, *runner), signal.SIGKILL)
    assert found == -signal.SIGKILL
    assert not out.exists()
    assert partial.exists()
    cluster(source, out, *OPTIONS, "--resume").done(CAP)
    assert labels(out) == undisturbed
    assert whole(out)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_no_task_outlives_an_interrupted_driver(source, out, partial, undisturbed, number, status):
    job = started("-m", "apnc.cli", "cluster", source, "-o", out, *OPTIONS, "--runner", "local", "--splits", 2)
    driver = psutil.Process(job.pid)
    wait_for((partial / "passes.npz").exists, job)
    wait_for(driver.children, job)  # a task of the second pass
    tasks = driver.children(recursive=True)
    found, err = ended(job, number)
    assert found == status
    assert "go on with --resume" in err
    assert not [task for task in tasks if task.is_running() and task.status() != psutil.STATUS_ZOMBIE]
    assert not out.exists()
    assert not [name for name in os.listdir(partial) if name.startswith(".apnc")]
    cluster(source, out, *OPTIONS, "--resume").done(CAP)
    assert labels(out) == undisturbed
    assert whole(out)


def test_predict_that_is_interrupted_leaves_nothing(source, out, undisturbed):
    cluster(source, out, *OPTIONS).done(CAP)
    job = held(IN_THE_LABELS, out.with_name("new.csv"), "predict", out / "model.npz", source)
    assert ended(job, signal.SIGTERM)[0] == 143
    assert os.listdir(out.parent) == ["out"]


# --- two at once


@pytest.mark.parametrize("more", [(), ("--resume",), ("--overwrite", "--runner", "inline")])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_second_run_into_the_same_folder_is_refused_and_harms_nothing(
    source, out, partial, undisturbed, more, number
):
    job = held(IN_THE_PASSES, out, "cluster", source, *OPTIONS)
    before = {name: (partial / name).stat().st_mtime_ns for name in os.listdir(partial)}
    cluster(source, out, *OPTIONS, *more).refused(f"-o {out}", f"another run is writing to {partial}")
    assert {name: (partial / name).stat().st_mtime_ns for name in os.listdir(partial)} == before
    ended(job, number)
    cluster(source, out, *OPTIONS, "--resume").done(CAP)
    assert labels(out) == undisturbed
    assert whole(out)


def test_the_lock_of_a_killed_run_does_not_hinder_a_fresh_one(source, out, partial, undisturbed):
    ended(held(IN_THE_SAMPLE, out, "cluster", source, *OPTIONS), signal.SIGKILL)
    (partial / "state.json").unlink()
    assert os.listdir(partial) == [LOCK]
    cluster(source, out, *OPTIONS, "--resume").refused("no interrupted run")
    cluster(source, out, *OPTIONS).done(CAP)
    assert labels(out) == undisturbed
    assert whole(out)


def test_a_file_system_without_locks_is_written_to_all_the_same(monkeypatch, source, out, undisturbed):
    def flock(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    cluster(source, out, *OPTIONS).done(CAP)
    assert labels(out) == undisturbed
    assert whole(out)
    apnc("sample", source, "-o", out.with_name("run")).done()
    assert sorted(os.listdir(out.with_name("run"))) == ["input.json", "sample.npz"]


SWAP = ("pathlib", "Path.rename", 1)  # the old result is out of the way, the new one not yet in its place


@pytest.mark.parametrize("more", [("--overwrite",), ("--overwrite", "--resume")])
def test_a_run_killed_while_it_replaces_a_result_loses_neither(source, out, undisturbed, more):
    cluster(source, out, "-k", "3").done()
    before = labels(out)
    ended(held(SWAP, out, "cluster", source, *OPTIONS, "--overwrite"), signal.SIGKILL)
    assert sorted(os.listdir(out.parent)) == [".out.replaced", "out.partial"]
    cluster(source, out, *OPTIONS).refused("exists already")
    assert labels(out) == before
    cluster(source, out, *OPTIONS, *more).done(CAP)
    assert labels(out) == undisturbed
    assert whole(out)


def test_a_run_interrupted_while_it_replaces_a_result_leaves_the_old_one_and_goes_on(source, out, undisturbed):
    cluster(source, out, "-k", "3").done()
    before = labels(out)
    found, err = ended(held(SWAP, out, "cluster", source, *OPTIONS, "--overwrite"), signal.SIGINT)
    assert (found, "go on with --resume" in err) == (130, True)
    assert labels(out) == before
    cluster(source, out, *OPTIONS, "--overwrite", "--resume").done(CAP)
    assert labels(out) == undisturbed
    assert whole(out)


def test_what_comes_in_the_way_during_a_run_is_left_and_so_is_the_result(monkeypatch, source, out, undisturbed):
    commit = OutputFolder.commit

    def late(self):
        out.mkdir()
        (out / "precious").write_text("mine")
        return commit(self)

    with monkeypatch.context() as patch:
        patch.setattr(OutputFolder, "commit", late)
        said = cluster(source, out, *OPTIONS)
    assert (said.status, "exists already" in said.err, "--resume goes on from there" in said.err) == (3, True, True)
    assert os.listdir(out) == ["precious"]
    (out / "precious").unlink()
    cluster(source, out, *OPTIONS, "--resume").done(CAP)
    assert labels(out) == undisturbed
    assert whole(out)


def test_a_folder_of_ones_own_that_is_called_replaced_is_left(source, out):
    cluster(source, out, "-k", "3").done()
    mine = out.with_name(".out.replaced")
    mine.mkdir()
    (mine / "precious").write_text("mine")
    cluster(source, out, "-k", "3", "--overwrite").refused(".out.replaced is in the way and was not made by apnc")
    assert os.listdir(mine) == ["precious"]


def test_runs_and_stages_keep_out_of_each_others_folders(source, out):
    cluster(source, out, "-k", "3").done()
    before = labels(out)
    apnc("sample", source, "-o", out).refused("holds the result of apnc cluster")
    job = held(IN_THE_PASSES, out, "cluster", source, *OPTIONS, "--overwrite")
    apnc("coefficients", out, "-k", "3").refused("another command is writing to it")
    ended(job, signal.SIGKILL)
    assert labels(out) == before


def test_two_predictions_into_the_same_file_do_not_mix(source, out, undisturbed):
    cluster(source, out, *OPTIONS).done(CAP)
    new = out.with_name("new.csv")
    job = held(IN_THE_LABELS, new, "predict", out / "model.npz", source)
    apnc("predict", out / "model.npz", source, "-o", new).done()
    expected = new.read_bytes()
    assert ended(job, signal.SIGTERM)[0] == 143
    assert sorted(os.listdir(out.parent)) == ["new.csv", "out"]
    assert new.read_bytes() == expected


# --- what --resume refuses, and what it does not


@pytest.mark.parametrize(
    ("more", "parts"),
    [
        (["--seed", "1"], ["seed"]),
        (["--passes", "7"], ["passes"]),
        (["--kernel", "laplacian"], ["kernel"]),
        (["--label-column", "last"], ["input"]),
        (["--id-column", "1"], ["input"]),
        (["--header", "yes"], ["line 1"]),
        (["--runner", "spork"], ["runner"]),
        (["--landmarks", "0"], ["--landmarks 0"]),
    ],
)
def test_resuming_with_other_parameters_is_refused_and_costs_nothing(
    monkeypatch, source, out, undisturbed, more, parts
):
    interrupted(monkeypatch, source, out, *OPTIONS)
    cluster(source, out, *OPTIONS, *more, "--resume").refused(*parts)
    cluster(source, out, *OPTIONS, "--resume").done(CAP)
    assert labels(out) == undisturbed
    assert whole(out)


@pytest.mark.parametrize("how", ["content", "time", "more files", "another file"])
def test_resuming_with_another_input_is_refused(monkeypatch, noise, tmp_path, out, how):
    folder = tmp_path / "in"
    folder.mkdir()
    source = write_csv(folder / "a.csv", noise[:600])
    given = source if how == "another file" else folder
    interrupted(monkeypatch, given, out, *OPTIONS)
    if how == "content":
        write_csv(source, noise[600:])
    elif how == "time":
        os.utime(source, ns=(1, 1))
    elif how == "more files":
        write_csv(folder / "b.csv", noise[600:])
    else:
        given = write_csv(folder / "b.csv", noise[:600])
    cluster(given, out, *OPTIONS, "--resume").refused("--resume", "input")
    assert not out.exists()


def test_resuming_may_change_where_it_runs(monkeypatch, source, out, undisturbed):
    interrupted(monkeypatch, source, out, *OPTIONS, passes=1)
    interrupted(monkeypatch, source, out, *OPTIONS, "--resume", "--runner", "inline", "--splits", 3, passes=2)
    interrupted(monkeypatch, source, out, *OPTIONS, "--resume", "--memory", 1, passes=2)
    cluster(source, out, *OPTIONS, "--resume").done(CAP)
    assert labels(out) == undisturbed
    found = facts(out)
    assert len(found["passes"]) == 6
    assert {"embed", "kmeans"} <= set(found["seconds"])
    assert whole(out)


def test_resuming_after_the_last_pass_only_labels(monkeypatch, source, out, undisturbed):
    interrupted(monkeypatch, source, out, *OPTIONS, passes=6)
    cluster(source, out, *OPTIONS, "--resume").done(CAP)
    assert labels(out) == undisturbed
    assert len(facts(out)["passes"]) == 6


@pytest.mark.parametrize("method", ["stable", "linear"])
@pytest.mark.parametrize("full", [(), ("--full-restarts", "--restarts", "3")])
def test_every_method_goes_on_to_the_same_labels(monkeypatch, source, out, method, full):
    options = (*OPTIONS, "--method", method, *(("--dim", "40") if method == "stable" else ()), *full)
    cluster(source, out, *options)
    expected = (out / "labels.csv").read_bytes()
    interrupted(monkeypatch, source, out, *options, "--overwrite")
    cluster(source, out, *options, "--overwrite", "--resume")
    assert (out / "labels.csv").read_bytes() == expected


def test_a_run_without_resume_starts_clean(monkeypatch, source, out, undisturbed):
    interrupted(monkeypatch, source, out, *OPTIONS, "--seed", "5")
    cluster(source, out, *OPTIONS).done(CAP)
    assert labels(out) == undisturbed
    assert whole(out)
    cluster(source, out, *OPTIONS, "--overwrite", "--resume").refused("--resume", "no interrupted run")
    assert labels(out) == undisturbed


@pytest.mark.parametrize("name", ["state.json", "start.npz", "passes.npz"])
@pytest.mark.parametrize("content", [b"", b"{", b"[]"])
def test_a_damaged_state_is_named(monkeypatch, source, out, partial, name, content):
    interrupted(monkeypatch, source, out, *OPTIONS)
    (partial / name).write_bytes(content)
    cluster(source, out, *OPTIONS, "--resume").refused(name)
    assert not out.exists()
    cluster(source, out, *OPTIONS).done(CAP)
    assert whole(out)


def test_what_a_killed_process_left_in_the_folder_is_no_part_of_the_result(monkeypatch, source, out, partial):
    interrupted(monkeypatch, source, out, *OPTIONS)
    (partial / ".apnc-left").mkdir()
    (partial / ".apnc-left" / "embedding").write_text("x")
    (partial / ".start.npz.abcdef").write_text("x")
    cluster(source, out, *OPTIONS, "--resume").done(CAP)
    assert whole(out)


# --- commit


def test_an_earlier_result_stays_whole_until_the_new_one_is(monkeypatch, source, out, undisturbed):
    cluster(source, out, *OPTIONS).done(CAP)
    before = (out / "run.json").read_bytes()
    interrupted(monkeypatch, source, out, *OPTIONS, "--seed", "2", "--overwrite")
    assert (out / "run.json").read_bytes() == before
    assert labels(out) == undisturbed
    cluster(source, out, *OPTIONS, "--seed", "2").refused("--overwrite")
    cluster(source, out, *OPTIONS, "--seed", "2", "--resume", "--overwrite").done(CAP)
    assert facts(out)["settings"]["seed"] == 2
    assert whole(out)


RUN = "/user/me/tmp/apnc/20260102-030405-0123abcd"


def _on_hdfs(fake, out, folder):
    """Make a result one whose labels are in a folder on HDFS, beside those of another run."""
    for path in (folder, f"{posixpath.dirname(RUN)}/20260102-030405-89abcdef/labels"):
        for name in ("part-00000", "part-00001", "_SUCCESS"):
            fake.put(f"{path}/{name}", b"x")
    found = facts(out) | {"labels": f"webhdfs://{fake.address}{folder}"}
    (out / "run.json").write_text(json.dumps(found))


def test_labels_that_a_replaced_run_left_on_hdfs_are_removed_and_nothing_else(monkeypatch, fake, source, out):
    cluster(source, out, *OPTIONS).done(CAP)
    _on_hdfs(fake, out, f"{RUN}/labels")
    before = dict(fake.files)
    interrupted(monkeypatch, source, out, *OPTIONS, "--overwrite")
    cluster(source, out, "-k", "7000", "--overwrite").refused("-k 7000")
    assert fake.files == before
    cluster(source, out, *OPTIONS, "--overwrite").done(CAP)
    assert set(fake.files) == {path for path in before if not path.startswith(RUN)}
    assert RUN not in fake.folders
    assert posixpath.dirname(RUN) in fake.folders
    assert whole(out)
    fake.requests.clear()
    cluster(source, out, *OPTIONS, "--overwrite").done(CAP)
    assert not fake.requests


@pytest.mark.parametrize(
    "folder", [f"{RUN}/embedding", "/user/me/labels", "/labels", f"{RUN}x/labels", f"{RUN}/labels/../../labels"]
)
def test_a_folder_that_is_not_of_a_run_is_never_removed(fake, source, out, folder):
    cluster(source, out, *OPTIONS).done(CAP)
    _on_hdfs(fake, out, folder)
    before = dict(fake.files)
    cluster(source, out, *OPTIONS, "--overwrite").done((f"{folder} is not the folder of a run", CAP))
    assert fake.files == before


def test_labels_on_hdfs_that_cannot_be_removed_are_a_warning(fake, source, out):
    for name in ("thesis.tex", "part-1/thesis.tex"):
        cluster(source, out, *OPTIONS, "--overwrite").done(CAP)
        _on_hdfs(fake, out, f"{RUN}/labels")
        fake.put(f"{RUN}/labels/{name}", b"x")
        cluster(source, out, *OPTIONS, "--overwrite").done((f"labels holds {name.partition('/')[0]}", CAP))
        assert f"{RUN}/labels/{name}" in fake.files
        del fake.files[f"{RUN}/labels/{name}"]
    fake.folders.discard(f"{RUN}/labels/part-1")
    _on_hdfs(fake, out, f"{RUN}/labels")
    fake.put(f"{RUN}/notes", b"x")
    cluster(source, out, *OPTIONS, "--overwrite").done(CAP)
    assert [path for path in fake.files if path.startswith(RUN)] == [f"{RUN}/notes"]
    _on_hdfs(fake, out, f"{RUN}/labels")
    fake.faults["nn"] += ["AccessControlException"] * 10
    said = cluster(source, out, *OPTIONS, "--overwrite")
    said.done(("warning: the labels of the run that was replaced are still on HDFS: ", CAP))
    assert whole(out)


def test_a_result_is_absent_until_every_label_is_written(source, out, partial, undisturbed):
    job = held(IN_THE_LABELS, out, "cluster", source, *OPTIONS)
    assert not out.exists()
    assert (partial / "labels.csv").exists()
    assert ended(job, signal.SIGINT)[0] == 130
    assert not out.exists()
    cluster(source, out, *OPTIONS, "--resume").done(CAP)
    assert [int(row["row"]) for row in table(out / "labels.csv")] == list(range(1200))
    assert labels(out) == undisturbed


def test_a_failed_stage_keeps_what_was_reached(monkeypatch, source, out, undisturbed):
    from apnc.kmeans import AssignMap

    with monkeypatch.context() as patch:
        patch.setattr(AssignMap, "apply", lambda *_: 1 / 0)
        said = cluster(source, out, *OPTIONS, "--runner", "inline", "--splits", 2)
    assert said.status == 3
    kept, failed = said.err.splitlines()
    assert "--resume goes on from there" in kept
    assert failed.startswith("apnc cluster: assign: map task 1 of 2")
    assert "ZeroDivisionError" in failed
    assert not out.exists()
    cluster(source, out, *OPTIONS, "--resume").done(CAP)
    assert labels(out) == undisturbed


def test_a_resumed_svmlight_run_writes_its_width(monkeypatch, noise, tmp_path, out):
    source = write_svmlight(tmp_path / "x.svm", noise[:300])
    interrupted(monkeypatch, source, out, *OPTIONS)
    cluster(source, out, *OPTIONS, "--resume").done(CAP)
    assert facts(out)["input"]["spec"]["width"] == 5
    apnc("predict", out / "model.npz", source, "-o", tmp_path / "new.csv").done()
    assert labels(tmp_path / "new.csv") == labels(out)
