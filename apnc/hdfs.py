"""HDFS: through WebHDFS where it answers, else through the ``hadoop fs`` command. Standard library only.

Map tasks import this too, so it must be quick to import. Paths are plain text as in Hadoop's own commands, absolute
and without a scheme; nothing in them is an escape. `connect` finds the file system of a URI::

    filesystem = connect("hdfs:///data/x.csv")
    _, path = split("hdfs:///data/x.csv")
    with filesystem.open(path, offset=1 << 20) as stream:
        for chunk in stream: ...

Both kinds of file system have the same methods. `WebHdfs` may be used by several threads at a time.
"""

from __future__ import annotations

import getpass
import http.client
import io
import json
import os
import posixpath
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, urlencode, urlsplit
from xml.etree import ElementTree

from apnc.errors import InputError, StageError

SCHEMES = ("hdfs", "webhdfs")
CONNECT_SECONDS = 10
ANSWER_SECONDS = 60
ATTEMPTS = 5  # of one request, or of a stream without a byte of progress
FIRST_PAUSE = 0.1  # seconds before the second attempt; then twice as long each time
AVOID_SECONDS = 60  # for which a DataNode that failed is not asked again
CHUNK_BYTES = 1 << 20
HTTP_PORT = 9870  # the NameNode's, where no configuration names one
CONFIGURATION_FILES = ("core-site.xml", "hdfs-site.xml", "yarn-site.xml", "mapred-site.xml")

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)(.*)", re.DOTALL)
_PASSING = ("StandbyException", "RetriableException")


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


# Where Hadoop is


def find_hadoop() -> str | None:
    """Return the path of the ``hadoop`` command: on PATH, or below HADOOP_HOME or the like."""
    found = shutil.which("hadoop")
    if found:
        return found
    for variable in ("HADOOP_HOME", "HADOOP_PREFIX", "HADOOP_COMMON_HOME", "HADOOP_INSTALL"):
        home = os.environ.get(variable)
        if home and os.access(path := os.path.join(home, "bin", "hadoop"), os.X_OK):
            return path
    return None


def configuration() -> dict[str, str]:
    """Return Hadoop's properties from the first folder that has a core-site.xml; empty when there is none.

    HADOOP_CONF_DIR, etc/hadoop below HADOOP_HOME or the like, that beside the ``hadoop`` command, /etc/hadoop/conf.
    """
    for folder in _configuration_folders():
        if os.path.isfile(os.path.join(folder, CONFIGURATION_FILES[0])):
            properties: dict[str, str] = {}
            for name in CONFIGURATION_FILES:
                properties |= _properties(os.path.join(folder, name))
            return {key: _substituted(value, properties) for key, value in properties.items()}
    return {}


def _configuration_folders() -> Iterator[str]:
    if folder := os.environ.get("HADOOP_CONF_DIR"):
        yield folder
    for variable in ("HADOOP_HOME", "HADOOP_PREFIX", "HADOOP_COMMON_HOME", "HADOOP_INSTALL"):
        if home := os.environ.get(variable):
            yield os.path.join(home, "etc", "hadoop")
            yield os.path.join(home, "conf")
    if command := find_hadoop():
        yield os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(command))), "etc", "hadoop")
    yield "/etc/hadoop/conf"


def _properties(path) -> dict[str, str]:
    try:
        root = ElementTree.parse(path).getroot()
    except FileNotFoundError:
        return {}
    except (OSError, ElementTree.ParseError) as error:
        raise InputError(f"{path}: cannot be read as Hadoop's configuration ({error})") from None
    found = {}
    for entry in root.iter("property"):
        name, value = entry.findtext("name"), entry.findtext("value")
        if name and value is not None:
            found[name.strip()] = value.strip()
    return found


def _substituted(value: str, properties: dict[str, str]) -> str:
    for _ in range(20):  # as many as Hadoop allows
        match = next((m for m in re.finditer(r"\$\{([^{}$\s]+)\}", value) if _variable(m[1], properties)), None)
        if match is None:
            break
        value = value.replace(match[0], _variable(match[1], properties))
    return value


