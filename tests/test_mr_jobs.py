"""The jobs by themselves: what travels in lines, what tasks may do, what comes home when they fail."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from command_line import apnc, cluster
from hypothesis import given
from hypothesis import strategies as st
from in_memory import block, fold_rows
from processes import ROOT, environment, python, wait_for

from apnc import shards
from apnc.blocks import Block, Problem, from_text, to_text
from apnc.coefficients import BadRows, CoefficientsFold
from apnc.embed import EmbedMap
from apnc.errors import InputError, StageError
from apnc.kmeans import AssignMap, KMeansFold
from apnc.model import Model, load_npz, save_npz
from apnc.readers import InputSpec, Range, encoded
from apnc.readers.detect import describe
from apnc.sampling import EVERYTHING, SampleFold
from apnc.settings import Settings
from mr_jobs import job_for
from mr_jobs.base import CHUNK_BYTES
from mr_jobs.driver import Launcher, made_runner, splits_of

RUNNERS = ["inline", "local"]


@pytest.fixture
def rows(tmp_path):
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(4 * i, 1, (60, 3)) for i in range(3)])
    rng.shuffle(x)
    np.save(tmp_path / "rows.npy", x)
    return describe([str(tmp_path / "rows.npy")])


def launcher(runner, folder):
    return Launcher(runner, ["--no-conf"], folder)


def sample_of(data, runner, folder, job=None, splits=2):
    with launcher(runner, folder) as jobs:
        return jobs.fold(job or job_for("sample"), SampleFold(0, 100), data.spec, splits_of(data, splits))


# lines


@given(st.binary(max_size=100))
def test_text_brings_bytes_back(data):
    text = to_text(data)
    assert not set(text) & set(b"\t\r\n")
    assert bytes(from_text(text)).startswith(data)
    assert len(text) == 4 * -(-len(data) // 3)


def test_chunks_join_without_padding():
    assert CHUNK_BYTES % 3 == 0


def test_lines_of_many_lengths_are_aligned_and_writable():
    for n in range(40):
        block = Block("s" * n, np.arange(n), np.arange(3.0 * n).reshape(n, 3))
        back = Block.from_dict(encoded.from_line(encoded.encode(block)))
        assert back.source == block.source
        assert np.array_equal(back.x, block.x)
        assert back.x.flags.aligned and back.x.flags.writeable


def _shard(path, sizes, first=0):
    """Write blocks of the given numbers of rows; return their offsets."""
    with open(path, "wb") as file:
        for n in sizes:
            file.write(b"%d\t%s\n" % (n, encoded.encode(block(np.ones((n, 2)), "s", first))))
            first += n
    return first


def _offsets(ranges, max_rows=1000):
    return [b.offsets.tolist() for b in encoded.read_blocks(ranges, max_rows)]


@pytest.mark.parametrize("read_bytes", [7, 1 << 20])
def test_a_shard_cut_at_any_byte_yields_each_block_once(tmp_path, monkeypatch, read_bytes):
    monkeypatch.setattr(encoded, "READ_BYTES", read_bytes)
    path = str(tmp_path / "part-0")
    _shard(path, [1, 3, 0, 2])
    whole = [[0], [1, 2, 3], [], [4, 5]]
    size = os.path.getsize(path)
    for cut in range(0, size + 1, 1 if read_bytes > 7 else 13):
        assert _offsets([Range("", path, 0, cut)]) + _offsets([Range("", path, cut, None)]) == whole
        assert _offsets([Range("", path, 0, cut), Range("", path, cut, size)]) == whole


@pytest.mark.parametrize("count", [1, 2, 3, 8, 100])
def test_units_of_shards_cover_them_once(tmp_path, count):
    last = 0
    for i, sizes in enumerate([[3, 1], [], [5], [1] * 6]):
        last = _shard(tmp_path / f"part-{i}", sizes, last)
    units = encoded.units(sorted(tmp_path.iterdir()), count)
    assert 1 <= len(units) <= count
    assert [o for unit in units for b in _offsets(unit) for o in b] == list(range(last))


def test_no_shards_are_one_empty_unit(tmp_path):
    (tmp_path / "part-0").touch()
    assert encoded.units([tmp_path / "part-0"], 3) == encoded.units([], 3) == [[]]


def test_pieces_of_a_block_keep_bad_rows_in_their_place(tmp_path):
    problem = Problem("s", 4, None, "x", "rule")
    good, bad = np.array([0, 1, 5, 6, 9]), np.array([2, 4, 7, 11])
    block = Block("s", good, good[:, None] * 1.0, list("abcde"), None, None, bad, [problem], Counter(rule=4))
    (tmp_path / "p").write_bytes(b"0\t" + encoded.encode(block))
    pieces = list(encoded.read_blocks([Range("", str(tmp_path / "p"), 0, None)], 2))
    assert [p.offsets.tolist() for p in pieces] == [[0, 1], [5, 6], [9]]
    assert [p.bad.tolist() for p in pieces] == [[2, 4], [7], [11]]
    assert [i for p in pieces for i in p.ids] == list("abcde")
    assert sum((p.rules for p in pieces), Counter()) == block.rules
    assert [x for p in pieces for x in p.problems] == [problem]


# label shards

IDS = ["plain", "", " blank ", "a,b", 'say "x"', "tab\there", "#no comment", "ü→😀", "-1", "carriage\rreturn", "NULL"]


def _labels(source, offsets, distances=None, ids=None, labels=None, **more):
    x = np.column_stack([np.arange(len(offsets)) % 3, np.zeros(len(offsets)) if distances is None else distances])
    return Block(source, np.array(offsets, np.int64), x, ids, labels, **more)


def _read(tmp_path, blocks, **options):
    path = tmp_path / "part-00000"
    path.write_bytes(b"".join(shards.encode(b) + b"\n" for b in blocks))
    return list(shards.read([path], **options))


@pytest.mark.parametrize(("ids", "labels"), [(None, None), (IDS, None), (None, IDS), (IDS, IDS[::-1])])
def test_labels_come_back_whatever_the_text(tmp_path, ids, labels):
    distances = np.random.default_rng(0).random(len(IDS)) * 10.0 ** np.arange(-150, 180, 30)
    block = _labels('a "b",c', range(10, 10 + len(IDS)), distances, ids, labels)
    (back,) = _read(tmp_path, [block], ids=ids is not None, labels=labels is not None)
    assert back.source == block.source
    assert np.array_equal(back.offsets, block.offsets)
    assert np.array_equal(back.x, block.x)  # to the last bit
    assert (back.ids, back.labels) == (ids, labels)


def test_a_line_feed_in_an_id_does_not_break_the_line(tmp_path):
    (back,) = _read(tmp_path, [_labels("s", [0, 1], ids=["a\nb", "c"])], ids=True)
    assert back.ids == ["a b", "c"]


@pytest.mark.parametrize("read_bytes", [1, 40, 1 << 20])
def test_bad_rows_and_problems_come_back(tmp_path, monkeypatch, read_bytes):
    monkeypatch.setattr(shards, "READ_BYTES", read_bytes)
    rule, damage = "a number is needed", "a file must be whole"
    bad = {"bad": np.array([2, 9]), "problems": [Problem("s", 2, 1, "x\n#", rule)], "rules": Counter({rule: 2})}
    fatal = {"problems": [Problem("s", 30, None, "", damage, True)], "rules": Counter({damage: 1})}
    blocks = [
        _labels("s", [1, 5], ids=["a", "b"], **bad),
        _labels("t", [0], ids=["c"]),
        _labels("s", [], ids=[], **fatal),
    ]
    back = _read(tmp_path, blocks, ids=True)
    assert [(b.source, o) for b in back for o in b.offsets.tolist()] == [("s", 1), ("s", 5), ("t", 0)]
    assert [o for b in back for o in b.bad.tolist()] == [2, 9]
    assert sum((b.rules for b in back), Counter()) == Counter({rule: 2, damage: 1})
    assert [p for b in back for p in b.problems] == bad["problems"] + fatal["problems"]
    text = (tmp_path / "part-00000").read_text().splitlines()
    assert text[1:5] == ['"s",1,0,0,"a"', '"s",2,-1,,', '"s",5,1,0,"b"', '"s",9,-1,,']


def test_shards_are_read_in_the_order_of_the_input(tmp_path):
    stretches = [("b", [7, 8]), ("a", [100]), ("b", [30]), ("a", [20, 90])]
    paths = []
    for i, (source, offsets) in enumerate(stretches):
        paths.append(tmp_path / f"part-{i}")
        paths[-1].write_bytes(shards.encode(_labels(source, offsets)) + b"\n")
    (tmp_path / "part-9").touch()
    back = shards.read([*paths, tmp_path / "part-9"], ["a", "b"])
    assert [(b.source, b.offsets.tolist()) for b in back] == [("a", [20, 90]), ("a", [100]), ("b", [7, 8]), ("b", [30])]


# passes


@pytest.mark.parametrize("runner", RUNNERS)
def test_kmeans_parts_are_merged_across_tasks(tmp_path, runner):
    rng = np.random.default_rng(0)
    y, centroids = rng.normal(size=(50, 4)), rng.normal(size=(2, 3, 4))
    with open(tmp_path / "part-0", "wb") as file:
        for low in range(0, 50, 7):
            file.write(b"\t" + encoded.encode(block(y[low : low + 7], "s", low)) + b"\n")
    fold = KMeansFold(centroids)
    expected = fold_rows(fold, [block(y, "s")])
    seen = []
    with launcher(runner, tmp_path) as jobs:
        units = encoded.units([tmp_path / "part-0"], 3)
        result = jobs.fold(job_for("kmeans"), fold, InputSpec(encoded.FORMAT), units, seen.append)
    np.testing.assert_allclose(result.sums, expected.sums, rtol=1e-12)
    np.testing.assert_allclose(result.objectives, expected.objectives, rtol=1e-12)
    assert np.array_equal(result.counts, expected.counts)
    assert result.rows == sum(seen) == 50


def test_combiner_merges_what_has_one_key(tmp_path):
    centroids = np.zeros((1, 2, 3), np.float32)
    job_class = job_for("kmeans")
    fold = KMeansFold(centroids)
    lines = []
    for seed in range(3):
        state: dict = {}
        fold.accumulate(state, block(np.random.default_rng(seed).normal(size=(5, 3)), "s"))
        lines += [(key.encode(), encoded.to_line(part)) for key, part in state.items()]
    lines.sort(key=lambda pair: pair[0])
    save_npz(tmp_path / "pass.npz", job_class.describe(fold))
    combined = list(job_class(["--model", str(tmp_path / "pass.npz")]).combine_pairs(iter(lines)))
    assert [key for key, _ in combined] == [b"rows", b"run-0"]
    assert encoded.from_line(combined[0][1])["rows"] == 15
    assert encoded.from_line(combined[1][1])["counts"].sum() == 15


def test_an_input_without_rows_has_a_result(tmp_path):
    (tmp_path / "part-0").touch()
    with launcher("inline", tmp_path) as jobs:
        fold = KMeansFold(np.ones((1, 2, 3)))
        result = jobs.fold(job_for("kmeans"), fold, InputSpec(encoded.FORMAT), encoded.units([tmp_path / "part-0"], 2))
        sample = jobs.fold(job_for("sample"), SampleFold(0, 10), InputSpec(encoded.FORMAT), [[]])
    assert result.rows == 0
    assert sample.count == 0


@pytest.mark.parametrize("runner", RUNNERS)
def test_warnings_of_the_reducer_reach_the_user(rows, tmp_path, runner):
    fold = CoefficientsFold(Settings(k=3, landmarks=500, passes=1), EVERYTHING)
    with launcher(runner, tmp_path) as jobs, pytest.warns(UserWarning, match="--landmarks 500 is more than the rows"):
        sample, model = jobs.fold(job_for("coefficients"), fold, rows.spec, splits_of(rows, 2))
    assert sample.count == 180
    assert model.centroids.flags.writeable


def test_a_sample_that_is_too_small_comes_without_a_model(rows, tmp_path):
    fold = CoefficientsFold(Settings(k=3, landmarks=20), 1 << 62)
    with launcher("inline", tmp_path) as jobs:
        sample, model = jobs.fold(job_for("coefficients"), fold, rows.spec, splits_of(rows, 2))
    assert model is None
    assert not sample.complete


# what goes wrong


@pytest.mark.parametrize("runner", RUNNERS)
def test_an_error_while_finishing_is_raised_in_the_driver(rows, tmp_path, runner):
    fold = CoefficientsFold(Settings(k=1000, landmarks=20), EVERYTHING)
    with launcher(runner, tmp_path) as jobs, pytest.raises(InputError, match=r"^-k 1000 is more than the 180 rows"):
        jobs.fold(job_for("coefficients"), fold, rows.spec, splits_of(rows, 2))


@pytest.mark.parametrize("runner", RUNNERS)
def test_bad_rows_are_raised_with_their_problems(tmp_path, runner):
    (tmp_path / "x.csv").write_text("1,2\n3,4\nno,5\n6,nan\n" + "7,8\n" * 20)
    data = describe([str(tmp_path / "x.csv")])
    fold = CoefficientsFold(Settings(k=2, landmarks=5), EVERYTHING)
    with launcher(runner, tmp_path) as jobs, pytest.raises(BadRows) as caught:
        jobs.fold(job_for("coefficients"), fold, data.spec, splits_of(data, 3))
    assert [(p.source, p.offset, p.column, p.value) for p in caught.value.problems] == [
        ("x.csv", 8, 1, "no"),
        ("x.csv", 13, 2, "nan"),
    ]
    assert sum(caught.value.rules.values()) == 2


def custom_job(tmp_path, accumulate, head=""):
    """Return a sample job, in a file of its own, whose fold does something besides."""
    body = textwrap.indent(textwrap.dedent(accumulate), " " * 16)
    path = tmp_path / "custom.py"
    path.write_text(
        f"""
