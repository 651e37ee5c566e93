"""scikit-learn estimators over the in-process engine: `KernelKMeans`, `APNCTransformer`, and `load`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from apnc.blocks import Block, rows_per_block
from apnc.coefficients import CoefficientsFold
from apnc.distances import l1_distances
from apnc.embed import EmbedMap, PredictMap
from apnc.engines.in_process import InProcessEngine
from apnc.errors import InputError, spelling, warn
from apnc.kernels import is_sparse, nearest_name
from apnc.kmeans import AssignMap
from apnc.model import Model
from apnc.passes import Map
from apnc.pipeline import Listener, Run, train
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
    "n_init": "restarts",
    "full_restarts": "full_restarts",
    "init": "init",
    "sample_size": "sample",
    "random_state": "seed",
}
SPELLING = {f"--{setting.replace('_', '-')}": name for name, setting in PARAMETERS.items()} | {"-k": "n_clusters"}
LINEAR = ("linear", "kmeans")  # the method without a kernel, and its alias
FLOATS = [np.float64, np.float32]


class _APNC(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """What the estimators share: parameters to settings, matrices through an engine, a model to attributes."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = self._non_negative
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _settings(self, X, **others) -> Settings:
        """Return the checked settings for training on ``X``, with ``others`` for what is no parameter here."""
        values = {PARAMETERS[name]: _plain(value) for name, value in self.get_params().items() if name in PARAMETERS}
        params = values["kernel_params"]
        if not (params is None or isinstance(params, Mapping)):
            raise InputError(f"kernel_params {params!r} must be a dict of parameters of the kernel")
        values["kernel_params"] = {name: _plain(value) for name, value in (params or {}).items()}
        if not (isinstance(self.random_state, (int, np.integer)) and self.random_state >= 0):
            values["seed"] = int(check_random_state(self.random_state).randint(2**31 - 1))
        budget = self.memory_budget
        if isinstance(budget, bool) or not isinstance(budget, (int, np.integer)) or budget < 0:
            raise InputError(f"memory_budget {budget!r} must be a whole number of MiB, at least 0")
        return Settings(**values | {"dtype": X.dtype.name} | others).check()

    def _engine(self, X, sample_weight=None):
        return InProcessEngine(ArrayInput(X, sample_weight), int(self.memory_budget) << 20)

    def _adopt(self, model: Model):
        """Show a finished model as attributes."""
        model.sample = None  # needed for training only, and as large as 10,000 embedded rows
        self.model_ = model
        embedding = model.embedding
        self.metric_ = embedding.metric
        if hasattr(embedding, "kernel"):
            self.kernel_ = embedding.kernel
            self.landmarks_ = _stacked(embedding.landmarks)
        else:
            self.kernel_ = self.landmarks_ = None

    @property
    def _non_negative(self):
        return self.kernel == "chi2" and self.method not in LINEAR

    def _rows(self, X, **options):
        return validate_data(
            self, X, accept_sparse="csr", dtype=FLOATS, ensure_non_negative=self._non_negative, **options
        )

    def _training_rows(self, X):
        return self._rows(X, ensure_min_samples=2 if self.method == "stable" else 1)  # a draw of landmarks leaves some

    def _checked(self, X):
        check_is_fitted(self)
        return self._rows(X, reset=False)

    @property
    def _dtype(self):
        return np.dtype(self.model_.settings.dtype)

    def _map(self, step: Map, X, width, dtype):
        """Return the rows that ``step`` makes of ``X``, shape (n, width)."""
        with spelling(SPELLING), self._engine(X) as engine:
            return _collected(engine.labels(step, Listener()), X.shape[0], width, dtype)

    def _embed(self, X):
        return self._map(EmbedMap.of(self.model_), X, self.model_.embedding.dim, self._dtype)


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


def _collected(blocks, n, width, dtype):
    """Return the rows of blocks as one matrix; none may be missing."""
    out = np.empty((n, width), dtype)
    for block in blocks:
        if block.rules:
            raise InputError(f"X: row {block.bad[0]}: {next(iter(block.rules))}")
        if block.n:
            out[block.offsets[0] : block.offsets[-1] + 1] = block.x
    return out


class DistancesMap(Map):
    """The distance e(y, ȳ) of each row to every centroid, from the rows themselves."""

    stage = "transform"

    def __init__(self, embed: EmbedMap, centroids):
        self.embed, self.centroids = embed, centroids

    def rows_per_block(self):
        return min(self.embed.rows_per_block(), rows_per_block(*self.centroids.shape))

    def apply(self, block: Block) -> Block:
        embedded = self.embed.apply(block)
        y = embedded.x
        if self.embed.embedding.metric == "l1":
            return embedded.replace_x(l1_distances(y, self.centroids.astype(y.dtype, copy=False)))
        from scipy.spatial.distance import cdist

        # from differences: the expanded form would lose rows that lie on their centroid
        return embedded.replace_x(cdist(y, self.centroids))


