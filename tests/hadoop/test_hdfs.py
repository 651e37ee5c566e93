"""The way to HDFS on a real one: both file systems, odd names, readers, and a DataNode that dies in the middle."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
from hdfs_inputs import NAMES, told

from apnc import cli, hdfs
from apnc.errors import InputError
from apnc.hdfs import HadoopFs, HdfsRefused, WebHdfs, connect
from apnc.readers import Range, read_blocks
from apnc.readers.detect import describe
from apnc.readers.files import open_file

from .runs import wait_for

DATA = np.random.default_rng(0).bytes(300_000)


@pytest.fixture
def web(on_this_cluster):
    fs = connect()
    assert isinstance(fs, WebHdfs)
    fs._avoided.clear()
    return fs


@pytest.fixture
def command(on_this_cluster):
    return HadoopFs()


@pytest.fixture
def without_webhdfs(on_this_cluster, monkeypatch, tmp_path):
    """Hadoop's configuration says that WebHDFS is turned off."""
    folder = tmp_path / "conf"
    shutil.copytree(on_this_cluster.env["HADOOP_CONF_DIR"], folder)
    site = folder / "hdfs-site.xml"
    site.write_text(
        site.read_text().replace(
            "<name>dfs.webhdfs.enabled</name><value>true<", "<name>dfs.webhdfs.enabled</name><value>false<"
        )
    )
    monkeypatch.setenv("HADOOP_CONF_DIR", str(folder))


def test_every_name_is_itself_by_both_ways(web, command):
    folder = "/hdfs names/d [1], x%41"
    for i, name in enumerate(NAMES):
        web.write(f"{folder}/{name}", DATA[: 1000 + i])
        assert web.read(f"{folder}/{name}") == DATA[: 1000 + i]
        assert web.status(f"{folder}/{name}")[:4] == (f"{folder}/{name}", name, 1000 + i, False)
    listed = web.list(folder)
    assert [s.name for s in listed] == sorted(NAMES)
    assert command.list(folder) == listed
    for name in ("a%20b", "{a,b}", "日本 😀"):
        assert command.read(f"{folder}/{name}", 5) == web.read(f"{folder}/{name}", 5)
    command.write(f"{folder}/new {{1}}*?\\#", [DATA], replication=1, block_size=1 << 20)
    assert web.status(f"{folder}/new {{1}}*?\\#")[2:] == command.status(f"{folder}/new {{1}}*?\\#")[2:]
    assert web.read(f"{folder}/new {{1}}*?\\#") == DATA
    for name in NAMES:
        assert web.rename(f"{folder}/{name}", f"{folder}/moved {name}")
        assert web.delete(f"{folder}/moved {name}")
    assert web.delete("/hdfs names") and not web.delete("/hdfs names")


@pytest.mark.parametrize("way", ["web", "command"])
def test_the_calls(request, way):
    fs = request.getfixturevalue(way)
    base = f"/hdfs calls {way}"
    fs.delete(base)
    fs.write(
        f"{base}/sub/x", (DATA[i : i + 70_000] for i in range(0, len(DATA), 70_000)), replication=1, block_size=1 << 20
    )
    status = fs.status(f"{base}/sub/x")
    assert (status.size, status.is_dir, status.replication, status.block_size) == (len(DATA), False, 1, 1 << 20)
    assert abs(status.mtime_ms / 1000 - time.time()) < 300
    with pytest.raises(HdfsRefused, match="exists"):
        fs.write(f"{base}/sub/x", b"new")
    with pytest.raises(HdfsRefused, match="exists as a directory"):
        fs.write(f"{base}/sub", b"new")
    with pytest.raises(InputError, match=r"[Nn]o such file"):
        fs.read(f"{base}/no")
    with pytest.raises(HdfsRefused, match="s a directory"):
        fs.read(base)
    with pytest.raises(HdfsRefused, match="is not a directory"):
        fs.mkdirs(f"{base}/sub/x/y")
    assert fs.status(f"{base}/no") is None and not fs.delete(f"{base}/no") and not fs.rename(f"{base}/no", f"{base}/n")
    assert fs.read(f"{base}/sub/x", 299_990, 100) == DATA[299_990:]
    assert fs.read(f"{base}/sub/x", 300_000, 1) == b""
    fs.write(f"{base}/sub/x", io.BytesIO(DATA[:10]), overwrite=True)
    fs.write(f"{base}/empty", b"")
    assert fs.read(f"{base}/sub/x") == DATA[:10] and fs.read(f"{base}/empty", 3) == b""
    fs.mkdirs(f"{base}/folder")
    assert fs.list(f"{base}/folder") == []
    assert not fs.rename(f"{base}/empty", f"{base}/sub/x"), "in the way"
    assert fs.rename(f"{base}/empty", f"{base}/folder")
    assert [s.path for s in fs.list(f"{base}/folder")] == [f"{base}/folder/empty"]
    assert fs.content_summary(base) == (2, 3, 10)
    with pytest.raises(HdfsRefused, match="not empty"):
        fs.delete(f"{base}/folder", recursive=False)
    assert fs.delete(base)


