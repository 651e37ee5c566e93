"""``--runner hadoop`` on a real cluster: what it makes equals what the in-process engine makes, whatever happens."""

from __future__ import annotations

import bz2
import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from command_line import apnc, facts, table
from in_memory import flat_labels

from apnc import hdfs
from apnc.blocks import Block
from apnc.embed import EmbedMap, PredictMap
from apnc.embeddings.base import KernelEmbedding
from apnc.engines.hadoop import HadoopEngine
from apnc.engines.in_process import InProcessEngine
from apnc.errors import InputError
from apnc.kernels import make_kernel
from apnc.kmeans import AssignMap, KMeansFold
from apnc.pipeline import Listener, Run, train
from apnc.readers import encoded
from apnc.readers.detect import describe
from apnc.scaling import Scaler
from apnc.settings import Settings
from mr_jobs.cluster import HadoopOptions

from .runs import RUNS, nothing_left, wait_for

BLOCK = 4096  # so small that small files have several
ON_HADOOP = ("--runner", "hadoop", "--python-bin", sys.executable)
ONCE = ("--jobconf", "mapreduce.map.maxattempts=1")
TOGETHER = ("--jobconf", "mapreduce.job.ubertask.enable=true")  # a job in one container: where nothing is about tasks


@pytest.fixture(scope="module")
def rows():
    """Rows of three groups that overlap a little, in four decimals."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(3 * i, 1.2, (300, 4)) for i in range(3)])
    rng.shuffle(x)
    return x.round(4)


def _lines(rows, end="\n"):
    return "".join(",".join(f"{v:.4f}" for v in row) + end for row in rows)


def _svmlight(rows):
    return "".join("1 " + " ".join(f"{j + 1}:{v:.4f}" for j, v in enumerate(row) if v > 0) + "\n" for row in rows)


def _settings(**more):
    return Settings(**{"k": 3, "landmarks": 40, "dim": 30, "sample": 300, "restarts": 2, "passes": 1} | more).check()


def _options(**more):
    return HadoopOptions(python_bin=sys.executable, **more)


def _same_labels(found, expected):
    np.testing.assert_allclose(found["distances"], expected["distances"], atol=2e-5)
    for name in ("rows", "clusters", "bad", "rules"):
        assert found[name] == expected[name], name


def _same_sample(found, expected):
    assert found.sources == expected.sources
    assert np.array_equal(found.offsets, expected.offsets)
    assert np.array_equal(found.source_index, expected.source_index)
    x, y = (m.toarray() if hasattr(m, "indptr") else m for m in (found.x, expected.x))
    assert np.array_equal(x, y)
    assert (found.rules, found.problems) == (expected.rules, expected.problems)


def _whole(engine, data, settings):
    run = Run(settings, data.estimated_rows(), data.spec.width)
    with engine:
        model = train(run, engine, Listener())
        return run, flat_labels(engine.labels(AssignMap(model.centroids[0], model.metric), Listener()))


def _sampled_and_predicted(engine, data, settings):
    """Run the sample pass and label all rows from it: two jobs that read the input in two ways."""
    run = Run(settings, data.estimated_rows(), data.spec.width)
    with engine:
        from apnc.embeddings import make_method

        step = make_method(settings.method).next_pass(run)
        run.absorb(step.stage, engine.run(step, Listener()))
        model = run.model
        model.centroids = model.centroids[:1]
        data.spec.width = model.width
        return run, flat_labels(engine.labels(PredictMap.of(model), Listener()))


# Formats


def test_text_by_streaming_a_folder_of_all_that_may_happen_to_lines(on_cluster, rows, tmp_path):
    header = "a,b,c,d\n"
    odd = _lines(rows[:200]).splitlines()
    odd[20], odd[50], odd[51] = "1,2\r3,4", "# a comment", "   "  # a bare carriage return: bad, but one line
    files = {
        "in #1/a b.csv": header + "\n".join(odd) + "\n",
        "in #1/crlf.csv": header.replace("\n", "\r\n") + _lines(rows[200:400], "\r\n"),
        "in #1/données 日本.csv": "\n# first\n" + header + _lines(rows[400:500]).rstrip("\n"),
        "in #1/sub/z%20.csv": "\ufeff" + header + _lines(rows[500:600]),
        "in #1/_hidden.csv": "no rows",
        "in #1/.hidden": "no rows",
    }
    contents = {name: text.encode() for name, text in files.items()}
    packed = (header + _lines(rows[600:])).encode()
    contents["in #1/multi.csv.gz"] = gzip.compress(packed[:3000]) + gzip.compress(packed[3000:])
    for name, content in contents.items():
        on_cluster.put(f"/all/{name}", content, **({"blocksize": BLOCK} if "crlf" in name else {}))
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    here, there = describe([str(tmp_path / "in #1")]), describe([f"{on_cluster.namenode}/all/in #1"])
    assert (here.spec.header_line, here.spec.sources) == (there.spec.header_line, there.spec.sources)
    settings = _settings(on_bad_row="skip")
    run, labels = _whole(InProcessEngine(here), here, settings)
    engine = HadoopEngine(there, _options())
    found_run, found = _whole(engine, there, settings)
    _same_sample(found_run.sample, run.sample)
    _same_labels(found, labels)
    assert len(labels["rows"]) == 897
    assert labels["bad"] == [("a b.csv", len(header) + sum(len(line) + 1 for line in odd[:20]))]
    assert engine.counts["coefficients"]["launched_maps"] > len(here.files)  # one was cut
    assert engine.counts["embed"]["shuffle_bytes"] == 0
    assert engine.counts["embed"]["launched_reduces"] == 0
    nothing_left(on_cluster)


def test_local_svmlight_is_brought_to_hdfs_in_small_blocks(on_cluster, rows, tmp_path):
    folder = tmp_path / "x"
    folder.mkdir()
    (folder / "a[1],{b}.svm").write_text(_svmlight(rows[:500]))
    (folder / "b.svm.gz").write_bytes(gzip.compress(_svmlight(rows[500:]).encode()))
    settings = _settings(method="stable")
    here = describe([str(folder)])
    run, labels = _sampled_and_predicted(InProcessEngine(here), here, settings)
    data = describe([str(folder)])
    engine = HadoopEngine(data, _options(jobconf={"dfs.blocksize": str(BLOCK)}))
    found_run, found = _sampled_and_predicted(engine, data, settings)
    _same_sample(found_run.sample, run.sample)
    _same_labels(found, labels)
    assert engine.counts["predict"]["launched_maps"] > 3
    nothing_left(on_cluster)


@pytest.mark.parametrize("kind", ["npy", "bz2"])
def test_what_hadoop_does_not_read_goes_by_units(on_cluster, rows, tmp_path, kind):
    for i, some in enumerate((rows[:550], rows[550:])):
        path = tmp_path / f"{'[x]' if i else 'a,b'}.{'npy' if kind == 'npy' else 'csv.bz2'}"
        if kind == "npy":
            np.save(path, some.astype(np.float32))
        else:
            text = _lines(some).encode()
            path.write_bytes(bz2.compress(text[:2000]) + bz2.compress(text[2000:]))
        on_cluster.put(f"/{kind}/{path.name}", path.read_bytes(), blocksize=BLOCK)
    here = describe([str(tmp_path)])
    run, labels = _sampled_and_predicted(InProcessEngine(here), here, _settings())
    data = describe([f"hdfs:///{kind}"])
    engine = HadoopEngine(data, _options(), splits=3)
    found_run, found = _sampled_and_predicted(engine, data, _settings())
    _same_sample(found_run.sample, run.sample)
    _same_labels(found, labels)
    assert engine.counts["predict"]["launched_maps"] == (3 if kind == "npy" else 2)
    assert engine.counts["predict"]["rows"] == len(rows)


@pytest.mark.parametrize("name", ["a[1].csv", "a,b.csv", "{a}.csv"])
def test_a_name_that_hadoop_cannot_take_is_refused_early(on_cluster, tmp_path, name):
    on_cluster.put(f"/names/{name}", b"1,2\n3,4\n")
    outcome = apnc("cluster", f"hdfs:///names/{name}", "-k", "2", "-o", tmp_path / "out", *ON_HADOOP)
    outcome.refused(name, "rename it")
    assert not list(tmp_path.iterdir())


# The command line


@pytest.fixture(scope="module")
def table_file(rows, tmp_path_factory):
    """A csv with a header, ids and classes."""
    path = tmp_path_factory.mktemp("table") / "x.csv"
    lines = [f"r{i},{','.join(f'{v:.4f}' for v in row)},c{i % 2}" for i, row in enumerate(rows)]
    path.write_text("id,a,b,c,d,class\n" + "\n".join(lines) + "\n")
    return path


COLUMNS = ("--id-column", "id", "--label-column", "class")
SMALL = ("-k", "3", "--landmarks", "40", "--sample", "300", "--passes", "1")


def test_a_run_leaves_labels_on_hdfs_and_the_rest_at_home(on_cluster, table_file, tmp_path):
    reference, out = tmp_path / "reference", tmp_path / "out"
    apnc("cluster", table_file, *COLUMNS, *SMALL, "-o", reference)
    outcome = apnc("cluster", table_file, *COLUMNS, *SMALL, "-o", out, *ON_HADOOP)
    assert outcome.status == 0, outcome.err
    assert sorted(path.name for path in out.iterdir()) == ["model.npz", "run.json"]
    found, expected = facts(out), facts(reference)
    where = found["labels"]
    assert where in outcome.out
    assert found["cluster_sizes"] == expected["cluster_sizes"]
    assert found["scores"] == pytest.approx(expected["scores"], rel=1e-9)
    assert found["objective"] == pytest.approx(expected["objective"], rel=1e-5)
    assert found["model"]["kernel"] == expected["model"]["kernel"]
    # labels, and nothing else, are on HDFS
    folder = hdfs.split(where)[1]
    assert on_cluster.list(os.path.dirname(folder)) == ["labels"]
    text = on_cluster.get(folder).decode()
    assert "\t" not in text
    shown = [line.split(",") for line in text.splitlines() if not line.startswith("#")]
    assert [(line[4].strip('"'), line[2]) for line in shown] == [
        (row["id"], row["cluster"]) for row in table(reference / "labels.csv")
    ]
    counts = found["hadoop"]
    assert set(counts) == {"coefficients", "embed", "kmeans", "assign"}
    assert counts["kmeans"]["jobs"] == 1
    assert counts["kmeans"]["rows"] == 900
    assert all(c["failed_maps"] == 0 and c["cpu_milliseconds"] > 0 and c["bytes_read"] > 0 for c in counts.values())
    assert counts["kmeans"]["data_local_maps"] > 0
    on_cluster.delete(os.path.dirname(folder))
    nothing_left(on_cluster)


def test_stages_one_by_one_and_labels_collected_later(on_cluster, table_file, tmp_path):
    reference, out = tmp_path / "reference", tmp_path / "out"
    apnc("cluster", table_file, *COLUMNS, *SMALL, "-o", reference)
    for command in (
        ("sample", table_file, "-o", out, "--sample", "300", *COLUMNS, *ON_HADOOP),
        ("coefficients", out, "-k", "3", "--landmarks", "40", "--passes", "5"),
        ("embed", out, *ON_HADOOP, *TOGETHER),
        ("kmeans", out, "--passes", "1", *ON_HADOOP, *TOGETHER),
        ("assign", out, *ON_HADOOP, *TOGETHER),
        ("collect", out),
    ):
        outcome = apnc(*command)
        assert outcome.status == 0, outcome.err
    assert [(r["id"], r["cluster"]) for r in table(out / "labels.csv")] == [
        (r["id"], r["cluster"]) for r in table(reference / "labels.csv")
    ]
    folder = json.loads((out / "hadoop.json").read_text())["folder"]
    assert on_cluster.list(folder) == ["embedding", "labels"]
    apnc("kmeans", out).refused("passes are over")
    apnc("assign", out).refused("embedding", "run apnc embed first")
    on_cluster.delete(folder)


def test_a_job_by_itself(on_cluster, table_file, tmp_path):
    args = [sys.executable, "-m", "mr_jobs.sample", "-r", "hadoop", "--python-bin", sys.executable]
    args += ["--sample", "600", *COLUMNS, "--output", "sample.npz", os.path.relpath(table_file, tmp_path)]
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        args, cwd=tmp_path, env=on_cluster.env | {"PYTHONPATH": root}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    apnc("sample", table_file, "-o", tmp_path / "here", "--sample", "600", *COLUMNS)
    ours, theirs = (np.load(tmp_path / name) for name in ("sample.npz", "here/sample.npz"))
    assert np.array_equal(ours["offsets"], theirs["offsets"])
    assert np.array_equal(ours["x"], theirs["x"])
    nothing_left(on_cluster)


# What a pass exchanges


def test_a_kmeans_pass_ships_what_k_and_m_say_whatever_n_is(on_cluster, tmp_path):
    rng = np.random.default_rng(1)
    k, m, runs = 10, 60, 2
    centroids = rng.normal(size=(runs, k, m))
    shuffled = {}
    np.save(tmp_path / "x.npy", np.zeros((5, m)))
    for n in (2_000, 20_000):
        with HadoopEngine(describe([str(tmp_path / "x.npy")]), _options(), splits=2) as engine:
            for i, y in enumerate(np.array_split(rng.normal(size=(n, m)).astype(np.float32), 2)):
                line = b"block\t" + encoded.encode(Block("x.npy", np.arange(len(y)), y)) + b"\n"
                engine.filesystem.write(f"{engine.folder}/embedding/part-{i:05d}", line)
            fold = KMeansFold(centroids)
            found = engine.fold(fold, Listener())
            counts = engine.counts["kmeans"]
            shuffled[n] = counts["shuffle_bytes"]
            assert shuffled[n] <= counts["launched_maps"] * runs * k * (m + 3) * 8 * 1.5
            if n == 20_000:
                engine.options.combiner = True
                combined = engine.fold(fold, Listener())
                np.testing.assert_allclose(combined.sums, found.sums, rtol=1e-12, atol=1e-12)
                assert np.array_equal(combined.counts, found.counts)
                np.testing.assert_allclose(combined.objectives, found.objectives, rtol=1e-12)
            assert found.counts.sum() == runs * n
    assert abs(shuffled[20_000] - shuffled[2_000]) < 0.02 * shuffled[2_000]


def test_blocks_that_fit_a_task_one_at_a_time_but_not_together(on_cluster, tmp_path):
    rng = np.random.default_rng(2)
    d, l, m, q = 400, 3000, 2000, 3  # each block: 48 MB of R and 9.6 MB of L
    kernel = make_kernel("rbf", {"sigma": 20.0})
    landmarks = [rng.normal(size=(l, d)) for _ in range(q)]
    coefficients = [rng.normal(size=(m, l)) / l for _ in range(q)]
    embedding = KernelEmbedding(kernel, landmarks, coefficients)
    np.save(tmp_path / "x.npy", rng.normal(size=(150, d)).astype(np.float32))
    data = describe([str(tmp_path / "x.npy")])
    step = EmbedMap(embedding, Scaler("none", None, None), d, False)
    # what one block needs beside the interpreter and its libraries, which are measured
    measure = "import numpy, scipy.linalg, mr_jobs.embed, apnc.hdfs; print(open('/proc/self/status').read())"
    env = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    status = subprocess.run([sys.executable, "-c", measure], env=env, capture_output=True, text=True, check=True).stdout
    base = int(status.partition("VmPeak:")[2].split()[0]) >> 10
    one = 8 * (m * l + l * d) * 3 // 2 >> 20  # in float64, and once more in float32
    limit = base + 2 * one + 100
    assert limit < base + q * one + 100
    limited = tmp_path / "python"
    limited.write_text(f'#!/bin/sh\nulimit -v {limit << 10}\nexec {sys.executable} "$@"\n')
    limited.chmod(0o755)
    with HadoopEngine(data, HadoopOptions(python_bin=str(limited))) as engine:
        engine.embed(step, Listener())
        source = engine.source(KMeansFold(np.zeros((1, 1, q * m))))
        from apnc.readers.streamed import embedded

        content = on_cluster.get(hdfs.split(source.paths[0])[1])
        blocks = list(embedded(content.splitlines(), 1 << 20))
    (expected,) = InProcessEngine(data)._mapped(step, Listener())
    assert np.array_equal(np.concatenate([b.x for b in blocks]), expected.x)


# Failures


def _wrapper(tmp_path, script):
    path = tmp_path / "python"
    path.write_text("#!/bin/sh\n" + script)
    path.chmod(0o755)
    return path


FAILURES = {
    "traceback": (
        f"exec {sys.executable} -c 'def work(): raise ValueError(\"boom\")\nwork()'\n",
        ("coefficients: map task failed", "ValueError: boom (<string> line 1, in work)", "application_", "container_"),
    ),
    "module": (f'exec {os.path.realpath(sys.executable)} -S "$@"\n', ("package numpy is missing", "--python-bin")),
    "killed": ("kill -9 $$\n", ("was killed (code 137)", "--jobconf mapreduce.map.memory.mb=")),
}


@pytest.mark.parametrize("kind", FAILURES)
def test_why_a_task_failed_is_said_once(on_cluster, table_file, tmp_path, kind):
    script, parts = FAILURES[kind]
    python = _wrapper(tmp_path, script)
    arguments = ("--runner", "hadoop", "--python-bin", python, *ONCE)
    outcome = apnc("cluster", table_file, *COLUMNS, *SMALL, "-o", tmp_path / "out", *arguments)
    assert outcome.status == 3
    for part in parts:
        assert outcome.err.count(part) >= 1, outcome.err
    assert outcome.err.count("Traceback") == (kind == "traceback")
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "out.partial").exists()
    nothing_left(on_cluster)


def test_an_interpreter_that_is_not_there_is_named_and_the_next_run_is_not_hindered(on_cluster, table_file, tmp_path):
    arguments = ("--runner", "hadoop", "--python-bin", "/no/such/python3", *ONCE)
    outcome = apnc("cluster", table_file, *COLUMNS, *SMALL, "-o", tmp_path / "out", *arguments)
    assert outcome.status == 3
    assert "/no/such/python3" in outcome.err
    assert "--python-bin" in outcome.err
    assert "127" in outcome.err
    assert list(tmp_path.iterdir()) == []
    nothing_left(on_cluster)


def test_a_container_over_its_memory_is_explained(on_cluster, table_file, tmp_path):
    python = _wrapper(tmp_path, f"exec {sys.executable} -c 'import time; x = b\"x\" * (400 << 20); time.sleep(60)'\n")
    arguments = ("--runner", "hadoop", "--python-bin", python, *ONCE, "--jobconf", "mapreduce.map.memory.mb=384")
    outcome = apnc("cluster", table_file, *COLUMNS, *SMALL, "-o", tmp_path / "out", *arguments)
    assert outcome.status == 3
    assert "beyond physical memory limits" in outcome.err
    assert "--jobconf mapreduce.map.memory.mb=768" in outcome.err


def test_more_memory_than_a_container_may_have_is_refused(on_cluster, table_file, tmp_path):
    arguments = (*ON_HADOOP, "--jobconf", "mapreduce.map.memory.mb=99999")
    outcome = apnc("cluster", table_file, *COLUMNS, *SMALL, "-o", tmp_path / "out", *arguments)
    outcome.refused("--jobconf mapreduce.map.memory.mb=99999: this cluster gives a container 4096 MiB at most")
    assert list(tmp_path.iterdir()) == []
    nothing_left(on_cluster)


def test_what_no_node_can_give_is_said_in_yarns_words(on_cluster, table_file, tmp_path, monkeypatch):
    monkeypatch.setattr("mr_jobs.yarn.Yarn.largest_container", lambda self: None)  # where nobody tells
    arguments = (*ON_HADOOP, "--jobconf", "mapreduce.map.memory.mb=99999")
    outcome = apnc("cluster", table_file, *COLUMNS, *SMALL, "-o", tmp_path / "out", *arguments)
    assert outcome.status == 3
    assert "required MAP capability is more than the supported max" in outcome.err


def test_bad_rows_found_by_tasks_are_told_as_by_the_other_engines(on_cluster, tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("1,2\n3,oops\n5,6\n")
    outcome = apnc("cluster", path, "-k", "2", "-o", tmp_path / "out", *ON_HADOOP)
    here = apnc("cluster", path, "-k", "2", "-o", tmp_path / "out")
    assert outcome.refused("x.csv line 2, column 2", "'oops'") == here.err
    nothing_left(on_cluster)


@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_a_damaged_compressed_input_is_refused_and_named(on_cluster, rows, tmp_path, damage):
    whole = gzip.compress(_lines(rows).encode())
    middle = len(whole) * 3 // 4
    flipped = whole[:middle] + bytes(255 - c for c in whole[middle : middle + 20]) + whole[middle + 20 :]
    for name, content in (("a.csv.gz", whole), ("b.csv.gz", whole[:middle] if damage == "cut" else flipped)):
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / name).write_bytes(content)
    outcome = apnc("cluster", tmp_path / "in", *SMALL, "-o", tmp_path / "out", *ON_HADOOP, *ONCE)
    outcome.refused("b.csv.gz: found ", "must be complete" if damage == "cut" else "must be undamaged")
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
    nothing_left(on_cluster)


# Interrupts


class _Driver:
    """A run in a process of its own, which is interrupted in the middle of a pass."""

    def __init__(self, cluster, *argv):
        self.cluster = cluster
        env = cluster.env | {"PYTHONPATH": str(Path(__file__).parents[2])}
        self.before = {a["id"] for a in cluster.applications()}
        command = [sys.executable, "-m", "apnc.cli", *map(str, argv)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen(command, env=env, text=True, **pipes)

    def application(self, name, nth=1):
        """Wait until the nth application of a name runs, and return its id."""

        def running():
            ours = [a for a in self.cluster.applications() if a["id"] not in self.before and a["name"] == name]
            return len(ours) >= nth and ours[nth - 1]["state"] == "RUNNING" and ours[nth - 1]["id"]

        return wait_for(running, self.process, seconds=240)

    def end(self, number):
        self.process.send_signal(number)
        return self.process.communicate(timeout=60)[1]


def test_an_interrupt_ends_the_application_and_leaves_nothing(on_cluster, table_file, tmp_path):
    driver = _Driver(on_cluster, "cluster", table_file, *COLUMNS, *SMALL, "-o", tmp_path / "out", *ON_HADOOP)
    driver.application("apnc coefficients")
    error = driver.end(signal.SIGTERM)
    assert driver.process.returncode == 143
    assert "nothing was kept" in error
    assert list(tmp_path.iterdir()) == []
    nothing_left(on_cluster)


def test_a_run_goes_on_after_an_interrupt_and_after_a_driver_was_killed(on_cluster, table_file, tmp_path):
    out = tmp_path / "out"
    settings = ("-k", "3", "--landmarks", "40", "--sample", "300", "--passes", "3", "--init", "random")
    arguments = ("cluster", table_file, *COLUMNS, *settings, "-o", out, "--collect", *ON_HADOOP)
    first = _Driver(on_cluster, *arguments)
    first.application("apnc kmeans", 2)
    error = first.end(signal.SIGINT)
    assert first.process.returncode == 130
    assert "--resume" in error
    (run,) = on_cluster.list(RUNS)
    assert on_cluster.list(f"{RUNS}/{run}") == ["embedding"]
    assert not [a for a in on_cluster.applications() if a["state"] not in ("FINISHED", "KILLED", "FAILED")]
    second = _Driver(on_cluster, *arguments, "--resume")
    orphan = second.application("apnc kmeans", 2)
    second.end(signal.SIGKILL)
    outcome = apnc(*arguments, "--resume")
    assert outcome.status == 0, outcome.err
    states = {a["id"]: a["state"] for a in on_cluster.applications()}
    assert states[orphan] == "KILLED"
    apnc("cluster", table_file, *COLUMNS, *settings, "-o", tmp_path / "reference")
    assert [(r["id"], r["cluster"]) for r in table(out / "labels.csv")] == [
        (r["id"], r["cluster"]) for r in table(tmp_path / "reference" / "labels.csv")
    ]
    found = facts(out)
    assert len(found["passes"]) == 3
    assert found["hadoop"]["embed"]["jobs"] == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "reference"]
    assert sorted(path.name for path in out.iterdir()) == ["labels.csv", "model.npz", "run.json"]
    nothing_left(on_cluster)


def test_what_is_missing_is_said_before_anything_starts(tmp_path, table_file, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("HADOOP_HOME", "HADOOP_PREFIX", "HADOOP_COMMON_HOME", "HADOOP_INSTALL", "HADOOP_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    outcome = apnc("cluster", table_file, *COLUMNS, *SMALL, "-o", tmp_path / "out", *ON_HADOOP)
    assert outcome.status == 2
    assert "hadoop command" in outcome.err
    with pytest.raises(InputError, match="NAME=VALUE is needed"):
        from apnc.hadoop_settings import parsed_jobconf

        parsed_jobconf(["mapreduce.map.memory.mb"])
