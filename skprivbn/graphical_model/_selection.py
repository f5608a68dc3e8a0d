"""Choice of a tree: which pairs of columns to measure.

A holder of all rows releases one-way tables first. Then the edges of a spanning tree
are chosen one after the other: among the pairs that join two parts of the tree so far,
one whose table is far from the product of the (noisy) one-way tables, by
report-noisy-max. Each stage, with the two-way tables of the chosen pairs that are
released last, gets a third of the budget.

References
----------
R. McKenna, G. Miklau, D. Sheldon (2021). Winning the NIST contest: a scalable and
general approach to differentially private synthetic data. JPC.
"""

from itertools import combinations

import numpy as np

from skprivbn.graphical_model._searches import Released, TableSearch
from skprivbn.graphical_model._tables import (
    NoisyTables,
    TableLayout,
    check_table_sizes,
    project_to_simplex,
)
from skprivbn.privacy import CountMechanism
from skprivbn.privacy._composition import zcdp_budget
from skprivbn.privacy._mechanisms import noisy_max


class PrivateTree(TableSearch):
    """A budget cut into thirds: one-way tables, choosing, two-way tables."""

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
