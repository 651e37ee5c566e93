"""What YARN's web services tell and do: applications by tag, their end, and why a task failed."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from html.parser import HTMLParser
from urllib.parse import quote

from apnc.hdfs import _user

ANSWER_SECONDS = 10
HISTORY_SECONDS = 10  # until the JobHistoryServer knows of a job that has just ended
LOG_BYTES = 1 << 18  # of a task's stderr, from its end
MAXIMUM = "yarn.scheduler.maximum-allocation-mb"
ENDED = ("FINISHED", "FAILED", "KILLED")
_CONTAINER = re.compile(r'(?<=File ")\S*/container_\w+/')  # where a task ran: the same for all files of ours
_FRAME = re.compile(r'  File "(.*)", line (\d+), in (.*)')
# thrown by what decompresses, and not by what it reads from
_DECOMPRESSING = re.compile(
    r"java\.(?:io|util\.zip)\.\w+(?:: (.*))?\n"
    r"\s*at (?:java\.base/)?(?:org\.apache\.hadoop\.io\.compress|java\.util\.zip)\."
    r"[\w.]*(?:Decompress|Inflate|GZIPInput)"
)
ENDS_EARLY = "Unexpected end of input stream"  # in the words of Hadoop
_SPLIT = re.compile(r"Processing split: (\S.*):\d+\+\d+\s*$", re.MULTILINE)


@dataclass
class Attempt:
    """A task attempt that failed: where, and what is known of why."""

    attempt: str
    host: str = ""
    container: str = ""
    diagnostics: str = ""
    log: str = ""

    @property
    def kind(self) -> str:
        return "reduce" if "_r_" in self.attempt else "map"

    @property
    def place(self) -> str:
        return f"container {self.container} on {self.host}" if self.container else f"attempt {self.attempt}"


class Yarn:
    """A cluster's ResourceManager, JobHistoryServer and NodeManagers.

    Parameters
    ----------
    properties : dict
        Hadoop's configuration.
    command : str
        The ``hadoop`` command, beside which ``yarn`` is looked for where the web services do not do.
    """

    def __init__(self, properties: dict[str, str], command: str | None = None):
        self._managers = _addresses(properties)
        self._history = _history_address(properties, self._managers)
        self._command = command

    # applications

    def metrics(self) -> dict | None:
        """Return the ResourceManager's view of the cluster, None where it does not answer."""
        answer = self._ask("/ws/v1/cluster/metrics")
        return answer and answer.get("clusterMetrics")

    def slots(self, memory_mb: int) -> int:
        """Return how many containers of that size the cluster holds, one where that is not known."""
        found = self.metrics()
        if not found:
            return 1
        return max(1, min(int(found["totalMB"]) // memory_mb, int(found["totalVirtualCores"])))

    def largest_container(self) -> int | None:
        """Return the MiB of the largest container that there may be, None where that is not known.

        As the ResourceManager sees it: its own setting, and no more than its largest node has.
        """
        found = []
        answer = self._ask(f"/conf?name={MAXIMUM}")
        with suppress(KeyError, TypeError, ValueError):
            found.append(int(answer["property"]["value"]))
        answer = self._ask("/ws/v1/cluster/nodes?states=RUNNING")
        with suppress(KeyError, TypeError, ValueError):
            found.append(
                max(int(node["usedMemoryMB"]) + int(node["availMemoryMB"]) for node in answer["nodes"]["node"])
            )
        return min(found, default=None)

    def unfinished(self, tag: str) -> list[str] | None:
        """Return the ids of applications under a tag that have not ended; None where nobody answers."""
        answer = self._ask(f"/ws/v1/cluster/apps?applicationTags={quote(tag)}")
        if answer is None:
            return None
        apps = (answer.get("apps") or {}).get("app") or []
        return [app["id"] for app in apps if app["state"] not in ENDED]

    def end(self, tag: str, known: str | None = None, seconds: float = 20) -> list[str]:
        """End all applications under a tag and wait until they have; return the ids of those that would not end."""
        ended, deadline = set(), time.monotonic() + seconds
        while True:
            left = self.unfinished(tag)
            if left is None:
                if known and known not in ended:
                    return [] if self._by_command(known) else [known]
                return []
            for application in left:
                if application not in ended:
                    ended.add(application)
                    if not self._kill(application):
                        self._by_command(application)
            if not left or time.monotonic() > deadline:
                return left
            time.sleep(0.1)

    def _kill(self, application):
        for address in self._managers:
            url = f"http://{address}/ws/v1/cluster/apps/{application}/state?user.name={quote(_user())}"
            request = urllib.request.Request(
                url, b'{"state":"KILLED"}', {"Content-Type": "application/json"}, method="PUT"
            )
            with suppress(OSError, http.client.HTTPException), urllib.request.urlopen(request, timeout=ANSWER_SECONDS):
                return True
        return False

    def _by_command(self, application):
        command = self._yarn_command()
        if command is None:
            return False
        done = subprocess.run(
            [command, "application", "-kill", application], stdin=subprocess.DEVNULL, capture_output=True
        )
        return done.returncode == 0

    def _yarn_command(self):
        beside = self._command and os.path.join(os.path.dirname(self._command), "yarn")
        return beside if beside and os.access(beside, os.X_OK) else shutil.which("yarn")

    def diagnostics(self, application: str) -> str:
        """Return what the ResourceManager says about an application's end."""
        answer = self._ask(f"/ws/v1/cluster/apps/{application}") or {}
        return (answer.get("app") or {}).get("diagnostics") or ""

    # a failure

    def failed_attempt(self, application: str, attempts: list[tuple[str, str]]) -> Attempt | None:
        """Return the attempt that tells most about why a job failed.

        Parameters
        ----------
        application : str
        attempts : list of (str, str)
            Those that its client heard of, and what it heard.
        """
        found = self._from_history(application) or [Attempt(name, diagnostics=text) for name, text in attempts]
        heard = dict(attempts)
        for attempt in found:
            said = dict.fromkeys([attempt.diagnostics, heard.get(attempt.attempt, "")])
            attempt.diagnostics = "\n".join(said).strip()
        for attempt in found[:3]:
            attempt.log = self._log(application, attempt)
            if "Traceback (most recent call last)" in attempt.log:
                return attempt
        return found[0] if found else None

    def _from_history(self, application):
        """Return the failed attempts that the JobHistoryServer knows of, those of failed tasks first."""
        job = application.replace("application_", "job_")
        base = f"/ws/v1/history/mapreduce/jobs/{job}"
        deadline = time.monotonic() + HISTORY_SECONDS
        while (answer := self._get(self._history, f"{base}/tasks")) is None:
            if time.monotonic() > deadline or self._get(self._history, "/ws/v1/history/info") is None:
                return []
            time.sleep(0.3)
        tasks = (answer.get("tasks") or {}).get("task") or []
        tasks.sort(key=lambda task: (task["state"] != "FAILED", task["id"]))
        out = []
        for task in tasks[:20]:
            if task["state"] == "SUCCEEDED" and out:
                break
            answer = self._get(self._history, f"{base}/tasks/{task['id']}/attempts") or {}
            some = (answer.get("taskAttempts") or {}).get("taskAttempt") or []
            failed = [a for a in some if a["state"] == "FAILED"]
            out += [
                Attempt(
                    a["id"], a.get("nodeHttpAddress", ""), a.get("assignedContainerId", ""), a.get("diagnostics") or ""
                )
                for a in reversed(failed)
            ]
        return out

    def input_of(self, application: str, attempt: Attempt) -> str | None:
        """Return the URI of the file that a map attempt has read, None where its log does not tell."""
        found = _SPLIT.findall(self._log(application, attempt, "syslog"))
        return found[-1] if found else None

    def _log(self, application, attempt, name="stderr"):
        """Return the end of a log of an attempt, from its node or from where logs are gathered."""
        if attempt.container:
            path = f"/ws/v1/node/containers/{attempt.container}/logs/{name}?size=-{LOG_BYTES}"
            text = _fetch(f"http://{attempt.host}{path}")
            if text is not None and "\nEnd of LogType:" not in text:
                return text
            if text is not None:
                return _content(text)
            page = f"/node/containerlogs/{attempt.container}/{quote(_user())}/{name}/?start=-{LOG_BYTES}"
            text = _fetch(f"http://{attempt.host}{page}")
            if text is not None:
                return _Text.of(text)
        command = self._yarn_command()
        if command is None:
            return ""
        args = [command, "logs", "-applicationId", application, "-log_files", name]
        if attempt.container:
            args += ["-containerId", attempt.container]
        try:
            done = subprocess.run(args, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return done.stdout.decode("utf-8", "replace")[-LOG_BYTES:]

    # requests

    def _ask(self, path):
        for address in self._managers:
            answer = self._get(address, path)
            if answer is not None:
                return answer
        return None

    def _get(self, address, path):
        text = _fetch(f"http://{address}{path}", "application/json") if address else None
        try:
            return text and json.loads(text)
        except ValueError:
            return None


def _fetch(url, accept="*/*"):
    request = urllib.request.Request(url, headers={"Accept": accept})
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
            return answer.read().decode("utf-8", "replace")
    except (OSError, http.client.HTTPException, ValueError):
        return None


def _content(text):
    """Return the log in the frame that newer NodeManagers put around it."""
    _, _, text = text.partition("LogContents:\n")
    return text.rpartition("\nEnd of LogType:")[0]


class _Text(HTMLParser):
    """The text of <pre> in a page."""

    def __init__(self):
        super().__init__()
        self.parts, self._inside = [], False

    def handle_starttag(self, tag, attrs):
        self._inside = self._inside or tag == "pre"

    def handle_endtag(self, tag):
        self._inside = self._inside and tag != "pre"

    def handle_data(self, data):
        if self._inside:
            self.parts.append(data)

    @classmethod
    def of(cls, page):
        parser = cls()
        parser.feed(page)
        return "".join(parser.parts)


def _addresses(properties):
    """Return where ResourceManagers serve HTTP."""
    ids = [i.strip() for i in properties.get("yarn.resourcemanager.ha.rm-ids", "").split(",") if i.strip()]
    enabled = properties.get("yarn.resourcemanager.ha.enabled", "false").lower() == "true"
    suffixes = [f".{i}" for i in ids] if enabled and ids else [""]
    out = []
    for suffix in suffixes:
        host = properties.get(f"yarn.resourcemanager.hostname{suffix}", "0.0.0.0")
        address = properties.get(f"yarn.resourcemanager.webapp.address{suffix}", f"{host}:8088")
        out.append(address.replace("0.0.0.0", "localhost" if host == "0.0.0.0" else host))
    return out


def _history_address(properties, managers):
    address = properties.get("mapreduce.jobhistory.webapp.address", "0.0.0.0:19888")
    if address.startswith("0.0.0.0"):
        host = properties.get("mapreduce.jobhistory.address", "").partition(":")[0]
        if host in ("", "0.0.0.0"):
            host = managers[0].partition(":")[0]
        address = address.replace("0.0.0.0", host)
    return address


# Words for it


def last_traceback(log: str) -> str:
    """Return the last Python traceback of a log, empty if it has none."""
    head = "Traceback (most recent call last):\n"
    _, found, text = log.rpartition(head)
    if not found:
        return ""
    lines = []
    for line in text.splitlines():
        lines.append(line)
        if line and not line[0].isspace():
            break
    return _CONTAINER.sub("", head + "\n".join(lines))


def damage(attempt: Attempt) -> str | None:
    """Return what Java says of the compressed input of a map attempt if that is why it failed, None if it is not."""
    if attempt.kind != "map":
        return None
    found = _DECOMPRESSING.search(attempt.diagnostics)
    if found:
        return found[1] or "no valid data"
    return ENDS_EARLY if ENDS_EARLY in attempt.diagnostics else None


def explained(attempt: Attempt, python: str, settings: dict[str, str]) -> tuple[str, str]:
    """Return why an attempt failed in one line that says what to do, and the traceback, if that is the reason."""
    said = attempt.diagnostics
    memory = f"mapreduce.{attempt.kind}.memory.mb"
    given = settings.get(memory, "1024")
    raised = f"--jobconf {memory}={2 * int(given) if given.isdigit() else 2048}"
    if "beyond the 'PHYSICAL' memory limit" in said or "beyond physical memory limits" in said:
        used = re.search(r"([\d.]+ [KMGT]?B) of ([\d.]+ [KMGT]?B) physical memory used", said)
        amount = f" ({used[1]} of {used[2]} used)" if used else ""
        return f"it was killed for memory, running beyond physical memory limits{amount}; raise it with {raised}", ""
    traceback = last_traceback(attempt.log)
    if traceback:
        cause = traceback.splitlines()[-1]
        frames = _FRAME.findall(traceback)
        if frames:
            path, line, name = frames[-1]
            cause += f" ({os.path.join(*path.split(os.sep)[-2:])} line {line}, in {name})"
        missing = re.match(r"(?:ModuleNotFoundError|ImportError): No module named '([^'.]+)", cause)
        if missing:
            cause = (
                f"Python package {missing[1]} is missing on the node; bring it along (apnc pack-env, then --env), "
                f"install it for {python} on all nodes, or name another interpreter with --python-bin"
            )
            return cause, ""
        elif "MemoryError" in cause.split(":")[0]:
            cause += f"; raise the task's memory with {raised}"
        return cause, traceback
    if re.search(r"Cannot run program .*error=(2|13),", said) or "code 127" in said or "code 126" in said:
        return (
            f"the interpreter {python} cannot be run on the node (code 127); name one that is there on every node "
            "with --python-bin"
        ), ""
    code = re.search(r"subprocess failed with code (\d+)|[Ee]xit code(?: is| from container \S+ is ?:?)? ?(\d+)", said)
    code = code and (code[1] or code[2])
    if code in ("137", "143"):
        return (
            f"its process was killed (code {code}), as happens to one that uses too much memory; if so, raise it with "
            f"{raised}"
        ), ""
    if "EOFException" in said or "ZipException" in said or "not a gzip" in said or "invalid stored block" in said:
        return f"a compressed file is damaged or not complete ({_line(said)})", ""
    if code:
        last = [line for line in attempt.log.splitlines() if line.strip() and not line.startswith("reporter:")][-1:]
        return f"its process ended with code {code}" + (f": {last[0].strip()}" if last else ""), ""
    return _line(said) or "for a reason that no log tells", ""


def _line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("at ")]
    causes = [line for line in lines if line.startswith("Caused by:")]
    return (causes or lines or [""])[-1 if causes else 0]
