"""Log-likelihoods of clusters as functions of their effects."""

import numpy as np
from scipy.special import factorial, roots_hermite

from skprivbn.mixed_model._quadrature import Grid, find_modes, spline

# Nodes through which curves are drawn of which two derivatives are known.
_MANY_NODES = 51


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

        mode, bend = find_modes(derivatives, np.zeros(len(self.centre)))
        grid = Grid(mode, 1 / np.sqrt(bend), n_nodes)
        return grid, self(sigma * grid.nodes + shift)[0]
