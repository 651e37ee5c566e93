"""Threads: ours on all cores, and one for each call of BLAS, which would otherwise have as many again."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager

_found: tuple | None = None  # the libraries there were, with so many modules imported


def cores() -> int:
    """Return the number of cores this process may use."""
    return len(os.sched_getaffinity(0))


@contextmanager
def one_blas_thread():
    """Let BLAS and OpenMP work with one thread in each call.

    The libraries are looked for anew only when modules were imported since: that takes 3 ms, and a fit of a few hundred
    rows comes here a dozen times.
    """
    global _found
    found, modules = _found, len(sys.modules)
    if found is None or found[0] != modules:
        from threadpoolctl import ThreadpoolController

        found = _found = (modules, ThreadpoolController())
    with found[1].limit(limits=1):
        yield
