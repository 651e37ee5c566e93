"""The packages that tasks import, in one archive, for nodes where nobody may install: made here, sent by ``--env``.

Made by pip, of wheels alone, into a folder that becomes a tar.gz: pip is there wherever apnc was installed and makes
archives for nodes of another kind too, where venv-pack copies this machine's interpreter paths and platform, and a
pex must be started in the interpreter's place and unpacks itself again in every task. Hadoop unpacks the archive once
on each node, and tasks find it by PYTHONPATH. apnc and mrjob are not in it: they travel with each job.

The first member, `MANIFEST`, tells what the archive is for, so that whoever is given one need not read all of it.
Same wheels, same bytes: members are sorted, and owners and times are fixed.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import posixpath
import re
import secrets
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zlib
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from apnc import hdfs
from apnc.doctor import probe
from apnc.errors import ApncError, InputError, StageError

FOLDER = "apnc-env"  # where tasks find what is in the archive
MANIFEST = "apnc-env.json"
VARIABLE = "APNC_ENV"  # tells tasks what the archive is for: "3.11,x86_64,2.28", see `mr_jobs`
FORMAT_VERSION = 1
OLDEST_PYTHON = (3, 11)
SUFFIXES = (".tar.gz", ".tgz")
TIME = 315532800  # 1980: tar warns of older files
LEVEL = 6
MANIFEST_BYTES = 1 << 16
NOTHING = "from versions: none"  # pip's words for an index that knows of nothing

# What no task imports
_DROPPED_FOLDERS = {"__pycache__", "include", "includes", "bin"}
_DROPPED_SUFFIXES = {".pyi", ".pxd", ".pxi", ".pyx", ".tp", ".h", ".hpp", ".c", ".cc", ".cpp", ".a", ".lib", ".pc"}
_DROPPED_NAMES = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"}
_DROPPED_PATHS = re.compile(
    r"(.*/)?tests/(.*/)?(test[^/]*|[^/]*(?<!\.py))|sklearn/datasets/(data|images|descr)/.*|pyarrow/src/.*|pyarrow/_(flight|s3fs|gcsfs|azurefs|orc)\..*"
)
_DROPPED_LIBRARIES = re.compile(
    r"libarrow_(python_)?(flight|s3|gcs|azure|orc)\.so.*"
)  # unless one that stays needs them


class TaskPackage(NamedTuple):
    """A package that tasks import.

    Attributes
    ----------
    name : str
        pip's name for it.
    module : str
    least : str
        The oldest version that will do, as in setup.cfg.
    without : str
        What is so without it; empty where nothing works.
    """

    name: str
    module: str
    least: str
    without: str = ""


TASK_PACKAGES = (
    TaskPackage("numpy", "numpy", "1.26"),
    TaskPackage("scipy", "scipy", "1.11.2"),
    TaskPackage("pyarrow", "pyarrow", "16"),
    TaskPackage("threadpoolctl", "threadpoolctl", "3.1"),
    TaskPackage("faiss-cpu", "faiss", "1.9", "scipy's cdist serves, slower, with the same labels"),
    TaskPackage("scikit-learn", "sklearn", "1.6", "--kernel chi2 will not work; all else does"),
)


@dataclass(frozen=True)
class Manifest:
    """What an archive is for, and what is in it.

    Attributes
    ----------
    python : str
        "3.11".
    system, machine : str
        "linux" and "x86_64"; empty where the archive holds nothing compiled.
    glibc : str
        The oldest that will do, "2.28"; empty where none is needed, "musl" for musl.
    packages : dict
        Version by name.
    """

    python: str
    system: str
    machine: str
    glibc: str
    packages: dict

    @property
    def variable(self) -> str:
        """What tasks are told, see `VARIABLE`; without blanks, at which streaming would cut it."""
        return ",".join([self.python, self.machine or "any", self.glibc or "any"])

    def __str__(self):
        libc = f", {'musl' if self.glibc == 'musl' else f'glibc {self.glibc} or newer'}" if self.glibc else ""
        return f"Python {self.python}{f', {self.system} {self.machine}' if self.machine else ''}{libc}"

    def misfit(self, python: str, system: str, machine: str, libc: str) -> str:
        """Return why a node cannot use the archive; empty if it can."""
        if python != self.python:
            return f"the archive is for Python {self.python}, there is {python}"
        if self.machine and (system, machine) != (self.system, self.machine):
            return f"the archive is for {self.system} {self.machine}, there is {system} {machine}"
        found = libc.removeprefix("glibc ") if libc.startswith("glibc ") else ""
        if self.glibc == "musl" and found:
            return "the archive is for musl, there is glibc"
        if self.glibc not in ("", "musl") and found and version_key(found) < version_key(self.glibc):
            return f"the archive needs glibc {self.glibc}, there is {found}"
        return ""


def version_key(text: str) -> tuple[int, ...]:
    """Return the numbers that a version begins with, to be compared.

    Examples
    --------
    >>> version_key("2.10.1rc1") > version_key("2.9")
    True
    """
    return tuple(int(part) for part in re.findall(r"\d+", re.match(r"[\d.]*", text)[0]))


# Making one


def pack(path, python=None, platform=None, faiss=True, overwrite=False, told=lambda line: None) -> Manifest:
    """Make an archive of the packages that tasks import.

    Parameters
    ----------
    path : path-like
        ``NAME.tar.gz``, which is written whole or not at all.
    python : str, optional
        Version of the nodes' interpreter, "3.12"; that of this process by default.
    platform : str, optional
        The nodes' platform as wheels name it, "manylinux_2_28_x86_64" or "manylinux2014_aarch64"; that of this machine
        by default.
    faiss : bool
        Without it the archive is smaller by a sixth, and ℓ1 passes are slower.
    overwrite : bool
        Replace a file that exists.
    told : callable
        Gets lines about what is going on.

    Raises
    ------
    InputError
        If an argument cannot be, or pip finds no wheels for it.
    StageError
        If pip does not work.
    """
    path = Path(path)
    _check_output(path, overwrite)
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    python, native = _checked_python(python, here), platform is None and python in (None, here)
    platforms = _platforms(platform) if platform else []
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    packages = [p for p in TASK_PACKAGES if faiss or p.module != "faiss"]
    try:
        with tempfile.TemporaryDirectory(prefix="apnc-pack-") as folder:
            tree = Path(folder, "tree")
            _install(tree, Path(folder), packages, None if native else python, platforms, told)
            manifest = _manifest(tree, python)
            _prune(tree)
            if not manifest.misfit(here, sys.platform, os.uname().machine, probe.c_library()):
                _compile_imported(tree, packages)
            with open(partial, "xb") as file:
                _write_archive(file, tree, manifest)
        os.replace(partial, path)
    except OSError as error:
        raise StageError(f"{path}: cannot be made ({error.strerror or error})") from None
    finally:
        with suppress(OSError):
            partial.unlink()
    return manifest


def _check_output(path, overwrite):
    if not path.name.endswith(SUFFIXES):
        raise InputError(f"-o {path}: a name that ends in .tar.gz is needed, by which Hadoop knows how to unpack it")
    try:
        if path.is_dir() or (path.exists() and not path.is_file()):
            raise InputError(f"-o {path}: is not a file, and would be replaced by one")
        if path.exists() and not overwrite:
            raise InputError(f"-o {path}: exists already; choose another file or add --overwrite")
        if not path.absolute().parent.is_dir():
            raise InputError(f"-o {path}: there is no folder {path.absolute().parent}")
    except OSError as error:
        raise InputError(f"-o {path}: cannot be written ({error.strerror})") from None


def _checked_python(python, here):
    if python is None:
        return here
    match = re.fullmatch(r"(\d+)\.(\d+)(\.\d+)?", python)
    if not match:
        raise InputError(f"--python-version {python}: such as 3.11 is needed")
    if (int(match[1]), int(match[2])) < OLDEST_PYTHON:
        raise InputError(f"--python-version {python}: tasks need Python 3.11 or newer")
    return f"{match[1]}.{match[2]}"


def _platforms(platform):
    """Return all names of platforms whose wheels work on one."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)+", platform):
        raise InputError(f"--platform {platform}: a wheel's name for it is needed, such as manylinux_2_28_x86_64")
    legacy = {"manylinux2014": 17, "manylinux2010": 12, "manylinux1": 5}
    match = re.fullmatch(
        r"(?:(manylinux|musllinux)_(\d+)_(\d+)|(manylinux2014|manylinux2010|manylinux1))_(.+)", platform
    )
    if not match:
        return [platform]
    kind, major, minor, old, machine = match.groups()
    newest = legacy[old] if old else int(minor)
    kind, major = kind or "manylinux", major or "2"
    out = [platform, *(f"{kind}_{major}_{n}_{machine}" for n in range(newest, -1, -1))]
    if kind == "manylinux":
        out += [f"{name}_{machine}" for name, minor in legacy.items() if minor <= newest]
    return list(dict.fromkeys(out))


