"""The estimators: scikit-learn's contract, the same results as the rest of the package, and messages in their words."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest
from scipy.sparse import csr_array, csr_matrix
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits, make_blobs, make_circles
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import adjusted_rand_score, pairwise_distances
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import apnc
from apnc import USENC, USPEC, APNCTransformer, KernelKMeans, RankRestrictedKernelKMeans, SpectralNystrom
from apnc.cli import main
from apnc.estimators.clusterer import Clusterer
from apnc.labels import read_clusters

FEW_ROWS = pytest.mark.filterwarnings("ignore:n_landmarks 500 is more than the rows there are")
METHODS = ("nystrom", "stable", "linear")

WEIGHTS = "weighted rows are sampled like any row, repeated rows more often: equivalent in the objective only"


def expected_failures(estimator):
    """Return the checks that may fail: those that scikit-learn's own KMeans declares."""
    if isinstance(estimator, APNCTransformer):
        return {}
    return {f"check_sample_weight_equivalence_on_{kind}_data": WEIGHTS for kind in ("dense", "sparse")}


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(
    [
        KernelKMeans(n_init=2),
        KernelKMeans(method="stable", n_components=50, n_init=2),
        APNCTransformer(),
        APNCTransformer(method="linear"),
        APNCTransformer(kernel="chi2"),
        RankRestrictedKernelKMeans(n_init=2),
        SpectralNystrom(n_init=2),
        USPEC(n_representatives=50, n_init=2),
        USENC(n_representatives=50, n_base=3, k_min=9, k_max=12, n_init=2),
    ],
    expected_failed_checks=expected_failures,
)
def test_scikit_learns_contract(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def blobs():
    return make_blobs(1500, 5, centers=6, cluster_std=2.0, random_state=0)[0]


@pytest.fixture(scope="module")
def digits():
    return load_digits(return_X_y=True)


def fitted(method, X, **params):
    return KernelKMeans(6, method=method, n_landmarks=80, n_init=2, random_state=0, **params).fit(X)


# ---- results


def test_linear_is_plain_k_means(blobs):
    # both run Lloyd's iterations to a fixed point from the same rows: only rounding may differ
    ours = KernelKMeans(6, method="linear", init=blobs[:6], max_iter=300, tol=0).fit(blobs)
    theirs = KMeans(6, init=blobs[:6], n_init=1, max_iter=300, tol=0).fit(blobs)
    assert ours.inertia_ == pytest.approx(theirs.inertia_, rel=1e-6)
    assert adjusted_rand_score(ours.labels_, theirs.labels_) == 1
    np.testing.assert_allclose(np.sort(ours.transform(blobs)), np.sort(theirs.transform(blobs)), rtol=1e-9)


def test_linear_reaches_the_objective_of_many_restarts(blobs):
    ours = KernelKMeans(6, method="linear", random_state=0).fit(blobs)
    assert ours.inertia_ <= 1.001 * KMeans(6, n_init=10, random_state=0).fit(blobs).inertia_


@pytest.mark.parametrize("method", ["nystrom", "stable"])
def test_rings_are_told_apart_where_plain_k_means_fails(method):
    X, y = make_circles(1000, factor=0.3, noise=0.05, random_state=0)
    rings = KernelKMeans(2, method=method, kernel_params={"sigma": 0.3}, random_state=0).fit(X)
    assert adjusted_rand_score(y, rings.labels_) > 0.99
    assert adjusted_rand_score(y, KMeans(2, n_init=10, random_state=0).fit(X).labels_) < 0.1


@FEW_ROWS
def test_all_rows_as_landmarks_give_exact_kernel_k_means(blobs):
    X = blobs[:300]
    model = KernelKMeans(6, kernel_params={"sigma": 4}, random_state=0).fit(X)
    K = rbf_kernel(X, gamma=1 / (2 * 4**2))
    one_hot = np.eye(6)[model.labels_] / np.sqrt(np.bincount(model.labels_))[model.labels_][:, None]
    exact = np.trace(K) - np.trace(one_hot.T @ K @ one_hot)
    # eigenvalues below 1e-10 of the largest are left out of the embedding: no more than that is missing
    assert model.inertia_ == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_distances_and_labels_belong_together(method, blobs):
    model = fitted(method, blobs)
    distances = model.transform(blobs)
    assert distances.shape == (1500, 6)
    metric = {"l1": "manhattan", "l2": "euclidean"}[model.metric_]
    expected = pairwise_distances(model.embed(blobs), model.cluster_centers_, metric=metric)
    np.testing.assert_allclose(distances, expected, rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(distances.argmin(axis=1), model.labels_)
    np.testing.assert_array_equal(model.predict(blobs), model.labels_)
    assert model.inertia_ == pytest.approx((distances.min(axis=1) ** 2).sum(), rel=1e-9)
    assert model.score(blobs) == pytest.approx(-model.inertia_, rel=1e-9)
    weights = np.arange(1500.0)
    assert model.score(blobs, sample_weight=weights) == pytest.approx(-(weights @ distances.min(axis=1) ** 2), rel=1e-9)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtype_is_kept(method, dtype, blobs):
    X = blobs.astype(dtype)
    model = fitted(method, X)
    assert model.model_.embedding.dtype == dtype
    assert model.transform(X).dtype == model.embed(X).dtype == model.cluster_centers_.dtype == dtype
    assert model.labels_.dtype == model.predict(X).dtype == np.int32
    embedding = APNCTransformer(method=method, n_landmarks=80).fit(X)
    assert embedding.transform(X).dtype == dtype


def test_float64_is_computed_in_float64(blobs):
    # centroids of 6 digits' precision would show: the mean of the embedded rows is one to 1e-12 only in float64
    model = fitted("nystrom", blobs, max_iter=100, tol=0)
    y = model.embed(blobs)
    means = np.stack([y[model.labels_ == c].mean(axis=0) for c in range(6)])
    np.testing.assert_allclose(model.cluster_centers_, means, rtol=0, atol=1e-12)


def test_float32_rows_far_from_the_origin_keep_their_dtype(blobs):
    X = (blobs + 1e4).astype(np.float32)
    model = KernelKMeans(6, method="linear", random_state=0).fit(X)
    assert model.transform(X).dtype == np.float32
    assert model.inertia_ == pytest.approx(KMeans(6, n_init=10, random_state=0).fit(X.astype(float)).inertia_, rel=1e-3)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("container", [csr_matrix, csr_array])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_sparse_rows_give_what_dense_ones_give(method, container, index, digits):
    X = digits[0][:600]
    sparse = container(X)
    sparse.indices, sparse.indptr = sparse.indices.astype(index), sparse.indptr.astype(index)
    # in 20 dimensions: the last of those above the numerical rank are rounding, in either form
    params = {"n_components": 20, "kernel_params": {"sigma": 30}}
    a, b = fitted(method, X, **params), fitted(method, sparse, **params)
    np.testing.assert_array_equal(a.labels_, b.labels_)
    assert a.inertia_ == pytest.approx(b.inertia_, rel=1e-9)
    np.testing.assert_allclose(a.transform(sparse), b.transform(sparse), rtol=1e-7)
    np.testing.assert_allclose(a.transform(X), b.transform(X), rtol=1e-7)


# ---- weights


def test_whole_weights_stand_for_repeated_rows(blobs):
    X = blobs[:500]
    weights = np.random.default_rng(0).integers(1, 5, len(X))
    repeated = np.repeat(X, weights, axis=0)
    # from the same start rows and with the same landmarks, sums of weights are sums of repeated rows
    same = {"init": X[:6], "max_iter": 100, "tol": 0, "random_state": 0}
    for method in ("linear", "nystrom"):
        params = {"method": method, "n_landmarks": 2500, "kernel_params": {"sigma": 5}, **same}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            a = KernelKMeans(6, **params).fit(X, sample_weight=weights)
            b = KernelKMeans(6, **params).fit(repeated)
        assert a.inertia_ == pytest.approx(b.inertia_, rel=1e-6)
        assert adjusted_rand_score(np.repeat(a.labels_, weights), b.labels_) == 1
        assert a.score(X, sample_weight=weights) == pytest.approx(b.score(repeated), rel=1e-6)


def test_weights_count_in_the_start_from_the_sample(blobs):
    X = blobs[:500]
    weights = np.random.default_rng(0).integers(1, 5, len(X))
    a = KernelKMeans(6, method="linear", random_state=0).fit(X, sample_weight=weights)
    b = KernelKMeans(6, method="linear", random_state=0).fit(np.repeat(X, weights, axis=0))
    # two good local optima of the same problem
    assert a.inertia_ == pytest.approx(b.inertia_, rel=0.01)


@pytest.mark.parametrize("container", [np.asarray, csr_matrix])
@pytest.mark.parametrize("method", METHODS)
def test_rows_of_weight_zero_are_as_good_as_absent(method, container, blobs):
    weights = np.random.default_rng(0).integers(0, 3, len(blobs)).astype(float)
    used = weights > 0
    outliers = np.where(used[:, None], blobs, 1e4)
    model = KernelKMeans(6, method=method, n_landmarks=80, n_init=2, random_state=0)
    a = clone(model).fit(container(outliers), sample_weight=weights)
    b = clone(model).fit(container(blobs[used]), sample_weight=weights[used])
    np.testing.assert_array_equal(a.cluster_centers_, b.cluster_centers_)
    np.testing.assert_array_equal(a.labels_[used], b.labels_)
    np.testing.assert_array_equal(a.labels_, a.predict(outliers))
    assert a.inertia_ == b.inertia_


def test_weights_of_one_change_nothing(blobs):
    plain = fitted("nystrom", blobs)
    weighted = KernelKMeans(6, n_landmarks=80, n_init=2, random_state=0).fit(blobs, sample_weight=np.ones(1500))
    np.testing.assert_array_equal(plain.cluster_centers_, weighted.cluster_centers_)


# ---- randomness


@pytest.mark.parametrize("method", METHODS)
def test_same_random_state_same_result(method, blobs):
    a, b = fitted(method, blobs), fitted(method, blobs)
    np.testing.assert_array_equal(a.labels_, b.labels_)
    np.testing.assert_array_equal(a.cluster_centers_, b.cluster_centers_)
    assert a.inertia_ == b.inertia_


def test_random_states_of_all_kinds_are_accepted(blobs):
    def landmarks(state):
        return APNCTransformer(n_landmarks=20, random_state=state).fit(blobs).landmarks_

    np.testing.assert_array_equal(landmarks(np.random.RandomState(3)), landmarks(np.random.RandomState(3)))
    np.testing.assert_array_equal(landmarks(np.int64(3)), landmarks(3))
    assert not np.array_equal(landmarks(3), landmarks(4))
    state = np.random.RandomState(3)
    assert not np.array_equal(landmarks(state), landmarks(state))
    assert not np.array_equal(landmarks(None), landmarks(None))


# ---- the model file, and the command line


@pytest.mark.parametrize("method", METHODS)
def test_a_saved_model_is_the_same_model(method, blobs, tmp_path):
    model = fitted(method, blobs, kernel_params={"sigma": np.float32(5)}, n_components=np.int64(20), scale="standard")
    model.save(tmp_path / "model.npz")
    loaded = apnc.load(tmp_path / "model.npz")
    for name in ("predict", "transform", "embed", "score"):
        np.testing.assert_array_equal(getattr(loaded, name)(blobs), getattr(model, name)(blobs))
    assert (loaded.n_iter_, loaded.n_features_in_, loaded.metric_) == (model.n_iter_, 5, model.metric_)
    np.testing.assert_array_equal(clone(loaded).fit(blobs).labels_, model.labels_)
    assert not hasattr(loaded, "labels_")


def test_a_saved_model_knows_start_rows_and_feature_names(tmp_path):
    X = np.random.default_rng(0).normal(size=(200, 2))
    frame = pa.table({"a": X[:, 0], "b": X[:, 1]})
    KernelKMeans(3, n_landmarks=50, init=X[:3]).fit(frame).save(tmp_path / "model.npz")
    loaded = apnc.load(tmp_path / "model.npz")
    assert loaded.feature_names_in_.tolist() == ["a", "b"]
    np.testing.assert_array_equal(loaded.init, X[:3])
    with pytest.raises(ValueError, match="feature names should match"):
        loaded.predict(frame.rename_columns(["a", "c"]))


@pytest.mark.parametrize("method", METHODS)
def test_the_command_lines_model_and_labels(method, digits, tmp_path, capsys):
    X = digits[0]
    np.save(tmp_path / "rows.npy", X)
    options = ["-k", "10", "--method", method, "--landmarks", "100", "--kernel-params", "sigma=auto*0.5"]
    assert main(["cluster", str(tmp_path / "rows.npy"), "-o", str(tmp_path / "out"), *options]) == 0
    model = apnc.load(tmp_path / "out" / "model.npz")
    assert (model.n_clusters, model.n_landmarks, model.kernel_params) == (10, 100, {"sigma": "auto*0.5"})
    labels = tmp_path / "labels.csv"
    assert main(["predict", str(tmp_path / "out" / "model.npz"), str(tmp_path / "rows.npy"), "-o", str(labels)]) == 0
    np.testing.assert_array_equal(model.predict(X), read_clusters(labels))
    np.testing.assert_array_equal(model.predict(csr_matrix(X)), read_clusters(labels))
    assert model.transform(X).dtype == np.float32  # what the command line computes in
    # and the other way round
    ours = KernelKMeans(10, method=method, n_landmarks=100, n_init=2, random_state=0).fit(X)
    ours.save(tmp_path / "ours.npz")
    main(["predict", str(tmp_path / "ours.npz"), str(tmp_path / "rows.npy"), "-o", str(labels), "--overwrite"])
    np.testing.assert_array_equal(ours.labels_, read_clusters(labels))


def test_load_refuses_what_is_no_model(tmp_path):
    with pytest.raises(ValueError, match="there is no such model file"):
        apnc.load(tmp_path / "absent.npz")
    np.savez(tmp_path / "other.npz", x=np.ones(3))
    with pytest.raises(ValueError, match="not a model file written by apnc"):
        apnc.load(tmp_path / "other.npz")


@pytest.mark.parametrize("method", METHODS)
def test_models_can_be_pickled_and_copied(method, blobs):
    model = fitted(method, blobs)
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        np.testing.assert_array_equal(other.transform(blobs), model.transform(blobs))


# ---- among other estimators


@FEW_ROWS
def test_the_embedding_serves_a_linear_classifier(digits):
    X, y = digits
    model = make_pipeline(APNCTransformer(n_components=100, random_state=0), LogisticRegression(max_iter=300))
    assert model.fit(X[::2], y[::2]).score(X[1::2], y[1::2]) > 0.94
    assert model[:-1].get_feature_names_out()[-1] == "apnctransformer99"


def test_the_embeddings_inner_products_are_the_kernel(blobs):
    X = blobs[:300]
    y = APNCTransformer(n_landmarks=300, kernel_params={"gamma": 0.01}).fit_transform(X)
    np.testing.assert_allclose(y @ y.T, rbf_kernel(X, gamma=0.01), atol=1e-6)


@FEW_ROWS
def test_grid_search_over_a_pipeline(digits):
    X, y = digits
    model = make_pipeline(StandardScaler(), KernelKMeans(10, n_init=2, random_state=0))
    grid = {"kernelkmeans__kernel_params": [{"sigma": "auto*0.5"}, {"sigma": "auto"}]}
    search = GridSearchCV(model, grid, scoring="adjusted_rand_score", cv=2, n_jobs=2).fit(X[:600], y[:600])
    assert search.best_score_ > 0.3
    assert search.predict(X).shape == (1797,)


def test_columns_are_named(blobs):
    assert fitted("nystrom", blobs).get_feature_names_out().tolist() == [f"kernelkmeans{c}" for c in range(6)]
    names = APNCTransformer(n_landmarks=80, n_components=2).fit(blobs).get_feature_names_out()
    assert names.tolist() == ["apnctransformer0", "apnctransformer1"]


def _small(cls):
    """Return parameters with which an estimator has little to do."""
    sizes = {"n_landmarks": 50, "n_representatives": 60, "n_base": 2}
    return {name: value for name, value in sizes.items() if name in inspect.signature(cls).parameters}


@pytest.mark.parametrize(
    "cls", [KernelKMeans, APNCTransformer, RankRestrictedKernelKMeans, SpectralNystrom, USPEC, USENC]
)
def test_every_parameter_and_attribute_is_described_with_its_default(cls, blobs):
    sections = re.split(r"\n(\w[\w ]*)\n-+\n", inspect.getdoc(cls))
    text = dict(zip(sections[1::2], sections[2::2], strict=True))
    entries = {name: re.findall(r"^(\w+) : (.+)\n {4}\S", text[name], re.M) for name in ("Parameters", "Attributes")}
    defaults = {name: p.default for name, p in inspect.signature(cls).parameters.items()}
    assert [(name, kind.partition("default=")[2]) for name, kind in entries["Parameters"]] == [
        (name, "1e-4" if name == "tol" else repr(default)) for name, default in defaults.items()
    ]
    fitted_names = {name for name in vars(cls(**_small(cls)).fit(pa.table({"a": blobs[:, 0]}))) if name.endswith("_")}
    assert fitted_names == {name for name, _ in entries["Attributes"]}


class FixedMethod(Clusterer):
    """As little as an estimator may consist of."""

    method = "stable"
    n_blocks = 2

    def __init__(self, n_clusters=8, *, n_components=50, init="sample", random_state=None, memory_budget=256):
        self._store(locals())


def test_an_estimator_is_its_parameters_and_what_it_fixes(blobs):
    ours = FixedMethod(6, random_state=0).fit(blobs)
    same = KernelKMeans(6, method="stable", n_blocks=2, n_components=50, random_state=0).fit(blobs)
    np.testing.assert_array_equal(ours.labels_, same.labels_)
    np.testing.assert_array_equal(ours.transform(blobs), same.transform(blobs))
    assert set(ours.get_params()) == {"n_clusters", "n_components", "init", "random_state", "memory_budget"}
    with pytest.raises(ValueError, match="n_components 1 is less than n_blocks 2"):
        FixedMethod(n_components=1).fit(blobs)


def test_nothing_is_available_before_fit(tmp_path):
    for call in (KernelKMeans().predict, KernelKMeans().embed, APNCTransformer().transform):
        with pytest.raises(NotFittedError):
            call([[0.0, 1.0]])
    with pytest.raises(NotFittedError):
        KernelKMeans().save(tmp_path / "model.npz")


def test_import_of_apnc_alone_brings_no_scikit_learn():
    code = "import sys, apnc, apnc.passes; print(*{'sklearn', 'scipy', 'apnc.estimators'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"
    assert {"KernelKMeans", "APNCTransformer", "load", "__version__"} <= set(dir(apnc))
    with pytest.raises(AttributeError, match="has no attribute 'KernelKMean'"):
        apnc.KernelKMean  # noqa: B018


def test_a_large_embedding_goes_to_a_file(blobs):
    a, b = fitted("nystrom", blobs), fitted("nystrom", blobs, memory_budget=0)
    np.testing.assert_array_equal(a.labels_, b.labels_)


# ---- what is refused or warned of, in the words of the parameters


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"n_clusters": 0}, "n_clusters 0 must be a whole number of at least 1"),
        ({"n_clusters": 2.5}, "n_clusters 2.5 must be a whole number"),
        ({"n_clusters": 31}, "n_samples=30 should be >= n_clusters=31"),
        ({"method": "nystrm"}, "unknown method 'nystrm'; did you mean 'nystrom'"),
        ({"kernel": "rbff"}, "unknown kernel 'rbff'; did you mean 'rbf'"),
        ({"kernel_params": {"width": 1}}, "kernel rbf has no parameter 'width'; it takes sigma, gamma"),
        ({"kernel_params": {"sigma": -1}}, "kernel parameter sigma=-1 must be positive"),
        ({"kernel_params": "sigma=2"}, "kernel_params 'sigma=2' must be a dict"),
        ({"n_landmarks": 0}, "n_landmarks 0 must be a whole number"),
        ({"n_landmarks": 3, "n_blocks": 4}, "n_landmarks 3 is less than n_blocks 4"),
        ({"n_components": "many"}, "n_components 'many' must be a whole number"),
        ({"n_components": 1, "n_blocks": 2}, "n_components 1 is less than n_blocks 2"),
        ({"t_share": 1}, "t_share 1 must be above 0 and at most 0.9"),
        ({"t_share": "half"}, "t_share 'half' must be a number"),
        ({"scale": "z"}, "unknown scale 'z'"),
        ({"init": "rows"}, "unknown init 'rows'"),
        ({"init": [[1.0, 2.0]] * 3}, r"init has shape \(3, 2\), but \(n_clusters, n_features\) is \(8, 2\)"),
        ({"init": [[np.nan, 2.0]] * 8}, "init contains NaN"),
        ({"n_init": 0}, "n_init 0 must be a whole number"),
        ({"max_iter": 0}, "max_iter 0 must be a whole number"),
        ({"tol": -1}, "tol -1 must be at least 0"),
        ({"tol": "small"}, "tol 'small' must be a number"),
        ({"sample_size": 0}, "sample_size 0 must be a whole number"),
        ({"random_state": "x"}, "cannot be used to seed"),
        ({"memory_budget": 0.5}, "memory_budget 0.5 must be a whole number of MiB"),
    ],
)
@FEW_ROWS
def test_a_parameter_that_is_not_allowed_is_named(params, message):
    X = np.random.default_rng(0).normal(size=(30, 2))
    with pytest.raises(ValueError, match=message):
        KernelKMeans(**params).fit(X)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(29), r"sample_weight has shape \(29,\), but there are 30 rows"),
        (-np.ones(30), "sample_weight -1 must be at least 0"),
        (np.zeros(30), "sample_weight is zero for all rows"),
        (np.r_[np.nan, np.ones(29)], "sample_weight contains NaN"),
        (np.r_[np.zeros(28), 1, 1], "n_samples=2 should be >= n_clusters=8"),
    ],
)
def test_weights_that_cannot_be_are_named(weights, message):
    with pytest.raises(ValueError, match=message):
        KernelKMeans().fit(np.random.default_rng(0).normal(size=(30, 2)), sample_weight=weights)


