"""Public parameters of a fit: family of the target, columns of the model, terms.

Families are about `k` events in `m` trials (binomial) or over an exposure of `m`
(Poisson): log-likelihood and its first three derivatives by the predictor eta.

Features are standardised within a fit. Estimates are translated back, here, to features
as they are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from scipy.linalg import block_diag
from scipy.special import expit, gammaln, log_ndtr, xlogy

from skprivbn.federation import Terms


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
        return float(self._intercept(gradient / information)) if information else 0.0

    def _intercept(self, step):
        return step


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

    def _intercept(self, step):
        mean = np.clip(0.5 + step / 4, 1e-6, 1 - 1e-6)
        return np.log(mean) - np.log1p(-mean)


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

    def _intercept(self, step):
        return np.log(max(1 + step, 1e-6))

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


#: stands for the column of ones among the columns of a random effect
INTERCEPT = -1


@dataclass(frozen=True)
class RandomTerms:
    """Random effects: for each term a factor and the columns that vary with it.

    Effects of one term are correlated, those of different terms are not. All of them
    together are a vector b = Lambda u with u ~ N(0, I), whose entries belong to the
    columns of the terms one after the other. Lambda is lower triangular; its free
    entries are theta.

    Parameters
    ----------
    terms : sequence of (int, sequence of int)
        Number of the factor, and columns of X (or INTERCEPT).

    Examples
    --------
    >>> RandomTerms([(0, [-1, 2])]).matrix([2.0, 0.5, 1.0])
    array([[2. , 0. ],
           [0.5, 1. ]])
    """

    terms: Sequence

    @cached_property
    def columns(self):
        """Column of X of every effect."""
        return np.array([c for _, columns in self.terms for c in columns], dtype=int)

    @cached_property
    def factors(self):
        """Factor of every effect."""
        return np.array([f for f, columns in self.terms for _ in columns], dtype=int)

    @cached_property
    def n_effects(self):
        """Number of effects of a row."""
        return len(self.columns)

    @cached_property
    def positions(self):
        """Rows and columns of Lambda in which theta stands: by term, by column."""
        term = np.array([i for i, (_, cs) in enumerate(self.terms) for _ in cs])
        columns, rows = np.nonzero(np.triu(term[:, None] == term))
        return rows, columns

    @cached_property
    def diagonal(self):
        """Mask of the entries of theta that are on the diagonal."""
        rows, columns = self.positions
        return rows == columns

    @cached_property
    def start(self):
        """Theta of effects with unit variances."""
        return self.diagonal.astype(float)

    def matrix(self, theta):
        """Return Lambda."""
        matrix = np.zeros((self.n_effects, self.n_effects))
        matrix[self.positions] = theta
        return matrix


@dataclass(frozen=True)
class Design:
    """Columns of the model in units in which they are estimated.

    Parameters
    ----------
    mean, scale : ndarray of shape (n_features,)
        Of the features; `scale` is 1 for those that do not vary.
    fit_intercept : bool
    random : RandomTerms
    """

    mean: np.ndarray
    scale: np.ndarray
    fit_intercept: bool
    random: RandomTerms

    def fixed(self, X):
        """Return the columns of the fixed effects.

        Features are centred only where an intercept makes up for it.
        """
        if not self.fit_intercept:
            return X / self.scale
        return np.column_stack([np.ones(len(X)), (X - self.mean) / self.scale])

    def mixed(self, X):
        """Return the columns of the random effects.

        Features are centred only where a random intercept makes up for it.
        """
        centred = replace(self, fit_intercept=True)
        plain = replace(centred, mean=np.zeros_like(self.mean)).fixed(X)
        centred, pieces = centred.fixed(X), [plain[:, :0]]
        for _, members in self.random.terms:
            columns = centred if INTERCEPT in members else plain
            pieces.append(columns[:, np.array(members) + 1])
        return np.hstack(pieces)

    @property
    def _back(self):
        """Matrix from estimated coefficients and intercept to those of raw columns."""
        back = np.diag(np.append(1.0, 1 / self.scale))
        back[0, 1:] = -self.mean / self.scale
        return back

    @property
    def back_fixed(self):
        """Matrix from estimated coefficients to those of features as they are."""
        return self._back if self.fit_intercept else self._back[1:, 1:]

    @property
    def back_random(self):
        """Matrix from estimated random effects to those of columns as they are."""
        back, terms = self._back, [np.array(m) + 1 for _, m in self.random.terms]
        return block_diag(back[:0, :0], *(back[np.ix_(term, term)] for term in terms))


#: iterations of the model without effects, and steps of theta of a linear model
MAX_REGRESSIONS, MAX_STEPS = 50, 60
_MAX_FACTORS, _MAX_EFFECTS = 8, 32


@dataclass(frozen=True)
class MixedTerms(Terms):
    """What is fitted, how, and what may become known.

    Parameters
    ----------
    target : {"classes", "numbers", "counts", "proportions"}
        What y is.
    family, link : str
    reml : bool
        Restricted likelihood of a linear model.
    has_offset : bool
        Whether part of the predictor is known.
    n_factors : int
        Columns of cluster labels; 0 fits a plain regression.
    nested : bool
        Whether labels are read within those of the factors before.
    term_factors : list of int
        Factor of each term of random effects.
    term_columns : list of list of int
        Columns of X that vary together, and -1 for the intercept.
    fit_intercept : bool
    method : {"quadrature", "metropolis"}
    n_quadrature : int
        1 is Laplace's approximation.
    batch_size, n_burn_in, n_draws, seed : int
        Of the Metropolis chains.
    max_iter : int
    tol : float
    classes : list or None
        Labels of y in the order that its column declares; sorted if None.
    clusters : list of list or None
        Labels of each factor, if they are public.
    min_parties, min_cluster_rows : int
        Least holders and rows of a cluster whose sums are opened.
    min_cell_count : int
        Fewest own rows of a cluster that a party names, or of a value that few rows
        of a cluster share.
    pool : bool
        Whether smaller clusters share one effect; else they end the fit.
    release_effects : {"all", "shared"}
    scales : "each" or None
        Whether every cluster's effect has a standard deviation of its own.
    """

    target: Literal["classes", "numbers", "counts", "proportions"] = "classes"
    family: Literal["binomial", "poisson", "gaussian"] = "binomial"
    link: str = "logit"
    reml: bool = False
    has_offset: bool = False
    n_factors: int = 0
    nested: bool = True
    term_factors: list[int] = field(default_factory=list)
    term_columns: list[list[int]] = field(default_factory=list)
    fit_intercept: bool = True
    method: Literal["quadrature", "metropolis"] = "quadrature"
    n_quadrature: int = 25
    batch_size: int = 1
    n_burn_in: int = 0
    n_draws: int = 2
    seed: int = 0
    max_iter: int = 100
    tol: float = 1e-10
    classes: list[Any] | None = None
    clusters: list[Any] | None = None
    min_parties: int = 2
    min_cluster_rows: int = 5
    min_cell_count: int = 0
    pool: bool = False
    release_effects: Literal["all", "shared"] = "all"
    scales: Literal["each"] | None = None

    def check(self) -> None:
        """Refuse models that do not make sense."""
        if (self.family, self.link) not in FAMILIES:
            raise ValueError(f"link={self.link!r} does not go with {self.family}")
        known = all(0 <= factor < self.n_factors for factor in self.term_factors)
        columns = [c for members in self.term_columns for c in members]
        if (
            not 0 <= self.n_factors <= _MAX_FACTORS
            or len(self.term_factors) != len(self.term_columns)
            or not known
            or len(columns) > _MAX_EFFECTS
            or min(columns, default=0) < INTERCEPT
            or bool(columns) != (self.n_factors > 0)
        ):
            raise ValueError("terms of random effects do not fit the factors")
        if min(self.batch_size, self.n_draws, self.max_iter, self.n_quadrature) < 1:
            raise ValueError("numbers of draws, nodes and iterations are positive")
        if self.scales and not self.drawn:
            raise ValueError(
                "effect_params={'scales': 'each'} goes with method='metropolis' and "
                "clusters: one standard deviation for each of them"
            )
        if self.n_factors > 1 and self.clusters is not None:
            raise ValueError("clusters= goes with one column of cluster labels only")
        if self.family == "gaussian":
            return
        if self.crossed:
            raise ValueError(
                "crossed effects are fitted for family='gaussian' only: others would "
                "open counts of pairs of clusters in every iteration"
            )
        if len(columns) > 1 and self.n_quadrature > 1:
            raise ValueError(
                f"quadrature_params={{'n_nodes': {self.n_quadrature}}} goes with one "
                f"random effect per row; with {len(columns)}, 'n_nodes' is 1 "
                "(Laplace's approximation)"
            )
        if self.method == "metropolis" and (len(columns) > 1 or self.n_quadrature == 1):
            raise ValueError(
                "method='metropolis' draws one random effect per cluster, and needs "
                "quadrature_params={'n_nodes': ...} above 1 for its standard errors"
            )

    @property
    def distribution(self) -> Family:
        """Family of the target, with its link."""
        return family_of(self.family, self.link)

    @property
    def mixed(self) -> bool:
        """Whether there are random effects."""
        return self.n_factors > 0

    @property
    def centres_offset(self) -> bool:
        """Whether the mean of the offset goes into the intercept while searching."""
        return self.has_offset and self.fit_intercept and self.target != "numbers"

    @property
    def crossed(self) -> bool:
        """Whether clusters of one factor meet several of another."""
        return self.n_factors > 1 and not self.nested

    @property
    def limits(self) -> tuple[int, int, bool]:
        """Least holders and rows of clusters, and whether all of these are opened."""
        return self.min_parties, self.min_cluster_rows, self.crossed

    @property
    def drawn(self) -> bool:
        """Whether effects are drawn by Metropolis-Hastings."""
        return self.mixed and self.method == "metropolis"

    @property
    def laplace(self) -> bool:
        """Whether the effects' modes are expanded around."""
        return self.mixed and self.n_quadrature == 1

    @property
    def widest(self) -> float:
        """Scale at which effects are held where quadrature errs.

        Where features nearly separate the classes within clusters, the likelihood rises
        without end as effects grow, and becomes steps in them, which nodes miss.
        """
        if self.target != "classes":
            return np.inf
        if self.laplace:
            return 8.0
        # a number that the fixed point of results holds exactly
        return float(np.rint(8 * 1.2 * np.sqrt(max(self.n_quadrature, 25))) / 8)

    @property
    def random(self) -> RandomTerms:
        """The random effects."""
        return RandomTerms(list(zip(self.term_factors, self.term_columns)))

    @property
    def n_regressions(self) -> int:
        """Sums of the model without effects before effects are looked at."""
        return 5 if self.drawn else 2
