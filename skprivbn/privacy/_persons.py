"""Who is behind each row, and how much each of them counts at most."""

import numpy as np
from sklearn.utils import column_or_1d

from skprivbn.utils._missing import is_missing

__all__ = ["cut_weights", "number_persons", "rows_of_person"]


def number_persons(individual):
    """Return who is behind each row, counted from 0; -1 where nobody knows.

    Rows without a label could be one person's or many's, and so count for nothing
    wherever noise hides persons.

    Parameters
    ----------
    individual : array-like of shape (n_samples,)
        Labels.

    Returns
    -------
    persons : ndarray of int of shape (n_samples,)
    """
    numbers: dict = {}
    labels = column_or_1d(individual).tolist()
    return np.array(
        [
            -1 if is_missing(label) else numbers.setdefault(label, len(numbers))
            for label in labels
        ],
        dtype=np.intp,
    )


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
    weights = np.asarray(sample_weight, dtype=np.float64)
    cut = np.clip(np.nan_to_num(weights, nan=0.0), 0, max_weight).astype(np.int64)
    if strict and np.any(cut != weights):
        raise ValueError(
            f"sample_weight must hold integers from 0 to max_weight={max_weight}"
        )
    return cut
