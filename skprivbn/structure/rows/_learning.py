"""From totals of all parties to a network: what never sees a row.

Every party goes through these steps by itself, with the same totals.
"""

from typing import Any

import numpy as np

from skprivbn.bayesian_network._tables import smoothed
from skprivbn.structure._search import EdgeRules
from skprivbn.structure.k2._base import check_table_sizes
from skprivbn.structure.k2._scores import FRACTION_BITS
from skprivbn.structure.rows._bootstrap import edge_confidence
from skprivbn.structure.rows._mixed import AskedMoments, MixedScores, Scale
from skprivbn.structure.rows._scores import TableScores
from skprivbn.structure.rows._search import searching
from skprivbn.structure.rows._tables import AskedTables
from skprivbn.utils._memoise import memoise_steps


@memoise_steps
def learning(terms, n_states, sums, max_cells):
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

    Yields
    ------
    question : Question
        To be answered by counts, or sums, over all parties.

    Returns
    -------
    found : dict
        Plain data. With `problem` alone if the tables would be too large.
    """
    tables = AskedTables(
        n_states,
        consistent=terms.min_cell_count <= 1 and terms.missing == "error",
        max_cells=max_cells,
    )
    n_samples, continuous = int(round(sums[0])), terms.continuous
    scores: Any = TableScores(
        tables, n_samples, terms.criterion, terms.equivalent_sample_size
    )
    moments = None
    if continuous:
        moments = AskedMoments(n_states, len(continuous))
        scale = Scale.from_sums(sums, len(continuous))
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
    yield from scores.asking([f for f in families if f[0] in continuous])
    yield from tables.asking((parents[v], [v]) for v in parents if v in discrete)
    total = sum(scores.score(v, above) for v, above, _ in families)
    return found | {
        "parents": [parents[v] for v in range(len(n_states))],
        "log_score": total / (1 << FRACTION_BITS),
        "cpts": [smoothed(tables.family(parents[v], v), terms.alpha) for v in discrete],
        "lines": [list(scores.parameters(v, parents[v])) for v in continuous],
        "tables": [list(key) for key in tables.asked],
        "moments": [list(key) for key in moments.asked] if continuous else [],
    }


def _find_parents(terms, scores):
    """Return the parents of every column that are known, or found."""
    if terms.known is not None:
        return dict(enumerate(terms.known))
    steps = searching(
        terms.method,
        scores,
        EdgeRules(terms.allowed, terms.required, terms.max_parents),
        ordering=terms.ordering,
        tabu_length=terms.tabu_length,
        n_restarts=terms.n_restarts,
        random_state=np.random.RandomState(terms.seed),
    )
    while True:
        try:
            asked = next(steps)
        except StopIteration as stop:
            return stop.value
        yield from scores.asking(asked)


def _resample(terms, scores):
    """Tell how sure each edge is, from samples drawn from the tables."""
    seed = np.random.RandomState(terms.seed).randint(2**31)
    rng, found = np.random.default_rng(seed), []
    for _ in range(terms.n_bootstrap):
        found.append((yield from _find_parents(terms, scores.resampled(rng))))
    return edge_confidence(found, is_directed=terms.has_directions)
