"""mrjob's Hadoop runner with one JVM for a pass: ``hadoop jar``. Files go over WebHDFS, by `mr_jobs.cluster`.

Upstream starts about ten ``hadoop`` processes for a job (version, ls, mkdir, put, cat, rm), and its client process
is deaf to interrupts. Here everything a job needs lies on HDFS before it starts, so that nothing is left to upload.
"""

from __future__ import annotations

import os
import re
import subprocess

from apnc import hdfs
from apnc.hadoop_settings import JVM
from mr_jobs.shims import mrjob_imports

with mrjob_imports():
    from mrjob.cat import decompress
    from mrjob.fs.base import Filesystem
    from mrjob.fs.composite import CompositeFilesystem
    from mrjob.fs.local import LocalFilesystem
    from mrjob.hadoop import HadoopJobRunner
    from mrjob.logs.step import _interpret_hadoop_jar_command_stderr

KEPT_LINES = 40
_APPLICATION = re.compile(r"Submitted application (application_\d+_\d+)")
_PERCENT = re.compile(r"map\s+(\d+)%\s+reduce\s+(\d+)%")


class JobFailed(Exception):
    """``hadoop jar`` ended with another status than 0.

    Attributes
    ----------
    application : str or None
    attempts : list of (str, str)
        Failed task attempts and what was said of them.
    lines : list of str
        The last of its output.
    """

    def __init__(self, application, attempts, lines):
        super().__init__("the job failed")
        self.application, self.attempts, self.lines = application, attempts, lines


class HdfsFilesystem(Filesystem):
    """mrjob's view of HDFS, through `apnc.hdfs`."""

    def can_handle_path(self, path):
        return path.split("://")[0] in hdfs.SCHEMES

    def ls(self, path_glob):
        where, path = hdfs.split(path_glob)
        filesystem = hdfs.connect(where)
        status = filesystem.status(path)
        if status is None:
            return
        for entry in filesystem.list(path) if status.is_dir else [status]:
            if entry.is_dir:
                yield from self.ls(where + entry.path)
            else:
                yield where + entry.path

    def du(self, path_glob):
        where, path = hdfs.split(path_glob)
        filesystem = hdfs.connect(where)
        return filesystem.content_summary(path).length if filesystem.status(path) else 0

    def exists(self, path_glob):
        where, path = hdfs.split(path_glob)
        return hdfs.connect(where).status(path) is not None

    def mkdir(self, path):
        where, path = hdfs.split(path)
        hdfs.connect(where).mkdirs(path)

    def put(self, src, path):
        where, path = hdfs.split(path)
        with open(src, "rb") as file:
            hdfs.connect(where).write(path, file)

    def rm(self, path_glob):
        where, path = hdfs.split(path_glob)
        hdfs.connect(where).delete(path)

    def touchz(self, path):
        where, path = hdfs.split(path)
        hdfs.connect(where).write(path, b"")

    def _cat_file(self, path):
        where, name = hdfs.split(path)
        with hdfs.connect(where).open(name) as stream:
            yield from decompress(stream, name)


class HadoopRunner(HadoopJobRunner):
    """Runs a job whose files lie on HDFS already.

    Attributes
    ----------
    application : str or None
        Its id, once it is submitted.
    on_application, on_percent : callable
        Told of the id, and of map and reduce percent.
    """

    on_application = staticmethod(lambda application: None)
    on_percent = staticmethod(lambda map_percent, reduce_percent: None)

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.application = None

    @property
    def fs(self):
        if self._fs is None:
            self._fs = CompositeFilesystem()
            self._fs.add_fs("hadoop", HdfsFilesystem())
            self._fs.add_fs("local", LocalFilesystem())
        return self._fs

    def get_hadoop_version(self):
        """Return what tells mrjob which names properties have: they are the same since Hadoop 2."""
        return "3.0.0"

    def get_hadoop_bin(self):
        return self._opts["hadoop_bin"]

    def _check_input_paths(self):
        """Leave it to `mr_jobs.cluster`, which has looked at the input."""

    def _cleanup_hadoop_tmp(self):
        """Leave it to `mr_jobs.cluster`, whose folders they are."""

    def _script_args_for_step(self, step_num, mrc, input_manifest=False):
        module = os.path.splitext(os.path.basename(self._script_path))[0]
        return [*self._task_python_bin(), "-m", f"mr_jobs.{module}", *self._args_for_task(step_num, mrc)]

    def _upload_args(self):
        # the script is in the archive of its package
        files = {n: p for n, p in self._working_dir_mgr.name_to_path("file").items() if p != self._script_path}
        return self._upload_args_helper("-files", sorted(files.items()), "-archives", None)

    def _run(self):
        args = self._args_for_step(0)
        env = dict(os.environ, HADOOP_ROOT_LOGGER="INFO,console")  # counters and progress are read from its log
        env["HADOOP_CLIENT_OPTS"] = f"{JVM} {env.get('HADOOP_CLIENT_OPTS', '')}".strip()
        lines = []
        # a session of its own: an interrupt from the terminal is for the driver, which ends the application too
        process = subprocess.Popen(
            args,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=env,
            start_new_session=True,
        )
        try:
            with process.stdout:
                found = _interpret_hadoop_jar_command_stderr(process.stdout, lambda record: self._heard(record, lines))
            status = process.wait()
        except BaseException:
            process.kill()
            process.wait()
            raise
        self._log_interpretations.append({"step": found})
        if status:
            errors = [error for error in found.get("errors", ()) if "attempt_id" in error]
            failed = [(error["attempt_id"], error["hadoop_error"]["message"]) for error in errors]
            raise JobFailed(self.application, failed, lines)

    def _heard(self, record, lines):
        message = record["message"]
        lines.append(f"{record['level']} {message}".strip())
        del lines[:-KEPT_LINES]
        if submitted := _APPLICATION.match(message):
            self.application = submitted[1]
            self.on_application(self.application)
        elif percent := _PERCENT.search(message):
            self.on_percent(int(percent[1]), int(percent[2]))
