"""What noise does to means and covariances: standard errors, intervals and a report.

Sums of rows in [-1, 1] are released with noise of the same size each. Errors of what
follows from them are those of the first order (the delta method), noise and sampling.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.stats import norm, t

from skprivbn.privacy._noise_report import noisy_number, report_noise
from skprivbn.programs._moments import Moments
from skprivbn.utils import column_names
from skprivbn.utils._linalg import root_of


def noise_per_row(terms: Any, n_parties: int) -> float:
    """Return the standard deviation of the noise on a sum, in rows."""
    n_features = len(terms.bounds[0])
    return terms.noise(n_features, n_parties).std / terms.unit(n_features) ** 2


def noise_on_means(moments: Moments, bounds: Any, std: float) -> np.ndarray:
    """Return the standard deviation of the noise on each mean.

    Parameters
    ----------
    moments : Moments
        Noisy.
    bounds : ndarray of shape (2, n_features)
    std : float
        Of the noise on a sum, in rows.

    Returns
    -------
    std : ndarray of shape (n_features,)
    """
    half, mean = _in_box(moments, bounds)
    return half * std / moments.n_rows * np.sqrt(1 + mean**2)


def noise_on_covariances(moments: Moments, bounds: Any, std: float) -> np.ndarray:
    """Return the standard deviation of the noise on each covariance, or variance.

    Parameters
    ----------
    moments, bounds, std :
        As in :func:`noise_on_means`.

    Returns
    -------
    std : ndarray of the shape of the covariance
    """
    half, mean = _in_box(moments, bounds)
    if np.ndim(moments.covariance) == 1:
        squares = moments.covariance / half**2 - mean**2
        own = 1 + 4 * mean**2 + squares**2
        return half**2 * std / moments.n_rows * np.sqrt(own)
    # of e_ij - m_i e_j - m_j e_i - (c_ij - m_i m_j) e_n, each e with the same noise
    products = moments.covariance / np.outer(half, half) - np.outer(mean, mean)
    own = 1 + np.add.outer(mean**2, mean**2) + products**2
    own[np.diag_indices(len(half))] += 2 * mean**2  # e_i counts twice
    return np.outer(half, half) * std / moments.n_rows * np.sqrt(own)


def _in_box(moments, bounds):
    """Return half widths between the bounds, and means between -1 and 1."""
    low, high = bounds
    half = (high - low) / 2
    return half, (moments.mean - (low + high) / 2) / half


def report_moments(
    estimator: Any, moments: Moments, terms: Any, n_parties: int
) -> None:
    """Set ``noise_report_`` of an estimator that was fitted by noisy moments.

    Parameters
    ----------
    estimator : estimator
    moments : Moments
    terms : MomentsTerms
    n_parties : int
    """
    std, names = noise_per_row(terms, n_parties), column_names(estimator)
    n_rows = float(np.mean(moments.n_rows))
    numbers = [noisy_number("number of rows", n_rows, std)]
    half = (terms.bounds[1] - terms.bounds[0]) / 2
    variances, spread = None, half
    if moments.covariance is not None:
        variances = np.asarray(moments.covariance)
        variances = np.diag(variances) if variances.ndim == 2 else variances
        spread = np.sqrt(variances)
    errors = noise_on_means(moments, terms.bounds, std)
    numbers += [
        noisy_number(f"mean of {name!r}", *rest)
        for name, *rest in zip(names, moments.mean, errors, spread)
    ]
    if variances is not None:
        errors = noise_on_covariances(moments, terms.bounds, std)
        errors = np.diag(errors) if errors.ndim == 2 else errors
        numbers += [
            noisy_number(f"variance of {name!r}", *rest)
            for name, *rest in zip(names, variances, errors)
        ]
    noise = terms.noise(len(names), n_parties)
    report_noise(
        estimator,
        noise,
        terms.protects,
        std,
        numbers,
        moments.warnings,
        n_rows=n_rows,
        std_with=lambda delta: noise_per_row(replace(terms, delta=delta), n_parties),
    )


def moment_intervals(
    moments: Moments, bounds: Any, std: float, level: float
) -> tuple[np.ndarray, Any]:
    """Return intervals of means, and of covariances or variances.

    Sampling errors of covariances are those of normal rows.

    Parameters
    ----------
    moments : Moments
    bounds : ndarray of shape (2, n_features) or None
    std : float
        Of the noise on a sum, in rows; 0 without noise.
    level : float
        Probability with which an interval is to cover the truth.

    Returns
    -------
    of_means, of_covariances : ndarray
        With a last axis of low and high.
    """
    n_rows, covariance = moments.n_rows, moments.covariance
    variances = np.diag(covariance) if np.ndim(covariance) == 2 else covariance
    of_means = variances / n_rows
    if np.ndim(covariance) == 2:
        of_covariances = (np.outer(variances, variances) + covariance**2) / n_rows
    else:
        of_covariances = 2 * variances**2 / n_rows
    if std > 0:
        of_means = of_means + noise_on_means(moments, bounds, std) ** 2
        of_covariances = (
            of_covariances + noise_on_covariances(moments, bounds, std) ** 2
        )
    return (
        normal_interval(moments.mean, np.sqrt(of_means), level),
        normal_interval(covariance, np.sqrt(of_covariances), level),
    )


def draw_moments(
    moments: Moments, bounds: Any, std: float, kind: str, rng: np.random.RandomState
) -> Moments:
    """Draw what another fit would have released, had the truth these moments.

    Rows are normal; noise is added to counts, sums and products of the rows in the box.

    Parameters
    ----------
    moments : Moments
        With a full covariance.
    bounds, std :
        As in :func:`noise_on_means`.
    kind : {"laplace", "gaussian"}
        Of the noise.
    rng : RandomState

    Returns
    -------
    drawn : Moments
        Its covariance may be indefinite.
    """
    n, d = moments.n_rows, len(moments.mean)
    root = root_of(moments.covariance)
    mean = moments.mean + root @ rng.normal(size=d) / math.sqrt(n)
    # a Wishart matrix of many degrees of freedom, also for fewer rows than columns
    spread = rng.normal(size=(d, d)) / math.sqrt(n)
    spread = np.eye(d) + (spread + spread.T) / math.sqrt(2)
    covariance = root @ spread @ root.T
    if std == 0:
        return Moments(n, mean, covariance)
    half, inside = _in_box(replace(moments, mean=mean), bounds)
    products = covariance / np.outer(half, half) + np.outer(inside, inside)

    n_noisy = max(n + float(simulate_noise(kind, std, None, rng)), 1.0)
    inside = (n * inside + simulate_noise(kind, std, d, rng)) / n_noisy
    upper = np.triu(simulate_noise(kind, std, (d, d), rng))
    upper = upper + np.triu(upper, 1).T
    products = (n * products + upper) / n_noisy - np.outer(inside, inside)
    centre = (bounds[0] + bounds[1]) / 2
    return Moments(n_noisy, centre + half * inside, products * np.outer(half, half))


def simulate_noise(kind, std, size, rng):
    """Draw noise for a simulated release of a bootstrap, which hides nothing.

    Parameters
    ----------
    kind : {"laplace", "gaussian"}
    std : float
    size : int, tuple of int or None
    rng : RandomState

    Returns
    -------
    noise : ndarray or float
    """
    if kind == "laplace":
        return rng.laplace(0, std / math.sqrt(2), size)
    return rng.normal(0, std, size)


def normal_interval(value, std, level):
    """Return low and high ends of normal intervals, along a last axis.

    Parameters
    ----------
    value, std : array-like
        Estimates and their standard errors.
    level : float
        Probability with which an interval is to cover the truth.

    Returns
    -------
    interval : ndarray of shape (..., 2)

    Examples
    --------
    >>> normal_interval(1.0, 0.5, 0.95).round(2)
    array([0.02, 1.98])
    """
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, got {level!r}")
    value = np.asarray(value)
    reach = norm.ppf((1 + level) / 2) * np.asarray(std)
    return np.stack([value - reach, value + reach], axis=-1)


def bootstrap_interval(value, drawn, level):
    """Return intervals from what fits of simulated rows found.

    With the bias and the standard deviation of the fits: simulated rows, the truth of
    which is known, are learnt from as the real ones were, noise included. Quantiles are
    Student's, since few fits know both roughly.

    Parameters
    ----------
    value : array-like
        Estimates, the truth of the simulation.
    drawn : sequence of array-like
        What each of the fits found.
    level : float

    Returns
    -------
    interval : ndarray of shape (..., 2)
    """
    drawn, value = np.asarray(drawn), np.asarray(value)
    n_fits, bias = len(drawn), drawn.mean(axis=0) - value
    std = drawn.std(axis=0, ddof=1) * np.sqrt(1 + 1 / n_fits)
    wider = t.ppf((1 + level) / 2, n_fits - 1) / norm.ppf((1 + level) / 2)
    return normal_interval(value - bias, wider * std, level)
