"""What a k-means pass on Hadoop costs beside a bare streaming job, as ratios measured in one run.

    python benchmarks/hadoop_passes.py           on a test cluster that is started for it, or on that of
                                                 APNC_HADOOP_FOLDER (`make hadoop-up`), with nothing else running there

What each line must reach stands beside it. Two costs are told apart:

fixed      wall time of a pass over few rows, against that of ``hadoop jar`` with ``cat`` as mapper and reducer over the
           same blocks, with the same settings; and where it goes, from the times that the JobHistoryServer keeps
marginal   CPU time per row, from two sizes in as many map tasks, against what the work itself takes: the in-process
           engine's pass, base64 decoding of the same bytes, and a map-only ``cat`` over the same blocks

CPU_MILLISECONDS alone does not do for the second. A task's JVM adds up its process tree now and then
(mapreduce.task.progress-report.interval) and once more after the mapper has ended: what the mapper has used since the
last time is lost, in short tasks all of it. Here JVMs are kept from looking in between, and mappers are started by a
program that tells Hadoop, as a counter, what they have used.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
K, WIDTH, DIM = 10, 20, 100
FEW, SMALL, LARGE, SPLITS = 2_000, 20_000, 400_000, 2  # rows: of the fixed cost; of the marginal one, and its map tasks
HISTORY_SECONDS = 20
BUSY = ": others use this machine, so that wall times are not worth much"
GROUP, NAME = "benchmark", "cpu"  # counter of what mappers and reducers have used
MARGINAL = {
    "mapreduce.task.progress-report.interval": "600000",  # longer than a task
    "mapreduce.map.speculative": "false",  # a second copy would be counted too
    "dfs.blocksize": str(512 << 20),  # one split for each map task of the embed pass
}
PHASES = (
    ("our own, before", "began", "started"),
    ("submission", "started", "submitted"),
    ("waiting for the master", "submitted", "running"),
    ("maps", "running", "mapped"),
    ("reduce", "mapped", "reduced"),
    ("commit", "reduced", "finished"),
    ("the client's end", "finished", "ended"),
    ("collecting", "ended", "over"),
)


@dataclass
class Job:
    """A streaming job that has ended: moments in seconds since 1970, CPU time in seconds."""

    application: str
    began: float  # a user's call
    started: float  # the client process
    ended: float  # the client process
    over: float  # the call has returned
    arguments: list
    submitted: float = 0.0
    running: float = 0.0
    mapped: float = 0.0
    reduced: float = 0.0
    finished: float = 0.0
    maps: int = 0
    jvms: float = 0.0
    programs: float = 0.0

    @property
    def wall(self) -> float:
        return self.over - self.began

    @property
    def cpu(self) -> float:
        return self.jvms + self.programs


class History:
    """The JobHistoryServer, by its web services."""

    def __init__(self, address: str):
        self._jobs = f"{address}/ws/v1/history/mapreduce/jobs"

    def complete(self, job: Job) -> Job:
        """Add to a job what is kept of it."""
        name = job.application.replace("application_", "job_")
        kept = self._get(name, "job")
        tasks = self._get(f"{name}/tasks", "tasks")["task"]
        ends = {kind: [t["finishTime"] / 1000 for t in tasks if t["type"] == kind] for kind in ("MAP", "REDUCE")}
        job.submitted, job.running, job.finished = (kept[n] / 1000 for n in ("submitTime", "startTime", "finishTime"))
        job.mapped, job.maps = max(ends["MAP"]), len(ends["MAP"])
        job.reduced = max(ends["REDUCE"], default=job.mapped)
        groups = self._get(f"{name}/counters", "jobCounters")["counterGroup"]
        totals = {(g["counterGroupName"], c["name"]): c["totalCounterValue"] for g in groups for c in g["counter"]}
        job.jvms = totals["org.apache.hadoop.mapreduce.TaskCounter", "CPU_MILLISECONDS"] / 1000
        job.programs = totals.get((GROUP, NAME), 0) / 1000
        return job

    def _get(self, path, name):
        deadline = time.monotonic() + HISTORY_SECONDS
        while True:
            try:
                with urllib.request.urlopen(f"{self._jobs}/{path}", timeout=10) as answer:
                    return json.load(answer)[name]
            except urllib.error.HTTPError as error:  # not there yet
                if error.code != 404 or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)


@contextmanager
def running_cluster():
    """Give a test cluster that this process uses too: the one that is named, or one for this run."""
    sys.path.insert(0, str(ROOT))
    from tests.hadoop.cluster import Cluster

    @contextmanager
    def started():
        if folder := os.environ.get("APNC_HADOOP_FOLDER"):
            yield Cluster.attach(folder)
            return
        with Cluster() as cluster:
            yield cluster

    with started() as cluster:
        names = ("PATH", "HADOOP_HOME", "HADOOP_CONF_DIR", "JAVA_HOME")
        os.environ.update({name: cluster.env[name] for name in names})
        yield cluster


@contextmanager
def watched():
    """Note in the dict that is given when our runner's client process starts and ends, and its arguments."""
    from mr_jobs.hadoop import HadoopRunner

    noted, run = {}, HadoopRunner._run

    def noting(self):
        noted.update(arguments=self._args_for_step(0), started=time.time())
        run(self)
        noted.update(ended=time.time(), application=self.application)

    HadoopRunner._run = noting
    try:
        yield noted
    finally:
        HadoopRunner._run = run


