"""Means and variances of single features, over the rows that have a value there.

Like the moments of complete rows, with a count for each feature in the place of one
for all. Rows may have weights, if no noise is to hide them.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from skprivbn.federation import PartyRefusal, map_rows, operation
from skprivbn.federation._rows import paired_blocks, unit_of_squares
from skprivbn.privacy._options import warn_of_noise
from skprivbn.protocols import Moments, MomentsParty, MomentsTerms


@dataclass(frozen=True)
class IncompleteMomentsTerms(MomentsTerms):
    """Which moments of single features are summed, and with what noise.

    Parameters
    ----------
    second, bounds, epsilon, delta, min_honest, protects
        As for complete rows; `second` is not "full".
    weighted : bool
        Whether rows have weights, which noise could not hide.
    """

    weighted: bool = False

    def check(self):
        """Refuse products of features, and weights that noise does not hide."""
        if self.second == "full":
            raise ValueError("second: squares of single features only")
        if self.weighted and self.epsilon is not None:
            raise ValueError("weighted: no noise hides a row of any weight")

    def n_values(self, n_features):
        """Return the length of the sums: count, sum and square of each feature."""
        return (2 if self.second == "none" else 3) * n_features


class IncompleteMomentsParty(MomentsParty):
    """A holder of rows with gaps that contributes to means and variances."""

    terms: Any = IncompleteMomentsTerms

    def prepare(self):
        """Refuse rows that are not numbers; those with gaps are welcome."""
        self.second, self.shared_by = self.terms.second, self.rows_of_person()
        if self.terms.epsilon is None:
            self.rows = self.finite_rows(allow_nan=True)
        else:
            self.rows = map_rows(self.block["X"], self._clip)
        self.weights = np.ones(len(self.rows))
        if self.terms.weighted:
            self.weights = _check_weights(self.block.get("sample_weight"))

    def _clip(self, rows):
        return np.clip(np.asarray(rows, np.float64), *self.terms.bounds)

    def _add(self, function):
        """Add up what a function makes of each block of rows and their weights."""
        blocks = paired_blocks(self.rows, self.weights)
        return sum(function(*block) for block in blocks)

    @operation(
        tells="number of values, sums and absolute sums of each of its features",
        exact=True,
    )
    def sums(self):
        """First moments; absolute values set the unit of the second."""
        self._check_enough_rows()
        return self.hide(self._add(_first_moments))

    def _check_enough_rows(self):
        """Refuse a feature that few rows have, or few have nearly all the weight of."""
        total, squares = self._add(_sizes)
        n_rows = total**2 / np.where(squares > 0, squares, 1.0)
        # rounded: rows of equal weight count in full
        if np.any((n_rows > 0) & (np.round(n_rows, 6) < self.min_rows)):
            raise PartyRefusal("too-few-rows")

    @operation(
        tells="its sums of squares of each feature about the common mean",
        hears="the sums of all parties",
        hears_kind="plaintext aggregate",
        exact=True,
    )
    def squares(self, total):
        """Squares about the mean, in units that fit the fixed point."""
        first = FeatureMeans.read(self.reveal(total))
        return self.hide(
            self._add(
                lambda rows, weights: (
                    weights @ np.nan_to_num((rows - first.mean) / first.unit) ** 2
                )
            )
        )

    def _moments_of_rows(self, rows):
        unit = self.terms.unit(rows.shape[1])
        present = ~np.isnan(rows)
        rows = np.where(present, self._on_grid(rows, unit), 0).astype(np.int64)
        moments = [unit**2 * present.astype(np.int64), unit * rows]
        if self.second == "diagonal":
            moments.append(rows**2)
        return np.hstack(moments)

    def _integer_moments(self, rows):
        return self._moments_of_rows(rows).sum(axis=0)


@dataclass(frozen=True)
class FeatureMeans:
    """Counts, means and units, which all sides know after the first round.

    Attributes
    ----------
    n, mean, unit : ndarray of shape (n_features,)
        Squares are about the mean, in this unit. What nobody has, has the mean 0.
    """

    n: np.ndarray
    mean: np.ndarray
    unit: np.ndarray

    @classmethod
    def read(cls, total):
        """Read the sum of all parties' sums."""
        n, sums, absolute = np.split(np.array(total), 3)
        known = np.where(n > 0, n, 1.0)
        return cls(n, sums / known, unit_of_squares(absolute / known, n))


def collect_incomplete_moments(federation):
    """Run the protocol: the coordinator's side.

    Parameters
    ----------
    federation : Federation
        Opened with :class:`IncompleteMomentsParty`.

    Returns
    -------
    moments : Moments
        `n_rows` is an array with the number of values of each feature, or their
        weight.
    """
    if federation.terms.epsilon is not None:
        return _collect_noisy(federation)
    total = federation.secure_sum("sums")
    first = FeatureMeans.read(total)
    if federation.terms.second == "none":
        return Moments(first.n, first.mean, None)
    squares = federation.secure_sum("squares", {"total": total})
    variance = np.array(squares) / np.where(first.n > 0, first.n, 1.0) * first.unit**2
    return Moments(first.n, first.mean, variance)


def _collect_noisy(federation):
    low, high = federation.terms.bounds
    unit = federation.terms.unit(len(low))
    noise = federation.terms.noise(len(low), len(federation.roster))
    what = "noisy counts and sums of each feature"
    values = federation.noisy_sum("noisy_moments", noise, what) / unit**2
    n, sums, *second = np.split(values, len(values) // len(low))
    warn_of_noise(3 * noise.std / unit**2, n.min())
    n = np.maximum(n, 1.0)
    half, mean = (high - low) / 2, np.clip(sums / n, -1, 1)
    variance = None
    if second:
        variance = np.clip(second[0] / n - mean**2, 0, 1) * half**2
    return Moments(n, (low + high) / 2 + half * mean, variance)


def _check_weights(weights):
    weights = np.asarray(weights)
    if weights.dtype.kind not in "fiu":
        raise PartyRefusal("invalid-data")
    if not np.all(np.isfinite(weights) & (weights >= 0)):
        raise PartyRefusal("invalid-data")
    return weights.astype(np.float64)


def _sizes(rows, weights):
    present = ~np.isnan(rows)
    return np.stack([weights @ present, weights**2 @ present])


def _first_moments(rows, weights):
    n, values = _sizes(rows, weights)[0], np.nan_to_num(rows)
    return np.concatenate([n, weights @ values, weights @ np.abs(values)])
