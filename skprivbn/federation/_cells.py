"""Counts in cells: which are too small to tell, and where quantiles lie among them."""

from dataclasses import dataclass
from math import prod

import numpy as np

from skprivbn.federation._terms import NoisyTerms
from skprivbn.privacy import CountMechanism
from skprivbn.privacy._persons import PERSON_UNIT

#: cells into which a range is divided
N_CELLS = 256
#: edges that bracket values of unknown size: powers of two, and zero
MAGNITUDES = np.concatenate(
    [-np.exp2(np.arange(120.0, -121, -1)), [0.0], np.exp2(np.arange(-120.0, 121))]
)


@dataclass(frozen=True, kw_only=True)
class CountTerms(NoisyTerms):
    """Counts of the values of each column, with what noise.

    Parameters
    ----------
    min_rows : int
        Nothing exact is told of fewer rows.
    **noise
        As of :class:`NoisyTerms`.
    """

    min_rows: int = 1

    def mechanism(self, n_features):
        """Return the noise that one curator would add."""
        n_cells = self.n_cells(n_features)
        return CountMechanism.for_budget(
            self.epsilon, self.delta, self.unit * n_cells, self.unit * np.sqrt(n_cells)
        )

    def n_cells(self, n_features: int) -> int:
        """Return in how many cells one row, or one person, is counted."""
        return n_features

    @property
    def unit(self) -> int:
        """Counts of one row, or of all rows of a person together."""
        return 1 if self.protects == "rows" else PERSON_UNIT


def is_small(counts, least):
    return (np.asarray(counts) > 0) & (np.asarray(counts) < least)


def in_steps(counts, step):
    """Return counts rounded down to multiples of a step.

    Were small counts hidden alone, they would follow from sums that are told: 20, of
    whom 18 have one value, are 2 with the other.
    """
    return counts - counts % step if step > 1 else counts


def split_tables(values, shapes):
    ends = np.cumsum([prod(shape) for shape in shapes])
    return [part.reshape(s) for part, s in zip(np.split(values, ends), shapes)]


def filled_range(edges, counts):
    """Return the ends of the cells that are not empty."""
    (filled,) = np.nonzero(counts)
    if not len(filled):
        return -1.0, 1.0
    return edges[filled[0]], edges[filled[-1] + 1]


def equal_cells(low, high):
    """Return the edges of cells that divide each range evenly."""
    return np.linspace(low, high, N_CELLS + 1, axis=-1)


def _rank(counts, level):
    """Return the rank of a quantile, each value being in the middle of its rank."""
    return level * max(counts.sum() - 1, 0) + 0.5


def cell_of(edges, counts, level):
    place = np.searchsorted(np.cumsum(counts), _rank(counts, level))
    place = min(place, len(counts) - 1)
    return edges[place], edges[place + 1]


def read_quantile(edges, counts, fine_edges, fine_counts, level, least):
    """Return a quantile, interpolated in cells that hold `least` rows together."""
    rank = _rank(counts, level)
    if fine_counts.sum() >= least:
        rank -= counts[edges[1:] <= fine_edges[0]].sum()
        edges, counts = fine_edges, fine_counts
    below = np.append(0, np.cumsum(counts))
    low = min(np.searchsorted(below[1:], rank), len(counts) - 1)
    high = low + 1
    while below[high] - below[low] < least and (low, high) != (0, len(counts)):
        low, high = max(low - 1, 0), min(high + 1, len(counts))
    share = (rank - below[low]) / max(below[high] - below[low], 1)
    return edges[low] + share * (edges[high] - edges[low])
