"""Rows with gaps, NaN: what a Gaussian component makes of entries that are not there.

A row counts by the density of its entries that are there. In the M-step, the others
are represented by their conditional means and covariances given those
(Z. Ghahramani, M. Jordan, "Supervised learning from incomplete data via an EM
approach", NIPS 1994). Rows that lack the same columns are treated together.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from scipy.linalg import cho_solve, solve_triangular


def has_gaps(X: np.ndarray) -> bool:
    """Tell whether an entry is missing."""
    return bool(np.isnan(X).any())


def fill_with_zeros(X: np.ndarray) -> np.ndarray:
    """Return rows, relative to some centre, whose missing entries are the centre's."""
    return np.where(np.isnan(X), 0.0, X)


def entries_seen(X: np.ndarray, responsibilities: np.ndarray) -> np.ndarray:
    """Return how many rows of each component have an entry in each column.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
    responsibilities : ndarray of shape (n_samples, n_components)

    Returns
    -------
    seen : ndarray of shape (n_components, n_features)

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[1.0, np.nan], [2.0, 3.0]])
    >>> entries_seen(X, np.array([[1.0, 0.0], [0.5, 0.5]]))
    array([[1.5, 0.5],
           [0.5, 0.5]])
    """
    return responsibilities.T @ ~np.isnan(X)


def groups_of_gaps(X: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Return groups of rows that lack the same columns.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)

    Yields
    ------
    rows : ndarray of int
        Their numbers.
    seen : ndarray of bool of shape (n_features,)
        The columns in which they have entries.
    """
    packed = np.packbits(np.isnan(X), axis=1)
    _, first, group = np.unique(packed, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(group, kind="stable")
    ends = np.cumsum(np.bincount(group, minlength=len(first)))
    for one, rows in zip(first, np.split(order, ends[:-1])):
        yield rows, ~np.isnan(X[one])


def log_density_of_seen(X: np.ndarray, mixture) -> np.ndarray:
    """Return log N(entries that are there | component).

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
    mixture : Mixture

    Returns
    -------
    log_density : ndarray of shape (n_samples, n_components)
        0 for a row without entries.
    """
    means = mixture.means
    densities = np.empty((len(X), len(means)))
    if mixture.covariance_type in ("diag", "spherical"):
        seen = ~np.isnan(X)
        variances = np.broadcast_to(mixture.variances, means.shape)
        for k, (mean, variance) in enumerate(zip(means, variances)):
            squares = fill_with_zeros((X - mean) ** 2 / variance)
            log_det = seen @ np.log(2 * np.pi * variance)
            densities[:, k] = -0.5 * (log_det + squares.sum(axis=1))
        return densities
    covariances = matrices(mixture)
    for rows, seen in groups_of_gaps(X):
        there = np.ix_(seen, seen)
        entries = X[np.ix_(rows, seen)]
        for k, mean in enumerate(means):
            factor = factor_of(covariances[k][there])
            difference = (entries - mean[seen]).T
            squares = solve_triangular(factor, difference, lower=True) ** 2
            log_det = np.log(np.sqrt(2 * np.pi) * factor.diagonal()).sum()
            densities[rows, k] = -log_det - squares.sum(axis=0) / 2
    return densities


def factor_of(matrix):
    """Return a lower triangular factor of a matrix that was positive definite once.

    It never fails: whether it does would tell which gaps there are.
    """
    try:
        return np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(matrix)
        least = np.finfo(float).eps * max(values[-1], np.finfo(float).tiny)
        root = vectors * np.sqrt(np.maximum(values, least))
        triangle = np.linalg.qr(root.T, mode="r").T
        return triangle * np.sign(triangle.diagonal())


def matrices(mixture) -> np.ndarray:
    """Return the covariance matrix of every component, whatever their type."""
    n_components, n_features = mixture.means.shape
    shape = n_components, n_features, n_features
    if mixture.covariance_type in ("full", "tied"):
        return np.broadcast_to(mixture.covariances, shape)
    variances = np.broadcast_to(mixture.variances, mixture.means.shape)
    return variances[:, :, np.newaxis] * np.eye(n_features)


def conditional(
    mean: np.ndarray, covariance: np.ndarray, seen: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return how a Gaussian's other entries depend on those that are there.

    Parameters
    ----------
    mean : ndarray of shape (n_features,)
    covariance : ndarray of shape (n_features, n_features)
    seen : ndarray of bool of shape (n_features,)

    Returns
    -------
    slopes : ndarray of shape (n_seen, n_missing)
        By how much an entry moves the mean of each missing one.
    left : ndarray of shape (n_missing, n_missing)
        Their covariance, given the others.

    Examples
    --------
    >>> import numpy as np
    >>> covariance = np.array([[4.0, 2.0], [2.0, 3.0]])
    >>> conditional(np.zeros(2), covariance, np.array([True, False]))
    (array([[0.5]]), array([[2.]]))
    """
    gaps = ~seen
    between = covariance[np.ix_(seen, gaps)]
    slopes = cho_solve((factor_of(covariance[np.ix_(seen, seen)]), True), between)
    return slopes, covariance[np.ix_(gaps, gaps)] - between.T @ slopes


def rows_as_expected(
    X: np.ndarray, mixture, k: int, shares: np.ndarray, groups: Sequence
) -> tuple[np.ndarray, np.ndarray]:
    """Complete rows by what a component expects, given the entries that are there.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
    mixture : Mixture
    k : int
        Which component.
    shares : ndarray of shape (n_samples,)
        Its responsibilities for the rows.
    groups : sequence
        Of :func:`groups_of_gaps`.

    Returns
    -------
    rows : ndarray of shape (n_samples, n_features)
        With conditional means in the gaps.
    spread : ndarray of shape (n_features, n_features)
        Sum of the conditional covariances, each as often as its row counts.
    """
    mean = mixture.means[k]
    if mixture.covariance_type in ("diag", "spherical"):
        variance = np.broadcast_to(mixture.variances, mixture.means.shape)[k]
        missing = np.isnan(X)
        return np.where(missing, mean, X), np.diag(variance * (shares @ missing))
    covariance = matrices(mixture)[k]
    rows, spread = X.copy(), np.zeros_like(covariance)
    for members, seen in groups:
        gaps = ~seen
        if not gaps.any():
            continue
        slopes, left = conditional(mean, covariance, seen)
        difference = X[np.ix_(members, seen)] - mean[seen]
        rows[np.ix_(members, gaps)] = mean[gaps] + difference @ slopes
        spread[np.ix_(gaps, gaps)] += shares[members].sum() * left
    return rows, spread
