"""Three third-party estimators and a backend, which run at sites."""

from private_extras._kmedians import PrivateKMedians
from private_extras._logistic import FederatedLogisticRegression
from private_extras._naive_bayes import FederatedNaiveBayes
from private_extras._pads import PadsBackend

__all__ = [
    "FederatedLogisticRegression",
    "FederatedNaiveBayes",
    "PadsBackend",
    "PrivateKMedians",
]
