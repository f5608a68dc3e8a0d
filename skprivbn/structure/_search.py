"""Searches for a graph, on any score of families.

Greedily along an ordering, and by hill climbing; over equivalence classes see
:mod:`skprivbn.structure._equivalence`.
"""

from abc import ABC, abstractmethod

import numpy as np

from skprivbn.bayesian_network._dag import closure, is_acyclic
from skprivbn.structure._edge_rules import EdgeRules

#: searches that parties repeat with a change, or on rows that are drawn again
MAX_REPEATS = 10_000


class LocalScores(ABC):
    """Scores of a node given its parents; higher is better.

    Subclasses define :meth:`score`, or all of the others. Where scores cost messages,
    :meth:`asking` asks for what many of them need at once. A search is a generator,
    which yields these questions: whoever runs it may have to ask others.

    Attributes
    ----------
    n_variables : int
    tolerance : float
        Gains of up to this much are rounding errors.
    """

    n_variables: int
    tolerance: float = 0.0

    @abstractmethod
    def score(self, child, parents):
        """Return the score of a node with some parents."""

    def added(self, child, parents, candidates):
        """Return the scores with each of some candidates as one more parent."""
        return np.array([self.score(child, [*parents, v]) for v in candidates])

    def removed(self, child, parents):
        """Return the scores without each of the parents."""
        return np.array(
            [self.score(child, [u for u in parents if u != v]) for v in parents]
        )

    def fits(self, child, parents):
        """Tell which further parents leave a family that can be scored."""
        return np.ones(self.n_variables, dtype=bool)

    def asking(self, asked):
        """Ask for what scores need: nothing, if they are at hand.

        Parameters
        ----------
        asked : list of (int, sequence of int, sequence of int)
            Nodes, parents, and candidates for one more parent, as in :meth:`added`.

        Yields
        ------
        question : object
        """
        return iter(())

    def gain(self, change, now, n_edges):
        """Return what a change of scores is worth.

        Parameters
        ----------
        change : ndarray
            Differences of scores.
        now : ndarray of shape (n_variables,)
            Scores of all nodes before.
        n_edges : {-1, 0, 1}
            Edges more than before.

        Returns
        -------
        gain : ndarray
        """
        return change


class PairedScores(LocalScores):
    """Scores whose differences are found on the same rows, by :meth:`worth`.

    Scores of different tables do not compare where each of them lacks other rows.
    """

    @abstractmethod
    def worth(self, child, parents, v):
        """Return what one more parent gains."""

    def added(self, child, parents, candidates):
        """Return the scores with each of some candidates as one more parent."""
        now = self.score(child, parents)
        return np.array([now + self.worth(child, parents, v) for v in candidates])

    def removed(self, child, parents):
        """Return the scores without each of the parents."""
        now = self.score(child, parents)
        rest = ([u for u in parents if u != v] for v in parents)
        return np.array(
            [now - self.worth(child, left, v) for left, v in zip(rest, parents)]
        )


def complete(search):
    """Return the result of a search whose scores are at hand."""
    try:
        question = next(search)
    except StopIteration as stop:
        return stop.value
    raise LookupError(f"nobody answers {question}")


def keeping_rules(graph, rules, scores):
    """Find a graph that is near another one and keeps the rules.

    Parameters
    ----------
    graph : ndarray of bool of shape (d, d)
        Acyclic.
    rules : EdgeRules
    scores : LocalScores

    Yields
    ------
    question : object
        Of ``scores.asking``.

    Returns
    -------
    adjacency : ndarray of bool of shape (d, d)
    """
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


