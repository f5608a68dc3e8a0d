"""Look before you model: what rows of several parties are like, from sums and tables.

Only the parties read counts: columns and tables that are about few rows are not told,
nor the counts of rare categories, but of several together.
Quantiles are found by counting in cells, which the parties choose themselves. Numbers
are added up last, those of the columns that are told. With differential privacy there
is one release: a noisy histogram of each column, and noisy tables.
"""

from collections.abc import Generator
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np

from skprivbn.federation._cells import (
    CountTerms,
    quantile_ranks,
    rare_levels,
    read_quantile,
    search_cells,
    split_tables,
)
from skprivbn.federation._models import check_received_bounds
from skprivbn.federation._rows import (
    map_rows,
    paired_blocks,
    sum_over_rows,
    unit_of_squares,
)
from skprivbn.federation.gate import (
    are_few,
    count_values,
    kish,
    rows_beside,
    rows_of_sizes,
    rows_of_values,
)
from skprivbn.federation.program import (
    ALL_ROWS,
    Me,
    Noisy,
    RowWeights,
    Sum,
    TooFewRows,
    program,
    refuse_malformed,
    require,
)
from skprivbn.privacy import DistributedNoise
from skprivbn.privacy._options import check_bounds
from skprivbn.privacy._persons import shares_of_rows
from skprivbn.utils._validation import MISSING, read_labels, read_numbers

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

    def noise(self, n_features: int, n_parties: int) -> DistributedNoise | None:
        """Return the noise of the one release, within the bounds."""
        if self.epsilon is not None:
            check_bounds(self.bounds, n_features)
        return super().noise(n_features, n_parties)

    def n_cells(self, n_features: int) -> int:
        """Return one of each column, also for a gap, and one of each table."""
        return n_features + len(self.tables)


@program(DescriptionTerms)
def description(me: Me) -> Generator[Any, Any, dict]:
    """Count; then search quantiles of, and add up, the columns that may be told."""
    terms, n_features = me.terms, np.shape(me.block["X"])[1]
    require(len(terms.states) == n_features)
    if terms.epsilon is not None:
        check_received_bounds(terms.bounds, n_features)
        noise = terms.noise(n_features, len(me.roster))
        cells = yield Noisy(_count_noisily(me), noise, "noisy histograms and tables")
        return _read_noisy(cells, terms)
    counts = yield Sum(_count_all(me), "rows, categories, gaps and tables", ALL_ROWS)
    counted = _Counted.of(counts, terms)
    require(counted.n_rows >= me.min_rows, "too-few-rows")
    least = max(terms.min_rows, me.min_rows)
    told = counted.told_columns(terms, least)
    found = counted.told(terms, told)
    numbers = [v for v in terms.numbers if told[v]]
    if not numbers:
        return found
    rows = map_rows(
        me.block["X"],
        # read later, when fewer may be left
        lambda rows, numbers=tuple(numbers): _numbers_of(rows, numbers),
        list(map(str, numbers)),
    )
    places = [terms.numbers.index(v) for v in numbers]
    if terms.levels:
        coarse, fine, _ = yield from search_cells(
            rows,
            None,
            lambda n: quantile_ranks(n, np.array(terms.levels), least),
            # all values, so that groups of rows do not depend on the quantiles
            lambda n: np.hstack([np.ones_like(n), n]),
            "left",
        )
        found["quantiles"][places] = _read_cells(coarse, fine, terms.levels, least)
    while numbers:
        try:
            found["mean"][places], found["std"][places] = yield from _spreads(
                rows, counted.present[numbers]
            )
            break
        except TooFewRows as few:
            # of these, a mean is about a few rows
            is_few = few.blocks.reshape(-1, len(numbers)).any(axis=0)
            found["quantiles"][np.array(places)[is_few]] = np.nan
            left = np.flatnonzero(~is_few)
            numbers, places = [numbers[v] for v in left], [places[v] for v in left]
            rows = map_rows(
                rows, lambda rows, left=left: rows[:, left], list(map(str, numbers))
            )
    return found


def _spreads(rows, count):
    """Return means and standard deviations of columns, in two sums."""
    own = sum_over_rows(rows, lambda rows: np.count_nonzero(~np.isnan(rows), axis=0))
    sums = sum_over_rows(rows, _sums_and_sizes)
    own_mean = np.split(sums, 2)[0] / np.maximum(own, 1)
    sums, sizes = np.split(
        (
            yield Sum(
                sums,
                "sums and absolute sums of columns",
                lambda: _weigh(own, rows, own_mean),
            )
        ),
        2,
    )
    mean, unit = sums / count, unit_of_squares(sizes / count, count)

    squares = yield Sum(
        sum_over_rows(
            rows, lambda rows: np.nansum(((rows - mean) / unit) ** 2, axis=0)
        ),
        "squares of columns about the mean",
        lambda: RowWeights(
            own, None, _count_values(rows), sides=_weigh_squares(rows, mean, unit)
        ),
    )
    return mean, np.sqrt(squares / np.maximum(count - 1, 1)) * unit


