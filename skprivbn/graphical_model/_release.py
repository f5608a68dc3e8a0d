"""Tables with noise, of one holder, or of several that trust no curator.

Each holder counts its own rows, adds its share of the noise and hides the result;
only the noisy sum is ever known to anybody.

Tables of columns that different parties hold, and distances between tables and a model,
stay shared between the holders of their columns; every party adds its share of the
noise, and only the noisy numbers are opened. The number of records is known to whoever
holds a column. So neighbours are tables in which one record has other values: it leaves
a cell and enters another.
"""

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from skprivbn.bayesian_network._labels import MISSING, encode
from skprivbn.crypto.shares import OTBackend, open_links, open_noisy_numbers
from skprivbn.federation import (
    Ledger,
    Me,
    Noisy,
    PartyRefusal,
    Terms,
    converse,
    declare_noise,
    program,
)
from skprivbn.federation._ledger import NoisyRelease
from skprivbn.federation._rows import RowSource
from skprivbn.federation.program import require
from skprivbn.graphical_model._adaptive import AdaptiveSearch
from skprivbn.graphical_model._searches import GivenTables
from skprivbn.graphical_model._states import (
    bin_labels,
    check_bins,
    check_column_states,
    to_labels,
)
from skprivbn.graphical_model._tables import (
    Contribution,
    count_tables,
    norms,
    resolve_cliques,
)
from skprivbn.privacy._options import delta_of
from skprivbn.privacy._persons import cut_weights, number_persons
from skprivbn.programs._columns import (
    ColumnsTerms,
    compare,
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
from skprivbn.utils._memoise import asking_others, memoise_steps

#: cells of all tables that a party counts at once
MAX_CELLS = 1 << 24


def gap_rule(estimator):
    """Return what its ``missing=`` means; "error" leaves rows out where noise follows.

    Parameters
    ----------
    estimator : estimator

    Returns
    -------
    missing : str
        Of :func:`check_rows`.
    """
    return "error" if estimator.missing == "auto" else estimator.missing


def check_rows(block, nodes, states, contribution, missing, bins=None, *, strict=False):
    """Return codes, persons and weights of a holder's rows.

    What noise is to hide must not raise: unless strict, nothing that the rows hold is
    an error.

    Parameters
    ----------
    block : dict
        "X", and perhaps "individual" and "sample_weight".
    nodes : sequence of str
        Names of the columns.
    states : dict of str to sequence
        Public labels.
    contribution : Contribution
        What one person may add.
    missing : {"error", "skip"}
        Whether entries may be missing.
    bins : dict of str to sequence of numbers, default=None
        Edges of continuous columns.
    strict : bool, default=False
        Whether unknown labels, missing entries ("error") and weights beyond their bound
        raise ValueError. Otherwise unknown labels are missing, rows with missing
        entries are left out ("error"), and weights are cut.

    Returns
    -------
    codes : ndarray of int of shape (n_samples, n_columns)
        -1 is missing.
    persons : ndarray of int of shape (n_samples,) or None
        Who is behind each row.
    weight : ndarray of int of shape (n_samples,) or None
    """
    labels = to_labels(block["X"], nodes, bins, strict)
    codes = encode(labels, nodes, states, strict)
    incomplete = (codes == MISSING).any(axis=1)
    if strict and missing == "error" and incomplete.any():
        column = nodes[(codes == MISSING).any(axis=0).argmax()]
        raise ValueError(
            f"column {column!r} has missing entries (NaN or None). With "
            "missing='skip' a row is left out of the tables that need its missing "
            "entries"
        )
    individual, weight = block.get("individual"), block.get("sample_weight")
    if (individual is None) != (contribution.kind == "record"):
        raise ValueError(
            "individual= must come with contribution='normalize' or 'clip', and these "
            "need individual="
        )
    persons = None if individual is None else number_persons(individual)
    if weight is not None:
        if contribution.kind == "normalize":
            raise ValueError("sample_weight cannot be combined with 'normalize'")
        weight = cut_weights(weight, contribution.max_weight, strict)
    kept = np.ones(len(codes), dtype=bool) if persons is None else persons >= 0
    if missing == "error":
        kept &= ~incomplete
    if kept.all():
        return codes, persons, weight
    return tuple(None if a is None else a[kept] for a in (codes, persons, weight))


@dataclass(frozen=True, kw_only=True)
class TablesTerms(Terms):
    """What columns may hold, which tables are released, how much noise hides them.

    Parameters
    ----------
    nodes : list of str
        Names of the columns.
    states : list of list
        Labels of each column.
    bins : dict of str to list of float
        Edges of continuous columns.
    epsilon, delta : float
        Budget of all releases together.
    min_honest : int or None
        How many parties are trusted to add their share of the noise; by default half
        of them, rounded up.
    contribution : Contribution
        What one person may add.
    missing : {"error", "skip"}
        Whether entries may be missing.
    cliques : list of list of int, or "aim"
        Columns of each clique, or the search that chooses them.
    ties : list of int
        Number of the table of each given clique.
    max_model_cells : int, default=0
        For "aim": bound on the largest table of models that tables are compared with.
    workload : list of list of int
        Sets of columns whose tables matter; none if all do.
    workload_weights : list of float
        How much each of them matters.
    """

    nodes: list[str]
    states: list[list[Any]]
    bins: dict[str, list[float]]
    epsilon: float
    delta: float
    min_honest: int | None
    contribution: Contribution
    missing: Literal["error", "skip"]
    cliques: list[list[int]] | Literal["aim"]
    ties: list[int]
    max_model_cells: int = 0
    workload: list[list[int]] = field(default_factory=list)
    workload_weights: list[float] = field(default_factory=list)
    #: cells of a table in which neighbours differ
    n_changed = 1

    def check(self):
        """Refuse names, labels, bins, cliques and a workload that are none."""
        if len(set(self.nodes)) != len(self.nodes):
            raise ValueError("nodes: a column is named twice")
        check_column_states(self.states, self.nodes)
        for node, edges in check_bins(self.bins, self.nodes).items():
            if self.labels[node] != bin_labels(edges):
                raise ValueError("bins: other states than these bins")
        given = [] if isinstance(self.cliques, str) else self.cliques
        if given is self.cliques:
            resolve_cliques(given, self.nodes)
        if self.workload:
            resolve_cliques(self.workload, self.nodes)
        # tables are numbered; a number that none has would leave room for many
        numbers = sorted(set(self.ties))
        if len(self.ties) != len(given) or numbers != list(range(len(numbers))):
            raise ValueError("ties: numbers of tables that are not there")
        if len(self.workload) != len(self.workload_weights):
            raise ValueError("workload_weights: one for each set of columns")
        if not all(0 <= weight < np.inf for weight in self.workload_weights):
            raise ValueError("workload_weights: finite and not negative")
        if self.max_model_cells < (self.cliques == "aim"):
            raise ValueError("max_model_cells: at least 1")

    @property
    def labels(self):
        """Labels of every column by its name."""
        return dict(zip(self.nodes, map(tuple, self.states)))

    @property
    def sizes(self):
        """Number of states of every column."""
        return tuple(len(labels) for labels in self.states)

    @property
    def protects(self):
        """Whom the noise hides: rows, or all rows of an individual."""
        return "rows" if self.contribution.kind == "record" else "individuals"

    @property
    def search(self):
        """Which tables are asked for, and how they share the noise."""
        is_given = not isinstance(self.cliques, str)
        return (GivenTables if is_given else AdaptiveSearch)(
            self.epsilon,
            self.delta,
            len(self.nodes),
            per_record=self.contribution.per_clique,
            n_changed=self.n_changed,
            record=self.contribution.unit,
            cliques=[tuple(clique) for clique in self.cliques] if is_given else None,
            ties=self.ties,
            max_model_cells=self.max_model_cells,
            workload=dict(zip(map(tuple, self.workload), self.workload_weights))
            or None,
            rescale=self.missing == "skip",
        )

    def noise(self, n_features, n_parties):
        """Return the noise on each number that leaves the parties."""
        if n_features != len(self.nodes):
            raise ValueError("the terms are about other columns")
        return self.search.noise_of(n_parties, self.min_honest)


@memoise_steps
def search_steps(terms, n_parties, n_holders):
    """Ask what the search of these terms asks.

    Parameters
    ----------
    terms : TablesTerms
    n_parties : int
        Who add noise.
    n_holders : int
        Whose distances are added up.
    """
    noise = terms.noise(len(terms.nodes), n_parties)
    return (yield from terms.search.asking(terms.sizes, noise, n_holders))


def check_size(question, sizes):
    """Refuse more cells than a party counts at once.

    Parameters
    ----------
    question : Question
    sizes : sequence of int
    """
    require(question.layout(sizes).n_parameters <= MAX_CELLS, "too-large")


def row_counter(me):
    """Return a function that counts own rows; what they hold is never an error.

    Parameters
    ----------
    me : Me
        With :class:`TablesTerms`.

    Returns
    -------
    count : callable
        From a TableLayout to counts, an array of integers.
    """
    X, contribution, known = me.block["X"], me.terms.contribution, []

    def check(block):
        terms = me.terms
        options = contribution, terms.missing, terms.bins
        try:
            return check_rows(block, terms.nodes, terms.labels, *options)
        except ValueError as error:
            raise PartyRefusal("invalid-data") from error

    def parts():
        """Yield codes, persons and weights: in blocks, if rows are counted alone."""
        if isinstance(X, RowSource) and contribution.kind == "record":
            start = 0
            for rows in X.blocks():
                part = slice(start, start + len(rows))
                beside = {k: v[part] for k, v in me.block.items() if k != "X"}
                yield check({"X": rows, **beside})
                start += len(rows)
            return
        if not known:
            known.append(check(me.block | {"X": np.asarray(X)}))
        yield from known

    def count(layout):
        return sum(
            count_tables(codes, layout, contribution, persons, weight)
            for codes, persons, weight in parts()
        )

    return count


@program(TablesTerms)
def release_tables(me: Me) -> Generator[Any, Any, dict]:
    """Add up tables of own rows, and distances, each party with its share of the noise.

    Whatever a search asks next, a person changes as many numbers by as much.
    """
    terms, count, n_parties = me.terms, row_counter(me), len(me.roster)
    noise = terms.noise(len(terms.nodes), n_parties)

    def answer(question):
        check_size(question, terms.sizes)
        counts = question.answer(count, terms.sizes)
        part = noise.part(*norms(question.changes))
        if question.expected is None:
            return (yield Noisy(counts, part, "contingency tables, with noise"))
        return (yield Noisy(counts, part, "distances of tables to a model, with noise"))

    steps = search_steps(terms, n_parties, n_parties)
    return (yield from asking_others(steps, answer))


def single_holder_ledger(learner, parties, search, noise):
    """Ledger of a fit without messages: what the result tells whoever sees it.

    Parameters
    ----------
    learner : DPCGMLearner
    parties : tuple of str
    search : TableSearch
        What is released.
    noise : CountMechanism or None
        With which noise, if tables are.

    Returns
    -------
    ledger : Ledger
    """
    ledger = Ledger(parties=parties)
    ledger.note("one holder: no message is sent, the noise is drawn by OpenDP")
    if learner.epsilon is None:
        ledger.learns("whoever sees the model", "exact tables", "plaintext aggregate")
        return ledger
    ledger.learns(
        "whoever sees the model",
        "what is left of the rows after noise",
        "noisy release",
        epsilon=learner.epsilon,
    )
    if noise is not None:
        protects = learner._protects()
        cost = learner.epsilon, delta_of(learner), search.rho
        ledger.releases.append(NoisyRelease(search.what, noise, protects, *cost))
    return ledger


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

    n_changed = N_CHANGED

    def check(self):
        """Refuse columns without a holder, and what only rows can be asked for."""
        super().check()
        if len(self.owners) != len(self.nodes):
            raise ValueError("owners: one for each column")
        if self.contribution != Contribution() or self.missing != "error":
            raise ValueError("contribution, missing: every record counts once")
        if len(set(self.ties)) != len(self.ties):
            raise ValueError("ties: every clique has a table of its own")

    def noise(self, n_features, n_parties):
        """Return the noise on each number that leaves the parties."""
        return self.search.noise_of(n_parties, self.min_honest)


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
    require(len(codes) <= MAX_SAMPLES, "too-large")
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
    require(all(theirs == asked for theirs in told.values()))


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
