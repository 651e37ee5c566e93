"""Processes that tests start and wait for."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import apnc

ROOT = Path(apnc.__file__).parents[1]


def environment(**more) -> dict[str, str]:
    """Return this process's environment, in which another Python finds the packages under test."""
    return os.environ | {"PYTHONPATH": str(ROOT)} | more


def python(*arguments, text=True, cwd=None, input=None, timeout=None, **variables) -> subprocess.CompletedProcess:
    """Run Python to its end, with the packages under test and more variables of its environment."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env=environment(**variables),
        capture_output=True,
        text=text,
        cwd=cwd,
        input=input,
        timeout=timeout,
    )


def wait_for(condition, job=None, seconds=60, every=0.01):
    """Return what a condition gives once that is true; fail when the job ends before, or it takes too long.

    The condition is looked at again after ``every`` seconds.
    """
    end = time.monotonic() + seconds
    while not (result := condition()):
        assert job is None or job.poll() is None, job.communicate()
        assert time.monotonic() < end, f"not so after {seconds} s"
        time.sleep(every)
    return result
