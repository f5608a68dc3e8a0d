"""Searches against all graphs of four nodes, and what they keep to."""

from itertools import permutations, product
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from skprivbn.bayesian_network._dag import is_acyclic
from skprivbn.datasets import load_asia, load_insurance
from skprivbn.structure import FederatedBayesianNetwork
from skprivbn.structure._edge_rules import edge_rules
from skprivbn.structure._scores import TableScores
from skprivbn.structure._search import EdgeRules, LocalScores, climbing, complete
from skprivbn.structure._tables import AskedTables
from skprivbn.structure.rows._search import SEARCHES

NAMES = ["a", "b", "c", "d"]


def scores_of(network, nodes, n, criterion, seed=0):
    X = network.encode(network.sample(n, random_state=seed))
    places = [network.nodes.index(node) for node in nodes]
    sizes = [len(network.states[node]) for node in nodes]
    tables = AskedTables.from_rows(X[:, places], sizes)
    return TableScores(tables, n, criterion)


def all_graphs():
    pairs = [(i, j) for i in range(4) for j in range(i)]
    for edges in product([None, 0, 1], repeat=len(pairs)):
        graph = np.zeros((4, 4), dtype=bool)
        for (i, j), edge in zip(pairs, edges):
            if edge is not None:
                graph[(i, j) if edge else (j, i)] = True
        if is_acyclic(graph):
            yield graph


GRAPHS = list(all_graphs())


def total(scores, graph):
    return sum(
        scores.score(v, np.flatnonzero(column).tolist())
        for v, column in enumerate(graph.T)
    )


def run(scores, method, rules, **options):
    defaults = {"ordering": range(scores.n_variables), "tabu_length": 0}
    defaults |= {"n_restarts": 0, "seed": 0}
    terms = SimpleNamespace(**defaults | options)
    parents = complete(SEARCHES[method](scores, rules, terms))
    graph = np.zeros((scores.n_variables,) * 2, dtype=bool)
    for v, found in parents.items():
        graph[found, v] = True
    return graph


@pytest.mark.parametrize("criterion", ["bic", "bdeu", "k2"])
@pytest.mark.parametrize("method", sorted(SEARCHES))
def test_the_best_of_all_graphs_of_four_nodes_is_found(method, criterion):
    assert len(GRAPHS) == 543
    nodes = ["tub", "lung", "either", "xray"]
    scores = scores_of(load_asia(), nodes, 3000, criterion)
    rules = EdgeRules.free(4, 3)
    options = {} if method == "k2" else {"tabu_length": 6, "n_restarts": 3}
    graph = run(scores, method, rules, **options)
    best = max(total(scores, other) for other in GRAPHS)
    if method == "k2":
        # of the graphs that keep the order
        best = max(total(scores, g) for g in GRAPHS if not np.tril(g).any())
    assert total(scores, graph) == best


def test_climbing_ends_where_no_single_change_helps():
    nodes = load_insurance().nodes[:12]
    scores = scores_of(load_insurance(), nodes, 1000, "bic")
    graph, score = complete(climbing(scores, rules=EdgeRules.free(12, 3)))
    assert score == total(scores, graph)
    for i, j in np.argwhere(~np.eye(12, dtype=bool)):
        for there, back in ((0, 0), (1, 0), (0, 1)):
            other = graph.copy()
            other[i, j], other[j, i] = there, back
            if is_acyclic(other) and other.sum(axis=0).max() <= 3:
                assert total(scores, other) <= score


def test_tabu_and_restarts_never_end_lower():
    nodes = load_insurance().nodes[:15]
    scores = scores_of(load_insurance(), nodes, 500, "bdeu", seed=1)
    rules = EdgeRules.free(15, 3)
    plain = total(scores, run(scores, "hill_climbing", rules))
    tabu = total(scores, run(scores, "hill_climbing", rules, tabu_length=15))
    again = total(scores, run(scores, "hill_climbing", rules, n_restarts=4))
    assert tabu >= plain and again >= plain
    assert max(tabu, again) > plain


class RandomScores(LocalScores):
    """A score for every family, drawn once: there are many hills and no ties."""

    def __init__(self, n_variables, seed):
        self.n_variables, self.seed = n_variables, seed

    def score(self, child, parents):
        rng = np.random.default_rng([self.seed, child, *sorted(parents)])
        return rng.normal() - 0.2 * len(parents)


