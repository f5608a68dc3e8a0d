"""What an estimator of one's own is told by the base class."""

import numpy as np
import pytest
from sklearn.base import RegressorMixin

from skprivbn.base import FederatedEstimator
from skprivbn.federation import ALL_ROWS, Sum, Terms, program

X, PARTY = np.arange(12.0).reshape(6, 2), [*"abcabc"]


@program(Terms)
def slope(me):
    """The slope of the first column through zero."""
    x, y = np.asarray(me.numbers())[:, 0], me.block["y"]
    products, squares = yield Sum([x @ y, x @ x], "products", ALL_ROWS)
    return np.array([products / squares])


class Slope:
    protocols = (slope,)

    def _learn(self, partition):
        self.coef_ = self._run(partition, slope, Terms())

    def predict(self, X):
        return np.asarray(X)[:, 0] * self.coef_


class ScoredFirst(RegressorMixin, Slope, FederatedEstimator):
    pass


class ScoredLast(Slope, FederatedEstimator, RegressorMixin):
    pass


def test_an_estimator_without_learn_is_named():
    class Nothing(FederatedEstimator):
        pass

    with pytest.raises(NotImplementedError, match="Nothing must implement _learn"):
        Nothing().fit(X, party=PARTY)


def test_without_a_parameter_sums_are_masked():
    model = ScoredFirst().fit(X, 3 * X[:, 0], party=PARTY)
    assert model.coef_ == pytest.approx(3) and model.score(X, 3 * X[:, 0]) == 1


def test_a_missing_target_is_said_before_parties_are_asked():
    with pytest.raises(ValueError, match="ScoredLast requires y to be passed"):
        ScoredLast().fit(X, party=PARTY)


def test_what_cannot_be_scored_says_what_to_write():
    with pytest.raises(AttributeError) as caught:
        ScoredLast().fit(X, X[:, 0], party=PARTY).score(X, X[:, 0])
    assert "RegressorMixin as the first of its bases" in str(caught.value.__cause__)
