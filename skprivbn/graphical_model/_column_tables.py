"""Releasing tables of columns that different parties hold and do not show.

Tables, and distances between tables and a model, stay shared between the holders of
their columns; every party adds its share of the noise, and only the noisy numbers are
opened. The number of records is known to whoever holds a column. So neighbours are
tables in which one record has other values: it leaves a cell and enters another.
"""

from dataclasses import dataclass
from hashlib import sha256
from math import prod

import numpy as np

from skprivbn.bayesian_network._labels import encode
from skprivbn.crypto.shares import OTBackend, open_links, open_noisy_numbers
from skprivbn.federation import PartyRefusal, declare_noise, operation
from skprivbn.federation._answers import check_same
from skprivbn.graphical_model._adaptive import PROBABILITY_UNIT, AdaptiveBudget
from skprivbn.graphical_model._column_shares import SharedTables, apportion
from skprivbn.graphical_model._counting import (
    Contribution,
    resolve_cliques,
    sensitivities,
)
from skprivbn.graphical_model._release import DomainTerms
from skprivbn.graphical_model._shared_adaptive import (
    AskedHolders,
    read_cliques,
    read_expected,
)
from skprivbn.graphical_model._states import to_labels
from skprivbn.privacy import CountMechanism
from skprivbn.protocols._columns import (
    ColumnsParty,
    ColumnsTerms,
    describe_shares,
    note_values_only,
)

#: lookups have an entry for every difference of counts
MAX_SAMPLES = 1 << 24
#: cells of a table in which neighbours differ
N_CHANGED = 2


@dataclass(frozen=True)
class ColumnTablesTerms(ColumnsTerms, DomainTerms):
    """Terms of tables of columns of several holders.

    Parameters
    ----------
    cliques : list of list of int or None
        Columns of each table. None lets tables be chosen in rounds.
    """

    cliques: list[list[int]] | None

    def check(self):
        """Refuse columns without a holder, and tables of columns that are not there."""
        super().check()
        if len(self.owners) != len(self.nodes):
            raise ValueError("owners: one for each column")
        if self.cliques is not None:
            resolve_cliques(self.cliques, self.nodes)

    @property
    def budget(self):
        """How the noise is shared by all releases, if tables are chosen in rounds."""
        n_columns = len(self.nodes)
        return AdaptiveBudget(self.epsilon, self.delta, n_columns, n_changed=N_CHANGED)

    def rounds(self, n_parties):
        """Return all releases, each with its hand-over, after records are aligned."""
        n_rounds = 0 if self.cliques is not None else self.budget.n_rounds
        return 1 + 2 * (1 + 2 * n_rounds)

    def memory(self, n_features):
        """Return the codes of own columns, and cells of tables that are given."""
        cells = (prod(self.sizes[i] for i in c) for c in self.cliques or [])
        return n_features, sum(self.sizes) + sum(cells)

    def mechanism(self):
        """Return the noise that one curator would add."""
        if self.cliques is None:
            return self.budget.noise
        ties = range(len(self.cliques))
        sensitivity = sensitivities(ties, Contribution(), N_CHANGED)
        return CountMechanism.for_budget(self.epsilon, self.delta, *sensitivity)


