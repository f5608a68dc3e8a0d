"""What noise on moments costs a search, and covariances that searches can take."""

import numpy as np


def effective_rows(moments):
    """Return the rows whose sampling error alone would be as large as error plus noise.

    A partial correlation has variance ``1 / n`` by sampling. Noise adds the square of
    :func:`noise_on_correlations`.
    """
    return moments.n_rows / (1.0 + moments.n_rows * noise_on_correlations(moments) ** 2)


def noise_on_correlations(moments):
    """Return the standard deviation of the noise on a partial correlation.

    Noise N on a covariance changes the precision K by K N K, to first order; between
    columns i and j, relative to their own precisions, by the product of what each of
    them magnifies noise by. The mean over columns is taken for every pair.
    """
    if not np.any(moments.noise):
        return 0.0
    precision = np.linalg.inv(
        moments.covariance / np.outer(moments.noise, moments.noise)
    )
    return float(np.mean((precision**2).sum(axis=0) / np.diag(precision)))


def nearest_covariance(matrix):
    """Raise negative eigenvalues to zero."""
    # signs of eigenvalues do not depend on units, but their rounding errors do
    scale = np.sqrt(np.maximum(np.diag(matrix), np.finfo(float).tiny))
    if np.linalg.eigvalsh(matrix / np.outer(scale, scale))[0] >= 0.0:
        return matrix
    eigenvalues, vectors = np.linalg.eigh(matrix)
    return (vectors * np.maximum(eigenvalues, 0.0)) @ vectors.T
