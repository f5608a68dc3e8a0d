"""Distributions of the target, and sums over rows of one random effect per cluster.

Families are about `k` events in `m` trials (binomial) or over an exposure of `m`
(Poisson): log-likelihood and its first three derivatives by the predictor eta.

The predictor is eta = offset + x beta + sigma z u, with u ~ N(0, 1) for each category:
the scale of the effects is a coefficient, that of z u, so that its derivatives have the
same form as those of the fixed effects. Parameters are one vector, (beta, sigma).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csr_array
from scipy.special import expit, gammaln, log_ndtr, xlogy

from skprivbn.mixed_model._clusters import weigh
from skprivbn.mixed_model._posterior import Posterior
from skprivbn.utils._linalg import upper


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
    """A distribution and its link, of `k` events in `m` trials or exposures.

    Subclasses have the methods ``log_likelihood(k, m, eta)`` of each row, but for what
    does not depend on `eta`, ``derivatives(k, m, eta)``, which returns
    :class:`Derivatives`, ``mean(eta)`` of one trial, or per unit of exposure,
    ``saturated(k, m)``, the log-likelihood of each row where it is greatest, and
    ``constant(k, m)``, the sum of what log-likelihoods leave out. Linear models need
    ``mean`` only.

    Attributes
    ----------
    name, link : str
    """

    name: str
    link: str
    log_likelihood: Callable
    derivatives: Callable
    mean: Callable

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


# Rows times nodes that are held in memory at once.
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Rows:
    """Rows of one holder.

    Parameters
    ----------
    family : Family
    X : ndarray of shape (n_rows, n_fixed)
        Columns of the fixed effects.
    Z : ndarray of shape (n_rows, n_effects)
        Columns of the random effects.
    events, trials : ndarray of shape (n_rows,)
        What was seen, in how many trials or over which exposure.
    offset : ndarray of shape (n_rows,)
    category : ndarray of int of shape (n_rows,)
        Number of each row's category.
    n_categories : int
    """

    family: Family
    X: np.ndarray
    Z: np.ndarray
    events: np.ndarray
    trials: np.ndarray
    offset: np.ndarray
    category: np.ndarray
    n_categories: int

    def __len__(self):
        return len(self.events)

    def take(self, chosen):
        """Return a choice of the rows."""
        names = ("X", "Z", "events", "trials", "offset", "category")
        return replace(self, **{name: getattr(self, name)[chosen] for name in names})

    def chunks(self, n_nodes):
        """Yield the rows in pieces that are small with `n_nodes` values per row."""
        size = max(_CHUNK // max(n_nodes, 1), 1)
        for start in range(0, len(self), size):
            yield self.take(slice(start, start + size))

    def predictor(self, parameters, nodes):
        """Return the predictor of each row at each node of its category."""
        fixed = self.offset + self.X @ parameters[: self.X.shape[1]]
        return fixed[:, None] + parameters[-1] * self.Z[:, :1] * nodes[self.category]

    def log_likelihood(self, eta):
        """Return the log-likelihood of each row at its predictors.

        Less the greatest that it can be: of large counts little else is left over.
        """
        events, trials = self.events[:, None], self.trials[:, None]
        best = self.family.saturated(events, trials)
        return self.family.log_likelihood(events, trials, eta) - best

    def derivatives(self, eta):
        """Return derivatives of each row's log-likelihood by its predictors."""
        return self.family.derivatives(self.events[:, None], self.trials[:, None], eta)

    def sum_by_category(self, values):
        """Add the values of each category's rows."""
        n_rows = len(self)
        membership = csr_array(
            (np.ones(n_rows), self.category, np.arange(n_rows + 1)),
            shape=(n_rows, self.n_categories),
        )
        return membership.T @ values


def log_likelihood_table(rows, parameters, nodes):
    """Return the log-likelihood of each category's rows at each of its nodes.

    Parameters
    ----------
    rows : Rows
    parameters : ndarray of shape (n_fixed + 1,)
    nodes : ndarray of shape (n_categories, n_nodes)

    Returns
    -------
    table : ndarray of shape (n_categories, n_nodes)
    """
    table = np.zeros(nodes.shape)
    for piece in rows.chunks(nodes.shape[1]):
        values = piece.log_likelihood(piece.predictor(parameters, nodes))
        table += piece.sum_by_category(values)
    return table


def derivatives(rows, parameters, posterior):
    """Return expected gradient and negative Hessian of the log-likelihood given u.

    By Fisher's identity the gradient is that of the marginal log-likelihood.

    Parameters
    ----------
    rows : Rows
    parameters : ndarray of shape (n_fixed + 1,)
    posterior : Posterior

    Returns
    -------
    gradient : ndarray of shape (n_fixed + 1,)
    information : ndarray of shape (n_fixed + 1, n_fixed + 1)
    """
    size = len(parameters)
    gradient, information = np.zeros(size), np.zeros((size, size))
    for piece in rows.chunks(posterior.nodes.shape[1]):
        effects = piece.Z[:, :1] * posterior.nodes[piece.category]
        weights = posterior.weights[piece.category]
        by_eta = piece.derivatives(piece.predictor(parameters, posterior.nodes))
        residual = weights * by_eta.first
        gradient[:-1] += piece.X.T @ residual.sum(axis=1)
        gradient[-1] += np.vdot(residual, effects)
        spread = weights * by_eta.weight
        information[:-1, :-1] += (piece.X * spread.sum(axis=1)[:, None]).T @ piece.X
        spread = spread * effects
        information[:-1, -1] += piece.X.T @ spread.sum(axis=1)
        information[-1, -1] += np.vdot(spread, effects)
    information[-1, :-1] = information[:-1, -1]
    return gradient, information


