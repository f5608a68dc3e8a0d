"""Smooth functions that are zero exactly on acyclic weights, and what follows them.

Both take the non-negative matrix ``M = W * W`` of a weighted adjacency matrix and
return the value with its gradient in `M`, so that linear, lagged and neural models
can share them.
"""

from math import inf, isfinite, log

import numpy as np
from scipy.linalg import expm
from scipy.linalg.lapack import dgetrf, dgetri

from skprivbn.bayesian_network._dag import is_acyclic


def trace_expm(squared):
    """NOTEARS' measure of cycles, ``trace(exp(M)) - d``.

    Parameters
    ----------
    squared : ndarray of shape (d, d)
        Non-negative matrix, usually the elementwise square of the weights.

    Returns
    -------
    value : float
        Zero exactly for acyclic matrices; counts closed walks otherwise. ``inf``
        where it cannot be represented.
    gradient : ndarray of shape (d, d)
        Derivative by the entries of `squared`.

    References
    ----------
    Zheng, Aragam, Ravikumar, Xing. DAGs with NO TEARS. NeurIPS 2018.
    """
    # closed walks grow as fast as the exponential of the largest column at most
    limit = min(500.0, 0.9 * log(np.finfo(squared.dtype).max))
    if not np.all(np.isfinite(squared)) or squared.sum(axis=0).max() > limit:
        return inf, np.zeros_like(squared)
    exponential = expm(squared)
    return float(np.trace(exponential) - len(squared)), exponential.T


def log_det(squared, scale=1.0):
    """DAGMA's measure of cycles, ``-log det(s I - M) + d log s``.

    Defined where the spectral radius of `squared` is below `scale`; ``inf`` elsewhere.

    Parameters
    ----------
    squared : ndarray of shape (d, d)
        Non-negative matrix, usually the elementwise square of the weights.
    scale : float, default=1.0
        The `s` of the formula.

    Returns
    -------
    value : float
        Zero exactly for acyclic matrices.
    gradient : ndarray of shape (d, d)
        Derivative by the entries of `squared`.

    References
    ----------
    Bello, Aragam, Ravikumar. DAGMA: learning DAGs via M-matrices. NeurIPS 2022.
    """
    d = len(squared)
    # a sum of non-negative numbers is finite if they are, and small enough to matter
    if not isfinite(squared.sum()):
        return inf, np.zeros_like(squared)
    matrix = -squared
    matrix.flat[:: d + 1] += scale
    factors, pivots, failed = dgetrf(matrix)
    if failed:
        return inf, np.zeros_like(squared)
    inverse, _ = dgetri(factors, pivots)
    # an M-matrix has a non-negative inverse, and only an M-matrix does
    if inverse.min() < -1e-12 * inverse.max():
        return inf, np.zeros_like(squared)
    diagonal = np.abs(factors.diagonal())
    return float(d * log(scale) - np.log(diagonal).sum()), inverse.T


ACYCLICITY = {"expm": trace_expm, "logdet": log_det}


def acyclic_weights(weights, threshold=0.3):
    """Drop weights below `threshold`, then the smallest ones until no cycle is left.

    Parameters
    ----------
    weights : ndarray of shape (d, d)
        ``weights[i, j]`` is the effect of variable i on variable j.
    threshold : float, default=0.3
        Weights of at most this size are set to zero.

    Returns
    -------
    ndarray of shape (d, d)
        Weights of an acyclic graph.
    """
    kept = np.where(np.abs(weights) > threshold, weights, 0.0)
    np.fill_diagonal(kept, 0.0)
    if is_acyclic(kept != 0):
        return kept
    # the number of edges to drop is found by bisection: dropping more keeps it acyclic
    rows, columns = np.nonzero(kept)
    order = np.argsort(np.abs(kept[rows, columns]), kind="stable")
    low, high = 0, len(order)
    while high - low > 1:
        middle = (low + high) // 2
        candidate = kept.copy()
        candidate[rows[order[:middle]], columns[order[:middle]]] = 0.0
        if is_acyclic(candidate != 0):
            high = middle
        else:
            low = middle
    kept[rows[order[:high]], columns[order[:high]]] = 0.0
    return kept
