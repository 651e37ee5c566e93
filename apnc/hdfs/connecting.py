"""From a URI to the file system that it names."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import NamedTuple

from apnc.errors import InputError
from apnc.hdfs import environment
from apnc.hdfs.command import HadoopFs
from apnc.hdfs.common import split
from apnc.hdfs.web import HTTP_PORT, WebHdfs

SCHEMES = ("hdfs", "webhdfs")


def connect(uri: str = "") -> WebHdfs | HadoopFs:
    """Return the file system of a URI; without one, that which Hadoop's configuration calls default.

    The same URI in the same environment gives the same object.

    Raises
    ------
    InputError
        If neither WebHDFS answers nor a ``hadoop`` command is there, saying what was tried.
    """
    where = split(uri)[0] if uri else "hdfs://"
    try:
        return _connected(where, _variables())
    except _Unreachable as error:
        raise InputError(f"{uri or where}: {error}") from None


def at(where: str) -> WebHdfs:
    """Return the file system at ``webhdfs://host:port`` without asking whether it answers."""
    return _at(where.partition("://")[2], _variables())


@lru_cache(32)
def _at(address, variables):
    return WebHdfs(address)


def _variables():
    names = ("PATH", "HADOOP_CONF_DIR", "HADOOP_HOME", "HADOOP_PREFIX", "HADOOP_USER_NAME")
    return tuple(os.environ.get(name) for name in names)


class _Unreachable(Exception):
    """Why no file system can be used."""


@lru_cache(32)
def _connected(where: str, variables) -> WebHdfs | HadoopFs:
    scheme, _, authority = where.partition("://")
    if scheme == "webhdfs":
        filesystem = _at(authority, variables)
        reason = filesystem.probe()
        if reason:
            raise _Unreachable(f"WebHDFS does not answer ({reason})")
        return filesystem
    if scheme != "hdfs":
        raise _Unreachable(f"{scheme}:// is no file system that can be read here; hdfs:// or webhdfs:// is needed")
    properties = environment.configuration()
    default = properties.get("fs.defaultFS") or properties.get("fs.default.name") or ""
    if not authority and default and not default.startswith("hdfs://"):
        raise _Unreachable(f"Hadoop's default file system is {default} (fs.defaultFS); give hdfs://HOST:PORT/PATH")
    authority = authority or split(default)[0].partition("://")[2]
    tried = _tried(authority, properties)
    for address in tried.addresses:
        filesystem = _at(address, variables)
        reason = filesystem.probe()
        if not reason:
            return filesystem
        tried.reasons.append(f"WebHDFS at {address}: {reason}")
    command = environment.find_hadoop()
    if command:
        return HadoopFs(f"hdfs://{authority}", command)
    tried.reasons.append("no hadoop command on PATH or in HADOOP_HOME")
    hint = ""
    if authority and "." not in authority and ":" not in authority and not properties:
        hint = f" (if {authority} is no host but a folder, write hdfs:///{authority}/…)"
    raise _Unreachable(f"HDFS cannot be reached: {'; '.join(tried.reasons)}{hint}")


class _Tried(NamedTuple):
    addresses: list[str]
    reasons: list[str]


def _tried(authority: str, properties: dict[str, str]) -> _Tried:
    """Return the addresses at which WebHDFS may answer for an authority, or the reason why there are none."""
    if not authority:
        return _Tried([], ["no configuration of Hadoop's found (HADOOP_CONF_DIR, HADOOP_HOME)"])
    if properties.get("dfs.webhdfs.enabled", "true").lower() == "false":
        return _Tried([], ["WebHDFS is turned off (dfs.webhdfs.enabled)"])
    if properties.get("hadoop.security.authentication", "simple") == "kerberos":
        return _Tried([], ["WebHDFS wants Kerberos (hadoop.security.authentication)"])
    if properties.get("dfs.http.policy") == "HTTPS_ONLY":
        return _Tried([], ["WebHDFS is served by HTTPS only (dfs.http.policy)"])
    host = authority.partition(":")[0]
    service = properties.get(f"dfs.ha.namenodes.{authority}")
    if service:  # one of these is active at a time
        nodes = [node.strip() for node in service.split(",") if node.strip()]
        keys = [f"{authority}.{node}" for node in nodes]
        hosts = [properties.get(f"dfs.namenode.rpc-address.{key}", host).partition(":")[0] for key in keys]
        return _Tried(
            [
                ",".join(
                    _http_address(properties.get(f"dfs.namenode.http-address.{key}"), own)
                    for key, own in zip(keys, hosts, strict=True)
                )
            ],
            [],
        )
    default = split(properties.get("fs.defaultFS") or properties.get("fs.default.name") or "")[0]
    known = None
    if default == f"hdfs://{authority}" or properties.get("dfs.namenode.rpc-address") == authority:
        known = properties.get("dfs.namenode.http-address") or properties.get("dfs.http.address")
    return _Tried([_http_address(known, host)], [])


def _http_address(configured: str | None, host: str) -> str:
    named, _, port = (configured or "").rpartition(":")
    return f"{host if named in ('', '0.0.0.0') else named}:{port or HTTP_PORT}"
