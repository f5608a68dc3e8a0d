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

#: share of the largest variance of any direction below which one is left out
_TRUNCATED = 1e-9


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
    if not np.linalg.cond(covariance) < 1.0 / _TRUNCATED:
        scores = TruncatedScores(moments, equal_variances=False, penalty=penalty)
    return equivalence_search(scores)


class TruncatedScores(ResidualScores):
    """Scores by regressions that leave out directions of little variance.

    Of a covariance that is nearly singular, also by the units of its columns. No block
    of another one has such directions, so that both kinds of scores are then the same.
    """

    def _scores(self, child, parents):
        key = child, tuple(parents)
        if key not in self._known:
            covariance = self.moments.covariance
            variance = covariance[child, child]
            if parents:
                cross = covariance[parents, child]
                block = covariance[np.ix_(parents, parents)]
                weights = np.linalg.lstsq(block, cross, rcond=_TRUNCATED)[0]
                variance = max(variance - cross @ weights, _TRUNCATED * variance)
            loss = 0.5 * self.moments.n_rows * np.log(variance)
            self._known[key] = [-loss - self.penalty * len(parents)]
        return self._known[key]

    def added(self, child, parents, candidates):
        """Return the scores with each of some candidates as one more parent."""
        return np.array([self.score(child, [*parents, v]) for v in candidates])


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
