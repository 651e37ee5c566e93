"""Kernels against pair-by-pair formulas and scikit-learn, in every kind of matrix and precision they are used with."""

import warnings

import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from sklearn.metrics import pairwise

from apnc.distances import l1_distances
from apnc.errors import InputError
from apnc.kernels import (
    ALIASES,
    KERNELS,
    SIGMA_ROWS,
    fit_width,
    make_kernel,
    mean_distance,
    squared_norms,
    unit_rows,
)

PARAMS = {
    "rbf": {"sigma": 1.7},
    "laplacian": {"sigma": 2.5},
    "polynomial": {"gamma": 0.3, "c0": 0.7, "degree": 5},
    "neural": {"a": 0.2, "b": 0.11},
    "linear": {},
    "cosine": {},
    "chi2": {"gamma": 0.4},
}
# relative to the largest value: rounding of float64 sums of a dozen terms; of float32 ones, times 5 for degree 5
TOLERANCE = {np.float64: 1e-13, np.float32: 3e-6}
EVERY = pytest.mark.parametrize("name", list(KERNELS))


def rows_and_landmarks(seed=0, n=150, l=9, d=12):
    """Return rows ≥ 0, more than one inner step of the sparse kernels, with zeros, zero rows and duplicates."""
    rng = np.random.default_rng(seed)
    x = rng.gamma(1.0, 1.0, (n, d)) * (rng.random((n, d)) < 0.4)
    x[3] = 0
    landmarks = x[::16][:l].copy()
    landmarks[1] = 0
    landmarks[2] = landmarks[0]
    # the same numbers in both precisions
    return x.astype(np.float32).astype(np.float64), landmarks.astype(np.float32).astype(np.float64)


@EVERY
@pytest.mark.parametrize("rows_dtype", [np.float32, np.float64])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", [np.asarray, csr_matrix])
def test_values_follow_the_formula_for_dense_and_sparse_rows(name, rows_dtype, dtype, kind):
    x, landmarks = rows_and_landmarks()
    expected = oracles.kernel_matrix(name, x, landmarks, **PARAMS[name])
    kernel_values = make_kernel(name, PARAMS[name]).prepare(kind(landmarks.astype(rows_dtype)), dtype)
    found = kernel_values(kind(x.astype(rows_dtype)))
    assert type(found) is np.ndarray and found.dtype == dtype and found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE[dtype] * np.abs(expected).max())


@EVERY
def test_values_agree_with_scikit_learn(name):
    x, landmarks = rows_and_landmarks(1)
    p = PARAMS[name]
    expected = {
        "rbf": lambda: pairwise.rbf_kernel(x, landmarks, gamma=1 / (2 * 1.7**2)),
        "laplacian": lambda: pairwise.laplacian_kernel(x, landmarks, gamma=1 / 2.5),
        "polynomial": lambda: pairwise.polynomial_kernel(x, landmarks, gamma=0.3, coef0=0.7, degree=5),
        "neural": lambda: pairwise.sigmoid_kernel(x, landmarks, gamma=0.2, coef0=0.11),
        "linear": lambda: pairwise.linear_kernel(x, landmarks),
        "cosine": lambda: pairwise.cosine_similarity(x, landmarks),
        "chi2": lambda: pairwise.chi2_kernel(x, landmarks, gamma=0.4),
    }[name]()
    found = make_kernel(name, p).prepare(landmarks, np.float64)(x)
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-13)


@EVERY
@pytest.mark.parametrize("kind", [np.asarray, csr_matrix])
def test_neither_rows_nor_landmarks_are_changed(name, kind):
    x, landmarks = (kind(m.astype(np.float32)) for m in rows_and_landmarks())
    before = [m.copy() for m in (x, landmarks)]
    kernel_values = make_kernel(name, PARAMS[name]).prepare(landmarks)
    first = kernel_values(x)
    assert np.array_equal(first, kernel_values(x)), "a second block must find the landmarks as they were"
    for was, now in zip(before, (x, landmarks), strict=True):
        assert np.array_equal(oracles.dense(was), oracles.dense(now))


