"""Structure of a discrete network from contingency tables, within and across sites.

Two searches, the same at a site and at the centre, on counts that may come from rows
at hand or from a secure computation. ``"cheng_bell_liu"`` tests independence by
information theory; ``"bic"`` climbs a score. Both use an ordering if there is one.
Links between sites are then added to the sites' own graphs.
"""

import numpy as np
from scipy.special import chdtrc, xlogy

from skprivbn.bayesian_network._dag import ancestors, extend_to_dag
from skprivbn.structure._fci import direct_edges
from skprivbn.structure._scores import TableScores
from skprivbn.structure._search import EdgeRules, adding_parents, climbing
from skprivbn.structure._tables import MAX_CELLS, AskedTables


def largest_table(n_samples):
    """Return the number of cells beyond which a table is about single rows."""
    return max(64, min(int(n_samples), MAX_CELLS))


def scores_of_rows(codes, n_states, weights=None, least=0):
    """Return the Bayesian information criterion of rows at hand.

    Parameters
    ----------
    codes : ndarray of int of shape (n_samples, n_variables)
    n_states : sequence of int
    weights : ndarray of shape (n_samples,), default=None
    least : int, default=0
        Families whose tables have smaller counts, but some, are not considered.

    Returns
    -------
    scores : TableScores
    """
    n_samples = len(codes) if weights is None else weights.sum()
    largest = largest_table(n_samples)
    tables = AskedTables.from_rows(codes, n_states, weights, largest, least)
    return TableScores(tables, n_samples, "bic")


def learning_structure(
    scores, *, method, ordering=None, max_parents=3, significance=0.01
):
    """Find a directed acyclic graph.

    Parameters
    ----------
    scores : TableScores
    method : {"bic", "cheng_bell_liu"}
    ordering : sequence of int, default=None
        All variables, parents before children.
    max_parents : int, default=3
    significance : float, default=0.01
        Level of the tests of ``"cheng_bell_liu"``.

    Yields
    ------
    question : Question
        For tables, unless rows are at hand.

    Returns
    -------
    adjacency : ndarray of bool, shape (n_variables, n_variables)
        True at [i, j] for an edge from i to j.
    """
    return METHODS[method](scores, ordering, max_parents, significance)


def conditional_information(counts):
    """Mutual information of the first two axes of a table, given the others.

    Parameters
    ----------
    counts : ndarray of shape (n_x, n_y, ...)

    Returns
    -------
    information : float
        In nats.
    degrees : int
        Degrees of freedom of the likelihood-ratio test, which is 2 n times the
        information. States that do not occur have none.
    """
    counts = counts.reshape(*counts.shape[:2], -1)
    x, y = counts.sum(axis=1), counts.sum(axis=0)
    total = x.sum(axis=0)
    nats = (
        xlogy(counts, counts).sum()
        - xlogy(x, x).sum()
        - xlogy(y, y).sum()
        + xlogy(total, total).sum()
    )
    free_x, free_y = (np.maximum((m > 0).sum(axis=0) - 1, 0) for m in (x, y))
    return max(nats / total.sum(), 0.0), int((free_x * free_y).sum())


def dropping_parents(scores, node, parents, suspects):
    """Return the parents without those suspects that lower the score."""
    yield from scores.asking([(node, parents, [])])
    parents, score = list(parents), scores.score(node, parents)
    while True:
        without = dict(zip(parents, scores.removed(node, parents).tolist()))
        left = [v for v in suspects if v in parents]
        worst = max(left, key=without.__getitem__, default=None)
        if worst is None or without[worst] <= score:
            return parents
        parents.remove(worst)
        score = without[worst]


def _raise_bic(scores, ordering, max_parents, significance):
    """Add the best parents and drop those not needed; or climb, without an ordering."""
    if ordering is None:
        rules = EdgeRules.free(scores.n_variables, max_parents)
        return (yield from climbing(scores, rules=rules))[0]
    adjacency = np.zeros((scores.n_variables,) * 2, dtype=bool)
    for position, node in enumerate(ordering):
        before = ordering[:position]
        parents, _ = yield from adding_parents(scores, node, before, max_parents)
        kept = yield from dropping_parents(scores, node, parents, parents)
        adjacency[kept, node] = True
    return adjacency


