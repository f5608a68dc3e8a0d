"""Probabilities of a known graph from rows with gaps: EM over parties."""

from dataclasses import dataclass

import numpy as np

from skprivbn.bayesian_network._expected_counts import expected_counts
from skprivbn.bayesian_network._tables import count_rows, smoothed


class FamiliesEM:
    """The steps of EM on tables that travel as one vector.

    Parameters
    ----------
    parents : list of list of int
        Parents of every variable.
    n_states : sequence of int
        Number of states of every variable.
    """

    def __init__(self, parents, n_states):
        self.families = [[*found, child] for child, found in enumerate(parents)]
        self.n_states = list(n_states)
        self.shapes = [tuple(n_states[v] for v in family) for family in self.families]

    def complete_counts(self, codes):
        """Count for every family the rows that have all its entries."""
        parts = [
            count_rows(codes[(codes[:, f] >= 0).all(axis=1)], f, self.n_states)
            for f in self.families
        ]
        # what a step of EM tells beside counts: nothing here
        return np.append(np.concatenate([p.ravel() for p in parts]), [0, 0])

    def split(self, vector):
        """Return the tables in a vector."""
        ends = np.cumsum([np.prod(shape) for shape in self.shapes])
        parts = np.split(np.asarray(vector, dtype=float)[: ends[-1]], ends[:-1])
        return [part.reshape(shape) for part, shape in zip(parts, self.shapes)]

    def maximise(self, vector, alpha):
        """Return conditional tables: the M-step."""
        # with alpha=0, what no complete row shows could never become possible
        start = vector[-2] == vector[-1] == 0 and alpha == 0
        return [
            smoothed(table, 1.0 if start else alpha) for table in self.split(vector)
        ]

    def expected(self, cpts, codes):
        """Return expected counts, log-likelihood and impossible rows: the E-step."""
        counts, *rest = expected_counts(cpts, self.families, self.n_states, codes)
        return np.append(np.concatenate([table.ravel() for table in counts]), rest)


@dataclass(frozen=True)
class EMResult:
    """Where EM ended."""

    counts: list[np.ndarray]
    n_iter: int
    converged: bool


def run_em(federation, em, n_samples, max_iter, tol):
    """The coordinator's side: hand sums back, until they hardly change.

    Parameters
    ----------
    federation : Federation
    em : FamiliesEM
    n_samples : int
    max_iter : int
    tol : float

    Returns
    -------
    result : EMResult
    """
    parents = [family[:-1] for family in em.families]
    total = federation.secure_sum("begin", {"parents": parents})
    n_iter, before, converged = 0, -np.inf, False
    while n_iter < max_iter and not converged:
        total = federation.secure_sum("expect", {"total": total})
        now = total[-2] / n_samples
        # pseudo-counts may let it fall, too
        converged = bool(abs(now - before) < tol)
        n_iter, before = n_iter + 1, now
    return EMResult(em.split(total), n_iter, converged)
