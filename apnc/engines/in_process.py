"""This machine, all cores, bounded memory: blocks on a pool of threads, results in input order."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from apnc.blocks import Block, pack, unpack
from apnc.engines import Engine
from apnc.passes import Fold, Map, Several, merge_states
from apnc.readers import encoded
from apnc.threads import cores, one_blas_thread

MEMORY_BUDGET = 256 << 20
BLOCK_BYTES = 4 << 20
FEWEST_ITEMS = 16  # of a stored embedding, so that all cores have something to do to the end
BLOCKS_PER_ITEM = 4  # work is handed to threads a few blocks at a time, to spare merging and waiting


class InProcessEngine(Engine):
    """Runs passes on threads of this process.

    NumPy, BLAS, faiss and pyarrow work outside the interpreter lock, so threads use all cores; BLAS itself gets one
    thread each. Results are merged in input order: they do not depend on the number of threads.

    Parameters
    ----------
    data : object
        An input with ``units``, ``blocks``, ``estimated_rows`` and ``bytes_per_row``.
    memory_budget : int
        Bytes of embedding kept in memory; a larger one goes to a file.
    folder : path-like, optional
        Where that file goes; the system's temporary folder by default.
    threads : int, optional
        All cores by default.
    embedding : path-like, optional
        A folder in which the embedding is kept as shards, for later engines of any kind. One that exists is read.
    """

    def __init__(self, data, memory_budget=MEMORY_BUDGET, folder=None, threads=None, embedding=None):
        self.data = data
        self.threads = threads or cores()
        self._make_store = (lambda: _Shards(embedding)) if embedding else (lambda: _Store(memory_budget, folder))
        self._store = self._make_store() if embedding else None

    def fold(self, fold: Fold, listener):
        if isinstance(fold, Several):
            return self._fold_several(fold, listener)
        total: dict = {}

        def work(blocks):
            state, rows = {}, 0
            for block in blocks():
                fold.accumulate(state, block)
                rows += block.n
            return state, rows

        for state, rows in self._in_order(work, self._items(fold)):
            merge_states(fold, total, state)
            listener.rows(rows)
        return fold.finish(total)

    def _fold_several(self, several, listener):
        """Give every member its turn over each stretch of blocks, side by side: no state is there twice."""
        states: list = [{} for _ in several.members]
        with one_blas_thread(), ThreadPoolExecutor(self.threads) as pool:
            for item in self._items(several):
                blocks = list(item())

                def work(i, blocks=blocks):
                    for block in blocks:
                        several.members[i].accumulate(states[i], block)

                list(pool.map(work, range(len(states))))
                listener.rows(sum(block.n for block in blocks))
        return [member.finish(state) for member, state in zip(several.members, states, strict=True)]

    def embed(self, embed: Map, listener):
        self._close_store()
        self._store = self._make_store()
        with self._store.writing() as append:
            for block in self._mapped(embed, listener):
                append(block)

    def labels(self, step: Map, listener) -> Iterator[Block]:
        return self._mapped(step, listener)

    def close(self):
        self._close_store()

    def _close_store(self):
        if self._store is not None:
            self._store.close()
            self._store = None

    def _mapped(self, step: Map, listener):
        def work(blocks):
            return [step.apply(block) for block in blocks()]

        for blocks in self._in_order(work, self._items(step)):
            for block in blocks:
                listener.rows(block.n)
                yield block

    def _items(self, step):
        """Yield work items: functions that return the blocks of one stretch of what the pass reads."""
        if step.reads == "embedding":
            yield from self._store.items(BLOCKS_PER_ITEM, step.rows_per_block())
            return
        max_rows = step.rows_per_block()
        target = max_rows * BLOCKS_PER_ITEM * self.data.bytes_per_row()
        for ranges in self.data.units(int(target)):
            if all(r.stop is not None for r in ranges):
                yield lambda ranges=ranges: self.data.blocks(ranges, max_rows)
            else:  # compressed files can only be read from their start: here, block by block
                for block in self.data.blocks(ranges, max_rows):
                    yield lambda block=block: [block]

    def _in_order(self, work, items):
        """Yield work(item) for each item, in order, with a few items under way at a time."""
        with one_blas_thread(), ThreadPoolExecutor(self.threads) as pool:
            waiting: deque = deque()
            try:
                for item in items:
                    waiting.append(pool.submit(work, item))
                    if len(waiting) > 2 * self.threads:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()


class _Store:
    """Embedded blocks, in memory up to a budget and from there on in a file without a name."""

    def __init__(self, memory_budget, folder):
        self._budget, self._folder = memory_budget, folder
        self._blocks: list = []  # Block, or (position, bytes) in the file
        self._bytes = self._rows = 0
        self._file = None

    @contextmanager
    def writing(self):
        """Give the function that adds a block at the end."""
        yield self._append

    def _append(self, block: Block) -> None:
        self._bytes += block.x.nbytes
        self._rows += block.n
        if self._file is None and self._bytes > self._budget:
            self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 - lives as long as the store
            self._end = 0
            kept, self._blocks = self._blocks, []
            for earlier in kept:
                self._write(earlier)
        if self._file is None:
            self._blocks.append(block)
        else:
            self._write(block)

    def _write(self, block):
        data = pack(block.to_dict())
        self._file.write(data)
        self._blocks.append((self._end, len(data)))
        self._end += len(data)

    def items(self, count, max_rows):
        """Yield functions that return consecutive blocks: rows for about ``count`` blocks of ``max_rows``.

        Narrow rows may come from blocks that were cut for wide ones, and few rows still make `FEWEST_ITEMS`.
        """
        if self._file is not None:
            self._file.flush()
        rows = min(count * max_rows, -(-self._rows // FEWEST_ITEMS))
        step = max(1, rows * len(self._blocks) // max(1, self._rows))
        for start in range(0, len(self._blocks), step):
            some = self._blocks[start : start + step]
            yield lambda some=some: (self._read(entry) for entry in some)

    def _read(self, entry):
        if isinstance(entry, Block):
            return entry
        position, size = entry
        return Block.from_dict(unpack(os.pread(self._file.fileno(), size, position)))

    def close(self):
        self._blocks = []
        if self._file is not None:
            self._file.close()


class _Shards:
    """Embedded blocks as lines of text in a folder, as jobs write and read them too."""

    def __init__(self, folder):
        self._folder = Path(folder)

    @contextmanager
    def writing(self):
        partial = self._folder.with_name(f".{self._folder.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        with open(partial / "part-00000", "wb") as file:
            yield lambda block: file.write(b"block\t" + encoded.encode(block) + b"\n")
        shutil.rmtree(self._folder, ignore_errors=True)
        partial.rename(self._folder)

    def items(self, count, max_rows):
        paths = sorted(self._folder.glob("part-*"))
        size = sum(path.stat().st_size for path in paths)
        for unit in encoded.units(paths, max(1, size // (count * BLOCK_BYTES))):
            yield lambda unit=unit: encoded.read_blocks(unit, max_rows)

    def close(self):
        """Leave the shards where they are."""
