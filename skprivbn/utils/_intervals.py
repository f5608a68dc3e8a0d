"""Confidence intervals: normal ones, and those of a parametric bootstrap."""

import numpy as np
from scipy.stats import norm, t


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
