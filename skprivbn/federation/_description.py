"""Look before you model: what rows of several parties are like, from sums and tables.

The parties add their counts among each other, and so know them before anybody else
does: columns and tables that are about few rows are not told. Quantiles are found by
counting in cells, which the parties choose themselves. Sums of numbers come last,
hidden, for the columns that are told. With differential privacy there is one release:
a noisy histogram of each column, and noisy tables.
"""

from collections.abc import Generator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from skprivbn.federation._cells import (
    MAGNITUDES,
    N_CELLS,
    CountTerms,
    cell_of,
    equal_cells,
    filled_range,
    is_small,
    read_quantile,
    split_tables,
)
from skprivbn.federation._party import (
    Party,
    PartyRefusal,
    check_received_bounds,
    operation,
)
from skprivbn.federation._rows import paired_blocks, sum_over_rows, unit_of_squares
from skprivbn.privacy import DistributedNoise
from skprivbn.privacy._options import check_bounds
from skprivbn.privacy._persons import shares_of_rows
from skprivbn.utils._validation import (
    float_or_nan,
    is_missing,
    label_text,
    texts_of,
)

#: cells of a noisy histogram: each of them gets noise
NOISY_CELLS = 64
#: categories of one column, and quantiles of one session
MAX_STATES, MAX_LEVELS = 256, 32


@dataclass(frozen=True)
class DescriptionTerms(CountTerms):
    """Which columns hold what, which tables and quantiles are wanted, with what noise.

    Parameters
    ----------
    states : list of (list or None)
        Categories of each column; None is a column of numbers.
    tables : list of list of int
        Pairs of columns with categories that are counted together.
    levels : list of float
        Quantiles of columns of numbers, between 0 and 1.
    bounds : ndarray of shape (2, n_features) or None
        Public bounds of the columns, for noise only.
    min_cell_count : int
        Tables with a smaller count, other than 0, are not told.
    **counts
        As of :class:`CountTerms`. Columns with fewer than `min_rows` values are not
        told, and quantiles are those of groups of so many rows.
    """

    states: list[list[Any] | None]
    tables: list[list[int]]
    levels: list[float]
    bounds: np.ndarray | None = None
    min_cell_count: int = 0

    def check(self) -> None:
        """Refuse tables of other columns, and quantiles without end."""
        for labels in self.states:
            if labels is not None and not 0 < len(labels) <= MAX_STATES:
                raise ValueError(f"states: 1 to {MAX_STATES} for each column")
            # with 1 and True, what is missing would count as if it were there
            if labels is not None and len({*labels}) < len(labels):
                raise ValueError("states: a category is named twice")
        for pair in self.tables:
            if len(pair) != 2 or pair[0] == pair[1]:
                raise ValueError("tables must be pairs of two columns")
            if not all(0 <= v < len(self.states) and self.states[v] for v in pair):
                raise ValueError("tables are of columns with states")
        if len(self.levels) > MAX_LEVELS or not all(0 < q < 1 for q in self.levels):
            raise ValueError(f"quantiles: at most {MAX_LEVELS}, between 0 and 1")

    @property
    def numbers(self) -> list[int]:
        """Positions of the columns of numbers."""
        return [v for v, labels in enumerate(self.states) if labels is None]

    def column_sizes(self) -> list[int]:
        """Return the number of cells that the values of each column fall into."""
        cells = 1 if self.epsilon is None else NOISY_CELLS
        return [len(labels) if labels else cells for labels in self.states]

    def table_shapes(self) -> list[tuple[int, ...]]:
        """Return the shape of each table."""
        sizes = self.column_sizes()
        return [tuple(sizes[v] for v in pair) for pair in self.tables]

    def rounds(self, n_parties: int) -> int:
        """Return counts, three steps to the quantiles, the answer, and two sums."""
        return 7

    def memory(self, n_features: int) -> tuple[int, int]:
        """Return the cells of all counts."""
        tables = sum(prod(shape) for shape in self.table_shapes())
        cells = n_features * max(N_CELLS * max(len(self.levels), 1), len(MAGNITUDES))
        return 2 * n_features, cells + sum(self.column_sizes()) + tables

    def n_parameters(self, n_features: int) -> int:
        """Return how many numbers are told."""
        told = sum(len(labels or []) for labels in self.states)
        told += sum(prod(shape) for shape in self.table_shapes())
        return 1 + n_features + told + len(self.numbers) * (2 + len(self.levels))

    def summed_columns(self, n_features: int) -> list[int]:
        """Return those of numbers; of others there are tables."""
        return self.numbers

    def tells_quantiles(self) -> bool:
        """Tell whether quantiles are wanted."""
        return bool(self.levels)

    def filled_columns(self, n_features: int) -> list[int]:
        """Return none: columns that a party hardly has are not told."""
        return []

    def noise(self, n_features: int, n_parties: int) -> DistributedNoise | None:
        """Return the noise of the one release, within the bounds."""
        if self.epsilon is not None:
            check_bounds(self.bounds, n_features)
        return super().noise(n_features, n_parties)

    def n_cells(self, n_features: int) -> int:
        """Return one of each column, also for a gap, and one of each table."""
        return n_features + len(self.tables)


