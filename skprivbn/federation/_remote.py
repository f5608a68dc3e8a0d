"""Handles on data that stay at their sites."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from typing import Any, Self

import numpy as np

from skprivbn.crypto import AdditiveBackend
from skprivbn.exceptions import PartitionError
from skprivbn.federation._describe import DescribeMixin
from skprivbn.federation._ledger import Ledger
from skprivbn.federation._models import kept_labels
from skprivbn.federation._terms import Terms
from skprivbn.federation.program import Program

#: what a column of keys may be used as
KEY_ROLES = ("keys", "individual")


class RemoteData(ABC):
    """What remote rows and remote columns share: they are not here.

    Attributes
    ----------
    names : tuple of str
        Names of the sites.
    dataset : str
        Name of the dataset, the same at every site.
    schema : dict of str to str or list of str
        What each column holds: ``"float"``, ``"int"`` or a list of categories.
    feature_names : list of str
        Names of the columns that make up X.
    """

    names: tuple[str, ...]
    feature_names: list[str]
    schema: dict[str, str | list[str]]
    dataset: str
    as_float: bool
    finite: bool
    _connection: Any

    @property
    def n_parties(self) -> int:
        """Number of sites."""
        return len(self.names)

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return len(self.feature_names)

    def n_rows(self) -> dict[str, float]:
        """Return what is known of the number of rows at each site: nothing.

        Infinity stands for it, so that a check for too few rows is left to the sites.
        """
        return dict.fromkeys(self.names, np.inf)

    @property
    def categories(self) -> dict[str, list]:
        """Labels of columns whose categories the sites declare, by name.

        Categories are seen as their positions in the declared list.
        """
        kinds = {name: self.schema.get(name) for name in self.feature_names}
        return {
            name: list(range(len(kind)))
            for name, kind in kinds.items()
            if isinstance(kind, list)
        }

    @property
    def texts(self) -> dict[str, list]:
        """Declared labels of columns, as people know them."""
        return {name: list(self.schema[name]) for name in self.categories}

    @abstractmethod
    def _read_by(self):
        """Return columns of each site, names of those beside X, and models applied."""

    def federate(
        self,
        program: Program,
        terms: Terms,
        backend: str | AdditiveBackend | None = None,
        *,
        min_rows: int = 1,
        **options: Any,
    ) -> Any:
        """Open a federation in which every site uses its own data.

        Parameters
        ----------
        program, terms, backend, min_rows, **options :
            As in ``HorizontalPartition.federate``.

        Returns
        -------
        federation : Coordinator
            To be used as a context manager.
        """
        columns, aligned, steps = self._read_by()
        data = {
            "dataset": self.dataset,
            "X": columns,
            "aligned": aligned,
            "steps": steps,
            "float": self.as_float,
            "finite": self.finite,
            "min_rows": int(min_rows),
            "purpose": getattr(self._connection, "purpose", ""),
        }
        return self._connection.open(
            program, terms, backend, data, self.names, **options
        )

    def __array__(self, dtype=None, copy=None):
        raise PartitionError(
            f"the rows of dataset {self.dataset!r} stay at the sites "
            f"{list(self.names)}: this method needs local rows. Take score and "
            "predict of a fitted estimator, whose predictions stay there (of your own "
            "estimator: with the decorator skprivbn.base.by_holders)"
        )

    def __len__(self):
        raise PartitionError(
            f"the sites {list(self.names)} do not disclose their numbers of rows"
        )


class RemoteRows(DescribeMixin, RemoteData):
    """Rows at several sites, over the same features.

    Made by ``federation.rows()``. Can be passed as `X` to every estimator that takes
    ``party=``; what goes with the rows (`y`, `cluster`, ...) is then given as the name
    of a column. Categories are seen as their positions in the declared list.

    Parameters
    ----------
    connection : object
        With a method ``open(program, terms, backend, data, roster, **options)``.
    dataset : str
    names : sequence of str
        Names of the sites.
    schema : dict of str to str or list of str
        Columns that every site declares in the same way.
    feature_names : sequence of str, default=None
        Columns that make up X; all but keys if None.
    aligned : dict of str to str, default=None
        Names of columns that go with the rows.
    steps : sequence of tuple, default=()
        Public models of fitted transformers that sites apply to X, in order, each
        with the names of the features that come out.

    Examples
    --------
    >>> from skprivbn.partition import RemoteRows
    >>> schema = {"age": "float", "ward": ["surgery", "medicine"], "patient": "key"}
    >>> RemoteRows(None, "icu", ["north", "south", "west"], schema)
    RemoteRows('icu' at north, south, west; 2 features)
    """

    def __init__(
        self,
        connection: Any,
        dataset: str,
        names: Sequence[str],
        schema: dict[str, str | list[str]],
        feature_names: Sequence[str] | None = None,
        aligned: dict[str, str] | None = None,
        steps: Sequence[tuple] = (),
    ) -> None:
        self._connection = connection
        self.dataset, self.names, self.schema = dataset, tuple(names), dict(schema)
        self.aligned = dict(aligned or {})
        if feature_names is None:
            feature_names = [
                name
                for name, kind in self.schema.items()
                if kind != "key" and name not in self.aligned.values()
            ]
        #: columns that sites read, before any step
        self.read = list(feature_names)
        self.steps = tuple(steps)
        self.feature_names = list(self.steps[-1][1]) if self.steps else self.read
        self.as_float, self.finite = True, True
        for column in self.read:
            if self.read.count(column) > 1:
                raise PartitionError(f"column {column!r} is in X twice: name it once")
            if self.schema.get(column, "key") == "key":
                raise PartitionError(
                    f"column {column!r} cannot be part of X: the sites declare "
                    f"{self.schema}"
                )
        for key, column in self.aligned.items():
            if not isinstance(column, str) or column not in self.schema:
                raise PartitionError(
                    f"{key} must be the name of a column at the sites, one of "
                    f"{list(self.schema)}; got {type(column).__name__}"
                    + (f" {column!r}" if isinstance(column, str) else "")
                )
            if self.schema[column] == "key" and key not in KEY_ROLES:
                raise PartitionError(
                    f"column {column!r} holds keys, which name people: they cannot be "
                    f"{key}. Have the sites declare its categories"
                )
            if "cluster" in key and not isinstance(self.schema[column], list):
                raise PartitionError(
                    f"column {column!r} holds numbers of type {self.schema[column]!r}, "
                    f"and cannot be {key}: names of clusters are told, and would be "
                    "its values. Have the sites declare its categories"
                )
            if column in self.feature_names or column in self._transformed():
                raise PartitionError(
                    f"column {column!r} is part of X and cannot be {key}, too"
                    + ": choose the columns of X first" * bool(self.steps)
                )

    @property
    def categories(self) -> dict[str, list]:
        """Labels of columns whose categories the sites declare, by name.

        What a transformation makes of them is not declared, unless it fills gaps with
        some of them.
        """
        return self._kept(super().categories)

    def _kept(self, labels):
        """Return the labels that the steps leave of columns."""
        for model, names in self.steps:
            labels = kept_labels(model, names, labels)
        return labels

    def _described(self):
        return self._copy(finite=False)

    def _shown_labels(self, name, states):
        return self.texts.get(name, states)

    def checked(self, aligned: dict, *, as_float: bool, finite: bool) -> Self:
        """Return the same rows as an estimator wants to see them.

        Parameters
        ----------
        aligned : dict of str to str
            Columns that go with the rows; they leave X.
        as_float, finite : bool
            Whether X is wanted as floats, and without missing entries.

        Returns
        -------
        rows : RemoteRows
        """
        aligned = self.aligned | aligned
        texts = [name for name in aligned.values() if isinstance(name, str)]
        read, steps = self.read, self.steps
        if not steps:
            read = [name for name in read if name not in texts]
        else:
            steps = self._steps_without(set(texts) - self._transformed())
        changes = {"feature_names": read, "aligned": aligned, "steps": steps}
        return self._copy(as_float=as_float, finite=finite, **changes)

    def _transformed(self):
        """Return the names of columns that a step changes."""
        names, changed = self.read, set()
        for model, made in self.steps:
            places = model.get("columns", range(len(names)))
            changed |= {names[i] for i in places} if "fitted" in model else set()
            names = made
        return changed

    def _steps_without(self, columns):
        """Return the steps; the last one drops columns that it would pass through."""
        *steps, (model, names) = self.steps
        rest = model.get("rest", [])
        passed = zip(rest, names[len(names) - len(rest) :])
        kept = {place: name for place, name in passed if name not in columns}
        if len(kept) < len(rest):
            names = [*names[: len(names) - len(rest)], *kept.values()]
            model = model | {"rest": list(kept)}
        return [*steps, (model, names)]

    @property
    def dtypes(self) -> list[dict]:
        """Types of the columns as sites declare them, as a dataframe would have."""
        return [{name: self.schema.get(name, "float") for name in self.feature_names}]

    @property
    def texts(self) -> dict[str, list]:
        """Declared labels of columns, as people know them."""
        declared = super().categories
        # a step that recodes a column, such as an ordinal encoder, makes a new list
        kept = self._kept(declared).items()
        return {
            name: list(self.schema[name])
            for name, labels in kept
            if labels is declared.get(name)
        }

    def __getitem__(self, columns: list[str]) -> Self:
        """Return the same rows with some of their columns, in the order of the list.

        Keys are no part of X, and may be named: they remain available beside it.
        """
        self._check_chosen(columns)
        known = [*self.read, *(c for c, kind in self.schema.items() if kind == "key")]
        if self.steps:
            raise PartitionError(
                f"the rows are transformed: choose {columns} before transforming them"
            )
        if lacking := [name for name in columns if name not in known]:
            raise PartitionError(f"no columns {lacking}: the rows have {known}")
        chosen = [name for name in columns if self.schema[name] != "key"]
        return self._copy(feature_names=chosen)

    def reorder(self, feature_names: Sequence[str]) -> Self:
        """Return the same rows with their features in another order.

        Parameters
        ----------
        feature_names : sequence of str
            All of them, in the order in which they are wanted.

        Returns
        -------
        rows : RemoteRows
        """
        if self.steps:
            raise PartitionError(
                f"the transformed rows have the features {self.feature_names}, wanted "
                f"are {list(feature_names)}: reorder the rows before transforming them"
            )
        seen_as = {"as_float": self.as_float, "finite": self.finite}
        return self._copy(feature_names=feature_names, **seen_as)

    def _copy(self, *, as_float=True, finite=True, **changes):
        """Return the same rows with other columns, or after other steps."""
        own = {"feature_names": self.read, "aligned": self.aligned, "steps": self.steps}
        place = self._connection, self.dataset, self.names, self.schema
        rows = RemoteRows(*place, **own | changes)
        rows.as_float, rows.finite = as_float, finite
        return rows

    def transformed(self, model: dict, feature_names: Sequence[str]) -> Self:
        """Return the same rows as they are after one more transformation.

        Nothing happens yet: sites transform their rows whenever they use them.

        Parameters
        ----------
        model : dict
            Public model of a fitted transformer.
        feature_names : sequence of str
            Names of the features that come out.

        Returns
        -------
        rows : RemoteRows
        """
        return self._copy(steps=[*self.steps, (model, feature_names)])

    def _read_by(self):
        columns = {name: list(self.read) for name in self.names}
        return columns, self.aligned, [model for model, _ in self.steps]

    def __repr__(self):
        return (
            f"RemoteRows({self.dataset!r} at {', '.join(self.names)}; "
            f"{self.n_features} features)"
        )


def name_results(dataset, results, session):
    """Return the name of the file in which sites keep the results of a session."""
    return f"{dataset}.{results}.{session.hex()[:12]}.csv"


class RemoteResults:
    """Names of the files in which sites keep predictions for their rows.

    Parameters
    ----------
    names : sequence of str
        Names of the sites.
    file : str
        Name of the file in each site's folder of results.
    ledger : Ledger
        Of the session that made them.

    Examples
    --------
    >>> from skprivbn.partition import RemoteResults
    >>> RemoteResults(["north", "south"], "icu.PrivateGLMM.predict.1f.csv", None)
    RemoteResults('icu.PrivateGLMM.predict.1f.csv' at north, south)
    """

    def __init__(self, names: Sequence[str], file: str, ledger: Ledger) -> None:
        self.names, self.file, self.ledger = tuple(names), file, ledger

    def __array__(self, dtype=None, copy=None):
        raise PartitionError(
            f"the results are at the sites {list(self.names)}, in {self.file!r} of "
            "their folder of results, and do not come here"
        )

    def __repr__(self):
        return f"RemoteResults({self.file!r} at {', '.join(self.names)})"


def find_owners(columns, advice=""):
    """Return the party that holds each column; none may have two.

    Parameters
    ----------
    columns : dict of str to list of str
        Of each party.
    advice : str, default=""
        What else can be done about columns that several hold.

    Returns
    -------
    owners : dict of str to str
    """
    holders: dict[str, list[str]] = {}
    for name, held in columns.items():
        for column in held:
            holders.setdefault(column, []).append(name)
    owners = {column: names[0] for column, names in holders.items()}
    shared = {column: names for column, names in holders.items() if len(names) > 1}
    if shared:
        chosen = {column: owners[column] for column in shared}
        raise PartitionError(
            f"several parties hold the same columns, {shared}: choose one owner; "
            f"owner={chosen} says whose copy counts{advice}"
        )
    return owners


def keep_owned(columns, owner):
    """Leave every column to the party whose copy counts.

    Parameters
    ----------
    columns : dict of str to list of str
        Of each party; some may be held by several.
    owner : dict of str to str or None
        The party whose copy counts, of columns that several hold.

    Returns
    -------
    columns : dict of str to list of str
    """
    for column, name in (owner or {}).items():
        if column not in columns.get(name, ()):
            raise PartitionError(f"owner: {name!r} does not hold column {column!r}")
    kept = {
        name: [column for column in held if (owner or {}).get(column, name) == name]
        for name, held in columns.items()
    }
    empty = [name for name, held in kept.items() if not held]
    if owner and empty:
        raise PartitionError(f"owner leaves no column to {empty}: leave them out")
    return kept


def count_columns(columns):
    """Write how many columns each party holds."""
    return ", ".join(
        f"{name}: {len(held)} column{'s' if len(held) != 1 else ''}"
        for name, held in columns.items()
    )


class RemoteColumns(RemoteData):
    """Columns at several sites, about the same records.

    Made by ``federation.columns()``. Can be passed as `X` to every estimator that
    takes ``parties=``. Categories are seen as their positions in the declared list.

    Parameters
    ----------
    connection : object
        As in :class:`RemoteRows`.
    dataset : str
    columns : dict of str to list of str
        The columns of each site.
    schema : dict of str to str or list of str
        What each column holds.
    keys : str, default=None
        Column with the keys of the records, at every site. Without, records are
        aligned by order.
    max_records, reveal_membership : int or None and bool
        With `keys`, as of ``VerticalPartition``.

    Attributes
    ----------
    owners : dict of str to str
        The site that holds each column.
    has_keys : bool
        Whether records are aligned by keys.

    Examples
    --------
    >>> from skprivbn.partition import RemoteColumns
    >>> schema = {"age": "int", "smoker": ["no", "yes"], "cotinine": ["low", "high"]}
    >>> RemoteColumns(
    ...     None, "cohort", {"clinic": ["age", "smoker"], "lab": ["cotinine"]}, schema
    ... )
    RemoteColumns('cohort' at clinic: 2 columns, lab: 1 column)
    """

    def __init__(
        self,
        connection: Any,
        dataset: str,
        columns: dict[str, list[str]],
        schema: dict[str, str | list[str]],
        keys: str | None = None,
        *,
        max_records: int | None = None,
        reveal_membership: bool = False,
    ) -> None:
        self._connection = connection
        self.dataset, self.names, self.schema = dataset, tuple(columns), dict(schema)
        self.max_records, self.reveal_membership = max_records, reveal_membership
        self.columns, self.keys, self.has_keys = columns, keys, keys is not None
        self.owners = find_owners(columns)
        self.feature_names = list(self.owners)
        self.as_float, self.finite = False, True

    def reorder(self, feature_names: Sequence[str]) -> "RemoteColumns":
        """Return the same columns in another order.

        Parameters
        ----------
        feature_names : sequence of str
            All of them, in the order in which they are wanted.

        Returns
        -------
        columns : RemoteColumns
        """
        held = {
            name: [column for column in feature_names if column in mine]
            for name, mine in self.columns.items()
        }
        columns = copy(self)
        columns.columns = held
        columns.feature_names = list(feature_names)
        return columns

    def checked(self, *, finite: bool) -> "RemoteColumns":
        """Return the same columns, of which sites are to check so much.

        Parameters
        ----------
        finite : bool
            Whether sites refuse if something is missing.

        Returns
        -------
        columns : RemoteColumns
        """
        columns = copy(self)
        columns.finite = finite
        return columns

    def _read_by(self):
        return self.columns, {"keys": self.keys} if self.has_keys else {}, []

    def __repr__(self):
        return f"RemoteColumns({self.dataset!r} at {count_columns(self.columns)})"
