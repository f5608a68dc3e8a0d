"""Two estimators and a backend that are not part of skprivbn, and run on its sites."""

from private_extras._logistic import FederatedLogisticRegression
from private_extras._naive_bayes import FederatedNaiveBayes
from private_extras._pads import PadsBackend

__all__ = ["FederatedLogisticRegression", "FederatedNaiveBayes", "PadsBackend"]