def _install(tree, folder, packages, python, platforms, told):
    """Have pip put wheels into a folder: of this machine's versions, which make the same numbers, where there are."""
    pins = {_normalised(d.metadata["Name"]): d.version for d in metadata.distributions() if d.metadata["Name"]}
    least = [f"{p.name}>={p.least}" for p in packages]
    ours = [f"{p.name}=={pins[p.name]}" if p.name in pins else l for p, l in zip(packages, least, strict=True)]
    constraints = folder / "constraints.txt"  # for what these need in turn
    named = {"apnc", *(p.name for p in packages)}
    constraints.write_text("".join(f"{name}=={version}\n" for name, version in pins.items() if name not in named))
    what = f"Python {python}" if python else "this Python"
    told(f"pip is fetching packages for {what}{f' on {platforms[0]}' if platforms else ''} …")
    reason = _pip(tree, ours, python, platforms, constraints)
    if reason and (python or platforms) and NOTHING not in reason:
        told(f"{reason}: taking the newest that fit instead of this machine's versions")
        shutil.rmtree(tree, ignore_errors=True)
        reason = _pip(tree, least, python, platforms, None)
    if reason:
        hint = ": is the package index in reach, and has it wheels for this Python and platform?"
        raise InputError(f"pip: {reason}{hint if NOTHING in reason else ''}")


