"""Searches: which tables are released, given ones or those that a search asks for.

A search is a generator of questions, which sees noisy answers only. Rows at hand,
rows at parties and columns on shares answer the same questions, with the same noise:
all releases together are one noisy vector of integers, of which one person changes as
many by as much, whatever was released before.

References
----------
R. McKenna, G. Miklau, D. Sheldon (2021). Winning the NIST contest: a scalable and
general approach to differentially private synthetic data. JPC.
"""

from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, ClassVar, NamedTuple

import numpy as np

from skprivbn.graphical_model._tables import (
    NoisyTables,
    TableLayout,
    check_table_sizes,
    norms,
    project_to_simplex,
)
from skprivbn.privacy import CountMechanism, distribute
from skprivbn.privacy._composition import zcdp_budget
from skprivbn.privacy._mechanisms import noisy_max
from skprivbn.utils._memoise import ask


class Question(NamedTuple):
    """What is released next.

    Attributes
    ----------
    cliques : list of tuple of int
    unit : int
        By which counts are multiplied.
    changes : sequence of int
        By how much one person changes each of the numbers that it changes.
    expected : list of ndarray of int64, default=None
        What a model expects of each table, in units of any size: then half the distance
        of each table to it is asked for, not the table.
    ties : sequence of int, default=None
        As of :class:`TableLayout`.
    """

    cliques: list
    unit: int
    changes: Any
    expected: Any = None
    ties: Any = None

    def layout(self, sizes):
        """Return where the cells of the tables sit."""
        return TableLayout(self.cliques, sizes, self.ties)

    def answer(self, count, sizes):
        """Return exact numbers, of a function that counts the tables of a layout."""
        layout = self.layout(sizes)
        counts = count(layout)
        if self.expected is not None:
            counts = distances(layout.split(counts), self.expected)
        return self.unit * counts


def distances(tables, expected):
    """Half the L1 distance of each table to the one that a model expects, rounded down.

    The model's table is scaled to the total of the counted one. Counts that one person
    adds, A in all, move a table by A away from the model at most and its scaled
    expectation by as much, and so half the distance by at most A.

    Parameters
    ----------
    tables : list of ndarray of int
        Counts.
    expected : list of ndarray of int
        Non-negative weights of the cells, of any sum.

    Returns
    -------
    distances : ndarray of int64 of shape (n_tables,)
    """
    found = np.zeros(len(tables), dtype=np.int64)
    for number, (table, weights) in enumerate(zip(tables, expected)):
        total, whole = int(table.sum()), max(int(weights.sum()), 1)
        if 4 * total * whole >= 2**63:  # Python's integers have no largest one
            table, weights = table.astype(object), weights.astype(object)
        gap = np.abs(table * whole - total * weights).sum()
        found[number] = int(gap) // (2 * whole)
    return found


@dataclass(frozen=True)
class Released:
    """What a fit has released, and what learning starts from.

    Parameters
    ----------
    tables : NoisyTables
        In records.
    counts : ndarray of int64 of shape (n_parameters,)
        The integers as released.
    units : ndarray of int of shape (n_tables,)
        How much one record counts in each table of them.
    missed : dict of tuple of int to float
        Shares of records by which a model missed tables that were not released.
    choice : NoisyNumber or None, default=None
        What tables were chosen by, if distances were told.
    """

    tables: NoisyTables
    counts: np.ndarray
    units: np.ndarray
    missed: dict = field(default_factory=dict)
    choice: Any = None

    @classmethod
    def from_counts(cls, layout, counts, unit, noise, std=None):
        """All tables counted in the same unit; `std` if their noise differs."""
        known, kind = spread_of(noise)
        n_tables = len(layout.shapes)
        std = np.full(n_tables, known) if std is None else std
        tables = NoisyTables(layout, counts / unit, std / unit, kind)
        return cls(tables, counts, np.full(n_tables, unit))


def spread_of(noise):
    """Return standard deviation and kind of noise, or of none."""
    return (0.0, "none") if noise is None else (noise.std, noise.kind)


