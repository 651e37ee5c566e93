"""Nonlinearly separable sets of the kinds in Huang et al. 2019 (U-SPEC), from our own generator.

    python benchmarks/synthetic.py TB SF CC CG FL --folder /data        all five, at their paper's sizes
    python benchmarks/synthetic.py CC --rows 100000 --folder /tmp/sets

Each writes its rows (float32, two columns) and their clusters (uint8) as two .npy files, block by block, and prints
its radii and noise, with the NMI that plain k-means reaches on its first rows: under 50 on each.

Every row draws its cluster first, so any number of first rows is a sample of the whole. A block's draws depend on the
seed, the set and the number of the block alone: fewer rows are the beginning of more.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from math import pi
from pathlib import Path
from typing import NamedTuple

import numpy as np

from apnc.hashing import generator

BLOCK_ROWS = 65_536
SCORED_ROWS = 20_000
TURN = 2 * pi
_STEPS = np.linspace(0, 1, 1025)  # along a curve, for its length


class Set(NamedTuple):
    """A kind of data: number of clusters, rows in the paper, and what it looks like."""

    k: int
    rows: int
    description: str


class Curve:
    """A cluster: rows spread evenly along a curve about a centre, with normal noise in both directions.

    Parameters
    ----------
    share : float
        Of the set's rows.
    radius : float or (float, float)
        At the curve's start and end; 0 makes the cluster a Gaussian.
    noise : float
        Standard deviation.
    centre : (float, float)
    angles : (float, float)
        At the curve's start and end, in radians.
    """

    def __init__(self, share, radius, noise, centre=(0.0, 0.0), angles=(0.0, TURN)):
        self.share, self.noise, self._centre, self._angles = share, noise, np.array(centre), angles
        self._radii = radius if isinstance(radius, tuple) else (radius, radius)
        pieces = np.linalg.norm(np.diff(self._at(_STEPS), axis=0), axis=1)
        length = np.concatenate([[0.0], np.cumsum(pieces)])
        self._travelled = length / length[-1] if length[-1] else _STEPS

    def _at(self, t):
        (r0, r1), (a0, a1) = self._radii, self._angles
        radius, angle = r0 + t * (r1 - r0), a0 + t * (a1 - a0)
        return self._centre + np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)

    def points(self, u: np.ndarray, normal: np.ndarray) -> np.ndarray:
        """Return rows (n, 2) from n draws uniform over [0, 1) and (n, 2) standard normal ones."""
        return self._at(np.interp(u, self._travelled, _STEPS)) + self.noise * normal


def bananas():
    noise, drop = 0.11, 0.4
    text = f"two half circles of radius 1, interleaved: one upside down, 1 to the right and {drop} up; noise {noise}"
    return text, [
        Curve(1 / 2, 1.0, noise, angles=(0.0, pi)),
        Curve(1 / 2, 1.0, noise, centre=(1.0, drop), angles=(pi, TURN)),
    ]


def smiling_face():
    face, eye, mouth = 0.04, 0.06, 0.03
    text = (
        f"face, a circle of radius 1, noise {face}, 60 % of the rows; two eyes, Gaussians at (±0.35, 0.3), "
        f"noise {eye}, 10 % each; mouth, an arc of radius 0.6 over 126°, noise {mouth}, 20 %"
    )
    return text, [
        Curve(0.6, 1.0, face),
        Curve(0.1, 0.0, eye, centre=(-0.35, 0.3)),
        Curve(0.1, 0.0, eye, centre=(0.35, 0.3)),
        Curve(0.2, 0.6, mouth, angles=(1.15 * pi, 1.85 * pi)),
    ]


def concentric_circles():
    radii, noise = (1.0, 2.0, 3.0), 0.1
    return f"circles about one centre, radii {_list(radii)}, noise {noise}", [Curve(1 / 3, r, noise) for r in radii]


def circles_and_gaussians():
    radii, shares, ring = (2.0, 3.0, 5.0, 6.0), (0.12, 0.18, 0.2, 0.3), 4.0
    noise, blob = 0.1, 0.15
    text = (
        f"circles about one centre, radii {_list(radii)}, noise {noise}, {_list(round(100 * s) for s in shares)} % of "
        f"the rows; seven Gaussians, noise {blob}, one in the centre and six on a circle of radius {ring:g}"
    )
    small = (1 - sum(shares)) / 7
    places = [(0.0, 0.0)] + [(ring * np.cos(i * TURN / 6), ring * np.sin(i * TURN / 6)) for i in range(6)]
    curves = [Curve(share, r, noise) for share, r in zip(shares, radii, strict=True)]
    return text, curves + [Curve(small, 0.0, blob, centre=place) for place in places]


def flower():
    petals, radii, turn, noise = 12, (3.0, 10.0), 0.44, 0.06
    middle, share = 0.5, 0.04
    text = (
        f"{petals} curved petals, spirals from radius {radii[0]:g} to {radii[1]:g} over {turn} of a turn, "
        f"noise {noise}; centre, a Gaussian, noise {middle}, {100 * share:g} % of the rows"
    )
    curves = [Curve(share, 0.0, middle)]
    for i in range(petals):
        start = i * TURN / petals
        curves.append(Curve((1 - share) / petals, radii, noise, angles=(start, start + turn * TURN)))
    return text, curves


def _list(values):
    return ", ".join(f"{v:g}" for v in values)


_MADE = {
    name: (rows, *shape())
    for name, rows, shape in (
        ("TB", 1_000_000, bananas),
        ("SF", 2_000_000, smiling_face),
        ("CC", 5_000_000, concentric_circles),
        ("CG", 10_000_000, circles_and_gaussians),
        ("FL", 20_000_000, flower),
    )
}
SETS = {name: Set(len(curves), rows, text) for name, (rows, text, curves) in _MADE.items()}


def blocks(name: str, rows: int, seed: int = 0) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield a set's rows, float32 (n, 2), and their clusters, uint8 (n,), in blocks of BLOCK_ROWS."""
    curves = _MADE[name][2]
    bounds = np.cumsum([curve.share for curve in curves])
    for number, start in enumerate(range(0, rows, BLOCK_ROWS)):
        rng = generator(seed, f"synthetic {name}", number)
        # a whole block always, so that a shorter last one is its beginning
        draws, normal = rng.random((2, BLOCK_ROWS)), rng.standard_normal((BLOCK_ROWS, 2))
        clusters = np.minimum(np.searchsorted(bounds, draws[0], side="right"), len(curves) - 1).astype(np.uint8)
        x = np.empty((BLOCK_ROWS, 2), np.float32)
        for c, curve in enumerate(curves):
            own = clusters == c
            x[own] = curve.points(draws[1][own], normal[own])
        n = min(BLOCK_ROWS, rows - start)
        yield x[:n], clusters[:n]


