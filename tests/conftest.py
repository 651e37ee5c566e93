"""Fixtures of more than one file of tests."""

from __future__ import annotations

import pytest


@pytest.fixture
def fake(monkeypatch):
    """An HDFS in this process, and a client that hardly waits before it tries again."""
    from fake_webhdfs import FakeHdfs

    from apnc.hdfs import web

    monkeypatch.setattr(web, "FIRST_PAUSE", 0.001)
    hdfs = FakeHdfs()
    yield hdfs
    hdfs.close()
