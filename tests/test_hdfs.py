"""The way to HDFS: what a client sends and makes of the answers, and which file system a URI leads to."""

from __future__ import annotations

import io
import os
import socket
import stat
import subprocess
import sys
import threading

import pytest
from fake_webhdfs import FakeHdfs
from hdfs_inputs import NAMES

from apnc import hdfs
from apnc.errors import InputError, StageError
from apnc.hdfs import HadoopFs, HdfsError, HdfsRefused, WebHdfs, connect, connecting, environment, split, web

DATA = bytes(range(256)) * 400


@pytest.fixture
def fs(fake):
    return WebHdfs(fake.address, "me")


@pytest.fixture
def nowhere(monkeypatch):
    """No Hadoop anywhere."""
    for name in list(os.environ):
        if name.startswith("HADOOP"):
            monkeypatch.delenv(name)
    monkeypatch.setattr(environment, "find_hadoop", lambda: None)
    monkeypatch.setattr(environment, "_configuration_folders", lambda: iter(()))
    connecting._connected.cache_clear()
    connecting._at.cache_clear()
    yield
    connecting._connected.cache_clear()
    connecting._at.cache_clear()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# Paths


@pytest.mark.parametrize(
    ("uri", "where", "path"),
    [
        ("hdfs:///user/me/x.csv", "hdfs://", "/user/me/x.csv"),
        ("hdfs://node1:8020/a/b/", "hdfs://node1:8020", "/a/b"),
        ("HDFS://node1//a/./c/../b", "hdfs://node1", "/a/b"),
        ("webhdfs://h1:1,h2:2/x#y?z%20 ü", "webhdfs://h1:1,h2:2", "/x#y?z%20 ü"),
        ("hdfs://node1", "hdfs://node1", "/"),
        ("/plain/path", "hdfs://", "/plain/path"),
        ("hdfs:///../x", "hdfs://", "/x"),
    ],
)
def test_a_uri_is_split_and_nothing_in_it_is_an_escape(uri, where, path):
    assert split(uri) == (where, path)


# WebHDFS: the calls


@pytest.mark.parametrize("name", [*NAMES, "a;b"])  # the last is not put on a real HDFS
def test_every_name_is_itself(fake, fs, name):
    path = f"/d [1], x%41/{name}"
    fs.write(path, DATA)
    assert fake.files == {path: DATA}
    assert fs.read(path) == DATA
    assert fs.status(path)[:4] == (path, name, len(DATA), False)
    assert [s.path for s in fs.list("/d [1], x%41")] == [path]
    assert fs.rename(path, f"/moved {name}") and fs.status(path) is None
    assert fs.delete(f"/moved {name}") and not fake.files


@pytest.mark.parametrize(
    "data",
    [DATA, memoryview(DATA), io.BytesIO(DATA), (DATA[i : i + 999] for i in range(0, len(DATA), 999)), [b"", DATA, b""]],
    ids=["bytes", "view", "file", "generator", "list"],
)
def test_any_kind_of_data_is_written(fake, fs, data):
    fs.write("/x", data, replication=1, block_size=4096)
    assert fake.files["/x"] == DATA
    assert fake.asked("CREATE")[0] | {"replication": "1", "blocksize": "4096"} == fake.asked("CREATE")[0]


def test_nothing_can_be_written_too(fake, fs):
    fs.write("/bytes", b"")
    fs.write("/pieces", iter(()))
    assert fake.files == {"/bytes": b"", "/pieces": b""}
    assert fs.read("/bytes") == b"" == fs.read("/bytes", 5, 5)


def test_what_exists_is_overwritten_only_when_asked(fake, fs):
    fs.write("/x", b"old")
    for data in (b"new", iter([b"new"])):
        with pytest.raises(HdfsRefused, match=r"^/x: /x for client .* already exists"):
            fs.write("/x", data)
    assert fake.files["/x"] == b"old"
    fs.write("/x", b"new", overwrite=True)
    assert fake.files["/x"] == b"new"