class KernelKMeans(ClusterMixin, _APNC):
    """Approximate kernel k-means: an embedding learned from a sample, and k-means on it.

    Rows x become y = R κ(L, x), with landmarks L and coefficients R from a sample of the rows, such that distances
    of y approximate distances in the kernel's feature space. Start centroids come from the sample; full passes then
    go over all rows, block by block, on all cores. Memory beyond ``X`` and the labels does not grow with the number
    of rows: an embedding larger than ``memory_budget`` is kept in a temporary file.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters (``-k`` on the command line).
    method : {'nystrom', 'stable', 'linear'}, default='nystrom'
        The embedding: Nyström (Algorithm 3 of [1]_, ℓ2 distances), stable distributions (Algorithm 4, ℓ1 distances),
        or none, which is plain k-means (``--method``).
    kernel : str, default='rbf'
        'rbf', 'laplacian', 'polynomial', 'neural' (tanh), 'linear', 'cosine' or 'chi2' (``--kernel``). Not used by
        ``method='linear'``.
    kernel_params : dict, default=None
        Parameters of the kernel by name, such as ``{'gamma': 0.5}``, ``{'sigma': 'auto*0.2'}`` or ``{'degree': 5}``;
        what is absent has the kernel's default, for rbf the mean distance between rows as σ (``--kernel-params``).
    n_landmarks : int, default=500
        Landmarks l, over all blocks; with fewer rows all are used, and a warning is given (``--landmarks``).
    n_components : int, default=None
        Width m of the embedding, over all blocks. None is the rank of the landmarks' kernel matrix, 500 at most, for
        'nystrom' and 1000 for 'stable' (``--dim``).
    n_blocks : int, default=1
        Blocks q of landmarks and coefficients (``--blocks``).
    t_share : float, default=0.4
        For 'stable': share of the landmarks in a draw, in (0, 0.9] (``--t-share``).
    scale : {'none', 'unit', 'standard', 'minmax'}, default='none'
        What is done to rows ('unit': length one) or columns first; part of the model (``--scale``).
    init : {'sample', 'random'} or array-like of shape (n_clusters, n_features), default='sample'
        Start centroids: k-means++ and k-means on the embedded sample; random rows of the sample; or rows of input
        space, which are embedded (``--init``).
    n_init : int, default=10
        Starts tried on the sample, of which the best goes into the full passes (``--restarts``).
    full_restarts : bool, default=False
        Take all starts through the full passes, side by side, and keep the best (``--full-restarts``).
    max_iter : int, default=20
        Full passes at most; 2 or 3 usually do (``--passes``).
    tol : float, default=1e-4
        Relative gain in the objective below which the passes end. With 0 they go on until centroids stand still or
        ``max_iter`` is reached, which with ``init='random'`` is the protocol of [1]_ (``--tol``).
    sample_size : int, default=None
        Rows of the sample; None is 10,000 (``--sample``).
    random_state : int, RandomState instance or None, default=None
        Decides which rows are sampled, and the starts. An int gives the same result each time (``--seed``).
    memory_budget : int, default=256
        MiB of embedding kept in memory; a larger one goes to a temporary file (``--memory``).

    Attributes
    ----------
    labels_ : ndarray of int32, shape (n_samples,)
        Cluster of each training row, the zero-weight ones included. Absent from a model that was loaded.
    inertia_ : float
        Objective Σ w e(y, ȳ)² of the training rows. Absent from a model that was loaded.
    n_iter_ : int
        Full passes made.
    cluster_centers_ : ndarray, shape (n_clusters, m)
        Centroids *in the embedding*: compare them with ``embed(X)``, not with ``X``.
    kernel_ : apnc.kernels.Kernel or None
        The kernel with all its parameters fixed: ``kernel_.params['sigma']`` is the width found.
    landmarks_ : ndarray or sparse matrix, shape (l, n_features), or None
        Landmarks, after ``scale``, those of all blocks one below the other.
    metric_ : {'l2', 'l1'}
        The distance e that fits the embedding.
    model_ : apnc.model.Model
        All there is to the model; what `save` writes.
    n_features_in_ : int
        Number of features seen in `fit`.
    feature_names_in_ : ndarray of str, shape (n_features_in_,)
        Names of features seen in `fit`, where ``X`` has names that are all strings.

    See Also
    --------
    APNCTransformer : The embedding alone.
    load : A fitted estimator from a model file.

    Notes
    -----
    float64 rows are embedded and clustered in float64, float32 rows in float32; within, float64 is taken by itself
    where float32 could not tell rows apart. Results have the dtype of the rows of `fit`.

    Rows are sampled, and landmarks taken, without regard to weights; weights count in the choice of centroids and in
    the objective. A row of weight zero is as good as absent: it is neither sampled nor does it shift the sample of
    others, at the price of a copy of the other rows.

    References
    ----------
    .. [1] A. Elgohary, A. K. Farahat, M. S. Kamel, F. Karray. "Embed and Conquer: Scalable Embeddings for Kernel
       k-Means on MapReduce." SIAM International Conference on Data Mining, 2014, 425-433.

    Examples
    --------
    Two rings, which no plain k-means can separate:

    >>> from sklearn.datasets import make_circles
    >>> from apnc import KernelKMeans
    >>> X, y = make_circles(1000, factor=0.3, noise=0.05, random_state=0)
    >>> rings = KernelKMeans(2, kernel_params={"sigma": 0.3}, random_state=0).fit(X)
    >>> rings.predict([[0, 0.3], [0.3, 0], [0, 1], [-1, 0]])
    array([1, 1, 0, 0], dtype=int32)
    """

    def __init__(
        self,
        n_clusters=8,
        *,
        method="nystrom",
        kernel="rbf",
        kernel_params=None,
        n_landmarks=500,
        n_components=None,
        n_blocks=1,
        t_share=0.4,
        scale="none",
        init="sample",
        n_init=10,
        full_restarts=False,
        max_iter=20,
        tol=1e-4,
        sample_size=None,
        random_state=None,
        memory_budget=256,
    ):
        self.n_clusters = n_clusters
        self.method = method
        self.kernel = kernel
        self.kernel_params = kernel_params
        self.n_landmarks = n_landmarks
        self.n_components = n_components
        self.n_blocks = n_blocks
        self.t_share = t_share
        self.scale = scale
        self.init = init
        self.n_init = n_init
        self.full_restarts = full_restarts
        self.max_iter = max_iter
        self.tol = tol
        self.sample_size = sample_size
        self.random_state = random_state
        self.memory_budget = memory_budget

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
        with spelling(SPELLING):
            settings = self._settings(X, **self._init_settings(X))
            if rows.shape[0] < settings.k:
                raise InputError(f"n_samples={rows.shape[0]} should be >= n_clusters={settings.k}")
            with self._engine(rows, weights) as engine:
                model = train(Run(settings, *rows.shape), engine)
                steps = engine.labels(AssignMap(model.centroids[0], model.metric), Listener())
                assigned = _collected(steps, rows.shape[0], 2, np.float64)
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
        step = DistancesMap(EmbedMap.of(self.model_), self.cluster_centers_)
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
    zero = model.passes[-1]["zero_rows"]
    if zero and settings.method not in LINEAR:
        warn(
            f"{zero} of {len(assigned)} rows have no similarity to any landmark and cannot be told apart; "
            "choose a wider kernel, more n_landmarks, or scale the data"
        )


