"""Settings of Hadoop's jobs, what streaming brings to a task, and what is made of a failed one: without a cluster."""

from __future__ import annotations

import io
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest

import mr_jobs.base
from apnc import hadoop_settings
from apnc.coefficients import CoefficientsFold
from apnc.embed import EmbedMap, PredictMap
from apnc.embeddings.base import KernelEmbedding
from apnc.embeddings.stored import stored_embedding
from apnc.engines.in_process import InProcessEngine
from apnc.errors import InputError, StageError
from apnc.hadoop_settings import (
    BYTES_PER_MAP,
    LOSSES,
    READING,
    START_UP,
    UNIT_BYTES,
    check_containers,
    map_tasks,
    needs_of,
    parsed_jobconf,
    passes_ahead,
    reduce_tasks,
    settings_for,
)
from apnc.kernels import make_kernel
from apnc.kmeans import AssignMap, KMeansFold
from apnc.model import save_npz
from apnc.pipeline import Run, train
from apnc.readers import streamed
from apnc.readers.array import ArrayInput
from apnc.readers.detect import describe
from apnc.readers.text import TextParser, first_data_line
from apnc.sampling import SampleFold
from apnc.scaling import Scaler
from apnc.settings import Settings
from mr_jobs.cluster import ClusterLauncher, Source, counted
from mr_jobs.kmeans import KMeansJob
from mr_jobs.yarn import Attempt, Yarn, explained, last_traceback


def _embed(l=100, d=20, m=50, q=1):
    rng = np.random.default_rng(0)
    blocks = [rng.normal(size=(l, d)) for _ in range(q)], [rng.normal(size=(m, l)) for _ in range(q)]
    embedding = KernelEmbedding(make_kernel("rbf", {"sigma": 2.0}), *blocks)
    return EmbedMap(embedding, Scaler("none", None, None), d, False)


# Settings


@pytest.mark.parametrize("setting", [*START_UP, *READING, *LOSSES])
def test_every_setting_has_a_reason(setting):
    assert setting.reason
    assert "." in setting.name


def _map_mb(step, row_bytes=100):
    return int(settings_for(needs_of(step, row_bytes), maps=1, reduces=1)["mapreduce.map.memory.mb"])


def test_memory_grows_with_what_a_task_holds_and_with_nothing_else():
    small, wide = KMeansFold(np.zeros((1, 10, 50))), KMeansFold(np.zeros((10, 1000, 500)))
    assert _map_mb(small) <= 640
    assert _map_mb(wide) > _map_mb(small) + 5 * 10 * 1000 * 500 * 8 / 2**20 * 0.9
    assert _map_mb(_embed(l=2000, d=2000, m=2000)) > _map_mb(_embed()) + 2 * 2 * 2000 * 2000 * 8 / 2**20 * 0.9
    # blocks are loaded one at a time
    assert _map_mb(_embed(l=2000, d=2000, m=200, q=3)) < _map_mb(_embed(l=2000, d=2000, m=200)) + 256
    fold = SampleFold(0, 10_000, width=1000)
    assert needs_of(fold, 100).reduce > 10_000 * 1000 * 8
    assert needs_of(PredictMap(_embed(), AssignMap(np.zeros((3, 50)))), 100).map > 0


def test_a_small_input_has_no_large_sample_whatever_is_asked_for():
    def reduce_mb(rows, **more):
        fold = CoefficientsFold(Settings(k=3, **more), 0, 10)
        return needs_of(fold, 50, rows).reduce >> 20

    assert reduce_mb(10_000_000, landmarks=20_000) > 8 * 20_000**2 >> 20
    assert reduce_mb(1000, landmarks=20_000) < 1024
    assert reduce_mb(10_000_000, landmarks=200) > reduce_mb(1000, landmarks=200)


def test_rows_of_many_columns_and_few_values_are_not_taken_for_dense():
    rows = _embed(l=100, d=10, m=50)
    rows.width = 1_000_000
    assert _map_mb(rows, row_bytes=1000) < 4096
    assert _map_mb(rows, row_bytes=1_000_000) > 2 * 8 * rows.rows_per_block()


