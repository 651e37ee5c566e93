"""Launches passes as jobs and brings their results home. The engine and the jobs' own command lines share it."""

from __future__ import annotations

import atexit
import builtins
import compileall
import json
import logging
import os
import re
import shutil
import tempfile
import threading
import warnings
from functools import cache
from itertools import pairwise
from pathlib import Path
from py_compile import PycInvalidationMode

import apnc
import mr_jobs
from apnc.blocks import from_line, from_text, unpack
from apnc.errors import ApncError, InputError, StageError
from apnc.model import save_npz
from apnc.readers.files import is_remote
from apnc.readers.spec import InputSpec, Range
from apnc.threads import cores
from mr_jobs.base import COUNTERS, ERROR, KEY_BYTES, RESULT, raise_error
from mr_jobs.runners import RUNNERS, TaskFailed
from mr_jobs.shims import mrjob_imports

with mrjob_imports():
    from mrjob.conf import combine_opts, find_mrjob_conf, load_opts_from_mrjob_confs
    from mrjob.options import _combiners

_TASKS = {"mapper": "map task", "combiner": "combine task", "reducer": "reduce task"}
# mrjob takes paths for patterns, expands variables, and gives # a meaning of its own
_MEANT_OTHERWISE = re.compile(r"[*?\[\]#$~]")

logging.getLogger("mrjob").addHandler(logging.NullHandler())  # a library's log is its user's business


def check_runner(runner: str) -> None:
    """Raise InputError if there is no such runner."""
    if runner not in RUNNERS:
        raise InputError(f"runner {runner!r} is not supported; use {' or '.join(RUNNERS)}")


def described_pass(job_class, step, folder: Path) -> Path:
    """Write what tasks rebuild a pass from to a file in a folder, and return its path."""
    described = job_class.describe(step)
    if job_class.pass_option == "--settings":
        path = folder / "pass.json"
        path.write_text(json.dumps(described))
    else:
        path = folder / "pass.npz"
        save_npz(path, described)
    return path


def default_splits() -> int:
    """Return how many map tasks a pass has: one for each core, since all do the same work and each has a start."""
    return cores()


