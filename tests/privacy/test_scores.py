import math

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.mixture import GaussianMixture
from sklearn.naive_bayes import GaussianNB

from skprivbn.exceptions import BudgetExceededError
from skprivbn.privacy import PrivacyAccountant, private_score
from skprivbn.privacy._scores import (
    STEPS,
    NoisyScores,
    bounded_weights,
    clipped_sum,
    row_scores,
    weight_sum,
)
from tests.privacy.toys import prove_epsilon


class Given(BaseEstimator):
    """A model whose row scores are the rows themselves."""

    def score_samples(self, X):
        return np.asarray(X)[:, 0]


def column(*values):
    return np.array(values, dtype=float)[:, None]


def test_one_row_moves_the_sum_by_at_most_half_of_the_steps():
    bounds = (-3.0, 0.1)
    values = np.array([-math.inf, math.nan, -1e300, -3.0, -1.45, 0.1, 5.0, math.inf])
    one = np.ones(1, dtype=int)
    sums = [clipped_sum(np.array([value]), bounds, one) for value in values]
    half = STEPS // 2
    assert sums == [-half, -half, -half, -half, 0, half, half, half]


def test_sums_are_the_clipped_mean():
    rng = np.random.default_rng(0)
    scores, weights = rng.normal(-2, 2, size=500), rng.integers(4, size=500)
    total = clipped_sum(scores, (-5, 0), weights)
    mean = -2.5 + 5 * total / (STEPS * weights.sum())
    expected = np.average(np.clip(scores, -5, 0), weights=weights)
    assert mean == pytest.approx(expected, abs=5 / STEPS)


