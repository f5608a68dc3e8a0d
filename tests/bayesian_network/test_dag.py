import itertools

import networkx as nx
import numpy as np
import pytest

from skprivbn.bayesian_network._dag import (
    ancestors,
    apply_meek_rules,
    check_adjacency,
    check_dag,
    find_cycle,
    is_acyclic,
    markov_equivalent,
    skeleton,
    to_cpdag,
    topological_order,
)


def all_dags(n_nodes):
    """Every DAG on a few nodes."""
    places = [(i, j) for i in range(n_nodes) for j in range(n_nodes) if i != j]
    for edges in itertools.product([False, True], repeat=len(places)):
        adjacency = np.zeros((n_nodes, n_nodes), dtype=bool)
        for (i, j), edge in zip(places, edges):
            adjacency[i, j] = edge
        if not (adjacency & adjacency.T).any() and is_acyclic(adjacency):
            yield adjacency


def random_dag(n_nodes, density, seed):
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.random((n_nodes, n_nodes)) < density, 1)
    order = rng.permutation(n_nodes)
    return upper[np.ix_(order, order)]


@pytest.mark.parametrize("seed", range(20))
def test_acyclicity_as_networkx_says(seed):
    rng = np.random.default_rng(seed)
    adjacency = rng.random((6, 6)) < 0.2
    graph = nx.from_numpy_array(adjacency, create_using=nx.DiGraph)
    assert is_acyclic(adjacency) == nx.is_directed_acyclic_graph(graph)
    cycle = find_cycle(adjacency)
    assert (cycle is None) == is_acyclic(adjacency)
    if cycle is not None:
        assert cycle[0] == cycle[-1]
        assert all(adjacency[i, j] for i, j in itertools.pairwise(cycle))


@pytest.mark.parametrize("seed", range(5))
def test_parents_come_first(seed):
    adjacency = random_dag(12, 0.3, seed)
    order = topological_order(adjacency)
    assert sorted(order) == list(range(12))
    position = np.argsort(order)
    assert all(position[i] < position[j] for i, j in np.argwhere(adjacency))


def test_topological_order_of_a_cycle_names_it():
    with pytest.raises(ValueError, match="0 -> 1 -> 0|1 -> 0 -> 1"):
        topological_order(np.array([[0, 1], [1, 0]], dtype=bool))


def test_ancestors_as_networkx_says():
    adjacency = random_dag(15, 0.2, 0)
    graph = nx.from_numpy_array(adjacency, create_using=nx.DiGraph)
    for node in range(15):
        assert ancestors(adjacency, [node]) == nx.ancestors(graph, node) | {node}


def test_there_are_25_dags_on_three_and_543_on_four_nodes():
    assert sum(1 for _ in all_dags(3)) == 25
    assert sum(1 for _ in all_dags(4)) == 543


def v_structures(adjacency):
    """Return (i, k, j), i < j, with i -> k <- j and i, j not adjacent."""
    joined = adjacency | adjacency.T
    return {
        (i, k, j)
        for i, k, j in itertools.permutations(range(len(adjacency)), 3)
        if i < j and adjacency[i, k] and adjacency[j, k] and not joined[i, j]
    }


def test_cpdag_is_the_union_of_the_equivalent_dags():
    """Graphs of one skeleton and the same v-structures (Verma and Pearl, 1990)."""
    classes = {}
    for dag in all_dags(4):
        key = (skeleton(dag).tobytes(), frozenset(v_structures(dag)))
        classes.setdefault(key, []).append(dag)
    assert len(classes) == 185  # known number of essential graphs on four nodes
    for members in classes.values():
        union = np.logical_or.reduce(members)
        for dag in members:
            assert np.array_equal(to_cpdag(dag), union)


@pytest.mark.slow
def test_all_four_meek_rules_with_background_knowledge():
    """Completion against the consistent DAGs, for any edge directed beforehand."""
    dags = list(all_dags(4))
    n_changed = 0
    for dag in dags[::7]:
        cpdag = to_cpdag(dag)
        members = [other for other in dags if markov_equivalent(dag, other)]
        for i, j in np.argwhere(cpdag & cpdag.T):
            known = cpdag.copy()
            known[j, i] = False
            consistent = [member for member in members if member[i, j]]
            completed = apply_meek_rules(known)
            assert np.array_equal(completed, np.logical_or.reduce(consistent))
            n_changed += not np.array_equal(completed, known)
    assert n_changed > 0


def test_fourth_rule():
    # a - b, a - d, a - c, d -> c -> b, with b and d not adjacent.
    a, b, c, d = range(4)
    pdag = np.zeros((4, 4), dtype=bool)
    for i, j in [(a, b), (b, a), (a, d), (d, a), (a, c), (c, a), (d, c), (c, b)]:
        pdag[i, j] = True
    completed = apply_meek_rules(pdag)
    assert completed[a, b]
    assert not completed[b, a]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.zeros((2, 3)), "square"),
        (np.zeros(3), "square"),
        ([["a", "b"], ["c", "d"]], "numbers"),
        ([[0, np.nan], [0, 0]], "NaN"),
    ],
)
def test_bad_matrices_are_refused(bad, message):
    with pytest.raises(ValueError, match=message):
        check_adjacency(bad)


def test_check_dag_names_the_cycle():
    with pytest.raises(ValueError, match="a -> a"):
        check_dag([[1]], ["a"])
    weights = np.array([[0.0, -0.5], [0.0, 0.0]])
    assert check_dag(weights).tolist() == [[False, True], [False, False]]
