"""Greedy equivalence search on any score of families.

Partially directed graphs are boolean matrices with undirected edges present in both
directions, as in :mod:`skprivbn.bayesian_network._dag`.
"""

from itertools import chain, combinations

import numpy as np

from skprivbn.bayesian_network._dag import extend_to_dag, to_cpdag
from skprivbn.structure._search import complete


def _subsets(items):
    return chain.from_iterable(
        combinations(items, size) for size in range(len(items) + 1)
    )


def _is_clique(adjacent, nodes):
    return all(adjacent[a, b] for a, b in combinations(nodes, 2))


def _semi_directed_path(pdag, start, end, blocked):
    """Whether some path from `start` to `end` never goes against an arrow."""
    seen = np.zeros(len(pdag), dtype=bool)
    seen[list(blocked)] = True
    todo = [start]
    while todo:
        node = todo.pop()
        if node == end:
            return True
        if not seen[node]:
            seen[node] = True
            todo.extend(np.flatnonzero(pdag[node] & ~seen))
    return False


def ges(scores, **options):
    """Search as :func:`searching_equivalence` does, with scores at hand."""
    return complete(searching_equivalence(scores, **options), scores)


def searching_equivalence(scores, *, allowed=None, max_parents=None, max_subset=6):
    """Greedy equivalence search.

    Parameters
    ----------
    scores : LocalScores
        Equal for graphs that imply the same independences.
    allowed : ndarray of bool of shape (d, d), default=None
        Symmetric: which nodes may be joined. None allows all pairs.
    max_parents : int, default=None
        Largest family that is scored, without its child.
    max_subset : int, default=6
        Bound on the undirected neighbours whose subsets are tried.

    Yields
    ------
    asked : list
        What ``scores.fetch`` takes.

    Returns
    -------
    ndarray of bool of shape (d, d)
        The equivalence class, undirected edges in both directions.

    References
    ----------
    Chickering. Optimal structure identification with greedy search. JMLR 2002.
    """
    d = scores.n_variables
    search = _Search(
        scores,
        ~np.eye(d, dtype=bool) if allowed is None else allowed,
        d if max_parents is None else max_parents,
        max_subset,
    )
    cpdag, step = np.zeros((d, d), dtype=bool), True
    while step:
        step = None
        moves = yield from search.all_moves(cpdag, search.insertions)
        for _, x, y, block, chosen in sorted(moves, key=lambda m: (-m[0], *m[1:3])):
            if not _semi_directed_path(cpdag, y, x, block):
                step = True
                cpdag[x, y] = True
                cpdag[y, list(chosen)] = False
                _complete(cpdag, x, y)
                break
    while moves := (yield from search.all_moves(cpdag, search.deletions)):
        _, x, y, _, chosen = min(moves, key=lambda m: (-m[0], *m[1:3]))
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


class _Search:
    """Moves of a greedy equivalence search, kept as long as nothing near changes."""

    def __init__(self, scores, allowed, max_parents, max_subset):
        self.scores, self.allowed = scores, allowed
        self.max_parents, self.max_subset = max_parents, max_subset
        self.kept = {}

    def all_moves(self, cpdag, moves_at):
        """Return (gain, x, y, block, chosen) of all moves with a gain."""
        adjacent = cpdag | cpdag.T
        columns, todo = cpdag.T.copy(), {}
        for y in range(len(cpdag)):
            neighbours = np.flatnonzero(columns[y] & cpdag[y])
            near = (columns[y], cpdag[y], adjacent[neighbours])
            key = moves_at.__name__, *(part.tobytes() for part in near)
            if self.kept.get(y, (None,))[0] != key:
                todo[y] = key, list(moves_at(cpdag, adjacent, y, neighbours))
        yield from self._score(todo)
        return [move for _, moves in self.kept.values() for move in moves]

    def _score(self, todo):
        """Score all moves that are new, and ask for all their scores at once."""
        asked = {}
        for y, (_, moves) in todo.items():
            for xs, given, _, _ in moves:
                asked.setdefault((y, given), set()).update(xs)
        asked = {key: sorted(found) for key, found in asked.items()}
        yield [(y, sorted(given), found) for (y, given), found in asked.items()]
        gains, least = {}, max(self.scores.tolerance, 1e-9)
        for (y, given), found in asked.items():
            now = self.scores.score(y, sorted(given))
            gains[y, given] = np.zeros(len(self.allowed))
            gains[y, given][found] = self.scores.added(y, sorted(given), found) - now
        for y, (key, moves) in todo.items():
            sign = 1.0 if key[0] == "insertions" else -1.0
            worth = []
            for xs, given, block, chosen in moves:
                gain = sign * gains[y, given][xs]
                for place in np.flatnonzero(gain > least):
                    worth.append((gain[place], xs[place], y, block, chosen))
            self.kept[y] = key, worth

    def insertions(self, cpdag, adjacent, y, neighbours):
        """Yield (xs, given, block, chosen) of the edges x - y that may be added."""
        parents = frozenset(np.flatnonzero(cpdag[:, y] & ~cpdag[y]).tolist())
        fits, alike = {}, {}
        for x in np.flatnonzero(self.allowed[:, y] & ~adjacent[y]).tolist():
            if x != y:
                # moves depend on which neighbours of y are linked with x
                alike.setdefault(adjacent[x, neighbours].tobytes(), []).append(x)
        for xs in alike.values():
            linked = adjacent[xs[0], neighbours]
            both, only = neighbours[linked].tolist(), neighbours[~linked].tolist()
            for chosen in _subsets(only[: self.max_subset]):
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
            for chosen in _subsets(both[: self.max_subset]):
                block = tuple(node for node in both if node not in chosen)
                given = parents | set(block)
                if len(given) < self.max_parents and _is_clique(adjacent, block):
                    yield [x], given, block, chosen
