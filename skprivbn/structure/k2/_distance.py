"""The criterion "total_variation": how far a column is from independent of its parents.

Half the sum of absolute differences between the counts of a family and those that
independence of node and parents would give::

    sum_j 1/2 sum_k |a_jk - e_k(N_j)| - penalty

where e_k(N) apportions N records among the node's states in proportion to its own
counts, in whole numbers, so that one record more gives one state one more (Webster's
method). It is the score R of PrivBayes [1]_, times the number of records, with the
counts of the node taken as known. So one record more or less changes it by at most 1,
whatever the number of records, where logarithms change by that of this number.

More parents never lower the sum. The penalty is one and a half times what chance would
give, if node and parents were independent and all configurations of parents as likely
as each other.

References
----------
.. [1] J. Zhang, G. Cormode, C. Procopiuc, D. Srivastava, X. Xiao (2017). PrivBayes:
   private data release via Bayesian networks. ACM TODS 42.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from skprivbn.structure._search import LocalScores
from skprivbn.structure.k2._scores import FRACTION_BITS


def apportion(weights, n):
    """Apportion 0, 1, ..., n records among states, in whole numbers.

    Each further record goes to one state, by Webster's method: state k gets its i-th
    record at the time (i - 1/2) / weight.

    Parameters
    ----------
    weights : array-like of shape (n_states,)
        Not negative, some of them positive.
    n : int

    Returns
    -------
    shares : ndarray of int32, shape (n_states, n + 1)
    """
    weights = np.asarray(weights, dtype=float)
    # no state gets more than its quota and half a record for each of the others
    most = np.ceil(n * weights / weights.sum() + len(weights)).astype(int)
    states = np.repeat(np.arange(len(weights)), np.where(weights > 0, most, 0))
    numbers = np.concatenate([np.arange(m) for m, w in zip(most, weights) if w > 0])
    times = (2 * numbers + 1) / weights[states]
    receives = states[np.argsort(times, kind="stable")[:n]]
    shares = np.zeros((len(weights), n + 1), dtype=np.int32)
    shares[receives, np.arange(1, n + 1)] = 1
    return shares.cumsum(axis=1, dtype=np.int32)


@dataclass(frozen=True, eq=False)
class DistanceTerms:
    """The criterion for one node.

    Parameters
    ----------
    weights : ndarray of shape (n_states,)
        Counts of the node itself, with or without noise; negative ones count as 0.
    n_samples : int
    """

    weights: np.ndarray
    n_samples: int

    #: one record more or less changes a score by 1, another record by twice that
    sensitivity = 2 << FRACTION_BITS

    @cached_property
    def probabilities(self):
        """What is taken for the distribution of the node."""
        weights = np.maximum(self.weights, 0)
        if not weights.any():
            weights = np.ones(len(weights))
        return weights / weights.sum()

    @cached_property
    def expected(self):
        """e_k(N) for all states and numbers of records: (n_states, n_samples + 1)."""
        return apportion(self.probabilities, self.n_samples)

    @cached_property
    def by_state(self):
        """The same, an array for each state, of which each is always the same one."""
        return list(self.expected)

    def constant(self, n_configurations):
        """Return minus the penalty."""
        p = self.probabilities
        per_root = 0.5 * np.sqrt(2 / np.pi * p * (1 - p)).sum()
        chance = per_root * np.sqrt(n_configurations * self.n_samples)
        return -round(1.5 * float(chance) * (1 << FRACTION_BITS))

    def score(self, counts):
        """Score of a family from its counts, the node on axis 0, its parents after."""
        counts = counts.reshape(len(counts), -1)
        expected = self.expected[:, counts.sum(axis=0)]
        distance = int(np.abs(counts - expected).sum())
        return (distance << FRACTION_BITS - 1) + self.constant(counts.shape[1])

    def bound(self, n_states, n_configurations):
        """Largest absolute value that a score can take; public."""
        penalty = abs(self.constant(n_configurations))
        return max(self.n_samples << FRACTION_BITS, penalty)


class DistanceScores(LocalScores):
    """Scores of all families from tables of pooled rows.

    Parameters
    ----------
    tables : AskedTables
    n_samples : int
    """

    def __init__(self, tables, n_samples):
        self.tables, self.n_variables = tables, len(tables.n_states)
        self._terms = [
            DistanceTerms(tables.family([], v), n_samples)
            for v in range(self.n_variables)
        ]

    def fits(self, child, parents):
        """Tell which further parents leave a table that is not too large."""
        return self.tables.fits([child, *parents])

    def score(self, child, parents):
        """Return the score of a node with some parents."""
        counts = self.tables.family(parents, child)
        return self._terms[child].score(np.moveaxis(counts, -1, 0))
