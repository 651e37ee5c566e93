"""The generator of benchmarks/synthetic.py: what its sets are said to be, they are."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
from processes import ROOT

_spec = importlib.util.spec_from_file_location("synthetic", ROOT / "benchmarks" / "synthetic.py")
synthetic = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(synthetic)


@pytest.fixture(params=list(synthetic.SETS))
def name(request):
    return request.param


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(synthetic, "BLOCK_ROWS", 1000)


def _loaded(*args):
    return [np.load(path) for path in synthetic.make(*args)]


def test_files_have_the_shape_their_header_says(name, small_blocks, tmp_path):
    x, clusters = _loaded(name, 2500, tmp_path)
    assert (x.shape, x.dtype) == ((2500, 2), np.float32)
    assert (clusters.shape, clusters.dtype) == ((2500,), np.uint8)
    assert np.isfinite(x).all()
    assert len(list(tmp_path.iterdir())) == 2


def test_the_same_seed_gives_the_same_bytes_and_another_does_not(small_blocks, tmp_path):
    first, again, other = (
        [path.read_bytes() for path in synthetic.make("CG", 1500, tmp_path / folder, seed)]
        for folder, seed in (("first", 3), ("again", 3), ("other", 4))
    )
    assert first == again
    assert first[0] != other[0]
    assert first[1] != other[1]


@pytest.mark.parametrize("rows", [1, 999, 1000, 1001, 2400])
def test_fewer_rows_are_the_beginning_of_more(small_blocks, tmp_path, rows):
    for few, many in zip(_loaded("FL", rows, tmp_path), _loaded("FL", 2500, tmp_path), strict=True):
        assert np.array_equal(few, many[:rows])


def test_blocks_differ(small_blocks):
    (first, _), (second, _) = synthetic.blocks("TB", 2000)
    assert not np.array_equal(first, second)


def test_every_cluster_has_its_share(name):
    _, _, curves = synthetic._MADE[name]
    shares = np.array([curve.share for curve in curves])
    assert shares.sum() == pytest.approx(1)
    assert len(shares) == synthetic.SETS[name].k
    for rows in (5000, 50_000):  # a beginning, and more
        _, clusters = (np.concatenate(parts) for parts in zip(*synthetic.blocks(name, rows), strict=True))
        counts = np.bincount(clusters, minlength=len(shares))
        # five standard deviations of a binomial count
        assert (np.abs(counts - rows * shares) < 5 * np.sqrt(rows * shares * (1 - shares))).all()


def test_plain_kmeans_fails(name):
    assert synthetic.kmeans_nmi(name, 5000) < 50


def test_rows_lie_evenly_along_a_spiral():
    curve = synthetic.Curve(1.0, (3.0, 10.0), 0.0, angles=(0.0, 2.7))
    points = curve.points(np.linspace(0, 1, 2001), np.zeros((2001, 2)))
    steps = np.linalg.norm(np.diff(points, axis=0), axis=1)
    np.testing.assert_allclose(steps, steps.mean(), rtol=5e-3)  # interpolated between 1025 points
