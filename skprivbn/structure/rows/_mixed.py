"""Continuous columns beside discrete ones: moments per configuration, scores, EM.

Count, sums and products of all continuous columns, for every configuration of some
discrete ones, are all that regressions given these need to know of the rows.
"""

from dataclasses import dataclass
from math import prod

import numpy as np

from skprivbn.bayesian_network import ConditionalGaussianBayesianNetwork
from skprivbn.bayesian_network._inference import Inference
from skprivbn.bayesian_network._labels import count_rows, smoothed
from skprivbn.bayesian_network._mixed_inference import MAX_CONFIGURATIONS
from skprivbn.federation.gate import rows_beside, rows_of_sizes
from skprivbn.federation.program import RowWeights
from skprivbn.structure._resampling import Resampled
from skprivbn.structure._scores import FRACTION_BITS
from skprivbn.structure._search import PairedScores
from skprivbn.structure._tables import Asked, joint_codes
from skprivbn.utils._linalg import symmetric

#: gains, and scores that are told, are rounded to whole multiples of 2**-10: of
#: directions that score alike, rounding errors of sums must not choose one
_GRAIN = float(1 << (FRACTION_BITS - 10))
#: of parents given which no moments are told
_REFUSED = -(1 << 60)


@dataclass(frozen=True)
class Scale:
    """Where continuous columns are, and how large.

    Parameters
    ----------
    mean, unit : ndarray of shape (n_continuous,)
    """

    mean: np.ndarray
    unit: np.ndarray

    @classmethod
    def from_sums(cls, sums, n_continuous):
        """Read how many values there are, sums and absolute sums, after the rows."""
        found = np.asarray(sums[1 : 1 + 3 * n_continuous], dtype=float)
        n, total, absolute = found.reshape(3, n_continuous)
        n = np.maximum(n, 1.0)
        typical = np.where(absolute > 0, absolute / n, 1.0)
        # a power of two costs no digit; deviations may be far below the size
        return cls(total / n, np.exp2(np.round(np.log2(typical)) - 8))

    @staticmethod
    def sums(values):
        """Return number of rows and what :meth:`from_sums` reads, of own rows."""
        there = ~np.isnan(values)
        filled = np.where(there, values, 0.0)
        parts = there.sum(axis=0), filled.sum(axis=0), np.abs(filled).sum(axis=0)
        return np.concatenate([[len(values)], *parts])

    def apply(self, values):
        """Return columns about the mean, in units."""
        return (values - self.mean) / self.unit

    def restore(self, j, others, coefficients, variances):
        """Return intercepts, weights and variances of a regression, without units."""
        mean, unit = self.mean, self.unit
        weights = coefficients[..., 1:] * unit[j] / unit[others]
        intercepts = mean[j] + unit[j] * coefficients[..., 0] - weights @ mean[others]
        return intercepts, weights, variances * unit[j] ** 2


def n_moments(n_continuous):
    """Return how many numbers there are for one configuration."""
    return (n_continuous + 1) * (n_continuous + 2) // 2


def configurations(codes, values, n_states, given):
    """Return which rows count, their configurations, and how many there may be.

    Parameters
    ----------
    codes, values, n_states, given :
        As of :func:`configuration_moments`.

    Returns
    -------
    there : ndarray of bool of shape (n_rows,)
    cells : ndarray of int of shape (n_there,)
    size : int
    """
    cells, known = joint_codes(codes, given, n_states)
    there = known & ~np.isnan(values).any(axis=1)
    return there, cells[there], prod(n_states[v] for v in given)


def configuration_moments(codes, values, n_states, given):
    """Return count, sums and products of columns for every configuration.

    Parameters
    ----------
    codes : ndarray of int of shape (n_rows, n_variables)
        Negative where missing.
    values : ndarray of float of shape (n_rows, n_continuous)
        Scaled; NaN where missing. A row counts if it has all numbers, and all of the
        given variables.
    n_states : sequence of int
    given : sequence of int
        Discrete variables, one axis each.

    Returns
    -------
    moments : ndarray of shape (n_configurations, n_moments)
    """
    there, cells, size = configurations(codes, values, n_states, given)
    values = values[there]
    rows = np.hstack([np.ones((len(values), 1)), values])
    upper = np.triu_indices(rows.shape[1])
    products = rows[:, upper[0]] * rows[:, upper[1]]
    moments = np.empty((size, len(upper[0])))
    for k, column in enumerate(products.T):
        moments[:, k] = np.bincount(cells, weights=column, minlength=size)
    return moments


