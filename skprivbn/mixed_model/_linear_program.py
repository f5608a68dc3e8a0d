"""Linear mixed models: one exchange of sums of products.

Parties add up products of their columns, by cluster where effects are random. From
these sums the model is known exactly: every party finds it by itself. Clusters that
one party holds alone are not opened (unless they are crossed with others). That party
integrates over their effects by itself, and for each trial of theta only a sum over all
of them is known: one round per step of Newton's method, of which there are few.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from skprivbn.federation import Me, RowWeights, Sum, program
from skprivbn.federation.gate import kish, rows_of_pairs
from skprivbn.mixed_model._design import Blocks, Layout
from skprivbn.mixed_model._estimates import estimate_linear
from skprivbn.mixed_model._linear import (
    Columns,
    LinearFit,
    ThetaSearch,
    absorb,
    pack,
    predict_effects,
    profile,
    stencil,
    unpack,
)
from skprivbn.mixed_model._survey import count_by_group, take_survey, weigh
from skprivbn.mixed_model._terms import MAX_STEPS, MixedTerms
from skprivbn.mixed_model._updates import decorrelate, vanished
from skprivbn.utils._linalg import symmetric, upper

_TOL = 1e-10


@program(MixedTerms)
def linear_mixed_model(me: Me) -> Generator[Any, Any, dict]:
    """Add up products of columns; then find theta, by Newton's method."""
    survey, rows, _ = yield from take_survey(me)
    if rows is None:
        return {"survey": survey.to_payload()}
    random, reml = survey.terms.random, survey.terms.reml
    own = _lay_out(survey, rows)
    total = yield Sum(own.sums(), "products of columns, by shared cluster", own.opened)
    turn = decorrelate(own.read(total).totals[:-1, :-1])
    if np.any(turn != np.eye(len(turn))):
        # sums of columns that are collinear have lost what rows have not
        own.data = own.data.turned(turn)
        total = yield Sum(
            own.sums(), "products of features taken apart, by cluster", own.opened
        )
    sums = own.read(total)
    own.data = own.data.divided(np.sqrt(sums.precision))
    alone = own.data.products(own.closed)
    search, n_steps, go_on = ThetaSearch(random.start, _TOL), 0, True
    while go_on and n_steps < min(survey.terms.max_iter, MAX_STEPS):
        points = stencil(search.theta)
        matrices = [random.matrix(point) for point in points]
        explained = np.zeros((len(points), 1 + len(upper(sums.totals))))
        if np.any(own.closed):
            explained = yield Sum(
                [_absorb(alone, matrix) for matrix in matrices],
                "what clusters of one party explain at trial variances",
                own.counted,
            )
            explained = explained.reshape(len(points), -1)
        fits = [
            _profile(closed + _absorb(sums.opened, matrix), sums, reml)
            for closed, matrix in zip(explained, matrices)
        ]
        fit, theta = fits[0], points[0]
        go_on = search.update(np.array([fit.log_likelihood for fit in fits]))
        n_steps += 1
    effects, covariances = predict_effects(sums.opened, random.matrix(theta), fit)
    told = own.closed & (survey.terms.release_effects == "all")
    if np.any(told):
        mine = predict_effects(alone, random.matrix(theta), fit)
        mine = [
            values[told] * own.held[told, None]
            for values in (mine[0][:, None], mine[1])
        ]
        total = yield Sum(
            np.column_stack(mine), "effects of clusters of one party", own.alone
        )
        total = total.reshape(np.count_nonzero(told), -1)
        effects[told], covariances[told] = total[:, 0], total[:, 1:]
    nothing = vanished(sums.totals[:-1, :-1], turn)
    found = LinearRelease(
        converged=not go_on,
        n_steps=n_steps,
        n_rows=sums.n_rows,
        log_weights=sums.log_weights,
        precision=sums.precision,
        theta=theta,
        fit=fit.turned_back(turn, nothing, reml),
        effects=effects,
        effect_covariances=covariances,
    )
    estimates = estimate_linear(found, survey)
    return {"survey": survey.to_payload(), "estimates": estimates.to_payload()}


@dataclass(frozen=True)
class LinearRelease:
    """What sums of all parties tell, for standardised features and target.

    Attributes
    ----------
    converged : bool
    n_steps, n_rows : int
    log_weights, precision : float
        Sum of the logarithms of weights, which were divided by `precision`.
    theta : ndarray of shape (n_theta,)
    fit : LinearFit
    effects : ndarray of shape (n_numbers,)
    effect_covariances : ndarray of shape (n_numbers, n_effects)
    """

    converged: bool
    n_steps: int
    n_rows: int
    log_weights: float
    precision: float
    theta: np.ndarray
    fit: LinearFit
    effects: np.ndarray
    effect_covariances: np.ndarray


@dataclass(frozen=True)
class _Sums:
    """Sums of products over the rows of all parties.

    Attributes
    ----------
    n_rows : int
    precision : float
        What weights are divided by, to be about one; a power of four.
    log_weights : float
        Sum of the logarithms of weights, so divided.
    totals : ndarray of shape (n_fixed + 1, n_fixed + 1)
    opened : Products
        By effect, of shared clusters.
    """

    n_rows: int
    precision: float
    log_weights: float
    totals: np.ndarray
    opened: Any


