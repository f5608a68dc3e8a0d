"""The log-likelihood of records whose columns several parties hold.

Under a public network it is a sum over all cells of the tables of every node with its
parents: how many records are in the cell, times the logarithm of a probability. The
parties share these counts as in learning, each multiplies its shares by the public
logarithms, and only the sum over everything is opened.
"""

from math import prod

import numpy as np

from skprivbn.bayesian_network._collective_protocol import CollectiveParty
from skprivbn.bayesian_network._tables import count_rows
from skprivbn.crypto.shares import joint_counts
from skprivbn.federation import PartyRefusal
from skprivbn.federation._models import rebuild_model
from skprivbn.protocols._columns import RING, ScoreTerms, SharedScoreParty

#: the sum, in units, has to be smaller
MAX_SUM = 2.0**62
MAX_CELLS = 1 << 16


class ColumnScoreParty(SharedScoreParty, CollectiveParty):
    """A holder of columns whose records are scored under a public network."""

    #: logarithms are whole multiples of this; their errors are half of it
    unit = 2.0**-24

    terms = ScoreTerms

    def prepare(self):
        """Read all that is said about the columns off the network."""
        model = rebuild_model(self.terms.model, len(self.terms.owners))
        self.network = network = model.network_
        self.sizes = [len(network.states[node]) for node in network.nodes]
        self.families = [
            [*(network.nodes.index(u) for u in network.parents[node]), v]
            for v, node in enumerate(network.nodes)
        ]
        if any(
            prod(self.sizes[v] for v in family) > MAX_CELLS for family in self.families
        ):
            raise PartyRefusal("refused")
        states = [list(network.states[node]) for node in network.nodes]
        self.read_columns(list(network.nodes), states)

    def _ring(self):
        return RING

    def count_records(self):
        """Return how many records are left after aligning."""
        return len(self.codes)

    def share_parts(self, talk, links):
        """Count every node with its parents; weigh the shares by the logarithms."""
        self.links, self.count_pair = links, joint_counts
        total = np.zeros(2, dtype=RING)
        owners = self.terms.owners
        for node, family in zip(self.network.nodes, self.families):
            among = {owners[v] for v in family}
            holders = [name for name in self.context.roster if name in among]
            if self.name not in holders:
                continue
            if len(holders) == 1:
                own = [self.variables.index(v) for v in family]
                counts = count_rows(self.codes, own, self.n_states)
            else:
                counts = yield from self._share(talk, family, holders, self.sizes)
            weights = _weights(self.network.cpts[node], len(self.codes), self.unit)
            total += (weights * counts.astype(RING).ravel()).sum(axis=1)
        return total


def _weights(table, n_records, unit):
    """Return logarithms in units and marks of impossible cells, in the ring."""
    impossible = table.ravel() == 0
    logarithms = np.log(table.ravel(), where=~impossible, out=np.zeros(table.size))
    if np.abs(logarithms).max() * n_records / unit > MAX_SUM / 2**10:
        raise PartyRefusal("out-of-range")
    units = np.rint(logarithms / unit).astype(np.int64)
    return np.stack([units.view(RING), impossible.astype(RING)])