def test_one_warning_with_both_numbers_where_landmarks_exceed_rows(blobs):
    for estimator in (KernelKMeans(3), APNCTransformer()):
        with pytest.warns(UserWarning) as caught:
            estimator.fit(blobs[:200])
        text = ["n_landmarks 500 is more than the rows there are: all 200 are used"]
        assert [str(w.message) for w in caught] == text


def test_a_parameter_that_the_method_has_no_use_for_is_warned_of(blobs):
    with pytest.warns(UserWarning) as caught:
        KernelKMeans(3, method="linear", n_landmarks=7, n_components=2, kernel_params={}, t_share=0.4).fit(blobs)
    text = [f"{name} is not used by method linear" for name in ("n_landmarks", "n_components")]
    assert [str(w.message) for w in caught] == text


def test_width_above_the_rank_is_warned_of():
    X = np.random.default_rng(0).normal(size=(300, 3))
    with pytest.warns(UserWarning, match="n_components 50 is above the numerical rank 3 .* 3 dimensions are used"):
        APNCTransformer(kernel="linear", n_landmarks=100, n_components=50).fit(X)


def test_fewer_distinct_rows_than_clusters_are_warned_of():
    X = np.repeat(np.eye(3, dtype=np.float32), 50, axis=0)  # float32: the start is made again in float64
    with pytest.warns(UserWarning) as caught:
        KernelKMeans(5, method="linear", random_state=0).fit(X)
    text = [str(w.message) for w in caught]
    assert text.count("n_clusters 5 is more than the 3 distinct rows of the sample") == 1
    assert [w.category for w in caught if "Number of distinct clusters (3)" in str(w.message)] == [ConvergenceWarning]


