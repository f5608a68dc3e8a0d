"""From totals of all parties to a network: searches, which never see a row.

Every party goes through these steps by itself, with the same totals.
"""

from typing import Any

import numpy as np

from skprivbn.bayesian_network._dag import extend_to_dag, graph_of, parents_of
from skprivbn.bayesian_network._labels import smoothed
from skprivbn.structure._equivalence import searching_equivalence
from skprivbn.structure._resampling import edge_confidence
from skprivbn.structure._scores import FRACTION_BITS, TableScores
from skprivbn.structure._search import (
    EdgeRules,
    climbing,
    climbing_from_random_changes,
    keeping_rules,
    searching_greedily,
)
from skprivbn.structure._site_effects import TableMechanisms
from skprivbn.structure._tables import AskedTables, check_table_sizes
from skprivbn.structure.rows._mixed import (
    AskedMoments,
    MixedScores,
    Scale,
    without_last_digits,
)
from skprivbn.utils._memoise import memoise_steps


def _k2(scores, rules, terms):
    parents, _ = yield from searching_greedily(scores, terms.ordering, rules)
    return parents


def _hill_climbing(scores, rules, terms, start=None):
    options = {"rules": rules, "tabu_length": terms.tabu_length}
    found = yield from climbing(scores, start, **options)
    rng = np.random.RandomState(terms.seed)
    graph, _ = yield from climbing_from_random_changes(
        scores, *found, terms.n_restarts, rng, **options
    )
    return dict(enumerate(parents_of(graph)))


def _ges(scores, rules, terms):
    joined = rules.allowed | rules.allowed.T
    cpdag = yield from searching_equivalence(
        scores, allowed=joined, max_parents=rules.max_parents
    )
    # The search can end short of a maximum, and knows no directions that are given.
    # Going on from a member of the class never lowers the score.
    start = yield from keeping_rules(extend_to_dag(cpdag), rules, scores)
    return (yield from _hill_climbing(scores, rules, terms, start))


#: from scores, rules about edges and terms to the parents of every variable
SEARCHES = {"hill_climbing": _hill_climbing, "ges": _ges, "k2": _k2}


@memoise_steps
def learning(terms, n_states, sums, max_cells, n_sites):
    """Find a graph and the parameters of its families, from tables asked for.

    Parameters
    ----------
    terms : RowNetworkTerms
    n_states : tuple of int
        Number of states of every column.
    sums : ndarray
        Number of rows, and what :class:`Scale` reads.
    max_cells : int
        Of one table.
    n_sites : int

    Yields
    ------
    question : Question
        To be answered by counts, or sums, over all parties.

    Returns
    -------
    found : dict
        Plain data. With `problem` alone if the tables would be too large.
    """
    scale, n_rows = Scale.from_sums(sums, len(terms.continuous)), int(round(sums[0]))
    tables = tables_for(terms, n_states, max_cells)
    return (yield from learning_from(terms, tables, n_rows, scale, n_sites))


def tables_for(terms, n_states, max_cells):
    """Return the tables that a search asks for.

    Parameters
    ----------
    terms, n_states, max_cells :
        As of :func:`learning`.

    Returns
    -------
    tables : AskedTables
    """
    return AskedTables(
        n_states,
        consistent=terms.min_cell_count <= 1 and terms.missing == "error",
        max_cells=max_cells,
    )


def learning_from(terms, tables, n_samples, scale=None, n_sites=1):
    """Find a graph and the parameters of its families, from tables of all rows.

    Parameters
    ----------
    terms : RowNetworkTerms
    tables : AskedTables
    n_samples : float
    scale : Scale, default=None
        Of continuous columns, where there are some.
    n_sites : int, default=1
        Whose mechanisms may differ.

    Yields
    ------
    question : Question

    Returns
    -------
    found : dict
    """
    n_states, continuous = tables.n_states, terms.continuous
    scores: Any = TableScores(
        tables, n_samples, terms.criterion, terms.equivalent_sample_size
    )
    moments = None
    if terms.site_effects is not None:
        scores = TableMechanisms(tables, n_samples, n_sites)
    if continuous:
        moments = AskedMoments(n_states, len(continuous))
        options = continuous, scale, terms.alpha, tables.max_cells
        scores = MixedScores(scores, moments, *options)
    if terms.known is None and terms.method == "k2":
        try:
            check_table_sizes(n_states, terms.ordering, terms.max_parents)
        except ValueError as error:
            return {"problem": str(error)}
    parents = yield from _find_parents(terms, scores)
    found = {}
    if terms.n_bootstrap:
        found["edge_confidence"] = yield from _resample(terms, scores)
    discrete = [v for v in range(len(n_states)) if v not in continuous]
    families = [(v, parents[v], []) for v in parents]
    by_scores = continuous if terms.site_effects is None else parents
    yield from scores.asking([f for f in families if f[0] in by_scores])
    lacking = [v for v in continuous if not scores.is_known(v, parents[v])]
    if lacking:
        names = [terms.names[v] for v in lacking]
        return {
            "problem": f"columns {names} must have discrete parents of which some "
            "configuration has too few records"
        }
    yield from tables.asking((*parents[v], v) for v in discrete)
    found_scores = {v: scores.score(v, above) for v, above, _ in families}
    for v in continuous:
        found_scores[v] = without_last_digits(found_scores[v])
    if terms.site_effects is not None:
        graph = graph_of([parents[v] for v in sorted(parents)])
        found["differs"], found["p_values"] = scores.changes(graph)
    return found | {
        "parents": [parents[v] for v in range(len(n_states))],
        "log_score": sum(found_scores.values()) / (1 << FRACTION_BITS),
        "cpts": [
            smoothed(tables.ordered([*parents[v], v]), terms.alpha) for v in discrete
        ],
        "lines": [list(scores.parameters(v, parents[v])) for v in continuous],
        "tables": tables.runs,
        "moments": [list(key) for key in moments.asked] if continuous else [],
    }


def _find_parents(terms, scores):
    """Return the parents of every column that are known, or found."""
    if terms.known is not None:
        return dict(enumerate(terms.known))
    rules = EdgeRules(terms.allowed, terms.required, terms.max_parents)
    return (yield from SEARCHES[terms.method](scores, rules, terms))


def _resample(terms, scores):
    """Tell how sure each edge is, from samples drawn from the tables."""
    seed = np.random.RandomState(terms.seed).randint(2**31)
    rng, found = np.random.default_rng(seed), []
    for _ in range(terms.n_bootstrap):
        found.append((yield from _find_parents(terms, scores.resampled(rng))))
    return edge_confidence(found, is_directed=terms.has_directions)