import os, sys, time, warnings
from mr_jobs.sample import SampleJob as Base

class CustomJob(Base):
    def build(self, described):
        import apnc, numpy as np
        from apnc.errors import InputError
        from apnc.sampling import SampleFold

        class Fold(SampleFold):
            def accumulate(fold, state, block):
{body}
                super().accumulate(state, block)
        return Fold(**described)

if __name__ == "__main__":
    CustomJob.run()
"""
    )
    spec = importlib.util.spec_from_file_location("custom", path)
    module = sys.modules["custom"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.CustomJob


NOISE = """
    print("text for nobody")
    sys.stderr.write("and more\\n")
    warnings.warn("a warning")
    np.array([1.0]) / np.zeros(1)
    if "--mapper" in sys.argv:
        os.write(1, b"written by a library\\n")
        os.system("echo written by a child")
"""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("runner", RUNNERS)
def test_prints_and_warnings_in_a_task_harm_nothing(rows, tmp_path, runner):
    expected = sample_of(rows, "inline", tmp_path)
    sample = sample_of(rows, runner, tmp_path, custom_job(tmp_path, NOISE))
    assert np.array_equal(sample.x, expected.x)
    assert sample.count == expected.count


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_task_that_dies_is_explained_and_leaves_nothing(rows, tmp_path, runner):
    job = custom_job(tmp_path, "raise ValueError('boom')")
    work = tmp_path / "work"
    work.mkdir()
    where = (
        r"sample: map task [12] of 2 \(rows.npy from \d+, to \d+ of rows.npy\) failed: ValueError: boom \(.*custom.py "
    )
    with pytest.raises(StageError, match=where):
        sample_of(rows, runner, work, job)
    assert not list(work.iterdir())


def test_a_task_that_is_killed_is_explained(rows, tmp_path):
    job = custom_job(tmp_path, "os.kill(os.getpid(), 9)")
    with pytest.raises(StageError, match=r"failed: killed by signal 9 \(SIGKILL\)"):
        sample_of(rows, "local", tmp_path, job)


@pytest.mark.parametrize("runner", RUNNERS)
def test_an_error_of_the_user_in_a_map_task_stays_one(rows, tmp_path, runner):
    job = custom_job(tmp_path, "raise InputError('no such thing')")
    with pytest.raises(InputError, match=r"^no such thing$"):
        sample_of(rows, runner, tmp_path, job)


def test_the_package_travels_and_a_task_has_one_thread(rows, tmp_path, monkeypatch):
    told = """
    with open(os.environ["TOLD"], "a") as file:
        file.write(repr((apnc.__file__, os.getcwd(), os.environ["OMP_NUM_THREADS"])) + "\\n")
    """
    monkeypatch.setenv("TOLD", str(tmp_path / "told"))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    job = custom_job(tmp_path, told)
    sample_of(rows, "local", tmp_path, job)
    for line in (tmp_path / "told").read_text().splitlines():
        package, folder, threads = eval(line)
        assert package == os.path.join(folder, "apnc", "__init__.py")
        assert Path(folder).is_relative_to(tmp_path)
        assert threads == "1"
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    (tmp_path / "told").unlink()
    sample_of(rows, "local", tmp_path, job)
    assert "'3')" in (tmp_path / "told").read_text()


def test_folders_that_mrjob_would_take_for_patterns(rows, tmp_path):
    folder = tmp_path / "a[1] #b $HOME"
    folder.mkdir()
    assert sample_of(rows, "inline", folder).count == 180


INTERRUPTED = """
import sys
sys.path.insert(0, {tmp!r})
from custom import CustomJob
from apnc.readers.detect import describe
from apnc.sampling import SampleFold
from mr_jobs.driver import Launcher, made_runner, splits_of
data = describe([{rows!r}])
try:
    with Launcher({runner!r}, ["--no-conf"], {work!r}) as jobs:
        jobs.fold(CustomJob, SampleFold(0, 100), data.spec, splits_of(data, 2))
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.parametrize("runner", RUNNERS)
def test_an_interrupt_ends_tasks_and_leaves_nothing(rows, tmp_path, runner):
    custom_job(tmp_path, "open(os.path.join(os.environ['PIDS'], str(os.getpid())), 'w').close(); time.sleep(60)")
    pids, work = tmp_path / "pids", tmp_path / "work"
    pids.mkdir()
    work.mkdir()
    script = INTERRUPTED.format(tmp=str(tmp_path), rows=rows.files[0].path, runner=runner, work=str(work))
    driver = subprocess.Popen(
        [sys.executable, "-c", script],
        env=environment(PIDS=str(pids)),
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    wanted = 1 if runner == "inline" or len(os.sched_getaffinity(0)) == 1 else 2
    wait_for(lambda: len(list(pids.iterdir())) >= wanted, driver)
    driver.send_signal(signal.SIGINT)
    _, errors = driver.communicate(timeout=30)
    assert driver.returncode == 130, errors.decode()
    assert not list(work.iterdir())
    for path in pids.iterdir():
        with pytest.raises(ProcessLookupError):
            os.kill(int(path.name), 0)


def test_missing_mrjob_is_one_line():
    code = "import sys; sys.modules['mrjob.job'] = None; import mr_jobs; mr_jobs.job_for('sample')"
    last = python("-c", code).stderr.splitlines()[-1]
    assert last.startswith("apnc.errors.InputError: mrjob cannot be imported by this Python 3.")


def test_mrjob_is_imported_without_distutils_and_pipes():
    code = (
        "import sys\n"
        "class Gone:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in ('distutils', 'pipes'): raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Gone())\n"
        "import mr_jobs.runners, mr_jobs.sample\n"
        "from mrjob.compat import version_gte\n"
        "assert version_gte('3.4.1', '2.10') and not version_gte('0.20.2', '0.21')\n"
        "assert 'pipes' not in sys.modules and 'distutils' not in sys.modules\n"
    )
    done = python("-c", code)
    assert done.returncode == 0, done.stderr


# tasks import what their pass needs; a start counts on a cluster

HEAVY = {"sklearn", "matplotlib", "rich", "setuptools", "scipy.optimize", "scipy.linalg", "mrjob.local", "yaml.reader"}


def _imports_of_task(tmp_path, job, kind, spec, described, line):
    job_class = job_for(job)
    (tmp_path / "input.json").write_text(json.dumps(spec.to_dict()))
    if job_class.pass_option == "--settings":
        (tmp_path / "pass").write_text(json.dumps(described))
    else:
        save_npz(tmp_path / "pass", described)
    files = ("--input-spec", "input.json", job_class.pass_option, "pass")
    task = (ROOT / "mr_jobs" / f"{job}.py", "--step-num=0", f"--{kind}", *files)
    done = python("-X", "importtime", *task, text=False, cwd=tmp_path, input=line)
    assert done.returncode == 0, done.stderr.decode()[-1000:]
    assert done.stdout
    return {
        line.rpartition("|")[2].strip() for line in done.stderr.decode().splitlines() if line.startswith("import time:")
    }


@pytest.mark.parametrize("job", ["coefficients", "embed", "kmeans", "assign"])
def test_map_tasks_import_no_more_than_they_need(rows, tmp_path, job):
    fold = CoefficientsFold(Settings(k=3, landmarks=20, passes=1), EVERYTHING)
    spec, unit = rows.spec, splits_of(rows, 1)[0]
    with launcher("inline", tmp_path) as jobs:
        _, model = jobs.fold(job_for("coefficients"), fold, spec, [unit])
    if job in ("kmeans", "assign"):
        shard = tmp_path / "part-0"
        shard.write_bytes(b"\t" + encoded.encode(block(model.sample[:5], "s")) + b"\n")
        spec, unit = InputSpec(encoded.FORMAT), [Range("s", str(shard), 0, None)]
    steps = {
        "coefficients": lambda: fold,
        "embed": lambda: EmbedMap.of(model),
        "kmeans": lambda: KMeansFold(model.centroids),
        "assign": lambda: AssignMap(model.centroids[0]),
    }
    found = _imports_of_task(
        tmp_path, job, "mapper", spec, job_for(job).describe(steps[job]()), json.dumps(unit).encode() + b"\n"
    )
    assert "numpy" in found
    assert found & HEAVY == set()
    if job != "assign":
        assert not {name for name in found if name.partition(".")[0] in ("scipy", "pyarrow")}


def test_a_combiner_with_nothing_to_combine_imports_no_numpy(tmp_path):
    described = job_for("kmeans").describe(KMeansFold(np.zeros((1, 2, 3))))
    found = _imports_of_task(tmp_path, "kmeans", "combiner", InputSpec("npy"), described, b"rows\tAAAA\nrun-0\tAAAA\n")
    assert "mrjob.job" in found
    assert "numpy" not in found


# by hand


def run_job(tmp_path, name, *args, status=0):
    """Run a job in a folder; return what it said, on stderr if it was to fail."""
    temporary = tmp_path / "tmp"
    temporary.mkdir(exist_ok=True)
    done = python("-m", f"mr_jobs.{name}", "--no-conf", "-q", *args, cwd=tmp_path, TMPDIR=str(temporary))
    assert done.returncode == status, done.stderr
    assert not list(temporary.iterdir())
    return done.stdout if status == 0 else done.stderr


def test_a_clustering_by_hand(rows, tmp_path):
    data = tmp_path / "rows.csv"
    x = np.load(rows.files[0].path)
    data.write_text("".join(f"id-{i}," + ",".join(map(repr, r)) + "\n" for i, r in enumerate(x.tolist())))
    inline, local = ("--splits", "2", "-r", "inline"), ("--splits", "2", "-r", "local")
    ids = ("--id-column", "1", "rows.csv")
    settings = ("-k", "3", "--landmarks", "30", "--seed", "1", "--kernel-params", "sigma=auto*2", "--passes", "1")
    model = ("--model", "model.npz")
    run_job(tmp_path, "coefficients", *local, *settings, "--output", "model.npz", *ids)
    run_job(tmp_path, "sample", *inline, "--seed", "1", "--output", "sample.npz", *ids)
    run_job(tmp_path, "coefficients", *settings, "--from-sample", "sample.npz", "--output", "again.npz")
    one, two = (load_npz(tmp_path / name, "model") for name in ("model.npz", "again.npz"))
    assert np.array_equal(one["centroids"], two["centroids"])
    assert np.array_equal(one["embedding.landmarks.0"], two["embedding.landmarks.0"])
    run_job(tmp_path, "embed", *local, *model, "--output-dir", "embedding", *ids)
    said = run_job(tmp_path, "kmeans", *local, *model, "--output", "model.npz", "embedding")
    assert "passes are over (" in said
    assert Model.load(tmp_path / "model.npz").done
    run_job(tmp_path, "assign", *inline, *model, "--output-dir", "labels", "embedding")

    def label_lines(folder):
        lines = [line for path in sorted((tmp_path / folder).iterdir()) for line in path.read_text().splitlines()]
        return [line for line in lines if not line.startswith("#")]  # the last line of a shard sums it up

    lines = label_lines("labels")
    assert [line.split(",")[4] for line in lines] == [f'"id-{i}"' for i in range(180)]
    clusters = np.array([int(line.split(",")[2]) for line in lines])
    truth = np.round(x.mean(axis=1) / 4)
    assert all(len(set(clusters[truth == t])) == 1 for t in range(3))
    run_job(tmp_path, "predict", *inline, *model, "--output-dir", "predicted", *ids)
    assert [line.split(",")[:3] for line in label_lines("predicted")] == [line.split(",")[:3] for line in lines]
    said = run_job(tmp_path, "assign", *model, "--output-dir", "labels", "embedding", status=2)
    assert said == "assign: --output-dir labels exists already\n"


def test_an_embedding_is_not_taken_for_that_of_another_model(rows, tmp_path):
    given, settings = (rows.files[0].path,), ("-k", "3", "--landmarks", "30", "--passes", "1")
    for seed in "12":
        run_job(tmp_path, "coefficients", *settings, "--seed", seed, "--output", f"{seed}.npz", *given)
    run_job(tmp_path, "embed", "--model", "1.npz", "--output-dir", "embedding", *given)
    refused = "embedding: was embedded with another model than 2.npz\n"
    for job, output in (("kmeans", "--output"), ("assign", "--output-dir")):
        said = run_job(tmp_path, job, "--model", "2.npz", output, "out", "embedding", status=2)
        assert said.endswith(f"{job}: {refused}")
        assert not (tmp_path / "out").exists()
    # a copy of the model is the same model, and passes do not make it another
    run_job(tmp_path, "kmeans", "--model", "1.npz", "--output", "3.npz", "embedding")
    run_job(tmp_path, "assign", "--model", "3.npz", "--output-dir", "out", "embedding")


def test_a_sample_by_hand_is_that_of_the_command_line(rows, tmp_path):
    taken = ("--sample", "50", "--seed", "3", rows.files[0].path)  # less than the landmarks there are by default
    run_job(tmp_path, "sample", *taken, "--splits", "2", "--output", "sample.npz")
    apnc("sample", *taken, "-o", tmp_path / "run").done()
    ours, theirs = (load_npz(path, "sample") for path in (tmp_path / "sample.npz", tmp_path / "run" / "sample.npz"))
    assert ours["x"].shape == (50, 3)
    for name in ("x", "offsets", "source_index"):
        assert np.array_equal(ours[name], theirs[name])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--kernel-params", "sigma"], "--kernel-params sigma: NAME=VALUE is needed, such as sigma=2.5"),
        (["--kernel-params", "sigma=1 gamma=1"], "kernel rbf takes sigma or gamma, not both"),
        (["--init", "no"], "--init no: there is no such file; sample, random or a file of K rows is needed"),
    ],
)
def test_settings_by_hand_are_refused_as_on_the_command_line(tmp_path, options, said):
    assert (
        run_job(tmp_path, "coefficients", *options, "--output", "m.npz", "x.csv", status=2) == f"coefficients: {said}\n"
    )


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (b"runners: [", ["expected the node content", "line 1, column 11"]),
        (b"[3]", []),
        (b"\xff\xfe", ["utf-8"]),
        (b"include: nowhere.conf", ["nowhere.conf"]),
        (b"runners: {inline: 3, local: 3, hadoop: 3}", ["must be a dict"]),
        (b"runners: {inline: &x {cmdenv: 3}, local: *x, hadoop: *x}", ["cmdenv 3"]),
        (b"runners: {inline: &x {cleanup: [RUBBISH]}, local: *x, hadoop: *x}", ["cleanup must be one of", "RUBBISH"]),
    ],
)
def test_a_configuration_of_mrjob_that_it_cannot_use_is_named(tmp_path, monkeypatch, text, parts):
    (tmp_path / "tmp").mkdir()
    (tmp_path / "x.csv").write_text("1,2\n3,4\n")
    (tmp_path / "mrjob.conf").write_bytes(text)
    said = run_job(tmp_path, "sample", "-c", "mrjob.conf", "--output", "sample.npz", "x.csv", status=2)
    assert said.startswith("sample: mrjob.conf")
    assert said.count("\n") == 1
    monkeypatch.setenv("MRJOB_CONF", str(tmp_path / "mrjob.conf"))
    for runner in RUNNERS:
        cluster(tmp_path / "x.csv", tmp_path / "out", "-k", 2, "--runner", runner).refused("mrjob.conf", *parts)
        assert not (tmp_path / "out.partial").exists()
    with pytest.raises(InputError, match=r"mrjob\.conf"):
        made_runner(job_for("sample")(["-r", "hadoop", "x.csv"]))


