"""What the driver found out about the input, once, so that no task ever guesses."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import NamedTuple


class Range(NamedTuple):
    """A stretch of one file.

    ``start`` and ``stop`` are byte offsets for plain text (a line belongs to the range that holds its first
    byte) and row indices for npy. ``stop`` is None for "to the end", which compressed files always are. ``path`` may
    be on this machine, ``hdfs://…`` or ``webhdfs://host:port/…``; the last needs no configuration of Hadoop's where
    it is read.
    """

    source: str
    path: str
    start: int
    stop: int | None


@dataclass
class InputSpec:
    """The shape of the input, common to all of its files. Becomes input.json.

    Parameters
    ----------
    format : {'csv', 'svmlight', 'npy', 'array'}
        'array' is a matrix in memory (`apnc.readers.array.ArrayInput`), which `read_blocks` does not read.
    delimiter, decimal : str
        csv only.
    header : {'no', 'auto', 'yes'}
        csv only. 'yes': the first data line of every file is a header. 'auto': a first line equal to
        ``header_line`` is one. With 'no' there is none.
    header_line : str or None
        The header as found by the driver.
    columns : int
        Fields per csv line, columns of the npy matrix; 0 for svmlight.
    label_column, id_column : int or None
        0-based positions of the fields that are not features. svmlight: label_column is 0 when the label is kept.
    index_base : int
        svmlight: 0 or 1.
    width : int or None
        Number of features; None while unknown (svmlight before the first pass).
    sparse : bool
        Whether blocks are CSR.
    """

    format: str
    delimiter: str = ","
    decimal: str = "."
    header: str = "no"
    header_line: str | None = None
    columns: int = 0
    label_column: int | None = None
    id_column: int | None = None
    index_base: int = 1
    width: int | None = None
    sparse: bool = False
    sources: list[str] = field(default_factory=list)

    to_dict = asdict

    @classmethod
    def from_dict(cls, d: dict) -> InputSpec:
        return cls(**d)
