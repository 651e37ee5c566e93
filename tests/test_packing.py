"""The archive of packages for nodes that have none: what goes in, what is refused, and what is read back of it."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from configparser import ConfigParser
from importlib import metadata
from pathlib import Path

import pytest
from command_line import apnc, labels

from apnc import packing
from apnc.doctor.probe import c_library
from apnc.errors import InputError
from apnc.packing import Env, Manifest, TaskPackage, read_manifest

HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
ROOT = Path(__file__).parents[1]


def _wheel(folder, name, version, files, tag="py3-none-any", requires=()):
    """Write a wheel of text files."""
    info = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {other}\n" for other in requires)
    files = files | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    record = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / f"{name}-{version}-{tag}.whl", "w") as wheel:
        for path, text in [*files.items(), (f"{info}/RECORD", record)]:
            wheel.writestr(path, text)


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder of wheels, which is all that pip knows of."""
    folder = tmp_path / "index"
    folder.mkdir()
    _wheel(
        folder,
        "apnc_fake",
        "1.0",
        {
            "apnc_fake/__init__.py": "import apnc_helper\n__version__ = '1.0'\n",
            "apnc_fake/unused.py": "x = 1\n",
            "apnc_fake/__init__.pyi": "",
            "apnc_fake/tests/test_it.py": "x = 1\n",
            "apnc_fake/tests/data.csv": "1,2\n",
            "apnc_fake/tests/_helper.py": "x = 1\n",  # such as numpy.testing imports
            "apnc_fake/include/fake.h": "",
        },
        requires=["apnc_helper"],
    )
    _wheel(folder, "apnc_helper", "2.0", {"apnc_helper.py": "pass\n"})
    monkeypatch.setattr(packing, "TASK_PACKAGES", (TaskPackage("apnc-fake", "apnc_fake", "1"),))
    monkeypatch.setattr(packing, "_IMPORTED", ())
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return folder


def _names(path):
    with tarfile.open(path) as archive:
        return archive.getnames()


def _empty_archive(path, **values):
    """Write an archive of nothing for any nodes."""
    manifest = Manifest(**{"python": HERE, "system": "", "machine": "", "glibc": "", "packages": {}} | values)
    with open(path, "wb") as file:
        packing._write_archive(file, path.parent / "no-such-folder", manifest)
    return path


# What goes in


def test_task_packages_are_those_of_setup_cfg_in_the_same_versions():
    config = ConfigParser()
    config.read(ROOT / "setup.cfg")
    required = dict(re.findall(r"^([\w-]+)>=(\S+)$", config["options"]["install_requires"], re.MULTILINE))
    for package in packing.TASK_PACKAGES:
        assert required[package.name] == package.least
        assert metadata.version(package.name)
        __import__(package.module)


def test_what_no_task_imports_is_left_out_and_what_one_imports_is_compiled(index, tmp_path):
    out = tmp_path / "env.tar.gz"
    outcome = apnc("pack-env", "-o", out)
    assert outcome.status == 0, outcome.err
    assert "apnc_fake 1.0, apnc_helper 2.0" in outcome.out
    assert f"for Python {HERE}\n" in outcome.out
    tag = sys.implementation.cache_tag
    names = _names(out)
    assert names == [
        "apnc-env.json",
        f"__pycache__/apnc_helper.{tag}.pyc",
        "apnc_fake/__init__.py",
        f"apnc_fake/__pycache__/__init__.{tag}.pyc",
        "apnc_fake/tests/_helper.py",
        "apnc_fake/unused.py",
        "apnc_fake-1.0.dist-info/METADATA",
        "apnc_fake-1.0.dist-info/WHEEL",
        "apnc_helper-2.0.dist-info/METADATA",
        "apnc_helper-2.0.dist-info/WHEEL",
        "apnc_helper.py",
    ]
    assert sorted(tmp_path.iterdir()) == [out, index]


def test_the_same_wheels_make_the_same_bytes(index, tmp_path):
    for name in ("one", "two"):
        apnc("pack-env", "-o", tmp_path / f"{name}.tar.gz").done("pip is fetching")
    assert (tmp_path / "one.tar.gz").read_bytes() == (tmp_path / "two.tar.gz").read_bytes()


