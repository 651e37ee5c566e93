"""The errors a user can act on, each carrying its exit status."""


class ApncError(Exception):
    """Base of the errors that end a run with one line on stderr."""

    exit_status = 3


class InputError(ApncError, ValueError):
    """Bad arguments or bad input: where, what was found, what is allowed."""

    exit_status = 2


class StageError(ApncError, RuntimeError):
    """A stage failed for another reason than its input."""

    exit_status = 3