def test_a_list_longer_than_an_answer_is_whole(web):
    for i in range(1005):
        web.mkdirs(f"/hdfs long/{i:05d} %")
    assert [s.name for s in web.list("/hdfs long")] == [f"{i:05d} %" for i in range(1005)]
    web.delete("/hdfs long")


def test_what_is_not_there_is_told_in_one_line(web):
    with pytest.raises(InputError, match=r"^hdfs:///not there: no such file or directory on HDFS$"):
        describe(["hdfs:///not there"])
    namenode = web.address.partition(":")[0]
    assert isinstance(connect(f"hdfs://{namenode}:1/x"), HadoopFs), "which is asked next, and says what is wrong"


# Readers


def contents():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2000, 5)).round(3)
    lines = [",".join(f"{v:g}" for v in row) for row in x.tolist()]
    csv = ("\ufeffa,b,c,d,e\r\n\r\n# note\r\n" + "\r\n".join(lines) + "\r\n1,x,2,3,4").encode()
    svm = "".join(f"{i % 3} 1:{i} {2 + i % 50}:{i / 7:.3f}\n" for i in range(2000)).encode()
    out = io.BytesIO()
    np.save(out, x.astype(">f4"))
    return {
        "a #1.csv": csv,
        "ü%20.svm": svm,
        "x+y.npy": out.getvalue(),
        "two.csv.gz": gzip.compress(csv[:9000]) + gzip.compress(csv[9000:]),
        "two.csv.bz2": bz2.compress(csv[:9000]) + bz2.compress(csv[9000:]),
        "x.npy.gz": gzip.compress(out.getvalue()),
        "cut.csv.gz": gzip.compress(csv)[:-50],
    }


def compare(local, remote, target):
    assert local.spec == remote.spec and local.estimated_rows() == remote.estimated_rows()
    units, others = local.units(target), remote.units(target)
    assert len(units) == len(others)
    for unit, other in zip(units, others, strict=True):
        assert told(local.blocks(unit, 300)) == told(remote.blocks(other, 300))


@pytest.mark.parametrize("name", contents())
def test_what_is_read_from_hdfs_is_what_is_read_here(web, tmp_path, name):
    data = contents()[name]
    (tmp_path / name).write_bytes(data)
    path = f"/hdfs readers/{name}"
    web.write(path, data, overwrite=True, block_size=4096)
    local, remote = describe([str(tmp_path / name)]), describe([f"hdfs://{path}"])
    assert remote.files[0].path == f"hdfs://{path}" and remote.files[0].size == len(data)
    for target in (2000, 4096, 10_001, 1 << 20):
        compare(local, remote, target)
    for first in (0, 1, 4095, 4096, 4097):
        for file in (open_file(str(tmp_path / name)), open_file(f"hdfs://{path}")):
            with file:
                assert file.pread(5000, first) == data[first : first + 5000]


