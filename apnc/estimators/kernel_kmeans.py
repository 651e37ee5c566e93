"""Approximate kernel k-means."""

from __future__ import annotations

from apnc.estimators.clusterer import Clusterer
from apnc.estimators.documented import documented


@documented
class KernelKMeans(Clusterer):
    """Approximate kernel k-means: an embedding learned from a sample, and k-means on it.

    Rows x become y = R κ(L, x), with landmarks L and coefficients R from a sample of the rows, such that distances
    of y approximate distances in the kernel's feature space. Start centroids come from the sample; full passes then
    go over all rows, block by block, on all cores. Memory beyond ``X`` and the labels does not grow with the number
    of rows: an embedding larger than ``memory_budget`` is kept in a temporary file.

    Parameters
    ----------
    n_clusters
    method : {'nystrom', 'stable', 'linear'}, default='nystrom'
        The embedding: Nyström (Algorithm 3 of [1]_, ℓ2 distances), stable distributions (Algorithm 4, ℓ1 distances),
        or none, which is plain k-means (``--method``).
    kernel, kernel_params, n_landmarks, n_components, n_blocks, t_share, scale
    init, n_init, full_restarts, max_iter, tol, sample_size, random_state, memory_budget

    Attributes
    ----------
    labels_, inertia_, n_iter_, cluster_centers_, kernel_, landmarks_, metric_, model_
    n_features_in_, feature_names_in_

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
        self._store(locals())
