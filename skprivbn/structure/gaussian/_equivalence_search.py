"""Searches for a Markov equivalence class from a covariance: GES and PC.

Partially directed graphs are boolean matrices with undirected edges present in both
directions, as in :mod:`skprivbn.bayesian_network`.
"""

from functools import cache
from itertools import chain, combinations

import numpy as np
from scipy.special import ndtr

from skprivbn.bayesian_network._dag import (
    apply_meek_rules,
    extend_to_dag,
    to_cpdag,
)

__all__ = ["ges", "pc"]


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


def ges(covariance, n_rows, *, penalty, max_subset=6):
    """Greedy equivalence search with a Gaussian penalised likelihood.

    Parameters
    ----------
    covariance : ndarray of shape (d, d)
        Covariance of the variables.
    n_rows : float
        Rows behind it.
    penalty : float
        Cost of an edge; ``log(n) / 2`` is BIC.
    max_subset : int, default=6
        Bound on the undirected neighbours whose subsets are tried.

    Returns
    -------
    ndarray of bool of shape (d, d)
        The equivalence class, undirected edges in both directions.

    References
    ----------
    Chickering. Optimal structure identification with greedy search. JMLR 2002.
    """
    d = len(covariance)

    @cache
    def local(child, parents):
        parents = sorted(parents)
        variance = covariance[child, child]
        if parents:
            cross = covariance[parents, child]
            block = covariance[np.ix_(parents, parents)]
            weights = np.linalg.lstsq(block, cross, rcond=1e-9)[0]
            variance = max(variance - cross @ weights, 1e-9 * variance)
        return -0.5 * n_rows * np.log(variance) - penalty * len(parents)

    def forward_moves(cpdag):
        adjacent = cpdag | cpdag.T
        linked = [set(np.flatnonzero(row).tolist()) for row in adjacent]
        for y in range(d):
            parents = frozenset(np.flatnonzero(cpdag[:, y] & ~cpdag[y]).tolist())
            neighbours = np.flatnonzero(cpdag[:, y] & cpdag[y]).tolist()
            for x in set(range(d)) - linked[y] - {y}:
                both = [node for node in neighbours if node in linked[x]]
                only = [node for node in neighbours if node not in linked[x]]
                for chosen in _subsets(only[:max_subset]):
                    block = [*both, *chosen]
                    given = parents | set(block)
                    gain = local(y, given | {x}) - local(y, given)
                    if gain > 1e-9 and _is_clique(adjacent, block):
                        yield gain, x, y, block, chosen

    def backward_moves(cpdag, x, y):
        adjacent = cpdag | cpdag.T
        undirected = cpdag & cpdag.T
        parents = frozenset(np.flatnonzero(cpdag[:, y] & ~cpdag[y]).tolist()) - {x}
        both = np.flatnonzero(undirected[y] & adjacent[x]).tolist()
        for chosen in _subsets(both[:max_subset]):
            block = [node for node in both if node not in chosen]
            given = parents | set(block)
            gain = local(y, given) - local(y, given | {x})
            if gain > 1e-9 and _is_clique(adjacent, block):
                yield gain, chosen

    cpdag = np.zeros((d, d), dtype=bool)
    while True:
        best_first = sorted(
            forward_moves(cpdag), key=lambda move: (-move[0], *move[1:3])
        )
        for _, x, y, block, chosen in best_first:
            if not _semi_directed_path(cpdag, y, x, block):
                cpdag[x, y] = True
                cpdag[y, list(chosen)] = False
                cpdag = to_cpdag(extend_to_dag(cpdag))
                break
        else:
            break
    while True:
        moves = [
            (gain, x, y, chosen)
            for x in range(d)
            for y in range(d)
            if cpdag[x, y]
            for gain, chosen in backward_moves(cpdag, x, y)
        ]
        if not moves:
            return cpdag
        _, x, y, chosen = max(moves, key=lambda move: move[0])
        cpdag[x, y] = cpdag[y, x] = False
        for node in chosen:
            cpdag[node, y] = False
            if cpdag[x, node] and cpdag[node, x]:
                cpdag[node, x] = False
        cpdag = to_cpdag(extend_to_dag(cpdag))


def pc(covariance, n_rows, *, significance=0.01, max_condition=None):
    """PC through partial correlations and Fisher's z, the order-independent variant.

    Parameters
    ----------
    covariance : ndarray of shape (d, d)
        Covariance of the variables.
    n_rows : float
        Rows behind it.
    significance : float, default=0.01
        Level of the independence tests.
    max_condition : int, default=None
        Bound on the size of conditioning sets.

    Returns
    -------
    ndarray of bool of shape (d, d)
        Partially directed graph, undirected edges in both directions.

    References
    ----------
    Colombo, Maathuis. Order-independent constraint-based causal structure learning.
    JMLR 2014.
    """
    d = len(covariance)
    adjacent = ~np.eye(d, dtype=bool)
    separators = {}
    scale = np.sqrt(np.diag(covariance))
    correlation = covariance / np.outer(scale, scale)
    size = 0
    while size <= (d - 2 if max_condition is None else max_condition):
        if n_rows - size - 3 <= 0 or adjacent.sum(axis=0).max() <= size:
            break
        before = adjacent.copy()
        for x, y in np.argwhere(np.triu(adjacent)).tolist():
            for given in chain(
                combinations([v for v in np.flatnonzero(before[x]) if v != y], size),
                combinations([v for v in np.flatnonzero(before[y]) if v != x], size),
            ):
                p = _fisher_z(correlation, x, y, list(given), n_rows)
                if p > significance:
                    adjacent[x, y] = adjacent[y, x] = False
                    separators[x, y] = set(given)
                    break
        size += 1
    pdag = adjacent.copy()
    for (x, y), given in separators.items():
        for middle in np.flatnonzero(adjacent[x] & adjacent[y]):
            # earlier colliders win where tests contradict each other
            if middle not in given and pdag[x, middle] and pdag[y, middle]:
                pdag[middle, x] = pdag[middle, y] = False
    return apply_meek_rules(pdag)


def _fisher_z(correlation, x, y, given, n_rows):
    """Two-sided p value of no partial correlation."""
    index = [x, y, *given]
    precision = np.linalg.pinv(correlation[np.ix_(index, index)], hermitian=True)
    partial = -precision[0, 1] / np.sqrt(precision[0, 0] * precision[1, 1])
    z = np.arctanh(np.clip(partial, -1.0 + 1e-12, 1.0 - 1e-12))
    return 2.0 * ndtr(-abs(z) * np.sqrt(n_rows - len(given) - 3))
