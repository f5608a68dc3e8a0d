"""Linear mixed models with differential privacy: one noisy release of sums.

Within public bounds, a row (x, y) enters the products of its entries and the sums of
one public cluster. Noise hides it in both together. Clusters are centred by their sums;
the noise in these, whose variance is public, is taken out of their squares on the
average, and is a part of the variance of the sums where effects are estimated.
"""

from collections.abc import Generator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar

from skprivbn.federation import Me, Noisy, program
from skprivbn.federation._rows import paired_blocks
from skprivbn.federation._terms import NoisyTerms
from skprivbn.mixed_model._checks import some
from skprivbn.mixed_model._terms import INTERCEPT
from skprivbn.privacy import CountMechanism
from skprivbn.privacy._noise_report import noisy_number, report_noise
from skprivbn.privacy._options import check_bounds, words_of_noise
from skprivbn.privacy._persons import shares_of_persons
from skprivbn.programs._moments import calibrate
from skprivbn.programs._noisy_moments import simulate_noise
from skprivbn.utils import column_names
from skprivbn.utils._linalg import symmetric, upper
from skprivbn.utils._validation import read_labels, read_numbers

#: how much finer sums of clusters are told than products
FINER = 2
#: draws of the bootstrap that standard errors are from
N_DRAWS = 200
#: noise and scale of the effects are found in turn, so often
_N_TURNS = 4


@dataclass(frozen=True, kw_only=True)
class NoisyMixedTerms(NoisyTerms):
    """Public clusters and bounds, and the noise.

    Parameters
    ----------
    clusters : list
        Labels; rows of others count for nothing.
    bounds : ndarray of shape (2, n_features + 1)
        Of the features and, last, of the target.
    epsilon, delta, min_honest, protects :
        As of :class:`NoisyTerms`.
    """

    clusters: list[Any]
    bounds: np.ndarray

    def check(self) -> None:
        """Refuse to go on without noise, or without several clusters."""
        if self.epsilon is None:
            raise ValueError("epsilon: this is the fit with noise")
        labels = self.clusters
        if len(labels) < 2 or len({str(label) for label in labels}) < len(labels):
            raise ValueError("clusters: at least two labels, no two of them alike")

    def mechanism(self, n_features: int) -> CountMechanism:
        """Return the noise that one curator would add, within the bounds."""
        check_bounds(self.bounds, n_features + 1)
        return self._calibrated[0]

    @property
    def unit(self) -> int:
        """The integer that stands for half the width between the bounds."""
        return self._calibrated[1]

    @property
    def _calibrated(self):
        width = self.bounds.shape[1]
        n_products, n_sums = width * (width + 1) // 2, width + 1
        l1, squared_l2 = n_products + FINER * n_sums, n_products + FINER**2 * n_sums
        return calibrate(self.epsilon, self.delta, l1, squared_l2)


@program(NoisyMixedTerms)
def noisy_linear_mixed_model(me: Me) -> Generator[Any, Any, dict]:
    """Add products of features and target, and their sums by cluster, with noise."""
    terms = me.terms
    noise = terms.noise(terms.bounds.shape[1] - 1, len(me.roster))
    total = yield Noisy(
        _own_sums(me), noise, "noisy products of columns, and sums by cluster"
    )
    return {"noisy": total}


def _own_sums(me):
    """Return integer sums of own clipped rows, a person's rows as one row."""
    terms, shared_by = me.terms, me.rows_of_person()
    width = terms.bounds.shape[1]
    X = me.numbers(bounds=terms.bounds[:, :-1])
    y = np.asarray(me.block["y"])[:, np.newaxis]
    y = read_numbers(y, bounds=terms.bounds[:, -1:], strict=False)
    labels = np.asarray(me.block["cluster"])
    codes = read_labels(labels, terms.clusters, "cluster", strict=False)
    if shared_by is None:
        shared_by = np.ones(len(y), dtype=int)
    blocks = (
        np.column_stack(pair) for pair in paired_blocks(X, np.column_stack([y, codes]))
    )
    n_products, start = width * (width + 1) // 2, 0
    products = np.zeros(n_products, dtype=np.int64)
    sums = np.zeros((len(terms.clusters) + 1, width + 1), dtype=np.int64)
    for shares in shares_of_persons(blocks, shared_by, partial(_sums_of_rows, terms)):
        own = codes[start : start + len(shares)]
        start += len(shares)
        products += shares[:, :n_products].sum(axis=0)
        # the last one is of rows without a declared cluster, which are all zero
        np.add.at(sums, own, shares[:, n_products:])
    return np.append(products, sums[:-1])


