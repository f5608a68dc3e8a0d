import numpy as np
import pytest
from scipy.linalg import expm

from skprivbn.bayesian_network._dag import is_acyclic
from skprivbn.structure.gaussian._notears import (
    ACYCLICITY,
    acyclic_weights,
    log_det,
    trace_expm,
)


def random_squares(seed, d=6, scale=0.3):
    rng = np.random.default_rng(seed)
    return scale * rng.random((d, d)) * (rng.random((d, d)) < 0.4)


@pytest.mark.parametrize("name", ACYCLICITY)
def test_zero_exactly_for_acyclic(name):
    rng = np.random.default_rng(0)
    dag = np.triu(rng.random((7, 7)), 1)
    order = rng.permutation(7)
    dag = dag[np.ix_(order, order)]
    assert ACYCLICITY[name](dag)[0] == pytest.approx(0.0, abs=1e-12)
    i, j = np.argwhere(dag > 0)[0]
    dag[j, i] = 0.1
    assert ACYCLICITY[name](dag)[0] > 1e-4


@pytest.mark.parametrize("name", ACYCLICITY)
@pytest.mark.parametrize("seed", range(3))
def test_gradient(name, seed):
    M = random_squares(seed) + 0.01
    _, gradient = ACYCLICITY[name](M)
    direction = np.random.default_rng(9).random(M.shape)
    step = 1e-6
    up, down = (ACYCLICITY[name](M + s * step * direction)[0] for s in (1, -1))
    assert (up - down) / (2 * step) == pytest.approx(np.vdot(gradient, direction))


def test_values_by_other_means():
    M = random_squares(1)
    assert trace_expm(M)[0] == pytest.approx(np.trace(expm(M)) - 6)
    eigenvalues = np.linalg.eigvals(M)
    assert log_det(M)[0] == pytest.approx(-np.log(1 - eigenvalues).sum().real)


def test_log_det_is_infinite_beyond_its_domain():
    cycle = np.array([[0.0, 2.0], [2.0, 0.0]])
    assert log_det(cycle)[0] == np.inf
    # four eigenvalues beyond 1: the determinant alone would look harmless
    assert log_det(np.kron(np.eye(2), cycle))[0] == np.inf


@pytest.mark.parametrize("seed", range(5))
def test_acyclic_weights_drop_the_smallest(seed):
    weights = np.random.default_rng(seed).normal(size=(6, 6))
    kept = acyclic_weights(weights, 0.3)
    assert is_acyclic(kept != 0)
    assert np.all((kept == 0) | (kept == weights))
    # every smaller cut leaves a cycle: the next larger dropped edge cannot stay
    off_diagonal = weights * ~np.eye(6, dtype=bool)
    dropped = np.abs(off_diagonal[(kept == 0) & (np.abs(off_diagonal) > 0.3)])
    if len(dropped):
        again = np.where(np.abs(off_diagonal) >= dropped.max(), weights, 0.0)
        assert not is_acyclic(again * ~np.eye(6, dtype=bool) != 0)
