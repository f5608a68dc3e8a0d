"""Which tables are counted, what one person adds to them at most, and counting.

Counts are integers throughout: contributions that are fractions of a record are
rounded down to multiples of ``2 ** -FRACTION_BITS`` and counted in these units.
"""

from dataclasses import dataclass
from numbers import Integral

import numpy as np

FRACTION_BITS = 10


def resolve_cliques(cliques, nodes):
    """Return cliques as tuples of column positions.

    Parameters
    ----------
    cliques : {"chain", "tree"} or sequence of sequences of str or int
        "chain" joins neighbouring columns, "tree" every column with the last one;
        otherwise the columns of each clique, by name or position.
    nodes : sequence of str
        Names of the columns.

    Returns
    -------
    cliques : list of tuple of int
    """
    n = len(nodes)
    if isinstance(cliques, str):
        if n == 1:
            return [(0,)]
        if cliques == "chain":
            return [(i, i + 1) for i in range(n - 1)]
        return [(i, n - 1) for i in range(n - 1)]
    resolved = []
    for clique in cliques:
        members = [clique] if isinstance(clique, str | int | np.integer) else clique
        positions = tuple(_position(member, nodes) for member in members)
        if not positions:
            raise ValueError("a clique in cliques is empty: name at least one column")
        if len(set(positions)) != len(positions):
            raise ValueError(f"clique {clique!r} names a column twice")
        if frozenset(positions) in map(frozenset, resolved):
            raise ValueError(
                f"clique {clique!r} is given twice; it would be counted, and paid for, "
                "twice"
            )
        resolved.append(positions)
    if not resolved:
        raise ValueError("cliques is empty: give at least one clique of columns")
    return resolved


def _position(member, nodes):
    if isinstance(member, int | np.integer) and -len(nodes) <= member < len(nodes):
        return int(member) % len(nodes)
    if isinstance(member, str) and member in nodes:
        return list(nodes).index(member)
    raise ValueError(
        f"a clique names {member!r}, which is no column of X; the columns are "
        f"{list(nodes)}"
    )


def resolve_ties(cliques, tied):
    """Return cliques (perhaps with one more) and the number of each one's table.

    With ``tied="time"`` columns are time steps: cliques that are shifts of each other
    share a table, and the first time step gets a table of its own, so that the chain
    need not be stationary from the start.
    """
    if tied is None:
        return cliques, np.arange(len(cliques))
    if (0,) not in cliques:
        cliques = [(0,), *cliques]
    numbers, ties = {}, []
    for clique in cliques:
        shape = tuple(i - clique[0] for i in clique)
        key = clique if len(clique) == 1 else shape
        ties.append(numbers.setdefault(key, len(numbers)))
    return cliques, np.array(ties)


@dataclass(frozen=True)
class Contribution:
    """How much one person may add to the tables.

    Parameters
    ----------
    kind : {"record", "normalize", "clip"}
        One row per person; or several rows, each person's rows adding up to one
        record per clique; or several rows of which at most `max_records` count.
    max_records : int, default=1
        See "clip". Public.
    max_weight : int, default=1
        Bound on sample weights. Public.
    null_codes : tuple of int or None, default=None
        Code of each column's null state, -1 for columns without one. Rows whose
        clique is all null add nothing.
    """

    kind: str = "record"
    max_records: int = 1
    max_weight: int = 1
    null_codes: tuple[int, ...] | None = None

    def __post_init__(self):
        # Settings come from the coordinator: with a kind that no rule below knows, or
        # a bound of nothing, a person's records would count beyond the noise.
        if self.kind not in ("record", "normalize", "clip"):
            raise ValueError(f"unknown kind of contribution {self.kind!r}")
        for bound in (self.max_records, self.max_weight):
            if not isinstance(bound, Integral) or bound < 1:
                raise ValueError("max_records, max_weight: integers of at least 1")
        if self.kind != "clip" and self.max_records != 1:
            raise ValueError("max_records is for contribution='clip' only")

    @property
    def unit(self):
        """Integer counts per record."""
        return 2**FRACTION_BITS if self.kind == "normalize" else 1

    @property
    def per_clique(self):
        """Most that one person adds to the table of one clique, in integer counts."""
        return self.unit * self.max_records * self.max_weight


