"""What ``apnc doctor`` looks at on a cluster: Hadoop, HDFS and YARN from here, and the nodes by a tiny job."""

from __future__ import annotations

import json
import os
import posixpath
import re
import shlex
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

from apnc import hdfs, packing
from apnc.doctor import SECONDS, probe
from apnc.doctor.nodes import NodeReports
from apnc.doctor.table import with_unit
from apnc.doctor.this_machine import assumed, stage_needs
from apnc.errors import ApncError, InputError, StageError
from apnc.packing import TASK_PACKAGES, version_key

MIB = 1 << 20
MOST_TASKS = 40  # of the tiny job

SCRIPT = """\
# Runs the probe with the interpreter given, and tells of one that cannot.
cat > /dev/null
echo "node ${NM_HOST:-$(hostname)}:${NM_PORT:-}"
"$@" 2> probe.err
code=$?
echo "code $code"
[ $code -eq 0 ] || tail -n 3 probe.err
exit 0
"""


class _Stop(Exception):
    """What comes after cannot be looked at."""


class ClusterCheck:
    """Looks at Hadoop, HDFS and YARN from here, and at the nodes by a tiny job.

    Parameters
    ----------
    table : Table
    options : mr_jobs.cluster.HadoopOptions
    settings : Settings
    data : Input or None
    splits : int or None
        Tasks of the tiny job.
    seconds : int
        Given to it.
    """

    def __init__(self, table, options, settings, data, splits=None, seconds=SECONDS):
        self.table, self.options, self.settings, self.data = table, options, settings, data
        self.splits, self.seconds = splits, seconds
        self.command = self.jar = self.filesystem = self.yarn = self.env = None
        self.root = self.folder = self.tag = ""
        self.nodes = []
        self.settings_of = {}

    def run(self) -> None:
        """Make all checks, as far as one does not need another that failed."""
        try:
            self._checks()
        except _Stop as reason:
            self.table.skip("nodes", f"not looked at: {reason}")

    def _checks(self):
        well = self._try("hadoop", self._hadoop) and self._try("streaming jar", self._streaming_jar)
        if self.options.env:
            well &= self._try("--env", self._env)
        try:
            well &= self._try("HDFS", self._hdfs)
            if self.command:
                well &= self._try("YARN", self._yarn)
                self._try("memory", self._memory)
            if not well:
                raise _Stop("what failed above comes first")
            self._try("tiny job", self._ask_nodes)
        finally:
            if self.filesystem is not None:
                with suppress(ApncError):
                    self.filesystem.delete(self.folder)

    def _try(self, name, check):
        """Make a check; return whether it went well. Whatever it raises is a line of the table."""
        before = len(self.table.failures)
        try:
            check()
        except ApncError as error:
            self.table.fail(name, str(error), error.exit_status)
        except Exception as error:
            self.table.fail(name, f"{type(error).__name__}: {error}", StageError.exit_status)
        return len(self.table.failures) == before

    # from here

    def _hadoop(self):
        from mr_jobs.cluster import found_hadoop

        command = found_hadoop(self.options)
        try:
            done = subprocess.run(
                [command, "version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise InputError(f"{command} cannot be run ({error}): name another with --hadoop-bin") from None
        version = re.search(r"^Hadoop (\S+)", done.stdout, re.MULTILINE)
        if done.returncode or not version:
            said = (done.stderr or done.stdout).strip().splitlines()[-1:] or [f"status {done.returncode}"]
            raise InputError(f"{command} version: {said[0]}: set JAVA_HOME, or name another with --hadoop-bin")
        self.command = command
        if version_key(version[1]) < (3,):
            self.table.warn("hadoop", f"{version[1]} ({command}): tried with Hadoop 3 only")
        else:
            self.table.ok("hadoop", f"{version[1]} ({command})")

    def _streaming_jar(self):
        from mr_jobs.cluster import found_hadoop, found_streaming_jar

        self.jar = found_streaming_jar(self.options, self.command or found_hadoop(self.options))
        self.table.ok("streaming jar", self.jar)

    def _env(self):
        self.env = packing.Env(self.options.env)
        self.table.ok("--env", f"{self.options.env}, for {self.env.manifest}")

    def _hdfs(self):
        from mr_jobs.cluster import new_folder

        self.root, self.folder, self.tag = new_folder(self.options)
        self.filesystem = hdfs.connect(self.root)
        path, content = posixpath.join(self.folder, "probe.py"), Path(probe.__file__).read_bytes()
        try:
            self.filesystem.write(path, content)
            if self.filesystem.read(path) != content:
                raise StageError("what was written is not what is read back")
            self.filesystem.write(posixpath.join(self.folder, "probe.sh"), SCRIPT.encode())
        except ApncError as error:
            raise type(error)(f"{error}: name a folder that can be written with --work-dir") from None
        where = posixpath.dirname(self.folder)
        if isinstance(self.filesystem, hdfs.WebHdfs):
            self.table.ok("HDFS", f"{self.root}{where} can be written, by WebHDFS at {self.filesystem.address}")
        else:
            self.table.warn(
                "HDFS",
                f"{self.root}{where} can be written, but by the hadoop command, which starts Java for every file: "
                "WebHDFS does not answer (dfs.webhdfs.enabled, dfs.namenode.http-address)",
            )

    def _yarn(self):
        from mr_jobs.yarn import Yarn

        self.yarn = Yarn(hdfs.configuration(), self.command)
        metrics = self.yarn.metrics()
        if metrics is None:
            self.table.warn(
                "YARN",
                "its web service does not answer (yarn.resourcemanager.webapp.address): passes will have fewer "
                "tasks, set --splits",
            )
            return
        answer = self.yarn._ask("/ws/v1/cluster/nodes?states=RUNNING") or {}
        self.nodes = (answer.get("nodes") or {}).get("node") or []
        text = f"{len(self.nodes)} nodes, {with_unit(metrics['totalMB'] * MIB)}, {metrics['totalVirtualCores']} cores"
        if not self.nodes:
            raise StageError("no node is running: see the ResourceManager's page of nodes")
        if metrics["availableMB"] < 1024:
            self.table.warn("YARN", f"{text}, all taken now: a run waits its turn")
        else:
            self.table.ok("YARN", f"{text}, {with_unit(metrics['availableMB'] * MIB)} free now")

    def _memory(self):
        """Compare what passes ask for with what a container may have."""
        from apnc.hadoop_settings import CONTAINERS, check_containers, settings_for

        given, largest, asked = self.options.jobconf, self.yarn.largest_container(), []
        for stage, reduces, needs in stage_needs(self.settings, self.data):
            found = settings_for(needs, maps=1, reduces=int(reduces)) | given
            self.settings_of[stage] = found
            for name, whose in CONTAINERS:
                if found.get(name, "").isdigit():
                    asked.append((int(found[name]), f"{whose} of {stage}" if name.startswith("mapreduce.") else whose))
        most, whose = max(asked)
        try:
            for stage, found in self.settings_of.items():
                check_containers(stage, found, given, largest)
        except InputError as error:
            if not assumed(self.data):
                raise
            self.table.warn("memory", f"{error}{assumed(self.data)}")
            return
        has = f"a container may have {largest}" if largest else "what a container may have is not known"
        self.table.ok("memory", f"up to {most} MiB for {whose}{assumed(self.data)}; {has}")

    # the tiny job

    def _ask_nodes(self):
        reports = self._run_job()
        if not reports:
            raise StageError("the tiny job has told nothing")
        NodeReports(self.table, self.options.python_bin, self.env, self.data, reports).tell(len(self.nodes))

    def _run_job(self):
        """Run the tiny job; return what its tasks told, one report a task."""
        tasks = self.splits or min(MOST_TASKS, max(4, 2 * len(self.nodes)))
        lines = "".join(f"{i}\n" for i in range(tasks)).encode()
        self.filesystem.write(posixpath.join(self.folder, "tasks.txt"), lines)
        output = posixpath.join(self.folder, "output")
        self.table.going_on("asking the nodes by a tiny job")
        began = time.monotonic()
        heard = _Heard([self.command, *self._arguments(output)])
        try:
            status = heard.wait(self.seconds)
        except BaseException:
            self.yarn.end(self.tag, heard.application)
            heard.kill()
            raise
        if status is None:
            state = self._state(heard.application)
            self.yarn.end(self.tag, heard.application)
            heard.kill()
            raise StageError(
                f"was not over after {self.seconds} s ({state}): see whether the queue has room (--jobconf "
                "mapreduce.job.queuename=NAME), or give it longer with --timeout"
            )
        if status:
            raise StageError(self._why(heard))
        self.table.ok("tiny job", f"{tasks} tasks in {time.monotonic() - began:.0f} s ({heard.application})")
        return [parsed(text) for text in self._texts(output)]

    def _arguments(self, output):
        from mr_jobs.cluster import NLINE, ClusterLauncher

        launcher = ClusterLauncher(self.options, self.filesystem, self.root, self.folder, self.tag)
        try:
            archives = launcher.shared_packages()
        finally:
            launcher.close()
        settings = self.settings_of.get("assign", {}) | {
            "mapreduce.job.tags": self.tag,
            "mapreduce.job.name": "apnc doctor",
            "mapreduce.input.lineinputformat.linespermap": "1",
            "mapreduce.map.maxattempts": "1",
            "mapreduce.map.speculative": "false",
            "stream.map.input.ignoreKey": "true",
        }
        settings |= self.options.jobconf
        files = [self.root + posixpath.join(self.folder, name) for name in ("probe.py", "probe.sh")]
        wanted = ["import=mr_jobs.base", *(f"import={p.module}" for p in TASK_PACKAGES)]
        if isinstance(self.filesystem, hdfs.WebHdfs):
            wanted.append(f"read={self.filesystem.uri(posixpath.join(self.folder, 'tasks.txt'))}")
        words = ["sh", "probe.sh", self.options.python_bin, "probe.py", *wanted]
        out = ["jar", self.jar]
        out += [word for name, value in settings.items() for word in ("-D", f"{name}={value}")]
        out += ["-files", ",".join(files), "-archives", ",".join(archives), "-inputformat", NLINE]
        out += ["-input", self.root + posixpath.join(self.folder, "tasks.txt"), "-output", self.root + output]
        out += [word for name, value in launcher.environment() for word in ("-cmdenv", f"{name}={value}")]
        return [*out, "-mapper", shlex.join(words), "-reducer", "NONE"]

    def _texts(self, output):
        for status in self.filesystem.list(output):
            if status.name.startswith("part-") and status.size:
                yield self.filesystem.read(status.path).decode("utf-8", "replace")

    def _state(self, application):
        if application is None:
            return "it was not submitted yet"
        answer = self.yarn._ask(f"/ws/v1/cluster/apps/{application}") or {}
        app = answer.get("app") or {}
        said = re.sub(r"^\[[^\]]*\]\s*", "", app.get("diagnostics") or "").split("Details :")[0].strip()
        return f"{app.get('state', 'state not known')}{f': {said}' if said else ''}"

    def _why(self, heard):
        from mr_jobs.yarn import explained

        if heard.application is None:
            said = [line for line in heard.lines if re.search(r"\bERROR\b|Exception|Error\b", line)] or heard.lines[-1:]
            return f"was not submitted: {(said or ['it said nothing'])[-1]}"
        attempt = self.yarn.failed_attempt(heard.application, [])
        if attempt is None:
            return f"failed ({heard.application}): {self.yarn.diagnostics(heard.application) or heard.lines[-1:]}"
        cause, _ = explained(attempt, self.options.python_bin, self.options.jobconf)
        return f"failed ({attempt.place}; {heard.application}): {cause}"


class _Heard:
    """``hadoop jar`` as a child process, and what it says."""

    def __init__(self, command):
        from apnc.hadoop_settings import JVM

        env = dict(os.environ, HADOOP_ROOT_LOGGER="INFO,console")
        env["HADOOP_CLIENT_OPTS"] = f"{JVM} {env.get('HADOOP_CLIENT_OPTS', '')}".strip()
        self.application, self.lines = None, []
        # a session of its own: an interrupt from the terminal is for this process, which ends the application too
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=env,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        with self._process.stdout as lines:
            for line in lines:
                if found := re.search(r"Submitted application (application_\d+_\d+)", line):
                    self.application = found[1]
                self.lines = [*self.lines[-40:], line.strip()]

    def wait(self, seconds):
        """Return its status, None if it is not over by then."""
        try:
            status = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        self._reader.join()
        return status

    def kill(self):
        self._process.kill()
        self._process.wait()


def parsed(text: str) -> dict:
    """Return what one task told: its node, the status of its Python, facts, and what Python said at its end."""
    report = {"node": "", "code": 0, "facts": [], "said": ""}
    for line in text.splitlines():
        line = line.rstrip("\t")
        if line.startswith("{"):
            with suppress(ValueError):
                report["facts"].append(json.loads(line))
        elif line.startswith("node "):
            report["node"] = line[5:].strip(":")
        elif line.startswith("code "):
            report["code"] = int(line[5:])
        elif line.strip():
            report["said"] = line.strip()
    return report
