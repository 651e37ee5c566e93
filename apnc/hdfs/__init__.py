"""HDFS: through WebHDFS where it answers, else through the ``hadoop fs`` command. Standard library only.

Map tasks import this too, so it must be quick to import. Paths are plain text as in Hadoop's own commands, absolute
and without a scheme; nothing in them is an escape. `connect` finds the file system of a URI::

    filesystem = connect("hdfs:///data/x.csv")
    _, path = split("hdfs:///data/x.csv")
    with filesystem.open(path, offset=1 << 20) as stream:
        for chunk in stream: ...

Both kinds of file system have the same methods. `WebHdfs` may be used by several threads at a time.
"""

from apnc.hdfs.command import HadoopFs
from apnc.hdfs.common import ContentSummary, FileStatus, HdfsError, HdfsRefused, Stream, split
from apnc.hdfs.connecting import SCHEMES, at, connect
from apnc.hdfs.environment import configuration, find_hadoop, user
from apnc.hdfs.web import WebHdfs

_user = user  # as mr_jobs.yarn imports it
__all__ = [
    "SCHEMES",
    "ContentSummary",
    "FileStatus",
    "HadoopFs",
    "HdfsError",
    "HdfsRefused",
    "Stream",
    "WebHdfs",
    "at",
    "configuration",
    "connect",
    "find_hadoop",
    "split",
    "user",
]
