"""HDFS through WebHDFS: the HTTP of the NameNode and the DataNodes."""

from __future__ import annotations

import http.client
import io
import json
import os
import posixpath
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from urllib.parse import quote, urlencode, urlsplit

from apnc.hdfs.common import (
    REFUSED,
    ContentSummary,
    FileStatus,
    HdfsError,
    HdfsRefused,
    Stream,
    chunks_of,
)
from apnc.hdfs.environment import user as default_user

CONNECT_SECONDS = 10
ANSWER_SECONDS = 60
ATTEMPTS = 5  # of one request, or of a stream without a byte of progress
FIRST_PAUSE = 0.1  # seconds before the second attempt; then twice as long each time
AVOID_SECONDS = 60  # for which a DataNode that failed is not asked again
HTTP_PORT = 9870  # the NameNode's, where no configuration names one
_PASSING = ("StandbyException", "RetriableException")


class WebHdfs:
    """HDFS through the NameNode's and DataNodes' HTTP.

    Requests that change nothing are repeated a few times when a connection fails. A stream goes on from where it
    was, at another DataNode, when the one that sends it dies.

    Parameters
    ----------
    address : str
        HOST:PORT of the NameNode's HTTP server; several with commas between them where one is active at a time.
    user : str, optional
        As whom to act: HADOOP_USER_NAME or this process's user by default.
    """

    def __init__(self, address: str, user: str | None = None):
        self.address = address
        self.user = user or default_user()
        self._addresses = [one if ":" in one else f"{one}:{HTTP_PORT}" for one in address.split(",")]
        self._active = 0
        self._own = threading.local()  # a connection of each thread, kept alive
        self._avoided: dict[str, tuple[str, float]] = {}  # by HTTP address: name for the NameNode, until when

    def __repr__(self):
        return f"WebHdfs({self.address!r})"

    def uri(self, path: str) -> str:
        """Return the path with a scheme and address, so that it can be read where Hadoop is not configured."""
        return f"webhdfs://{self.address}{path}"

    def probe(self) -> str:
        """Return why WebHDFS does not answer; empty when it does."""
        try:
            self._call("GET", "/", "GETFILESTATUS", attempts=len(self._addresses))
        except HdfsRefused as error:
            return "" if error.exception in ("AccessControlException", "FileNotFoundException") else str(error)
        except HdfsError as error:
            return str(error).partition(": ")[2]
        return ""

    def status(self, path: str) -> FileStatus | None:
        """Return what a path names, None if nothing."""
        try:
            return _file_status(self._call("GET", path, "GETFILESTATUS")["FileStatus"], path)
        except HdfsRefused as error:
            if error.exception == "FileNotFoundException":
                return None
            raise

    def list(self, path: str) -> list[FileStatus]:
        """Return what is in a directory, by name in the order of Unicode; a file's own status for a file."""
        found, after = [], {}
        while True:  # in pages: a NameNode answers with a thousand entries at a time
            try:
                answer = self._call("GET", path, "LISTSTATUS_BATCH", **after)["DirectoryListing"]
            except HdfsRefused as error:
                if after or error.exception not in ("IllegalArgumentException", "UnsupportedOperationException"):
                    raise
                statuses = self._call("GET", path, "LISTSTATUS")["FileStatuses"]["FileStatus"]
                answer = {"partialListing": {"FileStatuses": {"FileStatus": statuses}}, "remainingEntries": 0}
            entries = answer["partialListing"]["FileStatuses"]["FileStatus"]
            found += [_file_status(entry, path) for entry in entries]
            if not answer["remainingEntries"] or not entries:
                return sorted(found, key=lambda status: status.name)
            after = {"startAfter": entries[-1]["pathSuffix"]}

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Return bytes of a file: ``length`` from ``offset`` on, fewer where it ends."""
        with self.open(path, offset, length) as stream:
            return stream.read()

    def open(self, path: str, offset: int = 0, length: int | None = None) -> Stream:
        """Return a stream of bytes of a file, to be closed after use; see `read`."""
        return _WebStream(self, path, offset, length)

    def write(
        self,
        path: str,
        data: bytes | io.IOBase | Iterable[bytes],
        overwrite: bool = False,
        replication: int | None = None,
        block_size: int | None = None,
    ) -> None:
        """Write a file; missing directories above it are made.

        It is not there at once: readers may see a part, and so they may after a failure. Of ``data``, bytes and
        files with a position are sent again when a server fails, if that cannot harm what another has written.

        Raises
        ------
        HdfsRefused
            If it exists and is not to be overwritten, or may not be written.
        """
        options = {"overwrite": "true" if overwrite else "false", "replication": replication, "blocksize": block_size}
        options = {name: value for name, value in options.items() if value is not None}
        start = data.tell() if _is_seekable(data) else None
        twice = start is not None or isinstance(data, (bytes, bytearray, memoryview))
        for attempt in range(ATTEMPTS):
            sent = False
            authority, target = self._redirect("PUT", path, "CREATE", options)
            connection = _Connection(authority)
            try:
                connection.connect()
                sent = True
                if start is not None:
                    data.seek(start)
                body, headers = _body(data)
                with suppress(BrokenPipeError, ConnectionResetError):  # it has seen enough, and says why
                    connection.request("PUT", target, body, headers, encode_chunked="Content-Length" not in headers)
                answer = connection.getresponse()
                _checked(answer, answer.read(), path)
                return
            except HdfsRefused:
                raise
            except HdfsError:  # such as a replica that was to be on a node which has died
                if attempt == ATTEMPTS - 1 or not twice or not (overwrite or self.status(path) is None):
                    raise
                _pause(attempt)
            except (OSError, http.client.HTTPException) as error:
                self._avoid(authority, path, 0)
                if attempt == ATTEMPTS - 1 or (sent and not (twice and overwrite)):
                    raise HdfsError(f"{path}: writing to DataNode {authority} failed ({_said(error)})") from None
                _pause(attempt)
            finally:
                connection.close()

    def mkdirs(self, path: str) -> None:
        """Make a directory and those above it; one that exists is left as it is."""
        if not self._call("PUT", path, "MKDIRS")["boolean"]:
            raise HdfsRefused(f"{path}: the directory cannot be made")

    def rename(self, src: str, dst: str) -> bool:
        """Rename, or move into ``dst`` if that is a directory; return False if there is nothing, or one in the way."""
        return self._call("PUT", src, "RENAME", attempts=1, destination=dst)["boolean"]

    def delete(self, path: str, recursive: bool = True) -> bool:
        """Delete; return False if there is nothing. A directory that is not empty needs ``recursive``."""
        return self._call("DELETE", path, "DELETE", recursive="true" if recursive else "false")["boolean"]

    def content_summary(self, path: str) -> ContentSummary:
        """Return how much is below a path."""
        found = self._call("GET", path, "GETCONTENTSUMMARY")["ContentSummary"]
        return ContentSummary(found["fileCount"], found["directoryCount"], found["length"])

    # requests

    def _query(self, op, parameters):
        return urlencode({"op": op, "user.name": self.user, **parameters}, quote_via=quote)

    def _call(self, method, path, op, attempts=ATTEMPTS, **parameters):
        """Return the answer of the NameNode to one request, parsed."""
        answer, body = self._ask(method, path, op, parameters, attempts)
        _checked(answer, body, path)
        try:
            return json.loads(body)
        except ValueError:
            raise HdfsError(f"{path}: {self._namenode()} does not answer as WebHDFS does") from None

    def _redirect(self, method, path, op, parameters):
        """Return (address, target) of the server that sends or takes a file's bytes."""
        avoided = self._names_avoided()
        extra = {"excludedatanodes": ",".join(avoided)} if avoided else {}
        answer, body = self._ask(method, path, op, parameters | extra)
        if answer.status != 307 and avoided and answer.status >= 400:  # none of the others has it
            answer, body = self._ask(method, path, op, parameters)
        if answer.status != 307:
            _checked(answer, body, path)
            raise HdfsError(f"{path}: {self._namenode()} names no server for its bytes (status {answer.status})")
        url = urlsplit(answer.getheader("Location", ""))
        if url.scheme != "http":
            raise HdfsError(
                f"{path}: WebHDFS leads to {url.scheme or 'no'}:// address {url.netloc}; only http:// can be"
            )
        return url.netloc, quote(f"{url.path}?{url.query}", safe="%/?&=+,;:@!$'()*~-._")

    def _ask(self, method, path, op, parameters, attempts=ATTEMPTS):
        """Send a request to the NameNode; return (response, body)."""
        target = f"/webhdfs/v1{quote(path, safe='/')}?{self._query(op, parameters)}"
        for attempt in range(attempts):
            which = self._active
            kept = getattr(self._own, "connection", None)
            # One that was idle may have been closed: not for a request that is sent but once.
            fresh = kept is None or attempts == 1 or self._own.which != which or self._own.pid != os.getpid()
            connection = None if fresh else kept
            self._own.connection, self._own.which, self._own.pid = None, which, os.getpid()
            try:
                connection = connection or _Connection(self._addresses[which])
                connection.request(method, target, headers={"Content-Length": "0"} if method == "PUT" else {})
                answer = connection.getresponse()
                body = answer.read()
            except (OSError, http.client.HTTPException, UnicodeError) as error:  # the last: not a host's name
                if connection is not None:
                    connection.close()
                if not fresh and method == "GET":
                    return self._ask(method, path, op, parameters, attempts)  # it was only idle for too long
                if attempt == attempts - 1:
                    raise HdfsError(f"{path}: {self._namenode()} cannot be reached ({_said(error)})") from None
            else:
                if answer.will_close:
                    connection.close()
                else:
                    self._own.connection = connection
                if attempt == attempts - 1 or not (answer.status >= 400 and _remote(body)[0] in _PASSING):
                    return answer, body
            self._active = (which + 1) % len(self._addresses)
            _pause(attempt if len(self._addresses) == 1 else attempt - 1)
        raise AssertionError("unreachable")

    def _namenode(self):
        return f"NameNode {self._addresses[self._active]}"

    # DataNodes that failed

    def _avoid(self, authority, path, offset):
        """Ask other DataNodes than this one for a while."""
        host, _, port = authority.rpartition(":")
        name = host
        try:  # the NameNode knows DataNodes by the port of their data transfer
            answer, body = self._ask("GET", path, "GET_BLOCK_LOCATIONS", {"offset": offset, "length": 1}, 1)
            if answer.status == 200:
                for block in json.loads(body)["LocatedBlocks"]["locatedBlocks"]:
                    for node in block["locations"]:
                        if host in (node["hostName"], node["ipAddr"]) and str(node["infoPort"]) == port:
                            name = f"{node['ipAddr']}:{node['xferPort']}"
        except (HdfsError, ValueError, KeyError, TypeError):
            pass
        self._avoided[authority] = name, time.monotonic() + AVOID_SECONDS

    def _names_avoided(self):
        now = time.monotonic()
        return sorted({name for name, until in list(self._avoided.values()) if until > now})


