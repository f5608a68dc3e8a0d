"""Noise on integers: discrete Laplace and discrete Gaussian, sampled by OpenDP.

Floating-point noise leaks the value under it through its last bits, so counts stay
integers and the noise is drawn exactly, from the operating system's randomness. There
is no seed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr

from skprivbn.privacy._accountant import PrivacyAccountant
from skprivbn.privacy._composition import PrivacyCost

#: largest scales: of the sampler of Laplace shares, and of what 64-bit sums hold
MAX_SCALES = {"laplace": 2.0**40, "gaussian": 2.0**50}


def laplace_scale(epsilon: float, l1_sensitivity: float) -> float:
    """Return the scale of the discrete Laplace noise that gives pure epsilon.

    Parameters
    ----------
    epsilon : float
        Privacy loss.
    l1_sensitivity : float
        How much one individual changes the counts, summed over cells.

    Returns
    -------
    float
        The scale, ``l1_sensitivity / epsilon``.
    """
    _check_positive(epsilon=epsilon, l1_sensitivity=l1_sensitivity)
    return l1_sensitivity / epsilon


def discrete_laplace_variance(scale: float) -> float:
    """Return the variance of discrete Laplace noise.

    Parameters
    ----------
    scale : float
        The probability of k is proportional to ``exp(-|k| / scale)``.

    Returns
    -------
    float
        The variance.
    """
    _check_positive(scale=scale)
    return 0.5 / math.sinh(0.5 / scale) ** 2 if scale > 1e-3 else 0.0


def discrete_gaussian_variance(sigma: float) -> float:
    """Return the variance of discrete Gaussian noise.

    Parameters
    ----------
    sigma : float
        The probability of k is proportional to ``exp(-k^2 / (2 sigma^2))``.

    Returns
    -------
    float
        The variance.
    """
    _check_positive(sigma=sigma)
    if sigma > 3:  # differs from sigma^2 by a factor of about exp(-2 pi^2 sigma^2)
        return float(sigma) ** 2
    k = np.arange(-40, 41)
    weights = np.exp(-(k**2) / (2 * sigma**2))
    return float(weights @ k**2 / weights.sum())


def add_discrete_laplace(
    counts: ArrayLike, l1_sensitivity: int, epsilon: float
) -> np.ndarray:
    """Add discrete Laplace noise of scale `l1_sensitivity` / `epsilon` to integers.

    Parameters
    ----------
    counts : array-like of int
        Exact counts, of any shape.
    l1_sensitivity : int
        Largest sum of absolute changes that one individual causes.
    epsilon : float
        The release is epsilon-differentially private.

    Returns
    -------
    ndarray of int64
        Noisy counts, of the same shape. They may be negative.

    Examples
    --------
    >>> from skprivbn.privacy import add_discrete_laplace
    >>> add_discrete_laplace([[3, 0], [12, 5]], l1_sensitivity=1, epsilon=1.0).shape
    (2, 2)
    """
    _check_integer_sensitivity(l1_sensitivity)
    scale = laplace_scale(epsilon, l1_sensitivity)
    return _release("laplace", counts, scale)


def add_discrete_gaussian(
    counts: ArrayLike, l2_sensitivity: float, sigma: float
) -> np.ndarray:
    """Add discrete Gaussian noise of parameter `sigma` to integers.

    Parameters
    ----------
    counts : array-like of int
        Exact counts, of any shape.
    l2_sensitivity : float
        Largest Euclidean norm of the change that one individual causes.
    sigma : float
        Noise parameter, for instance from :func:`gaussian_sigma`. The release is
        ``l2_sensitivity**2 / (2 * sigma**2)`` zCDP.

    Returns
    -------
    ndarray of int64
        Noisy counts, of the same shape. They may be negative.

    Examples
    --------
    >>> from skprivbn.privacy import add_discrete_gaussian, gaussian_sigma
    >>> sigma = gaussian_sigma(epsilon=1.0, delta=1e-6, l2_sensitivity=1)
    >>> add_discrete_gaussian([3, 0, 12], l2_sensitivity=1, sigma=sigma).shape
    (3,)
    """
    _check_positive(l2_sensitivity=l2_sensitivity, sigma=sigma)
    return _release("gaussian", counts, sigma)


def discrete_gaussian_delta(
    sigma: float, epsilon: float, change: int | Sequence[int] = 1
) -> float:
    """Return the exact delta of discrete Gaussian noise for one change of the counts.

    Parameters
    ----------
    sigma : float
        Noise parameter.
    epsilon : float
        At which to evaluate.
    change : int or sequence of int, default=1
        By how much the neighbouring counts differ: one number for one cell, several
        for several cells.

    Returns
    -------
    float
        Smallest delta such that the release is (epsilon, delta)-private for it.

    Notes
    -----
    The privacy loss is ``(T + |v|^2 / 2) / sigma^2``, where v is the change and T the
    sum of v_j Y_j over independent noises Y_j; delta is the mean of
    ``max(0, 1 - exp(epsilon - loss))`` [1]_. Only positive terms are summed, so that
    small deltas keep their digits.

    References
    ----------
    .. [1] C. Canonne, G. Kamath, T. Steinke (2020). The discrete Gaussian for
       differential privacy. NeurIPS.
    """
    change = np.abs(np.atleast_1d(np.asarray(change, dtype=np.int64)))
    change = change[change > 0]
    if change.size == 0:
        return 0.0
    pmf, start = _weighted_sum_pmf(sigma, tuple(int(v) for v in change))
    loss = (np.arange(start, start + pmf.size) + (change @ change) / 2) / sigma**2
    excess = loss - epsilon
    return float(pmf @ np.where(excess > 0, -np.expm1(-np.maximum(excess, 0)), 0))


def _weighted_sum_pmf(sigma, weights):
    """Probabilities of the sum of w_j Y_j on consecutive integers, and the first."""
    # beyond 39 sigma a float64 probability is zero
    width = math.ceil(39 * sigma)
    k = np.arange(-width, width + 1)
    base = np.exp(-(k**2) / (2 * sigma**2))
    base /= base.sum()
    pmf, start = np.ones(1), 0
    for weight in weights:
        spaced = np.zeros(2 * width * weight + 1)
        spaced[::weight] = base
        pmf = np.convolve(pmf, spaced)
        start -= width * weight
        # cells below the smallest normal float carry no mass that matters
        keep = np.flatnonzero(pmf > 1e-300)
        pmf, start = pmf[keep[0] : keep[-1] + 1], start + int(keep[0])
    return pmf, start


def _continuous_delta(sigma, epsilon, sensitivity):
    """Delta of continuous Gaussian noise (Balle and Wang), stable when small."""
    shift = sensitivity / (2 * sigma)
    upper = log_ndtr(shift - epsilon * sigma / sensitivity)
    lower = log_ndtr(-shift - epsilon * sigma / sensitivity)
    return float(-np.exp(upper) * np.expm1(min(epsilon + lower - upper, 0.0)))


def _worst_delta(sigma, epsilon, l2_sensitivity):
    """Largest delta over the integer changes whose norm is the sensitivity.

    By enumeration where there are few such changes and the lattice matters. Else the
    continuous delta, plus what a lattice of spacing at most `l2_sensitivity` adds to
    the mean of a function with one kink (a point of the lattice on the kink: spacing
    squared, times the jump of the slope, times the density there, over twelve).
    """
    square = math.floor(l2_sensitivity**2 + 1e-9)
    if (square == 1 and sigma <= 2000) or (square <= 16 and sigma <= 4):
        return max(
            discrete_gaussian_delta(sigma, epsilon, change)
            for change in _sums_of_squares(square)
        )
    kink = epsilon * sigma / l2_sensitivity - l2_sensitivity / (2 * sigma)
    density = math.exp(-(kink**2) / 2) / (sigma * math.sqrt(2 * math.pi))
    allowance = l2_sensitivity / sigma**2 * density / 12
    return _continuous_delta(sigma, epsilon, l2_sensitivity) + allowance


def _sums_of_squares(total, largest=None):
    """All decreasing tuples of positive integers whose squares sum to `total`."""
    if total == 0:
        return [()]
    first = min(math.isqrt(total), largest or total)
    return [
        (number, *rest)
        for number in range(first, 0, -1)
        for rest in _sums_of_squares(total - number**2, number)
    ]


@lru_cache(maxsize=256)
def gaussian_sigma(epsilon, delta, l2_sensitivity):
    """Return the smallest discrete Gaussian sigma that is (epsilon, delta)-private.

    Calibrated by the exact delta of the discrete Gaussian, not by a bound through
    Renyi divergences, which asks for some per cent more noise.

    Parameters
    ----------
    epsilon, delta : float
        Wanted guarantee, both positive.
    l2_sensitivity : float
        Largest Euclidean norm of the change that one individual causes in the
        integer counts; at least 1.

    Returns
    -------
    float
        Sigma; where the lattice hardly matters, up to a thousandth larger than needed.

    Examples
    --------
    >>> from skprivbn.privacy import gaussian_sigma
    >>> round(gaussian_sigma(epsilon=1.0, delta=1e-6, l2_sensitivity=1), 2)
    4.23
    """
    _check_positive(epsilon=epsilon, delta=delta)
    if delta >= 1:
        raise ValueError(f"delta must be less than 1, got {delta!r}")
    if not l2_sensitivity >= 1:
        raise ValueError(
            "integer counts change by at least 1, so l2_sensitivity must be at least "
            f"1, got {l2_sensitivity!r}"
        )
    high = max(l2_sensitivity / epsilon, 0.25)
    while _worst_delta(high, epsilon, l2_sensitivity) > delta:
        high *= 2
    low = high / 2
    while _worst_delta(low, epsilon, l2_sensitivity) <= delta and low > 1e-3:
        high, low = low, low / 2
    return _bisect(
        lambda sigma: _worst_delta(sigma, epsilon, l2_sensitivity) > delta, low, high
    )


def gaussian_epsilon(sigma: float, delta: float, l2_sensitivity: float) -> float:
    """Return the epsilon that discrete Gaussian noise gives at a delta.

    Parameters
    ----------
    sigma : float
        Noise parameter.
    delta : float
        Wanted delta, positive.
    l2_sensitivity : float
        Largest Euclidean norm of the change that one individual causes.

    Returns
    -------
    float
        Epsilon, by the same exact delta as :func:`gaussian_sigma`.
    """
    _check_positive(sigma=sigma, delta=delta, l2_sensitivity=l2_sensitivity)
    low, high = 0.0, 1.0
    while _worst_delta(sigma, high, l2_sensitivity) > delta:
        low, high = high, 2 * high
    return _bisect(
        lambda epsilon: _worst_delta(sigma, epsilon, l2_sensitivity) > delta, low, high
    )


def _bisect(is_too_small, low, high):
    """Return the smallest number that is not too small, or one just above it."""
    while high - low > 1e-10 * high:
        middle = (low + high) / 2
        if is_too_small(middle):
            low = middle
        else:
            high = middle
    return high


@dataclass(frozen=True)
class CountMechanism:
    """Noise for integer counts, with its sensitivity, cost and standard deviation.

    Made by :meth:`for_budget`; the bridge between a privacy budget and an estimator
    that works on noisy tables.

    Parameters
    ----------
    kind : {"laplace", "gaussian"}
        Noise distribution.
    epsilon, delta : float
        Guarantee of one release.
    scale : float
        Scale of the Laplace, sigma of the Gaussian noise.
    sensitivity : float
        L1 for Laplace, L2 for Gaussian noise.

    Examples
    --------
    >>> from skprivbn.privacy import CountMechanism, PrivacyAccountant
    >>> noise = CountMechanism.for_budget(epsilon=0.5, l1_sensitivity=2)
    >>> noise.kind, noise.scale
    ('laplace', 4.0)
    >>> accountant = PrivacyAccountant(epsilon=1.0)
    >>> noise.spend(accountant, what="two tables")
    PrivacyCost(epsilon=0.5, delta=0.0)
    >>> noise.release([10, 20, 30]).dtype
    dtype('int64')
    """

    kind: str
    epsilon: float
    delta: float
    scale: float
    sensitivity: float

    def __post_init__(self) -> None:
        if self.scale > MAX_SCALES[self.kind]:
            raise ValueError(
                f"epsilon={self.epsilon:g} and delta={self.delta:g} are too small: "
                f"counts that change by up to {self.sensitivity:.3g} would need noise "
                f"of scale {self.scale:.3g}, which does not fit 64-bit integers"
            )

    @classmethod
    def for_budget(
        cls,
        epsilon: float,
        delta: float = 0.0,
        l1_sensitivity: float = 1,
        l2_sensitivity: float | None = None,
    ) -> Self:
        """Calibrate to a budget: Laplace if delta is zero, else Gaussian.

        `l2_sensitivity` defaults to `l1_sensitivity`, its worst case.
        """
        _check_integer_sensitivity(l1_sensitivity)
        if delta == 0:
            scale = laplace_scale(epsilon, l1_sensitivity)
            return cls("laplace", float(epsilon), 0.0, scale, float(l1_sensitivity))
        l2 = float(l1_sensitivity if l2_sensitivity is None else l2_sensitivity)
        sigma = gaussian_sigma(float(epsilon), float(delta), l2)
        return cls("gaussian", float(epsilon), float(delta), sigma, l2)

    @property
    def rho(self) -> float | None:
        """Cost as zCDP: None for Laplace noise, whose epsilon says it."""
        if self.kind == "laplace":
            return None
        return (self.sensitivity / self.scale) ** 2 / 2

    @property
    def variance(self) -> float:
        """Variance of the noise on each count."""
        if self.kind == "laplace":
            return discrete_laplace_variance(self.scale)
        return discrete_gaussian_variance(self.scale)

    @property
    def std(self) -> float:
        """Standard deviation of the noise on each count."""
        return math.sqrt(self.variance)

    def spend(self, accountant: PrivacyAccountant, what: str = "") -> PrivacyCost:
        """Charge one release to an accountant; call it before touching data."""
        return accountant.spend(self.epsilon, self.delta, self.rho, what)

    def release(self, counts: np.ndarray) -> np.ndarray:
        """Return noisy counts. Charge the accountant first."""
        return _release(self.kind, counts, self.scale)


def _release(kind, counts, scale):
    counts = _check_counts(counts)
    if counts.size == 0:
        return counts
    noisy = _opendp_mechanism(kind, float(scale))(counts.ravel().tolist())
    return np.asarray(noisy, dtype=np.int64).reshape(counts.shape)


def noisy_max(scores, scale, pure=True):
    """Index of the largest of integer scores after adding noise, by OpenDP.

    Exponential noise for pure epsilon, Gumbel noise for zCDP: a choice with noise of
    scale 2 / e costs epsilon = e, or rho = e^2 / 8.
    """
    kind = "exponential" if pure else "gumbel"
    return int(_opendp_mechanism(kind, float(scale))([int(score) for score in scores]))


@lru_cache(maxsize=64)
def _opendp_mechanism(kind, scale):
    from opendp import prelude as dp

    # needed by every mechanism of OpenDP that has no written proof attached
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    if kind == "laplace":
        return dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale=scale)
    if kind == "gaussian":
        return dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale=scale)
    distance, of_max = dp.linf_distance(T="i64"), dp.max_divergence()
    measure = of_max if kind == "exponential" else dp.zero_concentrated_divergence()
    return dp.m.make_noisy_max(domain, distance, measure, scale=scale)


def _check_counts(counts):
    array = np.asarray(counts)
    if array.size == 0:
        return array.astype(np.int64)
    if not np.issubdtype(array.dtype, np.integer) and array.dtype != bool:
        raise TypeError(
            "noise is added to integers only (noise on floats leaks through their "
            f"last bits), got dtype {array.dtype}; round or scale to integers first"
        )
    if array.dtype == np.uint64 and array.max() > np.iinfo(np.int64).max:
        raise OverflowError("counts must fit into 64-bit signed integers")
    return array.astype(np.int64)


def _check_positive(**values):
    for name, value in values.items():
        if not 0 < value < math.inf:
            raise ValueError(f"{name} must be positive and finite, got {value!r}")


def _check_integer_sensitivity(value):
    if not (value >= 1 and float(value).is_integer()):
        raise ValueError(
            f"l1_sensitivity of integer counts must be a positive integer, got "
            f"{value!r}"
        )
