"""From scores of families to a graph: one entry for every search."""

import numpy as np

from skprivbn.bayesian_network._dag import extend_to_dag, is_acyclic
from skprivbn.structure._equivalence import searching_equivalence
from skprivbn.structure._search import (
    adding_parents,
    climbing,
    climbing_from_random_changes,
    complete,
)


def greedy_search(scores, ordering, rules):
    """Search as :func:`searching_greedily` does, with scores at hand."""
    return complete(searching_greedily(scores, ordering, rules), scores)


def searching_greedily(scores, ordering, rules):
    """Find the parents of every variable among those before it, one by one.

    Parameters
    ----------
    scores : LocalScores
    ordering : sequence of int
        Parents come from earlier in the ordering.
    rules : EdgeRules

    Yields
    ------
    asked : list
        What ``scores.fetch`` takes.

    Returns
    -------
    parents : dict of int to list of int
        In the order in which they were found.
    found : dict of int to int
        Scores of the families.
    """
    parents, found = {}, {}
    for position, node in enumerate(ordering):
        before = [v for v in ordering[:position] if rules.allowed[v, node]]
        must = [v for v in before if rules.required[v, node]]
        if len(must) < rules.required[:, node].sum():
            raise ValueError("required_edges has an edge that goes against ordering")
        parents[node], found[node] = yield from adding_parents(
            scores, node, before, rules.max_parents, must
        )
    return parents, found


def _k2(scores, rules, options):
    parents, _ = yield from searching_greedily(scores, options["ordering"], rules)
    return parents


def _hill_climbing(scores, rules, options, start=None):
    tabu_length = options["tabu_length"]
    found = yield from climbing(scores, start, rules=rules, tabu_length=tabu_length)
    graph, _ = yield from climbing_from_random_changes(
        scores,
        *found,
        options["n_restarts"],
        options["random_state"],
        rules=rules,
        tabu_length=tabu_length,
    )
    return {v: np.flatnonzero(column).tolist() for v, column in enumerate(graph.T)}


def _ges(scores, rules, options):
    joined = rules.allowed | rules.allowed.T
    cpdag = yield from searching_equivalence(
        scores, allowed=joined, max_parents=rules.max_parents
    )
    # The search can end short of a maximum, and knows no directions that are given.
    # Going on from a member of the class never lowers the score.
    start = yield from _keep_rules(extend_to_dag(cpdag), rules, scores)
    return (yield from _hill_climbing(scores, rules, options, start))


def _keep_rules(graph, rules, scores):
    """Return a graph that is near another one and keeps the rules."""
    kept = rules.required.copy()
    for i, j in np.argwhere(graph | graph.T & ~graph).tolist():
        forward = graph[i, j] or not rules.allowed[j, i]
        if kept[i, j] or kept[j, i] or not (forward and rules.allowed[i, j]):
            continue
        kept[i, j] = True
        if not is_acyclic(kept):
            kept[i, j] = False
    for child in np.flatnonzero(kept.sum(axis=0) > rules.max_parents).tolist():
        must = np.flatnonzero(rules.required[:, child]).tolist()
        candidates = np.flatnonzero(kept[:, child]).tolist()
        found, _ = yield from adding_parents(
            scores, child, candidates, rules.max_parents, must
        )
        kept[:, child] = False
        kept[found, child] = True
    return kept


SEARCHES = {"hill_climbing": _hill_climbing, "ges": _ges, "k2": _k2}


def search(method, scores, rules, **options):
    """Search as :func:`searching` does, with scores at hand."""
    return complete(searching(method, scores, rules, **options), scores)


def searching(method, scores, rules, **options):
    """Find a directed acyclic graph.

    Parameters
    ----------
    method : str
        One of :data:`SEARCHES`.
    scores : LocalScores
    rules : EdgeRules
    **options
        ``ordering`` of "k2", ``tabu_length``, ``n_restarts`` and ``random_state`` of
        the others.

    Yields
    ------
    asked : list
        What ``scores.fetch`` takes.

    Returns
    -------
    parents : dict of int to list of int
    """
    return (yield from SEARCHES[method](scores, rules, options))
