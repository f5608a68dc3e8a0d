"""One holder's part in integrating over the random effects.

:class:`QuadratureIntegral` is for one effect per cluster; its twin for any number,
nested ones included, is :class:`LaplaceIntegral`, with the same methods. A holder
tabulates what its rows say about the effects of clusters that several parties hold. In
the same sum it tells the gradient, for posteriors as they are expected to be: parties
can wait for the sum of the tables, see by how much the posteriors differ from that, and
correct the gradient for it, each on its own. Clusters that it holds alone are
integrated over at once, and enter totals only.
"""

from dataclasses import dataclass, replace

import numpy as np

from skprivbn.mixed_model._laplace import (
    Expansion,
    Modes,
    beta_correction,
    expand,
    information,
    parabola_gains,
    predict_modes,
    predictors,
    slope_at,
    solve_modes,
    theta_slope,
)
from skprivbn.mixed_model._quadrature import (
    Curves,
    Grid,
    derivatives,
    expansion_table,
    find_modes,
    log_likelihood_table,
    missing_information,
    score_table,
)
from skprivbn.mixed_model._updates import STEP, stencil
from skprivbn.utils._linalg import symmetric, upper
from skprivbn.utils._memoise import memoise

#: scales of the effects that a search may start from
SCALES = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.3, 1.7, 2.2, 3.0, 4.5)
#: public where no party has own cells
predict_once = memoise(predict_modes)
# How far off nodes may be, in the units of Grid.distance: at last, and on the way.
_GOOD, _GOOD_ENOUGH = 0.25, 0.75
# How far where log-likelihoods are off by more, as that depends on where nodes are.
_VERY_GOOD, _ROUGH = 0.01, 1e-5
# Below, effects are too small to tell how log-likelihoods depend on them.
_NO_SCALE = 1e-3
# Newton steps in which modes are looked for; the last promises less than this.
_MAX_STEPS, _FOUND = 30, 1e-6


@dataclass(frozen=True)
class Slope:
    """Log-likelihood and its derivatives, or a holder's share; shares add up.

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

    def __add__(self, other):
        pairs = zip(vars(self).values(), vars(other).values())
        return Slope(*(one + another for one, another in pairs))

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
    twice : bool
        Whether the first column of the fixed effects is that of the random ones.

    Attributes
    ----------
    known : tuple of ndarray and Curves
        Parameters, and how opened clusters depend on their effects there.
    first : tuple of ndarray and Curves
        The same without effects.
    """

    known = first = None

    def __init__(self, data, opened, own, leads, n_nodes, predictor, twice):
        self.data, self.predictor, self.twice = data, predictor, twice
        self.opened, self.own = self.is_opened, self.is_own = opened, own
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

    def predictors(self, parameters):
        """Return the predictors of own rows at the centres of the nodes."""
        return self.data.predictor(parameters, self.grid.centre[:, None])[:, 0]

    def follow(self, parameters):
        """Place nodes of opened clusters where they should be at other parameters."""
        before, curves = self.known
        shift = curves.shares @ (parameters - before)[:-1]
        grid, table = curves.place(parameters[-1], shift[:, None], self.grid.n_nodes)
        self.expected = grid.integrate(table)[0].weights
        self.grid = self.grid.replace(self.opened, grid)

    def tabulate(self, parameters):
        """Return a table of opened clusters, and this holder's :class:`Slope`.

        The table has log-likelihoods at the nodes, relative to the centre, and an
        expansion around that.
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
        off : float
            How far nodes were from where they should be: too far if more than 1.
        """
        length = Slope.length(len(parameters))
        slope = Slope.from_flat(total[-length:], len(parameters))
        grid, sigma = self.grid[self.opened], parameters[-1]
        if not len(grid.centre):
            return slope, 0.0
        told = total[:-length].reshape(len(grid.centre), -1)
        table, expansion = np.split(told, [grid.n_nodes], axis=1)
        if abs(sigma) < _NO_SCALE:
            curves = self._like_rows(expansion)
        else:
            curves = Curves.through(grid, sigma, table, expansion)
        self.known = parameters, curves
        by_effect, bend, *_ = expansion.T
        distance = grid.distance(sigma * by_effect - grid.centre, 1 + sigma**2 * bend)
        slope = self._corrected(slope, grid, table, sigma)
        limit = _GOOD if promised < 0.01 else _GOOD_ENOUGH
        if slope.error > _ROUGH and (limit == _GOOD or abs(sigma) > SCALES[-1]):
            limit = _VERY_GOOD
        return slope, distance.max() / limit

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
        value, error = log_integrals.sum(), self._error(self.opened, table)
        return slope + Slope(value, error, surprise, 0.0, missing)

    # The end

    def final_table(self, parameters):
        """Return what is known of opened clusters, and gradients at their nodes."""
        self.at_centre, self.told = self._tell(parameters)
        self.scores = score_table(self.data, parameters, self.grid.nodes)
        scores = self.scores[..., self.twice :].reshape(len(self.told), -1)
        return np.column_stack([self.told, scores])[self.opened]

    def conclude(self, total, parameters):
        """Return this holder's share of value, gradient and information, as a Slope.

        Here what is missing is exact, so that the observed information is known.
        """
        told, scores, chosen = self.told, self.scores.copy(), self.speaks_for
        width, (_, n_nodes, size) = told.shape[1], scores.shape
        opened = total.reshape(-1, width + n_nodes * (size - self.twice))
        told[self.opened] = opened[:, :width]
        opened = opened[:, width:].reshape(-1, n_nodes, size - self.twice)
        scores[self.opened, :, self.twice :] = opened
        if self.twice:
            scores[self.opened, :, 0] = opened[:, :, -1]
        table = told[:, :n_nodes]
        self.posterior, log_integrals = self.grid.integrate(table)
        value = self.at_centre.sum() + log_integrals[chosen].sum()
        gradient, complete = derivatives(self.data, parameters, self.posterior)
        error = self._error(chosen, table[chosen])
        missing = missing_information(self.scores, scores, self.posterior)
        return Slope(value, error, gradient, complete, missing)

    def effects(self, parameters):
        """Return means of the effects, and their variances."""
        sigma, mean = parameters[-1], self.posterior.mean()
        return np.column_stack([sigma * mean, sigma**2 * self.posterior.variance()])


