"""What all jobs share: a Fold or a Map of apnc run by mrjob's tasks.

A job is used in two ways. As a *task* (``--mapper``, ``--combiner``, ``--reducer``) it rebuilds the pass from the
files sent along, reads its units and writes lines. By itself (``python -m mr_jobs.NAME``) it is the driver of its
own pass: it looks at the input, cuts it into units, launches the tasks (`mr_jobs.driver`) and saves the result.

Each input line of a task is one unit: the JSON of a list of ranges, [source, path, start, stop]. On Hadoop it may be
a line of the input instead, after its offset and a tab, or a block of the embedding (`apnc.readers.streamed`). Output
lines are key, tab, value; values are what `apnc.blocks.to_line` makes, without tabs and line feeds.

Nothing here imports NumPy before a task needs it: a combiner with nothing to combine never does.
"""

from __future__ import annotations

import io
import json
import os
import sys
import tempfile
import threading
import warnings
from contextlib import ExitStack, contextmanager
from functools import partial, reduce
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from types import MappingProxyType

from apnc.errors import InputError
from mr_jobs import IS_TASK
from mr_jobs.shims import mrjob_imports

with mrjob_imports():
    from mrjob.job import MRJob
    from mrjob.protocol import BytesProtocol, BytesValueProtocol
    from mrjob.step import MRStep

ERROR, RESULT = b"!error", b"!result"
COUNTERS = "apnc"  # group of the counters: rows, errors
KEY_BYTES = 1 << 10  # no key of ours is as long
CHUNK_BYTES = 6 << 20  # 8 MiB of text; a multiple of three, so that nothing is added between chunks
_QUIET = (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning)


