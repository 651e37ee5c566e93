"""Scores of a clustering against known classes, from the contingency table or from two label vectors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from apnc.errors import InputError


def contingency_table(pairs: Mapping) -> np.ndarray:
    """Return the table (clusters, classes) from a count per (cluster, class)."""
    clusters = {c: i for i, c in enumerate(sorted({c for c, _ in pairs}))}
    classes = {c: i for i, c in enumerate(sorted({c for _, c in pairs}, key=str))}
    table = np.zeros((len(clusters), len(classes)), np.int64)
    for (cluster, label), count in pairs.items():
        table[clusters[cluster], classes[label]] = count
    return table


def scores(table: np.ndarray) -> dict:
    """Return NMI, ARI, accuracy and purity from a contingency table.

    Parameters
    ----------
    table : ndarray of int, shape (clusters, classes)

    Returns
    -------
    dict
        ``nmi`` (mutual information over the *geometric* mean of the entropies), ``ari`` (adjusted Rand index),
        ``accuracy`` (best one-to-one matching of clusters and classes), ``purity``.

    Examples
    --------
    >>> scores(np.array([[3, 0], [1, 4]]))["accuracy"]
    0.875
    """
    from scipy.optimize import linear_sum_assignment

    table = table[table.sum(axis=1) > 0][:, table.sum(axis=0) > 0].astype(np.float64)
    n = table.sum()
    rows, columns = table.sum(axis=1), table.sum(axis=0)
    matched = table[linear_sum_assignment(table, maximize=True)].sum()
    return {
        "nmi": _nmi(table),
        "ari": _ari(table, rows, columns, n),
        "accuracy": float(matched / n),
        "purity": float(table.max(axis=1).sum() / n),
    }


def _nmi(table):
    from scipy.stats import entropy
    from sklearn.metrics import mutual_info_score

    if table.shape == (1, 1):
        return 1.0
    geometric = float(np.sqrt(entropy(table.sum(axis=1)) * entropy(table.sum(axis=0))))
    return float(mutual_info_score(None, None, contingency=table) / geometric) if geometric else 0.0


def _ari(table, rows, columns, n):
    def pairs(counts):
        return (counts * (counts - 1) / 2).sum()

    both, a, b, total = pairs(table), pairs(rows), pairs(columns), n * (n - 1) / 2
    expected = a * b / total if total else 0.0
    highest = (a + b) / 2
    return float((both - expected) / (highest - expected)) if highest != expected else 1.0


def read_truth(path) -> np.ndarray:
    """Return known classes from a file: one per line, or a vector in .npy.

    Raises
    ------
    InputError
        If there is no such file, or it is not a list of classes.
    """
    path = Path(path)
    try:
        if path.suffix == ".npy":
            truth = np.load(path, allow_pickle=False)
            if truth.ndim != 1:
                raise InputError(f"{path}: has shape {truth.shape}; a vector of classes is needed")
            return truth
        return np.array([line.strip() for line in path.read_text("utf-8-sig").splitlines() if line.strip()])
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path}: not a list of classes ({error})") from None


def evaluate(clusters: np.ndarray, truth: np.ndarray) -> dict:
    """Return `scores` of two label vectors, shape (n,) each.

    Raises
    ------
    InputError
        If their lengths differ.
    """
    if len(clusters) != len(truth):
        raise InputError(f"there are {len(clusters)} labels but {len(truth)} true classes")
    if not len(truth):
        raise InputError("there are no labels to score")
    _, c = np.unique(clusters, return_inverse=True)
    _, t = np.unique(truth, return_inverse=True)
    table = np.zeros((c.max() + 1, t.max() + 1), np.int64)
    np.add.at(table, (c, t), 1)
    return scores(table)
