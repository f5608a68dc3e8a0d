"""What `epsilon`, `delta`, `bounds`, ... mean in every estimator."""

import math
import re
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any
from weakref import WeakKeyDictionary, ref

import numpy as np

from skprivbn.exceptions import PrivacyLeakWarning
from skprivbn.privacy._accountant import PrivacyAccountant, check_accountant
from skprivbn.privacy._composition import public_delta
from skprivbn.utils import by_column, column_names, warn_leak, warn_user
from skprivbn.utils._sklearn import Interval

#: uncounted fits of an estimator; its clones have the same list. Not an attribute:
#: scikit-learn wants clones to have parameters only, and pickles need not know.
_uncounted: WeakKeyDictionary[Any, list[float]] = WeakKeyDictionary()
#: what was said about an estimator, and by which of its clones; these share it, too
_said: WeakKeyDictionary[Any, dict[str, ref]] = WeakKeyDictionary()
_NUMBER = re.compile(r"\d[\d.,e+-]*")
#: by the id of transformed rows, while they live: which step was fitted without noise
_exact_steps: dict[int, tuple[ref, str]] = {}

PRIVACY_CONSTRAINTS = {
    "epsilon": [Interval(Real, 0, None, closed="neither"), None],
    "delta": [Interval(Real, 0, 1, closed="left"), None],
    "bounds": ["array-like", tuple, dict, None],
    "accountant": [PrivacyAccountant, None],
    "min_honest": [Interval(Integral, 1, None, closed="left"), None],
}


def check_bounds(bounds, n_features, names=None):
    """Return public bounds as an array of shape (2, n_features).

    Parameters
    ----------
    bounds : pair of numbers or of array-likes of shape (n_features,), list of \
            tuples (low, high), or dict of str to (low, high)
        Lower and upper bounds. None is an error that says why they are needed.
    n_features : int
    names : list of str, default=None
        Of the features, for bounds by name.

    Returns
    -------
    bounds : ndarray of shape (2, n_features)
    """
    if bounds is None:
        raise ValueError(
            "epsilon needs public bounds= to clip the rows to: bounds read off the "
            "data would not be private"
        )
    # a list of tuples has one for each feature; a tuple has low and high
    pairs = bounds if isinstance(bounds, list) else None
    if isinstance(bounds, Mapping):
        pairs = by_column("bounds", bounds, names or [], complete=True)
    elif pairs is not None and not all(isinstance(pair, tuple) for pair in pairs):
        pairs = None
    try:
        low, high = bounds if pairs is None else np.array(pairs, float).reshape(-1, 2).T
        table = np.stack(
            [np.broadcast_to(np.asarray(b, float), n_features) for b in (low, high)]
        )
    except (TypeError, ValueError):
        raise ValueError(
            "bounds must be a pair (low, high) of numbers or of one number per "
            f"feature ({n_features}), a list of pairs [(low, high), ...], or a dict "
            f"{{'age': (0, 120), ...}}, got {bounds!r}"
        ) from None
    if not np.all(np.isfinite(table)) or not np.all(table[0] < table[1]):
        raise ValueError("bounds must be finite, each lower bound below its upper one")
    # Beyond these, squares of widths vanish or overflow, and so would rows on a grid.
    half = table[1] / 2 - table[0] / 2
    if not np.all((half > 1e-100) & (half < 1e100)):
        raise ValueError("bounds must be more than 1e-100 and less than 1e100 apart")
    return table


def bounds_of(estimator):
    """Return the public bounds of an estimator's features, then of columns beside X."""
    names = [*column_names(estimator), *getattr(estimator, "_bounded_beside", ())]
    return check_bounds(estimator.bounds, len(names), names)


def delta_of(estimator):
    """Return the delta of an estimator; None follows from a public number of rows."""
    delta, accountant = getattr(estimator, "delta", 0.0), estimator.accountant
    if delta is not None:
        return delta
    if accountant is None or accountant.n_max is None:
        raise ValueError(
            "delta=None follows from a public bound on the number of rows, which must "
            "not be counted in them: give accountant=PrivacyAccountant(epsilon, "
            "n_max=10_000) or the like, a number such as delta=1e-6, or delta=0"
        )
    return public_delta(accountant.n_max)


def protected_by(partition):
    """Return whom noise on sums of a partition is to hide.

    Parameters
    ----------
    partition : HorizontalPartition or RemoteRows

    Returns
    -------
    protects : {"rows", "individuals"}
    """
    return "individuals" if "individual" in partition.aligned else "rows"


