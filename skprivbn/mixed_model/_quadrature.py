"""Adaptive Gauss-Hermite quadrature over the random effects."""

from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp, roots_hermite

from skprivbn.mixed_model._likelihood import Posterior

__all__ = ["Grid"]

# A grid that misses the posterior shrinks or follows it by at most this factor.
_CAUTION = 3.0


@dataclass(frozen=True)
class Grid:
    """Nodes around where each category's effect u is likely to be.

    Parameters
    ----------
    centre, spread : ndarray of shape (n_categories,)
        Roughly the posterior mean and standard deviation of u.
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
        log_integrals = logsumexp(terms, axis=1)
        return Posterior(nodes, np.exp(terms - log_integrals[:, None])), log_integrals

    def adapt(self, posterior):
        """Move the nodes to where the posterior is.

        Parameters
        ----------
        posterior : Posterior
            On this grid.

        Returns
        -------
        grid : Grid
        settled : ndarray of bool of shape (n_categories,)
            Whether this grid was already good.
        """
        centre, deviation = posterior.mean(), np.sqrt(posterior.variance())
        moved = np.abs(centre - self.centre)
        # All weight on one node says that the posterior is narrower or elsewhere.
        spread = np.maximum(deviation, np.maximum(self.spread, moved) / _CAUTION)
        # A log-concave likelihood makes u no less certain than its prior.
        spread = np.minimum(spread, 1.0)
        settled = (moved < spread / 2) & (2 * deviation > self.spread)
        return Grid(centre, spread, self.n_nodes), settled

    def replace(self, where, other):
        """Return this grid with some categories' nodes taken from another."""
        return Grid(
            np.where(where, other.centre, self.centre),
            np.where(where, other.spread, self.spread),
            self.n_nodes,
        )
