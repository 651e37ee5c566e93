"""Representatives of U-SPEC: the centres of a k-means on a few thousand rows of the sample ([US] section 3.1)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from apnc.kernels import is_sparse
from apnc.kmeans import updated
from apnc.seeding import Blocks
from apnc.threads import cores, one_blas_thread

ITERATIONS = 4  # more of them change the scores of clusterings no further, measured up to 16


def lloyd_centres(rows, count: int, threads: int | None = None) -> np.ndarray:
    """Return the centres of k-means on the rows, from the first ``count`` distinct ones of them.

    Parameters
    ----------
    rows : ndarray or csr_matrix, shape (s, d)
        In an order that has nothing to do with what is in them.
    count : int
        p.
    threads : int, optional
        All cores by default; the result does not depend on it.

    Returns
    -------
    centres : ndarray of float64, shape (p', d)
        p' < p where there are fewer distinct rows.
    """
    starts = first_distinct(rows, count)
    if is_sparse(rows):
        from sklearn.cluster import KMeans

        found = KMeans(len(starts), init=rows[starts].toarray(), n_init=1, max_iter=ITERATIONS, algorithm="lloyd")
        return found.fit(rows).cluster_centers_.astype(np.float64)
    shift = rows.mean(axis=0, dtype=np.float64)
    y = (rows - shift).astype(np.float32, copy=False)
    centres = y[starts][None]
    with one_blas_thread(), ThreadPoolExecutor(threads or cores()) as pool:
        blocks = Blocks(y, None, "l2", pool)
        for _ in range(ITERATIONS):
            centres = updated(blocks.fold(centres), centres, y, "l2")[0]
    return centres[0].astype(np.float64) + shift


def first_distinct(rows, count: int) -> np.ndarray:
    """Return the indices of the first ``count`` distinct rows, fewer where there are fewer."""
    seen: set = set()
    found = []
    for i in range(rows.shape[0]):
        if is_sparse(rows):
            span = slice(rows.indptr[i], rows.indptr[i + 1])
            key = rows.indices[span].tobytes() + rows.data[span].tobytes()
        else:
            key = rows[i].tobytes()
        if key not in seen:
            seen.add(key)
            found.append(i)
            if len(found) == count:
                break
    return np.array(found, np.int64)
