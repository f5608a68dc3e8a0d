"""Generalised mixed models: what the parties and the coordinator say to each other.

After a survey (labels, moments of the features, sizes of the clusters) the model
without random effects is begun. From there on every step is one sum: a table that tells
the integral over the effects, with a gradient and Hessians over all rows; each party
updates the parameters by itself. Clusters that one party holds alone never enter the
tables: it integrates over their effects by itself. At the end what becomes known is
summed once more, exactly and under masks, at parameters rounded to fewer digits than a
ciphertext's noise could change.
"""

from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np

from skprivbn.federation import operation
from skprivbn.mixed_model._design import Layout
from skprivbn.mixed_model._estimates import NO_SCALE, PERFECT
from skprivbn.mixed_model._families import family_of
from skprivbn.mixed_model._integrals import LaplaceIntegral, QuadratureIntegral
from skprivbn.mixed_model._laplace import Shape
from skprivbn.mixed_model._likelihood import (
    Posterior,
    Rows,
    derivatives,
    log_likelihood_table,
)
from skprivbn.mixed_model._metropolis import Chains, expanded_step
from skprivbn.mixed_model._quadrature import Grid
from skprivbn.mixed_model._survey import SurveyParty, sum_unit
from skprivbn.mixed_model._terms import MAX_REGRESSIONS, MixedTerms
from skprivbn.mixed_model._updates import (
    QuasiNewton,
    guess_information,
    is_singular,
)
from skprivbn.utils._triangles import symmetric, upper

# Gain below which the model without effects is good enough to compare with.
_ROUGH = 1e-7
# Scale of the effects at first, where they are drawn.
_FIRST_SCALE = 0.7


