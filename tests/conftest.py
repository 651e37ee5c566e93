"""Fixtures of more than one file of tests."""

from __future__ import annotations

import signal

import pytest

# started in the background of a shell, tests would ignore SIGINT, and so would what they start and interrupt
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def out(tmp_path):
    """The folder that a run is told to write."""
    return tmp_path / "out"


@pytest.fixture
def fake(monkeypatch):
    """An HDFS in this process, and a client that hardly waits before it tries again."""
    from fake_webhdfs import FakeHdfs

    from apnc.hdfs import web

    monkeypatch.setattr(web, "FIRST_PAUSE", 0.001)
    hdfs = FakeHdfs()
    yield hdfs
    hdfs.close()
