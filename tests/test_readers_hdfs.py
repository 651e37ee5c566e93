"""Readers over HDFS: what is read there is what is read here, for every format and however files are cut."""

from __future__ import annotations

import bz2
import gzip
import io
from itertools import pairwise

import numpy as np
import pytest
from fake_webhdfs import FakeHdfs
from hdfs_inputs import told
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apnc import cli, hdfs
from apnc.blocks import Block
from apnc.errors import InputError
from apnc.readers import InputSpec, Range, encoded, files, read_blocks
from apnc.readers.detect import describe
from apnc.readers.files import check_names, open_file
from apnc.readers.locate import explain

quick = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def npy(x):
    out = io.BytesIO()
    np.save(out, x)
    return out.getvalue()


def csv_lines(n, columns=4, end=b"\n"):
    x = np.random.default_rng(0).normal(size=(n, columns)).round(3)
    return [b",".join(b"%g" % value for value in row) + end for row in x.tolist()]


CSV = b"".join(csv_lines(150))
HEADER = b"\xef\xbb\xbfa,b,name,c\r\n"
ODD_CSV = HEADER + b"\r\n# note\r\n1,2,x y,3\r\n" + b'4,5,"q,""r",6\r\n7,,z,8\r\n' * 30 + b"9,10,end,11"
SVM = b"".join(b"%d qid:1 1:%d 7:0.5 # c\n" % (i % 3, i) for i in range(200)) + b"1 2:x\n2 900:1"
FORMATS = {
    "x.csv": (CSV, {}),
    "odd.csv": (ODD_CSV, {"id_column": "name"}),
    "labels.tsv": (CSV.replace(b",", b"\t"), {"label_column": "last"}),
    "x.svm": (SVM, {"label_column": "first"}),
    "f4.npy": (npy(np.arange(3000, dtype=np.float32).reshape(500, 6)), {}),
    "be.npy": (
        npy(np.where(np.arange(300) % 17, np.arange(300.0), np.nan).astype(">f8").reshape(100, 3)),
        {"id_column": 1},
    ),
    "x.csv.gz": (gzip.compress(CSV[:1000]) + gzip.compress(CSV[1000:]), {}),
    "odd.csv.bz2": (bz2.compress(ODD_CSV[:300]) + bz2.compress(ODD_CSV[300:]), {"id_column": "name"}),
    "x.npy.gz": (gzip.compress(npy(np.arange(900.0).reshape(300, 3))), {}),
    "cut.csv.gz": (gzip.compress(CSV)[:-20], {}),
}


@pytest.fixture(scope="module")
def shared():
    fake = FakeHdfs()
    for name, (data, _) in FORMATS.items():
        fake.put(f"/data/{name}", data)
    yield fake
    fake.close()


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    for name, (data, _) in FORMATS.items():
        (folder / name).write_bytes(data)
    return folder


def at(fake, path):
    return f"webhdfs://{fake.address}{path}"


@pytest.mark.parametrize("name", FORMATS)
@quick
@given(target=st.integers(1, 3000), rows=st.integers(1, 200), chunk=st.integers(1, 5000))
def test_what_is_read_over_hdfs_is_what_is_read_here(shared, here, name, target, rows, chunk):
    options = FORMATS[name][1]
    local, remote = describe([str(here / name)], **options), describe([at(shared, f"/data/{name}")], **options)
    assert local.spec == remote.spec and local.estimated_rows() == remote.estimated_rows()
    units, others = local.units(target), remote.units(target)
    assert [[r._replace(path="") for r in u] for u in units] == [[r._replace(path="") for r in u] for u in others]
    for unit, other in zip(units[:10], others[:10], strict=True):
        assert told(read_blocks(local.spec, unit, rows, chunk)) == told(read_blocks(local.spec, other, rows, chunk))


@pytest.mark.parametrize("name", ["x.csv", "odd.csv", "x.svm"])
@quick
@given(cuts=st.lists(st.integers(0, 7000), max_size=4), chunk=st.integers(1, 3000))
def test_any_cut_of_a_text_gives_each_row_once(shared, here, name, cuts, chunk):
    data, options = FORMATS[name]
    spec = describe([str(here / name)], **options).spec
    edges = [0, *sorted(min(c, len(data)) for c in cuts), None]
    pieces = [Range(name, at(shared, f"/data/{name}"), a, b) for a, b in pairwise(edges)]

    def rows(blocks):
        out = []
        for b in blocks:
            x = b.x.toarray() if hasattr(b.x, "toarray") else b.x
            out += [(o, [v for v in row if v]) for o, row in zip(b.offsets.tolist(), x.tolist(), strict=True)]
        return out

    whole = rows(read_blocks(spec, [Range(name, str(here / name), 0, None)], 1000))
    assert rows(read_blocks(spec, pieces, 1000, chunk)) == whole


