"""Runs on nodes whose Python has nothing installed: with ``--env`` as on one machine, without it with a clear word."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile

import pytest
from command_line import apnc, blobs, facts, labels, write_csv

from apnc import packing

from .runs import RUNS

SMALL = ("-k", "3", "--landmarks", "40", "--sample", "300", "--passes", "1", "--restarts", "2")
STABLE = (*SMALL, "--method", "stable", "--dim", "60")
ONCE = ("--jobconf", "mapreduce.map.maxattempts=1")


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """An interpreter that has nothing installed."""
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin/python"
    for module in ("numpy", "mrjob", "apnc"):
        env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        done = subprocess.run([python, "-c", f"import {module}"], cwd=folder, env=env, capture_output=True, text=True)
        assert f"No module named '{module}'" in done.stderr
    return python


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """What ``apnc pack-env --without-faiss`` makes, compressed in less time."""
    path = tmp_path_factory.mktemp("env") / "env.tar.gz"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "LEVEL", 1)
        outcome = apnc("pack-env", "-o", path, "--without-faiss")
    assert outcome.status == 0, outcome.err
    with tarfile.open(path) as made:
        names = made.getnames()
    assert names[0] == packing.MANIFEST
    assert not [n for n in names if n.endswith(".pyi") or "/tests/test" in n or "libarrow_flight" in n]
    assert {name.partition("/")[0] for name in names} >= {p.module for p in packing.TASK_PACKAGES[:3]}
    return path


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """A csv of three groups that overlap a little."""
    return write_csv(tmp_path_factory.mktemp("rows") / "x.csv", blobs(600, 4, 3, spread=1.3))


@pytest.fixture(scope="module")
def here(rows, tmp_path_factory):
    """What this machine makes of the rows."""
    folder = tmp_path_factory.mktemp("here") / "out"
    apnc("cluster", rows, *STABLE, "-o", folder)
    return folder


# one test, because nodes take half a minute to unpack an archive, once
def test_a_whole_run_where_nothing_is_installed_and_the_archive_has_no_faiss_either(
    on_cluster, rows, here, bare, archive, tmp_path
):
    on_hadoop = ("--runner", "hadoop", "--python-bin", bare)
    outcome = apnc("cluster", rows, *STABLE, "-o", tmp_path / "there", "--collect", *on_hadoop, "--env", archive)
    assert outcome.status == 0, outcome.err
    assert labels(tmp_path / "there") == labels(here)
    counts = facts(tmp_path / "there")["hadoop"]
    assert set(counts) == {"coefficients", "embed", "kmeans", "assign"}
    assert all(counted["failed_maps"] == counted["failed_reduces"] == 0 for counted in counts.values())
    # the archive is all that stays, and whatever comes next finds it there
    assert on_cluster.list(RUNS) == ["env"]
    (name,) = on_cluster.list(f"{RUNS}/env")
    before = on_cluster.webhdfs(f"{RUNS}/env/{name}", "GETFILESTATUS")
    outcome = apnc("doctor", "--splits", "1", *on_hadoop, "--env", archive).done()
    for package in ("--env", "numpy", "scipy"):
        assert f"ok    node {package:<13} " in outcome.out
    assert outcome.out.count("from --env") == len(packing.TASK_PACKAGES) - 1
    assert "scipy's cdist serves, slower, with the same labels" in " ".join(outcome.out.split())
    # an archive that is on HDFS is used where it is
    there = ("--env", f"hdfs://{RUNS}/env/{name}")
    outcome = apnc("predict", here / "model.npz", rows, "-o", tmp_path / "labels.csv", *on_hadoop, *there)
    assert outcome.status == 0, outcome.err
    assert labels(tmp_path / "labels.csv") == labels(here)
    assert on_cluster.webhdfs(f"{RUNS}/env/{name}", "GETFILESTATUS") == before
    assert on_cluster.list(RUNS) == ["env"]
    assert on_cluster.list(f"{RUNS}/env") == [name]


def test_a_package_that_is_missing_is_named_with_the_way_to_bring_it(on_cluster, rows, bare, tmp_path):
    on_hadoop = ("--runner", "hadoop", "--python-bin", bare, *ONCE)
    outcome = apnc("cluster", rows, *SMALL, "-o", tmp_path / "out", *on_hadoop)
    assert outcome.status == 3
    assert "package numpy is missing" in outcome.err
    assert "pack-env" in outcome.err
    assert "--env" in outcome.err
    assert "Traceback" not in outcome.err
    assert list(tmp_path.iterdir()) == []


def test_an_archive_for_another_python_ends_a_job_by_itself_with_one_line(on_cluster, rows, bare, tmp_path):
    path = tmp_path / "env.tar.gz"
    with open(path, "wb") as file:
        packing._write_archive(file, tmp_path / "none", packing.Manifest("3.99", "", "", "", {}))
    command = [sys.executable, "-m", "mr_jobs.sample", "-r", "hadoop", "--python-bin", bare, "--env", path, *ONCE]
    command += ["--output", tmp_path / "sample.npz", rows]
    env = on_cluster.env | {"PYTHONPATH": os.path.dirname(os.path.dirname(packing.__file__))}
    done = subprocess.run(list(map(str, command)), env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 3, done.stderr
    assert "archive of --env is for Python 3.99" in done.stderr
    assert "pack-env --python-version" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "sample.npz").exists()


def test_what_is_no_archive_on_hdfs_is_refused_before_a_job(on_cluster, rows, tmp_path):
    on_cluster.put("/envs/x.tar.gz", json.dumps({}).encode())
    before = len(on_cluster.applications())
    arguments = ("cluster", rows, *SMALL, "-o", tmp_path / "out", "--runner", "hadoop", "--env")
    apnc(*arguments, "hdfs:///envs/x.tar.gz").refused("hdfs:///envs/x.tar.gz", "pack-env")
    apnc(*arguments, "hdfs:///envs/none.tar.gz").refused("/envs/none.tar.gz", "no such file")
    assert len(on_cluster.applications()) == before
    assert list(tmp_path.iterdir()) == []
    on_cluster.delete("/envs")
