"""Generalised mixed models: what the parties and the coordinator say to each other.

After a survey (labels, moments of the features, sizes of the clusters) the model
without random effects is fitted. From there on every iteration sums a table that tells
the integral over the effects (E-step), then a gradient and a Hessian (M-step); each
party updates the parameters by itself. Clusters that one party holds alone never
enter the tables: it integrates over their effects by itself. At the end what becomes
known is summed once more, exactly and under masks, at parameters rounded to fewer
digits than a ciphertext's noise could change.
"""

from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np

from skprivbn.federation import PartyRefusal, operation
from skprivbn.mixed_model._blocks import Layout
from skprivbn.mixed_model._families import family_of
from skprivbn.mixed_model._integrals import LaplaceIntegral, QuadratureIntegral
from skprivbn.mixed_model._laplace import Shape
from skprivbn.mixed_model._likelihood import (
    Posterior,
    Rows,
    derivatives,
    log_likelihood_table,
)
from skprivbn.mixed_model._metropolis import Chains, n_batches
from skprivbn.mixed_model._quadrature import Grid
from skprivbn.mixed_model._survey import SurveyParty, sum_unit
from skprivbn.mixed_model._terms import MAX_REGRESSIONS, MixedTerms
from skprivbn.mixed_model._updates import (
    QuasiNewton,
    expanded_step,
    guess_information,
    is_singular,
)
from skprivbn.utils._triangles import symmetric, upper

__all__ = ["GLMMParty", "Release", "collect", "run_em"]

_FIRST_SCALE = 0.7
# Rounds before parties are asked for the first time whether to go on.
_QUIET_REGRESSIONS, _QUIET_ITERATIONS = 4, 3
# Gain below which the model without effects is good enough to start from.
_ROUGH = 1e-4