@dataclass(frozen=True)
class TableSearch:
    """Which tables are released, and how they share the noise.

    Parameters
    ----------
    epsilon, delta : float
        Guarantee of all releases together; without epsilon there is no noise.
    n_columns : int
    per_record : int, default=1
        Most that one person adds to one table.
    n_changed : int, default=1
        Cells of a table in which neighbours differ: 2 if one record is exchanged for
        another. Half the distance of the table to a model changes by 1 either way.
    record : int, default=1
        What a record counts before it is multiplied.
    cliques, ties : list of tuple of int and sequence of int, default=None
        Given tables, and the number of the table of each clique.
    max_model_cells : int, default=524288
        Bound on the largest table of exact inference in models of a search.
    workload : dict of tuple of int to float, default=None
        Sets of columns whose tables matter, and how much. None: all the same.
    rescale : bool, default=False
        Whether tables lack different rows, and so differ in their totals.
    """

    epsilon: float | None
    delta: float
    n_columns: int
    per_record: int = 1
    n_changed: int = 1
    record: int = 1
    cliques: Any = None
    ties: Any = None
    max_model_cells: int = 2**19
    workload: Any = None
    rescale: bool = False
    #: what is released, in words
    what: ClassVar[str]

    @property
    def changes(self):
        """By how much one person changes each of the numbers that it changes."""
        raise NotImplementedError

    @property
    def noise(self):
        """Noise of one curator."""
        return CountMechanism.for_budget(self.epsilon, self.delta, *norms(self.changes))

    def noise_of(self, n_parties=None, min_honest=None):
        """Return the noise of all answers.

        Parameters
        ----------
        n_parties : int, default=None
            How many holders make it together; None for one that makes it alone.
        min_honest : int, default=None
            How many of them are trusted to add their share.

        Returns
        -------
        noise : CountMechanism or DistributedNoise or None
            None if answers are exact.
        """
        if self.epsilon is None:
            return None
        if n_parties is None:
            return self.noise
        return distribute(self.noise, n_parties, min_honest)

    @property
    def rho(self):
        """Cost of all releases of one curator as zCDP; None for pure epsilon."""
        noise = self.noise_of()
        return None if noise is None else noise.rho

    def cell_std(self, noise):
        """Return the standard deviation of noise on cells of tables, in records."""
        return noise.std / self.record

    def asking(self, sizes, noise, n_holders=1):
        """Ask for tables; what is asked next depends on noisy answers alone.

        Parameters
        ----------
        sizes : sequence of int
            Number of states of each column.
        noise : CountMechanism or DistributedNoise or None
            What answers have.
        n_holders : int, default=1
            Whose distances are added up.

        Yields
        ------
        question : Question
            To be answered by noisy integers.

        Returns
        -------
        found : dict
            Plain data, for :meth:`read`.
        """
        raise NotImplementedError

    def alone(self, count, sizes, noise):
        """Ask a holder of all rows; return what was found, and the answers.

        Parameters
        ----------
        count : callable
            From a TableLayout to exact integer counts.
        sizes : sequence of int
        noise : CountMechanism or None

        Returns
        -------
        found : dict
        answers : list of ndarray of int64
        """
        answers = []

        def answer(question):
            exact = question.answer(count, sizes)
            answers.append(exact if noise is None else noise.release(exact))
            return answers[-1]

        return ask(self.asking(sizes, noise), answer), answers

    def read(self, found, answers, noise, make_layout):
        """Return what was released.

        Parameters
        ----------
        found, answers :
            From :meth:`asking`, and the answers that it got.
        noise : CountMechanism or DistributedNoise or None
        make_layout : callable
            From cliques, and perhaps ties, to a TableLayout.

        Returns
        -------
        released : Released
        """
        raise NotImplementedError


class GivenTables(TableSearch):
    """Tables of given cliques, all at once."""

    what = "contingency tables of cliques"

    @property
    def changes(self):
        """By how much one person changes each table.

        A person's records, taken together, change the table of a clique by at most
        `per_record` in total, and a tied table by that times its number of cliques. All
        of it may fall into one cell, so that L1 and L2 norm of the change are the same
        within a table. Where neighbours exchange a record for another, a cell loses it
        and another gets it.
        """
        return np.repeat(np.bincount(self.ties) * self.per_record, self.n_changed)

    def check(self, sizes, make_layout, max_cells):
        """Raise what can be raised before budget is spent."""
        make_layout(self.cliques, self.ties)

    def asking(self, sizes, noise, n_holders=1):
        """Ask for all tables."""
        yield Question(self.cliques, 1, self.changes, ties=self.ties)
        return {}

    def read(self, found, answers, noise, make_layout):
        """Return what was released."""
        layout = make_layout(self.cliques, self.ties)
        return Released.from_counts(layout, answers[-1], self.record, noise)


