"""Tables chosen in rounds: budget, distances, choices, and the whole of it."""

from itertools import combinations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skprivbn.graphical_model import DPCGMLearner
from skprivbn.graphical_model._adaptive import (
    AdaptiveSearch,
    MeasuredTables,
    choose_tables,
)
from skprivbn.graphical_model._elimination import elimination_order
from skprivbn.graphical_model._searches import distances
from skprivbn.graphical_model._tables import Contribution, TableLayout, count_tables
from skprivbn.inspection import privacy_report
from skprivbn.privacy import PrivacyAccountant
from skprivbn.utils._memoise import ask


def rows_of(n_rows=5000, seed=0):
    """Five columns: a chain of three, and two that depend on both ends of it."""
    rng = np.random.default_rng(seed)
    X = rng.integers(3, size=(n_rows, 5))
    for i, j in ((0, 1), (1, 2)):
        copied = rng.random(n_rows) < 0.7
        X[copied, j] = X[copied, i]
    X[:, 3] = (X[:, 0] + X[:, 2]) % 3
    flipped = rng.random(n_rows) < 0.2
    X[flipped, 3] = rng.integers(3, size=flipped.sum())
    return X


def learner(cliques="aim", **parameters):
    accountant = PrivacyAccountant(epsilon=np.inf, delta=0.1)
    defaults = {"epsilon": 4.0, "states": [3] * 5, "accountant": accountant}
    return DPCGMLearner(cliques, **{**defaults, **parameters})


def empirical(X, columns, n_states=3):
    table = np.zeros([n_states] * len(columns))
    np.add.at(table, tuple(X[:, i] for i in columns), 1)
    return table / len(X)


def mean_error(model, X, order=2):
    sets = combinations(range(X.shape[1]), order)
    gaps = [np.abs(model.marginal(c) - empirical(X, c)).sum() / 2 for c in sets]
    return np.mean(gaps)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("n_columns", [2, 5, 12, 40])
def test_shares_of_the_budget(n_columns, delta):
    budget = AdaptiveSearch(1.0, delta, n_columns, per_record=3)
    rounds = range(budget.n_rounds)
    n_distances = sum(budget.n_pairs(r) + budget.n_triples(r) for r in rounds)
    numbers = [n_columns, n_distances, budget.n_rounds * budget.n_tables]
    order = 1 if delta == 0 else 2
    costs = [n * (3 * u) ** order for n, u in zip(numbers, budget.units)]
    assert_allclose(sum(costs) ** (1 / order), budget.noise.sensitivity)
    # units are integers, so that shares are met roughly
    assert_allclose(np.array(costs) / sum(costs), [0.1, 0.15, 0.75], atol=0.07)


def test_one_column_spends_everything_on_its_table():
    budget = AdaptiveSearch(1.0, 0.0, 1)
    assert budget.n_rounds == 0
    assert budget.noise.sensitivity == budget.units[0]


def test_a_small_budget_is_not_spread_over_many_rounds():
    rounds = {
        (epsilon, delta): AdaptiveSearch(epsilon, delta, 5).n_rounds
        for epsilon in (0.1, 1.0, None)
        for delta in (0.0, 1e-6)
    }
    few = [case for case, n in rounds.items() if n == 3]
    assert few == [(0.1, 0.0), (0.1, 1e-6), (1.0, 0.0)]
    assert set(rounds.values()) == {3, 5}


@pytest.mark.parametrize("seed", range(30))
def test_a_person_moves_a_distance_by_no_more_than_it_counts(seed):
    rng = np.random.default_rng(seed)
    shape = (3, 4)
    table = rng.integers(0, 20, size=shape)
    expected = rng.integers(0, 2**20, size=shape) * (rng.random(shape) < 0.5)
    added = np.zeros(shape, dtype=int)
    amount = rng.integers(1, 6)
    for _ in range(amount):
        added[rng.integers(3), rng.integers(4)] += 1
    before = distances([table], [expected])[0]
    after = distances([table + added], [expected])[0]
    assert abs(after - before) <= amount


