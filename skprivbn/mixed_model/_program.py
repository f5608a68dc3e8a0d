"""Generalised mixed models: quadrature, Laplace's approximation, Metropolis-Hastings.

After a survey (labels, moments of the features, sizes of the clusters) the model
without random effects is begun. From there on every step is one sum: a table that tells
the integral over the effects, with a gradient and Hessians over all rows; each party
updates the parameters by itself. Clusters that one party holds alone never enter the
tables: it integrates over their effects by itself.
"""

from collections.abc import Generator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from skprivbn.federation import Me, Sum, TooFewRows, program
from skprivbn.federation.gate import check_shares
from skprivbn.mixed_model._clusters import Blocks, joined, weigh
from skprivbn.mixed_model._integrals import LaplaceIntegral, QuadratureIntegral, Slope
from skprivbn.mixed_model._laplace import Model
from skprivbn.mixed_model._metropolis import metropolis_em
from skprivbn.mixed_model._quadrature import Rows, regression_sums, weigh_rows
from skprivbn.mixed_model._survey import take_survey
from skprivbn.mixed_model._terms import (
    INTERCEPT,
    MAX_REGRESSIONS,
    MixedTerms,
)
from skprivbn.mixed_model._updates import (
    NO_SCALE,
    PERFECT,
    QuasiNewton,
    decorrelate,
    estimate,
    guess_information,
    vanished,
)
from skprivbn.utils._linalg import symmetric, upper


@program(MixedTerms)
def generalised_mixed_model(me: Me) -> Generator[Any, Any, dict]:
    """Maximise the likelihood, with random effects and without."""
    survey, rows, look = yield from take_survey(me, partial(first_look, me.terms))
    if rows is None:
        return {"survey": survey.to_payload()}
    search = Search(me, survey, rows, look)
    try:
        # without effects: Newton's method
        while search.n_regressions < survey.terms.n_regressions:
            vector, weights = search.regression()
            total = yield Sum(vector, "gradient and Hessian without effects", weights)
            search.improve(total)
        # with effects, which are integrated over
        while search.going:
            vector, weights = search.table()
            total = yield Sum(vector, "log-likelihoods, gradient and Hessians", weights)
            search.move(total)
    except TooFewRows as few:
        search.end_at_best(few)
    # or drawn, as in the paper
    if survey.terms.drawn:
        yield from metropolis_em(search)
    # standard errors and effects, where the search ended
    total, weights = search.final_table()
    if len(total):
        total = yield Sum(total, "gradients of clusters at the end", weights)
    vector, weights = search.conclusion(total)
    total = yield Sum(vector, "log-likelihood, information and effects", weights)
    estimates = search.estimate(total)
    return {"survey": survey.to_payload(), "estimates": vars(estimates)}


# Gain below which the model without effects is good enough to compare with.
_ROUGH = 1e-7
# Rows for each parameter that must have weight to tell whether features are collinear.
_ENOUGH = 4
# What rounding takes of a sum of log-likelihoods, for each event.
_ROUNDING = 2.0**-45
# Error of the log-likelihood from which on effects may become too wide.
_ERRS = 1e-3


def first_look(terms, rows, X, target, n_rows):
    """Return the first sums without effects, of features in rough units."""
    one = np.zeros(len(X), dtype=int)
    data = _data(terms, rows, X, np.zeros((len(X), 1)), one, 1)
    beta, typical = _start(terms, X.shape[1], target, n_rows)
    vector, weights = regression_sums(data, beta, typical)
    return vector / _unit(typical), weights


def _data(terms, rows, X, Z, category, n_categories):
    family, events, offset = terms.distribution, rows.weights * rows.y, rows.offset
    return Rows(family, X, Z, events, rows.weights, offset, category, n_categories)


def _start(terms, n_fixed, target, n_rows):
    """Return the intercept that fits the mean, and coefficients of zero.

    And sizes of residuals and working weights there, about.
    """
    family, beta = terms.distribution, np.zeros(n_fixed)
    intercept = family.intercept(*target[:2]) if terms.fit_intercept else 0.0
    beta[: int(terms.fit_intercept)] = intercept
    there, zero = family.derivatives(0.5, 1.0, np.array([intercept, 0.0])).weight
    weight = float(abs(target[1]) / n_rows * there / zero)
    return beta, (weight, weight)


