"""Who is behind each row, and how much each of them counts at most."""

import numpy as np
from sklearn.utils import column_or_1d

from skprivbn.utils._validation import is_missing, numbers_or_gaps

#: rows whose single contributions are in memory at a time
_CHUNK = 4096
#: what a person counts in a table, shared out evenly among their rows
PERSON_UNIT = 1 << 12


def number_persons(individual):
    """Return who is behind each row, counted from 0; -1 where nobody knows.

    Rows without a label could be one person's or many's, and so count for nothing
    wherever noise hides persons. Labels that look the same as text, such as 1, 1.0 and
    "1", are one person's: an error would tell of a row, and to take them for several
    persons would be noise for too few rows.

    Parameters
    ----------
    individual : array-like of shape (n_samples,)
        Labels.

    Returns
    -------
    persons : ndarray of int of shape (n_samples,)
    """
    numbers = {}
    labels = column_or_1d(individual).tolist()
    return np.array(
        [
            -1 if is_missing(label) else numbers.setdefault(_text(label), len(numbers))
            for label in labels
        ],
        dtype=np.intp,
    )


def _text(label):
    """Return a label as text; whole numbers look alike, whatever their type."""
    if isinstance(label, str):
        return label
    if isinstance(label, float) and label.is_integer():
        return str(int(label))
    return str(int(label) if isinstance(label, bool) else label)


def rows_of_person(individual):
    """Return for each row how many rows its person has; 0 where nobody knows who it is.

    Parameters
    ----------
    individual : array-like of shape (n_samples,)
        Labels.

    Returns
    -------
    n_rows : ndarray of int of shape (n_samples,)
    """
    persons = number_persons(individual)
    known = persons >= 0
    sizes = np.bincount(persons[known], minlength=1)
    return np.where(known, sizes[persons], 0)


def shares_of_rows(n_rows):
    """Return what each row counts, so that no person counts more than `PERSON_UNIT`.

    Parameters
    ----------
    n_rows : ndarray of int of shape (n_samples,)
        How many rows each row's person has, from :func:`rows_of_person`.

    Returns
    -------
    shares : ndarray of int of shape (n_samples,)
    """
    return np.where(n_rows > 0, PERSON_UNIT // np.maximum(n_rows, 1), 0)


def shares_of_persons(blocks, n_rows, vectors):
    """Yield what each row adds if all rows of a person count as one row together.

    Each row adds its part, cut towards zero: no person adds more than one row could,
    in any norm.

    Parameters
    ----------
    blocks : iterable of ndarray of shape (n, n_features)
        All rows.
    n_rows : ndarray of int of shape (n_samples,)
        How many rows each row's person has, from :func:`rows_of_person`.
    vectors : callable
        From rows to an array of int of shape (n, n_values).

    Yields
    ------
    shares : ndarray of int of shape (n, n_values)
        Of a few rows at a time.
    """
    start = 0
    for block in blocks:
        # once without rows, too: who has none tells zeros, as many as everybody
        for begin in range(0, max(len(block), 1), _CHUNK):
            rows = block[begin : begin + _CHUNK]
            parts = n_rows[start : start + len(rows), None]
            start += len(rows)
            values = vectors(rows)
            share = np.sign(values) * (np.abs(values) // np.maximum(parts, 1))
            yield np.where(parts > 0, share, 0)


def sum_by_person(blocks, n_rows, vectors):
    """Add integers of rows so that all rows of a person count as one row together.

    Parameters
    ----------
    blocks, n_rows, vectors :
        As of :func:`shares_of_persons`.

    Returns
    -------
    total : ndarray of int of shape (n_values,)
    """
    shares = shares_of_persons(blocks, n_rows, vectors)
    return sum((share.sum(axis=0) for share in shares), np.int64(0))


def cut_weights(sample_weight, max_weight, strict=False):
    """Return whole weights from 0 to the public maximum.

    Parameters
    ----------
    sample_weight : array-like of shape (n_samples,)
    max_weight : int
    strict : bool, default=False
        Whether others raise ValueError; that would tell, without noise, that there is
        a row with such a weight. Otherwise they are cut, and NaN is 0.

    Returns
    -------
    weights : ndarray of int of shape (n_samples,)
    """
    weights = np.asarray(sample_weight)
    if not strict:
        weights = numbers_or_gaps(weights)
    weights = weights.astype(np.float64)
    cut = np.clip(np.nan_to_num(weights, nan=0.0), 0, max_weight).astype(np.int64)
    if strict and np.any(cut != weights):
        raise ValueError(
            f"sample_weight must hold integers from 0 to max_weight={max_weight}"
        )
    return cut
