"""What partitions share: blocks of parties, and checks of labels, columns, rows."""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import partial
from numbers import Real
from os import PathLike
from typing import Any

import numpy as np
from scipy.sparse import issparse

from skprivbn.crypto import AdditiveBackend
from skprivbn.exceptions import PartitionError
from skprivbn.federation import (
    HostPolicy,
    InProcessFederation,
    LedgerTable,
    Program,
    Terms,
)
from skprivbn.federation._remote import RemoteData
from skprivbn.federation._rows import RowSource, map_rows
from skprivbn.federation._session import check_roster
from skprivbn.utils import warn_user
from skprivbn.utils._validation import check_block, is_missing, missing_entries


def is_partition(X: Any) -> bool:
    """Tell whether X is a partition, or a handle on remote data.

    Parameters
    ----------
    X : object
        As given to an estimator.

    Returns
    -------
    is_partition : bool
    """
    return isinstance(X, LocalPartition | RemoteData)


def holds_columns(X: Any) -> bool:
    """Tell whether X is a partition whose parties hold different columns."""
    return is_partition(X) and hasattr(X, "owners")


class LocalPartition:
    """One block per party, which goes to nobody but that party."""

    names: tuple[str, ...]
    _blocks: dict[str, dict]
    #: from the name of a party to the names of its columns
    _held: Callable[[str], Sequence[str]]

    @property
    def n_parties(self) -> int:
        """Number of parties."""
        return len(self.names)

    def n_rows(self) -> dict[str, int]:
        """Return the number of rows of each party, by name."""
        return {name: len(block["X"]) for name, block in self._blocks.items()}

    def _repr_html_(self):
        rows = [
            (
                name,
                n_rows,
                self._blocks[name]["X"].shape[1],
                ", ".join(self._held(name)),
            )
            for name, n_rows in self.n_rows().items()
        ]
        names = ["party", "rows", "columns", "names"]
        return LedgerTable(names, rows)._repr_html_()

    def federate(
        self,
        program: Program,
        terms: Terms,
        backend: str | AdditiveBackend | None = None,
        *,
        min_rows: int = 1,
        **options: Any,
    ) -> InProcessFederation:
        """Open a federation in this process that hands each party its own block.

        Parameters
        ----------
        program : Program
            The protocol.
        terms : Terms
            Its public parameters.
        backend : str, AdditiveBackend or None
            How sums are hidden; None for protocols without.
        min_rows : int, default=1
            Parties with fewer rows refuse to take part.
        **options
            Of :class:`~skprivbn.federation.InProcessFederation`.

        Returns
        -------
        federation : InProcessFederation
            To be used as a context manager.
        """
        return InProcessFederation(
            self._blocks,
            program,
            terms,
            backend,
            policy=HostPolicy(min_rows=min_rows, allow_rows=True),
            **options,
        )

    def __array__(self, dtype=None, copy=None):
        raise PartitionError(
            f"a {type(self).__name__} does not become an array, which would pool what "
            "the parties hold: it goes into fit, score and transform of estimators of "
            "skprivbn, and the table of a single party into other methods; searches "
            "split one table, search.fit(X, party=party)"
        )


def refuse_weights(sample_weight: Any) -> None:
    """Refuse weights of rows that are not here.

    Parameters
    ----------
    sample_weight : None
        Anything else is refused.
    """
    if sample_weight is not None:
        raise PartitionError(
            "sample_weight is not available for a partition: all its rows have the "
            "same weight"
        )


def column_labels(X: Any) -> list | None:
    """Return the labels of a dataframe's columns; None for arrays.

    Columns that are numbered 0, 1, ... have no labels: it is what a dataframe made of
    an array has.
    """
    # pyarrow has the columns themselves under the name of the labels
    labels = getattr(X, "column_names", getattr(X, "columns", None))
    if labels is None or list(labels) == list(range(len(labels))):
        return None
    return list(labels)


def names_of(labels: Sequence | None) -> list[str] | None:
    """Return labels as names of features, which are text; else there are none."""
    if labels is None or not all(isinstance(label, str) for label in labels):
        return None
    return list(labels)


