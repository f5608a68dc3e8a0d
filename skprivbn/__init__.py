"""Learn Bayesian networks, graphical models and mixtures without pooling data."""

__version__ = "0.1.0"
