"""Quantiles of rows held by several parties, from secure counts.

A search by histograms: count the values below thresholds, keep for each wanted
quantile the cell that holds it, and count again inside. Each round is one secure sum
of integers. With differential privacy, one noisy histogram of each feature instead.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from skprivbn.federation import (
    Party,
    PartyRefusal,
    Terms,
    check_received_bounds,
    declare_noise,
    operation,
)
from skprivbn.privacy import CountMechanism, distribute
from skprivbn.privacy._options import check_bounds, clip_rows, warn_of_noise

__all__ = ["CountingParty", "HistogramTerms", "find_quantiles"]

N_CELLS = 256
#: counts of a person, whose rows share them
PERSON_UNIT = 1 << 12
#: quantiles that one session finds at most; thresholds without end would tell values
MAX_LEVELS = 257
#: thresholds that bracket values of unknown size: powers of two, and zero
MAGNITUDES = np.concatenate(
    [-np.exp2(np.arange(120.0, -121, -1)), [0.0], np.exp2(np.arange(-120.0, 121))]
)


@dataclass(frozen=True)
class HistogramTerms(Terms):
    """How many quantiles are searched for, within which bounds, with what noise.

    Parameters
    ----------
    n_levels : int
        How many quantiles of each feature are wanted.
    bounds : ndarray of shape (2, n_features) or None
        Public bounds, to which values are clipped. None finds the range first.
    epsilon : float or None
        Privacy budget; needs `bounds`.
    delta : float
    min_honest : int or None
        How many parties are trusted to add their share of the noise; by default half
        of them, rounded up.
    protects : {"rows", "individuals"}
        Whom the noise hides: rows, or persons, all of whose rows count as one.
    """

    n_levels: int = 2
    bounds: np.ndarray | None = None
    epsilon: float | None = None
    delta: float = 0.0
    min_honest: int | None = None
    protects: Literal["rows", "individuals"] = "rows"

    def check(self):
        """Refuse thresholds without end, which would tell values."""
        if self.epsilon is None and not 0 <= self.n_levels <= MAX_LEVELS:
            raise ValueError(f"n_levels must be at most {MAX_LEVELS}")

    def rounds(self, n_parties):
        """Return the range, a coarse and a fine search."""
        return 3

    def parameters(self, n_features):
        """Return the quantiles."""
        return self.n_levels * n_features

    def memory(self, n_features):
        """Return the counts."""
        return 0, n_features * (self.n_levels * (len(MAGNITUDES) + 1) + 1)

    def noise(self, n_features, n_parties):
        """Return the noise of the one release."""
        if self.epsilon is None:
            return None
        check_bounds(self.bounds, n_features)
        # One row, or person, is in one cell of the histogram of each feature.
        mechanism = CountMechanism.for_budget(
            self.epsilon,
            self.delta,
            self.unit * n_features,
            self.unit * np.sqrt(n_features),
        )
        return distribute(mechanism, n_parties, self.min_honest)

    @property
    def unit(self):
        """Counts of one row, or of all rows of a person together."""
        return 1 if self.protects == "rows" else PERSON_UNIT

    def survives_losses(self):
        """Tell whether there is one sum only."""
        return self.epsilon is not None


class CountingParty(Party):
    """A holder of rows that counts its values below given thresholds."""

    terms = HistogramTerms

    def prepare(self):
        """Clip to the public bounds and sort each feature, once."""
        if self.terms.bounds is not None:
            check_received_bounds(self.terms.bounds, np.shape(self.block["X"])[1])
        if self.terms.epsilon is not None:
            rows = clip_rows(self.block["X"], self.terms.bounds)
        else:
            rows = self.finite_numbers()
            if self.terms.bounds is not None:
                rows = np.clip(rows, *self.terms.bounds)
        self.rows, self.shared_by = rows, self.rows_of_person()
        if self.terms.epsilon is None:
            self.ordered = np.sort(rows, axis=0).T

    def schedule(self):
        """The range if need be, then a coarse and a fine search."""
        if self.terms.epsilon is not None:
            yield "noisy_histogram"
            return
        self.n_cells = N_CELLS
        if self.terms.bounds is None:
            self.n_cells = len(MAGNITUDES) - 1
            yield "counts"
            self.n_cells = N_CELLS
        yield "counts"
        yield "counts"

    @operation(
        tells="how many of its values lie below each of the given thresholds",
        hears="thresholds that narrow down the quantiles",
        exact=True,
    )
    def counts(self, thresholds):
        """Count values of each feature that do not exceed its thresholds."""
        n_thresholds = self.terms.n_levels * (self.n_cells + 1) + 1
        if np.shape(thresholds) != (len(self.ordered), n_thresholds):
            raise PartyRefusal("refused")
        counts = [
            np.searchsorted(values, wanted, side="right")
            for values, wanted in zip(self.ordered, thresholds, strict=True)
        ]
        return self.hide(np.ravel(counts))

    @operation(
        tells="a noisy histogram of each of its features",
        kind="noisy release",
        exact=True,
    )
    def noisy_histogram(self):
        """Count the clipped values in cells and add this party's noise."""
        low, high = self.terms.bounds
        weights = None
        if self.shared_by is not None:
            weights = self.terms.unit // np.maximum(self.shared_by, 1)
            weights = np.where(self.shared_by > 0, weights, 0)
        counts = np.stack(
            [
                np.histogram(values, N_CELLS, range=(a, b), weights=weights)[0]
                for values, a, b in zip(self.rows.T, low, high)
            ]
        )
        noise = self.terms.noise(len(counts), len(self.context.roster))
        counts = counts.astype(np.int64) + noise.share(counts.shape)
        return self.hide(counts.ravel())


