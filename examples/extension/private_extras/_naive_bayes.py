"""Gaussian naive Bayes from one secure sum."""

import numpy as np
from scipy.stats import norm
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from skprivbn.base import FederatedEstimator
from skprivbn.federation import Party, PartyRefusal, Terms, operation
from skprivbn.protocols import ModelParty


class ClassMomentsParty(Party):
    """A data holder: counts, sums and squares of its rows in each of two classes."""

    @operation(tells="number, sums and squares of its rows in each class", exact=True)
    def moments(self):
        """One sum, all that naive Bayes needs."""
        X, y = self.finite_numbers(), self.block["y"]
        if not np.isin(y, [0, 1]).all():
            raise PartyRefusal("invalid-data")
        rows = np.column_stack([np.ones(len(X)), X, X**2])
        return self.hide([rows[y == label].sum(axis=0) for label in (0, 1)])


class FederatedNaiveBayes(FederatedEstimator, ClassifierMixin):
    """Gaussian naive Bayes for classes 0 and 1, from rows of several parties."""

    protocols = (ClassMomentsParty, ModelParty)

    def __init__(self, backend="masking"):
        self.backend = backend

    def _learn(self, partition):
        with self._federate(partition, ClassMomentsParty, Terms()) as federation:
            total = np.reshape(federation.secure_sum("moments"), (2, -1))
        counts, (sums, squares) = total[:, :1], np.split(total[:, 1:], 2, axis=1)
        self.theta_ = sums / counts
        self.var_ = squares / counts - self.theta_**2
        self.class_prior_ = (counts / counts.sum()).ravel()
        self.classes_, self.ledger_ = np.array([0, 1]), federation.ledger

    def predict(self, X):
        """Return the more probable class of each row."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False)[:, None]
        likelihood = norm.logpdf(X, self.theta_, np.sqrt(self.var_)).sum(axis=2)
        return np.argmax(likelihood + np.log(self.class_prior_), axis=1)

    def _row_scores(self, X, y):
        return (self.predict(X) == y).astype(float)

    @classmethod
    def _learnt_shapes(cls, n_features):
        shape = 2, n_features
        return {"theta_": shape, "var_": shape, "class_prior_": (2,)}
