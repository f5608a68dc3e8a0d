"""Structure from tables, against formulas written out and graphs that are known."""

import itertools

import numpy as np
import pytest
from scipy.stats import chi2_contingency, entropy

from skprivbn.bayesian_network import BayesianNetwork
from skprivbn.bayesian_network._dag import is_acyclic, markov_equivalent
from skprivbn.bayesian_network._labels import count_rows
from skprivbn.datasets import load_alarm
from skprivbn.metrics import structural_hamming_distance
from skprivbn.structure._scores import FRACTION_BITS
from skprivbn.structure._search import complete
from skprivbn.structure.collective._structure import (
    METHODS,
    conditional_information,
    learning_structure,
    scores_of_rows,
)

N_STATES = [2, 3, 2, 4]


def rows(seed=0, n=300):
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.integers(0, r, size=n) for r in N_STATES])


def strong_network():
    """Two colliders and a chain, every edge strong: a, b -> c -> d <- e."""
    noisy = [[0.9, 0.1], [0.15, 0.85]]
    collider = [[[0.95, 0.05], [0.3, 0.7]], [[0.2, 0.8], [0.03, 0.97]]]
    return BayesianNetwork(
        ["a", "b", "c", "d", "e", "f"],
        {v: [0, 1] for v in "abcdef"},
        {"c": ["a", "b"], "d": ["c", "e"], "f": ["d"]},
        {
            "a": [0.4, 0.6],
            "b": [0.55, 0.45],
            "c": collider,
            "d": collider,
            "e": [0.5, 0.5],
            "f": noisy,
        },
    )


def learn_structure(scores, **settings):
    return complete(learning_structure(scores, **settings))


def test_weighted_counts_do_not_depend_on_the_order_of_rows():
    codes = rows(n=2000)
    weights = np.random.default_rng(1).choice([1 / 3, 0.1, 7.7], size=len(codes))
    order = np.random.default_rng(2).permutation(len(codes))
    first = count_rows(codes, [0, 1, 3], N_STATES, weights)
    again = count_rows(codes[order], [0, 1, 3], N_STATES, weights[order])
    np.testing.assert_array_equal(first, again)
    expected = np.zeros(first.shape)
    np.add.at(expected, tuple(codes[:, v] for v in (0, 1, 3)), weights)
    np.testing.assert_allclose(first, expected, rtol=1e-12)


def test_information_is_the_statistic_of_the_likelihood_ratio_test():
    table = count_rows(rows(), [1, 3], N_STATES)
    test = chi2_contingency(table, lambda_="log-likelihood")
    information, degrees = conditional_information(table)
    assert 2 * table.sum() * information == pytest.approx(test.statistic)
    assert degrees == test.dof


def test_conditional_information_is_a_sum_of_entropies():
    table = count_rows(rows(), [0, 1, 2, 3], N_STATES)
    p = table / table.sum()
    z = p.sum(axis=(0, 1)).ravel()
    expected = (
        entropy(p.sum(axis=1).ravel())
        + entropy(p.sum(axis=0).ravel())
        - entropy(p.ravel())
        - entropy(z)
    )
    information, degrees = conditional_information(table)
    assert information == pytest.approx(expected)
    assert degrees == 1 * 2 * len(z)


def test_states_that_do_not_occur_have_no_degrees_of_freedom():
    table = np.zeros((3, 3, 2), dtype=int)
    table[:2, :2, 0] = [[5, 1], [2, 6]]
    table[0, :, 1] = 4
    assert conditional_information(table)[1] == 1


def test_bic_is_the_penalised_likelihood_of_the_network():
    codes = rows()
    network = BayesianNetwork.from_data(
        codes,
        [[], ["x0"], ["x0", "x3"], []],
        states={f"x{v}": range(r) for v, r in enumerate(N_STATES)},
        alpha=0.0,
    )
    scores = scores_of_rows(codes, N_STATES)
    total = sum(scores.score(v, p) for v, p in enumerate([[], [0], [0, 3], []]))
    total /= 1 << FRACTION_BITS
    likelihood = network.log_likelihood(codes).sum()
    penalty = 0.5 * np.log(len(codes)) * network.n_parameters
    assert total == pytest.approx(likelihood - penalty)


@pytest.mark.parametrize("method", METHODS)
def test_strong_edges_are_found_with_an_ordering(method):
    truth = strong_network()
    for seed in range(3):
        codes = truth.sample(5000, random_state=seed)
        found = learn_structure(
            scores_of_rows(codes, [2] * 6),
            method=method,
            ordering=[0, 1, 4, 2, 3, 5],
            significance=1e-4,
        )
        np.testing.assert_array_equal(found, truth.adjacency_matrix)


@pytest.mark.parametrize("method", METHODS)
def test_the_equivalence_class_is_found_without_an_ordering(method):
    truth = strong_network()
    for seed in range(3):
        codes = truth.sample(5000, random_state=seed)
        found = learn_structure(
            scores_of_rows(codes, [2] * 6), method=method, significance=1e-4
        )
        assert markov_equivalent(found, truth.adjacency_matrix)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("ordered", [True, False])
def test_independent_columns_have_no_edges(method, ordered):
    scores = scores_of_rows(rows(n=2000), N_STATES)
    ordering = range(4) if ordered else None
    found = learn_structure(scores, method=method, ordering=ordering, significance=1e-4)
    assert not found.any()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("ordered", [True, False])
def test_the_number_of_parents_is_limited(method, ordered):
    rng = np.random.default_rng(0)
    causes = rng.integers(0, 2, size=(3000, 4))
    effect = causes.sum(axis=1) + rng.integers(0, 2, size=3000)
    scores = scores_of_rows(np.column_stack([causes, effect]), [2] * 4 + [6])
    settings = {"method": method, "ordering": range(5) if ordered else None}
    free = learn_structure(scores, max_parents=4, **settings)
    assert free.sum(axis=0).max() == 4
    limited = learn_structure(scores, max_parents=2, **settings)
    assert limited.sum(axis=0).max() == 2 and is_acyclic(limited)


def test_no_single_change_improves_what_climbing_found():
    alarm = load_alarm()
    nodes = alarm.nodes[:7]
    codes = alarm.encode(alarm.sample(1500, random_state=0))[:, :7]
    n_states = [len(alarm.states[v]) for v in nodes]
    scores = scores_of_rows(codes, n_states)
    found = learn_structure(scores, method="bic")
    assert found.any()

    def total(graph):
        return sum(scores.score(v, np.flatnonzero(graph[:, v])) for v in range(7))

    best = total(found)
    for u, v in itertools.permutations(range(7), 2):
        for edge, back in itertools.product([False, True], repeat=2):
            other = found.copy()
            other[u, v], other[v, u] = edge, back
            if is_acyclic(other):
                assert total(other) <= best


def test_tests_of_independence_find_most_of_alarm():
    alarm = load_alarm()
    codes = alarm.encode(alarm.sample(5000, random_state=0))
    scores = scores_of_rows(codes, [len(alarm.states[v]) for v in alarm.nodes])
    found = learn_structure(scores, method="cheng_bell_liu")
    assert structural_hamming_distance(alarm.adjacency_matrix, found) <= 10
