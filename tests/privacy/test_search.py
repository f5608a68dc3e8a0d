import math

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import (
    KFold,
    LeaveOneGroupOut,
    PredefinedSplit,
    ShuffleSplit,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from skprivbn.exceptions import BudgetExceededError, PrivacyLeakWarning
from skprivbn.privacy import (
    LeavePublicGroupOut,
    PrivacyAccountant,
    PrivateSearchCV,
    _selection,
)
from skprivbn.privacy._scores import STEPS, bounded_weights, check_individual
from skprivbn.privacy._selection import NoisyMax, private_splits
from tests.privacy.toys import NoisyHistogram, prove_epsilon, suspect_epsilon

BOUNDS = (-6.0, 0.0)


@pytest.fixture
def X():
    rng = np.random.default_rng(0)
    return rng.choice(4, p=[0.85, 0.1, 0.04, 0.01], size=(3000, 1))


def make_search(**options):
    # a prior of a million makes the histogram uniform: a bad candidate
    grid = {"prior": [1e6, 1.0]}
    return PrivateSearchCV(NoisyHistogram(), grid, BOUNDS, **options)


@pytest.mark.parametrize("method", ["noisy_scores", "report_noisy_max"])
@pytest.mark.parametrize("cv", [0.3, 3])
def test_the_better_candidate_wins_and_everything_is_charged(X, method, cv):
    accountant = PrivacyAccountant(epsilon=20.0)
    search = make_search(accountant=accountant, cv=cv, method=method).fit(X)
    assert search.best_params_ == {"prior": 1.0}
    assert search.best_index_ == 1
    n_splits = cv if isinstance(cv, int) else 1
    assert search.n_splits_ == n_splits
    # the choice, the candidates' fits, the last fit
    cost = 1.0 + 2 * n_splits * 1.0 + 1.0
    assert accountant.spent().epsilon == pytest.approx(cost)
    assert search.privacy_spent_.epsilon == pytest.approx(cost)
    assert accountant.history[0].what == "choice among 2 candidates"
    assert search.best_estimator_.n_rows_ == len(X)
    assert search.score_samples(X).shape == (3000,)


def test_results_are_noisy_and_say_how_noisy(X):
    results = make_search(epsilon=2.0).fit(X).cv_results_
    assert set(results) == {
        "params",
        "param_prior",
        "mean_test_score",
        "std_test_score",
        "rank_test_score",
    }
    assert list(results["rank_test_score"]) == [2, 1]
    assert list(results["param_prior"]) == [1e6, 1.0]
    # the bad candidate is uniform on four states
    error = results["mean_test_score"][0] - math.log(1 / 4)
    assert 0 < abs(error) < 20 * results["std_test_score"][0]  # Laplace: e^-28


def test_only_the_winner_is_released_by_report_noisy_max(X):
    search = make_search(method="report_noisy_max").fit(X)
    assert set(search.cv_results_) == {"params", "param_prior", "rank_test_score"}
    assert not hasattr(search, "best_score_")
    with pytest.raises(ValueError, match="delta=0"):
        make_search(method="report_noisy_max", delta=1e-6).fit(X)


def test_gaussian_noise_is_charged_in_rho(X):
    accountant = PrivacyAccountant(epsilon=20.0, delta=1e-5)
    make_search(accountant=accountant, delta=1e-6).fit(X)
    choice = accountant.history[0]
    assert (choice.epsilon, choice.delta) == (1.0, 1e-6)
    assert choice.rho > 0


def test_without_refit_nothing_more_is_spent(X):
    accountant = PrivacyAccountant(epsilon=20.0)
    search = make_search(accountant=accountant, refit=False).fit(X)
    assert accountant.spent().epsilon == pytest.approx(3.0)
    with pytest.raises(AttributeError, match="refit=False"):
        search.score(X)


def test_the_winner_of_an_earlier_fit_is_forgotten(X):
    search = make_search(accountant=PrivacyAccountant(epsilon=20.0)).fit(X)
    search.set_params(refit=False, method="report_noisy_max").fit(X)
    assert not hasattr(search, "best_estimator_")
    assert not hasattr(search, "best_score_")


def test_budget_is_checked_before_anything_is_fitted():
    accountant = PrivacyAccountant(epsilon=0.5)
    with pytest.raises(BudgetExceededError, match="choice among 2"):
        make_search(accountant=accountant).fit(np.zeros((10, 1), int))
    assert accountant.spent().epsilon == 0


def test_the_estimators_accountant_is_charged_for_the_choice(X):
    accountant = PrivacyAccountant(epsilon=20.0)
    search = make_search().set_params(estimator__accountant=accountant)
    search.fit(X)
    assert accountant.spent().epsilon == pytest.approx(4.0)
    search.set_params(accountant=PrivacyAccountant(epsilon=20.0))
    with pytest.raises(ValueError, match="different accountants"):
        search.fit(X)


def test_candidates_do_not_split_the_spending(X):
    several = [PrivacyAccountant(epsilon=20.0) for _ in range(2)]
    search = PrivateSearchCV(NoisyHistogram(), {"accountant": several}, BOUNDS)
    with pytest.raises(ValueError, match="different accountants"):
        search.fit(X)
    search.set_params(accountant=several[0], param_grid={"accountant": several[1:]})
    with pytest.raises(ValueError, match="different accountants"):
        search.fit(X)
    assert all(accountant.history == () for accountant in several)


def test_steps_of_a_pipeline_are_charged(X):
    accountant = PrivacyAccountant(epsilon=20.0)
    pipeline = make_pipeline("passthrough", NoisyHistogram(epsilon=0.5))
    search = PrivateSearchCV(
        pipeline, {"noisyhistogram__prior": [1.0]}, BOUNDS, accountant=accountant
    ).fit(X)
    assert accountant.spent().epsilon == pytest.approx(2.0)
    assert search.privacy_spent_.epsilon == pytest.approx(2.0)


def test_an_exact_step_is_refused_by_the_accountant_or_warns(X):
    pipeline = make_pipeline(
        StandardScaler(), FunctionTransformer(np.round), GaussianMixture()
    )
    search = PrivateSearchCV(
        pipeline, {"gaussianmixture__n_components": [1]}, (-30, 10)
    )
    with pytest.warns(PrivacyLeakWarning, match="still tell about their rows"):
        search.fit(X)
    assert search.privacy_spent_.epsilon == math.inf
    accountant = PrivacyAccountant(epsilon=20.0)
    with pytest.raises(BudgetExceededError, match="exact release"):
        clone(search).set_params(accountant=accountant).fit(X)
    # the choice was paid for, and the account is still open
    assert accountant.spent().epsilon == pytest.approx(1.0)


@pytest.mark.slow
def test_processes_count_with_the_budget_file(X, tmp_path):
    accountant = PrivacyAccountant(epsilon=20.0, budget_file=tmp_path / "budget.json")
    make_search(accountant=accountant, n_jobs=2, cv=2).fit(X)
    assert accountant.spent().epsilon == pytest.approx(6.0)


@pytest.mark.parametrize("routing", [False, True])
def test_party_follows_its_rows(X, routing):
    party = np.where(X[:, 0] == 0, "zero", "other")
    with sklearn.config_context(enable_metadata_routing=routing):
        search = make_search().fit(X, party=party)
    np.testing.assert_array_equal(search.best_estimator_.party_, party)


def test_leave_one_party_out_with_routing(X):
    party = np.arange(3000) % 3
    with sklearn.config_context(enable_metadata_routing=True):
        splitter = LeavePublicGroupOut(range(3)).set_split_request(groups="party")
        search = make_search(cv=splitter).fit(X, party=party)
    assert search.n_splits_ == 3


def test_groups_without_routing(X):
    search = make_search(cv=LeavePublicGroupOut(["0", "1", "2"]))
    assert search.fit(X, groups=np.arange(3000) % 2).n_splits_ == 3


def test_weights_reach_scores_and_estimator():
    # by weight, state 1 is the common one
    X = np.repeat([[0], [1]], [3000, 2000], axis=0)
    weights = np.repeat([1, 9], [3000, 2000])
    search = PrivateSearchCV(
        NoisyHistogram(n_states=2, epsilon=50.0),
        {"prior": [1.0]},
        BOUNDS,
        epsilon=50.0,
        max_weight=9,
    ).fit(X, sample_weight=weights)
    p = 1800 / 2100
    expected = p * math.log(p) + (1 - p) * math.log(1 - p)
    assert search.best_score_ == pytest.approx(expected, abs=0.2)
    np.testing.assert_allclose(
        np.exp(search.best_estimator_.log_probabilities_), [1 - p, p], atol=0.02
    )
    # cut to the public bound: an error would tell of a row
    search.set_params(max_weight=1).fit(X, sample_weight=weights)
    expected = 0.6 * math.log(1 - p) + 0.4 * math.log(p)
    assert search.best_score_ == pytest.approx(expected, abs=0.2)


def test_classifiers_are_scored_by_the_probability_of_the_class():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=2000)
    X = y[:, None] + rng.normal(scale=0.3, size=(2000, 1))
    grid = {"priors": [[0.999, 0.001], None]}
    search = PrivateSearchCV(GaussianNB(), grid, (-5, 0))
    with pytest.warns(PrivacyLeakWarning):
        search.fit(X, y)
    assert search.best_params_ == {"priors": None}
    assert search.score(X, y) > 0.9
    np.testing.assert_array_equal(search.classes_, [0, 1])
    with pytest.raises(ValueError, match="requires y"):
        search.fit(X)


