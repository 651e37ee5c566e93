"""Blocks as lines of text, as passes write them for later passes: key, tab, the packed block as text."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np

from apnc.blocks import Block, from_line, to_line
from apnc.readers.files import is_remote, open_file
from apnc.readers.spec import Range
from apnc.readers.text import whole_lines

FORMAT = "blocks"
READ_BYTES = 4 << 20


def encode(block: Block) -> bytes:
    """Return the block as the part of its line after the tab."""
    return to_line(block.to_dict())


def units(paths: Iterable[str | os.PathLike], count: int) -> list[list[Range]]:
    """Return the bytes of files, in order, as at most ``count`` units of equal size; at least one, if empty.

    Parameters
    ----------
    paths : iterable of path-like
        On this machine or on HDFS.
    count : int
        Units may begin and end anywhere: a line belongs to the range that holds its first byte.
    """
    files = []
    for path in paths:
        with open_file(path) as file:
            files.append((path if is_remote(path) else os.path.abspath(path), file.size))
    total = sum(size for _, size in files)
    out, first = [[] for _ in range(count)], 0
    for path, size in files:
        for i, unit in enumerate(out):
            start, stop = (max(0, min(size, total * j // count - first)) for j in (i, i + 1))
            if start < stop:
                unit.append(Range(os.path.basename(path), path, start, stop))
        first += size
    return [unit for unit in out if unit] or [[]]


def read_blocks(ranges: Iterable[Range], max_rows: int) -> Iterator[Block]:
    """Yield the blocks of ranges, in order; those of more than ``max_rows`` rows in pieces."""
    for r in ranges:
        for _, data in whole_lines(r.path, r.start, r.stop, READ_BYTES):
            view, start = memoryview(data), 0
            while start < len(data):
                end = data.find(b"\n", start)
                end = len(data) if end < 0 else end
                block = Block.from_dict(from_line(view[data.index(b"\t", start, end) + 1 : end]))
                yield from _pieces(block, max_rows)
                start = end + 1


def _pieces(block, max_rows):
    if block.n <= max_rows:
        yield block
        return
    bad, problems, rules = block.bad, block.problems, block.rules
    for low in range(0, block.n, max_rows):
        rows = slice(low, low + max_rows)
        # bad rows stay in their place among the good ones; what is counted is counted once
        last = low + max_rows >= block.n
        here = len(bad) if last else int(np.searchsorted(bad, block.offsets[low + max_rows]))
        yield Block(
            block.source,
            block.offsets[rows],
            block.x[rows],
            None if block.ids is None else block.ids[rows],
            None if block.labels is None else block.labels[rows],
            None if block.weights is None else block.weights[rows],
            bad[:here],
            problems,
            rules,
        )
        bad, problems, rules = bad[here:], [], Counter()
