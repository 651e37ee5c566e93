"""Files wherever they are: on this machine, or on HDFS (``hdfs://…``, ``webhdfs://HOST:PORT/…``).

Readers take bytes of files by their place and, mostly, one after the other. Here that costs one system call, there
a request: so a reader may say with `advise` how far it will go, and gets a stream that ends there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator

from apnc.errors import InputError

MOST_AHEAD = 64 << 20  # of what nobody has announced; read in a row, requests double up to this
STEP_BYTES = 1 << 16  # a gap that is cheaper to read than to ask anew

_REMOTE = re.compile(r"(?:web)?hdfs://", re.IGNORECASE)
_UNNAMEABLE = re.compile(r"[\[\]{},*?\\\n\r\t]")


def is_remote(path: str | os.PathLike) -> bool:
    """Return whether a path is on HDFS."""
    return isinstance(path, str) and _REMOTE.match(path) is not None


def open_file(path: str | os.PathLike) -> LocalFile | RemoteFile:
    """Return a file to read from; close it after use, or use it in a ``with`` statement.

    Raises
    ------
    OSError, HdfsError
        If it cannot be opened. One on HDFS may tell only when it is read.
    """
    return RemoteFile(path) if is_remote(path) else LocalFile(path)


class LocalFile:
    """A file on this machine."""

    def __init__(self, path):
        self._fd = os.open(path, os.O_RDONLY)

    @property
    def size(self) -> int:
        """Bytes in it at this moment."""
        return os.fstat(self._fd).st_size

    def advise(self, start: int, stop: int | None) -> None:
        """Announce that what lies between ``start`` and ``stop`` (None: the end) will be read, in order."""

    def pread(self, n: int, offset: int) -> bytes:
        """Return ``n`` bytes from ``offset`` on, fewer only at the end of the file."""
        return os.pread(self._fd, n, offset)

    def preadinto(self, view: memoryview, offset: int) -> int:
        """Fill a view with bytes from ``offset`` on; return how many there were, 0 only at the end of the file."""
        return os.preadv(self._fd, [view], offset)

    def close(self) -> None:
        os.close(self._fd)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()


class RemoteFile:
    """A file on HDFS. Reading on where the last reading ended goes on with the same stream."""

    def __init__(self, path):
        self._fs, self._path = _place(path)
        self._stream = None
        self._position = self._end = 0  # of the stream: where it is, where it ends
        self._ahead = 0
        self._announced = (0, 0)
        self._size = None

    @property
    def size(self) -> int:
        """Bytes in it."""
        if self._size is None:
            status = self._fs.status(self._path)
            if status is None or status.is_dir:
                raise InputError(f"{self._path}: no such file on HDFS")
            self._size = status.size
        return self._size

    def advise(self, start: int, stop: int | None) -> None:
        """See `LocalFile.advise`."""
        self._announced = (start, stop)

    def pread(self, n: int, offset: int) -> bytes:
        """See `LocalFile.pread`."""
        if n <= self._go_to(offset, n):
            data = self._stream.read(n)
            self._position += len(data)
            return data
        buffer = memoryview(bytearray(n))
        return bytes(buffer[: self.preadinto(buffer, offset)])

    def preadinto(self, view: memoryview, offset: int) -> int:
        """See `LocalFile.preadinto`."""
        done = 0
        while done < len(view):
            room = self._go_to(offset + done, len(view) - done)
            part = view[done : done + room]
            got = self._stream.readinto(part)
            self._position += got
            done += got
            if got < len(part):
                break
        return done

    def _go_to(self, offset: int, n: int) -> int:
        """Have the stream stand at an offset; return how many bytes it may still give."""
        gap = offset - self._position
        if self._stream is not None and 0 < gap <= min(STEP_BYTES, self._end - self._position):
            self._position += len(self._stream.read(gap))
        if self._stream is None or offset != self._position or offset >= self._end:
            in_a_row = self._stream is not None and offset == self._position
            self.close()
            start, stop = self._announced
            if start <= offset and (stop is None or offset < stop):
                length = None if stop is None else max(n, stop - offset)
            else:
                self._ahead = min(2 * self._ahead, MOST_AHEAD) if in_a_row else 0
                length = self._ahead = max(n, self._ahead)
            self._stream = self._fs.open(self._path, offset, length)
            self._position, self._end = offset, float("inf") if length is None else offset + length
        return min(n, self._end - offset)

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()


def stream(path: str | os.PathLike, size: int) -> Iterator[bytes]:
    """Yield the bytes of a whole file in pieces of ``size``, the last one shorter."""
    with open_file(path) as file:
        file.advise(0, None)
        position = 0
        while piece := file.pread(size, position):
            position += len(piece)
            yield piece


def _place(path):
    """Return (file system, path on it)."""
    from apnc import hdfs

    where, inside = hdfs.split(path)
    # An address stands in units, put there by a driver to whom it answered: not to be tried out by every task.
    return (hdfs.at(where) if where.startswith("webhdfs") else hdfs.connect(path)), inside


def for_tasks(path: str) -> str:
    """Return the path in a form that needs no configuration of Hadoop's where it is read, if there is one."""
    if not is_remote(path):
        return path
    filesystem, inside = _place(path)
    return filesystem.uri(inside)


