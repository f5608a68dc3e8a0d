"""One holder's part in integrating over the random effects, by Laplace's approximation.

The twin of :class:`~skprivbn.mixed_model._integrals.QuadratureIntegral` for any number
of effects per cluster, nested ones included.
"""

import numpy as np

from skprivbn.mixed_model._integrals import SCALES, Slope
from skprivbn.mixed_model._laplace import (
    Expansion,
    Modes,
    beta_correction,
    expand,
    missing_beta,
    parabola_gains,
    predict_modes,
    slope_at,
    solve_modes,
    theta_curvature,
    theta_information,
    theta_slope,
)

# Newton steps in which modes are looked for; the last promises less than this.
_MAX_STEPS, _FOUND = 30, 1e-6
_STEP = 1e-3


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
        self.is_own_row = own[data.category]
        self.n_effects = data.Z.shape[1]
        n_numbers = len(shape.blocks.column)
        self.is_opened, self.is_own = np.zeros((2, n_numbers), dtype=bool)
        self.is_opened[shape.numbers[opened]] = True
        self.is_own[shape.numbers[own]] = True
        self.u = np.zeros(n_numbers)

    # Where to start

    def first_table(self, parameters):
        """Return the expansion of opened cells at effects of zero, and gains.

        The latter are what effects of each scale would add to the log-likelihood of own
        clusters, about.
        """
        self.expansion = expand(self.data, self.shape, parameters, self.u)
        return np.append(
            self.expansion.flat[self.opened], self._gains(self.expansion, self.is_own)
        )

    def _gains(self, expansion, chosen):
        gains = (parabola_gains(expansion, self.shape, scale) for scale in SCALES)
        return [gain[chosen].sum() for gain in gains]

    def start(self, total, before, after):
        """Take everybody's first table; return parameters with a scale to start from.

        See :meth:`QuadratureIntegral.start`.
        """
        n_scales = len(SCALES)
        everybody = self._everybody(total[:-n_scales])
        gains = total[-n_scales:] + self._gains(everybody, self.is_opened)
        self.first = self.known = before, everybody, self.u
        theta = SCALES[int(np.argmax(gains))] * self.shape.random.start
        after = np.append(after[: len(after) - len(theta)], theta)
        self.follow(after)
        return after

    def _everybody(self, opened):
        """Return everybody's expansion of opened cells, and own ones of own cells."""
        flat = np.where(self.own[:, None], self.expansion.flat, 0.0)
        flat[self.opened] = opened.reshape(-1, flat.shape[1])
        return Expansion.from_flat(self.expansion.value, flat, self.n_effects)

    # One step

    def tabulate(self, parameters):
        """Return the expansion of opened cells around expected modes, and a Slope."""
        self.expansion, self.u, modes = self._expand(parameters, self.u)
        value = self.expansion.value.sum() + modes.gain[self.is_own].sum()
        expected = Modes(
            self.u,
            0.0,
            modes.gain,
            np.where(self.own[:, None, None], modes.inverse, self.inverse),
            np.where(self.is_own, modes.pull, 0.0),
            modes.inverses,
        )
        gradient, by_beta, inner = slope_at(self.data, self.shape, parameters, expected)
        by_theta = self.data.Z[self.is_own_row].T @ inner[self.is_own_row]
        gradient = np.append(gradient, by_theta[self.shape.random.positions])
        complete, missing = self._information(
            parameters, self.expansion, modes, self.own
        )
        complete[: len(by_beta), : len(by_beta)] = by_beta
        opened = self.expansion.flat[self.opened]
        return np.append(opened, Slope(value, 0.0, gradient, complete, missing).flat)

    def _expand(self, parameters, u):
        """Expand own rows; find the modes of own blocks on the way."""
        for _ in range(_MAX_STEPS):
            expansion = expand(self.data, self.shape, parameters, u)
            modes = self._own_modes(expansion, parameters, u)
            if not np.any(self.own) or modes.decrement < _FOUND**2:
                break
            u = np.where(self.is_own, modes.u, u)
        return expansion, u, modes

    def _own_modes(self, expansion, parameters, u):
        """Modes next to `u` of own blocks; the others stay at zero."""
        flat = np.where(self.own[:, None], expansion.flat, 0.0)
        own = Expansion.from_flat(expansion.value, flat, self.n_effects)
        return solve_modes(own, self.shape, parameters, np.where(self.is_own, u, 0.0))

    def _information(self, parameters, expansion, modes, chosen):
        """Return information on theta of some cells, and what is missing."""
        size, shape = len(parameters), self.shape
        flat = np.where(chosen[:, None], expansion.flat, 0.0)
        known = Expansion.from_flat(expansion.value, flat, self.n_effects)
        beta = slice(size - len(shape.random.start))
        theta = slice(beta.stop, size)
        complete, missing = np.zeros((2, size, size))
        complete[theta, theta] = theta_information(
            shape, parameters, modes, known.hessian
        )
        observed, cross = theta_curvature(shape, parameters, known, self.u)
        missing[beta, beta] = missing_beta(shape, parameters, modes, known.products)
        missing[beta, theta], missing[theta, beta] = -cross, -cross.T
        missing[theta, theta] = complete[theta, theta] - observed
        return complete, missing

    def read(self, total, parameters, promised):
        """Take everybody's expansion; see :meth:`QuadratureIntegral.read`."""
        size, length = len(parameters), Slope.length(len(parameters))
        slope = Slope.from_flat(total[-length:], size)
        everybody, shape, opened = (
            self._everybody(total[:-length]),
            self.shape,
            self.opened,
        )
        self.known = parameters, everybody, self.u
        if not np.any(opened):
            return slope, True
        modes = solve_modes(everybody, shape, parameters, self.u)
        by_beta = beta_correction(
            everybody, shape, parameters, modes, self.u, self.inverse
        )
        by_theta = theta_slope(everybody, shape, parameters, modes, self.u)
        gradient = np.append(by_beta[opened].sum(0), by_theta[opened].sum(0))
        complete, missing = self._information(parameters, everybody, modes, opened)
        self.u = np.where(self.is_opened, modes.u, self.u)
        # the more a step promised, the less exactly it needs to be judged
        tolerance = np.clip(0.01 * promised, 1e-6, 0.1)
        slope = Slope(
            slope.value + modes.gain[self.is_opened].sum(),
            0.0,
            slope.gradient + gradient,
            slope.complete + complete,
            slope.missing + missing,
        )
        return slope, modes.decrement < tolerance

    def follow(self, parameters):
        """Move the effects ahead to where their modes will be."""
        self.u, self.inverse = predict_modes(self.shape, *self.known, parameters)

    # The end

    def final_table(self, parameters):
        """Return expansions here and at parameters a little to either side."""
        self.trials = []
        for step in _sides(len(parameters)):
            trial = parameters + step
            u, _ = predict_modes(self.shape, *self.known, trial)
            self.trials.append((trial, *self._expand(trial, u)))
        return np.array([trial[1].flat[self.opened] for trial in self.trials])

    def conclude(self, total, parameters):
        """Return this holder's share of value, gradient and information, as a Slope."""
        size, shape = len(parameters), self.shape
        slopes, infos = [], []
        for (trial, own, u, modes), opened in zip(
            self.trials, total.reshape(len(self.trials), -1)
        ):
            self.expansion = own
            modes = solve_modes(self._everybody(opened), shape, trial, u)
            by_beta, info, inner = slope_at(self.data, shape, trial, modes)
            by_theta = (self.data.Z.T @ inner)[shape.random.positions]
            slopes.append(np.append(by_beta, by_theta))
            infos.append((own.value.sum(), info, modes))
        (value, by_beta, self.modes), (gradient, *slopes) = infos[0], slopes
        gain = self.modes.gain[self.is_own | (self.is_opened & self.leads)].sum()
        plus, minus = np.split(np.array(slopes), 2)
        observed = (minus - plus) / (2 * _STEP)
        complete = np.zeros((size, size))
        complete[: len(by_beta), : len(by_beta)] = by_beta
        missing = complete - (observed + observed.T) / 2
        return Slope(value + gain, 0.0, gradient, complete, missing)

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
    return np.concatenate([np.zeros((1, size)), steps, -steps])
