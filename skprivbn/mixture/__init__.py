"""Gaussian mixtures fitted to rows that several parties hold."""

# not from deeper: CPython 3.11 maps memory at thousands of calls in deep imports
import sklearn  # noqa: F401

from skprivbn.mixture._ppem import PPEMGaussianMixture

__all__ = ["PPEMGaussianMixture"]
