"""``apnc doctor`` on a real cluster: its tiny job finds out what nodes have, whatever they lack."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import apnc

from .runs import nothing_left, wait_for

DIGITS = Path(__file__).parents[2] / "data_samples/digits.csv"


@pytest.fixture(autouse=True)
def _terminal(monkeypatch):
    """A terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")


def test_a_cluster_that_has_everything_is_fine(on_cluster):
    arguments = ("--label-column", "digit", "-k", "10", "--runner", "hadoop", "--python-bin", sys.executable)
    outcome = apnc("doctor", DIGITS, *arguments).done()
    for name in ("hadoop", "streaming jar", "HDFS", "YARN", "memory", "tiny job", "node Python", "node WebHDFS"):
        assert f"ok    {name:<18} " in outcome.out
    for name in ("apnc, mrjob", "numpy", "scipy", "pyarrow", "threadpoolctl", "faiss-cpu", "scikit-learn"):
        assert f"ok    node {name:<13} " in outcome.out
    assert "3.4" in outcome.out
    assert "2 of 2 answered" in outcome.out or "1 of 2 answered" in outcome.out
    assert "name the INPUT" not in outcome.out
    nothing_left(on_cluster)


def test_nodes_of_a_bare_python_have_each_missing_package_named(on_cluster, tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    outcome = apnc("doctor", "--runner", "hadoop", "--python-bin", tmp_path / "bare/bin/python", "--splits", "2")
    outcome.refused("4 checks of", "failed")
    for name in ("numpy", "scipy", "pyarrow", "threadpoolctl"):
        assert f"FAIL  node {name:<13} is missing on " in outcome.out
    assert "pack-env" in outcome.out
    said = " ".join(outcome.out.split())
    assert "warn node faiss-cpu is missing on" in said
    assert "scipy's cdist serves, slower, with the same labels" in said
    assert "ok    node apnc, mrjob" in outcome.out
    nothing_left(on_cluster)


def test_an_interpreter_that_is_not_there_names_the_option(on_cluster):
    outcome = apnc("doctor", "--runner", "hadoop", "--python-bin", "/no/such/python", "--splits", "1")
    outcome.refused("1 check of")
    assert "FAIL  node Python" in outcome.out
    said = " ".join(outcome.out.split())
    assert "/no/such/python cannot be run (code 127" in said
    assert "--python-bin" in said
    nothing_left(on_cluster)


def test_a_folder_that_cannot_be_written_names_the_option_and_no_job_is_run(on_cluster):
    on_cluster.put("/taken", b"a file")
    before = len(on_cluster.applications())
    outcome = apnc("doctor", "--runner", "hadoop", "--work-dir", "hdfs:///taken/x")
    outcome.refused("1 check of")
    assert "--work-dir" in outcome.out
    assert "FAIL  HDFS" in outcome.out
    assert "-     nodes" in outcome.out
    assert len(on_cluster.applications()) == before
    on_cluster.delete("/taken")


def test_an_interrupt_ends_the_tiny_job_and_leaves_nothing(on_cluster):
    before = {a["id"] for a in on_cluster.applications()}
    env = on_cluster.env | {"PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-m", "apnc.cli", "doctor", "--runner", "hadoop", "--python-bin", sys.executable]
    doctor = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: {a["id"] for a in on_cluster.applications()} - before, doctor)
    doctor.send_signal(signal.SIGINT)
    _, error = doctor.communicate(timeout=60)
    assert doctor.returncode == 130
    assert "Traceback" not in error
    nothing_left(on_cluster)
