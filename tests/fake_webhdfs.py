"""WebHDFS in threads of the test's process: a NameNode and two DataNodes with files in memory, and faults on demand.

What it says, in words and status, was taken from Hadoop 3.4.2; tests/hadoop/test_hdfs.py holds the client to the real
one.
"""

from __future__ import annotations

import json
import posixpath
import threading
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, quote, unquote, urlsplit

HOST = "127.0.0.1"
PREFIX = "/webhdfs/v1"


class FakeHdfs:
    """A file system by WebHDFS, from its making until `close`.

    Attributes
    ----------
    address : str
        HOST:PORT of the NameNode.
    files : dict of str to bytes
        By absolute path.
    folders : set of str
    modified : dict of str to int
        Times of change in ms, where they are not 1,700,000,000,000.
    page : int
        Entries in one answer to a request for a list.
    requests : list of (str, str, dict)
        What was asked so far: "nn", "dn0" or "dn1", the operation, its parameters.
    faults : dict of str to deque
        By server: what shall go wrong, one entry for a request that comes in; None lets one pass.
        "drop" closes the connection without an answer, "cut N" after N bytes of a file, "EXCEPTION" is answered.
    """

    def __init__(self):
        self.files: dict[str, bytes] = {}
        self.folders = {"/"}
        self.modified: dict[str, int] = {}
        self.page = 1000
        self.requests: list = []
        self.faults = {name: deque() for name in ("nn", "dn0", "dn1")}
        self.lock = threading.Lock()
        self._servers = {name: _Server((HOST, 0), self, name) for name in self.faults}
        for server in self._servers.values():
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        self.address = self.address_of("nn")

    def address_of(self, name: str) -> str:
        return f"{HOST}:{self._servers[name].server_address[1]}"

    def stop(self, name: str) -> None:
        """Have nobody listen at a server's port any more; the NameNode does not notice."""
        self._servers[name].shutdown()
        self._servers[name].server_close()

    def close(self) -> None:
        for name in self._servers:
            self.stop(name)

    def put(self, path: str, data: bytes) -> None:
        self.files[path] = data
        while (path := posixpath.dirname(path)) not in self.folders:
            self.folders.add(path)

    def asked(self, op: str) -> list[dict]:
        """Return the parameters of the requests of one kind."""
        return [parameters for _, asked, parameters in self.requests if asked == op]

    # the NameNode

    def namenode(self, method, path, op, given):
        """Return (status, body as a dict, Location)."""
        if op == "GETFILESTATUS":
            return 200, {"FileStatus": self._status(path, "")}, None
        if op in ("LISTSTATUS_BATCH", "LISTSTATUS"):
            entries = self._children(path)
            statuses = [
                self._status(posixpath.join(path, name), name) for name in entries if name > given["startAfter"]
            ]
            if path in self.files:
                statuses = [self._status(path, "")]
            if op == "LISTSTATUS":
                return 200, {"FileStatuses": {"FileStatus": statuses}}, None
            part, rest = statuses[: self.page], statuses[self.page :]
            listing = {"partialListing": {"FileStatuses": {"FileStatus": part}}, "remainingEntries": len(rest)}
            return 200, {"DirectoryListing": listing}, None
        if op == "OPEN":
            if path not in self.files:
                raise _Remote(404, "FileNotFoundException", self._no_file(path))
            offset = int(given["offset"] or 0)
            if 0 < len(self.files[path]) <= offset:
                raise _Remote(
                    403,
                    "IOException",
                    f"Offset={offset} out of the range [0, {len(self.files[path])}); OPEN, path={path}",
                )
            return 307, {}, self._datanode(path, given)
        if op == "CREATE":
            return 307, {}, self._datanode(path, given)
        if op == "GET_BLOCK_LOCATIONS":
            nodes = [
                {"hostName": "localhost", "ipAddr": HOST, "xferPort": i, "infoPort": self._port(f"dn{i}")}
                for i in (0, 1)
            ]
            return 200, {"LocatedBlocks": {"locatedBlocks": [{"locations": nodes}]}}, None
        if op == "MKDIRS":
            if any(part in self.files for part in _upwards(path)):
                raise _Remote(403, "ParentNotDirectoryException", f"{path} (is not a directory)")
            self.folders |= set(_upwards(path))
            return 200, {"boolean": True}, None
        if op == "RENAME":
            return 200, {"boolean": self._rename(path, given["destination"])}, None
        if op == "DELETE":
            if path in self.folders and self._children(path) and given["recursive"] != "true":
                raise _Remote(403, "PathIsNotEmptyDirectoryException", f"`{path} is non empty': Directory is not empty")
            gone = [p for p in [*self.files, *self.folders] if p == path or p.startswith(path.rstrip("/") + "/")]
            for p in gone:
                self.files.pop(p, None)
                self.folders.discard(p)
            return 200, {"boolean": bool(gone)}, None
        if op == "GETCONTENTSUMMARY":
            self._status(path, "")
            below = [p for p in self.files if p == path or p.startswith(path.rstrip("/") + "/")]
            folders = [p for p in self.folders if p == path or p.startswith(path.rstrip("/") + "/")]
            length = sum(len(self.files[p]) for p in below)
            summary = {"fileCount": len(below), "directoryCount": len(folders), "length": length}
            return 200, {"ContentSummary": summary}, None
        raise _Remote(400, "IllegalArgumentException", f'Invalid value for webhdfs parameter "op": {method} {op}')

    def _port(self, name):
        return self._servers[name].server_address[1]

    def _datanode(self, path, given):
        left_out = given["excludedatanodes"].split(",")
        names = [f"dn{i}" for i in (0, 1) if f"{HOST}:{i}" not in left_out and HOST not in left_out]
        if not names:
            raise _Remote(403, "IOException", "Failed to find datanode, suggest to check cluster health.")
        query = "&".join(f"{name}={quote(value)}" for name, value in given.items() if value)
        return f"http://{self.address_of(names[0])}{PREFIX}{quote(path)}?{query}"

    def _no_file(self, path):
        return f"Path is not a file: {path}" if path in self.folders else f"File does not exist: {path}"

    def _children(self, path):
        if path not in self.files and path not in self.folders:
            raise _Remote(404, "FileNotFoundException", f"File {path} does not exist.")
        inside = [p for p in [*self.files, *self.folders] if p != "/" and posixpath.dirname(p) == path]
        return sorted((posixpath.basename(p) for p in inside), key=str.encode)

    def _status(self, path, suffix):
        if path not in self.files and path not in self.folders:
            raise _Remote(404, "FileNotFoundException", f"File does not exist: {path}")
        return {
            "pathSuffix": suffix,
            "type": "FILE" if path in self.files else "DIRECTORY",
            "length": len(self.files.get(path, b"")),
            "modificationTime": self.modified.get(path, 1_700_000_000_000),
            "blockSize": 1 << 27 if path in self.files else 0,
            "replication": 2 if path in self.files else 0,
        }

    def _rename(self, src, dst):
        if dst in self.folders:
            dst = posixpath.join(dst, posixpath.basename(src))
        if dst in self.files or dst in self.folders or posixpath.dirname(dst) not in self.folders:
            return False
        moved = [p for p in [*self.files, *self.folders] if p == src or p.startswith(src + "/")]
        for p in moved:
            if p in self.files:
                self.files[dst + p[len(src) :]] = self.files.pop(p)
            else:
                self.folders.remove(p)
                self.folders.add(dst + p[len(src) :])
        return bool(moved)