@pytest.mark.parametrize("method", ["nystrom", "stable", "linear"])
@pytest.mark.parametrize("blocks", [1, 3])
def test_what_settings_tell_of_later_passes_is_what_these_will_ask_for(method, blocks):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 6))
    settings = Settings(
        k=4, method=method, kernel_params={"sigma": 1.0}, landmarks=90, dim=60, blocks=blocks, passes=1, restarts=2
    )
    run = Run(settings.check(), len(x), 6)
    done = []

    class Engine(InProcessEngine):
        def run(self, step, listener):
            done.append(step)
            return super().run(step, listener)

    with Engine(ArrayInput(x)) as engine:
        model = train(run, engine)
    done.append(AssignMap(model.centroids[0], model.metric))
    ahead = passes_ahead(settings, 6, sparse=False, rows=len(x))
    assert [step.stage for step in ahead] == [step.stage for step in done]
    for found, expected in zip(ahead, done, strict=True):
        assert needs_of(found, 100, len(x)) == needs_of(expected, 100, len(x)), found.stage


def test_what_no_container_can_hold_is_refused_with_what_to_lower():
    settings = settings_for(needs_of(_embed(l=8000, d=3000, m=2000), 100), maps=1, reduces=0)
    asked = settings["mapreduce.map.memory.mb"]
    check_containers("embed", settings, {}, None)
    check_containers("embed", settings, {}, int(asked))
    with pytest.raises(
        InputError, match=f"embed: a map task would need {asked} MiB .* 1024 at most; lower --landmarks"
    ):
        check_containers("embed", settings, {}, 1024)
    given = {"mapreduce.map.memory.mb": "1024"}
    check_containers("embed", settings | given, given, 1024)
    with pytest.raises(InputError, match=r"--jobconf mapreduce.map.memory.mb=1024: .* 1023 MiB at most"):
        check_containers("embed", settings | given, given, 1023)
    with pytest.raises(InputError, match=r"the job's master .* --jobconf yarn.app.mapreduce.am.resource.mb=512"):
        check_containers("embed", settings | {"mapreduce.map.memory.mb": "500"}, given, 512)


NODES = {"nodes": {"node": [{"usedMemoryMB": 512, "availMemoryMB": n} for n in (3584, 7680)]}}


@pytest.mark.parametrize(
    ("maximum", "nodes", "largest"),
    [
        ({"property": {"key": "x", "value": "4096"}}, NODES, 4096),
        ({"property": {"key": "x", "value": "16384"}}, NODES, 8192),
        (None, NODES, 8192),
        ({"properties": []}, {"nodes": None}, None),
        ({"property": {"key": "x", "value": "4096"}}, None, 4096),
        (None, None, None),
    ],
)
def test_the_largest_container_is_what_the_resource_manager_and_its_largest_node_give(
    monkeypatch, maximum, nodes, largest
):
    answers = {"/conf?name=yarn.scheduler.maximum-allocation-mb": maximum, "/ws/v1/cluster/nodes?states=RUNNING": nodes}
    monkeypatch.setattr(Yarn, "_get", lambda self, address, path: answers[path])
    assert Yarn({}).largest_container() == largest


def test_heaps_hold_the_longest_line_and_containers_hold_the_heap():
    step = _embed()
    settings = settings_for(needs_of(step, 100), maps=3, reduces=0, replication=1)
    heap = int(settings["mapreduce.map.java.opts"].rpartition("-Xmx")[2].rstrip("m"))
    assert heap * 2**20 > 2 * needs_of(step, 100).record
    assert int(settings["mapreduce.map.memory.mb"]) > heap + hadoop_settings.PYTHON_MB
    assert settings["mapreduce.job.reduces"] == "0"
    assert settings["dfs.replication"] == "1"
    assert "mapreduce.reduce.memory.mb" not in settings


def test_tasks_are_as_many_as_the_cluster_runs_and_the_input_is_worth():
    assert map_tasks(0, 100) == 1
    assert map_tasks(BYTES_PER_MAP - 1, 100) == 1
    assert map_tasks(5 * BYTES_PER_MAP, 100) == 5
    assert map_tasks(10 * UNIT_BYTES, 8) == 10
    assert map_tasks(10 * UNIT_BYTES, 8, wanted=3) == 3
    assert reduce_tasks(KMeansFold(np.zeros((1, 10, 50))), 1000, 50) == 1
    assert reduce_tasks(KMeansFold(np.zeros((10, 1000, 500))), 100, 16) == 16


