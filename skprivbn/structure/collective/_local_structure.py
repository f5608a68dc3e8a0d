"""Structure of a discrete network from contingency tables.

Two searches, the same at a site and at the centre, on counts that may come from rows
at hand or from a secure computation. ``"cheng_bell_liu"`` tests independence by
information theory; ``"bic"`` climbs a score. Both use an ordering if there is one.
"""

from math import prod

import numpy as np
from scipy.special import chdtrc, xlogy

from skprivbn.bayesian_network._dag import (
    ancestors,
    apply_meek_rules,
    extend_to_dag,
)
from skprivbn.bayesian_network._tables import count_rows
from skprivbn.structure._search import EdgeRules, LocalScores, add_parents, climb

# gains below are rounding errors
TINY = 1e-9
MAX_CELLS = 1 << 16


class Tables:
    """Contingency tables of some variables, counted when asked for and kept.

    A table that follows from a larger one by summation is not counted again. That
    matters where counting costs: between parties, under encryption.

    Parameters
    ----------
    n_states : sequence of int
        Number of states of every variable.
    n_samples : float
        Sum of every table.
    count : callable
        Takes a list of tuples of variables, in ascending order each, and returns
        their tables.
    """

    def __init__(self, n_states, n_samples, count):
        self.n_states, self.n_samples = list(n_states), n_samples
        self._count, self._kept = count, {}

    @classmethod
    def from_rows(cls, codes, n_states, weights=None):
        """Count rows at hand, of shape (n_samples, n_variables)."""
        n_samples = len(codes) if weights is None else weights.sum()

        def count(asked):
            return [count_rows(codes, v, n_states, weights) for v in asked]

        return cls(n_states, n_samples, count)

    @staticmethod
    def largest(n_samples):
        """Return the number of cells beyond which a table is about single rows."""
        return max(64, min(int(n_samples), MAX_CELLS))

    def fits(self, variables):
        """Tell whether there are rows enough for a table."""
        n_cells = prod(self.n_states[v] for v in variables)
        return n_cells <= self.largest(self.n_samples)

    def fetch(self, families):
        """Count many tables at once; later questions for them cost nothing."""
        wanted = {tuple(sorted(family)) for family in families} - set(self._kept)
        # large ones first: small ones may follow from them
        missing = []
        for variables in sorted(wanted, key=len, reverse=True):
            if not any(set(variables) <= set(larger) for larger in missing):
                table = self._from_larger(variables)
                if table is None:
                    missing.append(variables)
                else:
                    self._kept[variables] = table
        if missing:
            self.keep(missing, self._count(missing))

    def keep(self, asked, tables):
        """Keep tables that were counted elsewhere."""
        self._kept.update(zip(asked, tables))

    def _from_larger(self, variables):
        wanted = set(variables)
        for larger, table in self._kept.items():
            if wanted <= set(larger):
                summed = tuple(i for i, v in enumerate(larger) if v not in wanted)
                return table.sum(axis=summed)
        return None

    def __call__(self, variables):
        """Return the table of some variables, its axes in the order given."""
        key = tuple(sorted(variables))
        if key not in self._kept:
            table = self._from_larger(key)
            if table is None:
                self.fetch([key])
            else:
                self._kept[key] = table
        return self._kept[key].transpose([key.index(v) for v in variables])


def learn_structure(tables, *, method, ordering=None, max_parents=3, significance=0.01):
    """Find a directed acyclic graph.

    Parameters
    ----------
    tables : Tables
    method : {"bic", "cheng_bell_liu"}
    ordering : sequence of int, default=None
        All variables, parents before children.
    max_parents : int, default=3
    significance : float, default=0.01
        Level of the tests of ``"cheng_bell_liu"``.

    Returns
    -------
    adjacency : ndarray of bool, shape (n_variables, n_variables)
        True at [i, j] for an edge from i to j.
    """
    search = METHODS[method][ordering is not None]
    return search(tables, ordering, max_parents, significance)


