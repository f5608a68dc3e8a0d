"""Distributions of the target given its predictor eta.

Everything is about `k` events in `m` trials (binomial) or over an exposure of `m`
(Poisson): log-likelihood and its first three derivatives by eta.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, gammaln, log_ndtr, xlogy


@dataclass(frozen=True)
class Derivatives:
    """Derivatives of the log-likelihood by the predictor.

    Attributes
    ----------
    first : ndarray
    weight : ndarray
        Minus the second.
    slope : ndarray
        Derivative of the weight.
    """

    first: np.ndarray
    weight: np.ndarray
    slope: np.ndarray


class Family:
    """A distribution and its link.

    Attributes
    ----------
    name, link : str
    """

    name: str
    link: str

    def log_likelihood(self, k, m, eta):
        """Return the log-likelihood of each row, but for a constant."""
        raise NotImplementedError

    def derivatives(self, k, m, eta):
        """Return :class:`Derivatives` of each row."""
        raise NotImplementedError

    def mean(self, eta):
        """Return the expected value of one trial, or per unit of exposure."""
        raise NotImplementedError

    def saturated(self, k, m):
        """Return the log-likelihood of each row where it is greatest."""
        raise NotImplementedError

    def intercept(self, gradient, information):
        """Return the intercept that fits the mean, from derivatives at zero.

        Unless it is known exactly, the first step of Newton's method.
        """
        return gradient / information if information else 0.0


class _Binomial(Family):
    name = "binomial"

    def saturated(self, k, m):
        return xlogy(k, k) + xlogy(m - k, m - k) - xlogy(m, m)

    def constant(self, k, m):
        """Return the sum of what the log-likelihoods leave out."""
        return (gammaln(m + 1) - gammaln(k + 1) - gammaln(m - k + 1)).sum()


class _Logit(_Binomial):
    link = "logit"

    def log_likelihood(self, k, m, eta):
        return k * eta - m * np.logaddexp(0, eta)

    def derivatives(self, k, m, eta):
        p, q = expit(eta), expit(-eta)
        weight = m * p * q
        return Derivatives(k - m * p, weight, weight * (q - p))

    def mean(self, eta):
        return expit(eta)

    def intercept(self, gradient, information):
        if not information:
            return 0.0
        mean = np.clip(0.5 + gradient / (4 * information), 1e-6, 1 - 1e-6)
        return float(np.log(mean) - np.log1p(-mean))


class _Probit(_Binomial):
    link = "probit"

    def log_likelihood(self, k, m, eta):
        return k * log_ndtr(eta) + (m - k) * log_ndtr(-eta)

    def derivatives(self, k, m, eta):
        up, down = _hazard(eta), _hazard(-eta)
        first = k * up[0] - (m - k) * down[0]
        weight = k * up[1] + (m - k) * down[1]
        return Derivatives(first, weight, k * up[2] - (m - k) * down[2])

    def mean(self, eta):
        return np.exp(log_ndtr(eta))


def _hazard(eta):
    """Return phi / Phi, minus its derivative, and the derivative of that."""
    ratio = np.exp(-(eta**2) / 2 - log_ndtr(eta)) / np.sqrt(2 * np.pi)
    fall = ratio * (eta + ratio)
    return ratio, fall, -fall * (eta + ratio) + ratio * (1 - fall)


class _CLogLog(_Binomial):
    link = "cloglog"

    def log_likelihood(self, k, m, eta):
        risk = np.exp(np.minimum(eta, 300))
        return k * np.log(-np.expm1(-risk)) - (m - k) * risk

    def derivatives(self, k, m, eta):
        risk = np.exp(np.minimum(eta, 300))
        up = risk / np.expm1(np.minimum(risk, 700))
        change = up * (1 - risk - up)
        second = change * (1 - risk - up) - up * (risk + change)
        rest = (m - k) * risk
        return Derivatives(k * up - rest, rest - k * change, rest - k * second)

    def mean(self, eta):
        return -np.expm1(-np.exp(np.minimum(eta, 300)))


class _Poisson(Family):
    name, link = "poisson", "log"

    def log_likelihood(self, k, m, eta):
        return k * eta - m * np.exp(np.minimum(eta, 300))

    def derivatives(self, k, m, eta):
        weight = m * np.exp(np.minimum(eta, 300))
        return Derivatives(k - weight, weight, weight)

    def mean(self, eta):
        return np.exp(eta)

    def intercept(self, gradient, information):
        if not information:
            return 0.0
        return float(np.log(max(1 + gradient / information, 1e-6)))

    def saturated(self, k, m):
        return xlogy(k, k) - xlogy(k, m) - k

    def constant(self, k, m):
        """Return the sum of what the log-likelihoods leave out."""
        counts = np.divide(k, m, out=np.zeros_like(k), where=m > 0)
        return -(m * gammaln(counts + 1)).sum()


class _Gaussian(Family):
    name, link = "gaussian", "identity"

    def mean(self, eta):
        return eta


FAMILIES = {
    (family.name, family.link): family
    for family in (_Logit(), _Probit(), _CLogLog(), _Poisson(), _Gaussian())
}
_CANONICAL = {"binomial": "logit", "poisson": "log", "gaussian": "identity"}


def family_of(name, link=None):
    """Return a family.

    Parameters
    ----------
    name : {"binomial", "poisson", "gaussian"}
    link : str, default=None
        The canonical one if None.

    Returns
    -------
    family : Family

    Examples
    --------
    >>> family_of("poisson").link
    'log'
    """
    link = link or _CANONICAL[name]
    if (name, link) not in FAMILIES:
        links = [other for family, other in FAMILIES if family == name]
        raise ValueError(f"link={link!r} does not go with {name}: choose from {links}")
    return FAMILIES[name, link]