class _Connection(http.client.HTTPConnection):
    """Waits less long for a connection than for an answer."""

    def connect(self):
        if self.sock is None:
            self.timeout = CONNECT_SECONDS
            super().connect()
            self.sock.settimeout(ANSWER_SECONDS)


class _WebStream(Stream):
    def __init__(self, filesystem, path, offset, length):
        self._fs, self._path = filesystem, path
        self._position, self._left = offset, length  # left: None until the size is known, then bytes still to come
        self._answer = self._connection = None
        self._authority = ""
        self._expected = None
        self._failures = 0
        if length != 0:
            self._retrying(self._connect)  # a file that is not there must show now

    def _some(self, view):
        if self._left == 0:
            return 0
        if self._left is not None:
            view = view[: self._left]
        got = self._retrying(lambda: self._receive(view))
        self._position += got
        if self._left is not None:
            self._left -= got
        if not got or self._left == 0:
            self._left = 0
            self.close()
        return got

    def _retrying(self, step):
        while True:
            try:
                got = step()
                self._failures = 0
                return got
            except (OSError, http.client.HTTPException) as error:
                self.close()
                self._failures += 1
                if self._authority:
                    self._fs._avoid(self._authority, self._path, self._position)
                if self._failures >= ATTEMPTS:
                    where = f"DataNode {self._authority}" if self._authority else self._fs._namenode()
                    raise HdfsError(f"{self._path}: reading from {where} failed ({_said(error)})") from None
                _pause(self._failures - 1)

    def _connect(self):
        options = {"offset": self._position} | ({} if self._left is None else {"length": self._left})
        self._authority = ""
        try:
            self._authority, target = self._fs._redirect("GET", self._path, "OPEN", options)
        except HdfsError as error:
            if "out of the range [0, " in str(error):  # Hadoop's words for nothing left
                self._left = 0
                return
            if error.exception in ("IOException", "SafeModeException"):  # it does not know yet who has the block
                raise OSError(str(error).partition(": HDFS says ")[2]) from None
            raise
        self._connection = _Connection(self._authority)
        self._connection.request("GET", target)
        self._answer = self._connection.getresponse()
        if self._answer.status >= 400:
            body = self._answer.read()
            exception, message = _remote(body)
            if exception in REFUSED:
                _checked(self._answer, body, self._path)
            if message == "Cannot seek after EOF":  # the same of an empty file
                self._left = 0
                self.close()
                return
            raise OSError(message or exception or f"HTTP status {self._answer.status}")
        promised = self._answer.getheader("Content-Length")
        if promised is not None:
            self._left = int(promised) if self._left is None else min(self._left, int(promised))

    def _receive(self, view):
        if self._answer is None:
            self._connect()
            if self._answer is None:
                return 0
            if self._left is not None:
                view = view[: self._left]
        got = self._answer.readinto(view) if len(view) else 0
        if not got and self._left:
            if self._answer.getheader("Content-Length") is None:
                return 0  # by chunks, whose end is marked: the file ends here
            raise ConnectionError("the connection ended early")
        return got

    def close(self):
        if self._connection is not None:
            self._connection.close()
            if self._answer is not None:
                self._answer.close()
        self._connection = self._answer = None


