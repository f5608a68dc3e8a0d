"""Trees chosen by several holders: budget, scores, refusals and the whole fit."""

import networkx
import numpy as np
import pytest
from numpy.testing import assert_allclose

from skprivbn.exceptions import PrivacyLeakWarning
from skprivbn.federation import Me
from skprivbn.graphical_model import DPCGMLearner
from skprivbn.graphical_model._release import TablesTerms, release_tables
from skprivbn.graphical_model._selection import (
    TreeSearch,
    all_pairs,
    dependence_tests,
    maximum_spanning_tree,
)
from skprivbn.graphical_model._tables import Contribution, TableLayout, count_tables
from skprivbn.privacy import PrivacyAccountant, distribute

#: a tree over five columns, one of them independent of the others
EDGES = [(0, 1), (1, 2), (1, 3)]


@pytest.fixture
def X():
    rng = np.random.default_rng(0)
    X = rng.integers(3, size=(6000, 5))
    for i, j in EDGES:
        copied = rng.random(6000) < 0.7
        X[copied, j] = X[copied, i]
    return X


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("n_columns", [2, 5, 12])
def test_a_record_changes_the_releases_by_the_sensitivity(X, delta, n_columns):
    budget = TreeSearch(1.0, delta, n_columns, per_record=3)
    rng = np.random.default_rng(1)
    rows = rng.integers(2, size=(9, n_columns))
    weight = np.array([1] * 8 + [3])
    tree = TableLayout([(0, j) for j in range(1, n_columns)], [2] * n_columns)
    change = []
    for layout, unit in (
        (all_pairs([2] * n_columns), budget.pair_unit),
        (tree, budget.edge_unit),
    ):
        before, after = (
            count_tables(rows[:n], layout, Contribution(max_weight=3), None, weight[:n])
            for n in (8, 9)
        )
        change.append(unit * (after - before))
    order = 1 if delta == 0 else 2
    norm = np.linalg.norm(np.concatenate(change), order)
    # reached by the heaviest record: neither too much noise nor too little
    assert_allclose(norm, budget.noise.sensitivity)
    shares = [np.linalg.norm(part, order) ** order for part in change]
    assert_allclose(shares[0], shares[1], rtol=0 if delta == 0 else 0.07)


def test_tests_of_independent_columns_are_around_zero():
    rng = np.random.default_rng(2)
    sizes = [2, 3, 10, 4]
    pairs = all_pairs(sizes)
    std = 20.0
    found = []
    for _ in range(200):
        X = np.column_stack([rng.integers(s, size=2000) for s in sizes])
        counts = count_tables(X, pairs, Contribution())
        noisy = counts + rng.normal(scale=std, size=counts.shape)
        found.append(list(dependence_tests(pairs, noisy, std).values()))
    found, n_cells = np.array(found), pairs.n_cells
    # A chi-square statistic minus its degrees of freedom; margins of the tables are
    # fitted, which takes off less than one per state.
    spread = np.sqrt(2 * n_cells / len(found))
    slack = np.array([sizes[i] + sizes[j] for i, j in pairs.cliques])
    assert np.all(np.abs(found.mean(axis=0)) < slack + 6 * spread)


def test_without_noise_the_tests_rank_pairs_as_mutual_information(X):
    pairs = all_pairs([3] * 5)
    counts = count_tables(X, pairs, Contribution())
    scores = dependence_tests(pairs, counts.astype(float), 0.0)
    tree = maximum_spanning_tree(scores, 5)
    assert set(EDGES) < set(tree)
    graph = networkx.Graph()
    graph.add_weighted_edges_from((i, j, s) for (i, j), s in scores.items())
    expected = networkx.maximum_spanning_tree(graph).edges
    assert {frozenset(e) for e in tree} == {frozenset(e) for e in expected}


