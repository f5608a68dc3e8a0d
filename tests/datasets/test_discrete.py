import numpy as np
import pytest
from scipy import stats

from skprivbn.datasets import (
    make_discrete_bayesian_network,
    make_markov_random_field,
)


def test_bayesian_network_has_the_asked_shape():
    network = make_discrete_bayesian_network(
        12, n_states=(2, 4), n_edges=20, max_parents=2, random_state=0
    )
    assert network.nodes == tuple(f"x{i}" for i in range(12))
    n_parents = [len(network.parents[node]) for node in network.nodes]
    assert sum(n_parents) == 20 and max(n_parents) <= 2
    sizes = {node: len(network.states[node]) for node in network.nodes}
    assert set(sizes.values()) == {2, 3, 4}
    for node in network.nodes:
        shape = [sizes[parent] for parent in network.parents[node]]
        assert network.cpts[node].shape == (*shape, sizes[node])
        assert (network.cpts[node] > 0).all()


def test_bayesian_network_is_reproducible():
    first = make_discrete_bayesian_network(6, random_state=5)
    assert first == make_discrete_bayesian_network(6, random_state=5)
    assert first != make_discrete_bayesian_network(6, random_state=6)


def test_bayesian_network_samples_follow_its_tables():
    network = make_discrete_bayesian_network(
        3, n_edges=3, max_parents=2, random_state=1
    )
    X = np.asarray(network.sample(20000, random_state=0)).astype(int)
    child = next(n for n in network.nodes if len(network.parents[n]) == 2)
    columns = [network.nodes.index(n) for n in (*network.parents[child], child)]
    counts = np.zeros((2, 2, 2))
    np.add.at(counts, tuple(X[:, columns].T), 1)
    observed = counts / counts.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(observed, network.cpts[child], atol=0.05)


def test_chain_of_third_order():
    potentials = make_markov_random_field(10, 5, order=3, random_state=0)
    assert set(potentials) == {
        (i, j) for i in range(10) for j in range(10) if 1 <= j - i <= 3
    }


def test_potentials_are_log_dirichlet():
    potentials = make_markov_random_field(30, 4, order=2, random_state=0)
    cells = np.exp(np.stack(list(potentials.values()))).reshape(len(potentials), -1)
    np.testing.assert_allclose(cells.sum(axis=1), 1)
    # One coordinate of a flat Dirichlet over 16 cells is Beta(1, 15).
    assert stats.kstest(cells[:, 0], stats.beta(1, 15).cdf).pvalue > 1e-3


def test_random_graph_is_connected_with_mixed_sizes():
    nx = pytest.importorskip("networkx")
    potentials = make_markov_random_field(
        8, (2, 5), graph="erdos_renyi", n_edges=11, random_state=0
    )
    assert len(potentials) == 11
    assert nx.is_connected(nx.Graph(list(potentials)))
    sizes = {}
    for (i, j), table in potentials.items():
        assert sizes.setdefault(i, table.shape[0]) == table.shape[0]
        assert sizes.setdefault(j, table.shape[1]) == table.shape[1]
    assert set(sizes) == set(range(8)) and min(sizes.values()) >= 2


def test_tiny_concentration_stays_finite():
    potentials = make_markov_random_field(4, 20, alpha=1e-3, random_state=0)
    assert all(np.isfinite(table).all() for table in potentials.values())


@pytest.mark.parametrize(
    "make, kwargs, match",
    [
        (make_discrete_bayesian_network, {"n_states": (3, 2)}, "n_states must be"),
        (make_discrete_bayesian_network, {"n_edges": 25}, "at most 24 edges"),
        (make_markov_random_field, {"graph": "erdos_renyi", "n_edges": 8}, "9 to 45"),
        (make_markov_random_field, {"order": 0}, "'order' parameter"),
    ],
)
def test_bad_arguments(make, kwargs, match):
    with pytest.raises(ValueError, match=match):
        make(**kwargs)
