"""Basis functions of single variables, so that sums over rows can see curvature."""

import numpy as np
from scipy.special import expit

from skprivbn.structure.gaussian._hill_climbing import FeatureMoments

#: centres of the sigmoids in "sigmoid", in standard deviations
_CENTRES = (-1.5, -0.5, 0.5, 1.5)


def _polynomial(z):
    return [z, z**2 - 1.0, z**3 - 3.0 * z, z**4 - 6.0 * z**2 + 3.0, z**5]


def _sigmoid(z):
    return [z, *(expit(3.0 * (z - centre)) for centre in _CENTRES)]


#: of each column
N_FUNCTIONS = 5
BASES = {"polynomial": _polynomial, "sigmoid": _sigmoid}


def expand(Z, basis):
    """Return the basis functions of standardised columns, five per column.

    Parameters
    ----------
    Z : ndarray of shape (n, d)
        Columns with mean 0 and variance 1, roughly. Beyond 4 standard deviations
        they are clipped, so that single rows do not rule the sums.
    basis : {"sigmoid", "polynomial"}
        Which functions; the first one is the column itself, not clipped.

    Returns
    -------
    ndarray of shape (n, 5 * d)
        The functions of the first column, then those of the second, ...
    """
    functions = BASES[basis](np.clip(Z, -4.0, 4.0))
    functions[0] = Z
    return np.stack(functions, axis=2).reshape(len(Z), -1)


def basis_features(covariance, n_rows, scale):
    """Describe the covariance of :func:`expand` as features, in the columns' units."""
    d = len(scale)
    features = np.arange(d * N_FUNCTIONS).reshape(d, N_FUNCTIONS)
    units = np.ones(d * N_FUNCTIONS)
    units[features[:, 0]] = scale
    covariance = covariance * np.outer(units, units)
    return FeatureMoments(covariance, n_rows, features[:, 0], features)
