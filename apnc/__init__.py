"""Kernel k-means and spectral clustering for data too large or too tangled for plain k-means."""

__version__ = "0.1.0"
__all__ = ["USENC", "USPEC", "APNCTransformer", "KernelKMeans", "RankRestrictedKernelKMeans", "SpectralNystrom", "load"]


def __getattr__(name):
    # not imported above: tasks on a cluster import apnc and must not pay for scikit-learn
    if name in __all__:
        from apnc import estimators

        return getattr(estimators, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted([*globals(), *__all__])
