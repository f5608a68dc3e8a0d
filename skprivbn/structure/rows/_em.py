"""Parameters of a known graph from rows with gaps: EM over parties."""

from math import prod

import numpy as np

from skprivbn.bayesian_network import ConditionalGaussianBayesianNetwork
from skprivbn.bayesian_network._inference import Inference
from skprivbn.bayesian_network._labels import count_rows, smoothed
from skprivbn.bayesian_network._mixed_inference import MAX_CONFIGURATIONS
from skprivbn.federation.gate import rows_beside, rows_of_sizes
from skprivbn.federation.program import RowWeights
from skprivbn.structure.rows._mixed import (
    configuration_moments,
    fill_empty,
    regressions,
)
from skprivbn.utils._linalg import symmetric


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
        starts = np.cumsum([0, *(prod(shape) for shape in self.shapes)])
        ends = zip(starts[len(self.families) :], starts[len(self.families) + 1 : -1])
        shapes = self.shapes[len(self.families) :]
        counts = [
            vector[start : end : shape[-1] ** 2]
            for (start, end), shape in zip(ends, shapes)
        ]
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

    def maximise(self, vector, alpha):
        """Return tables and regressions: the M-step.

        Returns
        -------
        cpts : list of ndarray
            Of discrete variables, one axis for each parent.
        lines : list of pairs of ndarray
            Coefficients and variances of continuous ones, in units.
        """
        ends = np.cumsum([prod(shape) for shape in self.shapes])
        parts = np.split(np.asarray(vector, dtype=float)[: ends[-1]], ends[:-1])
        parts = [part.reshape(shape) for part, shape in zip(parts, self.shapes)]
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
