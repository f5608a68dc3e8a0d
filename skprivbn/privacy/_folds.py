"""Splitting private rows so that one row does not move the others."""

import os
from numbers import Integral, Real

import numpy as np
from sklearn.model_selection import (
    LeaveOneGroupOut,
    LeavePGroupsOut,
    PredefinedSplit,
    check_cv,
)

from skprivbn.utils import warn_leak

#: splitters where a row's fold follows from that row alone
_ROW_BY_ROW = (LeaveOneGroupOut, LeavePGroupsOut, PredefinedSplit)


def private_splits(cv, X, y, persons, **split_params):
    """Return (train, test) indices; every row is tested at most once.

    Adding a row to scikit-learn's KFold moves the boundary of every fold, and so
    moves other rows. With a number, each person draws a fold for all of their rows,
    from the operating system's randomness. A splitter may test a person's rows in
    several folds; none of these then learns from any row of that person.

    Parameters
    ----------
    cv : int, float or splitter
        Number of folds; fraction of rows to hold out once; or a splitter.
    X, y : array-like
        Passed to a splitter.
    persons : ndarray of int of shape (n_samples,)
        Who is behind each row, counted from 0; -1 where nobody knows, which is
        taken for one person.
    **split_params
        Passed to a splitter, for instance `groups`.

    Returns
    -------
    list of (ndarray, ndarray)
    """
    rows = np.arange(len(persons))
    if isinstance(cv, Integral):
        fold = _coins(persons) % np.uint64(cv)
        return [(rows[fold != k], rows[fold == k]) for k in range(cv)]
    if isinstance(cv, Real):
        held_out = _coins(persons) < np.uint64(cv * 2**64)
        return [(rows[~held_out], rows[held_out])]
    splitter = check_cv(cv, y)
    if not isinstance(splitter, _ROW_BY_ROW):
        warn_leak(
            f"the folds of {type(cv).__name__} may move other rows when one is "
            "added, which the privacy guarantee does not cover; use cv=5, cv=0.25, "
            "PredefinedSplit or LeaveOneGroupOut"
        )
    splits = list(splitter.split(X, y, **split_params))
    times_tested = np.zeros(len(rows), dtype=int)
    for _, test in splits:
        times_tested[test] += 1
    if np.any(times_tested > 1):
        raise ValueError(
            "a row is in several test folds, so one row could change the score more "
            "than the noise hides; use a splitter that tests each row at most once"
        )
    return [
        (train[~np.isin(persons[train], persons[test])], test) for train, test in splits
    ]


def _coins(persons):
    """Draw a number for each person, whoever else is there.

    Nobody may be left to learn from: fits with noise take no rows, too. To draw again
    would put a person where others are not.
    """
    numbers = np.unique(persons, return_inverse=True)[1]
    n_persons = int(numbers.max(initial=-1)) + 1
    return np.frombuffer(os.urandom(8 * n_persons), dtype="<u8")[numbers]
