"""Noise that several parties add together, so that nobody sees clean totals.

Each party adds a share to its own counts before the secure sum. The shares of any
`min_honest` parties suffice for the guarantee; what the others add comes on top.

Parties also choose the best of several candidates together, so that nobody sees a score
(:class:`ChoiceNoise`). Every party adds Gumbel noise to its own shares of the scores,
and only the place of the largest sum is opened. Whoever knows the noise of all parties
but one still faces the exponential mechanism, with the others' noise as part of the
scores: one honest party is enough. Scores are integers, and the noise is
floor(scale G), drawn exactly. Rounding down moves the noisy scores by less than 1 each:
the probability of a winner is that of the exponential mechanism up to a factor of
exp(1 / scale). A record that changes no score by more than D then changes the
logarithms of these probabilities by numbers that differ among themselves by at most
2 (D + 2) / scale. So a choice costs epsilon = that, and epsilon^2 / 8 as zCDP [1]_,
[2]_.

References
----------
.. [1] F. McSherry, K. Talwar (2007). Mechanism design via differential privacy. FOCS.
.. [2] M. Cesar, R. Rogers (2021). Bounding, concentrating, and truncating: unifying
   privacy loss composition for data analytics. ALT.
"""

import math
import secrets
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Self

import gmpy2
import numpy as np
from scipy.special import gammainccinv, hyp2f1

from skprivbn.privacy._accountant import PrivacyAccountant
from skprivbn.privacy._composition import PrivacyCost, zcdp_epsilon
from skprivbn.privacy._exact_sampling import polya_sampler
from skprivbn.privacy._mechanisms import (
    CountMechanism,
    add_discrete_gaussian,
    discrete_gaussian_variance,
    discrete_laplace_variance,
    gaussian_epsilon,
    gaussian_sigma,
)

#: below, a sum of discrete Gaussians is not close enough to a discrete Gaussian
MIN_SHARE_SIGMA = 2.0


def discrete_laplace_share(
    shape: int | tuple[int, ...], l1_sensitivity: int, epsilon: float, min_honest: int
) -> np.ndarray:
    """Return one party's share of discrete Laplace noise.

    The difference of two negative binomials of shape 1 / `min_honest`, sampled
    exactly from the operating system's randomness. The sum of `min_honest` shares is
    discrete Laplace noise of scale `l1_sensitivity` / `epsilon`.

    Parameters
    ----------
    shape : int or tuple of int
        Shape of the table.
    l1_sensitivity : int
        Largest sum of absolute changes that one individual causes.
    epsilon : float
        Guarantee, with at least `min_honest` honest parties.
    min_honest : int
        How many parties are trusted to add their share and keep it secret.

    Returns
    -------
    ndarray of int64
        To be added to the party's own counts.

    Examples
    --------
    >>> from skprivbn.privacy import discrete_laplace_share
    >>> discrete_laplace_share((2, 3), 1, epsilon=1.0, min_honest=3).shape
    (2, 3)
    """
    # the exact ratio of the two numbers as given: no rounding of the scale
    decay = Fraction(epsilon) / Fraction(l1_sensitivity)
    sampler = polya_sampler(decay, int(min_honest))
    size = math.prod(np.atleast_1d(shape).tolist())
    return (sampler.sample(size) - sampler.sample(size)).reshape(shape)


def discrete_gaussian_share(
    shape: int | tuple[int, ...], sigma: float, min_honest: int
) -> np.ndarray:
    """Return one party's share of discrete Gaussian noise, sampled by OpenDP.

    The sum of `min_honest` shares is very nearly discrete Gaussian noise of parameter
    `sigma` (how nearly: :func:`sum_of_gaussians_gap`).

    Parameters
    ----------
    shape : int or tuple of int
        Shape of the table.
    sigma : float
        Parameter of the sum of `min_honest` shares.
    min_honest : int
        How many parties are trusted to add their share and keep it secret.

    Returns
    -------
    ndarray of int64
        To be added to the party's own counts.

    Examples
    --------
    >>> from skprivbn.privacy import discrete_gaussian_share
    >>> discrete_gaussian_share((2, 3), sigma=10.0, min_honest=3).shape
    (2, 3)
    """
    share_sigma = sigma / math.sqrt(min_honest)
    if share_sigma < MIN_SHARE_SIGMA * (1 - 1e-9):
        raise ValueError(
            f"each share needs sigma >= {MIN_SHARE_SIGMA:g}, got {share_sigma:g}"
        )
    return add_discrete_gaussian(np.zeros(shape, dtype=np.int64), 1, share_sigma)


