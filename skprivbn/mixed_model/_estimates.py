"""From what the parties release to estimates, for features as they are."""

from dataclasses import dataclass

import numpy as np

from skprivbn.mixed_model._updates import solve_information

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
    effect_covariances : ndarray of shape (n_numbers, n_effects)
    sigma : float or None
        Standard deviation of the rows, in linear models.
    log_likelihood : float
    error : float
        By how much it may be off.
    determined, collinear, stuck, maximum, singular, converged : bool
        Whether the rows determine all coefficients of features that vary; if not,
        whether features are collinear, or the log-likelihood was flat from the start;
        whether it has its maximum there; whether a variance is zero, or a correlation
        one; whether the search ended by itself.
    n_iter : int
    """

    fixed: np.ndarray
    covariance: np.ndarray
    random_covariance: np.ndarray
    effects: np.ndarray
    effect_covariances: np.ndarray
    sigma: float | None
    log_likelihood: float
    error: float
    determined: bool
    collinear: bool
    stuck: bool
    maximum: bool
    singular: bool
    converged: bool
    n_iter: int


def estimate(release, survey, terms):
    """Compute the estimates of a generalised model.

    Standard errors are from the observed information. Unless effects were drawn, a
    last Newton step undoes the rounding of the parameters.

    Parameters
    ----------
    release : Release
    survey : Survey
    terms : MixedTerms

    Returns
    -------
    estimates : Estimates
    """
    design, random = survey.design, survey.design.random
    parameters, observed = release.parameters.copy(), release.observed
    varies = _varies(survey)
    n_fixed = len(varies)
    information = release.complete[:n_fixed, :n_fixed][np.ix_(varies, varies)]
    lowest = np.linalg.eigvalsh(information)[0] if len(information) else np.inf
    determined = lowest > _DETERMINED * survey.n_samples
    # where there is no curvature there should be no slope either
    steepest = np.abs(release.gradient[:n_fixed]).max(initial=0.0)
    stuck = not determined and steepest > _STEEP * survey.n_samples
    determined &= not (survey.classes and release.log_likelihood > PERFECT)
    theta = parameters[n_fixed:]
    # A scale at its bound is no free parameter.
    free = np.append(varies, np.abs(theta) > NO_SCALE if terms.mixed else [False])
    if len(theta) > 1:
        free[n_fixed:] = _columns_that_vary(theta, random)
    observed = observed[np.ix_(free, free)]
    flat = np.linalg.eigvalsh(observed)[0] if len(observed) else 1.0
    maximum = bool(flat > -1e-6 * max(np.abs(observed).max(initial=0.0), 1.0))
    log_likelihood = release.log_likelihood
    covariance = np.full((len(parameters), len(parameters)), np.nan)
    if maximum:
        if not terms.drawn:
            step = solve_information(observed, release.gradient[free])
            parameters[free] += step
            log_likelihood += release.gradient[free] @ step / 2
        if determined:
            inverse = solve_information(observed, np.eye(len(observed)))
            covariance[np.ix_(free, free)] = inverse
    back = design.back_fixed[:, varies]
    covariance = covariance[:n_fixed, :n_fixed][np.ix_(varies, varies)]
    covariance = back @ covariance @ back.T
    covariance[~varies, :] = covariance[:, ~varies] = np.nan
    matrix = random.matrix(parameters[n_fixed:][: len(random.start)])
    fixed = back @ parameters[:n_fixed][varies]
    if terms.centres_offset:
        fixed[0] -= survey.moments.mean[-1]
    return Estimates(
        fixed=fixed,
        covariance=covariance,
        log_likelihood=float(log_likelihood),
        sigma=None,
        determined=bool(determined),
        maximum=maximum,
        collinear=release.collinear,
        stuck=bool(stuck),
        error=release.error,
        converged=release.converged,
        n_iter=release.n_iter,
        **_translate(matrix, release, survey, 1.0),
    )


def _columns_that_vary(theta, random):
    """Return which entries of theta matter: not those of columns that are all zero."""
    _, columns = random.positions
    matrix = np.abs(random.matrix(theta))
    return (matrix.max(axis=0) > NO_SCALE)[columns]


def estimate_linear(release, survey, terms):
    """Compute the estimates of a linear model.

    Parameters
    ----------
    release : LinearRelease
    survey : Survey
    terms : MixedTerms

    Returns
    -------
    estimates : Estimates
    """
    design, varies = survey.design, _varies(survey)
    unit, n_fixed = survey.scale[-1], len(varies)
    back = design.back_fixed
    shift = np.zeros(n_fixed)
    if design.fit_intercept:
        shift[0] = survey.moments.mean[-1]
    covariance = unit**2 * back @ release.covariance @ back.T
    covariance[~varies, :] = covariance[:, ~varies] = np.nan
    n_known = int(np.count_nonzero(varies))
    log_likelihood = release.log_likelihood - release.n_rows * np.log(unit)
    if terms.reml:
        # the restricted likelihood depends on the units of the features
        log_likelihood += n_known * np.log(unit)
        log_likelihood += np.log(np.diag(back)[varies]).sum()
    determined = release.determined or n_known < n_fixed
    if not determined:
        covariance = np.full_like(covariance, np.nan)
    matrix = design.random.matrix(release.theta) * release.sigma
    return Estimates(
        fixed=shift + unit * back @ release.beta,
        covariance=covariance,
        log_likelihood=float(log_likelihood),
        sigma=float(unit * release.sigma),
        determined=determined,
        maximum=True,
        collinear=True,
        stuck=False,
        error=0.0,
        converged=release.converged,
        n_iter=release.n_steps,
        **_translate(unit * matrix, release, survey, unit),
    )


def _varies(survey):
    varies = ~survey.constant
    return np.append(True, varies) if survey.design.fit_intercept else varies


def _translate(matrix, release, survey, unit):
    """Return what is known of random effects, in the units of the columns."""
    back = survey.design.back_random
    values = np.linalg.svd(matrix, compute_uv=False)
    effects, covariances = _turn(release, survey, back)
    return {
        "random_covariance": back @ matrix @ matrix.T @ back.T,
        "effects": unit * effects,
        "effect_covariances": unit**2 * covariances,
        "singular": bool(values.min(initial=1.0) < NO_SCALE * max(unit, 1e-300)),
    }


def _turn(release, survey, back):
    """Turn effects of standardised columns into those of columns as they are."""
    random, census = survey.design.random, survey.census
    effects = release.effects.copy()
    covariances = release.effect_covariances.copy()
    start = 0
    for factor in np.unique(random.factors):
        columns = np.flatnonzero(random.factors == factor)
        n_levels, width = len(census.n_rows[factor]), len(columns)
        part = slice(start, start + n_levels * width)
        turn = back[np.ix_(columns, columns)]
        effects[part] = (effects[part].reshape(n_levels, width) @ turn.T).ravel()
        block = covariances[part][:, columns].reshape(n_levels, width, width)
        covariances[part] = 0.0
        covariances[part, columns] = (turn @ block @ turn.T).reshape(-1, width)
        start = part.stop
    return effects, covariances
