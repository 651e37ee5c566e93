"""From the sample to a model: scaling, kernel width, landmarks, R and the start centroids.

Runs in the driver after the sample pass, or in that pass's single reducer ([EC] Algorithms 3 and 4).
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from apnc.embeddings import make_method
from apnc.errors import InputError, warn
from apnc.kmeans import best_run
from apnc.model import Model
from apnc.sampling import Sample, SampleFold
from apnc.scaling import BY_COLUMN, Scaler
from apnc.seeding import random_centroids, sample_objectives, seed_centroids, settled_objective
from apnc.settings import Settings
from apnc.threads import cores, one_blas_thread

# an objective below this share of Σ‖y‖² is beyond float32: labels and objectives are then computed in float64
TIGHT = 1e-3
NOT_FINITE = "the embedding of the sample is not finite: the values are too large, scale the data"


class BadRows(InputError):
    """The sample pass met rows that cannot be used, and the settings say to stop.

    Attributes
    ----------
    problems : list of Problem
    rules : Counter
    """

    def __init__(self, problems, rules):
        self.problems, self.rules = problems, Counter(rules)
        super().__init__(f"{sum(self.rules.values())} rows cannot be used")


class CoefficientsFold(SampleFold):
    """The sample pass with the coefficients made where its parts meet."""

    stage = "coefficients"
    finish_in_reducer = True

    def __init__(self, settings: Settings, threshold, width=None, threads=None):
        rows = settings.sample_rows(width)
        super().__init__(settings.seed, rows, threshold, width, settings.scale in BY_COLUMN)
        self.settings, self.threads = settings, threads

    def finish(self, state):
        """Return (sample, model); the model is None where the sample is too small and must be taken again."""
        sample = super().finish(state)
        return sample, build_model(sample, self.settings, self.threads) if sample.complete else None


def check_sample(sample: Sample, settings: Settings) -> None:
    """Raise what the sample pass found wrong with the input.

    Raises
    ------
    BadRows
        If there are bad rows and the settings say 'fail', or damage that skipping cannot repair.
    InputError
        If there are no rows, or fewer than clusters.
    """
    fatal = [p for p in sample.problems if p.fatal]
    if sample.rules and (fatal or settings.on_bad_row == "fail"):
        raise BadRows(fatal or sample.problems, sample.rules)
    if not sample.count:
        raise InputError("the input holds no rows")
    if settings.k > sample.count:
        raise InputError(f"-k {settings.k} is more than the {sample.count} rows of the input")


def build_model(sample: Sample, settings: Settings, threads: int | None = None) -> Model:
    """Return the model ready for its first full pass.

    Parameters
    ----------
    sample : Sample
    settings : Settings
    threads : int, optional
        For embedding and seeding; the result does not depend on it. All cores when None.

    Raises
    ------
    InputError
        If the input or the settings cannot work.
    """
    check_sample(sample, settings)
    taken, method = sample.x.shape[0], make_method(settings.method)
    option, least = method.least(settings)
    if sample.count > taken < least:
        raise InputError(
            f"{option} {least} is more than the {taken} rows of the sample; take it again with --sample {least}"
        )
    threads = threads or cores()
    with one_blas_thread():
        sparse = hasattr(sample.x, "indptr")
        scaler = Scaler.from_statistics(settings.scale, sample.statistics, sparse)
        used = slice(None) if sample.weights is None else np.flatnonzero(sample.weights > 0)
        rows = scaler(sample.x[used])
        weights = None if sample.weights is None else sample.weights[used]
        if not rows.shape[0]:
            raise InputError("all sample weights are zero")
        embedding, facts = method.embedding(rows, settings, threads)
        model = Model(settings, sample.width, sparse, scaler, embedding, facts, sample.count, np.empty((0, 0, 0)))
        first = slice(settings.start_rows)
        rows, model.weights = rows[first], None if weights is None else weights[first]
        if not method.starts_early:
            exact = embedding.with_dtype(np.float64) if method.exact_sample else embedding
            model.stored = embed_rows(exact, rows, threads)
            if embedding.overflown(model.stored).any():
                raise InputError(NOT_FINITE)
            method.prepare(model)
            facts["dtype"] = embedding.dtype.name
            return model
        weights = model.weights
        _start(model, rows, weights, threads)
        if embedding.metric == "l2" and model.embedding.dtype == np.float32 and _is_tight(model, weights, threads):
            model.embedding = embedding.with_dtype(np.float64)
            _start(model, rows, weights, threads)
    facts["dtype"] = model.embedding.dtype.name
    model.weights = None
    return model


def begin(model: Model, exact=None, threads: int | None = None) -> None:
    """Choose start centroids from the stored sample; once more in float64 where the clusters are too tight for float32.

    For models whose embedding was completed by passes of the method's own.

    Parameters
    ----------
    model : Model
        With ``stored`` and the ``view`` of it.
    exact : ndarray of float64, optional
        The rows of ``stored``, where those are rounded embeddings: the embedding is then computed in float64 too.
    threads : int, optional
    """
    threads = threads or cores()
    with one_blas_thread():
        while True:
            model.sample = model.view.rows(model.stored)
            _choose_starts(model, model.weights, threads)
            if model.view.dtype != np.float32 or not _is_tight(model, model.weights, threads):
                return
            model.view = model.view.with_dtype(np.float64)
            if exact is not None:
                model.embedding, model.stored = model.embedding.with_dtype(np.float64), exact


def _start(model, rows, weights, threads):
    """Embed the sample and put start centroids into the model."""
    y = embed_rows(model.embedding, rows, threads)
    if y.dtype == np.float32 and not np.isfinite(np.einsum("ij,ij->", y, y)):  # squares beyond float32
        model.embedding = model.embedding.with_dtype(np.float64)
        y = embed_rows(model.embedding, rows, threads)
    model.sample = y
    if not np.isfinite(np.einsum("ij,ij->", y, y, dtype=np.float64)):  # objectives are sums of squares
        raise InputError(NOT_FINITE)
    _choose_starts(model, weights, threads)


def _choose_starts(model, weights, threads):
    """Put start centroids into a model with its embedded sample."""
    settings, y = model.settings, model.sample
    if settings.init == "rows":
        given = np.asarray(settings.init_rows, np.float64)
        if model.sparse and given.ndim == 2 and given.shape[1] < model.width:  # svmlight leaves zeros out
            given = np.pad(given, ((0, 0), (0, model.width - given.shape[1])))
        if given.ndim != 2 or given.shape[1] != model.width:
            raise InputError(f"--init rows have {given.shape[-1]} values, the input has {model.width} features")
        if model.sparse:
            from scipy.sparse import csr_matrix

            given = csr_matrix(given)
        starts = model.embed(given)[None]
        objectives = sample_objectives(y, starts, model.metric, weights)
    elif settings.init == "random":
        starts = random_centroids(y, settings.k, settings.runs, settings.seed, weights)
        objectives = sample_objectives(y, starts, model.metric, weights)
    else:
        distinct = _distinct_rows(y, settings.k)
        if distinct < settings.k and not model.centroids.size:  # once, not again in float64
            warn(f"-k {settings.k} is more than the {distinct} distinct rows of the sample")
        starts, objectives = seed_centroids(
            y,
            settings.k,
            settings.restarts,
            model.metric,
            settings.seed,
            weights,
            threads,
            wanted=settings.runs,
            principal=make_method(settings.method).principal(settings),
        )
    if settings.runs == 1 and len(starts) > 1:
        starts = starts[best_run(objectives)][None]
    model.centroids = starts
    model.facts["sample_objective"] = float(objectives.min())
    model.facts["sample_rows"] = len(y)


def _is_tight(model, weights, threads):
    objective = model.facts["sample_objective"]
    if model.settings.init != "sample":  # what counts is where the passes lead, not where they start
        objective = settled_objective(model.sample, model.centroids, model.metric, weights, threads)
    squares = np.einsum("ij,ij->i", model.sample, model.sample, dtype=np.float64)
    total = squares.sum() if weights is None else squares @ weights
    return objective < TIGHT * total


def _distinct_rows(y, enough):
    """Return the number of distinct rows, or ``enough`` as soon as that many are found."""
    found: set = set()
    for row in y:
        found.add(row.tobytes())
        if len(found) >= enough:
            break
    return len(found)


def embed_rows(embedding, rows, threads):
    """Return the embedding of rows in memory, in fixed blocks, one thread each."""
    from concurrent.futures import ThreadPoolExecutor

    from apnc.blocks import rows_per_block

    step = rows_per_block(embedding.widest)
    starts = range(0, rows.shape[0], step)
    with ThreadPoolExecutor(threads) as pool:
        parts = pool.map(lambda start: embedding.transform(rows[start : start + step]), starts)
        return np.concatenate(list(parts))
