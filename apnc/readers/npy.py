"""NumPy's .npy files by ranges of rows, without memory maps, in any byte order, C or Fortran order."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from apnc.blocks import KEPT_PROBLEMS, Block, Problem
from apnc.readers import archive
from apnc.readers.files import open_file
from apnc.readers.spec import InputSpec, Range
from apnc.readers.text import fatal_block

MAGIC = b"\x93NUMPY"
MAX_HEADER = 1 << 16
FINITE = "a feature must be a finite number"
WHOLE = "a .npy file must hold all of its array"
CHANGED = "a .npy file must not change during the run"


class NotNpy(ValueError):
    """The header is not one of an array that can be read; the message says why."""


class Layout(NamedTuple):
    """What the header of a .npy file says, and where the data begin."""

    dtype: np.dtype
    fortran: bool
    rows: int
    columns: int
    start: int

    @property
    def row_bytes(self) -> int:
        return self.columns * self.dtype.itemsize

    @property
    def data_bytes(self) -> int:
        return self.rows * self.row_bytes


def layout(head: bytes) -> Layout:
    """Return the layout from the first bytes (`MAX_HEADER` suffice) of a file; raise `NotNpy`."""
    if not head.startswith(MAGIC):
        raise NotNpy("not a .npy file")
    if len(head) < 12:
        raise NotNpy(f"the .npy header is cut off after {len(head)} bytes")
    major = head[6]
    if major not in (1, 2, 3):
        raise NotNpy(f"unknown .npy version {major}.{head[7]}")
    at = 10 if major == 1 else 12
    start = at + int.from_bytes(head[8:at], "little")
    if start > len(head):
        raise NotNpy(f"the .npy header is cut off: {start} bytes expected, {len(head)} found")
    try:
        fields = ast.literal_eval(head[at:start].decode("utf-8" if major == 3 else "latin-1").strip())
        descr, fortran, shape = fields["descr"], bool(fields["fortran_order"]), tuple(fields["shape"])
        dtype = np.lib.format.descr_to_dtype(descr)
        if not all(isinstance(length, int) and length >= 0 for length in shape):
            raise ValueError
    except (ValueError, SyntaxError, KeyError, TypeError, UnicodeDecodeError, MemoryError, RecursionError):
        raise NotNpy("the .npy header is damaged") from None
    if not (dtype.kind in "biu" or (dtype.kind == "f" and dtype.itemsize <= 8)):
        raise NotNpy(f"numbers of type {dtype} are not supported; use bool, int, uint or float up to 64 bits")
    if len(shape) not in (1, 2):
        raise NotNpy(f"an array of shape {shape} is not a matrix; one or two dimensions are needed")
    rows, columns = shape if len(shape) == 2 else (shape[0], 1)
    if not columns:
        raise NotNpy(f"the array of shape {shape} has no columns")
    return Layout(dtype, fortran and rows > 1 and columns > 1, rows, columns, start)


def short(shape: Layout, found: int) -> str:
    """Return the words for data of the wrong size."""
    return f"expected {shape.data_bytes} bytes after the header, found {found}"


def as_float(x: np.ndarray) -> np.ndarray:
    """Return a matrix as native float32 or float64, whichever holds its values (64-bit integers but nearly)."""
    if x.dtype.kind == "f":
        wanted = np.float64 if x.dtype.itemsize == 8 else np.float32
    else:
        wanted = np.float32 if x.dtype.itemsize <= 2 else np.float64
    return x.astype(wanted, copy=False)


def matrix_block(source: str, first: int, x, spec: InputSpec, weights=None) -> Block:
    """Return rows ``first``, ``first + 1``, … of a source as a block, less those that are not finite.

    Parameters
    ----------
    source : str
    first : int
        Index of the first row.
    x : ndarray or csr_matrix
        All columns, id and label included, of any type that `as_float` takes.
    spec : InputSpec
        Says which columns are features.
    weights : ndarray, optional
    """
    offsets = np.arange(first, first + x.shape[0])
    ids, labels = (None if c is None else _as_text(x[:, c]) for c in (spec.id_column, spec.label_column))
    columns = None
    if ids is not None or labels is not None:
        columns = [c for c in range(x.shape[1]) if c not in (spec.id_column, spec.label_column)]
        x = x[:, columns]
    x = as_float(x)
    sparse = hasattr(x, "indptr")
    values = x.data if sparse else x
    with np.errstate(all="ignore"):
        if np.isfinite(values.sum()) or np.isfinite(values).all():
            return Block(source, offsets, x, ids, labels, weights)
    finite = np.isfinite(values)
    if sparse:
        places = np.flatnonzero(~finite)
        row = np.searchsorted(x.indptr, places, "right") - 1
        column = x.indices[places]
    else:
        row, column = np.nonzero(~finite)
        places = (row, column)
    gone, firsts = np.unique(row, return_index=True)
    found = values[places]
    problems = []
    for r, k in zip(gone[:KEPT_PROBLEMS].tolist(), firsts.tolist(), strict=False):
        c = int(column[k])
        problems.append(Problem(source, first + r, (columns[c] if columns else c) + 1, str(found[k]), FINITE))
    keep = np.ones(x.shape[0], bool)
    keep[gone] = False
    ids, labels = (None if some is None else [some[i] for i in np.flatnonzero(keep).tolist()] for some in (ids, labels))
    return Block(
        source,
        offsets[keep],
        x[keep],
        ids,
        labels,
        None if weights is None else weights[keep],
        offsets[gone],
        problems,
        Counter({FINITE: len(gone)}),
    )


def _as_text(column):
    """Return the values of an id or label column as text: whole numbers without a point."""
    values = column.tolist()
    return [str(int(v)) if isinstance(v, bool) or (isinstance(v, float) and v.is_integer()) else str(v) for v in values]


def blocks(spec: InputSpec, r: Range, max_rows: int, chunk_bytes: int) -> Iterator[Block]:
    """Yield the blocks of one range of rows of a file."""
    features = spec.columns - (spec.id_column is not None) - (spec.label_column is not None)

    def fatal(offset, found, rule):
        problem = Problem(r.source, offset, None, found, rule, fatal=True)
        return fatal_block(np.empty((0, features), np.float32), spec, problem)

    try:
        if archive.compression(r.path):
            for first, x in _streamed(r.path, max_rows, chunk_bytes):
                yield matrix_block(r.source, first, x, spec)
        else:
            for first, x in _direct(r, max_rows):
                yield matrix_block(r.source, first, x, spec)
    except archive.Damaged as damage:
        yield fatal(damage.offset, damage.found, damage.rule)
    except NotNpy as error:
        yield fatal(r.start, str(error), CHANGED)


def _direct(r: Range, max_rows: int):
    with open_file(r.path) as file:
        shape = layout(file.pread(MAX_HEADER, 0))
        stop = shape.rows if r.stop is None else min(r.stop, shape.rows)
        if not shape.fortran:
            file.advise(shape.start + r.start * shape.row_bytes, shape.start + stop * shape.row_bytes)
        item = shape.dtype.itemsize
        for first in range(r.start, stop, max_rows):
            n = min(max_rows, stop - first)
            raw = np.empty((shape.columns, n) if shape.fortran else (n, shape.columns), shape.dtype)
            if shape.fortran:
                whole = all(
                    _fill(file, raw[c], shape.start + (c * shape.rows + first) * item) for c in range(shape.columns)
                )
                raw = raw.T
            else:
                whole = _fill(file, raw, shape.start + first * shape.row_bytes)
            if not whole:
                found = max(0, file.size - shape.start)
                raise archive.Damaged(first, short(shape, found), WHOLE)
            yield first, np.ascontiguousarray(raw)


def _fill(file, array: np.ndarray, position: int) -> bool:
    """Read a contiguous array from a file; return whether there was enough."""
    view = array.reshape(-1).view(np.uint8).data
    done = 0
    while done < len(view):
        got = file.preadinto(view[done:], position + done)
        if not got:
            return False
        done += got
    return True


def _streamed(path: str, max_rows: int, chunk_bytes: int):
    held, shape, first, extra = b"", None, 0, 0
    try:
        for piece in archive.chunks(path, chunk_bytes):
            if shape is not None and first == shape.rows:
                extra += len(piece)  # read to the end all the same: the checksum stands there
                continue
            held += piece
            if shape is None:
                if len(held) < 12 or len(held) < 12 + int.from_bytes(held[8:10], "little"):
                    continue
                shape = layout(held)
                held = held[shape.start :]
            at = 0
            while first < shape.rows:
                n = min(max_rows, shape.rows - first)  # blocks have the same rows however the pieces fall
                if (len(held) - at) // shape.row_bytes < n:
                    break
                yield first, np.frombuffer(held, shape.dtype, n * shape.columns, at).reshape(n, shape.columns)
                first, at = first + n, at + n * shape.row_bytes
            held = held[at:]
    except archive.Damaged as damage:
        damage.offset = first
        raise
    if shape is None:
        shape = layout(held)
    found = first * shape.row_bytes + len(held) + extra
    if found != shape.data_bytes:
        raise archive.Damaged(first, short(shape, found), WHOLE)