@pytest.mark.parametrize("cv", [1, 0.0, 1.0, 1.5, -2, "five"])
def test_wrong_cv(X, cv):
    with pytest.raises(ValueError, match="'cv' parameter"):
        make_search(cv=cv).fit(X)


def test_score_passes_weights_on():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=300)
    X = y[:, None] + rng.normal(size=(300, 1))
    search = PrivateSearchCV(GaussianNB(), {"var_smoothing": [1e-9]}, (-5, 0))
    with pytest.warns(PrivacyLeakWarning):
        search.fit(X, y)
    right = search.predict(X) == y
    assert search.score(X, y, sample_weight=right.astype(float)) == 1.0


def test_folds_are_drawn_row_by_row():
    splits = private_splits(4, None, None, np.arange(8000))
    tested = np.concatenate([test for _, test in splits])
    np.testing.assert_array_equal(np.sort(tested), np.arange(8000))
    for train, test in splits:
        assert abs(test.size - 2000) < 6 * math.sqrt(8000 * 3 / 16)
        assert np.intersect1d(train, test).size == 0
    ((train, test),) = private_splits(0.25, None, None, np.arange(8000))
    assert abs(test.size - 2000) < 6 * math.sqrt(8000 * 3 / 16)
    assert train.size + test.size == 8000