def _gain(zero, scale):
    """Return what effects of a scale add to log-likelihoods, from parabolas at zero."""
    gradient, curvature = zero[:, 0], 1 + scale**2 * zero[:, 1]
    return ((scale * gradient) ** 2 / curvature - np.log(curvature)) / 2


class LaplaceIntegral:
    """Laplace's approximation over blocks of effects.

    Parameters
    ----------
    data : Rows
        Of this holder.
    model : Model
        Without parameters.
    opened, own : ndarray of bool of shape (n_cells,)
        Cells of which sums are known, and those in blocks of this holder alone.
    leads : bool
        Whether this holder speaks for the cells that are opened.
    twice : int or None
        Which random effect has the first column of the fixed effects, if one has.
    """

    def __init__(self, data, model, opened, own, leads, twice):
        self.data, self.model = data, model
        self.opened, self.own, self.leads = opened, own, leads
        self.is_own_row = own[data.category]
        self.n_effects = data.Z.shape[1]
        n_numbers = len(model.blocks.column)
        self.is_opened, self.is_own = np.zeros((2, n_numbers), dtype=bool)
        self._find_told(data.X.shape[1], twice)
        self.is_opened[model.numbers[opened]] = True
        self.is_own[model.numbers[own]] = True
        self.u = np.zeros(n_numbers)

    def _find_told(self, n_fixed, twice):
        """Find which columns of expansions are told: some products are the Hessian."""
        q = self.n_effects
        above = {pair: q + i for i, pair in enumerate(zip(*np.triu_indices(q)))}
        first = q + len(above) + q * (q + 1) * (q + 2) // 6
        self.is_told, self.same_as = np.ones(first + q * n_fixed, dtype=bool), []
        if twice is not None:
            self.is_told[first::n_fixed] = False
            self.same_as = [above[tuple(sorted((i, twice)))] for i in range(q)]

    def _tell(self, expansion):
        """Return what is told of the expansion of opened cells."""
        return expansion.flat[self.opened][:, self.is_told]

    # Where to start

    def first_table(self, parameters):
        """Return the expansion of opened cells at effects of zero, and gains.

        The latter are what effects of each scale would add to the log-likelihood of own
        clusters, about.
        """
        self.expansion = expand(self.data, self.model.at(parameters), self.u)
        return np.append(
            self._tell(self.expansion), self._gains(self.expansion, self.is_own)
        )

    def _gains(self, expansion, chosen):
        gains = (parabola_gains(expansion, self.model, scale) for scale in SCALES)
        return [gain[chosen].sum() for gain in gains]

    def start(self, total, before, after):
        """Take everybody's first table; return parameters with a scale to start from.

        See :meth:`QuadratureIntegral.start`.
        """
        n_scales = len(SCALES)
        everybody = self._everybody(total[:-n_scales], self.expansion)
        gains = total[-n_scales:] + self._gains(everybody, self.is_opened)
        self.first = self.known = before, everybody, self.u
        theta = SCALES[int(np.argmax(gains))] * self.model.random.start
        after = np.append(after[: len(after) - len(theta)], theta)
        self.follow(after)
        return after

    def _everybody(self, opened, own):
        """Return everybody's expansion of opened cells, and own ones of own cells."""
        flat = np.where(self.own[:, None], own.flat, 0.0)
        everybody = np.zeros((np.count_nonzero(self.opened), flat.shape[1]))
        everybody[:, self.is_told] = opened.reshape(-1, np.count_nonzero(self.is_told))
        everybody[:, ~self.is_told] = everybody[:, self.same_as]
        flat[self.opened] = everybody
        # without values, it is the same at all parties, as long as none has own cells
        return Expansion.from_flat(np.zeros(len(flat)), flat, self.n_effects)

    # One step

    def predictors(self, parameters):
        """Return the predictors of own rows at the effects that are expanded around."""
        return predictors(self.data, self.model.at(parameters), self.u)

    def tabulate(self, parameters):
        """Return the expansion of opened cells around expected modes, and a Slope."""
        model = self.model.at(parameters)
        self.expansion, self.u, modes = self._expand(model, self.u)
        value = self.expansion.value.sum() + modes.gain[self.is_own].sum()
        expected = replace(
            modes,
            u=self.u,
            inverse=np.where(self.own[:, None, None], modes.inverse, self.inverse),
            pull=np.where(self.is_own, modes.pull, 0.0),
        )
        gradient, by_beta, inner = slope_at(self.data, model, expected)
        by_theta = self.data.Z[self.is_own_row].T @ inner[self.is_own_row]
        gradient = np.append(gradient, by_theta[model.random.positions])
        complete, missing = np.zeros((2, len(parameters), len(parameters)))
        if np.any(self.own):
            mine = self.expansion.only(self.own)
            complete, missing = information(mine, model, modes, self.u)
        complete[: len(by_beta), : len(by_beta)] = by_beta
        opened = self._tell(self.expansion)
        return np.append(opened, Slope(value, 0.0, gradient, complete, missing).flat)

    def _expand(self, model, u):
        """Expand own rows; find the modes of own blocks on the way."""
        for _ in range(_MAX_STEPS):
            expansion = expand(self.data, model, u)
            if not np.any(self.own):
                return expansion, u, Modes.at(u, *model.numbers.shape)
            # modes of the other blocks stay at zero
            at = np.where(self.is_own, u, 0.0)
            modes = solve_modes(expansion.only(self.own), model, at)
            if modes.decrement < _FOUND**2:
                break
            u = np.where(self.is_own, modes.u, u)
        return expansion, u, modes

    def read(self, total, parameters, promised):
        """Take everybody's expansion; see :meth:`QuadratureIntegral.read`."""
        size, length = len(parameters), Slope.length(len(parameters))
        slope = Slope.from_flat(total[-length:], size)
        everybody = self._everybody(total[:-length], self.expansion)
        self.known = parameters, everybody, self.u
        if not np.any(self.opened):
            return slope, 0.0
        # what a party knows of its own clusters must not decide where the search goes
        shared = self.opened[:, None, None]
        u, decrement, gain, *found = look(
            everybody.only(self.opened),
            self.model.at(parameters),
            np.where(self.is_opened, self.u, 0.0),
            np.where(shared, self.inverse, 0.0),
            self.opened,
        )
        self.u = np.where(self.is_opened, u, self.u)
        # the more a step promised, the less exactly it needs to be judged
        tolerance = np.clip(0.01 * promised, 1e-6, 0.1)
        slope += Slope(gain[self.is_opened].sum(), 0.0, *found)
        return slope, np.sqrt(decrement / tolerance)

    def follow(self, parameters):
        """Move the effects ahead to where their modes will be."""
        before, *around = self.known
        steps = self.model.at(before), *around, self.model.at(parameters)
        self.u, self.inverse = predict_once(*steps)

    # The end

    def final_table(self, parameters):
        """Return expansions here and at parameters a little to either side."""
        points = stencil(parameters)[: 1 + 2 * len(parameters)]
        models, (before, *around) = tuple(map(self.model.at, points)), self.known
        starts = predict_each(self.model.at(before), *around, models)
        self.trials = [(m, *self._expand(m, u)) for m, u in zip(models, starts)]
        return np.array([self._tell(trial[1]) for trial in self.trials])

    def conclude(self, total, parameters):
        """Return this holder's share of value, gradient and information, as a Slope."""
        size, slopes, infos = len(parameters), [], []
        models, expansions, starts, _ = zip(*self.trials)
        tables = total.reshape(len(models), -1)
        everybody = list(map(self._everybody, tables, expansions))
        found = solve_each(everybody, models, starts)
        for model, own, modes in zip(models, expansions, found):
            by_beta, info, inner = slope_at(self.data, model, modes)
            by_theta = (self.data.Z.T @ inner)[model.random.positions]
            slopes.append(np.append(by_beta, by_theta))
            infos.append((own.value.sum(), info, modes))
        (value, by_beta, self.modes), (gradient, *slopes) = infos[0], slopes
        gain = self.modes.gain[self.is_own | (self.is_opened & self.leads)].sum()
        plus, minus = np.split(np.array(slopes), 2)
        observed = (minus - plus) / (2 * STEP)
        complete = np.zeros((size, size))
        complete[: len(by_beta), : len(by_beta)] = by_beta
        missing = complete - (observed + observed.T) / 2
        return Slope(value + gain, 0.0, gradient, complete, missing)

    def effects(self, parameters):
        """Return modes of the effects, and their covariances."""
        blocks, spread = self.model.blocks, self.model.at(parameters).matrix
        means, covariances = np.zeros(len(blocks.column)), []
        for members, factor, inverse in zip(
            blocks.members, blocks.spread(spread), self.modes.inverses
        ):
            means[members] = (factor @ self.modes.u[members][..., None])[..., 0]
            covariances.append(factor @ inverse @ np.swapaxes(factor, 1, 2))
        covariances = blocks.within_levels(covariances, self.n_effects)
        return np.column_stack([means, covariances])


