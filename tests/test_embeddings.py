"""Embeddings: Algorithms 3 and 4 of [EC] against their oracles, and the family's properties P1 to P4."""

import pickle
import warnings
from dataclasses import fields

import numpy as np
import oracles
import pytest
from in_memory import block, fold_rows
from scipy.sparse import csr_matrix
from sklearn.datasets import load_digits
from sklearn.kernel_approximation import Nystroem
from sklearn.metrics.pairwise import rbf_kernel

from apnc.blocks import Block, pack, unpack
from apnc.embed import OVERFLOW, EmbedMap, embed_map_from_dict
from apnc.embeddings import embedding_from_dict, make_method
from apnc.embeddings.base import KernelEmbedding, LinearEmbedding
from apnc.embeddings.methods import ALIASES, METHODS, spans, split_evenly
from apnc.embeddings.nystrom import nystrom_coefficients
from apnc.embeddings.spectrum import usable_spectrum
from apnc.embeddings.stable import centre, stable_coefficients
from apnc.errors import InputError
from apnc.kernels import make_kernel
from apnc.kmeans import KMeansFold
from apnc.scaling import Scaler
from apnc.settings import Settings


def digits(n=400):
    return load_digits().data[:n] / 16


def built(x, method="nystrom", dtype="float64", **settings):
    """Return (embedding, facts) without the warnings of small data."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make_method(method).embedding(x, Settings(method=method, dtype=dtype, **settings).check())


def gram(x, y=None, sigma=2.0):
    y = x if y is None else y
    return oracles.kernel_matrix("rbf", x, y, sigma=sigma)


RBF = {"kernel": "rbf", "kernel_params": {"sigma": 2.0}}


# The spectrum and its cut.


def test_what_a_method_says_that_it_uses_are_settings():
    for method in METHODS.values():
        assert set(method.options) <= {f.name for f in fields(Settings)}, method.name
        assert len(set(method.options)) == len(method.options)


def test_duplicate_landmarks_are_dropped_and_nothing_divides_by_zero():
    # case 01: 4 distinct points among 8 landmarks
    x = np.random.default_rng(0).normal(size=(4, 3))[[0, 1, 2, 3, 0, 1, 2, 0]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        spectrum = usable_spectrum(gram(x))
        r = nystrom_coefficients(spectrum, 8)
    assert spectrum.rank == 4 and spectrum.dropped == 4 and r.shape == (4, 8)
    y = gram(x) @ r.T
    np.testing.assert_allclose(y @ y.T, gram(x), atol=1e-9)


def test_an_indefinite_kernel_loses_its_negative_part_and_what_is_no_larger():
    vectors = np.linalg.qr(np.random.default_rng(0).normal(size=(6, 6)))[0]
    values = np.array([1.0, 0.5, 2e-3, 0.9e-3, 1e-8, -1e-3])
    spectrum = usable_spectrum(vectors * values @ vectors.T)
    np.testing.assert_allclose(spectrum.values, [1.0, 0.5, 2e-3], rtol=1e-10)
    assert spectrum.dropped == 3 and spectrum.lowest == pytest.approx(-1e-3)
    assert spectrum.describe() == {"rank": 3, "dropped": 3, "lowest_over_largest": spectrum.lowest}


def test_a_tanh_kernel_matrix_stays_positive_and_finite():
    x = digits(120)
    e, facts = built(x, kernel="neural", kernel_params={"a": 0.5, "b": -1.0}, landmarks=120)
    described = facts["blocks"][0]
    assert described["lowest_over_largest"] < -1e-6 and described["dropped"] > 0
    matrix = oracles.kernel_matrix("neural", x, x, a=0.5, b=-1.0)
    kept = np.linalg.eigvalsh(matrix)
    assert described["rank"] == (kept > -kept.min()).sum()
    assert np.isfinite(e.transform(x)).all()


@pytest.mark.parametrize("l", [3, 50])
def test_eigenvalues_of_rounding_size_are_noise(l):
    vectors = np.linalg.qr(np.random.default_rng(0).normal(size=(l, l)))[0]
    values = np.zeros(l)
    values[:3] = 7.0, 7e-9, 7e-11
    assert usable_spectrum(vectors * values @ vectors.T).rank == 2, "the cut is 1e-10 of the largest"


@pytest.mark.parametrize("matrix", [np.zeros((3, 3)), -np.eye(3)])
def test_a_matrix_without_positive_part_has_rank_zero(matrix):
    spectrum = usable_spectrum(matrix)
    assert spectrum.rank == 0 and spectrum.dropped == 3 and spectrum.vectors.shape == (3, 0)


def test_signs_of_eigenvectors_are_fixed():
    # LAPACK may return either sign: the model would differ from machine to machine
    vectors = usable_spectrum(gram(digits(30))).vectors
    assert (vectors[np.abs(vectors).argmax(axis=0), np.arange(vectors.shape[1])] > 0).all()


# Nyström.


def test_nystrom_coefficients_are_those_of_algorithm_3():
    matrix = gram(digits(40))
    r, expected = nystrom_coefficients(usable_spectrum(matrix), 25), oracles.nystrom(matrix, 25)
    # rows are eigenvectors: known up to their sign
    signs = np.sign((r * expected).sum(axis=1))[:, None]
    np.testing.assert_allclose(r, signs * expected, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(r @ matrix @ r.T, np.eye(25), atol=1e-9)


def test_full_rank_nystrom_is_c_times_pseudo_inverse_times_c():
    x, l = digits(150), 40
    y = built(x, landmarks=l, **RBF)[0].transform(x)
    c = gram(x, x[:l])
    np.testing.assert_allclose(y @ y.T, c @ np.linalg.pinv(gram(x[:l]), 1e-12) @ c.T, atol=1e-8)


def test_nystrom_agrees_with_scikit_learn_on_the_same_landmarks():
    x, l = digits(300), 50
    y = built(x, landmarks=l, **RBF)[0].transform(x)
    theirs = Nystroem(gamma=1 / 8, n_components=l, random_state=0).fit(x[:l]).transform(x)
    np.testing.assert_allclose(y @ y.T, theirs @ theirs.T, atol=1e-8)


def test_a_smaller_m_keeps_the_leading_directions():
    x = digits(150)
    wide, narrow = (built(x, landmarks=60, dim=m, **RBF)[0].transform(x) for m in (60, 7))
    np.testing.assert_allclose(narrow, wide[:, :7], atol=1e-10)
    # sketch error of the best rank-7 approximation of K_LL, by Eckart and Young
    left = np.linalg.eigvalsh(gram(x[:60]))[::-1][7]
    assert np.linalg.norm(gram(x[:60]) - narrow[:60] @ narrow[:60].T, 2) == pytest.approx(left, rel=1e-6)


@pytest.mark.parametrize("kind", [np.asarray, csr_matrix])
@pytest.mark.parametrize("q", [2, 3])
def test_several_blocks_are_the_mean_of_their_nystrom_approximations(q, kind):
    x = digits(120)
    e, facts = built(kind(x), landmarks=50, blocks=q, **RBF)
    sizes = [b["landmarks"] for b in facts["blocks"]]
    assert sum(sizes) == 50 and max(sizes) - min(sizes) <= 1 and len(e.landmarks) == q
    approximations, start = [], 0
    for size in sizes:
        c = gram(x, x[start : start + size])
        approximations.append(c @ np.linalg.pinv(gram(x[start : start + size]), 1e-12) @ c.T)
        start += size
    y = e.transform(kind(x))
    np.testing.assert_allclose(y @ y.T, np.mean(approximations, axis=0), atol=1e-7)


def test_landmarks_and_dimensions_are_totals_over_the_blocks():
    e, facts = built(digits(100), landmarks=31, dim=17, blocks=4, **RBF)
    assert [b["landmarks"] for b in facts["blocks"]] == [8, 8, 8, 7]
    assert [b["dim"] for b in facts["blocks"]] == [5, 4, 4, 4] and e.dim == facts["dim"] == 17
    assert built(digits(100), method="stable", landmarks=31, dim=17, blocks=4, **RBF)[0].dim == 17


@pytest.mark.parametrize("name", ["rbf", "laplacian", "polynomial", "linear", "cosine", "chi2"])
@pytest.mark.parametrize("kind", [np.asarray, csr_matrix])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_distances_are_true_kernel_distances_where_all_rows_are_landmarks(name, kind, dtype):
    # P4 in absolute terms: ‖φ − φ'‖₂² = κ(x,x) − 2κ(x,x') + κ(x',x')
    x = digits(60)[:, 20:40].astype(np.float32)
    params = {"gamma": 1.0, "c0": 1.0, "degree": 3} if name == "polynomial" else {}
    params |= {"rbf": {"sigma": 2.0}, "laplacian": {"sigma": 5.0}, "chi2": {"gamma": 0.2}}.get(name, {})
    matrix = oracles.kernel_matrix(name, x, x, **params)
    squares = np.add.outer(np.diag(matrix), np.diag(matrix)) - 2 * matrix
    y = built(kind(x.astype(dtype)), landmarks=60, kernel=name, kernel_params=params)[0].transform(
        kind(x.astype(dtype))
    )
    found = ((y[:, None] - y[None]) ** 2).sum(axis=2)
    # eigenvalues under the cut of 1e-10 are missing
    np.testing.assert_allclose(found, squares, atol=1e-7 * np.abs(matrix).max())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nystrom_distances_come_close_to_kernel_distances_of_rows_that_are_no_landmarks(dtype):
    # a smooth kernel in two dimensions: 60 landmarks carry all of it
    x = np.random.default_rng(0).random((200, 2))
    y = built(x, landmarks=60, kernel_params={"sigma": 0.6}, dtype=dtype)[0].transform(x)
    true = np.sqrt(np.maximum(2 - 2 * rbf_kernel(x, gamma=1 / (2 * 0.36)), 0))
    error = np.abs(oracles.distances(y[:40], y[40:80], "l2") - true[:40, 40:80])
    assert error.max() < (1e-2 if dtype == "float32" else 1e-4)
    assert np.median(error) < 1e-3


def test_float32_noise_does_not_drown_a_wide_kernel():
    # σ = 10 × auto: κ is 1 up to a few thousandths, of which float32 keeps four digits, and R divides by √λ
    x = np.random.default_rng(0).random((600, 2))
    for method in ("nystrom", "stable"):
        e, _ = built(x, method=method, dtype="float32", landmarks=200, kernel_params={"sigma": "auto*10"})
        y, exact = e.transform(x.astype(np.float32)), e.with_dtype(np.float64).transform(x.astype(np.float32))
        noise, spread = ((y - exact) ** 2).sum(), ((exact - exact.mean(axis=0)) ** 2).sum()
        assert noise < 1e-4 * spread, method


# Stable distributions.


@pytest.mark.parametrize("t_share", [0.1, 0.4, 0.9])
def test_stable_coefficients_are_those_of_algorithm_4_with_the_symmetric_root(t_share):
    matrix, m = gram(digits(60)), 35
    l, t = 60, round(t_share * 60)
    h = oracles.centring(l)
    r = stable_coefficients(usable_spectrum(centre(matrix)), m, m, t, np.random.default_rng(0))
    # R (H K H)^½ is scale · sᵀH only for E = V Λ^(−1/2) Vᵀ: each row then takes two values, which tell s.
    # With Λ^(−1/2)Vᵀ it is sᵀ Λ^(-1/2) Vᵀ(HKH)^½: a random mix of eigen-directions.
    scale = np.sqrt(np.pi / 2) / m * np.sqrt(l * (l - 1) / (t * (l - t)))
    indicators = r @ oracles.power(h @ matrix @ h, 0.5) / scale + t / l
    np.testing.assert_allclose(indicators, indicators.round(), atol=1e-6)
    indicators = indicators.round()
    assert set(np.unique(indicators)) == {0.0, 1.0} and (indicators.sum(axis=1) == t).all()
    np.testing.assert_allclose(r, oracles.stable(matrix, indicators, m), rtol=1e-6, atol=1e-9)


def test_the_subsets_of_landmarks_are_uniform_and_differ_from_row_to_row():
    matrix, l, t, m = np.eye(20), 20, 5, 4000
    r = stable_coefficients(usable_spectrum(centre(matrix)), m, m, t, np.random.default_rng(0))
    chosen = r > 0
    assert (chosen.sum(axis=1) == t).all() and len(np.unique(chosen, axis=0)) > 0.8 * m
    # each landmark in a quarter of the rows: 5 standard deviations of the binomial
    assert np.abs(chosen.sum(axis=0) - m * t / l).max() < 5 * np.sqrt(m * 0.25 * 0.75)


def test_rows_of_stable_coefficients_sum_to_zero():
    e, _ = built(digits(), method="stable", landmarks=100, dim=50, **RBF)
    (r,) = e.coefficients
    assert np.abs(r.sum(axis=1)).max() < 1e-9 * np.abs(r).sum(axis=1).max()


@pytest.mark.parametrize("q", [1, 2])
@pytest.mark.parametrize("t_share", [0.1, 0.4])
def test_l1_distances_of_stable_embeddings_estimate_kernel_distances_themselves(t_share, q):
    # P4 in absolute terms, against the Nyström estimate of ‖φ − φ'‖₂ and the true one
    x, l = digits(500), 300
    e, _ = built(x, method="stable", landmarks=l, dim=2000, t_share=t_share, blocks=q, kernel_params={"sigma": 1.5})
    assert e.metric == "l1"
    rows = np.arange(440, 460)
    y = e.transform(x[rows])
    pairs = np.triu_indices(len(rows), 1)
    found = oracles.distances(y, y, "l1")[pairs]
    estimates, gamma = [], 1 / (2 * 1.5**2)
    for start, stop in spans(split_evenly(l, q)):
        z = rbf_kernel(x[rows], x[start:stop], gamma) @ oracles.power(rbf_kernel(x[start:stop], None, gamma), -0.5)
        estimates.append(oracles.distances(z, z, "l2")[pairs])
    ratio = found / np.mean(estimates, axis=0)
    # a mean of m = 2000 absolute values of nearly normal numbers: 1.7 % standard deviation for a pair;
    # the centred kernel lacks one direction of the Nyström one, and 30 of 300 indicators are nearly normal only
    assert abs(ratio.mean() - 1) < 0.03 and np.abs(ratio - 1).max() < 0.12
    true = np.sqrt(2 - 2 * rbf_kernel(x[rows], None, gamma))[pairs]
    assert 0.6 < (found / true).mean() < 1.02, "an orthogonal projection shortens"
    assert np.corrcoef(found, true)[0, 1] > 0.7


def test_centring_is_h_k_h():
    matrix = gram(digits(30))
    h = oracles.centring(30)
    np.testing.assert_allclose(centre(matrix), h @ matrix @ h, atol=1e-13)


def test_the_null_direction_of_centring_is_not_taken_for_a_signal():
    # κ ≈ 1 − 1e-6: e is an eigenvector of HKH whose eigenvalue is rounding of K, not of HKH
    x = np.random.default_rng(0).random((300, 2))
    (r,) = built(x, method="stable", landmarks=300, dim=20, kernel_params={"sigma": "auto*1000"})[0].coefficients
    assert np.abs(r.sum(axis=1)).max() < 1e-9 * np.abs(r).sum(axis=1).max()


@pytest.mark.parametrize(("l", "share"), [(2, 0.4), (2, 0.9), (3, 0.01), (10, 0.9)])
def test_extreme_shares_leave_at_least_one_landmark_in_and_out(l, share):
    x = digits(l)
    e, _ = built(x, method="stable", landmarks=l, dim=6, t_share=share, kernel_params={"sigma": 2.0})
    assert np.isfinite(e.transform(x)).all() and np.abs(e.coefficients[0]).max() > 0


def test_stable_coefficients_depend_on_the_seed_and_nothing_else():
    x = digits(100)
    a, b, c = (built(x, method="stable", landmarks=50, dim=20, seed=s, **RBF)[0].coefficients[0] for s in (0, 0, 1))
    assert np.array_equal(a, b) and not np.allclose(a, c)


# Properties of all members.

MEMBERS = [
    ("nystrom", {"landmarks": 50}),
    ("nystrom", {"landmarks": 50, "blocks": 3, "dim": 20}),
    ("stable", {"landmarks": 50, "dim": 40}),
    ("stable", {"landmarks": 50, "dim": 40, "blocks": 2}),
]


@pytest.mark.parametrize(("method", "more"), MEMBERS)
def test_p1_the_embedding_of_a_mean_is_the_mean_of_the_embeddings(method, more):
    x = digits(150)
    e, _ = built(x, method=method, **RBF, **more)
    group = x[60:130]
    start, of_mean = 0, []
    for landmarks, r in zip(e.landmarks, e.coefficients, strict=True):
        # φ̄ enters through κ(L, φ̄) = mean of κ(L, x_i)
        of_mean.append(r @ gram(landmarks, group).mean(axis=1))
        assert np.array_equal(landmarks, x[start : start + len(landmarks)]), "blocks take disjoint landmarks"
        start += len(landmarks)
    np.testing.assert_allclose(e.transform(group).mean(axis=0), np.concatenate(of_mean), atol=1e-9)


@pytest.mark.parametrize(("method", "more"), MEMBERS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_dense_and_sparse_copies_of_rows_embed_alike(method, more, dtype):
    x = digits(150).astype(np.float32)
    a, b = (built(form, method=method, dtype=dtype, **RBF, **more)[0].transform(form) for form in (x, csr_matrix(x)))
    # float32: rounding of κ, 1e-7, over the smallest √λ kept
    np.testing.assert_allclose(a, b, atol=1e-4 if dtype == "float32" else 1e-8)


@pytest.mark.parametrize(("method", "more"), MEMBERS)
def test_embeddings_survive_the_file_and_pickling(method, more):
    x = digits(150)
    for form in (x, csr_matrix(x)):
        e, _ = built(form, method=method, **RBF, **more)
        y = e.transform(form)
        again = embedding_from_dict(unpack(pack(e.to_dict())))
        assert np.array_equal(again.transform(form), y)
        assert (again.dim, again.metric, again.dtype, again.widest) == (e.dim, e.metric, e.dtype, e.widest)
        assert np.array_equal(pickle.loads(pickle.dumps(e)).transform(form), y)


def test_k_means_on_a_full_rank_embedding_is_exact_kernel_k_means():
    x = digits(120)
    matrix = gram(x)
    y = built(x, landmarks=120, **RBF)[0].transform(x)
    start = np.arange(120) % 6
    labels = oracles.exact_kernel_kmeans(matrix, start, 6, 4)
    found = start
    for _ in range(4):
        centroids = np.stack([y[found == c].mean(axis=0) for c in range(6)])
        found = oracles.kmeans_step(y, centroids)[0]
    assert np.array_equal(found, labels)
    centroids = np.stack([y[labels == c].mean(axis=0) for c in range(6)])
    result = fold_rows(KMeansFold(centroids[None]), [block(y)])
    reassigned = oracles.kmeans_step(y, centroids)[0]
    spread = sum(((y[reassigned == c] - centroids[c]) ** 2).sum() for c in range(6))
    assert result.objectives[0] == pytest.approx(spread, rel=1e-9)
    moved = np.stack([y[reassigned == c].mean(axis=0) for c in range(6)])
    inner = sum(((y[reassigned == c] - moved[c]) ** 2).sum() for c in range(6))
    assert inner == pytest.approx(oracles.kernel_kmeans_objective(matrix, reassigned), rel=1e-6)


# Linear.


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_linear_method_shifts_by_the_mean_before_rounding(dtype):
    x = np.random.default_rng(0).normal(size=(50, 3)) + 1e6
    e, facts = built(x, method="linear", dtype=np.dtype(dtype).name)
    y = e.transform(x)
    assert y.dtype == dtype and facts == {"dim": 3}
    np.testing.assert_allclose(y, x - x.mean(axis=0), atol=1e-6 if dtype == np.float32 else 1e-9)
    assert np.array_equal(embedding_from_dict(unpack(pack(e.to_dict()))).transform(x), y)


def test_the_linear_method_takes_sparse_rows_of_any_smaller_width():
    x = csr_matrix(np.eye(4))
    e, _ = built(x, method="linear")
    assert np.array_equal(e.transform(x), np.eye(4))
    assert np.array_equal(e.transform(csr_matrix(np.ones((2, 2)))), [[1, 1, 0, 0]] * 2)


# What cannot work.


def test_blocks_need_landmarks():
    with pytest.raises(InputError, match="--blocks 5 is more than the 3 landmarks"):
        built(digits(3), landmarks=10, blocks=5, dim=5)
    with pytest.raises(InputError, match="stable needs at least 2 landmarks in each block"):
        built(digits(3), method="stable", landmarks=3, blocks=2)


def test_more_landmarks_than_rows_are_warned_of_with_both_numbers():
    with pytest.warns(UserWarning, match="--landmarks 500 is more than the rows there are: all 12 are used"):
        e, facts = make_method("nystrom").embedding(digits(12), Settings(**RBF))
    assert facts["landmarks"] == 12 and e.landmarks[0].shape[0] == 12


def test_more_dimensions_than_the_rank_are_warned_of_with_both_numbers():
    x = np.repeat(digits(4), 6, axis=0)
    with pytest.warns(UserWarning, match="--dim 20 is above the numerical rank 4 .*: 4 dimensions are used"):
        e, _ = make_method("nystrom").embedding(x, Settings(landmarks=24, dim=20, **RBF))
    assert e.dim == 4


def test_a_constant_kernel_is_warned_of():
    # tanh on 0–255 saturates: every row embeds to one point
    x = np.random.default_rng(0).integers(100, 256, (50, 20)).astype(np.float64)
    with pytest.warns(UserWarning, match=r"same value for all landmarks .*scale the data"):
        make_method("nystrom").embedding(x, Settings(landmarks=50, kernel="neural", kernel_params={"a": 1.0}))


def test_a_kernel_that_is_the_identity_is_warned_of():
    x = np.arange(40.0).reshape(20, 2)
    with pytest.warns(UserWarning, match=r"about zero between any two landmarks .*larger width"):
        e, _ = make_method("nystrom").embedding(x, Settings(landmarks=20, kernel_params={"gamma": 1e6}))
    assert np.isfinite(e.transform(x)).all()


def test_a_useful_kernel_is_not_warned_of():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for method in ("nystrom", "stable"):
            make_method(method).embedding(digits(100), Settings(landmarks=50, dim=20, method=method, **RBF))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("kernel", "params"), [("linear", {}), ("polynomial", {"degree": 300}), ("rbf", {"sigma": 1e-200})]
)
def test_a_kernel_matrix_of_nothing_or_of_infinities_is_refused_by_name(kernel, params):
    x = np.zeros((10, 3)) if kernel == "linear" else np.random.default_rng(0).uniform(100, 255, (10, 3))
    with pytest.raises(InputError, match=f"kernel {kernel}.*scale the data") as caught:
        built(x, landmarks=10, kernel=kernel, kernel_params=params)
    assert ("overflows" in str(caught.value)) == (kernel != "linear"), "zero and infinite are different troubles"


@pytest.mark.parametrize(
    ("name", "message"),
    [("nystrm", "unknown method 'nystrm'; did you mean 'nystrom'"), ("x", r"allowed: nystrom, stable, linear")],
)
def test_unknown_methods_are_refused_with_the_nearest_name(name, message):
    with pytest.raises(InputError, match=message):
        make_method(name)
    assert {type(make_method(alias)) for alias in ALIASES} <= {type(m) for m in METHODS.values()}


# The pass over all rows.


def embed_map(x, **settings):
    e, _ = built(x, **settings)
    return EmbedMap(e, Scaler(), x.shape[1], hasattr(x, "indptr"))


def test_rows_of_the_other_kind_are_converted_to_what_the_model_was_trained_on():
    x = digits(100).astype(np.float32)
    for trained in (x, csr_matrix(x)):
        step = embed_map(trained, landmarks=30, **RBF)
        a, b = (step.apply(block(form)).x for form in (x, csr_matrix(x)))
        np.testing.assert_array_equal(a, b)
        narrow = x[:, :60].copy()
        np.testing.assert_array_equal(
            step.apply(block(csr_matrix(narrow))).x, step.apply(block(csr_matrix(np.pad(narrow, ((0, 0), (0, 4)))))).x
        )


@pytest.mark.parametrize("form", [np.asarray, csr_matrix])
@pytest.mark.parametrize("width", [1, 63, 65])
def test_rows_of_another_width_are_refused_and_never_broadcast(form, width):
    if form is csr_matrix and width < 64:
        return  # sparse rows may be narrower
    for trained in (digits(50), csr_matrix(digits(50))):
        with pytest.raises(ValueError):
            embed_map(trained, landmarks=20, **RBF).apply(block(form(np.ones((4, width)))))


def test_a_block_without_rows_embeds_to_one_without_rows():
    out = embed_map(digits(50), landmarks=20, dtype="float32", **RBF).apply(block(np.empty((0, 64))))
    assert out.x.shape == (0, 20) and out.x.dtype == np.float32


def test_rows_whose_embedding_overflows_become_bad_rows():
    x = digits(50)
    step = embed_map(x, landmarks=20, dtype="float32", kernel="polynomial", kernel_params={"degree": 5})
    rows = x[:4].copy()
    rows[2] *= 1e12
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out = step.apply(Block("s", np.array([5, 6, 7, 8]), rows, ids=list("abcd")))
    assert out.offsets.tolist() == [5, 6, 8] and out.bad.tolist() == [7] and out.ids == ["a", "b", "d"]
    assert out.rules == {OVERFLOW: 1} and np.isfinite(out.x).all()


def test_a_negative_value_in_any_row_is_not_silently_clipped_by_chi2():
    # the sample was fine; a later row is not
    x = np.abs(digits(50))
    step = embed_map(x, landmarks=20, kernel="chi2")
    rows = x[:3].copy()
    rows[1, 5] = -2.0
    for form in (rows, csr_matrix(rows)):
        out = step.apply(block(form))
        assert out.offsets.tolist() == [0, 2] and out.bad.tolist() == [1]


def test_the_map_is_rebuilt_from_its_description():
    x = digits(60)
    for form, kind in ((x, "standard"), (csr_matrix(x), "unit")):
        step = embed_map(form, landmarks=20, **RBF)
        step.scaler = Scaler(kind, np.full(64, 0.5), np.full(64, 2.0)) if kind == "standard" else Scaler(kind)
        again = embed_map_from_dict(unpack(pack(step.to_dict())))
        np.testing.assert_array_equal(step.apply(block(form)).x, again.apply(block(form)).x)


def test_kernels_are_prepared_once_and_shared_by_threads():
    from concurrent.futures import ThreadPoolExecutor

    x = digits(200)
    e, _ = built(x, landmarks=40, **RBF)
    expected = KernelEmbedding(e.kernel, e.landmarks, e.coefficients).with_dtype(np.float64).transform(x)
    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(lambda i: e.transform(x[10 * i : 10 * i + 10]), range(20)))
    np.testing.assert_allclose(np.concatenate(parts), expected, atol=1e-9)


def test_automatic_parameters_are_fixed_before_anything_is_embedded():
    e, facts = built(digits(100), landmarks=20)
    assert isinstance(facts["kernel"]["params"]["sigma"], float) and e.kernel.params == facts["kernel"]["params"]
    assert make_kernel("rbf").resolve(digits(100)).params == e.kernel.params
    assert isinstance(LinearEmbedding(np.zeros(3)).dtype, np.dtype)