def adding_parents(scores, node, candidates, max_parents, start=()):
    """Add the best candidate as a parent as long as that raises the score.

    Parameters
    ----------
    scores : LocalScores
    node : int
    candidates : sequence of int
        Of candidates that are as good as each other, the first is taken.
    max_parents : int
    start : sequence of int, default=()
        Parents that are there from the beginning.

    Yields
    ------
    question : object
        Of ``scores.asking``.

    Returns
    -------
    parents : list of int
        In the order in which they were found.
    score : float or int
        Of the node with these parents.
    """
    parents = list(start)
    while True:
        fits = scores.fits(node, parents)
        left = [v for v in candidates if v not in parents and fits[v]]
        if len(parents) >= max_parents:
            left = []
        yield from scores.asking([(node, parents, left)])
        best = scores.score(node, parents)
        found = scores.added(node, parents, left).tolist() if left else []
        winner = max(range(len(left)), key=found.__getitem__, default=None)
        if winner is None or found[winner] <= best + scores.tolerance:
            return parents, best
        parents.append(left[winner])


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
    question : object
        Of ``scores.asking``.

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


def climbing(scores, start=None, *, rules=None, tabu_length=0):
    """Add, turn or remove the edge that raises the score most, until none does.

    All single-edge changes are compared at once; after a change only the nodes that
    it touches are scored again, and only for changes that are possible.

    Parameters
    ----------
    scores : LocalScores
    start : ndarray of bool of shape (d, d), default=None
        Acyclic graph that keeps the rules; the one with the required edges if None.
    rules : EdgeRules, default=None
        None allows every edge.
    tabu_length : int, default=0
        How many steps to go on downhill from the best graph so far, while the last so
        many pairs of nodes that were changed stay as they are.

    Yields
    ------
    question : object
        Of ``scores.asking``.

    Returns
    -------
    adjacency : ndarray of bool of shape (d, d)
    score : float or int
        Sum of the scores of its families.
    """
    rules = EdgeRules.free(scores.n_variables) if rules is None else rules
    walk = _Walk(scores, rules, rules.required if start is None else start)
    yield from walk.begin()
    best, highest, n_down = walk.graph.copy(), walk.total, 0
    frozen, seen = [], set()
    while True:
        gain, kind, i, j = yield from walk.best_change(frozen)
        uphill = gain > scores.tolerance
        if not uphill and (n_down >= tabu_length or gain == -np.inf):
            return best, highest
        yield from walk.change(kind, i, j)
        # where gains depend on the way, it may lead in a circle
        now = hash(walk.graph.tobytes())
        if not tabu_length and now in seen:
            return best, highest
        seen.add(now)
        if tabu_length:
            frozen = [*frozen, (i, j), (j, i)][-2 * tabu_length :]
        # a step may be uphill and still end below the best
        if not tabu_length or walk.total > highest + scores.tolerance:
            best, highest, n_down = walk.graph.copy(), walk.total, 0
        else:
            n_down += 1


def climbing_from_random_changes(scores, graph, highest, n_restarts, rng, **options):
    """Climb again from changed copies of the best graph, and keep the best end.

    Parameters
    ----------
    scores : LocalScores
    graph, highest
        What :func:`climbing` returned.
    n_restarts : int
    rng : RandomState
    **options
        Of :func:`climbing`.

    Yields
    ------
    question : object
        Of ``scores.asking``.

    Returns
    -------
    adjacency : ndarray of bool of shape (d, d)
    score : float or int
    """
    rules = options.get("rules") or EdgeRules.free(scores.n_variables)
    for _ in range(n_restarts):
        start = _shake(graph, rules, rng)
        end, score = yield from climbing(scores, start, **options)
        if score > highest + scores.tolerance:
            graph, highest = end, score
    return graph, highest


