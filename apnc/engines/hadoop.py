"""A Hadoop cluster: passes are streaming jobs over HDFS, driven from this machine."""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import re
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from apnc import hdfs
from apnc.blocks import Block
from apnc.engines import Engine
from apnc.errors import ApncError, InputError, StageError
from apnc.hadoop_settings import (
    MOST_NAMED_FILES,
    SMALL_FILES,
    UNIT_BYTES,
    check_containers,
    needs_of,
    passes_ahead,
    settings_for,
)
from apnc.passes import Fold, Map
from apnc.readers import InputSpec, encoded
from apnc.readers.files import check_names, for_tasks, is_remote

STATE = "hadoop.json"
_LABELS = re.compile(r".*/\d{8}-\d{6}-[0-9a-f]{8}/labels")  # in a folder that `mr_jobs.cluster.new_folder` has named
_LOST = ("BlockMissingException", "Could not obtain block")


class HadoopEngine(Engine):
    """Runs passes as jobs of a Hadoop cluster.

    Plain text and .gz files are read through streaming's own input: with locality, and without WebHDFS on the nodes.
    Everything else goes by units, of which tasks read their ranges by WebHDFS. Local input is brought to HDFS first,
    under names of its own. The embedding stays on HDFS and is gone after the run, with all else but labels kept.

    Parameters
    ----------
    data : apnc.readers.detect.Input
    options : mr_jobs.cluster.HadoopOptions
    splits : int, optional
        Map tasks of a pass; as many as the cluster runs at a time and the input is worth, by default.
    state : path-like, optional
        File of this machine that tells where on HDFS the run is. One that is there is gone on with: what still runs
        under the run's tag is ended first.
    keep : bool
        Leave the run's folder for later commands.

    Attributes
    ----------
    embedded : bool
        Whether a whole embedding is there.
    counts : dict
        By stage, what Hadoop counted, over all jobs of the run.
    """

    keeps_labels = True

    def __init__(self, data, options, splits=None, state=None, keep=False):
        from mr_jobs.cluster import ClusterLauncher, new_folder

        if not hasattr(data, "files"):
            raise InputError("data in memory cannot be clustered on Hadoop; write it to a file")
        self.data, self.options, self._keep = data, options, keep
        self._state = None if state is None else Path(state)
        before = json.loads(self._state.read_text()) if self._state is not None and self._state.exists() else None
        place = (before["root"], before["folder"], before["tag"]) if before else new_folder(options)
        self._root, self.folder, tag = place
        self.filesystem = hdfs.connect(self._root)
        self.launcher = ClusterLauncher(options, self.filesystem, self._root, self.folder, tag, splits)
        self.counts: dict = before["counts"] if before else {}
        self._rows, self._embed, self._repeated, self._kept = None, None, False, False
        try:
            if before:
                self._tidy_up_after(tag)
            self._streamed = self._is_streamed()
            self.embedded = bool(before) and self.filesystem.status(self._path("embedding")) is not None
            self._note()
        except BaseException:
            self.launcher.close()
            raise

    def _tidy_up_after(self, tag):
        """End what a driver that is gone has left running, and remove what it left half done."""
        left = self.launcher.end_applications()
        if left:
            raise StageError(f"--resume: {' '.join(left)} of the interrupted run cannot be ended")
        if self.filesystem.status(self.folder) is not None:
            for status in self.filesystem.list(self.folder):
                if status.name.startswith(("attempt-", "labels-")):
                    self.filesystem.delete(status.path)

    def _note(self):
        if self._state is not None:
            values = {"root": self._root, "folder": self.folder, "tag": self.launcher.tag, "counts": self.counts}
            partial = self._state.with_name(f".{self._state.name}.partial")
            partial.write_text(json.dumps(values))
            partial.replace(self._state)

    # passes

    def fold(self, fold: Fold, listener):
        from mr_jobs import job_for

        if hasattr(fold, "settings"):
            self._check_memory(fold.settings)

        def run():
            return self.launcher.fold(job_for(fold.stage), fold, self.source(fold), listener)

        result, counted = self._with_embedding(run, fold, listener)
        self._count(fold.stage, counted)
        return result

    def embed(self, embed: Map, listener):
        from mr_jobs import job_for

        self._embed = embed
        output = self._path("embedding")
        counted = self.launcher.map(
            job_for(embed.stage), embed, self.source(embed), listener, output, intermediate=True
        )
        self.embedded = True
        self._count(embed.stage, counted)
        self._drop_input()

    def embedded_by(self, embed: Map):
        self._embed = embed

    def labels(self, step: Map, listener) -> Iterator[Block]:
        from apnc import shards

        output = self._path(f"labels-{secrets.token_hex(4)}")
        try:
            self._label(step, listener, output)
            spec = self.data.spec
            yield from shards.read(
                self._shards(output), spec.sources, spec.id_column is not None, spec.label_column is not None
            )
        finally:
            with suppress(ApncError):
                self.filesystem.delete(output)

    def keep_labels(self, step: Map, listener):
        """Label all rows and leave the labels on HDFS.

        Returns
        -------
        facts : apnc.labels.LabelFacts
        uri : str
            Of the folder of shards.
        """
        from apnc import shards

        output = self._path("labels")
        self._label(step, listener, output)
        self._kept = True
        return shards.facts(self._shards(output)), self._root + output

    def place(self, name: str) -> str:
        """Return the URI of something in the run's folder."""
        return self._root + self._path(name)

    def report(self):
        return {"hadoop": self.counts}

    def _label(self, step, listener, output):
        from mr_jobs import job_for

        def run():
            return self.launcher.map(job_for(step.stage), step, self.source(step), listener, output)

        self._count(step.stage, self._with_embedding(run, step, listener))

    def _shards(self, output):
        found = [s for s in self.filesystem.list(output) if s.name.startswith("part-") and s.size]
        return [for_tasks(self._root + status.path) for status in found]

    def _with_embedding(self, run, step, listener):
        """Run a pass; where a lost block of the embedding is why it fails, embed once more and run it again."""
        try:
            return run()
        except StageError as error:
            lost = step.reads == "embedding" and any(word in str(error) for word in _LOST)
            if not lost or self._embed is None or self._repeated:
                raise
            self._repeated = True
            listener.told("a block of the embedding is lost: embedding once more")
            self.embed(self._embed, listener)
            return run()

    def _count(self, stage, counted):
        total = self.counts.setdefault(stage, {})
        for name, value in counted.items():
            total[name] = total.get(name, 0) + value
        self._note()

    def _check_memory(self, settings):
        """Refuse what no container of the cluster can hold, before the first pass."""
        spec, rows, given = self.data.spec, self.data.estimated_rows(), self.options.jobconf
        for step in passes_ahead(settings, spec.width, spec.sparse, rows):
            needs = needs_of(step, self.data.bytes_per_row(), rows)
            asked = settings_for(needs, maps=1, reduces=int(hasattr(step, "merge"))) | given
            check_containers(step.stage, asked, given, self.launcher.largest_container())

    # what passes go over

    def source(self, step):
        """Return what a pass goes over, as the launcher takes it."""
        from mr_jobs.cluster import BLOCKS, TEXT, UNITS, Source

        if step.reads == "embedding":
            output = self._path("embedding")
            size = sum(s.size for s in self.filesystem.list(output) if s.name.startswith("part-"))
            return Source(BLOCKS, InputSpec(encoded.FORMAT), size, paths=[self._root + output])
        data = self._on_hdfs()
        size, row_bytes = sum(file.size for file in data.files), data.bytes_per_row()
        if not self._streamed:
            from mr_jobs.driver import splits_of

            return Source(UNITS, self.data.spec, size, row_bytes, units=lambda count: splits_of(data, count))
        files = {hdfs.split(f.path)[1]: [f.source, self._first(f)] for f in data.files}
        return Source(TEXT, self.data.spec, size, row_bytes, [f.path for f in data.files], files)

    def _first(self, file):
        """Return the offset of the line that may be a header: tasks see stretches of a file only."""
        if self.data.spec.header == "no":
            return None
        if file.path not in self._firsts:
            from apnc.readers import text_parser
            from apnc.readers.text import first_data_line

            found = first_data_line(file.path, text_parser(self.data.spec).blanks)
            self._firsts[file.path] = found and found[0]
        return self._firsts[file.path]

    def _is_streamed(self):
        """Return whether the input goes through streaming's own input."""
        self._firsts: dict = {}
        files = self.data.files
        if self.data.spec.format not in ("csv", "svmlight") or any(f.compression == "bz2" for f in files):
            return False
        if any(is_remote(f.path) and not f.path.startswith("hdfs:") for f in files):
            return False
        small = SMALL_FILES + 4 * sum(f.size for f in files) // UNIT_BYTES
        if len(files) > min(small, MOST_NAMED_FILES):
            return False
        check_names(f for f in files if is_remote(f.path))
        return True

    def _on_hdfs(self):
        """Return the input with all of its files on HDFS."""
        if self._rows is None:
            from dataclasses import replace

            files = []
            for i, file in enumerate(self.data.files):
                if not is_remote(file.path):
                    file = replace(file, path=self._root + self._uploaded(i, file))
                files.append(file)
            self._rows = type(self.data)(self.data.spec, files)
        return self._rows

    def _uploaded(self, i, file):
        # whatever it is called here: a name that Hadoop takes, with the suffix by which it decompresses
        suffix = os.path.splitext(file.path)[1].lower() if file.compression else ""
        path = self._path("input", f"{i:06d}-{self._version(file)}{suffix}")
        status = self.filesystem.status(path) if self._keep else None
        if status is None or status.size != file.size:
            block = self.options.jobconf.get("dfs.blocksize")
            with open(file.path, "rb") as content:
                self.filesystem.write(path, content, overwrite=True, block_size=block and int(block))
        return path

    def _version(self, file):
        status = os.stat(file.path)
        known = json.dumps([os.path.abspath(file.path), status.st_size, status.st_mtime_ns])
        return hashlib.sha256(known.encode()).hexdigest()[:8]

    def _drop_input(self):
        self._rows = None
        self._firsts = {}
        self.filesystem.delete(self._path("input"))

    # the end

    def __exit__(self, kind, error, trace):
        resumable = kind is not None and (not issubclass(kind, Exception) or issubclass(kind, StageError))
        try:
            with suppress(ApncError):
                self._clear(kind is None, resumable)
        finally:
            self.launcher.close()

    def close(self):
        self.__exit__(None, None, None)

    def _clear(self, done, resumable):
        """Remove from HDFS what nobody will want: everything but labels kept, or an embedding to go on with."""
        wanted = set()
        if self._kept and done:
            wanted.add("labels")
        if self._keep:
            wanted |= {"labels", "embedding"} if self.embedded else {"labels", "input"}
        elif resumable and self.embedded and self._state is not None:
            wanted.add("embedding")
        if self.filesystem.status(self.folder) is not None:
            inside = self.filesystem.list(self.folder)
            for status in inside:
                if status.name not in wanted:
                    self.filesystem.delete(status.path)
            if not any(status.name in wanted for status in inside):
                self.filesystem.delete(self.folder)
        if self._state is not None and not self._keep and "embedding" not in wanted:
            self._state.unlink(missing_ok=True)

    def _path(self, *names):
        return posixpath.join(self.folder, *names)


def remove_labels(uri: str) -> None:
    """Remove the labels that a run has left on HDFS, and its folder with them, which holds nothing else.

    Raises
    ------
    InputError
        If it is not the folder of a run, or holds what no run has left there.
    StageError
        If HDFS does not do it.
    """
    where, path = hdfs.split(uri)
    if not _LABELS.fullmatch(path):
        raise InputError(f"{uri} is not the folder of a run")
    filesystem = hdfs.connect(where)
    if filesystem.status(path) is None:
        return
    others = [s.name for s in filesystem.list(path) if s.is_dir or not s.name.startswith(("part-", "_SUCCESS"))]
    if others:
        raise InputError(f"{uri} holds {others[0]}, which is not of a run")
    filesystem.delete(path)
    folder = posixpath.dirname(path)
    if not filesystem.list(folder):
        filesystem.delete(folder, recursive=False)
