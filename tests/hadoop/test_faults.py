"""Faults in the middle of a k-means pass: whatever is lost, labels are those of the undisturbed run, in bounded time.

No test hooks: the interpreter that tasks are given lets their input come to a halt. Every test sees to it that the
fault has hit (by Hadoop's counters, or its logs) and that no row was lost or counted twice.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from command_line import apnc, facts

from .runs import wait_for

ROOT = Path(__file__).parents[2]
ROWS, MAPS = 18_000, 4
LONGEST = 180  # seconds, which no fault may cost; an undisturbed pass takes five
WHOLE_FILES = "mapreduce.input.fileinputformat.split.minsize=1000000000"  # their blocks are small: see `embedded`
TOGETHER = "mapreduce.job.ubertask.enable=true"  # a job in one container: where nothing is about its tasks
NO_COPIES = "mapreduce.map.speculative=false"  # those of slow tasks, as held ones are, would be counted too

# Runs the tasks. A k-means mapper gets the start of its input, and the rest when no file tells its attempt to wait:
# till then it is Python in the middle of a block, and Java behind it in the middle of a file. It says that it lives
# every second, so that a time-out need not be half a minute.
INTERPRETER = """\
#!/bin/bash
case "$*" in *mr_jobs.kmeans*--mapper*)
    waits() {{ [[ $mapreduce_task_attempt_id == $(cat {held} 2>&1) ]] && kill -0 $$; }}
    exec {python} -c '{often}' "$@" 3<&0 < <(
        exec 2> /dev/null
        head -c 1000 <&3
        while waits; do sleep 0.1; done
        exec cat <&3
    ) ;;
esac
exec {python} "$@"
"""
OFTEN = """
import runpy, sys
from apnc import hadoop_settings
hadoop_settings.HEARTBEAT_SECONDS = 1
del sys.argv[:2]
runpy.run_module("mr_jobs.kmeans", run_name="__main__", alter_sys=True)
"""


def done(*command):
    outcome = apnc(*command)
    assert outcome.status == 0, outcome.err
    return outcome


def on_hadoop(python, *settings):
    return "--runner", "hadoop", "--python-bin", python, *(a for setting in settings for a in ("--jobconf", setting))


@pytest.fixture(scope="module")
def here(on_cluster_throughout):
    """The cluster is that of this process too, and clean."""
    on_cluster_throughout.delete("/faults")
    yield on_cluster_throughout
    on_cluster_throughout.delete("/faults")


@pytest.fixture(scope="module")
def embedded(here, tmp_path_factory):
    """A run that has come as far as its embedding: four files of three blocks each, each in many of HDFS."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, 20)) + 1.5 * rng.integers(0, 3, (ROWS, 1))
    here.put("/faults/x.csv", "".join(",".join(f"{v:.3f}" for v in row) + "\n" for row in x).encode())
    folder = tmp_path_factory.mktemp("embedded") / "run"
    done("sample", "hdfs:///faults/x.csv", "-o", folder, "--sample", "1000")
    done("coefficients", folder, "-k", "5", "--landmarks", "500", "--passes", "1")
    small = on_hadoop(sys.executable, "dfs.blocksize=1048576")
    done("embed", folder, *small, "--splits", MAPS, "--work-dir", "/faults/runs")
    return folder


@pytest.fixture(scope="module")
def undisturbed(here, embedded, tmp_path_factory):
    """The folder of a run to which nothing happens."""
    folder = shutil.copytree(embedded, tmp_path_factory.mktemp("undisturbed") / "run")
    counts = _Passes(here, folder, sys.executable, NO_COPIES).end()
    assert (counts["launched_maps"], counts["failed_maps"], counts["rows"]) == (MAPS, 0, ROWS)
    return folder


@pytest.fixture
def run(embedded, tmp_path):
    """The folder of a run to which something will happen."""
    return shutil.copytree(embedded, tmp_path / "run")


@pytest.fixture
def held(tmp_path):
    """A file with a pattern: attempts of that name come to a halt in the middle of their input."""
    path = tmp_path / "held"
    path.write_text("*")
    yield path
    path.unlink(missing_ok=True)


@pytest.fixture
def interpreter(held, tmp_path):
    path = tmp_path / "python"
    path.write_text(INTERPRETER.format(held=held, python=sys.executable, often=OFTEN))
    path.chmod(0o755)
    return path


@pytest.fixture
def begin(cluster, run, interpreter):
    """Begin the k-means passes of the run, with settings of Hadoop's; what has not come to its end is ended."""
    begun = []

    def begin(*settings, python=interpreter):
        begun.append(_Passes(cluster, run, python, *settings))
        return begun[-1]

    yield begin
    for passes in begun:
        passes.process.kill()
        passes.process.wait()


