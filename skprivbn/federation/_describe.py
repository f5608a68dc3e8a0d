"""``describe()`` of rows of several parties: what is asked, and what comes of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from skprivbn.crypto import AdditiveBackend, resolve_backend
from skprivbn.exceptions import PartitionError
from skprivbn.federation._description import DescriptionTerms, description
from skprivbn.federation._ledger import Ledger, LedgerTable, declare_noise
from skprivbn.federation._session import leaks_of_roster
from skprivbn.privacy import PrivacyAccountant, PrivacyCost
from skprivbn.privacy._options import charge, check_bounds, protected_by, words_of_noise
from skprivbn.utils import import_optional, warn_leak, warn_user
from skprivbn.utils._validation import as_seen, is_missing

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
NOT_TOLD = "not told"


@dataclass(frozen=True)
class ColumnSummary:
    """Summary of one column over all parties.

    Attributes
    ----------
    name : str
    states : list or None
        Its categories; None for numbers.
    count, n_missing : float or None
        Rows with and without a value. None if there are too few to tell.
    counts : ndarray of shape (n_states,) or None
        How many rows have each category; NaN for rare ones, which together are what
        the others leave of `count`. None for numbers, and if nothing can be told.
    mean, std : float or None
        Of numbers; the standard deviation is that of a sample, as pandas'.
    quantiles : dict of float to float
    """

    name: str
    states: list | None
    count: float | None = None
    n_missing: float | None = None
    counts: np.ndarray | None = None
    mean: float | None = None
    std: float | None = None
    quantiles: dict = field(default_factory=dict)


@dataclass(frozen=True)
class TableSummary:
    """Contingency table of two columns over all parties.

    Attributes
    ----------
    columns : tuple of str
    states : list of list
        Categories of each column.
    counts : ndarray or None
        None if the table is too detailed to be told.
    """

    columns: tuple
    states: list
    counts: np.ndarray | None

    def to_frame(self) -> Any:
        """Return a pandas DataFrame, as ``pandas.crosstab`` does.

        Returns
        -------
        frame : DataFrame
        """
        pandas = import_optional("pandas", "TableSummary.to_frame")
        if self.counts is None:
            raise ValueError(
                f"the table of {self.columns} is {NOT_TOLD}: a count is below "
                "min_cell_count, or there are more cells than rows"
            )
        rows, columns = (
            pandas.Index(labels, name=name)
            for labels, name in zip(self.states, self.columns)
        )
        return pandas.DataFrame(self.counts, rows, columns)

    def __repr__(self):
        return repr(self._lines())

    def _repr_html_(self):
        return self._lines()._repr_html_()

    def _lines(self):
        first, second = self.columns
        head = [f"{first} \\ {second}", *map(str, self.states[1])]
        if self.counts is None:
            return LedgerTable(head[:1], [(NOT_TOLD,)])
        return LedgerTable(
            head,
            [
                (label, *map(_number, counts))
                for label, counts in zip(self.states[0], self.counts)
            ],
        )


@dataclass(frozen=True, eq=False, repr=False)
class Summary:
    """Summary of the rows of several parties.

    Made by ``describe()`` of a :class:`~skprivbn.partition.HorizontalPartition` or of
    :class:`~skprivbn.partition.RemoteRows`. ``summary["age"]`` is a column,
    ``summary["ward", "sex"]`` a table.

    Parameters
    ----------
    n_rows : float
        Of all parties; an estimate if noise was added.
    columns : dict of str to ColumnSummary
    tables : dict of tuple to TableSummary
    terms : Terms
        What was asked, as the sites' rules allowed it.
    ledger : Ledger
        Who learnt what.
    privacy_spent : PrivacyCost or None
        What it cost, with noise only.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivbn.partition import HorizontalPartition
    >>> rows = {name: np.arange(12.0).reshape(4, 3) for name in ("a", "b", "c")}
    >>> HorizontalPartition(rows, ["x", "y", "z"]).describe(quantiles=[0.5])
    12 rows of 3 parties
    <BLANKLINE>
    column  count  missing  mean  std    50%
    ------  -----  -------  ----  -----  ---
    x       12     0.0%     4.5   3.503  3
    y       12     0.0%     5.5   3.503  4
    z       12     0.0%     6.5   3.503  5
    """

    n_rows: float
    columns: dict
    tables: dict
    terms: Any
    ledger: Ledger
    privacy_spent: PrivacyCost | None = None
    #: what sites run, under the name "describe" in their site files
    protocols: ClassVar[tuple[Any, ...]] = (description,)

    def __getitem__(self, key):
        return self.tables[key] if isinstance(key, tuple) else self.columns[key]

    def to_frame(self) -> Any:
        """Return what is told of columns of numbers, as pandas' ``describe`` does.

        Returns
        -------
        frame : DataFrame
            A row for each figure, a column for each column of numbers.
        """
        pandas = import_optional("pandas", "Summary.to_frame")
        figures = {
            column.name: {
                "count": column.count,
                "missing": column.n_missing,
                "mean": column.mean,
                "std": column.std,
                **{f"{100 * q:g}%": value for q, value in column.quantiles.items()},
            }
            for column in self.columns.values()
            if column.states is None
        }
        return pandas.DataFrame(figures, dtype=np.float64)

    def _numbers(self):
        levels = self.terms.levels
        head = ["column", "count", "missing", "mean", "std"]
        head += [f"{100 * q:g}%" for q in levels]
        rows = []
        for column in self.columns.values():
            if column.states is not None:
                continue
            if column.count is None:
                rows.append((column.name, NOT_TOLD, *[""] * (len(head) - 2)))
                continue
            # a search ends within 2**-16 of the range: what is left of zero is not told
            quantiles = [
                0.0 if abs(value) < 1e-3 * column.std else value
                for value in column.quantiles.values()
            ]
            values, share = [column.mean, column.std, *quantiles], _share(column)
            rows.append((column.name, _number(column.count), share, *_digits(values)))
        return LedgerTable(head, rows)

    def _categories(self):
        rows = []
        for column in self.columns.values():
            if column.states is None:
                continue
            told = NOT_TOLD if column.counts is None else _counts(column)
            n, share = NOT_TOLD, ""
            if column.count is not None:
                n, share = _number(column.count), _share(column)
            rows.append((column.name, n, share, told))
        return LedgerTable(["column", "count", "missing", "categories"], rows)

    def _parts(self):
        parts = [part for part in (self._numbers(), self._categories()) if len(part)]
        return parts + [table._lines() for table in self.tables.values()]

    def _head(self):
        about = "" if self.privacy_spent is None else "about "
        head = f"{about}{_number(self.n_rows)} rows of {len(self.ledger.parties)} "
        head += "parties"
        if self.privacy_spent is not None:
            head += f", with noise for epsilon = {self.privacy_spent.epsilon:g}"
        return head

    def __repr__(self):
        return "\n\n".join([self._head(), *map(str, self._parts())])

    def _repr_html_(self):
        parts = "".join(part._repr_html_() for part in self._parts())
        return f"<p>{self._head()}</p>{parts}"


def _counts(column):
    """Write how many rows have each category, rare ones together."""
    are_rare = np.isnan(column.counts)
    told = zip(column.states, column.counts, are_rare)
    words = [f"{label}: {_number(n)}" for label, n, is_rare in told if not is_rare]
    if are_rare.any():
        labels = [label for label, is_rare in zip(column.states, are_rare) if is_rare]
        rest = column.count - np.nansum(column.counts)
        words.append(f"{' or '.join(map(str, labels))}: {_number(rest)}")
    return ", ".join(words)


def _number(value):
    return f"{float(value):,.0f}"


def _digits(values):
    return [f"{value:.4g}" for value in values]


def _share(column):
    return f"{column.n_missing / max(column.count + column.n_missing, 1):.1%}"


@dataclass(frozen=True, eq=False)
class _Asked:
    """Stands in for an estimator where a description is charged."""

    epsilon: float | None
    delta: float
    bounds: Any
    accountant: PrivacyAccountant | None
    backend: AdditiveBackend
    n_features_in_: int


class DescribeMixin:
    """Rows of several parties that can be described."""

    names: tuple[str, ...]
    feature_names: Any
    n_features: int
    categories: Any
    federate: Any
    #: whether somebody declared the categories, and not pandas of values that occur
    _declares_categories = True

    @property
    def _column_names(self) -> list[str]:
        """Names of the features, or x0, x1, ... where they have none."""
        return self.feature_names or [f"x{i}" for i in range(self.n_features)]

    def _check_chosen(self, columns):
        """Return names of columns, or say how to choose some."""
        is_names = isinstance(columns, list) and all(
            isinstance(name, str) for name in columns
        )
        if not is_names:
            raise PartitionError(
                "choose columns by a list of their names, as in "
                f"rows[{self._column_names[:2]}]; rows of several parties are not "
                "chosen one by one"
            )
        return columns

    def describe(
        self,
        tables: Sequence = (),
        *,
        quantiles: Sequence[float] = QUANTILES,
        states: dict | None = None,
        min_rows: int = 1,
        min_cell_count: int = 0,
        backend: str | AdditiveBackend = "masking",
        epsilon: float | None = None,
        delta: float = 0.0,
        bounds: Any = None,
        accountant: PrivacyAccountant | None = None,
        min_honest: int | None = None,
    ) -> Summary:
        """Tell what the rows of all parties are like, without showing them.

        Parameters
        ----------
        tables : sequence of pairs of str, default=()
            Columns with categories to be counted together.
        quantiles : sequence of float, default=(0.05, 0.25, 0.5, 0.75, 0.95)
            Of columns of numbers. Least and largest values are single rows', and are
            not told.
        states : dict of str to sequence, default=None
            Categories of columns that do not declare them.
        min_rows : int, default=1
            Columns with fewer values are not told, and quantiles are those of groups
            of so many rows. Sites raise it to their own.
        min_cell_count : int, default=0
            Tables with a smaller count, other than 0, are not told. Sites raise it to
            their own.
        backend : str or AdditiveBackend, default="masking"
            How sums are hidden.
        epsilon : float, default=None
            Privacy budget of everything together. None is exact.
        delta : float, default=0.0
            With `epsilon`: 0 adds discrete Laplace noise, more discrete Gaussian noise.
        bounds : pair of numbers or array-likes of shape (n_features,), default=None
            Public bounds of the columns, needed with `epsilon`.
        accountant : PrivacyAccountant, default=None
            Charged before any row is touched.
        min_honest : int, default=None
            With `epsilon`: how many parties are trusted to add their share of the
            noise. None means half of them, rounded up.

        Returns
        -------
        summary : Summary

        Examples
        --------
        >>> import numpy as np
        >>> from skprivbn.partition import HorizontalPartition
        >>> rng = np.random.default_rng(0)
        >>> rows = {name: rng.normal(70, 9, (200, 1)) for name in ("a", "b", "c")}
        >>> summary = HorizontalPartition(rows, ["age"]).describe(quantiles=[0.5])
        >>> summary["age"].count, summary["age"].mean.round(1), summary.n_rows
        (600, np.float64(69.8), 600)
        """
        rows, names = self._described(), self._column_names
        known = self.categories | as_seen(states or {}, names, self)
        if unknown := set(known) - set(names):
            raise PartitionError(
                f"states names {sorted(unknown)}, which are no columns: these are "
                f"{names}"
            )
        pairs = [tuple(pair) for pair in tables]
        if lacking := {name for pair in pairs for name in pair} - set(known):
            raise PartitionError(
                f"tables are of columns with categories, and {sorted(lacking)} have "
                f"none: give states=; the columns are {names}"
            )
        if epsilon is None:
            texts = self._check_described(names, [known.get(name) for name in names])
            if texts:
                rows, names = _without(texts, rows, names)
        table = None if epsilon is None else check_bounds(bounds, len(names))
        read_off = not self._declares_categories and set(self.categories)
        if epsilon is not None and read_off and read_off - set(states or {}):
            warn_leak(
                "the categories of the columns are taken to be public. Those that "
                "pandas makes of the values that occur are not: pass states= with the "
                "publicly known ones"
            )
        terms = DescriptionTerms(
            [list(known[name]) if name in known else None for name in names],
            [[names.index(name) for name in pair] for pair in pairs],
            list(quantiles),
            table,
            min_cell_count,
            epsilon=epsilon,
            delta=delta,
            min_honest=min_honest,
            protects="rows" if epsilon is None else protected_by(self),
            min_rows=min_rows,
        )
        backend = resolve_backend(backend)
        noise = terms.noise(len(names), len(self.names))
        asked = _Asked(epsilon, delta, bounds, accountant, backend, len(names))
        spent = charge(asked, "description of all columns", noise)
        is_noisy = epsilon is not None
        for leak in leaks_of_roster(backend, self.names, has_noise=is_noisy):
            warn_leak(leak)
        # under noise, how many rows a party has is not told, also if there is none
        least = {"min_rows": 1 if epsilon is None else 0}
        with rows.federate(description, terms, backend, **least) as federation:
            found = federation.run()
        if noise is not None:
            what = "noisy histograms of columns, and tables"
            declare_noise(federation.ledger, noise, what, terms.protects)
            for words in words_of_noise(3 * noise.std / terms.unit, found["n_rows"]):
                warn_user(words)
        shown = [self._shown_labels(n, s) for n, s in zip(names, terms.states)]
        return Summary(
            found["n_rows"],
            {
                name: _read_column(found, terms, v, name, labels)
                for v, (name, labels) in enumerate(zip(names, shown))
            },
            {
                pair: TableSummary(pair, [shown[v] for v in places], counts)
                for pair, places, counts in zip(pairs, terms.tables, found["tables"])
            },
            federation.terms,
            federation.ledger,
            spent,
        )

    def _check_described(self, names, states):
        """Return columns of text without categories; refuse labels that are none.

        Only in process: sites answer with a code, and with noise nothing is an error.
        """
        return []

    def _described(self):
        """Return the rows as they are, missing values included."""
        return self

    def _shown_labels(self, name, states):
        """Return the labels of a column as people know them."""
        return states


def _without(texts, rows, names):
    """Leave columns of text out, and warn."""
    words = (
        f"columns {texts} hold text without declared categories: declare them, as in "
        f"describe(states={{{texts[0]!r}: [...]}}), and make numbers of dates"
    )
    places = [i for i, name in enumerate(names) if name not in texts]
    if not places:
        raise PartitionError(words)
    warn_user(f"{words}. They are left out")
    return rows.choose(places), [names[i] for i in places]


def check_described(rows, names, states, holder):
    """Return columns of text without categories; refuse labels that are none of them.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_features)
    names : sequence of str
        Of the columns.
    states : sequence of sequence or None
        Categories of each column, or None for numbers.
    holder : str
        Name of the party.

    Returns
    -------
    texts : list of str
        Names of columns.
    """
    for column, name, labels in zip(rows.T, names, states):
        if labels is None:
            continue
        where = f"column {name!r} of party {holder!r}"
        others = {v for v in column.tolist() if not is_missing(v)} - set(labels)
        if others:
            raise PartitionError(
                f"{where} holds {others.pop()!r}, which is not one of its categories "
                f"{list(labels)}"
            )
    return [
        name
        for column, name, labels in zip(rows.T, names, states)
        if labels is None and not _are_numbers(column)
    ]


def _are_numbers(column):
    """Tell whether all values of a column are numbers or gaps."""
    try:
        np.asarray(column, dtype=np.float64)
    except (TypeError, ValueError):
        return False
    return True


def _read_column(found, terms, v, name, labels):
    """Return what was found of one column."""
    count, n_missing = found["present"][v].item(), found["missing"][v].item()
    if count < 0:
        return ColumnSummary(name, labels)
    counts = found["counts"][v]
    if counts is not None and np.any(counts < 0):
        counts = np.where(counts < 0, np.nan, counts)
    column = ColumnSummary(name, labels, count, n_missing, counts)
    if terms.states[v] is not None:
        return column
    i = terms.numbers.index(v)
    quantiles = dict(zip(terms.levels, found["quantiles"][i]))
    return replace(
        column, mean=found["mean"][i], std=found["std"][i], quantiles=quantiles
    )
