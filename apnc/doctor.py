"""``apnc doctor``: one line for each thing a run needs, fine or with what to do about it.

On this machine the packages are imported and memory is compared with what a run would take. On a Hadoop cluster a
tiny job does the looking around: `apnc.probe`, which needs no more of a node than some Python, started by a shell
script that needs not even that, so that whatever is missing is told by name. Nothing stays on HDFS but the archive of
``--env``, which runs use too.
"""

from __future__ import annotations

import json
import os
import platform
import posixpath
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module, metadata
from pathlib import Path

import apnc
from apnc import hdfs, packing
from apnc.errors import ApncError, InputError, StageError
from apnc.packing import OLDEST_PYTHON, TASK_PACKAGES, TaskPackage, version_key

MIB = 1 << 20
DRIVER_PACKAGES = (  # here scikit-learn makes scores and estimators too
    *(p._replace(without="") if p.name == "scikit-learn" else p for p in TASK_PACKAGES),
    TaskPackage("rich", "rich", "13"),
)
ASSUMED_WIDTH, ASSUMED_ROWS = 1000, 10**6  # where no input is given
MOST_TASKS = 40  # of the tiny job
MOST_NODES = 20  # with a line of their own
SECONDS = 300
NAME_COLUMNS = 19

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


def add_arguments(parser):
    """Add the options of ``apnc doctor``."""
    parser.add_argument(
        "inputs", nargs="*", metavar="INPUT", help="what a run is to cluster, for what it will take (may be left out)"
    )
    parser.add_argument("--sample", type=int, metavar="N", help="rows of the sample (10000)")
    parser.add_argument(
        "--timeout", type=int, default=SECONDS, metavar="S", help=f"seconds given to the tiny job ({SECONDS})"
    )


def main(options) -> None:
    """Run ``apnc doctor``.

    Raises
    ------
    InputError
        If something is wrong that the user's options or installation decide.
    StageError
        If only the cluster itself does not do its part.
    """
    from apnc.options import settings_from

    if options.timeout < 1:
        raise InputError(f"--timeout {options.timeout} must be at least 1")
    settings = settings_from(options)
    table = Table()
    runner = _checked_runner(options.runner)
    this_machine(table, options.runner)
    data = _input(table, options)
    if runner == "hadoop":
        from apnc.options import hadoop_options

        on_cluster = ClusterCheck(table, hadoop_options(options), settings, data, options.splits, options.timeout)
        on_cluster.run()
    else:
        memory_here(table, settings, data, options.memory)
    table.end()


def _checked_runner(name):
    from apnc.kernels import nearest_name

    known = ("in-process", "inline", "local", "hadoop")
    if name not in known:
        raise nearest_name("runner", name, known)
    return name


class Table:
    """The lines, printed as they come.

    Attributes
    ----------
    failures : list of int
        Exit status of each check that failed.
    """

    def __init__(self, columns: int | None = None):
        self._columns = columns or min(max(shutil.get_terminal_size((80, 24)).columns, 60), 120)
        self.checks, self.failures, self.warnings = 0, [], 0

    def ok(self, name: str, text: str) -> None:
        """Say that something is fine."""
        self._line("ok", name, text)

    def warn(self, name: str, text: str) -> None:
        """Say that a run would go, but."""
        self.warnings += 1
        self._line("warn", name, text)

    def fail(self, name: str, text: str, status: int = InputError.exit_status) -> None:
        """Say that a run would not go, and what to do."""
        self.failures.append(status)
        self._line("FAIL", name, text)

    def skip(self, name: str, text: str) -> None:
        """Say that something could not be looked at."""
        self._line("-", name, text)

    def going_on(self, text: str) -> None:
        """Say on a terminal what is being waited for, in the place of the next line."""
        if sys.stdout.isatty():
            print(f"      {text} …"[: self._columns], end="\r", flush=True)

    def _line(self, mark, name, text):
        self.checks += 1
        indent = " " * (6 + NAME_COLUMNS)
        head = f"{mark:<5} {name:<{NAME_COLUMNS - 1}} "
        lines = textwrap.wrap(
            " ".join(str(text).split()), self._columns - len(indent), break_long_words=False, break_on_hyphens=False
        )
        print(head + f"\n{indent}".join(lines or [""]), flush=True)

    def end(self) -> None:
        """Raise the error that sums up what failed, if anything did."""
        if self.failures:
            error = InputError if InputError.exit_status in self.failures else StageError
            plural = "" if len(self.failures) == 1 else "s"
            raise error(f"{len(self.failures)} check{plural} of {self.checks} failed, see the lines marked FAIL")
        warned = f", {self.warnings} with a warning" if self.warnings else ""
        print(f"{self.checks} checks, all fine{warned}")


