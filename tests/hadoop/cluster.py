"""A real Apache Hadoop cluster on this machine, for tests.

NameNode, DataNodes, ResourceManager, NodeManagers and JobHistoryServer, each a small JVM of its own, from the jars
that Maven resolves once. Configuration, data, logs, pid files and a ``hadoop`` command lie in one folder::

    python -m tests.hadoop.cluster up [--folder FOLDER]      prints what to export
    python -m tests.hadoop.cluster status|down [--folder FOLDER]

    with Cluster() as cluster:
        cluster.put("/in/x.csv", b"...")
        subprocess.run(["hadoop", "fs", "-ls", "/in"], env=cluster.env)
        cluster.kill_daemon("nm0")

Linux only (processes are found in /proc), Java 11 to 21 and Maven; nothing outside the standard library.

How processes are known to be the cluster's
    Every JVM started here, by a client too, carries ``-Dapnc.cluster=FOLDER``, a daemon also ``-Dapnc.daemon=NAME``.
    What YARN starts in containers has a folder of the cluster in LOCAL_DIRS or as its working directory. Nothing is
    signalled that does not pass one of these checks, whatever a pid file says.

How they end, whatever happens to the process that started them
    A guard, a small process in a session of its own, reads a pipe whose other end the starting process holds. The
    pipe closes when that process ends in any way, SIGKILL included, and the guard then does what ``down`` does. No
    signal handlers, so none of pytest's are replaced. After ``up`` the guard is dismissed.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import fcntl
import getpass
import hashlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

VERSION = "3.4.2"
HOST = "127.0.0.1"
READY_SECONDS = 180  # generous: a busy machine of two cores has seven JVMs to start
GRACE_SECONDS = 10  # between SIGTERM and SIGKILL
STOP_GRACE_SECONDS = 3  # the same when all is ended and thrown away: nothing is lost by an early SIGKILL
STATE = "cluster.json"  # marks a folder as one made here: no other is ever removed

MAIN_CLASSES = {
    "nn": "org.apache.hadoop.hdfs.server.namenode.NameNode",
    "dn": "org.apache.hadoop.hdfs.server.datanode.DataNode",
    "rm": "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager",
    "nm": "org.apache.hadoop.yarn.server.nodemanager.NodeManager",
    "hs": "org.apache.hadoop.mapreduce.v2.hs.JobHistoryServer",
}
PORTS = {
    "nn": ("", ".http"),
    "dn": ("", ".http", ".ipc"),
    "rm": ("", ".scheduler", ".tracker", ".admin", ".http"),
    "nm": ("", ".localizer", ".http", ".shuffle"),
    "hs": ("", ".admin", ".http"),
}
COMMANDS = {  # what the `hadoop` command (also linked as yarn, hdfs, mapred) can do
    "version": "org.apache.hadoop.util.VersionInfo",
    "fs|dfs": "org.apache.hadoop.fs.FsShell",
    "dfsadmin": "org.apache.hadoop.hdfs.tools.DFSAdmin",
    "fsck": "org.apache.hadoop.hdfs.tools.DFSck",
    "jar": "org.apache.hadoop.util.RunJar",
    "job": "org.apache.hadoop.mapred.JobClient",
    "application|app": "org.apache.hadoop.yarn.client.cli.ApplicationCLI application",
    "logs": "org.apache.hadoop.yarn.client.cli.LogsCLI",
    "node": "org.apache.hadoop.yarn.client.cli.NodeCLI",
}

# Compiled by C1 only and collected serially: short-lived JVMs start in half the time, and seven daemons fit in 1.5 GB.
JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
OPENS = [
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in (
        "java.lang",
        "java.lang.reflect",
        "java.util",
        "java.util.concurrent",
        "java.net",
        "java.io",
        "java.nio",
    )
]
LOG4J = """\
log4j.rootLogger=INFO,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %p %c{2}: %m%n
log4j.logger.org.apache.hadoop.util.NativeCodeLoader=ERROR
"""


class ClusterError(Exception):
    """The cluster, or a request to it, failed; the message says what to look at."""


@dataclass(frozen=True)
class Container:
    """A JVM in a YARN container: a task's (YarnChild) or an application master."""

    pid: int
    application: str
    container: str
    node: str  # the NodeManager's name, "nm0"
    attempt: str  # "attempt_…_m_000000_0" for a task, "" for an application master

    @property
    def is_master(self) -> bool:
        return not self.attempt

    @property
    def is_map(self) -> bool:
        return "_m_" in self.attempt


@dataclass(frozen=True)
class TaskPython:
    """A Python process that a task's JVM runs, directly or through a shell."""

    pid: int
    parent: int
    application: str
    container: str
    node: str
    attempt: str
    command: tuple[str, ...]


