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
    block = adjacent[np.ix_(nodes, nodes)]
    return block.sum() == len(nodes) * (len(nodes) - 1)


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
                cpdag = to_cpdag(extend_to_dag(cpdag))
                break
    while moves := (yield from search.all_moves(cpdag, search.deletions)):
        _, x, y, _, chosen = min(moves, key=lambda m: (-m[0], *m[1:3]))
        cpdag[x, y] = cpdag[y, x] = False
        for node in chosen:
            cpdag[node, y] = False
            if cpdag[x, node] and cpdag[node, x]:
                cpdag[node, x] = False
        cpdag = to_cpdag(extend_to_dag(cpdag))
    return cpdag


class _Search:
    """Moves of a greedy equivalence search, kept as long as nothing near changes."""

    def __init__(self, scores, allowed, max_parents, max_subset):
        self.scores, self.allowed = scores, allowed
        self.max_parents, self.max_subset = max_parents, max_subset
        self.kept = {}

    def all_moves(self, cpdag, moves_at):
        """Return (gain, x, y, block, chosen) of all moves with a gain."""
        adjacent = cpdag | cpdag.T
        todo = {}
        for y in range(len(cpdag)):
            neighbours = np.flatnonzero(cpdag[:, y] & cpdag[y])
            near = (cpdag[:, y], cpdag[y], adjacent[neighbours])
            key = moves_at.__name__, *(part.tobytes() for part in near)
            if self.kept.get(y, (None,))[0] != key:
                todo[y] = key, moves_at(cpdag, adjacent, y, neighbours.tolist())
        yield from self._score(todo)
        return [move for _, moves in self.kept.values() for move in moves]

    def _score(self, todo):
        """Score all moves that are new, and ask for all their scores at once."""
        asked = {}
        for y, (_, moves) in todo.items():
            for x, given, _, _ in moves:
                asked.setdefault((y, given), set()).add(x)
        asked = {key: sorted(found) for key, found in asked.items()}
        yield [(y, sorted(given), found) for (y, given), found in asked.items()]
        gains = {}
        for (y, given), found in asked.items():
            now = self.scores.score(y, sorted(given))
            added = self.scores.added(y, sorted(given), found)
            gains.update(((y, given, x), gain) for x, gain in zip(found, added - now))
        least = max(self.scores.tolerance, 1e-9)
        for y, (key, moves) in todo.items():
            insert = key[0] == "insertions"
            worth = [
                (gains[y, given, x] if insert else -gains[y, given, x], x, y, *rest)
                for x, given, *rest in moves
            ]
            self.kept[y] = key, [move for move in worth if move[0] > least]

    def insertions(self, cpdag, adjacent, y, neighbours):
        """Return (x, given, block, chosen) of all edges that may be added at y."""
        parents = frozenset(np.flatnonzero(cpdag[:, y] & ~cpdag[y]).tolist())
        moves, fits = [], {}
        for x in np.flatnonzero(self.allowed[:, y] & ~adjacent[y]).tolist():
            linked = adjacent[x]
            both = [node for node in neighbours if linked[node]]
            only = [node for node in neighbours if not linked[node]]
            for chosen in _subsets(only[: self.max_subset]):
                block = (*both, *chosen)
                given = parents | set(block)
                if len(given) >= self.max_parents or x == y:
                    continue
                if given not in fits:
                    fits[given] = self.scores.fits(y, sorted(given))
                if fits[given][x] and _is_clique(adjacent, block):
                    moves.append((x, given, block, chosen))
        return moves

    def deletions(self, cpdag, adjacent, y, neighbours):
        """Return (x, given, block, chosen) of all edges that may be removed at y."""
        arrows = frozenset(np.flatnonzero(cpdag[:, y] & ~cpdag[y]).tolist())
        moves = []
        for x in np.flatnonzero(cpdag[:, y]).tolist():
            parents = arrows - {x}
            both = [node for node in neighbours if adjacent[x, node]]
            for chosen in _subsets(both[: self.max_subset]):
                block = tuple(node for node in both if node not in chosen)
                given = parents | set(block)
                if len(given) < self.max_parents and _is_clique(adjacent, block):
                    moves.append((x, given, block, chosen))
        return moves