class Job(MRJob):
    """A pass as an mrjob job.

    Subclasses say how their pass travels: `describe` makes plain values of it, which the driver writes to a file,
    and `task_pass` rebuilds it from them.
    """

    INPUT_PROTOCOL = BytesValueProtocol
    INTERNAL_PROTOCOL = OUTPUT_PROTOCOL = BytesProtocol

    packages = ()  # archives of Python packages that travel with the job, as PATH#NAME
    settings = MappingProxyType({})  # of Hadoop's
    input_format = None  # Hadoop's class; lines of text by default
    rows = 0  # that the task has read
    pass_option = "--model"  # names the file the pass travels in: npz, or JSON with "--settings"

    def configure_args(self):
        super().configure_args()
        known = {action.dest for action in self.arg_parser._actions}
        self.add_file_arg("--input-spec", metavar="FILE", help="what the units are (given to tasks by the driver)")
        self.add_file_arg(self.pass_option, metavar="FILE", help=self.pass_help())
        if not IS_TASK:
            self.arg_parser.add_argument("--splits", type=int, metavar="N", help="map tasks (one for each core)")
            self.arg_parser.add_argument(
                "--env", metavar="ARCHIVE", help="hadoop: packages for the nodes, made by apnc pack-env; or hdfs://…"
            )
            self.add_options(self.arg_parser)
        self.own_dests = {action.dest for action in self.arg_parser._actions} - known

    def pass_help(self):
        return "model.npz" if self.pass_option == "--model" else "the pass (given to tasks by the driver)"

    def add_options(self, parser):
        """Add what the job's own driver takes."""

    def archives(self):
        """Return the packages that travel with the job."""
        return list(self.packages)

    def jobconf(self):
        """Return the settings of Hadoop's; inline and local ignore them."""
        return super().jobconf() | self.settings

    def hadoop_input_format(self):
        return self.input_format

    def _runner_class(self):
        from mr_jobs.runners import runner_class

        return runner_class(self.options.runner or "inline") or super()._runner_class()

    # the pass

    @classmethod
    def describe(cls, step) -> dict:
        """Return what `build` needs, as JSON values or (in an npz file) arrays too."""
        raise NotImplementedError

    def build(self, described: dict):
        """Return the pass that was described. Runs in tasks: import here, and only what the pass needs."""
        raise NotImplementedError

    def task_pass(self):
        path = getattr(self.options, self.pass_option[2:])
        if self.pass_option == "--settings":
            return self.build(json.loads(Path(path).read_bytes()))
        from apnc.model import load_npz

        return self.build(load_npz(path, "pass"))

    # tasks

    def execute(self):
        if not self.is_task():
            super().execute()
            return
        with _task_streams(self), _one_thread(), _heartbeats(self):
            super().execute()

    def _unused(self, key, values=None):
        """Stand for a mapper, combiner or reducer where mrjob looks for one; whole tasks are overridden."""
        raise NotImplementedError

    def blocks(self, lines, step):
        """Yield the blocks that the task's input lines name or hold."""
        described = json.loads(Path(self.options.input_spec).read_bytes())
        streamed = described.pop("streamed", None)
        for block in self._blocks_of(lines, described, streamed, step.rows_per_block()):
            self.rows += block.n
            yield block
        self.increment_counter(COUNTERS, "rows", self.rows)

    def _blocks_of(self, lines, described, streamed, max_rows):
        from apnc.readers import InputSpec, Range, encoded, read_blocks

        spec = InputSpec.from_dict(described)
        if streamed is not None:
            from apnc.readers import streamed as streaming

            if spec.format == encoded.FORMAT:
                yield from streaming.embedded((line for _, line in lines), max_rows)
            else:
                yield from streaming.blocks(spec, self.stdin, streamed["files"], max_rows)
            return
        for _, line in lines:
            unit = [Range(*r) for r in json.loads(line.rpartition(b"\t")[2])]  # a line's offset may come first
            if spec.format == encoded.FORMAT:
                yield from encoded.read_blocks(unit, max_rows)
            else:
                yield from read_blocks(spec, unit, max_rows)

    def guarded(self, lines):
        """Yield the lines; an error the user can act on becomes one itself, since no retry would help."""
        try:
            yield from lines
        except InputError as error:
            self.increment_counter(COUNTERS, "errors", 1)
            yield ERROR, _error_line(error)

    # the driver

    def run_job(self):
        from mr_jobs.standalone import main

        main(self)

    def launch(self, driver):
        """Run the job from its command line: `driver` is a `mr_jobs.standalone.Driver`."""
        raise NotImplementedError


