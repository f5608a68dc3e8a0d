"""The one reader of a party's block: numbers between bounds, labels as codes.

Strictly, what does not belong into a block is an error. Where noise is to hide rows, an
error would tell that there is such a row: then nothing raises, and how a row is read
depends on that row alone.
"""

import numpy as np

from skprivbn.utils._validation import (
    is_missing,
    label_text,
    numbers_or_gaps,
    texts_of,
)

MISSING = -1


def read_numbers(X, *, gaps=False, bounds=None, strict=True):
    """Return numbers in double precision.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
    gaps : bool, default=False
        Whether NaN stays; otherwise it is an error, or the middle of the bounds.
    bounds : ndarray of shape (2, n_features), default=None
        Public, values are clipped to them.
    strict : bool, default=True
        Whether other entries than finite numbers are an error; otherwise they are
        missing, and infinite ones are clipped.

    Returns
    -------
    X : ndarray of float64 of shape (n_samples, n_features)
        `X` itself where nothing had to be changed.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivbn.utils._read_block import read_numbers
    >>> X, bounds = [[5.0], ["no"], [0.5]], np.array([[0.0], [2.0]])
    >>> read_numbers(X, bounds=bounds, strict=False).ravel()
    array([2. , 1. , 0.5])
    >>> read_numbers([[np.nan]])
    Traceback (most recent call last):
        ...
    ValueError: rows must be finite numbers
    """
    X = np.asarray(X if strict else numbers_or_gaps(X))
    if strict:
        unfit = np.isinf if gaps else lambda X: ~np.isfinite(X)
        if X.dtype.kind not in "fiu" or np.any(unfit(X)):
            raise ValueError("rows must be finite numbers")
    X = X.astype(np.float64, copy=False)
    if bounds is None:
        return X
    low, high = bounds
    if not gaps and not strict:
        X = np.where(np.isnan(X), low / 2 + high / 2, X)
    return np.clip(X, low, high)


def read_labels(column, labels, name, strict=True):
    """Return the codes 0, 1, ... of a column of labels.

    Parameters
    ----------
    column : ndarray of shape (n_samples,)
        None and NaN are missing.
    labels : sequence
        In the order of their codes.
    name : str
        Of the column, for errors.
    strict : bool, default=True
        Whether other labels are an error; otherwise they are missing, unless they look
        the same as text: how a row is read must not depend on others.

    Returns
    -------
    codes : ndarray of int of shape (n_samples,)
        -1 where a label is missing.
    """
    if _are_codes(column, labels):
        return column.astype(np.intp)
    sortable = _same_kind_array(labels, column.dtype.kind)
    if sortable is None:
        return _look_up(column, labels, name, strict)
    order = np.argsort(sortable)
    place = np.searchsorted(sortable[order], column)
    codes = order[np.minimum(place, len(order) - 1)]
    wrong = np.flatnonzero(sortable[codes] != column)
    codes[wrong] = _look_up(column[wrong], labels, name, strict)
    return codes


def _are_codes(column, labels):
    """Tell whether all values are integers that stand for themselves."""
    if column.dtype.kind not in "iu" or not len(column):
        return False
    in_order = all(label == code for code, label in enumerate(labels))
    return in_order and column.min() >= 0 and column.max() < len(labels)


def _same_kind_array(labels, kind):
    """Return the labels as an array that compares quickly with the column, or None."""
    if kind in "biuf" and all(isinstance(label, int | float) for label in labels):
        return np.array(labels)
    if kind == "U" and all(isinstance(label, str) for label in labels):
        return np.array(labels)
    return None


def _look_up(column, labels, name, strict):
    table = {label: code for code, label in enumerate(labels)}
    values = column.tolist()
    try:
        codes = list(map(table.get, values))
    except TypeError:  # a list, or the like, is no label
        codes = [table.get(v) if _is_hashable(v) else None for v in values]
    if None in codes:
        alike = {} if strict else texts_of(labels)
        for i, code in enumerate(codes):
            if code is None:
                if strict and not is_missing(values[i]):
                    raise ValueError(
                        f"column {name!r} holds {values[i]!r}, which is not one of its "
                        f"states {list(labels)}: declare all that are possible when "
                        "the network is learnt, with states= or as categories of a "
                        "dataframe"
                    )
                codes[i] = alike.get(label_text(values[i]), MISSING)
    return np.array(codes, dtype=np.intp)


def _is_hashable(value):
    try:
        hash(value)
    except TypeError:
        return False
    return True
