"""Means and covariances of rows held by several parties, from secure sums.

Exactly, in two rounds: counts and sums, then second moments about the mean, which
does not lose digits on data far from zero. Or with differential privacy, in one
round: rows clipped to public bounds, in integers, with noise that the parties add
together before anything is summed.
"""

from collections.abc import Generator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from skprivbn.federation._ledger import declare_noise
from skprivbn.federation._party import (
    Party,
    PartyRefusal,
    check_noise,
    check_told,
    check_told_bounds,
    operation,
)
from skprivbn.privacy import CountMechanism, DistributedNoise, distribute
from skprivbn.privacy._mechanisms import MAX_SCALES
from skprivbn.privacy._options import warn_of_noise

__all__ = ["Moments", "MomentsParty", "collect_moments", "moments_settings"]

#: clipped values between -1 and 1 are carried as integers up to this size
UNIT = 1 << 15


@dataclass(frozen=True)
class Moments:
    """Count, mean and second moments about the mean.

    Attributes
    ----------
    n : float
        Number of rows; an estimate, at least 1, if noise was added.
    mean : ndarray of shape (n_features,)
    covariance : ndarray of shape (n_features, n_features) or (n_features,) or None
        Divided by `n`; only its diagonal, or nothing, if that was asked for.
    """

    n: float
    mean: np.ndarray
    covariance: np.ndarray | None


def moments_settings(
    second: str = "full",
    *,
    bounds: Any = None,
    noise: tuple[float, float] | None = None,
    n_parties: Any = None,
    min_honest: int | None = None,
) -> dict:
    """Return the public parameters of a :class:`MomentsParty`.

    Parameters
    ----------
    second : {"full", "diagonal", "none"}
        Which second moments to sum.
    bounds : ndarray of shape (2, n_features), default=None
        Public lower and upper bounds to which rows are clipped, with `noise` only.
    noise : tuple of (epsilon, delta), default=None
        Privacy budget of the release.
    n_parties : int, default=None
        How many parties share in making the noise, with `noise` only.
    min_honest : int, default=None
        How many of them are trusted to; by default half of them, rounded up.

    Returns
    -------
    settings : dict
    """
    if noise is None:
        return {"second": second, "bounds": None, "noise": None}
    mechanism, unit = _calibrate(*noise, _n_values(np.shape(bounds)[1], second))
    shares = distribute(mechanism, n_parties, min_honest)
    return {"second": second, "bounds": bounds, "noise": asdict(shares), "unit": unit}


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


def _n_values(n_features, second):
    n_second = {
        "full": n_features * (n_features + 1) // 2,
        "diagonal": n_features,
        "none": 0,
    }
    return 1 + n_features + n_second[second]


