"""How sure an edge is: searches on bootstrap samples of the parties' rows.

A party draws how often each of its rows counts in each sample and keeps that to
itself. Every table is then counted for all samples together, in the same round.
"""

import secrets
from math import exp, factorial

import numpy as np

from skprivbn.bayesian_network._dag import to_cpdag

# chances of 0, 1, ... in a Poisson distribution of mean 1, summed up, in units of 2^-32
_THRESHOLDS = np.floor(
    2.0**32 * np.cumsum([exp(-1) / factorial(k) for k in range(12)])
).astype(np.uint64)


def draw_weights(n_samples, n_rows):
    """Draw how often each row counts in each sample, from the operating system.

    Whoever knows the weights reads single rows off the sums: no seed makes them.

    Parameters
    ----------
    n_samples : int
    n_rows : int

    Returns
    -------
    weights : ndarray of uint8 of shape (1 + n_samples, n_rows)
        The first of them ones, for the rows as they are.
    """
    weights = np.ones((1 + n_samples, n_rows), dtype=np.uint8)
    for drawn in weights[1:]:
        draws = np.frombuffer(secrets.token_bytes(4 * n_rows), dtype=np.uint32)
        drawn[:] = np.searchsorted(_THRESHOLDS, draws, side="right")
    return weights


def edge_confidence(found, is_directed):
    """Return in what share of the samples there is an edge.

    Parameters
    ----------
    found : list of dict of int to list of int
        The parents of every variable in each sample.
    is_directed : bool
        Whether all directions mean something. Otherwise edges that could point either
        way, in graphs that imply the same independences, count half in both directions.

    Returns
    -------
    confidence : ndarray of shape (n_variables, n_variables)
    """
    n_variables = len(found[0])
    total = np.zeros((n_variables, n_variables))
    for parents in found:
        graph = np.zeros(total.shape, dtype=bool)
        for child, above in parents.items():
            graph[above, child] = True
        edges = graph if is_directed else to_cpdag(graph)
        total += np.where(edges & edges.T, 0.5, edges)
    return total / len(found)
