"""What ``apnc doctor`` looks at on this machine: packages, memory, and the input if one is given."""

from __future__ import annotations

import platform
import re
import shutil
import sys
import tempfile
from contextlib import suppress
from importlib import import_module, metadata
from pathlib import Path

import apnc
from apnc.doctor.probe import reason
from apnc.doctor.table import Table, with_unit
from apnc.errors import ApncError
from apnc.packing import OLDEST_PYTHON, TASK_PACKAGES, TaskPackage, version_key
from apnc.threads import cores

DRIVER_PACKAGES = (  # here scikit-learn makes scores and estimators too
    *(p._replace(without="") if p.name == "scikit-learn" else p for p in TASK_PACKAGES),
    TaskPackage("rich", "rich", "13"),
)
ASSUMED_WIDTH, ASSUMED_ROWS = 1000, 10**6  # where no input is given


def packages_here(table: Table, runner: str) -> None:
    """Check interpreter and packages of this process."""
    found = platform.python_version()
    table.ok("apnc", f"{apnc.__version__} ({Path(apnc.__file__).parent})")
    if sys.version_info[:2] < OLDEST_PYTHON:
        table.fail("Python", f"{found} ({sys.executable}): 3.11 or newer is needed")
    else:
        table.ok("Python", f"{found} ({sys.executable})")
    for package in DRIVER_PACKAGES:
        _package_here(table, package)
    _mrjob_here(table, runner)
    _blas(table)


def _package_here(table, package):
    try:
        module = import_module(package.module)
        version = _version(module, package.name)
    except Exception as error:
        text = f"cannot be imported ({reason(error)})"
        if isinstance(error, ModuleNotFoundError):
            text = "is not installed"
        if package.without:
            table.warn(package.name, f"{text}: {package.without}")
        else:
            table.fail(package.name, f"{text}: {sys.executable} -m pip install '{package.name}>={package.least}'")
        return
    _say_version(table, package, version, f"{sys.executable} -m pip install -U {package.name}")


def _version(module, name):
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(name)
    return str(getattr(module, "__version__", ""))


def is_old(package: TaskPackage, version: str) -> bool:
    """Return whether a version is older than is needed; one without numbers is not."""
    return bool(version_key(version)) and version_key(version) < version_key(package.least)


def _say_version(table, package, version, remedy):
    if is_old(package, version):
        text = f"{version}: {package.least} or newer is needed: {remedy}"
        (table.warn if package.without else table.fail)(package.name, text)
    else:
        table.ok(package.name, version)


def _mrjob_here(table, runner):
    try:
        import_module("mr_jobs.base")
        import mrjob
    except Exception as error:
        if runner == "in-process":
            table.warn("mrjob", f"{error}: only --runner in-process works")
        else:
            table.fail("mrjob", f"{error}, or choose --runner in-process")
        return
    table.ok("mrjob", mrjob.__version__)


def _blas(table):
    """Say which BLAS does the work: passes give each of its calls one thread, and have a thread for each core."""
    threads = cores()
    try:
        from threadpoolctl import threadpool_info

        found = [i for i in threadpool_info() if i.get("user_api") == "blas"]
    except Exception:
        found = []
    libraries = sorted({f"{i['internal_api']} {i.get('version') or ''}".strip() for i in found})
    text = f"{', '.join(libraries)}; passes use {threads} threads, one for each core"
    quota = _core_quota()
    if not libraries:
        table.warn("BLAS", "none that threadpoolctl knows: set OMP_NUM_THREADS=1, or threads fight over the cores")
    elif quota and quota < 0.75 * threads:
        table.warn("BLAS", f"{text}, but this container may use only {quota:.3g}: start it with as many (taskset)")
    else:
        table.ok("BLAS", text)


def _core_quota():
    """Return the cores that a control group allows, None without a limit."""
    with suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return int(quota) / int(period)
    return None


def available_memory() -> int | None:
    """Return the bytes that a process may take now, None where that is not known."""
    amounts = []
    with suppress(OSError, ValueError, AttributeError):
        found = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
        amounts.append(int(found[1]) << 10)
    with suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        amounts.append(int((group / "memory.max").read_text()) - int((group / "memory.current").read_text()))
    return min(amounts, default=None)


def memory_here(table: Table, settings, data, budget_mib: int) -> None:
    """Compare what a run in this process would take with what there is, and say where a large embedding goes."""
    threads = cores()
    first, *later = [needs for _, _, needs in stage_needs(settings, data)]
    asked = max(first.reduce, (budget_mib << 20) + threads * max(needs.map for needs in later))
    there = available_memory()
    text = f"a run takes up to about {with_unit(asked)}{assumed(data)}"
    if there is None:
        table.ok("memory", text)
    elif asked > there:
        table.warn("memory", f"{text}, {with_unit(there)} are free: lower --landmarks, --dim, --sample or --memory")
    else:
        table.ok("memory", f"{text}; {with_unit(there)} are free")
    folder = tempfile.gettempdir()
    try:
        with tempfile.TemporaryFile():
            table.ok("temporary", f"{folder}, {with_unit(shutil.disk_usage(folder).free)} free")
    except OSError as error:
        table.fail("temporary", f"{folder} cannot be written ({error.strerror}): name another folder in TMPDIR")


def given_input(table, options):
    """Return the input given, described; None without one, or if it cannot be read."""
    if not options.inputs:
        return None
    from apnc.options import described_input

    try:
        data = described_input(options)
    except (ApncError, OSError) as error:
        table.fail("input", str(error))
        return None
    size = sum(file.size for file in data.files)
    width = data.spec.width
    features = f"{width} features" if width else "features not known before the sample"
    count = "one file" if len(data.files) == 1 else f"{len(data.files)} files"
    table.ok("input", f"{data.spec.format}, {count}, {with_unit(size)}, {features}")
    return data


def stage_needs(settings, data):
    """Yield (stage, whether it has reduce tasks, `Needs`) of the passes of a run with these settings.

    Parameters
    ----------
    settings : Settings
    data : Input or None
        `ASSUMED_ROWS` rows of `ASSUMED_WIDTH` numbers without it.
    """
    from apnc.hadoop_settings import needs_of, passes_ahead

    width, sparse, rows, row_bytes = ASSUMED_WIDTH, False, ASSUMED_ROWS, 8.0 * ASSUMED_WIDTH
    if data is not None:
        width, sparse = data.spec.width or ASSUMED_WIDTH, data.spec.sparse
        rows, row_bytes = data.estimated_rows(), data.bytes_per_row()
    for step in passes_ahead(settings, width, sparse, rows):
        yield step.stage, hasattr(step, "merge"), needs_of(step, row_bytes, rows)


def assumed(data) -> str:
    """Return what to add to figures of memory that are for an assumed width; nothing where the width is known."""
    known = data is not None and data.spec.width
    return "" if known else f" (for rows of {ASSUMED_WIDTH} numbers; name the INPUT for its own)"
