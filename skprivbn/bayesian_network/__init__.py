"""Bayesian networks as values, and one learnt collectively by several sites."""

from skprivbn.bayesian_network._collective import CollectiveBayesianNetwork
from skprivbn.bayesian_network._conditional_gaussian import (
    ConditionalGaussianBayesianNetwork,
)
from skprivbn.bayesian_network._discrete import BayesianNetwork
from skprivbn.bayesian_network._gaussian import GaussianBayesianNetwork

__all__ = [
    "BayesianNetwork",
    "CollectiveBayesianNetwork",
    "ConditionalGaussianBayesianNetwork",
    "GaussianBayesianNetwork",
]
