"""Arguments of ``fit`` as rows of parties, or what is wrong with them."""

from __future__ import annotations

from copy import copy
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from skprivbn.exceptions import PartitionError
from skprivbn.federation._remote import RemoteRows
from skprivbn.federation._rows import RowSource, map_rows
from skprivbn.partition._base import is_partition, refuse_name, refuse_tables
from skprivbn.partition._horizontal import HorizontalPartition
from skprivbn.utils import warn_user
from skprivbn.utils._typing import TableLike
from skprivbn.utils._validation import (
    check_block,
    declared_categories,
    missing_entries,
    other_ways,
    validate_table,
    wants_floats,
)


def check_horizontal(
    estimator: Any,
    X: TableLike,
    party: ArrayLike | None = None,
    *,
    reset: bool = True,
    dtype: Any = "numeric",
    aligned: dict | None = None,
    **checks: Any,
) -> HorizontalPartition | RemoteRows:
    """Turn the arguments of ``fit`` into rows per party, or say what is wrong.

    Sets `n_features_in_` and `feature_names_in_` on the estimator, as scikit-learn's
    ``validate_data`` does.

    Parameters
    ----------
    estimator : estimator
    X : array-like of shape (n_samples, n_features), HorizontalPartition or RemoteRows
    party : array-like of shape (n_samples,), default=None
        Label of each row's holder.
    reset : bool, default=True
        Whether to set or to check the number and names of features.
    dtype : dtype or list of dtype, default="numeric"
        As in scikit-learn's ``check_array``.
    aligned : dict of str to array-like, default=None
        Further values per row, or names of columns if X is a partition or remote;
        None entries are left out.
    **checks
        Options of ``check_array``.

    Returns
    -------
    partition : HorizontalPartition or RemoteRows
    """
    aligned = {k: v for k, v in (aligned or {}).items() if v is not None}
    if isinstance(X, RemoteRows) and party is None:
        rows = X.checked(
            aligned,
            as_float=wants_floats(dtype),
            finite=checks.get("ensure_all_finite", True) is True,
        )
        return check_features(estimator, rows, reset)
    if is_partition(X):
        if not isinstance(X, HorizontalPartition | RemoteRows):
            raise PartitionError(
                f"X is a {type(X).__name__}; "
                f"{type(estimator).__name__} needs rows held by different parties"
            )
        named = {key: v for key, v in aligned.items() if isinstance(v, str)}
        beside = [*(["party"] if party is not None else []), *(set(aligned) - {*named})]
        if beside:
            raise PartitionError(
                f"{beside} cannot be given beside a partition, which already says who "
                "holds which rows and values: give the name of a column, or put values "
                "per row into it, as in HorizontalPartition(blocks, y={'north': ...})"
            )
        if isinstance(X, HorizontalPartition) and named:
            X = X.beside(named)
        partition = _check_given(estimator, X, reset, dtype, checks)
    else:
        refuse_tables(X, "HorizontalPartition")
        for key, values in {"party": party, **aligned}.items():
            refuse_name(key, values)
        declared = declared_categories(X)
        X = validate_table(estimator, X, reset=reset, dtype=dtype, **checks)
        names = getattr(estimator, "feature_names_in_", None)
        partition = HorizontalPartition.from_rows(X, party, names, **aligned)
        partition._declared = dict.fromkeys(partition.names, declared)
        if not _has_noise(estimator):
            _refuse_empty(partition)
    if reset and not _has_noise(estimator):
        _warn_of_copies(partition)
    return partition


def _has_noise(estimator):
    """Tell whether noise is to hide how many rows a party has, and which."""
    return getattr(estimator, "epsilon", None) is not None


def _warn_of_copies(partition):
    """Warn of two parties with the same rows; few rows may be equal by chance."""
    alike: dict = {}
    for name, block in partition._blocks.items():
        rows = block["X"]
        if isinstance(rows, RowSource) or len(rows) < 5:
            continue
        # None stands for gaps: pandas' NA cannot be compared
        first = tuple(np.where(missing_entries(rows[:1]), None, rows[:1])[0])
        others = alike.setdefault((rows.shape, first), {})
        for other, its_rows in others.items():
            if _is_copy(rows, its_rows):
                warn_user(
                    f"parties {other!r} and {name!r} hold the same rows, which then "
                    "count twice: was one table given to both?"
                )
                return
        others[name] = rows


def _is_copy(rows, others):
    """Tell whether rows are equal; such as are all alike may be by chance."""
    if rows.dtype == object or others.dtype == object:
        rows, others = (
            np.where(missing_entries(table), None, table) for table in (rows, others)
        )
    return np.array_equal(rows, others) and not np.array_equal(rows[1:], rows[:-1])


def _refuse_empty(partition):
    """Refuse parties without rows."""
    for name, n_rows in partition.n_rows().items():
        if n_rows == 0:
            raise PartitionError(f"party {name!r} has no rows: leave it out")


def _check_given(estimator, partition, reset, dtype, checks):
    """Return a partition with checked rows, or say what is wrong with whose."""
    partition = check_features(estimator, partition, reset)
    if _has_noise(estimator):
        checks = checks | {"ensure_min_samples": 0}
    else:
        _refuse_empty(partition)
    names, checks = partition._column_names, checks | {"dtype": dtype}
    check = partial(check_block, names=names, otherwise=other_ways(estimator), **checks)
    checked = copy(partition)
    checked._blocks = {
        name: block | {"X": map_rows(block["X"], partial(check, holder=name))}
        for name, block in partition._blocks.items()
    }
    return checked


def check_features(estimator, partition, reset):
    """Set or check the number and names of features, as scikit-learn does.

    Parameters
    ----------
    estimator : estimator
    partition : partition
    reset : bool
        Whether to set them.

    Returns
    -------
    partition : partition
        The same, its columns in the order in which the estimator has seen them.
    """
    given, user = partition.feature_names, type(estimator).__name__
    if reset:
        estimator.n_features_in_ = partition.n_features
        if given is not None:
            estimator.feature_names_in_ = np.asarray(given, object)
        elif hasattr(estimator, "feature_names_in_"):
            del estimator.feature_names_in_
        return partition
    fitted = getattr(estimator, "feature_names_in_", None)
    if fitted is not None and given is not None and set(given) != set(fitted):
        more = [name for name in given if name not in fitted]
        less = [name for name in fitted if name not in given]
        # what goes beside rows is still among the columns until it is named
        named = (
            ", or name what it is (y=, ...)" if hasattr(partition, "aligned") else ""
        )
        wrong = (
            [f"{more} beside what it was fitted to: leave it out{named}"]
            if more
            else []
        )
        wrong += [f"not {less}, which it was fitted to"] if less else []
        raise ValueError(f"{user}: X has {', and '.join(wrong)}")
    if partition.n_features != estimator.n_features_in_:
        raise ValueError(
            f"X has {partition.n_features} features, but {user} is expecting "
            f"{estimator.n_features_in_} features as input"
        )
    if fitted is None or given is None:
        if (fitted is None) != (given is None):
            has, had = ("names", "none") if fitted is None else ("no names", "some")
            warn_user(
                f"the columns of X have {has}, and {user} was fitted to columns with "
                f"{had}: they are taken in their order"
            )
        return partition
    if list(given) == list(fitted):
        return partition
    return partition.reorder(list(fitted))
