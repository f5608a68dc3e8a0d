"""Linear mixed models: one exchange of sums of products.

Parties add up products of their columns, by cluster where effects are random. From
these sums the model is known exactly: every party finds it by itself. Clusters that
one party holds alone are not opened (unless they are crossed with others). That party
integrates over their effects by itself, and for each trial of theta only a sum over all
of them is known: one round per step of Newton's method, of which there are few.
"""

from dataclasses import dataclass

import numpy as np

from skprivbn.exceptions import PartyError
from skprivbn.federation import PartyRefusal, operation
from skprivbn.mixed_model._design import Layout
from skprivbn.mixed_model._linear import (
    Columns,
    ThetaSearch,
    absorb,
    pack,
    predict_effects,
    profile,
    stencil,
    unpack,
)
from skprivbn.mixed_model._survey import SurveyParty, scale_of, sum_unit
from skprivbn.mixed_model._terms import MAX_STEPS, MixedTerms
from skprivbn.utils._triangles import symmetric, upper

_TOL = 1e-10


class LinearParty(SurveyParty):
    """A data holder in the fit of a linear mixed model."""

    terms = MixedTerms

    def schedule(self):
        yield from super().schedule()
        if self.terms.crosses_slopes:
            yield "pairs"
        yield "products"
        yield "solve"
        while self.searching:
            yield "trials"
            yield "search"
        yield "release"

    @operation(
        tells="its number of rows of every pair of clusters",
        hears="the census",
        hears_kind="plaintext aggregate",
        parties_only=True,
    )
    def pairs(self, total):
        """Count rows of pairs: of a slope, sums over the rows of a pair are opened."""
        self.read_census(total)
        self.settle_clusters(opened=True)
        sizes = [len(rows) for rows in self.known.n_rows]
        pairs = [
            (self.codes[i] * sizes[j] + self.codes[j], a * sizes[j])
            for i, a in enumerate(sizes)
            for j in range(i)
        ]
        alone = len(self.context.roster) == 1
        if not alone and any(np.any(self.weighs_on_few(*pair)) for pair in pairs):
            raise PartyRefusal("too-few-rows")
        counts = [np.bincount(codes, minlength=size) for codes, size in pairs]
        return self.hide(np.concatenate(counts))

    def _check_pairs(self, counts):
        """Refuse pairs of clusters with so few rows that sums would tell of them."""
        few = (counts > 0) & (counts < self.terms.min_rows)
        if len(self.context.roster) > 1 and np.any(few):
            raise PartyRefusal("too-few-rows")

    @operation(
        tells="sums of products of features and target: in all, and of the random "
        "effects' columns with all others in every cluster held by several parties"
    )
    def products(self, total):
        crossed = self.terms.crossed
        if self.terms.crosses_slopes:
            self._check_pairs(self.reveal(total))
        else:
            self.read_census(total)
            self.settle_clusters(opened=crossed)
        self.leader = self.name == self.context.roster[0]
        n_rows = self.known.n_rows[0].sum()
        self.unit = sum_unit(self.terms.max_sum, len(self.context.roster), n_rows)
        self.blocks, self.closed, self.data = self._lay_out(crossed)
        self.reml = self.terms.reml
        weighted = self.weights > 0
        totals = [np.count_nonzero(weighted), np.log(self.weights[weighted]).sum()]
        totals.extend(upper(self.data.R.T @ self.data.R))
        opened = pack(
            self.data.products(~self.closed), ~self.closed, self.random.factors
        )
        return self.hide(np.append(totals, opened) * self.unit)

    def _lay_out(self, crossed):
        """Say which effects belong together, which stay closed, and whose rows are."""
        known, factors = self.known, self.random.factors
        tops, alone = known.tops, known.n_holders[0] == 1
        if crossed:
            tops = [np.zeros(len(rows), dtype=int) for rows in known.n_rows]
            alone = np.zeros(1, dtype=bool)
        layout = Layout(factors, tuple(map(len, known.n_rows)), tuple(tops))
        blocks = layout.blocks()
        closed = np.zeros(len(blocks.column), dtype=bool)
        self.held = closed.copy()
        for factor, numbers in zip(factors, layout.numbers):
            closed[numbers] = alone[tops[factor]]
            self.held[numbers] = self.own_rows[factor] > 0
        numbers = [n[self.codes[f]] for f, n in zip(factors, layout.numbers)]
        numbers = np.array(numbers, dtype=int).reshape(-1, len(self.rows)).T
        design, mean = self.make_design(), self.moments.mean[-1]
        X, y = self.rows[:, :-1], self.rows[:, -1] - mean * design.fit_intercept
        root = np.sqrt(self.weights)[:, None]
        R = np.column_stack([design.fixed(X), y / scale_of(self.moments)[-1]])
        return (
            blocks,
            closed,
            Columns(root * design.mixed(X), root * R, numbers, blocks),
        )

    @operation(
        tells="whether there are closed clusters, so that theta is searched for",
        answers={"go_on": bool},
    )
    def solve(self, total):
        # what ciphertexts tell is not known to more digits than these
        self.digits = 2.0**-40 if self.coordinator_reads else 2.0**-20
        values = self.reveal(total) / self.unit
        width = self.data.R.shape[1]
        ends = np.cumsum([2, width * (width + 1) // 2])
        (n_rows, self.log_weights), totals, opened = np.split(values, ends)
        self.n_rows, self.totals = int(round(n_rows)), symmetric(totals)
        self.opened = unpack(
            opened, self.blocks, ~self.closed, self.random.factors, width
        )
        self.theta = ThetaSearch(self.random.start, _TOL)
        self.n_steps, self.searching = 0, bool(np.any(self.closed))
        if not self.searching:
            nothing = np.zeros((len(stencil(self.theta.theta)), 1 + len(totals)))
            while self._improve(nothing):
                pass
        return {"go_on": self.searching}

    @operation(
        tells="what its own clusters explain at trial values of theta, summed over them"
    )
    def trials(self):
        own = self.data.products(self.closed)
        values = [self._absorb(own, point) for point in stencil(self.theta.theta)]
        return self.hide(np.array(values) * self.unit)

    @operation(tells="whether to go on", answers={"go_on": bool})
    def search(self, total):
        n_points = len(stencil(self.theta.theta))
        closed = self.reveal(total).reshape(n_points, -1) / self.unit
        self.searching = self._improve(closed)
        return {"go_on": self.searching}

    def _improve(self, closed):
        """Take a step of theta, given what closed clusters explain around it."""
        points = stencil(self.theta.theta)
        fits = [
            self._profile(own + self._absorb(self.opened, point))
            for own, point in zip(closed, points)
        ]
        self.fit, self.fitted_theta = fits[0], points[0]
        self.n_steps += 1
        go_on = self.theta.update(np.array([fit.log_likelihood for fit in fits]))
        self.converged = not go_on
        return go_on and self.n_steps < MAX_STEPS

    def _absorb(self, products, theta):
        if not len(self.blocks.column):
            return np.zeros(1 + len(upper(self.totals)))
        log_determinant, explained = absorb(products, self.random.matrix(theta))
        return np.append(log_determinant, upper(explained))

    def _profile(self, absorbed):
        explained = symmetric(absorbed[1:])
        return profile(absorbed[0], explained, self.totals, self.n_rows, self.reml)

    @operation(
        tells="the model, and means and covariances of the random effects", exact=True
    )
    def release(self):
        fit = self.fit
        model = np.concatenate(
            [
                [self.converged, self.n_steps, self.n_rows, fit.determined],
                [fit.log_likelihood + self.log_weights / 2, fit.sigma],
                self.fitted_theta,
                fit.beta,
                upper(fit.covariance),
            ]
        )
        told = np.concatenate([model * self.leader, *self._released_effects()])
        return self.hide(np.rint(told / self.digits) * self.digits)

    def _released_effects(self):
        """Effects of opened clusters, told by one party, and of own closed ones."""
        matrix = self.random.matrix(self.fitted_theta)
        own = self.closed & self.held & (self.terms.release_effects == "all")
        for products, mine in (
            (self.opened, ~self.closed & self.leader),
            (self.data.products(self.closed), own),
        ):
            effects, covariances = predict_effects(products, matrix, self.fit)
            yield effects * mine
            yield (covariances * mine[:, None]).ravel()


@dataclass(frozen=True)
class LinearRelease:
    """What the coordinator gets to know, for standardised features and target.

    Attributes
    ----------
    converged : bool
    n_steps, n_rows : int
    determined : bool
    log_likelihood, sigma : float
    theta : ndarray of shape (n_theta,)
    beta : ndarray of shape (n_fixed,)
    covariance : ndarray of shape (n_fixed, n_fixed)
    effects : ndarray of shape (n_numbers,)
    effect_covariances : ndarray of shape (n_numbers, n_effects)
    """

    converged: bool
    n_steps: int
    n_rows: int
    determined: bool
    log_likelihood: float
    sigma: float
    theta: np.ndarray
    beta: np.ndarray
    covariance: np.ndarray
    effects: np.ndarray
    effect_covariances: np.ndarray


def _sum_products(federation, total):
    try:
        return federation.secure_sum("products", {"total": total})
    except PartyError as error:
        if not federation.terms.crosses_slopes or error.code != "too-few-rows":
            raise
        raise ValueError(
            "some pairs of clusters have fewer rows in common than min_rows="
            f"{federation.terms.min_rows}: sums over so few of a feature with a random "
            "slope would tell what the rows are; leave slopes out, or lower the limit "
            "knowingly"
        ) from error


def run_linear(federation, survey, progress):
    """Fit the model and collect the result.

    Parameters
    ----------
    federation : Federation
        Opened with :class:`LinearParty`.
    survey : Survey
    progress : Progress

    Returns
    -------
    release : LinearRelease
    """
    with progress.step():
        total = survey.total
        if federation.terms.crosses_slopes:
            total = federation.secure_sum("pairs", {"total": total})
        total = _sum_products(federation, total)
        go_on = federation.agree("solve", {"total": total})
    while go_on:
        with progress.step():
            total = federation.secure_sum("trials")
            go_on = federation.agree("search", {"total": total})
    values = federation.secure_sum("release")
    random, n_fixed = survey.design.random, len(survey.design.back_fixed)
    n_theta, n_effects = len(random.start), random.n_effects
    n_numbers = sum(len(survey.census.n_rows[f]) for f in random.factors)
    n_covariances = n_numbers * n_effects
    sizes = [6, n_theta, n_fixed, n_fixed * (n_fixed + 1) // 2]
    sizes += [n_numbers, n_covariances, n_numbers, n_covariances]
    numbers, theta, beta, covariance, *effects = np.split(values, np.cumsum(sizes)[:-1])
    return LinearRelease(
        bool(numbers[0]),
        int(numbers[1]),
        int(numbers[2]),
        bool(numbers[3]),
        *map(float, numbers[4:]),
        theta,
        beta,
        symmetric(covariance),
        effects[0] + effects[2],
        (effects[1] + effects[3]).reshape(n_numbers, n_effects),
    )