@pytest.mark.parametrize(("offset", "length"), [(0, None), (0, 0), (7, 100), (len(DATA) - 3, 10), (len(DATA), 5)])
def test_a_part_of_a_file_is_read(fake, fs, offset, length):
    fake.put("/x", DATA)
    wanted = DATA[offset:] if length is None else DATA[offset : offset + length]
    assert fs.read("/x", offset, length) == wanted
    with fs.open("/x", offset, length) as stream:
        assert b"".join(stream) == wanted
    buffer = bytearray(200)
    with fs.open("/x", offset, length) as stream:
        assert stream.read(3) == wanted[:3]
        assert buffer[: stream.readinto(buffer)] == wanted[3:203]
        assert stream.read() == wanted[203:]
        assert stream.read() == stream.read(1) == b""


def test_long_lists_come_in_pages(fake, fs):
    fake.page = 3
    for i in range(10):
        fake.put(f"/d/{i}ü%", b"x" * i)
    fake.put("/d/sub/x", b"")
    assert [(s.name, s.size, s.is_dir) for s in fs.list("/d")] == [
        *((f"{i}ü%", i, False) for i in range(10)),
        ("sub", 0, True),
    ]
    assert len(fake.asked("LISTSTATUS_BATCH")) == 4


def test_an_old_namenode_without_pages_is_understood(fake, fs):
    fake.put("/d/x", b"1")
    fake.faults["nn"].append("IllegalArgumentException")
    assert [s.path for s in fs.list("/d")] == ["/d/x"]


def test_the_small_calls(fake, fs):
    assert fs.status("/a") is None and not fs.delete("/a") and not fs.rename("/a", "/b")
    fs.mkdirs("/a/b")
    assert fs.list("/a/b") == [] and fs.status("/a/b").is_dir
    fs.write("/a/x", b"12345")
    assert fs.content_summary("/a") == (1, 2, 5)
    assert [s.path for s in fs.list("/a/x")] == ["/a/x"]
    assert fs.status("/a/x").mtime_ms == 1_700_000_000_000
    with pytest.raises(HdfsRefused, match="Directory is not empty"):
        fs.delete("/a", recursive=False)
    assert not fs.rename("/a/b", "/a/x"), "in the way"
    assert fs.rename("/a/x", "/a/b") and fs.read("/a/b/x") == b"12345"
    assert fs.delete("/a") and fs.list("/") == []


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda fs: fs.read("/no"), "^/no: no such file or directory$"),
        (lambda fs: fs.list("/no"), "^/no: no such file or directory$"),
        (lambda fs: fs.read("/d"), "^/d: is a directory$"),
        (lambda fs: fs.write("/d", b""), "^/d: /d already exists as a directory$"),
        (lambda fs: fs.mkdirs("/d/x/y"), r"^/d/x/y: /d/x/y \(is not a directory\)$"),
    ],
)
def test_what_hdfs_refuses_is_bad_input_in_one_line(fake, fs, call, message):
    fake.put("/d/x", b"")
    with pytest.raises(InputError, match=message) as caught:
        call(fs)
    assert caught.value.exit_status == 2
    assert len(fake.requests) <= 3, "there is no use in trying again"


def test_other_words_of_hadoop_are_passed_on(fake, fs):
    fake.faults["nn"].append("SafeModeException")
    with pytest.raises(StageError, match=r"^/x: HDFS says SafeModeException: SafeModeException was wanted$") as caught:
        fs.mkdirs("/x")
    assert caught.value.exit_status == 3 and not isinstance(caught.value, InputError)


def test_permission_is_bad_input(fake, fs):
    fake.faults["nn"].append("AccessControlException")
    with pytest.raises(HdfsRefused, match=r"^/x: AccessControlException was wanted"):
        fs.status("/x")


def test_a_message_stays_one_line_whatever_the_name(fs):
    with pytest.raises(HdfsRefused, match=r"^/a\\nb: no such file"):
        fs.read("/a\nb")


def test_the_user_is_named(fake, fs, monkeypatch):
    monkeypatch.setenv("HADOOP_USER_NAME", "some one")
    fs.status("/")
    WebHdfs(fake.address).status("/")
    assert [given["user.name"] for given in fake.asked("GETFILESTATUS")] == ["me", "some one"]


# WebHDFS: faults


@pytest.mark.parametrize("faults", [["drop"], ["drop"] * 3, ["RetriableException"], ["StandbyException", "drop"]])
def test_a_namenode_that_fails_for_a_moment_is_asked_again(fake, fs, faults):
    fake.put("/x", DATA)
    fake.faults["nn"].extend(faults)
    assert fs.status("/x").size == len(DATA)
    fake.faults["nn"].extend(faults)
    assert fs.read("/x") == DATA


