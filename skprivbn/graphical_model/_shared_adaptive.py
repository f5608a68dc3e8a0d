"""Choosing tables in rounds when several holders share the rows and trust no curator.

Every holder counts its own rows, adds its share of the noise and hides the result: of
tables and of distances alike. Distances of a holder's tables to the model add up to
more than that of all rows, by what holders differ from each other: rows that are spread
unevenly look like dependence, which costs accuracy, never privacy.
"""

from dataclasses import dataclass

import numpy as np

from skprivbn.federation import PartyRefusal, declare_noise, operation
from skprivbn.graphical_model._adaptive import (
    PROBABILITY_UNIT,
    AdaptiveBudget,
    distances,
)
from skprivbn.graphical_model._layout import TableLayout
from skprivbn.graphical_model._release import (
    MAX_CELLS,
    CountingParty,
    CountingTerms,
    open_sum,
)

#: columns of the largest tables that are ever asked for
_MAX_COLUMNS = 3


@dataclass(frozen=True)
class AdaptiveTerms(CountingTerms):
    """Terms of tables that are chosen in rounds."""

    def rounds(self, n_parties):
        """Return the sums of all rounds, each with its hand-over."""
        return 2 * (1 + 2 * self.budget.n_rounds)

    def message_bytes(self, operation, n_features, n_parties):
        """Return what a model expects of as many cells as may be asked for."""
        return (1 << 16) + 8 * MAX_CELLS

    @property
    def budget(self):
        """How the noise is shared by all releases."""
        per_record = self.contribution.per_clique
        return AdaptiveBudget(self.epsilon, self.delta, len(self.nodes), per_record)

    def mechanism(self):
        """Return the noise that one curator would add."""
        return self.budget.noise


class AdaptiveParty(CountingParty):
    """A data holder: one-way tables, then rounds of distances and chosen tables.

    Which tables are asked for, and what a model expects of them, is the coordinator's
    choice. Whatever it chooses, a person changes as many answers by as much.
    """

    terms = AdaptiveTerms

    def prepare(self):
        """Read the public parameters; rows are looked at only when asked."""
        super().prepare()
        self.budget, self.n_told = self.terms.budget, 0

    def schedule(self):
        """Sums in a fixed order; where only key holders can read them, they tell."""
        yield "one_way"
        for name in ("distances", "chosen") * self.budget.n_rounds:
            if (yield "release", name) == "release":
                yield name
        yield "release"

    @operation(
        tells="contingency tables of all columns plus its share of the noise",
        kind="noisy release",
    )
    def one_way(self):
        """Hide noisy counts of every column."""
        sizes = self.terms.sizes
        layout = TableLayout([(i,) for i in range(len(sizes))], sizes)
        return self.hide_noisy(self.budget.units[0] * self.count(layout))

    @operation(
        tells="distances of its tables to a model's plus its share of the noise",
        kind="noisy release",
        hears="what a model of the noisy tables expects of many tables",
    )
    def distances(self, cliques, expected):
        """Hide noisy distances of own tables to expected ones."""
        number, self.n_told = self.n_told, self.n_told + 1
        most = self.budget.n_pairs(number) + self.budget.n_triples(number)
        layout = read_cliques(cliques, self.terms.sizes, most)
        expected = read_expected(expected, layout)
        told = distances(layout.split(self.count(layout)), expected)
        return self.hide_noisy(self.budget.units[1] * told)

    @operation(
        tells="contingency tables that were chosen plus its share of the noise",
        kind="noisy release",
        hears="which tables, chosen by noisy distances",
    )
    def chosen(self, cliques):
        """Hide noisy counts of some tables; any cost the same."""
        layout = read_cliques(cliques, self.terms.sizes, self.budget.n_tables)
        return self.hide_noisy(self.budget.units[2] * self.count(layout))


def read_cliques(cliques, sizes, most):
    """Return where the tables sit that a coordinator asks for, or refuse.

    Parameters
    ----------
    cliques : ndarray
        As from :func:`pack`.
    sizes : sequence of int
        Number of states of each column.
    most : int
        How many tables may be asked for.

    Returns
    -------
    layout : TableLayout
    """
    shape = (cliques.ndim, *cliques.shape[1:])
    if shape != (2, _MAX_COLUMNS) or cliques.dtype != np.int64:
        raise PartyRefusal("refused")
    cliques = [tuple(i for i in clique if i >= 0) for clique in cliques.tolist()]
    for clique in cliques:
        known = clique and clique[-1] < len(sizes)
        if not known or sorted(set(clique)) != list(clique):
            raise PartyRefusal("refused")
    if len(cliques) > most:
        raise PartyRefusal("refused")
    layout = TableLayout(cliques, sizes)
    if layout.n_parameters > MAX_CELLS:
        raise PartyRefusal("too-large")
    return layout


def read_expected(expected, layout):
    """Return the tables that a model expects, as a coordinator tells, or refuse.

    Parameters
    ----------
    expected : ndarray
        Weights of all cells.
    layout : TableLayout

    Returns
    -------
    expected : list of ndarray of int64
    """
    if expected.shape != (layout.n_parameters,) or expected.dtype != np.int64:
        raise PartyRefusal("refused")
    # weights beyond these could overflow, and so count a person more than once
    if np.any((expected < 0) | (expected > PROBABILITY_UNIT)):
        raise PartyRefusal("refused")
    return layout.split(expected)


class AskedHolders:
    """What a coordinator asks for: each question is an operation of the parties."""

    def one_way(self):
        """Return noisy tables of all columns."""
        return self._ask("one_way")

    def distances(self, cliques, expected):
        """Return noisy distances of tables to expected ones."""
        expected = np.concatenate([np.ravel(table) for table in expected])
        return self._ask("distances", {"cliques": pack(cliques), "expected": expected})

    def chosen(self, cliques):
        """Return noisy tables of some cliques."""
        return self._ask("chosen", {"cliques": pack(cliques)})


class SeveralHolders(AskedHolders):
    """Coordinator's side: asks, adds what it cannot read, gets noisy integers.

    Parameters
    ----------
    federation : Federation
        Of :class:`AdaptiveParty`.
    noise : DistributedNoise
        What the parties add together.
    """

    def __init__(self, federation, noise):
        self.federation, self.noise = federation, noise
        self.n_holders = len(federation.roster)
        declare_noise(
            federation.ledger,
            noise,
            "one-way tables; in rounds, distances of tables to a model, and tables",
            federation.terms.protects,
        )

    def _ask(self, name, payload=None):
        self.noise.check_survivors(len(self.federation.active))
        return open_sum(self.federation, name, payload)


def pack(cliques):
    """Return cliques as the rows of an array, filled up with -1.

    Parameters
    ----------
    cliques : list of tuple of int
        In ascending order, of up to three columns each.

    Returns
    -------
    packed : ndarray of int64 of shape (n_cliques, 3)
    """
    packed = np.full((len(cliques), _MAX_COLUMNS), -1, dtype=np.int64)
    for row, clique in zip(packed, cliques):
        row[: len(clique)] = clique
    return packed
