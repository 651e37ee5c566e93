"""What all estimators share: parameters to settings, matrices through an engine, a model to attributes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from apnc.embed import EmbedMap
from apnc.engines.in_process import InProcessEngine
from apnc.errors import InputError, spelling
from apnc.kernels import is_sparse
from apnc.model import Model
from apnc.passes import Map
from apnc.pipeline import Listener
from apnc.readers.array import ArrayInput
from apnc.settings import Settings

# parameters of the estimators, and the setting that each is; what is allowed stands in Settings.check
PARAMETERS = {
    "n_clusters": "k",
    "method": "method",
    "kernel": "kernel",
    "kernel_params": "kernel_params",
    "n_landmarks": "landmarks",
    "n_components": "dim",
    "n_blocks": "blocks",
    "t_share": "t_share",
    "scale": "scale",
    "max_iter": "passes",
    "tol": "tol",
    "n_representatives": "representatives",
    "n_neighbors": "neighbours",
    "neighbor_search": "neighbour_search",
    "n_base": "base_clusterings",
    "k_min": "k_min",
    "k_max": "k_max",
    "whiten": "whiten",
    "unit_rows": "unit_rows",
    "n_init": "restarts",
    "full_restarts": "full_restarts",
    "init": "init",
    "sample_size": "sample",
    "random_state": "seed",
}
LINEAR = ("linear", "kmeans")  # the method without a kernel, and its alias
OF_TWO_ROWS = ("stable", "uspec", "usenc")  # a draw of landmarks leaves some; a graph has edges
FLOATS = [np.float64, np.float32]


class Estimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Base of the estimators, which say what their parameters are and which settings these become.

    A subclass has an ``__init__`` that names its parameters and calls `_store`, with ``random_state`` and
    ``memory_budget`` among them. A parameter that it does not offer but fixes is an attribute of the class, such as
    ``method = "linear"``; one that no other estimator has goes into its ``_parameters``.
    """

    _parameters = PARAMETERS

    def _store(self, given):
        """Keep the parameters as they are, which is all that a constructor may do; ``given`` is its locals()."""
        for name, value in given.items():
            if name != "self":
                setattr(self, name, value)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = self._non_negative
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _non_negative(self):
        return getattr(self, "kernel", None) == "chi2" and self.method not in LINEAR

    # ---- parameters

    def _settings(self, X, **others) -> Settings:
        """Return the checked settings for training on ``X``, with ``others`` for what is no parameter here."""
        given = {setting: name for name, setting in self._parameters.items() if hasattr(self, name)}
        values = {setting: _plain(getattr(self, name)) for setting, name in given.items()}
        params = values.get("kernel_params")
        if not (params is None or isinstance(params, Mapping)):
            raise InputError(f"kernel_params {params!r} must be a dict of parameters of the kernel")
        values["kernel_params"] = {name: _plain(value) for name, value in (params or {}).items()}
        if not (isinstance(self.random_state, (int, np.integer)) and self.random_state >= 0):
            values["seed"] = int(check_random_state(self.random_state).randint(2**31 - 1))
        budget = self.memory_budget
        if isinstance(budget, bool) or not isinstance(budget, (int, np.integer)) or budget < 0:
            raise InputError(f"memory_budget {budget!r} must be a whole number of MiB, at least 0")
        return Settings(**values | {"dtype": X.dtype.name} | others).check().warn_of_unused()

    def _spelling(self):
        """Return a context in which messages name parameters, where they would name options."""
        names = {f"--{setting.replace('_', '-')}": name for name, setting in self._parameters.items()}
        return spelling(names | {"-k": "n_clusters"})

    # ---- rows

    def _rows(self, X, **options):
        return validate_data(
            self, X, accept_sparse="csr", dtype=FLOATS, ensure_non_negative=self._non_negative, **options
        )

    def _training_rows(self, X):
        return self._rows(X, ensure_min_samples=2 if self.method in OF_TWO_ROWS else 1)

    def _checked(self, X):
        check_is_fitted(self)
        return self._rows(X, reset=False)

    def _engine(self, X, sample_weight=None):
        return InProcessEngine(ArrayInput(X, sample_weight), int(self.memory_budget) << 20)

    def _map(self, step: Map, X, width, dtype):
        """Return the rows that ``step`` makes of ``X``, shape (n, width)."""
        with self._spelling(), self._engine(X) as engine:
            return collected(engine.labels(step, Listener()), X.shape[0], width, dtype)

    def _embed(self, X):
        step = ViewedMap(EmbedMap.of(self.model_), self.model_.view)
        return self._map(step, X, self.model_.dim, self._dtype)

    # ---- the model

    def _adopt(self, model: Model):
        """Show a finished model as attributes."""
        model.sample = None  # needed for training only, and as large as 10,000 embedded rows
        self.model_ = model
        embedding = model.embedding
        self.metric_ = embedding.metric
        if hasattr(embedding, "kernel"):
            self.kernel_, self.landmarks_ = embedding.kernel, _stacked(embedding.landmarks)
        elif self.method in LINEAR:
            self.kernel_ = self.landmarks_ = None

    @property
    def _dtype(self):
        return np.dtype(self.model_.settings.dtype)


class ViewedMap(Map):
    """y of rows, also where a view makes it of what the embedding pass stores."""

    stage = "transform"

    def __init__(self, embed: EmbedMap, view=None):
        self.embed, self.view = embed, view

    def rows_per_block(self):
        return self.embed.rows_per_block()

    def apply(self, block):
        return viewed(self.embed.apply(block), self.view)


def viewed(block, view):
    """Return a block of y from one of the stored embedding."""
    return block if view is None or not block.n else block.replace_x(view.rows(block.x))


def _plain(value):
    """Return NumPy scalars as Python's, which JSON can write."""
    return value.item() if isinstance(value, np.generic) else value


def _stacked(matrices):
    if len(matrices) == 1:
        return matrices[0]
    if is_sparse(matrices[0]):
        from scipy.sparse import vstack

        return vstack(matrices, format="csr")
    return np.concatenate(matrices)


def collected(blocks, n, width, dtype):
    """Return the rows of blocks as one matrix; none may be missing."""
    out = np.empty((n, width), dtype)
    for block in blocks:
        if block.rules:
            raise InputError(f"X: row {block.bad[0]}: {next(iter(block.rules))}")
        if block.n:
            out[block.offsets[0] : block.offsets[-1] + 1] = block.x
    return out
