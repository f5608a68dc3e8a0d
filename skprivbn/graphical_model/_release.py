"""Releasing the tables: by one holder, or by several that trust no curator.

Each holder counts its own rows, adds its share of the noise and hides the result;
only the noisy sum is ever known to anybody.
"""

from collections.abc import Generator
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np

from skprivbn.bayesian_network._labels import MISSING, encode
from skprivbn.federation import Ledger, Me, Noisy, PartyRefusal, Terms, program
from skprivbn.federation._ledger import Release
from skprivbn.federation._rows import RowSource
from skprivbn.graphical_model._adaptive import distances
from skprivbn.graphical_model._counting import (
    Contribution,
    count_tables,
    resolve_cliques,
    sensitivities,
)
from skprivbn.graphical_model._layout import TableLayout
from skprivbn.graphical_model._states import (
    bin_labels,
    check_bins,
    check_column_states,
    to_labels,
)
from skprivbn.privacy import CountMechanism, distribute
from skprivbn.privacy._persons import cut_weights, number_persons

#: cells of all tables that a coordinator can make a party count at once
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


@dataclass(frozen=True)
class DomainTerms(Terms):
    """What columns may hold, and how much noise hides what is released.

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
    """

    nodes: list[str]
    states: list[list[Any]]
    bins: dict[str, list[float]]
    epsilon: float
    delta: float
    min_honest: int | None

    def check(self):
        """Refuse names and labels that are none, and bins of other columns."""
        if len(set(self.nodes)) != len(self.nodes):
            raise ValueError("nodes: a column is named twice")
        check_column_states(self.states, self.nodes)
        for node, edges in check_bins(self.bins, self.nodes).items():
            if self.labels[node] != bin_labels(edges):
                raise ValueError("bins: other states than these bins")

    @property
    def labels(self):
        """Labels of every column by its name."""
        return dict(zip(self.nodes, map(tuple, self.states)))

    @property
    def sizes(self):
        """Number of states of every column."""
        return tuple(len(labels) for labels in self.states)

    def memory(self, n_features):
        """Return one number for each state, or more where there are tables."""
        return 0, sum(self.sizes)

    def mechanism(self):
        """Return the noise that one curator would add."""
        raise NotImplementedError

    def noise(self, n_features, n_parties):
        """Return the noise on each number that leaves the parties."""
        return distribute(self.mechanism(), n_parties, self.min_honest)


@dataclass(frozen=True)
class CountingTerms(DomainTerms):
    """What holders of rows count, and what one person may add.

    Parameters
    ----------
    contribution : Contribution
        What one person may add.
    missing : {"error", "skip"}
        Whether entries may be missing.
    """

    contribution: Contribution
    missing: Literal["error", "skip"]

    @property
    def protects(self):
        """Whom the noise hides: rows, or all rows of an individual."""
        return "rows" if self.contribution.kind == "record" else "individuals"

    def noise(self, n_features, n_parties):
        """Return the noise on each number that leaves the parties."""
        if n_features != len(self.nodes):
            raise ValueError("the terms are about other columns")
        return super().noise(n_features, n_parties)


@dataclass(frozen=True)
class TablesTerms(CountingTerms):
    """Terms of one release of tables.

    Parameters
    ----------
    cliques : list of list of int
        Columns of each clique.
    ties : list of int
        Number of the table of each clique.
    """

    cliques: list[list[int]]
    ties: list[int]

    def check(self):
        """Refuse cliques of columns, or numbers of tables, that are not there."""
        super().check()
        resolve_cliques(self.cliques, self.nodes)
        # tables are numbered; a number that none has would leave room for many
        if len(self.ties) != len(self.cliques):
            raise ValueError("ties: one number for each clique")
        numbers = sorted(set(self.ties))
        if numbers != list(range(len(numbers))):
            raise ValueError("ties: numbers of tables that are not there")

    def memory(self, n_features):
        """Return the cells of all tables."""
        return 0, sum(prod(self.sizes[i] for i in clique) for clique in self.cliques)

    def mechanism(self):
        """Return the noise that one curator would add."""
        sensitivity = sensitivities(self.ties, self.contribution)
        return CountMechanism.for_budget(self.epsilon, self.delta, *sensitivity)


def row_counter(me):
    """Return a function that counts own rows; what they hold is never an error.

    Parameters
    ----------
    me : Me
        With :class:`CountingTerms`.

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
def release_tables(me: Me) -> Generator[Any, Any, None]:
    """Add up tables of own rows, each party with its share of the noise."""
    terms, count = me.terms, row_counter(me)
    layout = TableLayout(terms.cliques, terms.sizes, terms.ties)
    noise = terms.noise(len(terms.nodes), len(me.roster))
    yield Noisy(count(layout), noise, "contingency tables of all rows, with noise")


class OneHolder:
    """All rows in one place; answers as several holders would, with OpenDP's noise.

    Parameters
    ----------
    rows : tuple
        Codes, persons and weights, as from ``check_rows``.
    sizes : sequence of int
        Number of states of each column.
    contribution : Contribution
        What one person may add.
    noise : CountMechanism or None
        None adds nothing.
    units : tuple of int, default=(1, 1, 1)
        Counts per record in one-way tables, distances and chosen tables.
    """

    n_holders = 1

    def __init__(self, rows, sizes, contribution, noise, units=(1, 1, 1)):
        self.rows, self.sizes, self.contribution = rows, sizes, contribution
        self.noise, self.units = noise, units

    def count(self, layout):
        """Return exact counts."""
        codes, persons, weight = self.rows
        return count_tables(codes, layout, self.contribution, persons, weight)

    def tables(self, layout, unit=1):
        """Return noisy tables, counts multiplied by `unit`."""
        return self._release(unit * self.count(layout))

    def one_way(self):
        """Return noisy tables of all columns."""
        singles = [(i,) for i in range(len(self.sizes))]
        return self.tables(TableLayout(singles, self.sizes), self.units[0])

    def distances(self, cliques, expected):
        """Return noisy distances of tables to expected ones."""
        layout = TableLayout(cliques, self.sizes)
        exact = distances(layout.split(self.count(layout)), expected)
        return self._release(self.units[1] * exact)

    def chosen(self, cliques):
        """Return noisy tables of some cliques."""
        return self.tables(TableLayout(cliques, self.sizes), self.units[2])

    def _release(self, counts):
        return counts if self.noise is None else self.noise.release(counts)


def single_holder_ledger(learner, parties, plan=None):
    """Ledger of a fit without messages: what the result tells whoever sees it.

    Parameters
    ----------
    learner : DPCGMLearner
    parties : tuple of str
    plan : object, default=None
        How tables are released, if tables are.

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
    if plan is not None:
        protects = "individuals" if learner.contribution else "rows"
        cost = learner.epsilon, learner.delta, plan.rho
        ledger.releases.append(Release(plan.what, plan.noise, protects, *cost))
    return ledger