def _weigh(own, rows, centre):
    """Return how much own rows differ from the centre of each column, on each side."""

    def beside(rows):
        return rows_beside(rows - centre, np.ones(len(rows)))

    sides = sum_over_rows(rows, beside)
    return RowWeights(own, None, kish(sides), sides=sides)


def _weigh_squares(rows, mean, unit):
    """Return how much own rows count in squares about the mean: one may be all."""

    typical = 2.0**15 * unit

    def add(rows):
        return rows_of_sizes(((rows - mean) / typical) ** 2, np.ones(len(rows)))

    return sum_over_rows(rows, add)


def _count_values(rows):
    """Return how many own rows have values of columns that have few."""
    n_values = count_values(rows)
    return kish(
        sum_over_rows(
            rows, lambda rows: rows_of_values(rows, np.ones(len(rows)), n_values)
        )
    )


def _numbers_of(rows, columns):
    """Return columns of numbers; what is not finite is missing."""
    numbers = np.column_stack([_as_numbers(rows[:, v]) for v in columns])
    return np.where(np.isfinite(numbers), numbers, np.nan)


def _sums_and_sizes(rows):
    return np.concatenate([np.nansum(rows, axis=0), np.nansum(np.abs(rows), axis=0)])


def _count_all(me):
    """Return the number of own rows, which columns few of them have, and all cells."""
    ends = np.cumsum([size + 1 for size in me.terms.column_sizes()])
    own = sum_over_rows(me.block["X"], lambda rows: _count_cells(rows, me.terms))
    n_own = np.shape(me.block["X"])[0]
    # the last cell of a column is for rows without a value
    n_filled = n_own - own[ends - 1]
    lacks = (n_filled < me.own_min_rows) & (me.own_min_rows > 1)
    return np.concatenate([[n_own], lacks, own])


def _count_noisily(me):
    """Count in cells between public bounds; all rows of a person are one."""
    shared_by, terms = me.rows_of_person(), me.terms
    if shared_by is None:
        return sum_over_rows(me.block["X"], lambda rows: _count_cells(rows, terms))
    blocks = paired_blocks(me.block["X"], shares_of_rows(shared_by))
    return sum(_count_cells(rows, terms, weights) for rows, weights in blocks)


def _count_cells(rows, terms, weights=None):
    """Count the cells of each column and table; the last of a column is missing."""
    weights = np.ones(len(rows), dtype=np.int64) if weights is None else weights
    columns = [_cells_of(rows[:, v], v, terms) for v in range(rows.shape[1])]
    counts = [
        np.bincount(cells, weights, minlength=size + 1)
        for cells, size in zip(columns, terms.column_sizes())
    ]
    for (a, b), shape in zip(terms.tables, terms.table_shapes()):
        known = (columns[a] < shape[0]) & (columns[b] < shape[1])
        both = columns[a][known] * shape[1] + columns[b][known]
        counts.append(np.bincount(both, weights[known], minlength=prod(shape)))
    return np.concatenate(counts).astype(np.int64)


def _cells_of(column, v, terms):
    """Return the cell of each value of a column; one more than there are if missing."""
    labels, is_exact = terms.states[v], terms.epsilon is None
    if labels is not None:
        with refuse_malformed("invalid-data"):
            # with noise, a refusal would tell that there is such a label
            codes = read_labels(column, labels, str(v), strict=is_exact)
        return np.where(codes == MISSING, len(labels), codes)
    values = _as_numbers(column, lenient=not is_exact)
    if is_exact:
        return (~np.isfinite(values)).astype(int)
    low, high = terms.bounds[:, v]
    place = (np.clip(np.nan_to_num(values), low, high) - low) / (high - low)
    cells = np.minimum((place * NOISY_CELLS).astype(int), NOISY_CELLS - 1)
    return np.where(np.isnan(values), NOISY_CELLS, cells)