def sum_of_gaussians_gap(share_sigma, n_shares):
    """Bound how far a sum of discrete Gaussians is from a discrete Gaussian.

    Returns tau such that log probabilities of the sum of `n_shares` shares and of one
    discrete Gaussian of the same total variance differ by at most tau everywhere [1]_.

    References
    ----------
    .. [1] P. Kairouz, Z. Liu, T. Steinke (2021). The distributed discrete Gaussian
       mechanism for federated learning with secure aggregation. ICML.
    """
    return 10 * math.fsum(
        math.exp(-2 * (math.pi * share_sigma) ** 2 * k / (k + 1))
        for k in range(1, n_shares)
    )


def laplace_epsilon_with_colluders(epsilon, l1_sensitivity, n_honest, min_honest):
    """Return the epsilon that `n_honest` Laplace shares give.

    Equal to `epsilon` from `min_honest` on. Below, the sum has a sharper peak than
    Laplace noise: its largest log ratio of neighbouring probabilities is at zero. The
    worst case is taken: `l1_sensitivity` cells that change by one each. Counts in fixed
    point, which change by much in few cells, lose less than this says.
    """
    if n_honest <= 0:
        return math.inf
    if n_honest >= min_honest:
        return float(epsilon)
    shape, p = n_honest / min_honest, math.exp(-epsilon / l1_sensitivity)
    at_zero = hyp2f1(shape, shape, 1, p**2)
    at_one = p * shape * hyp2f1(shape, shape + 1, 2, p**2)
    if at_one == 0:  # hardly any noise, too small a probability for a float
        return math.inf
    return l1_sensitivity * math.log(at_zero / at_one)


