"""The main job against its peers and limits, as ratios measured in one run.

    python benchmarks/main_job.py mnist.npz          X (70000, 784) and y in an .npz, or X alone in an .npy
    python benchmarks/main_job.py --fetch            MNIST through scikit-learn's fetch_openml

What each line must reach stands beside it. Times are of warm code: interpreter start and imports are apart, and a
small run comes first. Both sides use all cores, and each time is the median of ``--repeat`` turns taken in alternation,
because machines drift.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from apnc.blocks import rows_per_block
from apnc.cli import main as apnc_main
from apnc.model import Model

K, LANDMARKS = 10, 500


def load(arguments) -> np.ndarray:
    """Return MNIST as float32 rows in 0..1."""
    if arguments.fetch:
        from sklearn.datasets import fetch_openml

        x = fetch_openml("mnist_784", as_frame=False).data
    else:
        x = np.load(arguments.mnist)
        x = x["X"] if hasattr(x, "files") else x
    x = x.astype(np.float32)
    return x / np.float32(255) if x.max() > 1 else x


def cluster(path, out, *more) -> dict:
    """Run ``apnc cluster`` in this process and return its run.json."""
    arguments = [
        "cluster",
        str(path),
        "-k",
        str(K),
        "--landmarks",
        str(LANDMARKS),
        "-o",
        str(out),
        "--overwrite",
        *more,
    ]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        status = apnc_main(arguments)
    if status:
        raise SystemExit(f"apnc {' '.join(arguments)} ended with status {status}")
    return json.loads((Path(out) / "run.json").read_text())


def timed(function):
    started = time.perf_counter()
    result = function()
    return time.perf_counter() - started, result


def whole_runs(x, path, out, repeat):
    """Time the whole run against scikit-learn's Nystroem and KMeans, turn by turn."""
    from sklearn.cluster import KMeans
    from sklearn.kernel_approximation import Nystroem

    ours, once, ten = [], [], []
    report = cluster(path, out)
    gamma = 1 / (2 * report["model"]["kernel"]["params"]["sigma"] ** 2)
    nystroem = Nystroem(n_components=LANDMARKS, gamma=gamma, random_state=0)
    for turn in range(repeat):
        ours.append(timed(lambda: cluster(path, out))[0])
        peers = ((once, 1), (ten, 10)) if turn == 0 else ((once, 1),)
        for times, starts in peers:

            def as_a_user(starts=starts):
                features = nystroem.fit_transform(np.load(path))
                return KMeans(K, n_init=starts, random_state=0).fit(features)

            times.append(timed(as_a_user)[0])
    us = statistics.median(ours)
    row("whole run: scikit-learn, n_init=10 / ours", statistics.median(ten) / us, ">= 10")
    row("whole run: scikit-learn, n_init=1 / ours", statistics.median(once) / us, ">= 2")
    print(f"  ours {us:.2f} s, n_init=1 {statistics.median(once):.2f} s, n_init=10 {statistics.median(ten):.2f} s")
    return cluster(path, out)


def objectives(x, path, out, report):
    """Compare the objective with KMeans on our embedding, and with three full passes at l = 1000."""
    from sklearn.cluster import KMeans

    y = embed(Model.load(out / "model.npz"), x)
    ten = KMeans(K, n_init=10, random_state=0).fit(y).inertia_
    row("objective: ours / KMeans(n_init=10) on our embedding", report["objective"] / ten, "<= 1.001")
    ours, ones = [], []
    for seed in range(5):  # another seed is another embedding, and one start of another luck each time
        there = out.with_name(f"seed-{seed}")
        ours.append(cluster(path, there, "--seed", str(seed))["objective"])
        y = embed(Model.load(there / "model.npz"), x)
        ones.append([KMeans(K, n_init=1, random_state=seed + 5 * luck).fit(y).inertia_ for luck in range(3)])
    ratios = np.array(ours)[:, None] / ones
    row("objective: ours / KMeans(n_init=1), 5 seeds, 3 starts", np.mean(ours) / np.mean(ones), "<= 1")
    print(f"  lowest {ratios.min():.4f}, median {np.median(ratios):.5f}, highest {ratios.max():.4f}")
    more = ("--landmarks", "1000", "--dim", "500", "--passes", "3")
    three = cluster(path, out.with_name("three"), *more)
    y = embed(Model.load(out.with_name("three") / "model.npz"), x)
    ten = KMeans(K, n_init=10, random_state=0).fit(y).inertia_
    row("objective: 3 passes, l=1000, m=500 / KMeans(n_init=10)", three["objective"] / ten, "<= 1.001")


def embed(model, x):
    step = rows_per_block(model.embedding.widest)
    with threadpool_limits(1):
        return np.concatenate([model.embed(x[i : i + step]) for i in range(0, len(x), step)])


