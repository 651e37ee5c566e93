"""Runs on the cluster: where they are on HDFS, how to wait for what they do, and that nothing is left of them."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import processes

from apnc import hdfs

RUNS = f"/user/{hdfs.user()}/tmp/apnc"
wait_for = partial(processes.wait_for, seconds=120, every=0.1)  # a cluster takes longer, and so does asking it


def nothing_left(cluster):
    """See to it that no run has its folder on HDFS any more, and no application runs."""
    with suppress(FileNotFoundError):
        left = cluster.list(RUNS)
        assert left == [], left
    running = [a for a in cluster.applications() if a["state"] not in ("FINISHED", "KILLED", "FAILED")]
    assert not running, running
