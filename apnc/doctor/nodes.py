"""What the reports of nodes say, as lines of the table."""

from __future__ import annotations

import re
from collections.abc import Iterable

from apnc import packing
from apnc.doctor.table import Table, with_unit
from apnc.doctor.this_machine import is_old
from apnc.packing import OLDEST_PYTHON, TASK_PACKAGES

MOST_NODES = 20  # with a line of their own


class NodeReports:
    """Turns what tasks told into lines of the table.

    Parameters
    ----------
    table : Table
    python : str
        The interpreter asked for.
    env : apnc.packing.Env or None
    data : Input or None
    reports : iterable of dict
        As `apnc.doctor.cluster.parsed` makes them.
    """

    def __init__(self, table: Table, python: str, env, data, reports: Iterable[dict]):
        self.table, self.python, self.env, self.data = table, python, env, data
        self.reports = {report["node"]: report for report in reports}  # one a node
        self.facts = {node: _by_name(report) for node, report in sorted(self.reports.items())}

    def tell(self, running: int) -> None:
        """Say all of it.

        Parameters
        ----------
        running : int
            Nodes there are; 0 where that is not known.
        """
        of = f" of {running}" if running else ""
        self.table.ok(
            "nodes", f"{len(self.reports)}{of} answered{'' if self._all(running) else '; more with --splits'}"
        )
        self._python()
        started = {node: facts for node, facts in self.facts.items() if "python" in facts}
        self._each(started)
        started = {node: facts for node, facts in started.items() if _minor(facts["python"]) >= OLDEST_PYTHON}
        started = self._fitting(started)
        if not started:
            self.table.skip("node packages", "not looked at: what failed above comes first")
            return
        self._import(started, "mr_jobs.base", "apnc, mrjob", "", "")
        for package in TASK_PACKAGES:
            remedy = "bring it along (apnc pack-env, then --env), or install it"
            if self.env is not None:
                remedy = "make the archive of --env again with apnc pack-env"
            self._import(started, package.module, package.name, package.without, remedy, package)
        self._limits(started)
        self._reading(started)

    def _all(self, running):
        return len(self.reports) >= running

    def _python(self):
        by_fault, versions = {}, {}
        for node, report in self.reports.items():
            fact = self.facts[node].get("python")
            if fact is None:
                code = report["code"]
                text = f"cannot be run (code {code}{': ' + report['said'] if report['said'] else ''})"
                by_fault.setdefault(text, []).append(node)
            elif _minor(fact) < OLDEST_PYTHON:
                by_fault.setdefault(f"is {fact['version']}, 3.11 or newer is needed", []).append(node)
            else:
                versions.setdefault(f"{fact['version']} ({fact['executable']})", []).append(node)
        for text, nodes in by_fault.items():
            self.table.fail("node Python", f"{self.python} {text}{self._on(nodes)}: name another with --python-bin")
        if versions:
            self.table.ok("node Python", self._spread(versions))

    def _each(self, started):
        for node, facts in list(started.items())[:MOST_NODES]:
            fact = facts["python"]
            libc = f", {fact['libc']}" if fact.get("libc") else ""
            size = ""
            if fact.get("cores") and fact.get("memory"):
                size = f", {fact['cores']} cores, {with_unit(fact['memory'])}"
            self.table.ok("node", f"{node}: Python {fact['version']}, {fact['system']} {fact['machine']}{libc}{size}")
        if len(started) > MOST_NODES:
            self.table.ok("node", f"and {len(started) - MOST_NODES} more")

    def _fitting(self, started):
        """Return the nodes that can use the archive of --env, which are all of them without one."""
        if self.env is None or not started:
            return started
        manifest, faults = self.env.manifest, {}
        for node, facts in started.items():
            fact = facts["python"]
            fault = manifest.misfit(fact["minor"], fact["system"], fact["machine"], fact.get("libc", ""))
            if fault:
                faults.setdefault((fault, _remedy(manifest, fact)), []).append(node)
        for (fault, remedy), nodes in faults.items():
            other = f"name Python {manifest.python} with --python-bin, or make another: " if "Python" in fault else ""
            self.table.fail("node --env", f"{fault}{self._on(nodes)}: {other}{remedy}")
        if not faults:
            self.table.ok("node --env", "fits")
        unfit = {node for nodes in faults.values() for node in nodes}
        return {node: facts for node, facts in started.items() if node not in unfit}

    def _import(self, started, module, name, without, remedy, package=None):
        good, old, bad = {}, {}, {}
        for node, facts in started.items():
            fact = facts.get(module) or {"error": "not tried, since Python ended before"}
            if "trying" in fact:
                fact = {"error": f"ends the interpreter (code {self.reports[node]['code']})"}
            if "error" in fact:
                bad.setdefault(_missing(fact["error"], module), []).append(node)
            elif package is not None and is_old(package, fact["version"]):
                old.setdefault(fact["version"], []).append(node)
            else:
                good.setdefault(self._origin(fact, module), []).append(node)
        say = self.table.warn if without else self.table.fail
        for version, nodes in old.items():
            say(f"node {name}", f"{version}{self._on(nodes)}, {package.least} or newer is needed: {remedy}")
        for text, nodes in bad.items():
            say(f"node {name}", f"{text}{self._on(nodes)}: {without or remedy or 'name another with --python-bin'}")
        if good:
            self.table.ok(f"node {name}", self._spread(good))

    def _origin(self, fact, module):
        if module == "mr_jobs.base":
            return "travel with every job"
        return fact["version"] + (" from --env" if packing.FOLDER in fact["place"] else "")

    def _limits(self, started):
        limits = {}
        for node, facts in started.items():
            if facts["python"].get("limit"):
                limits.setdefault(facts["python"]["limit"], []).append(node)
        for limit, nodes in limits.items():
            self.table.warn("node limit", f"a process may address {with_unit(limit)} only (ulimit -v){self._on(nodes)}")

    def _reading(self, started):
        faults = {}
        for node, facts in started.items():
            fact = facts.get("read")
            if fact and ("error" in fact):
                faults.setdefault(fact["error"], []).append(node)
        binary = self.data is not None and self.data.spec.format not in ("csv", "svmlight")
        for error, nodes in faults.items():
            text = f"cannot be read{self._on(nodes)} ({error}), as npy and bz2 input is: open the NameNode's HTTP port"
            (self.table.fail if binary else self.table.warn)("node WebHDFS", f"{text} to it, or use csv or svmlight")
        if not faults and any("read" in facts for facts in started.values()):
            self.table.ok("node WebHDFS", "can be read")

    def _on(self, nodes):
        if len(nodes) == len(self.reports):
            return " on all nodes" if len(nodes) > 1 else f" on {nodes[0]}"
        shown = ", ".join(nodes[:3])
        return f" on {shown}" + (f" and {len(nodes) - 3} more" if len(nodes) > 3 else "")

    def _spread(self, values):
        if len(values) == 1:
            return next(iter(values))
        return "; ".join(f"{text}{self._on(nodes)}" for text, nodes in values.items())