class RefusesThrees(NoisyHistogram):
    """A broken estimator: one row makes its fit fail."""

    def fit(self, X, y=None):
        super().fit(X)
        if np.any(X == 3):
            raise ValueError("what is a three?")
        return self


def test_a_fit_that_fails_ends_the_search(X):
    accountant = PrivacyAccountant(epsilon=20.0)
    grid = {"prior": [1e6, 1.0]}
    search = PrivateSearchCV(RefusesThrees(), grid, BOUNDS, accountant=accountant)
    with pytest.raises(ValueError, match="what is a three"):
        search.fit(X)
    # the choice and the first fit, which spent before it failed
    assert accountant.spent().epsilon == pytest.approx(2.0)


def test_rows_that_cannot_be_scored_count_as_worst(X):
    def scoring(model, X, y):
        if np.any(X == 3):
            raise ValueError("what is a three?")
        return np.zeros(len(X))

    search = make_search(epsilon=100.0, scoring=scoring, cv=2).fit(X)
    expected = -6.0 * np.mean(X == 3)
    np.testing.assert_allclose(
        search.cv_results_["mean_test_score"], expected, atol=0.01
    )


@pytest.mark.parametrize("cv", [3, 0.5, LeavePublicGroupOut([0, 1, 2])])
def test_nobody_is_judged_by_what_was_learnt_from_them(cv):
    persons, groups = np.arange(3000) // 3, np.arange(3000) % 3
    beside = {"groups": groups} if isinstance(cv, LeavePublicGroupOut) else {}
    splits = private_splits(cv, np.zeros((3000, 1)), None, persons, **beside)
    for train, test in splits:
        assert np.intersect1d(persons[train], persons[test]).size == 0
    if not beside:
        assert any(len(train) for train, _ in splits)
        tested = [set(persons[test]) for _, test in splits]
        assert sum(map(len, tested)) == len(set.union(*tested))


class TakesPersons(NoisyHistogram):
    """A histogram that hears of persons, and has no noise to speak of."""

    def fit(self, X, y=None, *, individual=None):
        return super().fit(X)


