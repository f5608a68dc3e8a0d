"""Releasing tables of columns that different parties hold and do not show.

Tables, and distances between tables and a model, stay shared between the holders of
their columns; every party adds its share of the noise, and only the noisy numbers are
opened. The number of records is known to whoever holds a column. So neighbours are
tables in which one record has other values: it leaves a cell and enters another.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np

from skprivbn.bayesian_network._labels import encode
from skprivbn.crypto.shares import OTBackend, open_links, open_noisy_numbers
from skprivbn.federation import Me, PartyRefusal, converse, declare_noise, program
from skprivbn.graphical_model._release import TablesTerms, check_size, search_steps
from skprivbn.graphical_model._searches import asking_others
from skprivbn.graphical_model._states import to_labels
from skprivbn.graphical_model._tables import Contribution
from skprivbn.privacy import distribute
from skprivbn.programs._columns import (
    ColumnsTerms,
    compare,
    count_records,
    describe_shares,
    find_records,
    hang_up,
    note_alignment,
    note_values_only,
    own_columns,
    own_table,
    start_talk,
)
from skprivbn.programs._shared_tables import ColumnTables

#: lookups have an entry for every difference of counts
MAX_SAMPLES = 1 << 24
#: cells of a table in which neighbours differ
N_CHANGED = 2


@dataclass(frozen=True)
class ColumnTablesTerms(ColumnsTerms, TablesTerms):
    """Terms of tables of columns of several holders.

    Parameters
    ----------
    owners, has_keys, max_records :
        As of ``ColumnsTerms``.
    **tables
        As of ``TablesTerms``; every record counts once, and nothing is missing.
    """

    def check(self):
        """Refuse columns without a holder, and what only rows can be asked for."""
        super().check()
        if len(self.owners) != len(self.nodes):
            raise ValueError("owners: one for each column")
        if self.contribution != Contribution() or self.missing != "error":
            raise ValueError("contribution, missing: every record counts once")
        if self.cliques == "mst" or len(set(self.ties)) != len(self.ties):
            raise ValueError("cliques, ties: given tables, or those of 'aim'")

    @property
    def n_changed(self):
        """Cells of a table in which neighbours differ."""
        return N_CHANGED

    def noise(self, n_features, n_parties):
        """Return the noise on each number that leaves the parties."""
        return distribute(self.search.noise, n_parties, self.min_honest)


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
    shared = ColumnTables(talk, links, terms.owners, terms.sizes, columns, np.uint64)
    noise, is_given = terms.noise(len(columns), len(me.roster)), terms.cliques != "aim"
    answers = []

    def answer(question):
        check_size(question, terms.sizes)
        if not is_given:
            yield from _agree(talk, question)
        if question.expected is None:
            shares = yield from converse(
                shared.share(question.cliques), "shares of tables"
            )
            shares = np.concatenate([share.ravel() for share in shares])
        else:
            records = [apportion(w, len(codes)) for w in question.expected]
            shares = yield from converse(
                shared.distances(question.cliques, records),
                "shares of distances of tables to a model",
            )
        own, numbers = noise.share(shares.shape), np.uint64(question.unit) * shares
        told = yield from converse(
            open_noisy_numbers(talk, talk.roster, numbers, own),
            "tables or distances, with everybody's noise",
            "noisy release",
        )
        answers.append(told)
        return told

    steps = search_steps(terms, len(me.roster), 1)
    found = yield from asking_others(steps, answer)
    found = found | ({"answers": answers} if is_given else {})
    return found | {"n_calls": (yield from hang_up(talk, links))}


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
    note_alignment(ledger, federation.terms)
    describe_shares(ledger, OTBackend(), n_calls)
    note_values_only(ledger)
