"""What is known of each cluster's random effect.

Adaptive Gauss-Hermite quadrature has one grid for each cluster. Log-likelihoods of
clusters as functions of their effects tell where nodes should be at other parameters.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.interpolate import make_interp_spline
from scipy.special import factorial
from scipy.special import roots_hermite as _roots_hermite

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
        At the centre, as of :func:`~skprivbn.mixed_model._likelihood.expansion_table`.

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