def _upwards(path):
    while path != "/":
        yield path
        path = posixpath.dirname(path)


class _Remote(Exception):
    def __init__(self, status, exception, message):
        super().__init__(message)
        self.status = status
        self.body = {"RemoteException": {"exception": exception, "javaClassName": exception, "message": message}}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address, fs, name):
        super().__init__(address, _Handler)
        self.fs, self.name = fs, name

    def handle_error(self, request, client_address):
        pass  # clients that hang up are part of the tests


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def log_message(self, *_):
        pass

    def _answer(self):
        url = urlsplit(self.path)
        path = unquote(url.path.removeprefix(PREFIX), errors="strict") or "/"
        given = _Parameters({name: values[0] for name, values in parse_qs(url.query).items()})
        op, fs, name = given["op"], self.server.fs, self.server.name
        with fs.lock:
            fs.requests.append((name, op, given))
            fault = fs.faults[name].popleft() if fs.faults[name] else None
        if name == "nn":
            length = int(self.headers["Content-Length"] or 0)
            self.rfile.read(length)
        else:
            self.close_connection = True
        if fault == "drop":
            self.close_connection = True
            return
        try:
            if fault and not fault.startswith("cut "):
                raise _Remote(403, fault, f"{fault} was wanted")
            if name == "nn":
                with fs.lock:
                    status, body, location = fs.namenode(self.command, path, op, given)
                self._send(status, json.dumps(body).encode(), {"Location": location} if location else {})
            elif op == "OPEN":
                self._open(fs.files[path], given, fault)
            elif op == "CREATE":
                self._create(fs, path, given)
        except _Remote as error:
            self._send(error.status, json.dumps(error.body).encode(), {})

    do_GET = do_PUT = do_DELETE = _answer

    def _send(self, status, body, headers):
        self.send_response(status)
        for header, value in {**headers, "Content-Length": len(body)}.items():
            self.send_header(header, str(value))
        self.end_headers()
        self.wfile.write(body)

    def _open(self, data, given, fault):
        offset = int(given["offset"] or 0)
        if offset > len(data):
            raise _Remote(403, "EOFException", "Cannot seek after EOF")
        part = data[offset : offset + int(given["length"])] if given["length"] else data[offset:]
        if fault:
            self.send_response(200)
            self.send_header("Content-Length", str(len(part)))
            self.end_headers()
            self.wfile.write(part[: int(fault[4:])])
        else:
            self._send(200, part, {})

    def _create(self, fs, path, given):
        if self.headers["Transfer-Encoding"] == "chunked":
            data = b""
            while size := int(self.rfile.readline(), 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            data = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response_only(100)
        self.end_headers()
        with fs.lock:
            if path in fs.folders:
                raise _Remote(403, "FileAlreadyExistsException", f"{path} already exists as a directory")
            if path in fs.files and given["overwrite"] != "true":
                raise _Remote(403, "FileAlreadyExistsException", f"{path} for client {HOST} already exists")
            fs.put(path, data)
        self._send(201, b"", {})


class _Parameters(dict):
    def __missing__(self, name):
        return ""