def test_attempts_are_bounded_and_the_address_is_named(fake, fs):
    fake.faults["nn"].extend(["drop"] * 100)
    with pytest.raises(HdfsError, match=f"^/x: NameNode {fake.address} cannot be reached"):
        fs.status("/x")
    assert len(fake.requests) == web.ATTEMPTS
    nobody = f"127.0.0.1:{free_port()}"
    with pytest.raises(HdfsError, match=f"^/x: NameNode {nobody} cannot be reached .*refused"):
        WebHdfs(nobody).status("/x")


def test_a_rename_is_never_sent_twice(fake, fs):
    fake.put("/x", b"")
    fake.faults["nn"].append("drop")
    with pytest.raises(HdfsError, match="cannot be reached"):
        fs.rename("/x", "/y")
    assert len(fake.requests) == 1


@pytest.mark.parametrize(
    "cuts", [["cut 0"], ["cut 1"], ["cut 1000", "cut 70000"], ["drop", "cut 5"], ["IOException"], ["EOFException"]]
)
def test_a_stream_goes_on_where_it_broke_off_at_another_datanode(fake, fs, cuts):
    fake.put("/x", DATA)
    for length in (None, 90000):
        fs._avoided.clear()
        fake.requests.clear()
        for name in ("dn0", "dn1"):
            fake.faults[name].clear()
        for i, cut in enumerate(cuts):
            fake.faults[f"dn{i % 2}"].append(cut)
        assert fs.read("/x", 100, length) == DATA[100 : None if length is None else 100 + length]
        opens = [(name, int(given["offset"])) for name, op, given in fake.requests if op == "OPEN" and name != "nn"]
        assert opens[0][0] == "dn0" and opens[1][0] == "dn1"
        if cuts[0].startswith("cut"):
            assert opens[1][1] == 100 + int(cuts[0][4:])


def test_a_dead_datanode_is_left_out_from_then_on(fake, fs):
    fake.put("/x", DATA)
    fake.stop("dn0")
    assert fs.read("/x") == DATA
    before = len(fake.asked("OPEN"))
    assert fs.read("/x", 5) == DATA[5:]
    assert len(fake.asked("OPEN")) == before + 2, "the NameNode and the other DataNode, nobody else"
    fs.write("/y", DATA)
    assert fake.files["/y"] == DATA


def test_with_all_datanodes_gone_it_ends_soon_and_names_one(fake, fs):
    fake.put("/x", DATA)
    fake.stop("dn0")
    fake.stop("dn1")
    with pytest.raises(HdfsError, match=r"^/x: reading from DataNode 127\.0\.0\.1:\d+ failed \(.*refused"):
        fs.read("/x")
    with pytest.raises(HdfsError, match=r"^/y: writing to DataNode 127\.0\.0\.1:\d+ failed \(.*refused"):
        fs.write("/y", DATA)


@pytest.mark.parametrize(
    ("fault", "message"), [("drop", r"^/y: writing to DataNode"), ("IOException", "^/y: HDFS says IOException: IOExc")]
)
def test_a_write_that_broke_off_is_repeated_only_where_that_is_safe(fake, fs, fault, message):
    file = io.BytesIO(DATA)
    file.seek(7)
    for data, wanted in ((DATA, DATA), (file, DATA[7:])):
        fs._avoided.clear()
        fake.faults["dn0"].append(fault)
        fs.write("/x", data, overwrite=True)
        assert fake.files["/x"] == wanted
    if fault == "IOException":  # and nothing was made: nothing is overwritten by a second attempt
        fs._avoided.clear()
        fake.faults["dn0"].append(fault)
        fs.write("/z", DATA)
        assert fake.files["/z"] == DATA
    for data, overwrite in ((DATA, False), (iter([DATA]), True))[fault == "IOException" :]:
        fs._avoided.clear()
        fake.faults["dn0"].append(fault)
        with pytest.raises(HdfsError, match=message):
            fs.write("/y", data, overwrite)
        assert "/y" not in fake.files


