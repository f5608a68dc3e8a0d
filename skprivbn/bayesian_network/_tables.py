"""Contingency tables: all that structure learning and CPTs need to know of rows."""

from math import prod

import numpy as np

MAX_CELLS = 1 << 16


class Tables:
    """Contingency tables of some variables, counted when asked for and kept.

    A table that follows from a larger one by summation is not counted again. That
    matters where counting costs: between parties, under encryption.

    Parameters
    ----------
    n_states : sequence of int
        Number of states of every variable.
    n_samples : float
        Sum of every table.
    count : callable
        Takes a list of tuples of variables, in ascending order each, and returns
        their tables.
    """

    def __init__(self, n_states, n_samples, count):
        self.n_states, self.n_samples = list(n_states), n_samples
        self._count, self._kept = count, {}

    @classmethod
    def from_rows(cls, codes, n_states, weights=None):
        """Count rows at hand, of shape (n_samples, n_variables)."""
        n_samples = len(codes) if weights is None else weights.sum()

        def count(asked):
            return [count_rows(codes, v, n_states, weights) for v in asked]

        return cls(n_states, n_samples, count)

    @staticmethod
    def largest(n_samples):
        """Return the number of cells beyond which a table is about single rows."""
        return max(64, min(int(n_samples), MAX_CELLS))

    def fits(self, variables):
        """Tell whether there are rows enough for a table."""
        n_cells = prod(self.n_states[v] for v in variables)
        return n_cells <= self.largest(self.n_samples)

    def fetch(self, families):
        """Count many tables at once; later questions for them cost nothing."""
        wanted = {tuple(sorted(family)) for family in families} - set(self._kept)
        # large ones first: small ones may follow from them
        missing = []
        for variables in sorted(wanted, key=len, reverse=True):
            if not any(set(variables) <= set(larger) for larger in missing):
                table = self._from_larger(variables)
                if table is None:
                    missing.append(variables)
                else:
                    self._kept[variables] = table
        if missing:
            self.keep(missing, self._count(missing))

    def keep(self, asked, tables):
        """Keep tables that were counted elsewhere."""
        self._kept.update(zip(asked, tables))

    def _from_larger(self, variables):
        wanted = set(variables)
        for larger, table in self._kept.items():
            if wanted <= set(larger):
                summed = tuple(i for i, v in enumerate(larger) if v not in wanted)
                return table.sum(axis=summed)
        return None

    def __call__(self, variables):
        """Return the table of some variables, its axes in the order given."""
        key = tuple(sorted(variables))
        if key not in self._kept:
            table = self._from_larger(key)
            if table is None:
                self.fetch([key])
            else:
                self._kept[key] = table
        return self._kept[key].transpose([key.index(v) for v in variables])


def count_rows(codes, variables, n_states, weights=None):
    """Count the joint configurations of some variables.

    Parameters
    ----------
    codes : ndarray of int, shape (n_samples, n_variables)
    variables : sequence of int
        Columns, one axis each.
    n_states : sequence of int
        Number of states of every column.
    weights : ndarray of shape (n_samples,), default=None
        Few different values: each is counted in integers, so that the order of the
        rows does not matter, not even in the last digit.

    Returns
    -------
    counts : ndarray
        Integers without weights.
    """
    shape = tuple(n_states[v] for v in variables)
    cells = np.zeros(len(codes), dtype=np.int64)
    for v in variables:
        cells = cells * n_states[v] + codes[:, v]
    if weights is None:
        return np.bincount(cells, minlength=prod(shape)).reshape(shape)
    counts = np.zeros(prod(shape))
    for weight in np.unique(weights):
        rows = cells[weights == weight]
        counts += weight * np.bincount(rows, minlength=prod(shape))
    return counts.reshape(shape)


def smoothed(counts, alpha):
    """Return probabilities along the last axis; without any count they are uniform.

    Parameters
    ----------
    counts : ndarray
        Not negative.
    alpha : float
        Pseudo-count added to every cell.

    Returns
    -------
    probabilities : ndarray
    """
    counts = counts + alpha
    total = counts.sum(axis=-1, keepdims=True)
    uniform = np.full_like(counts, 1 / counts.shape[-1])
    return np.divide(counts, total, out=uniform, where=total > 0)
