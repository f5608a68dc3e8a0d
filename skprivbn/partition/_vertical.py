"""Columns that different parties hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_array
from sklearn.utils.validation import column_or_1d

from skprivbn.exceptions import PartitionError
from skprivbn.federation._remote import (
    RemoteColumns,
    count_columns,
    find_owners,
    keep_owned,
)
from skprivbn.federation._session import check_roster
from skprivbn.partition._base import (
    LocalPartition,
    check_blocks,
    check_features,
    check_is_mapping,
    check_parties,
    column_labels,
    find_columns,
    is_partition,
    names_of,
    refuse_repeated,
    refuse_tables,
)
from skprivbn.partition._horizontal import ONE_PARTY
from skprivbn.utils import column_names, warn_leak
from skprivbn.utils._sklearn import _get_column_indices
from skprivbn.utils._typing import TableLike
from skprivbn.utils._validation import (
    declared_categories,
    is_missing,
    keep_types,
    other_ways,
    validate_table,
)

#: what estimators take for `parties`
PARTIES_CONSTRAINT = [Mapping, None]


class VerticalPartition(LocalPartition):
    """Blocks of columns, one per party, about the same records.

    Can be passed as `X` to every estimator that takes ``parties=``. It does not turn
    into an array: that would pool what may not be pooled.

    Parameters
    ----------
    blocks : dict of str to array-like of shape (n_rows, n_columns)
        The columns of each party.
    columns : dict of str to sequence of str, default=None
        Names of each party's columns; read off dataframes, else ``party__0``,
        ``party__1``, ...
    keys : str or dict of str to (str or array-like of shape (n_rows,)), default=None
        The column of all dataframes that has the keys of records; or, for each party,
        its name or the keys themselves.
        Without keys, records are aligned by order.
    order : sequence of str, default=None
        All column names, in the order in which the estimator shall see them; the
        parties' columns one after the other if None.
    owner : dict of str to str, default=None
        Of columns that several parties hold, the party whose copy counts; the other
        copies are not used.
    max_records : int, default=None
        With `keys`: most records of a party. Longer lists of keys are refused, shorter
        ones filled up, so that nobody learns how many a party has. Without, all learn
        these numbers.
    reveal_membership : bool, default=False
        With `keys`: every party learns which of its records all others have, too. True
        says that this is wanted; otherwise every fit warns.

    Attributes
    ----------
    names : tuple of str
        Names of the parties.
    feature_names : list of str
        Names of all columns.
    owners : dict of str to str
        The party that holds each column.

    Examples
    --------
    >>> from skprivbn.partition import VerticalPartition
    >>> VerticalPartition({"clinic": [[0, 1], [1, 1]], "lab": [[2], [0]]})
    VerticalPartition(clinic: 2 columns, lab: 1 column; 2 rows)
    """

    def __init__(
        self,
        blocks: Mapping[str, ArrayLike],
        columns: Mapping[str, Sequence[str]] | None = None,
        keys: str | Mapping[str, str | ArrayLike] | None = None,
        order: Sequence[str] | None = None,
        *,
        owner: Mapping[str, str] | None = None,
        max_records: int | None = None,
        reveal_membership: bool = False,
    ) -> None:
        self.names = check_parties(blocks, "columns")
        if columns is not None:
            check_is_mapping(columns, "columns", "lists of names")
            if set(columns) != set(blocks):
                raise PartitionError(
                    f"columns names those of {list(columns)}, blocks are those of "
                    f"{list(blocks)}"
                )
        self.max_records, self.reveal_membership = max_records, reveal_membership
        for name, block in blocks.items():
            refuse_repeated(column_labels(block) or [], f"party {name!r}")
        if isinstance(keys, str):
            keys = dict.fromkeys(blocks, keys)
        if keys is not None:
            check_is_mapping(keys, "keys", "one key per record")
            blocks, keys = _take_keys(blocks, keys)
        self._blocks, self.columns = {}, {}
        declared = {}
        for name, block in blocks.items():
            given = columns[name] if columns else column_labels(block)
            values = check_array(keep_types(block), dtype=None, ensure_all_finite=False)
            if given is None:
                given = [f"{name}__{i}" for i in range(values.shape[1])]
            if len(given) != values.shape[1]:
                raise PartitionError(
                    f"columns names {len(given)} columns of party {name!r}, "
                    f"which holds {values.shape[1]}"
                )
            self._blocks[name] = {"X": values}
            self.columns[name] = [str(column) for column in given]
            declared[name] = dict(zip(self.columns[name], declared_categories(block)))
        held, self.columns = self.columns, keep_owned(self.columns, owner)
        advice = ', or keys="customer_id" if it has the keys of records'
        self.owners = find_owners(self.columns, "" if keys else advice)
        #: labels that the columns of dataframes declare, by name
        self.categories: dict[str, list] = {}
        for name, kept in self.columns.items():
            if len(kept) < len(held[name]):
                places = [held[name].index(column) for column in kept]
                self._blocks[name]["X"] = self._blocks[name]["X"][:, places]
            self._declare((column, declared[name].get(column)) for column in kept)
        self._order(self.owners if order is None else order)
        self._attach_keys(keys)

    @classmethod
    def from_columns(
        cls,
        X: TableLike,
        parties: Mapping[str, Sequence[str]],
        feature_names: Sequence[str] | None = None,
    ) -> Self:
        """Split the columns of a table by who holds them.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        parties : dict of str to sequence of str
            Names of each party's columns.
        feature_names : sequence of str, default=None
            Names of the columns of `X`; read off `X` if it is a dataframe.

        Returns
        -------
        partition : VerticalPartition

        Examples
        --------
        >>> from skprivbn.partition import VerticalPartition
        >>> parties = {"clinic": ["age"], "lab": ["dose", "sugar"]}
        >>> X = [[61, 1, 5.4], [48, 0, 4.9]]
        >>> VerticalPartition.from_columns(X, parties, ["age", "dose", "sugar"])
        VerticalPartition(clinic: 1 column, lab: 2 columns; 2 rows)
        """
        labels = column_labels(X)
        if labels is not None and feature_names is not None:
            find_columns(labels, feature_names, "X")
        feature_names = labels or feature_names
        if feature_names is None:
            raise PartitionError("X has no names of columns: pass feature_names")
        names = [str(name) for name in feature_names]
        values = check_array(keep_types(X), dtype=None, ensure_all_finite=False)
        if len(names) != values.shape[1]:
            raise PartitionError(
                f"feature_names has {len(names)} names for {values.shape[1]} columns"
            )
        held = {}
        for party, columns in parties.items():
            unknown = [column for column in columns if column not in names]
            if unknown:
                raise PartitionError(
                    f"parties gives {party!r} columns that X does not have: {unknown}"
                )
            held[party] = [names.index(column) for column in columns]
        return cls._at_places(X, values, held, names)

    @classmethod
    def _at_places(cls, X, values, held, names):
        """Give each party its columns of a table, which are at some places."""
        columns = {party: [names[i] for i in index] for party, index in held.items()}
        owners = find_owners(columns)
        unowned = [name for name in names if name not in owners]
        if unowned:
            raise PartitionError(f"parties gives nobody the columns {unowned}")
        empty = [party for party, index in held.items() if not index]
        if empty:
            raise PartitionError(f"parties gives no column to {empty}")
        blocks = {party: values[:, index] for party, index in held.items()}
        partition = cls(blocks, columns, order=names)
        partition._declare(zip(names, declared_categories(X)))
        return partition

    def _declare(self, pairs):
        """Keep the labels of columns that declare them."""
        self.categories |= {name: labels for name, labels in pairs if labels}

    def _order(self, feature_names):
        """Bring each party's columns into the order in which estimators see them."""
        self.feature_names = list(feature_names)
        if sorted(self.feature_names) != sorted(self.owners):
            raise PartitionError("order does not list every column exactly once")
        place = {column: i for i, column in enumerate(self.feature_names)}
        for name, held in self.columns.items():
            by_place = sorted(range(len(held)), key=lambda i: place[held[i]])
            self.columns[name] = [held[i] for i in by_place]
            self._blocks[name]["X"] = self._blocks[name]["X"][:, by_place]

    def reorder(self, feature_names: Sequence[str]) -> VerticalPartition:
        """Return the same columns in another order.

        Parameters
        ----------
        feature_names : sequence of str
            All of them, in the order in which they are wanted.

        Returns
        -------
        partition : VerticalPartition
        """
        partition = copy(self)
        partition._blocks = {name: dict(b) for name, b in self._blocks.items()}
        partition.columns = dict(self.columns)
        partition._order(feature_names)
        return partition

    def _attach_keys(self, keys):
        self.has_keys, sizes = keys is not None, self.n_rows()
        if not self.has_keys and len(set(sizes.values())) > 1:
            raise PartitionError(
                f"parties hold different numbers of rows: {sizes}; without keys, "
                'records are aligned by order: name their column, keys="customer_id"'
            )
        for name, block in self._blocks.items() if self.has_keys else ():
            if name not in keys:
                raise PartitionError(f"keys lacks those of party {name!r}")
            block["keys"] = column_or_1d(keys[name])
            held = block["keys"].tolist()
            if any(map(is_missing, held)):
                raise PartitionError(
                    f"keys of party {name!r} has missing ones: leave these records out"
                )
            n_repeated = len(held) - len(set(held))
            if n_repeated:
                raise PartitionError(
                    f"keys of party {name!r} has repeated ones ({n_repeated}): a key "
                    "stands for one record"
                )
            if self.max_records is not None and self.max_records < len(held):
                raise PartitionError(
                    f"party {name!r} has more than max_records={self.max_records} keys"
                )
            if len(held) != sizes[name]:
                raise PartitionError(
                    f"party {name!r} has unequal numbers of keys and rows"
                )

    @property
    def n_features(self) -> int:
        """Number of columns of all parties together."""
        return len(self.feature_names)

    def _held(self, name):
        return self.columns[name]

    def __repr__(self):
        n_rows = " and ".join(map(str, dict.fromkeys(self.n_rows().values())))
        return f"VerticalPartition({count_columns(self.columns)}; {n_rows} rows)"


