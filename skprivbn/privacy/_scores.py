"""Scores on private rows, released with noise: fixed point, clipped, counted."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.utils import column_or_1d

from skprivbn.privacy._accountant import PrivacyAccountant, check_accountant
from skprivbn.privacy._mechanisms import CountMechanism
from skprivbn.privacy._persons import cut_weights, number_persons
from skprivbn.utils._sklearn import _num_samples, _safe_indexing
from skprivbn.utils._typing import WeightsLike
from skprivbn.utils._validation import is_missing, label_text, texts_of

#: integer steps between the two score bounds; a row's score is rounded to one
STEPS = 2**16
#: what a row may raise that cannot be scored
_OF_ROWS = (ArithmeticError, LookupError, TypeError, ValueError)


def private_score(
    estimator: Any,
    X: ArrayLike,
    y: ArrayLike | None = None,
    *,
    epsilon: float,
    bounds: tuple[float, float],
    delta: float = 0.0,
    accountant: PrivacyAccountant | None = None,
    scoring: Callable | None = None,
    sample_weight: WeightsLike | None = None,
    individual: ArrayLike | None = None,
    max_weight: int = 1,
) -> float:
    """Return the mean score of private rows, with noise.

    A score reveals information about its rows. Here each row's score is clipped to
    public bounds, and the sum and the number of rows are released with noise.

    Parameters
    ----------
    estimator : estimator
        Fitted, either on other rows or with differential privacy: only then does one
        row change the sum by at most its own score.
    X : array-like of shape (n_samples, n_features)
        Private rows.
    y : array-like of shape (n_samples,), default=None
        Class labels, for classifiers.
    epsilon : float
        Cost of the release.
    bounds : tuple of (float, float)
        Public bounds of a row's score, for instance ``(-20, 0)`` for the
        log-likelihood of discrete data. Narrow bounds mean little noise, but bias
        if many rows lie outside.
    delta : float, default=0.0
        Positive for Gaussian instead of Laplace noise.
    accountant : PrivacyAccountant, default=None
        Is charged before the rows are touched.
    scoring : callable, default=None
        ``scoring(estimator, X, y)`` returns one number per row. It is given one row
        at a time, numbers as float64, and not twice the same. None means the
        log-likelihood: `score_samples`, or for classifiers the log-probability of the
        true class.
    sample_weight : array-like of int, default=None
        How often each row counts.
    individual : array-like of shape (n_samples,), default=None
        The person behind each row. Without it, noise hides single rows.
    max_weight : int, default=1
        Public bound of the weight of a row, or of all rows of one individual
        together: those of individuals with more count less.

    Returns
    -------
    float
        Noisy mean score, within the bounds.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.mixture import GaussianMixture
    >>> from skprivbn.privacy import PrivacyAccountant, private_score
    >>> rng = np.random.default_rng(0)
    >>> public, private = rng.normal(size=(500, 1)), rng.normal(size=(5000, 1))
    >>> model = GaussianMixture().fit(public)
    >>> accountant = PrivacyAccountant(epsilon=1.0)
    >>> score = private_score(
    ...     model, private, epsilon=0.5, bounds=(-5, 0), accountant=accountant
    ... )
    >>> abs(score - model.score(private)) < 0.1
    True
    >>> accountant.remaining().epsilon
    0.5
    """
    release = NoisyScores.for_budget(epsilon, delta, bounds, 1, max_weight)
    unit = "rows" if individual is None else "individuals"
    cost = epsilon, delta, release.mechanism.rho, "mean score of private rows", unit
    check_accountant(accountant, *cost).spend(*cost)
    scores = row_scores(estimator, X, y, scoring)
    persons = check_individual(individual, len(scores))
    weights = check_weights(sample_weight, len(scores), max_weight)
    weights = bounded_weights(weights, persons, max_weight)
    total = clipped_sum(scores, bounds, weights)
    means, _, _ = release.release([total], weight_sum(weights))
    return float(means[0])


def row_scores(estimator, X, y=None, scoring=None):
    """Return one score per row, by default its log-likelihood.

    Each row is scored by itself. In a batch, products of matrices are rounded by the
    number of rows, and one row that cannot be scored fails all: a row more would move
    the scores of others, for which there is no noise. Rows that cannot be scored get
    NaN, and nothing warns: either would tell that there is such a row.

    Parameters
    ----------
    estimator : estimator
        Fitted. With a method ``_score_rows_alone``, from a table to scores in which
        every row has the bits that it has alone, it is not asked row by row.
    X, y : array-like
    scoring : callable, default=None
        See :func:`private_score`.

    Returns
    -------
    scores : ndarray of shape (n_samples,)
    """
    score = scoring or _default_scoring(estimator, y)
    _check_call(score, estimator, X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if scoring is None and hasattr(estimator, "_score_rows_alone"):
            return np.asarray(estimator._score_rows_alone(X), dtype=np.float64)
        known, scores = {}, []
        for key, *row in rows_alone(X, y):
            if key is None or key not in known:
                known[key] = _score_of_row(score, estimator, *row)
            scores.append(known[key])
    return np.array(scores, dtype=np.float64)


def _check_call(score, estimator, X, y):
    """Raise for mistakes that are no row's: all rows would look like bad ones."""
    inspect.signature(score).bind(estimator, X, y)
    expected = getattr(estimator, "n_features_in_", None)
    shape = getattr(X, "shape", ())
    if expected is not None and len(shape) == 2 and shape[1] != expected:
        raise ValueError(
            f"X has {shape[1]} features, but {type(estimator).__name__} is expecting "
            f"{expected} features as input"
        )