class APNCTransformer(_APNC):
    """The embedding y = R κ(L, x): a map into a space where plain distances stand for the kernel's.

    For use before other models. With ``method='nystrom'`` inner products of y approximate the kernel; with
    ``method='stable'`` only ℓ1 distances have a meaning, which approximate distances in the kernel's feature space.

    Parameters
    ----------
    method : {'nystrom', 'stable', 'linear'}, default='nystrom'
        Nyström (Algorithm 3 of [1]_), stable distributions (Algorithm 4), or the rows less their mean.
    kernel : str, default='rbf'
        'rbf', 'laplacian', 'polynomial', 'neural' (tanh), 'linear', 'cosine' or 'chi2'.
    kernel_params : dict, default=None
        Parameters of the kernel by name; what is absent has the kernel's default, for rbf the mean distance between
        rows as σ.
    n_landmarks : int, default=500
        Landmarks l, over all blocks; with fewer rows all are used, and a warning is given.
    n_components : int, default=None
        Width m of the embedding, over all blocks. None is the rank of the landmarks' kernel matrix, 500 at most, for
        'nystrom' and 1000 for 'stable'.
    n_blocks : int, default=1
        Blocks q of landmarks and coefficients.
    t_share : float, default=0.4
        For 'stable': share of the landmarks in a draw, in (0, 0.9].
    scale : {'none', 'unit', 'standard', 'minmax'}, default='none'
        What is done to rows ('unit': length one) or columns first.
    sample_size : int, default=None
        Rows of the sample from which σ and the landmarks come; None is 10,000.
    random_state : int, RandomState instance or None, default=None
        Decides which rows are sampled. An int gives the same result each time.
    memory_budget : int, default=256
        MiB of embedding kept in memory while it is made; `transform` returns a matrix in any case.

    Attributes
    ----------
    kernel_ : apnc.kernels.Kernel or None
        The kernel with all its parameters fixed.
    landmarks_ : ndarray or sparse matrix, shape (l, n_features), or None
        Landmarks, after ``scale``, those of all blocks one below the other.
    metric_ : {'l2', 'l1'}
        The distance that fits the embedding.
    model_ : apnc.model.Model
        The model that embeds.
    n_features_in_ : int
        Number of features seen in `fit`.
    feature_names_in_ : ndarray of str, shape (n_features_in_,)
        Names of features seen in `fit`, where ``X`` has names that are all strings.

    See Also
    --------
    KernelKMeans : The same embedding with k-means on it.
    sklearn.kernel_approximation.Nystroem : Nyström embedding of all rows at once.

    References
    ----------
    .. [1] A. Elgohary, A. K. Farahat, M. S. Kamel, F. Karray. "Embed and Conquer: Scalable Embeddings for Kernel
       k-Means on MapReduce." SIAM International Conference on Data Mining, 2014, 425-433.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.linear_model import SGDClassifier
    >>> from sklearn.pipeline import make_pipeline
    >>> from apnc import APNCTransformer
    >>> X, y = load_digits(return_X_y=True)
    >>> model = make_pipeline(APNCTransformer(n_components=100, random_state=0), SGDClassifier(random_state=0))
    >>> model.fit(X, y).score(X, y) > 0.9
    True
    """

    def __init__(
        self,
        *,
        method="nystrom",
        kernel="rbf",
        kernel_params=None,
        n_landmarks=500,
        n_components=None,
        n_blocks=1,
        t_share=0.4,
        scale="none",
        sample_size=None,
        random_state=None,
        memory_budget=256,
    ):
        self.method = method
        self.kernel = kernel
        self.kernel_params = kernel_params
        self.n_landmarks = n_landmarks
        self.n_components = n_components
        self.n_blocks = n_blocks
        self.t_share = t_share
        self.scale = scale
        self.sample_size = sample_size
        self.random_state = random_state
        self.memory_budget = memory_budget

    def fit(self, X, y=None):
        """Learn the embedding from a sample of the rows.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n_samples, n_features)
        y : ignored

        Returns
        -------
        self : object

        Raises
        ------
        ValueError
            If a parameter or the input is not allowed; the message names the parameter, the value and the rule.
        """
        X = self._training_rows(X)
        with spelling(SPELLING):
            # one random centroid: the cheapest start there is, which is not used
            settings = self._settings(X, k=1, restarts=1, init="random")
            run = Run(settings, *X.shape)
            with self._engine(X) as engine:
                while run.model is None:
                    step = CoefficientsFold(settings, run.threshold, run.width)
                    run.absorb(step.stage, engine.run(step, Listener()))
        self._adopt(run.model)
        return self

    @property
    def _n_features_out(self):
        return self.model_.embedding.dim

    def transform(self, X):
        """Return the embedding of rows.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n_samples, n_features)

        Returns
        -------
        Y : ndarray, shape (n_samples, m)
            In the dtype of the rows of `fit`.
        """
        return self._embed(self._checked(X))