class _Independence:
    """Tests of independence, and the information behind them."""

    def __init__(self, scores, significance):
        self.tables, self.n_samples = scores.tables, scores.n_samples
        self.significance = significance

    def __call__(self, x, y, given=()):
        """Return (information, whether x and y depend on each other)."""
        counts = self.tables.ordered([x, y, *given])
        information, degrees = conditional_information(counts)
        if degrees == 0:
            return information, False
        statistic = 2 * self.n_samples * information
        return information, bool(chdtrc(degrees, statistic) < self.significance)

    def separating(self, x, y, candidates, shrink):
        """Return a subset of `candidates` given which x, y are independent, or None.

        With `shrink`, leaves variables out one by one as long as that lowers the
        information: conditioning on a collider makes its causes dependent.
        """
        given = list(candidates)
        while True:
            while given and not self.tables.fits([x, y, *given[:-1]])[given[-1]]:
                given.pop()
            # those of fewer variables follow from it
            yield from self.tables.asking([(x, y, *given)])
            if not self.tables.hides([x, y, *given]):
                break
        information, dependent = self(x, y, given)
        while dependent:
            if not shrink or len(given) < 2:
                return None
            smaller = [[w for w in given if w != v] for v in given]
            results = [self(x, y, subset) for subset in smaller]
            least = min(range(len(smaller)), key=lambda i: results[i][0])
            if results[least][0] > information:
                return None
            given, (information, dependent) = smaller[least], results[least]
        return given


def _draft(independence):
    """Return the dependent pairs, most information first; of hidden tables none."""
    tables = independence.tables
    pairs = [(x, y) for y in range(len(tables.n_states)) for x in range(y)]
    yield from tables.asking(pairs)
    results = {pair: independence(*pair) for pair in pairs if not tables.hides(pair)}
    information = dict.fromkeys(pairs, 0.0) | {p: r[0] for p, r in results.items()}
    dependent = [pair for pair in results if results[pair][1]]
    return sorted(dependent, key=lambda pair: -information[pair]), information


def _test_pairs(scores, ordering, max_parents, significance):
    """Cheng, Bell and Liu: draft, thicken, thin; orient, if there is no ordering.

    With an ordering edges have a direction at once.
    """
    independence = _Independence(scores, significance)
    dependent, information = yield from _draft(independence)
    is_ordered, edges = ordering is not None, np.zeros((scores.n_variables,) * 2, bool)
    if is_ordered:
        rank = np.argsort(ordering)
        dependent = [tuple(sorted(pair, key=lambda v: rank[v])) for pair in dependent]

    def set_edge(x, y, is_there):
        edges[x, y] = is_there
        if not is_ordered:
            edges[y, x] = is_there

    def linked(x, y):
        """Whether a path without colliders joins x and y: any, without directions."""
        return bool(ancestors(edges, [x]) & ancestors(edges, [y]))

    def best_first(nodes, y):
        return sorted(nodes, key=lambda v: -information[min(v, y), max(v, y)])

    def on_paths(x, y):
        """Neighbours of x from which y can be reached without x, best first."""
        without = edges.copy()
        without[x] = without[:, x] = False
        # the matrix is symmetric: ancestors are the connected component
        near = ancestors(without, [y]) & set(np.flatnonzero(edges[x]).tolist())
        return best_first(near - {y}, y)

    def separator(x, y):
        """Return what separates x and y; None if nothing does that is tried."""
        if is_ordered:
            # y's parents separate it from whatever is not its descendant
            parents = np.flatnonzero(edges[:, y]).tolist()
            tried = [best_first((v for v in parents if linked(v, x)), y)]
        else:
            tried = sorted((on_paths(x, y), on_paths(y, x)), key=len)
        for candidates in tried:
            found = yield from independence.separating(
                x, y, candidates, shrink=not is_ordered
            )
            if found is not None:
                return found
        return None

    # of pairs whose table is hidden, nothing is known
    unknown = {pair for pair in information if scores.tables.hides(pair)}
    separators = dict.fromkeys(information.keys() - unknown - set(dependent), ())
    postponed = []
    for x, y in dependent:
        if linked(x, y):
            postponed.append((x, y))
        else:
            set_edge(x, y, True)
    for x, y in postponed:
        separators[x, y] = found = yield from separator(x, y)
        set_edge(x, y, found is None)
    for x, y in reversed(dependent):
        if edges[x, y]:
            set_edge(x, y, False)
            found = (yield from separator(x, y)) if linked(x, y) else None
            separators[x, y] = found
            set_edge(x, y, found is None)
    if not is_ordered:
        known = {pair: s for pair, s in sorted(separators.items()) if s is not None}
        edges = extend_to_dag(direct_edges(edges, known))
    return _limit_parents(edges, information, max_parents)


