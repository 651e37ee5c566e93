"""From the sample to a model: what is refused, what is warned of, and what the result may depend on."""

import warnings
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from in_memory import block, model_of, predict, sample_of, train
from scipy.sparse import csr_matrix
from sklearn.datasets import load_digits

from apnc.blocks import Problem
from apnc.coefficients import BadRows, CoefficientsFold, build_model, check_sample
from apnc.errors import InputError
from apnc.model import Model
from apnc.passes import merge_states
from apnc.sampling import EVERYTHING
from apnc.settings import Settings

DIGITS = load_digits().data[:600] / 16
SMALL = {"k": 5, "landmarks": 50, "dim": 30, "restarts": 3}
METHODS = pytest.mark.parametrize("method", ["nystrom", "stable", "linear"])


def arrays_of(model):
    found = {n: v for n, v in model.to_dict().items() if isinstance(v, np.ndarray) or hasattr(v, "indptr")}
    return {n: v.toarray() if hasattr(v, "indptr") else v for n, v in found.items()}


@METHODS
@pytest.mark.parametrize("kind", [np.asarray, csr_matrix])
def test_the_model_does_not_depend_on_threads(method, kind):
    a, b = (arrays_of(model_of(kind(DIGITS), threads=t, method=method, **SMALL)) for t in (1, 3))
    assert a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


@METHODS
def test_the_model_does_not_depend_on_how_the_sample_was_gathered(method):
    settings = Settings(method=method, sample=300, **SMALL)
    models = []
    for parts in (1, 2, 7):
        fold, total = CoefficientsFold(settings, EVERYTHING), {}
        edges = np.linspace(0, 600, parts + 1).astype(int)
        for a, b in reversed(list(pairwise(edges))):
            state = {}
            fold.accumulate(state, block(DIGITS[a:b], first=a))
            merge_states(fold, total, {key: fold.unseal(fold.seal(part)) for key, part in state.items()})
        models.append(arrays_of(fold.finish(total)[1]))
    assert all(np.array_equal(models[0][name], m[name]) for m in models[1:] for name in models[0])


def test_landmarks_are_the_first_sample_rows_in_hash_order():
    sample = sample_of(DIGITS)
    model = model_of(DIGITS, **SMALL)
    assert np.array_equal(model.embedding.landmarks[0], sample.x[:50])
    assert model.facts["sample_rows"] == 600 and model.facts["landmarks"] == 50 and model.facts["dim"] == 30


@METHODS
@pytest.mark.parametrize("init", ["sample", "random"])
def test_rows_of_weight_zero_do_not_exist_for_the_model(method, init):
    rng = np.random.default_rng(0)
    good = rng.normal(size=(40, 3))
    x = np.concatenate([good, 50 + rng.normal(size=(40, 3))])
    weights = np.repeat([1.0, 0.0], 40)
    for k in (2, 30, 39):
        settings = {"k": k, "landmarks": 20, "method": method, "init": init, "restarts": 2, "passes": 3}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = train(x, weights, **settings)
        if method == "linear":
            assert np.abs(model.centroids + model.embedding.shift).max() < 10
        else:
            assert np.abs(model.embedding.landmarks[0]).max() < 10
        assert len(model.sample) == 40


def test_weights_that_leave_no_rows_are_refused():
    with pytest.raises(InputError, match="all sample weights are zero"):
        model_of(DIGITS, np.zeros(600), **SMALL)


def test_more_clusters_than_rows_are_refused_with_both_numbers():
    with pytest.raises(InputError, match="-k 9 is more than the 7 rows of the input"):
        model_of(np.eye(7), k=9, method="linear")
    model_of(np.eye(7), k=7, method="linear")


def test_no_rows_are_refused():
    with pytest.raises(InputError, match="the input holds no rows"):
        build_model(sample_of(np.empty((0, 3))), Settings(k=1))


