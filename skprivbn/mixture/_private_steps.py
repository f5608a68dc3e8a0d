"""The E-step and nearest cells of rows that noise is to hide, each row by itself.

`_gaussian_steps` multiplies all rows at once, treats complete rows otherwise if one
has a gap, and so may round a row by its neighbours. A responsibility at the edge of two
multiples of 2^-14, or a row between two cells, would then move with one row more: not
by that row's part of the sums, for which there is noise, but by everybody's.
"""

import numpy as np
from scipy.linalg.lapack import dtrtri

from skprivbn.mixture._gaps import factor_of, groups_of_gaps, matrices
from skprivbn.utils._row_by_row import multiply_rows, sum_columns

#: numbers that are worked on at a time
_N_BLOCK = 1 << 18


def nearest_cells(rows: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Return the number of the cell closest to each row; of equally close, the first.

    Parameters
    ----------
    rows : ndarray of shape (n_samples, n_features)
        Complete.
    cells : ndarray of shape (n_cells, n_features)

    Returns
    -------
    nearest : ndarray of int of shape (n_samples,)

    Examples
    --------
    >>> import numpy as np
    >>> nearest_cells(np.array([[0.1], [0.9]]), np.array([[0.0], [1.0]]))
    array([0, 1])
    """
    nearest = np.empty(len(rows), dtype=np.intp)
    n_rows = max(_N_BLOCK // len(cells), 1)
    for start in range(0, len(rows), n_rows):
        block = rows[start : start + n_rows]
        squares = np.zeros((len(block), len(cells)))
        for column, places in zip(block.T, cells.T):
            squares += (column[:, np.newaxis] - places) ** 2
        nearest[start : start + n_rows] = squares.argmin(axis=1)
    return nearest


def private_e_step(X: np.ndarray, mixture) -> tuple[np.ndarray, np.ndarray]:
    """Return each row's log-likelihood and responsibilities, as it has them alone.

    Parameters
    ----------
    X : ndarray of float64 of shape (n_samples, n_features)
        Perhaps with gaps.
    mixture : Mixture

    Returns
    -------
    log_likelihood : ndarray of shape (n_samples,)
    responsibilities : ndarray of shape (n_samples, n_components)
        NaN for a row that no component can have.
    """
    with np.errstate(all="ignore"):
        weighted = _log_density(X, mixture) + np.log(mixture.weights)
        largest = weighted.max(axis=1, keepdims=True)
        responsibilities = np.exp(weighted - largest)
        total = sum_columns(responsibilities)[:, np.newaxis]
        return (largest + np.log(total))[:, 0], responsibilities / total


def _log_density(X, mixture):
    """Return log N(entries that are there | component)."""
    densities = np.empty((len(X), len(mixture.means)))
    for rows, seen in groups_of_gaps(X):
        entries, constant = X[np.ix_(rows, seen)], seen.sum() * np.log(2 * np.pi) / 2
        for k, mean in enumerate(mixture.means):
            difference, factor = entries - mean[seen], _factor(mixture, k, seen)
            if factor.ndim == 1:
                difference, scales = difference * factor, factor
            else:
                difference, scales = (
                    multiply_rows(difference, factor),
                    factor.diagonal(),
                )
            squares = sum_columns(difference**2)
            densities[rows, k] = np.log(scales).sum() - constant - squares / 2
    return densities


def _factor(mixture, k, seen):
    """Return a factor of the precision of those entries; its diagonal if that is all.

    It follows from the mixture, which is public, and from what a row lacks: not from
    which other rows there are.
    """
    kind = mixture.covariance_type
    if kind in ("diag", "spherical"):
        variances = np.broadcast_to(mixture.variances, mixture.means.shape)
        return 1 / np.sqrt(variances[k, seen])
    if seen.all():
        factors = mixture.precisions_cholesky
        return factors if kind == "tied" else factors[k]
    if not seen.any():
        return np.zeros(0)
    root = factor_of(matrices(mixture)[k][np.ix_(seen, seen)])
    return dtrtri(root, lower=1)[0].T
