"""One holder's part in integrating over the random effects.

Two ways, with the same methods: adaptive quadrature for one effect per cluster, and
Laplace's approximation for any number. A holder tabulates its rows; from everybody's
sum it reads the value of the integral, then adds its share to the gradient. Clusters
that it holds alone are integrated over at once, and enter the value only.
"""

from dataclasses import dataclass

import numpy as np

from skprivbn.mixed_model._laplace import (
    Expansion,
    expand,
    missing_beta,
    predict_modes,
    slope_at,
    solve_modes,
    theta_information,
)
from skprivbn.mixed_model._likelihood import (
    derivatives,
    log_likelihood_table,
    missing_information,
    score_table,
    weighted_products,
)
from skprivbn.mixed_model._quadrature import Grid

__all__ = ["LaplaceIntegral", "QuadratureIntegral", "Slope"]

_MAX_ADAPTATIONS = 30
# Newton steps of the modes promise less than this when they count as found.
_FOUND = 1e-6
_STEP = 1e-3


@dataclass(frozen=True)
class Slope:
    """A holder's share of the derivatives.

    Attributes
    ----------
    gradient : ndarray of shape (n_parameters,)
    complete : ndarray of shape (n_parameters, n_parameters)
        Information if the effects were seen.
    missing : ndarray of shape (n_parameters, n_parameters)
        What not seeing them costs, about.
    """

    gradient: np.ndarray
    complete: np.ndarray
    missing: np.ndarray


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

    def at_prior(self):
        """Return the state before any row was seen."""
        return Grid.prior(self.data.n_categories, self.grid.n_nodes)

    @property
    def state(self):
        """Where the nodes are."""
        return self.grid

    @state.setter
    def state(self, grid):
        self.grid = grid

    def tabulate(self, parameters):
        """Return what is known of opened clusters, and a sum.

        Log-likelihoods at the nodes are relative to the centre, where weighted
        products of features are taken. The sum is of log-likelihoods at the centre and
        of the integrals over own clusters.
        """
        self._adapt_own(parameters)
        at_centre, self.table = self._tables(parameters)
        _, log_integrals = self.grid.integrate(self.table)
        self.own_sum = at_centre.sum() + log_integrals[self.own].sum()
        self.products = weighted_products(self.data, parameters, self.grid.centre)
        opened = np.column_stack([self.table, self.products])[self.opened]
        return np.append(opened, self.own_sum)

    def _tables(self, parameters):
        centre = self.grid.centre[:, None]
        at_centre = log_likelihood_table(self.data, parameters, centre)
        table = log_likelihood_table(self.data, parameters, self.grid.nodes)
        return at_centre, table - at_centre

    def _adapt_own(self, parameters):
        if not np.any(self.own) or self.grid.n_nodes == 1:
            return
        for _ in range(_MAX_ADAPTATIONS):
            adapted, settled = self.grid.adapt(self._tables(parameters)[1])
            self.grid = self.grid.replace(self.own, adapted)
            if np.all(settled[self.own]):
                break

    def read(self, total, parameters, tolerance=None):
        """Take everybody's table.

        Parameters
        ----------
        total : ndarray of shape (n_values,)
        parameters : ndarray of shape (n_parameters,)
        tolerance : float, default=None
            By how much modes may be off, as a gain; nodes are more patient. None for
            the last time, when nothing moves any more.

        Returns
        -------
        value : float
            Marginal log-likelihood.
        settled : bool
            Whether the nodes were where they should be; else they move there.
        """
        n_nodes = self.table.shape[1]
        known = total[:-1].reshape(-1, n_nodes + self.products.shape[1])
        self.table[self.opened] = known[:, :n_nodes]
        self.products[self.opened] = known[:, n_nodes:]
        self.posterior, log_integrals = self.grid.integrate(self.table)
        self.opened_sum = log_integrals[self.opened].sum()
        value = total[-1] + self.opened_sum
        if tolerance is None or not np.any(self.opened):
            return value, True
        adapted, settled = self.grid.adapt(self.table)
        settled = bool(np.all(settled[self.opened]))
        if not settled:
            self.grid = self.grid.replace(self.opened, adapted)
        return value, settled

    def slope(self, parameters):
        """Return this holder's :class:`Slope`."""
        gradient, complete = derivatives(self.data, parameters, self.posterior)
        missing = np.zeros_like(complete)
        if np.any(self.own):
            mine = self.data.take(self.own[self.data.category])
            scores = score_table(mine, parameters, self.posterior.nodes)
            missing += missing_information(scores, scores, self.posterior)
        told = self.speaks_for & self.opened
        missing += self.grid.missing(
            self.table, self.posterior, parameters[-1], self.products, told
        )
        return Slope(gradient, complete, missing)

    def follow(self, before, after):
        """Move the nodes ahead to where they will be at other parameters."""
        shift = self.products @ (after - before)[:-1]
        self.grid = self.grid.predict(before[-1], after[-1], shift)

    def curvature_table(self, parameters):
        """Return own gradients of opened clusters at their nodes."""
        self.own_scores = score_table(self.data, parameters, self.grid.nodes)
        return self.own_scores[self.opened]

    def curvature(self, total, parameters):
        """Return this holder's share of gradient and observed information."""
        scores = self.own_scores.copy()
        scores[self.opened] = total.reshape(-1, *scores.shape[1:])
        gradient, complete = derivatives(self.data, parameters, self.posterior)
        missing = missing_information(self.own_scores, scores, self.posterior)
        return gradient, complete, complete - missing

    def effects(self, parameters, told):
        """Return means of the effects and their covariances, where they are told."""
        told = self.speaks_for & (self.opened | told)
        mean = parameters[-1] * self.posterior.mean()
        variance = parameters[-1] ** 2 * self.posterior.variance()
        return np.where(told, mean, 0.0), np.where(told, variance, 0.0)[:, None]