def test_a_directory_is_walked_in_order_without_hidden_names(fake):
    hidden = ["_SUCCESS", ".part-0.crc", "_logs/x", "sub/_x", "sub/.x/y"]
    shown = ["part-1", "part-10", "part-2", "sub/a b#%20.csv", "sub/ü,[1]"]
    for name in [*hidden, *shown]:
        fake.put(f"/in put/{name}", b"1,2\n")
    found = describe([at(fake, "/in put/")])
    assert [f.source for f in found.files] == shown == found.spec.sources
    assert [f.path for f in found.files] == [at(fake, f"/in put/{name}") for name in shown]
    assert sum(b.n for unit in found.units(3) for b in found.blocks(unit, 100)) == 5
    both = describe([at(fake, "/in put"), at(fake, "/in put/_SUCCESS")])
    assert [f.source for f in both.files] == [f"0/{name}" for name in shown] + ["1/_SUCCESS"]


def test_hdfs_and_local_files_mix(fake, here):
    fake.put("/x.csv", CSV)
    found = describe([str(here / "x.csv"), at(fake, "/x.csv")])
    assert found.spec.sources == ["0/x.csv", "1/x.csv"] and found.files[0].size == found.files[1].size == len(CSV)
    assert sum(b.n for unit in found.units(1000) for b in found.blocks(unit, 100)) == 300
    assert [f["size"] for f in found.fingerprint()] == [len(CSV)] * 2


def test_a_change_shows_in_the_fingerprint(fake):
    for name in "abc":
        fake.put(f"/d/{name}", b"1,2\n")
    found = describe([at(fake, "/d")])
    before = found.fingerprint()
    assert before[0] == {"source": "a", "size": 4, "mtime_ns": 1_700_000_000_000 * 10**6}
    assert found.fingerprint() == before
    fake.modified["/d/b"] = 5
    assert [a == b for a, b in zip(before, found.fingerprint(), strict=True)] == [True, False, True]
    del fake.files["/d/c"]
    with pytest.raises(InputError, match=r"/d/c: no such file on HDFS$"):
        found.fingerprint()


def test_units_name_an_address_that_needs_no_configuration(fake, monkeypatch):
    fake.put("/d/x.csv", CSV)
    fs = hdfs.WebHdfs(fake.address)
    monkeypatch.setattr(hdfs, "connect", lambda uri="": fs)
    found = describe(["hdfs:///d/x.csv"])
    assert [f.path for f in found.files] == ["hdfs:///d/x.csv"]
    units = found.units(1000)
    assert len(units) > 3 and {r.path for unit in units for r in unit} == {at(fake, "/d/x.csv")}

    def unreachable(uri=""):
        raise AssertionError("a task has no configuration of Hadoop's")

    monkeypatch.setattr(hdfs, "connect", unreachable)
    assert sum(b.n for unit in units for b in read_blocks(found.spec, unit, 100)) == 150


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        (None, b"", "/no: no such file or directory on HDFS"),
        ("/no/_x", b"1", r"/no: the directory holds no files \(names beginning"),
        ("/no/x.npy", npy(np.asfortranarray(np.eye(3))), "x.npy: an array on HDFS must be in C order"),
        ("/no/x.gz", b"", "x.gz: the file is empty"),
        ("/no/x.csv", b"", "no: the input holds no rows"),
        ("/no/x.csv", gzip.compress(CSV), "x.csv: the content is compressed"),
        ("/no/x.npy", npy(np.eye(3))[:-8], "x.npy: expected 72 bytes after the header, found 64"),
        ("/no/x.parquet", b"PAR1", "x.parquet: parquet files are not supported"),
    ],
)
def test_bad_input_is_refused_naming_the_file(fake, name, data, message):
    if name:
        fake.put(name, data)
    with pytest.raises(InputError, match=message) as caught:
        describe([at(fake, "/no")])
    assert "\n" not in str(caught.value)


def test_a_problem_is_located(fake):
    fake.put("/d/x.csv", CSV + b"1,NA,2,3\n" + CSV)
    fake.put("/d/y.csv.gz", gzip.compress(CSV + b"1,NA,2,3\n"))
    found = describe([at(fake, "/d")])
    problems = [p for unit in found.units(1 << 20) for b in found.blocks(unit, 1000) for p in b.problems]
    assert [explain(p, found) for p in problems] == [
        "x.csv line 151, column 2: found 'NA'; a feature must be a finite number",
        "y.csv.gz line 151, column 2: found 'NA'; a feature must be a finite number",
    ]


