"""Where in the input a problem is, in the words a user looks it up by."""

from __future__ import annotations

from apnc.blocks import Problem
from apnc.readers import archive, files

_PIECE = 1 << 20


def explain(problem: Problem, input) -> str:
    """Return one line that says where, what was found and what is allowed.

    Lines and rows count from 1, and lines include headers, comments and blank ones: they are what an editor shows.
    For text the file is read up to the problem.

    Parameters
    ----------
    problem : Problem
    input : Input or ArrayInput
        What it was read from.

    Returns
    -------
    str
        ``SOURCE line N, column C: found 'NA'; RULE``; "row N" for arrays, "index I" for svmlight.
    """
    text = input.spec.format in ("csv", "svmlight")
    path = next((file.path for file in getattr(input, "files", ()) if file.source == problem.source), None)
    place = problem.source
    if text and path is not None:
        place += f" line {_line(path, problem.offset)}"
    elif text:
        place += f" byte {problem.offset}"
    else:
        place += f" row {problem.offset + 1}"
    if problem.column is not None:
        place += f", {'index' if input.spec.format == 'svmlight' else 'column'} {problem.column}"
    found = problem.value if problem.fatal else repr(problem.value)
    return f"{place}: found {found}; {problem.rule}"


def _line(path: str, offset: int) -> int:
    """Return the number of the line that begins at an offset of the decompressed text."""
    line, left = 1, offset
    try:
        for piece in _pieces(path):
            line += piece.count(b"\n", 0, left)
            left -= len(piece)
            if left <= 0:
                break
    except archive.Damaged:
        pass
    return line


def _pieces(path):
    return archive.chunks(path, _PIECE) if archive.compression(path) else files.stream(path, _PIECE)
