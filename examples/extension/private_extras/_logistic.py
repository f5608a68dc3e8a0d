"""Logistic regression by Newton's method, one secure sum a step."""

from dataclasses import dataclass

import numpy as np
from scipy.special import expit
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from skprivbn.base import FederatedEstimator
from skprivbn.federation import Party, PartyRefusal, Terms, operation
from skprivbn.protocols import ModelParty


@dataclass(frozen=True)
class NewtonTerms(Terms):
    """Public parameters: checked here, and again where they arrive."""

    C: float
    max_iter: int

    def check(self):
        """Say what makes no sense."""
        if self.C <= 0 or self.max_iter < 1:
            raise ValueError("C and max_iter must be positive")

    def rounds(self, n_parties):
        """Return two a step, and the release."""
        return 2 * self.max_iter + 1


class NewtonParty(Party):
    """A data holder: hides its derivatives, steps by itself from verified sums."""

    terms = NewtonTerms

    def prepare(self):
        """Check the own rows."""
        X, self.y = self.finite_numbers(), self.block["y"]
        if not np.isin(self.y, [0, 1]).all():
            raise PartyRefusal("invalid-data")
        self.X = np.column_stack([X, np.ones(len(X))])
        self.coef, self.converged = np.zeros(self.X.shape[1]), False

    def schedule(self):
        """Steps until they are small, then the result; nothing else is answered."""
        for _ in range(self.terms.max_iter):
            yield "derivatives"
            yield "step"
            if self.converged:
                break
        yield "release"

    @operation(tells="gradient and Hessian of the log-likelihood of its rows")
    def derivatives(self):
        """What a Newton step needs."""
        p = expit(self.X @ self.coef)
        hessian = (self.X.T * (p * (1 - p))) @ self.X
        return self.hide(np.append(self.X.T @ (self.y - p), hessian))

    @operation(tells="whether to go on")
    def step(self, total):
        """Every party does the same step."""
        d, total = len(self.coef), self.reveal(total)
        penalty = np.append(np.full(d - 1, 1 / self.terms.C), 0.0)
        gradient = total[:d] - penalty * self.coef
        step = np.linalg.solve(total[d:].reshape(d, d) + np.diag(penalty), gradient)
        self.coef, self.converged = self.coef + step, bool(np.abs(step).max() < 1e-8)
        return {"go_on": not self.converged}

    @operation(tells="the coefficients, rounded", kind="plaintext aggregate")
    def release(self):
        """Tell the result."""
        return {"coef": np.round(self.coef, 7)}


class FederatedLogisticRegression(FederatedEstimator, ClassifierMixin):
    """Logistic regression for classes 0 and 1, from rows of several parties."""

    protocols = (NewtonParty, ModelParty)

    def __init__(self, C=1.0, max_iter=25, backend="masking"):
        self.C = C
        self.max_iter = max_iter
        self.backend = backend

    def _learn(self, partition):
        terms = NewtonTerms(self.C, self.max_iter)
        n_iter, go_on = 0, True
        with self._federate(partition, NewtonParty, terms) as federation:
            while go_on and n_iter < self.max_iter:
                total = federation.secure_sum("derivatives")
                go_on = federation.agree("step", {"total": total})
                n_iter += 1
            coef = federation.unanimous("release", rtol=1e-6)["coef"]
        self.coef_, self.intercept_ = coef[None, :-1], coef[-1:]
        self.n_iter_ = n_iter
        self.classes_, self.ledger_ = np.array([0, 1]), federation.ledger

    def predict(self, X):
        """Return the more probable class of each row."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False)
        return (X @ self.coef_[0] + self.intercept_ > 0).astype(int)

    def _row_scores(self, X, y):
        return (self.predict(X) == y).astype(float)

    @classmethod
    def _learnt_shapes(cls, n_features):
        return {"coef_": (1, n_features), "intercept_": (1,)}