def _normalised(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def _pip(tree, requirements, python, platforms, constraints):
    """Run pip; return the reason why it failed, empty if it did not."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]
    command += ["--no-compile", "--only-binary=:all:", "--target", str(tree)]
    command += ["--python-version", python] if python else []
    command += [word for platform in platforms for word in ("--platform", platform)]
    command += ["--constraint", str(constraints)] if constraints else []
    # whether the interpreter of this process may be added to is beside the point
    env = os.environ | {"PIP_BREAK_SYSTEM_PACKAGES": "1", "PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0"}
    done = subprocess.run(
        command + requirements, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace"
    )
    if not done.returncode:
        return ""
    if "No module named pip" in done.stderr:
        raise StageError(f"pip is needed and not there; try {sys.executable} -m ensurepip, or install pip")
    return _said_by_pip(done.stderr) or f"it ended with status {done.returncode} and said nothing"


def _said_by_pip(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")] or lines[-1:]
    if not errors:
        return ""
    versions = re.search(r" ?\(from versions: (?!none)[^)]*\)", errors[0])
    return (errors[0].replace(versions[0], "") if versions else errors[0])[:400]


def _manifest(tree, python):
    tags, packages = [], {}
    for info in sorted(tree.glob("*.dist-info")):
        distribution = metadata.Distribution.at(info)
        packages[distribution.metadata["Name"]] = distribution.version
        wheel = distribution.read_text("WHEEL") or ""
        tags.append([line.partition(":")[2].strip().rpartition("-")[2] for line in _tag_lines(wheel)])
    packages = dict(sorted(packages.items(), key=lambda item: item[0].lower()))
    system, machine, glibc = _platform_of(tags)
    return Manifest(python, system, machine, glibc, packages)


def _tag_lines(wheel):
    return [line for line in wheel.splitlines() if line.startswith("Tag:")]


def _platform_of(tags):
    """Return system, machine and the oldest glibc for wheels, each known by the platforms it says it is for."""
    legacy = {"manylinux2014": "2.17", "manylinux2010": "2.12", "manylinux1": "2.5"}
    system = machine = ""
    needed = []
    for names in tags:
        found = []
        for name in names:
            if match := re.fullmatch(r"(manylinux\d+|(?:many|musl)linux_(\d+)_(\d+)|linux)_(.+)", name):
                system, machine = "linux", match[4]
                kind = "musl" if name.startswith("musl") else legacy.get(match[1])
                found.append(kind or (f"{match[2]}.{match[3]}" if match[2] else ""))
            elif match := re.fullmatch(r"macosx_\d+_\d+_(.+)", name):
                system, machine = "darwin", match[1]
            elif name != "any":
                system, machine = "win32", name
        if "musl" in found:
            needed.append("musl")
        elif found:
            needed.append(min(found, key=version_key))
    if "musl" in needed:
        return system, machine, "musl"
    return system, machine, max(needed, key=version_key, default="")


def _prune(tree):
    """Remove what no task imports."""
    for folder, folders, names in os.walk(tree):
        for name in [n for n in folders if n in _DROPPED_FOLDERS]:
            shutil.rmtree(os.path.join(folder, name))
            folders.remove(name)
        for name in names:
            path = os.path.join(folder, name)
            inside = os.path.relpath(path, tree).replace(os.sep, "/")
            unwanted = os.path.splitext(name)[1] in _DROPPED_SUFFIXES or _DROPPED_PATHS.fullmatch(inside)
            if unwanted or (name in _DROPPED_NAMES and ".dist-info/" in inside):
                os.unlink(path)
    _prune_libraries(tree / "pyarrow")


def _prune_libraries(folder):
    libraries = list(folder.glob("*.so*"))
    optional = [path for path in libraries if _DROPPED_LIBRARIES.fullmatch(path.name)]
    kept = [path.read_bytes() for path in libraries if path not in optional]
    for path in optional:  # one library names another that it needs
        if not any(path.name.partition(".so")[0].encode() + b".so" in content for content in kept):
            path.unlink()


def _compile_imported(tree, packages):
    """Import what tasks do, so that what does not work is not sent to the nodes, and compile what that has imported.

    Tasks cannot keep what they compile, and would do it again each time.
    """
    modules = [*(p.module for p in packages), *_IMPORTED]
    script = Path(probe.__file__).read_text() + _TELL_FILES
    told, status = _run_here(tree, "-c", script, *(f"import={module}" for module in modules))
    failed = next((fact for fact in told if "error" in fact), None)
    if failed is None and status:
        failed = told[-1] | {"error": "ends the interpreter"}
    if failed is not None:
        raise StageError(f"what pip installed does not work: {failed['name']}: {failed['error']}")
    inside = sorted(os.path.relpath(file, tree) for file in told[-1]["files"])
    # one after the other in one process: what else was interned would show in the bytes
    _run_here(tree, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", *inside)


def _run_here(tree, *arguments):
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [sys.executable, "-S", "-B", *arguments]
    done = subprocess.run(
        command, cwd=tree, env=env | {"PYTHONHASHSEED": "0"}, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")], done.returncode


_TELL_FILES = """
files = [str(getattr(module, "__file__", "")) for module in list(sys.modules.values())]
tell("files", files=[file for file in files if file.startswith(os.getcwd()) and file.endswith(".py")])
"""
_IMPORTED = (
    "scipy.linalg",
    "scipy.sparse",
    "scipy.spatial.distance",
    "pyarrow.csv",
    "pyarrow.parquet",
    "sklearn.metrics.pairwise",
)


def _write_archive(file, tree, manifest):
    values = {"format_version": FORMAT_VERSION} | asdict(manifest)
    members = sorted(path for path in tree.rglob("*") if path.is_file())
    with (
        gzip.GzipFile("", "wb", LEVEL, file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive,
    ):
        content = (json.dumps(values, indent=1) + "\n").encode()
        archive.addfile(_member(MANIFEST, len(content), 0o644), io.BytesIO(content))
        for path in members:
            status = path.stat()
            mode = 0o755 if status.st_mode & 0o100 or ".so" in path.suffixes else 0o644
            with open(path, "rb") as source:
                archive.addfile(_member(path.relative_to(tree).as_posix(), status.st_size, mode), source)


def _member(name, size, mode):
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = size, mode, TIME
    return info


# Using one


class Env:
    """An archive given with ``--env``: a file of this machine, or one on HDFS.

    Parameters
    ----------
    given : str

    Attributes
    ----------
    manifest : Manifest

    Raises
    ------
    InputError
        If it is no archive of `pack`'s.
    """

    def __init__(self, given: str):
        self.given = given
        self.remote = "://" in given
        if self.remote and not given.startswith("hdfs://"):
            raise InputError(f"--env {given}: a file or hdfs:// is needed")
        if self.remote and not re.fullmatch(r"[\w./+=@:-]+", given, re.ASCII):
            raise InputError(f"--env {given}: only letters, digits and ./_+=@- may be in this path")
        if self.remote and not given.endswith(SUFFIXES):
            raise InputError(f"--env {given}: a name that ends in .tar.gz is needed, by which Hadoop unpacks it")
        self.manifest = self._read_manifest()

    def _read_manifest(self):
        try:
            if self.remote:
                with hdfs.connect(self.given).open(hdfs.split(self.given)[1]) as stream:
                    return read_manifest(stream)
            with open(self.given, "rb") as file:
                return read_manifest(file)
        except hdfs.HdfsError as error:
            raise InputError(f"--env {error}") from None
        except OSError as error:
            raise InputError(f"--env {self.given}: cannot be read ({error.strerror or error})") from None
        except ValueError as error:
            raise InputError(f"--env {self.given}: {error}; make one with apnc pack-env") from None

    def on_hdfs(self, filesystem, root: str, folder: str) -> str:
        """Return its URI on HDFS, where a file of this machine is brought the first time.

        Parameters
        ----------
        filesystem : WebHdfs or HadoopFs
        root : str
            What stands before paths of this file system in URIs.
        folder : str
            Folder of runs, in which it has a name of its content, for later runs to find.
        """
        if self.remote:
            return self.given
        path = posixpath.join(folder, "env", f"env-{_hash(self.given)}.tar.gz")
        size = os.path.getsize(self.given)
        status = filesystem.status(path)
        if status is None or status.size != size:
            partial = f"{path}.{secrets.token_hex(4)}.partial"
            try:
                with open(self.given, "rb") as file:
                    filesystem.write(partial, file)
                if status is not None:
                    filesystem.delete(path)
                if not filesystem.rename(partial, path) and filesystem.status(path) is None:
                    raise StageError(f"--env: {partial} cannot be renamed to {path} on HDFS")
            finally:
                with suppress(ApncError):
                    filesystem.delete(partial)
        return root + path

    @property
    def variables(self) -> list[tuple[str, str]]:
        """Environment of tasks that are to use it."""
        return [("PYTHONPATH", FOLDER), (VARIABLE, self.manifest.variable)]


def read_manifest(stream) -> Manifest:
    """Return the manifest of an archive, of which no more than the beginning is read.

    Raises
    ------
    ValueError
        If it is no archive of `pack`'s.
    """
    try:
        head = zlib.decompressobj(31).decompress(stream.read(MANIFEST_BYTES), MANIFEST_BYTES)
        info = tarfile.TarInfo.frombuf(head[:512], "utf-8", "surrogateescape")
        if info.name != MANIFEST:
            raise ValueError("it is not an archive of apnc's")
        values = json.loads(head[512 : 512 + info.size])
    except (zlib.error, tarfile.HeaderError, ValueError):
        raise ValueError("it is not an archive of apnc's") from None
    if values.pop("format_version") != FORMAT_VERSION:
        raise ValueError("it was made by another version of apnc")
    return Manifest(**values)


def _hash(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


# The command


def add_arguments(parser):
    """Add the options of ``apnc pack-env``."""
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the archive, NAME.tar.gz")
    parser.add_argument("--python-version", metavar="X.Y", help="of the interpreter on the nodes (that of this one)")
    parser.add_argument(
        "--platform", metavar="NAME", help="of the nodes, such as manylinux_2_28_x86_64 (that of this machine)"
    )
    parser.add_argument("--without-faiss", action="store_true", help="smaller; --method stable is slower then")
    parser.add_argument("--overwrite", action="store_true", help="replace FILE if it exists")


def main(options) -> None:
    """Run ``apnc pack-env``."""

    def told(line):
        print(line, file=sys.stderr, flush=True)

    output = options.output
    manifest = pack(
        output, options.python_version, options.platform, not options.without_faiss, options.overwrite, told
    )
    print(f"{output}: {os.path.getsize(output) / 1e6:.0f} MB, for {manifest}")
    print(", ".join(f"{name} {version}" for name, version in manifest.packages.items()))
    print(f"use it with --runner hadoop --env {output}")
