"""MapReduce jobs, one per file and stage: thin, each around a pass of apnc, each runnable by itself.

``python -m mr_jobs.sample -r local --output sample.npz data.csv``; ``--help`` tells the options of a job.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

# Before anything else is imported, NumPy above all:
IS_TASK = not {"--mapper", "--combiner", "--reducer"}.isdisjoint(sys.argv)
if IS_TASK:
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