def make(name: str, rows: int, folder, seed: int = 0) -> tuple[Path, Path]:
    """Write a set's rows and clusters, in memory for one block.

    Parameters
    ----------
    name : str
        One of SETS.
    rows : int
    folder : path-like
        Made if need be. Files of these names in it are replaced once the new ones are whole.
    seed : int

    Returns
    -------
    path, labels_path : Path
        .npy files of shapes (rows, 2), float32, and (rows,), uint8.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = folder / f"{name}-{rows}.npy", folder / f"{name}-{rows}-labels.npy"
    partial = [path.with_name(f".{path.name}.partial") for path in paths]
    try:
        with open(partial[0], "wb") as x_file, open(partial[1], "wb") as label_file:
            _header(x_file, "<f4", (rows, 2))
            _header(label_file, "|u1", (rows,))
            for x, clusters in blocks(name, rows, seed):
                x_file.write(x.tobytes())
                label_file.write(clusters.tobytes())
        for written, path in zip(partial, paths, strict=True):
            written.replace(path)
    finally:
        for path in partial:
            path.unlink(missing_ok=True)
    return paths


def _header(file, descr, shape):
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})


def kmeans_nmi(name: str, rows: int = SCORED_ROWS, seed: int = 0) -> float:
    """Return the NMI, in percent, of plain k-means (best of ten starts) on a set's first rows."""
    from sklearn.cluster import KMeans

    from apnc.metrics import evaluate

    x, clusters = (np.concatenate(parts) for parts in zip(*blocks(name, rows, seed), strict=True))
    found = KMeans(SETS[name].k, n_init=10, random_state=0).fit_predict(x)
    return 100 * evaluate(found, clusters)["nmi"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", choices=SETS, metavar="NAME", help=f"of {', '.join(SETS)}")
    parser.add_argument("--rows", type=int, help="of each set (as many as in the paper)")
    parser.add_argument("--folder", default=".", help="where the files go")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    most = max(SETS[name].k for name in arguments.names)
    if arguments.rows is not None and arguments.rows < most:
        parser.error(f"--rows {arguments.rows}: at least k = {most} are needed")
    print(f"{'set':<5}{'k':>3}{'rows':>12}   {'k-means NMI':>11}   bar    file")
    for name in arguments.names:
        rows = arguments.rows or SETS[name].rows
        path, _ = make(name, rows, arguments.folder, arguments.seed)
        score = kmeans_nmi(name, min(rows, SCORED_ROWS), arguments.seed)
        print(f"{name:<5}{SETS[name].k:>3}{rows:>12}   {score:>11.1f}   < 50   {path}")
        print(f"     {SETS[name].description}", flush=True)


if __name__ == "__main__":
    main()
