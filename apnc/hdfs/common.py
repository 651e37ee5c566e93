"""What both ways to HDFS share: paths, statuses, errors, streams of bytes."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import NamedTuple

from apnc.errors import InputError, StageError

CHUNK_BYTES = 1 << 20
# Hadoop's exceptions that another attempt would not help, with words for those that say little
REFUSED = {
    "FileNotFoundException": "no such file or directory",
    "AccessControlException": "",
    "SecurityException": "",
    "IllegalArgumentException": "",
    "UnsupportedOperationException": "",
    "FileAlreadyExistsException": "",
    "ParentNotDirectoryException": "",
    "PathIsNotEmptyDirectoryException": "",
    "InvalidPathException": "",
    "DSQuotaExceededException": "",
    "NSQuotaExceededException": "",
    "InvalidToken": "",
}

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)(.*)", re.DOTALL)


class HdfsError(StageError):
    """HDFS did not do what was asked: out of reach, or a fault of its own.

    Attributes
    ----------
    exception : str
        Hadoop's name for it ("SafeModeException"), empty if it is not Hadoop that says so.
    """

    def __init__(self, message: str, exception: str = ""):
        super().__init__(message.replace("\n", "\\n"))  # names may hold line feeds; a message is one line
        self.exception = exception


class HdfsRefused(InputError, HdfsError):
    """HDFS may not or cannot do what was asked, and will not later: no such path, no permission, in the way."""


class FileStatus(NamedTuple):
    """What HDFS knows of a file or directory."""

    path: str
    name: str
    size: int
    is_dir: bool
    mtime_ms: int
    block_size: int
    replication: int


class ContentSummary(NamedTuple):
    """What lies below a directory, itself included; ``length`` in bytes, replicas not counted."""

    files: int
    directories: int
    length: int


def split(uri: str) -> tuple[str, str]:
    """Return the file system and the absolute path that a URI, or a path without a scheme, names.

    The file system is ``scheme://host:port``, or ``hdfs://`` for the one that Hadoop's configuration calls default.

    Examples
    --------
    >>> split("hdfs:///user/me//x.csv")
    ('hdfs://', '/user/me/x.csv')
    >>> split("webhdfs://node1:9870/a b/50%.csv")
    ('webhdfs://node1:9870', '/a b/50%.csv')
    """
    match = _URI.fullmatch(uri)
    scheme, authority, path = match.groups() if match else ("hdfs", "", uri)
    path = posixpath.normpath("/" + path)
    return f"{scheme.lower()}://{authority}", "/" + path.lstrip("/")


class Stream:
    """Bytes of a file, one after the other. Iteration gives them in chunks."""

    def read(self, n: int | None = None) -> bytes:
        """Return the next ``n`` bytes, fewer at the end; all that are left without ``n``."""
        if n is None or n < 0:
            return b"".join(self)
        view = memoryview(bytearray(n))
        return bytes(view[: self.readinto(view)])

    def readinto(self, buffer) -> int:
        """Fill a buffer with the next bytes; return how many there were."""
        view = memoryview(buffer).cast("B")
        done = 0
        while done < len(view):
            got = self._some(view[done:])
            if not got:
                break
            done += got
        return done

    def __iter__(self) -> Iterator[bytes]:
        while piece := self.read(CHUNK_BYTES):
            yield piece

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def close(self) -> None:
        """Stop; without this a connection or a process stays until the object goes."""

    def _some(self, view) -> int:
        raise NotImplementedError


def chunks_of(data) -> Iterator[bytes]:
    """Return what there is to write in pieces: bytes as they are, a file's by chunks, those of an iterable."""
    if isinstance(data, (bytes, bytearray, memoryview)):
        return iter((data,))
    pieces = iter(lambda: data.read(CHUNK_BYTES), b"") if hasattr(data, "read") else iter(data)
    return (piece for piece in pieces if piece)
