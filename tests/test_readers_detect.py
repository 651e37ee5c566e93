"""The look at the input: names, formats, headers, columns; and what is refused before any task starts."""

import bz2
import gzip

import numpy as np
import pytest

from apnc.errors import InputError
from apnc.readers import InputSpec
from apnc.readers.detect import describe


def put(tmp_path, name, content):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return str(path)


def read(input, target_bytes=1 << 20):
    return [b for unit in input.units(target_bytes) for b in input.blocks(unit, 100)]


def rows(input):
    return [row for b in read(input) for row in b.x.tolist()]


def test_directories_are_walked_in_order_without_hidden_names(tmp_path):
    hidden = ["_SUCCESS", ".part-0.crc", "_logs/x", "sub/_x", "sub/.x/y"]
    shown = ["part-1", "part-10", "part-2", "sub/a", "sub/b"]
    for name in [*hidden, *shown]:
        put(tmp_path / "in", name, b"1,2\n")
    input = describe([str(tmp_path / "in")])
    assert [f.source for f in input.files] == shown == input.spec.sources
    both = describe([str(tmp_path / "in"), str(tmp_path / "in/_SUCCESS")])
    assert [f.source for f in both.files] == [f"0/{name}" for name in shown] + ["1/_SUCCESS"]
    assert [f["source"] for f in both.fingerprint()] == both.spec.sources
    assert both.fingerprint()[0]["size"] == 4 and both.fingerprint()[0]["mtime_ns"] > 0


@pytest.mark.parametrize("name", ["-k.csv", "a,b.csv", "données.csv", "star[1].csv", "two words.csv", "x#y.csv", "a:b"])
def test_awkward_names_are_just_names(tmp_path, name):
    path = put(tmp_path, name, b"1,2\n")
    assert [b.source for b in read(describe([path]))] == [name]
    assert [b.source for b in read(describe([f"file://{tmp_path}"]))] == [name]


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("nowhere.csv", "nowhere.csv: no such file"),
        ("foo://x/y", "foo://x/y: unknown scheme foo://"),
        ("s3://b/k", "s3://b/k: only a runner that reads s3://"),
    ],
)
def test_input_that_cannot_be_reached_is_refused(argument, message):
    with pytest.raises(InputError, match=message):
        describe([argument])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.csv", b"", "holds no rows"),
        ("x.csv", b"\n# only a comment\n\n", "holds no rows"),
        ("x.csv.gz", b"", r"x.csv.gz: the file is empty \(0 bytes\), which no .gz file can be"),
        ("x.csv.bz2", b"", "x.csv.bz2: the file is empty"),
        ("x.csv.gz", b"1,2\n", "x.csv.gz: .*must be undamaged"),
        ("x.csv", gzip.compress(b"1,2\n", mtime=0), "x.csv: the content is compressed; name the file with .gz"),
        ("x.csv", "1,2\n".encode("utf-16"), "x.csv: the byte order mark says UTF-16"),
        ("x.csv", b"1,1\r2,2\r", "x.csv: no line feeds"),
        ("x.parquet", b"PAR1", "x.parquet: parquet files are not supported"),
        ("x.npz", b"PK", "x.npz: .npz is no format that can be read"),
        ("x", b"PAR1 and so on", "x: parquet files are not supported"),
        ("x.csv.zst", b"\x28\xb5", ".zst is no compression"),
        ("x.csv", b'"1,2\n', "x.csv line 1: found .*quoted field"),
    ],
)
def test_files_that_cannot_be_read_are_refused_by_name(tmp_path, name, content, message):
    with pytest.raises(InputError, match=message) as caught:
        describe([put(tmp_path, name, content)])
    assert "\n" not in str(caught.value)


def test_empty_parts_among_others_are_passed_over(tmp_path):
    for name, content in {"a": b"", "b": b"\n", "c": b"1,2\n", "d": b""}.items():
        put(tmp_path, name, content)
    input = describe([str(tmp_path)])
    assert rows(input) == [[1, 2]] and input.estimated_rows() == 1


def test_mixed_formats_are_refused(tmp_path):
    put(tmp_path, "a.csv", b"1,2\n")
    put(tmp_path, "b.svm", b"1 1:2\n")
    with pytest.raises(InputError, match=r"b.svm: svmlight, but .*a.csv is csv"):
        describe([str(tmp_path)])