def test_large_sums_travel_in_pieces_and_come_back_whole(monkeypatch):
    monkeypatch.setattr("mr_jobs.kmeans.PART_BYTES", 8 * 5 * 3)
    part = {"sums": np.arange(40.0).reshape(8, 5), "counts": np.arange(8)}
    pieces = dict(KMeansJob.split("run-0", part))
    assert sorted(pieces) == ["run-0/000000", "run-0/000001", "run-0/000002"]
    rows = {"rows": 7}
    whole = KMeansJob.joined(dict(reversed(pieces.items())) | {"rows": rows})
    assert whole["rows"] == rows
    assert all(np.array_equal(whole["run-0"][name], part[name]) for name in part)


def test_jobconf_is_name_and_value():
    assert parsed_jobconf(["a.b=c=d", "x=", "a.b=e"]) == {"a.b": "e", "x": ""}
    for bad in ("a.b", "=c"):
        with pytest.raises(InputError, match="NAME=VALUE is needed"):
            parsed_jobconf([bad])


def test_counters_are_few_and_of_fixed_names():
    counters = {"Job Counters ": {"Launched map tasks": 3, "Data-local map tasks": 2}, "apnc": {"rows": 7}}
    found = counted(counters, read_by_tasks=100)
    assert (found["launched_maps"], found["data_local_maps"], found["rows"], found["bytes_read"]) == (3, 2, 7, 100)
    assert set(found) == set(counted({}))


# What streaming brings


def _streaming(content: bytes, start=0) -> bytes:
    """Return what Hadoop writes to a map task that reads all of a file: a mark at the start is dropped."""
    lines, out, offset = content.split(b"\n"), [], 0
    for line in lines[:-1] if lines[-1] == b"" else lines:
        shown = line[3:] if offset == 0 and line.startswith(b"\xef\xbb\xbf") else line
        if offset >= start:
            out.append(b"%d\t%s\n" % (offset, shown))
        offset += len(line) + 1
    return b"".join(out)


CONTENTS = {
    "plain": b"1,2\n3,4\n5,6",
    "header": b"a,b\n1,2\r\n\n# c\n3,4\n" + b"".join(b"%d,%d\n" % (i, i) for i in range(300)),
    "mark": b"\xef\xbb\xbfa,b\n1,2\r\n\n# c\n3,4\nx,\xe4\n",
    "mark and no header": b"\xef\xbb\xbf1,2\n3,4\n\n\n\n5,x\n",
    "tabs": b"\n\n#s\na\tb\n1\t2\n3\t4\n",
    "carriage returns": b"1,2\n3\r4,5\n6,7\r\n",
}


@pytest.mark.parametrize("name", CONTENTS)
@pytest.mark.parametrize("size", [7, 50, 1 << 20])
def test_lines_after_their_offsets_make_the_rows_of_the_file(tmp_path, monkeypatch, name, size):
    path = tmp_path / "x.csv"
    path.write_bytes(CONTENTS[name])
    data = describe([str(path)])
    first = first_data_line(str(path), TextParser.blanks)[0]
    expected = [b for unit in data.units(1 << 30) for b in data.blocks(unit, 1000)]
    monkeypatch.setattr(streamed, "READ_BYTES", size)
    lines = io.BytesIO(_streaming(CONTENTS[name]))
    files = {str(path): ["x.csv", first if data.spec.header != "no" else None]}
    found = list(streamed.blocks(data.spec, lines, files, 1000, f"hdfs://node:8020{path}"))
    for part in ("offsets", "bad"):
        assert np.array_equal(*(np.concatenate([getattr(b, part) for b in blocks]) for blocks in (found, expected)))
    assert np.array_equal(*(np.concatenate([b.x for b in blocks]) for blocks in (found, expected)))
    assert sum((b.rules for b in found), start=type(found[0].rules)()) == sum(
        (b.rules for b in expected), start=type(found[0].rules)()
    )


def test_a_header_is_known_by_its_place_not_by_being_first_in_a_split(tmp_path):
    path = tmp_path / "x.csv"
    content = b"a,b\n1,2\na,b\n3,4\n"
    path.write_bytes(content)
    spec = describe([str(path)]).spec
    lines = io.BytesIO(_streaming(content, start=8))
    (block,) = streamed.blocks(spec, lines, {str(path): ["x.csv", 0]}, 100, str(path))
    assert block.bad.tolist() == [8]
    assert block.offsets.tolist() == [12]


