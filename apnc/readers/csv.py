"""Delimited text: one line a row, numbers parsed by Arrow."""

from __future__ import annotations

import re

import numpy as np

from apnc.readers.spec import InputSpec
from apnc.readers.text import _BLANKS, NUL, BadRow, TextParser, decode, lines_of, spans, texts

NUMBER = "a feature must be a finite number"
FEW_COLUMNS = 200  # up to here, Arrow's own columns cost less than setting text columns aside
QUOTE = "a quoted field must end on its line"

_NUMBER = re.compile(rb"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_QUOTED = re.compile(rb'"([^"]*(?:""[^"]*)*)"')
_WORD = re.compile(rb"[^ \t\r]*")
_GAP = re.compile(rb"[ \t\r]*")
_TRIM = b" \t\r\v\f"
_NUMERIC = np.zeros(256, bool)  # bytes a line of numbers may hold beside delimiters
_NUMERIC[list(b"0123456789+-.,eE \t\r\n")] = True


def number(field: bytes, decimal: str = ".") -> float | None:
    """Return a field's finite value, or None if it has none."""
    field = field.strip(_TRIM)
    if decimal != ".":
        if b"." in field:
            return None
        field = field.replace(decimal.encode(), b".")
    if not _NUMBER.fullmatch(field):
        return None
    value = float(field)
    return value if np.isfinite(value) else None