def learner(**parameters):
    settings = {"epsilon": 20.0, "states": [3] * 5, "accountant": PrivacyAccountant(20)}
    return DPCGMLearner("mst", **{**settings, **parameters})


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"backend": "ckks"},
        {"delta": 1e-6, "accountant": PrivacyAccountant(20.0, 1e-6)},
    ],
    ids=["laplace", "ckks", "gaussian"],
)
def test_several_holders_find_the_tree(X, parameters):
    party = np.arange(len(X)) % 4
    found = learner(**parameters).fit(X, party=party)
    assert {("x0", "x1"), ("x1", "x2"), ("x1", "x3")} < set(found.cliques_)
    assert len(found.cliques_) == 4
    # noise on the total of a table, in records, is at most 12 standard deviations
    slack = 12 * found.noise_.std / found.table_unit_ * 3
    assert abs(found.n_samples_ - len(X)) < slack
    for clique, table in found.noisy_tables_.items():
        exact = np.zeros((3, 3))
        i, j = (int(name[1:]) for name in clique)
        np.add.at(exact, (X[:, i], X[:, j]), 1)
        assert table.dtype == np.int64
        assert np.abs(table / found.table_unit_ - exact).max() < slack
    assert found.noise_.n_parties == 4
    (release,) = found.ledger_.releases
    assert release.what == "all two-way tables, and those of a tree"
    assert found.privacy_spent_.epsilon == 20.0


def terms_for(**changes):
    fields = {
        "nodes": [f"x{i}" for i in range(5)],
        "states": [[0, 1, 2]] * 5,
        "bins": {},
        "contribution": Contribution(),
        "missing": "error",
        "epsilon": 1.0,
        "delta": 0.0,
        "min_honest": None,
        "cliques": "mst",
        "ties": [],
    }
    return TablesTerms(**{**fields, **changes})


def test_both_sides_calibrate_the_noise():
    terms = TablesTerms.from_payload(terms_for().to_payload())
    noise = terms.noise(5, 4)
    assert noise.epsilon == 1.0
    assert noise.sensitivity == 2 * 10 + 5 * 4
    assert noise == distribute(TreeSearch(1.0, 0.0, 5).noise, 4)
    weighted = terms_for(contribution=Contribution(max_weight=2))
    assert weighted.noise(5, 4).sensitivity == 2 * noise.sensitivity
    person = terms_for(contribution=Contribution("normalize"))
    assert person.noise(5, 4).sensitivity == 1024 * noise.sensitivity
    assert (terms.protects, person.protects) == ("rows", "individuals")


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_both_releases_cost_together_what_the_fit_is_charged(X, delta):
    terms = terms_for(delta=delta)
    steps = release_tables(Me({"X": X}, terms, "a", ("a",)))
    pairs = next(steps)
    tree = steps.send(pairs.counts)
    assert len(tree.counts) == 4 * 9
    whole, noises = terms.noise(5, 1), (pairs.noise, tree.noise)
    assert {noise.scale for noise in noises} == {whole.scale}
    if delta == 0:
        assert sum(noise.epsilon for noise in noises) == pytest.approx(1.0)
    else:
        assert sum(noise.rho for noise in noises) == pytest.approx(whole.rho, rel=1e-3)
    with pytest.raises(StopIteration) as stop:
        steps.send(tree.counts)
    assert {(0, 1), (1, 2), (1, 3)} < set(map(tuple, stop.value.value["edges"]))


def test_every_fit_is_charged_and_the_states_must_be_public(X):
    party = np.arange(len(X)) % 4
    twice = learner(accountant=None)
    twice.fit(X, party=party)
    with pytest.warns(PrivacyLeakWarning, match="second fit"):
        twice.fit(X, party=party)
    with pytest.raises(ValueError, match="need states="):
        learner(states=None).fit(X, party=party)


@pytest.mark.parametrize("cliques", ["chain", "mst"])
def test_noise_that_does_not_fit_costs_nothing(X, cliques):
    accountant = PrivacyAccountant(1.0)
    small = learner(epsilon=1e-12, backend="ckks", accountant=accountant)
    with pytest.raises(ValueError, match="does not fit 64-bit integers"):
        small.set_params(cliques=cliques).fit(X, party=np.arange(len(X)) % 4)
    assert accountant.spent().epsilon == 0
