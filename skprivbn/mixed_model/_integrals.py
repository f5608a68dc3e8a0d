"""One holder's part in integrating over the random effects, by quadrature.

:class:`QuadratureIntegral` is for one effect per cluster; its twin for any number is
``LaplaceIntegral``, with the same methods. A holder tabulates what its rows say about
the effects of clusters that several parties hold. In the same sum it tells the
gradient, for posteriors as they are expected to be: parties can wait for the sum of
the tables, see by how much the posteriors differ from that, and correct the gradient
for it, each on its own. Clusters that it holds alone are integrated over at once, and
enter totals only.
"""

from dataclasses import dataclass, replace

import numpy as np

from skprivbn.mixed_model._curves import Curves
from skprivbn.mixed_model._likelihood import (
    derivatives,
    expansion_table,
    log_likelihood_table,
    missing_information,
    score_table,
)
from skprivbn.mixed_model._quadrature import Grid, find_modes
from skprivbn.utils._triangles import symmetric, upper

#: scales of the effects that a search may start from
SCALES = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.3, 1.7, 2.2, 3.0, 4.5)
# How far off nodes may be, in the units of Grid.distance: at last, and on the way.
_GOOD, _GOOD_ENOUGH = 0.25, 0.75
# Below, effects are too small to tell how log-likelihoods depend on them.
_NO_SCALE = 1e-3


