"""Scores of families on shares of their counts: lookups in public tables."""

from functools import partial

import numpy as np

from skprivbn.crypto.shares import SharedLookup, together
from skprivbn.structure.k2._scores import FRACTION_BITS


class ScoreLookup:
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
        self._search, self._holders = search, holders
        self._families = families
        label = f"scores {search._label(holders)}"
        peers = [name for name in holders if name != search.talk.name]
        self._links = search._branch(label, peers)
        book, which, sizes = TableBook(search.index_bits), [], []
        for family in families:
            terms = search.terms(family)
            n_cells, q = search._n_lookups(family)
            which += [book.position(terms.cell)] * n_cells
            which += [book.position(terms.configuration)] * q
            sizes.append(n_cells + q)
        self._starts = np.cumsum([0, *sizes[:-1]])
        self._lookup = SharedLookup(holders, book.tables(), np.array(which), max_bytes)

    def prepare(self, talk):
        """Make what does not need the counts."""
        return self._lookup.prepare(talk, self._links)

    def look_up(self, talk, counts):
        """Return {family: own share of its score}."""
        indices = []
        for family in self._families:
            own = counts[family]
            indices += [own.ravel(), own.sum(axis=0, dtype=own.dtype).ravel()]
        values = yield from self._lookup.look_up(
            talk, self._links, np.concatenate(indices)
        )
        scores = np.add.reduceat(values, self._starts)
        if talk.name == self._holders[0]:
            constants = [
                self._search.terms(family).constant * counts[family][0].size
                for family in self._families
            ]
            scores += np.array(constants, dtype=np.int64).astype(np.uint64)
        return dict(zip(self._families, scores))


class DistanceLookup:
    """The same for "total_variation": two lookups, one after the other.

    First from the number of records of a configuration to those that each state but the
    last would have; then from the difference of counts to its absolute value. The
    differences of a configuration add up to zero, which gives those of the last state.

    Parameters
    ----------
    search : SharedK2
    holders : tuple of str
    families : list of tuple
    max_bytes : float
        Of what is prepared at a time.
    """

    def __init__(self, search, holders, families, max_bytes):
        self._search, self._holders = search, holders
        self._families = families
        label, bits = search._label(holders), search.index_bits
        peers = [name for name in holders if name != search.talk.name]
        self._links = {
            stage: search._branch(f"{stage} {label}", peers)
            for stage in ("expected", "absolute")
        }
        book, which, sizes = TableBook(bits), [], []
        for family in families:
            n_cells, q = search._n_lookups(family)
            for table in search.terms(family).by_state[:-1]:
                which += [book.position(table)] * q
            sizes.append(n_cells)
        self._starts = np.cumsum([0, *sizes[:-1]])
        signed = np.arange(2 << bits)
        signed = np.minimum(signed, (2 << bits) - signed) << FRACTION_BITS - 1
        self._lookups = {
            "expected": SharedLookup(
                holders, book.tables(), np.array(which), max_bytes / 2
            ),
            "absolute": SharedLookup(
                holders, signed[None], np.zeros(sum(sizes), dtype=int), max_bytes / 2
            ),
        }

    def prepare(self, talk):
        """Make what does not need the counts."""
        sides = {
            stage: partial(lookup.prepare, links=self._links[stage])
            for stage, lookup in self._lookups.items()
        }
        return together(talk, sides)

    def look_up(self, talk, counts):
        """Return {family: own share of its score}."""
        indices = []
        for family in self._families:
            own = counts[family]
            totals = own.sum(axis=0, dtype=own.dtype).ravel()
            indices += [totals] * (len(own) - 1)
        expected = yield from self._look_up(talk, "expected", np.concatenate(indices))
        differences, start = [], 0
        for family in self._families:
            own = counts[family].reshape(len(counts[family]), -1)
            stop = start + own[:-1].size
            found = expected[start:stop].astype(own.dtype).reshape(own[:-1].shape)
            but_last, start = own[:-1] - found, stop
            last = -but_last.sum(axis=0, dtype=own.dtype)
            differences += [but_last.ravel(), last]
        distances = yield from self._look_up(
            talk, "absolute", np.concatenate(differences)
        )
        scores = np.add.reduceat(distances, self._starts)
        if talk.name == self._holders[0]:
            constants = [
                self._search.terms(family).constant(counts[family][0].size)
                for family in self._families
            ]
            scores += np.array(constants, dtype=np.int64).astype(np.uint64)
        return dict(zip(self._families, scores))

    def _look_up(self, talk, stage, indices):
        return self._lookups[stage].look_up(talk, self._links[stage], indices)


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
