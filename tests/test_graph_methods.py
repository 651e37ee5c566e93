"""rank-restricted, spectral-nystrom, U-SPEC and U-SENC: naive references, odd rows, engines and their passes."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import oracles
import pytest
from command_line import apnc, cluster, facts, labels, write_csv, write_svmlight
from in_memory import block, fold_rows, model_of, predict, train
from processes import python
from scipy.linalg import eigh
from scipy.sparse import csr_matrix
from sklearn.datasets import load_digits, make_blobs, make_circles, make_moons
from sklearn.metrics import normalized_mutual_info_score

from apnc.embed import EmbedMap
from apnc.embeddings import usenc
from apnc.embeddings.base import embedding_from_dict
from apnc.embeddings.views import view_from_dict
from apnc.engines.in_process import InProcessEngine
from apnc.errors import InputError
from apnc.estimators import SpectralNystrom
from apnc.model import Model
from apnc.moments import MomentsFold
from apnc.pipeline import Listener, Run
from apnc.pipeline import train as train_run
from apnc.readers.array import ArrayInput
from apnc.readers.detect import describe
from apnc.runs import OutputFolder
from apnc.settings import Settings
from apnc.transfer_cut import transfer_cut

SMALL = {
    "rank-restricted": {"landmarks": 60},
    "spectral-nystrom": {"landmarks": 60},
    "uspec": {"representatives": 60},
    "usenc": {"representatives": 60, "base_clusterings": 3, "k_min": 4, "k_max": 9},
}
METHODS = list(SMALL)


@pytest.fixture(autouse=True)
def _own_draws():
    """The same draws for a test whatever ran before it."""
    global rng
    rng = np.random.default_rng(0)


def options(method, **more):
    given = SMALL[method] | more
    return [part for name, value in given.items() for part in (f"--{name.replace('_', '-')}", str(value))]


def agreement(a, b):
    return normalized_mutual_info_score(a, b, average_method="geometric")


@pytest.fixture(scope="module")
def blobs():
    return make_blobs(900, 4, centers=4, cluster_std=1.0, random_state=3)


# ---- against naive references


def test_the_transfer_cut_is_the_eigenproblem_of_the_whole_graph():
    x, points = rng.normal(size=(120, 3)), rng.normal(size=(14, 3))
    b = oracles.affinities(x, points, 5, 1.3)
    t = b / b.sum(axis=1, keepdims=True)
    second = t.T @ (b.sum(axis=1)[:, None] * t)
    rotation, found = transfer_cut(second, 4)
    exact = oracles.bipartite_eigenvectors(b, 4)
    # the same vectors up to sign and length: both come from symmetric problems of gaps above 1e-3
    for ours, theirs in zip((t @ rotation).T, exact.T, strict=True):
        assert abs(ours @ theirs) / np.linalg.norm(ours) / np.linalg.norm(theirs) == pytest.approx(1, abs=1e-9)
    assert found["components"] == 1 and found["nodes"] == 14


def test_uspec_is_the_naive_graph_on_its_representatives(blobs):
    x, _ = blobs
    model = train(x, k=4, method="uspec", **SMALL["uspec"])
    b = oracles.affinities(x, model.embedding.representatives[0], 5, model.facts["sigma"][0])
    exact = oracles.bipartite_eigenvectors(b, 4)
    exact /= np.linalg.norm(exact, axis=1, keepdims=True)
    # unit rows of the same subspace up to a scale of each column, so compare what k-means sees: the labels
    y = model.embed(x)
    assert np.allclose(np.linalg.norm(y, axis=1), 1, atol=1e-6)
    from sklearn.cluster import KMeans

    theirs = KMeans(4, n_init=10, random_state=0).fit_predict(exact)
    assert agreement(predict(model, x)[0], theirs) > 0.98


def test_sigma_is_the_mean_distance_to_the_representatives(blobs):
    model = model_of(blobs[0], k=4, method="uspec", **SMALL["uspec"])
    d = np.sort(oracles.distances(blobs[0], model.embedding.representatives[0], "l2"), axis=1)[:, :5]
    assert model.facts["sigma"][0] == pytest.approx(d.mean(), rel=1e-5)
    half = model_of(blobs[0], k=4, method="uspec", kernel_params={"sigma": "auto*0.5"}, **SMALL["uspec"])
    assert half.facts["sigma"][0] == pytest.approx(d.mean() / 2, rel=1e-5)
    given = model_of(blobs[0], k=4, method="uspec", kernel_params={"sigma": 2.5}, **SMALL["uspec"])
    assert given.facts["sigma"] == [2.5]


def test_all_rows_as_landmarks_give_exact_spectral_clustering(blobs):
    x = blobs[0][:150]
    model = train(x, k=4, method="spectral-nystrom", landmarks=150, dim=150, dtype="float64")
    sigma = model.facts["kernel"]["params"]["sigma"]
    k = oracles.kernel_matrix("rbf", x, x, sigma=sigma)
    roots = np.sqrt(k.sum(axis=1))
    _, vectors = eigh(k / roots / roots[:, None])
    exact = vectors[:, ::-1][:, :4]
    # the numerical cut drops eigenvalues below 1e-10 of the largest
    assert oracles.subspace_gap(unnormalised(model, x), exact) < 1e-4


def unnormalised(model, x):
    view = view_from_dict(model.view.to_dict() | {"unit": False})
    return view.rows(model.embedding.transform(model.scaler(x)))


@pytest.mark.parametrize("whiten", [False, True])
def test_rank_restriction_is_the_svd_of_all_embedded_rows(blobs, whiten):
    x = blobs[0]
    model = train(x, k=4, method="rank-restricted", landmarks=80, dim=6, whiten=whiten, dtype="float64")
    plain = train(x, k=4, method="nystrom", landmarks=80, dim=40, dtype="float64")
    y = plain.embed(x)  # the same landmarks, half of their eigenpairs
    u, s, _ = np.linalg.svd(y, full_matrices=False)
    found, exact = model.embed(x), u[:, :6] if whiten else u[:, :6] * s[:6]
    # up to signs of columns, and to what the moments square: 1e-8
    np.testing.assert_allclose(np.abs(found), np.abs(exact), atol=1e-6 * np.abs(exact).max())
    np.testing.assert_allclose(model.facts["singular_values"], s[:6], rtol=1e-6)


def test_unit_rows_have_length_one_and_zero_rows_stay(blobs):
    model = train(blobs[0], k=4, method="rank-restricted", landmarks=80, unit_rows=True, kernel="linear")
    y = model.embed(np.vstack([blobs[0][:5], np.zeros((1, 4))]))
    np.testing.assert_allclose(np.linalg.norm(y, axis=1), [1] * 5 + [0], atol=1e-6)


def test_the_target_rank_is_the_papers_unless_given():
    x = rng.normal(size=(500, 8))
    assert train(x, k=4, method="rank-restricted", landmarks=100).dim == 20  # √(4 · 100)
    assert train(x, k=4, method="rank-restricted", landmarks=100, dim=9).dim == 9
    assert train(x, k=20, method="rank-restricted", landmarks=60).dim == 29  # √1200 = 35, but ℓ − 1 at most


# ---- clusters of any shape


@pytest.mark.parametrize("method", ["uspec", "usenc", "spectral-nystrom"])
@pytest.mark.parametrize("shape", [make_moons, make_circles], ids=["moons", "circles"])
def test_shapes_that_k_means_cannot_tell_apart(method, shape):
    more = {"factor": 0.4} if shape is make_circles else {}
    x, y = shape(1500, noise=0.05, random_state=0, **more)
    given = {"uspec": {"representatives": 150}, "spectral-nystrom": {"kernel_params": {"sigma": 0.1}}}.get(
        method, {"representatives": 150, "base_clusterings": 5, "k_min": 6, "k_max": 12}
    )
    model = train(x, k=2, method=method, **given)
    assert agreement(predict(model, x)[0], y) > 0.95
    assert agreement(predict(train(x, k=2, method="linear"), x)[0], y) < 0.5


def test_digits_score_what_the_papers_promise():
    x, y = load_digits(return_X_y=True)
    scores = {m: agreement(predict(train(x, k=10, method=m, **g), x)[0], y) for m, g in {
        "nystrom": {}, "uspec": {"representatives": 300}, "usenc": {"representatives": 300, "base_clusterings": 10},
    }.items()}  # fmt: skip
    assert scores["uspec"] > scores["nystrom"] + 0.05
    assert scores["usenc"] > scores["uspec"] - 0.02


# ---- odd rows


@pytest.mark.parametrize("method", ["uspec", "usenc"])
def test_isolated_rows_duplicates_and_outliers_have_finite_places(method):
    x = np.vstack([make_blobs(600, 3, centers=3, random_state=0)[0], np.full((40, 3), 7.0), [[1e4] * 3, [-3e6, 0, 0]]])
    with np.errstate(invalid="raise", divide="raise", over="raise"):
        model = train(x, k=3, method=method, **SMALL[method])
    found, distances = predict(model, x)
    assert np.isfinite(distances).all() and np.isfinite(model.centroids).all()
    assert len(set(found[600:640])) == 1
    assert predict(model, np.full((1, 3), 1e8))[0][0] in range(3)


@pytest.mark.parametrize("method", ["uspec", "usenc"])
def test_a_row_far_from_every_representative_is_its_nearest_ones(method):
    x = make_blobs(600, 2, centers=[[0, 0], [30, 0]], random_state=0)[0]
    model = train(x, k=2, method=method, **SMALL[method])
    near, _ = predict(model, np.array([[0.0, 0.0], [30.0, 0.0]]))
    far, distances = predict(model, np.array([[-4000.0, 0.0], [4000.0, 0.0]]))  # exp(−4000²/2σ²) is zero in float64
    assert far.tolist() == near.tolist() and near[0] != near[1] and np.isfinite(distances).all()


def test_parts_of_the_graph_without_a_connection_are_the_clusters():
    x, y = make_blobs(900, 2, centers=[[0, 0], [1e3, 0], [0, 1e3]], random_state=0)
    model = train(x, k=3, method="uspec", **SMALL["uspec"])
    assert model.facts["graph"]["components"] == 3
    assert agreement(predict(model, x)[0], y) == pytest.approx(1)


def test_equal_rows_only_are_refused_by_the_name_of_the_width():
    with pytest.raises(InputError, match="sigma of the affinity is 0"), pytest.warns(UserWarning):
        train(np.ones((50, 3)), k=1, method="uspec", **SMALL["uspec"])


def test_fewer_distinct_rows_than_representatives_are_warned_of():
    x = np.repeat(rng.normal(size=(30, 2)), 10, axis=0)
    with pytest.warns(UserWarning, match="--representatives 60 is more than the 30 distinct rows"):
        assert len(train(x, k=2, method="uspec", **SMALL["uspec"]).embedding.representatives[0]) == 30


def test_negative_degrees_are_counted_and_said():
    x = rng.normal(size=(400, 3))
    with pytest.warns(UserWarning, match="of 400 rows have a degree of zero or below"):
        model = train(x, k=2, method="spectral-nystrom", landmarks=60, kernel="linear")
    assert 100 < model.facts["negative_degrees"] < 300
    assert np.isfinite(predict(model, x)[1]).all()


def test_rows_of_negative_degree_are_warned_of_once(tmp_path):
    x = np.random.default_rng(0).normal(np.repeat([3, -3], [300, 40])[:, None], 1, (340, 4))
    told = "40 of 340 rows have a degree of zero or below"
    given = ("-k", 2, "--method", "spectral-nystrom", "--landmarks", 40, "--kernel", "linear")
    cluster(write_csv(tmp_path / "x.csv", x), tmp_path / "o", *given).done(told)
    with pytest.warns(UserWarning) as caught:
        SpectralNystrom(2, kernel="linear", n_landmarks=40, random_state=0).fit(x)
    assert [str(w.message)[: len(told)] for w in caught] == [told]


def test_weights_stand_for_repeated_rows(blobs):
    x, weights = blobs[0][:300], rng.integers(1, 4, 300)
    rows = np.repeat(x, weights, axis=0)
    for method in ("rank-restricted", "uspec"):
        model = model_of(x, weights.astype(float), k=4, method=method, **SMALL[method])
        embed, view = EmbedMap.of(model), model.view
        if method == "rank-restricted":
            from apnc.embeddings.views import PlainView

            view = PlainView(model.embedding.dim)
        once = fold_rows(MomentsFold(view, embed), [block(x, weights=weights.astype(float))])
        often = fold_rows(MomentsFold(view, embed), [block(rows)])
        np.testing.assert_allclose(once.second, often.second, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_csr_rows_give_the_clusters_of_dense_ones(method, blobs):
    x = np.where(np.abs(blobs[0]) < 1.5, 0, blobs[0])
    dense, sparse = (train(some, k=4, method=method, **SMALL[method]) for some in (x, csr_matrix(x)))
    # representatives of CSR rows are those of another implementation of k-means
    assert agreement(predict(dense, x)[0], predict(sparse, csr_matrix(x))[0]) > 0.95


# ---- engines, files, passes


# by local tasks those two that have all kinds of passes
@pytest.mark.parametrize(
    ("runner", "method"),
    [(("inline", splits), method) for splits in (1, 3) for method in METHODS]
    + [(("local", 2), "rank-restricted"), (("local", 2), "usenc")],
    ids=str,
)
def test_runners_agree_with_this_process(runner, method, blobs, tmp_path):
    path, few = write_csv(tmp_path / "x.csv", blobs[0].round(4)), ("--passes", 2, "--tol", 0)
    for name, there in (("here", ()), ("there", ("--runner", runner[0], "--splits", runner[1]))):
        done = cluster(path, tmp_path / name, "-k", 4, "--method", method, *options(method), *few, *there)
        assert done.status == 0, done.err
    assert labels(tmp_path / "here") == labels(tmp_path / "there")
    one, other = (Model.load(tmp_path / name / "model.npz") for name in ("here", "there"))
    # sums of other groupings of the rows, squared and rooted
    assert oracles.subspace_gap(one.embed(blobs[0]), other.embed(blobs[0])) < 1e-4


@pytest.mark.parametrize("method", METHODS)
def test_stages_together_are_the_whole_run(method, blobs, tmp_path):
    path, folder = write_csv(tmp_path / "x.csv", blobs[0].round(4)), tmp_path / "stages"
    cluster(path, tmp_path / "whole", "-k", 4, "--method", method, *options(method)).done()
    apnc("sample", path, "-o", folder).done()
    apnc("coefficients", folder, "-k", 4, "--method", method, *options(method)).done()
    order = {
        "rank-restricted": "moments embed kmeans",
        "spectral-nystrom": "embed moments kmeans",
        "uspec": "embed moments kmeans",
        "usenc": "embed moments kmeans moments kmeans",
    }[method].split()
    first = apnc(order[1], folder)
    first.refused(f"its next stage is apnc {order[0]}") if order[1] != "moments" else first.refused("apnc embed")
    for stage in [*order, "assign", "collect"]:
        apnc(stage, folder).done()
    assert labels(tmp_path / "whole") == labels(folder)


@pytest.mark.parametrize("method", METHODS)
def test_a_model_file_predicts_the_training_labels_in_any_format(method, blobs, tmp_path):
    x = blobs[0].round(4)
    cluster(write_csv(tmp_path / "x.csv", x), tmp_path / "o", "-k", 4, "--method", method, *options(method)).done()
    np.save(tmp_path / "x.npy", x)
    write_svmlight(tmp_path / "x.svm", x)
    for name in ("x.csv", "x.npy", "x.svm"):
        apnc("predict", tmp_path / "o" / "model.npz", tmp_path / name, "-o", tmp_path / f"{name}.labels").done()
        assert labels(tmp_path / f"{name}.labels") == labels(tmp_path / "o")


@pytest.mark.parametrize("method", METHODS)
def test_a_run_that_stopped_after_any_pass_goes_on_to_the_same_model(method, blobs, tmp_path):
    np.save(tmp_path / "x.npy", blobs[0])
    data = describe([str(tmp_path / "x.npy")])
    settings = Settings(k=4, method=method, **SMALL[method]).check()

    def run_from(folder, passes=None):
        """Go on for so many passes, or to the end, keeping what each has reached."""
        run = Run(settings, data.estimated_rows(), data.spec.width)
        folder.begin(run, data)
        with InProcessEngine(data) as engine:
            while passes != 0 and (step := run.next_pass()) is not None:
                run.absorb(step.stage, engine.run(step, Listener()))
                folder.checkpoint(run, step.stage)
                passes = passes and passes - 1
        return run.model

    whole = run_from(OutputFolder(tmp_path / "whole"))
    for stop in range(1, 9):
        run_from(OutputFolder(tmp_path / str(stop)), stop)
        found = run_from(OutputFolder(tmp_path / str(stop), resume=True))
        assert np.array_equal(found.centroids, whole.centroids), stop
        assert found.facts == whole.facts and found.passes == whole.passes


def stages_of(x, **settings):
    """Return how many passes of each stage a run takes."""
    seen = []

    class Told(Listener):
        def stage(self, name, detail=""):
            seen.append(name)

    data = ArrayInput(x)
    run = Run(Settings(**settings).check(), data.estimated_rows(), data.spec.width)
    with InProcessEngine(data) as engine:
        train_run(run, engine, Told())
    return Counter(seen)


def test_the_passes_of_usenc_do_not_depend_on_the_base_clusterings(blobs):
    given = {"k": 4, "method": "usenc", "representatives": 60, "k_min": 4, "k_max": 9, "tol": 0.0, "passes": 2}
    few, many = (stages_of(blobs[0], base_clusterings=m, **given) for m in (5, 20))
    assert few == many == {"coefficients": 1, "embed": 1, "moments": 2, "kmeans": usenc.BASE_PASSES + 2}


def test_groups_change_the_number_of_passes_and_nothing_else(blobs, monkeypatch):
    given = {"k": 4, "method": "usenc", "passes": 1} | SMALL["usenc"]
    whole = train(blobs[0], **given)
    monkeypatch.setattr(usenc, "GROUP_BYTES", 2 * 8 * 60 * 60)
    grouped = train(blobs[0], **given)
    assert (whole.facts["groups"], grouped.facts["groups"]) == (1, 2)
    assert np.array_equal(whole.centroids, grouped.centroids)
    assert stages_of(blobs[0], **given)["moments"] == 3


def test_base_clusterings_differ_in_representatives_and_numbers_of_clusters(blobs):
    model = model_of(blobs[0], k=4, method="usenc", **SMALL["usenc"] | {"base_clusterings": 8})
    counts = model.facts["base_clusters"]
    assert len(set(counts)) > 2 and all(4 <= k <= 9 for k in counts)
    sets = model.embedding.representatives
    assert not any(np.array_equal(sets[0], other) for other in sets[1:])


@pytest.mark.parametrize("method", METHODS)
def test_the_same_seed_gives_the_same_model_on_any_number_of_threads(method, blobs):
    one, other = (train(blobs[0], threads=t, k=4, method=method, seed=5, **SMALL[method]) for t in (1, 3))
    assert np.array_equal(one.centroids, other.centroids)
    assert not np.array_equal(train(blobs[0], k=4, method=method, seed=6, **SMALL[method]).centroids, one.centroids)


def test_rows_given_as_starts_are_embedded_like_any_row(blobs, tmp_path):
    x = blobs[0].round(4)
    starts = np.stack([x[blobs[1] == c][0] for c in range(4)])
    write_csv(tmp_path / "starts.csv", starts)
    for method in METHODS:
        out = tmp_path / method
        more = ("--init", tmp_path / "starts.csv", "--overwrite")
        cluster(write_csv(tmp_path / "x.csv", x), out, "-k", 4, "--method", method, *options(method), *more).done()
        assert agreement(labels(out), blobs[1]) > 0.9


def test_run_json_tells_what_the_method_found(blobs, tmp_path):
    path = write_csv(tmp_path / "x.csv", blobs[0].round(4))
    for method in METHODS:
        said = cluster(path, tmp_path / method, "-k", 4, "--method", method, *options(method)).done()
        assert method in said.out
        json.dumps(facts(tmp_path / method))
    assert facts(tmp_path / "uspec")["model"]["graph"]["nodes"] == 60
    assert facts(tmp_path / "usenc")["model"]["groups"] == 1


def test_an_embedding_of_neighbours_survives_its_description(blobs):
    embedding = model_of(blobs[0], k=4, method="usenc", **SMALL["usenc"]).embedding
    again = embedding_from_dict(embedding.to_dict())
    assert np.array_equal(embedding.transform(blobs[0]), again.transform(blobs[0]))


# ---- what is refused


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"method": "nystrom", "whiten": True}, "--whiten: --method nystrom has no rotation"),
        ({"method": "stable", "unit_rows": True}, "--unit-rows: --method stable has no use for it"),
        ({"method": "rank-restricted", "landmarks": 9}, "--landmarks 9 must be at least 2k [+] 2 = 10"),
        ({"method": "rank-restricted", "blocks": 2}, "--blocks 2"),
        ({"method": "rank-restricted", "landmarks": 20, "dim": 10}, "--dim 10 must be below half of --landmarks 20"),
        ({"method": "spectral-nystrom", "landmarks": 4}, "--landmarks 4 must be above -k 4"),
        ({"method": "uspec", "kernel": "neural"}, "--kernel neural"),
        ({"method": "uspec", "whiten": True}, "--whiten"),
        ({"method": "uspec", "representatives": 3}, "--representatives 3 must be at least --neighbours 5"),
        ({"method": "uspec", "representatives": 70000}, "at most 65536"),
        ({"method": "uspec", "neighbours": 0}, "--neighbours 0 must be a whole number of at least 1"),
        ({"method": "uspec", "neighbours": 1}, "--neighbours 1 must be at least 2"),
        ({"method": "uspec", "k": 11, "representatives": 10}, "-k 11 is more than --representatives 10"),
        ({"method": "uspec", "neighbour_search": "aproximate"}, "approximate"),
        ({"method": "uspec", "kernel_params": {"sigma": -1}}, "sigma"),
        ({"method": "usenc", "k_min": 1}, "--k-min 1 must be at least 2"),
        ({"method": "usenc", "k_min": 9, "k_max": 8}, "--k-max 8 must be at least --k-min 9"),
        ({"method": "usenc", "k": 5, "base_clusterings": 2, "k_min": 2}, "-k 5 is more than all base clusters"),
    ],
)
def test_what_cannot_be_is_refused_by_name(given, message):
    with pytest.raises(InputError, match=message):
        Settings(**{"k": 4} | given).check()


# ---- what strangers found


@pytest.mark.parametrize("method", ["uspec", "usenc"])
@pytest.mark.parametrize("origin", [1e8, 1e10])
def test_representatives_far_from_the_origin_keep_their_digits(method, origin, blobs, tmp_path):
    write_csv(tmp_path / "x.csv", blobs[0].round(2) + origin)
    assert cluster(tmp_path / "x.csv", tmp_path / "o", "-k", 4, "--method", method, *options(method)).status == 0
    assert agreement(labels(tmp_path / "o"), blobs[1]) > 0.95


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("factor", [1e30, 1e-30])
def test_values_of_any_size_are_clustered(method, factor, blobs, tmp_path):
    write_csv(tmp_path / "x.csv", blobs[0] * factor)
    assert cluster(tmp_path / "x.csv", tmp_path / "o", "-k", 4, "--method", method, *options(method)).status == 0
    assert agreement(labels(tmp_path / "o"), blobs[1]) > 0.9


def test_whitened_labels_do_not_depend_on_the_runner(blobs, tmp_path):
    path = write_csv(tmp_path / "x.csv", blobs[0].round(4))
    given = ("-k", 4, "--method", "rank-restricted", "--whiten")
    for name, there in (("here", ()), ("there", ("--runner", "inline", "--splits", 3))):
        assert cluster(path, tmp_path / name, *given, *there).status == 0
    assert labels(tmp_path / "here") == labels(tmp_path / "there")


def test_distinct_rows_are_looked_for_in_the_whole_sample():
    x = np.zeros((3000, 2))
    x[-10:] = rng.normal(size=(10, 2)) + 5
    model = train(x, k=2, method="uspec", representatives=10)
    assert len(model.embedding.representatives[0]) == 10


def test_a_sample_smaller_than_the_representatives_is_refused(blobs, tmp_path):
    path = write_csv(tmp_path / "x.csv", blobs[0].round(4))
    apnc("sample", path, "-o", tmp_path / "o", "--sample", 50).done()
    refused = apnc("coefficients", tmp_path / "o", "-k", 4, "--method", "uspec", "--representatives", 60)
    refused.refused("--representatives 60 is more than the 50 rows of the sample; take it again with --sample 60")


def test_jobs_out_of_order_name_the_next_one(blobs, tmp_path):
    path = write_csv(tmp_path / "x.csv", blobs[0].round(4))

    def job(name, *arguments):
        return python("-m", f"mr_jobs.{name}", "-r", "inline", *arguments)

    for method, out in (("rank-restricted", "r.npz"), ("uspec", "u.npz")):
        job("coefficients", "-k", 4, "--method", method, *options(method), "--output", tmp_path / out, path)
    early = job("embed", "--model", tmp_path / "r.npz", "--output-dir", tmp_path / "e", path)
    assert (early.returncode, "its next pass is mr_jobs.moments" in early.stderr) == (2, True)
    assert job("embed", "--model", tmp_path / "u.npz", "--output-dir", tmp_path / "e", path).returncode == 0
    early = job("assign", "--model", tmp_path / "u.npz", "--output-dir", tmp_path / "l", tmp_path / "e")
    assert (early.returncode, "no centroids yet" in early.stderr, "Traceback" in early.stderr) == (2, True, False)


@pytest.mark.parametrize(
    ("sigma", "message"),
    [("auto*1e300", "beyond the range of numbers"), ("1e-200", "beyond the range"), ("1e-9", "the graph has no edges")],
)
def test_a_width_that_cannot_be_is_refused(sigma, message, blobs, tmp_path):
    given = ("-k", 4, "--method", "uspec", *options("uspec"), "--kernel-params", f"sigma={sigma}")
    cluster(write_csv(tmp_path / "x.csv", blobs[0]), tmp_path / "o", *given).refused(message)
    assert not (tmp_path / "o").exists() and not (tmp_path / "o.partial").exists()