@memoise
def look(expansion, model, u, inverse, opened):
    """Find the modes of opened blocks, and what these add to the derivatives.

    Parameters
    ----------
    expansion : Expansion
        Everybody's, zero in other cells.
    model : Model
    u, inverse : ndarray
        What was expected of the modes; zero elsewhere.
    opened : ndarray of bool of shape (n_cells,)

    Returns
    -------
    u, decrement, gain
        Of :class:`Modes`.
    gradient : ndarray of shape (n_parameters,)
    complete, missing : ndarray of shape (n_parameters, n_parameters)
    """
    modes = solve_modes(expansion, model, u)
    by_beta = beta_correction(expansion, model, modes, u, inverse)
    by_theta = theta_slope(expansion, model, modes, u)
    gradient = np.append(by_beta[opened].sum(0), by_theta[opened].sum(0))
    found = information(expansion, model, modes, u)
    return modes.u, modes.decrement, modes.gain, gradient, *found


@memoise
def predict_each(before, expansion, u, models):
    """Return where the modes should be at each of some parameters."""
    return tuple(predict_modes(before, expansion, u, after)[0] for after in models)


@memoise
def solve_each(expansions, models, starts):
    """Return the modes next to where expansions are, at each of some parameters."""
    return tuple(map(solve_modes, expansions, models, starts))
