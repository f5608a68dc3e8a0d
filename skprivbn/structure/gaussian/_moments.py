"""What noise on moments costs a search, and covariances that searches can take."""

import numpy as np


def effective_rows(moments):
    """Return the rows whose sampling error alone would be as large as error plus noise.

    A covariance of two unrelated residuals has variance ``v v / n`` by sampling.
    Noise on the covariances adds its own, times what the regressions that make the
    residuals magnify it by: in units of the noise, relative to ``v v``, at most one
    over the smallest eigenvalue squared. Taking that errs on the side of fewer edges.
    """
    if not np.any(moments.noise):
        return moments.n_rows
    scaled = moments.covariance / np.outer(moments.noise, moments.noise)
    least = np.linalg.eigvalsh(scaled)[0]
    return moments.n_rows / (1.0 + moments.n_rows / least**2)


def nearest_covariance(matrix):
    """Raise negative eigenvalues to zero."""
    # signs of eigenvalues do not depend on units, but their rounding errors do
    scale = np.sqrt(np.maximum(np.diag(matrix), np.finfo(float).tiny))
    if np.linalg.eigvalsh(matrix / np.outer(scale, scale))[0] >= 0.0:
        return matrix
    eigenvalues, vectors = np.linalg.eigh(matrix)
    return (vectors * np.maximum(eigenvalues, 0.0)) @ vectors.T
