"""Who depends on whom: structure learning over parties."""

from skprivbn.structure._dynotears import FederatedDynotears
from skprivbn.structure._gaussian import FederatedGaussianBayesianNetwork
from skprivbn.structure._k2 import K2StructureLearner
from skprivbn.structure._notears_admm import FederatedNotearsADMM
from skprivbn.structure._pooled_notears import Notears
from skprivbn.structure._private_k2 import PrivateK2StructureLearner
from skprivbn.structure._voting import VotingStructureLearner

__all__ = [
    "FederatedGaussianBayesianNetwork",
    "FederatedNotearsADMM",
    "K2StructureLearner",
    "PrivateK2StructureLearner",
    "FederatedDynotears",
    "Notears",
    "VotingStructureLearner",
]
