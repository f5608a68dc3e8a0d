"""Products of rows and matrices in which no row's rounding depends on the other rows.

A product of matrices may round a row otherwise when there is one row more: BLAS chooses
its kernels, and so the order of additions, by the number of rows. Where noise hides one
row, all others must have the same bits with it and without it.
"""

import numpy as np

#: numbers that are worked on at a time, few enough for a processor's cache
_N_BLOCK = 1 << 14


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
