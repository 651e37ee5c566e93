"""Readers: from ranges of input files to blocks of rows.

`apnc.readers.detect.describe` looks at the input once, on the driver, and writes down what it found as an
`InputSpec`; `read_blocks` reads by that and never guesses. Readers keep no state outside their generators, so
threads may read side by side.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from apnc.blocks import Block
from apnc.readers.spec import InputSpec, Range

__all__ = ["InputSpec", "Range", "read_blocks"]


def read_blocks(spec: InputSpec, ranges: Iterable[Range], max_rows: int, chunk_bytes: int = 4 << 20) -> Iterator[Block]:
    """Yield the rows of ranges, in order.

    Content never raises: rows that cannot be used are in ``bad``, ``problems`` and ``rules`` of their block, and
    damage that skipping rows cannot repair is a fatal problem in the last block of its range. A stretch without
    rows yields nothing.

    Parameters
    ----------
    spec : InputSpec
    ranges : iterable of Range
        A line of text belongs to the range that holds its first byte.
    max_rows : int
        Largest number of rows of a block, bad ones included.
    chunk_bytes : int
        How much text is read and parsed at a time; a single line may be longer. Blocks of .npy files are not
        bounded by it.

    Yields
    ------
    Block
        Consecutive rows of one range. Features are float64 (text, npy with 64-bit or large integer numbers) or
        float32 (other npy). Sparse blocks are CSR with sorted indices; while ``spec.width`` is None their width
        is a lower bound, the largest index of the block plus one.

    Raises
    ------
    OSError
        If a file of this machine cannot be opened or read.
    HdfsError
        If one on HDFS cannot. `apnc.hdfs.HdfsRefused`, an InputError, means that another attempt would not help.
    """
    if spec.format == "npy":
        from apnc.readers.npy import blocks

        for r in ranges:
            yield from blocks(spec, r, max_rows, chunk_bytes)
        return
    from apnc.readers.text import blocks

    parser = text_parser(spec)
    for r in ranges:
        yield from blocks(parser, r, max_rows, chunk_bytes)


def text_parser(spec: InputSpec):
    """Return a parser for the lines of a text format. Not to be shared between threads."""
    if spec.format == "csv":
        from apnc.readers.csv import CsvParser

        return CsvParser(spec)
    if spec.format == "svmlight":
        from apnc.readers.svmlight import SvmlightParser

        return SvmlightParser(spec)
    raise ValueError(f"unknown format {spec.format!r}")
