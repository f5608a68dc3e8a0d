"""Rows that different parties hold, also as arguments of ``fit``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_array
from sklearn.utils.validation import column_or_1d

from skprivbn.exceptions import PartitionError
from skprivbn.federation._describe import DescribeMixin, check_described
from skprivbn.federation._remote import RemoteRows
from skprivbn.federation._rows import RowSource, map_rows, row_blocks
from skprivbn.partition._base import (
    LocalPartition,
    check_blocks,
    check_features,
    check_holders,
    check_labels,
    check_parties,
    column_labels,
    common_labels,
    find_columns,
    is_partition,
    keep_persons,
    names_of,
    refuse_name,
    refuse_tables,
    take_column,
    warn_of_copies,
)
from skprivbn.utils._typing import TableLike
from skprivbn.utils._validation import (
    declared_labels,
    dtypes_of,
    keep_types,
    other_ways,
    validate_table,
    wants_floats,
    without_columns,
)

#: name of the only party when rows do not say who holds them
ONE_PARTY = "all"
#: values beside the rows that are names rather than numbers
LABELS = {"cluster", "individual", "series"}

# How many rows and columns, of which kind, is for the estimators to say.
_ANY_TABLE: dict = {
    "dtype": None,
    "ensure_all_finite": False,
    "ensure_min_samples": 0,
    "ensure_min_features": 0,
}


class HorizontalPartition(DescribeMixin, LocalPartition):
    """Blocks of rows, one per party, over the same features.

    Can be passed as `X` to every estimator that takes ``party=``. It does not turn
    into an array: that would pool what may not be pooled.

    Parameters
    ----------
    blocks : dict of str to array-like of shape (n_rows, n_features)
        The rows of each party. Dataframes must have the same columns; where they
        have them in another order, they are brought into that of the first. A
        :class:`RowSource` is read in blocks, whenever it is used.
    feature_names : sequence of str, default=None
        Names of the features, in the order of arrays; read off dataframes if None.
    **aligned : dict of str to array-like of shape (n_rows,)
        Values that go with the rows of each party, such as `y` or `cluster`.

    Attributes
    ----------
    names : tuple of str
        Names of the parties.
    n_features : int

    Examples
    --------
    >>> from skprivbn.partition import HorizontalPartition
    >>> HorizontalPartition({"north": [[1.0, 2.0]], "south": [[3.0, 4.0], [5.0, 6.0]]})
    HorizontalPartition(north: 1 row, south: 2 rows; 2 features)
    """

    _declares_categories = False

    def __init__(
        self,
        blocks: dict[str, ArrayLike],
        feature_names: Sequence[str] | None = None,
        **aligned: Any,
    ) -> None:
        self.names = check_parties(blocks, "rows")
        self._places: dict[str, np.ndarray] | None = None
        #: types of the columns of dataframes, by party; none for arrays
        self._dtypes: dict[str, list] = {}
        for key, values in aligned.items():
            check_holders(key, values, blocks)
        labels = common_labels(blocks, feature_names)
        self._blocks, kinds = {}, {}
        for name, rows in blocks.items():
            given, places = column_labels(rows), slice(None)
            dtypes = dtypes_of(rows)
            if given is not None:
                places = find_columns(given, labels, f"party {name!r}")
                dtypes = [dtypes[i] for i in places] if dtypes else []
            self._dtypes[name] = dtypes
            rows = _table(rows, places, labels)
            block = {"X": rows}
            for key, values in aligned.items():
                if values is None:
                    continue
                block[key] = column_or_1d(keep_persons(key, values[name]))
                if key in LABELS:
                    kind = check_labels(f"{key} of party {name!r}", values[name])
                    if kind and kinds.setdefault(key, kind) != kind:
                        raise PartitionError(
                            f"{key} mixes labels of several types: parties have "
                            f"{kinds[key]} and {kind}"
                        )
                if len(block[key]) != len(block["X"]):
                    raise PartitionError(
                        f"{key} has {len(block[key])} values for the "
                        f"{len(block['X'])} rows of party {name!r}"
                    )
            self._blocks[name] = block
        widths = {name: block["X"].shape[1] for name, block in self._blocks.items()}
        if len(set(widths.values())) > 1:
            raise PartitionError(
                f"parties hold different numbers of features: {widths}"
            )
        self.n_features = next(iter(widths.values()))
        self.feature_names = names_of(labels)
        if labels is not None and len(labels) != self.n_features:
            raise PartitionError(
                f"feature_names has {len(labels)} names for {self.n_features} features"
            )

    @classmethod
    def from_rows(
        cls,
        X: ArrayLike,
        party: ArrayLike | None = None,
        feature_names: Sequence[str] | None = None,
        **aligned: Any,
    ) -> Self:
        """Split rows by a label that says who holds each.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        party : array-like of shape (n_samples,) or str, default=None
            Label of each row's holder, or the name of a column of a dataframe, which
            leaves `X`. None means that one party holds all. The categories of a
            categorical series of pandas declare who takes part, also those without a
            row: labels that occur tell that somebody has one.
        feature_names : sequence of str, default=None
            Read off `X` if it is a dataframe.
        **aligned : array-like of shape (n_samples,) or None
            Values that go with the rows.

        Returns
        -------
        partition : HorizontalPartition
            Parties in sorted order of their labels.
        """
        if isinstance(party, str):
            X, party = take_column(X, party, "party")
        labels = column_labels(X)
        if labels is not None and feature_names is not None:
            find_columns(labels, feature_names, "X")
        if labels is not None:
            feature_names = names_of(labels)
        dtypes, given = dtypes_of(X), aligned
        X = _any_array(X)
        rows = _rows_of_parties(party, len(X))
        aligned = {
            key: one_per_row(key, values, len(X))
            for key, values in aligned.items()
            if values is not None
        }
        for key in LABELS & set(aligned):
            check_labels(key, given[key])
        partition = cls(
            {name: X[index] for name, index in rows.items()},
            feature_names,
            **{
                key: {name: values[index] for name, index in rows.items()}
                for key, values in aligned.items()
            },
        )
        partition._places = rows
        partition._dtypes = dict.fromkeys(partition.names, dtypes)
        return partition

    @property
    def dtype(self) -> np.dtype:
        """Number type that holds the rows of all parties."""
        return np.result_type(*(block["X"].dtype for block in self._blocks.values()))

    @property
    def categories(self) -> dict[str, list]:
        """Labels that the columns of dataframes declare, by name of the feature."""
        found = {}
        for name, *dtypes in zip(self._column_names, *self._dtypes.values()):
            declared: list[Any] = list(map(declared_labels, dtypes))
            if None in declared:
                continue
            if any(set(labels) != set(declared[0]) for labels in declared):
                raise PartitionError(
                    f"parties declare different categories of column {name!r}: "
                    f"{dict(zip(self.names, declared))}; give it the same everywhere, "
                    "or states="
                )
            found[name] = declared[0]
        return found

    @property
    def aligned(self) -> tuple[str, ...]:
        """Names of the values that go with the rows, such as "y"."""
        return tuple(key for key in self._blocks[self.names[0]] if key != "X")

    def map_rows(
        self,
        function: Callable,
        feature_names: Sequence[str] | None = None,
        **further: Any,
    ) -> HorizontalPartition:
        """Apply a function to the rows of each party, where they are.

        Parameters
        ----------
        function : callable
            From an array of rows to an array with as many rows.
        feature_names : sequence of str, default=None
            Names of the features that come out.
        **further : dict of str to array-like of shape (n_rows,)
            Further values to go with the rows of each party.

        Returns
        -------
        partition : HorizontalPartition
            With the same parties and the same values beside the rows.
        """
        aligned: dict[str, Any] = {
            key: {name: block[key] for name, block in self._blocks.items()}
            for key in self.aligned
        }
        rows = {
            name: map_rows(block["X"], function, feature_names)
            for name, block in self._blocks.items()
        }
        mapped = HorizontalPartition(rows, feature_names, **aligned, **further)
        mapped._places = self._places
        return mapped

    def take_turns(self, key: str) -> list | None:
        """Return the parties whose rows alternate within one group, if any do.

        Where rows are in order of time and a group is a time series, a row's past is
        then at another party.

        Parameters
        ----------
        key : str
            Name of the values beside the rows that tell groups apart. Without such
            values, all rows are one group.

        Returns
        -------
        names : list of str or None
            The parties that hold rows of the first such group. None if there is none,
            or if it is not known how the rows of different parties came together.
        """
        if self._places is None:
            return None
        places = np.concatenate(list(self._places.values()))
        holder, group = np.empty((2, len(places)), dtype=int)
        holder[places] = np.repeat(range(self.n_parties), list(self.n_rows().values()))
        group[places] = 0
        if key in self.aligned:
            labels = np.concatenate([block[key] for block in self._blocks.values()])
            group[places] = np.unique(labels, return_inverse=True)[1]
        order = np.argsort(group, kind="stable")
        both = np.stack([group[order], holder[order]])
        begins = np.append(True, np.any(np.diff(both) != 0, axis=0))
        n_runs = np.bincount(both[0, begins])
        pairs = np.unique(both, axis=1)
        alternate = np.flatnonzero(n_runs > np.bincount(pairs[0]))
        if not len(alternate):
            return None
        return [self.names[code] for code in pairs[1, pairs[0] == alternate[0]]]

    def __getitem__(self, columns: list[str]) -> HorizontalPartition:
        """Return the same rows with some of their columns, in the order of the list."""
        names = self._column_names
        if lacking := [c for c in self._check_chosen(columns) if c not in names]:
            raise PartitionError(f"no columns {lacking}: the partition has {names}")
        return self.choose([names.index(name) for name in columns])

    def reorder(self, feature_names: Sequence[str]) -> HorizontalPartition:
        """Return the same rows with their features in another order.

        Parameters
        ----------
        feature_names : sequence of str
            All of them, in the order in which they are wanted.

        Returns
        -------
        partition : HorizontalPartition
        """
        return self.choose(
            find_columns(self.feature_names or [], feature_names, "the partition")
        )

    def choose(self, places: Sequence[int], **further: Any) -> HorizontalPartition:
        """Return the same rows with some of their features.

        Parameters
        ----------
        places : sequence of int
            Which, in the order in which they are wanted.
        **further : dict of str to array-like of shape (n_rows,)
            Further values to go with the rows of each party.

        Returns
        -------
        partition : HorizontalPartition
        """
        names = self.feature_names and [self.feature_names[i] for i in places]
        chosen = self.map_rows(lambda rows: rows[:, places], names, **further)
        return chosen._typed_as(self, places)

    def _typed_as(self, given, places):
        """Take over what columns of another partition declare; None has numbers."""
        for holder, dtypes in given._dtypes.items():
            if dtypes:
                of = [np.dtype(float) if i is None else dtypes[i] for i in places]
                self._dtypes[holder] = of
        return self

    def beside(self, aligned: dict[str, str]) -> HorizontalPartition:
        """Return the same rows with some columns beside them, which leave X.

        Parameters
        ----------
        aligned : dict of str to str
            Names of columns by what they are, as in ``{"y": "died"}``.

        Returns
        -------
        partition : HorizontalPartition
        """
        names = self.feature_names or []
        for key, column in aligned.items():
            if column not in names:
                has = f"which has {names}" if names else "whose columns have no names"
                raise PartitionError(
                    f"{key}={column!r} is no column of the partition, {has}"
                )
            if key in self.aligned:
                raise PartitionError(
                    f"{key}={column!r}: the partition already has values of {key}"
                )
        rest = [i for i, name in enumerate(names) if name not in aligned.values()]
        values = {
            key: {name: self._column(name, names.index(column)) for name in self.names}
            for key, column in aligned.items()
        }
        return self.choose(rest, **values)

    def declared(self, column: str) -> list | None:
        """Return the categories that a column of dataframes declares, in their order.

        Parameters
        ----------
        column : str

        Returns
        -------
        labels : list or None
            Of the first party.
        """
        dtypes = dict(zip(self._column_names, self._dtypes[self.names[0]]))
        return declared_labels(dtypes.get(column))

    def _column(self, holder, place):
        """Return a column of a party, in the type that it has in a dataframe."""
        blocks = row_blocks(self._blocks[holder]["X"])
        column = np.concatenate([rows[:, place] for rows in blocks])
        dtypes = self._dtypes[holder]
        if dtypes and getattr(dtypes[place], "kind", "O") in "iub":
            return column.astype(dtypes[place])
        # of text and numbers together, numpy would make text
        kinds = {type(value) for value in column.tolist()}
        return np.array(column.tolist()) if len(kinds) == 1 else column

    @property
    def dtypes(self) -> list[dict]:
        """Types of the columns, by name, as each party's dataframe has them."""
        return [dict(zip(self._column_names, of)) for of in self._dtypes.values() if of]

    def _check_described(self, names, states):
        found = [
            check_described(block["X"], names, states, name)
            for name, block in self._blocks.items()
            if not isinstance(block["X"], RowSource)
        ]
        return [name for name in names if any(name in texts for texts in found)]

    def _held(self, name):
        return self._column_names

    def __repr__(self):
        sizes = ", ".join(
            f"{name}: {n} row{'s' if n != 1 else ''}"
            for name, n in self.n_rows().items()
        )
        return f"HorizontalPartition({sizes}; {self.n_features} features)"