def _variable(name, properties):
    if name.startswith("env."):
        return os.environ.get(name[4:])
    return properties.get(name) or {"user.name": _user()}.get(name)


def _user() -> str:
    if named := os.environ.get("HADOOP_USER_NAME"):
        return named
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return "hadoop"


def connect(uri: str = "") -> WebHdfs | HadoopFs:
    """Return the file system of a URI; without one, that which Hadoop's configuration calls default.

    The same URI in the same environment gives the same object.

    Raises
    ------
    InputError
        If neither WebHDFS answers nor a ``hadoop`` command is there, saying what was tried.
    """
    where = split(uri)[0] if uri else "hdfs://"
    try:
        return _connected(where, _environment())
    except _Unreachable as error:
        raise InputError(f"{uri or where}: {error}") from None


def at(where: str) -> WebHdfs:
    """Return the file system at ``webhdfs://host:port`` without asking whether it answers."""
    return _at(where.partition("://")[2], _environment())


@lru_cache(32)
def _at(address, environment):
    return WebHdfs(address)


def _environment():
    names = ("PATH", "HADOOP_CONF_DIR", "HADOOP_HOME", "HADOOP_PREFIX", "HADOOP_USER_NAME")
    return tuple(os.environ.get(name) for name in names)


class _Unreachable(Exception):
    """Why no file system can be used."""


@lru_cache(32)
def _connected(where: str, environment) -> WebHdfs | HadoopFs:
    scheme, _, authority = where.partition("://")
    if scheme == "webhdfs":
        filesystem = _at(authority, environment)
        reason = filesystem.probe()
        if reason:
            raise _Unreachable(f"WebHDFS does not answer ({reason})")
        return filesystem
    if scheme != "hdfs":
        raise _Unreachable(f"{scheme}:// is no file system that can be read here; hdfs:// or webhdfs:// is needed")
    properties = configuration()
    default = properties.get("fs.defaultFS") or properties.get("fs.default.name") or ""
    if not authority and default and not default.startswith("hdfs://"):
        raise _Unreachable(f"Hadoop's default file system is {default} (fs.defaultFS); give hdfs://HOST:PORT/PATH")
    authority = authority or split(default)[0].partition("://")[2]
    tried = _tried(authority, properties)
    for address in tried.addresses:
        filesystem = _at(address, environment)
        reason = filesystem.probe()
        if not reason:
            return filesystem
        tried.reasons.append(f"WebHDFS at {address}: {reason}")
    command = find_hadoop()
    if command:
        return HadoopFs(f"hdfs://{authority}", command)
    tried.reasons.append("no hadoop command on PATH or in HADOOP_HOME")
    hint = ""
    if authority and "." not in authority and ":" not in authority and not properties:
        hint = f" (if {authority} is no host but a folder, write hdfs:///{authority}/…)"
    raise _Unreachable(f"HDFS cannot be reached: {'; '.join(tried.reasons)}{hint}")


class _Tried(NamedTuple):
    addresses: list[str]
    reasons: list[str]