def test_npy_is_not_taken_for_text(tmp_path):
    np.save(tmp_path / "x.npy", np.eye(2))
    (tmp_path / "x.npy").rename(tmp_path / "part-0")
    assert describe([str(tmp_path)]).spec.format == "npy"
    put(tmp_path, "part-1", b"1,2\n")
    with pytest.raises(InputError, match="one run reads one format"):
        describe([str(tmp_path)])
    with pytest.raises(InputError, match=r"part-0: this is a .npy file"):
        describe([str(tmp_path)], format="csv")


@pytest.mark.parametrize(
    ("name", "content", "format", "delimiter"),
    [
        ("x", b"1,2\n", "csv", ","),
        ("x", b"1\t2\n", "csv", "\t"),
        ("x", b"1;2 3\n", "csv", ";"),
        ("x", b" 1  2 3\n", "csv", " "),
        ("x", b"1\n", "csv", ","),
        ("x", b"1\t\n", "csv", ","),
        ("x.tsv", b"1,5\t2\n", "csv", "\t"),
        ("x.txt", b"1 2:3\n", "svmlight", " "),
        ("x", b"0\n# c\n0 qid:4 1:2 # 5\n", "svmlight", " "),
        ("x.svm.gz", gzip.compress(b"0\n", mtime=0), "svmlight", " "),
        ("x.bz2", bz2.compress(b"1,2\n"), "csv", ","),
        ("x", b"12:30,5\n", "csv", ","),
    ],
)
def test_format_and_delimiter_are_found(tmp_path, name, content, format, delimiter):
    spec = describe([put(tmp_path, name, content)]).spec
    assert (spec.format, spec.delimiter) == (format, delimiter)
    assert InputSpec.from_dict(spec.to_dict()) == spec


def test_width_is_the_number_of_features(tmp_path):
    path = put(tmp_path, "x.csv", b"a,1,2,3,z\n")
    spec = describe([path], label_column="last", id_column="first").spec
    assert (spec.columns, spec.width, spec.label_column, spec.id_column) == (5, 3, 4, 0)
    with pytest.raises(InputError, match="width: 3 feature columns were found, but 4 are expected"):
        describe([path], label_column="last", id_column="first", width=4)


@pytest.mark.parametrize(("text", "base"), [(b"1 1:2\n", 1), (b"1 0:2\n", 0), (b"0 1:2 # 0:3\n", 1), (b"0 10:2\n", 1)])
def test_index_base_is_found(tmp_path, text, base):
    assert describe([put(tmp_path, "x.svm", text)]).spec.index_base == base


@pytest.mark.parametrize("header", ["auto", "yes"])
def test_header_in_every_part_is_skipped(tmp_path, header):
    put(tmp_path, "a.csv", b"height,width\n1,1\n2,2\n")
    put(tmp_path, "b.csv", b"height,width\r\n7,7\n")
    input = describe([str(tmp_path)], header=header)
    assert rows(input) == [[1, 1], [2, 2], [7, 7]] and input.estimated_rows() == 3


def test_byte_order_mark_is_no_part_of_the_first_value(tmp_path):
    put(tmp_path, "a.csv", b"\xef\xbb\xbf1,1\n2,2\n")
    put(tmp_path, "b.csv", b"\xef\xbb\xbf3,3\n")
    input = describe([str(tmp_path)])
    assert rows(input) == [[1, 1], [2, 2], [3, 3]]
    assert [b.offsets.tolist() for b in read(input)] == [[0, 7], [0]]
    quoted = describe([put(tmp_path / "q", "q.csv", b'\xef\xbb\xbf"x","y"\n1,1\n')], label_column="x")
    assert quoted.spec.label_column == 0 and rows(quoted) == [[1]]


def test_first_part_without_header_is_not_eaten(tmp_path):
    assert rows(describe([put(tmp_path, "a.csv", b"1,1\n2,2\n")])) == [[1, 1], [2, 2]]


def test_numeric_line_declared_a_header_is_refused(tmp_path):
    put(tmp_path, "a.csv", b"h,w\n1,1\n")
    path = put(tmp_path, "b.csv", b"7,7\n8,8\n")
    for inputs in ([path], [str(tmp_path)]):
        with pytest.raises(InputError, match=r"b.csv line 1: found '7,7'; .*looks like data"):
            describe(inputs, header="yes")


def test_numeric_column_names_are_a_header_when_one_is_asked_for_by_name(tmp_path):
    input = describe([put(tmp_path, "a.csv", b"label,1,2\n5,6,7\n")], label_column="label")
    assert rows(input) == [[6, 7]] and [b.labels for b in read(input)] == [["5"]]