def _sums_of_rows(terms, rows):
    """Return what each row adds: the same whatever the others are."""
    (low, high), unit = terms.bounds, terms.unit
    known = (rows[:, -1:] >= 0).astype(np.int64)
    rows = (rows[:, :-1] - (low + high) / 2) / ((high - low) / 2)
    rows = known * np.clip(np.rint(rows * unit), -unit, unit).astype(np.int64)
    i, j = np.triu_indices(rows.shape[1])
    sums = FINER * unit * np.hstack([unit * known, rows])
    return np.hstack([rows[:, i] * rows[:, j], sums])


class Statistics(NamedTuple):
    """Sums in which every column is between -1 and 1, with their noise.

    Attributes
    ----------
    products : ndarray of shape (n_features + 1, n_features + 1)
        Of features and target.
    sums : ndarray of shape (n_clusters, n_features + 2)
        Of ones, features and target.
    std : float
        Standard deviation of the noise on products.
    """

    products: np.ndarray
    sums: np.ndarray
    std: float


class NoisyFit(NamedTuple):
    """Estimates, in the same units.

    Attributes
    ----------
    fixed : ndarray of shape (n_features + 1,)
        Intercept and coefficients.
    sigma, scale : float
        Standard deviations of the rows, and of the effects.
    effects, errors : ndarray of shape (n_clusters,)
    extra : float
        Variance of the noise in the residuals of a cluster, beside that of rows.
    """

    fixed: np.ndarray
    sigma: float
    scale: float
    effects: np.ndarray
    errors: np.ndarray
    extra: float

    @property
    def parameters(self):
        """All parameters: fixed effects, then both standard deviations."""
        return np.append(self.fixed, [self.sigma, self.scale])


def read_statistics(found: dict, terms: Any, n_parties: int) -> Statistics:
    """Return what parties told with noise, in units of half the bounds.

    Parameters
    ----------
    found : dict
        What the program returned.
    terms : NoisyMixedTerms
    n_parties : int

    Returns
    -------
    given : Statistics
    """
    width, unit = terms.bounds.shape[1], terms.unit
    values = found["noisy"] / unit**2
    products, sums = np.split(values, [width * (width + 1) // 2])
    std = terms.noise(width - 1, n_parties).std / unit**2
    return Statistics(symmetric(products), sums.reshape(-1, width + 1) / FINER, std)


def fit_noisy(given: Statistics, reml: bool, like: NoisyFit | None = None) -> NoisyFit:
    """Estimate a linear mixed model with a random intercept from noisy sums.

    The likelihood has two parts: rows about the means of their clusters, and sums of
    clusters, whose variance is that of effects, rows and noise. Without noise it is
    that of the rows.

    Parameters
    ----------
    given : Statistics
    reml : bool
    like : NoisyFit, default=None
        Whose noise, beside the variance of rows, to start from.

    Returns
    -------
    fit : NoisyFit
    """
    told, S, within, noise, moved = _about_means(given)
    n, floor = S[:, 0], max(given.std, 1e-9)
    n_within = max(given.sums[:, 0].sum() - len(n), 1.0)

    def at(ratio, extra):
        """Return deviance and estimates, given the ratio of variances."""
        spread = n**2 * ratio + n + extra
        A = np.pad(within, (1, 0)) + (S.T / spread) @ S - noise * np.sum(1 / spread)
        A = _positive(A, floor)
        fixed = np.linalg.solve(A[:-1, :-1], A[:-1, -1])
        contrast = np.append(-fixed, 1.0)
        left = contrast[1:] @ within @ contrast[1:]
        left += np.sum((S @ contrast) ** 2 / spread)
        n_free = max(n_within + len(n) - len(fixed) * reml, 1.0)
        deviance = np.log(spread / n).sum() + n_free * np.log(left / n_free)
        if reml:
            deviance += np.linalg.slogdet(A[:-1, :-1])[1]
        return deviance, contrast, left / n_free, spread

    extra = 0.0 if like is None else like.extra * (given.std > 0)
    for _ in range(_N_TURNS if like is None else 1):
        found = minimize_scalar(
            lambda x, extra: at(np.tan(x) ** 2, extra)[0],
            args=(extra,),
            bounds=(0, np.pi / 2 - 1e-3),
            method="bounded",
            options={"xatol": 1e-5},
        )
        ratio = np.tan(found.x) ** 2 if found.fun < at(0.0, extra)[0] else 0.0
        _, contrast, variance, spread = at(ratio, extra)
        # of the noise in the sum of a cluster's residuals
        extra = contrast @ noise @ contrast / variance
    effects, errors = np.zeros((2, len(told)))
    errors[~told] = np.sqrt(ratio * variance)
    shrunk = ratio * n / spread
    effects[told] = shrunk * (S @ contrast)
    errors[told] = np.sqrt(ratio * variance * np.maximum(1 - shrunk * n, 0))
    fixed, sigma = -(moved @ contrast)[:-1], variance**0.5
    return NoisyFit(fixed, sigma, ratio**0.5 * sigma, effects, errors, extra)


def _about_means(given):
    """Centre columns, and take the sums of clusters out of the products.

    Returns
    -------
    told : ndarray of bool of shape (n_clusters,)
        Clusters whose number of rows noise does not drown; others have no mean.
    sums : ndarray of shape (n_told, n_features + 2)
        Of these, about the mean of all rows.
    within : ndarray of shape (n_features + 1, n_features + 1)
        Products about means of clusters; noise is taken out on the average.
    noise : ndarray of shape (n_features + 2, n_features + 2)
        Covariance of the noise of the sums of a cluster.
    moved : ndarray of shape (n_features + 2, n_features + 2)
        What centres a row.
    """
    std, total = given.std / FINER, given.sums.sum(axis=0)
    n_rows, total = max(total[0], 1.0), total[1:]
    moved = np.eye(len(total) + 1)
    moved[0, 1:] = centre = -np.clip(total / n_rows, -1, 1)
    noise = std**2 * moved.T @ moved
    told = given.sums[:, 0] > max(4 * std, 0.5)
    S = given.sums[told] @ moved
    n, crossed = S[:, 0], np.outer(centre, total)
    within = given.products + crossed + crossed.T + n_rows * np.outer(centre, centre)
    within -= ((S.T / n) @ S - noise * np.sum(1 / n))[1:, 1:]
    return told, S, _positive(within, max(given.std, 1e-9)), noise, moved


def _positive(matrix, floor):
    """Return a matrix whose eigenvalues are at least as large as noise may make one."""
    values, vectors = np.linalg.eigh(matrix)
    if values[0] >= floor:
        return matrix
    return (vectors * np.maximum(values, floor)) @ vectors.T


def draw_fits(
    given: Statistics, fit: NoisyFit, kind: str, reml: bool, rng: np.random.RandomState
) -> np.ndarray:
    """Fit what others would have told, had the truth these estimates.

    A parametric bootstrap through the mechanism, which costs no privacy: features are
    as they were told, targets are drawn, and noise is added to all sums.

    Parameters
    ----------
    given : Statistics
    fit : NoisyFit
    kind : {"laplace", "gaussian"}
        Of the noise.
    reml : bool
    rng : RandomState

    Returns
    -------
    parameters : ndarray of shape (N_DRAWS, 2, n_features + 3)
        With noise, and without.
    """
    told, S, within, _, moved = _about_means(given)
    width, root = len(within), np.linalg.cholesky(within[:-1, :-1])
    n, coef = np.maximum(given.sums[:, 0], 0.0), fit.fixed[1:]
    # clusters that noise drowns have the mean of all
    X = np.where(told[:, None], given.sums[:, 1:-1], -n[:, None] * moved[0, 1:-1])
    n_free = max(n.sum() - len(S) - width + 1, 1.0)
    drawn = np.zeros((N_DRAWS, 2, len(fit.fixed) + 2))
    for one in drawn:
        effects = fit.fixed[0] + fit.scale * rng.normal(size=len(n))
        y = n * effects + X @ coef + fit.sigma * np.sqrt(n) * rng.normal(size=len(n))
        error = fit.sigma * rng.normal(size=width - 1)
        both = np.column_stack([X, y])
        products = (both.T / np.maximum(n, 1e-9)) @ both
        half = root.T @ coef + error
        of_target = half @ half + fit.sigma**2 * rng.chisquare(n_free)
        products[:-1, :-1] += within[:-1, :-1]
        products[:-1, -1] += root @ half
        products[-1, :-1] += root @ half
        products[-1, -1] += of_target
        sums = np.column_stack([n, both])
        exact = Statistics(products, sums, 0.0)
        noise = symmetric(upper(simulate_noise(kind, given.std, products.shape, rng)))
        sums = sums + simulate_noise(kind, given.std / FINER, sums.shape, rng)
        noisy = Statistics(products + noise, sums, given.std)
        one[:] = [fit_noisy(told, reml, fit).parameters for told in (noisy, exact)]
    return drawn


def keep_noisy(estimator: Any, found: dict, terms: Any, factor: str) -> None:
    """Set the fitted attributes of an estimator, and say what noise does to them.

    Parameters
    ----------
    estimator : PrivateGLMMRegressor
    found : dict
        What the program returned.
    terms : NoisyMixedTerms
    factor : str
        Name of the column of cluster labels.
    """
    n_parties, reml = len(estimator.ledger_.parties), estimator.reml
    width = terms.bounds.shape[1]
    given = read_statistics(found, terms, n_parties)
    fit, noise = fit_noisy(given, reml), terms.noise(width - 1, n_parties)
    drawn = draw_fits(given, fit, noise.kind, reml, np.random.RandomState(0))
    back, middle = _back(terms.bounds)
    fixed, parameters = back @ fit.parameters + middle, drawn @ back.T
    covariance = np.cov(parameters[:, 0], rowvar=False)
    of_noise = np.std(parameters[:, 0] - parameters[:, 1], axis=0)
    *coefficients, estimator.residual_scale_, scale = fixed
    errors = np.sqrt(np.diag(covariance))[:width]
    estimator._keep_fixed(np.array(coefficients), errors)
    estimator.covariance_ = covariance[:width, :width]
    estimator.factors_, estimator._effect_columns = [factor], [[INTERCEPT]]
    estimator.effect_names_ = {factor: ["(Intercept)"]}
    estimator.clusters_ = np.asarray(terms.clusters)
    unit = back[-1, -1]
    estimator.random_effects_ = unit * fit.effects
    estimator.random_effects_std_ = unit * fit.errors
    estimator.random_effect_scale_ = float(scale)
    estimator.random_effect_covariance_ = {factor: np.array([[scale**2]])}
    # that of rows which nobody knows
    estimator.log_likelihood_ = np.nan
    estimator.converged_, estimator.singular_ = True, bool(scale == 0)
    estimator.n_samples_, estimator.n_iter_ = float(given.sums[:, 0].sum()), 1
    names = [f"coefficient of {name!r}" for name in column_names(estimator)]
    names = ["intercept", *names, "scale of rows", "scale of random effects"]
    std, n_rows = given.std / FINER, estimator.n_samples_
    numbers = [noisy_number("number of rows", n_rows, std * len(fit.effects) ** 0.5)]
    numbers += map(noisy_number, names, fixed, of_noise)
    report_noise(
        estimator,
        noise,
        terms.protects,
        std,
        numbers,
        _words(given, fit, terms),
        n_rows=n_rows,
        std_with=lambda delta: (
            read_statistics(found, replace(terms, delta=delta), n_parties).std / FINER
        ),
    )


def _back(bounds):
    """Return the matrix, and what to add, that take parameters to columns as told."""
    low, high = bounds
    half, centre = (high - low) / 2, (low + high) / 2
    back = half[-1] * np.diag(np.append(np.append(1, 1 / half[:-1]), [1, 1]))
    back[0, 1:-2] = -half[-1] * centre[:-1] / half[:-1]
    return back, np.append(centre[-1], np.zeros(len(back) - 1))


def _words(given, fit, terms):
    """Return warnings of what noise hides, of noisy numbers and public scales."""
    std, counts = given.std / FINER, given.sums[:, 0]
    yield from words_of_noise(3 * given.std, counts.sum())
    hidden = counts <= 4 * std
    if np.any(hidden):
        yield (
            f"clusters {some(terms.clusters, hidden)} have no more rows than noise "
            f"makes, about {4 * std:.0f}: their effects are not told; check the "
            "spelling of clusters=, merge clusters, or take a larger epsilon"
        )
    if fit.scale == 0:
        yield (
            "the variance of random effects is zero, or noise hides it: noise on the "
            f"mean of a cluster has {std / max(np.median(counts), 1):.2g} of half the "
            "width between the bounds of y; take larger clusters, tighter bounds or a "
            "larger epsilon"
        )