def our_pass(engine, fold) -> Job:
    """Run a k-means pass."""
    from apnc.pipeline import Listener

    with watched() as noted:
        began = time.time()
        engine.fold(fold, Listener())
        return Job(began=began, over=time.time(), **noted)


def bare_job(ours: Job, engine, program="cat", map_only=False) -> Job:
    """Run ``hadoop jar`` over the same embedding with the settings of a pass of ours, without its files and mrjob."""
    from apnc.hadoop_settings import JVM

    output = engine.place("bare")
    command = ours.arguments[:3]  # hadoop jar STREAMING-JAR
    for option, value in zip(ours.arguments, ours.arguments[1:], strict=False):
        if option == "-D" and not (map_only and value.startswith("mapreduce.job.reduces=")):
            command += ["-D", value]
    command += ["-D", "mapreduce.job.reduces=0"] if map_only else []
    command += ["-input", engine.place("embedding"), "-output", output, "-mapper", program]
    command += [] if map_only else ["-reducer", program]
    environment = dict(os.environ, HADOOP_ROOT_LOGGER="INFO,console")
    environment["HADOOP_CLIENT_OPTS"] = f"{JVM} {os.environ.get('HADOOP_CLIENT_OPTS', '')}".strip()
    started = time.time()
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    ended = time.time()
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with status {done.returncode}:\n{done.stderr[-2000:]}")
    engine.filesystem.delete(f"{engine.folder}/bare")
    application = re.search(r"Submitted application (application_\d+_\d+)", done.stderr)[1]
    return Job(application, started, started, ended, ended, command)


def counting(program: str, folder: Path) -> str:
    """Return the path of a program that runs another one and counts its CPU time for Hadoop."""
    path = folder / f"counted-{Path(program).name}"
    path.write_text(f"""\
#!{sys.executable} -IS
import os, sys
child = os.posix_spawnp({program!r}, [{program!r}, *sys.argv[1:]], os.environ)
_, status, used = os.wait4(child, 0)
os.write(2, b"reporter:counter:{GROUP},{NAME},%d\\n" % (1000 * (used.ru_utime + used.ru_stime)))
sys.exit(os.waitstatus_to_exitcode(status))
""")
    path.chmod(0o755)
    return str(path)


def rows_of(folder: Path, n: int):
    """Return the described input of n rows in a file of their own."""
    from apnc.readers.detect import describe

    rng = np.random.default_rng(n)
    x = 2 * rng.standard_normal((K, WIDTH))[rng.integers(K, size=n)] + rng.standard_normal((n, WIDTH))
    path = folder / f"rows-{n}.npy"
    np.save(path, x.astype(np.float32))
    return describe([str(path)])


def passes(folder: Path):
    """Return an embedding Map and a k-means Fold over what it makes."""
    from apnc.embed import EmbedMap
    from apnc.engines.in_process import InProcessEngine
    from apnc.kmeans import KMeansFold
    from apnc.pipeline import Run, train
    from apnc.settings import Settings

    data = rows_of(folder, FEW)
    settings = Settings(k=K, landmarks=DIM, dim=DIM, sample=FEW, restarts=1, passes=1).check()
    with InProcessEngine(data) as engine:
        model = train(Run(settings, data.estimated_rows(), WIDTH), engine)
    return EmbedMap.of(model), KMeansFold(model.centroids, model.metric)


@contextmanager
def embedded(data, embed, splits=None, python=sys.executable, jobconf=None):
    """Give a HadoopEngine whose embedding is on HDFS."""
    from apnc.engines.hadoop import HadoopEngine
    from apnc.pipeline import Listener
    from mr_jobs.cluster import HadoopOptions

    options = HadoopOptions(python_bin=python, jobconf=jobconf or {})
    with HadoopEngine(data, options, splits=splits) as engine:
        engine.embed(embed, Listener())
        yield engine


def fixed_cost(history, folder, embed, fold, turns):
    """Compare a pass over few rows with a bare job, turn by turn, and print where the time of both goes."""
    ours, bare = [], []
    with embedded(rows_of(folder, FEW), embed) as engine:
        first = our_pass(engine, fold)  # packages and the like are written the first time
        bare_job(first, engine)
        for _ in range(turns):
            ours.append(history.complete(our_pass(engine, fold)))
            bare.append(history.complete(bare_job(ours[-1], engine)))
    row("fixed cost: a k-means pass / bare streaming job", _median(ours, "wall") / _median(bare, "wall"), "<= 1.25")
    print(f"  {'seconds, medians of ' + str(turns) + ' turns':<40}{'pass':>8}{'bare':>8}")
    for name, start, end in PHASES:
        print(f"  {name:<40}" + "".join(f"{_between(jobs, start, end):>8.2f}" for jobs in (ours, bare)))
    print(f"  {'all':<40}" + "".join(f"{_median(jobs, 'wall'):>8.2f}" for jobs in (ours, bare)))
    print(f"  {'turn by turn':<40}" + " ".join(f"{a.wall:.1f}/{b.wall:.1f}" for a, b in zip(ours, bare, strict=True)))


