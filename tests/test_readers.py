"""Text readers: the rows found do not depend on how files are cut, and agree with naive readers."""

import bz2
import csv
import gzip
import io
import sys
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_svmlight_file

from apnc.readers import InputSpec, Range, read_blocks, text_parser
from apnc.readers.csv import CsvParser, number
from apnc.readers.detect import describe
from apnc.readers.locate import explain
from apnc.readers.svmlight import SvmlightParser
from apnc.readers.text import BadRow

quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
PACK = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress}


def rows_of(blocks):
    """Return ({offset: (values, id, label)} in order, bad offsets, rules) of blocks."""
    rows, bad, rules = {}, [], Counter()
    for block in blocks:
        x = block.x.toarray() if hasattr(block.x, "toarray") else block.x
        assert len(block.offsets) == x.shape[0] == block.n
        assert len(block.problems) == min(5, len(block.bad)) or any(p.fatal for p in block.problems)
        for i, offset in enumerate(block.offsets.tolist()):
            values = x[i].tolist()
            while values and hasattr(block.x, "toarray") and values[-1] == 0:
                values.pop()  # the width of sparse blocks is a lower bound
            rows[offset] = (values, block.ids and block.ids[i], block.labels and block.labels[i])
        bad += block.bad.tolist()
        rules += block.rules
    assert list(rows) == sorted(rows) and bad == sorted(bad)
    return rows, bad, rules


def naive(spec, data):
    """The same line by line, in plain Python."""
    parser, rows, bad, rules = text_parser(spec), {}, [], Counter()
    offset, first = 0, spec.header != "no"
    blanks = b" \r\v\f" + (b"" if spec.delimiter == "\t" else b"\t")
    for line in io.BytesIO(data):
        here, offset = offset, offset + len(line)
        if here == 0:
            line = line.removeprefix(b"\xef\xbb\xbf")
        body = line.strip(blanks + b"\n")
        if not body or body.startswith(b"#"):
            continue
        if first:
            first = False
            if parser.header_text(line) == spec.header_line:
                continue
        try:
            values, row_id, label = parser.single(line)
        except BadRow as row:
            bad.append(here)
            rules[row.rule] += 1
            continue
        if spec.sparse:
            indices, entries = values
            values = [0.0] * (max(indices, default=-1) + 1)
            for i, v in zip(indices, entries, strict=True):
                values[i] = v
            while values and values[-1] == 0:
                values.pop()
        rows[here] = (
            values,
            row_id if spec.id_column is not None else None,
            label if spec.label_column is not None else None,
        )
    return rows, bad, rules


def spec_of(format, label=None, id=None, **more):
    if format == "svmlight":
        return InputSpec("svmlight", sparse=True, label_column=label, delimiter=" ", **more)
    columns = more.pop("columns", 3)
    return InputSpec(
        "csv",
        columns=columns,
        width=columns - (label is not None) - (id is not None),
        label_column=label,
        id_column=id,
        **more,
    )


def one_of(*lines):
    """Any of the lines, which stand between bars."""
    return st.sampled_from("|".join(lines).split("|"))