def _tried(authority: str, properties: dict[str, str]) -> _Tried:
    """Return the addresses at which WebHDFS may answer for an authority, or the reason why there are none."""
    if not authority:
        return _Tried([], ["no configuration of Hadoop's found (HADOOP_CONF_DIR, HADOOP_HOME)"])
    if properties.get("dfs.webhdfs.enabled", "true").lower() == "false":
        return _Tried([], ["WebHDFS is turned off (dfs.webhdfs.enabled)"])
    if properties.get("hadoop.security.authentication", "simple") == "kerberos":
        return _Tried([], ["WebHDFS wants Kerberos (hadoop.security.authentication)"])
    if properties.get("dfs.http.policy") == "HTTPS_ONLY":
        return _Tried([], ["WebHDFS is served by HTTPS only (dfs.http.policy)"])
    host = authority.partition(":")[0]
    service = properties.get(f"dfs.ha.namenodes.{authority}")
    if service:  # one of these is active at a time
        nodes = [node.strip() for node in service.split(",") if node.strip()]
        keys = [f"{authority}.{node}" for node in nodes]
        hosts = [properties.get(f"dfs.namenode.rpc-address.{key}", host).partition(":")[0] for key in keys]
        return _Tried(
            [
                ",".join(
                    _http_address(properties.get(f"dfs.namenode.http-address.{key}"), own)
                    for key, own in zip(keys, hosts, strict=True)
                )
            ],
            [],
        )
    default = split(properties.get("fs.defaultFS") or properties.get("fs.default.name") or "")[0]
    known = None
    if default == f"hdfs://{authority}" or properties.get("dfs.namenode.rpc-address") == authority:
        known = properties.get("dfs.namenode.http-address") or properties.get("dfs.http.address")
    return _Tried([_http_address(known, host)], [])


def _http_address(configured: str | None, host: str) -> str:
    named, _, port = (configured or "").rpartition(":")
    return f"{host if named in ('', '0.0.0.0') else named}:{port or HTTP_PORT}"


# WebHDFS


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
        self.user = user or _user()
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


def _is_seekable(data) -> bool:
    return hasattr(data, "seekable") and data.seekable()


def _body(data):
    headers = {"Content-Type": "application/octet-stream"}
    if isinstance(data, (bytes, bytearray, memoryview)):
        return data, headers | {"Content-Length": str(memoryview(data).nbytes)}
    pieces = iter(lambda: data.read(CHUNK_BYTES), b"") if hasattr(data, "read") else iter(data)
    return (piece for piece in pieces if piece), headers | {"Transfer-Encoding": "chunked"}


def _remote(body) -> tuple[str, str]:
    """Return name and message of the exception in an answer's body; empty where there is none."""
    try:
        found = json.loads(body)["RemoteException"]
        return found["exception"], (found.get("message") or "").strip().partition("\n")[0]
    except (ValueError, KeyError, TypeError):
        return "", ""


_REFUSED = {
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


def _checked(answer, body, path):
    """Raise the error that an answer reports, if it does."""
    if answer.status < 400:
        return
    exception, message = _remote(body)
    if exception in _REFUSED:
        if message.startswith("Path is not a file"):
            raise HdfsRefused(f"{path}: is a directory", exception)
        raise HdfsRefused(f"{path}: {_REFUSED[exception] or message or exception}", exception)
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


# Streams


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
            if exception in _REFUSED:
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


# The hadoop command


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
        self._command = command or find_hadoop()
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
            raise HdfsRefused(f"{path}: {_REFUSED['FileNotFoundException']}", "FileNotFoundException")
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
        pieces = [data] if isinstance(data, (bytes, bytearray, memoryview)) else _body(data)[0]
        command = ["-put", *(["-f"] if overwrite else []), "-", self._prefix + _escaped(path)]
        self._run(*command, options=options, pieces=pieces)

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


_MESSAGES = (
    ("No such file or directory", "FileNotFoundException"),
    ("File exists", "FileAlreadyExistsException"),
    ("Permission denied", "AccessControlException"),
    ("s not a directory", "ParentNotDirectoryException"),
    ("Is a directory", "IllegalArgumentException"),
    ("Directory is not empty", "PathIsNotEmptyDirectoryException"),
    ("quota", "DSQuotaExceededException"),
)


def _command_error(status, errors, arguments) -> HdfsError:
    errors.seek(0)
    lines = [line for line in errors.read().decode("utf-8", "replace").splitlines() if line.strip()]
    verb = arguments[0].lstrip("-")
    own = next((line for line in lines if line.startswith(f"{verb}: ")), lines[-1] if lines else f"status {status}")
    for words, exception in _MESSAGES:
        if words in own:
            return HdfsRefused(f"hadoop fs: {own}", exception)
    return HdfsError(f"hadoop fs {arguments[0]} failed: {own}")
