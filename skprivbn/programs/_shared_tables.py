"""Tables of columns that different parties hold: every holder gets a share of each.

A table of one holder's columns is counted by it alone. Of two holders, the last
configuration of each follows from its own counts and is not computed on shares.
Whether a table has small counts is found on shares, before anybody sees one. Half
the L1 distance of a table to the one that a model expects, both of all records, is the
number of records that are in a cell too many: of the difference of every cell, a lookup
in one public table finds them.
"""

from collections.abc import Callable, Generator, Sequence
from functools import partial
from itertools import combinations
from math import prod
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, maximum_flow

from skprivbn.crypto.shares import (
    Conversation,
    Indicators,
    JointTable,
    SharedLookup,
    branch_links,
    joint_counts,
    open_numbers,
    shared_lookup,
    together,
)
from skprivbn.federation import PartyRefusal
from skprivbn.federation.gate import are_few


def check_unlike(
    codes: np.ndarray, n_states: Sequence[int], least: int, at: Sequence[int]
) -> None:
    """Refuse own columns of labels of which two differ in some, but few, records.

    A difference of tables, or of sums, of both with another holder's columns is about
    these records, and the holder of both knows which they are. Columns that have rare
    labels are left to those who judge tables.

    Parameters
    ----------
    codes : ndarray of int of shape (n_records, n_columns)
    n_states : sequence of int
    least : int
        The smallest number of records that may be told of.
    at : sequence of int
        Positions of the columns, to name them.
    """
    if least <= 1:
        return
    counts = [np.bincount(column, minlength=n) for column, n in zip(codes.T, n_states)]
    common = [v for v, count in enumerate(counts) if not are_few(count, least).any()]
    for u, v in combinations(common, 2):
        pairs = codes[:, u].astype(np.int64) * n_states[v] + codes[:, v]
        table = np.bincount(pairs, minlength=n_states[u] * n_states[v])
        if differ_in_few(table.reshape(n_states[u], n_states[v]), least):
            why = f"two columns are alike, but for fewer than {least} records"
            raise PartyRefusal("too-detailed", why, [at[u], at[v]])


