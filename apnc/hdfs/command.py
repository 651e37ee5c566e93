"""HDFS through the ``hadoop fs`` command."""

from __future__ import annotations

import os
import posixpath
import re
import subprocess
import tempfile

from apnc.errors import InputError
from apnc.hdfs import environment
from apnc.hdfs.common import (
    CHUNK_BYTES,
    REFUSED,
    ContentSummary,
    FileStatus,
    HdfsError,
    HdfsRefused,
    Stream,
    chunks_of,
)

_MESSAGES = (
    ("No such file or directory", "FileNotFoundException"),
    ("File exists", "FileAlreadyExistsException"),
    ("Permission denied", "AccessControlException"),
    ("s not a directory", "ParentNotDirectoryException"),
    ("Is a directory", "IllegalArgumentException"),
    ("Directory is not empty", "PathIsNotEmptyDirectoryException"),
    ("quota", "DSQuotaExceededException"),
)


class HadoopFs:
    """HDFS through the ``hadoop fs`` command: a Java process for every call, and reading skips what comes before.

    Parameters
    ----------
    uri : str
        ``hdfs://host:port``, or ``hdfs://`` for the default of Hadoop's configuration.
    command : str, optional
        The ``hadoop`` command; `find_hadoop` by default.
    """

    def __init__(self, uri: str = "hdfs://", command: str | None = None):
        self.address = uri.partition("://")[2]
        self._prefix = f"hdfs://{self.address}"
        self._command = command or environment.find_hadoop()
        if not self._command:
            raise InputError("the hadoop command was not found on PATH or in HADOOP_HOME")
        # Names are UTF-8, whatever the locale; a compiler less, which short processes do not live to profit from.
        self._env = dict(os.environ, LC_ALL="C.UTF-8")
        self._env["HADOOP_CLIENT_OPTS"] = f"-XX:TieredStopAtLevel=1 {os.environ.get('HADOOP_CLIENT_OPTS', '')}".strip()

    def __repr__(self):
        return f"HadoopFs({f'hdfs://{self.address}'!r})"

    def uri(self, path: str) -> str:
        """Return the path with a scheme and address."""
        return f"hdfs://{self.address}{path}"

    def status(self, path: str) -> FileStatus | None:
        """See `WebHdfs.status`."""
        found = self._statuses([_escaped(path)], posixpath.dirname(path))
        return found[0]._replace(path=path, name=posixpath.basename(path)) if found else None

    def list(self, path: str) -> list[FileStatus]:
        """See `WebHdfs.list`."""
        found = self._statuses([_escaped(path), posixpath.join(_escaped(path), "*")], path)
        if not found:
            raise HdfsRefused(f"{path}: {REFUSED['FileNotFoundException']}", "FileNotFoundException")
        if not found[0].is_dir:
            return [found[0]._replace(path=path, name=posixpath.basename(path))]
        return sorted(found[1:], key=lambda status: status.name)

    def _statuses(self, patterns, folder):
        marks = "\x1e%F\x1f%b\x1f%Y\x1f%o\x1f%r\x1f%n"
        done = self._run("-stat", marks, *(self._prefix + p for p in patterns), missing_is_well=True)
        found = []
        for record in done.decode("utf-8", "surrogateescape").split("\x1e")[1:]:
            kind, size, mtime, block, replication, name = record.removesuffix("\n").split("\x1f")
            is_dir = kind == "directory"
            path = posixpath.join(folder, name)
            found.append(FileStatus(path, name, int(size), is_dir, int(mtime), int(block), int(replication)))
        return found

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """See `WebHdfs.read`."""
        with self.open(path, offset, length) as stream:
            return stream.read()

    def open(self, path: str, offset: int = 0, length: int | None = None) -> Stream:
        """See `WebHdfs.open`. What comes before ``offset`` is read too, and dropped."""
        return _CommandStream(self, path, offset, length)

    def write(self, path, data, overwrite=False, replication=None, block_size=None) -> None:
        """See `WebHdfs.write`; the file appears when it is whole."""
        options = [f"-Ddfs.replication={replication}"] if replication else []
        options += [f"-Ddfs.blocksize={block_size}"] if block_size else []
        parent = posixpath.dirname(path)
        there = self._statuses([_escaped(parent), _escaped(path)], parent)
        if not there:
            self.mkdirs(parent)
        elif there[-1].is_dir and len(there) > 1:  # the file would land in it, under some name
            raise HdfsRefused(f"{path}: already exists as a directory", "FileAlreadyExistsException")
        command = ["-put", *(["-f"] if overwrite else []), "-", self._prefix + _escaped(path)]
        self._run(*command, options=options, pieces=chunks_of(data))

    def mkdirs(self, path: str) -> None:
        """See `WebHdfs.mkdirs`."""
        self._run("-mkdir", "-p", self._prefix + _escaped(path))

    def rename(self, src: str, dst: str) -> bool:
        """See `WebHdfs.rename`."""
        return self._tried("-mv", self._prefix + _escaped(src), self._prefix + _escaped(dst))

    def delete(self, path: str, recursive: bool = True) -> bool:
        """See `WebHdfs.delete`."""
        target = self._prefix + _escaped(path)
        if recursive:
            return self._tried("-rm", "-r", "-skipTrash", target)
        status = self.status(path)
        if status is None:
            return False
        return self._tried("-rmdir", target) if status.is_dir else self._tried("-rm", "-skipTrash", target)

    def content_summary(self, path: str) -> ContentSummary:
        """See `WebHdfs.content_summary`."""
        directories, files, length = self._run("-count", self._prefix + _escaped(path)).split()[:3]
        return ContentSummary(int(files), int(directories), int(length))

    def _tried(self, *arguments) -> bool:
        try:
            self._run(*arguments)
        except HdfsRefused as error:
            if error.exception in ("FileNotFoundException", "FileAlreadyExistsException"):
                return False
            raise
        return True

    def _popen(self, arguments, errors, **streams):
        return subprocess.Popen([self._command, "fs", *arguments], stderr=errors, env=self._env, **streams)

    def _run(self, *arguments, options=(), pieces=None, missing_is_well=False) -> bytes:
        with tempfile.TemporaryFile() as errors, tempfile.TemporaryFile() as out:
            stdin = subprocess.DEVNULL if pieces is None else subprocess.PIPE
            process = self._popen([*options, *arguments], errors, stdin=stdin, stdout=out)
            try:
                try:
                    for piece in pieces or ():
                        process.stdin.write(piece)
                    if pieces is not None:
                        process.stdin.close()
                except BrokenPipeError:
                    pass  # it says why
                process.wait()
            except BaseException:  # a source of pieces that failed, or an interrupt: the file must not appear
                process.kill()
                process.wait()
                raise
            if process.returncode:
                error = _command_error(process.returncode, errors, arguments)
                if not (missing_is_well and error.exception == "FileNotFoundException"):
                    raise error
            out.seek(0)
            return out.read()