def _table(rows, places, labels):
    """Return the columns of rows at some places; a source stays a source."""
    if isinstance(rows, RowSource):
        return rows.map(lambda block: block[:, places], labels)
    return _any_array(rows)[:, places]


def _any_array(X):
    """Return a table as an array that keeps the types of entries."""
    if type(X) is np.ndarray and X.ndim == 2 and X.dtype.kind in "biuf":
        return X
    return check_array(keep_types(without_columns(X)), **_ANY_TABLE)


def one_per_row(name, values, n_samples):
    """Return values that go with rows as a 1-d array, or say what is wrong."""
    refuse_name(name, values)
    try:
        shape = np.asarray(values).shape
    except ValueError:
        raise ValueError(
            f"{name} is a list of lists of several lengths: give one value per row"
        ) from None
    if len(shape) != 1 and not (len(shape) == 2 and shape[1] == 1):
        raise ValueError(
            f"{name} should be a 1d array with one value per row, got an array of "
            f"shape {shape}"
        )
    if shape[0] != n_samples:
        raise ValueError(
            f"{name} has {shape[0]} values for {n_samples} rows: give one per row"
        )
    return column_or_1d(keep_persons(name, values))


def _rows_of_parties(party, n_samples):
    """Return the row numbers of each party, in sorted order of the labels."""
    if party is None:
        return {ONE_PARTY: np.arange(n_samples)}
    labels = one_per_row("party", party, n_samples)
    check_labels("party", party)
    found, codes = np.unique(labels, return_inverse=True)
    values = declared_labels(getattr(party, "dtype", None))
    if values is None:
        values = found.tolist()
    else:
        codes = np.array([values.index(label) for label in found], dtype=int)[codes]
    names = [str(value) for value in values]
    if len(set(names)) != len(names):
        raise PartitionError(
            "party has labels that differ in type only: give text or numbers"
        )
    return {name: np.flatnonzero(codes == code) for code, name in enumerate(names)}


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
    # which is to hide how many rows a party has, and which
    has_noise = getattr(estimator, "epsilon", None) is not None
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
        partition = check_features(estimator, X, reset)
        if has_noise:
            checks["ensure_min_samples"] = 0
        else:
            _refuse_empty(partition)
        ways = other_ways(estimator)
        partition = check_blocks(partition, dtype=dtype, otherwise=ways, **checks)
    else:
        refuse_tables(X, "HorizontalPartition")
        for key, values in {"party": party, **aligned}.items():
            refuse_name(key, values)
        dtypes = dtypes_of(X)
        X = validate_table(estimator, X, reset=reset, dtype=dtype, **checks)
        names = getattr(estimator, "feature_names_in_", None)
        partition = HorizontalPartition.from_rows(X, party, names, **aligned)
        partition._dtypes = dict.fromkeys(partition.names, dtypes)
        if not has_noise:
            _refuse_empty(partition)
    if reset and not has_noise:
        warn_of_copies(partition)
    return partition


def _refuse_empty(partition):
    """Refuse parties without rows."""
    for name, n_rows in partition.n_rows().items():
        if n_rows == 0:
            raise PartitionError(f"party {name!r} has no rows: leave it out")