def test_packages_unpacked_elsewhere_are_imported_from_there_with_their_compiled_code(index, tmp_path):
    apnc("pack-env", "-o", tmp_path / "env.tar.gz")
    folder = tmp_path / packing.FOLDER
    with tarfile.open(tmp_path / "env.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    command = [sys.executable, "-S", "-v", "-c", "import apnc_fake; print(apnc_fake.__file__)"]
    env = {"PYTHONPATH": packing.FOLDER}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(folder / "apnc_fake/__init__.py")
    assert "code object from" in done.stderr
    assert re.search(r"matches .*apnc_fake/__init__\.py", done.stderr)


def test_a_library_that_another_needs_stays(tmp_path):
    for name, needs in (
        ("lib.so", b"libarrow_substrait.so.2600 libarrow_orc.so.2600"),
        ("libarrow_orc.so.2600", b""),
        ("libarrow_flight.so.2600", b""),
        ("libarrow_python_flight.so.2600", b"libarrow_flight.so.2600"),
    ):
        (tmp_path / name).write_bytes(b"\x7fELF" + needs)
    packing._prune_libraries(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lib.so", "libarrow_orc.so.2600"]


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ([["any"], ["manylinux_2_27_x86_64", "manylinux_2_28_x86_64"], ["manylinux2014_x86_64"]], "x86_64 2.27"),
        ([["manylinux_2_9_aarch64"], ["manylinux_2_17_aarch64"]], "aarch64 2.17"),
        ([["manylinux1_x86_64"], ["any"]], "x86_64 2.5"),
        ([["musllinux_1_2_x86_64"]], "x86_64 musl"),
        ([["any"]], " "),
    ],
)
def test_what_an_archive_needs_of_nodes_is_what_its_wheels_say(tags, expected):
    system, machine, glibc = packing._platform_of(tags)
    assert f"{machine} {glibc}" == expected
    assert system == ("linux" if machine else "")


def test_a_platform_stands_for_all_whose_wheels_work_there():
    names = packing._platforms("manylinux_2_28_x86_64")
    assert names[0] == "manylinux_2_28_x86_64"
    assert {"manylinux_2_17_x86_64", "manylinux2014_x86_64", "manylinux1_x86_64"} < set(names)
    assert "manylinux_2_29_x86_64" not in names
    old = packing._platforms("manylinux2010_i686")
    assert "manylinux_2_12_i686" in old
    assert not {"manylinux_2_13_i686", "manylinux2014_i686"} & set(old)


# What is refused


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("-o", "x.zip"), ("x.zip", ".tar.gz")),
        (("-o", "no/such/x.tar.gz"), ("no/such", "there is no folder")),
        (("-o", "taken.tar.gz"), ("taken.tar.gz", "--overwrite")),
        (("-o", "folder.tar.gz", "--overwrite"), ("folder.tar.gz", "is not a file")),
        (("-o", "x.tar.gz", "--python-version", "three"), ("--python-version three", "3.11")),
        (("-o", "x.tar.gz", "--python-version", "3.9"), ("--python-version 3.9", "3.11 or newer")),
        (("-o", "x.tar.gz", "--platform", "windows"), ("--platform windows", "manylinux_2_28_x86_64")),
        (("-o", "x.tar.gz", "--platform", "linux_ppc"), ("pip", "apnc-fake", "from versions: none", "wheels")),
    ],
)
def test_bad_values_get_one_line_and_leave_everything_as_it_was(index, tmp_path, monkeypatch, arguments, parts):
    monkeypatch.chdir(tmp_path)
    Path("taken.tar.gz").write_text("mine")
    Path("folder.tar.gz").mkdir()
    monkeypatch.delenv("PIP_FIND_LINKS")
    before = sorted(tmp_path.rglob("*"))
    outcome = apnc("pack-env", *arguments)
    assert outcome.status == 2
    line = outcome.err.splitlines()[-1]
    assert len(outcome.err.splitlines()) == 1 + ("pip is fetching" in outcome.err)
    assert all(part in line for part in parts), line
    assert sorted(tmp_path.rglob("*")) == before
    assert Path("taken.tar.gz").read_text() == "mine"


def test_an_archive_replaces_another_only_when_told_to_and_only_when_whole(index, tmp_path, monkeypatch):
    out = tmp_path / "env.tar.gz"
    out.write_text("mine")

    def full(file, tree, manifest):
        file.write(b"half of it")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(packing, "_write_archive", full)
        outcome = apnc("pack-env", "-o", out, "--overwrite")
    assert outcome.status == 3
    assert "No space left on device" in outcome.err
    assert out.read_text() == "mine"
    assert sorted(tmp_path.iterdir()) == [out, index]
    apnc("pack-env", "-o", out, "--overwrite").done("pip is fetching")
    assert "apnc_fake/__init__.py" in _names(out)


def test_packages_that_do_not_work_here_are_not_packed(index, tmp_path):
    _wheel(index, "apnc_fake", "1.1", {"apnc_fake.py": "raise ValueError('broken')\n"})
    outcome = apnc("pack-env", "-o", tmp_path / "env.tar.gz")
    assert outcome.status == 3
    assert "apnc_fake: ValueError: broken" in outcome.err
    _wheel(index, "apnc_fake", "1.2", {"apnc_fake.py": "import os\nos._exit(9)\n"})
    outcome = apnc("pack-env", "-o", tmp_path / "env.tar.gz")
    assert outcome.status == 3
    assert "apnc_fake: ends the interpreter" in outcome.err
    assert list(tmp_path.iterdir()) == [index]


