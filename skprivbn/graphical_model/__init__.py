"""Undirected graphical models, learnt under differential privacy."""

# not from deeper: CPython 3.11 maps memory at thousands of calls in deep imports
import sklearn  # noqa: F401

from skprivbn.graphical_model._dpcgm import DPCGMLearner
from skprivbn.graphical_model._random_field import MarkovRandomField

__all__ = ["DPCGMLearner", "MarkovRandomField"]