class AskedMoments(Asked):
    """Moments of all rows, given discrete variables; NaN where they are not told.

    Parameters
    ----------
    n_states, count :
        As of :class:`~skprivbn.structure._tables.Asked`.
    n_continuous : int
    """

    kind = "moments"

    def __init__(self, n_states, n_continuous, count=None):
        super().__init__(n_states, count)
        self.size = n_continuous + 1

    def n_numbers(self, variables):
        """Return how many numbers moments are."""
        return super().n_numbers(variables) * n_moments(self.size - 1)

    def _keep(self, variables, numbers):
        moments = numbers.reshape(*(self.n_states[v] for v in variables), -1)
        self._kept[variables] = symmetric(moments)


def regressions(moments, target, others, weight, overall):
    """Regress a column on others, for every configuration.

    Parameters
    ----------
    moments : ndarray of shape (..., n_continuous + 1, n_continuous + 1)
    target : int
    others : sequence of int
        Positions among the continuous columns.
    weight : float
        So many rows with the variance `overall` are added to every configuration.
    overall : float

    Returns
    -------
    coefficients : ndarray of shape (..., 1 + n_others)
    variances : ndarray
    log_likelihood : float
        Of all rows, under these.
    """
    chosen, target = [0, *(1 + v for v in others)], 1 + target
    square = moments[..., chosen, :][..., chosen]
    cross, counts = moments[..., chosen, target], moments[..., 0, 0]
    # a configuration with few rows leaves directions open: they stay at zero
    inverse = np.linalg.pinv(square, rcond=1e-10, hermitian=True)
    coefficients = np.einsum("...ij,...j->...i", inverse, cross)
    explained = np.einsum("...i,...i->...", coefficients, cross)
    left = np.maximum(moments[..., target, target] - explained, 0.0)
    spread = (left + weight * overall) / np.maximum(counts + weight, 1e-300)
    variances = np.maximum(spread, 1e-9 * overall)
    density = counts * np.log(2 * np.pi * variances) + left / variances
    return coefficients, variances, -0.5 * density.sum()


def fill_empty(moments):
    """Let configurations without rows be like all rows together."""
    whole = moments.sum(axis=tuple(range(moments.ndim - 2)), keepdims=True)
    return np.where(moments[..., :1, :1] == 0, whole, moments)


def without_last_digits(scores):
    """Return scores, or differences, without what depends on how rows are spread."""
    return np.rint(scores / _GRAIN) * _GRAIN


