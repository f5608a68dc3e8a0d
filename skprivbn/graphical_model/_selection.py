"""Private choice of a tree: which pairs of columns to measure.

One-way tables are released first. Then the edges of a spanning tree are chosen one
after the other: among the pairs that join two parts of the tree so far, one whose
table is far from the product of the (noisy) one-way tables, by report-noisy-max. Each
stage, with the two-way tables of the chosen pairs that are released last, gets a
third of the budget.

References
----------
R. McKenna, G. Miklau, D. Sheldon (2021). Winning the NIST contest: a scalable and
general approach to differentially private synthetic data. JPC.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import numpy as np

from skprivbn.graphical_model._layout import (
    NoisyTables,
    TableLayout,
    project_to_simplex,
)
from skprivbn.privacy import CountMechanism
from skprivbn.privacy._composition import zcdp_budget


@dataclass(frozen=True)
class TreeBudget:
    """A budget cut into thirds: one-way tables, choosing, two-way tables.

    Parameters
    ----------
    epsilon, delta : float
        Guarantee of the whole.
    n_columns : int
        Number of columns, at least 2.
    per_record : int
        Most that one person adds to one table.

    Attributes
    ----------
    rho : float or None
        Cost of the whole as zCDP; None for pure epsilon.
    one_way, two_way : CountMechanism
        Noise of the tables.
    selection_scale : float
        Scale of the noise of one choice.
    """

    epsilon: float
    delta: float
    n_columns: int
    per_record: int = 1

    @property
    def rho(self):
        return None if self.delta == 0 else zcdp_budget(self.epsilon, self.delta)

    @property
    def one_way(self):
        return self._tables(self.n_columns)

    @property
    def two_way(self):
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
        n_choices = self.n_columns - 1
        if self.delta == 0:
            return 2 * self.per_record * 3 * n_choices / self.epsilon
        return 2 * self.per_record / np.sqrt(8 * self.rho / 3 / n_choices)


def noisy_max(scores, scale, pure=True):
    """Index of the largest of integer scores after adding noise, by OpenDP.

    Exponential noise for pure epsilon, Gumbel noise for zCDP: a choice with noise of
    scale 2 / e costs epsilon = e, or rho = e^2 / 8.
    """
    return int(_chooser(float(scale), pure)([int(score) for score in scores]))


@lru_cache(maxsize=16)
def _chooser(scale, pure):
    from opendp import prelude as dp

    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    measure = dp.max_divergence() if pure else dp.zero_concentrated_divergence()
    return dp.m.make_noisy_max(domain, dp.linf_distance(T="i64"), measure, scale=scale)


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


def measure_tree(count, sizes, budget):
    """Release one-way tables, a tree, and the two-way tables of its edges.

    Parameters
    ----------
    count : callable
        From a TableLayout to its exact integer counts.
    sizes : sequence of int
        Number of states of each column.
    budget : TreeBudget

    Returns
    -------
    cliques : list of tuple of int
        All single columns, then the edges of the tree.
    counts : ndarray of int64
        Their noisy tables, one after the other.
    std : ndarray of shape (n_cliques,)
        Standard deviation of the noise on each table.
    """
    n = len(sizes)
    singles = TableLayout([(i,) for i in range(n)], sizes)
    one_way = budget.one_way.release(count(singles))
    noisy = NoisyTables(
        singles,
        one_way.astype(float),
        np.full(n, budget.one_way.std),
        budget.one_way.kind,
    )
    pairs = TableLayout(list(combinations(range(n), 2)), sizes)
    exact = dict(zip(pairs.cliques, pairs.split(count(pairs))))
    scores = dependence_scores(exact, singles.split(one_way), noisy.n_records())
    edges = select_tree(scores, n, budget.selection_scale, pure=budget.delta == 0)
    two_way = budget.two_way.release(
        np.concatenate([exact[edge].ravel() for edge in edges])
    )
    std = [budget.one_way.std] * n + [budget.two_way.std] * len(edges)
    return singles.cliques + edges, np.concatenate([one_way, two_way]), np.array(std)