def test_distances_are_half_the_sum_of_absolute_differences():
    table = np.array([[30, 10], [0, 20]])
    expected = np.array([[1, 1], [1, 1]])
    assert distances([table], [expected])[0] == (15 + 5 + 15 + 5) // 2
    # a record where the model expects none is far by all of itself
    assert distances([np.array([0, 1])], [np.array([1, 0])])[0] == 1
    assert distances([np.zeros(2, dtype=int)], [np.zeros(2, dtype=int)])[0] == 0


def test_distances_of_huge_counts_do_not_overflow():
    table = np.array([2**55, 0])
    expected = np.array([2**19, 2**19])
    assert distances([table], [expected])[0] == 2**54


def test_releases_of_one_table_are_averaged_by_their_precision():
    measured = MeasuredTables((2,), 10.0, "gaussian")
    measured.add([(0,)], np.array([100, 200]), 1)
    measured.add([(0,)], np.array([330, 570]), 3)
    tables = measured.tables()
    # variances 100 and 100 / 9
    assert_allclose(tables.values, np.average([[100, 200], [110, 190]], 0, [1, 9]))
    assert_allclose(tables.std, np.sqrt(1 / (1 / 100 + 9 / 100)))
    assert_allclose(measured.counts[0,] / measured.units[0,], tables.values)


def test_many_marginals_at_once_are_those_of_the_field():
    rng = np.random.default_rng(0)
    layout = TableLayout([(0, 1), (1, 2), (2, 3), (3, 4)], [3, 2, 4, 2, 3])
    theta = rng.normal(size=layout.n_parameters)
    whole = TableLayout([*layout.cliques, (0, 1, 2, 3, 4)], layout.sizes)
    joint = whole.split(
        whole.marginals(np.r_[theta, np.zeros(whole.n_parameters - theta.size)])[1]
    )[-1]
    scopes = [c for k in (1, 2, 3) for c in combinations(range(5), k)]
    for cap in (1, 40, 10**6):
        for scope, found in zip(scopes, layout.query(theta, scopes, cap)):
            others = tuple(i for i in range(5) if i not in scope)
            assert_allclose(found, joint.sum(axis=others), atol=1e-12)


def test_choices_keep_the_model_small_and_spread_out():
    sizes = [10] * 6
    scores = {c: 100.0 - sum(c) for c in combinations(range(6), 2)}
    chosen = choose_tables(scores, 15, [], sizes, 10**3)
    assert elimination_order(chosen, sizes)[1] <= 10**3
    assert chosen[0] == (0, 1)
    everything = choose_tables(scores, 15, [], sizes, 10**6)
    assert set(everything) == set(scores)
    scores = {(0, 1, 2): 9.0, (0, 1): 8.0, (2, 3): 7.0}
    assert choose_tables(scores, 2, [], [2] * 4, 100) == [(0, 1, 2), (2, 3)]
    assert choose_tables(scores, 3, [], [2] * 4, 100)[2] == (0, 1)


def asked_without_noise(X, search):
    """Questions of a search on exact tables, and what it finds."""
    sizes, asked = [3] * X.shape[1], []

    def answer(question):
        asked.append(question)
        return question.answer(lambda t: count_tables(X, t, Contribution()), sizes)

    return ask(search.asking(sizes, None), answer), asked


@pytest.mark.slow
def test_without_noise_the_order_of_columns_plays_no_part():
    X, order = rows_of(), [3, 0, 4, 2, 1]
    # of three rounds: after them the model misses nothing, and roundings would choose
    search, found = AdaptiveSearch(0.5, 1e-6, 5, max_model_cells=10**5), []
    for names in (list(range(5)), order):
        measured, _ = asked_without_noise(X[:, names], search)
        found.append({frozenset(names[i] for i in c) for c in measured["cliques"]})
    assert found[0] == found[1]


def first_choice(workload):
    """Pairs that are chosen in the first round, without noise."""
    search = AdaptiveSearch(1.0, 0.0, 5, workload=workload, max_model_cells=10**5)
    _, (_, _, chosen, *_) = asked_without_noise(rows_of(), search)
    return chosen.cliques