class MomentsParty(Party):
    """A holder of rows that contributes to means and covariances."""

    @classmethod
    def privacy_noise(
        cls, settings: dict, n_features: int, n_parties: int
    ) -> DistributedNoise | None:
        """Return the noise of the one release, calibrated anew."""
        given, bounds = settings["noise"], settings["bounds"]
        if given is None:
            return None
        check_told_bounds(bounds, n_features)
        mechanism, unit = _calibrate(
            given["epsilon"], given["delta"], _n_values(n_features, settings["second"])
        )
        if settings["unit"] != unit:
            raise PartyRefusal("refused")
        return check_noise(given, mechanism, n_parties)

    @classmethod
    def survives_losses(cls, settings: dict) -> bool:
        """Tell whether there is one sum only."""
        single = settings["noise"] is not None or settings["second"] == "none"
        return single and cls is MomentsParty

    def prepare(self) -> None:
        """Refuse rows that are not finite numbers."""
        self.rows = self.finite_numbers()
        self.second = self.settings["second"]

    def schedule(self) -> Generator[Any, Any, Any]:
        """Exact: sums, then squares. With noise: one release."""
        if self.settings["noise"] is not None:
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
        return {
            "vector": self.hide(
                np.concatenate(
                    [
                        [len(self.rows)],
                        self.rows.sum(axis=0),
                        np.abs(self.rows).sum(axis=0),
                    ]
                )
            )
        }

    @operation(
        tells="its sums of squares and products about the common mean",
        hears="the common mean and unit of each feature",
        exact=True,
    )
    def squares(self, mean: np.ndarray, unit: np.ndarray) -> dict:
        """Second moments about the mean, in units that fit the fixed point."""
        shape = self.rows.shape[1:]
        rows = (self.rows - check_told(mean, shape)) / check_told(unit, shape)
        return {"vector": self.hide(_second_moments(rows, self.second))}

    @operation(
        tells="noisy sums of its clipped rows, squares and products",
        kind="noisy release",
        exact=True,
    )
    def noisy_moments(self) -> dict:
        """All moments of the clipped rows as integers, with this party's noise."""
        low, high = self.settings["bounds"]
        unit = self.settings["unit"]
        rows = np.clip(self.rows, low, high)
        rows = np.rint((rows - (low + high) / 2) / ((high - low) / 2) * unit)
        # bounds a hair apart have no middle: what noise relies on holds all the same
        rows = np.clip(rows, -unit, unit)
        counts = np.zeros(_n_values(rows.shape[1], self.second), dtype=np.int64)
        # In chunks whose sums of products are exact in double precision.
        for start in range(0, len(rows), 1 << 20):
            chunk = rows[start : start + (1 << 20)]
            first = np.append(len(chunk) * unit, chunk.sum(axis=0)) * unit
            second = _second_moments(chunk, self.second)
            counts += np.concatenate([first, second]).astype(np.int64)
        noise = DistributedNoise(**self.settings["noise"])
        return {"vector": self.hide(counts + noise.share(counts.shape))}


def collect_moments(federation: Any) -> Moments:
    """Run the protocol: the coordinator's side.

    Parameters
    ----------
    federation : Federation
        Opened with :class:`MomentsParty` and :func:`moments_settings`.

    Returns
    -------
    moments : Moments
    """
    second = federation.settings["second"]
    if federation.settings["noise"] is not None:
        return _collect_noisy(federation, second)
    n, *sums = federation.secure_sum("sums")
    total, absolute = np.split(np.array(sums), 2)
    mean = total / n
    if second == "none":
        return Moments(n, mean, None)
    # Far below the typical size, since deviations from the mean may be; a power of
    # two, so that scaling costs no digit.
    typical = np.where(absolute > 0, absolute / n, 1.0)
    unit = np.exp2(np.round(np.log2(typical)) - 15)
    values = federation.secure_sum("squares", {"mean": mean, "unit": unit})
    moments = _unpack(values / n, len(mean), second)
    return Moments(n, mean, moments * _outer(unit, second))


def _collect_noisy(federation, second):
    low, high = federation.settings["bounds"]
    noise = DistributedNoise(**federation.settings["noise"])
    noise.check_survivors(len(federation.active))
    values = federation.secure_sum("noisy_moments") / federation.settings["unit"] ** 2
    declare_noise(
        federation.ledger, noise, "noisy count, sums and products of all rows"
    )
    warn_of_noise(3 * noise.std / federation.settings["unit"] ** 2, values[0])
    n = max(values[0], 1.0)
    half, centre = (high - low) / 2, (low + high) / 2
    mean = np.clip(values[1 : 1 + len(low)] / n, -1, 1)
    if second == "none":
        return Moments(n, centre + half * mean, None)
    moments = _unpack(values[1 + len(low) :] / n, len(low), second)
    covariance = _nearest_covariance(moments - _outer(mean, second))
    return Moments(n, centre + half * mean, covariance * _outer(half, second))


def _second_moments(rows, second):
    """Sums of squares (diagonal) or of all products (upper triangle)."""
    if second == "none":
        return np.zeros(0)
    if second == "diagonal":
        return np.einsum("ij,ij->j", rows, rows)
    return (rows.T @ rows)[np.triu_indices(rows.shape[1])]


def _unpack(values, n_features, second):
    if second == "diagonal":
        return values
    moments = np.zeros((n_features, n_features))
    upper = np.triu_indices(n_features)
    moments[upper] = moments.T[upper] = values
    return moments


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