def _take_keys(blocks, keys):
    """Return tables without the columns that `keys` names, and these columns."""
    blocks, keys = dict(blocks), dict(keys)
    named = {name: key for name, key in keys.items() if isinstance(key, str)}
    labels = {
        name: column_labels(blocks[name]) or [] for name in named if name in blocks
    }
    for name, of in labels.items():
        table, column = blocks[name], named[name]
        if column not in of:
            raise PartitionError(
                f"keys={column!r} is no column of {name!r}, which has {of}: give a "
                "dataframe that has it, or the name that it has at each party, "
                "keys={'bank': 'customer_id', 'insurer': 'client'}"
            )
        keys[name] = np.asarray(table[column])
        blocks[name] = table[[label for label in of if label != column]]
    return blocks, keys


def check_vertical(
    estimator: Any,
    X: TableLike,
    parties: Any = None,
    *,
    reset: bool = True,
    dtype: Any = None,
    **checks: Any,
) -> Any:
    """Turn `X` and ``parties=`` into columns per party, or say what is wrong.

    Sets `n_features_in_` and `feature_names_in_` on the estimator, as scikit-learn's
    ``validate_data`` does.

    Parameters
    ----------
    estimator : estimator
    X : array-like of shape (n_samples, n_features), VerticalPartition or RemoteColumns
    parties : dict of str to columns, or None
        Which party holds which columns: names, positions, slices or callables such
        as ``make_column_selector``. None means that one party holds all.
    reset : bool, default=True
        Whether to set or to check the number and names of features.
    dtype : dtype, default=None
        As in scikit-learn's ``check_array``; None keeps what is given.
    **checks
        Options of ``check_array``.

    Returns
    -------
    partition : VerticalPartition
    """
    if is_partition(X):
        if not isinstance(X, VerticalPartition | RemoteColumns):
            raise PartitionError(
                f"X is a {type(X).__name__}; {type(estimator).__name__} needs "
                "columns held by different parties"
            )
        _compare_parties(parties, X)
        X = check_features(estimator, X, reset)
        if X.has_keys and not X.reveal_membership:
            warn_leak(
                "keys= tells every party which of its records all others have, too; if "
                "this is wanted, write reveal_membership=True beside keys="
            )
        finite = checks.get("ensure_all_finite", True)
        if isinstance(X, VerticalPartition):
            ways = other_ways(estimator, of_rows=False)
            return check_blocks(
                X, dtype=dtype, ensure_all_finite=finite, otherwise=ways
            )
        return X.checked(finite=finite)
    refuse_tables(X, "VerticalPartition")
    # Columns are selected on X as given: names and selectors need a dataframe.
    if not hasattr(X, "shape"):
        X = keep_types(X) if dtype is None else X
        X = check_array(X, dtype=dtype, ensure_all_finite=False)
    held = _columns_of_parties(parties, X)
    values = validate_table(estimator, X, reset=reset, dtype=dtype, **checks)
    names = column_names(estimator)
    return VerticalPartition._at_places(X, values, held, names)


