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


def _rank(counts, level, least):
    """Return the rank of a quantile, each value being in the middle of its rank.

    At least `least` values are at it or beyond, on both sides.
    """
    n = counts.sum()
    few = max(min(least, (n + 1) // 2), 1)
    return np.clip(level * max(n - 1, 0) + 0.5, few - 0.5, max(n - few, 0) + 0.5)


def cell_of(edges, counts, level, least):
    place = np.searchsorted(np.cumsum(counts), _rank(counts, level, least))
    place = min(place, len(counts) - 1)
    return edges[place], edges[place + 1]


def read_quantile(edges, counts, fine_edges, fine_counts, level, least):
    """Return a quantile, interpolated in cells that hold `least` rows together.

    Which cells go together does not depend on the quantile: cells around the one that
    holds a row would tell where this row is. Of few rows, all quantiles are the median.
    """
    rank, n_fine = _rank(counts, level, least), fine_counts.sum()
    before = counts[edges[1:] <= fine_edges[0]].sum()
    beside = is_small([before, counts.sum() - before - n_fine], least)
    if n_fine >= least and not beside.any():
        rank, edges, counts = rank - before, fine_edges, fine_counts
    below = np.append(0, np.cumsum(counts))
    ends = _ends_of_groups(below, least) if least > 1 else [0, len(counts)]
    if len(ends) > 2:
        place = np.searchsorted(ends, _cell_at(below, rank), side="right")
        low, high = ends[place - 1], ends[place]
    else:
        rank = below[-1] / 2 if least > 1 else rank
        low = _cell_at(below, rank)
        high = low + 1
        while below[high] - below[low] < least and (low, high) != (0, len(counts)):
            low, high = max(low - 1, 0), min(high + 1, len(counts))
    share = (rank - below[low]) / max(below[high] - below[low], 1)
    return edges[low] + share * (edges[high] - edges[low])


def _cell_at(below, rank):
    return min(np.searchsorted(below[1:], rank), len(below) - 2)


def _ends_of_groups(below, least):
    """Return between which edges at least so many rows are, from both ends on."""
    last, first = len(below) - 1, _half_of_ends(below, least)
    others = [last - end for end in _half_of_ends(below[-1] - below[::-1], least)]
    # what is left in the middle goes with a group beside it
    if 0 < below[others[-1]] - below[first[-1]] < least:
        (first if len(first) > 1 else others).pop()
    return sorted({*first, *others})


def _half_of_ends(below, least):
    ends = [0]
    for end, n_rows in enumerate(below):
        if n_rows - below[ends[-1]] >= least and 2 * n_rows <= below[-1]:
            ends.append(end)
    return ends
