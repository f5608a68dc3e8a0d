"""Tables released once with noise, from which a graph and probabilities are read."""

from itertools import combinations
from math import comb, prod

import numpy as np

from skprivbn.graphical_model._release import TablesTerms, gap_rule
from skprivbn.graphical_model._states import public_states
from skprivbn.graphical_model._tables import Contribution, TableLayout
from skprivbn.structure.rows._tables import AskedTables

#: sets of columns that are released together
_MAX_TABLES = 5000


class ReleasedTables(AskedTables):
    """Answers a search from noisy tables; costs no privacy any more.

    A smaller table follows from several released ones: their mean, weighted by how
    many noisy cells are summed, has the least noise.

    Parameters
    ----------
    released : dict of tuple of int to ndarray
        Tables of all rows with noise, in records; variables in ascending order.
    n_states : sequence of int
    variance : float
        Of the noise of one cell.
    """

    def __init__(self, released, n_states, variance):
        self.released, self.cell_variance = released, variance
        super().__init__(n_states, self._from_released, consistent=False)

    @property
    def n_samples(self):
        """Estimate of the number of rows, at least 1."""
        return max(float(np.mean([t.sum() for t in self.released.values()])), 1.0)

    def _from_released(self, requests):
        families = [(*base, v) for base, found in requests for v in found]
        return np.concatenate(
            [self._estimate(family)[0].ravel() for family in families]
        )

    def _estimate(self, variables):
        total, weights = 0.0, 0.0
        for clique, table in self.released.items():
            if set(variables) <= set(clique):
                axes = [clique.index(v) for v in variables]
                rest = tuple(i for i in range(len(clique)) if i not in axes)
                weight = 1 / prod(table.shape[i] for i in rest)
                # what is left after the sum is in the order of the clique
                left = sorted(axes)
                part = table.sum(axis=rest).transpose([left.index(a) for a in axes])
                total, weights = total + weight * part, weights + weight
        # the noise of different tables is independent
        return np.maximum(total / weights, 0.0), self.cell_variance / weights

    def variance(self, variables):
        """Return the variance of the noise of a cell of a table."""
        return self._estimate(tuple(variables))[1]


def noisy_terms(estimator, partition, names, known, has_individuals):
    """Return the terms of the one release.

    Parameters
    ----------
    estimator : FederatedBayesianNetwork
    partition : HorizontalPartition or RemoteRows
    names : list of str
    known : dict of int to list of int, or None
        Parents that are given.
    has_individuals : bool
        Whether persons may have several rows.

    Returns
    -------
    terms : TablesTerms
    """
    states = public_states(estimator.states, names, partition, {})
    if states is None:
        raise ValueError(
            "epsilon needs states=, those of all columns: which values occur is not "
            "private"
        )
    cliques = _cliques(len(names), estimator.max_parents, known)
    return TablesTerms(
        nodes=names,
        states=[list(labels) for labels in states.values()],
        bins={},
        contribution=Contribution("normalize" if has_individuals else "record"),
        missing=gap_rule(estimator),
        epsilon=estimator.epsilon,
        delta=estimator.delta,
        min_honest=estimator.min_honest,
        cliques=cliques,
        ties=list(range(len(cliques))),
    )


def _cliques(n_columns, max_parents, known):
    """Return the sets of columns that a search may ask for, or a known graph needs."""
    if known is not None:
        families = {tuple(sorted((v, *parents))) for v, parents in known.items()}
        return [
            list(family)
            for family in sorted(families)
            if not any(set(family) < set(other) for other in families)
        ]
    size = min(max_parents + 1, n_columns)
    n_tables = comb(n_columns, size)
    if n_tables > _MAX_TABLES:
        raise ValueError(
            f"epsilon releases the tables of all sets of {size} columns, which are "
            f"{n_tables}, more than {_MAX_TABLES}: lower max_parents or leave out "
            "columns"
        )
    return [list(members) for members in combinations(range(n_columns), size)]


def read_tables(counts, terms, noise):
    """Return what was released as tables, in records.

    Parameters
    ----------
    counts : ndarray of int64
        The noisy sum.
    terms : TablesTerms
    noise : DistributedNoise

    Returns
    -------
    tables : ReleasedTables
    """
    layout = TableLayout(terms.cliques, terms.sizes, terms.ties)
    unit = terms.contribution.unit
    found = {tuple(c): t for c, t in zip(terms.cliques, layout.split(counts / unit))}
    return ReleasedTables(found, terms.sizes, (noise.std / unit) ** 2)
