"""Choosing a tree: budget, scores and the result without noise."""

import networkx
import numpy as np
import pytest
from numpy.testing import assert_allclose

from skprivbn.graphical_model._searches import (
    PrivateTree,
    dependence_scores,
    select_tree,
)
from skprivbn.privacy import PrivacyAccountant
from skprivbn.privacy._composition import zcdp_budget


def test_thirds_of_a_pure_budget():
    budget = PrivateTree(0.9, 0.0, n_columns=5)
    assert budget.rho is None
    assert_allclose([budget.one_way.epsilon, budget.noise.epsilon], 0.3)
    assert_allclose([budget.one_way.scale, budget.noise.scale], [5 / 0.3, 4 / 0.3])
    # four choices, each of epsilon 2 / scale
    assert_allclose(4 * 2 / budget.selection_scale, 0.3)


def test_thirds_of_a_concentrated_budget_add_up():
    budget = PrivateTree(1.0, 1e-6, n_columns=5)
    selection = 4 * (2 / budget.selection_scale) ** 2 / 8
    total = budget.one_way.rho + selection + budget.noise.rho
    assert_allclose(total, budget.rho)
    accountant = PrivacyAccountant(epsilon=1.0, delta=1e-6)
    accountant.check(rho=zcdp_budget(1.0, 1e-6))


def test_one_record_changes_a_score_by_at_most_one():
    rng = np.random.default_rng(0)
    table = rng.integers(0, 20, size=(3, 4))
    one_way = [rng.uniform(10, 50, 3), rng.uniform(10, 50, 4)]
    score = dependence_scores({(0, 1): table}, one_way, 100.0)[0, 1]
    for cell in np.ndindex(3, 4):
        more = table.copy()
        more[cell] += 1
        other = dependence_scores({(0, 1): more}, one_way, 100.0)[0, 1]
        assert abs(other - score) <= 1


@pytest.mark.parametrize("seed", range(3))
def test_with_little_noise_the_tree_is_the_maximum_spanning_tree(seed):
    rng = np.random.default_rng(seed)
    n = 6
    scores = {
        (i, j): int(s)
        for (i, j), s in zip(
            [(i, j) for i in range(n) for j in range(i + 1, n)],
            1000 * rng.permutation(n * (n - 1) // 2),
        )
    }
    graph = networkx.Graph()
    graph.add_weighted_edges_from((i, j, s) for (i, j), s in scores.items())
    expected = networkx.maximum_spanning_tree(graph).edges
    found = select_tree(scores, n, scale=0.1)
    assert {frozenset(e) for e in found} == {frozenset(e) for e in expected}
