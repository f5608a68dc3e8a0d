"""Greedy search over equivalence classes of graphs, on any score of families.

Partially directed graphs are boolean matrices with undirected edges present in both
directions, as in :mod:`skprivbn.bayesian_network._dag`.
"""

from heapq import merge
from itertools import chain, combinations

import numpy as np

from skprivbn.bayesian_network._dag import extend_to_dag, to_cpdag

#: undirected neighbours whose subsets are tried
_MAX_SUBSET = 6


def _subsets(items):
    return chain.from_iterable(
        combinations(items, size) for size in range(len(items) + 1)
    )


def _is_clique(adjacent, nodes):
    return all(adjacent[a, b] for a, b in combinations(nodes, 2))


def _semi_directed_path(pdag, start, end, blocked):
    """Whether some path from `start` to `end` never goes against an arrow."""
    unseen = np.ones(len(pdag), dtype=bool)
    unseen[[start, *blocked]] = False
    new = [start]
    while len(new) and unseen[end]:
        new = np.flatnonzero(pdag[new].any(axis=0) & unseen)
        unseen[new] = False
    return not unseen[end]


def searching_equivalence(scores, *, allowed=None, max_parents=None):
    """Greedy equivalence search.

    Parameters
    ----------
    scores : LocalScores
        Equal for graphs that imply the same independences.
    allowed : ndarray of bool of shape (d, d), default=None
        Symmetric: which nodes may be joined. None allows all pairs.
    max_parents : int, default=None
        Largest family that is scored, without its child.

    Yields
    ------
    question : object
        Of ``scores.asking``.

    Returns
    -------
    ndarray of bool of shape (d, d)
        The equivalence class, undirected edges in both directions.

    References
    ----------
    Chickering. Optimal structure identification with greedy search. JMLR 2002.
    """
    d = scores.n_variables
    search = _Moves(
        scores,
        ~np.eye(d, dtype=bool) if allowed is None else allowed,
        d if max_parents is None else max_parents,
    )
    cpdag, step = np.zeros((d, d), dtype=bool), True
    while step:
        step = None
        moves = yield from search.all_moves(cpdag, search.insertions)
        for _, x, y, block, chosen in moves:
            if not _semi_directed_path(cpdag, y, x, block):
                step = True
                cpdag[x, y] = True
                cpdag[y, list(chosen)] = False
                _complete(cpdag, x, y)
                break
    while move := next((yield from search.all_moves(cpdag, search.deletions)), None):
        _, x, y, _, chosen = move
        cpdag[x, y] = cpdag[y, x] = False
        for node in chosen:
            cpdag[node, y] = False
            if cpdag[x, node] and cpdag[node, x]:
                cpdag[node, x] = False
        _complete(cpdag, x, y)
    return cpdag


def _complete(pdag, x, y):
    """Make the part of a graph around a changed edge that of an equivalence class."""
    part, adjacent = np.zeros(len(pdag), dtype=bool), pdag | pdag.T
    new = np.array([x, y])
    while len(new):
        part[new] = True
        new = np.flatnonzero(adjacent[new].any(axis=0) & ~part)
    part = np.ix_(part, part)
    pdag[part] = to_cpdag(extend_to_dag(pdag[part]))


def _rank(move):
    return -move[0], *move[1:3]


class _Moves:
    """Moves of a greedy equivalence search, kept as long as nothing near changes."""

    def __init__(self, scores, allowed, max_parents):
        self.scores, self.allowed, self.max_parents = scores, allowed, max_parents
        self.kept, self._seen = {}, None

    def all_moves(self, cpdag, moves_at):
        """Return (gain, x, y, block, chosen) of all moves with a gain, best first."""
        adjacent, near = cpdag | cpdag.T, np.ones(len(cpdag), dtype=bool)
        if self._seen is not None and self._seen[1] == moves_at:
            before = self._seen[0]
            changed = cpdag != before
            near = changed.any(axis=0) | changed.any(axis=1)
            joined = (adjacent != (before | before.T)).any(axis=0)
            near |= (cpdag & cpdag.T)[:, joined].any(axis=1)
        self._seen = cpdag.copy(), moves_at
        todo = {}
        for y in np.flatnonzero(near).tolist():
            neighbours = np.flatnonzero(cpdag[:, y] & cpdag[y])
            todo[y] = list(moves_at(cpdag, adjacent, y, neighbours))
        yield from self._score(todo, -1.0 if moves_at == self.deletions else 1.0)
        return merge(*self.kept.values(), key=_rank)

    def _score(self, todo, sign):
        """Score all moves that are new, and ask for all their scores at once."""
        asked = {}
        for y, moves in todo.items():
            for xs, given, _, _ in moves:
                asked.setdefault((y, given), set()).update(xs)
        asked = {key: sorted(found) for key, found in asked.items()}
        yield from self.scores.asking(
            [(y, sorted(given), found) for (y, given), found in asked.items()]
        )
        gains, least = {}, max(self.scores.tolerance, 1e-9)
        for (y, given), found in asked.items():
            now = self.scores.score(y, sorted(given))
            gains[y, given] = np.zeros(len(self.allowed))
            gains[y, given][found] = self.scores.added(y, sorted(given), found) - now
        for y, moves in todo.items():
            worth = []
            for xs, given, block, chosen in moves:
                gain = sign * gains[y, given][xs]
                for place in np.flatnonzero(gain > least):
                    worth.append((gain[place], xs[place], y, block, chosen))
            self.kept[y] = sorted(worth, key=_rank)

    def insertions(self, cpdag, adjacent, y, neighbours):
        """Yield (xs, given, block, chosen) of the edges x - y that may be added."""
        parents = frozenset(np.flatnonzero(cpdag[:, y] & ~cpdag[y]).tolist())
        fits, alike = {}, {}
        others = np.flatnonzero(self.allowed[:, y] & ~adjacent[y])
        for x, links in zip(others.tolist(), adjacent[np.ix_(others, neighbours)]):
            if x != y:
                # moves depend on which neighbours of y are linked with x
                alike.setdefault(links.tobytes(), []).append(x)
        for xs in alike.values():
            linked = adjacent[xs[0], neighbours]
            both, only = neighbours[linked].tolist(), neighbours[~linked].tolist()
            for chosen in _subsets(only[:_MAX_SUBSET]):
                block = (*both, *chosen)
                given = parents | set(block)
                if len(given) >= self.max_parents or not _is_clique(adjacent, block):
                    continue
                if given not in fits:
                    fits[given] = self.scores.fits(y, sorted(given))
                yield [x for x in xs if fits[given][x]], given, block, chosen

    def deletions(self, cpdag, adjacent, y, neighbours):
        """Yield (xs, given, block, chosen) of the edges x - y that may be removed."""
        arrows = frozenset(np.flatnonzero(cpdag[:, y] & ~cpdag[y]).tolist())
        for x in np.flatnonzero(cpdag[:, y]).tolist():
            parents = arrows - {x}
            both = neighbours[adjacent[x, neighbours]].tolist()
            for chosen in _subsets(both[:_MAX_SUBSET]):
                block = tuple(node for node in both if node not in chosen)
                given = parents | set(block)
                if len(given) < self.max_parents and _is_clique(adjacent, block):
                    yield [x], given, block, chosen
