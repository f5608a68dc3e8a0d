"""Adaptive Gauss-Hermite quadrature over the random effects."""

from dataclasses import dataclass

import numpy as np
from numpy.polynomial.hermite import hermvander
from scipy.special import factorial, logsumexp, roots_hermite

from skprivbn.mixed_model._likelihood import Posterior

# Below, effects are too small to tell where they are.
_NO_SCALE = 1e-3
# Of the polynomials that log-likelihoods are read by, as functions of the effects.
_DEGREE = 8


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

    @classmethod
    def expanded(cls, gradient, hessian, sigma, n_nodes):
        """Return the grid around modes that an expansion at effects of zero promises.

        Parameters
        ----------
        gradient, hessian : ndarray of shape (n_categories,)
            First and minus second derivative by the effects, at zero.
        sigma : float
        n_nodes : int
        """
        curvature = 1 + sigma**2 * hessian
        return cls(sigma * gradient / curvature, 1 / np.sqrt(curvature), n_nodes)

    @property
    def expected(self):
        """Weights of the nodes if posteriors are normal, around the centres."""
        _, weights = roots_hermite(self.n_nodes)
        return np.tile(weights / np.sqrt(np.pi), (len(self.centre), 1))

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
        log_integrals = logsumexp(terms, axis=1)
        return Posterior(nodes, np.exp(terms - log_integrals[:, None])), log_integrals

    def adapt(self, table):
        """Move the nodes to where the posterior is: around its mode.

        Mode and curvature are those of the parabola through the highest node and its
        neighbours. The prior makes the curvature at least one.

        Parameters
        ----------
        table : ndarray of shape (n_categories, n_nodes)
            Log-likelihoods at the nodes.

        Returns
        -------
        grid : Grid
        distance : ndarray of shape (n_categories,)
            How far this grid was off: 1 is a quarter of the spread, or of its
            logarithm. Up to 1 it is good, up to 3 good enough on the way.
        """
        nodes = self.nodes
        height = table - nodes**2 / 2
        top = height.argmax(axis=1).clip(1, self.n_nodes - 2)[:, None]
        around = top + [-1, 0, 1]
        u = np.take_along_axis(nodes, around, axis=1)
        gap = np.diff(u)
        slope = np.diff(np.take_along_axis(height, around, axis=1)) / gap
        curvature = np.maximum(-2 * np.diff(slope)[:, 0] / gap.sum(axis=1), 1.0)
        slope_at_top = (slope * gap[:, ::-1]).sum(axis=1) / gap.sum(axis=1)
        centre = (u[:, 1] + slope_at_top / curvature).clip(nodes[:, 0], nodes[:, -1])
        spread = 1 / np.sqrt(curvature)
        distance = 4 * np.maximum(
            np.abs(centre - self.centre) / spread, np.abs(np.log(spread / self.spread))
        )
        return Grid(centre, spread, self.n_nodes), distance

    def predict(self, old, new, shift):
        """Return where the nodes should be after a step of the parameters.

        The rows of a category are taken to say the same about its effect as before.

        Parameters
        ----------
        old, new : float
            Sigma before and after.
        shift : ndarray of shape (n_categories,)
            What the step of beta takes off the derivative by a category's effect.

        Returns
        -------
        grid : Grid
        """
        if abs(old) < _NO_SCALE:
            return self
        held = np.maximum(1 / self.spread**2 - 1, 0) / old**2
        pull = self.centre / old + held * old * self.centre - shift
        curvature = 1 + held * new**2
        return Grid(new * pull / curvature, 1 / np.sqrt(curvature), self.n_nodes)

    def slopes(self, table):
        """Return derivatives of a table by the effects: at the nodes, and a second one.

        Those of the nearest polynomials.

        Parameters
        ----------
        table : ndarray of shape (n_categories, n_nodes)

        Returns
        -------
        slopes : ndarray of shape (n_categories, n_nodes)
        curvature : ndarray of shape (n_categories,)
            Minus the second derivative at the centre.
        """
        abscissae, weights = roots_hermite(self.n_nodes)
        degrees = np.arange(min(_DEGREE + 1, self.n_nodes))
        values = hermvander(abscissae, degrees[-1])
        norms = np.sqrt(np.pi) * 2.0**degrees * factorial(degrees)
        rises = 2 * degrees[1:] * values[:, :-1]
        (at_centre,) = hermvander(np.zeros(1), degrees[-1])
        bends = 4 * degrees[2:] * (degrees[2:] - 1) * at_centre[:-2]
        terms = table @ (values * weights[:, None] / norms)
        unit = np.sqrt(2) * self.spread
        slopes = terms[:, 1:] @ rises.T / unit[:, None]
        return slopes, -terms[:, 2:] @ bends / unit**2

    def scores(self, table, sigma, products):
        """Return what is known of the gradients at the nodes, but for a constant.

        Scores by beta are taken to change with the effects as that by the effect itself
        does, which the table tells, in the proportion that they have at the centre.

        Parameters
        ----------
        table : ndarray of shape (n_categories, n_nodes)
            Log-likelihoods at the nodes.
        sigma : float
        products : ndarray of shape (n_categories, n_fixed)
            Weighted products of z and the fixed effects' columns.

        Returns
        -------
        scores : ndarray of shape (n_categories, n_nodes, n_fixed + 1)
        """
        nodes, size = self.nodes, products.shape[1]
        scores = np.zeros((*nodes.shape, size + 1))
        if abs(sigma) < _NO_SCALE:
            return scores
        slopes, curvature = self.slopes(table)
        some = curvature > 1e-9
        share = products * (sigma / np.where(some, curvature, np.inf))[:, None]
        scores[:, :, :-1] = share[:, None, :] * slopes[:, :, None]
        scores[:, :, -1] = nodes * slopes / sigma
        return scores

    def replace(self, where, other):
        """Return this grid with some categories' nodes taken from another."""
        return Grid(
            np.where(where, other.centre, self.centre),
            np.where(where, other.spread, self.spread),
            self.n_nodes,
        )