class CsvParser(TextParser):
    """Makes rows of delimited lines; the features are float64.

    Fields may be quoted with ``"``; a line feed always ends the row. One tab at the end of a line, which Hadoop
    adds to lines without one, is dropped unless tabs delimit. With the delimiter ``" "`` any run of spaces and
    tabs is one.
    """

    def __init__(self, spec: InputSpec):
        super().__init__(spec)
        self.delimiter, self.decimal = spec.delimiter.encode(), spec.decimal
        if spec.delimiter == "\t":
            self.blanks = _BLANKS.copy()
            self.blanks[9] = False  # a line of tabs is a row of empty fields
        named = (spec.id_column, spec.label_column)
        self.features = [c for c in range(spec.columns) if c not in named]
        self._arrow = None
        self._fields = f"every line must have {spec.columns} fields, as the first has"

    def fields(self, line: bytes) -> list[bytes]:
        """Return the fields of one line, unquoted; raise `BadRow` when a quote stays open."""
        line = line.rstrip(b"\r\n")
        if self.delimiter != b"\t" and line.endswith(b"\t"):
            line = line[:-1].rstrip(b"\r")
        if self.delimiter == b" ":
            return _words(line)
        return _split(line, self.delimiter) if b'"' in line else line.split(self.delimiter)

    def header_text(self, line: bytes) -> str:
        """Return a header line in the form kept in the spec."""
        line = line.rstrip(b"\r\n")
        if self.delimiter != b"\t" and line.endswith(b"\t"):
            line = line[:-1]
        return line.decode("utf-8", "surrogateescape")

    def all_numbers(self, line: bytes) -> bool:
        """Return whether every field of a line is a number, so that it can hardly be a header."""
        try:
            return all(number(field, self.decimal) is not None for field in self.fields(line))
        except BadRow:
            return False

    def irregular(self, data, starts):
        odd = super().irregular(data, starts)
        text = np.frombuffer(data, np.uint8)
        if self.delimiter == b" " and b'"' in data:  # runs of blanks are closed up only outside quotes
            odd = np.zeros(len(starts), bool) if odd is None else odd
            odd[lines_of(text == 34, starts)] = True
        if b"\r" in data and data.count(b"\r") != data.count(b"\r\n"):
            odd = np.zeros(len(starts), bool) if odd is None else odd
            bare = text == 13
            bare[:-1] &= text[1:] != 10
            odd[lines_of(bare, starts)] = True
        return odd

    def suspects(self, data, starts):
        odd = np.zeros(len(starts), bool)
        if b'"' in data or self.delimiter == b" ":
            return odd
        text = np.frombuffer(data, np.uint8)
        cuts = np.flatnonzero(text == self.delimiter[0])
        line = np.searchsorted(starts, cuts, "right") - 1
        odd |= np.bincount(line, minlength=len(starts)) != self.spec.columns - 1
        fit = np.flatnonzero(~odd)
        ends = np.append(starts[1:], len(data))[fit]
        text = text.copy()
        for first, last in self._texts(
            starts[fit], ends, cuts[~odd[line]].reshape(len(fit), self.spec.columns - 1)
        ).values():
            text[spans(first, last)] = 48
        odd[lines_of(~_NUMERIC[text] & (text != self.delimiter[0]), starts)] = True
        after = text[np.minimum(cuts + 1, len(text) - 1)]
        odd[line[(after == self.delimiter[0]) | (after == 10) | (after == 13)]] = True
        return odd

    def _texts(self, starts, ends, cuts):
        """Return where the id and label columns start and end in each line, by column."""
        return {
            c: (starts if c == 0 else cuts[:, c - 1] + 1, ends if c == self.spec.columns - 1 else cuts[:, c])
            for c in (self.spec.id_column, self.spec.label_column)
            if c is not None
        }

    def bulk(self, data, n):
        if not data.endswith(b"\n"):
            data += b"\n"
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n")
        if self.delimiter != b"\t" and b"\t" in data:
            data = data.replace(b"\t\n", b"\n")
        if self.delimiter == b" ":
            data = _close_up(data)
        apart = b'"' in data or len(self.features) < self.spec.columns <= FEW_COLUMNS
        x, ids, labels = self._by_column(data, n) if apart else self._flat(data, n)
        with np.errstate(all="ignore"):
            sound = np.isfinite(x.sum())
        return x, ids, labels, None if sound else ~np.isfinite(x).all(axis=1)

    def _flat(self, data, n):
        """Parse the features of unquoted lines as one long column: no cost per column, and rows stay together."""
        arrow, columns = self._arrow_options(), self.spec.columns
        text = np.frombuffer(data, np.uint8)
        ends = np.flatnonzero(text == 10)
        cuts = np.flatnonzero(text == self.delimiter[0])
        if len(ends) != n or len(cuts) != n * (columns - 1):
            raise ValueError("another number of fields")
        starts = np.concatenate([[0], ends[:-1] + 1])
        cuts = cuts.reshape(n, columns - 1)
        if columns > 1 and not ((cuts[:, 0] >= starts).all() and (cuts[:, -1] < ends).all()):
            raise ValueError("another number of fields")
        kept = {}
        for c, (first, last) in self._texts(starts, ends, cuts).items():
            if not (last > first).all():
                return self._by_column(data, n)
            kept[c] = texts(text, first, last)
            text = text if text.flags.writeable else text.copy()
            text[spans(first, last)] = 32
            text[first] = 48  # a zero in place of the text, to be left out below
        if kept:
            data = text.tobytes()
        x = arrow.flat(data.replace(self.delimiter, b"\n") if columns > 1 else data).reshape(n, columns)
        if kept:
            x = np.take(x, self.features, axis=1)
        return x, kept.get(self.spec.id_column), kept.get(self.spec.label_column)

    def _by_column(self, data, n):
        table = self._arrow_options().table(data)
        if table.num_rows != n:
            raise ValueError("another number of rows")
        x = np.empty((n, len(self.features)))
        for j, c in enumerate(self.features):
            x[:, j] = table.column(c).to_numpy()
        ids, labels = (
            None if c is None else table.column(c).to_numpy().tolist()
            for c in (self.spec.id_column, self.spec.label_column)
        )
        return x, ids, labels

    def _arrow_options(self):
        if self._arrow is None:
            self._arrow = _Arrow(self.spec, self.features)
        return self._arrow

    def single(self, line):
        if b"\0" in line:
            for c, field in enumerate(line.split(self.delimiter)):
                if b"\0" in field:
                    raise BadRow(c + 1, field, NUL)
        fields = self.fields(line)
        if len(fields) != self.spec.columns:
            raise BadRow(None, b"%d field%s" % (len(fields), b"s"[: len(fields) != 1]), self._fields)
        values = []
        for c in self.features:
            value = number(fields[c], self.decimal)
            if value is None:
                raise BadRow(c + 1, fields[c], NUMBER)
            values.append(value)
        named = (None if c is None else decode(fields[c], c + 1) for c in (self.spec.id_column, self.spec.label_column))
        return values, *named

    def stack(self, rows):
        return np.array(rows, np.float64).reshape(len(rows), len(self.features))

    def concatenate(self, matrices):
        return np.concatenate(matrices)


