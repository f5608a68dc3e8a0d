"""Graphs and probabilities from tables with noise."""

import numpy as np
import pandas as pd
import pytest

from skprivbn.bayesian_network._labels import count_rows
from skprivbn.datasets import load_asia
from skprivbn.exceptions import BudgetExceededError
from skprivbn.graphical_model._release import release_tables
from skprivbn.privacy import PrivacyAccountant
from skprivbn.structure import FederatedBayesianNetwork
from skprivbn.structure._scores import TableScores
from skprivbn.structure._tables import ReleasedTables

pytestmark = pytest.mark.filterwarnings(
    "ignore::skprivbn.exceptions.PrivacyLeakWarning"
)

ASIA = load_asia()
STATES = {node: list(labels) for node, labels in ASIA.states.items()}


def sample(n=2000):
    X = pd.DataFrame(ASIA.sample(n, random_state=0), columns=ASIA.nodes)
    return X, X.index % 3


@pytest.mark.parametrize("method", ["hill_climbing", "ges", "k2"])
def test_next_to_no_noise_gives_the_exact_network(method):
    X, party = sample()
    options = {"method": method, "max_parents": 2, "states": STATES}
    noisy = FederatedBayesianNetwork(epsilon=2e3, **options).fit(X, party=party)
    exact = FederatedBayesianNetwork(**options).fit(X, party=party)
    assert noisy.network_.edges == exact.network_.edges
    for node, cpt in exact.network_.cpts.items():
        np.testing.assert_allclose(noisy.network_.cpts[node], cpt, atol=1e-2)
    assert noisy.n_samples_ == pytest.approx(2000, abs=1)
    assert noisy.privacy_spent_.epsilon == 2e3
    assert not hasattr(exact, "privacy_spent_")


def test_one_release_of_all_sets_or_of_known_families():
    X, party = sample()
    options = {"epsilon": 1.0, "states": STATES}
    free = FederatedBayesianNetwork(max_parents=1, **options).fit(X, party=party)
    assert len(free.tables_) == 8 * 7 / 2
    known = FederatedBayesianNetwork(structure=ASIA.parents, **options)
    known.fit(X, party=party)
    # families that are part of others are not released again
    assert len(known.tables_) == 6
    words = "contingency tables, with noise"
    assert ("Noisy", words) in release_tables.rounds()
    hidden = {e.operation for e in known.ledger_.entries if e.kind == "masked"}
    assert hidden == {words}
    told = str(list(known.ledger_.who_learns_what()))
    assert "noisy release" in told or "private noise" in told


def test_rows_of_a_person_count_as_one():
    X, party = sample()
    person = X.index // 6
    model = FederatedBayesianNetwork(epsilon=2e3, max_parents=1, states=STATES)
    model.fit(X, party=person % 3, individual=person)
    assert model.n_samples_ == pytest.approx(len(set(person)), rel=0.02)
    by_rows = FederatedBayesianNetwork(epsilon=2e3, max_parents=1, states=STATES)
    assert by_rows.fit(X, party=party).n_samples_ == pytest.approx(2000, rel=0.02)


def test_the_budget_is_charged_first():
    X, party = sample(60)
    accountant = PrivacyAccountant(epsilon=1.0)
    options = {"max_parents": 1, "states": STATES, "accountant": accountant}
    FederatedBayesianNetwork(epsilon=0.8, **options).fit(X, party=party)
    with pytest.raises(BudgetExceededError):
        FederatedBayesianNetwork(epsilon=0.8, **options).fit(X, party=party)
    with pytest.raises(BudgetExceededError):
        FederatedBayesianNetwork(**options).fit(X, party=party)
    assert accountant.spent().epsilon == pytest.approx(0.8)


def test_overlapping_tables_are_averaged():
    rng = np.random.default_rng(0)
    codes = rng.integers(2, size=(500, 4))
    sizes, errors = [2, 2, 2, 2], []
    for _ in range(300):
        released = {
            pair: count_rows(codes, pair, sizes) + rng.normal(scale=3.0, size=(2, 2))
            for pair in [(0, 1), (0, 2), (0, 3)]
        }
        tables = ReleasedTables(released, sizes, 9.0)
        errors.append(tables([0]) - count_rows(codes, [0], sizes))
    assert tables.variance([0]) == pytest.approx(6.0)
    assert np.var(errors) == pytest.approx(6.0, rel=0.15)
    assert tables.variance([0, 1]) == 9.0


