"""Every test in this folder is marked ``hadoop`` and shares one cluster, started when the first test asks for it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .cluster import Cluster, missing_tools, prepare
from .runs import RUNS

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.hadoop)


@pytest.fixture(scope="session")
def hadoop_tools():
    """Java and Maven are here. Without them tests are skipped, but on CI they fail: there they must have run."""
    missing = missing_tools()
    if missing:
        if os.environ.get("CI", "").lower() in ("1", "true"):
            pytest.fail(missing)
        pytest.skip(missing)
    prepare()


@pytest.fixture(scope="session")
def cluster(request):
    """The session's cluster: that of APNC_HADOOP_FOLDER, which is left running, or one for this session."""
    folder = os.environ.get("APNC_HADOOP_FOLDER")
    if folder:
        yield Cluster.attach(folder)
        return
    request.getfixturevalue("hadoop_tools")
    with Cluster() as cluster:
        yield cluster


def _find_cluster(cluster, patch):
    """Let this process find the cluster as a user's would."""
    for name in ("PATH", "HADOOP_HOME", "HADOOP_CONF_DIR", "JAVA_HOME"):
        patch.setenv(name, cluster.env[name])


@pytest.fixture
def on_this_cluster(cluster, monkeypatch):
    """The cluster, for this process too."""
    _find_cluster(cluster, monkeypatch)
    return cluster


@pytest.fixture
def on_cluster(on_this_cluster):
    """The same, with no runs on HDFS."""
    on_this_cluster.delete(RUNS)  # what earlier tests have left, and failed for, if it mattered
    return on_this_cluster


@pytest.fixture(scope="module")
def on_cluster_throughout(cluster):
    """The cluster, for this process too, from the first test of a file that asks for it to the last."""
    with pytest.MonkeyPatch.context() as patch:
        _find_cluster(cluster, patch)
        yield cluster


@pytest.fixture(autouse=True)
def _healed_cluster(request):
    """What a test breaks, or leaves running when it fails, is repaired before the next one."""
    yield
    if "cluster" in request.fixturenames:
        request.getfixturevalue("cluster").heal()