def embedding_time(x, path, out, repeat):
    """Compare the embed pass with the bare matrix products in it, in blocks of the same size on as many threads."""
    from concurrent.futures import ThreadPoolExecutor

    model = Model.load(out / "model.npz")
    left = model.embedding.landmarks[0].astype(np.float32).T.copy()
    right = model.embedding.coefficients[0].astype(np.float32).T.copy()
    step = rows_per_block(model.embedding.widest)
    y = np.empty((len(x), right.shape[1]), np.float32)

    def product(start):
        np.matmul(x[start : start + step] @ left, right, out=y[start : start + step])

    ours, bare = [], []
    for _ in range(repeat):
        ours.append(cluster(path, out)["seconds"]["embed"])
        with threadpool_limits(1), ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            bare.append(timed(lambda: list(pool.map(product, range(0, len(x), step))))[0])
    row("embed pass / its bare float32 products", statistics.median(ours) / statistics.median(bare), "<= 2")


def restarts(path, out, repeat):
    """Compare full passes of ten centroid sets with those of one, per pass."""

    def per_pass(*more):
        report = cluster(path, out, *more)
        return report["seconds"]["kmeans"] / len(report["passes"])

    fixed = ("--passes", "5", "--tol", "0")
    one, ten = [], []
    for _ in range(repeat):
        one.append(per_pass(*fixed))
        ten.append(per_pass(*fixed, "--full-restarts"))
    row("full pass: ten centroid sets / one", statistics.median(ten) / statistics.median(one), "<= 3")


def memory(folder):
    """Compare the peak resident memory for 1 and 2 million rows, each in a process of its own."""
    peaks = {}
    rng = np.random.default_rng(0)
    centres = 2 * rng.standard_normal((20, 50))
    for millions in (1, 2):
        path = folder / f"rows-{millions}.npy"
        with open(path, "wb") as file:
            header = {"descr": "<f4", "fortran_order": False, "shape": (millions * 1_000_000, 50)}
            np.lib.format.write_array_header_1_0(file, header)
            for _ in range(millions * 10):
                rows = centres[rng.integers(20, size=100_000)] + rng.standard_normal((100_000, 50))
                file.write(rows.astype(np.float32).tobytes())
        peaks[millions] = peak_of(["cluster", path, "-k", "20", "--landmarks", "200", "-o", folder / "memory"])
        path.unlink()
    row("peak memory of 2,000,000 x 50 rows, MiB", peaks[2], "<= 600")
    row("peak memory: 2,000,000 rows / 1,000,000 rows", peaks[2] / peaks[1], "<= 1.05")


def peak_of(arguments):
    """Return the peak resident MiB of one apnc command."""
    code = (
        "import sys; from apnc.cli import main; status = main(sys.argv[1:]);"
        "print(*(line.split()[1] for line in open('/proc/self/status') if 'VmHWM' in line), file=sys.stderr);"
        "sys.exit(status)"
    )
    command = [sys.executable, "-c", code, *map(str, arguments), "--overwrite"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stderr.splitlines()[-1]) / 1024


def map_task_work(x, path, folder):
    """Compare the CPU time of the local runner, less that of a 100-row run, with the in-process engine's."""
    few = folder / "few.npy"
    np.save(few, x[:100])

    def cpu(source, runner):
        command = [
            sys.executable,
            "-m",
            "apnc.cli",
            "cluster",
            str(source),
            "-k",
            str(K),
            "--landmarks",
            str(LANDMARKS),
        ]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [*command, "-o", str(folder / "cpu"), "--overwrite", "--runner", runner], check=True, capture_output=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    local, small, here = cpu(path, "local"), cpu(few, "local"), cpu(path, "in-process")
    row("CPU time: local runner less a 100-row run / in-process", (local - small) / here, "<= 2.5")
    print(f"  local {local:.1f} s, 100 rows {small:.1f} s, in-process {here:.1f} s")


def row(what, value, bar):
    print(f"{what:<62}{value:>10.5g}   {bar}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("mnist", nargs="?", help="file with the rows")
    source.add_argument("--fetch", action="store_true", help="download MNIST")
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    x = load(arguments)
    print(f"{'':<62}{'measured':>10}   bar")
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        path, out = folder / "mnist.npy", folder / "out"
        np.save(path, x)
        np.save(folder / "warm.npy", x[:2000])
        cluster(folder / "warm.npy", folder / "warm")
        report = whole_runs(x, path, out, arguments.repeat)
        objectives(x, path, out, report)
        embedding_time(x, path, out, arguments.repeat)
        restarts(path, out, arguments.repeat)
        memory(folder)
        map_task_work(x, path, folder)


if __name__ == "__main__":
    main()
