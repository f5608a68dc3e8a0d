"""EM for Gaussian mixtures, written as sums over rows.

Moments are taken about a point and in a unit per component, a :class:`Frame`. With
u = (x - reference) / scale, a component's new mean and covariance follow from
sum r, sum r u and sum r u u^T, whatever the frame. A frame close to the component
keeps these sums of the order of the number of rows and free of cancellation.

Rows may have gaps, NaN: see `_gaps`.

Rows that noise is to hide are treated one by one (`alone`): a product of all rows
rounds each by its neighbours. A responsibility at the edge of two multiples of 2^-14
would then move with one row more: not by that row's part of the sums, for which there
is noise, but by everybody's.
"""

from dataclasses import dataclass
from functools import reduce

import numpy as np
from scipy.linalg.lapack import dtrtri

from skprivbn.mixture._gaps import (
    factor_of,
    groups_of_gaps,
    has_gaps,
    pack,
    rows_as_expected,
)
from skprivbn.utils._linalg import multiply_rows, sum_columns, symmetric
from skprivbn.utils._memoise import memoise


class IllDefinedCovarianceError(ValueError):
    """A component's covariance is not positive definite."""

    def __init__(self):
        super().__init__(
            # word for word as in scikit-learn
            "Fitting the mixture model failed because some components have "
            "ill-defined empirical covariance (for instance caused by singleton or "
            "collapsed samples). Try to decrease the number of components, increase "
            "reg_covar, or scale the input data."
        )


@dataclass(frozen=True)
class Mixture:
    """Parameters of a Gaussian mixture, in the shapes of scikit-learn.

    Parameters
    ----------
    covariance_type : {"full", "tied", "diag", "spherical"}
    weights : ndarray of shape (n_components,)
    means : ndarray of shape (n_components, n_features)
    covariances, precisions_cholesky : ndarray
        Their shapes depend on `covariance_type`.
    """

    covariance_type: str
    weights: np.ndarray
    means: np.ndarray
    covariances: np.ndarray
    precisions_cholesky: np.ndarray

    @classmethod
    def from_covariances(cls, covariance_type, weights, means, covariances):
        """Factorise the covariances; IllDefinedCovarianceError if impossible."""
        factors = _precision_factors(covariances, covariance_type)
        return cls(covariance_type, weights, means, covariances, factors)

    @classmethod
    def from_precisions(cls, covariance_type, weights, means, precisions):
        """Use given precision matrices, which must be positive definite."""
        if covariance_type in ("diag", "spherical"):
            factors, covariances = np.sqrt(precisions), 1 / precisions
        else:
            # scikit-learn's factor is upper triangular: reverse, factorise, reverse.
            reverse = (..., slice(None, None, -1), slice(None, None, -1))
            factors = np.linalg.cholesky(precisions[reverse])[reverse].copy()
            covariances = np.linalg.inv(precisions)
        return cls(covariance_type, weights, means, covariances, factors)

    @classmethod
    def single(cls, n_components, variances):
        """Return components that are all alike, about zero, of given variances."""
        shape = n_components, len(variances)
        weights = np.full(n_components, 1 / n_components)
        variances = np.broadcast_to(variances, shape)
        return cls.from_covariances("diag", weights, np.zeros(shape), variances)

    @property
    def precisions(self):
        """Inverses of the covariances."""
        factors = self.precisions_cholesky
        if self.covariance_type in ("full", "tied"):
            return factors @ np.swapaxes(factors, -1, -2)
        return factors**2

    @property
    def matrices(self):
        """Covariance matrix of every component, whatever their type."""
        return as_matrices(self.covariance_type, self.covariances, self.means.shape)

    @property
    def variances(self):
        """Diagonals of the covariances, in the shape of a frame's scale."""
        if self.covariance_type == "full":
            return np.einsum("kff->kf", self.covariances)
        if self.covariance_type == "tied":
            return np.diag(self.covariances)[np.newaxis]
        if self.covariance_type == "diag":
            return self.covariances
        return self.covariances[:, np.newaxis]


@memoise
def _precision_factors(covariances, covariance_type):
    """Return factors P of the precisions, P P^T, as scikit-learn keeps them."""
    if covariance_type in ("diag", "spherical"):
        if not np.all(covariances > 0):
            raise IllDefinedCovarianceError
        return 1 / np.sqrt(covariances)
    try:
        factors = np.linalg.cholesky(covariances)
    except np.linalg.LinAlgError:
        raise IllDefinedCovarianceError from None
    if not np.all(np.isfinite(factors)):
        raise IllDefinedCovarianceError
    if covariance_type == "tied":
        return dtrtri(factors, lower=1)[0].T
    return np.stack([dtrtri(factor, lower=1)[0].T for factor in factors])


