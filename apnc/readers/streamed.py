"""Blocks of what Hadoop streaming writes to a map task's standard input.

Of text: the lines of one split of one file, each after its offset and a tab (``stream.map.input.ignoreKey=false``).
Which file, the task's environment says; what its source is called and where its header may be, the driver has written
down. Of an embedding: its lines.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import numpy as np

from apnc.blocks import Block, from_line
from apnc.readers import text_parser
from apnc.readers.encoded import _pieces
from apnc.readers.spec import InputSpec
from apnc.readers.text import BOM, _Header, data_lines, parsed

READ_BYTES = 4 << 20


def embedded(lines: Iterable[bytes], max_rows: int) -> Iterator[Block]:
    """Yield the blocks of lines of an embedding; those of more than ``max_rows`` rows in pieces."""
    for line in lines:
        yield from _pieces(Block.from_dict(from_line(memoryview(line)[line.index(b"\t") + 1 :])), max_rows)


def blocks(spec: InputSpec, stdin, files: dict, max_rows: int, path: str | None = None) -> Iterator[Block]:
    """Yield the blocks of a map task's lines; see `apnc.readers.read_blocks`.

    Parameters
    ----------
    spec : InputSpec
    stdin : binary file
    files : dict
        By path: the source's name, and the offset of its first line that holds a row, if that may be a header.
    max_rows : int
    path : str, optional
        Of the file; the one that the environment names by default.
    """
    source, first = _found(files, path or os.environb.get(b"mapreduce_map_input_file", b"").decode("utf-8", "replace"))
    parser = text_parser(spec)
    header = _KnownHeader(parser, source, first)
    for data, line_starts, line_offsets in _lines(stdin):
        lead = len(BOM) if line_offsets[0] == 0 and data.startswith(BOM) else 0
        if lead:
            data, line_starts = data[lead:], np.maximum(line_starts - lead, 0)
        starts, ends = data_lines(data, parser.blanks)
        offsets = line_offsets
        if len(starts) < len(line_starts):
            offsets = line_offsets[np.searchsorted(line_starts, starts)]
        yield from parsed(parser, header, source, (data, starts, ends, offsets), max_rows)


def _found(files, uri):
    """Return the entry of the file a URI names, whose scheme and host may be written in several ways."""
    path = "/" + uri.partition("://")[2].partition("/")[2] if "://" in uri else uri
    if path in files:
        return files[path]
    # a Java that does not know the encoding writes question marks
    like = [name for name in files if len(name) == len(path) and _plain(name) == _plain(path)]
    if len(like) != 1:
        raise ValueError(f"the task is to read {uri!r}, which is no file of the input")
    return files[like[0]]


def _plain(text):
    return "".join(c if c.isascii() else "?" for c in text)


class _KnownHeader(_Header):
    """The header, where the driver has found the first line that holds anything."""

    def __init__(self, parser, source, offset):
        self._parser, self._source = parser, source
        self.present = False
        self._wanted = None if parser.spec.header == "no" else offset


def _lines(stdin) -> Iterator[tuple[bytes, np.ndarray, np.ndarray]]:
    """Yield (lines without what stands before them, where each starts, its offset in the file), many at a time."""
    held = []
    while piece := stdin.read(READ_BYTES):
        cut = piece.rfind(b"\n") + 1
        if not cut:
            held.append(piece)
            continue
        yield _without_offsets(b"".join([*held, piece[:cut]]))
        held = [piece[cut:]] if cut < len(piece) else []
    if held:
        yield _without_offsets(b"".join(held) + b"\n")


def _without_offsets(data: bytes) -> tuple[bytes, np.ndarray, np.ndarray]:
    text = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(text == 10) + 1
    starts = np.concatenate([[0], ends[:-1]])
    digits = _digits(text, starts, data)
    # lines of one file follow each other: an offset is the one before and the length of the line
    lengths = ends - starts - digits - 1
    offsets = _number(data, starts[0], digits[0]) + np.concatenate([[0], np.cumsum(lengths[:-1])])
    if offsets[-1] != _number(data, starts[-1], digits[-1]):  # unless a mark before the first was dropped
        offsets = np.array([_number(data, start, n) for start, n in zip(starts, digits, strict=True)])
    keep = np.ones(len(data), bool)
    for i in range(int(digits.max()) + 1):
        keep[starts[i <= digits] + i] = False
    closed = np.cumsum(lengths)
    return text[keep].tobytes(), closed - lengths, offsets


def _digits(text, starts, data):
    """Return how many digits each line's offset has: all before its first tab."""
    n = data.index(b"\t") - int(starts[0])
    digits = np.full(len(starts), n)
    open_ = np.flatnonzero(text[np.minimum(starts + n, len(text) - 1)] != 9)
    while len(open_):  # offsets grow, so few lines have another number of digits than the first
        n += 1
        digits[open_] = n
        open_ = open_[text[np.minimum(starts[open_] + n, len(text) - 1)] != 9]
    return digits


def _number(data, start, digits):
    return int(data[start : start + digits])