class DescriptionParty(Party):
    """A holder of rows who counts them with the others."""

    terms: Any = DescriptionTerms

    def prepare(self) -> None:
        """Check that terms and columns go together."""
        n_features = np.shape(self.block["X"])[1]
        if len(self.terms.states) != n_features:
            raise PartyRefusal("refused")
        if self.terms.epsilon is not None:
            check_received_bounds(self.terms.bounds, n_features)
        self.numbers, self.shared_by = self.terms.numbers, self.rows_of_person()

    def schedule(self) -> Generator[Any, Any, Any]:
        """Counts first; sums only of what is told."""
        if self.terms.epsilon is not None:
            yield "noisy_tables"
            return
        yield "count"
        if self.numbers and self.terms.levels:
            for self.step in range(3):
                yield "narrow"
        yield "tell"
        if self.numbers:
            yield "sums"
            yield "squares"

    @operation(
        peers="shares of counts of rows, values, categories and tables; together the "
        "counts of all rows",
        peers_kind="plaintext aggregate",
    )
    def count(self) -> Generator[Any, Any, Any]:
        """Count with the peers what is in the rows."""
        ends = np.cumsum([size + 1 for size in self.terms.column_sizes()])
        own = sum_over_rows(self.block["X"], self._count_cells)
        n_own = np.shape(self.block["X"])[0]
        # the last cell of a column is for rows without a value
        n_filled = n_own - own[ends - 1]
        lacks = (n_filled < self.min_rows) & (self.min_rows > 1)
        total = yield from self.add_among_peers(np.concatenate([[n_own], lacks, own]))
        self.n_rows, self.n_lacking = int(total[0]), total[1 : len(ends) + 1]
        *columns, tables = np.split(total[len(ends) + 1 :], ends)
        #: how many have a value
        self.present = np.array([self.n_rows - column[-1] for column in columns])
        self.counts = [column[:-1] for column in columns]
        self.tables = split_tables(tables, self.terms.table_shapes())
        if self.n_rows < self.min_rows:
            raise PartyRefusal("too-few-rows")

    def _count_cells(self, rows, weights=None):
        """Count the cells of each column and table; the last of a column is missing."""
        weights = np.ones(len(rows), dtype=np.int64) if weights is None else weights
        columns = [self._cells(rows[:, v], v) for v in range(rows.shape[1])]
        sizes = self.terms.column_sizes()
        counts = [
            np.bincount(cells, weights, minlength=size + 1)
            for cells, size in zip(columns, sizes)
        ]
        for (a, b), shape in zip(self.terms.tables, self.terms.table_shapes()):
            known = (columns[a] < shape[0]) & (columns[b] < shape[1])
            both = columns[a][known] * shape[1] + columns[b][known]
            counts.append(np.bincount(both, weights[known], minlength=prod(shape)))
        return np.concatenate(counts).astype(np.int64)

    def _cells(self, column, v):
        """Return the cell of each value of a column."""
        labels = self.terms.states[v]
        if labels is not None:
            codes = {label: code for code, label in enumerate(labels)}
            alike = {} if self.terms.epsilon is None else texts_of(labels)
            cells = [self._code(value, codes, alike) for value in column.tolist()]
            return np.array(cells, dtype=np.intp)
        values = _as_numbers(column, lenient=self.terms.epsilon is not None)
        missing = ~np.isfinite(values)
        if self.terms.epsilon is None:
            return missing.astype(int)
        low, high = self.terms.bounds[:, v]
        place = (np.clip(np.nan_to_num(values), low, high) - low) / (high - low)
        cells = np.minimum((place * NOISY_CELLS).astype(int), NOISY_CELLS - 1)
        return np.where(np.isnan(values), NOISY_CELLS, cells)

    def _code(self, value, codes, alike):
        """Return the code of a label; one more than there are if it is missing."""
        try:
            if value in codes:
                return codes[value]
        except TypeError:  # a list, or the like, is no label
            pass
        # a refusal would tell, without noise, that there is such a label
        if self.terms.epsilon is None and not is_missing(value):
            raise PartyRefusal("invalid-data")
        return alike.get(label_text(value), len(codes))

    @operation(
        peers="shares of counts of values between thresholds; together those of all "
        "rows",
        peers_kind="plaintext aggregate",
    )
    def narrow(self) -> Generator[Any, Any, Any]:
        """Count values in cells, then in cells of the cells that hold quantiles."""
        if self.step == 0:
            self.edges = [MAGNITUDES[None]] * len(self.numbers)
        own = sum_over_rows(self.block["X"], self._count_between)
        total = yield from self.add_among_peers(own)
        shapes = [(len(edges), edges.shape[1] - 1) for edges in self.edges]
        counts = split_tables(total, shapes)
        levels, least = self.terms.levels, self._least_rows
        if self.step == 0:
            self.edges = [
                equal_cells(*filled_range(edges[0], found[0]))[None]
                for edges, found in zip(self.edges, counts)
            ]
        elif self.step == 1:
            self.coarse = list(zip(self.edges, counts))
            self.edges = [
                np.stack(
                    [
                        equal_cells(*cell_of(edges[0], found[0], q, least))
                        for q in levels
                    ]
                )
                for edges, found in zip(self.edges, counts)
            ]
        else:
            self.quantiles = np.array(
                [
                    [
                        read_quantile(coarse[0][0], coarse[1][0], fine, found, q, least)
                        for fine, found, q in zip(self.edges[i], counts[i], levels)
                    ]
                    for i, coarse in enumerate(self.coarse)
                ]
            )

    @property
    def _least_rows(self):
        return max(self.terms.min_rows, self.min_rows)

    def _count_between(self, rows):
        counts = []
        for v, edges in zip(self.numbers, self.edges):
            values = _as_numbers(rows[:, v])
            values = values[np.isfinite(values)]
            counts += [np.histogram(values, bins=one)[0] for one in edges]
        return np.concatenate(counts)

    @operation(
        tells="number of rows and of missing values, counts of categories, tables and "
        "quantiles of all rows, where they are about enough of them",
        kind="plaintext aggregate",
        answers={
            "n_rows": int,
            "present": np.ndarray,
            "counts": list,
            "tables": list,
            "quantiles": np.ndarray,
        },
    )
    def tell(self) -> dict:
        """Tell counts, tables and quantiles that are about enough rows."""
        few_missing = is_small(self.n_rows - self.present, self.terms.min_cell_count)
        # of a column that one party has alone, sums would be that party's
        is_held = (self.n_lacking == 0) & (self.present >= self._least_rows)
        self.told = is_held & ~few_missing
        n_told = np.where(self.told, self.present, -1)
        quantiles = np.full((len(self.numbers), len(self.terms.levels)), np.nan)
        if quantiles.size:
            mask = self.told[self.numbers]
            quantiles[mask] = self.quantiles[mask]
        return {
            "n_rows": self.n_rows,
            "present": n_told,
            "counts": [
                self._if_coarse(counts) if told else None
                for counts, told in zip(self.counts, self.told)
            ],
            "tables": [
                self._if_coarse(table) if self._is_told(table, pair) else None
                for table, pair in zip(self.tables, self.terms.tables)
            ],
            "quantiles": quantiles,
        }

    def _is_told(self, table, pair):
        """Tell whether parties have both columns, and not just a few rows lack one.

        The counts of one column exceed its sums in the table by such rows.
        """
        absent = [self.counts[v] - table.sum(axis=1 - k) for k, v in enumerate(pair)]
        nowhere = self.n_rows - self.present[pair[0]] - absent[1].sum()
        absent = np.concatenate([*absent, [nowhere]])
        few = is_small(absent, self.terms.min_cell_count).any()
        return not few and not self.n_lacking[pair].any()

    def _if_coarse(self, table):
        """Return a table, or None if it is about few rows."""
        small = is_small(table, self.terms.min_cell_count)
        return None if small.any() or table.size > self.n_rows else table

    @operation(
        tells="sums and absolute sums of its columns of numbers that are told",
        exact=True,
    )
    def sums(self) -> dict:
        """First moments; absolute values set the unit of the second."""
        return self.hide(
            sum_over_rows(
                self.block["X"],
                lambda rows: np.concatenate(
                    [f(self._told_numbers(rows)).sum(axis=0) for f in (np.array, abs)]
                ),
            )
        )

    @operation(
        tells="sums of squares of these columns about the common mean",
        hears="the sums of all parties",
        hears_kind="plaintext aggregate",
        exact=True,
    )
    def squares(self, total: dict) -> dict:
        """Second moments about the mean, in units that fit the fixed point."""
        mean, unit = read_sums(self.reveal(total), self.present[self.numbers])

        def add(rows):
            numbers = self._told_numbers(rows, mean)
            return (((numbers - mean) / unit) ** 2).sum(axis=0)

        return self.hide(sum_over_rows(self.block["X"], add))

    def _told_numbers(self, rows, instead=0.0):
        """Return columns of numbers; what is missing or not told adds nothing."""
        columns = [_as_numbers(rows[:, v]) for v in self.numbers]
        numbers = np.column_stack(columns)
        told = np.isfinite(numbers) & self.told[self.numbers]
        return np.where(told, numbers, instead)

    @operation(
        tells="noisy histograms of its columns and noisy tables",
        kind="noisy release",
        exact=True,
    )
    def noisy_tables(self) -> dict:
        """Count in cells between public bounds and add this party's noise."""
        if self.shared_by is None:
            counts = sum_over_rows(self.block["X"], self._count_cells)
        else:
            blocks = paired_blocks(self.block["X"], shares_of_rows(self.shared_by))
            counts = sum(self._count_cells(*block) for block in blocks)
        return self.hide_noisy(counts)


def read_sums(total, count):
    """Return means and, as powers of two, units of squares about them.

    Parameters
    ----------
    total : ndarray of shape (2 * n_columns,)
        Sums and absolute sums of all parties.
    count : ndarray of shape (n_columns,)

    Returns
    -------
    mean, unit : ndarray of shape (n_columns,)
    """
    sums, absolute = np.split(np.array(total), 2) / np.maximum(count, 1)
    return sums, unit_of_squares(absolute, count)


def _as_numbers(column, *, lenient=False):
    """Return a column as floats; text in it is refused, or missing if lenient."""
    if lenient and column.dtype.kind not in "biuf":
        # one by one: how a row is read must not depend on others
        return np.array([float_or_nan(value) for value in column.tolist()])
    try:
        return np.asarray(column, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise PartyRefusal("invalid-data") from None
