"""Compressed files as a stream of bytes: every member of a .gz, every stream of a .bz2."""

from __future__ import annotations

import bz2
import os
import zlib
from collections.abc import Iterator

from apnc.readers.files import open_file

SUFFIXES = {".gz": "gz", ".bz2": "bz2"}
READ_BYTES = 1 << 18
TRUNCATED = "a compressed file must be complete"
DAMAGED = "a compressed file must be undamaged"


class Damaged(Exception):
    """A compressed file cannot be read on.

    Attributes
    ----------
    offset : int
        How many decompressed bytes came before.
    found : str
        What is wrong.
    rule : str
        `TRUNCATED` or `DAMAGED`.
    """

    def __init__(self, offset: int, found: str, rule: str):
        super().__init__(found)
        self.offset, self.found, self.rule = offset, found, rule


def compression(path: str) -> str:
    """Return 'gz', 'bz2' or '' by the suffix of a path, as Hadoop does."""
    return SUFFIXES.get(os.path.splitext(path)[1].lower(), "")


def chunks(path: str, size: int) -> Iterator[bytes]:
    """Yield the decompressed bytes of a file in pieces of about ``size``, at most twice that.

    Raises
    ------
    Damaged
        After everything that could be read has been yielded.
    """
    start = _Gzip if compression(path) == "gz" else _Bzip2
    with open_file(path) as file:
        file.advise(0, None)
        position = produced = held_bytes = 0
        held = []
        stream, raw, at_end = None, b"", False
        while True:
            if not raw and not at_end and (stream is None or stream.hungry):
                raw = file.pread(READ_BYTES, position)
                position += len(raw)
                at_end = not raw
            fault = None
            if stream is None:
                # Between members only zero bytes may stand: what tar and tape drives pad with.
                raw = raw.lstrip(b"\0") if produced or held_bytes else raw
                if not raw:
                    if at_end:
                        break
                    continue
                stream = start()
            elif at_end and not raw and stream.hungry:
                fault = Damaged(produced + held_bytes, f"it ends early, after {position} bytes", TRUNCATED)
            if fault is None:
                try:
                    piece = stream.feed(raw, size)
                except (zlib.error, OSError, EOFError, ValueError) as error:
                    fault = Damaged(produced + held_bytes, str(error), DAMAGED)
                else:
                    raw = b""
                    held.append(piece)
                    held_bytes += len(piece)
                    if stream.ended:
                        raw, stream = stream.left, None
            if held_bytes >= size or (fault and held_bytes):
                produced += held_bytes
                yield b"".join(held)
                held, held_bytes = [], 0
            if fault:
                raise fault
        if held_bytes:
            yield b"".join(held)


def ratio(path: str) -> float:
    """Return how many bytes a packed byte stands for, by the beginning of the file; 1 if that does not tell."""
    with open_file(path) as file:
        raw = file.pread(READ_BYTES, 0)
    try:
        if compression(path) == "bz2":
            return len(bz2.BZ2Decompressor().decompress(raw, 64 * READ_BYTES)) / len(raw)
        member = zlib.decompressobj(wbits=31)
        out = member.decompress(raw, 64 * READ_BYTES)
        return len(out) / (len(raw) - len(member.unconsumed_tail) - len(member.unused_data))
    except (zlib.error, OSError, ZeroDivisionError):
        return 1.0


class _Gzip:
    """One member; its output is bounded per call, whatever the ratio."""

    def __init__(self):
        self._member = zlib.decompressobj(wbits=31)
        self._full = False

    def feed(self, raw: bytes, size: int) -> bytes:
        out = self._member.decompress(self._member.unconsumed_tail + raw, size)
        self._full = len(out) >= size
        return out

    @property
    def hungry(self) -> bool:
        return not self._full and not self._member.unconsumed_tail

    @property
    def ended(self) -> bool:
        return self._member.eof

    @property
    def left(self) -> bytes:
        return self._member.unused_data


class _Bzip2:
    def __init__(self):
        self._stream = bz2.BZ2Decompressor()

    def feed(self, raw: bytes, size: int) -> bytes:
        return self._stream.decompress(raw, size)

    @property
    def hungry(self) -> bool:
        return self._stream.needs_input

    @property
    def ended(self) -> bool:
        return self._stream.eof

    @property
    def left(self) -> bytes:
        return self._stream.unused_data
