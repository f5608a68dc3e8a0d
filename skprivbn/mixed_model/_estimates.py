"""From what sums of all parties tell to estimates, for features as they are."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from skprivbn.mixed_model._updates import (
    least_coefficients,
    solve_information,
    vanished,
)

#: below, a scale of the effects counts as zero: a boundary ("singular") fit.
NO_SCALE = 1e-3
# Smallest eigenvalue of the information per row at which estimates are determined.
_DETERMINED = 1e-7
# Slope of the log-likelihood per row at which a search cannot have been at its end.
_STEEP = 1e-3
#: log-likelihood of classes that are told apart as good as without error
PERFECT = -0.01


@dataclass(frozen=True)
class Estimates:
    """Estimates of a mixed model.

    Attributes
    ----------
    fixed : ndarray of shape (n_fixed,)
        Intercept, if there is one, and coefficients.
    covariance : ndarray of shape (n_fixed, n_fixed)
        Their sampling covariance; NaN where it cannot be told.
    random_covariance : ndarray of shape (n_effects, n_effects)
        Of the random effects.
    effects : ndarray of shape (n_numbers,)
    effect_variances : ndarray of shape (n_numbers,)
    sigma : float or None
        Standard deviation of the rows, in linear models.
    log_likelihood : ndarray of shape (2,)
        And by how much it may be off.
    determined, collinear, stuck, few, wide, maximum, singular, converged : bool
        Whether the rows determine all coefficients of features that vary; if not,
        whether features are collinear, the log-likelihood was flat from the start, or
        few rows had weight where the search went on to; whether effects are as wide as
        they may be; whether it has its maximum
        there; whether a variance is zero, or a correlation one; whether the search
        ended by itself.
    n_iter : int
    """

    fixed: np.ndarray
    covariance: np.ndarray
    random_covariance: np.ndarray
    effects: np.ndarray
    effect_variances: np.ndarray
    sigma: float | None
    log_likelihood: np.ndarray
    determined: bool
    collinear: bool
    stuck: bool
    few: bool
    wide: bool
    maximum: bool
    singular: bool
    converged: bool
    n_iter: int


@dataclass(frozen=True)
class Release:
    """What sums of all parties tell, for standardised features.

    Attributes
    ----------
    parameters : ndarray of shape (n_parameters,)
        (beta, theta), at which the rest was computed.
    collinear : bool
        Whether products of the features are a singular matrix.
    few : bool
        Whether the search ended as few rows had weight where it went on to.
    converged : bool
    n_iter : int
    turn : ndarray of shape (n_fixed, n_fixed)
        What standardised features were multiplied by, see :func:`decorrelate`: the
        parameters, and what was computed there, are of the features that this makes.
    slope : Slope
        Of the log-likelihood there.
    effects : ndarray of shape (n_numbers,)
    effect_covariances : ndarray of shape (n_numbers, n_effects)
    """

    parameters: np.ndarray
    collinear: bool
    few: bool
    converged: bool
    n_iter: int
    turn: np.ndarray
    slope: Any
    effects: np.ndarray
    effect_covariances: np.ndarray


def estimate(release, survey):
    """Compute the estimates of a generalised model.

    Standard errors are from the observed information. Unless effects were drawn, a
    last Newton step undoes the rounding of the parameters.

    Parameters
    ----------
    release : Release
    survey : Survey

    Returns
    -------
    estimates : Estimates
    """
    terms = survey.terms
    design, random = survey.design, survey.design.random
    parameters, slope = release.parameters.copy(), release.slope
    varies, turn = _varies(survey), release.turn
    n_fixed = len(varies)
    complete = slope.complete[:n_fixed, :n_fixed]
    nothing = vanished(complete, turn)
    known = varies & ~nothing
    information = complete[np.ix_(known, known)]
    lowest = np.linalg.eigvalsh(information)[0] if len(information) else np.inf
    determined = lowest > _DETERMINED * survey.n_samples
    # where there is no curvature there should be no slope either
    steepest = np.abs(slope.gradient[:n_fixed]).max(initial=0.0)
    stuck = not determined and steepest > _STEEP * survey.n_samples
    determined &= not (survey.classes and slope.value > PERFECT)
    determined &= not release.few
    theta = parameters[n_fixed:]
    # A scale at its bound is no free parameter.
    free = np.append(known, np.abs(theta) > NO_SCALE if terms.mixed else [False])
    if len(theta) > 1:
        free[n_fixed:] = _columns_that_vary(theta, random)
    is_wide = np.abs(theta) == terms.widest
    free[n_fixed:] &= ~is_wide
    wide = bool(terms.mixed and np.any(is_wide))
    observed = (slope.complete - slope.missing)[np.ix_(free, free)]
    flat = np.linalg.eigvalsh(observed)[0] if len(observed) else 1.0
    maximum = bool(flat > -1e-6 * max(np.abs(observed).max(initial=0.0), 1.0))
    log_likelihood = slope.value
    covariance = np.full((len(parameters), len(parameters)), np.nan)
    if maximum:
        if not terms.drawn:
            step = solve_information(observed, slope.gradient[free])
            parameters[free] += step
            log_likelihood += slope.gradient[free] @ step / 2
        if determined and not wide:
            inverse = solve_information(observed, np.eye(len(observed)))
            covariance[np.ix_(free, free)] = inverse
    parameters[:n_fixed][~known] = 0.0
    fixed, free_directions = least_coefficients(
        turn @ parameters[:n_fixed], turn, nothing
    )
    back = design.back_fixed
    covariance = covariance[:n_fixed, :n_fixed][np.ix_(known, known)]
    covariance = turn[:, known] @ covariance @ turn[:, known].T
    covariance = _hide_undetermined(covariance, free_directions, back)
    covariance[~varies, :] = covariance[:, ~varies] = np.nan
    matrix = random.matrix(parameters[n_fixed:][: len(random.start)])
    fixed = back @ fixed
    if terms.centres_offset:
        fixed[0] -= survey.moments.mean[-1]
    return Estimates(
        fixed=fixed,
        covariance=covariance,
        log_likelihood=np.array([log_likelihood, slope.error]),
        sigma=None,
        determined=bool(determined and not np.any(nothing)),
        maximum=maximum,
        collinear=bool(release.collinear or np.any(nothing)),
        stuck=bool(stuck),
        few=release.few,
        wide=wide,
        converged=release.converged and not wide,
        n_iter=release.n_iter,
        **_translate(matrix, release, survey),
    )


def _hide_undetermined(covariance, free, back):
    """Return a covariance in the units of the features, NaN where it is not known.

    Parameters
    ----------
    covariance : ndarray of shape (n_fixed, n_fixed)
        For standardised features.
    free : ndarray of shape (n_fixed, n_free)
        Directions in which rows do not determine coefficients.
    back : ndarray of shape (n_fixed, n_fixed)

    Returns
    -------
    covariance : ndarray of shape (n_fixed, n_fixed)
        The intercept is determined if it is the same wherever coefficients of
        collinear features are.
    """
    covariance = back @ covariance @ back.T
    moves = np.abs(back @ free) > 1e-7 * (np.abs(back) @ np.abs(free))
    hidden = np.any(moves, axis=1)
    covariance[hidden, :] = covariance[:, hidden] = np.nan
    return covariance


def _columns_that_vary(theta, random):
    """Return which entries of theta matter: not those of columns that are all zero."""
    _, columns = random.positions
    matrix = np.abs(random.matrix(theta))
    return (matrix.max(axis=0) > NO_SCALE)[columns]


def estimate_linear(release, survey):
    """Compute the estimates of a linear model.

    Parameters
    ----------
    release : LinearRelease
    survey : Survey

    Returns
    -------
    estimates : Estimates
    """
    fit, reml = release.fit, survey.terms.reml
    design, varies = survey.design, _varies(survey)
    unit, n_fixed = survey.scale[-1], len(varies)
    back = design.back_fixed
    shift = np.zeros(n_fixed)
    if design.fit_intercept:
        shift[0] = survey.moments.mean[-1]
    covariance = unit**2 * back @ fit.covariance @ back.T
    covariance[~varies, :] = covariance[:, ~varies] = np.nan
    n_known = int(np.count_nonzero(varies))
    log_likelihood = fit.log_likelihood + release.sums.log_weights / 2
    log_likelihood -= release.sums.n_rows * np.log(unit)
    if reml:
        # the restricted likelihood depends on the units of the features
        log_likelihood += n_known * np.log(unit)
        log_likelihood += np.log(np.diag(back)[varies]).sum()
    determined = fit.determined or n_known < n_fixed
    if not determined:
        covariance = np.full_like(covariance, np.nan)
    matrix = design.random.matrix(release.theta) * fit.sigma
    return Estimates(
        fixed=shift + unit * back @ fit.beta,
        covariance=covariance,
        log_likelihood=np.array([log_likelihood, 0.0]),
        sigma=float(unit * fit.sigma * np.sqrt(release.sums.precision)),
        determined=determined,
        maximum=True,
        collinear=True,
        stuck=False,
        few=False,
        wide=False,
        converged=release.converged,
        n_iter=release.n_steps,
        **_translate(unit * matrix, release, survey, unit, fit.sigma),
    )


def _varies(survey):
    varies = ~survey.constant
    return np.append(True, varies) if survey.design.fit_intercept else varies


def _translate(matrix, release, survey, unit=1.0, noise=1.0):
    """Return what is known of random effects, in the units of the columns.

    Parameters
    ----------
    matrix : ndarray of shape (n_effects, n_effects)
        Root of their covariance, in units of the target.
    release : Release or LinearRelease
    survey : Survey
    unit : float
        Of the target.
    noise : float
        Standard deviation, in this unit, that scales of effects are compared with: of
        a linear model that of its rows, as in lme4. That of the target says nothing
        about effects where features explain nearly all of it.

    Returns
    -------
    fields : dict
        Of :class:`Estimates`.
    """
    back = survey.design.back_random
    values = np.linalg.svd(matrix, compute_uv=False)
    effects, variances = _turn(release, survey, back)
    return {
        "random_covariance": back @ matrix @ matrix.T @ back.T,
        "effects": unit * effects,
        "effect_variances": unit**2 * variances,
        "singular": bool(np.any(values < NO_SCALE * noise * unit)),
    }


def _turn(release, survey, back):
    """Turn effects of standardised columns into those of columns as they are."""
    random, census = survey.design.random, survey.census
    effects, covariances = release.effects.copy(), release.effect_covariances
    variances, start = np.zeros(len(effects)), 0
    for factor in np.unique(random.factors):
        columns = np.flatnonzero(random.factors == factor)
        n_levels, width = len(census.n_rows[factor]), len(columns)
        part = slice(start, start + n_levels * width)
        turn = back[np.ix_(columns, columns)]
        effects[part] = (effects[part].reshape(n_levels, width) @ turn.T).ravel()
        block = covariances[part][:, columns].reshape(n_levels, width, width)
        variances[part] = np.einsum("lii->li", turn @ block @ turn.T).ravel()
        start = part.stop
    return effects, variances
