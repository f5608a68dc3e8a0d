"""Contingency tables that a search asks for: many at a time, and none of them twice.

Under noise, tables are released once, and a graph and probabilities are read off them.
"""

from abc import ABC, abstractmethod
from itertools import chain, combinations, groupby, product
from math import comb, prod
from typing import NamedTuple

import numpy as np

from skprivbn.bayesian_network._labels import count_rows
from skprivbn.federation import TooFewRows
from skprivbn.federation.gate import are_few
from skprivbn.graphical_model._release import TablesTerms, gap_rule
from skprivbn.graphical_model._states import public_states
from skprivbn.graphical_model._tables import Contribution
from skprivbn.privacy._options import delta_of

#: cells of one table
MAX_CELLS = 1 << 16
#: numbers of all tables of one round
ROUND_CELLS = 1 << 20
#: tables with fewer cells, but for the last variable, are counted by sets of rows
_SMALL = 64
#: instead of every count of a table that is not told
HIDDEN = -1
#: entries of all rows that are looked at together
_CHUNK = 1 << 20
#: bits of the sets of rows that are kept: 64 MB
_MAX_BITS = 1 << 29
#: words of 64 bits that are looked at together, which should stay in the cache
_WORDS = 1 << 16
#: sets of columns that are released together, with noise
_MAX_TABLES = 5000


def most_cells(me, n_rows):
    """Return how large a table may be: no site answers for more cells than rows."""
    return MAX_CELLS if me.is_simulated else min(MAX_CELLS, n_rows)


def check_table_sizes(n_states, ordering, max_parents):
    """Raise if some family could have more cells than is sensible to count."""
    for position, node in enumerate(ordering):
        before = sorted((n_states[v] for v in ordering[:position]), reverse=True)
        n_cells = n_states[node]
        for size in before[:max_parents]:
            n_cells *= size
        if n_cells > MAX_CELLS:
            raise ValueError(
                f"max_parents={max_parents} is too large: a table could have "
                f"{n_cells} cells, more than {MAX_CELLS}; lower max_parents or merge "
                "states"
            )


class Question(NamedTuple):
    """What has to be counted next.

    Attributes
    ----------
    kind : {"tables", "moments"}
    asked : list of tuple of int
        The variables of each table, or those that moments are given. The answer has the
        numbers of all of them in a row.
    """

    kind: str
    asked: list


class Asked(ABC):
    """Sums over all rows that a search asks for in batches, and keeps.

    Parameters
    ----------
    n_states : sequence of int
        Number of states of every variable.
    count : callable, default=None
        Takes what a :class:`Question` asks and returns one flat array, if rows are at
        hand. None: whoever runs a search answers the questions.
    """

    kind: str

    def __init__(self, n_states, count=None):
        self.n_states, self._count, self._kept = list(n_states), count, {}

    @property
    def asked(self):
        """Sets of variables that were asked for, in the order of asking."""
        return list(self._kept)

    @property
    def runs(self):
        """The same as arrays, those of one size that follow each other in one.

        Thousands of short lists would take longer to travel than the search takes.
        """
        runs = groupby(self.asked, key=len)
        return [np.array(list(run), dtype=int) for _, run in runs]

    def n_numbers(self, variables):
        """Return how many numbers an answer has."""
        return prod(self.n_states[v] for v in variables)

    def asking(self, wanted):
        """Ask for what is not known.

        Parameters
        ----------
        wanted : iterable of sequence of int
            Sets of variables.

        Yields
        ------
        question : Question
            None, if rows are at hand.
        """
        batch, ends = [], [0]
        for variables in self._unknown(wanted):
            n_new = self.n_numbers(variables)
            if batch and ends[-1] + n_new > ROUND_CELLS:
                yield from self._ask(batch, ends)
                batch, ends = [], [0]
            batch.append(variables)
            ends.append(ends[-1] + n_new)
        if batch:
            yield from self._ask(batch, ends)

    def _unknown(self, wanted):
        new = {}
        for variables in wanted:
            new.setdefault(tuple(sorted(variables)), tuple(variables))
        return [variables for key, variables in new.items() if key not in self._kept]

    def _ask(self, batch, ends):
        if self._count is not None:
            numbers = self._count(batch)
        else:
            numbers = yield Question(self.kind, batch)
        numbers = self._compact(numbers)
        for variables, start, end in zip(batch, ends, ends[1:]):
            self._keep(variables, numbers[start:end])

    def _compact(self, numbers):
        return numbers

    @abstractmethod
    def _keep(self, variables, numbers):
        """Keep the part of an answer that is about some variables."""

    def __call__(self, variables):
        """Return what is known given some variables, one axis each, ascending."""
        key = tuple(sorted(variables))
        if key not in self._kept:
            for _ in self.asking([key]):
                raise LookupError(f"{self.kind} of {key} were not asked for")
        if key not in self._kept:
            raise TooFewRows(f"{self.kind} of {key}", np.ones(1, dtype=bool), key)
        return self._kept[key]


