"""Descriptions of the parameters and attributes that estimators share, each written once."""

from __future__ import annotations

import re

SHARED = """
n_clusters : int, default=8
    Number of clusters (``-k`` on the command line).
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
n_representatives : int, default=1000
    Representatives p; with fewer distinct rows in the sample there are as many as those, and a warning is given
    (``--representatives``).
n_neighbors : int, default=5
    Nearest representatives K that a row is joined to (``--neighbours``).
neighbor_search : {'exact', 'approximate'}, default='exact'
    How they are found; 'approximate' is worth its errors for thousands of representatives
    (``--neighbour-search``).
unit_rows : bool, default=None
    Give the rows that k-means gets length one. None is what the method does by itself: yes for spectral ones
    (``--unit-rows``).
whiten : bool, default=False
    Give the columns of the rotated embedding equal weight (``--whiten``).
sigma_ : list of float
    Width σ of the affinity between rows and representatives, for each set of representatives.
representatives_ : list of ndarray, shapes (p, n_features)
    The sets of representatives, after ``scale``.
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
    ``max_iter`` is reached, which with ``init='random'`` is the protocol of Elgohary et al. (``--tol``).
sample_size : int, default=None
    Rows of the sample; None is 10,000 (``--sample``).
random_state : int, RandomState instance or None, default=None
    Decides which rows are sampled, and all that is drawn. An int gives the same result each time (``--seed``).
memory_budget : int, default=256
    MiB of embedding kept in memory; a larger one goes to a temporary file (``--memory``).
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
"""
ENTRIES = {entry.partition(" : ")[0]: entry for entry in re.split(r"\n(?=\w)", SHARED.strip())}


def documented(cls):
    """Give the names that stand alone in a class's docstring their shared descriptions.

    A line of nothing but such names, with commas between them, is what becomes their entries.

    Examples
    --------
    >>> @documented
    ... class Estimator:
    ...     '''Of no use.
    ...
    ...     Parameters
    ...     ----------
    ...     n_blocks, t_share
    ...     scale : bool
    ...         Other than the shared one.
    ...     '''
    >>> print(Estimator.__doc__)
    Of no use.
    <BLANKLINE>
        Parameters
        ----------
        n_blocks : int, default=1
            Blocks q of landmarks and coefficients (``--blocks``).
        t_share : float, default=0.4
            For 'stable': share of the landmarks in a draw, in (0, 0.9] (``--t-share``).
        scale : bool
            Other than the shared one.
    """
    if cls.__doc__:  # absent under python -OO
        cls.__doc__ = "\n".join(_expanded(line) for line in cls.__doc__.split("\n"))
    return cls


def _expanded(line):
    names = line.strip().split(", ")
    if not all(name in ENTRIES for name in names):
        return line
    indent = line[: len(line) - len(line.lstrip())]
    return "\n".join(indent + part for name in names for part in ENTRIES[name].split("\n"))