def audit_person(n_trials):
    """Audit a search on neighbours that differ in a person with ten rows."""
    rows = np.zeros((20, 1), dtype=int)
    more = np.append(rows, np.ones((10, 1), dtype=int), axis=0)
    search = PrivateSearchCV(
        TakesPersons(epsilon=1e-4),
        {"prior": [1e6]},
        (-1.0, 1.0),
        epsilon=1.5,
        cv=0.9,
        scoring=lambda model, X, y: X[:, 0],
        refit=False,
    )
    persons = {20: np.arange(20), 30: np.append(np.arange(20), np.full(10, 20))}

    def releases(X):
        searches = (
            clone(search).fit(X, individual=persons[len(X)]) for _ in range(n_trials)
        )
        return [s.best_score_ for s in searches]

    return releases(more), releases(rows)


@pytest.mark.slow
def test_audit_of_a_person_with_many_rows(monkeypatch):
    assert prove_epsilon(*audit_person(300)) <= 1.5
    # the broken twin: everybody's rows count in full
    monkeypatch.setattr(
        "skprivbn.privacy._search.bounded_weights", lambda weights, *_: weights
    )
    assert suspect_epsilon(*audit_person(300)) > 1.5


def test_rows_of_nobody_are_held_out_together_and_weigh_nothing(X):
    individual = np.arange(10).astype(object)
    individual[[2, 5, 7]] = None, np.nan, None
    persons = check_individual(individual, 10)
    assert persons.tolist() == [0, 1, -1, 2, 3, -1, 4, -1, 5, 6]
    weights = bounded_weights(np.ones(10, dtype=int), persons, 1)
    assert weights.tolist() == [1, 1, 0, 1, 1, 0, 1, 0, 1, 1]
    for _ in range(20):
        (_, test), *_ = private_splits(2, X[:10], None, persons)
        assert len({2, 5, 7} & set(test.tolist())) in (0, 3)


def together(n_draws=200):
    """Return how often two people are in the same one of two folds."""
    splits = (private_splits(2, None, None, np.arange(2)) for _ in range(n_draws))
    return sum(len(test) != 1 for (_, test), *_ in splits)


def test_where_a_person_is_says_nothing_of_others(monkeypatch):
    assert 60 < together() < 140
    # the broken twin draws again until there is somebody to learn from: who knows where
    # one of two people is then knows where the other one is
    coins = _selection._coins

    def drawn_again(persons):
        while np.all((drawn := coins(persons)) % 2 == drawn[0] % 2):
            pass
        return drawn

    monkeypatch.setattr(_selection, "_coins", drawn_again)
    assert together() == 0


def test_individuals_need_one_label_for_each_row(X):
    with pytest.raises(ValueError, match="2 labels for 3000 rows"):
        make_search().fit(X, individual=["a", "b"])


def test_folds_that_move_other_rows_warn():
    X = np.zeros((10, 1))
    rows = np.arange(10)
    with pytest.warns(PrivacyLeakWarning, match="KFold"):
        private_splits(KFold(2), X, None, rows)
    with pytest.warns(PrivacyLeakWarning, match="PredefinedSplit counts the groups"):
        private_splits(PredefinedSplit([0] * 5 + [1] * 5), X, None, rows)
    with pytest.warns(PrivacyLeakWarning, match="LeaveOneGroupOut counts the groups"):
        private_splits(LeaveOneGroupOut(), X, None, rows, groups=rows % 2)
    groups = {"groups": rows % 2}
    assert (
        len(private_splits(LeavePublicGroupOut([0, 1]), X, None, rows, **groups)) == 2
    )
    with (
        pytest.warns(PrivacyLeakWarning, match="ShuffleSplit"),
        pytest.raises(ValueError, match="several test folds"),
    ):
        private_splits(ShuffleSplit(5, test_size=0.5), X, None, rows)


GROUPS = {
    "numbers": [0, 1, 0, 2, 1],
    "a gap": [0, 1, 0, 2, None, 1],
    "text": ["0", "1", "0", "2", "somewhere", "1"],
    "mixed": [0, "1", 0.0, True, ["x"], "1.0"],
    "series": pd.Series([0, 1, 0, 2, 1]),
    "categories": pd.Categorical(["0", "1", "0", "2", "1"]),
}


@pytest.mark.parametrize("name", GROUPS)
def test_folds_of_declared_groups(name):
    """Whatever else is there, a row is held out with its group, and with no other."""
    groups, cv = GROUPS[name], LeavePublicGroupOut([0, 1, "x"])
    X = np.zeros((len(groups), 1))
    splits = list(cv.split(X, groups=groups))
    assert len(splits) == cv.get_n_splits() == 3
    last, extra = len(groups) - 1, [3] if name == "mixed" else []
    assert [test.tolist() for _, test in splits] == [[0, 2], [1, *extra, last], []]
    for train, test in splits:
        assert sorted([*train, *test]) == list(range(len(groups)))