class AskedTables(Asked):
    """Contingency tables of all rows.

    Parameters
    ----------
    n_states, count :
        As of :class:`Asked`.
    consistent : bool, default=True
        Whether tables agree on the variables that they have in common. Then those that
        follow from a larger one by summation are not asked for.
    max_cells : int, default=65536
        Cells of the largest table.

    Notes
    -----
    The answer may suppress a table that has small counts: all its numbers are `HIDDEN`.
    Tables of the same and more variables have small counts, too, and are not asked for.
    """

    kind = "tables"

    def __init__(self, n_states, count=None, consistent=True, max_cells=MAX_CELLS):
        super().__init__(n_states, count)
        self.consistent, self.max_cells = consistent, min(max_cells, MAX_CELLS)
        # of every set of variables, a larger one whose table is known
        self._larger = {}
        #: sets of variables that were asked for, and whose tables are hidden
        self.hidden = []

    @classmethod
    def from_rows(cls, codes, n_states, weights=None, max_cells=MAX_CELLS, least=0):
        """Count rows at hand, of shape (n_samples, n_variables).

        Tables with counts below `least`, but some, are hidden.
        """
        if weights is None:
            counted = RowCounts(codes, n_states).count

            def count(asked):
                sizes = [prod(n_states[v] for v in variables) for variables in asked]
                return hide_few(counted(asked), sizes, least)

        else:

            def count(asked):
                tables = [count_rows(codes, v, n_states, weights) for v in asked]
                return np.concatenate([table.ravel() for table in tables])

        return cls(n_states, count, max_cells=max_cells)

    def fits(self, variables):
        """Tell which further variables leave a table that is not too large."""
        fits = self.n_numbers(variables) * np.array(self.n_states) <= self.max_cells
        for hidden in self.hidden:
            if len(more := hidden - set(variables)) < 2:
                fits[list(more or range(len(fits)))] = False
        return fits

    def hides(self, variables):
        """Tell whether a table has small counts."""
        return any(hidden <= set(variables) for hidden in self.hidden)

    def asking(self, wanted):
        """Ask for what is not known, and again for what a hidden table would tell."""
        wanted, n_hidden = [*wanted], -1
        while n_hidden < len(self.hidden):
            n_hidden = len(self.hidden)
            yield from super().asking(wanted)

    def variance(self, variables):
        """Return the variance of the noise of every cell of a table: none."""
        return 0.0

    def _unknown(self, wanted):
        new = [v for v in super()._unknown(wanted) if not self.hides(v)]
        if not self.consistent:
            return new
        # a set that follows from another of the same question has fewer variables
        shortest = min(map(len, new), default=0)
        longer = [variables for variables in new if len(variables) > shortest]
        known = {part for variables in longer for part in _parts(variables)}
        keys = [tuple(sorted(variables)) for variables in new]
        follows = [key in known or key in self._larger for key in keys]
        return [v for v, is_known in zip(new, follows) if not is_known]

    def _compact(self, numbers):
        if numbers.dtype.kind != "i" or numbers.min(initial=0) == HIDDEN:
            return numbers
        # what grows with the number of tables
        return numbers.astype(np.min_scalar_type(int(numbers.max(initial=0))))

    def _keep(self, variables, numbers):
        key = tuple(sorted(variables))
        if numbers[0] == HIDDEN:
            self.hidden.append(set(key))
            return
        table = numbers.reshape([self.n_states[v] for v in variables])
        self._kept[key] = table.transpose([variables.index(v) for v in key])
        if self.consistent:
            self._larger.update(dict.fromkeys(_parts(key), key))

    def __call__(self, variables):
        """Return the table of some variables, its axes in ascending order of them."""
        key = tuple(sorted(variables))
        if key in self._kept or key not in self._larger:
            return super().__call__(key)
        larger = self._larger[key]
        summed = tuple(i for i, v in enumerate(larger) if v not in key)
        table = self._kept[larger]
        return table.sum(axis=summed, dtype=wide(table))

    def ordered(self, variables):
        """Return a table with axes in the order of its variables, to be told."""
        ascending, table = sorted(variables), self(variables)
        table = table.astype(wide(table), copy=False)
        return table.transpose([ascending.index(v) for v in variables])


