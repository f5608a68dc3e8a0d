"""Who depends on whom: structure learning over parties."""

from skprivbn.structure._gaussian import FederatedGaussianBayesianNetwork
from skprivbn.structure._notears_admm import FederatedNotearsADMM

__all__ = ["FederatedGaussianBayesianNetwork", "FederatedNotearsADMM"]