def gains(exact, noise, said, n_draws=100):
    """Return what one variable gains as parent of another, under draws of noise."""
    rng, found = np.random.default_rng(0), []
    for _ in range(n_draws):
        noisy = exact + np.rint(rng.normal(scale=noise, size=exact.shape))
        tables = ReleasedTables({(0, 1): noisy}, exact.shape, said)
        scores = TableScores(tables, 300, "bic")
        found.append(scores.added(1, [], [0])[0] - scores.score(1, []))
    return np.array(found) / 2**24


def test_noise_does_not_look_like_dependence():
    rng = np.random.default_rng(0)
    codes = rng.integers(3, size=(300, 2))
    exact = count_rows(codes, (0, 1), [3, 3])
    assert np.mean(gains(exact, 20.0, 400.0) > 0) < 0.05
    # without the correction, noise is taken for dependence
    assert np.mean(gains(exact, 20.0, 0.0) > 0) > 0.5


@pytest.mark.parametrize("criterion", ["bic", "k2", "bdeu"])
def test_the_score_of_a_noisy_table_is_that_of_the_exact_one_on_average(criterion):
    rng = np.random.default_rng(0)
    exact = rng.integers(150, 400, (3, 4)).astype(float)

    def score(table, said):
        tables = ReleasedTables({(0, 1): table}, exact.shape, said)
        return TableScores(tables, exact.sum(), criterion).score(0, [1]) / 2**24

    true = score(exact, 0.0)
    # noise and its mirror image: what is left is its effect to second order
    draws = rng.normal(scale=20.0, size=(400, *exact.shape))
    errors = {
        said: np.mean(
            [score(exact + sign * d, said) for d in draws for sign in (1, -1)]
        )
        - true
        for said in (400.0, 0.0)
    }
    assert errors[0.0] > 3
    assert abs(errors[400.0]) < 0.1 * errors[0.0]


def test_dependence_shows_through_noise():
    equal = 100 * np.eye(3)
    assert np.mean(gains(equal, 8.0, 64.0) > 0) > 0.95
    # and next to no noise changes next to nothing
    np.testing.assert_allclose(
        gains(equal, 0.0, 1e-9), gains(equal, 0.0, 0.0), atol=0.1
    )


@pytest.mark.parametrize(
    "options, message",
    [
        ({"states": None}, "epsilon needs states="),
        ({"count_params": {"min_cell_count": 5}}, "min_cell_count is not available"),
        ({"missing": "em"}, "is not available with epsilon"),
        ({"states": {"asia": "continuous"}}, "continuous' is not available"),
        ({"search_params": {"tabu_length": 3}}, "compare scores of whole graphs"),
    ],
)
def test_options_that_do_not_go_with_noise(options, message):
    X, party = sample(60)
    model = FederatedBayesianNetwork(**{"epsilon": 1.0, "states": STATES} | options)
    with pytest.raises(ValueError, match=message):
        model.fit(X, party=party)


def test_too_many_sets_are_refused():
    X = pd.DataFrame(np.zeros((9, 60), dtype=int)).rename(columns="c{}".format)
    model = FederatedBayesianNetwork(epsilon=1.0, states=[2] * 60)
    with pytest.raises(ValueError, match="lower max_parents"):
        model.fit(X)


@pytest.mark.filterwarnings("ignore:this is the second fit")
def test_gaps_and_strange_values_do_not_raise():
    X, party = sample(30)
    X = X.astype(object)
    model = FederatedBayesianNetwork(epsilon=1e4, max_parents=1, states=STATES)
    for row in ([None] * 8, [np.nan] * 8, ["perhaps"] * 8, [np.inf] * 8):
        X.iloc[3] = row
        # left out as a whole: noise alone decides whether anybody can tell
        assert model.fit(X, party=party).n_samples_ == pytest.approx(29, abs=0.5)
    with pytest.raises(ValueError, match="missing='error' is not available with"):
        model.set_params(missing="error").fit(X, party=party)