def score_table(rows, parameters, nodes):
    """Return the gradient of each category at each node, by beta and by z's effect.

    Parameters
    ----------
    rows : Rows
    parameters : ndarray of shape (n_fixed + 1,)
    nodes : ndarray of shape (n_categories, n_nodes)

    Returns
    -------
    scores : ndarray of shape (n_categories, n_nodes, n_fixed + 1)
    """
    scores = np.zeros((*nodes.shape, rows.X.shape[1] + 1))
    for piece in rows.chunks(nodes.shape[1]):
        residual = piece.derivatives(piece.predictor(parameters, nodes)).first
        columns = np.column_stack([piece.X, piece.Z[:, :1]])
        for j, column in enumerate(columns.T):
            scores[:, :, j] += piece.sum_by_category(residual * column[:, None])
    return scores


def expansion_table(rows, parameters, centre):
    """Return derivatives of each category by its effect, around `centre`.

    Parameters
    ----------
    rows : Rows
    parameters : ndarray of shape (n_fixed + 1,)
    centre : ndarray of shape (n_categories,)
        Values of u.

    Returns
    -------
    table : ndarray of shape (n_categories, 2 + n_fixed)
        First and minus second derivative by sigma u, and weighted products of z and
        the fixed effects' columns.
    """
    by_eta = rows.derivatives(rows.predictor(parameters, centre[:, None]))
    z = rows.Z[:, :1]
    columns = [by_eta.first * z, by_eta.weight * z**2, by_eta.weight * z * rows.X]
    return rows.sum_by_category(np.concatenate(columns, axis=1))


def missing_information(own, total, posterior):
    """Return one holder's share of the information lost for not seeing the effects.

    Louis' formula: the covariance of the scores under the posterior. It is bilinear,
    so that the holder's own scores times everybody's add up to it over holders.

    Parameters
    ----------
    own, total : ndarray of shape (n_categories, n_nodes, n_fixed + 1)
        Scores of the holder's rows, and of all rows of the categories.
    posterior : Posterior

    Returns
    -------
    missing : ndarray of shape (n_fixed + 1, n_fixed + 1)
    """
    own, total = (
        # the derivative by sigma is u times that by z's effect
        np.concatenate([s[..., :-1], posterior.nodes[:, :, None] * s[..., -1:]], axis=2)
        for s in (own, total)
    )
    mean = np.einsum("tq,tqj->tj", posterior.weights, total)
    weighted = posterior.weights[:, :, None] * own
    return np.tensordot(weighted, total - mean[:, None, :], axes=([0, 1], [0, 1]))


def regression_sums(data, beta, typical):
    """Return a party's sums for a step of Newton's method without effects.

    Parameters
    ----------
    data : Rows
    beta : ndarray of shape (n_fixed,)
    typical : tuple of float
        Mean sizes of residuals and of working weights, about.

    Returns
    -------
    vector : ndarray
        Sizes of residuals, weights and their squares; log-likelihood, gradient and
        Hessian.
    weights : RowWeights
    """
    nodes = np.zeros((data.n_categories, 1))
    posterior, beta = Posterior(nodes, np.ones_like(nodes)), np.append(beta, 0.0)
    value = log_likelihood_table(data, beta, nodes).sum()
    gradient, information = derivatives(data, beta, posterior)
    weights, told = weigh_rows(data, data.predictor(beta, nodes)[:, 0], typical)
    sums = [*told, value, *gradient[:-1], *upper(information[:-1, :-1])]
    return np.array(sums), weights


def weigh_rows(data, eta, typical, opened=None):
    """Return how much rows count: by residuals in gradients, weights in Hessians.

    Parameters
    ----------
    data : Rows
    eta : ndarray of shape (n_rows,)
        Their predictors.
    typical : tuple of float
    opened : ndarray of bool of shape (n_categories,), default=None
        Clusters of which there are sums, too.

    Returns
    -------
    weights : RowWeights
    told : ndarray of shape (3,)
        Sums of residuals' sizes, of weights and of their squares.
    """
    by_eta = data.derivatives(eta[:, None])
    columns = zip((by_eta.first[:, 0], by_eta.weight[:, 0]), typical)
    groups = [] if opened is None else [(data.category, opened)]
    weights = weigh(columns, groups)
    second = len(weights.total) // 2
    told = *weights.total[[0, second]], weights.squares[second]
    return weights, np.array(told)