csv_lines = one_of(
    "1,2,3|-1.5,+2e3,.5|1, 2 ,3.| 1,2,3|1,2,3\t|4,5,6\r|7,8,9",
    "1,2|1,2,3,4|1,,3|,,|NA,2,3|1,2,nan|1,inf,3|1e999,2,3|a b,2,3|0x10,1,2|1_0,2,3|+-1,2,3|1 0,2,3|1,2,3 # no",
    '"1",2,"3"|1,"2,3|"1,2",3,4|1,2,"3"""|x"y,1,2|"a"b,1,2|a"b,"c|"",1,2',
    "|  |\t|# 1,2,3|  #|1\r,2,3|1,2,3\r\t|1,2\0,3|\xe9,1,2",
)
spaced_lines = one_of(
    "1 2 3|  1   2\t3 |1\t2  3\r|1 2|1 2 3 4|a\tb 1|1 2 x|||# 1 2 3|1 2 3\t|1\r2 3",
    '"1" 2 3|"a b" 2 3|1 "2 3|"a  b"c 1 2',
)
tabbed_lines = one_of("1\t2\t3|1\t2\t|\t\t|\t2\t3|1\t 2\t3\r||  |1\t2|1\t2\t3\t|x\ty\tz|a,b\t1\t2")
svm_lines = one_of(
    "1 1:2 3:4|+1 2:0.5 1:3|0|0 |-1 qid:3 1:1e-3 2:-5|1 2:1 # 3:4|label 4:1\r|1\t1:2\t2:3|1:2 3:4|\xe9 1:2|1 007:1",
    "#|||  |# 1:2|1 1:2#3|1 1:2 qid:7|1 qid:x 1:2|qid:1|1 12:3",
    "2 5:x|1 1:1 1:2|1 3:1 2:2 1:3|1 3:1 2:2 3:3|0 0:3|1 -1:2|1 99999999999:1|1 99999999999999999999:1",
    '1 2: 3|1 2 3:4|1 1:2:3|x 1:nan|1 1:inf|1 1:1e999|1 0x1:3|1 +1:3|1 1:+3|1 :3|1 1.5:2|1 1:1\0|1 1:1_0|1 1:"2"',
)


@st.composite
def cut_files(draw, lines):
    text = draw(st.lists(lines, max_size=30))
    data = "\n".join(text).encode("latin-1") + draw(st.sampled_from([b"", b"\n", b"\r\n"]))
    data = draw(st.sampled_from([b"", b"", b"\xef\xbb\xbf"])) + data
    cuts = draw(st.lists(st.integers(0, len(data)), max_size=4))
    return data, sorted({0, len(data), *cuts})


def check_cuts(tmp_path, spec, data, cuts, max_rows, chunk_bytes, packed):
    path = tmp_path / f"data{packed}"
    path.write_bytes(PACK[packed](data))
    ends = [0, None] if packed else cuts
    ranges = [Range("s", str(path), a, b) for a, b in pairwise(ends)]
    blocks = list(read_blocks(spec, ranges, max_rows, chunk_bytes))
    assert all(b.n + len(b.bad) <= max_rows for b in blocks)
    assert all(b.n + len(b.bad) for b in blocks)
    assert rows_of(blocks) == naive(spec, data)


ways = {
    "max_rows": st.integers(1, 40),
    "chunk_bytes": st.sampled_from([1, 2, 7, 50, 4096]),
    "packed": st.sampled_from(list(PACK)),
}


@quick
@given(
    file=cut_files(csv_lines),
    columns=st.sampled_from([(None, None), (None, 0), (2, None), (2, 0), (1, 2)]),
    few=st.sampled_from([0, 200]),
    **ways,
)
def test_csv_rows_do_not_depend_on_cuts(tmp_path, file, columns, few, max_rows, chunk_bytes, packed):
    label, id = columns
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("apnc.readers.csv.FEW_COLUMNS", few)  # both ways of setting text columns aside
        check_cuts(tmp_path, spec_of("csv", label, id), *file, max_rows, chunk_bytes, packed)


@quick
@given(file=cut_files(spaced_lines), columns=st.sampled_from([(None, None), (None, 0), (2, None)]), **ways)
def test_spaced_rows_do_not_depend_on_cuts(tmp_path, file, columns, max_rows, chunk_bytes, packed):
    label, id = columns
    check_cuts(tmp_path, spec_of("csv", label, id, delimiter=" "), *file, max_rows, chunk_bytes, packed)


@quick
@given(file=cut_files(tabbed_lines), id=st.sampled_from([None, 0]), **ways)
def test_tabbed_rows_do_not_depend_on_cuts(tmp_path, file, id, max_rows, chunk_bytes, packed):
    check_cuts(tmp_path, spec_of("csv", None, id, delimiter="\t"), *file, max_rows, chunk_bytes, packed)