@EVERY
@pytest.mark.parametrize("kind", [np.asarray, csr_matrix])
def test_read_only_arrays_from_a_file_are_fine(name, kind):
    x, landmarks = (kind(m.astype(np.float32)) for m in rows_and_landmarks())
    for m in (x, landmarks):
        for array in [m] if isinstance(m, np.ndarray) else [m.data, m.indices, m.indptr]:
            array.flags.writeable = False
    assert np.isfinite(make_kernel(name, PARAMS[name]).prepare(landmarks)(x)).all()


@EVERY
@pytest.mark.parametrize("kind", [np.asarray, csr_matrix])
def test_a_block_without_rows_gives_no_values(name, kind):
    x, landmarks = (kind(m) for m in rows_and_landmarks())
    assert make_kernel(name, PARAMS[name]).prepare(landmarks, np.float64)(x[:0]).shape == (0, 9)


@EVERY
def test_sparse_rows_narrower_than_the_landmarks_lack_only_zeros(name):
    x, landmarks = rows_and_landmarks()
    x[:, 9:] = 0
    kernel_values = make_kernel(name, PARAMS[name]).prepare(csr_matrix(landmarks), np.float64)
    np.testing.assert_array_equal(kernel_values(csr_matrix(x[:, :9])), kernel_values(csr_matrix(x)))


def test_sparse_rows_wider_than_the_landmarks_are_refused():
    # scipy does not check indices: the product would read, and crash, outside of the landmarks
    with pytest.raises(ValueError):
        fit_width(csr_matrix(np.ones((2, 5))), 3)


@pytest.mark.parametrize("name", ["laplacian", "chi2", "rbf", "linear", "cosine"])
def test_sparse_rows_are_never_made_dense_in_full_width(name):
    # 2,000,000 columns: one dense block of 300 rows would take 2.4 GB
    import tracemalloc

    rng = np.random.default_rng(0)
    columns = np.sort(rng.choice(2_000_000, (300, 5)), axis=1)
    x = csr_matrix((rng.random(1500) + 0.1, columns.ravel(), np.arange(0, 1501, 5)), shape=(300, 2_000_000))
    landmarks = x[:20]
    tracemalloc.start()
    found = make_kernel(name, PARAMS[name]).prepare(landmarks, np.float64)(x)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # index arrays over the columns (CSC pointers and the like) take a few dozen MB
    assert peak < 100e6
    used = np.unique(x.indices)
    expected = oracles.kernel_matrix(name, x[:3, used], landmarks[:, used], **PARAMS[name])
    np.testing.assert_allclose(found[:3], expected, atol=1e-12)


@pytest.mark.parametrize("degree", range(1, 14))
def test_whole_powers_are_exact_products(degree):
    x = np.array([[-2.0], [-1.0], [0.0], [1.0], [3.0]])
    found = make_kernel("polynomial", {"gamma": 1, "c0": 0, "degree": degree}).prepare(np.array([[1.0]]), np.float64)(x)
    assert found.ravel().tolist() == [(-2.0) ** degree, (-1.0) ** degree, 0.0, 1.0, 3.0**degree]


def test_a_zero_row_has_cosine_zero_to_everything_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind in (np.asarray, csr_matrix):
            zero, other = kind(np.zeros((1, 3))), kind(np.array([[0.0, 0, 0], [1, 2, 3]]))
            assert make_kernel("cosine").prepare(other, np.float64)(zero).tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize("size", [1e-30, 1e-22, 1e22, 1e30])
@pytest.mark.parametrize("kind", [np.asarray, csr_matrix])
def test_the_length_of_float32_rows_neither_overflows_nor_vanishes(size, kind):
    # squares of such values lie outside of float32
    x = kind(np.array([[3, 4, 0], [0, 0, 0]], np.float32) * np.float32(size))
    np.testing.assert_allclose(oracles.dense(unit_rows(x)), [[0.6, 0.8, 0], [0, 0, 0]], rtol=1e-6)