def test_of_two_namenodes_the_active_one_serves(fake):
    standby = FakeHdfs()
    standby.faults["nn"].extend(["StandbyException"] * 100)
    nobody = f"127.0.0.1:{free_port()}"
    fake.put("/x", DATA)
    for first in (standby.address, nobody):
        fs = WebHdfs(f"{first},{fake.address}")
        assert fs.probe() == "" and fs.read("/x") == DATA
    standby.close()


def test_threads_share_a_file_system(fake, fs):
    for i in range(8):
        fake.put(f"/{i}", DATA[i:])
    wrong = []

    def work(i):
        for _ in range(10):
            if fs.read(f"/{i}", i, 5000) != DATA[2 * i : 2 * i + 5000] or fs.status(f"/{i}").size != len(DATA) - i:
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_connections_to_the_namenode_are_kept(fake, fs, monkeypatch):
    made = []
    connect_once = web._Connection.connect

    def counted(self):
        made.append(self)
        connect_once(self)

    monkeypatch.setattr(web._Connection, "connect", counted)
    for _ in range(5):
        fs.status("/")
    assert len(made) == 1


# Which file system


def configure(monkeypatch, tmp_path, **files):
    for name, properties in files.items():
        entries = "".join(f"<property><name>{k}</name><value> {v} </value></property>" for k, v in properties.items())
        (tmp_path / f"{name}-site.xml").write_text(f"<configuration>{entries}</configuration>")
    monkeypatch.setattr(environment, "_configuration_folders", lambda: iter([str(tmp_path)]))


def test_configuration_is_read_and_variables_are_filled_in(nowhere, monkeypatch, tmp_path):
    core = {"fs.defaultFS": "hdfs://${host}:${env.NN_PORT}", "host": "h${n}", "n": "1", "open": "${nothing} ${n}"}
    monkeypatch.setenv("NN_PORT", "99")
    configure(monkeypatch, tmp_path, core=core, hdfs={"dfs.replication": "2"}, yarn={"y": "z"})
    found = hdfs.configuration()
    assert found["fs.defaultFS"] == "hdfs://h1:99" and found["open"] == "${nothing} 1"
    assert found["dfs.replication"] == "2" and found["y"] == "z"
    (tmp_path / "core-site.xml").write_text("<configuration>")
    with pytest.raises(InputError, match=r"core-site\.xml: cannot be read"):
        hdfs.configuration()


