"""Scores of K2 in integers, the same for pooled data and for shared counts.

Every criterion is a sum over the parent configurations j of a node with r states::

    sum_j [ constant + sum_k cell[a_jk] + configuration[N_j] ]

where a_jk are the counts of the family and N_j their sums over k. The two tables hold
integers, the real values times 2^24, rounded. Adding integers is exact in any order
and in any ring, so pooled and private learners compare the very same numbers; they
differ from the real-valued score by at most the number of table entries added times
2^-25.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from scipy.special import gammaln, xlogy

FRACTION_BITS = 24
_CHUNK = 1 << 16
_HALF_LOG_TWO_PI = 0.5 * np.log(2 * np.pi)


def _log_factorial(counts):
    return gammaln(counts + 1.0)


def _stirling(counts, constant):
    """ln of Stirling's l!, with l = max(count, 1) in every term.

    Clamping inside the logarithms only would leave ``-l`` at zero for empty cells
    and give every empty parent configuration a bonus.
    """
    number = np.maximum(counts, 1.0)
    return constant + (number + 0.5) * np.log(number) - number


def _k2(counts, n_samples, n_states, n_configurations, sample_size):
    return (
        _log_factorial(counts),
        -_log_factorial(counts + n_states - 1),
        _log_factorial(n_states - 1),
    )


def _stirling_k2(counts, n_samples, n_states, n_configurations, sample_size):
    return (
        _stirling(counts, _HALF_LOG_TWO_PI),
        -_stirling(counts + n_states - 1, _HALF_LOG_TWO_PI),
        _log_factorial(n_states - 1),
    )


def _wright_yang(counts, n_samples, n_states, n_configurations, sample_size):
    """g of Wright and Yang (2004): Stirling's formula without its constants."""
    return _stirling(counts, 0.0), -_stirling(counts + n_states - 1, 0.0), 0.0


def _bdeu(counts, n_samples, n_states, n_configurations, sample_size):
    per_configuration = sample_size / n_configurations
    per_cell = per_configuration / n_states
    return (
        gammaln(counts + per_cell) - gammaln(per_cell),
        gammaln(per_configuration) - gammaln(counts + per_configuration),
        0.0,
    )


def _bic(counts, n_samples, n_states, n_configurations, sample_size):
    penalty = 0.5 * np.log(max(n_samples, 1)) * (n_states - 1)
    return xlogy(counts, counts), -xlogy(counts, counts), -penalty


CRITERIA = {
    "k2": _k2,
    "stirling": _stirling_k2,
    "wright_yang": _wright_yang,
    "bdeu": _bdeu,
    "bic": _bic,
}


@dataclass(frozen=True, eq=False)
class ScoreTerms:
    """Integer tables of one criterion, for counts from 0 to n_samples.

    Attributes
    ----------
    cell, configuration : ndarray of int64, shape (n_samples + 1,)
    constant : int
        Per parent configuration.
    """

    cell: np.ndarray
    configuration: np.ndarray
    constant: int

    def score(self, counts):
        """Score of a family from its counts, the node on axis 0, its parents after."""
        per_configuration = counts.sum(axis=0)
        return (
            int(self.cell[counts].sum())
            + int(self.configuration[per_configuration].sum())
            + self.constant * per_configuration.size
        )

    @cached_property
    def sensitivity(self):
        """Most by which another record in the place of one changes a score.

        A record more adds a step of each table, cell[a + 1] - cell[a] and
        configuration[N + 1] - configuration[N], with a at most N. What two records may
        add to the scores of the others differs by no more than the range of this: for
        "k2", in real numbers, by ln n.
        """
        cell, rest = np.diff(self.cell), np.diff(self.configuration)
        if not len(cell):
            return 0
        most = (np.maximum.accumulate(cell) + rest).max()
        return int(most - (np.minimum.accumulate(cell) + rest).min())

    def bound(self, n_states, n_configurations):
        """Largest absolute value that a score can take; public."""
        total = abs(self.constant) * n_configurations + self._rises
        for table, entries in (
            (self.cell, n_states * n_configurations),
            (self.configuration, n_configurations),
        ):
            total += entries * abs(int(table[0]))
        return total

    @cached_property
    def _rises(self):
        """Bound on what entries of all counts differ from those of zero."""
        total = 0
        for table in (self.cell, self.configuration):
            # counts add up to n_samples: at most the steepest slope times that
            n_samples, steepest = len(table) - 1, 0.0
            for start in range(1, len(table), _CHUNK):
                rise = np.abs(table[start : start + _CHUNK] - table[0])
                slope = rise / np.arange(start, start + len(rise))
                steepest = max(steepest, slope.max())
            total += n_samples * int(np.ceil(steepest))
        return total


@lru_cache(maxsize=64)
def score_terms(
    criterion, n_samples, n_states, n_configurations, equivalent_sample_size=10.0
):
    """Return the integer tables of a criterion.

    Parameters
    ----------
    criterion : {"k2", "stirling", "wright_yang", "bdeu", "bic"}
        ``"k2"`` is the score of Cooper and Herskovits, ``"stirling"`` its
        approximation by Stirling's formula, ``"wright_yang"`` that without constants,
        ``"bdeu"`` the likelihood-equivalent
        uniform Dirichlet score, ``"bic"`` the Bayesian information criterion.
    n_samples : int
    n_states : int
        States of the node.
    n_configurations : int
        Configurations of its parents.
    equivalent_sample_size : float, default=10.0
        For ``"bdeu"``.

    Returns
    -------
    terms : ScoreTerms
    """
    scale = 1 << FRACTION_BITS
    tables = np.empty((2, n_samples + 1), dtype=np.int64)
    for start in range(0, n_samples + 1, _CHUNK):
        part = slice(start, min(start + _CHUNK, n_samples + 1))
        counts = np.arange(part.start, part.stop, dtype=float)
        *entries, constant = CRITERIA[criterion](
            counts, n_samples, n_states, n_configurations, equivalent_sample_size
        )
        for table, values in zip(tables, entries):
            table[part] = np.rint(values * scale)
    tables.setflags(write=False)
    return ScoreTerms(*tables, round(float(constant) * scale))
