"""FCI on perfect knowledge equals what all ancestral graphs of a class share."""

from collections import defaultdict
from itertools import chain, combinations, product

import numpy as np
import pytest

from skprivbn.bayesian_network._dag import ARROW, CIRCLE, TAIL
from skprivbn.structure._fci import fci, find_skeleton

NONE, FORWARD, BACKWARD, BOTH = range(4)


def separations(graph):
    """All conditional independences of a mixed graph, by moralised ancestors."""
    d = len(graph)
    arrows = (graph == ARROW) & (graph.T == TAIL)
    hidden = np.argwhere(np.triu((graph == ARROW) & (graph.T == ARROW)))
    # a hidden cause stands for each edge with two arrows
    full = np.zeros((d + len(hidden),) * 2, dtype=bool)
    full[:d, :d] = arrows
    for k, pair in enumerate(hidden):
        full[d + k, pair] = True
    found = set()
    for x, y in combinations(range(d), 2):
        others = [v for v in range(d) if v not in (x, y)]
        sizes = range(len(others) + 1)
        for given in chain(*(combinations(others, size) for size in sizes)):
            if _d_separated(full, x, y, given):
                found.add((x, y, given))
    return frozenset(found)


def _d_separated(dag, x, y, given):
    kept = {x, y, *given}
    while True:
        more = kept | {i for i in range(len(dag)) if dag[i, list(kept)].any()}
        if more == kept:
            break
        kept = more
    moral = defaultdict(set)
    for node in kept:
        parents = [i for i in kept if dag[i, node]]
        for a, b in combinations([node, *parents], 2):
            moral[a].add(b)
            moral[b].add(a)
    reached, waiting = {x}, [x]
    while waiting:
        for node in moral[waiting.pop()] - reached - set(given):
            reached.add(node)
            waiting.append(node)
    return y not in reached


def ancestral_graphs(d):
    """All maximal ancestral graphs without selection."""
    pairs = list(combinations(range(d), 2))
    for kinds in product(range(4), repeat=len(pairs)):
        graph = np.zeros((d, d), dtype=int)
        for (i, j), kind in zip(pairs, kinds):
            if kind != NONE:
                graph[i, j] = TAIL if kind == BACKWARD else ARROW
                graph[j, i] = TAIL if kind == FORWARD else ARROW
        arrows = (graph == ARROW) & (graph.T == TAIL)
        leads = np.linalg.matrix_power(arrows + np.eye(d, dtype=int), d) > 0
        leads &= ~np.eye(d, dtype=bool)
        both = (graph == ARROW) & (graph.T == ARROW)
        if np.any(leads & leads.T) or np.any(leads & both):
            continue
        known = separations(graph)
        apart = {(x, y) for x, y, _ in known}
        if all((i, j) in apart for i, j in pairs if not graph[i, j]):
            yield graph, known


def shared_marks(graphs):
    graphs = np.array(graphs)
    same = (graphs == graphs[0]).all(axis=0)
    return np.where(same, graphs[0], CIRCLE)


@pytest.mark.parametrize("d", [3, pytest.param(4, marks=pytest.mark.slow)])
def test_fci_finds_what_every_graph_of_the_class_shares(d):
    classes = defaultdict(list)
    for graph, known in ancestral_graphs(d):
        classes[known].append(graph)
    # there are as many classes of acyclic graphs alone
    assert len(classes) >= {3: 11, 4: 185}[d]
    for known, graphs in classes.items():
        marks = fci(lambda x, y, given, known=known: (x, y, given) in known, d)
        np.testing.assert_array_equal(marks, shared_marks(graphs))


def random_dag(d, rng, n_edges):
    pairs = list(combinations(range(d), 2))
    chosen = rng.choice(len(pairs), n_edges, replace=False)
    order, dag = rng.permutation(d), np.zeros((d, d), dtype=bool)
    for k in chosen:
        i, j = pairs[k]
        dag[order[i], order[j]] = True
    return dag


@pytest.mark.parametrize("seed", range(20))
def test_certain_marks_are_those_of_ancestors(seed):
    rng = np.random.default_rng(seed)
    d, n_hidden = 9, 2
    dag = random_dag(d, rng, 13)
    marks = fci(lambda x, y, given: _d_separated(dag, x, y, given), d - n_hidden)
    leads = np.linalg.matrix_power(dag + np.eye(d, dtype=int), d) > 0
    ancestors = leads[: d - n_hidden, : d - n_hidden]
    assert not np.any(ancestors.T[marks == ARROW])
    assert np.all(ancestors.T[marks == TAIL])


#: edges of six columns and, from 6 on, hidden causes of pairs of them
DISTANT = [
    "01 34 42 50 62 63 70 72 81 85 91 94",
    "14 25 40 53 60 61 70 75 83 84 92 93",
    "02 34 35 40 51 52 61 64 72 74 82 83 90 95",
]


@pytest.mark.parametrize("edges", DISTANT)
def test_nodes_beyond_neighbours_may_have_to_be_conditioned_on(edges):
    d, dag = 6, np.zeros((10, 10), dtype=bool)
    for i, j in edges.split():
        dag[int(i), int(j)] = True

    def separated(x, y, given):
        return _d_separated(dag, x, y, given)

    leads = np.linalg.matrix_power(dag + np.eye(10, dtype=int), 10) > 0
    adjacent = np.zeros((d, d), dtype=bool)
    for x, y in combinations(range(d), 2):
        causes = set(np.flatnonzero(leads[:d, [x, y]].any(axis=1)).tolist())
        adjacent[x, y] = adjacent[y, x] = not separated(x, y, causes - {x, y})
    marks = fci(separated, d)
    np.testing.assert_array_equal(marks != 0, adjacent)
    # the twin: neighbours alone leave an edge in
    assert np.sum(find_skeleton(separated, d, d - 2)[0]) > np.sum(adjacent)


@pytest.mark.parametrize("seed", range(20))
def test_skeletons_and_separators_depend_on_no_order_of_columns(seed):
    d, rng, known, graphs = 6, np.random.default_rng(seed), {}, []
    for order in (np.arange(d), *rng.permuted([np.arange(d)] * 3, axis=1)):

        def contradictory(x, y, given, order=order):
            key = frozenset(order[[x, y]]), frozenset(order[v] for v in given)
            return known.setdefault(key, rng.random() < 0.3)

        adjacent, separators = find_skeleton(contradictory, d, d - 2)
        places = np.argsort(order)
        named = {
            (order[x], order[y]): {order[v] for v in given}
            for (x, y), given in separators.items()
        }
        graphs.append((adjacent[np.ix_(places, places)].tolist(), named))
    assert all(graph == graphs[0] for graph in graphs[1:])
