"""Hashes: the same on any machine, uniform, and independent between seeds, purposes and sources."""

import numpy as np
import oracles
import pytest
from scipy.stats import chi2, kstest

from apnc.hashing import generator, row_hashes


def test_vectorised_arithmetic_wraps_like_64_bit_numbers():
    offsets = np.array([0, 1, 2, 1000, 2**31, 2**53 + 1, 2**63 - 1])
    for seed, purpose, source in [(0, "sample", "a.csv"), (7, "sample", ""), (2**70, "é", "теле\n")]:
        found = row_hashes(seed, purpose, source, offsets)
        assert found.dtype == np.uint64
        assert found.tolist() == [oracles.row_hash(seed, purpose, source, o) for o in offsets.tolist()]


def test_hashes_of_released_versions_never_change():
    # the same sample for the same seed, after any rewrite
    assert row_hashes(0, "sample", "a.csv", np.array([0])).tolist() == [2646747553440331558]


def test_no_rows_have_no_hashes():
    assert row_hashes(0, "sample", "a", np.empty(0, np.int64)).shape == (0,)


@pytest.mark.parametrize("step", [1, 8, 4096, 2**32])
def test_regular_offsets_still_hash_uniformly(step):
    # rows of .npy files (1), lines of equal length, aligned records: none may show in the hash
    hashes = row_hashes(3, "sample", "x", np.arange(20_000) * step)
    assert len(np.unique(hashes)) == 20_000
    assert kstest(hashes / 2.0**64, "uniform").pvalue > 1e-4
    # bits are balanced: 20,000 throws, 5 sigma
    bits = np.unpackbits(hashes.view(np.uint8)).reshape(-1, 64).sum(axis=0, dtype=np.int64)
    assert np.abs(bits - 10_000).max() < 5 * np.sqrt(5000)


@pytest.mark.parametrize("other", [(1, "sample", "a"), (0, "base", "a"), (0, "sample", "b")])
def test_another_seed_purpose_or_source_gives_unrelated_hashes(other):
    offsets = np.arange(20_000)
    a, b = row_hashes(0, "sample", "a", offsets), row_hashes(*other, offsets)
    assert not np.intersect1d(a, b).size
    table = np.histogram2d(a / 2.0**64, b / 2.0**64, 10, [[0, 1], [0, 1]])[0]
    # independent and uniform: χ² with 99 degrees of freedom
    assert ((table - 200) ** 2 / 200).sum() < chi2.ppf(1 - 1e-6, 99)


def test_generators_depend_on_seed_purpose_and_ordinal_only():
    draws = {
        key: tuple(generator(*key).integers(2**62, size=2))
        for key in [(0, "a"), (1, "a"), (0, "b"), (0, "a", 1), (0, "a", 1, 1)]
    }
    assert len(set(draws.values())) == len(draws)
    assert all(tuple(generator(*key).integers(2**62, size=2)) == value for key, value in draws.items())