@dataclass(frozen=True)
class DistributedNoise:
    """A :class:`CountMechanism` whose noise is the sum of shares of parties.

    Made by :func:`distribute`.

    Parameters
    ----------
    kind : {"laplace", "gaussian"}
        Noise distribution.
    epsilon, delta : float
        Guarantee with at least `min_honest` honest parties.
    scale : float
        Scale or sigma of the sum of `min_honest` shares.
    sensitivity : float
        L1 for Laplace, L2 for Gaussian noise.
    n_parties, min_honest : int
        All parties, and those trusted to add their share and keep it secret.
    """

    kind: str
    epsilon: float
    delta: float
    scale: float
    sensitivity: float
    n_parties: int
    min_honest: int

    @property
    def share_variance(self) -> float:
        """Variance of one party's share on each count."""
        if self.kind == "laplace":
            return discrete_laplace_variance(self.scale) / self.min_honest
        return discrete_gaussian_variance(self._share_sigma)

    @property
    def _share_sigma(self):
        """Parameter of one party's share of Gaussian noise."""
        return self.scale / math.sqrt(self.min_honest)

    @property
    def variance(self) -> float:
        """Variance of the noise on each total, when every party adds its share."""
        return self.n_parties * self.share_variance

    @property
    def std(self) -> float:
        """Standard deviation of the noise on each total."""
        return math.sqrt(self.variance)

    @property
    def rho(self) -> float | None:
        """Cost as zCDP with `min_honest` honest parties; None for Laplace noise."""
        if self.kind == "laplace":
            return None
        ratio = self.sensitivity / self.scale
        gap = sum_of_gaussians_gap(self._share_sigma, self.min_honest)
        cells = math.floor(self.sensitivity**2 + 1e-9)
        worst = min(
            math.sqrt(ratio**2 + gap * cells / 2), ratio + gap * math.sqrt(cells)
        )
        return worst**2 / 2

    def part(self, l1_sensitivity: int, l2_sensitivity: float) -> "DistributedNoise":
        """Return the same noise, for some of the numbers that it was calibrated for.

        Parameters
        ----------
        l1_sensitivity : int
            Largest sum of absolute changes of these numbers that one individual causes.
        l2_sensitivity : float
            The same as the square root of the sum of squares.

        Returns
        -------
        noise : DistributedNoise
            Costs of all parts add up to that of the whole.
        """
        if self.kind == "gaussian":
            # of which rho is the cost, whose parts are those of the squares
            epsilon = self.epsilon * (l2_sensitivity / self.sensitivity) ** 2
            return replace(self, epsilon=epsilon, sensitivity=l2_sensitivity)
        exact = Fraction(self.epsilon) * l1_sensitivity / Fraction(self.sensitivity)
        epsilon = float(exact)
        if Fraction(epsilon) > exact:  # rounded: rather more noise than less
            epsilon = math.nextafter(epsilon, 0)
        return replace(self, epsilon=epsilon, sensitivity=l1_sensitivity)

    def spend(self, accountant: PrivacyAccountant, what: str = "") -> PrivacyCost:
        """Charge one release to an accountant; call it before touching data."""
        return accountant.spend(self.epsilon, self.delta, self.rho, what)

    def split(self, n_releases: int) -> "DistributedNoise":
        """Return the noise of each of several releases that cost this together.

        Parameters
        ----------
        n_releases : int
            Among which the sensitivity was divided: one individual changes each of
            them by as much as it changes the others.

        Returns
        -------
        noise : DistributedNoise
            Of the same scale.
        """
        if self.kind == "laplace" and self.sensitivity % n_releases:
            raise ValueError(
                f"{n_releases} releases do not share a sensitivity of "
                f"{self.sensitivity:g} evenly"
            )
        l1_sensitivity = int(self.sensitivity // n_releases)
        return self.part(l1_sensitivity, self.sensitivity / n_releases**0.5)

    def share(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return one party's share, fresh at every call; called by the party."""
        if self.kind == "laplace":
            return discrete_laplace_share(
                shape, int(self.sensitivity), self.epsilon, self.min_honest
            )
        return discrete_gaussian_share(shape, self.scale, self.min_honest)

    def check_survivors(self, n_survivors: int) -> None:
        """Raise if so few parties are left that the total must not be opened."""
        if n_survivors < self.min_honest:
            raise ValueError(
                f"only {n_survivors} of {self.n_parties} parties added noise, but the "
                f"guarantee needs {self.min_honest}: the total must not be released"
            )

    def epsilon_with_colluders(self) -> np.ndarray:
        """Return epsilon for 0, 1, ..., `n_parties` colluding parties.

        Colluders pool what they know, so their shares protect nobody. At the same
        delta; infinite when everybody colludes.

        Returns
        -------
        ndarray of shape (n_parties + 1,)
            For the ledger.
        """
        honest = range(self.n_parties, -1, -1)
        return np.array([self._epsilon_with(n_honest) for n_honest in honest])

    def _epsilon_with(self, n_honest):
        if self.kind == "laplace":
            return laplace_epsilon_with_colluders(
                self.epsilon, self.sensitivity, n_honest, self.min_honest
            )
        if n_honest == 0:
            return math.inf
        slack = _slack(self._share_sigma, n_honest, self.sensitivity)
        sigma = self._share_sigma * math.sqrt(n_honest)
        delta = self.delta * math.exp(-slack)
        return 2 * slack + gaussian_epsilon(sigma, delta, self.sensitivity)


def distribute(
    mechanism: CountMechanism, n_parties: int, min_honest: int | None = None
) -> DistributedNoise:
    """Distribute the noise of a mechanism over several parties.

    Parameters
    ----------
    mechanism : CountMechanism
        Mechanism with the guarantee of one curator.
    n_parties : int
        Parties that add a share.
    min_honest : int, default=None
        The guarantee holds if at least so many add their share and keep it secret.
        None means half of them, rounded up. More trust means less noise:
        the noise's variance is n_parties / min_honest times that of one curator.

    Returns
    -------
    DistributedNoise
        For Gaussian noise with a slightly larger sigma than the curator's: a sum of
        discrete Gaussians is not quite one, and each share needs sigma >= 2.

    Examples
    --------
    >>> from skprivbn.privacy import CountMechanism, distribute
    >>> noise = CountMechanism.for_budget(epsilon=0.5)
    >>> shared = distribute(noise, n_parties=4)
    >>> shared.share((3, 3)).shape
    (3, 3)
    >>> shared.epsilon_with_colluders().round(2)
    array([0.5 , 0.5 , 0.5 , 1.14,  inf])
    """
    if not isinstance(mechanism, CountMechanism):
        raise TypeError(
            f"mechanism must be a CountMechanism, got {type(mechanism).__name__}"
        )
    min_honest = -(-n_parties // 2) if min_honest is None else min_honest
    if not 1 <= min_honest <= n_parties:
        raise ValueError(
            f"min_honest must be between 1 and the number of parties, {n_parties}; "
            f"got {min_honest!r}"
        )
    scale = mechanism.scale
    if mechanism.kind == "gaussian":
        scale = max(scale, MIN_SHARE_SIGMA * math.sqrt(min_honest))
        slack = _slack(scale / math.sqrt(min_honest), min_honest, mechanism.sensitivity)
        sigma = gaussian_sigma(
            mechanism.epsilon - 2 * slack,
            mechanism.delta * math.exp(-slack),
            mechanism.sensitivity,
        )
        scale = max(scale, sigma)
    return DistributedNoise(
        mechanism.kind,
        mechanism.epsilon,
        mechanism.delta,
        scale,
        mechanism.sensitivity,
        int(n_parties),
        int(min_honest),
    )


def _slack(share_sigma, n_shares, l2_sensitivity):
    """Log ratio between the sum of shares and one Gaussian, over all changed cells.

    Cells that an individual does not touch have the same noise either way, so only
    the changed ones count: at most the squared sensitivity.
    """
    cells = math.floor(l2_sensitivity**2 + 1e-9)
    return cells * sum_of_gaussians_gap(share_sigma, n_shares)


_WORD = 64
#: noise beyond so many scales, of a probability below 2^-184, is cut off
_LARGEST = 128
#: noisy sums of as many parties as there are have to fit 63 bits
_MAX_SCALE = 1 << 50


def discrete_gumbel(scales):
    """Return floor(scale G) for independent standard Gumbel variables G.

    The first bits of a uniform number U decide, if all numbers that begin with them
    give the same floor(-scale log(-log U)); otherwise more bits are drawn.

    Parameters
    ----------
    scales : array-like of int
        Positive.

    Returns
    -------
    noise : ndarray of int64
        Of the same shape.
    """
    scales = np.asarray(scales)
    noise = [_draw(int(scale)) for scale in scales.ravel()]
    return np.array(noise, dtype=np.int64).reshape(scales.shape)


def _draw(scale):
    prefix = bits = 0
    while True:
        prefix, bits = prefix << _WORD | secrets.randbits(_WORD), bits + _WORD
        if not 0 < prefix < (1 << bits) - 1:
            continue
        down, up = _contexts(bits)
        low = _quantile(prefix, bits, scale, down, up)
        if low == _quantile(prefix + 1, bits, scale, up, down):
            return max(-_LARGEST * scale, min(low, _LARGEST * scale))


@lru_cache(maxsize=8)
def _contexts(bits):
    sides = gmpy2.RoundDown, gmpy2.RoundUp
    return [gmpy2.context(precision=bits + _WORD, round=side) for side in sides]


def _quantile(prefix, bits, scale, toward, away):
    """Floor of -scale log(-log U), every step rounded toward the wanted side."""
    # methods of contexts throughout: operators would round to 53 bits
    uniform = toward.div_2exp(gmpy2.mpfr(prefix, bits + 1), bits)
    logarithm = away.log(toward.minus(toward.log(uniform)))
    return int(toward.floor(toward.mul(toward.minus(logarithm), scale)))


@dataclass(frozen=True)
class ChoiceNoise:
    """Noise of choices that several parties make together.

    Parameters
    ----------
    epsilon, delta : float
        Cost of all choices.
    epsilon_each : float
        Of one choice, without delta.
    n_choices : int
        That are paid for.
    n_parties : int
        Each adds noise that is enough by itself.
    """

    epsilon: float
    delta: float
    epsilon_each: float
    n_choices: int
    n_parties: int

    kind = "gumbel"

    @classmethod
    def for_budget(cls, epsilon: float, n_choices: int, n_parties: int) -> Self:
        """Share epsilon out among the choices."""
        return cls(epsilon, 0.0, epsilon / n_choices, n_choices, n_parties)

    @classmethod
    def for_zcdp(cls, rho: float, delta: float, n_choices: int, n_parties: int) -> Self:
        """Share rho out among the choices."""
        each = math.sqrt(8 * rho / n_choices)
        return cls(zcdp_epsilon(rho, delta), delta, each, n_choices, n_parties)

    @property
    def rho(self) -> float:
        """Cost of all choices as zCDP."""
        return self.n_choices * self.epsilon_each**2 / 8

    def scale(self, sensitivity: int) -> int:
        """Return the scale for integer scores that a record changes by so much."""
        scale = math.ceil(
            Fraction(2 * (int(sensitivity) + 2)) / Fraction(self.epsilon_each)
        )
        if scale * self.n_parties > _MAX_SCALE:
            raise ValueError(
                f"epsilon is too small: {self.n_choices} choices would need noise that "
                "does not fit 64-bit scores"
            )
        return scale

    def share(self, scales: np.ndarray) -> np.ndarray:
        """Return one party's noise, fresh at every call; called by the party."""
        return discrete_gumbel(scales)

    def bound(self, scale: int) -> int:
        """Return the largest absolute value of all parties' noise."""
        return self.n_parties * _LARGEST * scale

    def handicap(self, scale: int, n_candidates: int) -> int:
        """Return by how much the best of some candidates has to win.

        Candidates with nothing to gain then win by their noise about once in ten
        times: the noise has the upper tail of a sum of exponential variables.
        """
        return math.ceil(scale * gammainccinv(self.n_parties, 0.1 / n_candidates))
