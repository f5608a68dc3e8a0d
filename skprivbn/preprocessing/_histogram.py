"""Quantiles of rows held by several parties, from secure counts.

A search by histograms: count the values below thresholds, keep for each wanted
quantile the cell that holds it, and count again inside. Each round is one secure sum
of integers, which only the parties read: they choose the thresholds, and tell the
quantiles that they find. With differential privacy, one noisy histogram of each
feature instead.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from skprivbn.federation import (
    Party,
    PartyRefusal,
    check_received_bounds,
    map_rows,
    operation,
    sum_over_rows,
)
from skprivbn.federation._cells import MAGNITUDES, N_CELLS, CountTerms, equal_cells
from skprivbn.privacy._options import check_bounds, clip_rows, warn_of_noise
from skprivbn.privacy._persons import shares_of_rows

#: most quantiles of one session: ever more thresholds would tell values
MAX_LEVELS = 257


@dataclass(frozen=True)
class HistogramTerms(CountTerms):
    """How many quantiles are searched for, within which bounds, with what noise.

    Parameters
    ----------
    n_levels : int
        How many quantiles of each feature are wanted.
    bounds : ndarray of shape (2, n_features) or None
        Public bounds, to which values are clipped. None finds the range first.
    **counts
        As of :class:`CountTerms`; `epsilon` needs `bounds`. Exact quantiles with fewer
        than `min_rows` rows between them, or beyond them, are not told.
    """

    n_levels: int = 2
    bounds: np.ndarray | None = None

    def check(self):
        """Refuse so many quantiles that they would tell values."""
        if self.epsilon is None and not 2 <= self.n_levels <= MAX_LEVELS:
            raise ValueError(f"n_levels must be 2 to {MAX_LEVELS}")

    def rounds(self, n_parties):
        """Return four: the range, a coarse and a fine search, the result."""
        return 4

    def tells_quantiles(self):
        """Tell that it does."""
        return True

    def n_parameters(self, n_features):
        """Return how many quantiles are told."""
        return self.n_levels * n_features

    def memory(self, n_features):
        """Return how many values are counted below thresholds in one round."""
        return 0, n_features * (self.n_levels * (N_CELLS + 1) + 1)

    def mechanism(self, n_features):
        """Return the noise that one curator would add, within the bounds."""
        check_bounds(self.bounds, n_features)
        return super().mechanism(n_features)


class QuantileSearch:
    """A search for quantiles, as every party follows it by itself.

    Parameters
    ----------
    terms : HistogramTerms
    n_features : int
    """

    def __init__(self, terms, n_features):
        self.levels = np.linspace(0, 1, terms.n_levels)
        self.min_rows, self.n_features = terms.min_rows, n_features
        if terms.bounds is None:
            edges, self.n_left = np.tile(MAGNITUDES, (n_features, 1, 1)), 3
        else:
            edges, self.n_left = equal_cells(*terms.bounds[:, :, None]), 2
        #: thresholds of each quantile; at first the same for all of a feature
        self.edges = edges

    def count(self, ordered):
        """Count values of each feature up to its thresholds, and all of them."""
        below = [
            np.searchsorted(values, wanted.ravel(), side="right")
            for values, wanted in zip(ordered.T, self.edges)
        ]
        return np.append(below, self._n_values(ordered))

    def _n_values(self, ordered):
        return len(ordered)

    def narrow(self, counts):
        """Keep the cell in which each quantile lies, given the counts of all rows."""
        below, n = self._split(counts)
        below, few = np.reshape(below, self.edges.shape), self._few(n)
        rank = self._ranks(n, few)[..., None]
        cell = np.argmax(below[..., 1:] >= rank, axis=-1)[..., None]
        edges, below = np.broadcast_arrays(self.edges, below)
        shape = (self.n_features, len(self.levels), edges.shape[-1])
        edges, below = np.broadcast_to(edges, shape), np.broadcast_to(below, shape)
        self.n_left -= 1
        if self.n_left == 0:
            at = cell[..., 0] + (self.levels > 0)
            ends, reached = (
                np.take_along_axis(values, at[..., None], axis=-1)[..., 0]
                for values in (edges, below)
            )
            self._finish(ends, reached, n, few)
            return
        low, high = (
            np.take_along_axis(edges, cell + step, axis=-1)[..., 0] for step in (0, 1)
        )
        if self.n_left == 2:
            low, high = low.min(axis=1, keepdims=True), high.max(axis=1, keepdims=True)
        self.edges = equal_cells(low, high)

    def _split(self, counts):
        """Return counts up to thresholds, and of all rows."""
        *below, n = counts
        return below, n

    def _few(self, n):
        """Return how many rows must be beyond a quantile, and between two."""
        return max(min(self.min_rows, (n + 1) // 2), 1)

    def _ranks(self, n, few):
        return np.clip(np.ceil(self.levels * n), few, n + 1 - few)

    def _finish(self, ends, reached, n, few):
        if n < self.min_rows:
            raise PartyRefusal("too-few-rows")
        # rows beyond the first and the last are in the outer bins
        reached = np.column_stack(
            [
                np.zeros(self.n_features),
                reached[:, 1:-1],
                np.full_like(ends[:, 0], n),
            ]
        )
        self.found = [_apart(*one, few) for one in zip(ends.copy(), reached)]


def _apart(ends, reached, few):
    """Merge quantiles with fewer than `few` rows between them; the ends stay."""
    kept = [0]
    for i in range(1, len(ends)):
        if reached[i] - reached[kept[-1]] >= few:
            kept.append(i)
        else:
            ends[i] = ends[kept[-1]]
    if kept[-1] < len(ends) - 1 and len(kept) > 1:
        ends[kept[-1] :] = ends[-1]
    return ends


class HistogramParty(Party):
    """A holder of rows that counts its values below thresholds."""

    terms: Any = HistogramTerms
    search_class = QuantileSearch
    allow_nan = False

    def prepare(self):
        """Clip to the public bounds and sort each feature, once."""
        rows, is_exact = self.block["X"], self.terms.epsilon is None
        if self.terms.bounds is not None:
            check_received_bounds(self.terms.bounds, np.shape(rows)[1])
        if is_exact:
            rows = self.finite_rows(allow_nan=self.allow_nan)
        if self.terms.bounds is not None:
            rows = map_rows(rows, self._clip)
        self.rows, self.shared_by = rows, self.rows_of_person()
        if is_exact:
            # missing values come last
            self.ordered = map_rows(rows, lambda rows: np.sort(rows, axis=0))

    def _clip(self, rows):
        return clip_rows(rows, self.terms.bounds)

    def schedule(self):
        """The range if need be, then a coarse and a fine search."""
        if self.terms.epsilon is not None:
            yield "noisy_histogram"
            return
        self.search = self.search_class(self.terms, self.ordered.shape[1])
        yield "counts"
        while self.search.n_left > 1:
            yield "narrow"
        yield "release"

    @operation(
        tells="how many of its values lie below each of some thresholds",
        parties_only=True,
    )
    def counts(self):
        """Count values of each feature that do not exceed its first thresholds."""
        return self.hide(sum_over_rows(self.ordered, self.search.count))

    @operation(
        tells="how many of its values lie below each of finer thresholds",
        parties_only=True,
    )
    def narrow(self, total):
        """Count again, within the cells that hold the quantiles."""
        self.search.narrow(self.reveal(total))
        return self.hide(sum_over_rows(self.ordered, self.search.count))

    @operation(
        tells="the quantiles of all rows",
        kind="plaintext aggregate",
        answers={"quantiles": np.ndarray},
    )
    def release(self, total):
        """Tell what was found, where enough rows are between."""
        self.search.narrow(self.reveal(total))
        return {"quantiles": np.array(self.search.found)}

    @operation(
        tells="a noisy histogram of each of its features",
        kind="noisy release",
        exact=True,
    )
    def noisy_histogram(self):
        """Count the clipped values in cells and add this party's noise."""
        low, high = self.terms.bounds
        rows, weights = self.rows, None
        if self.shared_by is not None:
            rows, weights = np.asarray(rows), shares_of_rows(self.shared_by)

        def histograms(rows):
            return np.stack(
                [
                    np.histogram(values, N_CELLS, range=(a, b), weights=weights)[0]
                    for values, a, b in zip(rows.T, low, high)
                ]
            )

        return self.hide_noisy(sum_over_rows(rows, histograms).astype(np.int64))


