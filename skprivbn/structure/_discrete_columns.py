"""Labels in columns that several parties hold: codes, and the score of a network.

The log-likelihood of records under a public network is a sum over all cells of the
tables of every node with its parents: how many records are in the cell, times the
logarithm of a probability. The parties share these counts as in learning, each
multiplies its shares by the public logarithms, and only the sum over everything is
opened.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from skprivbn.bayesian_network._base import check_found
from skprivbn.bayesian_network._labels import MISSING, encode, is_missing
from skprivbn.federation import Me, PartyRefusal, program
from skprivbn.federation._models import rebuild_model
from skprivbn.federation.program import require
from skprivbn.partition import VerticalPartition
from skprivbn.programs._columns import (
    RING,
    ColumnsTerms,
    CountBackend,
    ScoreTerms,
    find_records,
    open_score,
    own_columns,
    own_table,
    start_talk,
)
from skprivbn.programs._shared_tables import ColumnTables

#: the sum, in units, has to be smaller
MAX_SUM = 2.0**62
MAX_CELLS = 1 << 16
#: logarithms are whole multiples of this; their errors are half of it
UNIT = 2.0**-24
#: rows that are encoded at a time
_CHUNK = 1 << 16


@dataclass(frozen=True)
class LabelTerms(ColumnsTerms):
    """Columns of labels, and how their holders count together.

    Parameters
    ----------
    states : list of (list or None) or None
        Public labels of every column, as far as they are declared.
    backend : CountBackend
    """

    states: list[list[Any] | None] | None
    backend: CountBackend

    def for_tests_only(self):
        """Tell whether keys of counts can be broken."""
        return self.backend.is_weak


def encode_columns(
    X: np.ndarray,
    names: Sequence,
    declared: Sequence[list | None] | None = None,
    strict: bool = True,
    gaps: bool = False,
) -> tuple[np.ndarray, list[list]]:
    """Return columns of labels as codes, or say why they cannot be.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_columns)
    names : sequence
        For messages.
    declared : list of (list or None), default=None
        Public labels of every column; None takes those that occur.
    strict : bool, default=True
        Otherwise nothing in a record raises, since noise follows: what is missing or
        no state counts as the first state. All labels must be declared.
    gaps : bool, default=False
        Whether entries may be missing: these have the code after the last state's.

    Returns
    -------
    codes : ndarray of int, shape (n_samples, n_columns)
        The smallest integers that do, column by column.
    states : list of list
        Labels of every column, in the order of their codes.
    """
    states = [
        labels or check_found(name, _distinct(name, column, gaps))
        for name, labels, column in zip(names, declared or [None] * len(names), X.T)
    ]
    largest = max((len(labels) for labels in states), default=1)
    # a byte per entry: the memory that grows with records
    codes = np.empty(X.shape, dtype=np.min_scalar_type(largest), order="F")
    for j, (name, labels) in enumerate(zip(names, states)):
        for start in range(0, len(X), _CHUNK):
            rows = slice(start, start + _CHUNK)
            found = encode(X[rows, j : j + 1], [name], {name: labels}, strict)[:, 0]
            if strict and not gaps and (found == MISSING).any():
                raise _missing(name)
            codes[rows, j] = np.where(
                found == MISSING, len(labels) if gaps else 0, found
            )
    return codes, states


def _distinct(name, column, gaps):
    """Return the labels of a column; without gaps, none may be missing."""
    labels = set()
    for start in range(0, len(column), _CHUNK):
        part = column[start : start + _CHUNK]
        # of numbers that are whole a few are left; others may be equal and differ
        labels.update((np.unique(part) if part.dtype.kind in "iu" else part).tolist())
    known = {label for label in labels if not is_missing(label)}
    if len(known) < len(labels) and not (gaps and known):
        raise _missing(name)
    return known


def _missing(name):
    return ValueError(
        f"column {name!r} has missing entries: drop or complete these rows"
    )


def check_columns_at_hand(
    partition: Any, states: list | None, gaps: bool = False
) -> list[int] | None:
    """Say what is wrong with tables at hand; remote parties only refuse.

    Parameters
    ----------
    partition : VerticalPartition or RemoteColumns
    states : list of (list or None) or None
        Public labels of every column.
    gaps : bool, default=False
        As of :func:`encode_columns`.

    Returns
    -------
    sizes : list of int or None
        Number of states of every column; None if columns are remote.
    """
    if not isinstance(partition, VerticalPartition):
        return None
    names, sizes = partition.feature_names, {}
    declared = dict(zip(names, states or [None] * len(names)))
    for party, held in partition.columns.items():
        table = partition._blocks[party]["X"]
        labels = [declared[name] for name in held]
        _, found = encode_columns(table, held, labels, gaps=gaps)
        sizes |= {name: len(labels) for name, labels in zip(held, found)}
    return [sizes[name] for name in names]


def read_codes(
    me: Me,
    names: Sequence,
    states: list | None,
    strict: bool = True,
    gaps: bool = False,
) -> tuple[np.ndarray, list[list]]:
    """Turn the labels of the own columns into codes, or refuse what are none.

    Parameters
    ----------
    me : Me
    names : sequence
        Of all columns.
    states : list of (list or None) or None
        Labels of all columns; of those without, the labels that occur.
    strict, gaps : bool
        As of :func:`encode_columns`.

    Returns
    -------
    codes : ndarray of int of shape (n_records, n_own_columns)
    states : list of list
        Labels of the own columns.
    """
    own = own_columns(me)
    declared = [None if states is None else states[v] for v in own]
    X, own_names = own_table(me), [names[v] for v in own]
    return encode_or_refuse(X, range(len(own)), own_names, declared, strict, gaps)


def encode_or_refuse(
    X: np.ndarray, at: Sequence[int], names: Sequence, declared: Sequence, *options: Any
) -> tuple[np.ndarray, list[list]]:
    """Encode some columns of a party's table, or refuse and tell which are no labels.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_own_columns)
    at : sequence of int
        Positions of the columns.
    names, declared, *options :
        As of :func:`encode_columns`, for these columns.

    Returns
    -------
    codes, states :
        As of :func:`encode_columns`.
    """

    def are_labels(i, name, labels):
        try:
            return bool(encode_columns(X[:, [i]], [name], [labels], *options))
        except ValueError:
            return False

    try:
        return encode_columns(X[:, at], names, declared, *options)
    except ValueError:
        columns = zip(at, names, declared)
        wrong = [column[0] for column in columns if not are_labels(*column)]
        raise PartyRefusal("invalid-data", columns=wrong) from None


def can_be_counts(
    table: np.ndarray,
    own: Sequence[int],
    margin: np.ndarray,
    step: int = 1,
    gaps: bool = False,
) -> bool:
    """Tell whether an opened table can hold counts of the records.

    Whose share is wrong where it cannot, nobody knows. Shifts that keep all margins,
    and no cell negative, are not seen.

    Parameters
    ----------
    table : ndarray of int
    own : sequence of int
        Its axes that are columns of this party.
    margin : ndarray of int
        Own counts of these; without any, the number of records.
    step : int, default=1
        Counts were rounded down to multiples of it.
    gaps : bool, default=False
        Whether records are left out that lack an entry of another party's column.

    Returns
    -------
    possible : bool
    """
    others = tuple(axis for axis in range(table.ndim) if axis not in own)
    lost = margin - table.sum(axis=others)
    most = (step - 1) * prod(table.shape[axis] for axis in others)
    if gaps and others:
        most = margin.max()
    whole = (table >= 0) & (table % step == 0)
    return bool(whole.all() and (lost >= 0).all() and (lost <= most).all())


@program(ScoreTerms)
def score_columns(me: Me) -> Generator[Any, Any, dict]:
    """Score the records that all parties have under a public network."""
    talk, owners = start_talk(me), me.terms.owners
    network = rebuild_model(me.terms.model, len(owners)).network_
    nodes = list(network.nodes)
    states = [list(network.states[node]) for node in nodes]
    n_states = [len(labels) for labels in states]
    families = [
        (*(nodes.index(u) for u in network.parents[node]), v)
        for v, node in enumerate(nodes)
    ]
    sizes = (prod(n_states[v] for v in family) for family in families)
    require(max(sizes, default=0) <= MAX_CELLS)
    codes, _ = read_codes(me, nodes, states)
    codes = codes[(yield from find_records(me, talk))]

    def share(links):
        own = dict(zip(own_columns(me), codes.T))
        tables = ColumnTables(talk, links, owners, n_states, own, RING)
        shares = yield from tables.share(families)
        total = np.zeros(2, dtype=RING)
        for node, counts in zip(nodes, shares):
            weights = _weights(network.cpts[node], len(codes))
            total += (weights * counts.ravel()).sum(axis=1)
        return total

    return (yield from open_score(talk, len(codes), share, UNIT))


def _weights(table, n_records):
    """Return logarithms in units and marks of impossible cells, in the ring."""
    impossible = table.ravel() == 0
    logarithms = np.log(table.ravel(), where=~impossible, out=np.zeros(table.size))
    largest = np.abs(logarithms).max() * n_records / UNIT
    require(largest <= MAX_SUM / 2**10, "out-of-range")
    units = np.rint(logarithms / UNIT).astype(np.int64)
    return np.stack([units.view(RING), impossible.astype(RING)])