class GLMMParty(SurveyParty):
    """A data holder in the fit of a generalised mixed model."""

    terms = MixedTerms

    def schedule(self):
        yield from super().schedule()
        for _ in range(_QUIET_REGRESSIONS):
            yield "regress"
        yield "improve"
        while self.regressing:
            yield "regress"
            yield "improve"
        if self.terms.drawn:
            yield from self._schedule_chains()
        elif self.mixed:
            for _ in range(self.n_quiet):
                yield "table"
                yield "derivatives"
            yield "update"
            while self.iterating:
                yield "table"
                yield "derivatives"
                yield "update"
        yield "final_table"
        yield "curvature"
        if self.laplace:
            yield "refine"
        yield "bend"
        yield "release"

    def _schedule_chains(self):
        for _ in range(self.terms.max_iter):
            for _ in range(self.chains.n_batches):
                yield "propose"
            yield "derivatives"
            yield "update"

    # The model without effects, where EM starts and below which it may not end

    @operation(tells="log-likelihood, gradient and Hessian of its rows without effects")
    def regress(self, total=None):
        if not hasattr(self, "data"):
            self._insist(total is None)
            self._begin()
        elif total is not None:
            self._improve(total)
        nodes = np.zeros((self.data.n_categories, 1))
        posterior = Posterior(nodes, np.ones_like(nodes))
        beta = np.append(self.parameters[: self.n_fixed], 0.0)
        value = log_likelihood_table(self.data, beta, nodes).sum()
        gradient, information = derivatives(self.data, beta, posterior)
        vector = [value, *gradient[:-1], *upper(information[:-1, :-1])]
        return self.hide(np.array(vector) * self.unit)

    def _insist(self, fits):
        if not fits:
            raise PartyRefusal("refused")

    def _begin(self):
        design = self.make_design()
        terms, roster = self.terms, self.context.roster
        self.settle_clusters(opened=False)
        self.leader = self.name == roster[0]
        self.unit = sum_unit(terms.max_sum, len(roster), self._most())
        cells = len(self.known.n_rows[-1])
        X = design.fixed(self.rows)
        Z = design.mixed(self.rows) if self.mixed else np.zeros((len(X), 1))
        self.data = Rows(
            family_of(terms.family, terms.link),
            X,
            Z,
            self.weights * self.y,
            self.weights,
            self.offset,
            self.codes[-1],
            cells,
        )
        self.n_fixed = X.shape[1]
        self.laplace = terms.laplace
        self.integral = self._make_integral()
        # without effects, theta is one scale that stays zero
        n_theta = len(self.random.start) if self.mixed else 1
        self.n_quiet = min(_QUIET_ITERATIONS, terms.max_iter)
        self.n_iter, self.n_regressions, self.path = 0, 0, []
        self.converged, self.regressing, self.collinear = False, True, False
        self.optimiser = QuasiNewton(np.zeros(self.n_fixed + n_theta), _ROUGH)
        self.chains = Chains(cells, **terms.chains)

    def _most(self):
        return self.known.n_rows[0].sum()

    def _make_integral(self):
        known, random = self.known, self.random
        closed = known.n_holders[0] == 1
        if not self.mixed:
            closed[:] = True
        closed = closed[known.tops[-1]]
        opened, own = ~closed, closed & (self.own_rows[-1] > 0)
        opened &= known.n_rows[-1] > 0
        if not self.laplace:
            n_nodes = self.terms.n_quadrature if self.mixed else 1
            return QuadratureIntegral(self.data, opened, own, self.leader, n_nodes)
        tops = known.tops
        layout = Layout(random.factors, tuple(map(len, known.n_rows)), tuple(tops))
        parents = known.parents
        numbers = [
            every[parents[factor]]
            for factor, every in zip(random.factors, layout.numbers)
        ]
        shape = Shape(random, layout.blocks(), np.array(numbers).T)
        return LaplaceIntegral(self.data, shape, opened, own, self.leader)

    @operation(tells="whether to go on", answers={"go_on": bool})
    def improve(self, total):
        self._improve(total)
        self.regressing = not self.converged and self.n_regressions < MAX_REGRESSIONS
        if not self.regressing:
            self._end_regression()
        return {"go_on": self.regressing}

    def _improve(self, total):
        size = self.n_fixed
        value, *rest = self.reveal(total) / self.unit
        gradient, information = np.array(rest[:size]), symmetric(rest[size:])
        if self.n_regressions == 0:
            # All rows weigh the same at the start: these are the features' products.
            self.collinear = is_singular(information)
        self.n_regressions += 1
        n_theta = len(self.parameters) - size
        padded = np.pad(information, (0, n_theta))
        if self.n_regressions == 1 and self.terms.fit_intercept:
            best = self.parameters, value, np.pad(gradient, (0, n_theta))
            self.optimiser.begin(best, self._first_intercept(gradient, information))
            return
        self.converged = not self.optimiser.step(
            value, np.pad(gradient, (0, n_theta)), padded
        )

    def _first_intercept(self, gradient, information):
        """Return parameters with the intercept that fits the mean."""
        start = self.parameters.copy()
        start[0] = self.data.family.intercept(gradient[0], information[0, 0])
        return start

    def _end_regression(self):
        self.without_effects = self.optimiser.best
        if self.mixed:
            start = self.without_effects[0].copy()
            start[self.n_fixed :] = _FIRST_SCALE * self.random.start
            self.optimiser = QuasiNewton(start, self.terms.tol)
            self.converged, self.iterating = False, True

    @property
    def parameters(self):
        """Current (beta, theta), for standardised features."""
        return self.optimiser.parameters

    # E-step

    @operation(
        tells="log-likelihoods of shared clusters at trial effects, or their "
        "derivatives there, and a sum over all rows"
    )
    def table(self, total=None):
        if total is not None:
            self._insist(self.n_iter < self.n_quiet)
            self._update(total)
        return self.hide(self.integral.tabulate(self.parameters) * self.unit)

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
        opened = self.own_table[self.integral.opened]
        return self.hide(opened * self.unit)

    def _walk(self, total):
        table, opened = self.own_table.copy(), self.integral.opened
        table[opened] = (self.reveal(total) / self.unit).reshape(-1, table.shape[1])
        self.chains.walk(table)

    # M-step

    @operation(tells="expected gradient and Hessian of its rows, sums of its effects")
    def derivatives(self, total):
        if self.terms.drawn:
            self._walk(total)
            return self.hide(self._expanded_derivatives() * self.unit)
        values = self.reveal(total) / self.unit
        # the more a step promised, the less exactly it needs to be judged
        tolerance = np.clip(0.01 * self.optimiser.promised, 1e-6, 0.1)
        self.value, self.settled = self.integral.read(
            values, self.parameters, tolerance
        )
        slope = self.integral.slope(self.parameters)
        vector = [slope.gradient, upper(slope.complete), upper(slope.missing)]
        return self.hide(np.concatenate(vector) * self.unit)

    def _expanded_derivatives(self):
        posterior = self.integral.posterior = self.chains.posterior()
        gradient, information = derivatives(self.data, self.parameters, posterior)
        mean, variance = posterior.mean(), posterior.variance()
        told = self.integral.speaks_for
        moments = [mean[told].sum(), (variance + mean**2)[told].sum()]
        return np.concatenate([gradient, upper(information), moments])

    @operation(tells="whether to go on", answers={"go_on": bool})
    def update(self, total):
        self._update(total)
        self.iterating = not self.converged and self.n_iter < self.terms.max_iter
        return {"go_on": self.iterating}

    def _update(self, total):
        self.n_iter += 1
        values, size = self.reveal(total) / self.unit, len(self.parameters)
        n_upper = size * (size + 1) // 2
        gradient, complete, rest = np.split(values, np.cumsum([size, n_upper]))
        complete = symmetric(complete)
        if self.terms.drawn:
            n_categories = np.count_nonzero(self.known.n_rows[-1])
            self.optimiser.parameters = expanded_step(
                self.parameters, gradient, complete, *rest / n_categories
            )
            self.path.append(self.parameters)
        elif self.settled and not self.converged:
            self._climb(gradient, complete, symmetric(rest))

    def _climb(self, gradient, complete, missing):
        information = guess_information(complete, missing)
        if self.laplace:
            # towards a scale of zero the log-likelihood bends more than that
            scales = self.n_fixed + np.flatnonzero(self.random.diagonal)
            down = -gradient[scales] / np.where(
                self.parameters[scales] == 0, np.inf, self.parameters[scales]
            )
            information[scales, scales] += np.maximum(down, 0)
        before, best, state = self.parameters, self.optimiser.best, self.integral.state
        self.converged = not self.optimiser.step(self.value, gradient, information)
        if self.optimiser.best is not best:
            self.best_state = state
        self.integral.follow(before, self.parameters)

    # What becomes known

    @operation(tells="the same as before, at the final parameters")
    def final_table(self):
        final, self.integral.state = self._choose_final()
        self.optimiser.parameters = np.rint(final * 2.0**20) / 2.0**20
        return self.hide(self.integral.tabulate(self.parameters) * self.unit)

    def _choose_final(self):
        """Return the parameters to be known, and where to integrate."""
        if self.path:
            # Averaging evens out the draws' noise; the first half is on the way.
            final = np.mean(self.path[len(self.path) // 2 :], axis=0)
            posterior = self.integral.posterior
            spread = np.sqrt(posterior.variance()).clip(1e-3, 1)
            n_nodes = self.integral.grid.n_nodes
            return final, Grid(posterior.mean(), spread, n_nodes)
        without, best = self.without_effects, self.optimiser.best
        if not self.mixed or best is None or best[1] < without[1]:
            return without[0], self.integral.at_prior()
        return best[0], self.best_state

    @operation(tells="gradients of shared clusters at trial effects, or their changes")
    def curvature(self, total):
        # what ciphertexts tell is not known to more digits than these
        self.digits = 2.0**-40 if isinstance(total, np.ndarray) else 2.0**-20
        self.integral.read(self._rounded(total), self.parameters)
        vector = self.integral.curvature_table(self.parameters)
        return self.hide(vector * self.unit)

    @operation(tells="the same changes, around better modes")
    def refine(self, total):
        total = self._rounded(total).reshape(2 * len(self.parameters), -1)
        return self.hide(self.integral.refine(total) * self.unit)

    @operation()
    def bend(self, total):
        """Read the curvature: what is released is summed in another way."""
        total = self._rounded(total)
        if self.laplace:
            total = total.reshape(2 * len(self.parameters), -1)
        self.bent = self.integral.curvature(total, self.parameters)

    def _rounded(self, total):
        values = self.reveal(total) / self.unit
        return np.rint(values / self.digits) * self.digits

    @operation(
        tells="log-likelihood, gradient, information and effects at the final "
        "parameters, and these",
        exact=True,
    )
    def release(self):
        value = self.integral.own_sum + self.integral.opened_sum * self.leader
        value += self._constant()
        n_iter = self.n_iter if self.mixed else self.n_regressions
        common = [*self.parameters, self.collinear, self.converged, n_iter]
        gradient, complete, observed = self.bent
        told = self.terms.release_effects == "all"
        effects = self.integral.effects(self.parameters, told)
        vector = np.concatenate(
            [
                np.array(common, dtype=float) * self.leader,
                [value],
                gradient,
                upper(complete),
                upper(observed),
                *map(np.ravel, effects),
            ]
        )
        return self.hide(np.rint(vector / self.digits) * self.digits)

    def _constant(self):
        """What log-likelihoods left out; nothing for classes."""
        if self.terms.target == "classes":
            return 0.0
        return self.data.family.constant(self.data.events, self.data.trials)


def run_em(federation, survey, progress):
    """Fit the model without effects, then iterate until the parties say to stop.

    Parameters
    ----------
    federation : Federation
    survey : Survey
    progress : Progress
    """
    terms = federation.terms
    mixed = terms.mixed
    _regress(federation, nullcontext if mixed else progress.step)
    if terms.drawn:
        for _ in range(terms.max_iter):
            with progress.step():
                total = _run_chains(federation, **terms.chains)
                total = federation.secure_sum("derivatives", {"total": total})
                federation.agree("update", {"total": total})
    elif mixed:
        _iterate(federation, min(_QUIET_ITERATIONS, terms.max_iter), progress)


def _regress(federation, step):
    with step():
        total = federation.secure_sum("regress")
    for _ in range(_QUIET_REGRESSIONS - 1):
        with step():
            total = federation.secure_sum("regress", {"total": total})
    while federation.agree("improve", {"total": total}):
        with step():
            total = federation.secure_sum("regress")


def _iterate(federation, n_quiet, progress):
    payload, go_on, n_iter = {}, True, 0
    while go_on:
        with progress.step():
            total = federation.secure_sum("table", payload)
            total = federation.secure_sum("derivatives", {"total": total})
            n_iter += 1
            payload = {"total": total} if n_iter < n_quiet else {}
            if n_iter >= n_quiet:
                go_on = federation.agree("update", {"total": total})


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
        Rounded (beta, theta), at which the rest was computed.
    collinear : bool
        Whether products of the features are a singular matrix.
    converged : bool
    n_iter : int
    log_likelihood : float
    gradient : ndarray of shape (n_parameters,)
    complete, observed : ndarray of shape (n_parameters, n_parameters)
        Information if the effects were seen, and as they are not.
    effects : ndarray of shape (n_numbers,)
    effect_covariances : ndarray of shape (n_numbers, n_effects)
    """

    parameters: np.ndarray
    collinear: bool
    converged: bool
    n_iter: int
    log_likelihood: float
    gradient: np.ndarray
    complete: np.ndarray
    observed: np.ndarray
    effects: np.ndarray
    effect_covariances: np.ndarray


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
    terms, random = federation.terms, survey.design.random
    mixed = terms.mixed
    total = federation.secure_sum("final_table")
    total = federation.secure_sum("curvature", {"total": total})
    if terms.laplace:
        total = federation.secure_sum("refine", {"total": total})
    federation.call("bend", {"total": total})
    values = federation.secure_sum("release")
    size = len(survey.design.back_fixed) + (len(random.start) if mixed else 1)
    triangle = size * (size + 1) // 2
    n_effects = random.n_effects if mixed else 1
    n_numbers = len(survey.census.n_rows[0])
    if mixed:
        n_numbers = sum(len(survey.census.n_rows[f]) for f in random.factors)
    lengths = [size, 4, size, triangle, triangle, n_numbers, n_numbers * n_effects]
    parameters, (collinear, converged, n_iter, value), gradient, *rest = np.split(
        values, np.cumsum(lengths)[:-1]
    )
    return Release(
        parameters,
        bool(collinear),
        bool(converged),
        int(n_iter),
        float(value),
        gradient,
        symmetric(rest[0]),
        symmetric(rest[1]),
        rest[2],
        rest[3].reshape(n_numbers, n_effects),
    )
