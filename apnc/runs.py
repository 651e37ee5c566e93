"""The folder of a run: made beside its place, complete or absent, and what it takes to go on after a stop."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import shutil
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

import numpy as np

import apnc
from apnc.errors import InputError, StageError
from apnc.model import Model, load_npz, save_npz
from apnc.pipeline import Run
from apnc.readers.locate import explain

LABELS, MODEL, REPORT = "labels.csv", "model.npz", "run.json"
STATE, START, PREPARED, PASSES = "state.json", "start.npz", "prepared.npz", "passes.npz"
LOCK = ".lock"  # a file in a folder that is being written to


class OutputFolder:
    """DIR, and DIR.partial in which everything is made until it is whole, by one process at a time.

    Parameters
    ----------
    path : path-like
    overwrite : bool
        Replace an earlier result of apnc.
    resume : bool
        Go on in a DIR.partial left by an interrupted run.

    Raises
    ------
    InputError
        If there is something in the way, or another run is writing there.
    """

    def __init__(self, path, overwrite=False, resume=False):
        self.path = Path(os.path.realpath(path))  # a link stays a link to the result
        self._given, self._overwrite = path, overwrite
        self._kept = None  # the embedding that START holds
        self._locks: list = []
        if not path or not self.path.name:
            raise InputError(f"-o {path}: the name of a folder is needed")
        self.partial = self.path.with_name(f"{self.path.name}.partial")
        self.replaced = self.path.with_name(f".{self.path.name}.replaced")  # for a moment, the result that was there
        try:
            self._check(resume)
            self.partial.mkdir(parents=True, exist_ok=True)
            self._lock(self.partial, "another run is writing to")
            if self.path.is_dir():
                self._lock(self.path, "another command is writing to")
            self._take_back()
            self._check(resume)  # once more: the run that held it may have ended meanwhile
            if not resume:
                _clear(self.partial, but=(LOCK,))
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise InputError(f"-o {path}: {error.filename} cannot be written ({error.strerror})") from None
            raise

    def _check(self, resume):
        self._check_in_the_way()
        if self.partial.exists() and not self.partial.is_dir():
            raise InputError(f"-o {self._given}: {self.partial} is in the way and not a folder")
        found = set(os.listdir(self.partial)) - {LOCK} if self.partial.exists() else set()
        if resume and STATE not in found:
            raise InputError(f"--resume: there is no interrupted run in {self.partial}")
        if found and STATE not in found:
            raise InputError(f"-o {self._given}: {self.partial} is in the way and was not made by apnc")
        if self.path.exists() and self.replaced.exists() and not self._is_ours(self.replaced):
            raise InputError(f"-o {self._given}: {self.replaced} is in the way and was not made by apnc")

    def _check_in_the_way(self):
        path = self._given
        if not self.path.exists():
            return
        if not self.path.is_dir():
            raise InputError(f"-o {path}: is a file; a folder is needed")
        if set(os.listdir(self.path)) <= {LOCK}:
            return
        if not self._overwrite:
            raise InputError(f"-o {path}: exists already; choose another folder or add --overwrite")
        if not (self.path / REPORT).exists():
            raise InputError(f"-o {path}: is not a result of apnc and is not overwritten")

    def _is_ours(self, folder):
        names = set(os.listdir(folder)) if folder.is_dir() else {""}
        return REPORT in names or names <= {LABELS, MODEL, LOCK}

    def _take_back(self):
        """Mend what a process has left that was killed while it put its result in place."""
        if self.replaced.exists() and self._is_ours(self.replaced):
            if self.path.exists():
                shutil.rmtree(self.replaced)
            else:
                self.replaced.rename(self.path)

    def commit(self) -> dict:
        """Put the finished folder in its place; return the run.json of the result that it replaces, {} if of none.

        Raises
        ------
        StageError
            If something has come in the way meanwhile, which is then left, and so is what was finished.
        """
        try:
            self._check_in_the_way()
        except InputError as error:
            raise StageError(str(error)) from None
        replaced = {}
        with suppress(OSError, ValueError):
            found = json.loads((self.path / REPORT).read_text())
            replaced = found if isinstance(found, dict) else {}
        try:
            if self.path.exists():
                self.path.rename(self.replaced)
            self.partial.rename(self.path)
        except BaseException:
            if self.replaced.exists() and not self.path.exists():
                self.replaced.rename(self.path)
            raise
        # what it took to go on, and what a killed process left; not before: it may still be needed until then
        _clear(self.path, but=(LABELS, MODEL, REPORT))
        shutil.rmtree(self.replaced, ignore_errors=True)
        for file in self._locks:  # whose files are gone
            file.close()
        self._locks = []
        return replaced

    def discard(self) -> None:
        """Remove what was begun."""
        shutil.rmtree(self.partial, ignore_errors=True)

    def _lock(self, folder, said):
        file = locked(folder, f"-o {self._given}: {said} {folder}")
        if file is not None:
            self._locks.append(file)

    def close(self) -> None:
        """Let others have the folders."""
        for file in self._locks:
            if file.name == str(self.partial / LOCK):  # which keeps it as long as it is there
                file.close()
            else:
                _release(file)
        self._locks = []

    @property
    def committed(self) -> bool:
        """Whether the result is in its place."""
        return not self.partial.exists() and (self.path / REPORT).exists()

    @property
    def reached(self) -> bool:
        """Whether there is something to go on with."""
        return (self.partial / START).exists()

    def begin(self, run: Run, data) -> None:
        """Write down what the run is; when it goes on after a stop, take up what was reached.

        Raises
        ------
        InputError
            If parameters or input differ from those of the interrupted run.
        """
        state = {"settings": run.settings.to_dict(), "input": data.fingerprint(), "spec": asdict(data.spec)}
        state = json.loads(json.dumps(state))
        path = self.partial / STATE
        if not path.exists():
            fresh = path.with_name(f".{STATE}")
            fresh.write_text(json.dumps(state))
            fresh.replace(path)
            return
        try:
            before = json.loads(path.read_text())
            same = {name: before[name] == state[name] for name in state}
        except (ValueError, TypeError, KeyError):
            raise InputError(f"--resume: {path} is damaged; start again without --resume") from None
        if not same["input"]:
            raise InputError("--resume: the input has changed since the interrupted run")
        if not same["spec"]:
            raise InputError("--resume: the input is read in another way than in the interrupted run")
        changed = [name for name, value in state["settings"].items() if before["settings"].get(name) != value]
        if changed:
            raise InputError(f"--resume: {changed[0]} differs from the interrupted run")
        if (self.partial / START).exists():
            values = load_npz(self.partial / START, "model")
            if (self.partial / PREPARED).exists():
                embedding = {name: value for name, value in values.items() if name.startswith("embedding.")}
                values = embedding | load_npz(self.partial / PREPARED, "model")
            run.model = Model.from_dict(values)
            self._kept = run.model.embedding
            if (self.partial / PASSES).exists():
                reached = load_npz(self.partial / PASSES, "state")
                run.model.centroids, run.model.best = reached["centroids"], reached.get("best")
                run.model.passes, run.model.status = reached["passes"], reached["status"]
                run.model.rows = reached["rows"]

    def checkpoint(self, run: Run, stage: str) -> None:
        """Keep what a whole pass has reached."""
        m = run.model
        if m is None:
            return
        if stage in ("coefficients", "moments") or (stage == "kmeans" and not m.started):
            values = m.to_dict(with_sample=True)
            if m.embedding is self._kept:  # which may be all but the whole of it
                changed = {name: value for name, value in values.items() if not name.startswith("embedding.")}
                save_npz(self.partial / PREPARED, changed)
                return
            (self.partial / PREPARED).unlink(missing_ok=True)
            save_npz(self.partial / START, values)
            self._kept = m.embedding
        elif stage == "kmeans":
            reached = {"centroids": m.centroids, "passes": m.passes, "status": m.status, "rows": m.rows}
            save_npz(self.partial / PASSES, reached | ({} if m.best is None else {"best": m.best}))


@contextmanager
def alone(folder):
    """Keep other commands from a folder while one writes to it.

    Raises
    ------
    InputError
        If another does.
    """
    lock = locked(folder, f"{folder}: another command is writing to it")
    try:
        yield
    finally:
        if lock is not None:
            _release(lock)


def _release(lock):
    with suppress(OSError):
        os.unlink(lock.name)
    lock.close()


def locked(folder, refusal: str):
    """Return an open file by which this process has a folder for itself, until it closes it or ends in whatever way.

    Where the folder cannot be written to or its file system has no locks, return None.

    Raises
    ------
    InputError
        With the words of ``refusal``, if another process has it.
    """
    path = Path(folder, LOCK)
    while True:
        try:
            file = open(path, "ab")  # noqa: SIM115 - it is the lock
        except OSError:
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise InputError(refusal) from None
        except OSError:
            file.close()
            with suppress(OSError):
                os.unlink(path)
            return None
        with suppress(FileNotFoundError):
            if os.path.samestat(os.stat(path), os.fstat(file.fileno())):
                return file
        file.close()  # it was the lock of a process that has removed it meanwhile


def _clear(folder, but):
    for path in folder.iterdir():
        if path.name not in but:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def explained(problems, rules, data, more="") -> str:
    """Return one line about bad rows: the first of them, and how many there are."""
    count = sum(rules.values())
    others = f" ({count - 1} more bad rows)" if count > 1 else ""
    return f"{explain(problems[0], data)}{others}{more}" if problems else f"{count} bad rows{others}"


def report(run: Run, data, facts: dict) -> dict:
    """Return run.json: parameters as used, versions, input, what was measured."""
    model = run.model
    return {
        "apnc": apnc.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "settings": run.settings.to_dict(),
        "input": {"spec": asdict(data.spec), "files": data.fingerprint()},
        "model": model.facts,
        "rows": model.rows,
        "features": model.width,
        "status": model.status,
        "passes": model.passes,
        "seconds": {name: round(value, 6) for name, value in run.seconds.items()},
    } | facts
