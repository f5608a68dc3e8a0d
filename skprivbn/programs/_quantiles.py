"""Quantiles of rows held by several parties.

Exactly, by a search: count the values up to thresholds, keep for each quantile the cell
that holds it, and count again inside. Only the parties read the counts: they choose the
thresholds, and tell the quantiles that they find. With differential privacy, one noisy
histogram of each feature instead.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np

from skprivbn.federation import Me, Noisy, check_received_bounds, program, sum_over_rows
from skprivbn.federation._cells import N_CELLS, CountTerms, equal_cells, search_cells
from skprivbn.privacy._options import check_bounds
from skprivbn.privacy._persons import shares_of_rows

#: most quantiles of one session: ever more thresholds would tell values
MAX_LEVELS = 257


@dataclass(frozen=True)
class QuantileTerms(CountTerms):
    """Terms of a search for quantiles: their number, bounds and noise.

    Parameters
    ----------
    n_levels : int
        How many quantiles of each feature are wanted, evenly from 0 to 1. One is the
        median, over the rows that have a value.
    bounds : ndarray of shape (2, n_features) or None
        Public bounds, to which values are clipped. None finds the range first.
    min_rows : int
        Exact quantiles with fewer rows between them, or beyond them, are not told.
    epsilon, delta, min_honest, protects :
        As of :class:`NoisyTerms`; `epsilon` needs `bounds`.
    """

    n_levels: int = 2
    bounds: np.ndarray | None = None

    def check(self) -> None:
        """Refuse so many quantiles that they would tell values."""
        if self.n_levels < 1 or (self.epsilon is None and self.n_levels > MAX_LEVELS):
            raise ValueError(f"n_levels must be 1 to {MAX_LEVELS}")

    @property
    def is_median(self) -> bool:
        """Whether the median is wanted."""
        return self.n_levels == 1

    @property
    def levels(self) -> np.ndarray:
        """Shares of the values below each quantile."""
        return np.array([0.5]) if self.is_median else np.linspace(0, 1, self.n_levels)

    def mechanism(self, n_features: int) -> Any:
        """Return the noise that one curator would add, within the bounds."""
        check_bounds(self.bounds, n_features)
        return super().mechanism(n_features)

    def ranks(self, n: np.ndarray, least: int) -> np.ndarray:
        """Return which of the ordered values of each feature are wanted.

        Parameters
        ----------
        n : ndarray of int of shape (n_features, 1)
            Numbers of values.
        least : int
            Fewest rows at the first and the last quantile, or beyond.

        Returns
        -------
        ranks : ndarray of shape (n_features, n_ranks)
            From 1. Of medians, both values in the middle.
        """
        if self.is_median:
            return np.clip(np.hstack([(n + 1) // 2, n // 2 + 1]), 1, np.maximum(n, 1))
        few = _few(n, least)
        return np.clip(np.ceil(self.levels * n), few, n + 1 - few)


def _few(n, least):
    """Return how many rows must be beyond a quantile, and between two."""
    return np.maximum(np.minimum(least, (n + 1) // 2), 1)


@program(QuantileTerms)
def quantiles(me: Me) -> Generator[Any, Any, dict]:
    """Count values in cells, and again inside those that hold the quantiles.

    Parameters
    ----------
    me : Me

    Returns
    -------
    found : dict
        With ``quantiles`` of shape (n_features, n_levels), within 2**-16 of the range;
        with noise, within a 256th of the bounds. Missing where nobody has a value.
    """
    terms, n_features = me.terms, np.shape(me.block["X"])[1]
    if terms.bounds is not None:
        check_received_bounds(terms.bounds, n_features)
    if terms.epsilon is not None:
        noise = terms.noise(n_features, len(me.roster))
        counts = yield Noisy(_histograms(me), noise, "noisy histograms")
        return _read_noisy(counts, terms)
    rows = me.numbers(gaps=terms.is_median, bounds=terms.bounds)
    edges = None if terms.bounds is None else equal_cells(*terms.bounds)
    least = max(me.min_rows, terms.min_rows)
    _, fine, n = yield from search_cells(rows, edges, lambda n: terms.ranks(n, least))
    cells = fine.at(terms.ranks(n, least))
    # the least quantile is not above any value of its cell, the others not below
    cells[:, 1:] += 1
    found, reached = fine.take(cells)
    if terms.is_median:
        found = np.where(n > 0, found.mean(axis=1, keepdims=True), np.nan)
    else:
        found = _apart(found, reached, n, least)
    return {"quantiles": found}


def _apart(found, reached, n, least):
    """Merge quantiles with too few rows between them; the first and the last stay.

    Parameters
    ----------
    found, reached : ndarray of shape (n_features, n_levels)
        Quantiles, and how many values lie up to them.
    n : ndarray of int of shape (n_features, 1)
    least : int
        Fewest rows between two.
    """
    # rows beyond the first and the last are in the outer bins
    reached = np.hstack([np.zeros_like(n), reached[:, 1:-1], n])
    pairs = zip(found.copy(), reached, _few(n, least)[:, 0])
    return np.array([_merge(*one) for one in pairs])


def _merge(ends, reached, few):
    kept = [0]
    for i in range(1, len(ends)):
        if reached[i] - reached[kept[-1]] >= few:
            kept.append(i)
        else:
            ends[i] = ends[kept[-1]]
    if kept[-1] < len(ends) - 1 and len(kept) > 1:
        ends[kept[-1] :] = ends[-1]
    return ends


def _histograms(me):
    """Count the clipped values in cells, all rows of a person as one row."""
    low, high = me.terms.bounds
    rows = me.numbers(gaps=me.terms.is_median, bounds=me.terms.bounds)
    shared_by, weights = me.rows_of_person(), None
    if shared_by is not None:
        rows, weights = np.asarray(rows), shares_of_rows(shared_by)

    def histograms(rows):
        return np.stack(
            [
                np.histogram(values, N_CELLS, range=(a, b), weights=weights)[0]
                for values, a, b in zip(rows.T, low, high)
            ]
        )

    return sum_over_rows(rows, histograms).astype(np.int64)


def _read_noisy(counts, terms):
    """Return quantiles of noisy histograms, and how many values a feature has."""
    counts = counts.reshape(-1, N_CELLS) / terms.unit
    # Cumulative counts as the nearest distribution function: rising, from 0.
    cumulative = np.maximum.accumulate(np.cumsum(counts, axis=1), axis=1)
    found = np.empty((len(counts), terms.n_levels))
    cells = equal_cells(*terms.bounds)
    for feature, reached in enumerate(np.maximum(cumulative, 0)):
        if reached[-1] == 0:  # nothing but noise: no cell is better than another
            reached = np.arange(1, N_CELLS + 1)
        shares = np.append(0.0, reached / reached[-1])
        found[feature] = np.interp(terms.levels, shares, cells[feature])
    return {"n_values": float(counts.sum(axis=1).min()), "quantiles": found}
