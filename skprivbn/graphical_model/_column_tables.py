"""Releasing tables of columns that different parties hold and do not show.

Tables, and distances between tables and a model, stay shared between the holders of
their columns; every party adds its share of the noise, and only the noisy numbers are
opened. The number of records is known to whoever holds a column. So neighbours are
tables in which one record has other values: it leaves a cell and enters another.
"""

from collections.abc import Generator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from skprivbn.bayesian_network._labels import encode
from skprivbn.crypto.shares import OTBackend, open_links, open_noisy_numbers
from skprivbn.federation import Me, PartyRefusal, converse, declare_noise, program
from skprivbn.graphical_model._adaptive import AdaptiveBudget
from skprivbn.graphical_model._column_shares import SharedTables, apportion
from skprivbn.graphical_model._counting import (
    Contribution,
    resolve_cliques,
    sensitivities,
)
from skprivbn.graphical_model._layout import TableLayout
from skprivbn.graphical_model._release import MAX_CELLS, DomainTerms
from skprivbn.graphical_model._shared_adaptive import check_workload, shared_rounds
from skprivbn.graphical_model._states import to_labels
from skprivbn.privacy import CountMechanism
from skprivbn.programs._columns import (
    ColumnsTerms,
    compare,
    count_records,
    describe_shares,
    find_records,
    hang_up,
    note_values_only,
    own_columns,
    own_table,
    start_talk,
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
    max_states, workload, workload_weights :
        If tables are chosen in rounds: as of ``AdaptiveTerms``.
    """

    cliques: list[list[int]] | None
    max_states: int
    workload: list[list[int]]
    workload_weights: list[float]
    #: what one person may add, and that all tables have all records
    contribution = Contribution()
    missing = "auto"

    def check(self):
        """Refuse columns without a holder, and tables of columns that are not there."""
        super().check()
        if len(self.owners) != len(self.nodes):
            raise ValueError("owners: one for each column")
        if self.cliques is not None:
            resolve_cliques(self.cliques, self.nodes)
        check_workload(self)

    @property
    def budget(self):
        """How the noise is shared by all releases, if tables are chosen in rounds."""
        n_columns = len(self.nodes)
        return AdaptiveBudget(self.epsilon, self.delta, n_columns, n_changed=N_CHANGED)

    def memory(self, n_features):
        """Return the codes of own columns, and cells of tables that are given."""
        cells = (prod(self.sizes[i] for i in c) for c in self.cliques or [])
        return n_features, sum(self.sizes) + sum(cells) + self.max_states

    def mechanism(self):
        """Return the noise that one curator would add."""
        if self.cliques is None:
            return self.budget.noise
        ties = range(len(self.cliques))
        sensitivity = sensitivities(ties, self.contribution, N_CHANGED)
        return CountMechanism.for_budget(self.epsilon, self.delta, *sensitivity)


@program(ColumnTablesTerms)
def column_tables(me: Me) -> Generator[Any, Any, dict]:
    """Open noisy tables of given cliques, or of those that a model misses, in rounds.

    Which tables come next, all parties choose by the noisy numbers. Whichever it is,
    another record changes as many numbers by as much.
    """
    terms, talk = me.terms, start_talk(me)
    codes = _read_codes(me)
    codes = codes[(yield from find_records(me, talk))]
    if len(codes) > MAX_SAMPLES:
        raise PartyRefusal("too-large")
    numbers = yield from count_records(me, talk, len(codes))
    if len(set(numbers.values())) > 1:
        raise PartyRefusal("refused")
    links = yield from converse(open_links(talk), "keys of oblivious transfers")
    columns = dict(zip(own_columns(me), codes.T))
    shared = SharedTables(talk, links, terms.owners, terms.sizes, columns, len(codes))
    noise = terms.noise(len(columns), len(me.roster))

    def open_noisy(shares, unit):
        own = noise.share(shares.shape)
        numbers = np.uint64(unit) * shares
        return open_noisy_numbers(talk, talk.roster, numbers, own)

    if terms.cliques is not None:
        cliques = [tuple(clique) for clique in terms.cliques]
        shares = yield from converse(shared.tables(talk, cliques), "shares of tables")
        counts = yield from converse(
            open_noisy(shares, 1), "tables with everybody's noise", "noisy release"
        )
        return {"counts": counts, "n_calls": (yield from hang_up(talk, links))}
    rounds, answer = shared_rounds(terms, len(me.roster), 1), None
    one_way, distance, table = terms.budget.units
    while True:
        try:
            question = rounds.send(answer)
        except StopIteration as stop:
            return stop.value | {"n_calls": (yield from hang_up(talk, links))}
        if TableLayout(question.cliques, terms.sizes).n_parameters > MAX_CELLS:
            raise PartyRefusal("too-large")
        yield from _agree(talk, question)
        if question.kind == "distances":
            records = [apportion(w, len(codes)) for w in question.expected]
            shares = yield from converse(
                shared.distances(talk, question.cliques, records),
                "shares of distances of tables to a model's",
            )
            answer = yield from converse(
                open_noisy(shares, distance),
                "distances with everybody's noise",
                "noisy release",
            )
        else:
            shares = yield from converse(
                shared.tables(talk, question.cliques), "shares of tables"
            )
            unit = one_way if question.kind == "one_way" else table
            answer = yield from converse(
                open_noisy(shares, unit),
                "tables with everybody's noise",
                "noisy release",
            )


def _read_codes(me):
    """Turn own columns into codes; what is no state counts as the first one."""
    X, terms = own_table(me), me.terms
    nodes = [terms.nodes[v] for v in own_columns(me)]
    bins = {node: terms.bins[node] for node in nodes if node in terms.bins}
    # under noise, nothing that a record holds may raise
    labels = to_labels(X, nodes, bins, strict=False)
    return np.maximum(encode(labels, nodes, terms.labels, strict=False), 0)


def _agree(talk, question):
    """Make sure that all parties have come to the same tables.

    Shares of different ones would add up to what nobody has calibrated noise for.
    """
    asked = [list(clique) for clique in question.cliques]
    told = yield from converse(
        compare(talk, asked), "which tables come next, as everybody knows", "public"
    )
    if any(theirs != asked for theirs in told.values()):
        raise PartyRefusal("refused")


def declare(federation, noise, what, n_calls):
    """Say in the ledger who has learnt what.

    Parameters
    ----------
    federation : Federation
    noise : DistributedNoise
        What the parties add together.
    what : str
        What was opened with noise.
    n_calls : int
        Most hash calls of a party.
    """
    ledger, who = federation.ledger, "all parties and the coordinator"
    declare_noise(ledger, noise, what, "values", who)
    ledger.learns(who, "number of records", "public")
    if federation.terms.has_keys:
        ledger.learns("all parties", "which records all of them have", "public")
    describe_shares(ledger, OTBackend(), n_calls)
    note_values_only(ledger)