class _Passes:
    """The k-means passes of a run in a process of their own."""

    def __init__(self, cluster, folder, python, *settings):
        self.cluster, self.folder = cluster, folder
        command = [sys.executable, "-m", "apnc.cli", "kmeans", folder, *on_hadoop(python, WHOLE_FILES, *settings)]
        env = cluster.env | {"PYTHONPATH": str(ROOT)}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen([*map(str, command)], env=env, text=True, **pipes)

    def mappers(self):
        return [task for task in self.cluster.task_pythons() if {"mr_jobs.kmeans", "--mapper"} <= {*task.command}]

    def held(self):
        """Wait until all map tasks are in the middle of their input, and return them by number."""

        tasks = wait_for(lambda: len(found := self.mappers()) == MAPS and found, self.process)
        return sorted(tasks, key=lambda task: task.attempt)

    def master(self, application):
        (master,) = [c for c in self.cluster.running_containers(application) if c.is_master]
        return master

    def end(self):
        """Wait for the end, label all rows, and return what Hadoop has counted of the passes."""
        _, self.told = self.process.communicate(timeout=LONGEST)
        assert self.process.returncode == 0, self.told
        done("assign", self.folder, *on_hadoop(sys.executable, WHOLE_FILES, TOGETHER))
        done("collect", self.folder)
        return json.loads((self.folder / "hadoop.json").read_text())["counts"]["kmeans"]


def _same_result(folder, undisturbed):
    assert (folder / "labels.csv").read_bytes() == (undisturbed / "labels.csv").read_bytes()
    found, expected = facts(folder), facts(undisturbed)
    assert found["rows"] == sum(found["cluster_sizes"]) == ROWS
    assert found["cluster_sizes"] == expected["cluster_sizes"]
    assert found["objective"] == pytest.approx(expected["objective"], rel=1e-12)


# Tasks and masters


# case 71 of those that broke other tools: the last of the tasks
def test_tasks_that_are_killed_or_hang_are_tried_again_and_one_that_thinks_is_not(run, undisturbed, held, begin):
    limits = ("mapreduce.task.timeout=15000", "mapreduce.task.timeout.check-interval-ms=500")
    passes = begin(NO_COPIES, *limits)
    python, container, hangs, thinks = passes.held()
    os.kill(python.pid, signal.SIGKILL)
    os.kill(container.parent, signal.SIGKILL)
    os.kill(hangs.pid, signal.SIGSTOP)
    again = {task.attempt.removesuffix("0") + "1" for task in (python, container, hangs)}
    wait_for(lambda: again <= {task.attempt for task in passes.mappers()})
    assert thinks in passes.mappers()
    held.unlink()
    counts = passes.end()
    assert counts["failed_maps"] >= 3  # more where the machine is so busy that a task is long in coming
    assert (counts["launched_maps"], counts["rows"]) == (MAPS + counts["failed_maps"], ROWS)
    _same_result(run, undisturbed)


def test_a_killed_master_is_followed_by_another(cluster, run, undisturbed, held, begin):
    passes = begin(NO_COPIES)
    application = passes.held()[0].application
    os.kill(passes.master(application).pid, signal.SIGKILL)
    wait_for(lambda: len(cluster.attempts(application)) == 2)
    held.unlink()
    assert passes.end()["rows"] == ROWS
    assert [attempt["appAttemptId"][-2:] for attempt in cluster.attempts(application)] == ["01", "02"]
    _same_result(run, undisturbed)


def test_slow_tasks_are_overtaken_by_copies(run, undisturbed, held, begin):
    held.write_text("*_m_000000_0")
    speculative = {"minimum-allowed-tasks": MAPS, "retry-after-no-speculate": 200, "slowtaskthreshold": 0.1}
    settings = [f"mapreduce.job.speculative.{name}={value}" for name, value in speculative.items()]
    counts = begin(*settings).end()
    assert held.exists()  # the first attempt has not come to its end
    assert counts["launched_maps"] > MAPS
    assert counts["killed_maps"] > 0
    assert (counts["failed_maps"], counts["rows"]) == (0, ROWS)
    _same_result(run, undisturbed)


# Nodes


def test_a_node_manager_that_is_lost_with_its_tasks(cluster, run, undisturbed, held, begin):
    large = "mapreduce.map.memory.mb=1536"  # two on either node
    passes = begin(NO_COPIES, large)
    tasks = passes.held()
    (victim,) = {task.node for task in tasks} - {passes.master(tasks[0].application).node}
    cluster.kill_daemon(victim)
    held.unlink()
    counts = passes.end()
    assert cluster.active_nodemanagers() == {"nm0", "nm1"} - {victim}
    assert counts["launched_maps"] == MAPS + sum(task.node == victim for task in tasks)
    assert counts["rows"] == ROWS
    _same_result(run, undisturbed)


