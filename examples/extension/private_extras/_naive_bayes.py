"""Gaussian naive Bayes from one secure sum."""

import numpy as np
from scipy.stats import norm
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import validate_data

from skprivbn.base import FederatedEstimator, by_holders
from skprivbn.federation import PartyRefusal, RowWeights, Sum, Terms, program
from skprivbn.programs import keep_predictions, score_rows


@program(Terms)
def class_moments(me):
    """Add up counts, sums and squares of the rows in each of two classes."""
    X, y = np.asarray(me.numbers()), me.block["y"]
    if not np.isin(y, [0, 1]).all():
        raise PartyRefusal("invalid-data")
    rows = np.column_stack([np.ones(len(X)), X, X**2])
    classes = np.column_stack([y == 0, y == 1])
    sums = [rows[y == label].sum(axis=0) for label in (0, 1)]
    # the rows of each class: nobody reads a sum with too few effective rows
    weights = RowWeights.of(classes)
    total = yield Sum(sums, "number, sums and squares of rows by class", weights)
    total = total.reshape(2, -1)
    counts, (sums, squares) = total[:, :1], np.split(total[:, 1:], 2, axis=1)
    theta = sums / counts
    return {
        "theta": theta,
        "var": squares / counts - theta**2,
        "prior": (counts / counts.sum()).ravel(),
    }


class FederatedNaiveBayes(FederatedEstimator, ClassifierMixin):
    """Gaussian naive Bayes for classes 0 and 1, from rows of several parties."""

    protocols = (class_moments, score_rows, keep_predictions)

    def __init__(self, backend="masking"):
        self.backend = backend

    def _learn(self, partition):
        found = self._run(partition, class_moments, Terms())
        self.theta_, self.var_ = found["theta"], found["var"]
        self.class_prior_, self.classes_ = found["prior"], np.array([0, 1])

    @by_holders
    def predict(self, X):
        """Return the more probable class of each row."""
        X = validate_data(self, X, reset=False)[:, None]
        likelihood = norm.logpdf(X, self.theta_, np.sqrt(self.var_)).sum(axis=2)
        return np.argmax(likelihood + np.log(self.class_prior_), axis=1)

    def _row_scores(self, X, y):
        return (self.predict(X) == y).astype(float)

    @classmethod
    def _learnt_shapes(cls, n_features):
        shape = 2, n_features
        return {"theta_": shape, "var_": shape, "class_prior_": (2,)}