class MixedScores(PairedScores):
    """Scores of discrete nodes by their tables, of continuous ones by regressions.

    Gains are compared on the same moments, in case that small cells were left out, or
    rows with gaps.

    Parameters
    ----------
    tables : TableScores
    moments : AskedMoments
    continuous : sequence of int
        Which variables are continuous.
    scale : Scale
    alpha : float
        Pseudo-rows of every configuration, with the variance of all rows.
    max_numbers : int
        Of the moments given one set of variables.
    """

    def __init__(self, tables, moments, continuous, scale, alpha, max_numbers):
        self.tables, self.moments, self.scale = tables, moments, scale
        self.place = {v: i for i, v in enumerate(continuous)}
        self.n_samples, self.alpha = tables.n_samples, alpha
        self.n_variables, self.max_numbers = tables.n_variables, max_numbers
        self.overall, self._known = None, {}

    def resampled(self, rng):
        """Return the scores of one bootstrap sample."""
        return MixedScores(
            self.tables.resampled(rng),
            Resampled(self.moments, rng),
            list(self.place),
            self.scale,
            self.alpha,
            self.max_numbers,
        )

    def _split(self, parents):
        discrete = [v for v in parents if v not in self.place]
        return discrete, [self.place[v] for v in parents if v in self.place]

    def fits(self, child, parents):
        """Tell which further parents a node may have."""
        numbers = np.isin(np.arange(self.n_variables), list(self.place))
        if child not in self.place:
            return self.tables.fits(child, parents) & ~numbers
        now = self.moments.n_numbers(self._split(parents)[0])
        return numbers | (now * np.array(self.moments.n_states) <= self.max_numbers)

    def asking(self, asked):
        """Ask for tables and moments that scores need."""
        yield from self.tables.asking([a for a in asked if a[0] not in self.place])
        wanted = []
        for child, parents, candidates in asked:
            if child in self.place:
                given, _ = self._split(parents)
                further = [v for v in candidates if v not in self.place]
                # with those of all rows, whose variances others are compared with
                wanted += [(), given, *([*given, v] for v in further)]
        ascending = {tuple(sorted(given)) for given in wanted}
        yield from self.moments.asking(sorted(ascending, key=lambda v: (len(v), v)))

    def _regression_score(self, child, moments, others):
        """Score a continuous node on given moments."""
        if np.isnan(moments).any():
            return _REFUSED
        j = self.place[child]
        _, _, fit = regressions(moments, j, others, self.alpha, self._overall(j))
        n_lines = prod(moments.shape[:-2])
        penalty = 0.5 * np.log(self.n_samples) * n_lines * (len(others) + 2)
        n_rows = moments[..., 0, 0].sum()
        value = fit - penalty - n_rows * np.log(self.scale.unit[j])
        return int(np.rint(value * (1 << FRACTION_BITS)))

    def _overall(self, j):
        """Return the variance of a continuous column over all rows."""
        if self.overall is None:
            whole = self.moments(())
            mean = whole[0, 1:] / whole[0, 0]
            self.overall = np.diag(whole)[1:] / whole[0, 0] - mean**2
        return self.overall[j]

    def score(self, child, parents):
        """Return the score of a node with some parents."""
        if child not in self.place:
            return self.tables.score(child, parents)
        key = child, tuple(parents)
        if key not in self._known:
            given, others = self._split(parents)
            found = self._regression_score(child, self.moments(given), others)
            self._known[key] = found
        return self._known[key]

    def added(self, child, parents, candidates):
        """Return the scores with each of some candidates as one more parent."""
        if child not in self.place:
            return self.tables.added(child, parents, candidates)
        return super().added(child, parents, candidates)

    def gain(self, change, now, n_edges):
        """Return what a change of scores is worth, rounded."""
        return without_last_digits(change)

    def removed(self, child, parents):
        """Return the scores without each of the parents."""
        if child not in self.place:
            return self.tables.removed(child, parents)
        return super().removed(child, parents)

    def worth(self, child, parents, v):
        """Return what one more parent of a continuous node gains."""
        if v in self.place:
            return self.score(child, [*parents, v]) - self.score(child, parents)
        given, others = self._split([*parents, v])
        moments = self.moments(given)
        if np.isnan(moments).any():
            return _REFUSED
        smaller = moments.sum(axis=sorted(given).index(v))
        with_it = self._regression_score(child, moments, others)
        return with_it - self._regression_score(child, smaller, others)

    def is_known(self, child, parents):
        """Tell whether the moments of a continuous node's family are told."""
        return not np.isnan(self.moments(self._split(parents)[0])).any()

    def parameters(self, child, parents):
        """Return intercepts, weights and variances of a continuous node.

        One axis for each discrete parent, in the order of the parents.
        """
        given, others = self._split(parents)
        j, moments = self.place[child], self.moments(given)
        coefficients, variances, _ = regressions(
            fill_empty(moments), j, others, self.alpha, self._overall(j)
        )
        found = self.scale.restore(j, others, coefficients, variances)
        axes, last = [sorted(given).index(v) for v in given], [len(given)]
        return tuple(
            part.transpose(axes if part.ndim == len(axes) else [*axes, *last])
            for part in found
        )


