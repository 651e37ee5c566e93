"""mrjob: every pass is a job of `mr_jobs`, driven from this process on one of mrjob's runners."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from apnc.blocks import Block
from apnc.engines import Engine
from apnc.errors import InputError
from apnc.passes import Fold, Map
from apnc.readers import InputSpec, encoded


class MapReduceEngine(Engine):
    """Runs passes as jobs; the embedding is kept as shards, files of encoded blocks.

    Tasks read their stretches of the input themselves: what the runner is given to split are units, lines that name
    ranges of files. Passes over the embedding get units of byte ranges of its shards.

    Parameters
    ----------
    data : apnc.readers.detect.Input
        Files; a matrix in memory is for the in-process engine.
    runner : {'inline', 'local'}
        mrjob's: all tasks one after the other in this process, or processes side by side.
    folder : path-like, optional
        Where the embedding and temporary files go; a temporary folder by default.
    splits : int, optional
        Map tasks of a pass; one for each core by default.
    runner_args : sequence of str
        More options of mrjob for the runner, ``--no-conf`` for instance.
    embedding : path-like, optional
        A folder in which the embedding is kept for later engines of any kind. One that exists is read.

    Raises
    ------
    InputError
        If mrjob is missing or does not work with this Python, or the runner is not known.
    """

    def __init__(self, data, runner="local", folder=None, splits=None, runner_args=(), embedding=None):
        from mr_jobs.driver import Launcher, check_runner, default_splits

        check_runner(runner)
        if not hasattr(data, "files"):
            raise InputError("data in memory cannot be clustered through mrjob; write it to a file")
        self.data, self.splits = data, splits or default_splits()
        if folder is not None:
            Path(folder).mkdir(parents=True, exist_ok=True)
        self._folder = Path(tempfile.mkdtemp(prefix=".apnc-", dir=folder))
        self._embedding = self._folder / "embedding" if embedding is None else Path(embedding)
        self._launcher = Launcher(runner, runner_args, self._folder)

    def fold(self, fold: Fold, listener):
        from mr_jobs import job_for

        return self._launcher.fold(job_for(fold.stage), fold, *self._reads(fold), listener.rows)

    def embed(self, embed: Map, listener):
        self._map(embed, self._embedding, listener)

    def labels(self, step: Map, listener) -> Iterator[Block]:
        from apnc import shards

        spec = self.data.spec
        with tempfile.TemporaryDirectory(prefix="labels-", dir=self._folder) as folder:
            output = Path(folder) / "labels"
            self._map(step, output, listener)
            yield from shards.read(
                sorted(output.glob("part-*")), spec.sources, spec.id_column is not None, spec.label_column is not None
            )

    def close(self):
        self._launcher.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _map(self, step, output, listener):
        from mr_jobs import job_for

        self._launcher.map(job_for(step.stage), step, *self._reads(step), output, listener.rows)

    def _reads(self, step):
        """Return the spec and the splits of what a pass goes over."""
        from mr_jobs.driver import splits_of

        if step.reads == "embedding":
            return InputSpec(encoded.FORMAT), encoded.units(sorted(self._embedding.glob("part-*")), self.splits)
        return self.data.spec, splits_of(self.data, self.splits)
