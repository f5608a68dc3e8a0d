"""``describe()`` of rows of several parties: what is asked, and what comes of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from skprivbn.crypto import AdditiveBackend, resolve_backend
from skprivbn.exceptions import PartitionError
from skprivbn.federation._description import DescriptionTerms, description
from skprivbn.federation._ledger import declare_noise
from skprivbn.federation._session import warn_of_roster
from skprivbn.federation._summary import ColumnSummary, Summary, TableSummary
from skprivbn.privacy import PrivacyAccountant
from skprivbn.privacy._options import (
    charge,
    check_bounds,
    protected_by,
    words_of_noise,
)
from skprivbn.utils import warn_leak, warn_user
from skprivbn.utils._validation import is_missing

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)

Summary.protocols = (description,)


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
        names = self._column_names
        known = self.categories | (states or {})
        pairs = [tuple(pair) for pair in tables]
        lacking = {name for pair in pairs for name in pair} - set(known)
        if lacking or set(known) - set(names):
            raise PartitionError(
                f"tables are of columns with categories, and {sorted(lacking)} have "
                f"none: give states=; the columns are {names}"
            )
        if epsilon is None:
            self._check_described(names, [known.get(name) for name in names])
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
        warn_of_roster(backend, len(self.names), has_noise=epsilon is not None)
        # under noise, how many rows a party has is not told, also if there is none
        least = {"min_rows": 1 if epsilon is None else 0}
        rows = self._described()
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
        """Name a column that is not what it is declared to be, where that may be said.

        Sites answer with a code, and with noise nothing is an error.
        """

    def _described(self):
        """Return the rows as they are, missing values included."""
        return self

    def _shown_labels(self, name, states):
        """Return the labels of a column as people know them."""
        return states


def check_described(rows, names, states, holder):
    """Refuse text without categories, and labels that are none of them.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_features)
    names : sequence of str
        Of the columns.
    states : sequence of sequence or None
        Categories of each column, or None for numbers.
    holder : str
        Name of the party.
    """
    for column, name, labels in zip(rows.T, names, states):
        where = f"column {name!r} of party {holder!r}"
        if labels is None:
            try:
                np.asarray(column, dtype=np.float64)
            except (TypeError, ValueError):
                raise PartitionError(
                    f"{where} holds text: declare its categories, as in "
                    f"describe(states={{{name!r}: [...]}}), or leave it out"
                ) from None
            continue
        others = {v for v in column.tolist() if not is_missing(v)} - set(labels)
        if others:
            raise PartitionError(
                f"{where} holds {others.pop()!r}, which is not one of its categories "
                f"{list(labels)}"
            )


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
