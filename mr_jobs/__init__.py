"""MapReduce jobs, one per file and stage: thin, each around a pass of apnc, each runnable by itself.

``python -m mr_jobs.sample -r local --output sample.npz data.csv``; ``--help`` tells the options of a job.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module


def _check_interpreter():
    """End a task whose interpreter cannot work, with a line that says why: what comes of it else is long and dark."""
    found = sys.version_info[:2]
    if found < (3, 11):
        sys.exit(f"{sys.executable} is Python {found[0]}.{found[1]}, 3.11 is needed: name another with --python-bin")
    python, machine, libc = (os.environ.get("APNC_ENV") or "any,any,any").split(",")  # see apnc.packing
    if python not in ("any", f"{found[0]}.{found[1]}"):
        sys.exit(
            f"the archive of --env is for Python {python}, {sys.executable} is {found[0]}.{found[1]}: name another "
            f"with --python-bin, or make an archive with apnc pack-env --python-version {found[0]}.{found[1]}"
        )
    if machine not in ("any", os.uname().machine):
        sys.exit(f"the archive of --env is for {machine}, this node is {os.uname().machine}: apnc pack-env --platform")
    if "CS_GNU_LIBC_VERSION" not in os.confstr_names:
        return
    kind, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    if kind == "glibc" and libc[0].isdigit() and [*map(int, version.split("."))] < [*map(int, libc.split("."))]:
        sys.exit(
            f"the archive of --env needs glibc {libc}, this node has {version}: make one with apnc pack-env "
            f"--platform manylinux_{version.replace('.', '_')}_{os.uname().machine}"
        )


# Before anything else is imported, NumPy above all:
IS_TASK = not {"--mapper", "--combiner", "--reducer"}.isdisjoint(sys.argv)
if IS_TASK:
    _check_interpreter()
    sys.path.insert(0, os.getcwd())  # the packages that travelled here with the job, before any installed ones
    if "OMP_NUM_THREADS" not in os.environ:  # one core is what a task is given
        os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

# By stage of the pass. mrjob wants one job class per file: its local runner runs the file.
_CLASSES = {
    "sample": "SampleJob",
    "coefficients": "CoefficientsJob",
    "moments": "MomentsJob",
    "embed": "EmbedJob",
    "kmeans": "KMeansJob",
    "assign": "AssignJob",
    "predict": "PredictJob",
}


def job_for(stage: str) -> type:
    """Return the job class that runs passes of a stage.

    Raises
    ------
    InputError
        If mrjob is missing or does not work with this Python.
    """
    return getattr(import_module(f"mr_jobs.{stage}"), _CLASSES[stage])
