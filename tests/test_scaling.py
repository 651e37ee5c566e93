"""Scaling: what scikit-learn's scalers do, in bounded memory, and without blowing up constant columns."""

import warnings

import numpy as np
import oracles
import pytest
from scipy.sparse import csr_matrix
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler, normalize

from apnc.sampling import column_statistics, merge_statistics
from apnc.scaling import SCALES, Scaler


def rows(seed=0):
    rng = np.random.default_rng(seed)
    x = rng.gamma(1, 3, (60, 5)) * (rng.random((60, 5)) < 0.7)
    x[:, 3] = 0.1
    x[7] = 0
    return x


def scaler(kind, x):
    """Return the scaler from statistics merged over three blocks."""
    statistics = column_statistics(x[:10])
    for part in (x[10:11], x[11:]):
        statistics = merge_statistics(statistics, column_statistics(part))
    return Scaler.from_statistics(kind, statistics, hasattr(x, "indptr"))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scaled_rows_are_those_of_scikit_learn(dtype):
    x = rows().astype(dtype)
    expected = {
        "none": x,
        "unit": normalize(x),
        "standard": StandardScaler().fit_transform(x.astype(np.float64)),
        "minmax": MinMaxScaler().fit_transform(x.astype(np.float64)),
    }
    assert set(expected) == set(SCALES)
    for kind, wanted in expected.items():
        found = scaler(kind, x)(x)
        assert found.dtype == dtype
        # one rounding to float32; the constant column is 0 up to the rounding of its mean
        np.testing.assert_allclose(found, wanted, rtol=1e-6 if dtype == np.float32 else 1e-11, atol=1e-7)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sparse_rows_are_divided_and_stay_sparse(dtype):
    x = csr_matrix(rows().astype(dtype))
    with pytest.warns(UserWarning, match="--scale standard: sparse rows are divided, not centred"):
        standard = scaler("standard", x)
    found = standard(x)
    assert hasattr(found, "indptr") and found.dtype == dtype and found.nnz == x.nnz and standard.shift is None
    wanted = StandardScaler(with_mean=False).fit_transform(x.astype(np.float64))
    np.testing.assert_allclose(found[:, [0, 1, 2, 4]].toarray(), wanted[:, [0, 1, 2, 4]].toarray(), rtol=1e-6)
    np.testing.assert_allclose(scaler("unit", x)(x).toarray(), normalize(x).toarray(), rtol=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        positive = x[:, [0, 1, 2]]  # from 0: dividing by the range is dividing by the largest
        wanted = MaxAbsScaler().fit_transform(positive)
        np.testing.assert_allclose(scaler("minmax", positive)(positive).toarray(), wanted.toarray(), rtol=1e-6)


@pytest.mark.filterwarnings("ignore:--scale")
@pytest.mark.parametrize("kind", ["standard", "minmax"])
@pytest.mark.parametrize("form", [np.asarray, csr_matrix])
@pytest.mark.parametrize("value", [0.1, 1e-3, 1e6 + 0.1, 0.0])
def test_a_constant_column_is_not_blown_up(kind, form, value):
    x = form(np.column_stack([np.full(20_000, value), np.arange(20_000.0)]))
    statistics = merge_statistics(column_statistics(x[:16_384]), column_statistics(x[16_384:]))
    scaled = oracles.dense(Scaler.from_statistics(kind, statistics, hasattr(x, "indptr"))(x)[:5])[:, 0]
    assert np.abs(scaled).max() <= max(1e-9, abs(value))


def test_float32_rows_far_from_zero_are_shifted_in_float64():
    x = (np.arange(64.0)[:, None] / 64 + 1e5).astype(np.float32)
    for kind, wanted in (("standard", StandardScaler()), ("minmax", MinMaxScaler())):
        expected = wanted.fit_transform(x.astype(np.float64))
        np.testing.assert_allclose(scaler(kind, x)(x), expected, atol=3e-7)


def test_the_range_of_float32_columns_does_not_overflow():
    x = np.array([[-3e38], [3e38]] * 20, np.float32)
    assert scaler("minmax", x)(x).ravel()[:2].tolist() == [0.0, 1.0]


def test_rows_are_not_changed_in_place():
    for form in (np.asarray, csr_matrix):
        x = form(rows())
        before = x.copy()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for kind in SCALES:
                scaler(kind, x)(x)
        assert np.array_equal(oracles.dense(before), oracles.dense(x))


def test_zero_rows_stay_zero_rows():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for form in (np.asarray, csr_matrix):
            assert np.array_equal(oracles.dense(Scaler("unit")(form(np.zeros((2, 3))))), np.zeros((2, 3)))