def refuse_repeated(labels: Sequence, holder: str) -> None:
    """Refuse a table with two columns of one name.

    Parameters
    ----------
    labels : sequence
    holder : str
        Whose columns these are, for the message.
    """
    twice = [label for i, label in enumerate(labels) if label in labels[:i]]
    if twice:
        raise PartitionError(f"{holder} has two columns called {twice[0]!r}")


def find_columns(labels: Sequence, wanted: Sequence, holder: str) -> list[int]:
    """Return where the wanted columns are; refuses tables with other columns.

    Parameters
    ----------
    labels : sequence
        Of the columns that there are.
    wanted : sequence
        The same labels, in the order in which they are wanted.
    holder : str
        Whose columns these are, for the message.

    Returns
    -------
    places : list of int
    """
    labels = list(labels)
    refuse_repeated(labels, holder)
    lacking = [label for label in wanted if label not in labels]
    further = [label for label in labels if label not in wanted]
    if lacking or further:
        differs = [f"it lacks {lacking}"] if lacking else []
        differs += [f"it has {further} beside them"] if further else []
        raise PartitionError(
            f"{holder} has other columns than {list(wanted)}: {' and '.join(differs)}. "
            "Give all parties the same columns, in any order"
        )
    return [labels.index(label) for label in wanted]


def check_is_mapping(values: Any, name: str, of: str) -> None:
    """Raise, and say what to write, unless values are given by name of party."""
    if not isinstance(values, Mapping):
        raise PartitionError(
            f"{name} must be a dict of the names of parties to {of}, as in "
            f"{{'north': ..., 'south': ...}}; got {type(values).__name__}"
        )


def keep_persons(name: str, values: Any) -> Any:
    """Return labels of persons as they are: numpy makes text of NaN among text."""
    if name == "individual" and isinstance(values, list | tuple):
        return np.array(values, dtype=object)
    return values


def check_parties(blocks: Any, of: str) -> tuple[str, ...]:
    """Return the names of the parties that hold blocks of tables.

    Parameters
    ----------
    blocks : dict of str to array-like
    of : {"rows", "columns"}

    Returns
    -------
    names : tuple of str
    """
    check_is_mapping(blocks, "blocks", of)
    if not blocks:
        raise PartitionError(f"blocks is empty: give at least one party its {of}")
    for name, table in blocks.items():
        if isinstance(table, str | PathLike):
            raise PartitionError(
                f"party {name!r} has {str(table)!r} in the place of a table: read it, "
                "as in pandas.read_csv(...); rows, also by RowSource.from_parquet(...)"
            )
    return check_roster(blocks)


def refuse_tables(X: Any, partition: str) -> None:
    """Refuse a path, or a collection of tables, in the place of a table.

    Parameters
    ----------
    X : object
        As given to an estimator.
    partition : str
        Name of the partition that the estimator takes.
    """
    if isinstance(X, str | PathLike):
        raise PartitionError(
            f"X is {str(X)!r} in the place of a table: read it, as in "
            "pandas.read_csv(...)"
        )
    if isinstance(X, Mapping) and not issparse(X):  # one kind of which is a dict
        raise PartitionError(
            f"X is a {type(X).__name__}: give {partition}(X) if it has the tables of "
            "parties, by name, and pandas.DataFrame(X) if it has columns"
        )
    if isinstance(X, list | tuple) and any(_is_table(entry) for entry in X):
        raise PartitionError(
            f"X is a {type(X).__name__} of tables: say whose they are, as in "
            f"{partition}({{'north': ..., 'south': ...}})"
        )


def refuse_name(name: str, values: Any) -> None:
    """Refuse the name of a column where one value per row is needed."""
    if isinstance(values, str):
        split = f"HorizontalPartition.from_rows(X, party={values!r})"
        raise ValueError(
            f"{name}={values!r} is one value, not one per row: if a column has this "
            f"name, give {name}=X[{values!r}], and leave it out of X"
            + (f"; or fit to {split}" if name == "party" else "")
        )


def take_column(X: Any, column: str, name: str) -> tuple[Any, Any]:
    """Return a dataframe without a column, and the column.

    Parameters
    ----------
    X : dataframe
    column : str
    name : str
        Of the argument, for messages.

    Returns
    -------
    X : dataframe
    values : series
    """
    labels = column_labels(X) or []
    if column not in labels:
        raise PartitionError(
            f"{name}={column!r} is no column of X, which has {labels}"
            if labels
            else f"{name}={column!r} names a column, and X is no dataframe"
        )
    return X[[label for label in labels if label != column]], X[column]


