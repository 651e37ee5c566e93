"""U-SPEC, U-SENC and rank restriction against their limits and peers, as ratios measured in one run.

    python benchmarks/graph_methods.py mnist.npz                 X (70000, 784) in 0..255 and y, in an .npz
    python benchmarks/graph_methods.py mnist.npz --parts scale   some parts only: uspec usenc rank scale
    python benchmarks/graph_methods.py mnist.npz --seeds 5 --repeat 5

What each line must reach stands beside it. Times are of warm code in one process, medians of turns in alternation; the
synthetic sets of the scale part come from benchmarks/synthetic.py, are written to --folder and removed again.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import synthetic
from main_job import cluster, peak_of, row, timed
from threadpoolctl import threadpool_limits

from apnc.blocks import rows_per_block
from apnc.labels import read_clusters
from apnc.metrics import evaluate
from apnc.model import Model

PARTS = ("uspec", "usenc", "rank", "scale")
BASES = 20


def nmi(out, truth) -> float:
    """Return the NMI of a finished run, in percent."""
    return 100 * evaluate(read_clusters(Path(out) / "labels.csv"), truth)["nmi"]


def in_blocks(x, step, function):
    """Apply a function to blocks of rows on all cores, with one BLAS thread each."""
    with threadpool_limits(1), ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return list(pool.map(lambda start: function(x[start : start + step]), range(0, len(x), step)))


def uspec(x, path, out, repeat):
    """Time the whole run against its bare distance products and selections, by the faster of two ways."""
    import faiss

    report = cluster(path, out, "--method", "uspec")
    points = Model.load(out / "model.npz").embedding.representatives[0].astype(np.float32)
    right, half = np.ascontiguousarray(points.T), np.einsum("ij,ij->i", points, points) / 2
    step = rows_per_block(x.shape[1])

    def by_partition(rows):
        table = half - rows @ right
        return np.argpartition(table, 4, axis=1)[:, :5]

    ours, bare = [], {"faiss": [], "numpy": []}
    for _ in range(repeat):
        ours.append(timed(lambda: cluster(path, out, "--method", "uspec"))[0])
        bare["faiss"].append(timed(lambda: in_blocks(x, step, lambda rows: faiss.knn(rows, points, 5)))[0])
        bare["numpy"].append(timed(lambda: in_blocks(x, step, by_partition))[0])
    least = min(statistics.median(times) for times in bare.values())
    row("U-SPEC, whole run / bare distance products and selections", statistics.median(ours) / least, "<= 3")
    print(f"  ours {statistics.median(ours):.2f} s, bare {least:.2f} s, stages {report['seconds']}")


def usenc(path, out, truth):
    """Time U-SENC against its base runs taken one by one."""
    base = statistics.median(timed(lambda: cluster(path, out, "--method", "uspec", "-k", "40"))[0] for _ in range(3))
    ours, report = timed(lambda: cluster(path, out, "--method", "usenc", "--base-clusterings", str(BASES)))
    row(f"U-SENC of {BASES} / {BASES} base runs of U-SPEC with k=40", ours / (BASES * base), "<= 1.1")
    print(f"  U-SENC {ours:.1f} s, NMI {nmi(out, truth):.2f}, one base run {base:.2f} s, stages {report['seconds']}")


def rank_restricted(path, out, truth, seeds):
    """Compare rank-restricted Nyström with plain Nyström of equal width, over s."""
    c, k = 400, 10
    widths = (10, 20, 40, int(np.ceil(np.sqrt(k * c))), 100)

    def mean(*more):
        scores = []
        for seed in range(seeds):
            cluster(path, out, "--landmarks", str(c), "--seed", str(seed), *more)
            scores.append(nmi(out, truth))
        return statistics.mean(scores)

    for s in widths:
        plain = mean("--method", "nystrom", "--dim", str(s))
        ours = mean("--method", "rank-restricted", "--dim", str(s))
        bar = ">= -1" if s in (20, widths[3]) else ""
        row(f"NMI, s={s}: rank-restricted less plain Nystrom of that width", ours - plain, bar)
        whitened = mean("--method", "rank-restricted", "--dim", str(s), "--whiten", "--unit-rows")
        print(f"  plain {plain:.2f}, rank-restricted {ours:.2f}, whitened with unit rows {whitened:.2f}")


def scale(folder, out):
    """U-SPEC on sets that k-means cannot separate, and time and memory as rows grow tenfold."""
    for name in ("TB", "SF", "CC"):
        k, rows, description = synthetic.SETS[name]
        plain = synthetic.kmeans_nmi(name)
        path, labels = synthetic.make(name, rows, folder)
        seconds, _ = timed(lambda path=path, k=k: cluster(path, out, "--method", "uspec", "-k", str(k)))
        row(f"{name}-{rows // 1_000_000}M: NMI of U-SPEC", nmi(out, np.load(labels)), ">= 95")
        print(f"  {description}; k-means {plain:.1f} (< 50); {seconds:.1f} s")
        path.unlink(), labels.unlink()
    more = ("--method", "uspec", "-k", str(synthetic.SETS["CG"].k), "--passes", "3", "--tol", "0")
    seconds = {}
    for rows in (1_000_000, 10_000_000):
        path, labels = synthetic.make("CG", rows, folder)
        turns = [timed(lambda path=path: cluster(path, out, *more))[0] for _ in range(3)]
        seconds[rows] = statistics.median(turns)
        if rows == 10_000_000:
            row("CG-10M: NMI of U-SPEC", nmi(out, np.load(labels)), "")
            row("peak memory of 10,000,000 rows, MiB", peak_of(["cluster", path, "-o", out, *more]), "< 1024")
        path.unlink(), labels.unlink()
    per_row = {rows: taken / rows for rows, taken in seconds.items()}
    row("time per row: 10,000,000 rows / 1,000,000 rows", per_row[10_000_000] / per_row[1_000_000], "<= 1.1")
    print(f"  {seconds[1_000_000]:.1f} s and {seconds[10_000_000]:.1f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mnist", help="file with X and y")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--folder", help="where the synthetic sets go (the system's temporary folder)")
    arguments = parser.parse_args()
    with np.load(arguments.mnist) as file:
        x, truth = file["X"].astype(np.float32), file["y"]
    print(f"{'':<62}{'measured':>10}   bar")
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        folder = Path(folder)
        path, out = folder / "mnist.npy", folder / "out"
        np.save(path, x)
        np.save(folder / "warm.npy", x[:3000])
        cluster(folder / "warm.npy", out, "--method", "uspec")
        if "uspec" in arguments.parts:
            uspec(x, path, out, arguments.repeat)
        if "usenc" in arguments.parts:
            usenc(path, out, truth)
        if "rank" in arguments.parts:
            rank_restricted(path, out, truth, arguments.seeds)
        if "scale" in arguments.parts:
            scale(folder, out)


if __name__ == "__main__":
    main()
