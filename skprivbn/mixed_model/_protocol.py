"""Collaborative EM: what the parties and the coordinator say to each other.

After a survey (labels, moments of the features, sizes of the categories) every
iteration sums a table of log-likelihoods of the categories at trial values of their
effects (E-step), then a gradient and a Hessian (M-step); each party updates the
parameters by itself. Categories that one party holds alone never enter the tables:
it integrates over their effects by itself. At the end what becomes known is summed
once more, exactly and under masks, at parameters rounded to fewer digits than a
ciphertext's noise could change.
"""

from dataclasses import dataclass

import numpy as np

from skprivbn.federation import PartyRefusal, check_received, operation
from skprivbn.mixed_model._likelihood import (
    Posterior,
    Rows,
    derivatives,
    log_likelihood_table,
    missing_information,
    score_table,
    symmetric,
    upper,
)
from skprivbn.mixed_model._metropolis import Chains, n_batches
from skprivbn.mixed_model._quadrature import Grid
from skprivbn.mixed_model._survey import SurveyParty
from skprivbn.mixed_model._updates import QuasiNewton, expanded_step, is_singular

__all__ = ["GLMMParty", "Release", "collect", "run_em"]

# Coarser than the noise of any backend, finer than anybody reads.
_FEW_DIGITS = 2.0**-20
_FIRST_SIGMA = 1.0
_MAX_ADAPTATIONS = 30
_MAX_REGRESSIONS = 50
# Room for log-likelihoods per row at trial effects, before sums overflow a backend.
_HEADROOM = 64


