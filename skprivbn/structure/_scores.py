"""Scores of families of discrete variables, by their tables."""

import numpy as np

from skprivbn.structure._resampling import Resampled
from skprivbn.structure._search import LocalScores
from skprivbn.structure._tables import wide
from skprivbn.structure.k2._scores import CRITERIA, FRACTION_BITS, score_terms

#: beyond, tables of all counts would take more memory than they save time
_MAX_LOOKUP = 1 << 18

#: how often noise is drawn to see what it gains, and what counts as chance then
_N_DRAWS, _SURPRISE = 32, 3.0

#: of families whose table is hidden: below all scores, and differences are numbers
_NEVER = -(1 << 61)


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