def _is_table(entry):
    return len(getattr(entry, "shape", ())) == 2


def check_labels(name, values):
    """Refuse missing labels and those told apart by their type only: 1 and "1".

    Labels of persons may be anything: to refuse would tell of somebody's.

    Parameters
    ----------
    name : str
        Of the argument.
    values : array-like of shape (n_samples,)
        As the user gives them: numpy makes text of the list [1, "1"], and of NaN
        among text.

    Returns
    -------
    kind : str or None
        "text", "number", "bool" or a type; None if there is no label.
    """
    if name.startswith("individual"):
        return None
    as_objects = object if isinstance(values, list | tuple) else None
    labels = np.asarray(values, dtype=as_objects).ravel()
    if labels.dtype == object:
        known = [label for label in labels if not is_missing(label)]
        missing = len(known) < len(labels)
        examples = {_kind(type(label)): label for label in known}
    else:
        missing = np.any(labels != labels)
        examples = {_kind(labels.dtype.type): label for label in labels[:1]}
    if missing:
        raise PartitionError(f"{name} has missing labels: every row needs one")
    if "bytes" in examples:
        raise PartitionError(
            f"{name} holds bytes, such as {examples['bytes']!r}: decode them to text"
        )
    if len(examples) > 1:
        raise PartitionError(
            f"{name} mixes labels of several types, such as {list(examples.values())}: "
            "use text or numbers for all"
        )
    return next(iter(examples), None)


def _kind(label_type):
    """Return the kind of labels of a type; all whole and real numbers are of one."""
    if issubclass(label_type, str | bytes):
        return "text" if issubclass(label_type, str) else "bytes"
    if issubclass(label_type, bool | np.bool_):
        return "bool"
    return "number" if issubclass(label_type, Real) else label_type.__name__


def common_labels(blocks, feature_names):
    """Return the labels of the columns of all parties, in the order to be used."""
    if feature_names is not None:
        labels = list(feature_names)
        find_columns(labels, labels, "feature_names")
        return labels
    labels = {name: column_labels(rows) for name, rows in blocks.items()}
    unnamed = [name for name, given in labels.items() if given is None]
    if unnamed and len(unnamed) < len(labels):
        raise PartitionError(
            f"parties {unnamed} have arrays without names of columns, the others "
            "dataframes: give dataframes everywhere, or feature_names="
        )
    return next(iter(labels.values()))


def check_holders(key, values, blocks):
    """Refuse values beside the rows that are not those of these parties."""
    if values is None:
        return
    check_is_mapping(values, key, "one value per row")
    for name in blocks:
        if name not in values:
            raise PartitionError(f"{key} lacks the values of party {name!r}")
    strangers = [name for name in values if name not in blocks]
    if strangers:
        raise PartitionError(f"{key} has values of parties {strangers}, not in blocks")


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
        beside = f"{more} beside what it was fitted to: leave it out{named}"
        wrong = [beside] * bool(more)
        wrong += [f"not {less}, which it was fitted to"] * bool(less)
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


def check_blocks(partition, **checks):
    """Return a partition with checked rows, or say what is wrong with whose.

    Parameters
    ----------
    partition : HorizontalPartition or VerticalPartition
    **checks
        Of :func:`~skprivbn.utils._validation.check_block`.

    Returns
    -------
    partition : partition
    """
    checked = copy(partition)
    checked._blocks = {}
    for name, block in partition._blocks.items():
        names = partition._held(name)
        check = partial(check_block, names=names, holder=name, **checks)
        checked._blocks[name] = block | {"X": map_rows(block["X"], check)}
    return checked


def warn_of_copies(partition):
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
    """Tell whether tables are equal, but not by chance, as if all rows are the same."""
    if rows.dtype == object or others.dtype == object:
        rows, others = (
            np.where(missing_entries(table), None, table) for table in (rows, others)
        )
    return np.array_equal(rows, others) and not np.array_equal(rows[1:], rows[:-1])
