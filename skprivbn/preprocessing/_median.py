"""Medians of single features, over the rows that have a value there.

The search for quantiles, with a count for each feature in the place of one for all.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from skprivbn.federation import PartyRefusal
from skprivbn.preprocessing._histogram import (
    HistogramParty,
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
        """Refuse any number of quantiles but two."""
        if self.n_levels != 2:
            raise ValueError("n_levels: the two values in the middle")


class MedianSearch(QuantileSearch):
    """A search for medians, as every party follows it by itself."""

    def _n_values(self, ordered):
        return np.sum(~np.isnan(ordered), axis=0)

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


class MedianParty(HistogramParty):
    """A holder of rows with gaps that counts its values below thresholds."""

    terms: Any = MedianTerms
    search_class = MedianSearch
    allow_nan = True

    def _clip(self, rows):
        return np.clip(np.asarray(rows, np.float64), *self.terms.bounds)


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