def noise_terms(estimator, partition, *, bounds=True):
    """Return the terms of a fit that concern noise, as keywords; empty without epsilon.

    Parameters
    ----------
    estimator : estimator
        With `epsilon`, `delta`, `bounds` and `min_honest`.
    partition : HorizontalPartition or RemoteRows
    bounds : bool, default=True
        Whether the bounds belong to them.

    Returns
    -------
    terms : dict
    """
    if estimator.epsilon is None:
        return {}
    found = {
        "epsilon": estimator.epsilon,
        "delta": delta_of(estimator),
        "min_honest": estimator.min_honest,
        "protects": protected_by(partition),
    }
    if bounds:
        found["bounds"] = bounds_of(estimator)
    return found


def apply_to_rows(function, X):
    """Apply a function to rows; those with an entry that is no number become NaN.

    For transformers that noise follows: nothing in a row may raise or warn. In double
    precision, whatever the table has: one entry that is no number makes objects of
    float32, and all other rows would be rounded otherwise.

    Parameters
    ----------
    function : callable
        From an array of finite rows to an array with as many rows, each with the bits
        that it has alone.
    X : ndarray of float of shape (n_samples, n_features)

    Returns
    -------
    X_new : ndarray of float64 of shape (n_samples, n_features_out)
    """
    X = np.asarray(X, dtype=np.float64)
    finite = np.all(np.isfinite(X), axis=1)[:, None]
    with np.errstate(all="ignore"):
        made = np.asarray(function(np.where(finite, X, 0.0)), dtype=np.float64)
        return np.where(finite, np.nan_to_num(made), np.nan)


def _alone(function):
    """Return a function that is applied to one row at a time."""

    def apply(X):
        made = [function(X[i : i + 1]) for i in range(len(X))]
        return np.concatenate(made) if made else function(X)

    return apply


def apply_step(step, X):
    """Apply a fitted transformer to rows that noise is to hide: nothing may raise.

    Parameters
    ----------
    step : estimator
        With ``_transform_all`` if it knows what to do with any row, and gives each the
        bits that it has alone. Others are given one row at a time, since a batch may
        be rounded by its size; rows with an entry that is no number become NaN.
    X : ndarray of float of shape (n_samples, n_features)

    Returns
    -------
    X_new : ndarray of shape (n_samples, n_features_out)
    """
    if hasattr(step, "_transform_all"):
        return step._transform_all(X)
    return apply_to_rows(_alone(step.transform), X)


def charge(estimator, what, noise=None, *, rho=None, unit="rows"):
    """Charge a fit to the estimator's accountant, before any data are touched.

    Every fit is charged here. An exact fit costs infinite epsilon: an accountant with a
    limit refuses it; otherwise it goes on, and the estimator loses ``privacy_spent_``
    of an earlier fit.

    Parameters
    ----------
    estimator : estimator
        With `epsilon` and `accountant`; `delta`, `bounds` and `backend` if it has them.
    what : str
        What is released.
    noise : DistributedNoise, default=None
        Its rho is charged: several releases compose more tightly with it.
    rho : float, default=None
        The cost of the whole fit as zCDP, if it is not that of `noise`.
    unit : {"rows", "individuals", "values"}, default="rows"
        Whom the noise hides.

    Returns
    -------
    cost : PrivacyCost or None
        None if the fit is exact.
    """
    if estimator.epsilon is None:
        charge_exact(estimator, what)
        # of an earlier fit; that of a noisy one is replaced when it succeeds
        for name in ("privacy_spent_", "noise_report_"):
            vars(estimator).pop(name, None)
        _warn_of_idle_bounds(estimator)
        return None
    # before the charge: what cannot work must not cost budget
    if getattr(estimator, "_needs_bounds", hasattr(estimator, "bounds")):
        bounds_of(estimator)
    _refuse_open_shares(estimator, noise)
    if noise is not None and rho is None:
        rho = noise.rho
    cost = estimator.epsilon, delta_of(estimator), rho
    what = f"noisy {what}"
    accountant = check_accountant(estimator.accountant, *cost, what, unit)
    if estimator.accountant is None:
        note_uncounted_fit(estimator)
    return accountant.spend(*cost, what, unit)


def charge_exact(estimator, what):
    """Charge what no noise protects: refused if the accountant has a limit."""
    if estimator.accountant is not None:
        estimator.accountant.spend(epsilon=np.inf, what=f"exact {what}")


def _warn_of_idle_bounds(estimator):
    if getattr(estimator, "bounds", None) is None:
        return
    if getattr(estimator, "_needs_bounds", True):
        warn_of_fit(
            estimator,
            "bounds has no effect without epsilon: rows are neither clipped nor "
            "hidden by noise. Give epsilon=, or leave bounds out",
            UserWarning,
        )


def _refuse_open_shares(estimator, noise):
    """Refuse a backend that shows sums with one party's share of the noise only."""
    backend = getattr(estimator, "backend", None)
    is_open = getattr(backend, "kind", backend) == "plaintext"
    if is_open and getattr(noise, "min_honest", 1) > 1:
        raise ValueError(
            "backend='plaintext' shows every party's sums with its own share of the "
            f"noise, which is enough only for min_honest={noise.min_honest} shares "
            "together: use a backend that hides them, or min_honest=1"
        )


