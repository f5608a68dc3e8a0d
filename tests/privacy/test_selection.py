"""The best of a secret number of trials."""

import math
import warnings

import numpy as np
import pytest

from skprivbn.exceptions import BudgetExceededError
from skprivbn.graphical_model import DPCGMLearner
from skprivbn.privacy import PrivacyAccountant, PrivateSearchCV, _selection
from skprivbn.privacy._selection import PRICE, draw_n_trials, stop_probability
from tests.privacy.toys import NoisyHistogram

X = np.random.default_rng(0).choice(4, p=[0.7, 0.1, 0.1, 0.1], size=(2000, 1))


@pytest.mark.parametrize("mean", [1.0, 1.5, 3.0, 40.0])
def test_the_number_of_trials_has_the_distribution_and_mean_that_are_asked_for(mean):
    gamma = stop_probability(mean)
    drawn = np.array([draw_n_trials(mean) for _ in range(4000)])
    assert drawn.min() == 1
    if gamma == 1.0:
        assert drawn.max() == 1
        return
    k = np.arange(1, 4000)
    p = (1 - gamma) ** k / (k * math.log(1 / gamma))
    assert p.sum() == pytest.approx(1, abs=1e-6)
    assert p @ k == pytest.approx(mean, rel=1e-4)
    error = math.sqrt(p @ (k - mean) ** 2 / len(drawn))
    assert abs(drawn.mean() - mean) < 5 * error
    assert np.mean(drawn == 1) == pytest.approx(p[0], abs=0.05)


def best_of(q, gamma, fixed=None):
    """Distribution of the best trial, exactly, for outcomes in ascending order."""
    reached = np.append(0.0, np.cumsum(q))
    if fixed is None:
        # the generating function of the number of trials
        value = np.log1p(-(1 - gamma) * reached) / math.log(gamma)
    else:
        value = reached**fixed
    return np.diff(value)


def worst_ratio(epsilon, mean, rng, fixed=None):
    worst = 0.0
    for _ in range(300):
        # no outcome so rare that differences of sums are rounding errors
        q = rng.dirichlet(np.full(6, 0.3)) + 1e-4
        loud = q * np.exp(epsilon * np.append(rng.permutation([0, 1, 0, 1, 1]), 0))
        q, other = q / q.sum(), loud / loud.sum()
        true = np.abs(np.log(q / other)).max()
        a, b = (best_of(p, stop_probability(mean), fixed) for p in (q, other))
        known = (a > 1e-9) & (b > 1e-9)
        ratio = np.abs(np.log(a[known] / b[known])).max()
        worst = max(worst, ratio / true)
    return worst


@pytest.mark.parametrize("mean", [2.0, 20.0, 500.0])
def test_the_best_trial_costs_twice_one(mean):
    rng = np.random.default_rng(0)
    assert 1.0 < worst_ratio(1.0, mean, rng) <= PRICE
    # the twin: a number of trials that is known costs more, the more there are
    assert worst_ratio(1.0, mean, rng, fixed=int(mean) + 10) > PRICE


def search(**options):
    options = {"epsilon": 0.5, "refit": False} | options
    return PrivateSearchCV(
        NoisyHistogram(n_states=4, epsilon=0.5),
        {"prior": [1.0, 10.0, 1e4]},
        (-6.0, 0.0),
        method="random_trials",
        **options,
    )


def test_losers_cost_nothing_and_leave_no_trace():
    accountant = PrivacyAccountant(epsilon=10.0)
    found = search(accountant=accountant, n_trials=30).fit(X)
    # the larger of 0.5 and 0.5, twice; one entry, whatever was tried
    assert found.privacy_spent_.epsilon == 1.0
    (entry,) = accountant.history
    assert entry.epsilon == 1.0
    assert set(found.cv_results_) == {"param_prior", "params", "rank_test_score"}
    assert sorted(found.cv_results_["rank_test_score"]) == [1, 2, 2]
    assert found.n_splits_ == 1
    again = search(accountant=accountant, refit=True).fit(X)
    assert again.privacy_spent_.epsilon == 1.5
    with pytest.raises(BudgetExceededError):
        search(accountant=PrivacyAccountant(epsilon=0.9)).fit(X)


def test_enough_trials_find_the_best(monkeypatch):
    # their number is random, and may by chance be one
    monkeypatch.setattr(_selection, "draw_n_trials", lambda mean: 40)
    params = [search(epsilon=20.0).fit(X).best_params_ for _ in range(5)]
    assert sum(best["prior"] < 1e4 for best in params) >= 4


@pytest.mark.parametrize(
    "options, message",
    [({"delta": 1e-6}, "set delta=0"), ({"cv": 3}, "holds out rows once")],
)
def test_what_the_theorem_does_not_cover_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        search(**options).fit(X)


def test_parties_would_see_the_trials():
    with pytest.raises(ValueError, match="would all see them"):
        search().fit(X, party=np.arange(len(X)) % 3)


def field_search(**options):
    return PrivateSearchCV(
        DPCGMLearner("chain", method="naive", **options),
        {"method_params": [{"regularization": 1e-4}]},
        (-6.0, 0.0),
        method="random_trials",
    )


def warns_of_fits(n_trials, monkeypatch):
    """Tell whether a search says that an estimator was fitted before."""
    monkeypatch.setattr(_selection, "draw_n_trials", lambda mean: n_trials)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        field_search(states=[4]).fit(X)
    return any("second fit" in str(warning.message) for warning in said)


def test_no_warning_tells_how_many_trials_there_were(monkeypatch):
    assert [warns_of_fits(n, monkeypatch) for n in (1, 2, 3)] == [False] * 3
    # the twin: after one trial, the winner's fit is the second without an accountant
    no_accountant = type(
        "NoAccountant", (PrivacyAccountant,), {"__new__": lambda cls, epsilon: None}
    )
    monkeypatch.setattr(_selection, "PrivacyAccountant", no_accountant)
    assert [warns_of_fits(n, monkeypatch) for n in (1, 2, 3)] == [True, False, False]


def test_fits_with_delta_or_exact_parts_are_refused():
    with pytest.raises(ValueError, match="delta=0"):
        field_search(states=[4], delta=1e-6).fit(X)
    with pytest.raises(ValueError, match="costs more than its epsilon"):
        field_search().fit(X)