def _log_density(X, mixture, alone):
    """Return log N(entries that are there | component); 0 without any."""
    multiply, add_squares = (
        (multiply_rows, lambda z: sum_columns(z**2))
        if alone
        else (np.matmul, lambda z: np.einsum("nf,nf->n", z, z))
    )
    densities, half = np.empty((len(X), len(mixture.means))), np.log(2 * np.pi) / 2
    if mixture.covariance_type in ("diag", "spherical"):
        factors = mixture.precisions_cholesky.reshape(len(mixture.means), -1)
        factors, seen = np.broadcast_to(factors, mixture.means.shape), ~np.isnan(X)
        logs = multiply(seen, np.log(factors.T) - half)
        for k, (mean, factor) in enumerate(zip(mixture.means, factors)):
            z = X - mean
            z *= factor
            z[~seen] = 0.0
            densities[:, k] = logs[:, k] - add_squares(z) / 2
        return densities
    for rows, seen in groups_of_gaps(X):
        entries = X[rows] if seen.all() else X[np.ix_(rows, seen)]
        for k, mean in enumerate(mixture.means):
            factor = _factor(mixture, k, seen)
            squares = add_squares(multiply(entries - mean[seen], factor))
            log_det = np.log(factor.diagonal()).sum()
            densities[rows, k] = log_det - half * seen.sum() - squares / 2
    return densities


def _factor(mixture, k, seen):
    """Return a factor of the precision of those entries of a component.

    It follows from the mixture and from what a row lacks: not from which other rows
    there are.
    """
    if seen.all():
        factors = mixture.precisions_cholesky
        return factors if mixture.covariance_type == "tied" else factors[k]
    if not seen.any():
        return np.zeros((0, 0))
    root = factor_of(mixture.matrices[k][np.ix_(seen, seen)])
    return dtrtri(root, lower=1)[0].T


def weighted_log_density(X, mixture, alone=False):
    """Return log w + log N(x | component), of shape (n_samples, n_components)."""
    with np.errstate(all="ignore"):
        return _log_density(X, mixture, alone) + np.log(mixture.weights)


def e_step(X, mixture, alone=False):
    """Return each row's log-likelihood and its responsibilities.

    Parameters
    ----------
    X : ndarray of float64 of shape (n_samples, n_features)
        Perhaps with gaps.
    mixture : Mixture
    alone : bool, default=False
        Whether each row has the bits that it has alone, for sums with noise.

    Returns
    -------
    log_likelihood : ndarray of shape (n_samples,)
    responsibilities : ndarray of shape (n_samples, n_components)
        NaN for a row that no component can have.
    """
    weighted = weighted_log_density(X, mixture, alone)
    with np.errstate(all="ignore"):
        # by columns, of which there are few
        largest = reduce(np.maximum, weighted.T[1:], weighted[:, 0].copy())
        weighted -= largest[:, np.newaxis]
        responsibilities = np.exp(weighted, out=weighted)
        total = sum_columns(responsibilities)
        responsibilities /= total[:, np.newaxis]
        return largest + np.log(total), responsibilities


@dataclass(frozen=True)
class Frame:
    """Where moments are taken about, and in which units.

    Parameters
    ----------
    covariance_type : {"full", "tied", "diag", "spherical"}
    reference : ndarray of shape (n_components, n_features)
    scale : ndarray
        Of shape (n_components, n_features) for full and diag, (1, n_features) for
        tied, (n_components, 1) for spherical.
    """

    covariance_type: str
    reference: np.ndarray
    scale: np.ndarray


def frame_of(mixture):
    """Return the frame of a mixture's own means and standard deviations."""
    scale = np.sqrt(mixture.variances)
    return Frame(mixture.covariance_type, mixture.means, scale)


def uniform_frame(covariance_type, reference, scale):
    """Return a frame whose units are the same for all components.

    Parameters
    ----------
    covariance_type : {"full", "tied", "diag", "spherical"}
    reference : ndarray of shape (n_components, n_features)
    scale : ndarray of shape (n_features,)

    Returns
    -------
    frame : Frame
    """
    if covariance_type == "tied":
        scales = scale[np.newaxis]
    elif covariance_type == "spherical":
        scales = np.full((len(reference), 1), scale.max())
    else:
        scales = np.broadcast_to(scale, reference.shape)
    return Frame(covariance_type, reference, scales)


def local_statistics(X, responsibilities, frame, mixture=None):
    """Sum a party's rows: all that the M-step needs, in one vector.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
    responsibilities : ndarray of shape (n_samples, n_components)
    frame : Frame
    mixture : Mixture, default=None
        Where the responsibilities are from; for what is missing in rows with gaps.

    Returns
    -------
    vector : ndarray of shape (n_statistics,)
        Sums of responsibilities, first moments, and those second moments that the
        covariance type needs: upper triangles (full), one of them (tied), diagonals
        or traces (spherical).
    """
    n_components, n_features = frame.reference.shape
    scale = np.broadcast_to(frame.scale, frame.reference.shape)
    first = np.empty((n_components, n_features))
    second = []
    groups = list(groups_of_gaps(X)) if has_gaps(X) else None
    for k in range(n_components):
        shares, rows = responsibilities[:, k], X
        # of entries that are missing, about their conditional means
        spread = np.zeros((n_features, n_features))
        if groups is not None:
            rows, spread = rows_as_expected(X, mixture, k, shares, groups)
            spread /= np.outer(scale[k], scale[k])
        u = rows - frame.reference[k]
        u /= scale[k]
        weighted = u * shares[:, np.newaxis]
        first[k] = shares @ u
        if frame.covariance_type in ("full", "tied"):
            second.append(weighted.T @ u + spread)
        elif frame.covariance_type == "diag":
            second.append(np.einsum("nf,nf->f", weighted, u) + spread.diagonal())
        else:
            second.append(np.einsum("nf,nf->", weighted, u) + spread.trace())
    # a product: sums of long narrow arrays are slow
    counts = np.ones(len(X)) @ responsibilities
    return pack(frame.covariance_type, counts, first, np.stack(second))