def _columns_of_parties(parties, X):
    """Return the column positions of each party."""
    n_columns = np.shape(X)[1] if np.ndim(X) == 2 else 0
    if parties is None:
        return {ONE_PARTY: list(range(n_columns))}
    check_is_mapping(parties, "parties", "columns")
    check_roster(parties)
    held = {}
    for party, columns in parties.items():
        if callable(columns):
            columns = columns(X)
        if not hasattr(X, "columns") and names_of(np.atleast_1d(columns).tolist()):
            raise PartitionError(
                f"parties gives {party!r} columns by name, and X is an array without "
                "names: give positions, or a dataframe, or as X "
                "VerticalPartition.from_columns(X, parties, feature_names)"
            )
        try:
            held[party] = list(_get_column_indices(X, columns))
        except (ValueError, IndexError, KeyError) as error:
            raise PartitionError(
                f"parties gives {party!r} columns that X does not have: {error}"
            ) from None
    return held


def _compare_parties(parties, partition):
    """Refuse a partition that is not the one that `parties` describes."""
    if parties is None:
        return
    check_is_mapping(parties, "parties", "columns")
    if set(parties) != set(partition.names):
        raise PartitionError(
            f"parties names {sorted(parties)}, the partition {list(partition.names)}"
        )
    for name, columns in parties.items():
        held = partition.columns[name]
        named = isinstance(columns, list | tuple) and names_of(columns) is not None
        if named and set(columns) != set(held):
            raise PartitionError(
                f"parties gives {name!r} the columns {list(columns)}, in the partition "
                f"it holds {held}"
            )
