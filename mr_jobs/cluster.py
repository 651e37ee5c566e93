"""Launches passes as jobs on a Hadoop cluster and brings their results home.

A pass costs one JVM: everything goes to HDFS by WebHDFS before, its result comes from there after. What many passes
share (packages, what the input is, units) is written once for a run. Every job has a folder of its own attempt in the
folder of the run; what it makes to stay is moved out of it by one rename.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import posixpath
import re
import secrets
import shlex
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from apnc import hdfs, packing
from apnc.errors import ApncError, InputError, StageError
from apnc.hadoop_settings import ENVIRONMENT, check_containers, map_tasks, needs_of, reduce_tasks, settings_for
from apnc.packing import Env
from apnc.readers.archive import DAMAGED, TRUNCATED, compression
from apnc.readers.spec import InputSpec
from mr_jobs.base import COUNTERS, ERROR, raise_error
from mr_jobs.driver import described_pass, made_runner, packages, records, result_of
from mr_jobs.shims import mrjob_imports
from mr_jobs.yarn import ENDS_EARLY, Yarn, damage, explained

with mrjob_imports():
    import mrjob

TEXT, UNITS, BLOCKS = "text", "units", "blocks"
NLINE = "org.apache.hadoop.mapred.lib.NLineInputFormat"
READ_BYTES = 1 << 20
WORK = "tmp/apnc"  # in the user's home on HDFS, as mrjob's and Hadoop's own temporary folders are
_PLAIN = re.compile(r"[\w./+=@-]+", re.ASCII)  # these names stand in lists and URIs of Hadoop's
_STREAMING_JAR = re.compile(r"hadoop-streaming.*(?<!sources)(?<!tests)\.jar")
_JAR_FOLDERS = (
    "share/hadoop/tools/lib",
    "share/hadoop/mapreduce",
    "contrib/streaming",
    "../hadoop-mapreduce",
    "",
)
_COMMON_JAR_FOLDERS = (
    "/usr/lib/hadoop-mapreduce",
    "/usr/hdp/current/hadoop-mapreduce-client",
    "/opt/cloudera/parcels/CDH/lib/hadoop-mapreduce",
    "/usr/lib/hadoop/tools/lib",
)


@dataclass
class HadoopOptions:
    """What a user may say about the cluster.

    Parameters
    ----------
    hadoop_bin : str or None
        The ``hadoop`` command; that on PATH or in HADOOP_HOME by default.
    streaming_jar : str or None
        Looked for where distributions have it.
    python_bin : str
        The interpreter on the nodes.
    jobconf : dict
        Settings of Hadoop's that replace ours.
    work : str or None
        Folder on HDFS in which runs have theirs; ``tmp/apnc`` in the user's home by default.
    replication : int or None
        Of intermediates.
    combiner : bool
        Start the combiner of a job that has one. Map tasks have summed already, so that it finds nothing to do.
    runner_args : list of str
        More options of mrjob's.
    env : str or None
        Archive of packages for tasks (`apnc.packing`), a file of this machine or on HDFS.
    """

    hadoop_bin: str | None = None
    streaming_jar: str | None = None
    python_bin: str = "python3"
    jobconf: dict = field(default_factory=dict)
    work: str | None = None
    replication: int | None = None
    combiner: bool = False
    runner_args: list = field(default_factory=list)
    env: str | None = None


@dataclass
class Source:
    """What a pass goes over.

    Attributes
    ----------
    kind : {'text', 'units', 'blocks'}
        Lines of text or blocks of an embedding, by streaming's own input; or units, which tasks read by WebHDFS.
    spec : InputSpec
    bytes : int
    row_bytes : float
    paths : list of str
        URIs, for streaming's own input.
    files : dict
        By path: source and offset of the first line (text).
    units : callable
        Returns the units for a number of tasks.
    """

    kind: str
    spec: InputSpec
    bytes: int
    row_bytes: float = 1.0
    paths: list = field(default_factory=list)
    files: dict = field(default_factory=dict)
    units: object = None


class ClusterLauncher:
    """Runs passes on a Hadoop cluster.

    Parameters
    ----------
    options : HadoopOptions
    filesystem : WebHdfs or HadoopFs
    root : str
        What stands before paths of this file system in URIs: ``hdfs://`` or ``hdfs://host:port``.
    folder : str
        The run's folder, a path.
    tag : str
        Of its applications.
    splits : int, optional
        Map tasks wanted.

    Raises
    ------
    InputError
        If there is no hadoop command or no streaming jar, or ``env`` is no archive of packages.
    """

    def __init__(self, options: HadoopOptions, filesystem, root: str, folder: str, tag: str, splits: int | None = None):
        self.options, self.filesystem, self.splits = options, filesystem, splits
        self.root, self.folder, self.tag = root, folder, tag
        self.command = found_hadoop(options)
        self.jar = found_streaming_jar(options, self.command)
        self.env = Env(options.env) if options.env else None
        self.properties = hdfs.configuration()
        self.yarn = Yarn(self.properties, self.command)
        self._local = tempfile.TemporaryDirectory(prefix="apnc-")
        self._archives, self._written, self._slots = None, set(), None
        self._largest = ()  # not asked for yet
        self.application = None

    def close(self):
        """Remove temporary files of this machine."""
        self._local.cleanup()

    def uri(self, path: str) -> str:
        """Return the URI that Hadoop's own commands and tasks take."""
        return self.root + path

    def fold(self, job_class, fold, source: Source, listener):
        """Run a Fold; return its result and what Hadoop counted."""
        with self._run(job_class, fold, source, listener) as (output, counted):
            return result_of(job_class, fold, self._records(output)), counted

    def map(self, job_class, step, source: Source, listener, output: str, intermediate=False) -> dict:
        """Run a Map; its shards are ``output/part-*``, whole or absent. Return what Hadoop counted."""
        with self._run(job_class, step, source, listener, intermediate) as (made, counted):
            self.filesystem.delete(output)
            self.filesystem.mkdirs(posixpath.dirname(output))
            if not self.filesystem.rename(made, output):
                raise StageError(f"{step.stage}: {made} cannot be renamed to {output} on HDFS")
            return counted

    def end_applications(self) -> list[str]:
        """End what still runs under the run's tag; return the ids of applications that would not end."""
        return self.yarn.end(self.tag, self.application)

    @contextmanager
    def _run(self, job_class, step, source, listener, intermediate=False):
        """Run a job; give the folder of its output and its counters; its attempt's folder is gone afterwards."""
        attempt = posixpath.join(self.folder, f"attempt-{step.stage}-{secrets.token_hex(4)}")
        self.filesystem.mkdirs(attempt)
        try:
            counted = self._launch(job_class, step, source, listener, attempt, intermediate)
            yield posixpath.join(attempt, "output"), counted
        finally:
            with suppress(ApncError):
                self.filesystem.delete(attempt)

    def _launch(self, job_class, step, source, listener, attempt, intermediate):
        needs = needs_of(step, source.row_bytes, int(source.bytes / source.row_bytes))
        maps = map_tasks(source.bytes, self.slots(), self.splits)
        reduces = 0 if not hasattr(step, "merge") else 1
        if step.stage in ("kmeans", "moments"):
            reduces = reduce_tasks(step, maps, self.slots())
        settings = settings_for(
            needs, maps=maps, reduces=reduces, replication=self.replication() if intermediate else None
        )
        settings |= {
            "mapreduce.job.tags": self.tag,
            "mapreduce.job.name": f"apnc {step.stage}",
            "stream.map.input.ignoreKey": "false" if source.kind == TEXT else "true",
        }
        if source.kind == UNITS:
            settings["mapreduce.input.lineinputformat.linespermap"] = "1"
        settings |= self.options.jobconf
        check_containers(step.stage, settings, self.options.jobconf, self.largest_container())
        output = posixpath.join(attempt, "output")
        args = ["-r", "hadoop", "--no-conf", "--no-bootstrap-mrjob", "--hadoop-bin", shlex.quote(self.command)]
        args += ["--hadoop-streaming-jar", self.jar, "--python-bin", shlex.quote(self.options.python_bin)]
        args += ["--local-tmp-dir", self._local.name, "--output-dir", self.uri(output), "--no-cat-output"]
        args += [arg for name, value in self.environment() for arg in ("--cmdenv", f"{name}={value}")]
        args += ["--input-spec", self._described_input(source)]
        args += [job_class.pass_option, self._described_pass(job_class, step, attempt)]
        args += [*self.options.runner_args, *self._inputs(source, maps)]
        try:
            job = job_class(args)
        except ValueError as error:
            raise InputError(f"mrjob: {error}") from None
        job.packages = self.shared_packages()
        job.settings = settings
        job.combines = self.options.combiner and getattr(job, "combines", False)
        job.input_format = NLINE if source.kind == UNITS else None
        counters = self._completed(made_runner(job), step, source, settings, listener)
        ours = counters.get(COUNTERS, {})
        listener.rows(ours.get("rows", 0))
        if ours.get("errors"):
            for key, value in self._records(output):
                if key == ERROR:
                    raise_error(bytes(value))
        return counted(counters, source.bytes if source.kind == UNITS else 0)

    def _completed(self, runner, step, source, settings, listener):
        """Run it to its end and return its counters; end the application when this process is to end."""
        from mr_jobs.hadoop import JobFailed

        self.application = None

        def submitted(application):
            self.application = application
            listener.application(application)

        runner.on_application = submitted
        runner.on_percent = lambda mapped, reduced: listener.percent(mapped, reduced)
        with runner:
            try:
                runner.run()
                return runner.counters()[0] or {}
            except JobFailed as failure:
                raise self._error(step, source, failure, settings) from None
            except ApncError:
                raise
            except Exception as error:
                self.end_applications()
                raise StageError(f"{step.stage}: {type(error).__name__}: {error}") from error
            except BaseException:
                left = self.end_applications()
                if left:
                    listener.told(f"still running, end it with yarn application -kill: {' '.join(left)}")
                raise

    def _error(self, step, source, failure, settings):
        """Return the error that says why a job failed."""
        application = failure.application
        if application is None:
            said = [line for line in failure.lines if re.match(r"ERROR |Exception in|\S*(Exception|Error)\b", line)]
            said = said or failure.lines[-3:] or ["it said nothing"]
            return StageError(f"{step.stage}: the job was not submitted: {said[-1].splitlines()[0]}")
        attempt = self.yarn.failed_attempt(application, failure.attempts)
        if attempt is None:
            said = self.yarn.diagnostics(application) or (failure.lines or ["no reason was given"])[-1]
            return StageError(f"{step.stage}: the job failed ({application}): {_shortened(said)}")
        packed = {path: name for path, (name, _) in source.files.items() if compression(path)}
        if packed and (words := damage(attempt)) is not None:
            name = self._read_by(attempt, application, packed)
            found, rule = ("it ends early", TRUNCATED) if words == ENDS_EARLY else (words, DAMAGED)
            return InputError(f"{name}: found {found}; {rule}")
        cause, traceback = explained(attempt, self.options.python_bin, settings)
        original = re.search(r"Original error was: (.*)", attempt.log)
        if original and re.match(r"ImportError:\s+\(", cause):  # NumPy's begins with an empty line, and is a page long
            cause, traceback = re.sub(r":\s+", lambda _: f": {original[1]} ", cause, count=1), ""
        text = f"{step.stage}: {attempt.kind} task failed ({attempt.place}; {application}): {cause}"
        return StageError(f"{text}\n{traceback}" if traceback else text)

    def _read_by(self, attempt, application, packed):
        """Return what the compressed file is called that a map attempt has read; ``packed`` has their names by path."""
        if len(packed) == 1:
            return next(iter(packed.values()))
        uri = self.yarn.input_of(application, attempt)
        return packed.get(uri and hdfs.split(uri)[1]) or f"one of the {len(packed)} compressed files of the input"

    # what tasks need

    def slots(self) -> int:
        """Return about how many map tasks the cluster runs at a time."""
        if self._slots is None:
            self._slots = self.yarn.slots(1024)
        return self._slots

    def largest_container(self) -> int | None:
        """Return the MiB of the largest container that the cluster gives, None where that is not known."""
        if self._largest == ():
            self._largest = self.yarn.largest_container()
        return self._largest

    def replication(self) -> int:
        from apnc.hadoop_settings import INTERMEDIATE_REPLICATION

        return self.options.replication or INTERMEDIATE_REPLICATION

    def environment(self) -> list[tuple[str, str]]:
        """Return the environment variables of tasks."""
        return [*ENVIRONMENT, *(self.env.variables if self.env else ())]

    def shared_packages(self) -> list[str]:
        """Return the archives that travel with every job, as URI#NAME; on HDFS they are written the first time.

        A run has ours in its own folder. The archive of ``env`` is kept from run to run: it is a hundred times larger.
        """
        if self._archives is None:
            self._archives = []
            if self.env is not None:
                uri = self.env.on_hdfs(self.filesystem, self.root, posixpath.dirname(self.folder))
                self._archives.append(f"{uri}#{packing.FOLDER}")
            for archive in packages(mrjob):
                path = posixpath.join(self.folder, "packages", archive.name)
                with open(archive, "rb") as file:
                    self.filesystem.write(path, file, overwrite=True)
                self._archives.append(f"{self.uri(path)}#{archive.stem}")
        return self._archives

    def _described_input(self, source):
        described = source.spec.to_dict()
        if source.kind != UNITS:
            described["streamed"] = {"files": source.files}
        # tasks look sources up by path; the list of all of them is the driver's
        described["sources"] = []
        return self._shared("input", "json", json.dumps(described).encode())

    def _described_pass(self, job_class, step, attempt):
        folder = tempfile.mkdtemp(dir=self._local.name)
        local = described_pass(job_class, step, Path(folder))
        path = posixpath.join(attempt, local.name)
        with open(local, "rb") as file:
            self.filesystem.write(path, file)
        local.unlink()
        os.rmdir(folder)
        return self.uri(path)

    def _inputs(self, source, maps):
        if source.kind != UNITS:
            return source.paths
        lines = [json.dumps([tuple(r) for r in unit]) + "\n" for unit in source.units(maps)]
        return [self._shared("units", "txt", "".join(lines).encode())]

    def _shared(self, name, suffix, data):
        """Return the URI of a file of the run with this content, written the first time."""
        path = posixpath.join(self.folder, "shared", f"{name}-{hashlib.sha256(data).hexdigest()[:12]}.{suffix}")
        if path not in self._written:
            self.filesystem.write(path, data, overwrite=True)
            self._written.add(path)
        return self.uri(path)

    def _records(self, output):
        for status in self.filesystem.list(output):
            if status.name.startswith("part-") and status.size:
                with self.filesystem.open(status.path) as stream:
                    yield from records(io.BufferedReader(_Raw(stream), READ_BYTES))


def new_folder(options: HadoopOptions) -> tuple[str, str, str]:
    """Return a new folder for a run: what stands before its path in URIs, its path, and the run's tag.

    Raises
    ------
    InputError
        If it cannot be there.
    """
    key = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}"
    root, path = hdfs.split(options.work) if options.work else ("hdfs://", f"/user/{hdfs.user()}/{WORK}")
    if root.startswith("webhdfs"):
        raise InputError(f"--work-dir {options.work}: hdfs:// is needed")
    if not _PLAIN.fullmatch(path):
        raise InputError(f"--work-dir {path}: only letters, digits and ./_+=@- may be in this path")
    return root, posixpath.join(path, key), f"apnc-{key}"


class _Raw(io.RawIOBase):
    """A stream of `apnc.hdfs` as the io module takes it."""

    def __init__(self, stream):
        self._stream = stream

    def readable(self):
        return True

    def readinto(self, buffer):
        return self._stream.readinto(buffer)


def found_hadoop(options: HadoopOptions) -> str:
    """Return the ``hadoop`` command.

    Raises
    ------
    InputError
        If there is none.
    """
    if options.hadoop_bin:
        import shutil

        found = shutil.which(options.hadoop_bin)
        if not found:
            raise InputError(f"--hadoop-bin {options.hadoop_bin}: there is no such command")
        return found
    found = hdfs.find_hadoop()
    if not found:
        raise InputError("--runner hadoop: no hadoop command on PATH or in HADOOP_HOME; name it with --hadoop-bin")
    return found