@pytest.mark.parametrize("kind", [np.asarray, csr_matrix])
def test_squared_norms_of_float32_rows_are_float64_sums(kind):
    x = np.full((1, 3), 20500.3, np.float32)
    exact = 3 * float(x[0, 0]) ** 2
    assert squared_norms(kind(x))[0] == pytest.approx(exact, rel=1e-15)


def test_zero_over_zero_is_zero_in_chi2():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = np.array([[0.0, 0.0], [0.0, 2.0]])
        expected = [[1.0, np.exp(-0.4 * 2)], [np.exp(-0.4 * 2), 1.0]]
        for kind in (np.asarray, csr_matrix):
            np.testing.assert_allclose(
                make_kernel("chi2", PARAMS["chi2"]).prepare(kind(x), np.float64)(kind(x)), expected
            )


@pytest.mark.parametrize("kind", [np.asarray, csr_matrix])
def test_chi2_alone_is_not_defined_on_negative_values(kind):
    rows = kind(np.array([[1.0, 0.0], [0.0, -0.25], [0.0, 0.0]]))
    for name in KERNELS:
        mask, rule = make_kernel(name).undefined(rows)
        if name == "chi2":
            assert mask.tolist() == [False, True, False] and "chi2 needs values of at least 0" in rule
            assert make_kernel(name).undefined(rows[[0, 2]])[0] is None
        else:
            assert mask is None


# Far from the origin.


def far_rows(dtype):
    """Two groups of 20 rows, 0.3 wide and a quarter of a unit of float32 apart from the next number at ±20500."""
    rng = np.random.default_rng(5)
    x = np.concatenate([rng.normal(20500, 0.3, (20, 3)), rng.normal(-20500, 0.3, (20, 3))])
    return x.astype(np.float32).astype(dtype)


@pytest.mark.parametrize("gamma", [0.004, 4.0])
@pytest.mark.parametrize("two_groups", [False, True])
@pytest.mark.parametrize("rows_dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", [np.asarray, csr_matrix])
def test_rbf_survives_cancellation_far_from_the_origin(gamma, two_groups, rows_dtype, kind):
    x = far_rows(np.float64)[: 40 if two_groups else 20]
    kernel = make_kernel("rbf", {"gamma": gamma})
    rows = kind(x.astype(rows_dtype))
    dtype = np.float64 if kernel.needs_float64(rows) else np.float32
    found = kernel.prepare(rows, dtype)(rows)
    assert found.max() <= 1
    # needs_float64 allows an error of 1e-3 in the exponent
    np.testing.assert_allclose(np.diag(found), 1, atol=1e-3)
    np.testing.assert_allclose(found, oracles.kernel_matrix("rbf", x, x, sigma=(2 * gamma) ** -0.5), atol=2e-3)


def test_float32_rows_in_float64_arithmetic_give_the_values_of_their_float64_copies():
    # the same rows from an .npy of float32 and from csv must meet the same model
    x = far_rows(np.float32)
    kernel_values = make_kernel("rbf", {"gamma": 4.0}).prepare(x.astype(np.float64), np.float64)
    np.testing.assert_allclose(kernel_values(x), kernel_values(x.astype(np.float64)), rtol=1e-12, atol=1e-15)


def test_float64_is_asked_for_only_where_float32_loses_the_kernel():
    near, far = np.random.default_rng(0).random((50, 3)), far_rows(np.float64)
    for kind in (np.asarray, csr_matrix):
        assert not make_kernel("rbf", {"sigma": 0.5}).needs_float64(kind(near))
        assert make_kernel("rbf", {"sigma": 0.5}).needs_float64(kind(far))
    # one group alone is shifted to the origin where rows are dense
    assert not make_kernel("rbf", {"sigma": 0.5}).needs_float64(far[:20])


def test_laplacian_keeps_its_digits_far_from_the_origin():
    x = far_rows(np.float32)[:20]
    expected = oracles.kernel_matrix("laplacian", x, x, sigma=0.5)
    for rows in (x, x.astype(np.float64)):
        found = make_kernel("laplacian", {"sigma": 0.5}).prepare(x)(rows)
        assert found.max() <= 1 and (np.diag(found) == 1).all()
        np.testing.assert_allclose(found, expected, atol=1e-5)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([1e-3, 1.0, 1e3, 1e6]), st.sampled_from(["rbf", "laplacian"]))
