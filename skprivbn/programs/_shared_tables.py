"""Tables of columns that different parties hold: every holder gets a share of each.

A table of one holder's columns is counted by it alone. Of two holders, the last
configuration of each follows from its own counts and is not computed on shares.
"""

from collections.abc import Callable, Generator, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from skprivbn.crypto.shares import (
    Conversation,
    Indicators,
    JointTable,
    branch_links,
    joint_counts,
    together,
)


class ColumnTables:
    """One party's side of counting columns together.

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

    def share(
        self, tables: Sequence[tuple[int, ...]]
    ) -> Generator[Any, Any, list[np.ndarray]]:
        """Share tables, all in the same rounds.

        Parameters
        ----------
        tables : sequence of tuple of int
            Columns of each, all different.

        Returns
        -------
        shares : list of ndarray
            Own shares, with the axes of each table; zeros where this party holds no
            column.
        """
        held = {variables: self._holders(variables) for variables in tables}
        # tables of two holders are counted together, and those of more
        kinds: dict[str, list] = {"pairs": [], "more": []}
        for variables, holders in held.items():
            is_mine = len(holders) > 1 and self._talk.name in holders
            if is_mine and prod(self._n_columns(variables, holders)):
                kinds["pairs" if len(holders) == 2 else "more"].append(variables)
        found = yield from together(
            self._talk,
            {
                kind: lambda branch, kind=kind: self._count(
                    branch, kind, kinds[kind], held
                )
                for kind in kinds
            },
        )
        counted = {
            variables: counts
            for kind in kinds
            for variables, counts in zip(kinds[kind], found[kind])
        }
        return [self._complete(v, held[v], counted.get(v)) for v in tables]

    def _holders(self, variables):
        owners = {self._owners[v] for v in variables}
        return [name for name in self._talk.roster if name in owners]

    def _parts(self, variables, holders):
        """Columns of each holder."""
        return [[v for v in variables if self._owners[v] == name] for name in holders]

    def _sizes(self, variables, holders):
        """Configurations of each holder's columns."""
        parts = self._parts(variables, holders)
        return [prod(self._n_states[v] for v in part) for part in parts]

    def _n_columns(self, variables, holders):
        """Configurations of each holder that are counted."""
        two = len(holders) == 2
        return [size - two for size in self._sizes(variables, holders)]

    def _joint(self, variables, rows=slice(None)):
        """Number the configurations of the own columns, the last fastest."""
        joint = np.int64(0)
        for v in variables:
            if v in self._codes:
                joint = joint * self._n_states[v] + self._codes[v][rows]
        return joint

    def _count(self, talk, kind, tables, held):
        joint = []
        for variables in tables:
            holders = held[variables]
            n_columns = self._n_columns(variables, holders)
            mine = n_columns[holders.index(talk.name)]
            indicators = Indicators([(partial(self._joint, variables), mine)])
            joint.append(JointTable(holders, indicators, n_columns))
        count = self._count_pairs if kind == "pairs" else joint_counts
        links = branch_links(self._links, kind)
        return count(talk, links, joint, self._n_records, self._ring)

    def _complete(self, variables, holders, counts):
        """Give a share the axes of its table, with what follows from own counts."""
        shape = [self._n_states[v] for v in variables]
        if self._talk.name not in holders:
            return np.zeros(shape, dtype=self._ring)
        sizes, mine = self._sizes(variables, holders), holders.index(self._talk.name)
        if len(holders) < 3:
            own = np.bincount(self._joint(variables), minlength=sizes[mine])
            own = own.astype(self._ring)
        if len(holders) == 1:
            counts = own
        elif len(holders) == 2:
            if counts is None:
                n_columns = self._n_columns(variables, holders)
                counts = np.zeros(n_columns, dtype=self._ring)
            counts = _add_margins(counts, own, first=mine == 0)
        axes = [v for part in self._parts(variables, holders) for v in part]
        counts = counts.reshape([self._n_states[v] for v in axes])
        return counts.transpose([axes.index(v) for v in variables])


def _add_margins(counts, margin, first):
    """Append the last column and row to a share of a table of two holders."""
    ring = counts.dtype
    last = -counts.sum(axis=1, dtype=ring)
    if first:
        last += margin[:-1]
    counts = np.column_stack([counts, last])
    last = -counts.sum(axis=0, dtype=ring)
    if not first:
        last += margin
    return np.vstack([counts, last])
