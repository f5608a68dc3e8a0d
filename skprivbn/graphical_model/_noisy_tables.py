"""Noisy contingency tables: the only thing that passes from privacy to inference."""

from dataclasses import dataclass

import numpy as np

from skprivbn.graphical_model._layout import TableLayout


@dataclass(frozen=True)
class NoisyTables:
    """Contingency tables as released, and how noisy they are.

    Parameters
    ----------
    layout : TableLayout
        Which cliques the tables count.
    values : ndarray of shape (n_parameters,)
        Noisy counts, in records. May be negative.
    std : ndarray of shape (n_tables,)
        Standard deviation of the noise on the cells of each table, in records.
    kind : {"laplace", "gaussian", "none"}
        Distribution of the noise.
    """

    layout: TableLayout
    values: np.ndarray
    std: np.ndarray
    kind: str

    def __post_init__(self):
        if self.layout.support is not None:
            # known to be zero, so the noise on them says nothing
            object.__setattr__(self, "values", self.values * self.layout.support)

    @property
    def n_cells(self):
        """Number of cells that carry information."""
        support = self.layout.support
        return self.layout.n_parameters if support is None else int(support.sum())

    @property
    def variance(self):
        """Variance of the noise on every cell."""
        return self.layout.spread(self.std**2)

    @property
    def mean_absolute_noise(self):
        """Mean absolute noise on every cell: the scale, for Laplace noise."""
        ratio = np.sqrt(0.5) if self.kind == "laplace" else np.sqrt(2 / np.pi)
        return self.layout.spread(self.std * ratio)

    @property
    def fourth_moment_excess(self):
        """E[(z^2 - 1)^2] of the standardised noise z."""
        return 5.0 if self.kind == "laplace" else 2.0

    def n_records(self):
        """Estimate the number of records: every table counts them all.

        Table totals are averaged with weights inverse to their noise variance. At
        least 1, whatever the noise.
        """
        layout = self.layout
        totals = np.add.reduceat(self.values, layout.starts) / layout.multiplicity
        variances = self.std**2 * layout.n_cells / layout.multiplicity**2
        weights = 1 / np.maximum(variances, 1e-12 * max(variances.max(), 1.0))
        return max(float(totals @ weights / weights.sum()), 1.0)

    def rescaled(self):
        """Scale every table to the same number of records.

        For tables that lack rows with missing entries, and so have different totals.
        """
        layout, n_records = self.layout, self.n_records()
        totals = np.add.reduceat(self.values, layout.starts) / layout.multiplicity
        factors = n_records / np.maximum(totals, 1.0)
        values = self.values * layout.spread(factors)
        return NoisyTables(layout, values, self.std * factors, self.kind)


def project_to_simplex(vector, total=1.0):
    """Closest vector (Euclidean) with non-negative entries that sum to `total`.

    References
    ----------
    J. Duchi, S. Shalev-Shwartz, Y. Singer, T. Chandra (2008). Efficient projections
    onto the l1-ball for learning in high dimensions. ICML.
    """
    descending = np.sort(vector)[::-1]
    thresholds = (np.cumsum(descending) - total) / np.arange(1, vector.size + 1)
    threshold = thresholds[np.flatnonzero(descending > thresholds)[-1]]
    return np.maximum(vector - threshold, 0.0)