def test_a_stretch_is_read_by_one_stream_that_does_not_go_far_beyond_it(fake):
    data = b"".join(csv_lines(40000))
    fake.put("/x.csv", data)
    found = describe([at(fake, "/x.csv")])
    second = found.units(500_000)[1]
    fake.requests.clear()
    assert sum(b.n for b in read_blocks(found.spec, second, 1000, 10_000)) > 1000
    asked = [given for name, op, given in fake.requests if op == "OPEN" and name != "nn"]
    assert [int(given["offset"]) for given in asked] == [second[0].start - 1]
    assert int(asked[0]["length"]) < 500_000 + (1 << 17)
    fake.requests.clear()
    fake.put("/x.npy", npy(np.zeros((100_000, 3))))
    found = describe([at(fake, "/x.npy")])
    fake.requests.clear()
    list(read_blocks(found.spec, found.units(500_000)[2], 100))
    assert len(fake.asked("OPEN")) == 4, "the header and the rows"


def test_a_datanode_that_dies_on_the_way_is_not_noticed(fake, tmp_path):
    data = b"".join(csv_lines(20000))
    fake.put("/x.csv", data)
    (tmp_path / "x.csv").write_bytes(data)
    spec = describe([str(tmp_path / "x.csv")]).spec
    local = told(read_blocks(spec, [Range("x", str(tmp_path / "x.csv"), 0, len(data))], 1000, 10_000))
    for cut in (0, 1, 100_000):
        fake.faults["dn0"].append(f"cut {cut}")
        remote = read_blocks(spec, [Range("x", at(fake, "/x.csv"), 0, len(data))], 1000, 10_000)
        assert told(remote) == local
        hdfs.at(f"webhdfs://{fake.address}")._avoided.clear()


def test_a_file_that_went_away_is_bad_input(fake):
    spec = InputSpec("csv", columns=2, width=2)
    with pytest.raises(InputError, match=r"^/no\.csv: no such file or directory"):
        list(read_blocks(spec, [Range("no", at(fake, "/no.csv"), 0, 10)], 10))


def test_shards_of_an_embedding_are_read(fake):
    blocks = [Block("x", np.arange(i, i + 5), np.full((5, 3), i, np.float32)) for i in range(0, 100, 5)]
    for part in range(4):
        lines = [b"block\t" + encoded.encode(b) + b"\n" for b in blocks[part::4]]
        fake.put(f"/e/part-{part}", b"".join(lines))
    paths = [at(fake, f"/e/part-{part}") for part in range(4)]
    units = encoded.units(paths, 7)
    assert len(units) == 7
    found = [b for unit in units for b in encoded.read_blocks(unit, 100)]
    assert told(found) == told(b for part in range(4) for b in blocks[part::4])


def test_the_whole_run_reads_from_hdfs(fake, here, tmp_path):
    fake.put("/x.csv", CSV)
    for name, argument in (("local", str(here / "x.csv")), ("hdfs", at(fake, "/x.csv"))):
        assert cli.main(["cluster", argument, "-k", "3", "-o", str(tmp_path / name)]) == 0
    local, remote = ((tmp_path / name / "labels.csv").read_bytes() for name in ("local", "hdfs"))
    assert local == remote and local.count(b"\n") == 151


# The file itself


@quick
@given(
    reads=st.lists(st.tuples(st.integers(0, 6000), st.integers(0, 3000), st.booleans()), max_size=8),
    announced=st.one_of(st.none(), st.tuples(st.integers(0, 6000), st.one_of(st.none(), st.integers(0, 7000)))),
)
def test_any_reads_in_any_order_give_what_a_local_file_gives(shared, here, reads, announced):
    path = here / "x.csv"
    with open_file(str(path)) as local, open_file(at(shared, "/data/x.csv")) as remote:
        if announced:
            remote.advise(*announced)
        position = 0
        for offset, n, on in reads:
            offset = position if on else offset
            assert remote.pread(n, offset) == local.pread(n, offset)
            buffers = bytearray(n), bytearray(n)
            counts = [file.preadinto(memoryview(b), offset) for file, b in zip((local, remote), buffers, strict=True)]
            assert counts[0] == counts[1] and buffers[0] == buffers[1]
            position = offset + counts[0]
        assert remote.size == local.size == len(CSV)


def test_reading_on_asks_for_more_each_time(fake):
    data = bytes(range(256)) * 4000
    fake.put("/x", data)
    with open_file(at(fake, "/x")) as file:
        got = [file.pread(1000, i) for i in range(0, len(data), 1000)]
    assert b"".join(got) == data
    assert len(fake.asked("OPEN")) < 30


@pytest.mark.parametrize("name", ["two words", "x#y", "100%20", "a+b", "données", "it's"])
def test_names_that_hadoop_takes(name):
    check_names([f"hdfs://h,1[2]/{name}.csv", files.__file__])


@pytest.mark.parametrize("character", "[]{},*?\\")
def test_names_that_hadoop_cannot_take_are_refused_with_advice(character):
    path = f"hdfs:///in/star{character}1.csv"
    with pytest.raises(InputError, match=r"cannot read a file by a name with .* in it; rename it") as caught:
        check_names(["hdfs:///in/ok.csv", path])
    assert str(caught.value).startswith(path) and repr(character) in str(caught.value)