@pytest.mark.parametrize("name", ["a #1.csv", "x+y.npy", "two.csv.gz"])
def test_without_webhdfs_the_command_reads_the_same(without_webhdfs, tmp_path, name):
    data = contents()[name]
    (tmp_path / name).write_bytes(data)
    fs = connect()
    assert isinstance(fs, HadoopFs)
    fs.write(f"/hdfs command/{name}", data, overwrite=True)
    local, remote = describe([str(tmp_path / name)]), describe([f"hdfs:///hdfs command/{name}"])
    assert remote.units(1 << 20)[0][0].path.startswith("hdfs://")
    compare(local, remote, len(data) // 2 + 1)
    assert remote.fingerprint()[0]["size"] == len(data)


def test_a_directory_is_walked_and_its_units_need_no_configuration(web, monkeypatch):
    shown = ["part-1", "part-10", "part-2", "sub/a b#%20.csv", "sub/ü"]
    for name in ["_SUCCESS", ".x", "_logs/x", "sub/_x", *shown]:
        web.write(f"/hdfs walk/{name}", b"1,2\n", overwrite=True)
    found = describe(["hdfs:///hdfs walk"])
    assert found.spec.sources == shown
    assert found.fingerprint() == describe(["hdfs:///hdfs walk"]).fingerprint()
    units = found.units(1)
    for name in ("HADOOP_HOME", "HADOOP_CONF_DIR"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert [b.source for unit in units for b in read_blocks(found.spec, unit, 10)] == shown


def test_the_whole_run_on_hdfs_gives_the_same_labels(web, tmp_path):
    sample = Path(__file__).parents[2] / "data_samples/digits.csv"
    with open(sample, "rb") as file:
        web.write("/hdfs run/digits.csv", file, overwrite=True)
    for name, argument in (("local", str(sample)), ("hdfs", "hdfs:///hdfs run/digits.csv")):
        options = ["-k", "10", "--label-column", "digit", "-o", str(tmp_path / name)]
        assert cli.main(["cluster", argument, *options]) == 0
    assert (tmp_path / "local/labels.csv").read_bytes() == (tmp_path / "hdfs/labels.csv").read_bytes()


# Faults


def test_a_datanode_killed_in_the_middle_of_a_read_is_not_noticed(web, cluster):
    data = np.random.default_rng(2).bytes(40 << 20)  # more than any buffers between here and there hold
    path = "/hdfs killed/x"
    web.write(path, data, overwrite=True, replication=2, block_size=4 << 20)
    with web.open(path) as stream:
        got = [stream.read(1 << 20)]
        serving = next(n for n in ("dn0", "dn1") if cluster._http(n) == f"http://{stream._authority}")
        cluster.kill_daemon(serving)
        got += list(stream)
        assert cluster._http(serving) != f"http://{stream._authority}"
    assert b"".join(got) == data
    assert web.read(path, 39 << 20) == data[39 << 20 :], "at once, though the NameNode thinks it lives"
    fresh = WebHdfs(web.address)
    assert all(fresh.read(path, i << 20, 100) == data[i << 20 : (i << 20) + 100] for i in range(0, 40, 4))
    fresh.write("/hdfs killed/y", data[: 1 << 20], overwrite=True, replication=1)
    assert fresh.read("/hdfs killed/y") == data[: 1 << 20]


def test_a_datanode_killed_in_the_middle_of_a_range_changes_no_row(web, cluster, tmp_path, monkeypatch):
    line = b"".join(b"%d," % i for i in range(100)) + b"7\n"
    data = line * 60_000
    (tmp_path / "x.csv").write_bytes(data)
    path = "/hdfs killed/x.csv"
    web.write(path, data, overwrite=True, replication=2, block_size=4 << 20)
    spec = describe([str(tmp_path / "x.csv")]).spec
    streams = []

    def opened(fs, *arguments, open_it=WebHdfs.open):
        streams.append(open_it(fs, *arguments))
        return streams[-1]

    monkeypatch.setattr(WebHdfs, "open", opened)
    blocks = read_blocks(spec, [Range("x", web.uri(path), 0, len(data))], 2000, 1 << 20)
    offsets = [next(blocks).offsets]
    served = streams[-1]._authority
    cluster.kill_daemon(next(n for n in ("dn0", "dn1") if cluster._http(n) == f"http://{served}"))
    for block in blocks:
        assert (block.x == np.arange(101) % 100 + 7 * (np.arange(101) == 100)).all()
        offsets.append(block.offsets)
    assert streams[-1]._authority != served
    assert (np.concatenate(offsets) == np.arange(60_000) * len(line)).all()


def test_a_namenode_that_restarts_is_waited_for_a_moment(web, cluster):
    web.write("/hdfs restart", b"1", overwrite=True)
    assert web.status("/hdfs restart").size == 1
    cluster.stop_daemon("nn")
    with pytest.raises(hdfs.HdfsError, match=f"NameNode {web.address} cannot be reached"):
        web.status("/hdfs restart")
    cluster.start_daemon("nn")
    assert web.status("/hdfs restart").size == 1, "over a new connection: the old one is dead"
    cluster.wait_ready(["dn0", "dn1"])

    def readable():
        with contextlib.suppress(hdfs.HdfsError):
            return web.read("/hdfs restart")

    wait_for(readable, seconds=60)  # until DataNodes have reported their blocks
    for _ in range(4):  # the DataNodes have old connections too, and tell an EOFException that is no end of the file
        assert web.read("/hdfs restart") == b"1"
    for _ in range(4):
        web.write("/hdfs restart", io.BytesIO(b"2"), overwrite=True)
        web.write(f"/hdfs restart {time.time()}", b"3")
    assert web.read("/hdfs restart") == b"2"