@dataclass
class _OwnColumns:
    """Columns of one party, which effects its rows have, and which stay closed.

    Attributes
    ----------
    blocks : Blocks
    factors : ndarray of int of shape (n_effects,)
    weights : ndarray of shape (n_rows,)
    data : Columns
    closed, held : ndarray of bool of shape (n_numbers,)
        Effects of clusters of one party, and those of which this party has rows.
    opened : callable
        Returns the rows behind products.
    counted, alone : RowWeights
        Rows behind sums over closed clusters, and behind each effect of these.
    """

    blocks: Blocks
    factors: np.ndarray
    weights: np.ndarray
    data: Columns
    closed: np.ndarray
    held: np.ndarray
    opened: Callable[[], RowWeights]
    counted: RowWeights
    alone: RowWeights

    def sums(self):
        """Return numbers of rows, and products in all and of opened clusters."""
        weights = self.weights[self.weights > 0]
        totals = [len(weights), np.log(weights).sum()]
        totals.extend(upper(self.data.R.T @ self.data.R))
        opened = ~self.closed
        return np.append(totals, pack(self.data.products(opened), opened, self.factors))

    def read(self, total):
        """Return the sums of all parties."""
        width = self.data.R.shape[1]
        ends = np.cumsum([2, width * (width + 1) // 2])
        (n_rows, log_weights), totals, opened = np.split(total, ends)
        # theta is relative to sigma, which has the unit of the weights: its search
        # starts at one, with weights of about one
        precision = 4.0 ** np.rint(log_weights / max(n_rows, 1) / np.log(4))
        products = unpack(
            opened / precision, self.blocks, ~self.closed, self.factors, width
        )
        return _Sums(
            int(np.rint(n_rows)),
            float(precision),
            float(log_weights - n_rows * np.log(precision)),
            symmetric(totals) / precision,
            products,
        )


def _lay_out(survey, rows):
    """Say which effects belong together, which stay closed, and whose rows are."""
    terms, census = survey.terms, survey.census
    design, factors = survey.design, terms.random.factors
    tops, alone = census.tops, census.n_holders[0] == 1
    if terms.crossed:
        tops = [np.zeros(len(n), dtype=int) for n in census.n_rows]
        alone = np.zeros(1, dtype=bool)
    layout = Layout(factors, tuple(map(len, census.n_rows)), tuple(tops))
    blocks, own = layout.blocks(), rows.counts(census)
    closed, held = np.zeros((2, len(blocks.column)), dtype=bool)
    for factor, numbers in zip(factors, layout.numbers):
        closed[numbers] = alone[tops[factor]]
        held[numbers] = own[factor] > 0
    numbers = [n[rows.codes[f]] for f, n in zip(factors, layout.numbers)]
    numbers = np.array(numbers, dtype=int).reshape(-1, len(rows.y)).T
    y = (rows.y - survey.moments.mean[-1] * terms.fit_intercept) / survey.scale[-1]
    root = np.sqrt(rows.weights)[:, None]
    R = np.column_stack([design.fixed(rows.X), y])
    groups = [(rows.codes[f], ~alone[tops[f]]) for f in range(terms.n_factors)]
    if terms.crossed:
        groups += _pairs(rows.codes, census)
    is_closed = np.zeros(len(y))
    if terms.mixed and not terms.crossed:
        is_closed = alone[tops[0]][rows.codes[0]]
    shut = [(rows.codes[f], alone[tops[f]]) for f in range(terms.n_factors)]
    return _OwnColumns(
        blocks,
        factors,
        rows.weights,
        Columns(root * design.mixed(rows.X), root * R, numbers, blocks),
        closed,
        held,
        partial(_count_products, R, rows.weights, survey.weight, groups),
        weigh([(rows.weights * is_closed, survey.weight)]),
        weigh([(rows.weights * is_closed, survey.weight)], shut),
    )


def _count_products(R, weights, typical, groups):
    """Return how many rows count in products of columns, in all and by cluster."""
    cells = kish(rows_of_pairs(R, weights)), count_by_group(R, weights, groups)
    return weigh([(weights, typical)], groups)._replace(cells=np.concatenate(cells))


def _pairs(codes, census):
    """Yield the pairs of crossed clusters: sums over the rows of each are opened."""
    sizes = [len(n) for n in census.n_rows]
    for i, j in combinations(range(len(sizes)), 2):
        every = np.ones(sizes[i] * sizes[j], dtype=bool)
        yield codes[i] * sizes[j] + codes[j], every


def _absorb(products, matrix):
    """Return what effects take away from products of [X y], as one vector."""
    log_determinant, explained = absorb(products, matrix)
    return np.append(log_determinant, upper(explained))


def _profile(absorbed, sums, reml):
    explained = symmetric(absorbed[1:])
    return profile(absorbed[0], explained, sums.totals, sums.n_rows, reml)