def _score_of_row(score, estimator, X, y):
    try:
        made = np.asarray(score(estimator, X, y), dtype=np.float64)
    except NotFittedError:
        raise
    except _OF_ROWS:
        return math.nan
    if made.ndim != 1:
        raise ValueError(
            "a private score needs one number per row, so that each can be clipped; "
            f"got an array of shape {made.shape} of one row"
        )
    return float(made[0]) if len(made) == 1 else math.nan


def _default_scoring(estimator, y):
    if is_classifier(estimator) and hasattr(estimator, "predict_proba"):
        if y is None:
            raise ValueError("scoring a classifier needs y")
        return _log_probability_of_class
    if hasattr(estimator, "score_samples"):
        return _log_likelihood
    raise TypeError(
        f"{type(estimator).__name__} has neither score_samples nor (as a "
        "classifier) predict_proba: give scoring=, a function (estimator, X, y) "
        "that returns one number per row"
    )


def _log_likelihood(estimator, X, y):
    return estimator.score_samples(X)


def _log_probability_of_class(estimator, X, y):
    # by their text: one label that is text makes text of all numbers in a file
    classes = np.asarray(estimator.classes_).tolist()
    known = texts_of(classes) | texts_of([plain_entry(label) for label in classes])
    codes = [known.get(label_text(label)) for label in np.asarray(y).tolist()]
    probabilities = estimator.predict_proba(X)
    # an unseen class: clipped to the lower bound
    return [
        -math.inf if code is None or row[code] <= 0 else math.log(row[code])
        for code, row in zip(codes, probabilities)
    ]


def check_score_bounds(bounds):
    """Return public bounds as two floats."""
    try:
        low, high = (float(bound) for bound in bounds)
    except (TypeError, ValueError):
        low = high = math.nan
    if not -math.inf < low < high < math.inf:
        raise ValueError(
            "score bounds must be two finite public numbers (low, high) with low < "
            f"high, got {bounds!r}"
        )
    return low, high


def check_weights(sample_weight, n_rows, max_weight):
    """Return whole weights, cut to the public maximum: an error would tell of one."""
    if sample_weight is None:
        return np.ones(n_rows, dtype=np.int64)
    weights = np.asarray(sample_weight)
    if weights.shape != (n_rows,):
        raise ValueError(
            f"sample_weight has shape {weights.shape}, expected ({n_rows},)"
        )
    return cut_weights(weights, max_weight)


def check_individual(individual, n_rows):
    """Return who is behind each row, counted from 0; each row alone if None.

    Those of whom nobody knows are together, and count for nothing.
    """
    if individual is None:
        return np.arange(n_rows)
    if isinstance(individual, list | tuple):
        individual = np.array(individual, dtype=object)  # NaN among text stays NaN
    individual = column_or_1d(individual)
    if len(individual) != n_rows:
        raise ValueError(
            f"individual has {len(individual)} labels for {n_rows} rows: give one each"
        )
    return number_persons(individual)


def bounded_weights(weights, persons, max_weight):
    """Scale weights down where a person's rows weigh more than `max_weight` together.

    Parameters
    ----------
    weights : ndarray of int of shape (n_samples,)
    persons : ndarray of int of shape (n_samples,)
        From :func:`check_individual`; -1 is nobody, whose rows weigh nothing.
    max_weight : int

    Returns
    -------
    weights : ndarray of float of shape (n_samples,)
        Those of a person sum to `max_weight` at most.
    """
    weights = np.where(persons >= 0, weights, 0)
    totals = np.bincount(persons + 1, weights)
    return weights * max_weight / np.maximum(totals, max_weight)[persons + 1]