def sensitivities(ties, contribution, n_changed=1):
    """L1 and L2 sensitivity of all tables together, in integer counts.

    A person's records, taken together, change the table of a clique by at most
    `per_clique` in total, and a tied table by that times its number of cliques. All
    of it may fall into one cell, so that L1 and L2 norm of the change are the same
    within a table; over tables, L1 norms add up, and so do squared L2 norms. Where
    neighbours exchange a record for another, `n_changed` is 2: a cell loses it, another
    gets it.
    """
    per_table = np.bincount(ties) * contribution.per_clique
    return norms(np.repeat(per_table, n_changed))


def norms(changes):
    """Return L1 and L2 norm of the changes that one person makes.

    Parameters
    ----------
    changes : sequence of int

    Returns
    -------
    l1, l2 : int, float
    """
    changes = np.asarray(changes, dtype=np.int64)
    return int(changes.sum()), float(np.sqrt(np.sum(changes.astype(float) ** 2)))


def count_tables(codes, layout, contribution, individual=None, weight=None):
    """Count all tables.

    Parameters
    ----------
    codes : ndarray of int of shape (n_samples, n_columns)
        -1 is missing: the row is left out of the cliques that need the entry.
    layout : TableLayout
        Which tables.
    contribution : Contribution
        What one person may add.
    individual : ndarray of shape (n_samples,), default=None
        Who stands behind each row.
    weight : ndarray of int of shape (n_samples,), default=None
        Sample weights, at most ``contribution.max_weight``.

    Returns
    -------
    counts : ndarray of int64 of shape (n_parameters,)
        In units of ``1 / contribution.unit`` records.
    """
    if contribution.kind != "record":
        _, person = np.unique(individual, return_inverse=True)
    if contribution.kind == "clip":
        keep = _occurrence(person) < contribution.max_records
        codes, person = codes[keep], person[keep]
        weight = None if weight is None else weight[keep]
    counts = np.zeros(layout.n_parameters, dtype=np.int64)
    tables = layout.split(counts)
    columns, null_codes = np.ascontiguousarray(codes.T), contribution.null_codes
    partly = (columns < 0).any(axis=1) | (null_codes is not None)
    for clique, number in zip(layout.cliques, layout.ties):
        own, shape, counted = list(clique), tables[number].shape, slice(None)
        if partly[own].any():
            counted = (columns[own] >= 0).all(axis=0)
        if null_codes is not None:
            null = np.array(null_codes)[own, None]
            counted &= (columns[own] != null).any(axis=0)
        cells = columns[own[0]]
        for i, size in zip(own[1:], shape[1:]):
            cells = cells * size
            cells += columns[i]
        cells = cells[counted]
        if contribution.kind == "normalize":
            owners = person[counted]
            n_records = np.bincount(owners, minlength=person.max(initial=0) + 1)
            amount = contribution.unit // n_records[owners]
        elif weight is not None:
            amount = weight[counted]
        else:
            amount = None
        tables[number] += _integer_bincount(cells, amount, shape)
    return counts


def _integer_bincount(cells, amount, shape):
    n_cells = int(np.prod(shape))
    if amount is None:
        return np.bincount(cells, minlength=n_cells).reshape(shape)
    total = np.zeros(n_cells, dtype=np.int64)
    np.add.at(total, cells, amount)
    return total.reshape(shape)


def _occurrence(person):
    """For each row, how many earlier rows the same person has."""
    order = np.argsort(person, kind="stable")
    ordered = person[order]
    first = np.r_[True, ordered[1:] != ordered[:-1]] if len(person) else np.zeros(0)
    starts = np.maximum.accumulate(np.where(first, np.arange(len(person)), 0))
    rank = np.empty(len(person), dtype=np.intp)
    rank[order] = np.arange(len(person)) - starts
    return rank