def tabu_search(scores, tabu_length):
    """Do tabu search as its textbook says, one graph at a time."""
    d = scores.n_variables
    graph, recent, n_down = np.zeros((d, d), dtype=bool), [], 0
    best, highest = graph, total(scores, graph)
    while True:
        around = []
        for i, j in permutations(range(d), 2):
            if {i, j} in recent:
                continue
            if graph[i, j]:
                changes = [(False, False), (False, True)]
            else:
                changes = [] if graph[j, i] else [(True, False)]
            for there, back in changes:
                other = graph.copy()
                other[i, j], other[j, i] = there, back
                if is_acyclic(other):
                    around.append((total(scores, other), {i, j}, other))
        if not around:
            return best, highest
        score, pair, after = max(around, key=lambda found: found[0])
        if score <= total(scores, graph) and n_down >= tabu_length:
            return best, highest
        graph, recent = after, [*recent, pair][-tabu_length:]
        n_down += 1
        if score > highest:
            best, highest, n_down = graph, score, 0


@pytest.mark.parametrize("tabu_length", [1, 2, 3, 4])
def test_tabu_search_of_the_textbook(tabu_length):
    ends = []
    for seed in range(12):
        scores = RandomScores(4, seed)
        expected, highest = tabu_search(scores, tabu_length)
        found, score = complete(climbing(scores, tabu_length=tabu_length))
        np.testing.assert_array_equal(found, expected)
        assert score == pytest.approx(highest, rel=1e-12)
        ends.append(score - complete(climbing(scores))[1])
    # it is worth its while
    assert min(ends) >= -1e-12 and max(ends) > 0.1


@pytest.mark.parametrize("method", sorted(SEARCHES))
def test_rules_are_kept(method):
    nodes = ["smoke", "lung", "bronc", "dysp", "xray", "either"]
    scores = scores_of(load_asia(), nodes, 2000, "bic")
    allowed, required = edge_rules(
        nodes,
        required=[("smoke", "xray")],
        forbidden=[("lung", "either"), ("either", "lung")],
        tiers=[["smoke"], ["lung", "bronc"], ["dysp", "xray", "either"]],
    )
    graph = run(scores, method, EdgeRules(allowed, required, 2))
    assert graph[required].all() and not graph[~allowed].any()
    assert graph.sum(axis=0).max() <= 2 and is_acyclic(graph)
    # without rules the forbidden edge is there: the rule is what keeps it away
    free = run(scores, method, EdgeRules.free(6, 2))
    assert free[1, 5] or free[5, 1]


@pytest.mark.parametrize(
    "options, message",
    [
        ({"required_edges": [("a", "b"), ("b", "a")]}, "required_edges.*cycle"),
        ({"required_edges": [("a", "e")]}, "required_edges names 'e'"),
        ({"required_edges": ["ab"]}, "required_edges must hold pairs"),
        (
            {"required_edges": [("a", "b")], "forbidden_edges": [("a", "b")]},
            "cannot be both",
        ),
        ({"required_edges": [("a", "b")], "tiers": [["b"], ["a", "c", "d"]]}, "both"),
        ({"forbidden_edges": [(1, 1)]}, "joins 'b' with itself"),
        ({"tiers": [["a", "b"], ["c"]]}, "'d' is in none"),
        ({"tiers": [["a", "b"], ["b", "c", "d"]]}, "has 'b' twice"),
        (
            {"required_edges": [("a", "d"), ("b", "d"), ("c", "d")]},
            "more than max_parents",
        ),
    ],
)
def test_wrong_rules_say_what_is_wrong(options, message):
    X = pd.DataFrame(np.arange(8).reshape(2, 4) % 2, columns=NAMES)
    with pytest.raises(ValueError, match=message):
        FederatedBayesianNetwork(max_parents=2, search_params=options).fit(X)


def test_required_edges_against_the_order_are_refused():
    scores = scores_of(load_asia(), ["asia", "tub", "lung"], 100, "k2")
    names = ["asia", "tub", "lung"]
    rules = EdgeRules(*edge_rules(names, required=[("lung", "asia")]), 2)
    with pytest.raises(ValueError, match="against ordering"):
        run(scores, "k2", rules)
