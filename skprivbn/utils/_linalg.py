"""Linear algebra: triangles of symmetric matrices, rows one by one, threads.

A product of matrices may round a row otherwise when there is one row more: BLAS chooses
its kernels, and so the order of additions, by the number of rows. Where noise hides one
row, all others must have the same bits with it and without it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from math import isqrt

import numpy as np
from numpy.typing import ArrayLike
from threadpoolctl import ThreadpoolController

#: numbers that are worked on at a time, few enough for a processor's cache
_N_BLOCK = 1 << 14

# the same few sizes again and again
_triangle = cache(np.triu_indices)
_threads = cache(ThreadpoolController)


def upper(matrices: np.ndarray) -> np.ndarray:
    """Return the upper triangle of symmetric matrices, as vectors.

    Parameters
    ----------
    matrices : ndarray of shape (..., n, n)

    Returns
    -------
    vectors : ndarray of shape (..., n * (n + 1) / 2)
    """
    return matrices[..., *_triangle(matrices.shape[-1])]


def symmetric(vectors: ArrayLike) -> np.ndarray:
    """Return the symmetric matrices that have these upper triangles.

    Parameters
    ----------
    vectors : array-like of shape (..., n * (n + 1) / 2)

    Returns
    -------
    matrices : ndarray of shape (..., n, n)
    """
    *outer, size = np.shape(vectors)
    n = (isqrt(1 + 8 * size) - 1) // 2
    rows, columns = _triangle(n)
    matrices = np.empty((*outer, n, n))
    matrices[..., rows, columns] = matrices[..., columns, rows] = vectors
    return matrices


def correlation_of(covariance: np.ndarray) -> np.ndarray:
    """Return the correlations of a covariance.

    Parameters
    ----------
    covariance : ndarray of shape (n, n)

    Returns
    -------
    correlation : ndarray of shape (n, n)
    """
    scale = np.sqrt(np.diag(covariance))
    return covariance / np.outer(scale, scale)


def root_of(covariance: np.ndarray) -> np.ndarray:
    """Return a matrix whose square is a covariance, or what is positive of it.

    Parameters
    ----------
    covariance : ndarray of shape (..., n, n)

    Returns
    -------
    root : ndarray of shape (..., n, n)
        ``root @ root.T`` is the covariance.
    """
    values, vectors = np.linalg.eigh(covariance)
    return vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]


def multiply_rows(X: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Return ``X @ matrix``, each row with the bits that it has alone.

    Parameters
    ----------
    X : ndarray of float of shape (n_rows, n_columns)
    matrix : ndarray of float of shape (n_columns, n_results)

    Returns
    -------
    product : ndarray of float64 of shape (n_rows, n_results)
        Columns are added up one after the other, in double precision.

    Examples
    --------
    >>> import numpy as np
    >>> multiply_rows(np.array([[1.0, 2.0]]), np.array([[1.0, 0.0], [10.0, 1.0]]))
    array([[21.,  2.]])
    """
    n_results = matrix.shape[1]
    product = np.zeros((len(X), n_results))
    n_rows = max(_N_BLOCK // max(n_results, 1), 1)
    summand = np.empty((min(n_rows, len(X)), n_results))
    for start in range(0, len(X), n_rows):
        rows, made = X[start : start + n_rows], product[start : start + n_rows]
        for column, weights in zip(rows.T.astype(np.float64), matrix):
            # multiplied, then added: a fused operation would round by position
            np.multiply(column[:, np.newaxis], weights, out=summand[: len(rows)])
            made += summand[: len(rows)]
    return product


def sum_columns(X: np.ndarray) -> np.ndarray:
    """Return the sum of each row, its columns added up one after the other.

    Parameters
    ----------
    X : ndarray of float of shape (n_rows, n_columns)

    Returns
    -------
    sums : ndarray of float64 of shape (n_rows,)
        Whatever the layout in memory: numpy adds columns of one row in another order
        if they are next to each other.
    """
    sums = np.zeros(len(X))
    for column in X.T:
        sums += column
    return sums


def single_threaded(function: Callable) -> Callable:
    """Run a function with one BLAS thread: its matrices are small, and many."""

    @wraps(function)
    def wrapped(*args, **kwargs):
        with _threads().limit(limits=1, user_api="blas"):
            return function(*args, **kwargs)

    return wrapped
