"""The one reader of labels: from the values of a column to codes 0, 1, ..."""

import numpy as np

from skprivbn.utils._validation import is_missing, label_text, texts_of

MISSING = -1


def encode_column(column, labels, name, strict=True):
    """Return the codes of a column of labels.

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
