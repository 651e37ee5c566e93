"""Text by lines: ranges of a file, blank lines, headers; and how rows are made of lines, good and bad.

The good path parses many lines in one call (`TextParser.bulk`). Where that fails, the likely culprits are set aside
and the rest is tried again, then halved until the failing lines are few. What is left over is looked at line by line
(`TextParser.single`), which also finds the words for what is wrong. Both ways agree on every line, so it does not
matter how a file is cut.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator

import numpy as np

from apnc.blocks import KEPT_PROBLEMS, Block, Problem
from apnc.readers import archive
from apnc.readers.files import open_file
from apnc.readers.spec import InputSpec, Range

BOM = b"\xef\xbb\xbf"
FEW_LINES = 16  # below this, looking line by line costs less than more attempts in bulk
HEAD_BYTES = 1 << 16
SHOWN_CHARACTERS = 40
NUL = "NUL bytes are not allowed (is the text UTF-16?)"
UTF8 = "id and label must be UTF-8 text"
NUMERIC_HEADER = "the first line of every file must be a header, this one looks like data"

_BLANKS = np.zeros(256, bool)
_BLANKS[[9, 11, 12, 13, 32]] = True


class BadRow(Exception):
    """One line cannot be used: the column, the text found there, the rule."""

    def __init__(self, column: int | None, found: bytes, rule: str):
        super().__init__(rule)
        self.column, self.found, self.rule = column, found, rule


class TextParser(ABC):
    """Makes rows of lines."""

    blanks = _BLANKS  # bytes that a line without a row may consist of

    def __init__(self, spec: InputSpec):
        self.spec = spec

    @abstractmethod
    def bulk(self, data: bytes, n: int):
        """Return (x, ids, labels, doubtful) of ``n`` regular lines, or raise ValueError.

        ``doubtful`` is a mask of the rows that `single` must look at, or None.
        """

    @abstractmethod
    def single(self, line: bytes):
        """Return (values, id, label) of one line, values in any form `stack` takes, or raise `BadRow`."""

    @abstractmethod
    def stack(self, rows: list):
        """Return the matrix of the values of rows."""

    @abstractmethod
    def concatenate(self, matrices: list):
        """Return the matrices one below the other."""

    def irregular(self, data: bytes, starts: np.ndarray) -> np.ndarray | None:
        """Return the mask of lines that must not be parsed in bulk, or None."""
        odd = None
        if b"\0" in data:
            odd = np.zeros(len(starts), bool)
            odd[lines_of(np.frombuffer(data, np.uint8) == 0, starts)] = True
        return odd

    def suspects(self, data: bytes, starts: np.ndarray) -> np.ndarray:
        """Return the mask of lines that are likely why `bulk` failed; a guess that saves much halving."""
        return np.zeros(len(starts), bool)

    def parse(self, source: str, data: bytes, starts: np.ndarray, offsets: np.ndarray) -> Block:
        """Return the block of lines of a source.

        Parameters
        ----------
        source : str
        data : bytes
            Whole lines, each of which holds a row; the last may lack its line feed.
        starts, offsets : ndarray of int64, shape (n,)
            Where each line begins, in ``data`` and in the (decompressed) source.
        """
        n = len(starts)
        alone, bulks, singles, bad = [], [], [], {}
        ends = np.append(starts[1:], len(data))
        heap = [(data, starts, ends, np.arange(n))]
        odd = self.irregular(data, starts)
        if odd is not None:
            alone += np.flatnonzero(odd).tolist()
            heap = [_part(heap[0], ~odd)]
        sifted = False
        while heap:
            lines = heap.pop()
            some, begins, _, places = lines
            if not len(places):
                continue
            try:
                x, ids, labels, doubtful = self.bulk(some, len(places))
            except ValueError:
                if len(places) <= FEW_LINES:
                    alone += places.tolist()
                elif not sifted:
                    odd, sifted = self.suspects(some, begins), True
                    alone += places[odd].tolist()
                    heap.append(_part(lines, ~odd))
                else:
                    middle = len(places) // 2
                    heap += [_part(lines, slice(middle, None)), _part(lines, slice(middle))]
                continue
            if doubtful is not None and doubtful.any():
                alone += places[doubtful].tolist()
                sound = ~doubtful
                x, places, ids, labels = x[sound], places[sound], _choose(ids, sound), _choose(labels, sound)
            bulks.append((places, x, ids, labels))
        for place in alone:
            try:
                singles.append((place, *self.single(data[starts[place] : ends[place]])))
            except BadRow as row:
                bad[place] = row
        return self._block(source, offsets, bulks, singles, bad)

    def _block(self, source, offsets, bulks, singles, bad) -> Block:
        if singles:
            places, values, ids, labels = (list(part) for part in zip(*singles, strict=True))
            bulks.append((np.array(places), self.stack(values), ids, labels))
        if not bulks:
            bulks.append((np.empty(0, np.int64), self.stack([]), [], []))
        keeps_ids, keeps_labels = self.spec.id_column is not None, self.spec.label_column is not None
        if len(bulks) == 1 and not singles:
            places, x, ids, labels = bulks[0]
        else:
            places = np.concatenate([b[0] for b in bulks])
            order = np.argsort(places)
            places, x = places[order], self.concatenate([b[1] for b in bulks])[order]
            ids = _reorder([b[2] for b in bulks], order) if keeps_ids else None
            labels = _reorder([b[3] for b in bulks], order) if keeps_labels else None
        gone = sorted(bad)
        problems = [
            Problem(source, int(offsets[p]), bad[p].column, shown(bad[p].found), bad[p].rule)
            for p in gone[:KEPT_PROBLEMS]
        ]
        return Block(
            source,
            offsets[places],
            x,
            ids if keeps_ids else None,
            labels if keeps_labels else None,
            None,
            offsets[gone] if gone else np.empty(0, np.int64),
            problems,
            Counter(row.rule for row in bad.values()),
        )


def blocks(parser: TextParser, r: Range, max_rows: int, chunk_bytes: int) -> Iterator[Block]:
    """Yield the blocks of one range of a text file."""
    header = _Header(parser, r)
    try:
        for base, data in whole_lines(r.path, r.start, r.stop, chunk_bytes):
            lead = len(BOM) if base == 0 and data.startswith(BOM) else 0
            if lead:
                data = data[lead:]
            starts, ends = data_lines(data, parser.blanks)
            offsets = starts + (base + lead)
            if lead and len(offsets) and offsets[0] == lead:
                offsets[0] = 0  # the mark belongs to the line: its identity does not depend on it
            yield from parsed(parser, header, r.source, (data, starts, ends, offsets), max_rows)
    except archive.Damaged as damage:
        problem = Problem(r.source, damage.offset, None, damage.found, damage.rule, fatal=True)
        yield fatal_block(parser.stack([]), parser.spec, problem)


def parsed(parser: TextParser, header, source: str, lines, max_rows: int) -> Iterator[Block]:
    """Yield the blocks of some lines of a source, of which the first may be the header.

    ``lines`` are the text, and arrays of where in it lines start and end, and of their offsets in the source.
    """
    data, starts, ends, offsets = lines
    if len(offsets) and header.is_first(int(offsets[0])):
        problem = header.check(data[starts[0] : ends[0]], int(offsets[0]))
        if problem:
            yield fatal_block(parser.stack([]), parser.spec, problem)
        if header.present:
            starts, ends, offsets = starts[1:], ends[1:], offsets[1:]
    for low in range(0, len(starts), max_rows):
        some = slice(low, low + max_rows)
        yield parser.parse(source, *_only(data, starts[some], ends[some])[:2], offsets[some])


def fatal_block(x, spec: InputSpec, problem: Problem) -> Block:
    """Return a block without rows that carries one problem."""
    return Block(
        problem.source,
        np.empty(0, np.int64),
        x,
        None if spec.id_column is None else [],
        None if spec.label_column is None else [],
        problems=[problem],
        rules=Counter({problem.rule: 1}),
    )


def shown(found: bytes) -> str:
    """Return text as it may stand in a message: decoded, shortened."""
    text = found[: 4 * SHOWN_CHARACTERS].decode("utf-8", "backslashreplace").strip(" \t\r\n")
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"


def whole_lines(path: str, start: int, stop: int | None, size: int, ahead: bool = True) -> Iterator[tuple[int, bytes]]:
    """Yield (offset, bytes) of the lines whose first byte lies in a range, whole lines in pieces of about ``size``.

    A line longer than ``size`` makes a longer piece. The last line may lack its line feed. Compressed files are
    read from the beginning to the end; `apnc.readers.archive.Damaged` is raised after their last whole line.
    Without ``ahead``, files elsewhere are not asked for more than the next piece: it may be the last one wanted.
    """
    if archive.compression(path):
        yield from _joined(_counted(archive.chunks(path, size)), None)
        return
    with open_file(path) as file:
        stop = file.size if stop is None else stop
        first = max(0, start - 1)
        if ahead:
            file.advise(first, stop + HEAD_BYTES)  # and the end of the last line
        pieces = _pread(file, first, stop, size)
        if start:  # the line under way at the start belongs to the range before
            pieces = _after_line_feed(pieces, stop)
        yield from _joined(pieces, stop)


def _pread(file, position, stop, size):
    while True:
        # Past the stop only the rest of one line is wanted.
        wanted = min(size, stop - position if position < stop else HEAD_BYTES)
        piece = file.pread(wanted, position)
        if not piece:
            return
        yield position, piece
        position += len(piece)


def _after_line_feed(pieces, stop):
    for position, piece in pieces:
        if position >= stop:
            return
        cut = piece.find(b"\n") + 1
        if cut:
            yield position + cut, piece[cut:]
            break
    yield from pieces


def _counted(pieces):
    position = 0
    for piece in pieces:
        yield position, piece
        position += len(piece)


def _joined(pieces, stop):
    """Cut pieces after line feeds; past ``stop``, finish the line under way."""
    held, held_at = [], None
    for position, piece in pieces:
        past = stop is not None and position >= stop
        if past and not held:
            return
        if stop is not None and not past and position + len(piece) >= stop:
            cut = len(piece) if piece.endswith(b"\n") else 0  # the last line goes with the others
        else:
            cut = (piece.find(b"\n") if past else piece.rfind(b"\n")) + 1
        if not held:
            held_at = position
        if not cut:
            if piece:
                held.append(piece)
            continue
        held.append(piece[:cut])
        yield held_at, b"".join(held)
        if past:
            return
        held, held_at = ([piece[cut:]], position + cut) if cut < len(piece) else ([], None)
    if held:
        yield held_at, b"".join(held)


def data_lines(data: bytes, blanks: np.ndarray = _BLANKS) -> tuple[np.ndarray, np.ndarray]:
    """Return where the lines that hold a row start and end (line feed included).

    Lines of white space only, and those whose first other byte is ``#``, hold none.
    """
    text = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(text == 10) + 1
    if len(data) and (not len(ends) or ends[-1] < len(data)):
        ends = np.append(ends, len(data))
    starts = np.concatenate([np.zeros(min(1, len(ends)), np.int64), ends[:-1]])
    skipped = blanks.copy()
    skipped[[10, 35]] = True
    unsure = np.flatnonzero(skipped[text[starts]])
    if not len(unsure):
        return starts, ends
    at = starts[unsure].copy()
    steps = 0
    while steps < SHOWN_CHARACTERS:  # vectorised over lines: leading blanks are few
        moving = blanks[text[at]] & (at + 1 < ends[unsure])
        if not moving.any():
            break
        at[moving] += 1
        steps += 1
    else:
        strip = bytes(np.flatnonzero(blanks).tolist())
        for i in np.flatnonzero(moving).tolist():
            line = data[at[i] : ends[unsure[i]]]
            at[i] += min(len(line) - len(line.lstrip(strip)), len(line) - 1)
    keep = np.ones(len(starts), bool)
    keep[unsure] = ~skipped[text[at]]
    return starts[keep], ends[keep]


def first_data_line(path: str, blanks: np.ndarray, stop: int | None = None) -> tuple[int, bytes] | None:
    """Return (offset, line) of the first line that holds a row and begins before ``stop``."""
    for base, data in whole_lines(path, 0, stop, HEAD_BYTES, ahead=False):
        lead = len(BOM) if base == 0 and data.startswith(BOM) else 0
        starts, ends = data_lines(data[lead:], blanks)
        if len(starts):
            offset = base + lead + int(starts[0])
            return (0 if offset == lead else offset), data[lead + starts[0] : lead + ends[0]]
    return None


class _Header:
    """Whether the first line that holds anything, of this range's file, lies here and is a header."""

    def __init__(self, parser: TextParser, r: Range):
        self._parser, self._source = parser, r.source
        self.present = False
        self._wanted = None  # offset of the line to look at; -1: whichever comes first
        if parser.spec.header == "no":
            return
        if r.start == 0:
            self._wanted = -1
        else:
            first = first_data_line(r.path, parser.blanks, r.stop)
            self._wanted = first[0] if first and first[0] >= r.start else None

    def is_first(self, offset: int) -> bool:
        self.present = False
        if self._wanted is None or self._wanted not in (-1, offset):
            return False
        self._wanted = None
        return True

    def check(self, line: bytes, offset: int) -> Problem | None:
        text = self._parser.header_text(line)
        known = self._parser.spec.header_line
        self.present = text == known if self._parser.spec.header == "auto" else True
        if self.present and text != known and self._parser.all_numbers(line):
            return Problem(self._source, offset, None, shown(line), NUMERIC_HEADER, fatal=True)
        return None


