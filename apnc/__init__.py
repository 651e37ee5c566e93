"""Kernel k-means and spectral clustering for data too large or too tangled for plain k-means."""

__version__ = "0.1.0"