def test_a_workload_says_which_tables_come_first():
    assert {(0, 1), (1, 2)} <= set(first_choice(None))
    wanted = first_choice({(3, 4): 1.0})
    assert all({3, 4} & set(clique) for clique in wanted)
    heavier = first_choice({(3, 4): 1.0, (0, 1): 100.0})
    assert heavier[0] == (0, 1)


def test_three_columns_that_only_depend_together_are_found():
    rng = np.random.default_rng(0)
    X = rng.integers(2, size=(4000, 5))
    X[:, 4] = X[:, 0] ^ X[:, 2]
    found = learner(epsilon=2.0, delta=1e-6, states=[2] * 5).fit(X)
    assert ("x0", "x2", "x4") in found.cliques_
    assert_allclose(found.marginal((0, 2, 4)), empirical(X, (0, 2, 4), 2), atol=0.02)


CASES = {
    "laplace": {},
    "gaussian": {"delta": 1e-6},
    "naive": {"delta": 1e-6, "method": "naive"},
    "small": {"delta": 1e-6, "clique_params": {"max_model_cells": 27}},
    "workload": {
        "delta": 1e-6,
        "clique_params": {"workload": {(0, 3): 2.0, ("x1", "x2"): 1.0}},
    },
}


@pytest.mark.parametrize("name", CASES)
def test_one_holder(name):
    X = rows_of()
    found = learner(**CASES[name]).fit(X)
    assert mean_error(found, X) < 0.04
    assert found.n_samples_ == pytest.approx(5000, abs=200)
    own = found.clique_params or {}
    assert found.largest_clique_ <= own.get("max_model_cells", 2**19)
    assert found.privacy_spent_ == (4.0, found.delta)
    assert set(found.noisy_tables_) == set(found.cliques_)
    for clique, table in found.noisy_tables_.items():
        assert table.dtype == np.int64
        assert_allclose(
            found.noisy_marginals_[clique] * found.n_samples_,
            table / found.table_unit_[clique],
        )
        assert found.table_std_[clique] > 0
    tables = {c: t / found.table_unit_[c] for c, t in found.noisy_tables_.items()}
    again = learner(
        states=dict.fromkeys(found.network_.nodes, 3), method=found.method
    ).fit_marginals(tables, list(found.table_std_.values()), found.noise_.kind)
    for clique, potential in found.potentials_.items():
        assert_allclose(again.potentials_[clique], potential, atol=1e-6)


def test_more_tables_than_a_tree_can_hold():
    X = rows_of()
    adaptive, tree = (learner(cliques, delta=1e-6).fit(X) for cliques in ("aim", "mst"))
    assert mean_error(adaptive, X, 3) < 0.7 * mean_error(tree, X, 3)


def test_expected_errors_are_of_the_size_of_errors():
    X = rows_of()
    found = learner(epsilon=0.5, delta=1e-6).fit(X)
    expected, actual = [], []
    for clique, error in found.expected_error_.items():
        columns = [int(name[1:]) for name in clique]
        expected.append(error)
        actual.append(np.abs(found.marginal(columns) - empirical(X, columns)).sum() / 2)
    assert set(combinations(found.network_.nodes, 2)) <= set(found.expected_error_)
    assert 0.4 < np.mean(expected) / np.mean(actual) < 3
    assert min(expected) > 0  # noise leaves nothing that is known exactly


def test_persons_and_weights_and_missing_entries():
    X, person = rows_of(), np.repeat(np.arange(1000), 5)
    options = {"delta": 1e-6}
    normalized = learner(contribution="normalize", **options)
    normalized.fit(X, individual=person)
    assert normalized.n_samples_ == pytest.approx(1000, abs=60)
    assert mean_error(normalized, X) < 0.08
    clipped = learner(contribution={"kind": "clip", "max_records": 2}, **options)
    clipped.fit(X, individual=person)
    assert clipped.n_samples_ == pytest.approx(2000, abs=100)
    weighted = learner(contribution={"max_weight": 2}, **options)
    weighted.fit(X, sample_weight=np.full(len(X), 2))
    assert weighted.n_samples_ == pytest.approx(10_000, abs=300)
    holes = X.astype(float)
    holes[np.random.default_rng(0).random(X.shape) < 0.2] = np.nan
    skipped = learner(missing="skip", **options).fit(holes)
    assert mean_error(skipped, X) < 0.06


