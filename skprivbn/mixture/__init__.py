"""Gaussian mixtures fitted to rows that several parties hold."""

from skprivbn.mixture._ppem import PPEMGaussianMixture

__all__ = ["PPEMGaussianMixture"]
