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
from skprivbn.crypto.two_party import joint_counts, open_links, refresh_numbers
from skprivbn.exceptions import PartitionError
from skprivbn.federation import PartyRefusal, operation
from skprivbn.federation._models import MADE_UP, describe_model, rebuild_model
from skprivbn.partition import check_vertical

__all__ = ["ColumnScoreParty", "add_column_scores"]

#: logarithms are whole multiples of this; their errors are half of it
UNIT = 2.0**-24
#: the sum, in these units, has to be smaller
MAX_SUM = 2.0**62
MAX_CELLS = 1 << 16
_RING = np.dtype(np.uint64)


class ColumnScoreParty(CollectiveParty):
    """A holder of columns whose records are scored under a public network."""

    @classmethod
    def models(cls, settings):
        """Return the network."""
        return [settings["model"]]

    @classmethod
    def shows_rows(cls, settings):
        """Tell that no rows are shown."""
        return False

    def prepare(self):
        """Read all that is said about the columns off the network."""
        settings = self.settings
        model = rebuild_model(settings["model"], len(settings["owners"]))
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
        self.settings = settings | {
            "names": list(network.nodes),
            "states": [list(network.states[node]) for node in network.nodes],
        }
        super().prepare()

    def schedule(self):
        """Align, say how many records there are, share counts, add."""
        if self.settings["has_keys"]:
            yield "align"
        yield "n_records"
        yield "weigh_counts"
        yield "score"

    def _ring(self):
        return _RING

    @operation(tells="its number of records")
    def n_records(self):
        """Tell how many records are left after aligning."""
        return {"n_records": len(self.codes)}

    @operation(peers="shares of counts")
    def weigh_counts(self):
        """Count every node with its parents; weigh the shares by the logarithms."""
        self.count_pair = joint_counts
        talk = self.talk()
        self.links = yield from open_links(talk)
        self.total = np.zeros(2, dtype=_RING)
        owners = self.settings["owners"]
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
            weights = _weights(self.network.cpts[node], len(self.codes))
            self.total += (weights * counts.astype(_RING).ravel()).sum(axis=1)
        # halves of shares are added up below, with carries that must not tell shares
        # of the columns of one party alone
        self.total = yield from refresh_numbers(talk, talk.roster, self.total)
        yield from talk.finish()

    @operation(tells="its shares of the log-likelihood of all records", exact=True)
    def score(self):
        """Tell the shares of the sum, in halves that can be added as integers."""
        halves = [self.total >> np.uint64(32), self.total & np.uint64(2**32 - 1)]
        return {"vector": self.hide(np.concatenate(halves).astype(np.int64))}


def _weights(table, n_records):
    """Return logarithms in units and marks of impossible cells, in the ring."""
    impossible = table.ravel() == 0
    logarithms = np.log(table.ravel(), where=~impossible, out=np.zeros(table.size))
    if np.abs(logarithms).max() * n_records / UNIT > MAX_SUM / 2**10:
        raise PartyRefusal("out-of-range")
    units = np.rint(logarithms / UNIT).astype(np.int64)
    return np.stack([units.view(_RING), impossible.astype(_RING)])


def add_column_scores(estimator, X):
    """Return the log-likelihood of records at several parties, and their number.

    Parameters
    ----------
    estimator : estimator
        With a fitted `network_`.
    X : VerticalPartition or RemoteColumns

    Returns
    -------
    total : float
        Minus infinity if a record is impossible.
    n_records : int
    """
    partition = check_vertical(estimator, X, reset=False)
    nodes = list(estimator.network_.nodes)
    if nodes != list(partition.feature_names):
        raise ValueError(
            f"the partition has the columns {list(partition.feature_names)}, the "
            f"network was learnt from {nodes}, in this order"
        )
    settings = {
        "model": describe_model(estimator),
        "owners": [partition.owners[node] for node in nodes],
        "has_keys": partition.has_keys,
    }
    with partition.federate(ColumnScoreParty, settings, "masking") as federation:
        if partition.has_keys:
            federation.converse("align")
        replies = federation.call("n_records")
        numbers = {name: reply["n_records"] for name, reply in replies.items()}
        if len(set(numbers.values())) > 1:
            raise PartitionError(
                f"parties hold different numbers of records: {numbers}"
            )
        federation.converse("weigh_counts")
        halves = federation.secure_sum("score").astype(np.int64).view(_RING)
    total, n_impossible = (halves[:2] << np.uint64(32)) + halves[2:]
    federation.ledger.note(MADE_UP)
    estimator.ledger_.append(federation.ledger)
    (n_records,) = set(numbers.values())
    if n_impossible:
        return -np.inf, n_records
    return float(total.view(np.int64)) * UNIT, n_records
