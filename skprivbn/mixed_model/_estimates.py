"""From what the parties release to estimates and standard errors."""

from dataclasses import dataclass

import numpy as np

from skprivbn.mixed_model._updates import solve_information

__all__ = ["Estimates", "estimate"]

# Below, the scale of the effects counts as zero: a boundary ("singular") fit.
_NO_SCALE = 1e-3
# Smallest eigenvalue of the information per row at which estimates are determined.
_DETERMINED = 1e-7


@dataclass(frozen=True)
class Estimates:
    """Maximum likelihood estimates, for features as they are.

    Attributes
    ----------
    fixed : ndarray of shape (n_features + 1,)
        Intercept and coefficients.
    covariance : ndarray of shape (n_features + 1, n_features + 1)
        Their sampling covariance; NaN where it cannot be told.
    sigma : float
        Standard deviation of the random effects.
    log_likelihood : float
    determined : bool
        Whether the rows determine all coefficients of features that vary.
    maximum : bool
        Whether the log-likelihood has its maximum there.
    """

    fixed: np.ndarray
    covariance: np.ndarray
    sigma: float
    log_likelihood: float
    determined: bool
    maximum: bool


def estimate(release, survey, *, refine):
    """Compute the estimates.

    Standard errors are from Louis' observed information: that of rows and effects
    together, less what is missing because effects are not seen.

    Parameters
    ----------
    release : Release
    survey : Survey
    refine : bool
        Take a last Newton step, which undoes the rounding of the parameters.

    Returns
    -------
    estimates : Estimates
    """
    parameters = release.parameters.copy()
    observed = release.complete - release.missing
    varies = np.append(True, ~survey.constant)
    n = survey.n_rows.sum()
    fixed_information = release.complete[:-1, :-1][np.ix_(varies, varies)]
    determined = np.linalg.eigvalsh(fixed_information)[0] > _DETERMINED * n

    # A scale at its bound is no free parameter.
    free = np.append(varies, abs(parameters[-1]) > _NO_SCALE)
    observed = observed[np.ix_(free, free)]
    maximum = bool(np.linalg.eigvalsh(observed)[0] > 0)
    log_likelihood = release.log_likelihood
    covariance = np.full((len(parameters), len(parameters)), np.nan)
    if maximum:
        if refine:
            step = solve_information(observed, release.gradient[free])
            parameters[free] += step
            log_likelihood += release.gradient[free] @ step / 2
        if determined:
            inverse = solve_information(observed, np.eye(len(observed)))
            covariance[np.ix_(free, free)] = inverse

    # Features were standardised; constant ones have no coefficient.
    back = np.diag(np.append(1.0, 1 / survey.scale))
    back[0, 1:] = -survey.moments.mean / survey.scale
    back = back[:, varies]
    covariance = covariance[:-1, :-1][np.ix_(varies, varies)]
    covariance = back @ covariance @ back.T
    covariance[~varies, :] = covariance[:, ~varies] = np.nan
    return Estimates(
        fixed=back @ parameters[:-1][varies],
        covariance=covariance,
        sigma=float(abs(parameters[-1])),
        log_likelihood=float(log_likelihood),
        determined=bool(determined),
        maximum=maximum,
    )