def covariance_shape(covariance_type, n_components, n_features):
    """Return the shape of the covariances of a mixture, or of its precisions."""
    return {
        "full": (n_components, n_features, n_features),
        "tied": (n_features, n_features),
        "diag": (n_components, n_features),
        "spherical": (n_components,),
    }[covariance_type]


def as_matrices(covariance_type, covariances, shape):
    """Return covariances, or precisions, as one matrix for each component.

    Parameters
    ----------
    covariance_type : {"full", "tied", "diag", "spherical"}
    covariances : ndarray
    shape : tuple of int
        Number of components, and of features.

    Returns
    -------
    matrices : ndarray of shape (n_components, n_features, n_features)
    """
    n_components, n_features = shape
    if covariance_type in ("diag", "spherical"):
        return np.reshape(covariances, (n_components, -1, 1)) * np.eye(n_features)
    return np.broadcast_to(covariances, (n_components, n_features, n_features))


def n_statistics(covariance_type, n_components, n_features):
    """Return the length of the vector of :func:`local_statistics`."""
    triangle = n_features * (n_features + 1) // 2
    second = {
        "full": n_components * triangle,
        "tied": triangle,
        "diag": n_components * n_features,
        "spherical": n_components,
    }
    return n_components * (1 + n_features) + second[covariance_type]


def _unpack(vector, frame):
    """Split the sums into counts, first and second moments, symmetric again."""
    n_components, n_features = frame.reference.shape
    ends = n_components, n_components * (1 + n_features)
    counts, first, second = np.split(vector, ends)
    if frame.covariance_type in ("full", "diag"):
        second = second.reshape(n_components, -1)
    if frame.covariance_type in ("full", "tied"):
        second = symmetric(second)
    return counts, first.reshape(n_components, n_features), second


@memoise
def maximise(vector, frame, reg_covar):
    """Do the M-step from sums over all rows.

    Parameters
    ----------
    vector : ndarray of shape (n_statistics,)
        Sum of :func:`local_statistics` over all parties.
    frame : Frame
        The one that the moments were taken in.
    reg_covar : float
        Added to the diagonals of the covariances.

    Returns
    -------
    counts : ndarray of shape (n_components,)
        Sums of responsibilities, plus scikit-learn's guard against zero.
    means : ndarray of shape (n_components, n_features)
    covariances : ndarray
        Not yet known to be positive definite.
    """
    kind, n_features = frame.covariance_type, frame.reference.shape[1]
    counts, first, second = _unpack(vector, frame)
    counts = np.maximum(counts, 0) + 10 * np.finfo(float).eps
    shift = first / counts[:, np.newaxis]
    means = frame.reference + shift * frame.scale
    divisor = {
        "full": counts[:, np.newaxis, np.newaxis],
        "tied": counts.sum(),
        "diag": counts[:, np.newaxis],
        "spherical": counts * n_features,
    }[kind]
    covariances = second / divisor - squares_of(kind, shift, counts)
    covariances = covariances * squares_of(kind, frame.scale)
    return counts, means, regularised(kind, covariances, reg_covar)


def squares_of(covariance_type, vectors, counts=(1.0,)):
    """Return squares of each component's vector, in the shape of covariances.

    Parameters
    ----------
    covariance_type : {"full", "tied", "diag", "spherical"}
    vectors : ndarray of shape (n_components, n_features)
    counts : ndarray of shape (n_components,), default=(1.0,)
        Weights of the components, for their mean square if covariances are tied.

    Returns
    -------
    squares : ndarray
    """
    if covariance_type == "full":
        return vectors[:, :, np.newaxis] * vectors[:, np.newaxis]
    if covariance_type == "tied":
        return (counts * vectors.T) @ vectors / np.sum(counts)
    squares = vectors**2
    return squares if covariance_type == "diag" else squares.mean(axis=1)


def isotropic(covariance_type, n_components, n_features, variance):
    """Return covariances, or precisions, that are the same in all directions."""
    shape = covariance_shape(covariance_type, n_components, n_features)
    return regularised(covariance_type, np.zeros(shape), variance)


def regularised(covariance_type, covariances, reg_covar):
    """Return covariances with a number added to their diagonals."""
    if covariance_type in ("full", "tied"):
        reg_covar = reg_covar * np.eye(covariances.shape[-1])
    return covariances + reg_covar
