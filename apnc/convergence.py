"""What the driver does between two k-means passes: next centroids, whether to go on, and the final numbering."""

from __future__ import annotations

import numpy as np

from apnc.kmeans import PassResult, best_run, numbered, updated
from apnc.model import Model


def advance(model: Model, result: PassResult) -> None:
    """Take the result of one full pass into the model, in place.

    ℓ2 passes never raise the objective, so the centroids made by the last pass are the best. Under ℓ1 a mean update
    may raise it: there the best centroids that were measured win, unless the cap cut off a pass that still gained.

    Parameters
    ----------
    model : Model
        Holding the centroids the pass was given.
    result : PassResult
    """
    settings, given, objectives = model.settings, model.centroids, result.objectives
    moved, refilled = updated(result, given, model.sample, model.metric)
    history = np.array([p["objectives"] for p in model.passes]).reshape(-1, len(given))
    gain = _relative_gain(history, objectives)
    lowest = history.min(axis=0, initial=np.inf)
    gained = objectives < lowest
    if model.metric == "l1":
        model.best = given.copy() if model.best is None else np.where(gained[:, None, None], given, model.best)
    model.rows = result.rows
    model.passes.append(
        {
            "objective": float(objectives.min()),
            "objectives": objectives.tolist(),
            "refilled": int(refilled.sum()),
            "zero_rows": result.zero_rows,
        }
    )
    model.centroids = moved
    tolerance = settings.gain_to_go_on
    if (tolerance > 0 and ((gain < tolerance) & (refilled == 0)).all()) or np.array_equal(moved, given):
        model.status = "converged"
    elif len(model.passes) >= settings.passes:
        model.status = "cap"
    if not model.done:
        return
    if model.metric == "l1":
        still_gaining = gained & (model.status == "cap")
        model.centroids = np.where(still_gaining[:, None, None], moved, model.best)
        model.best = None
    run = best_run(np.minimum(lowest, objectives) if model.metric == "l1" else objectives)
    model.centroids = numbered(model.centroids[run], model.sample, model.metric)[None]


def _relative_gain(history, objectives):
    if not len(history):
        return np.full(len(objectives), np.inf)
    before = history[-1]
    return np.divide(before - objectives, before, out=np.zeros(len(before)), where=before > 0)