def test_a_name_that_java_could_not_encode_is_found():
    spec = describe_spec()
    files = {"/a/données.csv": ["données.csv", None], "/a/b.csv": ["b.csv", None]}
    (block,) = streamed.blocks(spec, io.BytesIO(b"0\t1,2\n"), files, 100, "hdfs://n:1/a/donn?es.csv")
    assert block.source == "données.csv"
    with pytest.raises(ValueError, match="no file of the input"):
        list(streamed.blocks(spec, io.BytesIO(b"0\t1,2\n"), files, 100, "hdfs://n:1/a/c.csv"))


def describe_spec():
    from apnc.readers import InputSpec

    return InputSpec("csv", columns=2, width=2)


def test_a_split_without_lines_has_no_blocks():
    assert list(streamed.blocks(describe_spec(), io.BytesIO(b""), {"/x": ["x", 0]}, 100, "/x")) == []


def test_blocks_left_in_the_file_embed_as_those_in_memory(tmp_path):
    for q in (1, 3):
        step = _embed(q=q)
        save_npz(tmp_path / "pass.npz", step.to_dict())
        stored = stored_embedding(tmp_path / "pass.npz")
        if q == 1:
            assert stored is None
            continue
        _, embedding = stored
        x = np.random.default_rng(1).normal(size=(30, 20))
        assert np.array_equal(embedding.transform(x), step.embedding.transform(x))
        assert (embedding.dim, embedding.widest) == (step.embedding.dim, step.embedding.widest)


# Signs of life


def test_a_task_that_thinks_says_that_it_lives(monkeypatch):
    monkeypatch.setattr(mr_jobs.base, "IS_TASK", True)
    monkeypatch.setattr(hadoop_settings, "HEARTBEAT_SECONDS", 0.02)
    job = KMeansJob(["--mapper", "--step-num", "0"]).sandbox()
    with mr_jobs.base._heartbeats(job):
        deadline = time.monotonic() + 10
        while not job.stderr.getvalue() and time.monotonic() < deadline:
            matrix = np.random.default_rng(0).normal(size=(300, 300))
            np.linalg.eigh(matrix @ matrix.T)
    said = job.stderr.getvalue().splitlines()
    assert said
    assert set(said) == {b"reporter:status:kmeans: 0 rows"}
    time.sleep(0.1)
    assert job.stderr.getvalue().splitlines() == said  # and no more once it is over


# Why a task failed

TRACEBACK = """\
some line
Traceback (most recent call last):
  File "/data/nm0/usercache/me/appcache/application_1_1/container_1_1_01_000002/mr_jobs/kmeans.py", line 5, in work
    x
ValueError: first
another line
Traceback (most recent call last):
  File "/data/nm0/usercache/me/appcache/application_1_1/container_1_1_01_000002/apnc/kmeans.py", line 7, in closest
    y
ValueError: boom
the end
"""


def test_the_last_traceback_is_taken_and_shown_without_the_containers_folders():
    found = last_traceback(TRACEBACK)
    assert found.splitlines()[-1] == "ValueError: boom"
    assert '  File "apnc/kmeans.py", line 7, in closest' in found
    assert found.count("Traceback") == 1
    assert last_traceback("nothing of the kind") == ""


EXPLANATIONS = [
    ("", TRACEBACK, ["ValueError: boom (apnc/kmeans.py line 7, in closest)"]),
    (
        "",
        "Traceback (most recent call last):\n  File \"x.py\", line 1\nModuleNotFoundError: No module named 'numpy.x'",
        ["package numpy is missing", "--python-bin"],
    ),
    (
        "Container killed: is running beyond the 'PHYSICAL' memory limit. Current usage: 600 MB of 512 MB physical "
        "memory used; 2 GB of 3 GB virtual memory used.",
        "",
        ["beyond physical memory limits (600 MB of 512 MB used)", "--jobconf mapreduce.map.memory.mb=1024"],
    ),
    ("PipeMapRed.waitOutputThreads(): subprocess failed with code 137", "", ["killed (code 137)", "memory.mb=1024"]),
    (
        'java.io.IOException: Cannot run program "/x/py": error=2, No such file',
        "",
        ["code 127", "/x/py", "--python-bin"],
    ),
    ("subprocess failed with code 127", "", ["code 127", "--python-bin"]),
    ("Error: java.io.EOFException: Unexpected end of input stream", "", ["compressed file is damaged or not complete"]),
    ("subprocess failed with code 7", "reporter:status:x\nlast words\n", ["ended with code 7: last words"]),
    ("Error: java.io.IOException: odd\n\tat a.b.C", "", ["java.io.IOException: odd"]),
    ("", "", ["no log tells"]),
]


