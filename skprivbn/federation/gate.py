"""The gate: how many rows an exact sum is about, whatever the protocol.

Beside each vector travel the sums of the weights with which rows enter it, and of
their squares. They add up over parties, so that every party knows, from the verified
total, the effective number of rows of all parties behind each block of numbers.
"""

from typing import Any

import numpy as np

from skprivbn.federation.program import (
    ALL_ROWS,
    COUNTS,
    SAME_ROWS,
    CountsAt,
    RowWeights,
    TooFewRows,
    Weighing,
)

#: how much rows count in a sum
Weights = RowWeights | CountsAt | Weighing

# Sums of weights are told in this unit: up to 2**35 rows fit the numbers of every
# backend, and a row is thousands of their smallest steps.
_UNIT = 2.0**14
# Squares of weights below the smallest step of a backend must not become none: what
# has any weight at all is about a row.
_STEP = 2.0**-24
# Rows of equal weight count in full, whatever rounding does.
_SLACK = 1e-6


def with_rows(vector: np.ndarray, weights: Weights, n_rows: int) -> np.ndarray:
    """Append to a vector what tells how many rows are behind it.

    Parameters
    ----------
    vector : ndarray of shape (n_values,)
    weights : RowWeights, CountsAt, ALL_ROWS, COUNTS or SAME_ROWS
    n_rows : int
        Of this party, all of which count alike with ``ALL_ROWS``.

    Returns
    -------
    vector : ndarray
        Its own numbers first.
    """
    if weights in (COUNTS, SAME_ROWS) or isinstance(weights, CountsAt):
        return vector
    if weights is ALL_ROWS:
        count = n_rows if vector.dtype.kind == "i" else n_rows / _UNIT
        return np.append(vector, np.asarray(count, dtype=vector.dtype))
    if vector.dtype.kind == "i":
        raise TypeError("integers are summed with ALL_ROWS or COUNTS as their weights")
    if not isinstance(weights, RowWeights):
        raise TypeError(f"weights cannot be {type(weights).__name__}")
    if weights.squares is None:
        return np.concatenate([vector, weights.total / _UNIT])
    squares = weights.squares / _UNIT
    squares = np.where(weights.total > 0, np.maximum(squares, _STEP), 0.0)
    return np.concatenate([vector, weights.total / _UNIT, squares])


def check_rows(
    total: np.ndarray,
    n_values: int,
    what: str,
    weights: Weights,
    min_rows: int,
) -> np.ndarray:
    """Return the numbers of a verified total, unless too few rows are behind some.

    Parameters
    ----------
    total : ndarray
        Sum of what :func:`with_rows` returned, over all parties.
    n_values : int
        Of the vector itself.
    what : str
        The sum, in words.
    weights : RowWeights, CountsAt, ALL_ROWS, COUNTS or SAME_ROWS
        As of the own vector.
    min_rows : int
        Fewest effective rows behind a block; no row at all is none to be hidden.

    Returns
    -------
    total : ndarray of shape (n_values,)
    """
    values = total[:n_values]
    rows = effective_rows(total, n_values, weights)
    few = (rows > 0) & (rows < min_rows - _SLACK)
    if min_rows > 1 and np.any(few):
        raise TooFewRows(what, few)
    return values


def effective_rows(total: np.ndarray, n_values: int, weights: Weights) -> np.ndarray:
    """Return the effective number of rows behind each block of a total.

    Parameters
    ----------
    total, n_values, weights :
        As of :func:`check_rows`.

    Returns
    -------
    n_rows : ndarray of shape (n_blocks,)
    """
    if weights is SAME_ROWS:
        return np.zeros(0)
    if weights is COUNTS:
        return np.abs(total[:n_values]).astype(np.float64)
    if isinstance(weights, CountsAt):
        return np.abs(total[:n_values][weights.positions]).astype(np.float64)
    behind = total[n_values:]
    if total.dtype.kind == "i":
        return behind.astype(np.float64)
    if isinstance(weights, Weighing) or weights.squares is None:
        return behind * _UNIT
    sums, squares = np.split(behind * _UNIT, 2)
    rows = np.divide(sums**2, squares, out=np.zeros_like(squares), where=squares > 0)
    # however small, weights are those of some rows
    return np.where(squares > 0, np.maximum(rows, np.finfo(np.float64).tiny), 0.0)


def count_numbers(value: Any) -> int:
    """Return how many numbers a result holds.

    Parameters
    ----------
    value : object
        As it travels.

    Returns
    -------
    n_numbers : int
    """
    if isinstance(value, dict):
        return sum(map(count_numbers, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(count_numbers, value))
    if isinstance(value, bytes):
        return -(-len(value) // 8)
    if isinstance(value, bool | np.bool_ | str | None):
        return 0
    return int(np.size(value))