@pytest.mark.parametrize("max_weight", [1, 3, 7])
def test_one_person_moves_sums_by_at_most_their_weight(max_weight):
    rng = np.random.default_rng(0)
    for n_rows in (1, 2, 3, 7, 49, 1000):
        weights = rng.integers(1, max_weight + 1, size=n_rows)
        persons = np.zeros(n_rows, dtype=int)
        bounded = bounded_weights(weights, persons, max_weight)
        most = max_weight * (STEPS // 2)
        assert weight_sum(bounded) <= most
        for score in (-9.0, 9.0):
            scores = np.full(n_rows, score)
            assert abs(clipped_sum(scores, (-5, 0), bounded)) <= most


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_noise_is_as_large_as_stated(delta):
    release = NoisyScores.for_budget(1.0, delta, (-5, 0), n_scores=3)
    ones = np.ones(1000, dtype=int)
    truth = [-1.0, -2.5, -4.0]
    totals = [clipped_sum(np.full(1000, s), (-5, 0), ones) for s in truth]
    means, stds = zip(
        *(release.release(totals, weight_sum(ones))[:2] for _ in range(2000))
    )
    np.testing.assert_allclose(np.mean(means, axis=0), truth, atol=0.02)
    np.testing.assert_allclose(np.std(means, axis=0), np.mean(stds, axis=0), rtol=0.25)


def test_private_score_is_close_and_charged():
    X = np.random.default_rng(0).normal(-2, 0.5, size=(20_000, 1))
    accountant = PrivacyAccountant(epsilon=1.0, delta=1e-6)
    for delta in (0.0, 1e-7):
        score = private_score(
            Given(),
            X,
            epsilon=0.3,
            delta=delta,
            bounds=(-5, 0),
            accountant=accountant,
        )
        assert score == pytest.approx(X.mean(), abs=0.05)
    assert [spend.what for spend in accountant.history] == 2 * [
        "mean score of private rows"
    ]
    with pytest.raises(BudgetExceededError):
        private_score(
            Given(), object(), epsilon=0.6, bounds=(-5, 0), accountant=accountant
        )


def test_private_score_stays_within_the_bounds_however_few_rows():
    for _ in range(20):
        assert (
            -5 <= private_score(Given(), column(-1), epsilon=0.1, bounds=(-5, 0)) <= 0
        )


def test_weights_count_rows_several_times():
    X = np.concatenate([np.full((5000, 1), -1.0), np.full((5000, 1), -4.0)])
    weights = np.repeat([3, 1], 5000)
    options = {"epsilon": 5.0, "bounds": (-5, 0), "sample_weight": weights}
    score = private_score(Given(), X, max_weight=3, **options)
    assert score == pytest.approx(-1.75, abs=0.02)
    # cut to the public bound: an error would tell of a row
    score = private_score(Given(), X, max_weight=2, **options)
    assert score == pytest.approx(-2.0, abs=0.02)
    with pytest.raises(ValueError, match="shape"):
        private_score(
            Given(), X, epsilon=1.0, bounds=(-5, 0), sample_weight=weights[1:]
        )


@pytest.mark.parametrize("bounds", [(0, -5), (0, 0), (-math.inf, 0), 3, (1, 2, 3)])
def test_wrong_bounds(bounds):
    with pytest.raises(ValueError, match="low < high"):
        private_score(Given(), column(1), epsilon=1.0, bounds=bounds)


def test_row_scores_of_a_classifier():
    X, y = column(0, 0.1, 5, 5.1), np.array(["a", "a", "b", "b"])
    model = GaussianNB().fit(X, y)
    expected = model.predict_log_proba(X)[np.arange(4), [0, 0, 1, 1]]
    np.testing.assert_allclose(row_scores(model, X, y), expected, atol=1e-12)
    assert np.all(row_scores(model, X, np.full(4, "unseen")) == -math.inf)
    with pytest.raises(ValueError, match="needs y"):
        row_scores(model, X)


def test_row_scores_need_one_number_per_row():
    model = LinearRegression().fit(column(1, 2), [1, 2])
    with pytest.raises(TypeError, match="scoring="):
        row_scores(model, column(1, 2))
    with pytest.raises(ValueError, match="one number per row"):
        row_scores(model, column(1, 2), scoring=lambda m, X, y: 3.0)
    scores = row_scores(model, column(1, 2), scoring=lambda m, X, y: m.predict(X))
    np.testing.assert_allclose(scores, [1, 2])


#: rows that no mixture can score, or not without a warning
UNSCORABLE = {
    "missing": pd.NA,
    "text": "x",
    "beyond floats": 10**400,
    "date": pd.Timestamp(2026, 1, 1),
    "list": [1.0],
    "huge": 1e308,
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", UNSCORABLE.values(), ids=UNSCORABLE)
def test_a_row_that_cannot_be_scored_is_not_told(value):
    model = GaussianMixture().fit(column(-1, 0, 1))
    table = np.empty((3, 1), dtype=object)
    table[:, 0] = 0.5, value, -0.5
    scores = row_scores(model, table)
    assert not np.isfinite(scores[1]) or scores[1] < -1e100
    np.testing.assert_allclose(scores[[0, 2]], model.score_samples(column(0.5, -0.5)))
    # the twin: whoever asks for scores learns of the row
    with pytest.raises((Warning, ArithmeticError, TypeError, ValueError)):
        model.score_samples(table)


def test_mistakes_that_are_no_rows_are_told():
    X = column(0, 1)
    with pytest.raises(TypeError, match="positional"):
        row_scores(Given(), X, scoring=lambda model, X: X[:, 0])
    with pytest.raises(NotFittedError):
        row_scores(GaussianMixture(), X)
    with pytest.raises(ValueError, match="2 features, but GaussianMixture is expec"):
        row_scores(GaussianMixture().fit(X), np.zeros((3, 2)))


@pytest.mark.slow
def test_audit_of_private_scores():
    bounds, n = (-1, 0), 1500
    with_row, without_row = [
        [private_score(Given(), X, epsilon=1.0, bounds=bounds) for _ in range(n)]
        for X in (column(*[-0.5] * 20, 0.0), column(*[-0.5] * 20))
    ]
    assert prove_epsilon(with_row, without_row) <= 1.0