def test_no_row_is_more_similar_than_to_itself(seed, offset, name):
    x = (np.random.default_rng(seed).normal(size=(12, 3)) + offset).astype(np.float32)
    found = make_kernel(name, {"sigma": 1.0}).prepare(x)(x)
    assert found.max() <= 1 and found.min() >= 0


# Automatic parameters.


@pytest.mark.parametrize(("name", "metric"), [("rbf", "l2"), ("laplacian", "l1")])
@pytest.mark.parametrize("kind", [np.asarray, csr_matrix])
def test_automatic_width_is_the_mean_pairwise_distance(name, metric, kind):
    x, _ = rows_and_landmarks(n=90)
    expected = oracles.mean_pairwise_distance(x, metric)
    for dtype in (np.float32, np.float64):
        rows = kind(x.astype(dtype))
        assert make_kernel(name).resolve(rows).params["sigma"] == pytest.approx(expected, rel=1e-12)
        assert mean_distance(rows, metric) == pytest.approx(expected, rel=1e-12)
        assert make_kernel(name, {"sigma": "auto*0.2"}).resolve(rows).params["sigma"] == pytest.approx(0.2 * expected)


@pytest.mark.parametrize("name", ["rbf", "laplacian"])
@pytest.mark.parametrize("kind", [np.asarray, csr_matrix])
def test_automatic_width_comes_from_the_first_thousand_rows(name, kind):
    x = np.random.default_rng(0).normal(size=(SIGMA_ROWS + 50, 2))
    x[SIGMA_ROWS:] *= 1e6
    kernel = make_kernel(name)
    assert kernel.resolve(kind(x)).params == kernel.resolve(kind(x[:SIGMA_ROWS])).params
    assert SIGMA_ROWS == 1000


@pytest.mark.parametrize("name", ["rbf", "laplacian"])
def test_automatic_width_follows_the_scale_of_the_data(name):
    # case 05; gamma = 1/2σ² grows with the square
    x = np.random.default_rng(0).normal(size=(60, 3)) + 5
    one, ten = (make_kernel(name).resolve(rows).params["sigma"] for rows in (x, 10 * x))
    assert ten / one == pytest.approx(10, rel=1e-9)
    a, b = (make_kernel(name).resolve(rows).prepare(rows, np.float64)(rows) for rows in (x, 10 * x))
    np.testing.assert_allclose(a, b, rtol=1e-9)


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_automatic_width_keeps_its_digits_far_from_the_origin(offset):
    x = np.random.default_rng(0).integers(0, 9, (40, 2)).astype(np.float64)
    assert mean_distance(x + offset) == pytest.approx(oracles.mean_pairwise_distance(x), rel=1e-9)


@pytest.mark.parametrize("name", ["rbf", "laplacian"])
@pytest.mark.parametrize("kind", [np.asarray, csr_matrix])
@pytest.mark.parametrize("n", [1, 2, 50])
def test_equal_rows_give_a_width_of_one_and_a_warning(name, kind, n):
    with pytest.warns(UserWarning, match="all equal; sigma=1 is used"):
        assert make_kernel(name).resolve(kind(np.full((n, 3), 0.1))).params["sigma"] == 1.0


def test_gamma_and_sigma_are_one_parameter_in_two_spellings():
    a, b = make_kernel("rbf", {"gamma": 0.5}), make_kernel("rbf", {"sigma": 1.0})
    assert a.params == b.params and a.params["sigma"] == 1.0
    assert make_kernel("rbf", {"gamma": "2", "sigma": None}).params["sigma"] == 0.5


def test_factors_of_dot_products_default_to_one_over_the_width():
    rows = np.ones((3, 8))
    assert make_kernel("neural").resolve(rows).params == {"a": 1 / 8, "b": 0.0}
    assert make_kernel("polynomial", {"gamma": "auto*4"}).resolve(rows).params["gamma"] == 0.5
    assert make_kernel("polynomial").params == {"gamma": 1.0, "c0": 1.0, "degree": 3.0}


