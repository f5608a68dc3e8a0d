"""What a description of rows says: values that print as text and show as HTML."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from skprivbn.federation._ledger import Ledger, LedgerTable
from skprivbn.privacy import PrivacyCost
from skprivbn.utils import import_optional

NOT_TOLD = "not told"


@dataclass(frozen=True)
class ColumnSummary:
    """What one column holds, over all parties.

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
    """How many rows have two categories at once, over all parties.

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


class Summary:
    """What rows of several parties are like.

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

    #: party classes that sites run, under the name "describe" in their site files
    protocols: tuple[Any, ...] = ()

    def __init__(
        self,
        n_rows: float,
        columns: dict,
        tables: dict,
        terms: Any,
        ledger: Ledger,
        privacy_spent: PrivacyCost | None = None,
    ) -> None:
        self.n_rows, self.columns, self.tables = n_rows, columns, tables
        self.terms, self.ledger = terms, ledger
        self.privacy_spent = privacy_spent

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
            values = [column.mean, column.std, *column.quantiles.values()]
            share = _share(column)
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