def walk(argument: str) -> list[tuple[str, str, int]]:
    """Return (name below it, path, size) of the files that a path on HDFS names, in order; see `detect.describe`."""
    from apnc import hdfs

    filesystem, inside = hdfs.connect(argument), hdfs.split(argument)[1]
    root = hdfs.split(argument)[0]
    status = filesystem.status(inside)
    if status is None:
        raise InputError(f"{argument}: no such file or directory on HDFS")
    if not status.is_dir:
        return [(status.name, root + status.path, status.size)]

    def below(folder, prefix):
        for entry in filesystem.list(folder):
            if entry.name[0] in "_.":
                continue
            if entry.is_dir:
                yield from below(entry.path, f"{prefix}{entry.name}/")
            else:
                yield prefix + entry.name, root + entry.path, entry.size

    return list(below(status.path, ""))


def states(paths: list[str]) -> list[tuple[int, int]]:
    """Return (size, time of change in ns) of every file.

    Raises
    ------
    OSError, InputError
        If one is no longer there.
    """
    found = {}
    for path in paths:
        if not is_remote(path):
            status = os.stat(path)
            found[path] = status.st_size, status.st_mtime_ns
    folders: dict[str, list[str]] = {}
    for path in paths:
        if path not in found:
            folders.setdefault(path.rpartition("/")[0], []).append(path)
    for folder, inside in folders.items():  # one request for many files of a folder
        filesystem, root = _place(folder + "/")
        entries = filesystem.list(root) if len(inside) > 1 else [filesystem.status(_place(inside[0])[1])]
        known = {entry.name: entry for entry in entries if entry is not None and not entry.is_dir}
        for path in inside:
            entry = known.get(path.rpartition("/")[2])
            if entry is None:
                raise InputError(f"{path}: no such file on HDFS")
            found[path] = entry.size, entry.mtime_ms * 1_000_000
    return [found[path] for path in paths]


def check_names(files: Iterable) -> None:
    """Refuse what Hadoop cannot take as an input of a job, though it can store it.

    Parameters
    ----------
    files : iterable of SourceFile or str
        Those that are named to Hadoop one by one.

    Raises
    ------
    InputError
        Naming the file, the character and what to do.
    """
    for file in files:
        path = getattr(file, "path", file)
        found = _UNNAMEABLE.search(re.sub(r"^[A-Za-z][\w+.-]*://[^/]*", "", path))
        if found:
            raise InputError(
                f"{path}: Hadoop cannot read a file by a name with {found[0]!r} in it; rename it (hadoop fs -mv)"
            )