def test_resolved_kernels_are_rebuilt_from_their_description():
    x, landmarks = rows_and_landmarks()
    for name in KERNELS:
        kernel = make_kernel(name).resolve(x)
        again = make_kernel(**{"name": kernel.to_dict()["name"], "params": kernel.to_dict()["params"]})
        assert again.params == kernel.params and repr(again) == repr(kernel)
        a, b = (k.prepare(landmarks, np.float64)(x) for k in (kernel, again))
        assert np.array_equal(a, b)


# What is refused.


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("rfb", {}, r"unknown kernel 'rfb'; did you mean 'rbf'\? \(allowed: rbf, laplacian, .*chi2\)"),
        ("", {}, r"unknown kernel ''.*allowed"),
        ("rbf", {"sgima": 1}, "kernel rbf has no parameter 'sgima'; it takes sigma, gamma"),
        ("linear", {"gamma": 1}, "kernel linear has no parameter 'gamma'; it takes none"),
        ("rbf", {"sigma": 0}, "sigma=0 must be positive"),
        ("rbf", {"sigma": "-1.5"}, r"sigma=-1\.5 must be positive"),
        ("rbf", {"gamma": 0}, "gamma=0 must be positive"),
        ("rbf", {"sigma": 1, "gamma": 1}, "sigma or gamma, not both"),
        ("rbf", {"gamma": "auto"}, "gamma=auto: a number is needed"),
        ("rbf", {"sigma": "wide"}, r"sigma=wide: a number, auto or auto\*FACTOR is needed"),
        ("rbf", {"sigma": "nan"}, "sigma=nan: a number"),
        ("rbf", {"sigma": "inf"}, "sigma=inf: a number"),
        ("rbf", {"sigma": "auto*0"}, r"sigma=auto\*0: the factor after auto\* is a positive number"),
        ("rbf", {"sigma": "auto*-1"}, r"auto\*-1: the factor"),
        ("rbf", {"sigma": "auto*x"}, r"auto\*x: the factor"),
        ("rbf", {"sigma": "auto*inf"}, r"auto\*inf: the factor"),
        ("rbf", {"sigma": "auto**2"}, r"auto\*\*2: the factor"),
        ("rbf", {"sigma": [1]}, r"sigma=\[1\]: a number"),
        ("laplacian", {"sigma": 0}, "sigma=0 must be positive"),
        ("chi2", {"gamma": -1}, "gamma=-1 must be positive"),
        ("polynomial", {"degree": 0}, "degree=0 must be a whole number of at least 1"),
        ("polynomial", {"degree": 2.5}, r"degree=2\.5 must be a whole number"),
        ("polynomial", {"degree": "auto"}, "degree=auto: a number is needed"),
    ],
)
def test_parameters_that_define_no_kernel_are_refused(name, params, message):
    with pytest.raises(InputError, match=message):
        make_kernel(name, params)


@pytest.mark.parametrize("alias", list(ALIASES))
def test_aliases_name_the_same_kernel(alias):
    assert type(make_kernel(alias)) is KERNELS[ALIASES[alias]]


# Distances.


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("faiss", [True, False])
def test_l1_distances_are_those_of_the_loop_with_and_without_faiss(dtype, faiss, monkeypatch):
    if not faiss:
        monkeypatch.setitem(__import__("sys").modules, "faiss", None)
    x, y = (m.astype(dtype) for m in rows_and_landmarks())
    found = l1_distances(x, y)
    assert found.dtype == dtype
    # float32 sums of 12 values
    np.testing.assert_allclose(found, oracles.distances(x, y, "l1"), rtol=1e-6 if dtype == np.float32 else 1e-14)
    assert l1_distances(x[:0], y).shape == (0, 9)
    assert np.array_equal(l1_distances(x[::2], np.asfortranarray(y)), found[::2]), "views must not be misread"
