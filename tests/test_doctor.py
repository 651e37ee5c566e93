"""``apnc doctor`` without a cluster: this machine, and what is made of the reports of nodes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from command_line import apnc

from apnc import hdfs, packing
from apnc.doctor import nodes, probe, this_machine
from apnc.doctor.cluster import SCRIPT, ClusterCheck, parsed
from apnc.doctor.nodes import NodeReports
from apnc.doctor.table import Table
from apnc.doctor.this_machine import stage_needs
from apnc.errors import InputError, StageError
from apnc.hadoop_settings import needs_of
from apnc.packing import TASK_PACKAGES, Manifest
from apnc.readers.detect import describe
from apnc.settings import Settings

PROBE = Path(probe.__file__)
HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"


@pytest.fixture(autouse=True)
def _terminal(monkeypatch):
    """A terminal of 80 columns, which nobody looks at."""
    monkeypatch.setenv("COLUMNS", "80")


def _checks(text):
    """Return [mark, name, text] of each line of the table, with what was wrapped put together."""
    out = []
    for line in text.splitlines():
        if line.startswith(" "):
            out[-1][2] += f" {line.strip()}"
        elif line[:5].strip() in ("ok", "warn", "FAIL", "-"):
            out.append([line[:5].strip(), line[6:24].strip(), line[25:]])
    return out


def _found(text, name):
    """Return (mark, text) of the only line of a name."""
    ((mark, _, said),) = [check for check in _checks(text) if check[1] == name]
    return mark, said


# This machine


def test_a_machine_that_has_everything_is_fine_and_no_line_is_too_long():
    outcome = apnc("doctor").done()
    marks = {mark for mark, *_ in _checks(outcome.out)}
    assert marks <= {"ok", "warn"}
    assert {"apnc", "Python", "BLAS", "memory", "temporary", "mrjob"} <= {name for _, name, _ in _checks(outcome.out)}
    assert {package.name for package in TASK_PACKAGES} <= {name for _, name, _ in _checks(outcome.out)}
    assert max(len(line) for line in outcome.out.splitlines() if " /" not in line and "(/" not in line) <= 80
    assert "all fine" in outcome.out.splitlines()[-1]


def test_a_missing_package_is_named_with_what_to_run_and_the_others_are_still_looked_at(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.setitem(sys.modules, "faiss", None)
    outcome = apnc("doctor")
    outcome.refused("1 check of", "failed")
    assert _found(outcome.out, "scikit-learn") == (
        "FAIL",
        f"is not installed: {sys.executable} -m pip install 'scikit-learn>=1.6'",
    )
    assert _found(outcome.out, "faiss-cpu") == (
        "warn",
        "is not installed: scipy's cdist serves, slower, with the same labels",
    )
    assert _found(outcome.out, "temporary")[0] == "ok"


def test_a_package_that_breaks_on_import_is_no_traceback(monkeypatch):
    def broken(name):
        raise RuntimeError("first line\nsecond line") if name == "scipy" else ImportError(name)

    monkeypatch.setattr(this_machine, "import_module", broken)
    outcome = apnc("doctor")
    assert outcome.status == 2
    assert "Traceback" not in outcome.out + outcome.err
    assert "RuntimeError: first line" in _found(outcome.out, "scipy")[1]


def test_a_version_too_old_is_not_taken_for_well(monkeypatch):
    monkeypatch.setattr(this_machine, "_version", lambda module, name: "1.2.9" if name == "threadpoolctl" else "99")
    outcome = apnc("doctor")
    assert outcome.status == 2
    mark, said = _found(outcome.out, "threadpoolctl")
    assert (mark, "1.2.9: 3.1 or newer" in said) == ("FAIL", True)


def test_mrjob_is_needed_by_runners_of_jobs_only(monkeypatch):
    for name in ("mrjob", "mr_jobs.base"):
        monkeypatch.setitem(sys.modules, name, None)
    assert _found(apnc("doctor").done().out, "mrjob")[0] == "warn"
    outcome = apnc("doctor", "--runner", "local")
    assert outcome.status == 2
    assert _found(outcome.out, "mrjob")[0] == "FAIL"


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("--runner", "hadop"), ("hadop", "hadoop")),
        (("--timeout", "0"), ("--timeout 0",)),
        (("--method", "nystroem"), ("nystroem", "nystrom")),
    ],
)
def test_bad_values_get_one_line(arguments, parts):
    outcome = apnc("doctor", *arguments)
    outcome.refused(*parts)
    assert outcome.out == ""


def test_an_input_that_cannot_be_read_is_a_line_of_the_table(tmp_path):
    outcome = apnc("doctor", tmp_path / "none.csv")
    assert outcome.status == 2
    mark, said = _found(outcome.out, "input")
    assert mark == "FAIL"
    assert "none.csv" in said


def test_memory_is_that_of_the_input_and_settings_given(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((4000, 300), np.float32))
    mark, said = _found(apnc("doctor", tmp_path / "x.npy").done().out, "memory")
    assert mark == "ok"
    assert "name the INPUT" not in said
    small = {s: n for s, _, n in stage_needs(Settings(k=3, landmarks=20), describe([str(tmp_path / "x.npy")]))}
    large = {s: n for s, _, n in stage_needs(Settings(k=3, landmarks=3000), describe([str(tmp_path / "x.npy")]))}
    assert list(small) == ["coefficients", "embed", "kmeans", "assign"]
    assert large["coefficients"].reduce > small["coefficients"].reduce + 8 * 8 * 2000**2
    assert large["embed"].map > small["embed"].map


def test_too_little_memory_is_a_warning_that_names_options(monkeypatch):
    monkeypatch.setattr(this_machine, "available_memory", lambda: 1 << 20)
    mark, said = _found(apnc("doctor").done().out, "memory")
    assert mark == "warn"
    assert "--landmarks" in said
    assert "1 MiB are free" in said


# The exit status


@pytest.mark.parametrize(("statuses", "error"), [((3,), StageError), ((3, 2), InputError), ((), None)])
def test_what_the_user_can_set_decides_the_exit_status(statuses, error, capsys):
    table = Table()
    for status in statuses:
        table.fail("x", "y", status)
    if error is None:
        table.end()
        return
    with pytest.raises(error, match=f"{len(statuses)} check"):
        table.end()


def test_long_texts_are_wrapped_and_words_are_not_cut(capsys):
    Table(80).warn("node threadpoolctl", "word " * 40 + "/a/path" * 20)
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 80 for line in lines[:-1])
    assert lines[-1].strip() == "/a/path" * 20


# Hadoop that is not there


def test_a_cluster_that_is_not_there_is_told_by_check_and_not_asked(tmp_path, monkeypatch):
    for name in ("HADOOP_HOME", "HADOOP_PREFIX", "HADOOP_COMMON_HOME", "HADOOP_INSTALL", "HADOOP_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    outcome = apnc("doctor", "--runner", "hadoop", "--env", tmp_path / "none.tar.gz")
    assert outcome.status == 2
    for name, part in (("hadoop", "--hadoop-bin"), ("HDFS", "HADOOP_CONF_DIR"), ("--env", "none.tar.gz")):
        mark, said = _found(outcome.out, name)
        assert mark == "FAIL"
        assert part in said
    assert _found(outcome.out, "nodes")[0] == "-"
    assert "Traceback" not in outcome.out + outcome.err


def test_a_hadoop_command_that_fails_is_quoted_with_what_to_set(tmp_path):
    command = tmp_path / "hadoop"
    command.write_text("#!/bin/sh\necho 'Error: JAVA_HOME is not set.' >&2\nexit 1\n")
    command.chmod(0o755)
    check = ClusterCheck(Table(), SimpleNamespace(hadoop_bin=str(command)), Settings(), None)
    with pytest.raises(InputError, match=r"JAVA_HOME is not set\.: .*--hadoop-bin"):
        check._hadoop()


def test_what_nobody_foresaw_is_a_line_of_the_table(capsys):
    def check():
        raise KeyError("surprise")

    table = Table()
    assert not ClusterCheck(table, None, Settings(), None)._try("YARN", check)
    assert table.failures == [3]
    assert _found(capsys.readouterr().out, "YARN") == ("FAIL", "KeyError: 'surprise'")


# The probe


def _probe(cwd, *arguments, python=(sys.executable,)):
    """Run the script that tasks run, as one; return its report."""
    script = cwd / "probe.sh"
    script.write_text(SCRIPT)
    command = ["sh", str(script), *python, str(PROBE), *arguments]
    env = {"PATH": "/usr/bin:/bin", "NM_HOST": "node1", "NM_PORT": "1234"}
    done = subprocess.run(command, cwd=cwd, env=env, input="0\n", capture_output=True, text=True, check=True)
    return parsed("".join(f"{line}\t\n" for line in done.stdout.splitlines()))


def test_the_probe_needs_nothing_installed_and_names_what_is_missing(tmp_path):
    (tmp_path / "there.py").write_text("__version__ = '7'\n")
    report = _probe(tmp_path, "import=there", "import=not_there", "read=hdfs:///x", python=(sys.executable, "-I", "-S"))
    assert (report["node"], report["code"]) == ("node1:1234", 0)
    facts = nodes._by_name(report)
    assert facts["python"]["minor"] == HERE
    assert facts["there"]["version"] == "7"
    assert facts["not_there"]["error"] == "ModuleNotFoundError: No module named 'not_there'"
    assert "No module named 'apnc'" in facts["read"]["error"]


def test_an_interpreter_that_is_not_there_or_dies_is_a_report_too(tmp_path):
    report = _probe(tmp_path, python=("/no/such/python",))
    assert report["code"] == 127
    assert "not found" in report["said"]
    (tmp_path / "deadly.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGILL)\n")
    report = _probe(tmp_path, "import=deadly", "import=json")
    assert report["code"] == 132
    assert nodes._by_name(report)["deadly"] == {"trying": True}


def test_the_probe_is_understood_by_pythons_that_are_too_old():
    import ast

    tree = ast.parse(PROBE.read_text(), feature_version=(3, 4))  # the oldest that can be asked for
    assert not [node for node in ast.walk(tree) if isinstance(node, (ast.JoinedStr, ast.NamedExpr, ast.AnnAssign))]
    assert "from __future__" not in PROBE.read_text()


# What is made of the reports


def _report(node, minor=HERE, missing=(), code=0, **python):
    fact = {"version": f"{minor}.1", "minor": minor, "executable": "/usr/bin/python3", "host": node}
    fact |= {"system": "linux", "machine": "x86_64", "libc": "glibc 2.28", "cores": 4, "memory": 1 << 34, "limit": None}
    facts = [fact | {"what": "python"} | python]
    for module in ("mr_jobs.base", *(p.module for p in TASK_PACKAGES)):
        facts.append({"what": "trying", "kind": "import", "name": module})
        if module in missing:
            facts.append({"what": "import", "name": module, "error": f"ImportError: No module named '{module}'"})
        else:
            facts.append({"what": "import", "name": module, "version": "99", "place": "/x"})
    return {"node": node, "code": code, "facts": json.loads(json.dumps(facts)), "said": ""}


def _told(reports, capsys, env=None, running=0, data=None):
    table = Table()
    NodeReports(table, "python3", env, data, reports).tell(running)
    return table, capsys.readouterr().out


def test_nodes_that_are_alike_share_lines_and_each_has_its_own(capsys):
    table, text = _told([_report("a:1"), _report("b:1"), _report("a:1")], capsys, running=3)
    assert not table.failures
    assert _found(text, "nodes") == ("ok", "2 of 3 answered; more with --splits")
    assert [said.split(":")[0] for mark, name, said in _checks(text) if name == "node"] == ["a", "b"]
    assert _found(text, "node numpy") == ("ok", "99")


def test_a_package_missing_on_one_node_of_three_is_told_with_the_nodes_name(capsys):
    reports = [_report("a:1", missing=("pyarrow", "faiss")), _report("b:1"), _report("c:1")]
    table, text = _told(reports, capsys)
    assert table.failures == [2]
    fails = [said for mark, name, said in _checks(text) if mark == "FAIL"]
    assert fails == ["is missing on a:1: bring it along (apnc pack-env, then --env), or install it"]
    warns = [said for mark, name, said in _checks(text) if mark == "warn"]
    assert warns == ["is missing on a:1: scipy's cdist serves, slower, with the same labels"]


def test_an_interpreter_too_old_or_absent_names_the_option_and_hides_nothing_else(capsys):
    absent = {"node": "c:1", "code": 127, "facts": [], "said": "python3: not found"}
    table, text = _told([_report("a:1", minor="3.9"), _report("b:1", missing=("numpy",)), absent], capsys)
    said = [said for mark, name, said in _checks(text) if name == "node Python" and mark == "FAIL"]
    assert said == [
        "python3 is 3.9.1, 3.11 or newer is needed on a:1: name another with --python-bin",
        "python3 cannot be run (code 127: python3: not found) on c:1: name another with --python-bin",
    ]
    assert "is missing on b:1" in _found(text, "node numpy")[1]
    assert table.failures == [2, 2, 2]


def test_an_import_that_kills_python_is_told_and_so_is_what_was_not_tried(capsys):
    report = _report("a:1", code=132)
    cut = next(i for i, f in enumerate(report["facts"]) if f.get("name") == "scipy") + 1
    report["facts"] = report["facts"][:cut]
    _, text = _told([report], capsys)
    assert "ends the interpreter (code 132)" in _found(text, "node scipy")[1]
    assert "not tried" in _found(text, "node pyarrow")[1]


def test_an_archive_for_another_python_is_told_with_the_command_that_makes_the_right_one(capsys):
    env = SimpleNamespace(manifest=Manifest("3.98", "linux", "x86_64", "2.28", {}))
    _, text = _told([_report("a:1", minor="3.99", missing=("numpy",))], capsys, env)
    mark, said = _found(text, "node --env")
    assert mark == "FAIL"
    assert "for Python 3.98, there is 3.99" in said
    assert said.endswith("apnc pack-env --python-version 3.99")
    assert "numpy" not in text  # what follows from it is no news
    env.manifest = Manifest(HERE, "linux", "x86_64", "2.31", {})
    _, text = _told([_report("a:1")], capsys, env)
    assert _found(text, "node --env")[1].endswith("apnc pack-env --platform manylinux_2_28_x86_64")


def test_nodes_that_cannot_read_webhdfs_fail_runs_of_binary_input_only(capsys):
    report = _report("a:1")
    report["facts"].append({"what": "read", "name": "webhdfs://nn:9870/x", "error": "HdfsError: no route"})
    assert _told([report], capsys)[0].warnings == 1
    data = SimpleNamespace(spec=SimpleNamespace(format="npy"))
    table, text = _told([report], capsys, data=data)
    assert table.failures == [2]
    assert "no route" in _found(text, "node WebHDFS")[1]


def test_a_limit_of_address_space_is_told(capsys):
    table, text = _told([_report("a:1", limit=1 << 30)], capsys)
    assert table.warnings == 1
    assert "1 GiB only (ulimit -v) on a:1" in _found(text, "node limit")[1]


def test_a_large_cluster_does_not_fill_the_screen(capsys):
    _, text = _told([_report(f"n{i:03}:1") for i in range(50)], capsys, running=50)
    assert len(_checks(text)) < 40
    assert "and 30 more" in text
    reports = [_report(f"n{i:03}:1", missing=("numpy",) if i % 2 else ()) for i in range(50)]
    _, text = _told(reports, capsys, running=50)
    assert "is missing on n001:1, n003:1, n005:1 and 22 more" in text


def test_containers_larger_than_the_cluster_gives_are_refused_with_what_to_lower(capsys, monkeypatch):
    table = Table()
    data = SimpleNamespace(
        spec=SimpleNamespace(width=500, sparse=False), estimated_rows=lambda: 10**6, bytes_per_row=lambda: 2000.0
    )
    check = ClusterCheck(table, SimpleNamespace(jobconf={}), Settings(landmarks=8000).check(), data)
    check.yarn = SimpleNamespace(largest_container=lambda: 2048)
    check._try("memory", check._memory)
    mark, said = _found(capsys.readouterr().out, "memory")
    assert mark == "FAIL"
    assert "2048" in said
    assert "--landmarks" in said
    assert table.failures == [2]
    check.settings = Settings(landmarks=50).check()
    assert check._try("memory", check._memory)
    assert "a container may have 2048" in " ".join(capsys.readouterr().out.split())


def test_needs_are_those_that_the_engine_asks_for(tmp_path):
    from apnc.hadoop_settings import passes_ahead

    np.save(tmp_path / "x.npy", np.zeros((100, 7), np.float32))
    data, settings = describe([str(tmp_path / "x.npy")]), Settings(k=3, landmarks=20).check()
    steps = passes_ahead(settings, 7, False, data.estimated_rows())
    expected = [needs_of(step, data.bytes_per_row(), data.estimated_rows()) for step in steps]
    assert [needs for _, _, needs in stage_needs(settings, data)] == expected


def test_a_job_that_does_not_come_to_run_is_ended_and_says_what_it_waits_for(tmp_path, monkeypatch, capsys):
    ended = []
    check = ClusterCheck(
        Table(), SimpleNamespace(jobconf={}, python_bin="python3"), Settings(), None, splits=1, seconds=1
    )
    check.filesystem = SimpleNamespace(write=lambda *_: None)
    check.folder = "/runs/x"
    check.yarn = SimpleNamespace(
        end=lambda tag, application: ended.append(application),
        _ask=lambda path: {"app": {"state": "ACCEPTED", "diagnostics": "[Mon] waiting for room. Details : much"}},
    )
    command = tmp_path / "hadoop"
    command.write_text("#!/bin/sh\necho 'INFO Submitted application application_1_0002'\nexec sleep 60\n")
    command.chmod(0o755)
    check.command = str(command)
    monkeypatch.setattr(check, "_arguments", lambda output: [])
    check._try("tiny job", check._run_job)
    mark, said = _found(capsys.readouterr().out, "tiny job")
    assert mark == "FAIL"
    assert "ACCEPTED: waiting for room." in said
    assert "--timeout" in said
    assert ended == ["application_1_0002"]
    assert check.table.failures == [3]


def test_every_fault_of_hdfs_names_the_work_folder(monkeypatch, capsys):
    def refuse(*_):
        raise hdfs.HdfsRefused("/x: Permission denied: user=me")

    monkeypatch.setattr(hdfs, "connect", lambda uri: SimpleNamespace(write=refuse, delete=lambda path: True))
    options = SimpleNamespace(work="hdfs:///x", env=None, hadoop_bin="/no/such/hadoop", streaming_jar=None)
    table = Table()
    ClusterCheck(table, options, Settings(), None).run()
    mark, said = _found(capsys.readouterr().out, "HDFS")
    assert (mark, "Permission denied" in said, "--work-dir" in said) == ("FAIL", True, True)
    assert packing.FOLDER not in said
