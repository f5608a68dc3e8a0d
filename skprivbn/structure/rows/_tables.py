"""Contingency tables that a search asks for: many at a time, and none of them twice.

Under noise, tables are released once, and a graph and probabilities are read off them.
"""

from itertools import combinations
from math import comb, prod
from typing import NamedTuple

import numpy as np

from skprivbn.graphical_model._release import TablesTerms, gap_rule
from skprivbn.graphical_model._searches import ask
from skprivbn.graphical_model._states import public_states
from skprivbn.graphical_model._tables import Contribution, TableLayout
from skprivbn.privacy._options import delta_of

#: cells of one table
MAX_CELLS = 1 << 16
#: numbers of all tables of one round
ROUND_CELLS = 1 << 20
#: tables with fewer cells, but for the last variable, are counted as matrix products
_SMALL = 16
#: entries of all rows that are looked at together
_CHUNK = 1 << 20
#: entries of the largest matrix of indicators: 64 MB, and sums of ones stay exact
_MAX_INDICATORS = 1 << 24
#: sets of columns that are released together, with noise
_MAX_TABLES = 5000


class Question(NamedTuple):
    """What has to be counted next.

    Attributes
    ----------
    kind : {"tables", "moments"}
    asked : list
        Of tables, ``(base, candidates)``: for each candidate in turn, the table of the
        variables in `base` and the candidate. Of moments, sets of discrete variables.
    """

    kind: str
    asked: list


class AskedTables:
    """Tables of all parties' rows, asked for by a search and kept.

    Parameters
    ----------
    n_states : sequence of int
        Number of states of every variable.
    count : callable, default=None
        Takes what a :class:`Question` asks and returns one flat array. None: whoever
        runs a search answers the questions.
    consistent : bool, default=True
        Whether tables agree on the variables that they have in common. Then those that
        follow from a larger one by summation are not asked for.
    max_cells : int, default=65536
        Cells of the largest table.
    """

    def __init__(self, n_states, count=None, consistent=True, max_cells=MAX_CELLS):
        self.n_states, self.consistent = list(n_states), consistent
        self.max_cells = min(max_cells, MAX_CELLS)
        self._count, self._kept, self._larger = count, {}, {}

    @classmethod
    def from_rows(cls, codes, n_states):
        """Count rows at hand, of shape (n_samples, n_variables)."""
        indicators = one_hot(codes, n_states)

        def count(requests):
            return np.concatenate(
                [count_extended(codes, n_states, *r, indicators) for r in requests]
            )

        return cls(n_states, count)

    @property
    def asked(self):
        """Sets of variables whose tables were counted, in the order of asking."""
        return list(self._kept)

    def fits(self, variables):
        """Tell which further variables leave a table that is not too large."""
        n_cells = prod(self.n_states[v] for v in variables)
        return n_cells * np.array(self.n_states) <= self.max_cells

    def variance(self, variables):
        """Return the variance of the noise of every cell of a table: none."""
        return 0.0

    def fetch(self, requests):
        """Count tables that :meth:`asking` asks for."""
        ask(self.asking(requests), lambda question: self._count(question.asked))

    def asking(self, requests):
        """Ask for the tables of bases with each of some candidates.

        Parameters
        ----------
        requests : iterable of (sequence of int, sequence of int)
            Variables of the base, and candidates for one more.

        Yields
        ------
        question : Question
            To be answered by all counts in a row.
        """
        batch, n_numbers, coming = [], 0, set()
        for base, candidates in requests:
            base = tuple(base)
            size = prod(self.n_states[v] for v in base)
            for v in candidates:
                key = tuple(sorted((*base, v)))
                if key in self._kept or key in coming:
                    continue
                coming.add(key)
                n_new = size * self.n_states[v]
                if batch and n_numbers + n_new > ROUND_CELLS:
                    self._receive(batch, (yield Question("tables", batch)))
                    batch, n_numbers = [], 0
                if not batch or batch[-1][0] != base:
                    batch.append((base, []))
                batch[-1][1].append(v)
                n_numbers += n_new
        if batch:
            self._receive(batch, (yield Question("tables", batch)))

    def families(self, asked):
        """Return the requests that tell how much candidates gain as one more parent.

        Parameters
        ----------
        asked : list of (int, sequence of int, sequence of int)
            Nodes, their parents, and candidates.

        Returns
        -------
        requests : list
            For :meth:`asking`.
        """
        requests = [([child, *parents], found) for child, parents, found in asked]
        coming, bases = set(self._kept), set()
        for base, found in requests:
            new = {tuple(sorted((*base, v))) for v in found} - coming
            if new:
                bases.add(tuple(sorted(base)))
            coming |= new
        known = coming | bases | self._larger.keys() if self.consistent else set()
        # what follows from no table of one more
        return requests + [
            (parents, [child])
            for child, parents, _ in asked
            if tuple(sorted((child, *parents))) not in known
        ]

    def _receive(self, batch, counts):
        if counts.dtype.kind == "i":
            # what grows with the number of tables
            counts = counts.astype(np.min_scalar_type(int(counts.max(initial=0))))
        place = 0
        for base, candidates in batch:
            shape = [self.n_states[v] for v in base]
            for v in candidates:
                axes = (*base, v)
                size = prod(shape) * self.n_states[v]
                table = counts[place : place + size]
                table = table.reshape(*shape, self.n_states[v])
                place += size
                key = tuple(sorted(axes))
                self._kept[key] = table.transpose([axes.index(u) for u in key])
                if base:
                    self._larger.setdefault(tuple(sorted(base)), key)

    def family(self, parents, child):
        """Return a table with the parents, in their order, and the child as axes."""
        family = [*parents, child]
        ascending = sorted(family)
        return self(family).transpose([ascending.index(v) for v in family])

    def __call__(self, variables, within=None):
        """Return the table of some variables, its axes in ascending order of them.

        Parameters
        ----------
        variables : sequence of int
        within : sequence of int, default=None
            Variables of a larger table that is known.

        Returns
        -------
        table : ndarray
        """
        key = tuple(sorted(variables))
        if key in self._kept:
            return self._kept[key]
        larger = self._larger.get(key)
        if larger is None and within is not None:
            larger = tuple(sorted(within))
        if larger is None or not self.consistent:
            if self._count is None:
                raise LookupError(f"the table of {key} was not asked for")
            self.fetch([(key[:-1], key[-1:])])
            return self._kept[key]
        summed = tuple(i for i, v in enumerate(larger) if v not in key)
        return self(larger).sum(axis=summed, dtype=np.int64)


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

    def count(self, requests):
        """Return tables that are asked for, as released ones tell them."""
        families = [(*base, v) for base, found in requests for v in found]
        return np.concatenate(
            [self._estimate(family)[0].ravel() for family in families]
        )

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


