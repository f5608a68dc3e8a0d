"""Scores of families on shares of their counts: by public tables, or by a series."""

from functools import partial

import numpy as np

from skprivbn.crypto.shares import SharedLookup, shared_stirling, together
from skprivbn.structure.k2._scores import FRACTION_BITS


class _FamilyLookup:
    """Scores of all families that the same parties hold, by lookups.

    Parameters
    ----------
    search : SharedK2
    holders : tuple of str
    families : list of tuple
    max_bytes : float
        Of what is prepared at a time.
    """

    def __init__(self, search, holders, families, max_bytes):
        self._search, self._holders, self._families = search, holders, families
        self._links, self._lookups = {}, {}
        self._plan(TableBook(search.index_bits), max_bytes)

    def _add(self, stage, tables, which, max_bytes):
        """Plan a lookup, in links of its own, for each entry of `which`."""
        search, holders = self._search, self._holders
        peers = [name for name in holders if name != search.talk.name]
        label = f"{stage} {search._label(holders)}"
        self._links[stage] = search._branch(label, peers)
        which = np.array(which, dtype=int)
        self._lookups[stage] = SharedLookup(holders, tables, which, max_bytes)

    def prepare(self, talk):
        """Make what does not need the counts."""
        sides = {
            stage: partial(lookup.prepare, links=self._links[stage])
            for stage, lookup in self._lookups.items()
        }
        return together(talk, sides)

    def _look_up(self, talk, stage, indices):
        indices = np.concatenate(indices)
        return self._lookups[stage].look_up(talk, self._links[stage], indices)

    def _scores(self, talk, values, sizes, constants):
        """Return {family: own share of its score}, from shares of its parts."""
        scores = np.add.reduceat(values, np.cumsum([0, *sizes[:-1]]))
        if talk.name == self._holders[0]:
            scores += np.array(constants, dtype=np.int64).astype(np.uint64)
        return dict(zip(self._families, scores))


class ScoreLookup(_FamilyLookup):
    """A lookup for each cell, and one for each configuration of parents.

    Of records with gaps, those of the table without the last parent are subtracted.
    """

    def _plan(self, book, max_bytes):
        which, signs, self._sizes, self._constants = [], [], [], []
        for family in self._families:
            size, constant = 0, 0
            for part, sign in zip(self._search.scored(family), (1, -1)):
                terms = self._search.terms(part)
                n_cells, q = self._search._n_lookups(part)
                which += [book.position(terms.cell)] * n_cells
                which += [book.position(terms.configuration)] * q
                signs += [sign] * (n_cells + q)
                size += n_cells + q
                constant += sign * terms.constant * q
            self._sizes.append(size)
            self._constants.append(constant)
        self._signs = np.array(signs).astype(np.uint64)
        self._add("scores", book.tables(), which, max_bytes)

    def look_up(self, talk, counts):
        """Return {family: own share of its score}."""
        indices = []
        for family in self._families:
            own = self._search.complete(family, counts[family])
            for _ in self._search.scored(family):
                indices += [own.ravel(), own.sum(axis=0, dtype=own.dtype).ravel()]
                own = own.sum(axis=-1, dtype=own.dtype)
        values = yield from self._look_up(talk, "scores", indices)
        return self._scores(talk, values * self._signs, self._sizes, self._constants)


class SeriesScores:
    """The paper's score g of families of two holders, by logarithms on shares.

    Parameters
    ----------
    search : SharedK2
        Whose pairs are counted under Paillier's scheme.
    holders : tuple of str
    families : list of tuple
    max_bytes : float
        Not used: numbers pass in small batches.
    """

    def __init__(self, search, holders, families, max_bytes):
        self._search, self._families = search, families
        self._links = search._branch("series")

    def prepare(self, talk):
        """Make nothing: all begins with the counts."""
        yield from ()

    def look_up(self, talk, counts):
        """Return {family: own share of its score}."""
        numbers, signs, sizes = [], [], []
        for family in self._families:
            own = counts[family]
            totals = own.sum(axis=0, dtype=own.dtype).ravel()
            if talk.name == talk.roster[0]:
                totals += own.dtype.type(len(own) - 1)
            numbers += [own.ravel(), totals]
            signs += [1] * own.size + [-1] * totals.size
            sizes.append(own.size + totals.size)
        values = yield from shared_stirling(
            talk,
            self._links,
            self._search.pair_counts,
            np.concatenate(numbers),
            self._search.index_bits,
        )
        values *= np.array(signs).astype(np.uint64)
        scores = np.add.reduceat(values, np.cumsum([0, *sizes[:-1]]))
        return dict(zip(self._families, scores))


class DistanceLookup(_FamilyLookup):
    """The same for "total_variation": two lookups, one after the other.

    First from the number of records of a configuration to those that each state but the
    last would have; then from the difference of counts to its absolute value. The
    differences of a configuration add up to zero, which gives those of the last state.
    """

    def _plan(self, book, max_bytes):
        which, self._sizes = [], []
        for family in self._families:
            n_cells, q = self._search._n_lookups(family)
            for table in self._search.terms(family).by_state[:-1]:
                which += [book.position(table)] * q
            self._sizes.append(n_cells)
        self._add("expected", book.tables(), which, max_bytes / 2)
        size = 2 << self._search.index_bits
        signed = np.arange(size)
        signed = np.minimum(signed, size - signed) << FRACTION_BITS - 1
        self._add("absolute", signed[None], [0] * sum(self._sizes), max_bytes / 2)

    def look_up(self, talk, counts):
        """Return {family: own share of its score}."""
        indices = []
        for family in self._families:
            own = counts[family]
            totals = own.sum(axis=0, dtype=own.dtype).ravel()
            indices += [totals] * (len(own) - 1)
        expected = yield from self._look_up(talk, "expected", indices)
        differences, start = [], 0
        for family in self._families:
            own = counts[family].reshape(len(counts[family]), -1)
            stop = start + own[:-1].size
            found = expected[start:stop].astype(own.dtype).reshape(own[:-1].shape)
            but_last, start = own[:-1] - found, stop
            last = -but_last.sum(axis=0, dtype=own.dtype)
            differences += [but_last.ravel(), last]
        distances = yield from self._look_up(talk, "absolute", differences)
        constants = [
            self._search.terms(family).constant(counts[family][0].size)
            for family in self._families
        ]
        return self._scores(talk, distances, self._sizes, constants)


class TableBook:
    """Different public tables, each kept once and filled up to a power of two."""

    def __init__(self, index_bits):
        self._size = 1 << index_bits
        self._tables = {}

    def position(self, table):
        """Return the number of a table, adding it if it is new."""
        # held here, so that its identity stays its own
        position, _ = self._tables.setdefault(id(table), (len(self._tables), table))
        return position

    def tables(self):
        """Return all tables as one array."""
        filled = np.zeros((len(self._tables), self._size), dtype=np.int64)
        for position, table in self._tables.values():
            filled[position, : len(table)] = table
        return filled