def test_headers_with_columns_in_another_order_are_refused(tmp_path):
    put(tmp_path, "a.csv", b"h,w\n1,1\n")
    put(tmp_path, "b.csv", b"w,h\n1,1\n")
    with pytest.raises(InputError, match=r"b.csv line 1: the header has the columns of .* in another order"):
        describe([str(tmp_path)], header="yes")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label_column": "heigth"}, "no field 'heigth'; nearest: 'height'"),
        ({"label_column": 3}, "label column: 3 is not in 1 to 2"),
        ({"label_column": 0}, "label column: 0 is not in 1 to 2"),
        ({"label_column": 1, "id_column": "height"}, "label column and id column are the same: 1"),
        ({"label_column": 1, "id_column": 2}, "no feature columns are left"),
        ({"label_column": "height", "header": "no"}, "is a name, but there is no header"),
        ({"format": "cvs"}, "format: 'cvs' is none of .*; nearest: csv"),
        ({"header": "maybe"}, "header: 'maybe'"),
        ({"delimiter": "::"}, "delimiter: '::'"),
        ({"decimal": ",", "delimiter": ","}, "is the decimal sign too"),
        ({"width": 0}, "width: 0"),
    ],
)
def test_unknown_options_are_refused_with_what_is_allowed(tmp_path, options, message):
    with pytest.raises(InputError, match=message):
        describe([put(tmp_path, "x.csv", b"height,width\n1,2\n")], **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"id_column": 1}, "svmlight has none"),
        ({"label_column": "last"}, "the label is always the first"),
        ({"index_base": 2}, "index base: 2 is none of auto, 0, 1"),
    ],
)
def test_options_svmlight_cannot_have_are_refused(tmp_path, options, message):
    with pytest.raises(InputError, match=message):
        describe([put(tmp_path, "x.svm", b"0 1:1\n")], **options)


def test_decimal_comma_is_read_only_when_said(tmp_path):
    path = put(tmp_path, "x.csv", b"1,25;3,5\n7,4;9\n")
    assert rows(describe([path], delimiter=";", decimal=",")) == [[1.25, 3.5], [7.4, 9]]
    assert rows(describe([path], decimal=",")) == [[1.25, 3.5], [7.4, 9]]
    assert not rows(describe([path]))


def test_carriage_returns_and_hadoops_tab_are_no_part_of_the_last_field(tmp_path):
    path = put(tmp_path, "x.csv", b"1,1,a\r\n2,2,a\n7,7,b\t\n7,7,b")
    assert [label for b in read(describe([path], label_column="last")) for label in b.labels] == ["a", "a", "b", "b"]


def test_tabs_in_ids_stay(tmp_path):
    path = put(tmp_path, "x.csv", b"id,x\na\tb,1\na\tc,1.1\n")
    assert [b.ids for b in read(describe([path], id_column="id"))] == [["a\tb", "a\tc"]]


@pytest.mark.parametrize("packed", ["", ".gz", ".bz2"])
def test_estimated_rows_err_on_the_low_side(tmp_path, packed):
    n = 40_000
    text = "".join(f"{v:.6f},{v:.3f}\n" for v in np.random.default_rng(0).normal(size=n)).encode()
    pack = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress}[packed]
    estimate = describe([put(tmp_path, "x.csv" + packed, pack(text))]).estimated_rows()
    assert 0.5 * n < estimate < n


def test_units_keep_the_order_share_small_files_and_split_large_ones(tmp_path):
    sizes = {"a": 10, "b": 10, "c": 1000, "d.gz": 0, "e": 10}
    for name, size in sizes.items():
        text = b"1,2345678\n" * max(1, size // 10)
        put(tmp_path, name, gzip.compress(text * 20, mtime=0) if name == "d.gz" else text)
    units = describe([str(tmp_path)]).units(100)
    flat = [r for unit in units for r in unit]
    assert [r.source for r in units[0]] == ["a", "b"]
    assert [r.source for r in flat] == ["a", "b", *["c"] * 10, "d.gz", "e"]
    assert [(r.start, r.stop) for r in flat[2:12]] == [(i * 100, i * 100 + 100) for i in range(10)]
    assert (flat[12].start, flat[12].stop) == (0, None)


def test_a_comment_longer_than_the_look_hides_no_header(tmp_path):
    text = b"".join(b"# %06d\n" % i for i in range(10_000)) + b"h,w\n" + b"1,2\n" * 10_000
    input = describe([put(tmp_path, "x.csv", text)])
    assert input.spec.header_line == "h,w"
    for target in (1 << 30, 7_001):
        blocks = read(input, target)
        assert sum(b.n for b in blocks) == 10_000 and not any(b.rules for b in blocks)