def noisy_terms(estimator, partition, names, known, has_individuals):
    """Return the terms of the one release.

    Parameters
    ----------
    estimator : FederatedBayesianNetwork
    partition : HorizontalPartition or RemoteRows
    names : list of str
    known : dict of int to list of int, or None
        Parents that are given.
    has_individuals : bool
        Whether persons may have several rows.

    Returns
    -------
    terms : TablesTerms
    """
    states = public_states(estimator.states, names, partition, {})
    if states is None:
        raise ValueError(
            "epsilon needs states=, those of all columns: which values occur is not "
            "private"
        )
    cliques = _cliques(len(names), estimator.max_parents, known)
    return TablesTerms(
        nodes=names,
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
        families = {tuple(sorted((v, *parents))) for v, parents in known.items()}
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


def read_tables(counts, terms, noise):
    """Return what was released as tables, in records.

    Parameters
    ----------
    counts : ndarray of int64
        The noisy sum.
    terms : TablesTerms
    noise : DistributedNoise

    Returns
    -------
    tables : ReleasedTables
    """
    layout = TableLayout(terms.cliques, terms.sizes, terms.ties)
    unit = terms.contribution.unit
    found = {tuple(c): t for c, t in zip(terms.cliques, layout.split(counts / unit))}
    return ReleasedTables(found, terms.sizes, (noise.std / unit) ** 2)


def one_hot(codes, n_states):
    """Return a column for every state of every variable, 1 where rows have it.

    Parameters
    ----------
    codes : ndarray of int of shape (n_rows, n_variables)
        Negative where missing.
    n_states : sequence of int

    Returns
    -------
    indicators : ndarray of float32 of shape (n_rows, n_states in all)
    starts : ndarray of int
        Where the columns of each variable begin. Both are None, as one, where they
        would be too large.
    """
    starts = np.concatenate([[0], np.cumsum(n_states)])
    if len(codes) * starts[-1] > _MAX_INDICATORS:
        return None
    indicators = np.zeros((len(codes), starts[-1]), dtype=np.float32)
    rows, columns = np.nonzero(codes >= 0)
    indicators[rows, starts[columns] + codes[rows, columns]] = 1.0
    return indicators, starts


def count_extended(codes, n_states, base, candidates, indicators=None):
    """Count the tables of some variables with each of several others.

    Parameters
    ----------
    codes : ndarray of int of shape (n_rows, n_variables)
        Negative where missing: the row is left out of tables that need the entry.
    n_states : sequence of int
    base : sequence of int
        The variables that all tables have.
    candidates : sequence of int
    indicators : tuple, default=None
        From :func:`one_hot`, which makes many small tables fast.

    Returns
    -------
    counts : ndarray of int64 of shape (n_cells,)
        The tables one after another, variables of the base before the candidate.
    """
    size = prod(n_states[v] for v in base)
    if indicators is not None and size <= _SMALL:
        return _multiply(codes, n_states, base, candidates, size, *indicators)
    widths = np.array([n_states[v] for v in candidates])
    starts = np.concatenate([[0], np.cumsum(size * widths)])
    counts = np.zeros(starts[-1], dtype=np.int64)
    step = max(1, _CHUNK // len(widths))
    for start in range(0, len(codes), step):
        rows = codes[start : start + step]
        cells, known = _cells(rows, n_states, base)
        chosen = rows[:, list(candidates)]
        places = cells[:, None] * widths + chosen + starts[:-1]
        counted = (chosen >= 0) & known[:, None]
        places = places.ravel() if counted.all() else places[counted]
        counts += np.bincount(places, minlength=len(counts))
    return counts


def _multiply(codes, n_states, base, candidates, size, indicators, starts):
    """Count by a product of indicators: fast for few cells."""
    cells, known = _cells(codes, n_states, base)
    mine = (cells == np.arange(size)[:, None]) & known
    columns = np.concatenate([np.arange(*starts[v : v + 2]) for v in candidates])
    counts = mine.astype(np.float32) @ indicators[:, columns]
    ends = np.cumsum([n_states[v] for v in candidates])[:-1]
    parts = np.split(counts, ends, axis=1)
    return np.concatenate([part.ravel() for part in parts]).astype(np.int64)


def _cells(codes, n_states, base):
    """Return the cell of every row in a table, and whether it has one."""
    cells = np.zeros(len(codes), dtype=np.int64)
    known = np.ones(len(codes), dtype=bool)
    for v in base:
        known &= codes[:, v] >= 0
        cells = cells * n_states[v] + codes[:, v]
    return cells, known
