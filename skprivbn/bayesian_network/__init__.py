"""Bayesian networks as values: inference, sampling, files and equivalence."""

from skprivbn.bayesian_network._discrete import BayesianNetwork
from skprivbn.bayesian_network._gaussian import GaussianBayesianNetwork

__all__ = ["BayesianNetwork", "GaussianBayesianNetwork"]