def weight_sum(weights):
    """Return the number of rows by weight, in half steps, rounded down row by row."""
    return int(np.trunc(weights * (STEPS // 2)).sum())


def clipped_sum(scores, bounds, weights):
    """Sum of clipped scores around the middle of the bounds, in integer steps.

    Around the middle, a row of weight one changes the sum by at most half of the
    steps. Rows without a number get the lower bound. Fractions are cut towards the
    middle row by row, so that no person moves the sum by more than their weight.
    """
    low, high = bounds
    clipped = np.clip(np.nan_to_num(scores, nan=low, posinf=high, neginf=low), *bounds)
    steps = np.rint((clipped - (low + high) / 2) / (high - low) * STEPS)
    # rounding of the division must not carry a row past its bound
    steps = np.clip(steps.astype(np.int64), -(STEPS // 2), STEPS // 2)
    return int(np.trunc(steps * weights).sum())


@dataclass(frozen=True)
class NoisyScores:
    """Noise for the sums of several models' scores on the same rows, and their number.

    The number of rows is released along with the sums (it is private too), scaled so
    that one row changes it as much as it can change one sum.
    """

    mechanism: CountMechanism
    bounds: tuple

    @classmethod
    def for_budget(cls, epsilon, delta, bounds, n_scores, max_weight=1):
        """Calibrate the noise for one release of all sums."""
        one_row = max_weight * STEPS // 2
        n_values = n_scores + 1
        mechanism = CountMechanism.for_budget(
            epsilon, delta, n_values * one_row, math.sqrt(n_values) * one_row
        )
        return cls(mechanism, check_score_bounds(bounds))

    def release(self, totals, weight):
        """Return noisy means, their standard deviations, and the noisy sums.

        `weight` comes from :func:`weight_sum`.
        """
        low, high = self.bounds
        exact = [*totals, weight]
        *noisy, count = self.mechanism.release(np.array(exact, dtype=np.int64))
        rows = max(count / (STEPS // 2), 1.0)
        # in units of the range, around the middle; what follows is post-processing
        centred = np.clip(np.array(noisy) / (STEPS * rows), -0.5, 0.5)
        means = (low + high) / 2 + (high - low) * centred
        relative = self.mechanism.std / (STEPS * rows)
        stds = (high - low) * relative * np.sqrt(1 + (2 * centred) ** 2)
        return means, stds, np.array(noisy)


def rows_alone(X: Any, y: Any = None) -> Iterator[tuple]:
    """Return the rows of a table one by one, with what they have whatever the others.

    One entry of text, or one gap, changes the type of a whole table, or of a column of
    a dataframe. Here every row has a type of its own: float64 if its entries are
    numbers, and objects otherwise.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
    y : array-like of shape (n_samples,), default=None

    Yields
    ------
    key : bytes, tuple or None
        The same for rows with the same entries; None if that is not known.
    X : ndarray or dataframe with one row
    y : ndarray with one entry, or None
    """
    labels = [None] * _num_samples(X) if y is None else entries_alone(y)
    for (entries, row), label in zip(_rows(X), labels):
        beside = () if y is None else (label,)
        yield _key(entries, beside), row, None if y is None else _array([label])


def _rows(X):
    """Yield entries and a table of each row."""
    if isinstance(X, list | tuple):
        table = np.empty((len(X), len(X[0]) if X else 0), dtype=object)
        for i, row in enumerate(X):
            table[i] = row
        X = table
    if type(X) is np.ndarray and X.ndim == 2:
        for row in X:
            entries = list(map(plain_entry, row.tolist()))
            yield entries, _array(entries)[np.newaxis]
    elif hasattr(X, "iloc") and hasattr(X, "columns"):
        yield from _rows_of_frame(X)
    else:  # polars, whose columns have declared types, or a sparse matrix
        for i in range(_num_samples(X)):
            yield None, _safe_indexing(X, [i])


def _rows_of_frame(X):
    names, n_columns = X.columns, X.shape[1]
    declared = {
        j: dtype
        for j, dtype in enumerate(X.dtypes)
        if type(dtype).__name__ == "CategoricalDtype"
    }
    columns = [X.iloc[:, j].tolist() for j in range(n_columns)]
    for i, values in enumerate(zip(*columns)):
        entries = [
            value if j in declared else plain_entry(value)
            for j, value in enumerate(values)
        ]
        row = type(X)([entries], columns=range(n_columns), index=X.index[[i]])
        row = row.astype(declared)
        row.columns = names
        yield entries, row


def entries_alone(values: Any) -> list:
    """Return the entries of a column, none of which is made text by another.

    Parameters
    ----------
    values : array-like of shape (n_samples,)

    Returns
    -------
    entries : list
        Numbers as floats, NaN for what is missing.
    """
    for name in ("tolist", "to_list"):  # numpy and pandas; polars
        if hasattr(values, name):
            values = getattr(values, name)()
    return [plain_entry(value) for value in values]


def plain_entry(value: Any) -> Any:
    """Return numbers as floats, NaN for what is missing, and all else as it is."""
    if is_missing(value):
        return np.nan
    if isinstance(value, bool | int | float | np.bool_ | np.integer | np.floating):
        try:
            return float(value)
        except OverflowError:
            return value
    return value


def _array(entries):
    """Return entries as floats if all of them are, and as objects otherwise."""
    if all(isinstance(value, float) for value in entries):
        return np.array(entries, dtype=np.float64)
    array = np.empty(len(entries), dtype=object)
    for i, value in enumerate(entries):
        array[i] = value
    return array


def _key(entries, beside):
    """Return what equal rows have in common; zero and minus zero are not equal."""
    if entries is None:
        return None
    values = (*entries, *beside)
    if not all(isinstance(value, float | str) for value in values):
        return None
    return tuple(v.hex() if isinstance(v, float) else ("text", v) for v in values)
