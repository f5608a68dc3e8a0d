"""The log-likelihood of records whose columns several parties hold.

Under a public network it is a sum over all cells of the tables of every node with its
parents: how many records are in the cell, times the logarithm of a probability. The
parties share these counts as in learning, each multiplies its shares by the public
logarithms, and only the sum over everything is opened.
"""

from collections.abc import Generator
from math import prod
from typing import Any

import numpy as np

from skprivbn.bayesian_network._checks import MAX_STATES, check_found
from skprivbn.bayesian_network._labels import MISSING, encode
from skprivbn.federation import Me, PartyRefusal, program
from skprivbn.federation._models import rebuild_model
from skprivbn.programs._column_scores import RING, ScoreTerms, open_score
from skprivbn.programs._columns import (
    find_records,
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
    if any(prod(n_states[v] for v in family) > MAX_CELLS for family in families):
        raise PartyRefusal("refused")
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

    return (yield from open_score(me, talk, len(codes), share, UNIT))


def read_codes(
    me: Me, names: list[str], states: list | None
) -> tuple[np.ndarray, dict[str, list]]:
    """Turn the labels of the own columns into codes, or refuse what are none.

    Parameters
    ----------
    me : Me
    names : list of str
        Of all columns.
    states : list of (list or None) or None
        Labels of all columns; of those without, the labels that occur.

    Returns
    -------
    codes : ndarray of int of shape (n_records, n_own_columns)
    states : dict of str to list
        Labels of the own columns.
    """
    X, own = own_table(me), own_columns(me)
    declared = states or [None] * len(names)
    held = [names[v] for v in own]
    try:
        found = {
            names[v]: declared[v] or check_found(names[v], column.tolist())
            for v, column in zip(own, X.T)
        }
        codes = encode(X, held, found)
    except ValueError:
        raise PartyRefusal("invalid-data") from None
    if (codes == MISSING).any() or max(map(len, found.values())) > MAX_STATES:
        raise PartyRefusal("invalid-data")
    return codes, found


def _weights(table, n_records):
    """Return logarithms in units and marks of impossible cells, in the ring."""
    impossible = table.ravel() == 0
    logarithms = np.log(table.ravel(), where=~impossible, out=np.zeros(table.size))
    if np.abs(logarithms).max() * n_records / UNIT > MAX_SUM / 2**10:
        raise PartyRefusal("out-of-range")
    units = np.rint(logarithms / UNIT).astype(np.int64)
    return np.stack([units.view(RING), impossible.astype(RING)])
