"""From a model file to a fitted estimator."""

from __future__ import annotations

from apnc.errors import InputError
from apnc.estimators.clusterer import Clusterer
from apnc.estimators.kernel_kmeans import KernelKMeans
from apnc.estimators.spectral import USENC, USPEC, RankRestrictedKernelKMeans, SpectralNystrom
from apnc.model import Model

# estimators by the method that they alone have; the others are KernelKMeans's
OWN: dict[str, type[Clusterer]] = {
    cls.method: cls for cls in (USENC, USPEC, RankRestrictedKernelKMeans, SpectralNystrom)
}


def load(path) -> Clusterer:
    """Return a fitted estimator, such as `KernelKMeans`, from a model file, whichever engine trained it.

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
    if not model.done:
        raise InputError(f"{path}: the model is not finished, its k-means passes are not over")
    return OWN.get(model.settings.method, KernelKMeans)._from_model(model)
