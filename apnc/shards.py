"""Labels as text: ``source,offset,cluster,distance[,id[,label]]``, one line per row, as assigning jobs write them.

Text is always quoted, as in csv, and distances have as many digits as bring the same number back. A bad row is a
line of cluster -1 without distance; what was wrong with the bad rows of a block stands in a line ``#{json}`` before
its rows. The last line of a shard, ``#{"facts": …}``, sums it up (`apnc.labels.LabelFacts`).
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import pairwise

import numpy as np

from apnc.blocks import Block, Problem
from apnc.readers.files import open_file

BAD = -1
READ_BYTES = 4 << 20
TAIL_BYTES = 1 << 14
HEAD_BYTES = 1 << 12
_COMMENT = re.compile(rb"^#.*\n?", re.MULTILINE)


def encode(block: Block) -> bytes:
    """Return the lines of a block of labels (cluster, distance), without the last line feed."""
    import pyarrow as pa
    from pyarrow.csv import WriteOptions, write_csv

    n, bad = len(block.offsets), block.bad
    order = np.argsort(np.concatenate([block.offsets, bad]), kind="stable") if len(bad) else slice(None)
    offsets = np.concatenate([block.offsets, bad])[order]
    clusters = np.concatenate([block.x[:, 0].astype(np.int64), np.full(len(bad), BAD)])[order]
    distances = np.concatenate([block.x[:, 1], np.zeros(len(bad))])[order]
    columns = [
        pa.repeat(pa.scalar(block.source, pa.string()), n + len(bad)),
        pa.array(offsets, pa.int64()),
        pa.array(clusters, pa.int64()),
        pa.array(distances, pa.float64(), mask=clusters == BAD),
    ]
    texts = [block.ids, block.labels]
    while texts and texts[-1] is None:
        texts.pop()
    for text in texts:
        text = text or [None] * n
        if block.n and text[0] is not None and "\n" in "".join(text):
            text = [item.replace("\n", " ") for item in text]  # a line must stay one line
        column = pa.array([*text, *[None] * len(bad)], pa.string())
        columns.append(column.take(pa.array(order)) if len(bad) else column)
    out = pa.BufferOutputStream()
    write_csv(pa.table(columns, names=[str(i) for i in range(len(columns))]), out, WriteOptions(include_header=False))
    lines = out.getvalue().to_pybytes()
    if block.rules:
        first = offsets[0] if len(offsets) else block.problems[0].offset if block.problems else 0
        lines = _note(block, int(first)) + lines
    return lines.removesuffix(b"\n")


def _note(block, first):
    note = {"source": block.source, "offset": first, "rules": dict(block.rules)}
    return b"#" + json.dumps(note | {"problems": [asdict(p) for p in block.problems]}).encode() + b"\n"


def read(paths: Iterable[str | os.PathLike], sources=(), ids=False, labels=False) -> Iterator[Block]:
    """Yield the blocks of label shards, in the order of the input, a few MiB at a time.

    Parameters
    ----------
    paths : iterable of path-like
        Shards, each of which holds consecutive stretches of the input.
    sources : sequence of str
        Names of the sources in the order of the input; without them shards stay in their order.
    ids, labels : bool
        Whether the input has an id column and a label column.
    """
    from apnc.readers.text import whole_lines

    for path in in_order(paths, sources):
        note = None
        for _, data in whole_lines(path, 0, None, READ_BYTES):
            start = 0
            for comment in [*_COMMENT.finditer(data), None]:
                stop = comment.start() if comment else len(data)
                if start < stop:
                    for block in _rows(data[start:stop], ids, labels):
                        yield _noted(block, note)
                        note = None
                if comment:
                    if note:
                        yield _noted(_nothing(note, ids, labels), note)
                    note, start = json.loads(comment[0][1:]), comment.end()
                    note = note if "source" in note else None
        if note:
            yield _noted(_nothing(note, ids, labels), note)


def in_order(paths, sources=()) -> list:
    """Return the shards that hold anything, in the order of their first rows."""
    place = {source: i for i, source in enumerate(sources)}
    found = []
    for i, path in enumerate(paths):
        line = _first_line(path)
        if line.startswith(b"#"):
            note = json.loads(line[1:])
            if "source" not in note:
                continue
            source, offset = note["source"], note["offset"]
        elif line:
            source, offset = next(csv.reader([line.decode()]))[:2]
        else:
            continue
        found.append((place.get(source, len(place)), int(offset) if source in place else i, i, path))
    return [path for *_, path in sorted(found)]


def _first_line(path):
    with open_file(path) as file:
        line, size = b"", HEAD_BYTES
        while b"\n" not in line and (piece := file.pread(size, len(line))):
            line, size = line + piece, 2 * size
    return line.partition(b"\n")[0]


def summary(facts) -> bytes:
    """Return the last line of a shard, without its line feed."""
    return b"#" + json.dumps({"facts": facts.to_dict()}).encode()


def facts(paths: Iterable[str | os.PathLike]):
    """Return what all shards sum up to, from their last lines: `apnc.labels.LabelFacts`."""
    from apnc.labels import LabelFacts

    total = LabelFacts()
    for path in paths:
        with open_file(path) as file:
            size, wanted, tail = file.size, TAIL_BYTES, b""
            while len(tail) < size:
                wanted = min(size, 4 * wanted)
                tail = file.pread(wanted, size - wanted)
                if b"\n" in tail.rstrip():
                    break
        line = tail.rstrip().rpartition(b"\n")[2]
        if line:
            total.merge(LabelFacts.from_dict(json.loads(line[1:])["facts"]))
    return total


def _rows(data, ids, labels):
    import pyarrow as pa
    from pyarrow import csv as arrow

    names = ["source", "offset", "cluster", "distance", "id", "label"][: 6 if labels else 5 if ids else 4]
    types = [pa.string(), pa.int64(), pa.int64(), pa.float64(), pa.string(), pa.string()]
    table = arrow.read_csv(
        pa.BufferReader(data),
        arrow.ReadOptions(column_names=names, use_threads=False, block_size=len(data) + 1),
        arrow.ParseOptions(newlines_in_values=True),  # for carriage returns; a piece is parsed in one go anyway
        arrow.ConvertOptions(
            column_types=dict(zip(names, types, strict=False)),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    source = table["source"].combine_chunks().dictionary_encode()
    of_source = source.indices.to_numpy()
    offset, cluster, distance = (table[name].to_numpy() for name in names[1:4])
    cuts = [0, *(np.flatnonzero(np.diff(of_source)) + 1).tolist(), len(of_source)]
    for low, high in pairwise(cuts):
        good = np.flatnonzero(cluster[low:high] != BAD) + low
        bad = np.flatnonzero(cluster[low:high] == BAD) + low
        yield Block(
            source.dictionary[int(of_source[low])].as_py(),
            offset[good],
            np.column_stack([cluster[good], distance[good]]),
            table["id"].take(good).to_pylist() if ids else None,
            table["label"].take(good).to_pylist() if labels else None,
            bad=offset[bad],
        )


def _nothing(note, ids, labels):
    return Block(note["source"], np.empty(0, np.int64), np.empty((0, 2)), [] if ids else None, [] if labels else None)


def _noted(block, note):
    if note:
        block.problems = [Problem(**p) for p in note["problems"]]
        block.rules = Counter(note["rules"])
    return block
