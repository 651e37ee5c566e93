"""The errors a user can act on, each carrying its exit status, and the warnings, in the user's own spelling."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType


class ApncError(Exception):
    """Base of the errors that end a run with one line on stderr."""

    exit_status = 3


class InputError(ApncError, ValueError):
    """Bad arguments or bad input: where, what was found, what is allowed."""

    exit_status = 2


class StageError(ApncError, RuntimeError):
    """A stage failed for another reason than its input."""

    exit_status = 3


_names: ContextVar[Mapping[str, str]] = ContextVar("names of parameters", default=MappingProxyType({}))


def warn(message: str) -> None:
    """Issue a UserWarning; options in the message are named as the user knows them, see `spelling`."""
    warnings.warn(_spelled(message, _names.get()), UserWarning, stacklevel=2)


@contextmanager
def spelling(names: Mapping[str, str]) -> Iterator[None]:
    """Name parameters in warnings and input errors as the caller does, where messages have the command line's names.

    A context variable and no filter of warnings: those are shared by all threads.

    Examples
    --------
    >>> with spelling({"--dim": "n_components"}):
    ...     raise InputError("--dim 0 must be at least 1")
    Traceback (most recent call last):
    apnc.errors.InputError: n_components 0 must be at least 1
    """
    token = _names.set(names)
    try:
        yield
    except InputError as error:
        error.args = tuple(_spelled(part, names) if isinstance(part, str) else part for part in error.args)
        raise
    finally:
        _names.reset(token)


def _spelled(message, names):
    return re.sub(r"(?<![\w-])--?[a-z][a-z-]*", lambda option: names.get(option[0], option[0]), message)