@quick
@given(file=cut_files(st.one_of(st.just("a,b,c"), st.just("# a"), csv_lines)), **ways)
def test_header_does_not_depend_on_cuts(tmp_path, file, max_rows, chunk_bytes, packed):
    check_cuts(tmp_path, spec_of("csv", header="auto", header_line="a,b,c"), *file, max_rows, chunk_bytes, packed)


@quick
@given(
    file=cut_files(svm_lines),
    label=st.sampled_from([None, 0]),
    base=st.sampled_from([0, 1]),
    width=st.sampled_from([None, 4]),
    **ways,
)
def test_svmlight_rows_do_not_depend_on_cuts(tmp_path, file, label, base, width, max_rows, chunk_bytes, packed):
    check_cuts(tmp_path, spec_of("svmlight", label, index_base=base, width=width), *file, max_rows, chunk_bytes, packed)


@settings(max_examples=300, deadline=None)
@given(st.text("0123456789+-.eE ,_xnaif\t\"'#", min_size=1, max_size=8), st.sampled_from([".", ","]))
def test_arrow_and_python_take_the_same_numbers(field, decimal):
    parser = CsvParser(InputSpec("csv", columns=1, width=1, delimiter=";", decimal=decimal))
    try:
        x, _, _, doubtful = parser.bulk(field.encode() + b"\n", 1)
    except ValueError:
        return  # goes to `single` anyway
    if doubtful is None:
        assert x[0, 0] == number(parser.fields(field.encode())[0], decimal)


@quick
@given(
    st.lists(
        st.tuples(st.text("ab ,\"'é", max_size=5), st.floats(allow_nan=False, allow_infinity=False), st.floats(-9, 9))
    ),
    st.sampled_from(",;\t"),
)
def test_csv_agrees_with_python(tmp_path, rows, delimiter):
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter).writerows(rows)
    path = tmp_path / "x.csv"
    path.write_text(out.getvalue(), encoding="utf-8", newline="")
    expected = list(csv.reader(io.StringIO(out.getvalue(), newline=""), delimiter=delimiter))
    spec = spec_of("csv", None, 0, delimiter=delimiter)
    # A row that begins with # is a comment here.
    expected = [row for row, line in zip(expected, out.getvalue().splitlines(), strict=True) if line[0] != "#"]
    blocks = list(read_blocks(spec, [Range("s", str(path), 0, None)], 7))
    assert [i for b in blocks for i in b.ids] == [row[0] for row in expected]
    assert [v for b in blocks for v in b.x.tolist()] == [[float(v) for v in row[1:]] for row in expected]


def test_good_lines_are_never_parsed_one_by_one(tmp_path, monkeypatch):
    def fail(self, line):
        raise AssertionError(line)

    monkeypatch.setattr(CsvParser, "single", fail)
    monkeypatch.setattr(SvmlightParser, "single", fail)
    texts = {
        "a.csv": b"1,2,3\n4,5,-6e3\r\n7,8,9\t\n",
        "b.csv": b'"x, y",2,3\n"z ""q""",5,6\n',
        "c.csv": b"1 2  3\n 4\t5 6 \n",
        "d.svm": b"+1 qid:3 3:1 1:2 # a\n-1\n0 2:-5e-3 7:1\r\n",
    }
    for name, text in texts.items():
        path = tmp_path / name
        path.write_bytes(text)
        input = describe(
            [str(path)], id_column=1 if name == "b.csv" else None, label_column="first" if name[0] == "d" else None
        )
        rows, bad, _ = rows_of(input.blocks([Range("s", str(path), 0, None)], 100))
        assert len(rows) == text.count(b"\n") and not bad