def find_quantiles(federation, levels):
    """Find quantiles of each feature over all parties: the coordinator's side.

    Parameters
    ----------
    federation : Federation
        Opened with :class:`HistogramParty`.
    levels : ndarray of shape (n_levels,)
        Evenly from 0 to 1.

    Returns
    -------
    quantiles : ndarray of shape (n_features, n_levels)
        Within 2**-16 of the range; with noise, within a 256th of the bounds.
    """
    if federation.terms.epsilon is not None:
        return _noisy_quantiles(federation, levels)
    total = federation.secure_sum("counts")
    for _ in range(1 if federation.terms.bounds is not None else 2):
        total = federation.secure_sum("narrow", {"total": total})
    federation.ledger.learns("coordinator", "the quantiles of all rows")
    return federation.unanimous("release", {"total": total})["quantiles"]


def _noisy_quantiles(federation, levels):
    low, high = federation.terms.bounds
    noise = federation.terms.noise(len(low), len(federation.roster))
    what = "noisy histograms of all features"
    counts = federation.noisy_sum("noisy_histogram", noise, what)
    counts = counts.reshape(len(low), N_CELLS) / federation.terms.unit
    std = noise.std / federation.terms.unit
    warn_of_noise(3 * np.sqrt(N_CELLS) * std, counts.sum(axis=1).min())
    # Cumulative counts as the nearest distribution function: rising, from 0.
    cumulative = np.maximum.accumulate(np.cumsum(counts, axis=1), axis=1)
    quantiles = np.empty((len(low), len(levels)))
    for feature, reached in enumerate(np.maximum(cumulative, 0)):
        if reached[-1] == 0:  # nothing but noise: no cell is better than another
            reached = np.arange(1, N_CELLS + 1)
        edges = equal_cells(low[feature], high[feature])
        shares = np.append(0.0, reached / reached[-1])
        quantiles[feature] = np.interp(levels, shares, edges)
    return quantiles