def bic_score(tables, node, parents):
    """Bayesian information criterion of a family, larger is better."""
    counts = tables([*parents, node])
    totals = counts.sum(axis=-1)
    likelihood = xlogy(counts, counts).sum() - xlogy(totals, totals).sum()
    n_parameters = (counts.shape[-1] - 1) * totals.size
    return likelihood - 0.5 * np.log(tables.n_samples) * n_parameters


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


class BicScores(LocalScores):
    """The Bayesian information criterion of tables that are not about single rows."""

    tolerance = TINY

    def __init__(self, tables):
        self.tables, self.n_variables = tables, len(tables.n_states)
        self._known = {}

    def score(self, child, parents):
        """Return the score of a node with some parents."""
        key = child, tuple(parents)
        if key not in self._known:
            self._known[key] = bic_score(self.tables, child, parents)
        return self._known[key]

    def added(self, child, parents, candidates):
        """Return the scores with each of some candidates as one more parent."""
        return np.array([self.score(child, sorted([*parents, v])) for v in candidates])

    def fits(self, child, parents):
        """Tell which further parents leave rows enough for a table."""
        return np.array(
            [self.tables.fits([*parents, child, v]) for v in range(self.n_variables)]
        )

    def fetch(self, asked):
        """Count many tables at once."""
        self.tables.fetch(
            [*parents, v, child]
            for child, parents, candidates in asked
            for v in candidates
        )


def _greedy_bic(tables, ordering, max_parents, significance):
    """Add the best parent as long as the score rises, then drop what is not needed."""
    scores = BicScores(tables)
    adjacency = np.zeros((len(tables.n_states),) * 2, dtype=bool)
    for position, node in enumerate(ordering):
        parents, _ = add_parents(scores, node, ordering[:position], max_parents)
        adjacency[drop_parents(tables, node, parents, parents), node] = True
    return adjacency


def drop_parents(tables, node, parents, suspects):
    """Return the parents without those suspects that lower the score."""
    parents, score = list(parents), bic_score(tables, node, parents)
    while True:
        without = {
            v: bic_score(tables, node, [u for u in parents if u != v])
            for v in suspects
            if v in parents
        }
        worst = max(without, key=without.get, default=None)
        if worst is None or without[worst] <= score + TINY:
            return parents
        parents.remove(worst)
        score = without[worst]


def _climb_bic(tables, ordering, max_parents, significance):
    """Add, remove or turn the edge that raises the score most, until none does."""
    rules = EdgeRules.free(len(tables.n_states), max_parents)
    return climb(BicScores(tables), rules=rules)[0]


class _Independence:
    """Tests of independence, and the information behind them."""

    def __init__(self, tables, significance):
        self.tables, self.significance = tables, significance

    def __call__(self, x, y, given=()):
        """Return (information, whether x and y depend on each other)."""
        counts = self.tables([x, y, *given])
        information, degrees = conditional_information(counts)
        if degrees == 0:
            return information, False
        statistic = 2 * self.tables.n_samples * information
        return information, bool(chdtrc(degrees, statistic) < self.significance)

    def separate(self, x, y, candidates, shrink):
        """Return a subset of `candidates` given which x, y are independent, or None.

        With `shrink`, leaves variables out one by one as long as that lowers the
        information: conditioning on a collider makes its causes dependent.
        """
        given = list(candidates)
        while given and not self.tables.fits([x, y, *given]):
            given.pop()
        information, dependent = self(x, y, given)
        while dependent:
            if not shrink or len(given) < 2:
                return None
            smaller = [[w for w in given if w != v] for v in given]
            self.tables.fetch([x, y, *subset] for subset in smaller)
            results = [self(x, y, subset) for subset in smaller]
            least = min(range(len(smaller)), key=lambda i: results[i][0])
            if results[least][0] > information:
                return None
            given, (information, dependent) = smaller[least], results[least]
        return given


def _draft(independence):
    """Return the dependent pairs, most information first."""
    n = len(independence.tables.n_states)
    pairs = [(x, y) for y in range(n) for x in range(y)]
    independence.tables.fetch(pairs)
    results = {pair: independence(*pair) for pair in pairs}
    information = {pair: result[0] for pair, result in results.items()}
    dependent = [pair for pair in pairs if results[pair][1]]
    return sorted(dependent, key=lambda pair: -information[pair]), information