@pytest.mark.parametrize("n_columns", [1, 2])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_few_columns(n_columns, delta):
    X = rows_of()[:, :n_columns]
    found = learner(states=[3] * n_columns, delta=delta).fit(X)
    columns = range(n_columns)
    assert_allclose(found.marginal(columns), empirical(X, columns), atol=0.05)


@pytest.mark.parametrize("n_rows", [1, 3])
def test_hardly_any_rows_raise_nothing(n_rows):
    found = learner(delta=1e-6, epsilon=0.01).fit(rows_of()[:n_rows])
    assert np.isfinite(found.score(rows_of()))


def test_exact_tables_are_chosen_the_same_way():
    X = rows_of()
    with pytest.warns(Warning, match="exact tables"):
        found = learner(epsilon=None).fit(X)
    assert mean_error(found, X) < 0.01
    assert found.noise_ is None


def test_released_integers_are_the_only_use_of_the_rows(monkeypatch):
    """Two data sets with the same releases give the same field."""
    from skprivbn.privacy import CountMechanism

    X = rows_of()
    taped = []
    original = CountMechanism.release
    monkeypatch.setattr(
        CountMechanism,
        "release",
        lambda self, counts: taped.append(original(self, counts)) or taped[-1],
    )
    first = learner(delta=1e-6).fit(X)
    played = iter(taped)
    monkeypatch.setattr(CountMechanism, "release", lambda self, counts: next(played))
    second = learner(delta=1e-6).fit(np.zeros_like(X))
    assert first.cliques_ == second.cliques_
    for clique, potential in first.potentials_.items():
        assert_array_equal(second.potentials_[clique], potential)
    assert first.expected_error_ == second.expected_error_


BAD = {
    "stationary": ({"clique_params": {"stationary": True}}, "chain"),
    "zeros": (
        {"clique_params": {"structural_zeros": {(0, 1): np.zeros((3, 3), bool)}}},
        "a list",
    ),
    "psgd": ({"method": "psgd", "delta": 1e-6}, "given cliques"),
    "workload of a tree": (
        {"cliques": "mst", "clique_params": {"workload": [(0, 1)]}},
        "'aim' only",
    ),
    "workload": ({"clique_params": {"workload": {(0, 9): 1.0}}}, "no column"),
    "weights": ({"clique_params": {"workload": {(0, 1): -1.0}}}, "not negative"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_combined_costs_nothing(name):
    parameters, message = BAD[name]
    accountant = PrivacyAccountant(epsilon=10.0, delta=1e-4)
    with pytest.raises(ValueError, match=message):
        learner(**{"accountant": accountant, **parameters}).fit(rows_of())
    assert accountant.spent().epsilon == 0


def test_counts_of_candidates_agree_with_those_of_the_rows():
    X = rows_of(200)
    budget = AdaptiveSearch(1.0, 1e-6, 5)
    layout = TableLayout([(0, 1), (1, 2, 4)], [3] * 5)
    counts = count_tables(X, layout, Contribution())
    question = budget.chosen(layout.cliques)
    told = question.answer(lambda t: count_tables(X, t, Contribution()), [3] * 5)
    assert_array_equal(told, budget.units[2] * counts)


def test_the_privacy_report_says_how_far_tables_may_be_off():
    found = learner(delta=1e-6).fit(rows_of())
    page = privacy_report(found)
    worst = max(found.expected_error_, key=found.expected_error_.get)
    assert "Accuracy to expect" in page
    assert ", ".join(worst) in page
    assert f"{100 * found.expected_error_[worst]:.1f} %" in page
