"""Searches for a Markov equivalence class from a covariance: GES and PC.

Partially directed graphs are boolean matrices with undirected edges present in both
directions, as in :mod:`skprivbn.bayesian_network`.
"""

from itertools import chain, combinations

import numpy as np
from scipy.special import ndtr

from skprivbn.bayesian_network._dag import apply_meek_rules
from skprivbn.structure._equivalence import ges as equivalence_search
from skprivbn.structure.gaussian._hill_climbing import FeatureMoments, ResidualScores


def ges(covariance, n_rows, *, penalty):
    """Greedy equivalence search with a Gaussian penalised likelihood.

    Parameters
    ----------
    covariance : ndarray of shape (d, d)
        Covariance of the variables.
    n_rows : float
        Rows behind it.
    penalty : float
        Cost of an edge; ``log(n) / 2`` is BIC.

    Returns
    -------
    ndarray of bool of shape (d, d)
        The equivalence class, undirected edges in both directions.
    """
    moments = FeatureMoments.linear(covariance, n_rows)
    scores = ResidualScores(moments, equal_variances=False, penalty=penalty)
    return equivalence_search(scores)


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