# This machine


def this_machine(table: Table, runner: str) -> None:
    """Check interpreter and packages of this process."""
    found = platform.python_version()
    table.ok("apnc", f"{apnc.__version__} ({Path(apnc.__file__).parent})")
    if sys.version_info[:2] < OLDEST_PYTHON:
        table.fail("Python", f"{found} ({sys.executable}): 3.11 or newer is needed")
    else:
        table.ok("Python", f"{found} ({sys.executable})")
    for package in DRIVER_PACKAGES:
        _package_here(table, package)
    _mrjob_here(table, runner)
    _blas(table)


def _package_here(table, package):
    try:
        module = import_module(package.module)
        version = _version(module, package.name)
    except Exception as error:
        from apnc.probe import reason

        text = f"cannot be imported ({reason(error)})"
        if isinstance(error, ModuleNotFoundError):
            text = "is not installed"
        if package.without:
            table.warn(package.name, f"{text}: {package.without}")
        else:
            table.fail(package.name, f"{text}: {sys.executable} -m pip install '{package.name}>={package.least}'")
        return
    _say_version(table, package, version, f"{sys.executable} -m pip install -U {package.name}")


def _version(module, name):
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(name)
    return str(getattr(module, "__version__", ""))


def _is_old(package, version):
    return bool(version_key(version)) and version_key(version) < version_key(package.least)


def _say_version(table, package, version, remedy):
    if _is_old(package, version):
        text = f"{version}: {package.least} or newer is needed: {remedy}"
        (table.warn if package.without else table.fail)(package.name, text)
    else:
        table.ok(package.name, version)


def _mrjob_here(table, runner):
    try:
        import_module("mr_jobs.base")
        import mrjob
    except Exception as error:
        if runner == "in-process":
            table.warn("mrjob", f"{error}: only --runner in-process works")
        else:
            table.fail("mrjob", f"{error}, or choose --runner in-process")
        return
    table.ok("mrjob", mrjob.__version__)


def _blas(table):
    """Say which BLAS does the work: passes give each of its calls one thread, and have a thread for each core."""
    cores = len(os.sched_getaffinity(0))
    try:
        from threadpoolctl import threadpool_info

        found = [i for i in threadpool_info() if i.get("user_api") == "blas"]
    except Exception:
        found = []
    libraries = sorted({f"{i['internal_api']} {i.get('version') or ''}".strip() for i in found})
    text = f"{', '.join(libraries)}; passes use {cores} threads, one for each core"
    quota = _core_quota()
    if not libraries:
        table.warn("BLAS", "none that threadpoolctl knows: set OMP_NUM_THREADS=1, or threads fight over the cores")
    elif quota and quota < 0.75 * cores:
        table.warn("BLAS", f"{text}, but this container may use only {quota:.3g}: start it with as many (taskset)")
    else:
        table.ok("BLAS", text)


def _core_quota():
    """Return the cores that a control group allows, None without a limit."""
    with suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return int(quota) / int(period)
    return None


def available_memory() -> int | None:
    """Return the bytes that a process may take now, None where that is not known."""
    amounts = []
    with suppress(OSError, ValueError, AttributeError):
        found = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
        amounts.append(int(found[1]) << 10)
    with suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        amounts.append(int((group / "memory.max").read_text()) - int((group / "memory.current").read_text()))
    return min(amounts, default=None)