def _minor(fact):
    return tuple(int(part) for part in fact["minor"].split("."))


def _by_name(report):
    """Return a task's facts by what they are of; what was begun and never told is left as begun."""
    out = {}
    for fact in report["facts"]:
        if fact["what"] == "trying":
            name = "read" if fact["kind"] == "read" else fact["name"]
            out[name] = {"trying": True}
        elif fact["what"] in ("python", "read"):
            out[fact["what"]] = fact
        else:
            out[fact["name"]] = fact
    return out


def _missing(error, module):
    found = re.match(r"(?:ModuleNotFoundError|ImportError): No module named '?([^'\s]+)", error)
    if not found:
        return f"cannot be imported ({error})"
    return "is missing" if found[1] == module.partition(".")[0] else f"needs {found[1]}, which is missing"


def _remedy(manifest, fact):
    """Return the command that makes an archive for a node."""
    words = (
        ["apnc pack-env", f"--python-version {fact['minor']}"]
        if fact["minor"] != manifest.python
        else ["apnc pack-env"]
    )
    libc = fact.get("libc", "")
    if (fact["system"], fact["machine"]) != (manifest.system, manifest.machine) or manifest.misfit(
        manifest.python, fact["system"], fact["machine"], libc
    ):
        version = libc.removeprefix("glibc ") if libc.startswith("glibc ") else "2.17"
        words.append(f"--platform manylinux_{'_'.join(version.split('.')[:2])}_{fact['machine']}")
    return " ".join(words)