def load(path) -> KernelKMeans:
    """Return a fitted `KernelKMeans` from a model file, whichever engine trained it.

    Parameters
    ----------
    path : path-like
        Written by ``apnc cluster``, by a job, or by `KernelKMeans.save`.

    Returns
    -------
    KernelKMeans
        With the parameters of the training, but without ``labels_`` and ``inertia_``.

    Raises
    ------
    ValueError
        If the file is missing, or is not such a file.

    Examples
    --------
    >>> import apnc, os, tempfile
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(600, 3))
    >>> trained = apnc.KernelKMeans(3, random_state=0).fit(X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     trained.save(os.path.join(folder, "model.npz"))
    ...     loaded = apnc.load(os.path.join(folder, "model.npz"))
    >>> bool((loaded.predict(X) == trained.labels_).all())
    True
    """
    model = Model.load(path)
    settings = model.settings
    if not model.done:
        raise InputError(f"{path}: the model is not finished, its k-means passes are not over")
    values = {name: getattr(settings, setting) for name, setting in PARAMETERS.items()}
    values["tol"] = settings.gain_to_go_on
    if settings.init == "rows":
        values["init"] = np.array(settings.init_rows)
    estimator = KernelKMeans(**values)
    estimator.n_features_in_ = model.width
    if "feature_names" in model.facts:
        estimator.feature_names_in_ = np.array(model.facts["feature_names"], object)
    estimator._adopt(model)
    return estimator