def _limit_parents(adjacency, information, max_parents):
    for y in range(len(adjacency)):
        parents = np.flatnonzero(adjacency[:, y]).tolist()
        parents.sort(key=lambda v: -information[min(v, y), max(v, y)])
        adjacency[parents[max_parents:], y] = False
    return adjacency


METHODS = {"bic": _raise_bic, "cheng_bell_liu": _test_pairs}


def crossing(adjacency, owners):
    """Return the edges whose ends belong to different sites."""
    owners = np.asarray(owners)
    return adjacency & (owners[:, None] != owners)


def families_across(adjacency, owners):
    """Return columns with a parent at another site, each with all its parents."""
    nodes = _heads(crossing(adjacency, owners))
    return {v: [*np.flatnonzero(adjacency[:, v]).tolist(), v] for v in nodes}


def joining_graphs(local, links, scores):
    """Add links between sites to the local edges, strongest first.

    A link that would close a cycle is turned round, which is always possible; one
    that makes a table too large for the rows there are is left out. Where small counts
    hide the table of a node, its parents are chosen again.

    Parameters
    ----------
    local, links : ndarray of bool, shape (n_variables, n_variables)
        Directed acyclic each.
    scores : TableScores

    Returns
    -------
    adjacency : ndarray of bool, shape (n_variables, n_variables)
    """
    joined = local.copy()
    pairs = np.argwhere(links).tolist()
    yield from scores.asking([(v, [], [u]) for u, v in pairs])
    gain = {(u, v): scores.score(v, [u]) - scores.score(v, []) for u, v in pairs}
    for u, v in sorted(gain, key=gain.get, reverse=True):
        if v in ancestors(joined, [u]):
            u, v = v, u
        parents = np.flatnonzero(joined[:, v]).tolist()
        is_hidden = scores.tables.hides([u, v, *parents])
        joined[u, v] = is_hidden or scores.fits(v, parents)[u]
    across = joined & ~local
    joined = yield from choosing_again(joined, _heads(across), scores)
    alone = ~(joined & across).any(axis=0)
    joined[:, alone] = local[:, alone]
    return joined


def choosing_again(graph, nodes, scores):
    """Choose parents again of nodes whose tables have small counts, and are hidden.

    Parameters
    ----------
    graph : ndarray of bool, shape (n_variables, n_variables)
    nodes : sequence of int
    scores : TableScores

    Returns
    -------
    graph : ndarray of bool, shape (n_variables, n_variables)
        With those of the same parents, of which a table can be told.
    """
    found = {v: np.flatnonzero(graph[:, v]).tolist() for v in nodes}
    yield from scores.asking([(v, parents, []) for v, parents in found.items()])
    kept = graph.copy()
    for v, parents in found.items():
        if scores.tables.hides([v, *parents]):
            chosen, _ = yield from adding_parents(scores, v, parents, len(parents))
            kept[:, v] = np.isin(np.arange(len(kept)), chosen)
    return kept


def _heads(edges):
    return np.flatnonzero(edges.any(axis=0)).tolist()


def explaining_away(adjacency, owners, scores):
    """Remove false local edges that stood for a variable at another site.

    A site that does not see w in u -> w -> v, or in u <- w -> v, finds an edge from u
    to v. Once w is known to be a parent of v, local parents of v that are connected
    with w are scored again.

    Parameters
    ----------
    adjacency : ndarray of bool, shape (n_variables, n_variables)
    owners : sequence of str
    scores : TableScores

    Returns
    -------
    adjacency : ndarray of bool, shape (n_variables, n_variables)
    """
    kept, remote = adjacency.copy(), crossing(adjacency, owners)
    for node in _heads(remote):
        suspects = []
        for parent in np.flatnonzero(kept[:, node] & ~remote[:, node]).tolist():
            without = kept.copy()
            without[parent, node] = False
            above = ancestors(without, [parent])
            if any(
                above & ancestors(without, [other])
                for other in np.flatnonzero(remote[:, node]).tolist()
            ):
                suspects.append(parent)
        parents = np.flatnonzero(kept[:, node]).tolist()
        kept[:, node] = False
        found = yield from dropping_parents(scores, node, parents, suspects)
        kept[found, node] = True
    return kept
