"""The test cluster itself: it is a Hadoop, its parts can be broken and repaired, and nothing of it is ever left."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from mrjob.hadoop import HadoopJobRunner

from .cluster import HOST, Cluster, ClusterError, resolve_jars, stop
from .runs import wait_for

ROOT = Path(__file__).parents[2]
STREAM = "import sys\nfor line in sys.stdin.buffer: sys.stdout.buffer.write(line)\n"
# A task that holds until the test has done what it wants to: no sleeping, no guessing.
HELD = f"import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.05)\n{STREAM}"


def processes_of(folder):
    """Return the command lines of all processes that name a folder in them, or have it as working directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                command = (entry / "cmdline").read_bytes()
                if os.fsencode(folder) in command or os.readlink(entry / "cwd").startswith(str(folder)):
                    found.append(command)
    return found


@contextlib.contextmanager
def held_job(cluster, tmp_path, maps=2):
    """A running streaming job of map tasks that copy their input, each when the yielded file exists."""
    name = f"/held/{tmp_path.name}"
    for i in range(maps):
        cluster.put(f"{name}/in/{i}", b"%d\tx\n" % i)
    script, go = tmp_path / "held.py", tmp_path / "go"
    script.write_text(HELD)
    command = ["hadoop", "jar", cluster.streaming_jar, "-D", "mapreduce.job.reduces=0", "-D", "mapreduce.job.maps=1"]
    command += ["-files", script, "-input", f"{name}/in", "-output", f"{name}/out"]
    command += ["-mapper", f"{sys.executable} held.py {go}"]
    with open(tmp_path / "log", "wb") as log:
        job = subprocess.Popen(list(map(str, command)), env=cluster.env, stdout=log, stderr=log)
    try:
        wait_for(lambda: len({p.attempt for p in cluster.task_pythons()}) == maps or job.poll() is not None)
        assert job.poll() is None, (tmp_path / "log").read_text()
        yield job, go, f"{name}/out"
    finally:
        if job.poll() is None:
            job.kill()
        job.wait()


def finish(job, go):
    go.touch()
    return job.wait(timeout=300)


# A Hadoop


@pytest.mark.parametrize("name", ["plain", "with space", "a#b", "50%20", "a+b", "ünïcødé", "x=y&z?"])
def test_webhdfs_takes_any_name_and_any_bytes(cluster, name):
    data = bytes(range(256)) * 20
    cluster.put(f"/names/{name}", data, blocksize=1024)
    assert cluster.get(f"/names/{name}") == data
    assert cluster.list("/names") == [name]
    assert cluster.delete("/names") is True
    assert cluster.delete("/names") is False


def test_blocks_are_small_and_on_both_datanodes(cluster):
    cluster.put("/blocks", b"x" * 5000, blocksize=1024)
    status = cluster.webhdfs("/blocks", "GETFILESTATUS")["FileStatus"]
    assert (status["length"], status["blockSize"], status["replication"]) == (5000, 1024, 2)
    blocks = cluster.webhdfs("/blocks", "GETFILEBLOCKLOCATIONS")["BlockLocations"]["BlockLocation"]
    assert [b["length"] for b in blocks] == [1024] * 4 + [904]
    assert all(len(b["names"]) == 2 for b in blocks)


def test_missing_file_is_told_from_other_errors(cluster):
    with pytest.raises(FileNotFoundError, match="/no/such"):
        cluster.get("/no/such")
    cluster.put("/file", b"")
    with pytest.raises(ClusterError, match="/file"):
        cluster.put("/file/below", b"")


def test_hadoop_command_is_found_on_path(cluster):
    def run(*command):
        return subprocess.run(command, env=cluster.env, capture_output=True, text=True)

    assert run("hadoop", "version").stdout.startswith(f"Hadoop {cluster.version}\n")
    cluster.put("/command/a", b"1\n2\n")
    done = run("hadoop", "fs", "-cat", "/command/a")
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n2\n", "")
    assert "Application-Id" in run("yarn", "application", "-list", "-appStates", "ALL").stdout
    unknown = run("hadoop", "frobnicate")
    assert unknown.returncode == 1 and "no command 'frobnicate'" in unknown.stderr