def marginal_cost(history, folder, embed, fold, turns):
    """Compare the CPU time per row of a pass with that of the work in it."""
    python, cat = counting(sys.executable, folder), counting("cat", folder)
    inputs = {n: rows_of(folder, n) for n in (SMALL, LARGE)}
    ours, bare = {}, {}
    with (
        embedded(inputs[SMALL], embed, SPLITS, python, MARGINAL) as small,
        embedded(inputs[LARGE], embed, SPLITS, python, MARGINAL) as large,
    ):
        engines = {SMALL: small, LARGE: large}
        for _ in range(turns):
            for n, engine in engines.items():
                ours.setdefault(n, []).append(history.complete(our_pass(engine, fold)))
                bare.setdefault(n, []).append(history.complete(bare_job(ours[n][-1], engine, cat, map_only=True)))
    maps = {job.maps for jobs in (ours, bare) for n in jobs for job in jobs[n]}
    if maps != {SPLITS}:
        raise SystemExit(f"jobs have had {maps} map tasks: both sizes must have {SPLITS}")
    here = in_process(inputs, embed, fold, turns)
    decoding = base64_decoding(turns)

    def per_row(jobs, name):
        return (_median(jobs[LARGE], name) - _median(jobs[SMALL], name)) / (LARGE - SMALL) * 1e6

    work = here + decoding + per_row(bare, "cpu")
    row("marginal CPU time: a pass / in-process, base64 and cat", per_row(ours, "cpu") / work, "<= 1.5")
    work_by_counter = here + decoding + per_row(bare, "jvms")
    row("the same, of JVMs alone (CPU_MILLISECONDS)", per_row(ours, "jvms") / work_by_counter, "<= 1.5")
    print(f"  {'microseconds per row of ' + str(DIM) + ' float32':<40}{'all':>8}{'JVMs':>8}{'program':>9}")
    for what, jobs in (("a k-means pass", ours), ("map-only cat", bare)):
        parts = [per_row(jobs, name) for name in ("cpu", "jvms", "programs")]
        print(f"  {what:<40}{parts[0]:>8.3f}{parts[1]:>8.3f}{parts[2]:>9.3f}")
    print(f"  {'in-process pass':<40}{here:>8.3f}")
    print(f"  {'base64 decoding':<40}{decoding:>8.3f}")
    for what, jobs in (("a k-means pass", ours), ("map-only cat", bare)):
        turn = "  ".join("/".join(f"{job.cpu:.2f}" for job in pair) for pair in zip(*jobs.values(), strict=True))
        print(f"  {what + ', s by turn, both sizes':<40}   {turn}")


def in_process(inputs, embed, fold, turns) -> float:
    """Return microseconds of CPU time per row of a pass in this process, the embedding in memory."""
    from apnc.engines.in_process import InProcessEngine
    from apnc.pipeline import Listener

    used = {}
    for n, data in inputs.items():
        with InProcessEngine(data, memory_budget=1 << 30) as engine:
            engine.embed(embed, Listener())
            engine.fold(fold, Listener())
            used[n] = []
            for _ in range(max(5, turns)):
                before = time.process_time()
                engine.fold(fold, Listener())
                used[n].append(time.process_time() - before)
    return (statistics.median(used[LARGE]) - statistics.median(used[SMALL])) / (LARGE - SMALL) * 1e6


def base64_decoding(turns) -> float:
    """Return microseconds of CPU time per row for base64 decoding, block by block."""
    from apnc.blocks import rows_per_block

    rows = rows_per_block(DIM)
    block = np.random.default_rng(0).standard_normal((rows, DIM), dtype=np.float32)
    text, blocks, used = base64.b64encode(block), -(-LARGE // rows), []
    for _ in range(max(5, turns)):
        before = time.process_time()
        for _ in range(blocks):
            base64.b64decode(text)
        used.append((time.process_time() - before) / (blocks * rows))
    return statistics.median(used) * 1e6


def _median(jobs, name):
    return statistics.median(getattr(job, name) for job in jobs)


def _between(jobs, start, end):
    return statistics.median(getattr(job, end) - getattr(job, start) for job in jobs)


def row(what, value, bar):
    print(f"{what:<62}{value:>10.5g}   {bar}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5, help="of each job (%(default)s)")
    parser.add_argument("--only", choices=("fixed", "marginal"), help="one of the two")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="apnc-passes-") as folder, running_cluster() as cluster:
        folder, history = Path(folder), History(cluster.historyserver_http)
        embed, fold = passes(folder)
        cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
        print(f"{cores} cores, load average {load:.1f} at the start{BUSY if load > cores else ''}")
        print(f"{'':<62}{'measured':>10}   bar")
        if arguments.only != "marginal":
            fixed_cost(history, folder, embed, fold, arguments.turns)
        if arguments.only != "fixed":
            marginal_cost(history, folder, embed, fold, arguments.turns)


if __name__ == "__main__":
    main()
