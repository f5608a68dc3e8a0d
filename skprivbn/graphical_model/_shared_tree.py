"""Choosing a tree when several holders share the rows and trust no curator.

Report-noisy-max needs exact scores in one place, and distances of tables are no sums
over holders. The tables are: so the tables of all pairs are released first, with half
of the budget and the holders' shares of noise. The tree is computed from these noisy
tables, at no further cost, and the tables of its edges are released with the other
half.
"""

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from skprivbn.federation import PartyRefusal, declare_noise, operation
from skprivbn.graphical_model._layout import TableLayout, project_to_simplex
from skprivbn.graphical_model._release import (
    CountingParty,
    CountingTerms,
    open_sum,
)
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
        n = self.n_columns
        units = [self.pair_unit] * (n * (n - 1) // 2) + [self.edge_unit] * (n - 1)
        changes = self.per_record * np.array(units)
        return CountMechanism.for_budget(
            self.epsilon,
            self.delta,
            int(changes.sum()),
            float(np.sqrt((changes.astype(float) ** 2).sum())),
        )


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


def is_spanning_tree(edges, n_columns):
    """Tell whether pairs i < j are the edges of a spanning tree."""
    inside = all(0 <= i < j < n_columns for i, j in edges)
    scores = dict.fromkeys(edges, 0.0)
    return inside and len(maximum_spanning_tree(scores, n_columns)) == n_columns - 1


@dataclass(frozen=True)
class TreeTerms(CountingTerms):
    """Terms of a tree that several holders choose."""

    def check(self):
        """Refuse a tree of one column."""
        super().check()
        if len(self.nodes) < 2:
            raise ValueError("a tree takes two columns")

    def rounds(self, n_parties):
        """Return two sums, each with its hand-over."""
        return 4

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


class TreeParty(CountingParty):
    """A data holder: noisy tables of all pairs first, then those of a tree."""

    terms = TreeTerms

    def schedule(self):
        """Two sums; where only key holders can read them, they hand them over."""
        yield "pairs"
        if (yield "release", "tree") == "release":
            yield "tree"
        yield "release"

    @operation(
        tells="contingency tables of all pairs of columns plus its share of the noise",
        kind="noisy release",
    )
    def pairs(self):
        """Hide noisy counts of all pairs."""
        return self.hide_noisy(
            self.terms.budget.pair_unit * self.count(all_pairs(self.terms.sizes))
        )

    @operation(
        tells="contingency tables of the tree plus its share of the noise",
        kind="noisy release",
        hears="a tree, chosen by the noisy tables",
    )
    def tree(self, edges):
        """Hide noisy counts of the tree; any tree costs the same."""
        n_columns = len(self.terms.sizes)
        if edges.shape != (n_columns - 1, 2) or edges.dtype != np.int64:
            raise PartyRefusal("refused")
        edges = [(int(i), int(j)) for i, j in edges]
        if not is_spanning_tree(edges, n_columns):
            raise PartyRefusal("refused")
        layout = TableLayout(edges, self.terms.sizes)
        return self.hide_noisy(self.terms.budget.edge_unit * self.count(layout))


def release_tree(federation, noise, sizes, budget):
    """Coordinator's side: noisy tables of all pairs, a tree, noisy tables of it.

    Returns
    -------
    edges : list of (int, int)
    counts : ndarray of int64
        Noisy tables of the edges, of ``budget.edge_unit * budget.record`` a record.
    """
    noise.check_survivors(len(federation.active))
    pairs = all_pairs(sizes)
    values = open_sum(federation, "pairs")
    unit = budget.pair_unit * budget.record
    scores = dependence_tests(pairs, values / unit, noise.std / unit)
    edges = maximum_spanning_tree(scores, len(sizes))
    noise.check_survivors(len(federation.active))
    counts = open_sum(federation, "tree", {"edges": np.array(edges, dtype=np.int64)})
    declare_noise(
        federation.ledger,
        noise,
        "contingency tables of all pairs of columns, and those of a tree again",
        federation.terms.protects,
    )
    return edges, counts
