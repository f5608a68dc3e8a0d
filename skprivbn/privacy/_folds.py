"""Splitting private rows so that one row does not move the others."""

import os
from collections.abc import Iterator, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.model_selection import (
    BaseCrossValidator,
    LeaveOneGroupOut,
    LeavePGroupsOut,
    PredefinedSplit,
    check_cv,
)

from skprivbn.privacy._scores import entries_alone
from skprivbn.utils import warn_leak
from skprivbn.utils._validation import label_text, texts_of

#: splitters where a row's fold follows from that row alone, but their number from all
_COUNT_GROUPS = (LeaveOneGroupOut, LeavePGroupsOut, PredefinedSplit)


class LeavePublicGroupOut(BaseCrossValidator):
    """Cross-validation with one fold for each of some declared groups.

    As :class:`sklearn.model_selection.LeaveOneGroupOut`, for private rows: there, one
    person with a group of their own makes a fold more, and so a fit more and its cost.
    Here the number of folds is that of the labels, whatever groups the rows have.

    Read more in the :ref:`User Guide <privacy_search>`.

    Parameters
    ----------
    labels : array-like of shape (n_splits,)
        The groups, which are public. Rows of other groups are never held out, and all
        folds learn from them. A group may have no rows.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivbn.privacy import LeavePublicGroupOut
    >>> cv = LeavePublicGroupOut(["north", "south", "west"])
    >>> groups = ["north", "south", "north", "elsewhere"]
    >>> for train, test in cv.split(np.zeros((4, 1)), groups=groups):
    ...     print(train, test)
    [1 3] [0 2]
    [0 2 3] [1]
    [0 1 2 3] []
    """

    __metadata_request__split = {"groups": True}

    def __init__(self, labels: Sequence) -> None:
        self.labels = labels

    def split(
        self, X: Any, y: Any = None, groups: Any = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Return the rows to learn from and those held out, for each group.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Not looked at.
        y : object, default=None
            Not looked at.
        groups : array-like of shape (n_samples,)
            The group of each row. Numbers and texts that look the same are the same.

        Yields
        ------
        train, test : ndarray of int
        """
        if groups is None:
            raise ValueError("LeavePublicGroupOut needs groups=, the group of each row")
        known = self._known()
        # by their text: one label that is text makes text of all numbers in a file
        texts = (label_text(group) for group in entries_alone(groups))
        codes = np.array([known.get(text, -1) for text in texts], dtype=np.intp)
        for code in range(len(known)):
            yield np.flatnonzero(codes != code), np.flatnonzero(codes == code)

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of groups, whatever the rows are.

        Parameters
        ----------
        X, y, groups : object, default=None
            Not looked at.

        Returns
        -------
        n_splits : int
        """
        return len(self._known())

    def _known(self):
        labels = list(entries_alone(self.labels))
        known = texts_of(labels)
        if not known or len(known) < len(labels):
            raise ValueError(
                "labels must be those of at least one group, each of them once; got "
                f"{self.labels!r}"
            )
        return known


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
    if isinstance(splitter, _COUNT_GROUPS):
        warn_leak(
            f"{type(cv).__name__} counts the groups that the rows have: one person "
            "with a group of their own makes a fold more, which n_splits_, the fits "
            "and their cost tell without noise; declare the groups, with "
            "cv=LeavePublicGroupOut([...]) and groups="
        )
    elif not isinstance(splitter, LeavePublicGroupOut):
        warn_leak(
            f"the folds of {type(cv).__name__} may move other rows when one is "
            "added, which the privacy guarantee does not cover; use cv=5, cv=0.25, "
            "or LeavePublicGroupOut"
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
