"""svmlight text: ``label index:value … # comment``, as sparse rows."""

from __future__ import annotations

import re

import numpy as np

from apnc.readers.csv import _NUMBER
from apnc.readers.spec import InputSpec
from apnc.readers.text import NUL, BadRow, TextParser, decode, spans, texts

LARGEST_INDEX = 2**31 - 2
PAIRS = "after the label only index:value, qid:number and a comment are allowed"
VALUE = "a feature must be a finite number"
LABEL = "the label must come first"
TWICE = "an index may occur only once in a row"

_COMMENT = re.compile(rb"#[^\n]*")
_QID = re.compile(rb"(?<![^ \t\n\r\v\f])qid:\d+(?![^ \t\n\r\v\f])")
_APART = bytes.maketrans(b" \t\r\v\f", b"\n\n\n\n\n")


class SvmlightParser(TextParser):
    """Makes CSR rows (float64, sorted indices) of svmlight lines.

    While the spec knows no width, a matrix is as wide as its block needs: its width is a lower bound.
    """

    def __init__(self, spec: InputSpec):
        super().__init__(spec)
        self.base = spec.index_base
        self.largest = LARGEST_INDEX
        self._below = f"indices begin at {self.base}"
        self._above = f"an index must not exceed {self.largest}"
        if spec.width is not None:
            self.largest = min(self.largest, spec.width - 1 + self.base)
            self._above = f"the width is {spec.width}, so an index must not exceed {self.largest}"
        self._arrow = None

    def bulk(self, data, n):
        if not data.endswith(b"\n"):
            data += b"\n"
        if b"#" in data:
            data = _COMMENT.sub(b"", data)
        if b"q" in data:
            data = _QID.sub(b"", data)
        ends = np.flatnonzero(np.frombuffer(data, np.uint8) == 10)
        text = np.frombuffer(bytearray(data.translate(_APART)), np.uint8)
        blank = text == 10
        begins = np.flatnonzero(np.concatenate([[True], blank[:-1]]) > blank)  # tokens
        token = np.searchsorted(begins, np.concatenate([[0], ends]))  # the first one of each line
        tokens = np.diff(token)
        lines = np.flatnonzero(tokens)
        first = begins[token[lines]]
        last = np.flatnonzero(blank[1:] > blank[:-1])[token[lines]] + 1
        colons = np.append(np.flatnonzero(text == 58), len(text))
        labelled = colons[np.searchsorted(colons, first)] >= last
        lines, first, last = lines[labelled], first[labelled], last[labelled]
        labels = doubtful = None
        if self.spec.label_column is not None:
            if len(lines) != n:
                raise ValueError("a line without a label")
            labels = texts(text, first, last)
        text[spans(first, last)] = 10
        pairs = tokens
        pairs[lines] -= 1
        indices, values = self._parse(text.tobytes(), int(pairs.sum()))
        bounds = np.concatenate([[0], np.cumsum(pairs)])
        wrong = (indices < self.base) | (indices > self.largest)
        with np.errstate(all="ignore"):
            if not np.isfinite(values.sum()):
                wrong |= ~np.isfinite(values)
        row = None
        if wrong.any():
            row = np.repeat(np.arange(n), pairs)
            doubtful = np.zeros(n, bool)
            doubtful[row[wrong]] = True
            indices[wrong] = self.base
        down = np.flatnonzero(np.diff(indices) <= 0)  # allowed only where a row ends
        inside = down[np.searchsorted(bounds, down + 1) == np.searchsorted(bounds, down + 1, "right")]
        if len(inside):
            row = np.repeat(np.arange(n), pairs) if row is None else row
            order = np.lexsort((indices, row))
            indices, values = indices[order], values[order]
            twice = (np.diff(indices) == 0) & (np.diff(row) == 0)
            doubtful = np.zeros(n, bool) if doubtful is None else doubtful
            doubtful[row[1:][twice]] = True
        return self._csr(values, indices - self.base, bounds), None, labels, doubtful

    def _parse(self, data, count):
        """Return indices and values of the pairs, one a line; Arrow finds whatever is not one."""
        if not count:
            if data.strip():
                raise ValueError("not a pair")
            return np.empty(0, np.int64), np.empty(0)
        if b"x" in data or b"X" in data:  # Arrow also takes hexadecimal integers
            raise ValueError("not a decimal index")
        import pyarrow as pa
        import pyarrow.csv as pc

        if self._arrow is None:
            types = {"i": pa.int64(), "v": pa.float64()}
            convert = pc.ConvertOptions(column_types=types, null_values=[])
            self._arrow = pc.ParseOptions(delimiter=":", quote_char=False), convert
        options = pc.ReadOptions(use_threads=False, column_names=["i", "v"], block_size=len(data) + 1)
        table = pc.read_csv(
            pa.BufferReader(data), read_options=options, parse_options=self._arrow[0], convert_options=self._arrow[1]
        )
        if table.num_rows != count:
            raise ValueError("not one pair a token")
        return np.array(table.column(0).to_numpy()), np.array(table.column(1).to_numpy())

    def single(self, line):
        if b"\0" in line:
            raise BadRow(None, next(t for t in line.split() if b"\0" in t), NUL)
        tokens = _QID.sub(b"", _COMMENT.sub(b"", line)).split()
        label = None
        if tokens and b":" not in tokens[0]:
            label = tokens.pop(0)
        if self.spec.label_column is not None:
            if label is None:
                raise BadRow(None, tokens[0] if tokens else b"", LABEL)
            label = decode(label, None)
        seen = {}
        for token in tokens:
            index, colon, value = token.partition(b":")
            if not colon or not re.fullmatch(rb"-?\d+", index):
                raise BadRow(None, token, PAIRS)
            column = _integer(index)
            if column is None or column > self.largest:
                raise BadRow(column, index, self._above)
            if column < self.base:
                raise BadRow(column, index, self._below)
            if not _NUMBER.fullmatch(value) or not np.isfinite(float(value)):
                raise BadRow(column, value, VALUE)
            if column in seen:
                raise BadRow(column, token, TWICE)
            seen[column] = float(value)
        indices = sorted(seen)
        return ([i - self.base for i in indices], [seen[i] for i in indices]), None, label

    def stack(self, rows):
        bounds = np.concatenate([[0], np.cumsum([len(indices) for indices, _ in rows])]).astype(np.int64)
        indices = np.array([i for some, _ in rows for i in some], np.int64)
        return self._csr(np.array([v for _, some in rows for v in some], np.float64), indices, bounds)

    def concatenate(self, matrices):
        parts = [(m.data, m.indices, np.diff(m.indptr)) for m in matrices]
        data, indices, counts = (np.concatenate(part) for part in zip(*parts, strict=True))
        return self._csr(data, indices, np.concatenate([[0], np.cumsum(counts)]))

    def _csr(self, values, indices, bounds):
        from scipy.sparse import csr_matrix

        width = self.spec.width
        if width is None:
            width = int(indices.max()) + 1 if len(indices) else 0
        whole = np.int32 if len(values) < LARGEST_INDEX else np.int64
        matrix = csr_matrix(
            (values, indices.astype(whole, copy=False), bounds.astype(whole, copy=False)), (len(bounds) - 1, width)
        )
        matrix.has_sorted_indices = matrix.has_canonical_format = True
        return matrix


def _integer(digits: bytes) -> int | None:
    return int(digits) if len(digits) <= 40 else None