def test_configuration_folders(monkeypatch, tmp_path):
    command = tmp_path / "bin/hadoop"
    command.parent.mkdir()
    command.touch(mode=0o755)
    (tmp_path / "etc/hadoop").mkdir(parents=True)
    (tmp_path / "etc/hadoop/core-site.xml").write_text(
        "<configuration><property><name>a</name><value>1</value></property></configuration>"
    )
    for name in ("HADOOP_CONF_DIR", "HADOOP_PREFIX", "HADOOP_COMMON_HOME", "HADOOP_INSTALL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("HADOOP_HOME", str(tmp_path))
    assert hdfs.find_hadoop() == str(command) and hdfs.configuration() == {"a": "1"}
    monkeypatch.delenv("HADOOP_HOME")
    assert hdfs.find_hadoop() is None
    monkeypatch.setenv("PATH", str(command.parent))
    assert hdfs.find_hadoop() == str(command) and hdfs.configuration() == {"a": "1"}


def test_the_default_file_system_is_found_and_kept(nowhere, fake, monkeypatch, tmp_path):
    core, site = {"fs.defaultFS": "hdfs://127.0.0.1:1"}, {"dfs.namenode.http-address": fake.address}
    configure(monkeypatch, tmp_path, core=core, hdfs=site)
    fs = connect()
    assert isinstance(fs, WebHdfs) and fs.address == fake.address
    assert connect("hdfs:///x") is fs is connect("hdfs:///y/z")
    assert connect("hdfs://127.0.0.1:1/x").address == fake.address
    assert fs.uri("/a b#%") == f"webhdfs://{fake.address}/a b#%"
    assert connect(f"webhdfs://{fake.address}/x").address == fake.address


def test_an_address_on_all_interfaces_means_the_namenodes_host(nowhere, fake, monkeypatch, tmp_path):
    host, port = fake.address.split(":")
    core, site = {"fs.defaultFS": f"hdfs://{host}:1"}, {"dfs.namenode.http-address": f"0.0.0.0:{port}"}
    configure(monkeypatch, tmp_path, core=core, hdfs=site)
    assert connect().address == fake.address


def test_a_nameservice_leads_to_its_active_namenode(nowhere, fake, monkeypatch, tmp_path):
    standby = FakeHdfs()
    standby.faults["nn"].extend(["StandbyException"] * 100)
    site = {
        "dfs.ha.namenodes.prod": "nn1, nn2",
        "dfs.namenode.http-address.prod.nn1": standby.address,
        "dfs.namenode.http-address.prod.nn2": fake.address,
    }
    configure(monkeypatch, tmp_path, core={"fs.defaultFS": "hdfs://prod"}, hdfs=site)
    fake.put("/x", b"1")
    fs = connect("hdfs:///x")
    assert fs.read("/x") == b"1" and fs.uri("/x") == f"webhdfs://{standby.address},{fake.address}/x"
    assert connect(fs.uri("/x")).read("/x") == b"1"
    standby.close()


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"dfs.webhdfs.enabled": "false"}, r"turned off \(dfs\.webhdfs\.enabled\)"),
        ({"hadoop.security.authentication": "kerberos"}, "Kerberos"),
        ({"dfs.http.policy": "HTTPS_ONLY"}, "HTTPS"),
        ({}, "WebHDFS at 127.0.0.1:.* cannot be reached .*refused"),
    ],
)
def test_without_webhdfs_the_command_serves_and_without_that_one_line_says_why(
    nowhere, monkeypatch, tmp_path, more, reason
):
    monkeypatch.setattr(web, "FIRST_PAUSE", 0.001)
    site = {"dfs.namenode.http-address": f"127.0.0.1:{free_port()}"} | more
    configure(monkeypatch, tmp_path, core={"fs.defaultFS": "hdfs://127.0.0.1:1"}, hdfs=site)
    with pytest.raises(
        InputError, match=rf"^hdfs:///x: HDFS cannot be reached: .*{reason}.*no hadoop command"
    ) as caught:
        connect("hdfs:///x")
    assert "\n" not in str(caught.value)
    monkeypatch.setattr(environment, "find_hadoop", lambda: "/opt/hadoop/bin/hadoop")
    fs = connect("hdfs:///x")
    assert isinstance(fs, HadoopFs) and fs.uri("/x") == "hdfs://127.0.0.1:1/x"


@pytest.mark.parametrize(
    ("uri", "core", "message"),
    [
        ("hdfs:///x", {}, "^hdfs:///x: HDFS cannot be reached: no configuration of Hadoop's found"),
        ("hdfs:///x", {"fs.defaultFS": "file:///"}, r"^hdfs:///x: Hadoop's default file system is file:/// \(fs"),
        ("hdfs://data/x", {}, "if data is no host but a folder, write hdfs:///data/"),
        ("s3://b/x", {}, "^s3://b/x: s3:// is no file system"),
        ("webhdfs://127.0.0.1:1/x", {}, r"^webhdfs://127\.0\.0\.1:1/x: WebHDFS does not answer"),
    ],
)
def test_what_leads_nowhere_is_told_in_one_line(nowhere, monkeypatch, tmp_path, uri, core, message):
    monkeypatch.setattr(web, "FIRST_PAUSE", 0.001)
    if core:
        configure(monkeypatch, tmp_path, core=core)
    with pytest.raises(InputError, match=message) as caught:
        connect(uri)
    assert "\n" not in str(caught.value)


def test_a_namenode_that_does_not_know_its_blocks_yet_is_asked_again(fake, fs):
    fake.put("/x", DATA)
    fake.faults["nn"].extend(["IOException", "SafeModeException"])
    assert fs.read("/x") == DATA
    fake.faults["nn"].extend(["IOException"] * 100)
    with pytest.raises(
        HdfsError, match=r"^/x: reading from NameNode .* failed \(IOException: IOException was wanted\)$"
    ):
        fs.read("/x")


def test_what_answers_but_is_no_webhdfs_is_not_taken_for_it(nowhere):
    from http.server import BaseHTTPRequestHandler, HTTPServer

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>hello</html>")

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with pytest.raises(InputError, match="does not answer as WebHDFS does"):
        connect(f"webhdfs://127.0.0.1:{server.server_address[1]}/x")
    server.shutdown()
    server.server_close()


