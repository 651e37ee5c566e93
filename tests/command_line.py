"""The command line in this process, for tests: runs it, and reads what it wrote."""

from __future__ import annotations

import csv
import io
import json
import warnings
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass

import numpy as np

from apnc.cli import main


@dataclass
class Outcome:
    """What a command said: its exit status and both streams."""

    status: int
    out: str
    err: str

    def refused(self, *parts: str) -> str:
        """Return the one line on stderr of a command that ended with status 2, which has all these parts in it."""
        assert self.status == 2, self
        assert self.err.endswith("\n") and self.err.count("\n") == 1, self.err
        assert "Traceback" not in self.err
        for part in parts:
            assert part in self.err, self.err
        return self.err

    def done(self, warns: str | tuple[str, ...] = ()) -> Outcome:
        """Return this outcome of a command that ended well and warned of these things only, one line each."""
        assert self.status == 0, self.err
        lines, expected = self.err.splitlines(), [warns] if isinstance(warns, str) else list(warns)
        assert len(lines) == len(expected), self.err
        for line, part in zip(lines, expected, strict=True):
            assert part in line, self.err
        return self


def apnc(*argv) -> Outcome:
    """Run a command in this process."""
    out, err = io.StringIO(), io.StringIO()
    warnings.onceregistry.clear()  # every command is a process of its own for its user
    with redirect_stdout(out), redirect_stderr(err):
        try:
            status = main([str(a) for a in argv])
        except SystemExit as end:  # of argparse
            status = end.code
    return Outcome(status, out.getvalue(), err.getvalue())


def cluster(source, folder, *options) -> Outcome:
    """Run ``apnc cluster SOURCE -o FOLDER OPTIONS``; ``source`` may be a list."""
    sources = source if isinstance(source, list) else [source]
    return apnc("cluster", *sources, "-o", folder, *options)


def table(path) -> list[dict]:
    """Return the lines of a labels.csv as dicts of text."""
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def labels(folder) -> list[int]:
    """Return the clusters in the labels.csv of a folder, or in a file, in its order."""
    path = folder / "labels.csv" if folder.is_dir() else folder
    return [int(row["cluster"]) for row in table(path)]


def facts(folder) -> dict:
    """Return the run.json of a folder."""
    return json.loads((folder / "run.json").read_text())


def partition(clusters) -> list[int]:
    """Return labels renamed by first appearance, so that equal partitions compare equal."""
    names: dict = {}
    return [names.setdefault(c, len(names)) for c in clusters]


def blobs(n=90, d=3, k=3, seed=0, spread=0.4) -> np.ndarray:
    """Return n rows in k groups far apart, row i in group i mod k."""
    rng = np.random.default_rng(seed)
    return (4.0 * (np.arange(n) % k)[:, None] + rng.normal(0, spread, (n, d))).round(3)


def write_csv(path, x) -> object:
    """Write a matrix as csv that reads back as the same numbers, and return the path."""
    path.write_text("".join(",".join(repr(float(v)) for v in row) + "\n" for row in x))
    return path


def write_svmlight(path, x) -> object:
    """Write a matrix as svmlight with indices from 1, zeros left out, and return the path."""
    lines = [" ".join(["0"] + [f"{j + 1}:{float(v)!r}" for j, v in enumerate(row) if v]) for row in x]
    path.write_text("\n".join(lines) + "\n")
    return path