def hide_few(counts, sizes, least):
    """Hide tables that have counts too small to be told.

    Parameters
    ----------
    counts : ndarray of int64
        Those of all tables in a row; changed in place.
    sizes : sequence of int
        Cells of every table.
    least : int
        The smallest count, but none, that may be told.

    Returns
    -------
    counts : ndarray of int64
    """
    few = are_few(counts, least)
    if few.any():
        table = np.repeat(np.arange(len(sizes)), sizes)
        counts[np.isin(table, table[few])] = HIDDEN
    return counts


def _parts(variables):
    """Return the sets of variables whose tables follow from that of all."""
    ascending = sorted(variables)
    sizes = range(1, len(ascending))
    return chain.from_iterable(combinations(ascending, size) for size in sizes)


def wide(counts):
    """Return a type that sums of counts fit in."""
    return counts.dtype if counts.dtype.kind == "f" else np.int64


class ReleasedTables(AskedTables):
    """Answers a search from noisy tables; costs no privacy any more.

    A smaller table follows from several released ones: their mean, weighted by how
    many noisy cells are summed, has the least noise.

    Parameters
    ----------
    released : dict of tuple of int to ndarray
        Tables of all rows with noise, in records; variables in ascending order.
    n_states : sequence of int
    variance : float
        Of the noise of one cell.
    """

    def __init__(self, released, n_states, variance):
        self.released, self.cell_variance = released, variance
        super().__init__(n_states, self.count, consistent=False)

    @property
    def asked(self):
        """Sets of variables whose tables were released."""
        return list(self.released)

    @property
    def n_samples(self):
        """Estimate of the number of rows, at least 1."""
        return max(float(np.mean([t.sum() for t in self.released.values()])), 1.0)

    def count(self, asked):
        """Return tables that are asked for, as released ones tell them."""
        return np.concatenate([self._estimate(v)[0].ravel() for v in asked])

    def _estimate(self, variables):
        total, weights = 0.0, 0.0
        for clique, table in self.released.items():
            if set(variables) <= set(clique):
                axes = [clique.index(v) for v in variables]
                rest = tuple(i for i in range(len(clique)) if i not in axes)
                weight = 1 / prod(table.shape[i] for i in rest)
                # what is left after the sum is in the order of the clique
                left = sorted(axes)
                part = table.sum(axis=rest).transpose([left.index(a) for a in axes])
                total, weights = total + weight * part, weights + weight
        # the noise of different tables is independent
        return np.maximum(total / weights, 0.0), self.cell_variance / weights

    def variance(self, variables):
        """Return the variance of the noise of a cell of a table."""
        return self._estimate(tuple(variables))[1]


def noisy_terms(estimator, partition, search, has_individuals):
    """Return the terms of the one release.

    Parameters
    ----------
    estimator : FederatedBayesianNetwork
    partition : HorizontalPartition or RemoteRows
    search : RowNetworkTerms
    has_individuals : bool
        Whether persons may have several rows.

    Returns
    -------
    terms : TablesTerms
    """
    states = public_states(estimator.states, search.names, partition, {})
    if states is None:
        raise ValueError(
            "epsilon needs states=, those of all columns: which values occur is not "
            "private"
        )
    cliques = _cliques(len(search.names), estimator.max_parents, search.known)
    return TablesTerms(
        nodes=search.names,
        states=[list(labels) for labels in states.values()],
        bins={},
        contribution=Contribution("normalize" if has_individuals else "record"),
        missing=gap_rule(estimator),
        epsilon=estimator.epsilon,
        delta=delta_of(estimator),
        min_honest=estimator.min_honest,
        cliques=cliques,
        ties=list(range(len(cliques))),
    )


def _cliques(n_columns, max_parents, known):
    """Return the sets of columns that a search may ask for, or a known graph needs."""
    if known is not None:
        families = {tuple(sorted((v, *parents))) for v, parents in enumerate(known)}
        return [
            list(family)
            for family in sorted(families)
            if not any(set(family) < set(other) for other in families)
        ]
    size = min(max_parents + 1, n_columns)
    n_tables = comb(n_columns, size)
    if n_tables > _MAX_TABLES:
        raise ValueError(
            f"epsilon releases the tables of all sets of {size} columns, which are "
            f"{n_tables}, more than {_MAX_TABLES}: lower max_parents or leave out "
            "columns"
        )
    return [list(members) for members in combinations(range(n_columns), size)]