class LaplaceIntegral:
    """Laplace's approximation over blocks of effects.

    Parameters
    ----------
    data : Rows
        Of this holder.
    shape : Shape
    opened, own : ndarray of bool of shape (n_cells,)
        Cells of which sums are known, and those in blocks of this holder alone.
    leads : bool
        Whether this holder speaks for the cells that are opened.
    """

    def __init__(self, data, shape, opened, own, leads):
        self.data, self.shape = data, shape
        self.opened, self.own, self.leads = opened, own, leads
        self.n_effects = data.Z.shape[1]
        n_numbers = len(shape.blocks.column)
        self.is_opened, self.is_own = np.zeros((2, n_numbers), dtype=bool)
        self.is_opened[shape.numbers[opened]] = True
        self.is_own[shape.numbers[own]] = True
        self.state = self.at_prior()

    def at_prior(self):
        """Return the state before any row was seen."""
        return np.zeros(len(self.is_opened))

    def tabulate(self, parameters):
        """Return the expansion of opened cells around current effects, and a sum."""
        own, self.state = self._expand(parameters, self.state)
        self.expansion, vector = own, self._vector(own, parameters, self.state)
        self.own_sum = vector[-1]
        return vector

    def _expand(self, parameters, u):
        """Expand own rows; find the modes of own blocks on the way."""
        for _ in range(_MAX_ADAPTATIONS):
            expansion = expand(self.data, self.shape, parameters, u)
            if not np.any(self.own):
                break
            modes = self._own_modes(expansion, parameters, u)
            if modes.decrement < _FOUND**2:
                break
            u = np.where(self.is_own, modes.u, u)
        return expansion, u

    def _own_modes(self, expansion, parameters, u):
        """Modes next to `u` of own blocks; the others stay at zero."""
        flat = np.where(self.own[:, None], expansion.flat, 0.0)
        own = Expansion.from_flat(expansion.value, flat, self.n_effects)
        return solve_modes(own, self.shape, parameters, np.where(self.is_own, u, 0.0))

    def _vector(self, own, parameters, u):
        modes = self._own_modes(own, parameters, u)
        own_sum = own.value.sum() + modes.gain[self.is_own].sum()
        return np.append(own.flat[self.opened], own_sum)

    def read(self, total, parameters, tolerance=None):
        """Take everybody's expansion; see :meth:`QuadratureIntegral.read`."""
        self.all, self.modes = self._read(total, parameters, self.expansion, self.state)
        self.opened_sum = self.modes.gain[self.is_opened].sum()
        settled = tolerance is None or self.modes.decrement < tolerance
        self.around = self.state
        self.state = np.where(self.is_opened, self.modes.u, self.state)
        return total[-1] + self.opened_sum, settled

    def _read(self, total, parameters, own, u):
        flat = np.where(self.own[:, None], own.flat, 0.0)
        flat[self.opened] = total[:-1].reshape(-1, flat.shape[1])
        everybody = Expansion.from_flat(own.value, flat, self.n_effects)
        return everybody, solve_modes(everybody, self.shape, parameters, u)

    def slope(self, parameters):
        """Return this holder's :class:`Slope`."""
        data, shape, modes = self.data, self.shape, self.modes
        gradient, by_beta = slope_at(data, shape, parameters, modes)
        size, n_fixed = len(parameters), len(by_beta)
        complete, missing = np.zeros((2, size, size))
        complete[:n_fixed, :n_fixed] = by_beta
        told = self.own | (self.opened & self.leads)
        hessian = np.where(told[:, None, None], self.all.hessian, 0.0)
        products = np.where(told[:, None, None], self.all.products, 0.0)
        missing[:n_fixed, :n_fixed] = missing_beta(shape, parameters, modes, products)
        complete[n_fixed:, n_fixed:] = theta_information(
            shape, parameters, modes, hessian
        )
        return Slope(gradient, complete, missing)

    def follow(self, before, after):
        """Move the effects ahead to where their modes will be."""
        self.state = predict_modes(self.all, self.shape, before, self.around, after)

    def curvature_table(self, parameters):
        """Return own expansions at parameters a little to either side."""
        self.trials = [
            (parameters + step, *self._expand(parameters + step, self.state))
            for step in _sides(len(parameters))
        ]
        return np.array([self._vector(own, p, u) for p, own, u in self.trials])

    def refine(self, total):
        """Take everybody's expansions; return own ones around better modes."""
        vectors = []
        for i, ((p, own, u), row) in enumerate(zip(self.trials, total)):
            _, modes = self._read(row, p, own, u)
            u = np.where(self.is_opened, modes.u, u)
            own, u = self._expand(p, u)
            self.trials[i] = p, own, u
            vectors.append(self._vector(own, p, u))
        return np.array(vectors)

    def curvature(self, total, parameters):
        """Return this holder's share of gradient and observed information."""
        gradient, by_beta = slope_at(self.data, self.shape, parameters, self.modes)
        slopes = []
        for (p, own, u), row in zip(self.trials, total):
            _, modes = self._read(row, p, own, u)
            slopes.append(slope_at(self.data, self.shape, p, modes)[0])
        plus, minus = np.split(np.array(slopes), 2)
        observed = (minus - plus) / (2 * _STEP)
        complete = np.eye(len(parameters)) * 0
        complete[: len(by_beta), : len(by_beta)] = by_beta
        return gradient, complete, (observed + observed.T) / 2

    def effects(self, parameters, told):
        """Return modes of the effects and their covariances, where they are told."""
        shape, blocks = self.shape, self.shape.blocks
        _, matrix = shape.split(parameters)
        chosen = (self.is_opened & self.leads) | (self.is_own & told)
        means = np.zeros(len(blocks.column))
        covariances = np.zeros((len(means), self.n_effects))
        factors = blocks.spread(matrix)
        for members, factor, inverse in zip(
            blocks.members, factors, self.modes.inverses
        ):
            u = self.modes.u[members][..., None]
            means[members] = (factor @ u)[..., 0]
            covariance = factor @ inverse @ np.swapaxes(factor, 1, 2)
            level, column = blocks.level[members], blocks.column[members]
            b, i, j = np.nonzero(level[:, :, None] == level[:, None, :])
            covariances[members[b, i], column[b, j]] = covariance[b, i, j]
        return np.where(chosen, means, 0.0), np.where(chosen[:, None], covariances, 0.0)


def _sides(size):
    steps = _STEP * np.eye(size)
    return np.concatenate([steps, -steps])