def words_of_noise(noise, signal):
    """Return a warning if noise is as large as what it was added to, else none."""
    if noise < signal:
        return ()
    return (
        "privacy noise is as large as what it was added to, so that the result "
        "tells next to nothing about the rows: take more rows, a larger epsilon, "
        "tighter bounds or fewer columns",
    )


def share_memory(estimator: Any, clone: Any) -> Any:
    """Return a clone that shares with an estimator what its fits have cost and said.

    A search fits many clones, each once: only together do they spend too much, and
    the warnings of all are the same.

    Parameters
    ----------
    estimator, clone : estimator

    Returns
    -------
    clone : estimator
    """
    _said[clone] = _said.setdefault(estimator, {})
    _uncounted[clone] = _uncounted.setdefault(estimator, [])
    return clone


def warn_of_fit(
    estimator: Any, message: str, category: type[Warning] = PrivacyLeakWarning
) -> None:
    """Warn of a fit, unless it is of a clone and another clone has warned.

    A search fits many clones, and every fit resets Python's memory of warnings.
    Messages that differ in their numbers only are the same warning.

    Parameters
    ----------
    estimator : estimator
    message : str
    category : type of Warning, default=PrivacyLeakWarning
    """
    said = _said.setdefault(estimator, {})
    if said.setdefault(_NUMBER.sub("#", message), ref(estimator))() is estimator:
        warn_user(message, category)


def note_uncounted_fit(estimator: Any) -> None:
    """Warn at the second fit of an estimator, or of its clones, without accountant.

    Parameters
    ----------
    estimator : estimator
        With `epsilon`.
    """
    fits = _uncounted.setdefault(estimator, [])
    fits.append(float(estimator.epsilon))
    # Once: every fit of a search resets Python's memory of what was said.
    if len(fits) == 2:
        warn_leak(
            "this is the second fit of the same estimator, or of its clones, "
            "without an accountant: on the same rows every fit spends its "
            f"epsilon again, {sum(fits):.3g} so far, and nothing adds up what "
            "it and further fits spend. Pass "
            "accountant=PrivacyAccountant(epsilon=...), which limits it"
        )


def note_exact_step(step: Any, X: Any, transformed: Any) -> None:
    """Remember which rows come from a transformer that was fitted without noise.

    Parameters
    ----------
    step : estimator
        A fitted transformer.
    X, transformed : array-like or partition
        Its rows, and what became of them.
    """
    _, name = _exact_steps.get(id(X), (None, None))
    if hasattr(step, "ledger_") and not hasattr(step, "privacy_spent_"):
        name = type(step).__name__
    if name is not None and transformed is not X:
        key = id(transformed)
        alive = ref(transformed, lambda _: _exact_steps.pop(key, None))
        _exact_steps[key] = alive, name


def warn_of_exact_step(estimator: Any, X: Any) -> None:
    """Warn if a private fit gets rows of a step that was fitted without noise.

    Parameters
    ----------
    estimator : estimator
    X : array-like or partition
        Rows as `fit` gets them.
    """
    if getattr(estimator, "epsilon", None) is not None and id(X) in _exact_steps:
        name = _exact_steps[id(X)][1]
        warn_of_fit(
            estimator,
            f"{name} in front of {type(estimator).__name__} was fitted without noise: "
            "together they have no finite epsilon, whatever this fit spends. Give it "
            "epsilon= of its own, or replace it by public bounds, states or edges",
        )


def note_exact_score(estimator: Any) -> None:
    """Warn once if an estimator with a limited budget, or a clone, scores exactly.

    Nobody but the user knows whether the rows are private. An accountant with a limit
    says that some are, and that all that is told of them is to be counted.

    Parameters
    ----------
    estimator : estimator
        Fitted.
    """
    if getattr(estimator, "epsilon", None) is None:
        return
    accountant = getattr(estimator, "accountant", None)
    if accountant is None or math.isinf(accountant.epsilon):
        return
    said = _said.setdefault(estimator, {})
    if "score" not in said:
        said["score"] = ref(estimator)
        warn_leak(
            "score is an exact function of the rows, which the accountant does not "
            "count. For public rows that is fine; for private ones use "
            "skprivbn.privacy.private_score, and PrivateSearchCV in place of "
            "GridSearchCV"
        )


def warn_of_score(estimator):
    """Warn that a score tells something exact, beside a fit with noise.

    Parameters
    ----------
    estimator : estimator
    """
    if getattr(estimator, "epsilon", None) is not None:
        warn_leak(
            "score tells an exact sum over the parties' rows, which the privacy budget "
            "of the fit does not cover"
        )
