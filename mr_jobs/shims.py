"""Stand-ins for what mrjob 0.7.4 imports and newer Pythons lack: ``distutils`` (gone in 3.12) and ``pipes`` (3.13).

They serve while mrjob is imported, and are gone from `sys.modules` afterwards. Older Pythons get them too: where
setuptools is installed, importing distutils imports all of setuptools, which costs every task a fifth of a second.
"""

from __future__ import annotations

import platform
import re
import shlex
import shutil
import sys
import warnings
from contextlib import contextmanager
from functools import total_ordering
from types import ModuleType

from apnc.errors import InputError
from mr_jobs import IS_TASK


@total_ordering
class LooseVersion:
    """A version as numbers and words, compared part by part."""

    def __init__(self, text):
        self.text = text
        self.parts = [int(part) if part.isdigit() else part for part in re.findall(r"\d+|[a-z]+", str(text))]

    def __eq__(self, other):
        return self.parts == other.parts

    def __lt__(self, other):
        return self.parts < other.parts

    def __repr__(self):
        return f"LooseVersion({self.text!r})"


def _modules():
    out = {name: ModuleType(name) for name in ("distutils", "distutils.spawn", "distutils.version", "pipes")}
    out["distutils"].__path__ = []
    out["distutils.spawn"].find_executable = lambda name, path=None: shutil.which(name, path=path)
    out["distutils.version"].LooseVersion = LooseVersion
    out["pipes"].quote = shlex.quote
    if IS_TASK:  # only drivers load settings and URLs, and these two imports are a third of a task's start
        out["yaml"] = None
        out["urllib.request"] = ModuleType("urllib.request")
        out["urllib.request"].urlopen = out["urllib.request"].pathname2url = None
    return out


@contextmanager
def mrjob_imports():
    """Import mrjob inside of this.

    Raises
    ------
    InputError
        If mrjob is missing or does not work with this Python.
    """
    # a package is replaced as a whole or not at all
    given = {
        name: module
        for name, module in _modules().items()
        if name not in sys.modules and (name.partition(".")[0] != "distutils" or "distutils" not in sys.modules)
    }
    sys.modules |= given
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Python's, at code of 2020
            yield
    except ImportError as error:
        raise InputError(
            f"mrjob cannot be imported by this Python {platform.python_version()}: {error}; install mrjob>=0.7.4"
        ) from None
    finally:
        for name in given:
            sys.modules.pop(name, None)
