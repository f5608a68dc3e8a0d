"""Tables of columns that different parties hold, and distances to a model, on shares.

A table of one holder's columns is counted by it alone. Of others, every holder gets a
share, by oblivious transfers. Half the L1 distance of a table to the one that a model
expects, both of all records, is the number of records that are in a cell too many: of
the difference of every cell, a lookup in one public table finds them.
"""

from functools import partial
from math import prod

import numpy as np

from skprivbn.crypto.shares import (
    Indicators,
    JointTable,
    SharedLookup,
    branch_links,
    joint_counts,
    together,
)

#: shares add up modulo 2^64
_RING = np.uint64


def apportion(weights, n):
    """Split n records in proportion to weights, in whole numbers.

    Parameters
    ----------
    weights : ndarray of int64
        Not negative, with a sum below 2^63 / n.
    n : int

    Returns
    -------
    records : ndarray of int64 of the same shape
        From 0 to n each; their sum is n unless all weights are zero.
    """
    ends = np.cumsum(weights)
    ends = n * ends // max(int(ends[-1]), 1)
    return np.diff(ends, prepend=0).reshape(weights.shape)


class SharedTables:
    """One party's shares of tables, each counted once and kept.

    Parameters
    ----------
    talk, links : Conversation and dict of Link
        To the other parties.
    owners : sequence of str
        Holder of every column.
    sizes : sequence of int
        Number of states of every column.
    columns : dict of int to ndarray
        The own columns: the code of every record.
    n_samples : int
    """

    def __init__(self, talk, links, owners, sizes, columns, n_samples):
        self._name, self._roster, self._links = talk.name, talk.roster, links
        self._owners, self._sizes = owners, sizes
        self._columns, self._n_samples = columns, n_samples
        self._known = {}

    def tables(self, talk, cliques):
        """Return own shares of all cells, one table after the other.

        Parameters
        ----------
        talk : Conversation
        cliques : list of tuple of int

        Returns
        -------
        shares : ndarray of uint64 of shape (n_cells,)
        """
        yield from self._count(talk, cliques)
        return np.concatenate([self._share(clique).ravel() for clique in cliques])

    def distances(self, talk, cliques, expected):
        """Return own shares of half the distance of every table to an expected one.

        Parameters
        ----------
        talk : Conversation
        cliques : list of tuple of int
        expected : list of ndarray of int64
            Records that a model expects in every cell, each from 0 to all of them.

        Returns
        -------
        shares : ndarray of uint64 of shape (n_cliques,)
        """
        crossing = self._crossing(cliques)
        sides = {
            label: _Distances(
                self._holders(cliques[numbers[0]]),
                branch_links(self._links, label, self._peers(cliques[numbers[0]])),
                [self._n_cells(cliques[i]) for i in numbers],
                self._n_samples,
            )
            for label, numbers in crossing.items()
        }
        # what does not need the counts is made beside them
        prepared = {label: side.prepare for label, side in sides.items()}
        counted = {"counts": partial(self._count, cliques=cliques)}
        yield from together(talk, counted | prepared)
        looked_up = {
            label: partial(
                sides[label].look_up,
                tables=[self._known[cliques[i]] for i in numbers],
                expected=[expected[i] for i in numbers],
            )
            for label, numbers in crossing.items()
        }
        found = yield from together(talk, looked_up)
        shares = np.zeros(len(cliques), dtype=_RING)
        for label, numbers in crossing.items():
            shares[numbers] = found[label]
        for number, clique in enumerate(cliques):
            if self._holders(clique) == (self._name,):
                own = self._known[clique].astype(np.int64)
                shares[number] = np.maximum(own - expected[number], 0).sum()
        return shares

    def _crossing(self, cliques):
        """Number the cliques that this party holds with others, by their holders."""
        found = {}
        for number, clique in enumerate(cliques):
            holders = self._holders(clique)
            if len(holders) > 1 and self._name in holders:
                places = " ".join(str(self._roster.index(name)) for name in holders)
                found.setdefault(f"distances {places}", []).append(number)
        # in an order on which all agree
        return dict(sorted(found.items()))

    def _holders(self, clique):
        owners = {self._owners[v] for v in clique}
        return tuple(name for name in self._roster if name in owners)

    def _peers(self, clique):
        return [name for name in self._holders(clique) if name != self._name]

    def _n_cells(self, variables):
        return prod(self._sizes[v] for v in variables)

    def _share(self, clique):
        """Own share of a table; others' tables have none of it."""
        if clique in self._known:
            return self._known[clique]
        return np.zeros(self._n_cells(clique), dtype=_RING)

    def _count(self, talk, cliques):
        """Share the tables that are not known yet."""
        # tables that are counted together, each with its holders' parts of the columns
        groups = {}
        for clique in dict.fromkeys(cliques):
            holders = self._holders(clique)
            if clique in self._known or self._name not in holders:
                continue
            parts = [[v for v in clique if self._owners[v] == h] for h in holders]
            if len(holders) == 1:
                counts = np.bincount(
                    self._codes(clique), minlength=self._n_cells(clique)
                )
                self._known[clique] = self._shaped(counts.astype(_RING), clique, clique)
            elif len(holders) == 2:
                # the tree of masks is for the part with more configurations, and serves
                # all tables that have this part and the other holder
                parts.sort(key=self._n_cells)
                group = tuple(parts[1]), self._owners[parts[0][0]]
                groups.setdefault(group, []).append((clique, parts))
            else:
                groups[clique] = [(clique, parts)]
        tables = [self._joint_table(members) for members in groups.values()]
        found = yield from joint_counts(
            talk, self._links, tables, self._n_samples, _RING
        )
        for members, shares in zip(groups.values(), found):
            start = 0
            for clique, parts in members:
                stop = start + self._n_cells(parts[0])
                axes = [v for part in parts for v in part]
                self._known[clique] = self._shaped(shares[start:stop], axes, clique)
                start = stop

    def _joint_table(self, members):
        """Tables that differ in their first holder's part only."""
        parts = members[0][1]
        holders = [self._owners[part[0]] for part in parts]
        blocks = [part for _, (part, *_) in members]
        mine = holders.index(self._name)
        own = blocks if mine == 0 else [parts[mine]]
        indicators = Indicators(
            [(partial(self._codes, v), self._n_cells(v)) for v in own]
        )
        n_columns = [sum(map(self._n_cells, blocks)), *map(self._n_cells, parts[1:])]
        return JointTable(holders, indicators, n_columns)

    def _codes(self, variables, rows=slice(None)):
        """Number the configurations of own columns, the last fastest."""
        codes = np.int64(0)
        for v in variables:
            codes = codes * self._sizes[v] + self._columns[v][rows]
        return codes

    def _shaped(self, counts, axes, clique):
        """Give cells the axes of their clique."""
        counts = counts.reshape([self._sizes[v] for v in axes])
        return counts.transpose([list(axes).index(v) for v in clique])


class _Distances:
    """Half the distances of tables that have the same holders.

    Parameters
    ----------
    holders : tuple of str
    links : dict of Link
    sizes : list of int
        Cells of every table.
    n_samples : int
    """

    def __init__(self, holders, links, sizes, n_samples):
        self._holders, self._links = holders, links
        self._starts = np.cumsum([0, *sizes[:-1]])
        # differences have a sign: the upper half of the table is for negative ones
        n_counts = 1 << n_samples.bit_length()
        surplus = np.append(np.arange(n_counts), np.zeros(n_counts, dtype=int))
        self._lookup = SharedLookup(holders, surplus[None], np.zeros(sum(sizes), int))

    def prepare(self, talk):
        """Make what does not need the counts."""
        return self._lookup.prepare(talk, self._links)

    def look_up(self, talk, tables, expected):
        """Return own shares of the distances."""
        differences = np.concatenate([table.ravel() for table in tables])
        if talk.name == self._holders[0]:
            expected = np.concatenate([table.ravel() for table in expected])
            differences -= expected.astype(_RING)
        surplus = yield from self._lookup.look_up(talk, self._links, differences)
        return np.add.reduceat(surplus, self._starts)