class FoldJob(Job):
    """A Fold: each map task ships the parts of its state once, they are merged by key, the driver finishes.

    With ``finishes`` all parts meet in one reducer, which finishes and ships the result.
    """

    combines = False
    finishes = False

    def steps(self):
        combiner = {"combiner": self._unused} if self.combines else {}
        return [MRStep(mapper=self._unused, reducer=self._unused, **combiner)]

    def jobconf(self):
        # inline and local ignore this; there the one key of all parts brings them together
        return super().jobconf() | ({"mapreduce.job.reduces": "1"} if self.finishes else {})

    @staticmethod
    def split(key, part):
        """Yield (key, part) of the pieces a part travels in; `joined` puts the merged pieces together."""
        yield key, part

    @staticmethod
    def joined(state):
        """Return the state of which the pieces were made."""
        return state

    def map_pairs(self, pairs, step_num=0):
        return self.guarded(self._map(pairs))

    def combine_pairs(self, pairs, step_num=0):
        return self._merge(pairs)

    def reduce_pairs(self, pairs, step_num=0):
        return self.guarded(self._finish(pairs) if self.finishes else self._merge(pairs))

    def _map(self, lines):
        from apnc.passes import Several

        fold = self.task_pass()
        blocks = self.blocks(lines, fold)
        if not isinstance(fold, Several):
            yield from self._shipped(fold, self._accumulated(fold, blocks))
            return
        # one after the other over blocks kept on disk: the states of all may be more than a task can hold
        with _spooled(blocks) as again:
            for i, member in enumerate(fold.members):
                yield from self._shipped(fold, fold.keyed(i, self._accumulated(member, again())))

    @staticmethod
    def _accumulated(fold, blocks):
        state: dict = {}
        for block in blocks:
            fold.accumulate(state, block)
        return state

    def _shipped(self, fold, state):
        from apnc.blocks import pack, to_line

        for key, part in state.items():
            if self.finishes:
                packed = pack(fold.seal(part))
                count = max(1, -(-len(packed) // CHUNK_BYTES))
                # all parts of all tasks under one key, and none so long that it would take heaps of Java's
                name = b"%s %s %d" % (key.encode(), os.urandom(8).hex().encode(), count)
                for i, text in enumerate(_chunks(packed)):
                    yield b"all", b"%s %d %s" % (name, i, text)
                continue
            for piece, values in self.split(key, part):
                yield piece.encode(), to_line(fold.seal(values))

    def _merge(self, lines):
        fold = None
        for key, group in groupby(lines, itemgetter(0)):
            parts = (line for _, line in group)
            line, other = next(parts), next(parts, None)
            if other is None or key == ERROR:
                yield key, line
                continue
            from apnc.blocks import from_line, to_line

            fold = fold or self.task_pass()
            unsealed = (fold.unseal(from_line(part)) for part in chain((line, other), parts))
            yield key, to_line(fold.seal(reduce(partial(fold.merge, key.decode()), unsealed)))

    def _finish(self, lines):
        from apnc.blocks import from_text, pack, unpack

        fold, state, failed, coming = self.task_pass(), {}, False, {}
        for key, value in lines:
            if key == ERROR:
                failed = True
                yield key, value
                continue
            name, task, count, i = value[:KEY_BYTES].split(b" ", 4)[:4]
            start = len(name) + len(task) + len(count) + len(i) + 4
            chunks = coming.setdefault((name, task), {})
            chunks[int(i)] = from_text(memoryview(value)[start:])
            if len(chunks) < int(count):
                continue
            del coming[name, task]
            part = fold.unseal(unpack(chunks[0] if len(chunks) == 1 else b"".join(chunks[j] for j in sorted(chunks))))
            name = name.decode()
            state[name] = fold.merge(name, state[name], part) if name in state else part
        if failed:
            return
        with warnings.catch_warnings(record=True) as caught:
            result = self.pack_result(fold.finish(state))
        result[".warnings"] = [
            [w.category.__name__, str(w.message)] for w in caught if not issubclass(w.category, _QUIET)
        ]
        for i, text in enumerate(_chunks(pack(result))):
            yield b"%s/%06d" % (RESULT, i), text

    @staticmethod
    def pack_result(result) -> dict:
        """Return a finished result as `apnc.blocks.pack` takes it."""
        raise NotImplementedError

    @staticmethod
    def unpack_result(packed: dict):
        """Return the result that was packed."""
        raise NotImplementedError


class MapJob(Job):
    """A Map: each block is written as the map task has made it; there is no exchange."""

    def steps(self):
        return [MRStep(mapper=self._unused)]

    def map_pairs(self, pairs, step_num=0):
        return self.guarded(self._map(pairs))

    def _map(self, lines):
        step = self.task_pass()
        for block in self.blocks(lines, step):
            yield from self.encode(step.apply(block))

    def encode(self, block):
        """Yield the output lines of a block as (key or None, value)."""
        raise NotImplementedError


class LabelJob(MapJob):
    """A Map whose blocks are labels, written as text (`apnc.shards`), what they sum up to at their end."""

    def jobconf(self):
        # streaming takes the text before a line's first tab for its key, and adds a tab to lines that have none:
        # all of these lines have a comma, at which they are taken apart and put together again
        names = ("stream.map.output.field.separator", "mapreduce.output.textoutputformat.separator")
        return super().jobconf() | dict.fromkeys(names, ",")

    def _map(self, lines):
        from apnc.labels import LabelFacts
        from apnc.shards import summary

        self.facts = LabelFacts()
        yield from super()._map(lines)
        yield None, summary(self.facts)

    def encode(self, block):
        from apnc.shards import encode

        self.facts.add(block)
        lines = encode(block)
        if lines:
            yield None, lines


@contextmanager
def _spooled(blocks):
    """Write blocks to a file of the task's own folder, and give the function that reads them again."""
    from apnc.blocks import Block, pack, unpack

    with tempfile.TemporaryFile(dir=os.getcwd() if IS_TASK else None) as file:
        for block in blocks:
            data = pack(block.to_dict())
            file.write(len(data).to_bytes(8, "little") + data)

        def again():
            file.seek(0)
            while size := file.read(8):
                yield Block.from_dict(unpack(file.read(int.from_bytes(size, "little"))))

        yield again


@contextmanager
def _task_streams(job):
    """Keep for data what the task was given as stdout; whatever prints goes to its stderr, and as text."""
    before = sys.stdout, sys.stderr, job._stdout, job._stderr
    with ExitStack() as stack:
        if job._stdout is None:
            if getattr(sys.stdout, "buffer", None) is not None and sys.stdout.fileno() == 1:
                # a process of its own: libraries and child processes that write to descriptor 1 are led away too
                sys.stdout.flush()
                job._stdout = stack.enter_context(os.fdopen(os.dup(1), "wb"))
                os.dup2(2, 1)
            else:
                job._stdout = job.stdout
        if job._stderr is None:
            job._stderr = job.stderr
        text = io.TextIOWrapper(job._stderr, "utf-8", "backslashreplace", write_through=True)
        sys.stdout = sys.stderr = text
        try:
            yield
            job._stdout.flush()
        finally:
            text.flush()
            text.detach()  # the file below is not ours to close
            sys.stdout, sys.stderr, *_ = before
    job._stdout, job._stderr = before[2:]


@contextmanager
def _one_thread():
    """Limit BLAS to one thread where that was not done before NumPy was imported: in the inline runner's tasks."""
    if IS_TASK or "numpy" not in sys.modules or "OMP_NUM_THREADS" in os.environ:
        yield
        return
    from apnc.threads import one_blas_thread

    with one_blas_thread():
        yield


@contextmanager
def _heartbeats(job):
    """Say now and then that a task lives: YARN kills one that is silent, and a decomposition may think for long."""
    if not IS_TASK:
        yield
        return
    from apnc.hadoop_settings import HEARTBEAT_SECONDS

    over, stage = threading.Event(), os.path.splitext(os.path.basename(job.mr_job_script()))[0]

    def beat():
        while not over.wait(HEARTBEAT_SECONDS):
            job.stderr.write(b"reporter:status:%s: %d rows\n" % (stage.encode(), job.rows))
            job.stderr.flush()

    thread = threading.Thread(target=beat, name="heartbeats", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _chunks(data: bytes):
    from apnc.blocks import to_text

    view = memoryview(data)
    for start in range(0, len(data), CHUNK_BYTES):
        yield to_text(view[start : start + CHUNK_BYTES])


def _error_line(error) -> bytes:
    from dataclasses import asdict

    values = {"type": type(error).__name__, "message": str(error)}
    if hasattr(error, "rules"):
        values |= {"problems": [asdict(p) for p in error.problems], "rules": dict(error.rules)}
    return json.dumps(values).encode()


def raise_error(line: bytes):
    """Raise the error that a task shipped."""
    from apnc import errors
    from apnc.blocks import Problem

    values = json.loads(line)
    if "rules" in values:
        from apnc.coefficients import BadRows

        raise BadRows([Problem(**p) for p in values["problems"]], values["rules"])
    raise getattr(errors, values["type"], InputError)(values["message"])
