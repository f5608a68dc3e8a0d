"""Bayesian networks as values: inference, sampling, files."""

from importlib import import_module

from skprivbn.bayesian_network._conditional_gaussian import (
    ConditionalGaussianBayesianNetwork,
)
from skprivbn.bayesian_network._dag import PartialAncestralGraph
from skprivbn.bayesian_network._discrete import BayesianNetwork
from skprivbn.bayesian_network._gaussian import GaussianBayesianNetwork

__all__ = [
    "BayesianNetwork",
    "ConditionalGaussianBayesianNetwork",
    "GaussianBayesianNetwork",
    "PartialAncestralGraph",
]


def __getattr__(name):
    homes = import_module("skprivbn")._HOMES
    if name in homes:
        # of an AttributeError, "from ... import ..." would not show the words
        moved = f"from skprivbn.{homes[name]} import {name}"
        raise ImportError(f"{name} is no network but learns one: {moved}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