def test_a_python_without_pip_is_told_how_to_get_it(index, tmp_path, monkeypatch):
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$0: No module named pip" >&2\nexit 1\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    outcome = apnc("pack-env", "-o", tmp_path / "env.tar.gz")
    assert outcome.status == 3
    assert f"{python} -m ensurepip" in outcome.err
    assert "Traceback" not in outcome.err


def test_this_machines_versions_give_way_where_nodes_of_another_kind_have_no_wheels_of_them(
    index, tmp_path, monkeypatch
):
    distribution = metadata.distribution("numpy")
    monkeypatch.setattr(packing, "TASK_PACKAGES", (TaskPackage("numpy", "numpy", "1"),))
    _wheel(index, "numpy", "1.0", {"numpy.py": ""}, tag="py3-none-manylinux2014_aarch64")
    out = tmp_path / "env.tar.gz"
    outcome = apnc("pack-env", "-o", out, "--platform", "manylinux_2_28_aarch64")
    assert outcome.status == 0, outcome.err
    assert f"numpy=={distribution.version}" in outcome.err
    assert "newest that fit" in outcome.err
    with open(out, "rb") as file:
        assert str(read_manifest(file)) == f"Python {HERE}, linux aarch64, glibc 2.17 or newer"


# What is read back


def test_the_manifest_is_read_from_the_beginning_alone(tmp_path):
    manifest = Manifest("3.12", "linux", "x86_64", "2.28", {"numpy": "2.0"})
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "large").write_bytes(os.urandom(1 << 20))
    with open(tmp_path / "env.tar.gz", "wb") as file:
        packing._write_archive(file, tree, manifest)
    head = (tmp_path / "env.tar.gz").read_bytes()[: packing.MANIFEST_BYTES]
    assert read_manifest(io.BytesIO(head)) == manifest


def _other_archive():
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("bin"))
    return out.getvalue()


def _future_archive():
    content = json.dumps({"format_version": 99}).encode()
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        info = tarfile.TarInfo(packing.MANIFEST)
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"", "not an archive of apnc's"),
        (b"no gzip", "not an archive of apnc's"),
        (gzip.compress(b"no tar"), "not an archive of apnc's"),
        (_other_archive(), "not an archive of apnc's"),
        (_future_archive(), "another version of apnc"),
    ],
    ids=["empty", "no gzip", "no tar", "other", "future"],
)
def test_what_is_no_archive_of_packages_is_refused_before_anything_starts(tmp_path, content, part):
    path = tmp_path / "env.tar.gz"
    path.write_bytes(content)
    with pytest.raises(InputError, match=rf"--env {path}: .*{part}.*pack-env"):
        Env(str(path))


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ("no/such.tar.gz", "cannot be read"),
        (".", "cannot be read"),
        ("s3://bucket/env.tar.gz", "hdfs:// is needed"),
        ("hdfs:///a,b.tar.gz", "only letters"),
        ("hdfs:///env.zip", ".tar.gz is needed"),
    ],
)
def test_an_archive_that_cannot_be_is_named(given, part):
    with pytest.raises(InputError, match=f"--env {re.escape(given)}: .*{re.escape(part)}"):
        Env(given)


class _Hdfs:
    """A file system in a dict, which counts what is written."""

    def __init__(self):
        self.files, self.written = {}, 0

    def status(self, path):
        from apnc.hdfs import FileStatus

        return FileStatus(path, path, len(self.files[path]), False, 0, 0, 1) if path in self.files else None

    def write(self, path, data):
        self.written += 1
        self.files[path] = data.read()

    def rename(self, src, dst):
        if dst in self.files:
            return False
        self.files[dst] = self.files.pop(src)
        return True

    def delete(self, path):
        return self.files.pop(path, None) is not None


def test_an_archive_is_uploaded_once_for_all_runs_and_again_when_its_content_changes(tmp_path):
    filesystem, path = _Hdfs(), _empty_archive(tmp_path / "env.tar.gz")
    first = Env(str(path)).on_hdfs(filesystem, "hdfs://", "/runs")
    assert first.startswith("hdfs:///runs/env/env-")
    assert first.endswith(".tar.gz")
    assert Env(str(path)).on_hdfs(filesystem, "hdfs://", "/runs") == first
    assert filesystem.written == 1
    _empty_archive(path, packages={"numpy": "2"})
    second = Env(str(path)).on_hdfs(filesystem, "hdfs://", "/runs")
    assert second != first
    assert sorted(f"hdfs://{name}" for name in filesystem.files) == sorted([first, second])


