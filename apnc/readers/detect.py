"""What the input is: looked at once, on the driver, so that tasks never guess."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from urllib.parse import unquote

from apnc.blocks import Block
from apnc.errors import InputError
from apnc.readers import archive, files, npy, read_blocks
from apnc.readers.csv import CsvParser, number
from apnc.readers.spec import InputSpec, Range
from apnc.readers.text import BOM, NUMERIC_HEADER, BadRow, TextParser, data_lines, first_data_line, shown

FORMATS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".svm": "svmlight",
    ".svmlight": "svmlight",
    ".libsvm": "svmlight",
    ".npy": "npy",
}
UNSUPPORTED = {
    **dict.fromkeys((".parquet", ".orc", ".avro", ".npz", ".h5", ".hdf5", ".mat", ".arff", ".xls", ".xlsx"), "format"),
    **dict.fromkeys((".json", ".jsonl", ".pkl", ".pickle", ".feather", ".arrow", ".seq", ".tfrecord"), "format"),
    **dict.fromkeys((".zip", ".tar", ".tgz", ".xz", ".zst", ".lz4", ".lzo", ".snappy", ".deflate"), "compression"),
}
MAGICS = {b"\x1f\x8b": ".gz", b"BZh": ".bz2"}
DELIMITERS = {"comma": ",", "tab": "\t", "\\t": "\t", "semicolon": ";", "space": " ", "whitespace": " "}
PEEK_BYTES = 1 << 14
LONG_PEEK_BYTES = 1 << 20
PAIR_LINES = 100
NO_FILES = "the directory holds no files (names beginning with _ or . do not count)"
LOOKS_AT_A_TIME = 8  # at files elsewhere, where a look is mostly waiting
LOW_SIDE = 0.8  # of the rows that a look at the first lines promises

_PAIR = rb"\d+:[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?!\S)"
_PAIRS = re.compile(rb"\s*(?:[^\s:#]+\s+)?(?:qid:\d+\s+)?" + _PAIR)
_ZERO_INDEX = re.compile(rb"(?<!\S)0+:")


@dataclass(frozen=True)
class SourceFile:
    """One file of the input.

    Parameters
    ----------
    source : str
        Its name in the run: in labels.csv, in messages, in the hash of its rows.
    path : str
        On this machine, or the URI of a file on HDFS.
    size : int
        Bytes on disk.
    compression : {'', 'gz', 'bz2'}
    rows : int
        Exact for npy; for text an estimate on the low side.
    """

    source: str
    path: str
    size: int
    compression: str
    rows: int = 0


@dataclass
class Input:
    """The files of a run and what they have in common."""

    spec: InputSpec
    files: list[SourceFile]

    def estimated_rows(self) -> int:
        """Return the number of rows: exact for npy, otherwise an estimate that errs on the low side."""
        return sum(file.rows for file in self.files)

    def bytes_per_row(self) -> float:
        """Return about how many bytes of file a row takes."""
        return max(1.0, sum(file.size for file in self.files) / max(1, self.estimated_rows()))

    def units(self, target_bytes: int) -> list[list[Range]]:
        """Return the work in input order: units of ranges, about ``target_bytes`` of file each.

        Small files share a unit. Large ones are cut into equal ranges, except compressed ones, which are always
        one range. Files without rows have none. Paths on HDFS stand in units as tasks can read them, by WebHDFS
        where it answers.
        """
        units, room = [], 0
        for file in self.files:
            for r, size in self._ranges(file, target_bytes):
                if not units or size > room:
                    units.append([])
                    room = target_bytes
                units[-1].append(r)
                room -= size
        return units

    def _ranges(self, file, target_bytes):
        path = files.for_tasks(file.path)
        if file.compression:
            return [(Range(file.source, path, 0, None), file.size)]
        length = file.rows if self.spec.format == "npy" else file.size
        parts = min(length, -(-file.size // max(1, target_bytes)))
        cuts = [length * i // parts for i in range(parts + 1)] if parts else []
        return [(Range(file.source, path, a, b), file.size // parts) for a, b in pairwise(cuts)]

    def blocks(self, ranges: list[Range], max_rows: int) -> Iterator[Block]:
        """Yield the rows of ranges in blocks of at most ``max_rows``; see `apnc.readers.read_blocks`."""
        return read_blocks(self.spec, ranges, max_rows)

    def fingerprint(self) -> list[dict]:
        """Return source, size and time of change of every file, to notice when the input changes."""
        states = files.states([file.path for file in self.files])
        return [
            {"source": file.source, "size": size, "mtime_ns": mtime}
            for file, (size, mtime) in zip(self.files, states, strict=True)
        ]


def describe(
    inputs: list[str],
    *,
    format: str = "auto",
    delimiter: str = "auto",
    decimal: str = ".",
    header: str = "auto",
    label_column=None,
    id_column=None,
    index_base="auto",
    width: int | None = None,
) -> Input:
    """Look at the input and return what it is.

    Parameters
    ----------
    inputs : list of str
        Files, and directories, which are walked in the order of names, on this machine or on HDFS (hdfs://…).
        Names that start with ``_`` or ``.`` are skipped, unless given themselves. Several arguments put their
        ordinal before the names of their sources.
    format : {'auto', 'csv', 'svmlight', 'npy'}
        'auto' goes by the suffix, else by the content of the first lines.
    delimiter : str
        csv: one character, its name (comma, tab, semicolon, space) or 'auto': the first of these four that
        occurs in the first line. 'space' stands for any run of spaces and tabs.
    decimal : {'.', ','}
        csv: the decimal sign.
    header : {'auto', 'yes', 'no'}
        csv: 'yes' says that every file begins with a header. 'auto' takes the first line for one if none of its
        feature fields is a number, and skips the first line of other files if it is the same.
    label_column, id_column : str or int, optional
        'first', 'last', a number counted from 1, or a name in the header. Such columns are no features. svmlight
        has its label first and no id.
    index_base : {'auto', 0, 1}
        svmlight: the smallest index. 'auto' is 0 if the lines looked at have an index 0, else 1.
    width : int, optional
        Number of features, where it is known beforehand.

    Returns
    -------
    Input

    Raises
    ------
    InputError
        In one line: which file or option, what was found, what is allowed.
    """
    spec = InputSpec(_one_of("format", format, ("auto", "csv", "svmlight", "npy")))
    spec.header = _one_of("header", header, ("auto", "yes", "no"))
    spec.decimal = _one_of("decimal", decimal, (".", ","))
    spec.delimiter = _delimiter(delimiter, decimal)
    if width is not None and width < 1:
        raise InputError(f"width: {width} is not a positive number of features")
    found = _find(inputs)
    looks = _looks(found)
    if not any(look.size for look in looks):
        raise InputError(f"{_quoted(inputs)}: the input holds no rows")
    spec.format = _format(spec.format, looks)
    if spec.format == "npy":
        rows = _describe_npy(spec, looks, label_column, id_column, width)
    else:
        for look in looks:
            look.check_text()
        if not any(look.first for look in looks):
            raise InputError(f"{_quoted(inputs)}: the input holds no rows")
        if spec.format == "csv":
            _describe_csv(spec, looks, delimiter, label_column, id_column, width)
        else:
            _describe_svmlight(spec, looks, label_column, id_column, index_base, width)
        rows = [look.estimated_rows(spec) for look in looks]
    spec.sources = [source for source, _, _ in found]
    return Input(
        spec,
        [
            SourceFile(source, path, size, archive.compression(path), n)
            for (source, path, size), n in zip(found, rows, strict=True)
        ],
    )


def _find(inputs):
    """Return (source, path, size) of every file, in input order."""
    if not inputs:
        raise InputError("no input given")
    found = []
    for ordinal, argument in enumerate(inputs):
        prefix = f"{ordinal}/" if len(inputs) > 1 else ""
        if files.is_remote(argument):
            inside = files.walk(argument)
            if not inside:
                raise InputError(f"{argument}: {NO_FILES}")
            found += [(prefix + name, path, size) for name, path, size in inside]
            continue
        path = _local(argument)
        if os.path.isdir(path):
            inside = list(_walk(path, "", set()))
            if not inside:
                raise InputError(f"{argument}: {NO_FILES}")
        elif os.path.exists(path):
            inside = [(os.path.basename(path), path)]
        else:
            raise InputError(f"{argument}: no such file or directory")
        for name, file in inside:
            try:
                name.encode("utf-8")
            except UnicodeEncodeError:
                raise InputError(f"{os.fsencode(file)!r}: the file name is not UTF-8") from None
            if not os.path.isfile(file):
                raise InputError(f"{file}: not a regular file" if os.path.exists(file) else f"{file}: no such file")
            found.append((prefix + name, file, os.path.getsize(file)))
    return found


def _local(argument: str) -> str:
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", argument)
    if not scheme or os.path.exists(argument):
        return argument
    name = scheme[1].lower()
    if name == "file":
        return unquote(argument[len("file://") :])
    if name in ("s3", "s3a", "s3n"):
        raise InputError(f"{argument}: only a runner that reads {name}:// can take this input; give --runner")
    raise InputError(f"{argument}: unknown scheme {name}://; give a path, file://, hdfs:// or s3://")


def _walk(directory, prefix, above):
    real = os.path.realpath(directory)
    if real in above:
        raise InputError(f"{directory}: a link leads back to a directory above it")
    try:
        names = sorted(os.listdir(directory))
    except OSError as error:
        raise InputError(f"{directory}: {error.strerror}") from None
    for name in names:
        if name[0] in "_.":
            continue
        path = os.path.join(directory, name)
        if os.path.isdir(path):
            yield from _walk(path, f"{prefix}{name}/", above | {real})
        else:
            yield prefix + name, path


def _looks(found):
    if not any(files.is_remote(path) for _, path, _ in found):
        return [_Look(path, size) for _, path, size in found]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(LOOKS_AT_A_TIME) as pool:
        looks = [pool.submit(_Look, path, size) for _, path, size in found]
        try:
            return [look.result() for look in looks]
        finally:
            pool.shutdown(cancel_futures=True)


class _Look:
    """What a look at the beginning of a file shows."""

    def __init__(self, path, size):
        self.path, self.size = path, size
        self.compression = archive.compression(path)
        stem = os.path.splitext(path)[0] if self.compression else path
        self.suffix = os.path.splitext(stem)[1].lower()
        self.format = FORMATS.get(self.suffix, "")
        self.first = None
        self.pairs = self.zero_index = self._checked = self.is_npy = False
        self._rows = 0
        if not size:
            if self.compression or self.format == "npy":
                raise InputError(f"{path}: the file is empty (0 bytes), which no {self.suffix_given()} file can be")
            self.head, self.whole = b"", True
            return
        self.head, self.whole = self._peek(PEEK_BYTES)
        self.is_npy = self.head.startswith(npy.MAGIC)
        self._is_not_what_it_seems()

    def suffix_given(self):
        return os.path.splitext(self.path)[1].lower()

    def _peek(self, wanted):
        """Return the first bytes, decompressed, and whether they are all."""
        try:
            if not self.compression:
                with files.open_file(self.path) as file:
                    return file.pread(wanted, 0), self.size <= wanted
            pieces = archive.chunks(self.path, wanted)
            head = next(pieces, b"")
            return head, next(pieces, None) is None
        except archive.Damaged as damage:
            try:  # what comes before the damage is good enough to look at
                head = next(archive.chunks(self.path, wanted))
            except archive.Damaged:
                raise InputError(f"{self.path}: {damage.found}; {damage.rule}") from None
            return head, False
        except OSError as error:
            raise InputError(f"{self.path}: {error.strerror or error}") from None

    def _is_not_what_it_seems(self):
        if not self.compression:
            for magic, suffix in MAGICS.items():
                if self.head.startswith(magic) and not self.head[:PEEK_BYTES].isascii():
                    raise InputError(f"{self.path}: the content is compressed; name the file with {suffix} at its end")
        for magic, name in ((b"PAR1", "parquet"), (b"PK\x03\x04", "zip (or npz)"), (b"\x89HDF", "HDF5")):
            if self.head.startswith(magic):
                raise InputError(f"{self.path}: {name} files are not supported; give csv, svmlight or npy")

    def check_text(self):
        """Refuse what is no text by lines, and remember the first line and the shape of the others."""
        if self._checked or not self.size:
            return
        self._checked = True
        for mark, name in ((b"\xff\xfe\0\0", "UTF-32"), (b"\xff\xfe", "UTF-16"), (b"\xfe\xff", "UTF-16")):
            if self.head.startswith(mark):
                raise InputError(f"{self.path}: the byte order mark says {name}; only UTF-8 is supported")
        if not self.whole and b"\n" not in self.head:
            self.head, self.whole = self._peek(LONG_PEEK_BYTES)
        if b"\n" not in self.head and b"\r" in self.head.rstrip(b"\r"):
            raise InputError(f"{self.path}: no line feeds, only carriage returns; lines must end in \\n or \\r\\n")
        lead = len(BOM) if self.head.startswith(BOM) else 0
        text = self.head[lead:]
        starts, ends = data_lines(text, TextParser.blanks)
        if len(starts):
            self.first = text[starts[0] : ends[0]]
            if ends[0] == len(text) and not self.whole:
                self.first = None  # cut off
        if self.first is None and not self.whole:
            try:
                first = first_data_line(self.path, TextParser.blanks)
            except archive.Damaged as damage:
                raise InputError(f"{self.path}: {damage.found}; {damage.rule}") from None
            self.first = first and first[1]
        self.pairs = any(_PAIRS.match(text, a, b) for a, b in zip(starts[:PAIR_LINES], ends[:PAIR_LINES], strict=True))
        self.zero_index = bool(_ZERO_INDEX.search(re.sub(rb"#[^\n]*", b"", text)))
        self._rows = len(starts)
        self._bytes = len(self.head)
        if self.first and not self._rows:
            self._rows, self._bytes = 1, max(len(self.first), len(self.head))
        self.head = b""

    def estimated_rows(self, spec) -> int:
        if not self.size or not self.first:
            return 0
        if self.whole:
            return self._rows - bool(spec.header == "yes" or (spec.header == "auto" and spec.header_line is not None))
        total = self.size
        if self.compression:
            total *= max(1.0, archive.ratio(self.path))
        return max(1, int(LOW_SIDE * total / self._bytes * self._rows))


def _format(given, looks):
    if given != "auto":
        for look in looks:
            if look.size and given != "npy" and look.is_npy:
                raise InputError(f"{look.path}: this is a .npy file, but the format given is {given}")
        return given
    for look in looks:
        if look.suffix in UNSUPPORTED:
            raise InputError(
                f"{look.path}: {look.suffix} is no {UNSUPPORTED[look.suffix]} that can be read; "
                "give csv, svmlight or npy, plain, .gz or .bz2"
            )
        if not look.format and look.size and look.is_npy:
            look.format = "npy"
    if not all(look.format == "npy" for look in looks):
        unsure = [look for look in looks if not look.format and look.size]
        for look in looks:
            if look.format != "npy" and look.size:
                look.check_text()
        if unsure:
            known = next((look.format for look in looks if look.format and look.format != "npy"), "")
            guess = known or ("svmlight" if any(look.pairs for look in unsure) else "csv")
            for look in unsure:
                look.format = guess
    known = [look for look in looks if look.format]
    for look in known[1:]:
        if look.format != known[0].format:
            raise InputError(
                f"{look.path}: {look.format}, but {known[0].path} is {known[0].format}; one run reads one format"
            )
    return known[0].format


def _describe_npy(spec, looks, label_column, id_column, width):
    shapes = []
    for look in looks:
        if not look.size:
            raise InputError(f"{look.path}: the file is empty (0 bytes), which no .npy file can be")
        if not look.whole:
            look.head, look.whole = look._peek(npy.MAX_HEADER)
        try:
            shape = npy.layout(look.head)
        except npy.NotNpy as error:
            raise InputError(f"{look.path}: {error}") from None
        look.head = b""
        if not look.compression and look.size - shape.start != shape.data_bytes:
            raise InputError(f"{look.path}: {npy.short(shape, look.size - shape.start)}")
        if look.compression and shape.fortran:
            raise InputError(f"{look.path}: a compressed array must be in C order; this one is in Fortran order")
        if shape.fortran and files.is_remote(look.path):
            raise InputError(f"{look.path}: an array on HDFS must be in C order; this one is in Fortran order")
        shapes.append(shape)
        if shape.columns != shapes[0].columns:
            raise InputError(
                f"{look.path}: {shape.columns} columns, but {looks[0].path} has {shapes[0].columns}; "
                "all files must have the same"
            )
    if not any(shape.rows for shape in shapes):
        raise InputError(f"{looks[0].path}: the input holds no rows (array of {shapes[0].rows} rows)")
    spec.columns, spec.header, spec.delimiter = shapes[0].columns, "no", ","
    _choose_columns(spec, None, label_column, id_column, width)
    return [shape.rows for shape in shapes]


def _describe_svmlight(spec, looks, label_column, id_column, index_base, width):
    if id_column is not None:
        raise InputError(f"id column: svmlight has none, but {id_column!r} was given")
    if label_column is not None:
        if str(label_column) not in ("first", "0", "1"):
            raise InputError(f"label column: {label_column!r}, but in svmlight the label is always the first")
        spec.label_column = 0
    base = str(index_base)
    if base not in ("auto", "0", "1"):
        raise InputError(f"index base: {index_base!r} is none of auto, 0, 1")
    spec.index_base = int(base) if base != "auto" else (0 if any(look.zero_index for look in looks) else 1)
    spec.width, spec.sparse, spec.header, spec.delimiter = width, True, "no", " "


def _describe_csv(spec, looks, delimiter, label_column, id_column, width):
    look = next(look for look in looks if look.first)
    if delimiter == "auto":
        spec.delimiter = "\t" if look.suffix == ".tsv" else _guess_delimiter(look.first, spec.decimal)
    fields = _fields(spec, look)
    spec.columns = len(fields)
    names = [field.decode("utf-8", "replace").strip() for field in fields]
    named = _choose_columns(spec, names if spec.header != "no" else None, label_column, id_column, width)
    parser = CsvParser(spec)
    numbers = [number(fields[c], spec.decimal) is not None for c in parser.features]
    if spec.header == "yes" and not named and all(number(f, spec.decimal) is not None for f in fields):
        raise InputError(_numeric_header(look))
    if spec.header == "no" or (spec.header == "auto" and any(numbers) and not named):
        spec.header = "no"
        return
    spec.header_line = parser.header_text(look.first)
    for other in looks:
        if other.first and other is not look and parser.header_text(other.first) != spec.header_line:
            theirs = [field.decode("utf-8", "replace").strip() for field in _fields(spec, other)]
            if spec.header == "yes" and parser.all_numbers(other.first):
                raise InputError(_numeric_header(other))
            if theirs != names and sorted(theirs) == sorted(names):
                raise InputError(f"{other.path} line 1: the header has the columns of {look.path} in another order")


def _numeric_header(look):
    return f"{look.path} line 1: found {shown(look.first)!r}; {NUMERIC_HEADER}"


def _fields(spec, look):
    try:
        return CsvParser(spec).fields(look.first)
    except BadRow as bad:
        raise InputError(f"{look.path} line 1: found {shown(bad.found)!r}; {bad.rule}") from None


def _guess_delimiter(line, decimal):
    line = line.rstrip(b"\r\n")
    line = line[:-1] if line.endswith(b"\t") else line
    line = line.strip(b" \r")
    for one in (b",", b"\t", b";", b" "):
        if one in line and one != decimal.encode():
            return one.decode()
    return "," if decimal != "," else ";"


def _choose_columns(spec, names, label_column, id_column, width):
    """Set the columns that are no features; return whether one was chosen by a name in the header."""
    chosen = [_column(what, c, spec.columns, names) for what, c in (("label", label_column), ("id", id_column))]
    (spec.label_column, by_name), (spec.id_column, by_name_too) = chosen
    if spec.label_column is not None and spec.label_column == spec.id_column:
        raise InputError(f"label column and id column are the same: {spec.label_column + 1}")
    spec.width = spec.columns - sum(c is not None for c, _ in chosen)
    if not spec.width:
        raise InputError(f"no feature columns are left: there are {spec.columns}, less the label and id columns")
    if width is not None and width != spec.width:
        raise InputError(f"width: {spec.width} feature columns were found, but {width} are expected")
    return by_name or by_name_too


def _column(what, chosen, columns, names):
    """Return (0-based position or None, whether it was found by name)."""
    if chosen is None:
        return None, False
    text = str(chosen)
    if text in ("first", "last"):
        return (0 if text == "first" else columns - 1), False
    if re.fullmatch(r"-?\d+", text):
        if not 1 <= int(text) <= columns:
            raise InputError(f"{what} column: {text} is not in 1 to {columns}")
        return int(text) - 1, False
    if names is None:
        raise InputError(f"{what} column: {text!r} is a name, but there is no header; give 1 to {columns}")
    if text not in names:
        import difflib

        near = difflib.get_close_matches(text, names, 1, 0.0)
        raise InputError(
            f"{what} column: the first line has no field {text!r}" + (f"; nearest: {near[0]!r}" if near else "")
        )
    if names.count(text) > 1:
        raise InputError(f"{what} column: the header has {text!r} {names.count(text)} times; give a number")
    return names.index(text), True


def _delimiter(given, decimal):
    if given == "auto":
        return ","
    one = DELIMITERS.get(given, given)
    if len(one) != 1 or not one.isascii() or one.isalnum() or one in "\"\r\n\0.+-_#'":
        raise InputError(f"delimiter: {given!r} is not one character that can delimit numbers, nor auto")
    if one == decimal:
        raise InputError(f"delimiter: {given!r} is the decimal sign too")
    return one


def _one_of(what, given, allowed):
    if given not in allowed:
        import difflib

        near = difflib.get_close_matches(str(given), allowed, 1, 0.0)
        hint = f"; nearest: {near[0]}" if near else ""
        raise InputError(f"{what}: {given!r} is none of {', '.join(allowed)}{hint}")
    return given


def _quoted(inputs):
    return inputs[0] if len(inputs) == 1 else f"{inputs[0]} and {len(inputs) - 1} more"