class GLMMParty(SurveyParty):
    """A data holder in the fit of a generalised mixed model."""

    terms = MixedTerms

    def schedule(self):
        yield from super().schedule()
        for _ in range(self.terms.n_regressions):
            yield "regress"
        if self.terms.drawn:
            for _ in range(self.terms.max_iter):
                for _ in range(self.terms.n_batches):
                    yield "propose"
                yield "derivatives"
        yield "step"
        while self.iterating:
            yield "step"
        yield "release"

    def sum_target(self):
        """Return derivatives by the intercept where all effects are zero."""
        family = family_of(self.terms.family, self.terms.link)
        by_eta = family.derivatives(self.weights * self.y, self.weights, self.offset)
        return np.array([by_eta.first.sum(), by_eta.weight.sum()])

    # The model without effects, where the search starts and below which it cannot end

    @operation(
        tells="log-likelihood, gradient and Hessian of its rows without effects; at "
        "last, of every shared cluster, derivatives by its effects where these are "
        "zero, and products of features and effects' columns, weighted by the model",
        hears="the census, or the last sum of all parties",
        hears_kind="plaintext aggregate",
    )
    def regress(self, total):
        if not hasattr(self, "data"):
            self._begin(self.read_census(total))
        else:
            self._improve(self.reveal(total) / self.unit)
        vector = self._sum_without_effects()
        if self._starts_next:
            first = self.integral.first_table(self._padded(self.without.parameters))
            vector = np.append(vector, first)
        return self.hide(vector * self.unit)

    @property
    def _starts_next(self):
        """Whether this is the last sum before the effects are looked at."""
        last = self.n_regressions == self.terms.n_regressions - 1
        return self.searched and last

    def _begin(self, target):
        design = self.make_design()
        terms, roster = self.terms, self.context.roster
        self.settle_clusters(opened=False)
        self.leader = self.name == roster[0]
        self.unit = sum_unit(terms.max_sum, len(roster), self.known.n_rows[0].sum())
        cells = len(self.known.n_rows[-1])
        rows = self.rows[:, : len(design.mean)]
        X = design.fixed(rows)
        Z = design.mixed(rows) if self.mixed else np.zeros((len(X), 1))
        family = family_of(terms.family, terms.link)
        self.data = Rows(
            family,
            X,
            Z,
            self.weights * self.y,
            self.weights,
            self.offset,
            self.codes[-1],
            cells,
        )
        self.n_fixed = X.shape[1]
        # without effects, theta is one scale that stays zero
        self.n_theta = len(self.random.start) if self.mixed else 1
        self.searched = self.mixed and not terms.drawn
        self.average = family.intercept(*target)
        self.integral = self._make_integral()
        start = np.zeros(self.n_fixed)
        if terms.fit_intercept:
            start[0] = family.intercept(*target)
        self.without, self.optimiser = QuasiNewton(start, _ROUGH), None
        self.regressing, self.collinear, self.n_regressions = True, False, 0
        self.converged, self.iterating, self.n_iter, self.path = False, True, 0, []
        self.off = np.inf
        self.chains = Chains(
            cells, terms.batch_size, terms.n_burn_in, terms.n_draws, terms.seed
        )

    def _make_integral(self):
        known, random = self.known, self.random
        closed = known.n_holders[0] == 1
        if not self.mixed:
            closed[:] = True
        closed = closed[known.tops[-1]]
        opened, own = ~closed, closed & (self.own_rows[-1] > 0)
        opened &= known.n_rows[-1] > 0
        if not self.terms.laplace:
            n_nodes = self.terms.n_quadrature if self.mixed else 1
            return QuadratureIntegral(
                self.data, opened, own, self.leader, n_nodes, self.average
            )
        tops = known.tops
        layout = Layout(random.factors, tuple(map(len, known.n_rows)), tuple(tops))
        parents = known.parents
        numbers = [
            every[parents[factor]]
            for factor, every in zip(random.factors, layout.numbers)
        ]
        shape = Shape(random, layout.blocks(), np.array(numbers).T)
        return LaplaceIntegral(self.data, shape, opened, own, self.leader)

    def _padded(self, beta):
        """Return parameters without effects."""
        return np.append(beta, np.zeros(self.n_theta))

    def _sum_without_effects(self):
        nodes = np.zeros((self.data.n_categories, 1))
        posterior = Posterior(nodes, np.ones_like(nodes))
        beta = np.append(self.without.parameters, 0.0)
        value = log_likelihood_table(self.data, beta, nodes).sum()
        gradient, information = derivatives(self.data, beta, posterior)
        return np.array([value, *gradient[:-1], *upper(information[:-1, :-1])])

    def _improve(self, values):
        """Take a step without effects; return what else there is in the sum."""
        size = self.n_fixed
        ends = np.cumsum([1, size, size * (size + 1) // 2])
        (value,), gradient, information, rest = np.split(values, ends)
        information = symmetric(information)
        if self.n_regressions == 0:
            # rows weigh nearly the same at the start: these are the features' products
            self.collinear = is_singular(information)
        self.n_regressions += 1
        before = self.without.parameters
        self.regressing = self.without.step(value, gradient, information)
        self.regressed = not self.regressing
        self.regressing &= self.n_regressions < MAX_REGRESSIONS
        if len(rest) and self.optimiser is None:
            before, after = self._padded(before), self._padded(self.without.parameters)
            start = self.integral.start(rest, before, after)
            self.optimiser = QuasiNewton(start, self.terms.tol)
        return rest

    @property
    def parameters(self):
        """Current (beta, theta), for standardised features."""
        if self.optimiser is None:
            return self._padded(self.without.parameters)
        return self.optimiser.parameters

    # Effects that are drawn

    @operation(tells="log-likelihoods of shared clusters at proposed effects")
    def propose(self, total):
        if self.optimiser is None:
            self._improve(self.reveal(total) / self.unit)
            start = self._padded(self.without.best[0])
            start[-1] = _FIRST_SCALE
            self.optimiser = QuasiNewton(start, self.terms.tol)
            self.chains.restart()
        elif self.chains.is_complete:
            self._expand(total)
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

    @operation(tells="expected gradient and Hessian of its rows, sums of its effects")
    def derivatives(self, total):
        self._walk(total)
        posterior = self.integral.posterior = self.chains.posterior()
        gradient, information = derivatives(self.data, self.parameters, posterior)
        mean, variance = posterior.mean(), posterior.variance()
        told = self.integral.speaks_for
        moments = [mean[told].sum(), (variance + mean**2)[told].sum()]
        vector = np.concatenate([gradient, upper(information), moments])
        return self.hide(vector * self.unit)

    def _expand(self, total):
        """Take a step of parameter-expanded EM."""
        self.n_iter += 1
        values, size = self.reveal(total) / self.unit, len(self.parameters)
        n_upper = size * (size + 1) // 2
        gradient, complete, moments = np.split(values, np.cumsum([size, n_upper]))
        n_categories = np.count_nonzero(self.known.n_rows[-1])
        self.optimiser.parameters = expanded_step(
            self.parameters, gradient, symmetric(complete), *moments / n_categories
        )
        self.path.append(self.parameters)

    # Effects that are integrated over

    @operation(
        tells="of every shared cluster log-likelihoods at trial effects and two "
        "derivatives by its effect (quadrature) or derivatives by its effects up to "
        "the third (Laplace), and products of features and effects' columns, weighted "
        "by the model; of all rows "
        "log-likelihood, gradient and Hessians, with effects and without; in the last "
        "step gradients of every shared cluster at trial effects, or its derivatives "
        "at parameters nearby; whether there is another step",
        answers={"vector": dict, "go_on": bool},
    )
    def step(self, total):
        if self.terms.drawn:
            self._expand(total)
            self.iterating = False
        else:
            self._move(self.reveal(total) / self.unit)
        if not self.iterating:
            self.final = np.rint(self._choose_final() * 2.0**20) / 2.0**20
            vector = self.integral.final_table(self.final)
        else:
            vector = np.zeros(0)
            if self.mixed:
                vector = self.integral.tabulate(self.parameters)
            if self.regressing:
                vector = np.append(self._sum_without_effects(), vector)
        return {"go_on": self.iterating, **self.hide(vector * self.unit)}

    def _move(self, values):
        """Take steps of both models, with effects and without."""
        looked_at = self.optimiser is not None
        if self.regressing or not looked_at:
            values = self._improve(values)
        if self.mixed and looked_at:
            self.n_iter += 1
            self._climb(values)
        going = self.regressing and not self._surpassed
        if self.mixed:
            going |= not self.converged
        else:
            self.converged, self.n_iter = self.regressed, self.n_regressions
        going &= self.n_iter < self.terms.max_iter and not self._separated
        self.iterating = bool(going)

    @property
    def _separated(self):
        """Whether rows are told apart without error, and coefficients only grow."""
        reached = max(s.best[1] for s in (self.without, self.optimiser) if s and s.best)
        return self.terms.target == "classes" and reached > PERFECT

    @property
    def _surpassed(self):
        """Whether the model without effects cannot become better any more."""
        if not self.mixed or self.optimiser.best is None:
            return False
        return self.optimiser.best[1] > self.without.best[1] + 2 * self.without.promised

    def _climb(self, values):
        here, promised = self.parameters, self.optimiser.promised
        slope, off = self.integral.read(values, here, promised)
        if self.converged:
            return
        best = self.optimiser.best
        if off > 1 and (best is None or off < self.off / 2):
            # look again, with the nodes where they should be
            if off < self.off:
                self.off = off
            else:
                # which they do not find: effects that are half as large are easier
                self.optimiser.parameters[self.n_fixed :] /= 2
                self.off = np.inf
            self.integral.follow(self.parameters)
            return
        self.off = np.inf
        information = guess_information(slope.complete, slope.missing)
        if self.terms.laplace:
            # towards a scale of zero the log-likelihood bends more than that
            scales = self.n_fixed + np.flatnonzero(self.random.diagonal)
            down = -slope.gradient[scales] / np.where(
                here[scales] == 0, np.inf, here[scales]
            )
            information[scales, scales] += 2 * np.maximum(down, 0)
        value = slope.value if off <= 1 else -np.inf
        go_on = self.optimiser.step(value, slope.gradient, information, slope.error)
        self.converged = not go_on
        if not self.terms.laplace and abs(self.parameters[-1]) < NO_SCALE:
            self._look_at_zero()
        if self.optimiser.best is best:
            # the way back is shorter from there
            self.integral.known = self.known_at_best
        self.known_at_best = self.integral.known
        self.integral.follow(self.parameters)

    def _look_at_zero(self):
        """End at a scale of zero, the model without effects, unless that is worse."""
        best, without = self.optimiser.best, self.without
        if without.best[1] + 2 * without.promised >= best[1]:
            self.converged = True
        elif not self.converged:
            self.optimiser.parameters = (self.parameters + best[0]) / 2

    # What becomes known

    def _choose_final(self):
        """Return the parameters to be known; place nodes where they should be there."""
        integral = self.integral
        if self.path:
            # Averaging evens out the draws' noise; the first half is on the way.
            posterior = integral.posterior
            spread = np.sqrt(posterior.variance()).clip(1e-3, 1)
            integral.grid = Grid(posterior.mean(), spread, integral.grid.n_nodes)
            return np.mean(self.path[len(self.path) // 2 :], axis=0)
        without, best = self.without.best, self.optimiser and self.optimiser.best
        if best is None or best[1] < without[1]:
            self.converged &= self.regressed
            final, known = self._padded(without[0]), integral.first
        else:
            # if the search ended by itself, with a last, small step
            self.converged &= self.optimiser.arrived
            final = self.parameters if self.converged else best[0]
            known = self.known_at_best
        if self.mixed:
            integral.known = known
            integral.follow(final)
        return final

    @operation(
        tells="log-likelihood, gradient, information and effects at the final "
        "parameters, and these",
        exact=True,
    )
    def release(self, total):
        # what ciphertexts tell is not known to more digits than these
        digits = 2.0**-40 if self.coordinator_reads else 2.0**-20
        values = np.rint(self.reveal(total) / self.unit / digits) * digits
        slope = self.integral.conclude(values, self.final)
        common = [*self.final, self.collinear, self.converged, self.n_iter]
        told = self.terms.release_effects == "all"
        effects = self.integral.effects(self.final, told)
        vector = np.concatenate(
            [
                np.array(common, dtype=float) * self.leader,
                [slope.value + self._constant(), slope.error],
                slope.gradient,
                upper(slope.complete),
                upper(slope.complete - slope.missing),
                *map(np.ravel, effects),
            ]
        )
        return self.hide(np.rint(vector / digits) * digits)

    def _constant(self):
        """What log-likelihoods left out; nothing for classes."""
        if self.terms.target == "classes":
            return 0.0
        family, seen = self.data.family, (self.data.events, self.data.trials)
        return family.constant(*seen) + family.saturated(*seen).sum()


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
    error : float
        By how much it may be off.
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
    error: float
    gradient: np.ndarray
    complete: np.ndarray
    observed: np.ndarray
    effects: np.ndarray
    effect_covariances: np.ndarray


def run_em(federation, survey, progress):
    """Fit the model without effects, then iterate until the parties say to stop.

    Parameters
    ----------
    federation : Federation
    survey : Survey
    progress : Progress

    Returns
    -------
    release : Release
    """
    terms, total = federation.terms, survey.total
    for _ in range(terms.n_regressions):
        total = federation.secure_sum("regress", {"total": total})
    if terms.drawn:
        for _ in range(terms.max_iter):
            with progress.step():
                for _ in range(terms.n_batches):
                    total = federation.secure_sum("propose", {"total": total})
                total = federation.secure_sum("derivatives", {"total": total})
        progress = None
    go_on = True
    while go_on:
        with progress.step() if progress else nullcontext():
            total, go_on = federation.sum_and_agree("step", {"total": total})
    return _read_release(federation.secure_sum("release", {"total": total}), survey)


def _read_release(values, survey):
    random, n_rows = survey.design.random, survey.census.n_rows
    # without random effects there is one of scale zero, of all rows
    n_effects, n_theta = random.n_effects or 1, len(random.start) or 1
    n_numbers = sum(len(n_rows[f]) for f in random.factors) or len(n_rows[0])
    size = len(survey.design.back_fixed) + n_theta
    triangle = size * (size + 1) // 2
    lengths = [size, 5, size, triangle, triangle, n_numbers, n_numbers * n_effects]
    parameters, scalars, gradient, *rest = np.split(values, np.cumsum(lengths)[:-1])
    collinear, converged, n_iter, value, error = scalars
    return Release(
        parameters,
        bool(collinear),
        bool(converged),
        int(n_iter),
        float(value),
        float(error),
        gradient,
        symmetric(rest[0]),
        symmetric(rest[1]),
        rest[2],
        rest[3].reshape(n_numbers, n_effects),
    )
