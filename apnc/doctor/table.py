"""The lines that ``apnc doctor`` prints."""

from __future__ import annotations

import shutil
import sys
import textwrap

from apnc.errors import InputError, StageError

NAME_COLUMNS = 19


class Table:
    """The lines, printed as they come.

    Attributes
    ----------
    failures : list of int
        Exit status of each check that failed.
    """

    def __init__(self, columns: int | None = None):
        self._columns = columns or min(max(shutil.get_terminal_size((80, 24)).columns, 60), 120)
        self.checks, self.failures, self.warnings = 0, [], 0

    def ok(self, name: str, text: str) -> None:
        """Say that something is fine."""
        self._line("ok", name, text)

    def warn(self, name: str, text: str) -> None:
        """Say that a run would go, but."""
        self.warnings += 1
        self._line("warn", name, text)

    def fail(self, name: str, text: str, status: int = InputError.exit_status) -> None:
        """Say that a run would not go, and what to do."""
        self.failures.append(status)
        self._line("FAIL", name, text)

    def skip(self, name: str, text: str) -> None:
        """Say that something could not be looked at."""
        self._line("-", name, text)

    def going_on(self, text: str) -> None:
        """Say on a terminal what is being waited for, in the place of the next line."""
        if sys.stdout.isatty():
            print(f"      {text} …"[: self._columns], end="\r", flush=True)

    def _line(self, mark, name, text):
        self.checks += 1
        indent = " " * (6 + NAME_COLUMNS)
        head = f"{mark:<5} {name:<{NAME_COLUMNS - 1}} "
        lines = textwrap.wrap(
            " ".join(str(text).split()), self._columns - len(indent), break_long_words=False, break_on_hyphens=False
        )
        print(head + f"\n{indent}".join(lines or [""]), flush=True)

    def end(self) -> None:
        """Raise the error that sums up what failed, if anything did."""
        if self.failures:
            error = InputError if InputError.exit_status in self.failures else StageError
            plural = "" if len(self.failures) == 1 else "s"
            raise error(f"{len(self.failures)} check{plural} of {self.checks} failed, see the lines marked FAIL")
        warned = f", {self.warnings} with a warning" if self.warnings else ""
        print(f"{self.checks} checks, all fine{warned}")


def with_unit(count: float) -> str:
    """Return a number of bytes as text, in a unit that suits it."""
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            break
        count /= 1024
    return f"{count:.0f} {unit}" if count >= 100 or unit == "bytes" else f"{count:.3g} {unit}"