def splits_of(data, count: int) -> list[list[Range]]:
    """Return an input as at most ``count`` stretches of about the same size, in its order."""
    units = data.units(max(1, -(-sum(file.size for file in data.files) // count)))
    count = min(count, len(units))
    cuts = [len(units) * i // count for i in range(count + 1)] if units else [0, 0]
    return [[r for unit in units[low:high] for r in unit] for low, high in pairwise(cuts)]


class Launcher:
    """Runs passes on one of mrjob's runners.

    Parameters
    ----------
    runner : {'inline', 'local'}
    runner_args : sequence of str
        Options of mrjob for it, ``--no-conf`` for instance.
    folder : path-like, optional
        Where temporary files go; the system's temporary folder by default.
    """

    def __init__(self, runner: str, runner_args=(), folder=None):
        check_runner(runner)
        self.runner, self.runner_args = runner, list(runner_args)
        plain = folder is not None and not _MEANT_OTHERWISE.search(os.path.abspath(folder))
        self._folder = tempfile.TemporaryDirectory(prefix="apnc-", dir=os.path.abspath(folder) if plain else None)
        self.folder = Path(self._folder.name)
        # tasks of the inline runner have what this process imported
        self.packages = [] if runner == "inline" else [f"{path}#{path.stem}" for path in packages()]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Remove all temporary files."""
        self._folder.cleanup()

    def fold(self, job_class, fold, spec: InputSpec, splits, on_rows=None):
        """Run a Fold and return its result."""
        with self._run(job_class, fold, spec, splits, None, on_rows) as paths:
            return result_of(job_class, fold, _records(paths))

    def map(self, job_class, step, spec: InputSpec, splits, output: str, on_rows=None) -> None:
        """Run a Map; its shards, in the order of the input, are ``output/part-*``, whole or absent.

        Parameters
        ----------
        output : path-like
            A folder; what was there before is replaced once the new shards are complete.
        """
        output = Path(os.path.abspath(output))
        output.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{output.name}.", dir=output.parent) as attempt:
            partial = Path(attempt) / "shards"
            with self._run(job_class, step, spec, splits, partial, on_rows):
                pass
            shutil.rmtree(output, ignore_errors=True)
            os.rename(partial, output)

    def _run(self, *args):
        return _Running(self, *args)


class _Running:
    """One job, as a context: run on entry; its temporary files are gone after it."""

    def __init__(self, launcher, job_class, step, spec, splits, output, on_rows):
        self.launcher, self.job_class, self.step, self.splits = launcher, job_class, step, splits
        self.spec, self.output, self.on_rows, self._lock = spec, output, on_rows, threading.Lock()

    def __enter__(self):
        self._folder = tempfile.TemporaryDirectory(prefix="job-", dir=self.launcher.folder)
        try:
            return self._launch(Path(self._folder.name))
        except BaseException:
            self._folder.cleanup()
            raise

    def __exit__(self, *_):
        self._folder.cleanup()

    def _launch(self, folder):
        output = self.output or folder / "output"
        args = ["-r", self.launcher.runner, *self.launcher.runner_args]
        # our own copy of the packages, and the driver's mrjob: a local task needs no other
        args += ["--no-bootstrap-mrjob"] if self.launcher.runner == "local" else []
        args += ["--local-tmp-dir", str(folder), "--output-dir", str(output), "--no-cat-output"]
        args += self._files(folder) + self._units(folder)
        try:
            job = self.job_class(args)
        except ValueError as error:
            raise InputError(f"mrjob: {error}") from None
        job.packages = self.launcher.packages
        runner = made_runner(job)
        runner.on_rows = self._count
        with runner:
            try:
                runner.run()
            except ApncError:
                raise
            except TaskFailed as failure:
                raise StageError(self._explain(failure)) from failure
            except Exception as error:
                raise StageError(f"{self.step.stage}: {type(error).__name__}: {error}") from error
            counters = runner.counters()[0].get(COUNTERS, {})
        paths = sorted(output.glob("part-*"))
        if counters.get("errors"):
            for key, value in _records(paths):
                if key == ERROR:
                    raise_error(bytes(value))
        return paths

    def _count(self, rows):
        if self.on_rows is not None:
            with self._lock:
                self.on_rows(rows)

    def _files(self, folder):
        spec = folder / "input.json"
        spec.write_text(json.dumps(self.spec.to_dict()))
        step = described_pass(self.job_class, self.step, folder)
        return ["--input-spec", str(spec), self.job_class.pass_option, str(step)]

    def _units(self, folder):
        # a file of one line each: mrjob makes at least one split of a file, and never cuts a line
        paths = []
        for i, split in enumerate(self.splits):
            paths.append(folder / f"unit-{i:05d}")
            unit = [r if is_remote(r.path) else r._replace(path=os.path.abspath(r.path)) for r in split]
            paths[-1].write_text(json.dumps(unit) + "\n")
        return [str(path) for path in paths]

    def _explain(self, failure):
        text = f"{self.step.stage}: {_TASKS[failure.kind]} {failure.number + 1}"
        if failure.kind == "mapper":
            split = self.splits[failure.number]
            text += f" of {len(self.splits)}"
            if split:
                end = "the end" if split[-1].stop is None else split[-1].stop
                text += f" ({split[0].source} from {split[0].start}, to {end} of {split[-1].source})"
        return f"{text} failed: {failure.cause}"


def made_runner(job):
    """Return the runner of a job, with the options of mrjob's own configuration where the job may have them.

    That is ~/.mrjob.conf, or the file that MRJOB_CONF or --conf-path names; --no-conf does without.

    Raises
    ------
    InputError
        If mrjob refuses an option, or cannot use such a file.
    """
    try:
        return job.make_runner()
    except ApncError:
        raise
    except Exception as error:
        blamed = _blamed_configuration(job)
        if blamed:
            text = " ".join(str(error).split()) or type(error).__name__
            raise InputError(f"{blamed}: mrjob cannot use this configuration ({text})") from None
        if isinstance(error, ValueError):
            raise InputError(f"mrjob: {error}") from None
        raise


def _blamed_configuration(job):
    """Return the configuration file for which a job has no runner, and the option in it; None if it is not that."""
    given = job.options.conf_paths
    paths = [find_mrjob_conf()] if given is None else given
    job.options.conf_paths = []
    try:
        runner = job.make_runner()
    except Exception:
        return None
    for path in filter(None, paths):
        try:
            loaded = load_opts_from_mrjob_confs(runner.alias, [path])
        except Exception:
            return path
        for file, options in loaded:
            if not isinstance(options, dict):
                return file
            for name, value in options.items():
                try:
                    combine_opts(_combiners({name}), {name: value})
                except Exception:
                    return f"{file}, {name} {value!r}"
    return " ".join(filter(None, paths)) or None


def result_of(job_class, fold, records):
    """Return a Fold's result from (key, value) of its job's output."""
    state, packed = {}, bytearray()  # not bytes: the arrays of the result can then be written to
    for key, value in records:
        if key.startswith(RESULT):
            packed += from_text(value)  # in order: there is one reducer
            continue
        name, part = key.decode(), fold.unseal(from_line(value))
        state[name] = fold.merge(name, state[name], part) if name in state else part
    if not job_class.finishes:
        return fold.finish(job_class.joined(state))
    result = unpack(packed)
    for category, text in result.pop(".warnings"):
        warnings.warn(text, getattr(builtins, category, UserWarning), stacklevel=2)
    return job_class.unpack_result(result)


@cache
def packages(*others) -> list[Path]:
    """Return archives of the packages that travel with jobs, compiled once for all tasks of this process's jobs.

    They lie in a temporary folder that goes with the process.
    """
    folder, archives = tempfile.mkdtemp(prefix="apnc-packages-"), []
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for package in (apnc, mr_jobs, *others):
        source = Path(package.__file__).parent
        copy = shutil.copytree(source, Path(folder, source.name), ignore=_not_code)
        # whether a file still fits its source is not asked again: times change on the way
        compileall.compile_dir(copy, quiet=2, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH)
        archives.append(Path(shutil.make_archive(copy, "tar", copy)))
    return archives


def _not_code(folder, names):
    unwanted = ("__pycache__", "examples", "tools", "bootstrap")
    return [n for n in names if not (n.endswith(".py") or os.path.isdir(f"{folder}/{n}")) or n in unwanted]


def _records(paths):
    """Yield (key, value) of the lines of a job's output, values as views of them."""
    for path in paths:
        with open(path, "rb") as file:
            yield from records(file)


def records(lines):
    """Yield (key, value) of lines of a job's output, values as views of them."""
    for line in lines:
        key, tab, _ = line[:KEY_BYTES].partition(b"\t")
        yield key, memoryview(line)[len(key) + len(tab) : len(line) - line.endswith(b"\n")]