@dataclass(frozen=True)
class Slope:
    """Value and derivatives of the log-likelihood, or a holder's share of them.

    Attributes
    ----------
    value : float
    error : float
        By how much it may be off.
    gradient : ndarray of shape (n_parameters,)
    complete : ndarray of shape (n_parameters, n_parameters)
        Information if the effects were seen.
    missing : ndarray of shape (n_parameters, n_parameters)
        What not seeing them costs, about.
    """

    value: float
    error: float
    gradient: np.ndarray
    complete: np.ndarray
    missing: np.ndarray

    @property
    def flat(self):
        """Everything as one vector."""
        triangles = upper(self.complete), upper(self.missing)
        return np.concatenate([[self.value, self.error], self.gradient, *triangles])

    @staticmethod
    def length(size):
        """Return the length of the vector for `size` parameters."""
        return 2 + size + size * (size + 1)

    @classmethod
    def from_flat(cls, flat, size):
        """Undo :attr:`flat`."""
        ends = np.cumsum([2, size, size * (size + 1) // 2])
        (value, error), gradient, complete, missing = np.split(flat, ends)
        return cls(value, error, gradient, symmetric(complete), symmetric(missing))


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
    predictor : float
        Of all rows on the average.

    Attributes
    ----------
    known : tuple of ndarray and Curves
        Parameters, and how opened clusters depend on their effects there.
    first : tuple of ndarray and Curves
        The same without effects.
    """

    known = first = None

    def __init__(self, data, opened, own, leads, n_nodes, predictor):
        self.data, self.predictor = data, predictor
        self.opened, self.own = opened, own
        self.speaks_for = own | (opened & leads)
        self.grid = Grid.prior(data.n_categories, n_nodes)

    # Where to start

    def first_table(self, parameters):
        """Return derivatives of opened clusters at effects of zero, and gains.

        The latter are what effects of each scale in :data:`SCALES` would add to the
        log-likelihood of own clusters, about.
        """
        zero = expansion_table(self.data, parameters, self.grid.centre)
        gains = [_gain(zero[self.own], scale).sum() for scale in SCALES]
        return np.append(zero[self.opened], gains)

    def start(self, total, before, after):
        """Take everybody's first table; return parameters with a scale to start from.

        Parameters
        ----------
        total : ndarray of shape (n_values,)
        before, after : ndarray of shape (n_parameters,)
            Parameters of the first table, and those to start from but for the scale.
        """
        zero, gains = np.split(total, [-len(SCALES)])
        zero = zero.reshape(-1, 1 + len(before))
        gains = gains + [_gain(zero, scale).sum() for scale in SCALES]
        self.first = self.known = before, self._like_rows(zero)
        after = np.append(after[:-1], SCALES[int(np.argmax(gains))])
        self.follow(after)
        return after

    def _like_rows(self, expansion):
        return Curves.of_like_rows(self.data.family, self.predictor, expansion)

    # One step

    def follow(self, parameters):
        """Place nodes of opened clusters where they should be at other parameters."""
        before, curves = self.known
        shift = curves.shares @ (parameters - before)[:-1]
        grid, table = curves.place(parameters[-1], shift[:, None], self.grid.n_nodes)
        self.expected = grid.integrate(table)[0].weights
        self.grid = self.grid.replace(self.opened, grid)

    def tabulate(self, parameters):
        """Return what is known of opened clusters, and this holder's :class:`Slope`.

        That is log-likelihoods at the nodes, relative to the centre, and an expansion
        around that.
        """
        at_centre, told = self._tell(parameters)
        table = told[:, : self.grid.n_nodes]
        posterior, log_integrals = self.grid.integrate(table)
        posterior.weights[self.opened] = self.expected
        gradient, complete = derivatives(self.data, parameters, posterior)
        missing = np.zeros_like(complete)
        if np.any(self.own):
            mine = self.data.take(self.own[self.data.category])
            scores = score_table(mine, parameters, posterior.nodes)
            missing = missing_information(scores, scores, posterior)
        value = at_centre.sum() + log_integrals[self.own].sum()
        error = self._error(self.own, table[self.own])
        slope = Slope(value, error, gradient, complete, missing)
        return np.append(told[self.opened], slope.flat)

    def _tell(self, parameters):
        """Return log-likelihoods at the centres, and what there is to tell."""
        self._place_own(parameters)
        centre = self.grid.centre
        at_centre = log_likelihood_table(self.data, parameters, centre[:, None])
        table = log_likelihood_table(self.data, parameters, self.grid.nodes)
        expansion = expansion_table(self.data, parameters, centre)
        return at_centre, np.column_stack([table - at_centre, expansion])

    def _place_own(self, parameters):
        """Place nodes of own clusters around the modes."""
        if not np.any(self.own) or self.grid.n_nodes == 1:
            return
        mine, sigma = self.data.take(self.own[self.data.category]), parameters[-1]

        def by_effect(u):
            slope, bend = expansion_table(mine, parameters, u)[:, :2].T
            return sigma * slope - u, 1 + sigma**2 * bend

        mode, bend = find_modes(by_effect, np.where(self.own, self.grid.centre, 0.0))
        grid = Grid(mode, 1 / np.sqrt(bend), self.grid.n_nodes)
        self.grid = self.grid.replace(self.own, grid[self.own])

    def _error(self, chosen, table):
        """Return by how much log-likelihoods of some clusters may be off together."""
        return np.abs(self.grid[chosen].errors(table)).sum()

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
            Whether the nodes were where they should be.
        """
        length = Slope.length(len(parameters))
        slope = Slope.from_flat(total[-length:], len(parameters))
        grid, sigma = self.grid[self.opened], parameters[-1]
        if not len(grid.centre):
            return slope, True
        told = total[:-length].reshape(len(grid.centre), -1)
        table, expansion = np.split(told, [grid.n_nodes], axis=1)
        if abs(sigma) < _NO_SCALE:
            curves = self._like_rows(expansion)
        else:
            curves = Curves.through(grid, sigma, table, expansion)
        self.known = parameters, curves
        by_effect, bend, *_ = expansion.T
        distance = grid.distance(sigma * by_effect - grid.centre, 1 + sigma**2 * bend)
        limit = _GOOD if promised < 0.01 else _GOOD_ENOUGH
        settled = bool(distance.max() < limit)
        return self._corrected(slope, grid, table, sigma), settled

    def _corrected(self, slope, grid, table, sigma):
        """Add what opened clusters tell, now that their posteriors are known."""
        _, curves = self.known
        posterior, log_integrals = grid.integrate(table)
        weights = posterior.weights
        _, by_effect, _ = curves(sigma * grid.nodes)
        scores = np.dstack(
            [by_effect[:, :, None] * curves.shares[:, None, :], by_effect * grid.nodes]
        )
        away = scores - np.einsum("tq,tqj->tj", weights, scores)[:, None, :]
        missing = np.einsum("tq,tqj,tqk->jk", weights, away, away)
        surprise = np.einsum("tq,tqj->j", weights - self.expected, scores)
        return replace(
            slope,
            value=slope.value + log_integrals.sum(),
            error=slope.error + self._error(self.opened, table),
            gradient=slope.gradient + surprise,
            missing=slope.missing + missing,
        )

    # The end

    def final_table(self, parameters):
        """Return what is known of opened clusters, and gradients at their nodes."""
        self.at_centre, self.told = self._tell(parameters)
        self.scores = score_table(self.data, parameters, self.grid.nodes)
        scores = self.scores.reshape(len(self.told), -1)
        return np.column_stack([self.told, scores])[self.opened]

    def conclude(self, total, parameters):
        """Return this holder's share of value, gradient and information, as a Slope.

        Here what is missing is exact, so that the observed information is known.
        """
        told, scores, chosen = self.told, self.scores.copy(), self.speaks_for
        width, (_, n_nodes, size) = told.shape[1], scores.shape
        opened = total.reshape(-1, width + n_nodes * size)
        told[self.opened] = opened[:, :width]
        scores[self.opened] = opened[:, width:].reshape(-1, n_nodes, size)
        table = told[:, :n_nodes]
        self.posterior, log_integrals = self.grid.integrate(table)
        value = self.at_centre.sum() + log_integrals[chosen].sum()
        gradient, complete = derivatives(self.data, parameters, self.posterior)
        error = self._error(chosen, table[chosen])
        missing = missing_information(self.scores, scores, self.posterior)
        return Slope(value, error, gradient, complete, missing)

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
