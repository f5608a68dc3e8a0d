"""How local edges and links between sites become one graph."""

import numpy as np

from skprivbn.bayesian_network._dag import is_acyclic, parents_of
from skprivbn.structure._search import complete
from skprivbn.structure.collective._estimator import CollectiveModel
from skprivbn.structure.collective._structure import (
    crossing,
    explaining_away,
    families_across,
    joining_graphs,
    scores_of_rows,
)

OWNERS = ["a", "a", "b", "b"]


def join_graphs(local, links, codes, n_states=(2, 2, 2, 2)):
    return complete(joining_graphs(local, links, scores_of_rows(codes, n_states)))


def explain_away(adjacency, owners, codes):
    scores = scores_of_rows(codes, [2] * 4)
    return complete(explaining_away(adjacency, owners, scores))


def graph(*edges, n=4):
    adjacency = np.zeros((n, n), dtype=bool)
    adjacency[tuple(np.transpose(edges))] = True
    return adjacency


def chain(n_rows=2000, flip=0.1, seed=0):
    """Return codes of a chain 0 -> 2 -> 1, and of 3, which is on its own."""
    rng = np.random.default_rng(seed)
    first = rng.integers(0, 2, size=n_rows)
    middle = first ^ (rng.random(n_rows) < flip)
    last = middle ^ (rng.random(n_rows) < flip)
    return np.column_stack([first, last, middle, rng.integers(0, 2, size=n_rows)])


def test_edges_that_cross_sites():
    found = crossing(graph((0, 1), (0, 2), (3, 1), (2, 3)), OWNERS)
    np.testing.assert_array_equal(found, graph((0, 2), (3, 1)))


def test_a_link_that_would_close_a_cycle_is_turned():
    joined = join_graphs(graph((0, 1)), graph((1, 2), (2, 0)), chain())
    assert is_acyclic(joined) and joined.sum() == 3
    # the stronger link keeps its direction
    kept = joined & graph((1, 2), (2, 0))
    assert kept.sum() == 1


def test_a_link_for_which_there_are_too_few_rows_is_left_out():
    rng = np.random.default_rng(0)
    n_states = [8, 8, 8, 2]
    codes = np.column_stack([rng.integers(0, r, size=100) for r in n_states])
    local, links = graph((0, 1)), graph((2, 1), (3, 0))
    joined = join_graphs(local, links, codes, n_states)
    np.testing.assert_array_equal(joined, graph((0, 1), (3, 0)))


def test_an_edge_over_a_hidden_variable_is_explained_away():
    kept = explain_away(graph((0, 1), (0, 2), (2, 1)), OWNERS, chain())
    np.testing.assert_array_equal(kept, graph((0, 2), (2, 1)))


def test_parents_that_no_hidden_variable_connects_are_not_suspected():
    """Even if the few rows at the centre speak against them."""
    owners = ["a", "a", "b", "a"]
    kept = explain_away(graph((3, 1), (2, 1)), owners, chain())
    np.testing.assert_array_equal(kept, graph((3, 1), (2, 1)))


def test_edges_without_a_remote_parent_stay():
    local = graph((3, 2), (3, 1))
    np.testing.assert_array_equal(
        explain_away(local, ["a", "b", "b", "b"], chain()), local
    )


def test_counts_of_new_rows_are_added():
    codes = chain()
    adjacency = graph((0, 2), (2, 1))
    halves = [
        scores_of_rows(part, [2] * 4).tables.ordered
        for part in (codes[:700], codes[700:])
    ]
    local = {v: [tables([v]) for tables in halves] for v in range(4)}
    families = families_across(adjacency, OWNERS)
    across = [{v: t(family) for v, family in families.items()} for t in halves]
    assert across[0].keys() == {1, 2}
    model = CollectiveModel(
        list("wxyz"),
        OWNERS,
        [[0, 1]] * 4,
        [[]] * 4,
        [counts[0] for counts in local.values()],
        parents_of(adjacency),
        [across[0].get(v) for v in range(4)],
    )
    model.add(
        [counts[1] for counts in local.values()],
        [across[1].get(v) for v in range(4)],
    )
    network = model.network(alpha=0.0)
    both = scores_of_rows(codes, [2] * 4).tables.ordered
    np.testing.assert_allclose(
        network.cpts["x"], both([2, 1]) / both([2, 1]).sum(axis=1, keepdims=True)
    )
    assert model.local_networks(0.0)["b"].parents == {"y": (), "z": ()}
