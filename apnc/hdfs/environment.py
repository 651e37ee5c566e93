"""Where Hadoop is, and how it is configured, on this machine."""

from __future__ import annotations

import getpass
import os
import re
import shutil
from collections.abc import Iterator
from xml.etree import ElementTree

from apnc.errors import InputError

CONFIGURATION_FILES = ("core-site.xml", "hdfs-site.xml", "yarn-site.xml", "mapred-site.xml")
HOMES = ("HADOOP_HOME", "HADOOP_PREFIX", "HADOOP_COMMON_HOME", "HADOOP_INSTALL")


def find_hadoop() -> str | None:
    """Return the path of the ``hadoop`` command: on PATH, or below HADOOP_HOME or the like."""
    found = shutil.which("hadoop")
    if found:
        return found
    for variable in HOMES:
        home = os.environ.get(variable)
        if home and os.access(path := os.path.join(home, "bin", "hadoop"), os.X_OK):
            return path
    return None


def configuration() -> dict[str, str]:
    """Return Hadoop's properties from the first folder that has a core-site.xml; empty when there is none.

    HADOOP_CONF_DIR, etc/hadoop below HADOOP_HOME or the like, that beside the ``hadoop`` command, /etc/hadoop/conf.
    """
    for folder in _configuration_folders():
        if os.path.isfile(os.path.join(folder, CONFIGURATION_FILES[0])):
            properties: dict[str, str] = {}
            for name in CONFIGURATION_FILES:
                properties |= _properties(os.path.join(folder, name))
            return {key: _substituted(value, properties) for key, value in properties.items()}
    return {}


def _configuration_folders() -> Iterator[str]:
    if folder := os.environ.get("HADOOP_CONF_DIR"):
        yield folder
    for variable in HOMES:
        if home := os.environ.get(variable):
            yield os.path.join(home, "etc", "hadoop")
            yield os.path.join(home, "conf")
    if command := find_hadoop():
        yield os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(command))), "etc", "hadoop")
    yield "/etc/hadoop/conf"


def _properties(path) -> dict[str, str]:
    try:
        root = ElementTree.parse(path).getroot()
    except FileNotFoundError:
        return {}
    except (OSError, ElementTree.ParseError) as error:
        raise InputError(f"{path}: cannot be read as Hadoop's configuration ({error})") from None
    found = {}
    for entry in root.iter("property"):
        name, value = entry.findtext("name"), entry.findtext("value")
        if name and value is not None:
            found[name.strip()] = value.strip()
    return found


def _substituted(value: str, properties: dict[str, str]) -> str:
    for _ in range(20):  # as many as Hadoop allows
        match = next((m for m in re.finditer(r"\$\{([^{}$\s]+)\}", value) if _variable(m[1], properties)), None)
        if match is None:
            break
        value = value.replace(match[0], _variable(match[1], properties))
    return value


def _variable(name, properties):
    if name.startswith("env."):
        return os.environ.get(name[4:])
    return properties.get(name) or {"user.name": user()}.get(name)


def user() -> str:
    """Return whom Hadoop takes this process for: HADOOP_USER_NAME, or its user."""
    if named := os.environ.get("HADOOP_USER_NAME"):
        return named
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return "hadoop"