COMPRESS = "\n\tat org.apache.hadoop.io.compress"
DAMAGES = [
    (f"Error: java.io.EOFException: Unexpected end of input stream{COMPRESS}.DecompressorStream.decompress(D.java)", 1),
    ("Error: java.io.EOFException: Unexpected end of input stream", 1),
    (f"Error: java.io.IOException: not a gzip file{COMPRESS}.zlib.BuiltInGzipDecompressor.processHeader(B.java)", 0),
    (f"Error: java.io.IOException: incorrect data check{COMPRESS}.zlib.ZlibDecompressor.inflateBytesDirect(Native)", 0),
    ("java.util.zip.ZipException: Not in GZIP format\n\tat java.base/java.util.zip.GZIPInputStream.readHeader(G)", 0),
]
NO_DAMAGES = [  # of HDFS, of what tasks write, of the program
    f"Error: java.io.EOFException\n\tat java.io.DataInputStream.readShort(D.java){COMPRESS}.DecompressorStream.read(D)",
    f"Error: org.apache.hadoop.hdfs.BlockMissingException: Could not obtain\n\tat org.apache.hadoop.hdfs.X{COMPRESS}",
    f"Error: java.io.IOException: write beyond end of stream{COMPRESS}.CompressorStream.write(C.java:75)",
    "Error: java.lang.RuntimeException: PipeMapRed.waitOutputThreads(): subprocess failed with code 1",
    "",
]


def _failed(said, syslog="", files=("a.csv.gz", "b.csv.gz", "c.csv"), kind="m"):
    """Return the error of a job whose last attempt has failed so."""
    attempt = Attempt(f"attempt_1_1_{kind}_000000_0", "node:8042", "container_1", said)
    yarn = SimpleNamespace(failed_attempt=lambda *_: attempt, _log=lambda *_: syslog)
    yarn.input_of = lambda *args: Yarn.input_of(yarn, *args)
    launcher = SimpleNamespace(yarn=yarn, options=SimpleNamespace(python_bin="python3"))
    launcher._read_by = lambda *args: ClusterLauncher._read_by(launcher, *args)
    failure = SimpleNamespace(application="application_1_1", attempts=[], lines=[])
    source = Source("text", None, 1, files={f"/in/{name}": [f"in/{name}", None] for name in files})
    return ClusterLauncher._error(launcher, SimpleNamespace(stage="embed"), source, failure, {})


@pytest.mark.parametrize(("said", "early"), DAMAGES)
def test_a_damaged_compressed_input_is_the_users_error_and_named(said, early):
    syslog = "INFO MapTask: Processing split: hdfs://n:9000/in/b.csv.gz:0+77\nINFO MapTask: numReduceTasks: 1\n"
    error = _failed(said, syslog)
    assert isinstance(error, InputError)
    found = "it ends early; a compressed file must be complete" if early else "; a compressed file must be undamaged"
    assert str(error).startswith("in/b.csv.gz: found ") and str(error).endswith(found)
    assert "\n" not in str(error) and "java" not in str(error)
    assert str(_failed(said)).startswith("one of the 2 compressed files of the input: found ")
    assert str(_failed(said, files=("a.csv", "b.gz"))).startswith("in/b.gz: found ")
    assert isinstance(_failed(said, files=("a.csv",)), StageError)
    assert isinstance(_failed(said, kind="r"), StageError)


@pytest.mark.parametrize("said", NO_DAMAGES)
def test_what_is_not_the_inputs_damage_is_the_stages_failure(said):
    assert isinstance(_failed(said), StageError)


@pytest.mark.parametrize(("said", "log", "parts"), EXPLANATIONS)
def test_a_failure_is_explained_with_what_to_do(said, log, parts):
    attempt = Attempt("attempt_1_1_m_000000_0", "node:8042", "container_1_1_01_000002", said, log)
    cause, _ = explained(attempt, "/x/py", {"mapreduce.map.memory.mb": "512"})
    for part in parts:
        assert part in cause, cause


def test_the_setting_of_a_reducers_memory_is_named_for_a_reducer():
    attempt = Attempt("attempt_1_1_r_000000_0", diagnostics="subprocess failed with code 137")
    cause, _ = explained(attempt, sys.executable, {"mapreduce.reduce.memory.mb": "2048"})
    assert "--jobconf mapreduce.reduce.memory.mb=4096" in cause