class _CommandStream(Stream):
    def __init__(self, filesystem, path, offset, length):
        self._path, self._skip, self._left = path, offset, length
        self._process = self._errors = None
        if length != 0:
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the stream
            target = filesystem._prefix + _escaped(path)
            self._process = filesystem._popen(
                ["-cat", target], self._errors, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
            )
            first = self._process.stdout.peek(1)  # a file that is not there must show now
            if not first:
                self._end()

    def _some(self, view):
        if self._process is None:
            return 0
        while self._skip:
            dropped = len(self._process.stdout.read(min(self._skip, CHUNK_BYTES)))
            if not dropped:
                self._end()
                return 0
            self._skip -= dropped
        got = self._process.stdout.readinto(view if self._left is None else view[: self._left])
        if not got:
            self._end()
            return 0
        if self._left is not None:
            self._left -= got
            if not self._left:
                self.close()
        return got

    def _end(self):
        """Take leave of a process that has no more to say."""
        status = self._process.wait()
        try:
            if status:
                raise _command_error(status, self._errors, ("-cat", self._path))
        finally:
            self.close()

    def close(self):
        if self._process is not None:
            self._process.stdout.close()
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()
            self._errors.close()
        self._process = None


def _escaped(path: str) -> str:
    """Return a path as the command takes it: what would stand for other names, escaped."""
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", path)


def _command_error(status, errors, arguments) -> HdfsError:
    errors.seek(0)
    lines = [line for line in errors.read().decode("utf-8", "replace").splitlines() if line.strip()]
    verb = arguments[0].lstrip("-")
    own = next((line for line in lines if line.startswith(f"{verb}: ")), lines[-1] if lines else f"status {status}")
    for words, exception in _MESSAGES:
        if words in own:
            return HdfsRefused(f"hadoop fs: {own}", exception)
    return HdfsError(f"hadoop fs {arguments[0]} failed: {own}")
