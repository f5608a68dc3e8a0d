"""The best graph of all, by dynamic programming over subsets of the variables.

A subset of variables is an integer, whose bit `v` says whether variable `v` is in it.
"""

import numpy as np

#: more variables have too many subsets for memory
MAX_VARIABLES = 20
#: share of a variance below which a variable is taken to be a function of others
_COLLINEAR = 1e-9


def exact_graph(covariance, n_rows, *, penalty):
    """Find a graph with the highest penalised Gaussian likelihood.

    Parameters
    ----------
    covariance : ndarray of shape (d, d)
        Of at most 20 variables.
    n_rows : float
        Rows behind it.
    penalty : float
        Cost of an edge; ``log(n) / 2`` is BIC.

    Returns
    -------
    adjacency : ndarray of bool of shape (d, d)
        One of the graphs that share the highest score.
    score : float

    References
    ----------
    Singh, Moore. Finding optimal Bayesian networks by dynamic programming. CMU 2005.
    Silander, Myllymäki. A simple approach for finding the globally optimal Bayesian
    network structure. UAI 2006.
    """
    d = len(covariance)
    volumes = log_determinants(covariance)
    subsets = np.arange(2**d)
    sizes = np.bitwise_count(subsets).astype(np.int64)

    def scores(child):
        """Scores of a child with the parents of each subset; -inf if it is in it."""
        with_child = subsets | 1 << child
        found = -0.5 * n_rows * (volumes[with_child] - volumes) - penalty * sizes
        return np.where(with_child == subsets, -np.inf, found)

    # of all subsets of the candidates, the best parents
    best = np.array([_highest_within(scores(child)) for child in range(d)])
    # a graph of some variables has a sink: its parents are among the others
    total, sink = np.full(2**d, -np.inf), np.zeros(2**d, dtype=np.int8)
    total[0] = 0.0
    for size in range(1, d + 1):
        layer = subsets[sizes == size]
        for child in range(d):
            last = layer[layer >> child & 1 == 1]
            others = last ^ 1 << child
            found = total[others] + best[child, others]
            higher = found > total[last]
            total[last[higher]], sink[last[higher]] = found[higher], child
    graph, left = np.zeros((d, d), dtype=bool), 2**d - 1
    while left:
        child = int(sink[left])
        left ^= 1 << child
        within = np.where(subsets & ~left == 0, scores(child), -np.inf)
        graph[:, child] = int(within.argmax()) >> np.arange(d) & 1
    return graph, float(total[-1])


def log_determinants(covariance):
    """Return the log-determinants of the covariances of all subsets of variables.

    Parameters
    ----------
    covariance : ndarray of shape (d, d)

    Returns
    -------
    volumes : ndarray of shape (2**d,)
    """
    found, given = np.zeros(1), covariance[None]
    for variance in np.diag(covariance):
        # covariances given the subset, with and without the next variable
        least = _COLLINEAR * max(variance, np.finfo(float).tiny)
        pivot = np.maximum(given[:, 0, 0], least)
        found = np.append(found, found + np.log(pivot))
        row, rest = given[:, 0, 1:], given[:, 1:, 1:]
        change = row[:, :, None] * (row / pivot[:, None])[:, None, :]
        given = np.concatenate([rest, rest - change])
    return found


def _highest_within(scores):
    """Return the highest of the scores of all subsets of each subset."""
    highest = scores.copy()
    for v in range(len(scores).bit_length() - 1):
        without, with_v = np.moveaxis(highest.reshape(-1, 2, 2**v), 1, 0)
        np.maximum(with_v, without, out=with_v)
    return highest