def find_quantiles(federation, levels, n_features):
    """Find quantiles of each feature over all parties: the coordinator's side.

    Parameters
    ----------
    federation : Federation
        Opened with :class:`CountingParty`.
    levels : ndarray of shape (n_levels,)
        Between 0 and 1.
    n_features : int

    Returns
    -------
    quantiles : ndarray of shape (n_features, n_levels)
        Within 2**-16 of the range; with noise, within a 256th of the bounds.
    """
    if federation.terms.epsilon is not None:
        return _noisy_quantiles(federation, levels)
    levels = np.broadcast_to(levels, (n_features, len(levels)))
    bounds = federation.terms.bounds
    if bounds is None:
        edges = np.broadcast_to(MAGNITUDES, (*levels.shape, len(MAGNITUDES)))
        low, high = _narrow(federation, edges, np.where(levels < 0.5, 0.0, 1.0))
        low, high = low.min(axis=1, keepdims=True), high.max(axis=1, keepdims=True)
    else:
        low, high = bounds[:, :, None]
    for _ in range(2):
        edges = np.linspace(low, high, N_CELLS + 1, axis=-1)
        edges = np.broadcast_to(edges, (*levels.shape, N_CELLS + 1))
        low, high = _narrow(federation, edges, levels)
    return np.where(levels == 0, low, high)


def _narrow(federation, edges, levels):
    """Return the ends of the cell in which each wanted quantile lies."""
    n_features = len(edges)
    # A last threshold above everything counts the rows.
    last = np.full((n_features, 1), np.inf)
    thresholds = np.hstack([edges.reshape(n_features, -1), last])
    counts = federation.secure_sum("counts", {"thresholds": thresholds})
    counts = counts.reshape(n_features, -1)
    n, below = counts[:, -1].max(), counts[:, :-1].reshape(edges.shape)
    rank = np.clip(np.ceil(levels * n), 1, n)[..., None]
    cell = np.argmax(below[..., 1:] >= rank, axis=-1)[..., None]
    low = np.take_along_axis(edges, cell, axis=-1)[..., 0]
    high = np.take_along_axis(edges, cell + 1, axis=-1)[..., 0]
    return low, high


def _noisy_quantiles(federation, levels):
    low, high = federation.terms.bounds
    noise = federation.terms.noise(len(low), len(federation.roster))
    noise.check_survivors(len(federation.active))
    counts = federation.secure_sum("noisy_histogram").reshape(len(low), N_CELLS)
    counts = counts / federation.terms.unit
    declare_noise(federation.ledger, noise, "noisy histograms of all features")
    std = noise.std / federation.terms.unit
    warn_of_noise(3 * np.sqrt(N_CELLS) * std, counts.sum(axis=1).min())
    # Cumulative counts as the nearest distribution function: rising, from 0.
    cumulative = np.maximum.accumulate(np.cumsum(counts, axis=1), axis=1)
    quantiles = np.empty((len(low), len(levels)))
    for feature, reached in enumerate(np.maximum(cumulative, 0)):
        if reached[-1] == 0:  # nothing but noise: no cell is better than another
            reached = np.arange(1, N_CELLS + 1)
        edges = np.linspace(low[feature], high[feature], N_CELLS + 1)
        shares = np.append(0.0, reached / reached[-1])
        quantiles[feature] = np.interp(levels, shares, edges)
    return quantiles
