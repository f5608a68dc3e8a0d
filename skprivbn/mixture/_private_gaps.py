"""Rows with gaps under differential privacy: expected moments that stay in the box.

What a component expects of a missing entry may lie outside [-1, 1], and its variance
may be anything. Conditional means are clipped, and conditional covariances shrunk until
no entry's mean square is above one; by the inequality of Cauchy and Schwarz no product
of two entries is, either. A row with gaps then changes the sums by no more than one
without, for any mixture.
"""

import numpy as np

from skprivbn.mixture._gaps import conditional, groups_of_gaps, matrices
from skprivbn.utils._triangles import upper

#: rows whose matrices of second moments are held at a time
_N_BLOCK = 1024


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
    covariances = matrices(mixture)
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
    if kind == "full":
        seconds = upper(second)
    elif kind == "tied":
        seconds = upper(second.sum(axis=0))
    else:
        seconds = np.einsum("kff->kf", second)
        seconds = seconds if kind == "diag" else seconds.sum(axis=1)
    counts = (shares * 2.0**bits).astype(np.int64).sum(axis=0)
    return np.concatenate([counts, first.ravel(), np.ravel(seconds)])


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
