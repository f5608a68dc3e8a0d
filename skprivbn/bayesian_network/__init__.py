"""Bayesian networks as values: inference, sampling, files."""

from importlib import import_module

from skprivbn.bayesian_network._conditional_gaussian import (
    ConditionalGaussianBayesianNetwork,
)
from skprivbn.bayesian_network._discrete import BayesianNetwork
from skprivbn.bayesian_network._gaussian import GaussianBayesianNetwork

__all__ = [
    "BayesianNetwork",
    "ConditionalGaussianBayesianNetwork",
    "GaussianBayesianNetwork",
]


def __getattr__(name):
    # estimators that release 0.2 had here, and has announced to sites
    package = import_module("skprivbn")
    if name in package._HOMES:
        return getattr(package, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