def test_an_upload_that_was_broken_off_is_not_taken_for_the_archive(tmp_path):
    filesystem, path = _Hdfs(), _empty_archive(tmp_path / "env.tar.gz")
    uri = Env(str(path)).on_hdfs(filesystem, "hdfs://", "/runs").removeprefix("hdfs://")
    filesystem.files[uri] = b"half"
    Env(str(path)).on_hdfs(filesystem, "hdfs://", "/runs")
    assert filesystem.files == {uri: path.read_bytes()}


LINUX = Manifest("3.11", "linux", "x86_64", "2.28", {})


@pytest.mark.parametrize(
    ("node", "part"),
    [
        (("3.11", "linux", "x86_64", "glibc 2.28"), ""),
        (("3.11", "linux", "x86_64", "glibc 2.100"), ""),
        (("3.11", "linux", "x86_64", ""), ""),
        (("3.12", "linux", "x86_64", "glibc 2.28"), "for Python 3.11, there is 3.12"),
        (("3.11", "linux", "aarch64", "glibc 2.28"), "for linux x86_64, there is linux aarch64"),
        (("3.11", "linux", "x86_64", "glibc 2.9"), "needs glibc 2.28, there is 2.9"),
    ],
)
def test_nodes_that_cannot_use_an_archive_are_told_why(node, part):
    fault = LINUX.misfit(*node)
    assert part in fault
    assert bool(fault) == bool(part)


@pytest.mark.parametrize(
    ("variable", "part"),
    [
        ("3.99,any,any", f"for Python 3.99, {sys.executable} is {HERE}"),
        (f"{HERE},pdp11,any", "is for pdp11"),
        (f"{HERE},any,99.1", "needs glibc 99.1"),
        (LINUX.variable if HERE == "3.11" else "", ""),
    ],
)
def test_a_task_that_cannot_use_the_archive_says_so_in_one_line(tmp_path, variable, part):
    if "glibc" in part and not c_library():
        pytest.skip("a libc of another kind")
    env = {"PYTHONPATH": str(ROOT), packing.VARIABLE: variable}
    command = [sys.executable, "-c", "import sys; sys.argv.append('--mapper'); import mr_jobs"]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == bool(part)
    assert part in done.stderr
    assert done.returncode == bool(part)


# Without faiss


def test_faiss_is_imported_in_one_place_which_can_do_without_it():
    sources = [*ROOT.glob("apnc/**/*.py"), *ROOT.glob("mr_jobs/*.py")]
    users = [path.name for path in sources if re.search(r"^\s*(import|from) faiss", path.read_text(), re.MULTILINE)]
    assert users == ["distances.py"]


def test_a_run_without_faiss_gives_the_same_labels(tmp_path, monkeypatch):
    arguments = (ROOT / "data_samples/digits.csv", "--label-column", "digit", "-k", "10", "--method", "stable")
    arguments += ("--landmarks", "80", "--dim", "120", "--sample", "600", "--restarts", "2", "--passes", "3")
    apnc("cluster", *arguments, "-o", tmp_path / "with", "--tol", "0")
    monkeypatch.setitem(sys.modules, "faiss", None)
    apnc("cluster", *arguments, "-o", tmp_path / "without", "--tol", "0")
    assert labels(tmp_path / "with") == labels(tmp_path / "without")


def test_numpys_page_about_a_broken_installation_is_told_by_what_it_comes_from():
    from types import SimpleNamespace

    from mr_jobs.cluster import ClusterLauncher
    from mr_jobs.yarn import Attempt

    log = (
        "Traceback (most recent call last):\n"
        '  File "/x/numpy/__init__.py", line 112, in <module>\n    raise ImportError(msg)\n'
        "ImportError: \n\nIMPORTANT: PLEASE READ THIS FOR ADVICE ON HOW TO SOLVE THIS ISSUE!\n\n"
        "Original error was: /lib/libc.so.6: version `GLIBC_2.28' not found\n\n"
    )
    attempt = Attempt("attempt_1_0001_m_000000_0", "node1", "container_1", log=log)
    launcher = SimpleNamespace(
        yarn=SimpleNamespace(failed_attempt=lambda *_: attempt), options=SimpleNamespace(python_bin="python3")
    )
    failure = SimpleNamespace(application="application_1_0001", attempts=[], lines=[])
    source = SimpleNamespace(files={})
    text = str(ClusterLauncher._error(launcher, SimpleNamespace(stage="embed"), source, failure, {}))
    assert "\n" not in text
    assert "version `GLIBC_2.28' not found (numpy/__init__.py line 112" in text
