"""What the estimators that cluster share: everything but their parameters."""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.base import ClusterMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from apnc.blocks import Block, rows_per_block
from apnc.distances import l1_distances
from apnc.embed import EmbedMap, PredictMap
from apnc.embeddings import make_method
from apnc.errors import InputError, warn
from apnc.estimators.base import LINEAR, Estimator, collected, viewed
from apnc.kernels import is_sparse, nearest_name
from apnc.kmeans import AssignMap
from apnc.model import Model
from apnc.passes import Map
from apnc.pipeline import Listener, Run, train


class Clusterer(ClusterMixin, Estimator):
    """Base of the estimators that cluster: an embedding, and k-means on it.

    A subclass says no more than `Estimator` asks for; ``n_clusters`` and ``init`` are among its parameters.

    Examples
    --------
    >>> from sklearn.datasets import make_blobs
    >>> class KMeans(Clusterer):
    ...     method = "linear"
    ...
    ...     def __init__(self, n_clusters=8, *, init="sample", random_state=None, memory_budget=256):
    ...         self._store(locals())
    >>> X, y = make_blobs(300, random_state=0)
    >>> KMeans(3, random_state=0).fit(X).transform(X).shape
    (300, 3)
    """

    def fit(self, X, y=None, sample_weight=None):
        """Learn the embedding and the centroids.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n_samples, n_features)
            Sparse rows are read as CSR and never made dense as a whole.
        y : ignored
        sample_weight : array-like, shape (n_samples,), default=None
            Weights of at least 0; 1 for each row by default.

        Returns
        -------
        self : object

        Raises
        ------
        ValueError
            If a parameter or the input is not allowed; the message names the parameter, the value and the rule.
        """
        X = self._training_rows(X)
        weights = _checked_weights(sample_weight, X.shape[0])
        rows = X
        if weights is not None and not weights.all():
            used = np.flatnonzero(weights)
            rows, weights = X[used], weights[used]
        with self._spelling():
            settings = self._settings(X, **self._init_settings(X))
            if rows.shape[0] < settings.k:
                raise InputError(f"n_samples={rows.shape[0]} should be >= n_clusters={settings.k}")
            with self._engine(rows, weights) as engine:
                model = train(Run(settings, *rows.shape), engine)
                steps = engine.labels(AssignMap.of(model), Listener())
                assigned = collected(steps, rows.shape[0], 2, np.float64)
            _warn_of_outcome(model, settings, assigned)
        if hasattr(self, "feature_names_in_"):
            model.facts["feature_names"] = self.feature_names_in_.tolist()
        self._adopt(model)
        self.labels_ = assigned[:, 0].astype(np.int32)
        self.inertia_ = _objective(assigned[:, 1], weights)
        if rows is not X:
            labels = np.empty(X.shape[0], np.int32)
            labels[used] = self.labels_
            absent = np.setdiff1d(np.arange(X.shape[0]), used)
            labels[absent] = self._assigned(X[absent])[:, 0]
            self.labels_ = labels
        return self

    def _init_settings(self, X):
        """Return the settings for ``init``."""
        if isinstance(self.init, str):
            if self.init not in ("sample", "random"):
                raise nearest_name("init", self.init, ("sample", "random", "an array of rows"))
            return {}
        init = check_array(self.init, accept_sparse="csr", dtype=np.float64, input_name="init")
        if init.shape != (self.n_clusters, X.shape[1]):
            raise InputError(
                f"init has shape {init.shape}, but (n_clusters, n_features) is {(self.n_clusters, X.shape[1])}"
            )
        return {"init": "rows", "init_rows": (init.toarray() if is_sparse(init) else init).tolist()}

    def _adopt(self, model):
        super()._adopt(model)
        self.cluster_centers_ = model.centroids[0]
        self.n_iter_ = len(model.passes)

    @classmethod
    def _from_model(cls, model: Model):
        """Return the fitted estimator whose model this is, with the parameters of its training."""
        settings = model.settings
        found = {name: getattr(settings, setting) for name, setting in cls._parameters.items()}
        found["tol"] = settings.gain_to_go_on
        if settings.init == "rows":
            found["init"] = np.array(settings.init_rows)
        estimator = cls(**{name: found[name] for name in cls._get_param_names() if name in found})
        estimator.n_features_in_ = model.width
        if "feature_names" in model.facts:
            estimator.feature_names_in_ = np.array(model.facts["feature_names"], object)
        estimator._adopt(model)
        return estimator

    @property
    def _n_features_out(self):
        return len(self.cluster_centers_)

    def _assigned(self, X):
        """Return cluster and distance of each row, shape (n, 2)."""
        return self._map(PredictMap.of(self.model_), X, 2, np.float64)

    def predict(self, X):
        """Return the cluster of each row, as ``apnc predict`` does with the same model.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n_samples, n_features)

        Returns
        -------
        labels : ndarray of int32, shape (n_samples,)
        """
        return self._assigned(self._checked(X))[:, 0].astype(np.int32)

    def transform(self, X):
        """Return the distance e(y, ȳ) of each row to each cluster: approximately that in the kernel's feature space.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n_samples, n_features)

        Returns
        -------
        distances : ndarray, shape (n_samples, n_clusters)
        """
        X = self._checked(X)
        step = DistancesMap(EmbedMap.of(self.model_), self.cluster_centers_, self.model_.view)
        return self._map(step, X, len(self.cluster_centers_), self._dtype)

    def embed(self, X):
        """Return the embedding y = R κ(L, x), the space of ``cluster_centers_``.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n_samples, n_features)

        Returns
        -------
        Y : ndarray, shape (n_samples, m)
        """
        return self._embed(self._checked(X))

    def score(self, X, y=None, sample_weight=None):
        """Return the negative objective, −Σ w e(y, ȳ)², of rows at their nearest centroids.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n_samples, n_features)
        y : ignored
        sample_weight : array-like, shape (n_samples,), default=None

        Returns
        -------
        score : float
        """
        X = self._checked(X)
        return -_objective(self._assigned(X)[:, 1], _checked_weights(sample_weight, X.shape[0]))

    def save(self, path):
        """Write the model to a file that `load`, ``apnc predict`` and the cluster's jobs can read.

        Training labels, ``inertia_`` and ``memory_budget`` are not part of it. Contains no pickles.

        Parameters
        ----------
        path : path-like
            Such as ``model.npz``.
        """
        check_is_fitted(self)
        self.model_.save(path)


