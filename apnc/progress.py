"""What a person sees while a run goes on: a bar per pass on a terminal, nothing where output is piped."""

from __future__ import annotations

import sys

from apnc.pipeline import Listener

NAMES = {
    "sample": "sampling",
    "coefficients": "sampling",
    "embed": "embedding",
    "kmeans": "k-means",
    "assign": "labelling",
    "predict": "labelling",
}


class TerminalListener(Listener):
    """A progress bar of rows on stderr; k-means passes show their number and the objective so far."""

    def __init__(self, estimated_rows: int):
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._rows = estimated_rows
        self._detail = ""
        self._passes = 0
        self._place = ""
        self._done = 0
        self._progress = Progress(
            TextColumn("{task.description:<10}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("rows {task.fields[detail]}"),
            TimeElapsedColumn(),
            console=Console(file=sys.stderr),
            transient=True,
        )
        self._task = None

    def __enter__(self):
        self._progress.start()
        return self

    def __exit__(self, *_):
        self._progress.stop()

    def stage(self, name, detail=""):
        if self._task is not None:
            self._progress.remove_task(self._task)
        if name == "kmeans":
            self._passes += 1
            detail = f"pass {self._passes}{self._detail}"
        self._done = 0
        self._task = self._progress.add_task(NAMES.get(name, name), total=self._rows, detail=detail)

    def rows(self, done):
        self._done += done
        reached = self._done
        # the first estimate of the number of rows is on the low side
        self._progress.update(self._task, completed=reached, total=max(reached, self._rows))

    def application(self, name):
        self._place = f"{self._progress.tasks[-1].fields['detail']} {name}".strip()
        self._progress.update(self._task, detail=self._place)

    def percent(self, mapped, reduced):
        # a cluster tells of rows only when a pass is over
        self._progress.update(
            self._task,
            total=self._rows,
            completed=self._rows * mapped // 100,
            detail=f"{self._place} map {mapped}% reduce {reduced}%",
        )

    def told(self, message):
        self._progress.console.print(message, markup=False, highlight=False)

    def finished(self, run, stage):
        model = run.model
        if model is not None:
            self._rows = model.rows
            if model.passes:
                self._detail = f", objective {model.passes[-1]['objective']:.6g}"


def listener_for(estimated_rows: int):
    """Return the listener that suits stderr, as a context manager."""
    return TerminalListener(estimated_rows) if sys.stderr is not None and sys.stderr.isatty() else _Silent()


class _Silent(Listener):
    def told(self, message):
        print(message, file=sys.stderr, flush=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass
