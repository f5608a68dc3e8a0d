"""Linear mixed models: one exchange of sums of products.

With y = X beta + Z b + e, b = sigma Lambda u, u ~ N(0, I) and e ~ N(0, sigma^2), the
log-likelihood depends on the rows through sums of products of [Z X y] only. Beta and
sigma are known given theta, the entries of Lambda (Bates et al. 2015).

Parties add up products of their columns, by cluster where effects are random. From
these sums the model is known exactly: every party finds it by itself. Clusters that
one party holds alone are not opened (unless they are crossed with others). That party
integrates over their effects by itself, and for each trial of theta only a sum over all
of them is known: one round per step of Newton's method, of which there are few.
"""

from collections.abc import Generator
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from skprivbn.federation import Me, Sum, program
from skprivbn.federation.gate import check_shares, rows_of_pairs
from skprivbn.mixed_model._clusters import Blocks, sides_by_group, weigh
from skprivbn.mixed_model._survey import take_survey
from skprivbn.mixed_model._terms import MAX_STEPS, MixedTerms
from skprivbn.mixed_model._updates import (
    STEP,
    QuasiNewton,
    decorrelate,
    estimate_linear,
    guess_information,
    least_coefficients,
    second_derivatives,
    stencil,
    vanished,
)
from skprivbn.utils._linalg import symmetric, upper
from skprivbn.utils._memoise import ask, asking_others, memoise

# Gain at which the search ends.
_TOL = 1e-10


@program(MixedTerms)
def linear_mixed_model(me: Me) -> Generator[Any, Any, dict]:
    """Add up products of columns; then find theta, by Newton's method."""
    survey, rows, _ = yield from take_survey(me)
    if rows is None:
        return {"survey": survey.to_payload()}
    random, reml = survey.terms.random, survey.terms.reml
    # products of columns, of which nearly collinear ones are taken apart first
    own = _OwnColumns(survey, rows)
    vector, weights = own.sums()
    total = yield Sum(vector, "products of columns, by shared cluster", weights)
    products = own.read(total).totals
    check_shares(me, [own.R], products, survey.columns)
    turn = decorrelate(products[:-1, :-1])
    if np.any(turn != np.eye(len(turn))):
        # sums of columns that are collinear have lost what rows have not
        own.R[:, :-1] = own.R[:, :-1] @ turn
        vector, weights = own.sums()
        total = yield Sum(
            vector, "products of features taken apart, by cluster", weights
        )
    sums = own.read(total)
    unit = np.sqrt(sums.precision)
    own.Z, own.R = own.Z / unit, own.R / unit
    # theta: clusters of one party stay closed, which costs a sum in each step
    alone = own.products(own.closed)
    how = sums, random, reml, min(survey.terms.max_iter, MAX_STEPS)
    if np.any(own.closed):

        def explain(matrices):
            mine = absorb(alone, matrices)
            total = yield Sum(
                mine.ravel(),
                "what clusters of one party explain at trial variances",
                own.rows_of_closed,
            )
            return total.reshape(mine.shape)

        found = yield from asking_others(searching(*how), explain)
    else:
        found = find_theta(*how)
    fit, theta, n_steps, converged = found
    # effects: of shared clusters every party knows them
    effects = predict_effects(sums.opened, random.matrix(theta), fit)
    own.check_effects(me, sums.opened, random, theta, ~own.closed)
    told = own.closed & (survey.terms.release_effects == "all")
    own.check_effects(me, alone, random, theta, told)
    if np.any(told):
        mine = predict_effects(alone, random.matrix(theta), fit) * own.held[:, None]
        weights = own.rows_of_effects
        total = yield Sum(mine[told], "effects of clusters of one party", weights)
        effects[told] = total.reshape(-1, effects.shape[1])
    nothing = vanished(sums.totals[:-1, :-1], turn)
    fit = fit.turned_back(turn, nothing, reml)
    estimates = estimate_linear(survey, sums, theta, fit, effects, converged, n_steps)
    return {"survey": survey.to_payload(), "estimates": vars(estimates)}


@dataclass(frozen=True)
class Products:
    """Sums of products over rows, by block of random effects.

    Parameters
    ----------
    blocks : Blocks
    zz : list of ndarray of shape (n_blocks, size, size)
    zr : ndarray of shape (n_numbers, n_fixed + 1)
        Z'[X y].
    """

    blocks: object
    zz: list
    zr: np.ndarray


def pack(products, opened, factors):
    """Return what is not zero of the products of some effects, as one vector.

    Parameters
    ----------
    products : Products
    opened : ndarray of bool of shape (n_numbers,)
    factors : ndarray of int of shape (n_effects,)
        Factor of each column: levels of one factor never meet in a row.

    Returns
    -------
    vector : ndarray of shape (n_values,)
    """
    masks = _masks(products.blocks, opened, factors)
    pieces = [zz[mask] for zz, mask in zip(products.zz, masks)]
    return np.concatenate([*pieces, products.zr[opened].ravel()])


def unpack(vector, blocks, opened, factors, width):
    """Return the products that :func:`pack` made a vector of, `width` columns."""
    matrices = []
    for mask in _masks(blocks, opened, factors):
        matrix, n = np.zeros(mask.shape), np.count_nonzero(mask)
        matrix[mask] = np.swapaxes(matrix, 1, 2)[mask] = vector[:n]
        matrices, vector = [*matrices, matrix], vector[n:]
    zr = np.zeros((len(opened), width))
    zr[opened] = vector.reshape(-1, width)
    return Products(blocks, matrices, zr)


def _masks(blocks, opened, factors):
    for numbers in blocks.members:
        factor, level = factors[blocks.column[numbers]], blocks.level[numbers]
        apart = factor[:, :, None] == factor[:, None, :]
        apart &= level[:, :, None] != level[:, None, :]
        above = np.triu(np.ones((numbers.shape[1], numbers.shape[1]), dtype=bool))
        yield opened[numbers][:, :, None] & above & ~apart


def absorb(products, matrix):
    """Integrate the random effects out.

    Parameters
    ----------
    products : Products
    matrix : ndarray of shape (..., n_effects, n_effects)
        Lambda, or several.

    Returns
    -------
    absorbed : ndarray of shape (..., n_values)
        Log-determinant of Lambda' Z'Z Lambda + I, and what the effects take away from
        the products of [X y].
    """
    log_determinant, width = np.zeros(matrix.shape[:-2]), products.zr.shape[1]
    explained = np.zeros((*log_determinant.shape, width, width))
    for _, root, half in _solve(products, matrix):
        roots = np.diagonal(root, axis1=-2, axis2=-1)
        log_determinant += 2 * np.log(roots).sum(axis=(-2, -1))
        explained += np.einsum("...bik,...bil->...kl", half, half)
    return np.concatenate([log_determinant[..., None], upper(explained)], axis=-1)


def _solve(products, matrix):
    """Yield numbers of the effects, Cholesky root and root^-1 Lambda' Z'[X y]."""
    blocks = products.blocks
    spread = blocks.spread(matrix)
    for numbers, zz, factor in zip(blocks.members, products.zz, spread):
        turned = np.swapaxes(factor, -1, -2)
        system = turned @ zz @ factor + np.eye(numbers.shape[1])
        root = np.linalg.cholesky(system)
        yield numbers, root, np.linalg.solve(root, turned @ products.zr[numbers])


def searching(sums, random, reml, max_iter):
    """Find theta, by Newton's method; the arguments are the same at all parties.

    The log-likelihood is even in the columns of Lambda, so that no bound is needed.

    Yields
    ------
    matrices : ndarray of shape (n_points, n_effects, n_effects)
        Lambdas, of which to be told what clusters of one party explain.

    Returns
    -------
    found : tuple of (LinearFit, ndarray, int, bool)
        The fit, theta, number of steps, and whether the search ended by itself.
    """
    search = QuasiNewton(random.start, _TOL, observed=True)
    n_steps, go_on = 0, True
    while go_on and n_steps < max_iter:
        theta = search.parameters
        far = 2 * STEP * np.eye(len(theta))
        points = [*stencil(theta), *(theta + far), *(theta - far)]
        matrices = np.array([random.matrix(point) for point in points])
        fit, values = best_fits((yield matrices), matrices, sums, reml)
        go_on = search.step(values[0], *_derivatives(values, len(theta)))
        n_steps += 1
    return fit, theta, n_steps, not go_on


@memoise
def find_theta(*how):
    """Do what :func:`searching` does where no cluster is of one party."""
    return ask(searching(*how), lambda matrices: 0.0)


@memoise
def best_fits(explained, matrices, sums, reml):
    """Maximise the likelihood at trial variances.

    Parameters
    ----------
    explained : ndarray of shape (n_points, n_values), or 0.0
        What clusters of one party explain, over all parties.
    matrices : ndarray of shape (n_points, n_effects, n_effects)
        Lambdas.
    sums : Sums
    reml : bool

    Returns
    -------
    fit : LinearFit
        Of the first of them.
    log_likelihoods : ndarray of shape (n_points,)
    """
    absorbed = explained + absorb(sums.opened, matrices)
    fits = [profile(values, sums, reml) for values in absorbed]
    return fits[0], np.array([fit.log_likelihood for fit in fits])


@dataclass(frozen=True)
class LinearFit:
    """The best fixed effects for given theta.

    Attributes
    ----------
    log_likelihood : float
        Maximised over beta and sigma, or restricted (REML).
    beta : ndarray of shape (n_fixed,)
    covariance : ndarray of shape (n_fixed, n_fixed)
    sigma : float
    determined : bool
        Whether the rows determine all of beta.
    """

    log_likelihood: float
    beta: np.ndarray
    covariance: np.ndarray
    sigma: float
    determined: bool

    def turned_back(self, turn, nothing, reml):
        """Return the same fit for columns as they were before they were turned.

        Parameters
        ----------
        turn : ndarray of shape (n_fixed, n_fixed)
            See :func:`~skprivbn.mixed_model._updates.decorrelate`.
        nothing : ndarray of bool of shape (n_fixed,)
            Columns of which nothing is left.
        reml : bool

        Returns
        -------
        fit : LinearFit
            With the smallest coefficients where rows do not determine them.
        """
        beta, _ = least_coefficients(turn @ self.beta, turn, nothing)
        covariance = turn @ self.covariance @ turn.T
        value = self.log_likelihood
        if reml:
            # the restricted likelihood depends on the units of the features
            value += np.log(np.diag(turn)[~nothing]).sum()
        return replace(self, log_likelihood=value, beta=beta, covariance=covariance)


def profile(absorbed, sums, reml):
    """Maximise the likelihood over beta and sigma.

    Parameters
    ----------
    absorbed : ndarray of shape (n_values,)
        Of :func:`absorb`, over all blocks.
    sums : Sums
    reml : bool

    Returns
    -------
    fit : LinearFit
    """
    left = sums.totals - symmetric(absorbed[1:])
    n_fixed = len(left) - 1
    values, vectors = np.linalg.eigh(left[:-1, :-1])
    known = values > 1e-11 * values.max(initial=1e-300)
    inverse = (vectors[:, known] / values[known]) @ vectors[:, known].T
    beta = inverse @ left[:-1, -1]
    n_known = int(np.count_nonzero(known))
    residual = max(left[-1, -1] - left[:-1, -1] @ beta, 1e-12 * sums.totals[-1, -1])
    n_free = max(sums.n_rows - n_known * reml, 1)
    deviance = absorbed[0] + n_free * (1 + np.log(2 * np.pi * residual / n_free))
    if reml:
        deviance += np.log(values[known]).sum()
    variance = residual / n_free
    return LinearFit(
        -deviance / 2, beta, variance * inverse, variance**0.5, n_known == n_fixed
    )


def predict_effects(products, matrix, fit):
    """Return means and covariances of the effects given the rows.

    Parameters
    ----------
    products : Products
    matrix : ndarray of shape (n_effects, n_effects)
        Lambda.
    fit : LinearFit

    Returns
    -------
    effects : ndarray of shape (n_numbers, 1 + n_effects)
        Means, and covariances with the effects of the same level: variances are
        ``effects[i, 1 + column[i]]``.
    """
    blocks, covariances = products.blocks, []
    contrast = np.append(-fit.beta, 1.0)[:, None]
    effects = np.zeros(len(blocks.column))
    spread = blocks.spread(matrix)
    for (numbers, root, half), factor in zip(_solve(products, matrix), spread):
        u = np.linalg.solve(np.swapaxes(root, 1, 2), half @ contrast)
        effects[numbers] = (factor @ u)[..., 0]
        thin = np.linalg.solve(root, np.swapaxes(factor, 1, 2))
        covariances.append(fit.sigma**2 * np.swapaxes(thin, 1, 2) @ thin)
    return np.column_stack([effects, blocks.within_levels(covariances, len(matrix))])


@dataclass(frozen=True)
class Sums:
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


class _OwnColumns:
    """Columns [Z] and [X y] of one party, and the effects that each row has.

    Parameters
    ----------
    survey : Survey
    rows : OwnRows

    Attributes
    ----------
    blocks : Blocks
    factors : ndarray of int of shape (n_effects,)
    weights : ndarray of shape (n_rows,)
    Z : ndarray of shape (n_rows, n_effects)
    R : ndarray of shape (n_rows, n_fixed + 1)
    numbers : ndarray of int of shape (n_rows, n_effects)
    closed, held : ndarray of bool of shape (n_numbers,)
        Effects of clusters of one party, and those of which this party has rows.
    weigh_products : callable
        Returns how much rows count in products.
    rows_of_closed, rows_of_effects : RowWeights
        How much they do in a sum over closed clusters, and in each effect of these.
    """

    def __init__(self, survey, rows):
        terms, census, design = survey.terms, survey.census, survey.design
        self.factors, self.weights = terms.random.factors, rows.weights
        tops, alone = census.tops, census.n_holders[0] == 1
        if terms.crossed:
            # all of them are one block, and opened
            tops = [np.zeros(len(n), dtype=int) for n in census.n_rows]
            alone = np.zeros(1, dtype=bool)
        self.blocks, own = Blocks.of(self.factors, tops), rows.counts(census)
        self.closed, self.held = np.zeros((2, len(self.blocks.column)), dtype=bool)
        numbers = list(zip(self.factors, self.blocks.numbers))
        for factor, of_levels in numbers:
            self.closed[of_levels] = alone[tops[factor]]
            self.held[of_levels] = own[factor] > 0
        numbers = [of_levels[rows.codes[factor]] for factor, of_levels in numbers]
        self.numbers = np.array(numbers, dtype=int).reshape(-1, len(rows.y)).T
        y = (rows.y - survey.moments.mean[-1] * terms.fit_intercept) / survey.scale[-1]
        R, root = np.column_stack([design.fixed(rows.X), y]), np.sqrt(rows.weights)
        self.Z, self.R = root[:, None] * design.mixed(rows.X), root[:, None] * R
        groups = [(rows.codes[f], ~alone[tops[f]]) for f in range(terms.n_factors)]
        closed = [(codes, ~opened) for codes, opened in groups]
        if terms.crossed:
            groups += _pairs(rows.codes, census)
        typical = survey.weight
        own = R, rows.weights, typical, groups, survey.columns
        self.weigh_products = partial(_count_products, *own)
        in_closed = rows.weights * alone[tops[0]][rows.codes[0]]
        self.rows_of_closed = weigh([(in_closed, typical)])
        self.rows_of_effects = weigh([(in_closed, typical)], closed)

    def sums(self):
        """Return numbers of rows and products, in all and of opened clusters.

        And what counts how much the rows do there.
        """
        weights = self.weights[self.weights > 0]
        totals = [len(weights), np.log(weights).sum()]
        totals.extend(upper(self.R.T @ self.R))
        opened = ~self.closed
        products = pack(self.products(opened), opened, self.factors)
        return np.append(totals, products), self.weigh_products

    def products(self, chosen):
        """Return the products of rows all of whose effects are chosen.

        Parameters
        ----------
        chosen : ndarray of bool of shape (n_numbers,)

        Returns
        -------
        products : Products
        """
        mine = np.all(chosen[self.numbers], axis=1)
        Z, R, numbers = self.Z[mine], self.R[mine], self.numbers[mine]
        zr = np.zeros((len(self.blocks.column), R.shape[1]))
        np.add.at(zr, numbers, Z[:, :, None] * R[:, None, :])
        zz = self.blocks.gather(Z[:, :, None] * Z[:, None, :], numbers)
        return Products(self.blocks, zz, zr)

    def check_effects(self, me, products, random, theta, told):
        """Refuse effects of a cluster if one row is nearly all that they are about.

        Rows are compared along all combinations of effects, with how far these are
        shrunk: Lambda' Z'Z Lambda + I.
        """
        if me.is_simulated or not len(random.columns):
            return
        matrix = random.matrix(theta)
        # the intercept, -1, is about clusters alone
        names = ["cluster", *range(random.columns.max() + 1)]
        for factor in np.unique(self.factors):
            of = np.flatnonzero(self.factors == factor)
            shrunk, numbers = matrix[np.ix_(of, of)], self.numbers[:, of]
            columns = [("cluster", names[1 + column]) for column in random.columns[of]]
            order = np.argsort(numbers[:, 0], kind="stable")
            starts = np.flatnonzero(np.diff(numbers[order, 0], prepend=-1))
            held = numbers[order[starts]]
            within = shrunk.T @ self.blocks.pick(products.zz, held) @ shrunk
            for level, squares, mine in zip(held, within, np.split(order, starts[1:])):
                if told[level].all():
                    rows = self.Z[np.ix_(mine, of)] @ shrunk
                    check_shares(me, [rows], squares + np.eye(len(of)), columns)

    def read(self, total):
        """Return the sums of all parties."""
        width = self.R.shape[1]
        ends = np.cumsum([2, width * (width + 1) // 2])
        (n_rows, log_weights), totals, opened = np.split(total, ends)
        # theta is relative to sigma, which has the unit of the weights: its search
        # starts at one, with weights of about one
        precision = 4.0 ** np.rint(log_weights / max(n_rows, 1) / np.log(4))
        products = unpack(
            opened / precision, self.blocks, ~self.closed, self.factors, width
        )
        return Sums(
            int(np.rint(n_rows)),
            float(precision),
            float(log_weights - n_rows * np.log(precision)),
            symmetric(totals) / precision,
            products,
        )


def _count_products(R, weights, typical, groups, names):
    """Return how many rows count in products of columns, in all and by cluster."""
    sides = rows_of_pairs(R, weights), sides_by_group(R, weights, groups)
    plain = weigh([(weights, typical)], groups)
    columns = (None, *["cluster"] * (plain.total.size - 1))
    columns += (*[*combinations(names, 2)] * 4, *names)
    for _, opened in groups:
        columns += tuple((c, "cluster") for c in names * 2 for _ in range(opened.sum()))
    return plain._replace(columns=columns, sides=np.hstack(sides))


def _pairs(codes, census):
    """Yield the pairs of crossed clusters: sums over the rows of each are opened."""
    sizes = [len(n) for n in census.n_rows]
    for i, j in combinations(range(len(sizes)), 2):
        every = np.ones(sizes[i] * sizes[j], dtype=bool)
        yield codes[i] * sizes[j] + codes[j], every


def _derivatives(values, size):
    """Return gradient and information from the values at the points of a step."""
    near, far_plus, far_minus = np.split(values, len(values) - size * np.array([2, 1]))
    plus, minus = near[1:][:size], near[1 + size :][:size]
    gradient = (8 * (plus - minus) - (far_plus - far_minus)) / (12 * STEP)
    hessian = second_derivatives(near, size)
    most = np.abs(hessian).max(initial=0.0) * np.eye(size)
    return gradient, guess_information(most, most + hessian)
