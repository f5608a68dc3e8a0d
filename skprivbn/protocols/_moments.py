"""Means and covariances of rows held by several parties, from secure sums.

Exactly, in two rounds: counts and sums, then second moments about the mean, which
does not lose digits on data far from zero. The mean is computed by every party from the
sum that it has verified: about another one, far away or in units of somebody's choice,
digits of single rows could show. Or with differential privacy, in one
round: rows clipped to public bounds, in integers, with noise that the parties add
together before anything is summed.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np

from skprivbn.federation import (
    Party,
    map_rows,
    operation,
    row_blocks,
    sum_over_rows,
)
from skprivbn.federation._rows import unit_of_squares
from skprivbn.federation._terms import NoisyTerms
from skprivbn.privacy import CountMechanism
from skprivbn.privacy._mechanisms import MAX_SCALES
from skprivbn.privacy._options import check_bounds, clip_rows, warn_of_noise
from skprivbn.privacy._persons import sum_by_person
from skprivbn.utils._triangles import symmetric, upper

#: clipped values between -1 and 1 are carried as integers up to this size
UNIT = 1 << 15


@dataclass(frozen=True)
class Moments:
    """Number of rows, mean and second moments about the mean.

    Attributes
    ----------
    n_rows : float
        An estimate, at least 1, if noise was added.
    mean : ndarray of shape (n_features,)
    covariance : ndarray of shape (n_features, n_features) or (n_features,) or None
        Divided by `n_rows`; only its diagonal, or nothing, if that was asked for.
    noise : float
        Standard deviation of what was added to every covariance, where it is known.
    """

    n_rows: float
    mean: np.ndarray
    covariance: Any
    noise: float = 0.0


@dataclass(frozen=True)
class MomentsTerms(NoisyTerms):
    """Which moments are summed, and with what noise.

    Parameters
    ----------
    second : {"full", "diagonal", "none"}
        Which second moments to sum.
    bounds : ndarray of shape (2, n_features) or None
        Public lower and upper bounds to which rows are clipped, with noise only.
    epsilon, delta, min_honest, protects :
        As of :class:`NoisyTerms`.
    """

    second: Literal["full", "diagonal", "none"] = "full"
    bounds: np.ndarray | None = None

    def rounds(self, n_parties: int) -> int:
        """Return two: sums, then squares."""
        return 2

    def memory(self, n_features: int) -> tuple[int, int]:
        """Return how many moments there are."""
        return 0, n_features**2

    def n_parameters(self, n_features: int) -> int:
        """Return the length of the sums."""
        return self.n_values(n_features)

    def mechanism(self, n_features: int) -> CountMechanism:
        """Return the noise that one curator would add, within the bounds."""
        check_bounds(self.bounds, n_features)
        return _calibrate(self.epsilon, self.delta, self.n_values(n_features))[0]

    def unit(self, n_features: int) -> int:
        """Return the integer that stands for half the width between the bounds."""
        return _calibrate(self.epsilon, self.delta, self.n_values(n_features))[1]

    def survives_losses(self) -> bool:
        """Tell whether there is one sum only."""
        return super().survives_losses() or self.second == "none"

    def n_values(self, n_features: int) -> int:
        """Return the length of the sums."""
        n_second = {
            "full": n_features * (n_features + 1) // 2,
            "diagonal": n_features,
            "none": 0,
        }
        return 1 + n_features + n_second[self.second]


def _calibrate(epsilon, delta, n_values):
    """Return the noise of the sums, and the integer that stands for half a width."""
    unit = UNIT
    if delta == 0:
        room = MAX_SCALES["laplace"] * epsilon / n_values
        unit = max(min(UNIT, int(np.sqrt(room))), 1)
    # A row adds n_values integers, each of unit**2 at most, rounding included.
    mechanism = CountMechanism.for_budget(
        epsilon, delta, unit**2 * n_values, unit**2 * np.sqrt(n_values)
    )
    return mechanism, unit


class MomentsParty(Party):
    """A holder of rows that contributes to means and covariances."""

    terms: Any = MomentsTerms

    def prepare(self) -> None:
        """Refuse rows that are not finite numbers; noise must hide that, too."""
        if self.terms.epsilon is None:
            self.rows = self.finite_rows()
        else:
            self.rows = map_rows(
                self.block["X"], lambda rows: clip_rows(rows, self.terms.bounds)
            )
        self.second = self.terms.second
        self.shared_by = self.rows_of_person()

    def schedule(self) -> Generator[Any, Any, Any]:
        """Exact: sums, then squares. With noise: one release."""
        if self.terms.epsilon is not None:
            yield "noisy_moments"
        else:
            yield "sums"
            if self.second != "none":
                yield "squares"

    @operation(
        tells="its number of rows, sums and absolute sums of each feature", exact=True
    )
    def sums(self) -> dict:
        """First moments; absolute values set the unit of the second."""
        return self.hide(sum_over_rows(self.rows, _first_moments))

    @operation(
        tells="its sums of squares and products about the common mean",
        hears="the sums of all parties",
        hears_kind="plaintext aggregate",
        exact=True,
    )
    def squares(self, total: dict) -> dict:
        """Second moments about the mean, in units that fit the fixed point."""
        return self.hide(self.sum_squares(total))

    def sum_squares(self, total: dict) -> np.ndarray:
        """Take what all parties' sums are, and return own second moments."""
        first = self.first = FirstMoments.read(self.reveal(total))
        return sum_over_rows(
            self.rows,
            lambda rows: _second_moments((rows - first.mean) / first.unit, self.second),
        )

    @operation(
        tells="noisy sums of its clipped rows, squares and products",
        kind="noisy release",
        exact=True,
    )
    def noisy_moments(self) -> dict:
        """All moments of the clipped rows as integers, with this party's noise."""
        if self.shared_by is None:
            counts = sum_over_rows(self.rows, self._integer_moments)
        else:
            counts = sum_by_person(
                row_blocks(self.rows), self.shared_by, self._moments_of_rows
            )
        return self.hide_noisy(counts)

    def _on_grid(self, rows, unit):
        low, high = self.terms.bounds
        rows = np.rint((rows - (low + high) / 2) / ((high - low) / 2) * unit)
        # bounds a hair apart have no middle: what noise relies on holds all the same
        return np.clip(rows, -unit, unit)

    def _moments_of_rows(self, rows):
        """Return the integer moments of each row, to be added up by person."""
        unit = self.terms.unit(rows.shape[1])
        rows = self._on_grid(rows, unit).astype(np.int64)
        count = np.full((len(rows), 1), unit**2)
        if self.second == "none":
            return np.hstack([count, unit * rows])
        i, j = np.triu_indices(rows.shape[1])
        if self.second == "diagonal":
            i = j = np.arange(rows.shape[1])
        return np.hstack([count, unit * rows, rows[:, i] * rows[:, j]])

    def _integer_moments(self, rows):
        n_features = rows.shape[1]
        unit = self.terms.unit(n_features)
        rows = self._on_grid(rows, unit)
        counts = np.zeros(self.terms.n_values(n_features), dtype=np.int64)
        # In chunks whose sums of products are exact in double precision.
        for start in range(0, len(rows), 1 << 20):
            chunk = rows[start : start + (1 << 20)]
            first = np.append(len(chunk) * unit, chunk.sum(axis=0)) * unit
            second = _second_moments(chunk, self.second)
            counts += np.concatenate([first, second]).astype(np.int64)
        return counts


