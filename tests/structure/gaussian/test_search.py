import numpy as np
import pytest

from skprivbn.bayesian_network import GaussianBayesianNetwork
from skprivbn.bayesian_network._dag import (
    extend_to_dag,
    is_acyclic,
    markov_equivalent,
    skeleton,
    to_cpdag,
)
from skprivbn.datasets import make_linear_sem
from skprivbn.structure.gaussian._search import ges, pc

N = 1e10  # as good as the population: near-cancelling paths count as paths


def population(seed, d):
    weights = make_linear_sem(2, d, random_state=seed)[1]
    network = GaussianBayesianNetwork([f"x{j}" for j in range(d)], weights)
    return weights != 0, network.covariance


@pytest.mark.parametrize("seed", range(6))
def test_ges_finds_the_class_of_the_population(seed):
    truth, covariance = population(seed, 6)
    found = ges(covariance, N, penalty=0.5 * np.log(N))
    np.testing.assert_array_equal(found, to_cpdag(truth))


@pytest.mark.parametrize("seed", range(6))
def test_pc_finds_the_class_of_the_population(seed):
    truth, covariance = population(seed, 6)
    found = pc(covariance, N, significance=1e-6)
    np.testing.assert_array_equal(found, to_cpdag(truth))


@pytest.mark.parametrize("seed", range(10))
def test_extension_stays_in_the_class(seed):
    truth, _ = population(seed, 8)
    extended = extend_to_dag(to_cpdag(truth))
    assert is_acyclic(extended)
    assert markov_equivalent(extended, truth)


def test_a_contradictory_graph_still_becomes_acyclic():
    # an undirected square without chords has no extension free of v-structures
    square = np.zeros((4, 4), dtype=bool)
    for i in range(4):
        square[i, (i + 1) % 4] = square[(i + 1) % 4, i] = True
    extended = extend_to_dag(square)
    assert is_acyclic(extended)
    np.testing.assert_array_equal(skeleton(extended), square)
