"""The embedding alone, for use before other models."""

from __future__ import annotations

from apnc.embed import EmbedMap
from apnc.embeddings import make_method
from apnc.estimators.base import Estimator
from apnc.estimators.documented import documented
from apnc.pipeline import Listener, Run


@documented
class APNCTransformer(Estimator):
    """The embedding y = R κ(L, x): a map into a space where plain distances stand for the kernel's.

    For use before other models. With ``method='nystrom'`` inner products of y approximate the kernel; with
    ``method='stable'`` only ℓ1 distances have a meaning, which approximate distances in the kernel's feature space.

    Parameters
    ----------
    method : {'nystrom', 'stable', 'linear'}, default='nystrom'
        Nyström (Algorithm 3 of [1]_), stable distributions (Algorithm 4), or the rows less their mean.
    kernel, kernel_params, n_landmarks, n_components, n_blocks, t_share, scale
    sample_size : int, default=None
        Rows of the sample from which σ and the landmarks come; None is 10,000.
    random_state
    memory_budget : int, default=256
        MiB of embedding kept in memory while it is made; `transform` returns a matrix in any case.

    Attributes
    ----------
    kernel_, landmarks_, metric_
    model_ : apnc.model.Model
        The model that embeds.
    n_features_in_, feature_names_in_

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
        self._store(locals())

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
        with self._spelling():
            # one random centroid: the cheapest start there is, which is not used
            settings = self._settings(X, k=1, restarts=1, init="random")
            run, method = Run(settings, *X.shape), make_method(settings.method)
            with self._engine(X) as engine:
                while not isinstance(step := method.next_pass(run), EmbedMap):
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
