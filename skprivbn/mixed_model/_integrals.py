"""One holder's part in integrating over the random effects, by quadrature.

:class:`QuadratureIntegral` is for one effect per cluster; its twin for any number is
``LaplaceIntegral``, with the same methods. A holder tabulates what its rows say about
the effects of clusters that several parties hold. In the same sum it tells the
gradient, for posteriors as they are expected to be: parties can wait for the sum of
the tables, see by how much the posteriors differ from that, and correct the gradient
for it, each on its own. Clusters that it holds alone are integrated over at once, and
enter totals only.
"""

from dataclasses import dataclass

import numpy as np

from skprivbn.mixed_model._likelihood import (
    Posterior,
    derivatives,
    log_likelihood_table,
    missing_information,
    score_table,
    weighted_products,
    zero_table,
)
from skprivbn.mixed_model._quadrature import Grid
from skprivbn.utils._triangles import symmetric, upper

MAX_ADAPTATIONS = 30
#: scales of the effects that a search may start from
SCALES = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.3, 1.7, 2.2, 3.0, 4.5)
# How far off nodes may be, in the units of Grid.adapt: at last, and on the way.
_GOOD, _GOOD_ENOUGH = 1.0, 3.0


@dataclass(frozen=True)
class Slope:
    """Value and derivatives of the log-likelihood, or a holder's share of them.

    Attributes
    ----------
    value : float
    gradient : ndarray of shape (n_parameters,)
    complete : ndarray of shape (n_parameters, n_parameters)
        Information if the effects were seen.
    missing : ndarray of shape (n_parameters, n_parameters)
        What not seeing them costs, about.
    """

    value: float
    gradient: np.ndarray
    complete: np.ndarray
    missing: np.ndarray

    @property
    def flat(self):
        """Everything as one vector."""
        triangles = upper(self.complete), upper(self.missing)
        return np.concatenate([[self.value], self.gradient, *triangles])

    @staticmethod
    def length(size):
        """Return the length of the vector for `size` parameters."""
        return 1 + size + size * (size + 1)

    @classmethod
    def from_flat(cls, flat, size):
        """Undo :attr:`flat`."""
        ends = np.cumsum([1, size, size * (size + 1) // 2])
        (value,), gradient, complete, missing = np.split(flat, ends)
        return cls(value, gradient, symmetric(complete), symmetric(missing))


class QuadratureIntegral:
    """Adaptive Gauss-Hermite quadrature over one effect per cluster.

    Parameters
    ----------
    data : Rows
        Of this holder.
    opened, own : ndarray of bool of shape (n_categories,)
        Clusters of which sums are known, and those of this holder alone.
    leads : bool
        Whether this holder speaks for the clusters that are opened.
    n_nodes : int
    """

    def __init__(self, data, opened, own, leads, n_nodes):
        self.data = data
        self.opened, self.own = opened, own
        self.speaks_for = own | (opened & leads)
        self.grid = Grid.prior(data.n_categories, n_nodes)
        self.expected = self.grid.expected

    def at_prior(self):
        """Return the state before any row was seen."""
        grid = Grid.prior(self.data.n_categories, self.grid.n_nodes)
        return grid, grid.expected

    @property
    def state(self):
        """Where the nodes are, and the weights that are expected there."""
        return self.grid, self.expected

    @state.setter
    def state(self, state):
        self.grid, self.expected = state

    # Where to start

    def first_table(self, parameters):
        """Return derivatives of opened clusters at effects of zero, and gains.

        The latter are what effects of each scale in :data:`SCALES` would add to the
        log-likelihood of own clusters, about.
        """
        self.zero = zero_table(self.data, parameters)
        gains = [_gain(self.zero[self.own], scale).sum() for scale in SCALES]
        return np.append(self.zero[self.opened], gains)

    def start(self, total, before, after):
        """Take everybody's first table; return parameters with a scale to start from.

        Parameters
        ----------
        total : ndarray of shape (n_values,)
        before, after : ndarray of shape (n_parameters,)
            Parameters of the first table, and those to start from but for the scale.
        """
        width, n_scales = self.zero.shape[1], len(SCALES)
        self.zero[self.opened] = total[:-n_scales].reshape(-1, width)
        gains = total[-n_scales:] + [
            _gain(self.zero[self.opened], scale).sum() for scale in SCALES
        ]
        scale = SCALES[int(np.argmax(gains))]
        gradient, hessian, products = np.split(self.zero, [1, 2], axis=1)
        gradient = gradient[:, 0] - products @ (after - before)[:-1]
        self.grid = Grid.expanded(gradient, hessian[:, 0], scale, self.grid.n_nodes)
        self.expected = self.grid.expected
        return np.append(after[:-1], scale)

    # One step

    def tabulate(self, parameters):
        """Return what is known of opened clusters, and this holder's :class:`Slope`.

        Log-likelihoods at the nodes are relative to the centre, where weighted
        products of features are taken.
        """
        self._adapt_own(parameters)
        at_centre, self.table = self._tables(parameters)
        posterior, log_integrals = self.grid.integrate(self.table)
        weights = np.where(self.own[:, None], posterior.weights, self.expected)
        guess = Posterior(posterior.nodes, weights)
        gradient, complete = derivatives(self.data, parameters, guess)
        missing = np.zeros_like(complete)
        if np.any(self.own):
            mine = self.data.take(self.own[self.data.category])
            scores = score_table(mine, parameters, posterior.nodes)
            missing = missing_information(scores, scores, posterior)
        value = at_centre.sum() + log_integrals[self.own].sum()
        self.products = weighted_products(self.data, parameters, self.grid.centre)
        opened = np.column_stack([self.table, self.products])[self.opened]
        return np.append(opened, Slope(value, gradient, complete, missing).flat)

    def _tables(self, parameters):
        centre = self.grid.centre[:, None]
        at_centre = log_likelihood_table(self.data, parameters, centre)
        table = log_likelihood_table(self.data, parameters, self.grid.nodes)
        return at_centre, table - at_centre

    def _adapt_own(self, parameters):
        if not np.any(self.own) or self.grid.n_nodes == 1:
            return
        for _ in range(MAX_ADAPTATIONS):
            adapted, distance = self.grid.adapt(self._tables(parameters)[1])
            self.grid = self.grid.replace(self.own, adapted)
            if np.all(distance[self.own] < _GOOD):
                break

    def read(self, total, parameters, promised):
        """Take everybody's table.

        Parameters
        ----------
        total : ndarray of shape (n_values,)
        parameters : ndarray of shape (n_parameters,)
        promised : float
            Gain that led here: the larger, the less exactly it needs to be judged.

        Returns
        -------
        slope : Slope
            Of all rows.
        settled : bool
            Whether the nodes were where they should be; else they move there.
        """
        length = Slope.length(len(parameters))
        slope = Slope.from_flat(total[-length:], len(parameters))
        if not np.any(self.opened):
            return slope, True
        n_nodes = self.table.shape[1]
        known = total[:-length].reshape(-1, n_nodes + self.products.shape[1])
        self.table[self.opened] = known[:, :n_nodes]
        self.products[self.opened] = known[:, n_nodes:]
        slope = self._corrected(slope, parameters)
        adapted, distance = self.grid.adapt(self.table)
        off = self.opened & (distance > _GOOD)
        self.grid = self.grid.replace(off, adapted)
        limit = _GOOD if promised < 0.01 else _GOOD_ENOUGH
        return slope, bool(np.all(distance[self.opened] < limit))

    def _corrected(self, slope, parameters):
        """Add what opened clusters tell, now that their posteriors are known."""
        posterior, log_integrals = self.grid.integrate(self.table)
        opened = self.opened
        scores = self.grid.scores(self.table, parameters[-1], self.products)[opened]
        weights = posterior.weights[opened]
        surprise = weights - self.expected[opened]
        self.expected = posterior.weights
        mean = np.einsum("tq,tqj->tj", weights, scores)
        away = scores - mean[:, None, :]
        missing = np.tensordot(
            weights[:, :, None] * scores, away, axes=([0, 1], [0, 1])
        )
        return Slope(
            slope.value + log_integrals[opened].sum(),
            slope.gradient + np.einsum("tq,tqj->j", surprise, scores),
            slope.complete,
            slope.missing + (missing + missing.T) / 2,
        )

    def follow(self, before, after):
        """Move the nodes ahead to where they will be at other parameters."""
        shift = self.products @ (after - before)[:-1]
        self.grid = self.grid.predict(before[-1], after[-1], shift)

    # The end

    def final_table(self, parameters):
        """Return log-likelihoods and gradients of opened clusters at their nodes."""
        self._adapt_own(parameters)
        self.at_centre, self.table = self._tables(parameters)
        self.scores = score_table(self.data, parameters, self.grid.nodes)
        opened = np.concatenate([self.table[:, :, None], self.scores], axis=2)
        return opened[self.opened]

    def conclude(self, total, parameters):
        """Return this holder's share of value, gradient and information, as a Slope.

        Here what is missing is exact, so that the observed information is known.
        """
        n_nodes, size = self.scores.shape[1:]
        known = total.reshape(-1, n_nodes, 1 + size)
        everybody = self.scores.copy()
        self.table[self.opened] = known[:, :, 0]
        everybody[self.opened] = known[:, :, 1:]
        self.posterior, log_integrals = self.grid.integrate(self.table)
        value = self.at_centre.sum() + log_integrals[self.speaks_for].sum()
        gradient, complete = derivatives(self.data, parameters, self.posterior)
        missing = missing_information(self.scores, everybody, self.posterior)
        return Slope(value, gradient, complete, missing)

    def effects(self, parameters, told):
        """Return means of the effects and their covariances, where they are told."""
        told = self.speaks_for & (self.opened | told)
        mean = parameters[-1] * self.posterior.mean()
        variance = parameters[-1] ** 2 * self.posterior.variance()
        return np.where(told, mean, 0.0), np.where(told, variance, 0.0)[:, None]


def _gain(zero, scale):
    """Return what effects of a scale add to log-likelihoods, from parabolas at zero."""
    gradient, curvature = zero[:, 0], 1 + scale**2 * zero[:, 1]
    return ((scale * gradient) ** 2 / curvature - np.log(curvature)) / 2
