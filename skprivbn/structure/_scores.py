"""Scores of families of discrete variables, in integers, from pooled or shared counts.

Every criterion is a sum over the parent configurations j of a node with r states::

    sum_j [ constant + sum_k cell[a_jk] + configuration[N_j] ]

where a_jk are the counts of the family and N_j their sums over k. The two tables hold
integers, the real values times 2^24, rounded. Adding integers is exact in any order
and in any ring, so pooled and private learners compare the very same numbers; they
differ from the real-valued score by at most the number of table entries added times
2^-25.

Only "total_variation" is another sum, of how far a column is from independent of its
parents: half the absolute differences between the counts of a family and those that
independence would give::

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
from functools import cached_property, lru_cache

import numpy as np
from scipy.special import gammaln, xlogy

from skprivbn.structure._resampling import Resampled
from skprivbn.structure._search import LocalScores
from skprivbn.structure._tables import wide

#: beyond, tables of all counts would take more memory than they save time
_MAX_LOOKUP = 1 << 18

#: how often noise is drawn to see what it gains, and what counts as chance then
_N_DRAWS, _SURPRISE = 32, 3.0

#: of families whose table is hidden: below all scores, and differences are numbers
_NEVER = -(1 << 61)

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
            DistanceTerms(tables.ordered([v]), n_samples)
            for v in range(self.n_variables)
        ]

    def fits(self, child, parents):
        """Tell which further parents leave a table that is not too large."""
        return self.tables.fits([child, *parents])

    def score(self, child, parents):
        """Return the score of a node with some parents."""
        counts = self.tables.ordered([*parents, child])
        return self._terms[child].score(np.moveaxis(counts, -1, 0))


class TableScores(LocalScores):
    """Scores with 24 fractional bits, as integers: exact, and ties are ties.

    Parameters
    ----------
    tables : AskedTables
    n_samples : float
        Rows of all parties.
    criterion : {"k2", "stirling", "wright_yang", "bdeu", "bic"}
    equivalent_sample_size : float, default=10.0
        For "bdeu".
    """

    def __init__(self, tables, n_samples, criterion, equivalent_sample_size=10.0):
        self.tables, self.n_samples = tables, n_samples
        self.criterion, self.sample_size = criterion, equivalent_sample_size
        self.n_variables = len(tables.n_states)
        self._known = {}

    def resampled(self, rng):
        """Return the scores of one bootstrap sample."""
        return TableScores(
            Resampled(self.tables, rng),
            self.n_samples,
            self.criterion,
            self.sample_size,
        )

    def fits(self, child, parents):
        """Tell which further parents leave a table that is not too large."""
        return self.tables.fits([child, *parents])

    def asking(self, asked):
        """Ask for all tables that scores need, in as few rounds as they take."""
        larger = [
            (child, *parents, v) for child, parents, found in asked for v in found
        ]
        bases = [(*parents, child) for child, parents, _ in asked]
        return self.tables.asking(larger + bases)

    def score(self, child, parents):
        """Return the score of a node with some parents."""
        key = child, tuple(sorted(parents))
        if key not in self._known:
            table = self.tables([child, *parents])
            before = sum(v < child for v in parents)
            noise = self.tables.variance([child, *parents])
            found = self._scores(table[np.newaxis], before + 1, noise)
            self._known[key] = int(found[0])
        return self._known[key]

    def removed(self, child, parents):
        """Return the scores without each of the parents."""
        if self.tables.consistent:
            return super().removed(child, parents)
        family = [child, *parents]
        table = self.tables(family)[np.newaxis]
        now = self.score(child, parents)
        return np.array([now - self._gains(table, family, v)[0] for v in parents])

    def added(self, child, parents, candidates):
        """Return the scores with each of some candidates as one more parent."""
        known, groups = self._known, {}
        consistent = self.tables.consistent
        if not consistent:
            now, known = self.score(child, parents), {}
        keys = [(child, tuple(sorted((*parents, v)))) for v in candidates]
        before = 1 + sum(u < child for u in parents)
        for v, key in zip(candidates, keys):
            if key in known:
                continue
            family = (child, *key[1])
            if self.tables.hides(family):
                known[key] = _NEVER
                continue
            table = self.tables(family)
            # tables that look alike are scored together
            axis = before + (v < child)
            like = axis, None if consistent else sum(u < v for u in family), table.shape
            groups.setdefault(like, []).append((key, table, family, v))
        for (axis, *_), group in groups.items():
            found, tables, (family, *_), (v, *_) = zip(*group)
            tables = np.stack(tables)
            if consistent:
                scores = self._scores(tables, axis)
            else:
                scores = now + self._gains(tables, family, v)
            known.update(zip(found, scores.tolist()))
        return np.array([known[key] for key in keys])

    def _gains(self, tables, family, v):
        """Return what one of the parents gains, compared on the same rows.

        Tables that lack rows, each of them others, do not compare with each other.
        What noise alone gains may not count.
        """
        axis, summed = (1 + sum(u < w for u in family) for w in (family[0], v))
        gains = self._plain_gains(tables, axis, summed)
        noise = self.tables.variance(family)
        if noise > 0:
            gains = gains - self._gains_of_noise(tables, axis, summed, noise)
        return gains

    def _plain_gains(self, tables, axis, summed):
        smaller = tables.sum(axis=summed, dtype=wide(tables))
        with_it = self._scores(tables, axis)
        return with_it - self._scores(smaller, axis - (summed < axis))

    def _gains_of_noise(self, tables, axis, summed, noise):
        """Return what noise makes of a parent that is none, hardly ever exceeded.

        Tables in which the two variables are independent given the others, and
        otherwise those at hand, get noise again. Beyond the mean of what is gained
        then, `_SURPRISE` standard deviations are not taken for a dependence. All this
        is computed from noisy tables and costs no privacy.
        """
        sums = [tables.sum(axis=a, keepdims=True) for a in (axis, summed)]
        both = sums[0].sum(axis=summed, keepdims=True)
        independent = sums[0] * sums[1] / np.maximum(both, np.finfo(float).tiny)
        # always the same draws: equal tables have equal scores
        shape = (_N_DRAWS, *tables.shape[1:])
        draws = np.random.default_rng(0).normal(scale=np.sqrt(noise), size=shape)
        gains = np.array(
            [
                self._plain_gains(np.maximum(table + draws, 0), axis, summed)
                for table in independent
            ]
        )
        cost = self._plain_gains(independent, axis, summed)
        most = gains.mean(axis=1) + _SURPRISE * gains.std(axis=1)
        return np.rint(np.maximum(most - cost, 0)).astype(np.int64)

    def _scores(self, tables, axis, noise=0.0):
        """Score stacked tables of one shape; their child is at the given axis.

        Noise of some variance makes counts look more uneven than they are: what that
        adds to a log-likelihood, to second order, is taken off.
        """
        n_states = tables.shape[axis]
        n_before = int(np.prod(tables.shape[1:axis]))
        counts = tables.reshape(len(tables), n_before, n_states, -1)
        totals = counts.sum(axis=2, dtype=wide(counts))
        n_configurations = totals[0].size
        if counts.dtype.kind != "f" and self.n_samples < _MAX_LOOKUP:
            terms = score_terms(
                self.criterion,
                int(self.n_samples),
                n_states,
                n_configurations if self.criterion == "bdeu" else 1,
                self.sample_size,
            )
            cells, rest = terms.cell[counts], terms.configuration[totals]
            constant = terms.constant
        else:
            cells, rest, constant = self._direct(counts, totals, n_configurations)
        total = cells.sum(axis=(1, 2, 3)) + rest.sum(axis=(1, 2))
        if noise > 0:
            uneven = noise / np.maximum(counts, np.sqrt(noise))
            more = noise * n_states
            even = more / np.maximum(totals, np.sqrt(more))
            bias = 0.5 * (uneven.sum(axis=(1, 2, 3)) - even.sum(axis=(1, 2)))
            total = total - np.rint(bias * (1 << FRACTION_BITS)).astype(np.int64)
        return total + constant * n_configurations

    def _direct(self, counts, totals, n_configurations):
        """Return the same integers without looking them up; counts may be any."""
        score, n_states = CRITERIA[self.criterion], counts.shape[2]
        options = self.n_samples, n_states, n_configurations, self.sample_size
        values = score(counts.astype(float), *options)[0]
        _, rest, constant = score(totals.astype(float), *options)
        scale = 1 << FRACTION_BITS
        rounded = [np.rint(np.asarray(v) * scale) for v in (values, rest, constant)]
        return [part.astype(np.int64) for part in rounded]