class _Counted(NamedTuple):
    """Counts of all parties' rows.

    Attributes
    ----------
    n_rows : int
    n_lacking : ndarray of int of shape (n_features,)
        How many parties hardly have a column.
    present : ndarray of int of shape (n_features,)
        How many rows have a value.
    counts : list of ndarray
        Of the categories of each column.
    tables : list of ndarray
    """

    n_rows: int
    n_lacking: np.ndarray
    present: np.ndarray
    counts: list
    tables: list

    @classmethod
    def of(cls, total, terms):
        """Take the total of all parties apart."""
        sizes = [size + 1 for size in terms.column_sizes()]
        (n_rows,), n_lacking, cells = np.split(total, [1, 1 + len(sizes)])
        *columns, tables = np.split(cells, np.cumsum(sizes))
        present = np.array([n_rows - column[-1] for column in columns])
        counts = [column[:-1] for column in columns]
        tables = split_tables(tables, terms.table_shapes())
        return cls(int(n_rows), n_lacking, present, counts, tables)

    def told_columns(self, terms, least):
        """Tell which columns are about enough rows.

        Of a column that one party has alone, sums would be that party's.
        """
        few_missing = are_few(self.n_rows - self.present, terms.min_cell_count)
        return (self.n_lacking == 0) & (self.present >= least) & ~few_missing

    def told(self, terms, columns):
        """Return what may be told of these counts; numbers are yet to be found."""
        n_numbers = len(terms.numbers)
        few = terms.min_cell_count
        return {
            "n_rows": self.n_rows,
            "present": np.where(columns, self.present, -1),
            "missing": np.where(columns, self.n_rows - self.present, -1),
            "counts": [
                self._without_rare(counts, few) if told and labels else None
                for counts, told, labels in zip(self.counts, columns, terms.states)
            ],
            "tables": [
                self._if_coarse(table, few) if self.has_both(table, pair, few) else None
                for table, pair in zip(self.tables, terms.tables)
            ],
            "mean": np.full(n_numbers, np.nan),
            "std": np.full(n_numbers, np.nan),
            "quantiles": np.full((n_numbers, len(terms.levels)), np.nan),
        }

    def has_both(self, table, pair, few):
        """Tell whether parties have both columns, and not just a few rows lack one.

        The counts of one column exceed its sums in the table by such rows.
        """
        absent = [self.counts[v] - table.sum(axis=1 - k) for k, v in enumerate(pair)]
        nowhere = self.n_rows - self.present[pair[0]] - absent[1].sum()
        is_few = are_few(np.concatenate([*absent, [nowhere]]), few).any()
        return not is_few and not self.n_lacking[pair].any()

    def _without_rare(self, counts, few):
        """Return counts of categories, -1 for rare ones; None if these are all."""
        if not are_few(counts, few).any():
            return self._if_coarse(counts, few)
        are_rare = rare_levels(counts, 0, few)
        counts = np.where(are_rare, -1, counts)
        return None if are_rare.all() or counts.size > self.n_rows else counts

    def _if_coarse(self, table, few):
        """Return a table, or None if it is about few rows."""
        return None if are_few(table, few).any() or table.size > self.n_rows else table


def _read_cells(coarse, fine, levels, least):
    """Return the quantiles of each column, of groups of at least so many rows."""
    return np.array(
        [
            [
                read_quantile(edges[0], np.diff(below[0]), *cells, level, least)
                for *cells, level in zip(inside, np.diff(counts), levels)
            ]
            for edges, below, inside, counts in zip(*coarse, *fine)
        ]
    )


def _read_noisy(cells, terms):
    """Return a description of noisy histograms and tables that is possible."""
    ends = np.cumsum([size + 1 for size in terms.column_sizes()])
    *columns, tables = np.split(cells / terms.unit, ends)
    found: dict[str, Any] = {"present": [], "missing": [], "counts": []}
    found |= {"mean": [], "std": [], "quantiles": []}
    for v, labels in enumerate(terms.states):
        counts, n_missing = columns[v][:-1], max(columns[v][-1], 0.0)
        n = max(counts.sum(), 1.0)
        found["present"].append(n)
        found["missing"].append(n_missing)
        found["counts"].append(np.maximum(counts, 0.0) if labels is not None else None)
        if labels is not None:
            continue
        low, high = terms.bounds[:, v]
        edges = np.linspace(low, high, len(counts) + 1)
        middle = (edges[1:] + edges[:-1]) / 2
        # as they are: without those below zero, noise would add rows everywhere
        mean = np.clip(counts @ middle / n, low, high)
        found["mean"].append(mean)
        found["std"].append(np.sqrt(max(counts @ (middle - mean) ** 2 / n, 0.0)))
        # the nearest distribution function: rising, from 0
        reached = np.maximum.accumulate(np.append(0.0, np.cumsum(counts)))
        at = np.array(terms.levels) * reached[-1]
        found["quantiles"].append(np.interp(at, reached, edges))
    for name in ("present", "missing", "mean", "std", "quantiles"):
        found[name] = np.array(found[name], dtype=np.float64)
    n_rows = max(float(np.mean([counts.sum() for counts in columns])), 1.0)
    tables = split_tables(tables, terms.table_shapes())
    return found | {"n_rows": n_rows, "tables": tables}


def _as_numbers(column, *, lenient=False):
    """Return a column as floats; text in it is refused, or missing if lenient."""
    if lenient:
        return read_numbers(column, gaps=True, strict=False)
    with refuse_malformed("invalid-data"):
        return np.asarray(column, dtype=np.float64)