def _unit(typical):
    """Return a power of two by which weights of large counts are divided."""
    return 2.0 ** np.ceil(np.log2(max(*typical, 1.0)))


def _together(parts):
    """Return vectors and how much rows count in them as one of each."""
    vectors, weights = zip(*parts)
    return np.concatenate(vectors), joined(*weights)


class Search:
    """State of the search at one party: its own rows, and the totals so far.

    Methods return the party's part of a sum, and how much its rows count there.

    Parameters
    ----------
    me : Me
    survey : Survey
    rows : OwnRows
    look : Look
    """

    def __init__(self, me, survey, rows, look):
        self.me, self.survey, terms = me, survey, survey.terms
        design, census = survey.design, survey.census
        self.terms, self.census, self.random = terms, census, terms.random
        self.n_rows, self.mixed = survey.n_samples, terms.mixed
        self.leads, self.mean_weight = me.name == me.roster[0], survey.weight
        X = design.fixed(rows.X)
        Z = design.mixed(rows.X) if self.mixed else np.zeros((len(X), 1))
        n_categories = len(census.n_rows[-1])
        self.data = _data(terms, rows, X, Z, rows.codes[-1], n_categories)
        self.n_fixed = X.shape[1]
        # without effects, theta is one scale that stays zero
        self.n_theta = len(self.random.start) if self.mixed else 1
        # of log-likelihoods, of which large counts leave little that is not rounded
        self.rounding = _ROUNDING * float(np.abs(look.target[:2]).sum())
        average = self.data.family.intercept(*look.target[:2])
        self.integral = self._make_integral(rows.counts(census)[-1], average)
        start, self.typical = _start(terms, self.n_fixed, look.target, self.n_rows)
        self.without, self.optimiser = QuasiNewton(start, _ROUGH), None
        self.regressing, self.collinear, self.n_regressions = True, False, 0
        self.converged, self.going, self.n_iter = False, True, 0
        self.off, self.few, self.scales = np.inf, False, np.zeros(0)
        # a first step, from what was looked at of features in rough units
        rough = look.rough, upper(np.outer(look.rough, look.rough))
        unit = _unit(self.typical)
        self.improve(look.total * unit * np.concatenate([np.ones(4), *rough]))

    def _make_integral(self, own_rows, average):
        census, random = self.census, self.random
        alone = (census.n_holders[0] == 1) | (not self.mixed)
        self.closed = closed = alone[census.tops[-1]]
        opened, own = ~closed, closed & (own_rows > 0)
        opened &= census.n_rows[-1] > 0
        # sums with the intercept's column are told once
        twice = None
        if self.terms.fit_intercept and INTERCEPT in random.columns:
            twice = random.columns.tolist().index(INTERCEPT)
        if not self.terms.laplace:
            n_nodes = self.terms.n_quadrature if self.mixed else 1
            return QuadratureIntegral(
                self.data, opened, own, self.leads, n_nodes, average, twice == 0
            )
        blocks = Blocks.of(random.factors, census.tops)
        numbers = [
            every[census.parents[factor]]
            for factor, every in zip(random.factors, blocks.numbers)
        ]
        model = Model(random, blocks, np.array(numbers).T)
        return LaplaceIntegral(self.data, model, opened, own, self.leads, twice)

    def padded(self, beta):
        """Return parameters without effects."""
        return np.append(beta, np.zeros(self.n_theta))

    @property
    def parameters(self):
        """Current (beta, theta), for standardised features."""
        if self.optimiser is None:
            return self.padded(self.without.parameters)
        return self.optimiser.parameters

    def weigh(self, eta, by_cluster):
        """Return how much own rows count, and sums of residuals and weights."""
        opened = self.integral.opened if by_cluster else None
        return weigh_rows(self.data, eta, self.typical, opened)

    def read_sizes(self, residuals, weight):
        """Take mean sizes of residuals and weights as units of the next ones."""
        sizes = residuals / self.n_rows or 1.0, weight / self.n_rows or 1.0
        self.typical = tuple(a * b for a, b in zip(self.typical, sizes))

    def _weighed(self, table):
        """Return sizes of residuals and weights with a table; and the weights."""
        eta = self.integral.predictors(self.parameters)
        weights, told = self.weigh(eta, by_cluster=True)
        return np.append(told[:2], table), weights

    # The model without effects, where the search starts and below which it cannot end

    def regression(self):
        """Return sums without effects, and at last a first table of the effects."""
        parts = [self._without_effects()]
        last = self.n_regressions == self.terms.n_regressions - 1
        if self.mixed and not self.terms.drawn and last:
            parts.append(self._weighed(self.integral.first_table(self.parameters)))
        return _together(parts)

    def _without_effects(self):
        return regression_sums(self.data, self.without.parameters, self.typical)

    def improve(self, total):
        """Take a step without effects; return the rest of the sum, a first table."""
        size = self.n_fixed
        ends = np.cumsum([3, 1, size, size * (size + 1) // 2])
        weighed, (value,), gradient, information, rest = np.split(total, ends)
        residuals, weight, squares = weighed
        information = symmetric(information)
        if self.n_regressions == 0:
            # rows weigh nearly the same at the start: these are the features' products
            self.turn = np.eye(size)
            nodes = np.zeros((self.data.n_categories, 1))
            self._check_shares(self.data.predictor(self.parameters, nodes), information)
            if weight**2 > _ENOUGH * size * squares:
                gradient, information = self._turn(gradient, information)
        elif self.n_regressions == 1:
            self.collinear = bool(np.any(vanished(information, self.turn)))
        if not len(rest):
            self.read_sizes(residuals, weight)
        self.n_regressions += 1
        before = self.parameters
        self.regressing = self.without.step(value, gradient, information)
        self.regressed = not self.regressing
        self.regressing &= self.n_regressions < MAX_REGRESSIONS
        if len(rest) and self.optimiser is None:
            self.read_sizes(*rest[:2])
            start = self.integral.start(rest[2:], before, self.parameters)
            self.optimiser = QuasiNewton(start, self.terms.tol)
        if self.n_regressions >= self.terms.n_regressions:
            self._decide()
        return rest

    def _check_shares(self, eta, information):
        """Refuse a coefficient that is nearly one row's, as rows are weighed there."""
        weights = self.data.derivatives(eta.reshape(-1, 1)).weight
        rows = [np.sqrt(weights) * self.data.X]
        check_shares(self.me, rows, information, self.survey.columns)

    def _turn(self, gradient, information):
        """Decorrelate nearly collinear features; return derivatives by the new ones."""
        turn = self.turn = decorrelate(information)
        if np.array_equal(turn, np.eye(len(turn))):
            return gradient, information
        # the intercept, of which alone the search begins, is not turned
        self.data = self.integral.data = replace(self.data, X=self.data.X @ turn)
        return turn.T @ gradient, turn.T @ information @ turn

    def _decide(self):
        """Decide whether to go on, with effects or without."""
        going = self.regressing and not self._surpassed
        if self.mixed:
            going |= not self.converged
        else:
            self.converged, self.n_iter = self.regressed, self.n_regressions
        going &= self.n_iter < self.terms.max_iter and not self._separated
        self.going = bool(going) and not self.terms.drawn

    @property
    def _separated(self):
        """Whether features separate the classes, so that coefficients only grow."""
        reached = max(s.best[1] for s in (self.without, self.optimiser) if s and s.best)
        return self.terms.target == "classes" and reached > PERFECT

    @property
    def _surpassed(self):
        """Whether the model without effects cannot become better any more."""
        if self.optimiser is None or self.optimiser.best is None:
            return False
        return self.optimiser.best[1] > self.without.best[1] + 2 * self.without.promised

    def end_at_best(self, few):
        """End at the best point: beyond it, too few rows have weight."""
        if self.without.best is None or (self.mixed and self.optimiser is None):
            raise few
        self.few, self.going, self.converged = True, False, False

    # Effects that are integrated over

    def table(self):
        """Return a table of opened clusters, gradient and Hessians."""
        parts = [self._without_effects()] if self.regressing else []
        if self.mixed:
            parts.append(self._weighed(self.integral.tabulate(self.parameters)))
        return _together(parts)

    def move(self, total):
        """Take steps of both models, with effects and without."""
        if self.regressing:
            total = self.improve(total)
        if self.mixed:
            self.n_iter += 1
            self.read_sizes(*total[:2])
            self._climb(total[2:])
        self._decide()

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
        if self.terms.laplace or slope.error > _ERRS:
            widest = np.full(len(here), self.terms.widest)
            widest[: self.n_fixed] = np.inf
            self.optimiser.limits = widest
            if np.any(np.abs(here) > widest):
                value = -np.inf
        error = slope.error + self.rounding
        go_on = self.optimiser.step(value, slope.gradient, information, error)
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

    # The result

    def _choose_final(self):
        """Return the parameters to be known; place nodes where they should be there."""
        if self.terms.drawn:
            return self.parameters
        integral = self.integral
        without, best = self.without.best, self.optimiser and self.optimiser.best
        if self.few and self.mixed:
            # of these, sums of clusters were looked at, too
            final, known = integral.first[0], integral.first
            if best is not None:
                final, known = best[0], self.known_at_best
        elif best is None or best[1] < without[1]:
            self.converged &= self.regressed
            final, known = self.padded(without[0]), integral.first
        else:
            # if the search ended by itself, with a last, small step
            self.converged &= self.optimiser.arrived
            final = self.parameters if self.converged else best[0]
            known = self.known_at_best
        if self.mixed:
            integral.known = known
            integral.follow(final)
        return final

    def final_table(self):
        """Return the table of opened clusters at the final parameters."""
        # parties' last bits may differ, those of what results are computed at must not
        self.final = np.rint(self._choose_final() * 2.0**20) / 2.0**20
        table = self.integral.final_table(self.final).ravel()
        eta = self.integral.predictors(self.final)
        return table, self.weigh(eta, by_cluster=True)[0]

    def conclusion(self, total):
        """Return own shares of the log-likelihood and its derivatives, and effects."""
        slope = self.integral.conclude(total, self.final)
        self.effects = self.integral.effects(self.final)
        if len(self.scales):
            each = np.column_stack([self.scales, self.scales**2])
            self.effects = np.column_stack([each * self.effects, self.scales])
        alone = self.effects[~self.integral.is_opened]
        own = self.integral.is_own[~self.integral.is_opened] & self._tells_all
        groups = [(self.data.category, self.closed & self._tells_all)]
        rows = weigh([(self.data.trials, self.mean_weight)], groups)
        eta = self.integral.predictors(self.final)
        slope = replace(slope, value=slope.value + self._constant())
        vector = np.append(slope.flat, np.where(own[:, None], alone, 0.0))
        return vector, joined(self.weigh(eta, by_cluster=False)[0], rows)

    @property
    def _tells_all(self):
        return self.mixed and self.terms.release_effects == "all"

    def _constant(self):
        """Terms that log-likelihoods left out; none for classes."""
        family, seen = self.data.family, (self.data.events, self.data.trials)
        return family.constant(*seen) + family.saturated(*seen).sum()

    def estimate(self, total):
        """Return the estimates, from the sums of all parties."""
        slope, alone = np.split(total, [Slope.length(len(self.final))])
        slope = Slope.from_flat(slope, len(self.final))
        # rows that are predicted without error have little weight by now
        information = slope.complete[: self.n_fixed, : self.n_fixed]
        self._check_shares(self.integral.predictors(self.final), information)
        effects, closed = self.effects.copy(), ~self.integral.is_opened
        effects[closed] = alone.reshape(-1, effects.shape[1])
        return estimate(
            self.survey,
            self.final,
            slope,
            effects,
            self.turn,
            collinear=self.collinear,
            few=self.few,
            converged=self.converged,
            n_iter=self.n_iter,
        )
