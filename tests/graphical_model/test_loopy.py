"""Loopy belief propagation: exact on trees, an upper bound on cycles."""

from itertools import combinations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skprivbn.graphical_model import DPCGMLearner
from skprivbn.graphical_model._elimination import EliminationPlan
from skprivbn.graphical_model._loopy import (
    LoopyPropagation,
    comes_to_rest,
    forest_weights,
)
from skprivbn.privacy import PrivacyAccountant
from tests.graphical_model.brute_force import SHAPES, SIZES


def both(cliques, spread, seed=0):
    rng = np.random.default_rng(seed)
    tables = [
        np.exp(spread * rng.normal(size=(1, *(SIZES[i] for i in c)))) for c in cliques
    ]
    answers = []
    for engine in (EliminationPlan(cliques, SIZES), LoopyPropagation(cliques, SIZES)):
        log_partition, tape = engine.forward(tables)
        answers.append((log_partition, engine.backward(tape)))
    return answers


@pytest.mark.parametrize("shape", ["tree", "disconnected", "single clique"])
def test_exact_without_cycles(shape):
    (exact, marginals), (bound, beliefs) = both(SHAPES[shape], spread=2.0)
    assert_allclose(bound, exact, atol=1e-6)
    for one, other in zip(marginals, beliefs):
        assert_allclose(other, one, atol=1e-7)


def test_close_on_a_cycle_of_weak_potentials():
    (exact, marginals), (bound, beliefs) = both(SHAPES["cycle"], spread=0.3)
    assert_allclose(bound, exact, atol=2e-2)
    for one, other in zip(marginals, beliefs):
        assert_allclose(other, one, atol=2e-2)


@pytest.mark.parametrize("shape", ["cycle", "complete", "higher order"])
@pytest.mark.parametrize("seed", range(3))
def test_bounds_the_log_partition_function_from_above(shape, seed):
    (exact, _), (bound, _) = both(SHAPES[shape], spread=2.0, seed=seed)
    assert bound[0] >= exact[0] - 1e-6


@pytest.mark.parametrize("shape", ["cycle", "complete", "higher order"])
def test_marginals_are_the_derivatives_of_the_bound(shape):
    rng = np.random.default_rng(0)
    tables = [rng.normal(size=(1, *(SIZES[i] for i in c))) for c in SHAPES[shape]]
    engine = LoopyPropagation(SHAPES[shape], SIZES, max_iter=500)

    def bound(shift):
        tables[0][0].flat[1] += shift
        value, marginals = engine.forward([np.exp(table) for table in tables])
        tables[0][0].flat[1] -= shift
        return value[0], marginals[0].flat[1]

    slope = (bound(1e-4)[0] - bound(-1e-4)[0]) / 2e-4
    assert slope == pytest.approx(bound(0.0)[1], abs=1e-6)


def test_weights_of_forests():
    assert_allclose(forest_weights(SHAPES["tree"], 5), 1)
    pendant = [(0, 1), (1, 2), (2, 0), (2, 3)]
    assert_allclose(forest_weights(pendant, 4)[3], 1)  # a bridge is in all forests
    assert_allclose(forest_weights(pendant, 4).sum(), 3)  # every forest is a tree


def test_says_when_it_has_not_converged():
    engine = LoopyPropagation(SHAPES["cycle"], SIZES, max_iter=1)
    tables = [np.ones((1, *(SIZES[i] for i in c))) for c in SHAPES["cycle"]]
    tables[0][0, 0, 0] = 50.0
    engine.forward(tables)
    assert not engine.converged
    engine = LoopyPropagation(SHAPES["cycle"], SIZES)
    engine.forward(tables)
    assert engine.converged


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_of_a_batch_do_not_touch_each_other(shape):
    rng = np.random.default_rng(0)
    cliques = SHAPES[shape]
    tables = [np.exp(rng.normal(size=(3, *(SIZES[i] for i in c)))) for c in cliques]
    engine = LoopyPropagation(cliques, SIZES)
    together, beliefs = engine.forward(tables)
    for row in range(len(together)):
        alone, own = engine.forward([table[row : row + 1] for table in tables])
        assert_allclose(alone[0], together[row], atol=1e-6)
        for one, other in zip(own, beliefs):
            assert_allclose(one[0], other[row], atol=1e-6)


def test_dense_graphs_are_told_from_sparse_ones_without_data():
    cycle = [(i, (i + 1) % 30) for i in range(30)]
    assert comes_to_rest(cycle, [3] * 30)
    assert comes_to_rest(list(combinations(range(7), 2)), [4] * 7)
    assert not comes_to_rest(list(combinations(range(30), 2)), [3] * 30)


def test_a_dense_field_is_refused_before_budget_is_spent():
    accountant = PrivacyAccountant(epsilon=1.0)
    pairs = list(combinations(range(30), 2))
    learner = DPCGMLearner(pairs, states=[3] * 30, accountant=accountant)
    with pytest.raises(ValueError, match="does not converge on so dense a graph"):
        learner.fit(np.zeros((50, 30), dtype=int))
    assert accountant.spent().epsilon == 0