def test_groups_must_be_declared_once():
    X, groups = np.zeros((2, 1)), [0, 1]
    for labels in ([], [0, "0"], [None]):
        with pytest.raises(ValueError, match="at least one group"):
            list(LeavePublicGroupOut(labels).split(X, groups=groups))
    with pytest.raises(ValueError, match="needs groups="):
        list(LeavePublicGroupOut([0, 1]).split(X))


def first_wins(totals, epsilon, n_releases=1000):
    choice = NoisyMax(epsilon, BOUNDS, 1)
    return [choice.release(totals, 0)[0] == 0 for _ in range(n_releases)]


def test_audit_of_the_choice():
    # one row lifts candidate 0 and lowers candidate 1, each by all it can
    half = STEPS // 2
    before, after = np.array([0, 0, -half]), np.array([half, -half, -half])
    assert prove_epsilon(first_wins(after, 1.0), first_wins(before, 1.0)) <= 1.0
    # the broken twin: a sixth of the noise
    assert suspect_epsilon(first_wins(before, 6.0), first_wins(after, 6.0)) > 1.0


class ForgetsNoise(NoisyHistogram):
    """A broken twin: charges epsilon, but its noise is for a hundred times more."""

    def fit(self, X, y=None, *, party=None, sample_weight=None):
        asked, self.epsilon = self.epsilon, 100 * self.epsilon
        super().fit(X)
        self.epsilon, self.privacy_spent_ = asked, (asked, 0.0)
        return self


@pytest.mark.parametrize("histogram, sound", [(NoisyHistogram, 1), (ForgetsNoise, 0)])
@pytest.mark.slow
def test_audit_of_the_whole_search(histogram, sound):
    # neighbours through fits and choice together: one more row, of state 3
    rows = np.array([[0]] * 12 + [[1]] * 8)
    neighbour = np.append(rows, [[3]], axis=0)
    search = PrivateSearchCV(
        histogram(epsilon=0.25), {"prior": [1e6, 1.0]}, BOUNDS, epsilon=0.5, cv=0.5
    )

    def evidence(X):
        best = clone(search).fit(X).best_estimator_
        # the two candidates differ in how much they hide the last state
        return best.log_probabilities_[3] - best.log_probabilities_[2]

    outcomes = [[evidence(X) for _ in range(200)] for X in (neighbour, rows)]
    claimed = search.epsilon + 3 * 0.25
    if sound:
        assert prove_epsilon(*outcomes) <= claimed
    else:
        assert suspect_epsilon(*outcomes) > claimed


CHECKED = [
    PrivateSearchCV(GaussianMixture(), {"n_components": [1]}, (-30, 0)),
    PrivateSearchCV(GaussianNB(), {"var_smoothing": [1e-9]}, (-5, 0)),
]


@pytest.mark.filterwarnings("ignore::skprivbn.exceptions.PrivacyLeakWarning")
@parametrize_with_checks(CHECKED)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_verbose_counts_the_fits(X, n_jobs, capsys, tmp_path):
    file = tmp_path / "budget.json"
    accountant = PrivacyAccountant(epsilon=20.0, budget_file=file)
    options = {"accountant": accountant, "cv": 3, "n_jobs": n_jobs}
    make_search(verbose=2, **options).fit(X)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6 + 1
    assert lines[0].startswith("[PrivateSearchCV] fit 1, ")
    assert lines[-1].startswith("[PrivateSearchCV] 6 fits, ")
    make_search(**options).fit(X)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("options", "total"),
    [
        ({"cv": 3}, 1.0 + 6.0 + 1.0),
        ({"cv": 0.3, "refit": False}, 1.0 + 2.0),
        ({"method": "random_trials"}, 2.0 + 1.0),
    ],
)
def test_a_search_that_costs_more_than_it_may_is_refused_before_it_begins(
    X, options, total
):
    accountant = PrivacyAccountant(epsilon=20.0)
    options |= {"accountant": accountant}
    with pytest.raises(BudgetExceededError, match=f"cost epsilon={total:g}, more than"):
        make_search(total_epsilon=total - 0.01, **options).fit(X)
    assert accountant.history == ()
    search = make_search(total_epsilon=total, **options).fit(X)
    assert search.privacy_spent_.epsilon == pytest.approx(total)