class GLMMParty(SurveyParty):
    """A data holder in the collaborative EM."""

    def schedule(self):
        yield from super().schedule()
        yield "begin"
        while self.regressing:
            yield "regress"
            yield "improve"
        yield from self._schedule_em()
        yield "final_table"
        yield "scores"
        yield "covariance"
        yield "release"

    def _schedule_em(self):
        for _ in range(self.settings["max_iter"] if self.mixed else 0):
            if self.settings["e_step"] == "metropolis":
                for _ in range(self.chains.n_batches):
                    yield "propose"
            else:
                yield "table"
            yield "derivatives"
            yield "update"
            if self.converged:
                break

    @operation(hears="mean and scale of each feature")
    def begin(self, mean, scale):
        shape = self.rows.shape[1:]
        mean, scale = check_received(mean, shape), check_received(scale, shape)
        n_rows, n_holders = self.n_rows, self.n_holders
        design = np.column_stack([np.ones(len(self.rows)), (self.rows - mean) / scale])
        self.data = Rows(design, self.y, self.category, len(n_rows))
        self.alone = (self.own_rows > 0) & (n_holders == 1)
        self.shared = n_holders > 1
        if not self.mixed:
            self.alone[:], self.shared[:] = True, False
        # The coordinator has checked this too; a party does not rely on it.
        if np.any(n_rows[self.shared] < self.settings["min_rows"]):
            raise PartyRefusal("too-few-rows")
        if np.any(n_holders[self.shared] < self.settings["min_parties"]):
            raise PartyRefusal("too-few-parties")
        # What everybody knows is told by one party only.
        self.leader = self.name == self.context.roster[0]
        self.speaks_for = self.alone | (self.shared & self.leader)
        self.unit = _sum_unit(
            self.settings["max_sum"], len(self.context.roster), n_rows.sum()
        )
        start = np.zeros(design.shape[1] + 1)
        self.optimiser = QuasiNewton(start, self.settings["tol"])
        self.grid = Grid.prior(
            len(n_rows), self.settings["n_quadrature"] if self.mixed else 1
        )
        self.chains = Chains(len(n_rows), **self.settings["chains"])
        self.n_categories = int(np.count_nonzero(n_rows))
        self.path = []
        self.converged, self.regressing, self.n_regressions = False, True, 0

    @property
    def parameters(self):
        """Current (beta, sigma), for standardised features."""
        return self.optimiser.parameters

    # The model without effects, where EM starts and below which it may not end

    @operation(tells="log-likelihood, gradient and Hessian of its rows without effects")
    def regress(self):
        nodes = np.zeros((self.data.n_categories, 1))
        posterior = Posterior(nodes, np.ones_like(nodes))
        value = log_likelihood_table(self.data, self.parameters, nodes).sum()
        gradient, information = derivatives(self.data, self.parameters, posterior)
        vector = np.concatenate([[value], gradient, upper(information)])
        return self.hide(vector * self.unit)

    @operation(tells="whether to go on")
    def improve(self, total):
        value, *rest = self.reveal(total) / self.unit
        size = len(self.parameters)
        gradient, information = np.array(rest[:size]), symmetric(rest[size:], size)
        if self.optimiser.best is None:
            # All rows weigh the same at the start: these are the features' products.
            self.collinear = is_singular(information[:-1, :-1])
        self.converged = not self.optimiser.step(value, gradient, information)
        self.n_regressions += 1
        self.regressing = not self.converged and self.n_regressions < _MAX_REGRESSIONS
        if not self.regressing:
            self.without_effects = self.optimiser.best
            if self.mixed:
                start = np.append(self.without_effects[0][:-1], _FIRST_SIGMA)
                self.optimiser = QuasiNewton(start, self.settings["tol"])
                self.converged = False
        return {"go_on": self.regressing}

    # E-step by quadrature

    @operation(
        tells="log-likelihoods of shared clusters at trial effects, and their sum"
    )
    def table(self):
        return self.hide(self._quadrature_table() * self.unit)

    def _quadrature_table(self):
        """Log-likelihoods relative to the grid's centre, and their sum there."""
        if self.mixed and np.any(self.alone):
            self._adapt_alone()
        at_centre, self.own_table = self._own_table(self.grid)
        _, log_integrals = self.grid.integrate(self.own_table)
        self.own_sum = at_centre.sum() + log_integrals[self.alone].sum()
        return np.append(self.own_table[self.shared], self.own_sum)

    def _own_table(self, grid):
        centre = grid.centre[:, None]
        at_centre = log_likelihood_table(self.data, self.parameters, centre)
        table = log_likelihood_table(self.data, self.parameters, grid.nodes)
        return at_centre, table - at_centre

    def _adapt_alone(self):
        for _ in range(_MAX_ADAPTATIONS):
            adapted, settled = self.grid.adapt(self._own_table(self.grid)[1])
            self.grid = self.grid.replace(self.alone, adapted)
            if np.all(settled[self.alone]):
                break

    def _complete(self, total):
        """Everybody's table where categories are shared, the own one elsewhere."""
        table = self.own_table.copy()
        table[self.shared] = total.reshape(-1, table.shape[1])
        return table

    # E-step by Metropolis-Hastings

    @operation(tells="log-likelihoods of shared clusters at proposed effects")
    def propose(self, total=None):
        if total is None:
            self.chains.restart()
        else:
            self._walk(total)
        candidates = self.chains.propose()
        zero = np.zeros((len(candidates), 1))
        self.own_table = log_likelihood_table(self.data, self.parameters, candidates)
        self.own_table -= log_likelihood_table(self.data, self.parameters, zero)
        return self.hide(self.own_table[self.shared] * self.unit)

    def _walk(self, total):
        self.chains.walk(self._complete(self.reveal(total) / self.unit))

    # M-step

    @operation(tells="expected gradient and Hessian of its rows, sums of its effects")
    def derivatives(self, total):
        if self.settings["e_step"] == "quadrature":
            *table, own_sums = self.reveal(total) / self.unit
            self.all_table = self._complete(np.array(table))
            self.posterior, log_integrals = self.grid.integrate(self.all_table)
            self.log_likelihood = own_sums + log_integrals[self.shared].sum()
        else:
            self._walk(total)
            self.posterior = self.chains.posterior()
        gradient, information = derivatives(self.data, self.parameters, self.posterior)
        mean, variance = self.posterior.mean(), self.posterior.variance()
        moments = [
            mean[self.speaks_for].sum(),
            (variance + mean**2)[self.speaks_for].sum(),
        ]
        vector = np.concatenate([gradient, upper(information), moments])
        return self.hide(vector * self.unit)

    @operation(tells="whether to go on")
    def update(self, total):
        values = self.reveal(total) / self.unit
        size = len(self.parameters)
        gradient, information = values[:size], symmetric(values[size:-2], size)
        if self.settings["e_step"] == "quadrature":
            self._update_by_quadrature(gradient, information)
        else:
            self.optimiser.parameters = expanded_step(
                self.parameters, gradient, information, *values[-2:] / self.n_categories
            )
            self.path.append(self.parameters)
        return {"go_on": not self.converged}

    def _update_by_quadrature(self, gradient, information):
        adapted, settled = self.grid.adapt(self.all_table)
        if not np.all(settled[self.shared]):
            self.grid = self.grid.replace(self.shared, adapted)
            return
        before, best = self.parameters, self.optimiser.best
        go_on = self.optimiser.step(self.log_likelihood, gradient, information)
        if self.optimiser.best is not best:
            self.best_grid = self.grid
        self.grid = self.grid.predict(before, self.parameters)
        self.converged = not go_on

    # What becomes known

    @operation(tells="log-likelihoods of shared clusters at the final parameters")
    def final_table(self):
        final, self.grid = self._choose_final()
        self.optimiser.parameters = _rounded(final)
        return self.hide(self._quadrature_table() * self.unit)

    def _choose_final(self):
        """Return the parameters to be known, and the grid to integrate on."""
        if self.path:
            # Averaging evens out the draws' noise; the first half is on the way.
            final = np.mean(self.path[len(self.path) // 2 :], axis=0)
            spread = np.sqrt(self.posterior.variance()).clip(1e-3, 1)
            return final, Grid(self.posterior.mean(), spread, self.grid.n_nodes)
        without, best = self.without_effects, self.optimiser.best
        if not self.mixed or best is None or best[1] < without[1]:
            return without[0], Grid.prior(len(self.n_rows), self.grid.n_nodes)
        return best[0], self.best_grid

    @operation(tells="gradients of shared clusters at trial effects")
    def scores(self, total):
        table = _rounded(self.reveal(total)[:-1] / self.unit)
        self.posterior, integrals = self.grid.integrate(self._complete(table))
        self.shared_integral = _rounded(integrals[self.shared].sum())
        nodes = self.grid.nodes
        self.own_scores = score_table(self.data, self.parameters, nodes)
        return self.hide(self.own_scores[self.shared] * self.unit)

    @operation()
    def covariance(self, total):
        scores = self.own_scores.copy()
        revealed = _rounded(self.reveal(total) / self.unit)
        scores[self.shared] = revealed.reshape(-1, *scores.shape[1:])
        self.missing = missing_information(self.own_scores, scores, self.posterior)

    @operation(
        tells="log-likelihood, gradient, information and effects at the final "
        "parameters, and these",
        exact=True,
    )
    def release(self):
        gradient, complete = derivatives(self.data, self.parameters, self.posterior)
        return self.hide(
            np.concatenate(
                [
                    self.parameters * self.leader,
                    [self.own_sum + self.shared_integral * self.leader],
                    [self.collinear * self.leader],
                    gradient,
                    upper(complete),
                    upper(self.missing),
                    *self._released_effects(),
                ]
            )
        )

    def _released_effects(self):
        """Means and standard deviations of the categories this party speaks for."""
        told = self.speaks_for.copy()
        if self.settings["release_effects"] == "shared":
            told &= self.shared
        sigma = self.parameters[-1]
        mean = sigma * self.posterior.mean()
        deviation = sigma * np.sqrt(self.posterior.variance())
        return _rounded(mean) * told, _rounded(deviation) * told


def _sum_unit(max_sum, n_parties, n_rows):
    """Return what sums are multiplied by to fit a backend; a power of two."""
    room = max_sum / (_HEADROOM * n_parties * n_rows)
    return 1.0 if room >= 1 else 2.0 ** np.floor(np.log2(room))


def _rounded(values):
    return np.rint(np.asarray(values) / _FEW_DIGITS) * _FEW_DIGITS


def run_em(federation, survey, progress):
    """Fit the model without effects, then run EM until the parties say it converged.

    Parameters
    ----------
    federation : Federation
    survey : Survey
    progress : Progress

    Returns
    -------
    n_iter : int
    converged : bool
        Whether before the last iteration allowed.
    """
    federation.call("begin", {"mean": survey.moments.mean, "scale": survey.scale})
    n_iter, go_on = 0, True
    while go_on:
        total = federation.secure_sum("regress")
        go_on = federation.agree("improve", {"total": total})
        n_iter += 1
    settings = federation.settings
    if not settings["mixed"]:
        return n_iter, n_iter < _MAX_REGRESSIONS
    for n_iter in range(1, settings["max_iter"] + 1):
        with progress.step():
            if settings["e_step"] == "metropolis":
                total = _run_chains(federation, **settings["chains"])
            else:
                total = federation.secure_sum("table")
            total = federation.secure_sum("derivatives", {"total": total})
            go_on = federation.agree("update", {"total": total})
        if not go_on:
            return n_iter, True
    return n_iter, False


def _run_chains(federation, batch_size, n_burn_in, n_draws, seed):
    """One round trip per batch of proposals; the last one's table is yet to be used."""
    total = federation.secure_sum("propose")
    for _ in range(n_batches(n_burn_in + n_draws, batch_size) - 1):
        total = federation.secure_sum("propose", {"total": total})
    return total


@dataclass(frozen=True)
class Release:
    """What the coordinator gets to know, for standardised features.

    Attributes
    ----------
    parameters : ndarray of shape (n_parameters,)
        Rounded (beta, sigma), at which the rest was computed.
    log_likelihood : float
    collinear : bool
        Whether products of the features are a singular matrix.
    gradient : ndarray of shape (n_parameters,)
    complete, missing : ndarray of shape (n_parameters, n_parameters)
        Expected complete-data information, and what not seeing the effects costs.
    effects, deviations : ndarray of shape (n_categories,)
        Posterior means and standard deviations of the random effects.
    """

    parameters: np.ndarray
    log_likelihood: float
    collinear: bool
    gradient: np.ndarray
    complete: np.ndarray
    missing: np.ndarray
    effects: np.ndarray
    deviations: np.ndarray


def collect(federation, survey):
    """Collect the result.

    Parameters
    ----------
    federation : Federation
    survey : Survey

    Returns
    -------
    release : Release
    """
    total = federation.secure_sum("final_table")
    total = federation.secure_sum("scores", {"total": total})
    federation.call("covariance", {"total": total})
    values = federation.secure_sum("release")
    size, n_categories = len(survey.scale) + 2, len(survey.n_rows)
    triangle = size * (size + 1) // 2
    lengths = [size, 2, size, triangle, triangle, n_categories, n_categories]
    parameters, (log_likelihood, collinear), gradient, complete, missing, *effects = (
        np.split(values, np.cumsum(lengths)[:-1])
    )
    return Release(
        parameters,
        float(log_likelihood),
        bool(collinear),
        gradient,
        symmetric(complete, size),
        symmetric(missing, size),
        *effects,
    )