def test_bad_rows_stop_the_run_unless_they_may_be_skipped():
    sample = sample_of(np.eye(3))
    sample.problems, sample.rules = [Problem("a", 7, 1, "x", "rule")], {"rule": 4}
    with pytest.raises(BadRows, match="4 rows cannot be used") as caught:
        check_sample(sample, Settings(k=1))
    assert caught.value.problems[0].offset == 7 and caught.value.rules == {"rule": 4} and caught.value.exit_status == 2
    check_sample(sample, Settings(k=1, on_bad_row="skip"))
    sample.problems.append(Problem("b", 0, None, "cut off", "a file must be whole", fatal=True))
    with pytest.raises(BadRows) as caught:
        check_sample(sample, Settings(k=1, on_bad_row="skip"))
    assert [p.source for p in caught.value.problems] == ["b"], "what cannot be skipped is what is shown"


def test_an_incomplete_sample_makes_no_model():
    fold, state = CoefficientsFold(Settings(**SMALL), 0), {}
    fold.accumulate(state, block(DIGITS))
    sample, model = fold.finish(state)
    assert model is None and not sample.complete


def test_fewer_distinct_rows_than_clusters_are_warned_of_once():
    x = np.repeat(np.arange(5.0), 3)[:, None]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model_of(x, k=7, method="linear")
    assert [str(w.message) for w in caught] == ["-k 7 is more than the 5 distinct rows of the sample"]


def test_float64_is_taken_where_float32_cannot_tell_rows_apart():
    rng = np.random.default_rng(0)
    groups = np.repeat([[0.0], [1e5]], 50, axis=0)
    far = groups + rng.normal(size=(100, 3))
    assert model_of(far, k=2, method="linear").embedding.dtype == np.float64
    assert model_of(far, k=2, kernel_params={"sigma": 1.0}, landmarks=50).embedding.dtype == np.float64
    assert model_of(DIGITS, **SMALL).embedding.dtype == np.float32
    assert model_of(DIGITS, dtype="float64", **SMALL).embedding.dtype == np.float64
    model = model_of(far, k=2, method="linear")
    assert model.sample.dtype == model.centroids.dtype == np.float64 and model.facts["dtype"] == "float64"


@pytest.mark.parametrize("init", ["random", "rows"])
def test_float64_is_taken_by_what_can_be_reached_and_not_by_the_start(init):
    x = np.concatenate([100 + np.arange(4) * 1e-3, -100 - np.arange(3) * 1e-3])[:, None]
    rows = [[1000.0], [2000.0], [-3000.0]] if init == "rows" else None
    for seed in range(5):
        model = model_of(x, k=3, method="linear", init=init, init_rows=rows, seed=seed)
        assert model.embedding.dtype == np.float64


@pytest.mark.parametrize("method", ["nystrom", "linear"])
@pytest.mark.parametrize("kind", [np.asarray, csr_matrix])
@pytest.mark.parametrize("scale", ["none", "unit"])
def test_given_rows_are_embedded_like_any_row(method, kind, scale):
    rows = DIGITS[:5]
    settings = SMALL | {"method": method, "init": "rows", "init_rows": rows.tolist(), "scale": scale}
    model = model_of(kind(DIGITS), **settings)
    assert model.centroids.shape[:2] == (1, 5)
    np.testing.assert_allclose(model.centroids[0], model.embed(kind(rows)), atol=1e-5)


def test_given_rows_must_fit():
    with pytest.raises(InputError, match="--init rows have 3 values, the input has 64 features"):
        model_of(DIGITS, k=2, method="linear", init="rows", init_rows=[[1, 2, 3]] * 2)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("init", ["sample", "random"])
def test_restarts_are_chosen_on_the_sample_or_carried_along(full, init):
    model = model_of(DIGITS, **SMALL | {"restarts": 4, "init": init, "full_restarts": full})
    assert len(model.centroids) == (4 if full else 1)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("size", [1e18, 1e25, 1e37, 1e100, 1e160])
@pytest.mark.parametrize(
    "settings", [{"method": "linear"}, {"landmarks": 10}, {"landmarks": 10, "kernel": "polynomial"}]
)
def test_values_beyond_float32_are_clustered_or_refused_but_never_lost(size, settings):
    x = np.random.default_rng(0).normal(size=(30, 3)) * size
    try:
        model = train(x, k=2, **settings)
    except InputError as error:
        assert "scale the data" in str(error)
    else:
        assert model.rows == 30 and np.isfinite(model.centroids).all() and model.passes[-1]["objective"] > 0