class PrivateTree(TableSearch):
    """One-way tables, a tree of columns, and the two-way tables of its edges.

    For a holder of all rows. Each of the three stages gets a third of the budget. The
    edges of the spanning tree are chosen one after the other: among the pairs that join
    two parts of the tree so far, one whose table is far from the product of the (noisy)
    one-way tables, by report-noisy-max.
    """

    what = "one-way tables, a tree and two-way tables"

    def check(self, sizes, make_layout, max_cells):
        """Raise what can be raised before budget is spent."""
        check_table_sizes(all_pairs(sizes).cliques, sizes, max_cells)

    @property
    def rho(self):
        """Cost of the whole as zCDP; None for pure epsilon."""
        return None if self.delta == 0 else zcdp_budget(self.epsilon, self.delta)

    @property
    def one_way(self):
        """Noise of the tables of all columns."""
        return self._tables(self.n_columns)

    @property
    def noise(self):
        """Noise of the tables of the tree."""
        return self._tables(self.n_columns - 1)

    def _tables(self, n_tables):
        if self.delta == 0:
            return CountMechanism.for_budget(
                self.epsilon / 3, l1_sensitivity=n_tables * self.per_record
            )
        sensitivity = float(np.sqrt(n_tables) * self.per_record)
        sigma = sensitivity / np.sqrt(2 * self.rho / 3)
        return CountMechanism("gaussian", self.epsilon, self.delta, sigma, sensitivity)

    @property
    def selection_scale(self):
        """Scale of the noise of one choice."""
        n_choices = self.n_columns - 1
        if self.delta == 0:
            return 2 * self.per_record * 3 * n_choices / self.epsilon
        return 2 * self.per_record / np.sqrt(8 * self.rho / 3 / n_choices)

    def alone(self, count, sizes, noise):
        """Release one-way tables, choose a tree, release its two-way tables."""
        n = len(sizes)
        singles, pairs = TableLayout([(i,) for i in range(n)], sizes), all_pairs(sizes)
        one_way = self.one_way.release(count(singles))
        std, kind = self.one_way.std, self.one_way.kind
        noisy = NoisyTables(singles, one_way.astype(float), np.full(n, std), kind)
        exact = dict(zip(pairs.cliques, pairs.split(count(pairs))))
        scores = dependence_scores(exact, singles.split(one_way), noisy.n_records())
        edges = select_tree(scores, n, self.selection_scale, pure=self.delta == 0)
        two_way = noise.release(np.concatenate([exact[edge].ravel() for edge in edges]))
        return {"cliques": singles.cliques + edges}, [one_way, two_way]

    def read(self, found, answers, noise, make_layout):
        """Return what was released."""
        n = self.n_columns
        std = np.array([self.one_way.std] * n + [noise.std] * (n - 1))
        layout, counts = make_layout(found["cliques"]), np.concatenate(answers)
        return Released.from_counts(layout, counts, self.record, noise, std)


def dependence_scores(two_way, one_way, n_records):
    """L1 distance of each pair's counts to the product of noisy one-way tables.

    The product is rounded to integers, so that scores are integers; one record more
    changes a score by at most one.

    Parameters
    ----------
    two_way : dict of (int, int) to ndarray of int
        Exact counts.
    one_way : list of ndarray
        Noisy counts of each column.
    n_records : float
        Noisy number of records.

    Returns
    -------
    scores : dict of (int, int) to int
    """
    shares = [project_to_simplex(table / n_records) for table in one_way]
    return {
        (i, j): int(
            np.abs(
                table - np.rint(n_records * np.outer(shares[i], shares[j])).astype(int)
            ).sum()
        )
        for (i, j), table in two_way.items()
    }


def select_tree(scores, n_columns, scale, pure=True):
    """Choose the edges of a spanning tree by report-noisy-max.

    Parameters
    ----------
    scores : dict of (int, int) to int
        Sensitivity one each.
    n_columns : int
    scale : float
        Noise scale of every choice.
    pure : bool, default=True
        See :func:`noisy_max`.

    Returns
    -------
    edges : list of (int, int)
    """
    part = list(range(n_columns))
    edges = []
    while len(edges) < n_columns - 1:
        candidates = [
            pair
            for pair in combinations(range(n_columns), 2)
            if part[pair[0]] != part[pair[1]]
        ]
        chosen = candidates[noisy_max([scores[p] for p in candidates], scale, pure)]
        edges.append(chosen)
        joined, kept = part[chosen[1]], part[chosen[0]]
        part = [kept if p == joined else p for p in part]
    return sorted(edges)


def all_pairs(sizes):
    """Layout of the tables of all pairs of columns."""
    return TableLayout(list(combinations(range(len(sizes)), 2)), sizes)
