"""Undirected graphical models, learnt under differential privacy."""

from skprivbn.graphical_model._dpcgm import DPCGMLearner
from skprivbn.graphical_model._random_field import MarkovRandomField

__all__ = ["DPCGMLearner", "MarkovRandomField"]