class FamiliesEM:
    """The steps of EM on tables and moments that travel as one vector.

    Parameters
    ----------
    parents : list of list of int
        Parents of every variable.
    n_states : sequence of int
        Number of states of every variable.
    continuous : sequence of int, default=()
        Which variables are continuous.
    """

    def __init__(self, parents, n_states, continuous=()):
        self.parents, self.n_states = parents, list(n_states)
        self.continuous = list(continuous)
        place = {v: i for i, v in enumerate(self.continuous)}
        self.discrete = [v for v in range(len(parents)) if v not in place]
        self.families = [[*parents[v], v] for v in self.discrete]
        self.above = [[u for u in parents[v] if u not in place] for v in place]
        self.beside = [[place[u] for u in parents[v] if u in place] for v in place]
        self.shapes = [tuple(n_states[v] for v in family) for family in self.families]
        self.shapes += [
            (*(n_states[v] for v in above), 2 + len(beside), 2 + len(beside))
            for above, beside in zip(self.above, self.beside)
        ]
        # number, sum and squares of the values of each column that are there
        self.shapes.append((3, len(place)))

    @property
    def n_configurations(self):
        """Of the discrete parents of all continuous nodes together."""
        return prod(
            self.n_states[v] for v in {v for above in self.above for v in above}
        )

    def check(self):
        """Raise ValueError if a step would go through too many configurations."""
        if self.n_configurations > MAX_CONFIGURATIONS:
            raise ValueError(
                "missing='em' sums over all configurations of the discrete parents of "
                f"continuous columns, here {self.n_configurations}, and at most "
                f"{MAX_CONFIGURATIONS}: lower max_parents or use missing='skip'"
            )

    def weigh(self, vector, values):
        """Return how many own rows count in a vector of sums.

        Beside each matrix of moments stands how many rows it is of. Whatever their
        number, one may be nearly all of a sum, or of a sum of squares.

        Parameters
        ----------
        vector : ndarray
            Own sums.
        values : ndarray of shape (n_rows, n_continuous)
            Of which these are sums.

        Returns
        -------
        weights : RowWeights
        """
        counts = [part[..., 0, 0].ravel() for part in self.moments(vector)]
        ones = np.ones(len(values))
        sides = rows_beside(values, ones), rows_of_sizes(values**2, ones)
        # all rows count alike in tables
        counts = np.concatenate([[len(values)], *counts])
        return RowWeights(counts, None, sides=np.hstack(sides))

    def complete_counts(self, codes, values):
        """Count for every family the rows that have all its entries."""
        parts = [
            count_rows(codes[(codes[:, f] >= 0).all(axis=1)], f, self.n_states)
            for f in self.families
        ]
        for j, (above, beside) in enumerate(zip(self.above, self.beside)):
            columns = values[:, [*beside, j]]
            found = configuration_moments(codes, columns, self.n_states, above)
            parts.append(symmetric(found))
        # what a step of EM tells beside counts: nothing here
        return self._join(parts, values, [0, 0])

    def _join(self, parts, values, told):
        there = ~np.isnan(values)
        filled = np.where(there, values, 0.0)
        spread = [there.sum(axis=0), filled.sum(axis=0), (filled**2).sum(axis=0)]
        return np.concatenate([*(np.ravel(p) for p in (*parts, spread)), told])

    def _split(self, vector):
        ends = np.cumsum([prod(shape) for shape in self.shapes])
        parts = np.split(np.asarray(vector, dtype=float)[: ends[-1]], ends[:-1])
        return [part.reshape(shape) for part, shape in zip(parts, self.shapes)]

    def moments(self, vector):
        """Return the moments of each continuous variable and its continuous parents."""
        return self._split(vector)[len(self.families) : -1]

    def maximise(self, vector, alpha):
        """Return tables and regressions: the M-step.

        Returns
        -------
        cpts : list of ndarray
            Of discrete variables, one axis for each parent.
        lines : list of pairs of ndarray
            Coefficients and variances of continuous ones, in units.
        """
        parts = self._split(vector)
        # with alpha=0, what no complete row shows could never become possible
        if vector[-2] == vector[-1] == 0 and alpha == 0:
            alpha = 1.0
        cpts = [smoothed(table, alpha) for table in parts[: len(self.families)]]
        n, total, squares = parts[-1]
        n = np.maximum(n, 1.0)
        overall = squares / n - (total / n) ** 2
        lines = []
        for j, table in enumerate(parts[len(self.families) : -1]):
            others = range(len(self.beside[j]))
            options = len(others), others, alpha, overall[j]
            lines.append(regressions(fill_empty(table), *options)[:2])
        return cpts, lines

    def expected(self, cpts, lines, codes, values):
        """Return expected sums, log-likelihood and impossible rows: the E-step."""
        if not self.continuous:
            inference = Inference(cpts, self.families, self.n_states)
            parts, *told = inference.expected_counts(codes)
        else:
            network = self._network(cpts, lines)
            counts, moments, *told = network._inference.expected_statistics(
                codes[:, self.discrete], values
            )
            parts = [*counts, *moments]
        return self._join(parts, values, told)

    def _network(self, cpts, lines):
        lines = dict(zip(map(str, self.continuous), lines))
        return ConditionalGaussianBayesianNetwork(
            [str(v) for v in range(len(self.parents))],
            {str(v): range(self.n_states[v]) for v in self.discrete},
            {str(v): [str(u) for u in found] for v, found in enumerate(self.parents)},
            dict(zip(map(str, self.discrete), cpts)),
            {node: coefficients[..., 0] for node, (coefficients, _) in lines.items()},
            {node: coefficients[..., 1:] for node, (coefficients, _) in lines.items()},
            {node: variances for node, (_, variances) in lines.items()},
        )