def test_rows_without_similarity_to_any_landmark_are_warned_of():
    X = np.vstack([np.random.default_rng(0).normal(size=(300, 2)), np.full((1, 2), 1e6)])
    weights = np.ones(301)
    model = KernelKMeans(2, kernel_params={"sigma": 1}, n_landmarks=20, random_state=0)
    with pytest.warns(UserWarning, match="1 of 301 rows have no similarity to any landmark .* more n_landmarks"):
        model.fit(X, sample_weight=weights)


@pytest.mark.filterwarnings("ignore")
def test_a_row_that_cannot_be_embedded_is_named(blobs):
    model = fitted("nystrom", blobs, kernel="polynomial", kernel_params={"degree": 9})
    X = blobs[:3].copy()
    X[1] = 1e300
    with pytest.raises(ValueError, match="X: row 1: the embedding of the row must be finite"):
        model.predict(X)
    with pytest.raises(ValueError, match="not finite"):
        KernelKMeans(2, method="linear").fit(X)


def test_chi2_refuses_negative_values_in_any_row():
    X = np.random.default_rng(0).random((300, 2))
    model = KernelKMeans(2, kernel="chi2", n_landmarks=50).fit(X)
    X[7, 1] = -1
    for call in (model.fit, model.predict):
        with pytest.raises(ValueError, match="Negative values in data"):
            call(X)


def test_messages_in_threads_are_spelled_for_each(blobs):
    def fit(n):
        with pytest.raises(ValueError, match=f"n_samples={n} should be >= n_clusters=50"):
            KernelKMeans(50).fit(blobs[:n])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(fit, range(10, 30)))
