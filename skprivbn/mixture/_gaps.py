"""Rows with gaps, NaN: what a Gaussian component makes of entries that are not there.

A row counts by the density of its entries that are there. In the M-step, the others
are represented by their conditional means and covariances given those
(Z. Ghahramani, M. Jordan, "Supervised learning from incomplete data via an EM
approach", NIPS 1994). Rows that lack the same columns are treated together.

Under differential privacy, expected moments must stay in the box: what a component
expects of a missing entry may lie outside [-1, 1], and its variance may be anything.
Conditional means are clipped, and conditional covariances shrunk until no entry's mean
square is above one; by the inequality of Cauchy and Schwarz no product of two entries
is, either. A row with gaps then changes the sums by no more than one without, for any
mixture.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy.linalg import cho_solve

from skprivbn.utils._linalg import upper

#: rows whose matrices of second moments are held at a time
_N_BLOCK = 1024


def has_gaps(X: np.ndarray) -> bool:
    """Tell whether an entry is missing."""
    return bool(np.isnan(X).any())


def fill_with_zeros(X: np.ndarray) -> np.ndarray:
    """Return rows, relative to some centre, whose missing entries are the centre's."""
    return np.where(np.isnan(X), 0.0, X)


def entries(X: np.ndarray, has_gaps: bool) -> np.ndarray:
    """Mark which rows count: all, with gaps also which have an entry in a column."""
    rows = np.ones((len(X), 1))
    return np.hstack([rows, ~np.isnan(X)]) if has_gaps else rows


def groups_of_gaps(X: np.ndarray) -> Iterator[tuple[Any, np.ndarray]]:
    """Return groups of rows that lack the same columns.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)

    Yields
    ------
    rows : ndarray of int or slice
        Their numbers.
    seen : ndarray of bool of shape (n_features,)
        The columns in which they have entries.
    """
    if not has_gaps(X):
        yield slice(None), np.ones(X.shape[1], dtype=bool)
        return
    packed = np.packbits(np.isnan(X), axis=1)
    _, first, group = np.unique(packed, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(group, kind="stable")
    ends = np.cumsum(np.bincount(group, minlength=len(first)))
    for one, rows in zip(first, np.split(order, ends[:-1])):
        yield rows, ~np.isnan(X[one])


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
    covariance = mixture.matrices[k]
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


def statistics_of_gaps(rows, shares, mixture, bits):
    """Sum rows with gaps, each rounded by itself, whatever the other rows.

    Parameters
    ----------
    rows : ndarray of shape (n_samples, n_features)
        In [-1, 1], with NaN.
    shares : ndarray of shape (n_samples, n_components)
        Responsibilities, multiples of 2^-14.
    mixture : Mixture
        What to expect in the gaps.
    bits : int
        Of the unit, 2^-bits.

    Returns
    -------
    sums : ndarray of int64 of shape (n_statistics,)
        As ``local_statistics`` orders them, in the unit, in a frame of references zero
        and scales one.
    """
    kind = mixture.covariance_type
    n_components, n_features = mixture.means.shape
    first = np.zeros((n_components, n_features), dtype=np.int64)
    second = np.zeros((n_components, n_features, n_features), dtype=np.int64)
    covariances = mixture.matrices
    for members, seen in groups_of_gaps(rows):
        for k, mean in enumerate(mixture.means):
            slopes, left = conditional(mean, covariances[k], seen)
            for start in range(0, len(members), _N_BLOCK):
                block = members[start : start + _N_BLOCK]
                means, squares = bounded_moments(rows[block], mean, slopes, left, seen)
                # towards zero: never more than the exact value
                scale = shares[block, k] * 2.0**bits
                first[k] += (scale[:, None] * means).astype(np.int64).sum(axis=0)
                products = scale[:, None, None] * squares
                second[k] += products.astype(np.int64).sum(axis=0)
    if kind in ("diag", "spherical"):
        second = np.einsum("kff->kf", second)
        second = second if kind == "diag" else second.sum(axis=1)
    counts = (shares * 2.0**bits).astype(np.int64).sum(axis=0)
    return pack(kind, counts, first, second)


def pack(covariance_type, counts, first, second):
    """Return sums of an M-step as a vector: of symmetric matrices upper triangles."""
    if covariance_type == "tied":
        second = second.sum(axis=0)
    if covariance_type in ("full", "tied"):
        second = upper(second)
    return np.concatenate([counts, first.ravel(), second.ravel()])


def bounded_moments(rows, mean, slopes, left, seen):
    """Return expected entries and products of entries, all of them in [-1, 1].

    Parameters
    ----------
    rows : ndarray of shape (n_samples, n_features)
        With gaps where `seen` is False.
    mean : ndarray of shape (n_features,)
        Of a component.
    slopes, left : ndarray
        From :func:`~skprivbn.mixture._gaps.conditional`.
    seen : ndarray of bool of shape (n_features,)

    Returns
    -------
    means : ndarray of shape (n_samples, n_features)
    squares : ndarray of shape (n_samples, n_features, n_features)
    """
    gaps = ~seen
    expected = np.tile(mean[gaps], (len(rows), 1))
    # one after the other: a product of matrices may round a row by its neighbours
    for column, slope in zip(np.flatnonzero(seen), slopes):
        expected += (rows[:, column] - mean[column])[:, None] * slope
    # a mixture made of noise may expect anything, also no number
    expected = np.clip(np.nan_to_num(expected), -1, 1)
    means = rows.copy()
    means[:, gaps] = expected
    variances = np.maximum(np.nan_to_num(left.diagonal()), np.finfo(float).tiny)
    shrink = np.sqrt(np.minimum(1.0, (1 - expected**2) / variances))
    squares = means[:, :, None] * means[:, None]
    spread = shrink[:, :, None] * np.nan_to_num(left) * shrink[:, None]
    squares[np.ix_(range(len(rows)), gaps, gaps)] += spread
    return means, np.clip(squares, -1, 1)