def memory_here(table: Table, settings, data, budget_mib: int) -> None:
    """Compare what a run in this process would take with what there is, and say where a large embedding goes."""
    threads = len(os.sched_getaffinity(0))
    first, *later = [needs for _, _, needs in stage_needs(settings, data)]
    asked = max(first.reduce, (budget_mib << 20) + threads * max(needs.map for needs in later))
    there = available_memory()
    text = f"a run takes up to about {_size(asked)}{_assumed(data)}"
    if there is None:
        table.ok("memory", text)
    elif asked > there:
        table.warn("memory", f"{text}, {_size(there)} are free: lower --landmarks, --dim, --sample or --memory")
    else:
        table.ok("memory", f"{text}; {_size(there)} are free")
    folder = tempfile.gettempdir()
    try:
        with tempfile.TemporaryFile():
            table.ok("temporary", f"{folder}, {_size(shutil.disk_usage(folder).free)} free")
    except OSError as error:
        table.fail("temporary", f"{folder} cannot be written ({error.strerror}): name another folder in TMPDIR")


def _input(table, options):
    """Return the input given, described; None without one, or if it cannot be read."""
    if not options.inputs:
        return None
    from apnc.options import described_input

    try:
        data = described_input(options)
    except (ApncError, OSError) as error:
        table.fail("input", str(error))
        return None
    size = sum(file.size for file in data.files)
    width = data.spec.width
    features = f"{width} features" if width else "features not known before the sample"
    count = "one file" if len(data.files) == 1 else f"{len(data.files)} files"
    table.ok("input", f"{data.spec.format}, {count}, {_size(size)}, {features}")
    return data


def stage_needs(settings, data):
    """Yield (stage, whether it has reduce tasks, `Needs`) of the passes of a run with these settings.

    Parameters
    ----------
    settings : Settings
    data : Input or None
        `ASSUMED_ROWS` rows of `ASSUMED_WIDTH` numbers without it.
    """
    from apnc.hadoop_settings import needs_of, passes_ahead

    width, sparse, rows, row_bytes = ASSUMED_WIDTH, False, ASSUMED_ROWS, 8.0 * ASSUMED_WIDTH
    if data is not None:
        width, sparse = data.spec.width or ASSUMED_WIDTH, data.spec.sparse
        rows, row_bytes = data.estimated_rows(), data.bytes_per_row()
    for step in passes_ahead(settings, width, sparse, rows):
        yield step.stage, hasattr(step, "merge"), needs_of(step, row_bytes, rows)


def _assumed(data):
    known = data is not None and data.spec.width
    return "" if known else f" (for rows of {ASSUMED_WIDTH} numbers; name the INPUT for its own)"


