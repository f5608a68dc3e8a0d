"""Counts of configurations of rows at hand, and probabilities from counts."""

from math import prod

import numpy as np


def count_rows(codes, variables, n_states, weights=None):
    """Count the joint configurations of some variables.

    Parameters
    ----------
    codes : ndarray of int, shape (n_samples, n_variables)
    variables : sequence of int
        Columns, one axis each.
    n_states : sequence of int
        Number of states of every column.
    weights : ndarray of shape (n_samples,), default=None
        Few different values: each is counted in integers, so that the order of the
        rows does not matter, not even in the last digit.

    Returns
    -------
    counts : ndarray
        Integers without weights.
    """
    shape = tuple(n_states[v] for v in variables)
    cells = np.zeros(len(codes), dtype=np.int64)
    for v in variables:
        cells = cells * n_states[v] + codes[:, v]
    if weights is None:
        return np.bincount(cells, minlength=prod(shape)).reshape(shape)
    counts = np.zeros(prod(shape))
    for weight in np.unique(weights):
        rows = cells[weights == weight]
        counts += weight * np.bincount(rows, minlength=prod(shape))
    return counts.reshape(shape)


def smoothed(counts, alpha):
    """Return probabilities along the last axis; without any count they are uniform.

    Parameters
    ----------
    counts : ndarray
        Not negative.
    alpha : float
        Pseudo-count added to every cell.

    Returns
    -------
    probabilities : ndarray
    """
    counts = counts + alpha
    total = counts.sum(axis=-1, keepdims=True)
    uniform = np.full_like(counts, 1 / counts.shape[-1])
    return np.divide(counts, total, out=uniform, where=total > 0)
