"""Quadrature over one random effect per cluster: nodes, and sums over rows there.

The predictor is eta = offset + x beta + sigma z u, with u ~ N(0, 1) for each category:
the scale of the effects is a coefficient, that of z u, so that its derivatives have the
same form as those of the fixed effects. Parameters are one vector, (beta, sigma).

Adaptive Gauss-Hermite quadrature has one grid for each cluster. Log-likelihoods of
clusters as functions of their effects tell where nodes should be at other parameters.
"""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from scipy.interpolate import make_interp_spline
from scipy.sparse import csr_array
from scipy.special import factorial
from scipy.special import roots_hermite as _roots_hermite

from skprivbn.mixed_model._clusters import weigh
from skprivbn.mixed_model._terms import Family
from skprivbn.utils._linalg import upper

# Steps in which modes are looked for, and when they count as found.
_MAX_STEPS, _FOUND = 50, 1e-9
# Modes of effects are no farther from zero than that.
_FARTHEST = 10.0
# Fewer cannot tell how good they are.
_SOME_NODES = 9
# Points at which splines are added up to be integrated.
_POINTS = 121
# Nodes through which curves are drawn of which two derivatives are known.
_MANY_NODES = 51
# Rows times nodes that are held in memory at once.
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Posterior:
    """A discrete distribution of every category's effect u.

    Parameters
    ----------
    nodes, weights : ndarray of shape (n_categories, n_nodes)
        Weights of a category sum to one.
    """

    nodes: np.ndarray
    weights: np.ndarray

    def mean(self):
        """Return the mean of every category's u."""
        return np.einsum("tq,tq->t", self.weights, self.nodes)

    def variance(self):
        """Return the variance of every category's u."""
        away = self.nodes - self.mean()[:, None]
        return np.einsum("tq,tq->t", self.weights, away**2)


@cache
def roots_hermite(n_nodes):
    """Return abscissae and weights, which every step asks for again."""
    abscissae, weights = _roots_hermite(n_nodes)
    abscissae.flags.writeable = weights.flags.writeable = False
    return abscissae, weights


@cache
def _interpolation(n_nodes):
    """Return points between the nodes, and what splines make of values at the nodes."""
    abscissae, _ = roots_hermite(n_nodes)
    points = np.linspace(abscissae[0], abscissae[-1], _POINTS)
    return points, spline(abscissae, np.eye(n_nodes))(points)


def _log_sum(terms):
    """Return the logarithm of the sum of exponentials, of finite numbers in rows."""
    top = terms.max(axis=1)
    return top + np.log(np.exp(terms - top[:, None]).sum(axis=1))


@dataclass(frozen=True)
class Grid:
    """Nodes around where each category's effect u is likely to be.

    Parameters
    ----------
    centre, spread : ndarray of shape (n_categories,)
        Roughly the posterior mode of u and its standard deviation there.
    n_nodes : int
    """

    centre: np.ndarray
    spread: np.ndarray
    n_nodes: int

    @classmethod
    def prior(cls, n_categories, n_nodes):
        """Return the grid for N(0, 1), the distribution before any row is seen."""
        return cls(np.zeros(n_categories), np.ones(n_categories), n_nodes)

    @property
    def nodes(self):
        """Values of u, of shape (n_categories, n_nodes)."""
        abscissae, _ = roots_hermite(self.n_nodes)
        return self.centre[:, None] + np.sqrt(2) * self.spread[:, None] * abscissae

    def integrate(self, table):
        """Integrate the likelihood over N(0, 1).

        Parameters
        ----------
        table : ndarray of shape (n_categories, n_nodes)
            Log-likelihoods at the nodes.

        Returns
        -------
        posterior : Posterior
        log_integrals : ndarray of shape (n_categories,)
            Marginal log-likelihood of each category.

        Examples
        --------
        >>> import numpy as np
        >>> grid = Grid.prior(n_categories=1, n_nodes=9)
        >>> posterior, log_integrals = grid.integrate(0.5 * grid.nodes)
        >>> posterior.mean().round(6), log_integrals.round(6)
        (array([0.5]), array([0.125]))
        """
        abscissae, weights = roots_hermite(self.n_nodes)
        nodes = self.nodes
        log_weights = np.log(weights) + abscissae**2 - nodes**2 / 2
        log_weights += np.log(self.spread / np.sqrt(np.pi))[:, None]
        terms = table + log_weights
        log_integrals = _log_sum(terms)
        return Posterior(nodes, np.exp(terms - log_integrals[:, None])), log_integrals

    def errors(self, table):
        """Return by how much log-integrals are off, about: too high if positive.

        Compared with splines through the nodes, integrated on a fine grid: Gaussian
        quadrature is better as long as posteriors look normal.
        """
        if self.n_nodes < _SOME_NODES:
            return np.zeros(len(table))
        points, between = _interpolation(self.n_nodes)
        u = self.centre[:, None] + np.sqrt(2) * self.spread[:, None] * points
        heights = table @ between.T - u**2 / 2
        log_width = np.log((points[1] - points[0]) * self.spread / np.sqrt(np.pi))
        return self.integrate(table)[1] - _log_sum(heights) - log_width

    def __getitem__(self, chosen):
        """Return the nodes of some categories."""
        return Grid(self.centre[chosen], self.spread[chosen], self.n_nodes)

    def replace(self, chosen, other):
        """Return this grid with other nodes for some categories."""
        centre, spread = self.centre.copy(), self.spread.copy()
        centre[chosen], spread[chosen] = other.centre, other.spread
        return Grid(centre, spread, self.n_nodes)

    def distance(self, slope, bend):
        """Return how far the nodes are off, in spreads or in their logarithm.

        Parameters
        ----------
        slope, bend : ndarray of shape (n_categories,)
            First and minus second derivative by u of the posterior, at the centre.
        """
        spread = 1 / np.sqrt(bend)
        return np.maximum(np.abs(slope) * spread, np.abs(np.log(spread / self.spread)))


