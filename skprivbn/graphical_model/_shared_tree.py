"""Choosing a tree when several holders share the rows and trust no curator.

Report-noisy-max needs exact scores in one place, and distances of tables are no sums
over holders. The tables are: so the tables of all pairs are released first, with half
of the budget and the holders' shares of noise. The tree is computed from these noisy
tables, at no further cost, and the tables of its edges are released with the other
half.
"""

from collections.abc import Generator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from skprivbn.federation import Me, Noisy, program
from skprivbn.graphical_model._counting import norms
from skprivbn.graphical_model._layout import TableLayout, project_to_simplex
from skprivbn.graphical_model._release import CountingTerms, row_counter
from skprivbn.privacy import CountMechanism


@dataclass(frozen=True)
class SharedTreeBudget:
    """One noise for both releases, whose counts are multiplied to halve the budget.

    Noise of the same scale on both: what a record adds to the tables of all pairs is
    multiplied by `pair_unit`, what it adds to those of the tree by `edge_unit`, so that
    either release has half of the L1 sensitivity (Laplace) or, nearly, half of the
    squared L2 sensitivity (Gaussian). The second release depends on the first, which
    changes nothing: whichever the tree, a record changes n - 1 cells by one.

    Parameters
    ----------
    epsilon, delta : float
        Guarantee of both releases together.
    n_columns : int
        Number of columns, at least 2.
    per_record : int, default=1
        Most that one person adds to one table.
    record : int, default=1
        What a record counts before it is multiplied.
    """

    epsilon: float
    delta: float
    n_columns: int
    per_record: int = 1
    record: int = 1

    @property
    def pair_unit(self):
        """Counts per record in the tables of all pairs."""
        return 2 if self.delta == 0 else 16

    @property
    def edge_unit(self):
        """Counts per record in the tables of the tree."""
        if self.delta == 0:
            return self.n_columns
        return round(self.pair_unit * np.sqrt(self.n_columns / 2))

    @property
    def noise(self):
        """Noise of one curator."""
        return CountMechanism.for_budget(
            self.epsilon, self.delta, *norms(self.pair_changes + self.edge_changes)
        )

    @property
    def pair_changes(self):
        """By how much one person changes each table of all pairs."""
        n_pairs = self.n_columns * (self.n_columns - 1) // 2
        return [self.per_record * self.pair_unit] * n_pairs

    @property
    def edge_changes(self):
        """By how much one person changes each table of the tree."""
        return [self.per_record * self.edge_unit] * (self.n_columns - 1)


def all_pairs(sizes):
    """Layout of the tables of all pairs of columns."""
    return TableLayout(list(combinations(range(len(sizes)), 2)), sizes)


def dependence_tests(pairs, values, std):
    """How far noisy tables are from independence, beyond what noise explains.

    The chi-square distance to the product of one-way tables (averages over all pair
    tables), each cell weighted by its sampling and noise variance, minus the number of
    cells: about zero for independent columns, whatever the size of the table, and
    about twice the log-likelihood that the edge gains when there is little noise.

    Parameters
    ----------
    pairs : TableLayout
        From :func:`all_pairs`.
    values : ndarray of shape (n_parameters,)
        Noisy counts, in records.
    std : float
        Standard deviation of the noise, in records.

    Returns
    -------
    scores : dict of (int, int) to float
    """
    tables = dict(zip(pairs.cliques, pairs.split(values)))
    one_way = [np.zeros(size) for size in pairs.sizes]
    for (i, j), table in tables.items():
        one_way[i] += table.sum(axis=1)
        one_way[j] += table.sum(axis=0)
    n_records = max(sum(t.sum() for t in one_way) / (2 * len(tables)), 1.0)
    shares = [project_to_simplex(table / max(table.sum(), 1.0)) for table in one_way]
    scores = {}
    for (i, j), table in tables.items():
        expected = n_records * np.outer(shares[i], shares[j])
        variance = expected + max(std**2, 1e-12)
        scores[i, j] = float(((table - expected) ** 2 / variance - 1).sum())
    return scores


def maximum_spanning_tree(scores, n_columns):
    """Edges of the spanning tree with the largest total score (Kruskal)."""
    part, edges = list(range(n_columns)), []
    for i, j in sorted(scores, key=scores.get, reverse=True):
        if part[i] != part[j]:
            edges.append((i, j))
            part = [part[i] if p == part[j] else p for p in part]
    return sorted(edges)


@dataclass(frozen=True)
class TreeTerms(CountingTerms):
    """Terms of a tree that several holders choose."""

    def check(self):
        """Refuse a tree of one column."""
        super().check()
        if len(self.nodes) < 2:
            raise ValueError("a tree takes two columns")

    def memory(self, n_features):
        """Return the cells of the tables of all pairs."""
        return 0, sum(i * j for i, j in combinations(self.sizes, 2))

    @property
    def budget(self):
        """How the noise is shared by both releases."""
        contribution = self.contribution
        return SharedTreeBudget(
            self.epsilon,
            self.delta,
            len(self.nodes),
            contribution.per_clique,
            contribution.unit,
        )

    def mechanism(self):
        """Return the noise that one curator would add."""
        return self.budget.noise


@program(TreeTerms)
def noisy_tree(me: Me) -> Generator[Any, Any, dict]:
    """Noisy tables of all pairs, the tree that they show, noisy tables of the tree."""
    terms, budget, count = me.terms, me.terms.budget, row_counter(me)
    noise = terms.noise(len(terms.nodes), len(me.roster))
    pairs, unit = all_pairs(terms.sizes), budget.pair_unit
    total = yield Noisy(
        unit * count(pairs),
        noise.part(*norms(budget.pair_changes)),
        "contingency tables of all pairs of columns, with noise",
    )
    unit *= budget.record
    scores = dependence_tests(pairs, total / unit, noise.std / unit)
    edges = maximum_spanning_tree(scores, len(terms.sizes))
    layout = TableLayout(edges, terms.sizes)
    yield Noisy(
        budget.edge_unit * count(layout),
        noise.part(*norms(budget.edge_changes)),
        "contingency tables of the tree that they show, with noise",
    )
    return {"edges": [list(edge) for edge in edges]}