@pytest.mark.parametrize("scale", ["unit", "standard", "minmax"])
def test_the_scale_is_part_of_the_model(scale):
    x = DIGITS * np.linspace(1, 100, 64) + 5
    model = model_of(x, scale=scale, **SMALL)
    assert model.scaler.kind == scale
    by_hand = model_of(model.scaler(x), **SMALL)
    np.testing.assert_allclose(model.embed(x[:50]), by_hand.embed(model.scaler(x[:50])), atol=1e-5)


def test_the_paper_s_defaults_stand_in_the_settings():
    s = Settings()
    assert (s.landmarks, s.t_share, s.passes, s.restarts, s.tol) == (500, 0.4, 20, 10, None)
    assert s.sample_rows() == 10_000 and replace(s, landmarks=20_000).sample_rows() == 20_000
    assert replace(s, sample=700).sample_rows() == 700 and replace(s, sample=7).sample_rows() == 500
    assert replace(s, sample=7, method="linear").sample_rows() == 8, "no less than k"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert model_of(DIGITS, k=2, method="stable", restarts=1).embedding.dim == 1000
        assert model_of(DIGITS, k=2, restarts=1).embedding.dim <= 500


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"k": 0}, r"-?-k 0 must be a whole number of at least 1"),
        ({"k": 2.0}, r"-?-k 2\.0 must be a whole number"),
        ({"k": True}, r"-?-k True must be a whole number"),
        ({"landmarks": 0}, "--landmarks 0 must be"),
        ({"landmarks": -1}, "--landmarks -1 must be"),
        ({"dim": 0}, "--dim 0 must be"),
        ({"blocks": 0}, "--blocks 0 must be"),
        ({"sample": 0}, "--sample 0 must be"),
        ({"passes": 0}, "--passes 0 must be"),
        ({"restarts": 0}, "--restarts 0 must be"),
        ({"seed": -1}, "--seed -1 must be a whole number of at least 0"),
        ({"t_share": 0.0}, "--t-share 0 must be above 0 and at most 0.9"),
        ({"t_share": 1.0}, "--t-share 1 must be"),
        ({"t_share": float("nan")}, "--t-share nan must be"),
        ({"tol": -0.1}, "--tol -0.1 must be"),
        ({"tol": 1.0}, "--tol 1 must be"),
        ({"tol": float("nan")}, "--tol nan must be"),
        ({"dim": 2, "blocks": 3}, "--dim 2 is less than --blocks 3"),
        ({"landmarks": 2, "blocks": 3}, "--landmarks 2 is less than --blocks 3"),
        ({"scale": "unti"}, "--scale 'unti'; did you mean 'unit'"),
        ({"init": "x"}, "--init 'x'"),
        ({"on_bad_row": "ignore"}, "--on-bad-row 'ignore'"),
        ({"dtype": "float16"}, "--dtype 'float16'"),
        ({"method": "nystroem"}, "unknown method 'nystroem'; did you mean 'nystrom'"),
        ({"kernel": "rfb"}, "unknown kernel 'rfb'"),
        ({"kernel_params": {"sigma": 0}}, "sigma=0 must be positive"),
        ({"init": "rows", "init_rows": [[1.0]], "k": 2}, "--init holds 1 rows, but -k is 2"),
        ({"init": "rows", "k": 2}, "--init holds 0 rows, but -k is 2"),
    ],
)
def test_settings_that_cannot_work_are_refused_by_name(settings, message):
    with pytest.raises(InputError, match=message):
        Settings(**settings).check()


def test_settings_of_numpy_numbers_can_be_written_down(tmp_path):
    # a grid search hands over np.int64
    settings = {"k": np.int64(3), "landmarks": np.int32(20), "seed": np.int64(1), "passes": np.int64(2)}
    model = model_of(DIGITS, restarts=1, **settings)
    model.save(tmp_path / "model.npz")
    assert Model.load(tmp_path / "model.npz").settings.k == 3


def test_a_finished_model_predicts_from_its_own_sample():
    model = train(DIGITS, **SMALL)
    labels, away = predict(model, DIGITS)
    assert set(labels) == set(range(5)) and (away >= 0).all()
