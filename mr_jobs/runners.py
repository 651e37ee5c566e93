"""mrjob's inline and local runners, where they leave a user alone: interrupts, errors and progress.

Upstream has not moved since 2020. The local runner forks a pool, which leaves tasks running when the driver is
interrupted, and reports a failed task by its exit status; neither runner tells of rows before the job is over.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor, as_completed

from apnc.errors import ApncError
from apnc.threads import cores
from mr_jobs.shims import mrjob_imports

with mrjob_imports():
    from mrjob.inline import InlineMRJobRunner
    from mrjob.local import LocalMRJobRunner
    from mrjob.parse import parse_mr_job_stderr

TAIL_BYTES = 1 << 16
ONE_REDUCER_BYTES = 32 << 20  # less is merged sooner than a second process starts
_FRAME = re.compile(r'  File "(.*)", line (\d+), in (.*)')


class TaskFailed(Exception):
    """A task died.

    Attributes
    ----------
    kind : {'mapper', 'combiner', 'reducer'}
    number : int
    cause : str
        The last line of its traceback, and where.
    """

    def __init__(self, kind, number, cause):
        super().__init__(cause)
        self.kind, self.number, self.cause = kind, number, cause


class _Watched:
    """Counts rows as map tasks end, and says which task failed and why."""

    on_rows = staticmethod(lambda rows: None)

    def _run_task_func(self, task_type, step_num, task_num, map_split=None):
        run = super()._run_task_func(task_type, step_num, task_num, map_split)
        stderr_path = self._task_stderr_path(task_type, step_num, task_num)

        def watched():
            try:
                run()
            except (ApncError, TaskFailed):
                raise
            except Exception as error:
                raise TaskFailed(task_type, task_num, _cause_of(error)) from error
            if task_type == "mapper":
                with open(stderr_path, "rb") as file:
                    counters = parse_mr_job_stderr(file)["counters"]
                self.on_rows(counters.get("apnc", {}).get("rows", 0))

        return watched

    def _log_cause_of_error(self, ex):
        """Leave it to the driver, which says it in one line."""


class InlineRunner(_Watched, InlineMRJobRunner):
    """All tasks one after the other in this process."""


class LocalRunner(_Watched, LocalMRJobRunner):
    """Tasks as processes of this one, as many at a time as there are cores; none outlives the job."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self._lock, self._running, self._ending = threading.Lock(), set(), False

    def _num_cores(self):
        return self._opts["num_cores"] or cores()

    def _run_multiple(self, funcs, num_processes=None):
        with ThreadPoolExecutor(self._num_cores()) as pool:
            try:
                # one by one: mrjob makes a task's folder when it is asked for the task
                futures = [pool.submit(func) for func in funcs]
                for future in as_completed(futures):
                    future.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                self._end_tasks()
                raise

    def _run_task_func(self, task_type, step_num, task_num, map_split=None):
        run = super()._run_task_func(task_type, step_num, task_num, map_split)
        if task_type != "combiner":
            return run
        paths = (
            self._task_input_path(task_type, step_num, task_num),
            self._task_output_path(task_type, step_num, task_num),
        )

        def run_if_useful():
            # a combiner may run any number of times, also none; a process costs more than what it would not do
            if _keys_differ(paths[0]):
                os.replace(*paths)
            else:
                run()

        return run_if_useful

    def _split_reducer_input(self, step_num):
        whole = self._sorted_reducer_input_path(step_num)
        if os.path.getsize(whole) > ONE_REDUCER_BYTES:
            return super()._split_reducer_input(step_num)
        only = self._task_input_path("reducer", step_num, 0)
        self.fs.mkdir(os.path.dirname(only))
        os.replace(whole, only)
        return 1

    def _invoke_task_func(self, task_type, step_num, task_num):
        args = self._substep_args(step_num, task_type)
        stderr_path = self._task_stderr_path(task_type, step_num, task_num)

        def invoke(stdin, stdout, stderr, wd, env):
            with self._lock:
                if self._ending:
                    raise TaskFailed(task_type, task_num, "the job is being ended")
                # a process group of its own, so that a setup script and what it starts end together
                task = subprocess.Popen(
                    args, stdin=stdin, stdout=stdout, stderr=stderr, cwd=wd, env=env, start_new_session=True
                )
                self._running.add(task)
            try:
                status = task.wait()
            finally:
                with self._lock:
                    self._running.discard(task)
            if status:
                raise TaskFailed(task_type, task_num, _cause_in(stderr_path) or _exit(status))

        return invoke

    def _end_tasks(self):
        with self._lock:
            self._ending = True
            for task in self._running:
                if task.poll() is None:
                    os.killpg(task.pid, signal.SIGKILL)


RUNNERS = {"inline": InlineRunner, "local": LocalRunner}


def runner_class(name: str):
    """Return the runner of that name, None where mrjob's own must do."""
    if name == "hadoop":
        from mr_jobs.hadoop import HadoopRunner

        return HadoopRunner
    return RUNNERS.get(name)


def _keys_differ(path):
    """Return whether no two of a file's sorted lines have the same key."""
    last = None
    with open(path, "rb") as file:
        for line in file:
            key = line.split(b"\t", 1)[0]
            if key == last:
                return False
            last = key
    return True


def _exit(status):
    return f"killed by signal {-status} ({signal.Signals(-status).name})" if status < 0 else f"exit status {status}"


def _cause_of(error):
    last = traceback.extract_tb(error.__traceback__)[-1]
    text = traceback.format_exception_only(error)[-1].strip()
    return f"{text} ({_place(last.filename, last.lineno, last.name)})"


def _cause_in(path):
    """Return the last line of the last traceback in a task's log, and where it was raised."""
    with open(path, "rb") as file:
        file.seek(max(0, os.path.getsize(path) - TAIL_BYTES))
        _, found, text = file.read().decode("utf-8", "replace").rpartition("Traceback (most recent call last):\n")
    if not found:
        return None
    place = None
    for line in text.splitlines():
        frame = _FRAME.match(line)
        if frame:
            place = _place(*frame.groups())
        elif line and not line.startswith(" "):
            return f"{line} ({place})" if place else line
    return None


def _place(path, line, name):
    return f"{os.path.join(*path.split(os.sep)[-2:])} line {line}, in {name}"