def test_svmlight_agrees_with_sklearn(tmp_path):
    rng = np.random.default_rng(0)
    lines = []
    for i in range(300):
        indices = np.sort(rng.choice(60, rng.integers(0, 9), replace=False)) + 1
        pairs = " ".join(f"{j}:{v:.17g}" for j, v in zip(indices, rng.normal(size=len(indices)), strict=True))
        lines.append(f"{i % 3 - 1} {pairs}" + (" # 70:1" if i % 5 == 0 else ""))
    path = tmp_path / "x.svm"
    path.write_text("\n".join(lines))
    input = describe([str(path)], label_column="first")
    expected, labels = load_svmlight_file(str(path), n_features=60, zero_based=False)
    blocks = [b for unit in input.units(1000) for b in input.blocks(unit, 50)]
    x = np.zeros((300, 60))
    at = 0
    for b in blocks:
        assert b.x.has_sorted_indices and b.x.dtype == np.float64
        x[at : at + b.n, : b.x.shape[1]] = b.x.toarray()
        at += b.n
    assert at == 300 and (x == expected.toarray()).all()
    assert [float(label) for b in blocks for label in b.labels] == labels.tolist()


def test_line_longer_than_a_chunk(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text(",".join(["1.5"] * 50_000) + "\n" + ",".join(["2"] * 50_000))
    input = describe([str(path)])
    blocks = list(read_blocks(input.spec, [r for u in input.units(10_000) for r in u], 100, 4096))
    assert [(b.n, b.x[0, -1]) for b in blocks] == [(1, 1.5), (1, 2.0)]


def test_line_of_many_blanks_is_quick_and_blank(tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes(b"1,2\n" + b" " * 1_000_000 + b"\n" + b" " * 1000 + b"3,4\n")
    input = describe([str(path)])
    rows, bad, _ = rows_of(input.blocks([r for u in input.units(1 << 20) for r in u], 10))
    assert [row[0] for row in rows.values()] == [[1, 2], [3, 4]] and not bad


def test_one_bad_row_among_many_keeps_the_rest(tmp_path):
    path = tmp_path / "x.csv"
    lines = [f"{i},{i}" for i in range(5000)]
    lines[3333] = "3333,NA"
    path.write_text("\n".join(lines))
    input = describe([str(path)])
    (block,) = input.blocks(input.units(1 << 20)[0], 10_000)
    assert block.x[:, 0].tolist() == [i for i in range(5000) if i != 3333]
    assert (
        explain(block.problems[0], input) == "x.csv line 3334, column 2: found 'NA'; a feature must be a finite number"
    )


@pytest.mark.parametrize("line", ["1", "1,2,3", "NA,2", "1,", ",", "x", '"1,2', "1,nan"])
@pytest.mark.parametrize("label", [None, 0, 1])
def test_all_rows_bad_is_no_exception(tmp_path, line, label):
    path = tmp_path / "x.csv"
    path.write_text("1,2\n" + f"{line}\n" * 100)
    spec = spec_of("csv", label, columns=2)
    blocks = list(read_blocks(spec, [Range("x", str(path), 0, None)], 1000))
    assert rows_of(blocks) == naive(spec, path.read_bytes())


def problem_of(tmp_path, name, data, **options):
    path = tmp_path / name
    path.write_bytes(data)
    input = describe([str(path)], **options)
    problems = [p for u in input.units(1 << 20) for b in input.blocks(u, 100) for p in b.problems]
    return explain(problems[0], input)


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (b"1,25;3,5\n1,3;3,4\n", {}, "line 1, column 2: found '25;3'"),
        (b"1,2\n\n# c\n?,2\n", {}, r"line 4, column 1: found '\?'"),
        (b"1,2\n1.1,\n", {}, "line 2, column 2: found ''"),
        (b"1,2\n1.1,inf\n", {}, "line 2, column 2: found 'inf'"),
        (b"1,2\n1\n", {}, "line 2: found '1 field'; every line must have 2 fields"),
        (b"1,1\n7,7\0\0\n", {}, r"line 2, column 2: found '7\\x00\\x00'; NUL"),
        (b'1,2\n"3,4\n', {}, "line 2: found .*; a quoted field must end on its line"),
        (b"0\t1,1\n", {}, r"line 1, column 1: found '0\\t1'"),
        (b"h,w\n1,2\n", {"header": "no"}, "line 1, column 1: found 'h'"),
        (b'"1.299,99";2\n', {"delimiter": ";", "decimal": ","}, "line 1, column 1: found '1.299,99'"),
        (b"1,a\n2,\xff\n", {"label_column": "last"}, r"line 2, column 2: found '\\\\xff'; id and label must be UTF-8"),
    ],
)
def test_csv_problem_names_line_column_and_text(tmp_path, data, options, message):
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(problem_of(tmp_path, "x.csv", data, **options))


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (b"0 1:1\n1 3000000000:1\n", {}, "line 2, index 3000000000: .*must not exceed 2147483646"),
        (b"0 1:1\n1 99999999999999999999:1\n", {}, "line 2, index 99999999999999999999: "),
        (b"0 1:1 12:3\n", {"width": 9}, "line 1, index 12: found '12'; the width is 9"),
        (b"0 1:1 0:3\n", {"index_base": 1}, "line 1, index 0: found '0'; indices begin at 1"),
        (b"0 2:1 1:4 2:3\n", {}, "line 1, index 2: found '2:3'; an index may occur only once"),
        (b"0 2:1 x\n", {}, "line 1: found 'x'; after the label only"),
        (b"0 2:1 3:NA\n", {}, "line 1, index 3: found 'NA'"),
        (b"0 2:1\n2:1\n", {"label_column": 1}, "line 2: found '2:1'; the label must come first"),
    ],
)
def test_svmlight_problem_names_line_and_index(tmp_path, data, options, message):
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(problem_of(tmp_path, "x.svm", data, **options))


