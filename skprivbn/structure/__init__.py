"""Structure learning: graphs of Bayesian networks from rows or columns of parties."""

# not from deeper: CPython 3.11 maps memory at thousands of calls in deep imports
import sklearn  # noqa: F401

from skprivbn.structure._hidden_causes import FederatedFCI
from skprivbn.structure._voting import VotingStructureLearner
from skprivbn.structure.admm._dynotears import FederatedDynotears
from skprivbn.structure.admm._notears import FederatedNotearsADMM
from skprivbn.structure.collective._estimator import CollectiveBayesianNetwork
from skprivbn.structure.gaussian._federated import FederatedGaussianBayesianNetwork
from skprivbn.structure.gaussian._notears import Notears
from skprivbn.structure.k2._pooled import K2StructureLearner
from skprivbn.structure.k2._private import PrivateK2StructureLearner
from skprivbn.structure.rows._federated import FederatedBayesianNetwork

__all__ = [
    "CollectiveBayesianNetwork",
    "FederatedBayesianNetwork",
    "FederatedFCI",
    "FederatedGaussianBayesianNetwork",
    "FederatedNotearsADMM",
    "K2StructureLearner",
    "PrivateK2StructureLearner",
    "FederatedDynotears",
    "Notears",
    "VotingStructureLearner",
]