@dataclass(frozen=True)
class FirstMoments:
    """Count, means and units, which all sides know after the first round.

    Attributes
    ----------
    n : float
    mean, unit : ndarray of shape (n_features,)
        Second moments are about the mean, in this unit.
    """

    n: float
    mean: np.ndarray
    unit: np.ndarray

    @classmethod
    def read(cls, total: np.ndarray) -> Self:
        """Read the sum of all parties' sums."""
        n, sums, absolute = total[0], *np.split(np.array(total[1:]), 2)
        return cls(float(n), sums / n, unit_of_squares(absolute / n, n))

    def with_second(self, total: np.ndarray, second: str) -> Moments:
        """Return all moments, given the sum of all parties' squares."""
        moments = _unpack(np.array(total) / self.n, second)
        return Moments(self.n, self.mean, moments * _outer(self.unit, second))


def collect_moments(federation: Any) -> Moments:
    """Run the protocol: the coordinator's side.

    Parameters
    ----------
    federation : Federation
        Opened with :class:`MomentsParty`.

    Returns
    -------
    moments : Moments
    """
    second = federation.terms.second
    if federation.terms.epsilon is not None:
        return _collect_noisy(federation, second)
    total = federation.secure_sum("sums")
    first = FirstMoments.read(total)
    if second == "none":
        return Moments(first.n, first.mean, None)
    total = federation.secure_sum("squares", {"total": total})
    return first.with_second(total, second)


def _collect_noisy(federation, second):
    low, high = federation.terms.bounds
    unit = federation.terms.unit(len(low))
    noise = federation.terms.noise(len(low), len(federation.roster))
    what = "noisy count, sums and products of all rows"
    values = federation.noisy_sum("noisy_moments", noise, what) / unit**2
    warn_of_noise(3 * noise.std / unit**2, values[0])
    n = max(values[0], 1.0)
    half, centre = (high - low) / 2, (low + high) / 2
    mean = np.clip(values[1 : 1 + len(low)] / n, -1, 1)
    if second == "none":
        return Moments(n, centre + half * mean, None)
    moments = _unpack(values[1 + len(low) :] / n, second)
    covariance = _nearest_covariance(moments - _outer(mean, second))
    return Moments(n, centre + half * mean, covariance * _outer(half, second))


def _first_moments(rows):
    return np.concatenate([[len(rows)], rows.sum(axis=0), np.abs(rows).sum(axis=0)])


def _second_moments(rows, second):
    """Sums of squares (diagonal) or of all products (upper triangle)."""
    if second == "none":
        return np.zeros(0)
    if second == "diagonal":
        return np.einsum("ij,ij->j", rows, rows)
    return upper(rows.T @ rows)


def _unpack(values, second):
    return values if second == "diagonal" else symmetric(values)


def _outer(vector, second):
    return vector**2 if second == "diagonal" else np.outer(vector, vector)


def _nearest_covariance(moments):
    """Make what noise spoilt positive semi-definite, with variances of at most one.

    One is the largest variance between -1 and 1.
    """
    if moments.ndim == 1:
        return np.clip(moments, 0, 1)
    values, vectors = np.linalg.eigh(moments)
    covariance = (vectors * np.maximum(values, 0)) @ vectors.T
    scale = np.sqrt(np.maximum(np.diag(covariance), 1.0))
    return covariance / np.outer(scale, scale)
