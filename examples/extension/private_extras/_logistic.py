"""Logistic regression by Newton's method, one secure sum per step."""

from dataclasses import dataclass

import numpy as np
from scipy.special import expit
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import validate_data

from skprivbn.base import FederatedEstimator, by_holders
from skprivbn.federation import PartyRefusal, RowWeights, Sum, Terms, program
from skprivbn.programs import keep_predictions, score_rows


@dataclass(frozen=True)
class NewtonTerms(Terms):
    """Public parameters, checked here and again at every party."""

    C: float
    max_iter: int

    def check(self):
        """Check the parameters."""
        if self.C <= 0 or self.max_iter < 1:
            raise ValueError("C and max_iter must be positive")


@program(NewtonTerms)
def newton(me):
    """Iterate until convergence; all parties compute the same from verified totals."""
    X, y = np.asarray(me.numbers()), me.block["y"]
    if not np.isin(y, [0, 1]).all():
        raise PartyRefusal("invalid-data")
    X = np.column_stack([X, np.ones(len(X))])
    coef, n_iter = np.zeros(X.shape[1]), 0
    while n_iter < me.terms.max_iter:
        p = expit(X @ coef)
        gradient, hessian = X.T @ (y - p), (X.T * (p * (1 - p))) @ X
        # of the rows in the gradient and in the Hessian
        weights = RowWeights.of(np.column_stack([y - p, p * (1 - p)]))
        derivatives = np.append(gradient, hessian)
        total = yield Sum(derivatives, "gradient and Hessian", weights)
        step = newton_step(total, coef, me.terms.C)
        coef, n_iter = coef + step, n_iter + 1
        if np.abs(step).max() < 1e-8:
            break
    return {"coef": np.round(coef, 7), "n_iter": n_iter}


def newton_step(total, coef, C):
    """Return the Newton step of the penalised log-likelihood."""
    penalty = np.append(np.full(len(coef) - 1, 1 / C), 0.0)
    gradient, hessian = total[: len(coef)], total[len(coef) :].reshape(len(coef), -1)
    return np.linalg.solve(hessian + np.diag(penalty), gradient - penalty * coef)


class FederatedLogisticRegression(FederatedEstimator, ClassifierMixin):
    """Logistic regression for classes 0 and 1, from rows of several parties."""

    protocols = (newton, score_rows, keep_predictions)

    def __init__(self, C=1.0, max_iter=25, backend="masking"):
        self.C = C
        self.max_iter = max_iter
        self.backend = backend

    def _learn(self, partition):
        found = self._run(partition, newton, NewtonTerms(self.C, self.max_iter))
        self.coef_, self.intercept_ = found["coef"][None, :-1], found["coef"][-1:]
        self.n_iter_, self.classes_ = found["n_iter"], np.array([0, 1])

    @by_holders
    def predict(self, X):
        """Return the more probable class of each row."""
        X = validate_data(self, X, reset=False)
        return (X @ self.coef_[0] + self.intercept_ > 0).astype(int)

    def _row_scores(self, X, y):
        return (self.predict(X) == y).astype(float)

    @classmethod
    def _learnt_shapes(cls, n_features):
        return {"coef_": (1, n_features), "intercept_": (1,)}