class RowCounts:
    """Rows at hand, whose tables are counted.

    Parameters
    ----------
    codes : ndarray of int of shape (n_rows, n_variables)
        Negative where missing: the row is left out of tables that need the entry.
    n_states : sequence of int
    """

    def __init__(self, codes, n_states):
        self.codes, self.n_states = codes, n_states
        # the rows of every state of every variable as packed bits: small tables are
        # counted 64 rows at a time
        ends = np.cumsum([0, *n_states])
        self._places = [np.arange(*pair) for pair in zip(ends, ends[1:])]
        self._rows_of = None
        if len(codes) * ends[-1] <= _MAX_BITS:
            self._rows_of = np.concatenate(
                [_rows_by_state(codes[:, v], size) for v, size in enumerate(n_states)]
            )

    def count(self, asked):
        """Return tables one after another, as one flat array.

        Parameters
        ----------
        asked : list of tuple of int
            Variables of each table. Those that differ in the last variable only, and
            follow each other, are counted together.

        Returns
        -------
        counts : ndarray of int64 of shape (n_cells,)
        """
        parts = []
        for base, tables in groupby(asked, key=lambda variables: variables[:-1]):
            size = prod(self.n_states[v] for v in base)
            is_small = self._rows_of is not None and size <= _SMALL
            count = self._intersect if is_small else self._add_up
            parts.append(count(base, [variables[-1] for variables in tables], size))
        return np.concatenate(parts)

    def _add_up(self, base, candidates, size):
        """Count the cells of rows, a part of the rows at a time."""
        widths = np.array([self.n_states[v] for v in candidates])
        starts = np.concatenate([[0], np.cumsum(size * widths)])
        counts = np.zeros(starts[-1], dtype=np.int64)
        step = max(1, _CHUNK // len(widths))
        for start in range(0, len(self.codes), step):
            rows = self.codes[start : start + step]
            cells, known = joint_codes(rows, base, self.n_states)
            chosen = rows[:, candidates]
            places = cells[:, None] * widths + chosen + starts[:-1]
            counted = (chosen >= 0) & known[:, None]
            places = places.ravel() if counted.all() else places[counted]
            counts += np.bincount(places, minlength=len(counts))
        return counts

    def _intersect(self, base, candidates, size):
        """Count the rows that states have in common: fast for few cells."""
        mine = _packed(np.ones((1, len(self.codes)), dtype=bool))
        for v in base:
            states = self._rows_of[self._places[v]]
            mine = np.concatenate([states & rows for rows in mine])
        theirs = self._rows_of[np.concatenate([self._places[v] for v in candidates])]
        n_words, counts = mine.shape[1], np.zeros((size, len(theirs)), dtype=np.int64)
        step = max(1, min(n_words, _WORDS // len(theirs)))
        some = max(1, _WORDS // (len(theirs) * step))
        for first, start in product(range(0, size, some), range(0, n_words, step)):
            words = slice(start, start + step)
            both = mine[first : first + some, None, words] & theirs[:, words]
            # numpy is slow at sums along short axes; these are far below 2^24
            found = np.bitwise_count(both).astype(np.float32)
            found = found @ np.ones(found.shape[-1], dtype=np.float32)
            counts[first : first + some] += found.astype(np.int64)
        widths = [self.n_states[v] for v in candidates]
        table = np.tile(np.repeat(np.arange(len(candidates)), widths), size)
        return counts.ravel()[np.argsort(table, kind="stable")]


def _rows_by_state(column, size):
    """Return the rows that have each of some states, as packed bits."""
    column, step = np.ascontiguousarray(column), max(1, _CHUNK // max(1, len(column)))
    states = np.arange(size)[:, None]
    parts = [states[start : start + step] for start in range(0, size, step)]
    return np.concatenate([_packed(column == part) for part in parts])


def _packed(sets):
    """Pack truth values (n, n_rows) into words of 64 bits: (n, n_words)."""
    n_bytes = -(-sets.shape[1] // 64) * 8
    packed = np.zeros((len(sets), n_bytes), dtype=np.uint8)
    bits = np.packbits(sets, axis=1)
    packed[:, : bits.shape[1]] = bits
    return packed.view(np.uint64)


def sets_in(runs):
    """Return the sets of variables that :attr:`Asked.runs` made arrays of."""
    return [tuple(key) for run in runs for key in run.tolist()]


def joint_codes(codes, variables, n_states):
    """Return the cell of every row in a table, and whether it has one."""
    cells = np.zeros(len(codes), dtype=np.int64)
    known = np.ones(len(codes), dtype=bool)
    for v in variables:
        known &= codes[:, v] >= 0
        cells = cells * n_states[v] + codes[:, v]
    return cells, known