def found_streaming_jar(options: HadoopOptions, command: str) -> str:
    """Return the path of Hadoop's streaming jar.

    Raises
    ------
    InputError
        If it is not found.
    """
    if options.streaming_jar:
        if not os.path.isfile(options.streaming_jar):
            raise InputError(f"--streaming-jar {options.streaming_jar}: there is no such file")
        return os.path.abspath(options.streaming_jar)
    homes = [os.environ.get(name) for name in ("HADOOP_MAPRED_HOME", "HADOOP_HOME", "HADOOP_PREFIX")]
    for path in (command, os.path.realpath(command)):
        homes.append(os.path.dirname(os.path.dirname(os.path.abspath(path))))
    folders = [os.path.join(home, folder) for home in homes if home for folder in _JAR_FOLDERS]
    for folder in dict.fromkeys([*folders, *_COMMON_JAR_FOLDERS]):
        names = [name for name in os.listdir(folder) if _STREAMING_JAR.fullmatch(name)] if os.path.isdir(folder) else []
        if names:
            return os.path.join(folder, min(names, key=lambda name: (len(name), name)))
    raise InputError("--runner hadoop: Hadoop's streaming jar was not found; name it with --streaming-jar")


def counted(counters: dict, read_by_tasks: int = 0) -> dict:
    """Return what run.json keeps of a job's counters: a small set of names, whatever the job."""
    groups = {name.strip(): group for name, group in counters.items()}

    def number(group, name):
        values = {key.strip(): value for key, value in groups.get(group, {}).items()}
        return values.get(name, 0)

    jobs, files, framework = "Job Counters", "File System Counters", "Map-Reduce Framework"
    return {
        "jobs": 1,
        "rows": number(COUNTERS, "rows"),
        "bytes_read": number(files, "HDFS: Number of bytes read") + read_by_tasks,
        "bytes_written": number(files, "HDFS: Number of bytes written"),
        "shuffle_bytes": number(framework, "Reduce shuffle bytes"),
        "launched_maps": number(jobs, "Launched map tasks"),
        "failed_maps": number(jobs, "Failed map tasks"),
        "killed_maps": number(jobs, "Killed map tasks"),
        "data_local_maps": number(jobs, "Data-local map tasks"),
        "launched_reduces": number(jobs, "Launched reduce tasks"),
        "failed_reduces": number(jobs, "Failed reduce tasks"),
        "cpu_milliseconds": number(framework, "CPU time spent (ms)"),
    }


def _shortened(text, most=400):
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"