# The hadoop command; here a script that keeps files of this machine. The real one: tests/hadoop/test_hdfs.py

SCRIPT = """\
#!{python}
import os, sys
root, args = {root!r}, sys.argv[1:]
assert args.pop(0) == "fs" and os.environ["LC_ALL"] == "C.UTF-8"
options = [args.pop(0) for _ in list(args) if args[0].startswith("-D")]
verb, *args = args
def local(uri):
    assert uri.startswith("hdfs://nn:1/"), uri
    import re
    return root + re.sub(r"\\\\(.)", r"\\1", uri[len("hdfs://nn:1"):])
print("WARN util.NativeCodeLoader: unable to load", file=sys.stderr)
if verb == "-cat":
    try:
        sys.stdout.buffer.write(open(local(args[0]), "rb").read())
    except FileNotFoundError:
        sys.exit("cat: `" + args[0] + "': No such file or directory")
elif verb == "-stat":
    for path in map(local, args[1:]):
        if path.endswith("/*"):
            found = [path[:-1] + n for n in os.listdir(path[:-1])] if os.path.isdir(path[:-1]) else []
        else:
            found = [path] if os.path.exists(path) else []
        if not found:
            print("stat: `x': No such file or directory", file=sys.stderr)
        for p in found:
            kind = "directory" if os.path.isdir(p) else "regular file"
            values = {{"F": kind, "b": os.path.getsize(p), "Y": 5, "o": 6, "r": 1, "n": os.path.basename(p)}}
            line = args[0]
            for k, v in values.items():
                line = line.replace("%" + k, str(v))
            print(line)
elif verb == "-put":
    data = sys.stdin.buffer.read()
    open(local(args[-1]), "wb").write(data)
    print(options, file=open(root + ".options", "w"))
else:
    sys.exit(verb[1:] + ": Permission denied: user=me")
"""


@pytest.fixture
def command(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    path = tmp_path / "hadoop"
    path.write_text(SCRIPT.format(python=sys.executable, root=str(root)))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return HadoopFs("hdfs://nn:1", str(path)), root


@pytest.mark.parametrize("name", ["x", "a b#[1],{2}*?\\", "données", "a\nb"])
def test_names_reach_the_command_as_they_are(command, name):
    fs, root = command
    fs.write(f"/{name}", [DATA[:1000], DATA[1000:]], replication=3, block_size=9)
    assert (root / name).read_bytes() == DATA
    assert (root.parent / "root.options").read_text() == "['-Ddfs.replication=3', '-Ddfs.blocksize=9']\n"
    assert fs.status(f"/{name}") == (f"/{name}", name, len(DATA), False, 5, 6, 1)
    assert fs.list("/") == [(f"/{name}", name, len(DATA), False, 5, 6, 1)]
    assert fs.read(f"/{name}") == DATA


@pytest.mark.parametrize(("offset", "length"), [(0, None), (0, 0), (7, 100), (len(DATA) - 3, 10), (len(DATA) + 9, 5)])
def test_what_the_command_prints_is_cut(command, offset, length):
    fs, root = command
    (root / "x").write_bytes(DATA)
    assert fs.read("/x", offset, length) == (DATA[offset:] if length is None else DATA[offset : offset + length])


def test_a_stream_that_is_left_ends_its_process(command):
    fs, root = command
    (root / "x").write_bytes(DATA * 100)
    with fs.open("/x") as stream:
        assert stream.read(10) == DATA[:10]
        process = stream._process
    assert process.poll() is not None


def test_the_commands_own_words_are_the_message(command):
    fs, _ = command
    assert fs.status("/no") is None
    with pytest.raises(HdfsRefused, match=r"^hadoop fs: cat: `hdfs://nn:1/no': No such file or directory$"):
        fs.read("/no")
    with pytest.raises(HdfsRefused, match=r"^hadoop fs: mkdir: Permission denied: user=me$"):
        fs.mkdirs("/x")


def test_a_source_that_fails_leaves_no_file(command):
    fs, root = command

    def pieces():
        yield b"some"
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        fs.write("/x", pieces())
    assert list(root.iterdir()) == []


def test_the_module_is_quick_to_import():
    code = "import sys, apnc.hdfs; print([m for m in ('numpy', 'mrjob', 'pyarrow', 'scipy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
