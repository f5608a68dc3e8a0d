"""Counts in cells: which are too small to tell, and where quantiles lie among them."""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np

from skprivbn.federation._rows import map_rows, sum_over_rows
from skprivbn.federation._terms import NoisyTerms
from skprivbn.federation.gate import are_few
from skprivbn.federation.program import CountsAt, Sum
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


class Cells(NamedTuple):
    """Counts of values up to the edges of cells.

    Attributes
    ----------
    edges : ndarray of shape (n_features, n_ranges, n_cells + 1)
        Of one range of a feature, or of one for each of its quantiles.
    below : ndarray of int of shape (n_features, n_ranges, n_cells + 1)
    """

    edges: np.ndarray
    below: np.ndarray

    def at(self, ranks: np.ndarray) -> np.ndarray:
        """Return the number of the cell that holds a rank, for each quantile."""
        return np.argmax(self.below[..., 1:] >= ranks[..., None], axis=-1)

    def take(self, cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the edge before each cell, and how many values lie up to it."""
        shape = (*cells.shape, self.edges.shape[-1])
        edges, below = (
            np.take_along_axis(np.broadcast_to(of, shape), cells[..., None], -1)
            for of in self
        )
        return edges[..., 0], below[..., 0]


def search_cells(
    rows: Any,
    edges: np.ndarray | None,
    ranks: Callable[[np.ndarray], np.ndarray],
    outer: Callable[[np.ndarray], np.ndarray] | None = None,
    side: str = "right",
) -> Generator[Any, Any, tuple[Cells, Cells, np.ndarray]]:
    """Find the cells that hold quantiles: a part of programs.

    Count values up to the edges of cells, keep for each quantile the cell that holds
    it, and count again inside. Only the parties read the counts.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_features) or RowSource
        Missing entries are NaN.
    edges : ndarray of shape (n_features, n_cells + 1) or None
        Of cells that are known to hold all values; None finds their magnitude first.
    ranks : callable
        From the numbers of values, (n_features, 1), to ranks, (n_features, n_levels).
    outer : callable, default=None
        The same: ranks whose magnitudes bound the coarse cells; by default all ranks.
    side : {"left", "right"}, default="right"
        Whether a value at an edge counts as above it or not ("right").

    Returns
    -------
    coarse, fine : Cells
        Those of all values, and those inside the cell of each quantile.
    n_values : ndarray of int of shape (n_features, 1)
    """
    # missing values come last
    ordered = map_rows(rows, lambda rows: np.sort(rows, axis=0))
    n_features = np.shape(rows)[1]

    def count(edges):
        def up_to(ordered):
            return np.array(
                [
                    np.searchsorted(values, of.ravel(), side)
                    for values, of in zip(ordered.T, edges)
                ]
            )

        n = sum_over_rows(ordered, lambda rows: np.sum(~np.isnan(rows), axis=0))
        below = sum_over_rows(ordered, up_to)
        told, rows = np.append(below, n), CountsAt(slice(-n_features, None))
        total = yield Sum(told, "numbers of values up to thresholds", rows)
        below, n = np.split(total, [-n_features])
        return Cells(edges, below.reshape(edges.shape)), n[:, None]

    if edges is None:
        edges = np.tile(MAGNITUDES, (n_features, 1, 1))
        found, n = yield from count(edges)
        cells = found.at((outer or ranks)(n))
        low, high = found.take(cells)[0], found.take(cells + 1)[0]
        edges = equal_cells(low.min(axis=1), high.max(axis=1))
    coarse, n = yield from count(edges.reshape(n_features, 1, -1))
    cells = coarse.at(ranks(n))
    fine, n = yield from count(
        equal_cells(coarse.take(cells)[0], coarse.take(cells + 1)[0])
    )
    return coarse, fine, n


def rare_levels(counts, min_count, least):
    """Tell which levels of a column become one, so that it is about enough rows.

    Where fewer than `least` rows have any of them, the next larger level joins them
    (secondary suppression): merged, they would still be a count of few rows.

    Parameters
    ----------
    counts : ndarray of shape (n_levels,)
        Of all parties' rows.
    min_count : float
        Levels that fewer rows have become one.
    least : int
        Smallest count that may be told.

    Returns
    -------
    are_rare : ndarray of bool of shape (n_levels,)

    Examples
    --------
    >>> import numpy as np
    >>> rare_levels(np.array([90, 7, 3, 0]), min_count=4, least=5)
    array([False,  True,  True,  True])
    """
    are_rare = counts < max(min_count, least)
    while are_few(counts[are_rare].sum(), least) and not are_rare.all():
        are_rare[np.argmin(np.where(are_rare, np.inf, counts))] = True
    return are_rare


def in_steps(counts, step):
    """Return counts rounded down to multiples of a step.

    Were small counts hidden alone, they would follow from sums that are told: 20, of
    whom 18 have one value, are 2 with the other.
    """
    return counts - counts % step if step > 1 else counts


def split_tables(values, shapes):
    ends = np.cumsum([prod(shape) for shape in shapes])
    return [part.reshape(s) for part, s in zip(np.split(values, ends), shapes)]


def equal_cells(low, high):
    """Return the edges of cells that divide each range evenly."""
    return np.linspace(low, high, N_CELLS + 1, axis=-1)


def quantile_ranks(n, levels, least):
    """Return the ranks of quantiles, each value being in the middle of its rank.

    At least `least` values are at a quantile or beyond, on both sides.

    Parameters
    ----------
    n : int or ndarray of int of shape (n_features, 1)
        Numbers of values.
    levels : float or ndarray of shape (n_levels,)
    least : int

    Returns
    -------
    ranks : float or ndarray of shape (n_features, n_levels)
    """
    few = np.maximum(np.minimum(least, (n + 1) // 2), 1)
    ranks = levels * np.maximum(n - 1, 0) + 0.5
    return np.clip(ranks, few - 0.5, np.maximum(n - few, 0) + 0.5)


def read_quantile(edges, counts, fine_edges, fine_counts, level, least):
    """Return a quantile, interpolated in cells that hold `least` rows together.

    Which cells go together does not depend on the quantile: cells around the one that
    holds a row would tell where this row is. Of few rows, all quantiles are the median.
    """
    rank = quantile_ranks(counts.sum(), level, least)
    n_fine = fine_counts.sum()
    before = counts[edges[1:] <= fine_edges[0]].sum()
    beside = are_few([before, counts.sum() - before - n_fine], least)
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