@pytest.mark.parametrize("packed", [".gz", ".bz2"])
def test_all_members_of_an_archive_are_read(tmp_path, packed):
    path = tmp_path / f"x.csv{packed}"
    path.write_bytes(PACK[packed](b"1,1\n2,") + PACK[packed](b"2\n") + b"\0" * 100)
    input = describe([str(path)])
    rows, _, rules = rows_of(input.blocks(input.units(10)[0], 100))
    assert [row[0] for row in rows.values()] == [[1, 1], [2, 2]] and not rules


@pytest.mark.parametrize("packed", [".gz", ".bz2"])
@pytest.mark.parametrize("damage", ["cut", "garbage", "flipped"])
def test_damaged_archive_is_fatal_and_not_an_exception(tmp_path, packed, damage):
    data = np.random.default_rng(0).integers(1000, 9999, (60_000, 2))
    text = "".join(f"{a},{b}\n" for a, b in data.tolist()).encode()
    whole = PACK[packed](text[:300_000]) + PACK[packed](text[300_000:])
    middle = len(whole) * 3 // 4
    broken = {
        "cut": whole[:middle],
        "garbage": whole + b"garbage",
        "flipped": whole[:middle] + bytes(255 - c for c in whole[middle : middle + 20]) + whole[middle + 20 :],
    }[damage]
    path = tmp_path / f"x.csv{packed}"
    path.write_bytes(broken)
    input = describe([str(path)])
    for chunk_bytes in (1000, 4 << 20):
        blocks = list(read_blocks(input.spec, input.units(1 << 30)[0], 10_000, chunk_bytes))
        (problem,) = (p for b in blocks for p in b.problems if p.fatal)
        assert problem is blocks[-1].problems[-1]
        assert blocks[-1].n == 0 and sum(blocks[-1].rules.values()) == 1
        # The checksum of a flipped member may come after all of its rows.
        assert sum(b.n for b in blocks) <= 60_000
    assert ("must be complete" if damage == "cut" else "must be undamaged") in explain(problem, input)
    assert " line " in explain(problem, input)


def test_numeric_header_is_fatal_in_the_reader_too(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("1,2,3\n4,5,6\n")
    blocks = list(read_blocks(spec_of("csv", header="yes", header_line="a,b,c"), [Range("s", str(path), 0, None)], 10))
    assert blocks[0].problems[0].fatal and "looks like data" in blocks[0].problems[0].rule


def test_readers_start_without_arrow_and_sklearn():
    import subprocess

    code = "import sys; from apnc.readers import text, npy, csv, svmlight, detect, array"
    code += "; print({'pyarrow', 'sklearn', 'scipy', 'pandas'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "set()"