def find_modes(derivatives, start):
    """Find where concave functions have their tops, all at once.

    Newton's method, within limits that close in.

    Parameters
    ----------
    derivatives : callable
        From points to first and minus second derivatives, the latter positive.
    start : ndarray of shape (n_categories,)

    Returns
    -------
    modes, bends : ndarray of shape (n_categories,)
    """
    u, low, high = start, np.full(len(start), -np.inf), np.full(len(start), np.inf)
    for _ in range(_MAX_STEPS):
        slope, bend = derivatives(u)
        low, high = np.where(slope > 0, u, low), np.where(slope > 0, high, u)
        step = slope / bend
        moving = np.abs(step) > _FOUND
        if not np.any(moving):
            break
        outside = (u + step <= low) | (u + step >= high)
        there = np.where(outside, (low + high) / 2, u + step)
        u = np.where(moving, there, u)
    return u, bend


def spline(abscissae, table):
    """Return splines through the columns of a table."""
    return make_interp_spline(abscissae, table, k=5 if len(abscissae) > 5 else 3)


class Curves:
    """What is known of clusters' log-likelihoods as functions of their effects b.

    Splines through what nodes told, and parabolas beyond the nodes. A step of beta is
    taken to move them to the left: scores by beta change with the effects as that by
    the effect itself does, in the proportion that they have at the centre.

    Parameters
    ----------
    centre, unit : ndarray of shape (n_categories,)
        Of effects: nodes are the abscissae in these units, from the centre.
    table : ndarray of shape (n_categories, n_nodes)
        Log-likelihoods at the nodes.
    expansion : ndarray of shape (n_categories, 2 + n_fixed)
        At the centre, as of :func:`expansion_table`.

    Attributes
    ----------
    shares : ndarray of shape (n_categories, n_fixed)
        By how much a step of beta moves the curves.
    """

    def __init__(self, centre, unit, table, expansion):
        slope, bend, products = np.split(expansion, [1, 2], axis=1)
        self.shares = np.divide(
            products, bend, out=np.zeros_like(products), where=bend > 1e-9
        )
        self.centre, self.unit = centre[:, None], unit[:, None]
        self.abscissae, _ = roots_hermite(table.shape[1])
        smooth = spline(self.abscissae, table.T)
        self.ends = np.unique(smooth.t)
        self.pieces = np.array(
            [smooth(self.ends[:-1], n) / factorial(n) for n in range(smooth.k, -1, -1)]
        )
        _, first, second = self(self.centre)
        self.slope, self.bend = slope - first, bend - second

    @classmethod
    def through(cls, grid, sigma, table, expansion):
        """Return the curves that nodes of u told, where b = sigma u."""
        unit = sigma * np.sqrt(2) * grid.spread
        return cls(sigma * grid.centre, unit, table, expansion)

    @classmethod
    def of_like_rows(cls, family, predictor, expansion):
        """Return the curves of clusters in which all rows have the same predictor.

        How many events and trials that are, two derivatives at effects of zero tell.
        """
        one, zero = np.eye(2)
        by_eta = family.derivatives(one, zero, np.full(2, predictor))
        events, trials = np.linalg.solve([by_eta.first, by_eta.weight], expansion.T[:2])
        abscissae, _ = roots_hermite(_MANY_NODES)
        table = family.log_likelihood(
            events[:, None], trials[:, None], predictor + abscissae
        )
        n_categories = len(expansion)
        return cls(np.zeros(n_categories), np.ones(n_categories), table, expansion)

    def __call__(self, effects):
        """Return values, first and minus second derivatives.

        Parameters
        ----------
        effects : ndarray of shape (n_categories, n_points)
        """
        x = (effects - self.centre) / self.unit
        inner = x.clip(self.abscissae[0], self.abscissae[-1])
        piece = np.searchsorted(self.ends[1:-1], inner)
        at = inner - self.ends[piece]
        value, first, second = np.zeros((3, *x.shape))
        for coefficient in self.pieces[:, piece, np.arange(len(x))[:, None]]:
            second = second * at + first
            first = first * at + value
            value = value * at + coefficient
        first = first / self.unit
        second = np.maximum(-2 * second / self.unit**2, 0.0)
        beyond = (x - inner) * self.unit
        value = value + first * beyond - second * beyond**2 / 2
        return value, first - second * beyond, second

    def place(self, sigma, shift, n_nodes):
        """Return nodes around the modes of u, and log-likelihoods there.

        Parameters
        ----------
        sigma : float
        shift : ndarray of shape (n_categories, 1) or float
            By how much the curves are moved to the left.
        n_nodes : int

        Returns
        -------
        grid : Grid
        table : ndarray of shape (n_categories, n_nodes)
        """

        def derivatives(u):
            effects = sigma * u[:, None] + shift
            _, first, second = self(effects)
            away = effects - self.centre
            # near the centre derivatives are known
            near = np.exp(-((away / self.unit) ** 2))
            first = first + near * (self.slope - self.bend * away)
            second = np.maximum(second + near * self.bend, 0.0)
            return sigma * first[:, 0] - u, 1 + sigma**2 * second[:, 0]

        # splines may have other tops far away
        start = (self.centre - shift)[:, 0] / (sigma or 1.0)
        mode, bend = find_modes(derivatives, start.clip(-_FARTHEST, _FARTHEST))
        grid = Grid(mode, 1 / np.sqrt(bend), n_nodes)
        return grid, self(sigma * grid.nodes + shift)[0]


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
