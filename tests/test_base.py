"""What an estimator of one's own is told by the base class."""

from dataclasses import dataclass

import numpy as np
import pytest
from sklearn.base import ClassifierMixin, RegressorMixin

from skprivbn.base import FederatedEstimator, PrivateEstimator
from skprivbn.federation import ALL_ROWS, Noisy, NoisyTerms, Sum, Terms, program
from skprivbn.privacy import CountMechanism

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


@dataclass(frozen=True)
class OnesTerms(NoisyTerms):
    """Terms of a noisy count of ones among the targets."""

    def mechanism(self, n_features):
        """Return noise for counts that a row changes by one."""
        return CountMechanism.for_budget(self.epsilon, self.delta, 1)


@program(OnesTerms)
def ones(me):
    counts = np.array([(me.block["y"] == label).sum() for label in (0, 1)])
    noise = me.terms.noise(2, len(me.roster))
    return (yield Noisy(counts, noise, "noisy counts of classes"))


class NoisyClasses(ClassifierMixin, PrivateEstimator):
    protocols, epsilon, delta, accountant, min_honest = (ones,), 50.0, 0.0, None, None

    def _learn(self, partition):
        terms = OnesTerms(epsilon=self.epsilon)
        self.counts_ = self._run_charged(partition, ones, terms, "counts of classes")


def test_the_target_reaches_parties_beside_noise():
    y = np.array([0, 1, 1, 1, 1, 0])
    assert NoisyClasses().fit(X, y, party=PARTY).counts_ == pytest.approx([2, 4], abs=1)
    with pytest.raises(ValueError, match="NoisyClasses requires y to be passed"):
        NoisyClasses().fit(X, party=PARTY)


def test_mistakes_of_authors_are_named_before_parties_are_asked():
    class Mistaken(FederatedEstimator):
        def __init__(self, program):
            self.program = program

        def _learn(self, partition):
            self._run(partition, self.program, Terms())

    with pytest.raises(TypeError, match=r"no program: mark it with @program\(Terms\)"):
        Mistaken(slope.function).fit(X, party=PARTY)
    with pytest.raises(TypeError, match="ones takes OnesTerms, got Terms"):
        Mistaken(ones).fit(X, party=PARTY)


def test_noise_cannot_be_added_without_a_charge():
    class Uncharged(NoisyClasses):
        def _learn(self, partition):
            self.counts_ = self._run(partition, ones, OnesTerms(epsilon=self.epsilon))

    with pytest.raises(TypeError, match="ones adds noise, which costs epsilon"):
        Uncharged().fit(X, X[:, 0] > 3, party=PARTY)


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