@pytest.mark.parametrize("by", ["HADOOP_HOME", "PATH"])
def test_mrjob_finds_everything_without_an_option(cluster, monkeypatch, by):
    for name in ("HADOOP_PREFIX", "HADOOP_HOME", "HADOOP_INSTALL", "HADOOP_MAPRED_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(by, cluster.env[by])
    runner = HadoopJobRunner(conf_paths=[])
    assert runner.get_hadoop_version() == cluster.version
    assert runner.get_hadoop_streaming_jar() == str(cluster.streaming_jar)


def test_streaming_job_gives_the_exact_bytes(cluster):
    first, second = b"b\t\x00\xff\na\t1\n", b"d\t4\nc\tno newline"
    cluster.put("/cat/in/first", first)
    cluster.put("/cat/in/second file", second)
    settings = ["-D", "mapreduce.job.reduces=1", "-D", "mapreduce.job.maps=1"]
    io = ["-input", "/cat/in", "-output", "/cat/out", "-mapper", "cat", "-reducer", "cat"]
    log = cluster.hadoop("jar", cluster.streaming_jar, *settings, *io).stderr
    assert cluster.get("/cat/out") == b"a\t1\nb\t\x00\xff\nc\tno newline\nd\t4\n"
    (application,) = [a for a in cluster.applications("FINISHED") if a["id"] in log]
    assert application["finalStatus"] == "SUCCEEDED"
    assert len(cluster.userlogs(application["id"])) == 4  # master, two maps, one reduce
    assert all((folder / "stderr").exists() for folder in cluster.userlogs(application["id"]))


def test_memory_over_the_limit_ends_a_task(cluster):
    cluster.put("/memory/in", b"x\n")
    hog = f"{sys.executable} -c \"x=b'x'*(700<<20);__import__('time').sleep(60)\""
    settings = ["-D", "mapreduce.job.reduces=0", "-D", "mapreduce.job.maps=1", "-D", "mapreduce.map.maxattempts=1"]
    settings += ["-input", "/memory/in", "-output", "/memory/out", "-mapper", hog]
    with pytest.raises(ClusterError, match="Task failed"):
        cluster.hadoop("jar", cluster.streaming_jar, *settings)
    application = cluster.applications()[-1]["id"]
    log = cluster.daemon_log("nm0") + cluster.daemon_log("nm1")
    killed = rf"containerID={application.replace('application', 'container')}_01_000002.* beyond the 'PHYSICAL' memory"
    assert re.search(killed, log)


# Broken and repaired


def test_killed_task_is_tried_again(cluster, tmp_path):
    with held_job(cluster, tmp_path) as (job, go, out):
        victim = cluster.task_pythons()[0]
        jvm = next(c for c in cluster.running_containers() if c.attempt == victim.attempt)
        assert (victim.node, victim.container, victim.application) == (jvm.node, jvm.container, jvm.application)
        assert victim.parent == jvm.pid and jvm.is_map and victim.command[1] == "held.py"
        assert [c.is_master for c in cluster.running_containers(jvm.application)].count(True) == 1
        assert cluster.applications("RUNNING")[-1]["id"] == jvm.application
        if cluster.class_archive_file:  # Java says nothing where it cannot use it
            assert cluster.class_archive_file.name in Path(f"/proc/{jvm.pid}/maps").read_text()
        os.kill(victim.pid, signal.SIGKILL)
        wait_for(lambda: victim.attempt[:-1] + "1" in {p.attempt for p in cluster.task_pythons()})
        assert finish(job, go) == 0
    assert cluster.get(out) == b"0\tx\n1\tx\n"


@pytest.mark.parametrize("end", ["stop_daemon", "kill_daemon"])
def test_datanode_comes_back_with_its_blocks(cluster, end):
    cluster.put("/replicated", b"x" * 3000, blocksize=1024)
    old = cluster.daemon_pid("dn1")
    getattr(cluster, end)("dn1")
    assert cluster.hadoop("fs", "-cat", "/replicated").stdout == "x" * 3000
    with pytest.raises(ClusterError, match="dn0 is running"):
        cluster.start_daemon("dn0")
    wait_for(lambda: cluster.live_datanodes() == {"dn0"})
    cluster.start_daemon("dn1")
    assert cluster.live_datanodes() == {"dn0", "dn1"} and cluster.daemon_pid("dn1") != old

    def places():
        blocks = cluster.webhdfs("/replicated", "GETFILEBLOCKLOCATIONS")["BlockLocations"]["BlockLocation"]
        return [len(b["names"]) for b in blocks]

    wait_for(lambda: places() == [2, 2, 2])


# Nothing left


def test_up_status_down_leave_nothing_and_free_the_ports(hadoop_tools, tmp_path):
    folder = tmp_path / "cluster"

    def run(command, *more):
        command = [sys.executable, "-m", "tests.hadoop.cluster", command, "--folder", str(folder), *more]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)

    try:
        assert run("status").returncode == 1
        up = run("up", "-Ddfs.blocksize=1048576")
        assert up.returncode == 0, up.stderr
        shell = f"{up.stdout}\nhadoop fs -touchz /a && hadoop fs -stat %o /a"
        assert subprocess.run(["sh", "-c", shell], capture_output=True, text=True).stdout == "1048576\n"
        again = run("up")
        assert again.returncode == 1 and "is running" in again.stderr
        assert run("status").returncode == 0
        cluster = Cluster.attach(folder)
        ports = cluster._ports.values()
        with held_job(cluster, tmp_path, maps=1):
            cluster.kill_daemon(cluster.task_pythons()[0].node)  # containers there now look after themselves
            pids = [p.pid for p in (*cluster.running_containers(), *cluster.task_pythons())]
            pids += [pid for name in cluster.daemons if (pid := cluster.daemon_pid(name))]
            assert len(pids) == 9  # master, task, its Python, six daemons
            assert run("down").returncode == 0
    finally:
        assert run("down").returncode == 0  # again, which is nothing
    assert not folder.exists()
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}/exe")]
    assert not processes_of(folder)
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((HOST, port))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda n: n.name)
def test_interrupted_start_leaves_nothing(hadoop_tools, tmp_path, number):
    folder = tmp_path / "cluster"
    command = [sys.executable, "-m", "tests.hadoop.cluster", "up", "--folder", str(folder)]
    up = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: len(list(folder.glob("pids/*.pid"))) >= 3)
    up.send_signal(number)
    output, errors = up.communicate(timeout=60)
    assert up.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -9}[number]
    assert "export" not in output and "Traceback" not in errors
    if number == signal.SIGKILL:
        wait_for(lambda: not folder.exists(), seconds=60)  # by the guard
    assert not folder.exists()
    wait_for(lambda: not processes_of(folder), seconds=10)