class ColumnTablesParty(ColumnsParty):
    """A holder of columns. Learns what is opened with noise, as everybody.

    Which tables are asked for, and what a model expects of them, is the coordinator's
    choice, in which parties make sure that they were asked the same. Whatever it
    chooses, another record changes as many numbers by as much.
    """

    terms = ColumnTablesTerms

    def prepare(self):
        """Turn own columns into codes; what is no state counts as the first one."""
        X, terms = np.asarray(self.block["X"]), self.terms
        if X.ndim != 2 or X.shape[1] != len(self.variables):
            raise PartyRefusal("invalid-data")
        nodes = [terms.nodes[v] for v in self.variables]
        bins = {node: terms.bins[node] for node in nodes if node in terms.bins}
        # under noise, nothing that a record holds may raise
        labels = to_labels(X, nodes, bins, strict=False)
        self.codes = np.maximum(encode(labels, nodes, terms.labels, strict=False), 0)
        n_parties = len(self.context.roster)
        self.noise = terms.noise(len(self.variables), n_parties)
        self.shared, self.n_told = None, 0

    def schedule(self):
        """Releases in a fixed order, each of which parties hand over."""
        if self.terms.has_keys:
            yield "align"
        names = ["tables"]
        if self.terms.cliques is None:
            names = ["one_way", *["distances", "chosen"] * self.terms.budget.n_rounds]
        for name in names:
            yield name
            yield "release"

    def keep(self, records):
        """Keep the records that all parties have."""
        self.codes = self.codes[records]

    @operation(peers="shares of tables, and what they are with everybody's noise")
    def tables(self):
        """Open noisy tables of given cliques."""
        cliques = [tuple(clique) for clique in self.terms.cliques]
        yield from self._open("tables", cliques, 1)

    @operation(peers="shares of tables, and what they are with everybody's noise")
    def one_way(self):
        """Open noisy tables of all columns."""
        cliques = [(v,) for v in range(len(self.terms.nodes))]
        yield from self._open("tables", cliques, self.terms.budget.units[0])

    @operation(
        peers="shares of distances of tables to a model's, and what they are with "
        "everybody's noise",
        hears="what a model of the noisy tables expects of many tables",
    )
    def distances(self, cliques, expected):
        """Open noisy distances of tables to expected ones."""
        budget, number, self.n_told = self.terms.budget, self.n_told, self.n_told + 1
        most = budget.n_pairs(number) + budget.n_triples(number)
        layout = read_cliques(cliques, self.terms.sizes, most)
        weights = read_expected(expected, layout)
        if any(w.sum() > PROBABILITY_UNIT + w.size for w in weights):
            raise PartyRefusal("refused")
        records = [apportion(w, len(self.codes)) for w in weights]
        yield from self._open("distances", layout.cliques, budget.units[1], records)

    @operation(
        peers="shares of tables, and what they are with everybody's noise",
        hears="which tables, chosen by noisy distances",
    )
    def chosen(self, cliques):
        """Open noisy tables of some cliques; any cost the same."""
        budget = self.terms.budget
        layout = read_cliques(cliques, self.terms.sizes, budget.n_tables)
        yield from self._open("tables", layout.cliques, budget.units[2])

    def _open(self, what, cliques, unit, *expected):
        """Share what was asked for; open it, in a unit, with everybody's noise."""
        talk = self.talk()
        yield from self._agree(talk, cliques, *expected)
        if self.shared is None:
            self.links = yield from open_links(talk)
            columns = dict(zip(self.variables, self.codes.T))
            owners, sizes = self.terms.owners, self.terms.sizes
            self.shared = SharedTables(
                talk, self.links, owners, sizes, columns, len(self.codes)
            )
        shares = yield from getattr(self.shared, what)(talk, cliques, *expected)
        self.opened = yield from open_noisy_numbers(
            talk,
            talk.roster,
            np.uint64(unit) * shares,
            self.noise.share(shares.shape),
        )
        yield from talk.finish()

    def _agree(self, talk, cliques, expected=()):
        """Make sure that all have as many records and were asked the same.

        Shares of different tables would add up to what nobody has calibrated noise for.
        """
        if len(self.codes) > MAX_SAMPLES:
            raise PartyRefusal("too-large")
        asked = sha256(str(cliques).encode())
        for table in expected:
            asked.update(table.tobytes())
        own = {"n_samples": len(self.codes), "asked": asked.digest()}
        for peer in talk.peers:
            talk.send(peer, own)
        for peer in talk.peers:
            theirs = yield from talk.receive(peer)
            if theirs != own:
                raise PartyRefusal("refused")

    @operation(
        tells="the noisy numbers that were opened, and its number of hash calls",
        kind="noisy release",
        answers={"numbers": np.ndarray, "n_hash_calls": int},
    )
    def release(self):
        """Hand over what was opened; it is the same at every party."""
        n_calls = sum(link.n_calls for link in self.links.values())
        return {"numbers": self.opened, "n_hash_calls": n_calls}


class ColumnHolders(AskedHolders):
    """Coordinator's side: asks, lets the parties talk, gets noisy integers.

    Parameters
    ----------
    federation : Federation
        Of :class:`ColumnTablesParty`.
    noise : DistributedNoise
        What the parties add together.
    """

    #: distances are those of all records
    n_holders = 1

    def __init__(self, federation, noise):
        self.federation, self.noise = federation, noise
        if federation.terms.has_keys:
            federation.converse("align")

    def tables(self):
        """Return noisy tables of the cliques in the terms."""
        return self._ask("tables")

    def _ask(self, name, payload=None):
        self.federation.converse(name, payload)
        replies = self.federation.call("release")
        # every party counts its own
        n_calls = {name: reply.pop("n_hash_calls") for name, reply in replies.items()}
        self.n_calls = n_calls[self.federation.first]
        return check_same(replies, "release")["numbers"]

    def declare(self, what):
        """Say in the ledger who has learnt what.

        Parameters
        ----------
        what : str
            What was opened with noise.
        """
        ledger, who = self.federation.ledger, "all parties and the coordinator"
        declare_noise(ledger, self.noise, what, "values", who)
        ledger.learns(who, "number of records", "public")
        if self.federation.terms.has_keys:
            ledger.learns("all parties", "which records all of them have", "public")
        describe_shares(ledger, OTBackend(), self.n_calls)
        note_values_only(ledger)
