"""Choice of a tree: which pairs of columns to measure.

A holder of all rows releases one-way tables first. Then the edges of a spanning tree
are chosen one after the other: among the pairs that join two parts of the tree so far,
one whose table is far from the product of the (noisy) one-way tables, by
report-noisy-max. Each stage, with the two-way tables of the chosen pairs that are
released last, gets a third of the budget.

Report-noisy-max needs exact scores in one place, and distances of tables are no sums
over holders. The tables are: so several holders, who trust no curator, release the
tables of all pairs first, with half of the budget and their shares of noise. The tree
is computed from these noisy tables, at no further cost, and the tables of its edges are
released with the other half.

References
----------
R. McKenna, G. Miklau, D. Sheldon (2021). Winning the NIST contest: a scalable and
general approach to differentially private synthetic data. JPC.
"""

from itertools import combinations

import numpy as np

from skprivbn.graphical_model._searches import Question, Released, TableSearch
from skprivbn.graphical_model._tables import (
    NoisyTables,
    TableLayout,
    check_table_sizes,
    project_to_simplex,
)
from skprivbn.privacy import CountMechanism
from skprivbn.privacy._composition import zcdp_budget
from skprivbn.privacy._mechanisms import noisy_max


class _Tree(TableSearch):
    """Tables of a spanning tree, after tables of all pairs were looked at."""

    def check(self, sizes, make_layout, max_cells):
        """Raise what can be raised before budget is spent."""
        check_table_sizes(all_pairs(sizes).cliques, sizes, max_cells)


class PrivateTree(_Tree):
    """A budget cut into thirds: one-way tables, choosing, two-way tables."""

    what = "one-way tables, a tree and two-way tables"

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


class TreeSearch(_Tree):
    """Tables of all pairs, then those of a tree that is computed from them.

    Noise of the same scale on both: what a record adds to the tables of all pairs is
    multiplied by `pair_unit`, what it adds to those of the tree by `edge_unit`, so that
    either release has half of the L1 sensitivity (Laplace) or, nearly, half of the
    squared L2 sensitivity (Gaussian). The second release depends on the first, which
    changes nothing: whichever the tree, a record changes n - 1 cells by one.
    """

    what = "all two-way tables, and those of a tree"

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
    def pair_changes(self):
        """By how much one person changes each table of all pairs."""
        n_pairs = self.n_columns * (self.n_columns - 1) // 2
        return [self.per_record * self.pair_unit] * n_pairs

    @property
    def edge_changes(self):
        """By how much one person changes each table of the tree."""
        return [self.per_record * self.edge_unit] * (self.n_columns - 1)

    @property
    def changes(self):
        """By how much one person changes each table of both releases."""
        return self.pair_changes + self.edge_changes

    def cell_std(self, noise):
        """Return the standard deviation of noise on cells of the tree's tables."""
        return noise.std / (self.edge_unit * self.record)

    def asking(self, sizes, noise, n_holders=1):
        """Ask for the tables of all pairs, and of the tree that they show."""
        pairs = all_pairs(sizes)
        total = yield Question(pairs.cliques, self.pair_unit, self.pair_changes)
        unit = self.pair_unit * self.record
        scores = dependence_tests(pairs, total / unit, noise.std / unit)
        edges = maximum_spanning_tree(scores, len(sizes))
        yield Question(edges, self.edge_unit, self.edge_changes)
        return {"edges": [list(edge) for edge in edges]}

    def read(self, found, answers, noise, make_layout):
        """Return what was released."""
        layout = make_layout([tuple(edge) for edge in found["edges"]])
        unit = self.edge_unit * self.record
        return Released.from_counts(layout, answers[-1], unit, noise)


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