def _ordered_tests(tables, ordering, max_parents, significance):
    """Cheng, Bell and Liu with a given ordering: edges have a direction at once."""
    independence = _Independence(tables, significance)
    n, rank = len(tables.n_states), np.argsort(ordering)
    adjacency = np.zeros((n, n), dtype=bool)
    dependent, information = _draft(independence)
    directed = [tuple(sorted(pair, key=lambda v: rank[v])) for pair in dependent]

    def linked(x, y):
        """Whether a path without colliders joins x and y."""
        return bool(ancestors(adjacency, [x]) & ancestors(adjacency, [y]))

    def separable(x, y):
        # y's parents separate it from whatever is not its descendant
        blocking = [v for v in np.flatnonzero(adjacency[:, y]).tolist() if linked(v, x)]
        blocking.sort(key=lambda v: -information[min(v, y), max(v, y)])
        return independence.separate(x, y, blocking, shrink=False) is not None

    postponed = []
    for x, y in directed:
        if linked(x, y):
            postponed.append((x, y))
        else:
            adjacency[x, y] = True
    for x, y in postponed:
        adjacency[x, y] = not separable(x, y)
    for x, y in reversed([edge for edge in directed if adjacency[edge]]):
        adjacency[x, y] = False
        adjacency[x, y] = not linked(x, y) or not separable(x, y)
    return _limit_parents(adjacency, information, max_parents)


def _unordered_tests(tables, ordering, max_parents, significance):
    """Cheng, Bell and Liu without an ordering: draft, thicken, thin, orient."""
    independence = _Independence(tables, significance)
    n = len(tables.n_states)
    edges = np.zeros((n, n), dtype=bool)
    dependent, information = _draft(independence)
    separators = {(x, y): () for x, y in information if (x, y) not in set(dependent)}

    def on_paths(x, y):
        """Neighbours of x from which y can be reached without x, best first."""
        without = edges.copy()
        without[x] = without[:, x] = False
        # the matrix is symmetric: ancestors are the connected component
        near = ancestors(without, [y]) & set(np.flatnonzero(edges[x]).tolist())
        return sorted(near - {y}, key=lambda v: -information[min(v, y), max(v, y)])

    def separator(x, y):
        for candidates in sorted((on_paths(x, y), on_paths(y, x)), key=len):
            found = independence.separate(x, y, candidates, shrink=True)
            if found is not None:
                return found
        return None

    postponed = []
    for x, y in dependent:
        if y in ancestors(edges, [x]):
            postponed.append((x, y))
        else:
            edges[x, y] = edges[y, x] = True
    for x, y in postponed:
        found = separator(x, y)
        edges[x, y] = edges[y, x] = found is None
        separators[x, y] = found
    for x, y in reversed(dependent):
        if not edges[x, y]:
            continue
        edges[x, y] = edges[y, x] = False
        found = separator(x, y) if y in ancestors(edges, [x]) else None
        edges[x, y] = edges[y, x] = found is None
        separators[x, y] = found
    return _limit_parents(_orient(edges, separators), information, max_parents)


def _orient(edges, separators):
    """Direct colliders, then what they imply, then the rest without new ones."""
    pdag = edges.copy()
    for (x, y), given in sorted(separators.items()):
        if edges[x, y] or given is None:
            continue
        for middle in np.flatnonzero(edges[x] & edges[y]).tolist():
            # arrows that point away from the middle were found first
            if middle not in given and pdag[x, middle] and pdag[y, middle]:
                pdag[middle, x] = pdag[middle, y] = False
    return extend_to_dag(apply_meek_rules(pdag))


def _limit_parents(adjacency, information, max_parents):
    for y in range(len(adjacency)):
        parents = np.flatnonzero(adjacency[:, y]).tolist()
        parents.sort(key=lambda v: -information[min(v, y), max(v, y)])
        adjacency[parents[max_parents:], y] = False
    return adjacency


#: name: (search without, search with an ordering)
METHODS = {
    "bic": (_climb_bic, _greedy_bic),
    "cheng_bell_liu": (_unordered_tests, _ordered_tests),
}