def _shake(graph, rules, rng):
    """Remove a quarter of the edges that need not be there."""
    start = graph.copy()
    edges = np.argwhere(graph & ~rules.required)
    n_removed = -(-len(edges) // 4)
    for i, j in edges[rng.permutation(len(edges))[:n_removed]]:
        start[i, j] = False
    return start


class _Walk:
    """A graph on its way up, and what single changes of it are worth."""

    def __init__(self, scores, rules, start):
        d = scores.n_variables
        self.scores, self.rules = scores, rules
        self.graph = np.array(start, dtype=bool)
        self.above = closure(self.graph.T)
        self.now, self.fits = np.zeros(d), np.ones((d, d), dtype=bool)
        # unknown entries are asked for once a change that needs them is possible
        self.added, self.removed = np.full((2, d, d), np.nan)
        self._touch(range(d))

    def begin(self):
        """Ask for the scores of all changes that are possible."""
        yield from self._ask(*self._possible())

    @property
    def total(self):
        """Sum of the scores of all families."""
        return self.now.sum()

    def best_change(self, frozen=()):
        """Return the gain of the best change, its kind and its edge."""
        addable, removable, turnable = self._possible()
        for i, j in frozen:
            addable[i, j] = removable[i, j] = turnable[i, j] = False
        yield from self._ask(addable, removable, turnable)
        now, best = self.now, (-np.inf, None, 0, 0)
        for kind, possible, n_edges in (
            ("add", addable, 1),
            ("turn", turnable, 0),
            ("remove", removable, -1),
        ):
            edges = np.flatnonzero(possible)
            if not len(edges):
                continue
            if kind == "add":
                change = (self.added - now).ravel()[edges]
            else:
                tails, heads = np.divmod(edges, len(now))
                change = self.removed[tails, heads] - now[heads]
            if kind == "turn":
                change += self.added[heads, tails] - now[tails]
            gains = self.scores.gain(change, now, n_edges)
            place = gains.argmax()
            if gains[place] > best[0]:
                best = gains[place], kind, *divmod(int(edges[place]), len(now))
        return best

    def change(self, kind, i, j):
        """Make a change."""
        if kind == "add":
            self._join(i, j)
        else:
            self._cut(i, j)
        if kind == "turn":
            self._join(j, i)
        self._touch([i, j] if kind == "turn" else [j])
        yield from self.scores.asking(self._families(self.touched))
        self._score()

    def _join(self, i, j):
        self.graph[i, j] = True
        above, below = self.above[i].copy(), self.above[:, j].copy()
        above[i] = below[j] = True
        self.above[below] |= above

    def _cut(self, i, j):
        self.graph[i, j] = False
        below = np.append(np.flatnonzero(self.above[:, j]), j)
        # nodes have more ancestors than each of their ancestors has
        for node in below[self.above[below].sum(axis=1).argsort()]:
            parents = np.flatnonzero(self.graph[:, node])
            self.above[node] = self.above[parents].any(axis=0)
            self.above[node, parents] = True

    def _parents(self, child):
        return np.flatnonzero(self.graph[:, child]).tolist()

    def _families(self, children):
        return [(child, self._parents(child), []) for child in children]

    def _touch(self, children):
        """Forget the scores of nodes with other parents than before."""
        self.touched = list(children)
        self.added[:, self.touched] = self.removed[:, self.touched] = np.nan
        for child in self.touched:
            self.fits[:, child] = self.scores.fits(child, self._parents(child))

    def _score(self):
        for child in self.touched:
            parents = self._parents(child)
            self.now[child] = self.scores.score(child, parents)
            self.removed[parents, child] = self.scores.removed(child, parents)
        self.touched = []

    def _possible(self):
        """Return which edges can be added, removed and turned round."""
        graph, allowed = self.graph, self.rules.allowed
        room = allowed & self.fits & (graph.sum(axis=0) < self.rules.max_parents)
        addable = room & ~(graph | self.above)
        removable = graph & ~self.rules.required
        return addable, removable, removable & room.T & ~self._detours()

    def _detours(self):
        """Which edges i -> j have another way from i to j: they cannot be turned."""
        detours = np.zeros_like(self.graph)
        # several times faster than to look for places in two dimensions
        tails, heads = np.divmod(np.flatnonzero(self.graph), len(self.graph))
        detours[tails, heads] = (self.graph[tails] & self.above[heads]).any(axis=1)
        return detours

    def _ask(self, addable, removable, turnable):
        """Get the scores of further parents that are not known yet."""
        unknown = (addable | turnable.T) & np.isnan(self.added)
        asked = [
            (child, self._parents(child), np.flatnonzero(unknown[:, child]).tolist())
            for child in np.flatnonzero(unknown.any(axis=0)).tolist()
        ]
        more = [child for child in self.touched if not unknown[:, child].any()]
        yield from self.scores.asking(asked + self._families(more))
        self._score()
        for child, parents, candidates in asked:
            found = self.scores.added(child, parents, candidates)
            self.added[candidates, child] = found
