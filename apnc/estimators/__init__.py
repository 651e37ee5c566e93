"""scikit-learn estimators over the in-process engine, for matrices in memory: one file per estimator."""

from apnc.estimators.kernel_kmeans import KernelKMeans
from apnc.estimators.loading import load
from apnc.estimators.spectral import USENC, USPEC, RankRestrictedKernelKMeans, SpectralNystrom
from apnc.estimators.transformer import APNCTransformer

__all__ = ["USENC", "USPEC", "APNCTransformer", "KernelKMeans", "RankRestrictedKernelKMeans", "SpectralNystrom", "load"]