def _is_seekable(data) -> bool:
    return hasattr(data, "seekable") and data.seekable()


def _body(data):
    headers = {"Content-Type": "application/octet-stream"}
    if isinstance(data, (bytes, bytearray, memoryview)):
        return data, headers | {"Content-Length": str(memoryview(data).nbytes)}
    return chunks_of(data), headers | {"Transfer-Encoding": "chunked"}


def _remote(body) -> tuple[str, str]:
    """Return name and message of the exception in an answer's body; empty where there is none."""
    try:
        found = json.loads(body)["RemoteException"]
        return found["exception"], (found.get("message") or "").strip().partition("\n")[0]
    except (ValueError, KeyError, TypeError):
        return "", ""


def _checked(answer, body, path):
    """Raise the error that an answer reports, if it does."""
    if answer.status < 400:
        return
    exception, message = _remote(body)
    if exception in REFUSED:
        if message.startswith("Path is not a file"):
            raise HdfsRefused(f"{path}: is a directory", exception)
        raise HdfsRefused(f"{path}: {REFUSED[exception] or message or exception}", exception)
    if exception:
        raise HdfsError(f"{path}: HDFS says {exception}: {message}", exception)
    if answer.status in (401, 403):
        raise HdfsRefused(f"{path}: WebHDFS wants another authentication (HTTP status {answer.status})")
    raise HdfsError(f"{path}: WebHDFS answers with HTTP status {answer.status} {answer.reason}")


def _file_status(entry, path) -> FileStatus:
    if entry["pathSuffix"]:
        path = posixpath.join(path, entry["pathSuffix"])
    return FileStatus(
        path,
        posixpath.basename(path),
        entry["length"],
        entry["type"] == "DIRECTORY",
        entry["modificationTime"],
        entry["blockSize"],
        entry["replication"],
    )


def _said(error) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _pause(attempt):
    time.sleep(FIRST_PAUSE * 2**attempt if attempt >= 0 else 0)
