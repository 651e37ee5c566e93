"""Short ways to put matrices through the rooms of apnc in tests."""

from __future__ import annotations

from collections import Counter

import numpy as np

from apnc.blocks import Block
from apnc.coefficients import build_model
from apnc.embed import PredictMap
from apnc.engines.in_process import MEMORY_BUDGET, InProcessEngine
from apnc.pipeline import Run
from apnc.pipeline import train as train_run
from apnc.readers.array import SOURCE, ArrayInput
from apnc.sampling import SampleFold
from apnc.settings import Settings


def block(x, source=SOURCE, first=0, **more):
    """Return the rows of a matrix as one block with offsets first, first + 1, …"""
    return Block(source, np.arange(first, first + x.shape[0]), x, **more)


def fold_rows(fold, blocks):
    """Return the result of a fold over blocks, one after the other."""
    state = {}
    for some in blocks:
        fold.accumulate(state, some)
    return fold.finish(state)


def sample_of(x, weights=None, size=10_000, seed=0):
    """Return the Sample of a matrix."""
    return fold_rows(SampleFold(seed, size), [block(x, weights=weights)])


def model_of(x, weights=None, threads=1, **settings):
    """Return the model before its first full pass."""
    settings = Settings(**settings).check()
    return build_model(sample_of(x, weights, settings.sample_rows(x.shape[1]), settings.seed), settings, threads)


def train(x, weights=None, threads=1, memory_budget=MEMORY_BUDGET, **settings):
    """Return the finished model of a whole in-process run."""
    data = ArrayInput(x, weights)
    run = Run(Settings(**settings).check(), data.estimated_rows(), data.spec.width)
    with InProcessEngine(data, memory_budget, threads=threads) as engine:
        return train_run(run, engine)


def predict(model, x):
    """Return labels and distances of rows by the model."""
    out = PredictMap.of(model).apply(block(x)).x
    return out[:, 0].astype(int), out[:, 1]


def flat_labels(blocks):
    """Return what blocks of labels say, of all rows together, in values that can be compared."""
    blocks = list(blocks)
    return {
        "rows": [(b.source, o) for b in blocks for o in b.offsets.tolist()],
        "ids": [name for b in blocks for name in b.ids or ()],
        "clusters": [c for b in blocks for c in b.x[:, 0].tolist()],
        "distances": np.concatenate([b.x[:, 1] for b in blocks]),
        "bad": [(b.source, o) for b in blocks for o in b.bad.tolist()],
        "rules": sum((b.rules for b in blocks), Counter()),
        "problems": [p for b in blocks for p in b.problems],
    }