def test_daemon_that_cannot_start_fails_at_once_with_its_log(hadoop_tools, tmp_path):
    folder = tmp_path / "cluster"
    with pytest.raises(ClusterError, match=r"(?s)nm0 ended before it was ready.*NumberFormatException.*plenty"):
        Cluster(folder, nodes=1, settings={"yarn.nodemanager.resource.memory-mb": "plenty"}).start()
    assert not folder.exists()
    assert not processes_of(folder)


def test_stop_touches_only_its_own(tmp_path):
    """A pid file may be old and its number long another's; a folder may be anybody's."""
    (tmp_path / "pids").mkdir()
    mine = tmp_path / "mine"
    mine.touch()
    # Nor is a process the cluster's because a user of it started it: only the environment names the folder.
    env = {**os.environ, "HADOOP_HOME": str(tmp_path), "PWD": str(tmp_path / "data/nm0")}
    with subprocess.Popen(["sleep", "60"], env=env, cwd=tmp_path) as other:
        (tmp_path / "pids/nn.pid").write_text(str(other.pid))
        stop(tmp_path)
        assert other.poll() is None and mine.exists()
        with pytest.raises(ClusterError, match="not empty"):
            Cluster(tmp_path).start()
        assert other.poll() is None and mine.exists()
        other.kill()


@pytest.mark.parametrize("name", ["with space", "a,b", "a#b"])
def test_folder_that_hadoop_cannot_name_is_refused(hadoop_tools, tmp_path, name):
    with pytest.raises(ClusterError, match="letters, digits"):
        Cluster(tmp_path / name).start()
    assert not (tmp_path / name).exists()


def test_interrupted_download_is_not_taken_for_whole(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    def maven(script):
        (tmp_path / "mvn").write_text(
            f'#!/bin/sh\nfor a; do case $a in -DoutputDirectory=*) cd "${{a#*=}}" ;; esac; done\n{script}\n'
        )
        (tmp_path / "mvn").chmod(0o755)

    maven("touch hadoop-streaming-9.9.9.jar; echo no such artifact; exit 1")
    with pytest.raises(ClusterError, match=r"could not resolve Hadoop 9\.9\.9:\nno such artifact"):
        resolve_jars("9.9.9")
    assert [p.name for p in (tmp_path / "cache/apnc-hadoop/9.9.9").iterdir()] == ["lock"]

    maven("touch half; kill -9 $PPID; sleep 60")
    code = "from tests.hadoop.cluster import resolve_jars; resolve_jars('9.9.9')"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.DEVNULL).returncode == -9

    maven("touch hadoop-streaming-9.9.9.jar")
    lib = resolve_jars("9.9.9")
    assert [p.name for p in lib.iterdir()] == ["hadoop-streaming-9.9.9.jar"]
    assert sorted(p.name for p in lib.parent.iterdir()) == [lib.name, "lock"]
    maven("exit 1")
    assert resolve_jars("9.9.9") == lib
