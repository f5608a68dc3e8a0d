"""Medians of single features, over the rows that have a value there.

The search for quantiles, with a count for each feature in the place of one for all.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from skprivbn.federation import PartyRefusal, check_received_bounds, map_rows
from skprivbn.preprocessing._histogram import (
    CountingParty,
    HistogramTerms,
    QuantileSearch,
    find_quantiles,
)


@dataclass(frozen=True)
class MedianTerms(HistogramTerms):
    """Within which bounds medians are searched for, and with what noise.

    Parameters
    ----------
    n_levels : int
        Two: of an even number of values, both in the middle are found.
    bounds, epsilon, delta, min_honest, protects, min_rows
        As for other quantiles.
    """

    def check(self):
        """Refuse any other number."""
        if self.n_levels != 2:
            raise ValueError("n_levels: the two values in the middle")


class MedianSearch(QuantileSearch):
    """What the parties know of the medians so far, each by itself."""

    def count(self, ordered):
        """Count values of each feature up to its thresholds, and all of them."""
        below = [
            np.searchsorted(values, wanted.ravel(), side="right")
            for values, wanted in zip(ordered.T, self.edges)
        ]
        return np.append(below, np.sum(~np.isnan(ordered), axis=0))

    def _split(self, counts):
        below, n = np.split(np.asarray(counts), [-self.n_features])
        return below, n[:, None]

    def _ranks(self, n, few):
        ranks = np.hstack([(n + 1) // 2, n // 2 + 1])
        return np.clip(ranks, 1, np.maximum(n, 1))

    def _few(self, n):
        return 1

    def _finish(self, ends, reached, n, few):
        if np.any((n > 0) & (n < self.min_rows)):
            raise PartyRefusal("too-few-rows")
        # the median, and whether there is one at all
        self.found = np.column_stack([ends.mean(axis=1), n > 0])


class MedianParty(CountingParty):
    """A holder of rows with gaps that counts its values below thresholds."""

    terms: Any = MedianTerms
    search_class = MedianSearch

    def prepare(self):
        """Clip to the public bounds, and sort: missing values come last."""
        bounds, self.shared_by = self.terms.bounds, self.rows_of_person()
        if bounds is not None:
            check_received_bounds(bounds, np.shape(self.block["X"])[1])
        self.rows = map_rows(self.block["X"], self._within)
        if self.terms.epsilon is None:
            self.ordered = map_rows(self.rows, lambda rows: np.sort(rows, axis=0))

    def _within(self, rows):
        rows, bounds = np.asarray(rows), self.terms.bounds
        if rows.dtype.kind not in "fiu":
            raise PartyRefusal("invalid-data")
        if self.terms.epsilon is None and np.isinf(rows).any():
            raise PartyRefusal("invalid-data")
        rows = rows.astype(np.float64)
        return rows if bounds is None else np.clip(rows, *bounds)


def find_medians(federation):
    """Find the median of each feature over all parties: the coordinator's side.

    Parameters
    ----------
    federation : Federation
        Opened with :class:`MedianParty`.

    Returns
    -------
    medians : ndarray of shape (n_features,)
        NaN where nobody has a value.
    """
    found = find_quantiles(federation, np.array([0.5]))
    if federation.terms.epsilon is not None:
        return found[:, 0]
    return np.where(found[:, 1] > 0, found[:, 0], np.nan)
