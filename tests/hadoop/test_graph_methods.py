"""The methods with passes of their own, on a real cluster: the clusters of this process, from as few passes."""

from __future__ import annotations

import sys

import pytest
from command_line import apnc, facts, labels, write_csv
from sklearn.datasets import make_blobs

METHODS = {
    "rank-restricted": ("--landmarks", "60", "--whiten"),
    "usenc": ("--representatives", "60", "--base-clusterings", "5", "--k-min", "4", "--k-max", "9"),
}
MOMENTS = {"rank-restricted": 1, "usenc": 2}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    x = make_blobs(900, 4, centers=4, cluster_std=1.0, random_state=3)[0].round(4)
    return write_csv(tmp_path_factory.mktemp("rows") / "x.csv", x)


@pytest.mark.parametrize("method", METHODS)
def test_clusters_are_those_of_this_process(method, source, on_this_cluster, tmp_path):
    given = ("-k", 4, "--method", method, *METHODS[method], "--passes", 1)
    # all tasks of a job in one container: half the time, and nothing here is about containers
    together = ("--jobconf", "mapreduce.job.ubertask.enable=true", "--jobconf", "mapreduce.job.ubertask.maxmaps=9")
    on_hadoop = ("--runner", "hadoop", "--python-bin", sys.executable, *together)
    there = (*on_hadoop, "--collect", "--splits", 3)
    assert apnc("cluster", source, "-o", tmp_path / "here", *given).status == 0
    found = apnc("cluster", source, "-o", tmp_path / "there", *given, *there)
    assert found.status == 0, found.err
    assert labels(tmp_path / "there") == labels(tmp_path / "here")
    counted = facts(tmp_path / "there")["hadoop"]
    assert counted["moments"]["jobs"] == MOMENTS[method]
    assert counted["embed"]["shuffle_bytes"] == 0
    if method == "usenc":  # the one of most parts
        apnc("predict", tmp_path / "there" / "model.npz", source, "-o", tmp_path / "again.csv", *on_hadoop).done()
        assert labels(tmp_path / "again.csv") == labels(tmp_path / "here")
