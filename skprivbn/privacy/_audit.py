"""Does a mechanism keep its promise? An attack that can only prove it wrong."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Number
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import beta
from sklearn.base import clone
from sklearn.utils.parallel import Parallel, delayed


def audit_epsilon(
    releases: ArrayLike,
    neighbour_releases: ArrayLike,
    delta: float = 0.0,
    confidence: float = 0.999,
) -> float:
    """Return an epsilon that the mechanism provably exceeds, by attacking its releases.

    An attacker sees one number per release (for instance a log-likelihood ratio) and
    guesses from which of two neighbouring data sets it came. The first half of the
    releases chooses the attacker's guess "at least t" or "at most t", the second half
    measures it, with Clopper-Pearson bounds on both error rates.

    Parameters
    ----------
    releases, neighbour_releases : array-like of shape (n_releases,)
        What independent runs gave on the two data sets, as one number each.
    delta : float, default=0.0
        The delta that the mechanism claims.
    confidence : float, default=0.999
        A sound mechanism's epsilon is exceeded by chance with probability at most
        1 - `confidence`.

    Returns
    -------
    float
        Lower confidence bound of epsilon; zero if nothing was found. A value above
        the claimed epsilon means that the mechanism is broken; a value below proves
        nothing.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivbn.privacy import add_discrete_laplace, audit_epsilon
    >>> zeros = np.zeros(2000, dtype=int)
    >>> a = add_discrete_laplace(zeros, 1, epsilon=1.0)
    >>> b = add_discrete_laplace(zeros + 1, 1, epsilon=1.0)
    >>> audit_epsilon(a, b, confidence=1 - 1e-9) <= 1.0
    True
    """
    first = np.asarray(releases, dtype=float)
    second = np.asarray(neighbour_releases, dtype=float)
    train = first[: first.size // 2], second[: second.size // 2]
    test = first[first.size // 2 :], second[second.size // 2 :]
    # two directions are tested, each by two bounds: share the error among them
    alpha = (1 - confidence) / 4
    bounds = [0.0]
    for one, other in (0, 1), (1, 0):
        sign, threshold = _best_guess(train[one], train[other], delta)
        hits = np.count_nonzero(sign * test[one] >= sign * threshold)
        misses = np.count_nonzero(sign * test[other] >= sign * threshold)
        likely = _lower(hits, test[one].size, alpha)
        unlikely = 1 - _lower(test[other].size - misses, test[other].size, alpha)
        if likely > delta and unlikely > 0:
            bounds.append(math.log((likely - delta) / unlikely))
    return max(bounds)


def _best_guess(one, other, delta):
    """The one-sided guess with the largest bound on the training half."""
    best = -math.inf, 1, 0.0
    for sign in (1, -1):
        a, b = np.sort(sign * one), np.sort(sign * other)
        thresholds = np.unique(np.concatenate([a, b]))
        hits = a.size - np.searchsorted(a, thresholds, side="left")
        misses = b.size - np.searchsorted(b, thresholds, side="left")
        likely = beta.ppf(0.01, np.maximum(hits, 0.5), a.size - hits + 1)
        unlikely = beta.ppf(0.99, misses + 1, np.maximum(b.size - misses, 0.5))
        gain = np.log(np.maximum(likely - delta, 1e-300)) - np.log(unlikely)
        i = int(np.argmax(gain))
        best = max(best, (float(gain[i]), sign, float(sign * thresholds[i])))
    return best[1:]


def _lower(successes, trials, alpha):
    """Clopper-Pearson lower bound of a probability."""
    if successes == 0:
        return 0.0
    return float(beta.ppf(alpha, successes, trials - successes + 1))


@dataclass(frozen=True)
class AuditResult:
    """Result of :func:`audit_estimator`.

    Attributes
    ----------
    epsilon : float
        Lower confidence bound: the estimator provably exceeds every smaller one.
    bounds : dict of str to float
        The same for every number of the result, and for all numbers together; valid
        with `confidence`, all at once.
    confidence : float
    n_trials : int
        Fits on each of the two data sets.
    n_failed : tuple of (int, int)
        How many of them raised.
    """

    epsilon: float
    bounds: dict[str, float]
    confidence: float
    n_trials: int
    n_failed: tuple[int, int]


def audit_estimator(
    estimator: Any,
    X: ArrayLike,
    X_neighbour: ArrayLike,
    *,
    statistic: Callable | None = None,
    n_trials: int = 1000,
    delta: float = 0.0,
    confidence: float = 0.999,
    fit_params: dict | None = None,
    neighbour_fit_params: dict | None = None,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> AuditResult:
    """Attack the fits of an estimator: return an epsilon that they provably exceed.

    The estimator is fitted many times on both of two data sets that differ in one row,
    or one individual, and every number of the results goes through
    :func:`audit_epsilon`, and so does the linear function of all of them that separates
    the two data sets best. An error of a fit is a result, too: it may reveal a row.

    Parameters
    ----------
    estimator : estimator
        With `epsilon`. Clones of it are fitted, without an accountant: the rows of an
        audit are invented ones, as extreme as the bounds allow.
    X, X_neighbour : array-like of shape (n_samples, n_features)
        Neighbouring data sets.
    statistic : callable, default=None
        ``statistic(fitted)`` returns a number or an array of numbers, as many whatever
        the rows. None takes all numbers among the fitted attributes.
    n_trials : int, default=1000
        Fits on each data set.
    delta : float, default=0.0
        The delta that the estimator claims.
    confidence : float, default=0.999
        A sound estimator's epsilon is exceeded by chance with probability at most
        1 - `confidence`, however many numbers are looked at.
    fit_params, neighbour_fit_params : dict, default=None
        Passed to `fit` with `X` and with `X_neighbour`, such as `individual`. The
        second are the first if None.
    n_jobs : int, default=None
        Fits in parallel.
    verbose : int, default=0
        Progress, as joblib prints it.

    Returns
    -------
    AuditResult
        Its `epsilon` above the claimed one means that the estimator is broken; a
        smaller one proves nothing.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivbn.preprocessing import FederatedStandardScaler
    >>> from skprivbn.privacy import audit_estimator
    >>> X = np.zeros((20, 1))
    >>> scaler = FederatedStandardScaler(epsilon=1.0, bounds=(-1, 1))
    >>> found = audit_estimator(scaler, X, np.append(X, [[1.0]], axis=0), n_trials=40)
    >>> found.epsilon <= 1.0
    True
    """
    params = fit_params or {}
    others = params if neighbour_fit_params is None else neighbour_fit_params
    fits = [(X, params)] * n_trials + [(X_neighbour, others)] * n_trials
    outcomes = Parallel(n_jobs=n_jobs, verbose=verbose)(
        delayed(_fit_for_audit)(estimator, rows, given, statistic or fitted_numbers)
        for rows, given in fits
    )
    table = _outcome_table(outcomes)
    table["all numbers together"] = _combine(table, n_trials)
    # every number is a test of its own: they share the error
    each = 1 - (1 - confidence) / len(table)
    bounds = {
        name: audit_epsilon(values[:n_trials], values[n_trials:], delta, each)
        for name, values in table.items()
    }
    failed = table["fit raises"].astype(int)
    n_failed = int(failed[:n_trials].sum()), int(failed[n_trials:].sum())
    return AuditResult(max(bounds.values()), bounds, confidence, n_trials, n_failed)


def _combine(table, n_trials):
    """Return the linear function of all numbers that tells the data sets apart best.

    It is learnt from those releases only by which guesses are chosen.
    """
    values = np.column_stack(list(table.values()))
    half = n_trials // 2
    learnt = values[:half], values[n_trials : n_trials + half]
    low, high = np.quantile(np.concatenate(learnt), [0.02, 0.98], axis=0)
    with np.errstate(over="ignore"):
        width = high - low
    varies = (width > 0) & np.isfinite(width)
    if half < 2 or not varies.any():
        return np.zeros(len(values))
    low, high, width = low[varies], high[varies], width[varies]

    def scale(part):
        return (np.clip(part[:, varies], low, high) - low) / width

    one, other = map(scale, learnt)
    spread = np.cov(one, rowvar=False) + np.cov(other, rowvar=False)
    ridge = 1e-3 * np.eye(len(width))
    gap = other.mean(axis=0) - one.mean(axis=0)
    return scale(values) @ np.linalg.solve(spread + ridge, gap)


def fitted_numbers(model: Any) -> dict[str, np.ndarray]:
    """Return the numbers among the fitted attributes, as flat arrays by name.

    Parameters
    ----------
    model : estimator

    Returns
    -------
    numbers : dict of str to ndarray
    """
    numbers = {}
    for name, value in vars(model).items():
        if name.endswith("_") and isinstance(value, Number | np.ndarray | tuple):
            values = np.asarray(value).ravel()
            if values.dtype.kind in "fiub":
                numbers[name] = values.astype(float)
    return numbers


def _fit_for_audit(estimator, X, fit_params, statistic):
    """Return the numbers of one fit by name, or None if it raises."""
    model = clone(estimator)
    paid = [name for name in model.get_params() if name.endswith("accountant")]
    model.set_params(**dict.fromkeys(paid))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            numbers = statistic(model.fit(X, **fit_params))
        except Exception:  # whatever it is, somebody sees it
            return None
    if not isinstance(numbers, dict):
        numbers = {"statistic": np.ravel(numbers)}
    return {
        f"{name}[{i}]": value
        for name, values in numbers.items()
        for i, value in enumerate(values)
    }


def _outcome_table(outcomes):
    """Return one array per number over all fits; what is not there is a result, too."""
    made = [outcome for outcome in outcomes if outcome is not None]
    names = sorted({name for outcome in made for name in outcome})
    lowest = -np.finfo(float).max
    table = {
        name: np.nan_to_num(
            [(outcome or {}).get(name, np.nan) for outcome in outcomes], nan=lowest
        )
        for name in names
    }
    return table | {"fit raises": np.array([float(o is None) for o in outcomes])}