class _Arrow:
    """Arrow's reader with the options of one input; not shared between threads."""

    def __init__(self, spec: InputSpec, features: list[int]):
        import pyarrow as pa
        import pyarrow.csv as pc

        self._pa, self._pc, self._spec, self._features = pa, pc, spec, features
        self._convert_flat = pc.ConvertOptions(
            column_types={"x": pa.float64()}, null_values=[], decimal_point=spec.decimal
        )
        self._parse_flat = pc.ParseOptions(delimiter="\x01", quote_char=False, ignore_empty_lines=False)
        self._table_options = None

    def flat(self, data: bytes) -> np.ndarray:
        column = self._read(data, ["x"], self._parse_flat, self._convert_flat).column(0)
        return np.array(column.to_numpy())  # Arrow's own memory is read-only

    def table(self, data: bytes):
        pa, pc, spec = self._pa, self._pc, self._spec
        if self._table_options is None:
            names = [str(c) for c in range(spec.columns)]
            types = dict.fromkeys(names, pa.string()) | dict.fromkeys(map(str, self._features), pa.float64())
            convert = pc.ConvertOptions(
                column_types=types, null_values=[], strings_can_be_null=False, decimal_point=spec.decimal
            )
            self._table_options = names, pc.ParseOptions(delimiter=spec.delimiter), convert
        return self._read(data, *self._table_options)

    def _read(self, data, names, parse, convert):
        options = self._pc.ReadOptions(use_threads=False, column_names=names, block_size=len(data) + 1)
        source = self._pa.BufferReader(data)
        return self._pc.read_csv(source, read_options=options, parse_options=parse, convert_options=convert)


def _close_up(data: bytes) -> bytes:
    """Return lines with single spaces between words and none at their ends."""
    text = np.frombuffer(data, np.uint8)
    blank = (text == 32) | (text == 9)
    after = np.empty(len(text), bool)  # whether a blank here would be a second one, or the first of a line
    after[0] = True
    after[1:] = blank[:-1] | (text[:-1] == 10)
    closed = text[~(blank & after)]
    closed[closed == 9] = 32
    return closed.tobytes().replace(b" \n", b"\n")


def _split(line: bytes, delimiter: bytes) -> list[bytes]:
    fields, at = [], 0
    while True:
        field, at = _unquote(line, at)
        end = line.find(delimiter, at)
        fields.append(field + line[at : end if end >= 0 else None])
        if end < 0:
            return fields
        at = end + 1


def _words(line: bytes) -> list[bytes]:
    fields, at = [], _GAP.match(line).end()
    while at < len(line):
        field, at = _unquote(line, at)
        word = _WORD.match(line, at)
        fields.append(field + word[0])
        at = _GAP.match(line, word.end()).end()
    return fields


def _unquote(line, at):
    """Return the quoted text that begins here, if one does, and where it ends."""
    if line[at : at + 1] != b'"':
        return b"", at
    quoted = _QUOTED.match(line, at)
    if not quoted:
        raise BadRow(None, line[at:], QUOTE)
    return quoted[1].replace(b'""', b'"'), quoted.end()