class Cluster:
    """A Hadoop cluster in a folder.

    Parameters
    ----------
    folder : path-like, optional
        Must be new, empty, or left by an earlier cluster; a new temporary folder by default. Removed at the end.
    version : str
        Apache Hadoop's.
    nodes : int
        DataNodes, and as many NodeManagers.
    settings : dict of str to object, optional
        Hadoop properties that add to the ones here or replace them, for daemons and clients alike.
    enforce_memory : bool
        Kill containers over their limit, as real clusters do.
    keep : bool
        Leave the folder in place when the cluster is stopped.
    class_archive : bool
        Let all JVMs map their classes from one file (see make_class_archive): they start in about half the time.

    Attributes
    ----------
    folder : Path
    env : dict
        The environment for programs that shall use this cluster.
    namenode, namenode_http, resourcemanager_http, historyserver_http : str
        hdfs://HOST:PORT, http://HOST:PORT.
    daemons : tuple of str
        "nn", "rm", "hs", "dn0", "nm0", "dn1", "nm1"
    """

    def __init__(
        self,
        folder=None,
        *,
        version=VERSION,
        nodes=2,
        settings=None,
        enforce_memory=True,
        keep=False,
        class_archive=True,
    ):
        self.version = version
        self.settings = {**memory_settings(enforce_memory), **(settings or {})}
        self.nodes = nodes
        self.keep = keep
        self.folder = Path(os.path.realpath(folder)) if folder else None
        self.class_archive = class_archive
        self.class_lists: Path | None = None  # where JVMs shall list their classes
        self._children: dict[str, subprocess.Popen] = {}
        self._guard: subprocess.Popen | None = None
        self._owner: int | None = None

    @classmethod
    def attach(cls, folder) -> Cluster:
        """Return the running cluster of a folder. It is not stopped when this process ends."""
        cluster = cls(folder)
        try:
            cluster._load(json.loads((cluster.folder / STATE).read_text()))
        except FileNotFoundError:
            raise ClusterError(f"no Hadoop cluster in {cluster.folder}: start one with `make hadoop-up`") from None
        return cluster

    # Start and stop

    def __enter__(self) -> Cluster:
        self.start()
        return self

    def __exit__(self, *exception):
        self.stop()

    def start(self):
        """Start all daemons and return when they have found each other; on any failure nothing is left behind."""
        lib, java, archive = prepare(self.version, self.class_archive)
        for attempts_left in (2, 1, 0):
            self._make_folder()
            try:
                self._start(lib, java, archive)
                return
            except FileExistsError:
                raise ClusterError(f"another cluster is being started in {self.folder}") from None
            except BaseException as error:
                taken = isinstance(error, ClusterError) and "Address already in use" in str(error)
                self.stop(keep=self.keep and not taken)
                # A port was free when it was chosen and taken when the daemon came to it.
                if not (taken and attempts_left):
                    raise

    def _make_folder(self):
        if self.folder is None:
            self.folder = Path(os.path.realpath(tempfile.mkdtemp(prefix="apnc-hadoop-")))
        # It gets into comma-separated lists, file: addresses and command lines.
        if not re.fullmatch(r"[\w./+-]+", str(self.folder), re.ASCII):
            raise ClusterError(f"{self.folder}: Hadoop's settings allow only letters, digits and ./_+- in this path")
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.folder.stat().st_uid != os.getuid():
            raise ClusterError(f"{self.folder} belongs to another user")
        if (self.folder / STATE).exists():
            if any(_signature(pid, self.folder) for pid in _pids()):
                raise ClusterError(f"a cluster is running in {self.folder}: stop it with `make hadoop-down`")
            _empty(self.folder)
        elif any(self.folder.iterdir()):
            raise ClusterError(f"{self.folder} is not empty, and not a cluster's folder")
        self.folder.mkdir(mode=0o700, exist_ok=True)

    def _start(self, lib: Path, java: Path, archive: Path | None):
        names = [name + part for name in _daemon_names(self.nodes) for part in PORTS[name[:2]]]
        ports = _free_ports(len(names))
        state = {
            "version": self.version,
            "lib": str(lib),
            "java": str(java),
            "archive": archive and str(archive),
            "nodes": self.nodes,
            "ports": dict(zip(names, ports, strict=True)),
        }
        with open(self.folder / STATE, "x") as f:  # a second start at the same moment fails here
            self._owner = os.getpid()
            json.dump(state, f, indent=1)
        self._load(state)
        atexit.register(self.stop)
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", os.path.abspath(__file__), "guard", "--folder", str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )
        self._write_files()
        # What needs no file system starts while it is being formatted.
        yarn = ["rm", *(f"nm{i}" for i in range(self.nodes))]
        hdfs = ["nn", *(f"dn{i}" for i in range(self.nodes)), "hs"]
        for name in yarn:
            self._spawn(name)
        self._format()
        for name in hdfs:
            self._spawn(name)
        self.wait_ready()
        self.webhdfs("/tmp", "MKDIRS", permission="1777")
        self.webhdfs(f"/user/{getpass.getuser()}", "MKDIRS")

    def _load(self, state: dict):
        self.version, self.nodes = state["version"], state["nodes"]
        archive = state.get("archive")
        self.class_archive_file = Path(archive) if archive else None
        self._lib, self._java, self._ports = Path(state["lib"]), Path(state["java"]), state["ports"]
        self.daemons = _daemon_names(self.nodes)
        self.namenode = f"hdfs://{HOST}:{self._ports['nn']}"
        self.namenode_http = self._http("nn")
        self.resourcemanager_http = self._http("rm")
        self.historyserver_http = self._http("hs")
        # Elsewhere's Hadoop must not shine through: mrjob, for one, looks at all of these variables.
        env = {k: v for k, v in os.environ.items() if not re.match(r"(HADOOP|YARN|MAPRED|HDFS)_", k)}
        env["PATH"] = os.pathsep.join([str(self.folder / "bin"), env.get("PATH", os.defpath)])
        env["HADOOP_HOME"] = str(self.folder)
        env["HADOOP_CONF_DIR"] = str(self.folder / "etc/hadoop")
        env["JAVA_HOME"] = str(self._java)
        self.env = env

    def stop(self, keep: bool | None = None):
        """End every process of the cluster and remove its folder. Safe to call at any time, and again."""
        if self._owner not in (None, os.getpid()) or self.folder is None:
            return  # a fork of the starting process
        stop(self.folder, keep=self.keep if keep is None else keep, children=self._children)
        self._dismiss()

    def detach(self):
        """Let the cluster run on after this process has ended."""
        self._dismiss()

    def _dismiss(self):
        atexit.unregister(self.stop)
        guard, self._guard = self._guard, None
        if guard:
            with contextlib.suppress(OSError):
                guard.stdin.write(b"dismissed")
                guard.stdin.close()
            guard.wait()

    # Daemons

    def start_daemon(self, name: str, wait: bool = True):
        """Start a daemon that was stopped or killed, on its old ports and data."""
        if self.daemon_pid(name):
            raise ClusterError(f"{name} is running")
        self._spawn(name)
        if wait:
            self.wait_ready([name])

    def stop_daemon(self, name: str):
        """End a daemon in good order, with SIGKILL if it takes too long."""
        self._end_daemon(name, GRACE_SECONDS)

    def kill_daemon(self, name: str):
        """End a daemon by SIGKILL: its containers, if it has any, live on (see orphans)."""
        self._end_daemon(name, 0)

    def _end_daemon(self, name: str, grace: float):
        if name not in self.daemons:
            raise ValueError(f"no daemon {name!r}: there are {', '.join(self.daemons)}")
        pid = self.daemon_pid(name)
        if pid:
            _end([pid], lambda p: _signature(p, self.folder) == name, grace)
        child = self._children.pop(name, None)
        if child:
            child.wait()
        self._pid_file(name).unlink(missing_ok=True)

    def daemon_pid(self, name: str) -> int | None:
        """Return the process id of a daemon, None when it is not running."""
        try:
            pid = int(self._pid_file(name).read_text())
        except (FileNotFoundError, ValueError):
            return None
        return pid if _signature(pid, self.folder) == name else None

    def wait_ready(self, names=None, timeout: float = READY_SECONDS):
        """Wait until daemons, all by default, serve and are known to their master."""
        waiting = list(names or self.daemons)
        deadline = time.monotonic() + timeout
        while True:
            for name in list(waiting):
                if not self.daemon_pid(name):
                    raise ClusterError(f"{name} ended before it was ready. {self._log_tail(name)}")
                try:
                    ready = self._is_ready(name)
                except (OSError, ValueError, KeyError, IndexError, TypeError):
                    ready = False  # not listening, or not yet with all it will say
                if ready:
                    waiting.remove(name)
            if not waiting:
                return
            if time.monotonic() > deadline:
                late = ", ".join(waiting)
                raise ClusterError(f"{late} not ready after {timeout:.0f} s. {self._log_tail(waiting[0])}")
            time.sleep(0.1)

    def live_datanodes(self) -> set[str]:
        """Return the DataNodes that the NameNode counts as alive."""
        bean = self._jmx("nn", "Hadoop:service=NameNode,name=NameNodeInfo")
        alive = {node["xferaddr"] for node in json.loads(bean["LiveNodes"]).values()}
        return {n for n in self.daemons if n.startswith("dn") and self.address(n) in alive}

    def active_nodemanagers(self) -> set[str]:
        """Return the NodeManagers that the ResourceManager counts as running."""
        return {name for name, node in self._rm_nodes() if node["state"] == "RUNNING"}

    def heal(self):
        """Bring the cluster back to a fresh start's state, its files apart: after a test that broke something.

        Daemons are started, applications killed and what they left in containers ended: not while others use it.
        """
        for name in self.daemons:
            if not self.daemon_pid(name):
                self.start_daemon(name, wait=False)
        self.wait_ready()
        for application in self.applications():
            if application["state"] not in ("FINISHED", "FAILED", "KILLED"):
                self.kill_application(application["id"])
        # More than once: what a NodeManager ends loses its shell first, and is an orphan only then.
        deadline = time.monotonic() + 30
        while (orphans := [pid for pid in _pids() if self._is_orphan(pid)]) and time.monotonic() < deadline:
            _end(orphans, self._is_orphan, 0)
            time.sleep(0.2)

    def _is_ready(self, name: str):
        kind = name[:2]
        if kind == "nn":
            return self._jmx("nn", "Hadoop:service=NameNode,name=FSNamesystemState")["FSState"] == "Operational"
        if kind == "dn":
            # The DataNode's own word first: a NameNode counts one that was killed as alive for some time.
            actors = json.loads(self._jmx(name, "Hadoop:service=DataNode,name=DataNodeInfo")["BPServiceActorInfo"])
            return actors[0]["ActorState"] == "RUNNING" and name in self.live_datanodes()
        if kind == "rm":
            return _get_json(self._http("rm") + "/ws/v1/cluster/info")["clusterInfo"]["haState"] == "ACTIVE"
        if kind == "hs":
            return _get_json(self._http("hs") + "/ws/v1/history/info")["historyInfo"]["startedOn"] > 0
        # So too of the ResourceManager: the health report must be of this NodeManager, not its predecessor.
        started = _start_time(self.daemon_pid(name))
        return any(
            n == name and node["state"] == "RUNNING" and node["lastHealthUpdate"] / 1000 >= started
            for n, node in self._rm_nodes()
        )

    def _rm_nodes(self) -> list[tuple[str, dict]]:
        nodes = _get_json(self.resourcemanager_http + "/ws/v1/cluster/nodes")["nodes"]
        # An id is HOST:PORT, the host under whatever name this machine finds for 127.0.0.1.
        names = {str(self._ports[n]): n for n in self.daemons if n.startswith("nm")}
        return [(names[node["id"].rpartition(":")[2]], node) for node in (nodes["node"] if nodes else [])]

    def _jmx(self, name: str, bean: str) -> dict:
        return _get_json(f"{self._http(name)}/jmx?qry={bean}")["beans"][0]

    # Applications and their processes

    def applications(self, states: str | list[str] | None = None) -> list[dict]:
        """Return the ResourceManager's records (id, state, finalStatus, diagnostics, …) of applications, oldest first.

        States: NEW, SUBMITTED, ACCEPTED, RUNNING, FINISHED, FAILED, KILLED; all by default.
        """
        query = "" if states is None else "?states=" + (states if isinstance(states, str) else ",".join(states))
        apps = _get_json(self.resourcemanager_http + "/ws/v1/cluster/apps" + query)["apps"]
        return sorted(apps["app"], key=lambda app: app["id"]) if apps else []

    def attempts(self, application: str) -> list[dict]:
        """Return the ResourceManager's records of an application's attempts: of its masters, one after the other."""
        url = f"{self.resourcemanager_http}/ws/v1/cluster/apps/{application}/appattempts"
        return _get_json(url)["appAttempts"]["appAttempt"]

    def counters(self, application: str) -> list[dict]:
        """Return the JobHistoryServer's groups of counters of a job: counterGroupName, counter."""
        job = application.replace("application", "job")
        url = f"{self.historyserver_http}/ws/v1/history/mapreduce/jobs/{job}/counters"
        return _get_json(url)["jobCounters"]["counterGroup"]

    def kill_application(self, application: str):
        """Have the ResourceManager end an application."""
        url = f"{self.resourcemanager_http}/ws/v1/cluster/apps/{application}/state?user.name={getpass.getuser()}"
        _request(url, "PUT", b'{"state":"KILLED"}', {"Content-Type": "application/json"})

    def running_containers(self, application: str | None = None) -> list[Container]:
        """Return the JVMs of tasks and application masters. A master lives on for 5 s after its job has ended."""
        found = []
        for pid in _pids():
            command = _cmdline(pid)
            if not command or os.path.basename(command[0]) != "java":
                continue
            is_task = "org.apache.hadoop.mapred.YarnChild" in command
            if not is_task and "org.apache.hadoop.mapreduce.v2.app.MRAppMaster" not in command:
                continue
            node, env = _container_node(pid, self.folder), _environ(pid)
            if node is None:
                continue
            attempt = next((a for a in command if a.startswith("attempt_")), "") if is_task else ""
            container = env.get("CONTAINER_ID", "")
            found.append(Container(pid, _application_of(container), container, node, attempt))
        return [c for c in found if application in (None, c.application)]

    def task_pythons(self, application: str | None = None) -> list[TaskPython]:
        """Return the Python processes of tasks."""
        found = []
        for pid in _pids():
            node = _container_node(pid, self.folder)
            if node is None or not os.path.basename(_link(pid, "exe")).startswith("python"):
                continue
            env = _environ(pid)
            container = env.get("CONTAINER_ID", "")
            attempt = env.get("mapreduce_task_attempt_id", "")
            stat = _stat(pid)
            if stat:
                parent = int(stat[1])
                task = TaskPython(
                    pid, parent, _application_of(container), container, node, attempt, tuple(_cmdline(pid))
                )
                found.append(task)
        return [t for t in found if application in (None, t.application)]

    def orphans(self) -> list[Container]:
        """Return the containers that no NodeManager looks after: theirs was killed, and maybe started again."""
        return [c for c in self.running_containers() if self._is_orphan(c.pid)]

    def _is_orphan(self, pid: int) -> bool:
        """Tell whether a process was started in a container and no longer descends from a NodeManager."""
        if _container_node(pid, self.folder) is None:
            return False
        while stat := _stat(pid):
            pid = int(stat[1])
            if _signature(pid, self.folder).startswith("nm"):
                return False
        return True

    def connections(self, pid: int) -> set[str]:
        """Return the daemons to which a process has connections."""
        sockets = set()
        with contextlib.suppress(OSError):
            sockets = {_link(pid, f"fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
        lines = [line.split() for table in ("net/tcp", "net/tcp6") for line in _read(pid, table).splitlines()[1:]]
        ports = {int(line[2].rpartition(b":")[2], 16) for line in lines if f"socket:[{int(line[9])}]" in sockets}
        return {name.partition(".")[0] for name, port in self._ports.items() if port in ports}

    def userlogs(self, application: str | None = None) -> list[Path]:
        """Return the log folders of containers, each with stdout, stderr and syslog, oldest container first."""
        pattern = f"*/{application or 'application_*'}/container_*"
        return sorted((self.folder / "logs/userlogs").glob(pattern), key=lambda path: path.name)

    # HDFS and the command line

    def webhdfs(self, path: str, op: str, data: bytes | None = None, **params):
        """Call WebHDFS and return its answer: the parsed JSON, or the bytes of OPEN.

        Raises FileNotFoundError, or ClusterError with Hadoop's message.
        """
        op = op.upper()
        method = {"DELETE": "DELETE", "APPEND": "POST", "CONCAT": "POST", "TRUNCATE": "POST"}.get(op)
        if method is None:
            method = "GET" if op.startswith(("GET", "LIST", "OPEN", "CHECK")) else "PUT"
        query = urllib.parse.urlencode({"op": op, "user.name": getpass.getuser(), **params})
        url = f"{self.namenode_http}/webhdfs/v1{urllib.parse.quote('/' + path.lstrip('/'))}?{query}"
        try:
            if op in ("CREATE", "APPEND"):
                # The NameNode names the DataNode that takes the data.
                url = json.loads(_request(url + "&noredirect=true", method))["Location"]
                url = re.sub(r"[^!-~]+", lambda match: urllib.parse.quote(match[0]), url)  # it comes half quoted
                _request(url, method, data or b"", {"Content-Type": "application/octet-stream"})
                return None
            answer = _request(url, method)
        except urllib.error.HTTPError as error:
            raise _hdfs_error(error, path) from None
        return answer if op == "OPEN" else json.loads(answer or b"null")

    def put(self, path: str, data: bytes, **params):
        """Write a file, replacing one of that name. Params: blocksize, replication, …"""
        self.webhdfs(path, "CREATE", data, **{"overwrite": "true", **params})

    def get(self, path: str) -> bytes:
        """Return a file's bytes; a folder's are those of its part files in order."""
        if self.webhdfs(path, "GETFILESTATUS")["FileStatus"]["type"] == "DIRECTORY":
            return b"".join(self.get(f"{path}/{name}") for name in self.list(path) if name.startswith("part-"))
        return self.webhdfs(path, "OPEN")

    def list(self, path: str) -> list[str]:
        """Return the names in a folder, sorted."""
        statuses = self.webhdfs(path, "LISTSTATUS")["FileStatuses"]["FileStatus"]
        return sorted(status["pathSuffix"] for status in statuses)

    def delete(self, path: str) -> bool:
        """Delete a file or a folder with all in it; False when there is none."""
        return self.webhdfs(path, "DELETE", recursive="true")["boolean"]

    def hadoop(self, *args, timeout: float = 300) -> subprocess.CompletedProcess:
        """Run the hadoop command; its stdout and stderr are captured as text, a failure raises ClusterError."""
        command = [str(self.folder / "bin/hadoop"), *map(str, args)]
        done = subprocess.run(
            command, env=self.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout
        )
        if done.returncode:
            raise ClusterError(f"hadoop {' '.join(command[1:])}: status {done.returncode}\n{done.stderr[-4000:]}")
        return done

    @property
    def streaming_jar(self) -> Path:
        return self.folder / f"share/hadoop/tools/lib/hadoop-streaming-{self.version}.jar"

    def exports(self) -> str:
        """Return the shell lines by which a user's programs find this cluster."""
        names = ("HADOOP_HOME", "HADOOP_CONF_DIR", "JAVA_HOME")
        lines = [f"export APNC_HADOOP_FOLDER={self.folder}", *(f"export {n}={self.env[n]}" for n in names)]
        return "\n".join([*lines, f'export PATH={self.folder}/bin:"$PATH"'])

    # Files

    def _write_files(self):
        folder = self.folder
        for name in ("bin", "data", "logs", "pids", "tmp", "share/hadoop/tools/lib"):
            (folder / name).mkdir(parents=True)
        for name in ("hdfs", "datanode"):  # found on the class path, else NameNode and DataNode refuse to start
            (folder / "web/webapps" / name).mkdir(parents=True)
        self.streaming_jar.symlink_to(self._lib / self.streaming_jar.name)
        common = self._common_settings()
        for name in self.daemons:
            self._write_conf(name, {**common, **self._daemon_settings(name), **self.settings})
        self._write_conf("hadoop", {**common, **CLIENT_SETTINGS, **self._sharing_settings(), **self.settings})
        self._write_command()

    def _write_conf(self, name: str, settings: dict):
        conf = self.folder / "etc" / name
        conf.mkdir(parents=True)
        (conf / "log4j.properties").write_text(LOG4J)
        files = {f: [] for f in ("core-site", "hdfs-site", "yarn-site", "mapred-site", "capacity-scheduler")}
        for key, value in settings.items():
            files[_file_of(key)].append(f"<property><name>{key}</name><value>{escape(str(value))}</value></property>\n")
        for file, lines in files.items():
            (conf / f"{file}.xml").write_text(f"<configuration>\n{''.join(lines)}</configuration>\n")

    def _common_settings(self) -> dict:
        user = getpass.getuser()
        return {
            **COMMON_SETTINGS,
            "fs.defaultFS": self.namenode,
            "hadoop.tmp.dir": self.folder / "tmp",
            "hadoop.http.staticuser.user": user,
            f"hadoop.proxyuser.{user}.hosts": "*",
            "dfs.replication": min(self.nodes, 2),
            "dfs.namenode.http-address": self.address("nn.http"),
            "yarn.resourcemanager.hostname": HOST,
            "yarn.resourcemanager.address": self.address("rm"),
            "yarn.resourcemanager.scheduler.address": self.address("rm.scheduler"),
            "yarn.resourcemanager.resource-tracker.address": self.address("rm.tracker"),
            "yarn.resourcemanager.admin.address": self.address("rm.admin"),
            "yarn.resourcemanager.webapp.address": self.address("rm.http"),
            "yarn.application.classpath": f"{self.folder}/etc/hadoop,{self._lib}/*",
            "mapreduce.application.classpath": f"{self._lib}/*",
            "mapreduce.jobhistory.address": self.address("hs"),
            "mapreduce.jobhistory.webapp.address": self.address("hs.http"),
            "mapreduce.jobhistory.admin.address": self.address("hs.admin"),
        }

    def _daemon_settings(self, name: str) -> dict:
        data = self.folder / "data" / name
        if name == "nn":
            return {"dfs.namenode.name.dir": f"file://{data}"}
        if name.startswith("dn"):
            return {
                "dfs.datanode.data.dir": f"file://{data}",
                "dfs.datanode.hostname": HOST,  # WebHDFS sends its clients there
                "dfs.datanode.address": self.address(name),
                "dfs.datanode.http.address": self.address(f"{name}.http"),
                "dfs.datanode.ipc.address": self.address(f"{name}.ipc"),
            }
        if name.startswith("nm"):
            return {
                "yarn.nodemanager.hostname": HOST,
                "yarn.nodemanager.address": self.address(name),
                "yarn.nodemanager.localizer.address": self.address(f"{name}.localizer"),
                "yarn.nodemanager.webapp.address": self.address(f"{name}.http"),
                "yarn.nodemanager.local-dirs": data,
                "yarn.nodemanager.log-dirs": self.folder / "logs/userlogs" / name,
                "mapreduce.shuffle.port": self._ports[f"{name}.shuffle"],
            }
        return {}

    def _sharing_settings(self) -> dict:
        """Return what has the JVMs in containers share classes: the options that Hadoop puts before a job's own."""
        # The archive is of use only if the class path begins as it did when the archive was made.
        path = f"{self._lib}/*:{self.folder}/etc/hadoop:./*:./job.jar/*:./job.jar/classes:./job.jar/lib/*"
        options = " ".join([*self._sharing(), "-cp", path])
        defaults = "-Djava.net.preferIPv4Stack=true -Dhadoop.metrics.log.level=WARN"
        return {
            "yarn.app.mapreduce.am.admin-command-opts": options,
            "mapreduce.admin.map.child.java.opts": f"{defaults} {options}",
            "mapreduce.admin.reduce.child.java.opts": f"{defaults} {options}",
        }

    def _write_command(self):
        java = " ".join([str(self._java / "bin/java"), *self._jvm_options(), "-Xmx256m"])
        cases = "\n".join(f'{names}) set -- {main} "$@" ;;' for names, main in COMMANDS.items())
        script = f"""\
#!/bin/sh
# The hadoop command of the test cluster in this folder; yarn, hdfs and mapred are other names of it.
conf=${{HADOOP_CONF_DIR:-{self.folder}/etc/hadoop}}
command=$1
[ $# -gt 0 ] && shift
case $command in
{cases}
classpath) echo "{self._lib}/*:$conf"; exit ;;
*) echo "{self.folder}/bin/hadoop: no command '$command', only {" ".join(COMMANDS)} classpath" >&2; exit 1 ;;
esac
exec {java} ${{HADOOP_CLIENT_OPTS-}} -cp "{self._lib}/*:$conf${{HADOOP_CLASSPATH:+:$HADOOP_CLASSPATH}}" "$@"
"""
        path = self.folder / "bin/hadoop"
        path.write_text(script)
        path.chmod(0o755)
        for name in ("yarn", "hdfs", "mapred"):
            (self.folder / "bin" / name).symlink_to("hadoop")

    # Processes

    def _jvm_options(self) -> list[str]:
        return [
            f"-Dapnc.cluster={self.folder}",
            f"-Dhadoop.home.dir={self.folder}",
            f"-Dhadoop.log.dir={self.folder}/logs",
            f"-Dyarn.log.dir={self.folder}/logs",
            f"-Djava.io.tmpdir={self.folder}/tmp",
            *JVM.split(),
            *OPENS,
            *self._sharing(),
        ]

    def _sharing(self) -> list[str]:
        if (
            self.class_archive_file
        ):  # without a word where it does not fit: on stdout it would get into a client's output
            archive = f"-XX:SharedArchiveFile={self.class_archive_file}"
            return [archive, "-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr"]
        return [f"-XX:DumpLoadedClassList={self.class_lists}/%p"] if self.class_lists else []

    def _daemon_command(self, name: str, kind: str, conf: str) -> list[str]:
        options = [*self._jvm_options(), f"-Dapnc.daemon={name}", "-Xmx128m"]
        path = f"{self._lib}/*:{self.folder}/etc/{conf}:{self.folder}/web"
        return [str(self._java / "bin/java"), *options, "-cp", path, MAIN_CLASSES[kind]]

    def _daemon_env(self, conf: str) -> dict:
        # Tasks inherit this: the packages of the test's own Python must not reach them by accident.
        env = {k: v for k, v in self.env.items() if not k.startswith(("PYTHON", "PYTEST", "VIRTUAL_ENV", "APNC_"))}
        return {**env, "HADOOP_CONF_DIR": str(self.folder / "etc" / conf)}

    def _spawn(self, name: str):
        with open(self.folder / "logs" / f"{name}.log", "ab") as log:
            child = subprocess.Popen(
                self._daemon_command(name, name[:2], name),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self.folder,
                env=self._daemon_env(name),
            )
        self._children[name] = child
        self._pid_file(name).write_text(str(child.pid))
        # For a moment after the program was loaded its command line is not to be read yet.
        while not _signature(child.pid, self.folder) and child.poll() is None:
            time.sleep(0.001)

    def _format(self):
        command = [*self._daemon_command("format", "nn", "nn"), "-format", "-nonInteractive"]
        with open(self.folder / "logs/format.log", "wb") as log:
            status = subprocess.call(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder, env=self._daemon_env("nn")
            )
        if status:
            raise ClusterError(f"formatting the file system ended with status {status}. {self._log_tail('format')}")

    def daemon_log(self, name: str) -> str:
        """Return what a daemon has logged. Only a NodeManager's says why it killed a container."""
        return (self.folder / "logs" / f"{name}.log").read_text(errors="replace")

    def _log_tail(self, name: str, lines: int = 30) -> str:
        log = self.folder / "logs" / f"{name}.log"
        try:
            tail = log.read_text(errors="replace").splitlines()[-lines:]
        except FileNotFoundError:
            return f"It left no log {log}."
        return "\n".join([f"The end of {log}:", *tail])

    def _pid_file(self, name: str) -> Path:
        return self.folder / "pids" / f"{name}.pid"

    def address(self, port: str) -> str:
        """Return HOST:PORT of a daemon, or of another of its ports ("dn0.http")."""
        return f"{HOST}:{self._ports[port]}"

    def _http(self, name: str) -> str:
        return "http://" + self.address(f"{name}.http")


# Settings: each property goes to the file that Hadoop reads it from (_file_of).

COMMON_SETTINGS = {
    # HDFS: no owners, small blocks allowed, nothing waited for that a throw-away file system does not need.
    "dfs.permissions.enabled": "false",
    "dfs.namenode.fs-limits.min-block-size": 1024,
    "dfs.namenode.safemode.extension": 0,
    "dfs.namenode.edits.noeditlogchannelflush": "true",
    "dfs.namenode.datanode.registration.ip-hostname-check": "false",
    "dfs.webhdfs.enabled": "true",
    # A DataNode is dead 2 × 2 s + 10 × 1 s after its last sign of life (by default after ten minutes), a NodeManager
    # after 10 s.
    "dfs.namenode.heartbeat.recheck-interval": 2000,
    "dfs.heartbeat.interval": 1,
    "yarn.nm.liveness-monitor.expiry-interval-ms": 10000,
    "yarn.am.liveness-monitor.expiry-interval-ms": 20000,
    # YARN: seven containers of 512 MB and one master on each of two nodes; what cannot fit is refused, not queued.
    "yarn.nodemanager.aux-services": "mapreduce_shuffle",
    "yarn.nodemanager.resource.memory-mb": 4096,
    "yarn.nodemanager.resource.cpu-vcores": 8,
    "yarn.scheduler.minimum-allocation-mb": 128,
    "yarn.scheduler.maximum-allocation-mb": 4096,
    "yarn.nodemanager.process-kill-wait.ms": 2000,  # a NodeManager's end waits for finished applications as long
    "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": 99,
    "yarn.log-aggregation-enable": "false",
    "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": 50,
    "yarn.scheduler.capacity.root.queues": "default",
    "yarn.scheduler.capacity.root.default.capacity": 100,
    "yarn.scheduler.capacity.maximum-am-resource-percent": 0.8,  # at 0.1 no master would fit
    "yarn.scheduler.capacity.resource-calculator": "org.apache.hadoop.yarn.util.resource.DefaultResourceCalculator",
}

# What a client reads, and a job carries along to its master and tasks. A program's own -D options go before these.
CLIENT_SETTINGS = {
    "dfs.client.block.write.locateFollowingBlock.initial.delay.ms": 10,  # 400 ms are slept at every file's end
    "dfs.client.block.write.replace-datanode-on-failure.policy": "NEVER",  # there is no third
    "mapreduce.framework.name": "yarn",
    "yarn.app.mapreduce.am.resource.mb": 512,
    "yarn.app.mapreduce.am.command-opts": f"{JVM} -Xmx256m",
    "mapreduce.map.memory.mb": 512,
    "mapreduce.map.java.opts": f"{JVM} -Xmx128m",
    "mapreduce.reduce.memory.mb": 512,
    "mapreduce.reduce.java.opts": f"{JVM} -Xmx128m",
    "mapreduce.task.io.sort.mb": 32,
    "yarn.app.mapreduce.am.scheduler.heartbeat.interval-ms": 50,
    "mapreduce.client.progressmonitor.pollinterval": 50,
    "mapreduce.client.completion.pollinterval": 50,
    # Without a ResourceManager a client would try for 15 minutes. What bounds the loss of a node is for jobs to say.
    "yarn.resourcemanager.connect.max-wait.ms": 20000,
    "yarn.resourcemanager.connect.retry-interval.ms": 1000,
}


def memory_settings(enforced: bool) -> dict:
    """Return the settings by which containers over their limit of physical memory are killed, or let be."""
    if not enforced:
        return {"yarn.nodemanager.pmem-check-enabled": "false", "yarn.nodemanager.vmem-check-enabled": "false"}
    return {
        "yarn.nodemanager.pmem-check-enabled": "true",
        "yarn.nodemanager.vmem-check-enabled": "false",  # counts address space: any JVM has gigabytes of that
        "yarn.nodemanager.resource.memory.enforced": "false",  # true would leave it to cgroups, which nobody set up
        "yarn.nodemanager.container-monitor.interval-ms": 500,
    }


def _file_of(key: str) -> str:
    if key.startswith("yarn.scheduler.capacity."):
        return "capacity-scheduler"
    if key.startswith(("mapreduce.", "yarn.app.mapreduce.")):
        return "mapred-site"
    if key.startswith("yarn."):
        return "yarn-site"
    return "hdfs-site" if key.startswith("dfs.") else "core-site"


# Java and the jars


def missing_tools() -> str:
    """Return why no cluster can be started here, empty when one can."""
    if not os.path.isdir("/proc/self"):
        return "the Hadoop test cluster runs on Linux only (it finds its processes in /proc)"
    lacking = []
    if find_java() is None:
        lacking.append("a Java development kit or runtime, 11 to 21 (java on PATH, or JAVA_HOME)")
    if shutil.which("mvn") is None:
        lacking.append("Maven (mvn on PATH)")
    return "the Hadoop test cluster needs " + " and ".join(lacking) if lacking else ""


def find_java() -> Path | None:
    """Return the Java home."""
    home = os.environ.get("JAVA_HOME")
    if home and os.access(os.path.join(home, "bin/java"), os.X_OK):
        return Path(os.path.realpath(home))
    java = shutil.which("java")
    return Path(os.path.realpath(java)).parent.parent if java else None


def prepare(version: str = VERSION, class_archive: bool = True) -> tuple[Path, Path, Path | None]:
    """Return the folder of jars, the Java home and the class archive: made once, which takes a minute or two."""
    missing = missing_tools()
    if missing:
        raise ClusterError(missing)
    lib, java = resolve_jars(version), find_java()
    return lib, java, make_class_archive(lib, java, version) if class_archive else None


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "apnc-hadoop"


def resolve_jars(version: str) -> Path:
    """Return the folder with Hadoop's jars, filled by Maven the first time.

    It appears under its name when it is whole, so an interrupted download is never taken for one.
    """
    pom = Path(__file__).with_name("pom.xml")
    home = cache_folder() / version
    lib = home / f"lib-{hashlib.sha256(pom.read_bytes()).hexdigest()[:8]}"
    if lib.is_dir():
        return lib
    home.mkdir(parents=True, exist_ok=True)
    with open(home / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of two at the same time one downloads
        if lib.is_dir():
            return lib
        for stale in home.glob("partial-*"):
            shutil.rmtree(stale)
        partial = Path(tempfile.mkdtemp(prefix="partial-", dir=home))
        print(f"Resolving the jars of Hadoop {version} into {lib}", file=sys.stderr)
        command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", "-DincludeScope=runtime"]
        command += [f"-DoutputDirectory={partial}", f"-Dhadoop.version={version}"]
        maven = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # for killpg
        )
        try:
            output, _ = maven.communicate(timeout=900)
            if maven.returncode or not list(partial.glob("hadoop-streaming-*.jar")):
                raise ClusterError(f"Maven could not resolve Hadoop {version}:\n{output[-4000:]}")
            partial.rename(lib)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(maven.pid, signal.SIGKILL)
            maven.wait()
            shutil.rmtree(partial, ignore_errors=True)
            raise
    return lib


def make_class_archive(lib: Path, java: Path, version: str) -> Path | None:
    """Return the file from which JVMs map their classes ready-made (class data sharing), None when it cannot be made.

    Made the first time for these jars and this Java: a small cluster runs one job while every JVM lists the classes it
    loads, and Java itself writes them, parsed and verified, into one file.
    """
    release = (java / "release").read_bytes() if (java / "release").exists() else os.fsencode(java)
    archive = lib.with_name(f"{lib.name}-java-{hashlib.sha256(release).hexdigest()[:8]}.jsa")
    with open(lib.parent / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if archive.exists():
            return archive
        print(f"Making the class archive {archive}", file=sys.stderr)
        with tempfile.TemporaryDirectory(prefix="apnc-hadoop-classes-") as scratch:
            lists = Path(scratch, "lists")
            lists.mkdir()
            trainer = Cluster(Path(scratch, "cluster"), version=version, nodes=1, class_archive=False)
            trainer.class_lists = lists
            with trainer:
                trainer.put("/in", b"a\t1\n")
                io = ["-input", "/in", "-output", "/out", "-mapper", "cat", "-reducer", "cat"]
                job = ["-D", "mapreduce.job.maps=1", "-D", "mapreduce.job.reduces=1", *io]
                trainer.hadoop("jar", trainer.streaming_jar, *job)
                trainer.hadoop("fs", "-cat", "/out/*")
            names = {line for part in lists.iterdir() for line in part.read_text().splitlines() if line[:1] != "#"}
            classes, made = Path(scratch, "classes"), Path(scratch, "archive")
            classes.write_text("\n".join(sorted(names)))
            command = [java / "bin/java", *JVM.split(), "-Xshare:dump", f"-XX:SharedClassListFile={classes}"]
            command += [f"-XX:SharedArchiveFile={made}", "-cp", f"{lib}/*"]
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
            if done.returncode or not made.exists():
                print(f"Java made no class archive; going on without:\n{done.stderr[-2000:]}", file=sys.stderr)
                return None
            partial = archive.with_suffix(".partial")
            shutil.copyfile(made, partial)
            partial.rename(archive)
    return archive


def _daemon_names(nodes: int) -> tuple[str, ...]:
    return ("nn", "rm", "hs", *(kind + str(i) for i in range(nodes) for kind in ("dn", "nm")))


def _free_ports(n: int) -> list[int]:
    """Return free ports below the range from which the kernel takes those of outgoing connections.

    One from that range could be taken by a daemon's own connection before the daemon is started again.
    """
    ports: set[int] = set()
    while len(ports) < n:
        port = random.SystemRandom().randrange(15000, 32768)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Java does
            try:
                probe.bind(("", port))
            except OSError:
                continue
        ports.add(port)
    return list(ports)


# Processes, read from /proc. A process may end at any moment: what can then not be read is empty.


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _link(pid: int, name: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/{name}")
    except OSError:
        return ""


def _cmdline(pid: int) -> list[str]:
    return [os.fsdecode(arg) for arg in _read(pid, "cmdline").split(b"\0")[:-1]]


def _environ(pid: int) -> dict[str, str]:
    pairs = (os.fsdecode(pair).partition("=") for pair in _read(pid, "environ").split(b"\0") if pair)
    return {name: value for name, _, value in pairs}


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on: before it stands the program's name, in any characters."""
    return _read(pid, "stat").rpartition(b")")[2].decode().split()


def _start_time(pid: int | None) -> float:
    """Return when a process was started, in seconds of time.time()."""
    stat = _stat(pid) if pid else []
    if not stat:
        return float("inf")
    with open("/proc/uptime") as f:
        uptime = float(f.read().split()[0])
    return time.time() - uptime + int(stat[19]) / os.sysconf("SC_CLK_TCK")


def _signature(pid: int, folder: Path) -> str:
    """Return which of the cluster's own JVMs a process is: a daemon's name, "client", or "" when it is none.

    A process that has ended but was not yet waited for has no command line, so it is none.
    """
    command = _cmdline(pid)
    if f"-Dapnc.cluster={folder}" not in command:
        return ""
    return next((a.partition("=")[2] for a in command if a.startswith("-Dapnc.daemon=")), "client")


def _container_node(pid: int, folder: Path) -> str | None:
    """Return the NodeManager in one of whose containers a process was started, None when it was not.

    HADOOP_HOME and the like are no sign: the shell of a user of the cluster has those.
    """
    data = f"{folder}/data/"
    env = _read(pid, "environ")
    if os.fsencode(data) in env:
        local = _environ(pid).get("LOCAL_DIRS", "")
        if local.startswith(data):
            return local[len(data) :].partition("/")[0]
    # The scripts that start a container, and what a task started with an empty environment. A user who looks around
    # in there has a terminal.
    cwd = _link(pid, "cwd").removesuffix(" (deleted)")
    stat = _stat(pid)
    if cwd.startswith(f"{data}nm") and "/appcache/" in cwd and stat and stat[4] == "0":
        return cwd[len(data) :].partition("/")[0]
    return None


def _application_of(container: str) -> str:
    """container_1700000000000_0001_01_000002, in some clusters container_e17_1700… → application_1700000000000_0001"""
    match = re.match(r"container_(?:e\d+_)?(\d+_\d+)_", container)
    return f"application_{match[1]}" if match else ""


def _end(pids, is_ours: Callable[[int], object], grace: float):
    """End processes: SIGTERM, and after the grace SIGKILL. None is signalled without being checked at that moment."""

    def signal_all(number):
        for pid in list(left):
            if is_ours(pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            else:
                left.discard(pid)

    left = set(pids)
    if grace:
        signal_all(signal.SIGTERM)
    deadline = time.monotonic() + grace
    while left:
        if time.monotonic() >= deadline:
            signal_all(signal.SIGKILL)
        time.sleep(0.02)
        left = {pid for pid in left if is_ours(pid)}


def stop(folder: Path, keep: bool = False, children: dict[str, subprocess.Popen] | None = None):
    """End every process of the cluster in a folder, then remove the folder, unless it was not made by a cluster."""

    def container(pid):
        return _container_node(pid, folder) is not None

    def daemon(pid):
        return _signature(pid, folder)

    # Twice at least: what was about to be started when the first list was made.
    for grace in (STOP_GRACE_SECONDS, 0, 0, 0):
        daemons = [pid for pid in _pids() if daemon(pid)]
        # The two masters last: the others have a last word for them, and would wait to be heard.
        masters = [pid for pid in daemons if daemon(pid) in ("nn", "rm")]
        _end(set(daemons) - set(masters), daemon, grace)
        _end(masters, daemon, grace)
        orphans = [pid for pid in _pids() if container(pid)]
        _end(orphans, container, 0)
        if grace == 0 and not daemons and not orphans:
            break
    for child in (children or {}).values():
        child.wait()
    if not keep and (folder / STATE).exists():
        _empty(folder)
        with contextlib.suppress(OSError):
            folder.rmdir()
    else:
        for pid_file in folder.glob("pids/*.pid"):
            pid_file.unlink(missing_ok=True)


def _empty(folder: Path):
    """Empty a cluster's folder, its mark last: an interrupted removal can be taken up again."""
    for entry in sorted(folder.iterdir(), key=lambda path: path.name == STATE):
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)


# HTTP, never through a proxy: everything is on this machine.

_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _request(url: str, method: str = "GET", data: bytes | None = None, headers: dict | None = None) -> bytes:
    request = urllib.request.Request(url, data, headers or {}, method=method)
    with _opener.open(request, timeout=60) as response:
        return response.read()


def _get_json(url: str):
    return json.loads(_request(url))


def _hdfs_error(error: urllib.error.HTTPError, path: str) -> Exception:
    body = error.read().decode(errors="replace")
    try:
        remote = json.loads(body)["RemoteException"]
    except (ValueError, KeyError):
        return ClusterError(f"{path}: {error} {body[:1000]}")
    if remote["exception"] == "FileNotFoundException":
        return FileNotFoundError(remote["message"])
    return ClusterError(f"{path}: {remote['exception']}: {remote['message']}")


# Command line


def default_folder() -> Path:
    named = os.environ.get("APNC_HADOOP_FOLDER")
    return Path(os.path.realpath(named or os.path.join(tempfile.gettempdir(), f"apnc-hadoop-{getpass.getuser()}")))


def _up(args) -> int:
    settings = dict(setting.split("=", 1) for setting in args.settings)
    cluster = Cluster(
        args.folder, version=args.version, settings=settings, enforce_memory=not args.no_memory_limits, keep=args.keep
    )
    began = time.monotonic()
    cluster.start()
    cluster.detach()
    print(f"Hadoop {cluster.version} is ready after {time.monotonic() - began:.1f} s", file=sys.stderr)
    print(cluster.exports())
    return 0


def _status(args) -> int:
    cluster = Cluster.attach(args.folder)
    pids = {name: cluster.daemon_pid(name) for name in cluster.daemons}
    for name, pid in pids.items():
        print(f"{name:4} {f'running, pid {pid}' if pid else 'not running'}")
    if all(pids.values()):
        print(f"NameNode {cluster.namenode_http}  ResourceManager {cluster.resourcemanager_http}")
        print(cluster.exports())
    return 0 if all(pids.values()) else 1


def _down(args) -> int:
    stop(args.folder, keep=args.keep)
    return 0


def _guard(args) -> int:
    if sys.stdin.buffer.read() != b"dismissed":
        stop(args.folder)
    return 0


def main(argv=None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hadoop.cluster", description="A Hadoop cluster for tests")
    parser.add_argument("command", choices=["up", "down", "status", "guard"], metavar="up|down|status")
    parser.add_argument("--folder", type=lambda p: Path(os.path.realpath(p)), default=default_folder())
    parser.add_argument(
        "--version", default=os.environ.get("APNC_HADOOP_VERSION", VERSION), help="up: Hadoop's version"
    )
    parser.add_argument("--no-memory-limits", action="store_true", help="up: containers may exceed their memory")
    parser.add_argument("--keep", action="store_true", help="keep the folder when the cluster ends or fails to start")
    parser.add_argument("-D", action="append", default=[], dest="settings", metavar="NAME=VALUE", help="up: a property")
    args = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return {"up": _up, "down": _down, "status": _status, "guard": _guard}[args.command](args)
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
