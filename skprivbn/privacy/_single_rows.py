"""The rows of a table one by one, each as if there were no other."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from skprivbn.utils._sklearn import _num_samples, _safe_indexing
from skprivbn.utils._validation import is_missing


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