def test_an_option_that_mrjob_refuses_is_not_blamed_on_its_configuration(tmp_path, monkeypatch):
    monkeypatch.setenv("MRJOB_CONF", str(tmp_path / "mrjob.conf"))
    (tmp_path / "mrjob.conf").write_text("runners: {inline: {cmdenv: {A: b}}}")
    job = job_for("sample")(["-r", "inline", "x.csv"])
    job.options.cleanup = ["NONE", "ALL"]
    with pytest.raises(InputError, match=r"^mrjob: .* \(cleanup option from the command line\)"):
        made_runner(job)


def test_bad_rows_by_hand_are_one_line(tmp_path):
    (tmp_path / "x.csv").write_text("1,2\n3,4\nno,5\n")
    said = run_job(tmp_path, "sample", "--output", "sample.npz", "x.csv", status=2)
    assert said.startswith("sample: x.csv line 3, column 1: found 'no'; ")
    assert said.count("\n") == 1
    assert not (tmp_path / "sample.npz").exists()


def test_splits_are_consecutive_and_cover_the_input(tmp_path):
    for i, n in enumerate([5, 1, 200, 1, 1, 90]):
        (tmp_path / f"{i}.csv").write_text("1,2\n" * n)
    data = describe([str(tmp_path)])
    for count in (1, 2, 3, 8, 1000):
        splits = splits_of(data, count)
        assert 1 <= len(splits) <= count
        ranges = [r for split in splits for r in split]
        for a, b in pairwise(ranges):
            assert (a.source == b.source and a.stop == b.start) or (a.source < b.source and b.start == 0)
        assert sum(r.stop - r.start for r in ranges) == 4 * 298