def differ_in_few(table: np.ndarray, least: int) -> bool:
    """Tell whether labels of one column are nearly labels of another.

    Parameters
    ----------
    table : ndarray of int of shape (n_states, n_states of the other)
        Of both columns.
    least : int

    Returns
    -------
    is_so : bool
        Whether records with some labels of the one and those with some labels of the
        other are not the same, but for fewer than `least`. These are cuts of the graph
        whose edges are the cells.

    Examples
    --------
    >>> differ_in_few(np.array([[60, 0], [1, 40]]), 5)
    True
    >>> differ_in_few(np.array([[60, 0], [5, 40]]), 5)
    False
    """
    if not are_few(table, least).any():
        return False
    n = len(table)
    graph = np.zeros((table.size // n + n,) * 2, dtype=np.int64)
    graph[:n, n:], graph[n:, :n] = table, table.T
    n_parts, part = connected_components(graph)
    members = [np.flatnonzero(part == k) for k in range(n_parts)]
    return any(_smallest_cut(graph[np.ix_(m, m)]) < least for m in members)


def _smallest_cut(graph):
    """Return the weight of the smallest cut: it parts the first node from another."""
    capacities = csr_array(graph.astype(np.int32))
    flows = (maximum_flow(capacities, 0, node) for node in range(1, len(graph)))
    return min((flow.flow_value for flow in flows), default=np.inf)


class ColumnTables:
    """One party's shares of tables, each counted once and kept.

    Parameters
    ----------
    talk : Conversation
    links : dict of str to Link
    owners : sequence of str
        Holder of every column.
    n_states : sequence of int
        Of every column.
    codes : dict of int to ndarray
        The own columns: the code of every record.
    ring : dtype
        Unsigned, of shares.
    count_pairs : callable, default=joint_counts
        Shares counts between two holders.
    """

    def __init__(
        self,
        talk: Conversation,
        links: dict,
        owners: Sequence[str],
        n_states: Sequence[int],
        codes: dict[int, np.ndarray],
        ring: Any,
        count_pairs: Callable = joint_counts,
    ) -> None:
        self._talk, self._links = talk, links
        self._owners, self._n_states, self._codes = owners, n_states, codes
        self._ring, self._count_pairs = np.dtype(ring), count_pairs
        self._n_records = min((len(column) for column in codes.values()), default=0)
        self._known: dict[tuple[int, ...], np.ndarray] = {}

    def share(
        self, tables: Sequence[tuple[int, ...]]
    ) -> Generator[Any, Any, list[np.ndarray]]:
        """Share tables, all in the same rounds.

        Parameters
        ----------
        tables : sequence of tuple of int
            Columns of each.

        Returns
        -------
        shares : list of ndarray
            Own shares, with the axes of each table; zeros where this party holds no
            column.
        """
        yield from self._count(self._talk, tables)
        return [self._known[variables].copy() for variables in tables]

    def distances(
        self, tables: Sequence[tuple[int, ...]], expected: Sequence[np.ndarray]
    ) -> Generator[Any, Any, np.ndarray]:
        """Share half the distance of every table to an expected one.

        Parameters
        ----------
        tables : sequence of tuple of int
        expected : sequence of ndarray of int64
            Records that a model expects in every cell, each from 0 to all of them.

        Returns
        -------
        shares : ndarray of shape (n_tables,)
        """
        # differences have a sign: the upper half of the table is for negative ones
        n_counts = self._n_counts()
        surplus = np.append(np.arange(n_counts), np.zeros(n_counts, dtype=int))
        return (yield from self._look_up(tables, surplus, expected))

    def are_few(
        self, tables: Sequence[tuple[int, ...]], least: int
    ) -> Generator[Any, Any, np.ndarray]:
        """Find the tables that have counts too small to be told.

        Parameters
        ----------
        tables : sequence of tuple of int
        least : int
            The smallest count, but none, that may be told.

        Returns
        -------
        few : ndarray of bool of shape (n_tables,)
            Nothing else is opened, and this to the holders of a table; False for all
            others.
        """
        small = are_few(np.arange(self._n_counts()), least).astype(np.int64)
        n_small = yield from self._look_up(tables, small)
        most = min(self._n_records, max(map(self._n_cells, tables), default=0))
        is_any = np.minimum(np.arange(1 << most.bit_length()), 1)[None]

        def open_whether_any(talk, label, numbers):
            holders = self._holders(tables[numbers[0]])
            links, which = branch_links(self._links, label), np.zeros_like(numbers)
            shares = yield from shared_lookup(
                talk, links, holders, n_small[numbers], is_any, which
            )
            return (yield from open_numbers(talk, holders, shares))

        crossing = self._crossing(tables, "whether any")
        sides = {
            label: partial(open_whether_any, label=label, numbers=np.array(numbers))
            for label, numbers in crossing.items()
        }
        found = yield from together(self._talk, sides)
        few = [n > 0 and self._peers(v) == [] for n, v in zip(n_small, tables)]
        for label, numbers in crossing.items():
            for number, is_few in zip(numbers, found[label]):
                few[number] = is_few > 0
        return np.array(few, dtype=bool)

    def _look_up(self, tables, entries, expected=None):
        """Share sums of public entries: of every count, the entry of that number."""
        talk, crossing = self._talk, self._crossing(tables, "lookups")
        if expected is None:
            expected = [np.zeros((), dtype=np.int64)] * len(tables)
        sides = {
            label: _CellLookups(
                self._holders(tables[numbers[0]]),
                branch_links(self._links, label, self._peers(tables[numbers[0]])),
                [self._n_cells(tables[i]) for i in numbers],
                entries,
            )
            for label, numbers in crossing.items()
        }
        # what does not need the counts is made beside them
        prepared = {label: side.prepare for label, side in sides.items()}
        counted = {"counts": partial(self._count, tables=tables)}
        yield from together(talk, counted | prepared)
        looked_up = {
            label: partial(
                sides[label].look_up,
                tables=[self._known[tables[i]] for i in numbers],
                expected=[expected[i] for i in numbers],
            )
            for label, numbers in crossing.items()
        }
        found = yield from together(talk, looked_up)
        shares = np.zeros(len(tables), dtype=self._ring)
        for label, numbers in crossing.items():
            shares[numbers] = found[label]
        for number, variables in enumerate(tables):
            if self._holders(variables) == [talk.name]:
                own = self._known[variables].astype(np.int64) - expected[number]
                shares[number] = entries[own].sum()
        return shares

    def _n_counts(self):
        """Return a power of two above all counts."""
        return 1 << self._n_records.bit_length()

    def _crossing(self, tables, purpose):
        """Number the tables that this party holds with others, by their holders."""
        found = {}
        for number, variables in enumerate(tables):
            holders = self._holders(variables)
            if len(holders) > 1 and self._talk.name in holders:
                places = " ".join(str(self._talk.roster.index(n)) for n in holders)
                found.setdefault(f"{purpose} {places}", []).append(number)
        # in an order on which all agree
        return dict(sorted(found.items()))

    def _holders(self, variables):
        owners = {self._owners[v] for v in variables}
        return [name for name in self._talk.roster if name in owners]

    def _peers(self, variables):
        return [name for name in self._holders(variables) if name != self._talk.name]

    def _n_cells(self, variables):
        return prod(self._n_states[v] for v in variables)

    def _joint(self, variables, rows=slice(None)):
        """Number the configurations of own columns, the last fastest."""
        joint = np.int64(0)
        for v in variables:
            joint = joint * self._n_states[v] + self._codes[v][rows]
        return joint

    def _own_counts(self, variables):
        counts = np.bincount(self._joint(variables), minlength=self._n_cells(variables))
        return counts.astype(self._ring)

    def _count(self, talk, tables):
        """Share the tables that are not known yet."""
        # tables that are counted together, each with its holders' parts of the columns
        kinds = {"pairs": {}, "more": {}}
        for variables in dict.fromkeys(tables):
            holders = self._holders(variables)
            parts = [
                sorted(v for v in variables if self._owners[v] == h) for h in holders
            ]
            if variables in self._known:
                continue
            if talk.name not in holders:
                shape = [self._n_states[v] for v in variables]
                self._known[variables] = np.zeros(shape, dtype=self._ring)
            elif len(holders) == 1:
                self._keep(variables, parts, self._own_counts(*parts))
            elif len(holders) == 2:
                # the tree of masks is for the part with more configurations, and serves
                # all tables that have this part and the other holder
                parts.sort(key=self._n_cells)
                group = tuple(parts[1]), self._owners[parts[0][0]]
                kinds["pairs"].setdefault(group, []).append((variables, parts))
            else:
                kinds["more"][variables] = [(variables, parts)]
        found = yield from together(
            talk,
            {
                kind: partial(self._share_groups, kind=kind, groups=[*groups.values()])
                for kind, groups in kinds.items()
            },
        )
        for kind, groups in kinds.items():
            for members, shares in zip(groups.values(), found[kind]):
                start = 0
                for variables, parts in members:
                    stop = start + self._n_counted(parts)[0]
                    counts = self._with_margins(parts, shares[start:stop])
                    self._keep(variables, parts, counts)
                    start = stop

    def _share_groups(self, talk, kind, groups):
        count = self._count_pairs if kind == "pairs" else joint_counts
        links = branch_links(self._links, kind)
        tables = [self._joint_table(members) for members in groups]
        return count(talk, links, tables, self._n_records, self._ring)

    def _n_counted(self, parts):
        """Configurations of each holder that are counted."""
        return [self._n_cells(part) - (len(parts) == 2) for part in parts]

    def _joint_table(self, members):
        """Tables that differ in their first holder's part only."""
        counted = [self._n_counted(parts) for _, parts in members]
        n_columns = [sum(first for first, *_ in counted), *counted[0][1:]]
        holders = [self._owners[part[0]] for part in members[0][1]]
        mine = holders.index(self._talk.name)
        # they have the other parts in common
        own = list(zip(members, counted))[: 1 if mine else None]
        blocks = [(partial(self._joint, p[mine]), n[mine]) for (_, p), n in own]
        return JointTable(holders, Indicators(blocks), n_columns)

    def _with_margins(self, parts, counts):
        """Append what follows from own counts to a share of a table of two holders."""
        if len(parts) > 2:
            return counts
        mine = [self._owners[part[0]] for part in parts].index(self._talk.name)
        margin = self._own_counts(parts[mine])
        last = -counts.sum(axis=1, dtype=self._ring)
        if mine == 0:
            last += margin[:-1]
        counts = np.column_stack([counts, last])
        last = -counts.sum(axis=0, dtype=self._ring)
        if mine == 1:
            last += margin
        return np.vstack([counts, last])

    def _keep(self, variables, parts, counts):
        """Keep a share with the axes of its table."""
        axes = [v for part in parts for v in part]
        counts = counts.reshape([self._n_states[v] for v in axes])
        self._known[variables] = counts.transpose([axes.index(v) for v in variables])


class _CellLookups:
    """Sums over the cells of tables that have the same holders.

    Parameters
    ----------
    holders : list of str
    links : dict of Link
    sizes : list of int
        Cells of every table.
    entries : ndarray of int64
        Public: what is added up.
    """

    def __init__(self, holders, links, sizes, entries):
        self._holders, self._links, self._sizes = holders, links, sizes
        self._lookup = SharedLookup(holders, entries[None], np.zeros(sum(sizes), int))

    def prepare(self, talk):
        """Make what does not need the counts."""
        return self._lookup.prepare(talk, self._links)

    def look_up(self, talk, tables, expected):
        """Return own shares of the sums."""
        if talk.name == self._holders[0]:
            tables = [t - e.astype(t.dtype) for t, e in zip(tables, expected)]
        numbers = np.concatenate([table.ravel() for table in tables])
        found = yield from self._lookup.look_up(talk, self._links, numbers)
        return np.add.reduceat(found, np.cumsum([0, *self._sizes[:-1]]))