def _part(lines, keep):
    data, starts, ends, places = lines
    return *_only(data, starts[keep], ends[keep]), places[keep]


def _only(data, starts, ends):
    """Return the lines closed up, as (data, starts, ends)."""
    if not len(starts):
        return b"", starts, ends
    low, high = int(starts[0]), int(ends[-1])
    lengths = ends - starts
    if lengths.sum() == high - low:
        part = data if low == 0 and high == len(data) else data[low:high]
        return part, starts - low, ends - low
    closed = np.cumsum(lengths)
    return np.frombuffer(data, np.uint8)[spans(starts, ends)].tobytes(), closed - lengths, closed


def spans(starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return the positions from each start up to its end, one span after the other."""
    lengths = ends - starts
    total = int(lengths.sum())
    return np.repeat(starts - (np.cumsum(lengths) - lengths), lengths) + np.arange(total)


def texts(data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> list[str]:
    """Return spans of a byte array as strings; raise ValueError when they are not UTF-8."""
    import pyarrow as pa

    offsets = np.concatenate([[0], np.cumsum(ends - starts)]).astype(np.int64)
    content = data[spans(starts, ends)]
    array = pa.Array.from_buffers(
        pa.large_string(), len(starts), [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(content))]
    )
    array.validate(full=True)
    return array.to_numpy(zero_copy_only=False).tolist()


def decode(found: bytes, column: int | None) -> str:
    """Return an id or a label as text; raise `BadRow` when it is not UTF-8."""
    try:
        return found.decode("utf-8")
    except UnicodeDecodeError:
        raise BadRow(column, found, UTF8) from None


def lines_of(mask: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return, for each byte in ``mask``, the number of the line it is in."""
    return np.searchsorted(starts, np.flatnonzero(mask), "right") - 1


def _choose(items, keep):
    return None if items is None else [items[i] for i in np.flatnonzero(keep).tolist()]


def _reorder(lists, order):
    items = [item for some in lists for item in some]
    return [items[i] for i in order.tolist()]
