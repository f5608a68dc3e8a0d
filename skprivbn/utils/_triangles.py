"""Symmetric matrices as vectors, so that nothing is summed or sent twice."""

from functools import cache
from math import isqrt

import numpy as np
from numpy.typing import ArrayLike

# the same few sizes again and again
_triangle = cache(np.triu_indices)


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