class DistancesMap(Map):
    """The distance e(y, ȳ) of each row to every centroid, from the rows themselves."""

    stage = "transform"

    def __init__(self, embed: EmbedMap, centroids, view=None):
        self.embed, self.centroids, self.view = embed, centroids, view

    def rows_per_block(self):
        return min(self.embed.rows_per_block(), rows_per_block(*self.centroids.shape))

    def apply(self, block: Block) -> Block:
        embedded = viewed(self.embed.apply(block), self.view)
        y = embedded.x
        if self.embed.embedding.metric == "l1":
            return embedded.replace_x(l1_distances(y, self.centroids.astype(y.dtype, copy=False)))
        from scipy.spatial.distance import cdist

        # from differences: the expanded form would lose rows that lie on their centroid
        return embedded.replace_x(cdist(y, self.centroids) if len(y) else np.empty((0, len(self.centroids))))


def _checked_weights(sample_weight, n):
    if sample_weight is None:
        return None
    weights = check_array(sample_weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight")
    if weights.shape != (n,):
        raise InputError(f"sample_weight has shape {weights.shape}, but there are {n} rows")
    if (weights < 0).any():
        raise InputError(f"sample_weight {weights.min():g} must be at least 0")
    if not weights.any():
        raise InputError("sample_weight is zero for all rows")
    return None if (weights == 1).all() else weights


def _objective(distances, weights):
    squares = distances**2
    return float(squares.sum() if weights is None else squares @ weights)


def _warn_of_outcome(model, settings, assigned):
    occupied = len(np.unique(assigned[:, 0]))
    if occupied < settings.k:
        warnings.warn(
            f"Number of distinct clusters ({occupied}) found smaller than n_clusters ({settings.k})",
            ConvergenceWarning,
            stacklevel=3,
        )
    if model.unplaced and settings.method not in LINEAR:
        said = make_method(settings.method).without_place.replace(" landmarks", " n_landmarks")
        warn(f"{model.unplaced} of {len(assigned)} rows {said.replace(' representatives', ' n_representatives')}")