def _size(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            break
        count /= 1024
    return f"{count:.0f} {unit}" if count >= 100 or unit == "bytes" else f"{count:.3g} {unit}"


# A cluster


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
        path, content = posixpath.join(self.folder, "probe.py"), Path(__file__).with_name("probe.py").read_bytes()
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
        text = f"{len(self.nodes)} nodes, {_size(metrics['totalMB'] * MIB)}, {metrics['totalVirtualCores']} cores"
        if not self.nodes:
            raise StageError("no node is running: see the ResourceManager's page of nodes")
        if metrics["availableMB"] < 1024:
            self.table.warn("YARN", f"{text}, all taken now: a run waits its turn")
        else:
            self.table.ok("YARN", f"{text}, {_size(metrics['availableMB'] * MIB)} free now")

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
            if not _assumed(self.data):
                raise
            self.table.warn("memory", f"{error}{_assumed(self.data)}")
            return
        has = f"a container may have {largest}" if largest else "what a container may have is not known"
        self.table.ok("memory", f"up to {most} MiB for {whose}{_assumed(self.data)}; {has}")

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
        return [_parsed(text) for text in self._texts(output)]

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


def _parsed(text: str) -> dict:
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


class NodeReports:
    """Turns what tasks told into lines of the table.

    Parameters
    ----------
    table : Table
    python : str
        The interpreter asked for.
    env : apnc.packing.Env or None
    data : Input or None
    reports : iterable of dict
        As `_parsed` makes them.
    """

    def __init__(self, table: Table, python: str, env, data, reports: Iterable[dict]):
        self.table, self.python, self.env, self.data = table, python, env, data
        self.reports = {report["node"]: report for report in reports}  # one a node
        self.facts = {node: _by_name(report) for node, report in sorted(self.reports.items())}

    def tell(self, running: int) -> None:
        """Say all of it.

        Parameters
        ----------
        running : int
            Nodes there are; 0 where that is not known.
        """
        of = f" of {running}" if running else ""
        self.table.ok(
            "nodes", f"{len(self.reports)}{of} answered{'' if self._all(running) else '; more with --splits'}"
        )
        self._python()
        started = {node: facts for node, facts in self.facts.items() if "python" in facts}
        self._each(started)
        started = {node: facts for node, facts in started.items() if _minor(facts["python"]) >= OLDEST_PYTHON}
        started = self._fitting(started)
        if not started:
            self.table.skip("node packages", "not looked at: what failed above comes first")
            return
        self._import(started, "mr_jobs.base", "apnc, mrjob", "", "")
        for package in TASK_PACKAGES:
            remedy = "bring it along (apnc pack-env, then --env), or install it"
            if self.env is not None:
                remedy = "make the archive of --env again with apnc pack-env"
            self._import(started, package.module, package.name, package.without, remedy, package)
        self._limits(started)
        self._reading(started)

    def _all(self, running):
        return len(self.reports) >= running

    def _python(self):
        by_fault, versions = {}, {}
        for node, report in self.reports.items():
            fact = self.facts[node].get("python")
            if fact is None:
                code = report["code"]
                text = f"cannot be run (code {code}{': ' + report['said'] if report['said'] else ''})"
                by_fault.setdefault(text, []).append(node)
            elif _minor(fact) < OLDEST_PYTHON:
                by_fault.setdefault(f"is {fact['version']}, 3.11 or newer is needed", []).append(node)
            else:
                versions.setdefault(f"{fact['version']} ({fact['executable']})", []).append(node)
        for text, nodes in by_fault.items():
            self.table.fail("node Python", f"{self.python} {text}{self._on(nodes)}: name another with --python-bin")
        if versions:
            self.table.ok("node Python", self._spread(versions))

    def _each(self, started):
        for node, facts in list(started.items())[:MOST_NODES]:
            fact = facts["python"]
            libc = f", {fact['libc']}" if fact.get("libc") else ""
            size = (
                f", {fact['cores']} cores, {_size(fact['memory'])}" if fact.get("cores") and fact.get("memory") else ""
            )
            self.table.ok("node", f"{node}: Python {fact['version']}, {fact['system']} {fact['machine']}{libc}{size}")
        if len(started) > MOST_NODES:
            self.table.ok("node", f"and {len(started) - MOST_NODES} more")

    def _fitting(self, started):
        """Return the nodes that can use the archive of --env, which are all of them without one."""
        if self.env is None or not started:
            return started
        manifest, faults = self.env.manifest, {}
        for node, facts in started.items():
            fact = facts["python"]
            fault = manifest.misfit(fact["minor"], fact["system"], fact["machine"], fact.get("libc", ""))
            if fault:
                faults.setdefault((fault, _remedy(manifest, fact)), []).append(node)
        for (fault, remedy), nodes in faults.items():
            other = f"name Python {manifest.python} with --python-bin, or make another: " if "Python" in fault else ""
            self.table.fail("node --env", f"{fault}{self._on(nodes)}: {other}{remedy}")
        if not faults:
            self.table.ok("node --env", "fits")
        unfit = {node for nodes in faults.values() for node in nodes}
        return {node: facts for node, facts in started.items() if node not in unfit}

    def _import(self, started, module, name, without, remedy, package=None):
        good, old, bad = {}, {}, {}
        for node, facts in started.items():
            fact = facts.get(module) or {"error": "not tried, since Python ended before"}
            if "trying" in fact:
                fact = {"error": f"ends the interpreter (code {self.reports[node]['code']})"}
            if "error" in fact:
                bad.setdefault(_missing(fact["error"], module), []).append(node)
            elif package is not None and _is_old(package, fact["version"]):
                old.setdefault(fact["version"], []).append(node)
            else:
                good.setdefault(self._origin(fact, module), []).append(node)
        say = self.table.warn if without else self.table.fail
        for version, nodes in old.items():
            say(f"node {name}", f"{version}{self._on(nodes)}, {package.least} or newer is needed: {remedy}")
        for text, nodes in bad.items():
            say(f"node {name}", f"{text}{self._on(nodes)}: {without or remedy or 'name another with --python-bin'}")
        if good:
            self.table.ok(f"node {name}", self._spread(good))

    def _origin(self, fact, module):
        if module == "mr_jobs.base":
            return "travel with every job"
        return fact["version"] + (" from --env" if packing.FOLDER in fact["place"] else "")

    def _limits(self, started):
        limits = {}
        for node, facts in started.items():
            if facts["python"].get("limit"):
                limits.setdefault(facts["python"]["limit"], []).append(node)
        for limit, nodes in limits.items():
            self.table.warn("node limit", f"a process may address {_size(limit)} only (ulimit -v){self._on(nodes)}")

    def _reading(self, started):
        faults = {}
        for node, facts in started.items():
            fact = facts.get("read")
            if fact and ("error" in fact):
                faults.setdefault(fact["error"], []).append(node)
        binary = self.data is not None and self.data.spec.format not in ("csv", "svmlight")
        for error, nodes in faults.items():
            text = f"cannot be read{self._on(nodes)} ({error}), as npy and bz2 input is: open the NameNode's HTTP port"
            (self.table.fail if binary else self.table.warn)("node WebHDFS", f"{text} to it, or use csv or svmlight")
        if not faults and any("read" in facts for facts in started.values()):
            self.table.ok("node WebHDFS", "can be read")

    def _on(self, nodes):
        if len(nodes) == len(self.reports):
            return " on all nodes" if len(nodes) > 1 else f" on {nodes[0]}"
        shown = ", ".join(nodes[:3])
        return f" on {shown}" + (f" and {len(nodes) - 3} more" if len(nodes) > 3 else "")

    def _spread(self, values):
        if len(values) == 1:
            return next(iter(values))
        return "; ".join(f"{text}{self._on(nodes)}" for text, nodes in values.items())


def _minor(fact):
    return tuple(int(part) for part in fact["minor"].split("."))


def _by_name(report):
    """Return a task's facts by what they are of; what was begun and never told is left as begun."""
    out = {}
    for fact in report["facts"]:
        if fact["what"] == "trying":
            name = "read" if fact["kind"] == "read" else fact["name"]
            out[name] = {"trying": True}
        elif fact["what"] in ("python", "read"):
            out[fact["what"]] = fact
        else:
            out[fact["name"]] = fact
    return out


def _missing(error, module):
    found = re.match(r"(?:ModuleNotFoundError|ImportError): No module named '?([^'\s]+)", error)
    if not found:
        return f"cannot be imported ({error})"
    return "is missing" if found[1] == module.partition(".")[0] else f"needs {found[1]}, which is missing"


def _remedy(manifest, fact):
    """Return the command that makes an archive for a node."""
    words = (
        ["apnc pack-env", f"--python-version {fact['minor']}"]
        if fact["minor"] != manifest.python
        else ["apnc pack-env"]
    )
    libc = fact.get("libc", "")
    if (fact["system"], fact["machine"]) != (manifest.system, manifest.machine) or manifest.misfit(
        manifest.python, fact["system"], fact["machine"], libc
    ):
        version = libc.removeprefix("glibc ") if libc.startswith("glibc ") else "2.17"
        words.append(f"--platform manylinux_{'_'.join(version.split('.')[:2])}_{fact['machine']}")
    return " ".join(words)