def test_a_datanode_that_is_read_from_goes_and_comes_back(cluster, run, undisturbed, held, begin):
    passes = begin(NO_COPIES)
    first = passes.held()[0]
    # one connection, to which it will come back: those of files that it has read to their end last for seconds
    (victim,) = wait_for(lambda: len(found := cluster.connections(first.parent) & {"dn0", "dn1"}) == 1 and found)
    cluster.kill_daemon(victim)
    others = held.with_name("others")
    others.write_text("*_m_00000[1-9]_*")
    others.replace(held)
    (log,) = [path / "syslog" for path in cluster.userlogs(first.application) if path.name == first.container]
    wait_for(lambda: f"Failed to connect to /{cluster.address(victim)}" in log.read_text())
    cluster.start_daemon(victim)
    held.unlink()
    counts = passes.end()
    assert (counts["launched_maps"], counts["rows"]) == (MAPS, ROWS)
    _same_result(run, undisturbed)


# What no cluster can do, or not everyone


def test_what_no_container_can_hold_is_refused_before_anything_runs(here, embedded, tmp_path):
    before, options = here.applications(), ("-k", "5", "--landmarks", "15000", *on_hadoop(sys.executable))
    outcome = apnc("cluster", "hdfs:///faults/x.csv", "-o", tmp_path / "out", *options)
    limit = "MiB of memory, this cluster gives a container 4096 at most; lower --landmarks"
    outcome.refused("coefficients: a reduce task would need ", limit)
    assert here.applications() == before
    assert list(tmp_path.iterdir()) == []


# case 83
def test_counters_are_few_whatever_the_number_of_tasks_and_clusters(here, tmp_path):
    numbers = random.Random(4)
    rows = [f"{i % 150 * 10 + numbers.random():.3f},{i // 150 + numbers.random():.3f}\n" for i in range(600)]
    here.put("/faults/many.csv", "".join(rows).encode())
    before, folder = {a["id"] for a in here.applications()}, tmp_path / "run"
    done("sample", "hdfs:///faults/many.csv", "-o", folder)
    narrow = ("--kernel-params", "sigma=auto*0.02", "--landmarks", "300")
    done("coefficients", folder, "-k", "150", *narrow, "--passes", "1")
    done("embed", folder, *on_hadoop(sys.executable), "--splits", MAPS, "--work-dir", "/faults/runs")
    # one after the other in one container: forty would take a minute to start
    done("kmeans", folder, *on_hadoop(sys.executable, TOGETHER, "mapreduce.job.ubertask.maxmaps=60"), "--splits", "40")
    done("assign", folder, *on_hadoop(sys.executable, TOGETHER))
    done("collect", folder)
    counts = json.loads((folder / "hadoop.json").read_text())["counts"]
    assert facts(folder)["rows"] == counts["kmeans"]["rows"] == counts["assign"]["rows"] == 600
    assert counts["kmeans"]["launched_maps"] >= 40
    assert len(facts(folder)["cluster_sizes"]) == 150
    ours = set()
    for application in {a["id"] for a in here.applications()} - before:
        for group in here.counters(application):
            if not group["counterGroupName"].startswith(("org.apache.hadoop", "Shuffle Errors")):
                ours |= {(group["counterGroupName"], counter["name"]) for counter in group["counter"]}
    assert ours == {("apnc", "rows")}


# last: the embedding that it leaves is another
def test_a_lost_block_makes_the_embedding_anew(cluster, run, undisturbed, begin):
    before = json.loads((run / "hadoop.json").read_text())
    path = f"{before['folder']}/embedding/part-00002"
    block = re.search(r"\bblk_\d+", cluster.hadoop("fsck", path, "-files", "-blocks").stdout)[0]
    replicas = list((cluster.folder / "data").glob(f"dn*/**/{block}*"))
    assert len(replicas) == 4  # two, each with its checksums
    for replica in replicas:
        replica.unlink()
    quick = ("dfs.client.retry.window.base=100", "mapreduce.map.maxattempts=2")
    passes = begin(*quick, python=sys.executable)
    counts = passes.end()
    assert "a block of the embedding is lost: embedding once more" in passes.told
    assert (counts["jobs"], counts["rows"]) == (1, ROWS)
    assert (
        json.loads((run / "hadoop.json").read_text())["counts"]["embed"]["jobs"]
        == before["counts"]["embed"]["jobs"] + 1
    )
    _same_result(run, undisturbed)
