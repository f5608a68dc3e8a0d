"""Loopy belief propagation: exact on trees, close on weak cycles."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.exceptions import ConvergenceWarning

from skprivbn.graphical_model._elimination import EliminationPlan
from skprivbn.graphical_model._loopy import LoopyPropagation
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
    (exact, marginals), (bethe, beliefs) = both(SHAPES[shape], spread=2.0)
    assert_allclose(bethe, exact, atol=1e-6)
    for one, other in zip(marginals, beliefs):
        assert_allclose(other, one, atol=1e-7)


def test_close_on_a_cycle_of_weak_potentials():
    (exact, marginals), (bethe, beliefs) = both(SHAPES["cycle"], spread=0.3)
    assert_allclose(bethe, exact, atol=1e-2)
    for one, other in zip(marginals, beliefs):
        assert_allclose(other, one, atol=1e-2)


def test_says_when_it_has_not_converged():
    engine = LoopyPropagation(SHAPES["cycle"], SIZES, max_iter=1)
    tables = [np.ones((1, *(SIZES[i] for i in c))) for c in SHAPES["cycle"]]
    tables[0][0, 0, 0] = 50.0
    with pytest.warns(ConvergenceWarning, match="not converged"):
        engine.forward(tables)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        LoopyPropagation(SHAPES["cycle"], SIZES).forward(tables)
