"""Noise that several parties add together, so that nobody sees clean totals.

Each party adds a share to its own counts before the secure sum. The shares of any
`min_honest` parties suffice for the guarantee; what the others add comes on top.
"""

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from scipy.special import hyp2f1

from skprivbn.privacy._accountant import PrivacyAccountant
from skprivbn.privacy._composition import PrivacyCost
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
    """A :class:`CountMechanism` whose noise several parties make together.

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
        return discrete_gaussian_variance(self.scale / math.sqrt(self.min_honest))

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
        gap, cells = self._gap, math.floor(self.sensitivity**2 + 1e-9)
        worst = min(
            math.sqrt(ratio**2 + gap * cells / 2), ratio + gap * math.sqrt(cells)
        )
        return worst**2 / 2

    @property
    def _gap(self):
        share_sigma = self.scale / math.sqrt(self.min_honest)
        return sum_of_gaussians_gap(share_sigma, self.min_honest)

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
        share_sigma = self.scale / math.sqrt(self.min_honest)
        slack = _slack(share_sigma, n_honest, self.sensitivity)
        sigma = share_sigma * math.sqrt(n_honest)
        delta = self.delta * math.exp(-slack)
        return 2 * slack + gaussian_epsilon(sigma, delta, self.sensitivity)


def distribute(
    mechanism: CountMechanism, n_parties: int, min_honest: int | None = None
) -> DistributedNoise:
    """Let several parties make the noise of a mechanism together.

    Parameters
    ----------
    mechanism : CountMechanism
        What the parties' noise has to achieve.
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
