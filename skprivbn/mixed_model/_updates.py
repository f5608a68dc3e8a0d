"""From derivatives of the log-likelihood to the next parameters, and to estimates."""

from dataclasses import dataclass

import numpy as np

#: below, a scale of the effects counts as zero: a boundary ("singular") fit.
NO_SCALE = 1e-3
# Smallest eigenvalue of the information per row at which estimates are determined.
_DETERMINED = 1e-7
# Slope of the log-likelihood per row at which a search cannot have been at its end.
_STEEP = 1e-3
#: log-likelihood of classes that are told apart as good as without error
PERFECT = -0.01
# Past gradients that are kept.
_MEMORY = 3
# Where it is within these limits of what gradients tell, information is left alone.
_GOOD = 0.8, 1.25
# A past gradient may lower the information in a direction to this part of it.
_DAMPING = 0.2
# Least and most of the complete information that a guess leaves.
_LEAST, _MOST = 1e-10, 20.0
# Longest step of a parameter near zero; features are standardised.
_LONGEST = 3.0
# Log-likelihoods that differ by less, relatively, count as equal.
_NOISE = 1e-8
# How much of its error changes where a log-likelihood is looked at nearby.
_CHANGE = 0.1
# A column of which others leave less is nearly collinear with them; of a rest that is
# smaller still, sums cannot tell how large it is, or anything at all.
_NEARLY, _SMALLEST_REST, _NO_REST = 1e-4, 1e-10, 1e-14
# Columns that are smaller, squared, are what rounding leaves of nothing.
_VANISHED = 1e-8
# Directions in which the information is smaller than this are left alone.
_RANK_TOLERANCE = 1e-11
#: by which differences are taken
STEP = 1e-3


def solve_information(information, gradient):
    """Return the Newton step, zero where the rows say nothing.

    Parameters
    ----------
    information : ndarray of shape (n, n)
        Positive semi-definite.
    gradient : ndarray of shape (n,) or (n, n_columns)

    Returns
    -------
    step : ndarray, shaped like `gradient`
    """
    values, vectors = np.linalg.eigh(information)
    known = values > _RANK_TOLERANCE * values.max(initial=0.0)
    vectors = vectors[:, known]
    return (vectors / values[known]) @ (vectors.T @ gradient)


def guess_information(complete, missing):
    """Return the information that is left, where at least some of it is.

    Parameters
    ----------
    complete : ndarray of shape (n, n)
        If the effects were seen.
    missing : ndarray of shape (n, n)
        What not seeing them costs, about.

    Returns
    -------
    information : ndarray of shape (n, n)
        Positive definite: where the log-likelihood bends the other way, as much as it
        bends.
    """
    values, vectors = np.linalg.eigh(complete)
    known = values > _RANK_TOLERANCE * values.max(initial=0.0)
    root = vectors[:, known] * np.sqrt(values[known])
    inverse = vectors[:, known] / np.sqrt(values[known])
    lost, directions = np.linalg.eigh(inverse.T @ missing @ inverse)
    turned = root @ directions
    return (turned * np.clip(np.abs(1 - lost), _LEAST, _MOST)) @ turned.T


def stencil(parameters):
    """Return points around parameters that give first and second derivatives there.

    Parameters
    ----------
    parameters : ndarray of shape (size,)

    Returns
    -------
    points : ndarray of shape (n_points, size)
        The parameters first, then a step up and a step down in each of them, then
        steps up in two.
    """
    steps = STEP * np.eye(len(parameters))
    i, j = np.triu_indices(len(steps), 1)
    here = np.zeros((1, len(steps)))
    return parameters + np.concatenate([here, steps, -steps, steps[i] + steps[j]])


def second_derivatives(values, size):
    """Return the Hessian from the values at a :func:`stencil`."""
    (here,), plus, minus, both = np.split(values, np.cumsum([1, size, size]))
    hessian, (i, j) = np.diag(plus - 2 * here + minus), np.triu_indices(size, 1)
    hessian[i, j] = hessian[j, i] = both - plus[i] - plus[j] + here
    return hessian / STEP**2


def decorrelate(products):
    """Return a matrix that decorrelates nearly collinear columns.

    Sums of products lose twice as many digits as rows do where columns are collinear.
    A column of which those before it explain nearly all is replaced by the rest of it,
    in its old size; others stay as they are. Parties that hold rows do so each by
    itself, from the same total, and have to agree to the last bit: there is nothing but
    plain arithmetic here, no matrix product whose rounding depends on a processor.

    Parameters
    ----------
    products : ndarray of shape (n_columns, n_columns)

    Returns
    -------
    turn : ndarray of shape (n_columns, n_columns)
        Upper triangular: columns are to be multiplied by it from the right. The
        identity where no column is nearly collinear.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.arange(6.0) - 2.5
    >>> X = np.column_stack([x, x + 1e-3 * np.array([1, -1, 0, 0, -1, 1])])
    >>> turned = X @ decorrelate(X.T @ X)
    >>> np.round(turned[:, 1] / np.linalg.norm(X[:, 1]), 2) + 0.0
    array([ 0.5, -0.5,  0. ,  0. , -0.5,  0.5])
    """
    size = np.sqrt(np.diag(products))
    size = np.where(size > 1e-9 * size.max(initial=0.0), size, 1.0)
    # rows of `inverse` are what is left of each column, of those before it
    left, inverse = products / size[:, None] / size, np.eye(len(products))
    turn = np.eye(len(products))
    for j in range(len(products)):
        rest = left[j, j]
        if rest < _NEARLY and products[j, j] > 0 and size[j] != 1.0:
            scale = size[j] / np.sqrt(max(rest, _SMALLEST_REST))
            turn[:, j] = scale * inverse[j] / size
        if rest > _NO_REST:
            factors = left[:, j] / rest
            factors[: j + 1] = 0.0
            inverse = inverse - factors[:, None] * inverse[j]
            left = left - factors[:, None] * left[j]
    return turn


def vanished(products, turn):
    """Return a mask of the columns that those before them explain completely.

    Parameters
    ----------
    products : ndarray of shape (n_columns, n_columns)
        Of columns that were multiplied by `turn`.
    turn : ndarray of shape (n_columns, n_columns)
        Of :func:`decorrelate`.

    Returns
    -------
    mask : ndarray of bool of shape (n_columns,)
    """
    turned = np.any(turn != np.eye(len(turn)), axis=0)
    size = np.diag(products)
    return turned & (size < _VANISHED * size.max(initial=0.0))


def least_coefficients(coefficients, turn, nothing):
    """Return the smallest of all coefficients that make the same predictions.

    Parameters
    ----------
    coefficients : ndarray of shape (n_columns,)
        Of columns before they were turned.
    turn : ndarray of shape (n_columns, n_columns)
        Of :func:`decorrelate`.
    nothing : ndarray of bool of shape (n_columns,)
        Of :func:`vanished`.

    Returns
    -------
    coefficients : ndarray of shape (n_columns,)
    free : ndarray of shape (n_columns, n_nothing)
        Directions in which the rows do not determine them.
    """
    free, _ = np.linalg.qr(turn[:, nothing] / np.linalg.norm(turn[:, nothing], axis=0))
    return coefficients - free @ (free.T @ coefficients), free


class QuasiNewton:
    """EM with one Newton step per M-step, sped up by what past gradients tell.

    The expected information overstates how much the rows say, since the effects are
    not seen; EM is therefore slow. Differences of marginal gradients between
    iterations correct it (Lange 1995), here by BFGS updates, damped where they would
    make the information too small (Powell). A step that lowered the log-likelihood
    is taken back in part, so that the best point seen is never left for a worse one.

    Parameters
    ----------
    parameters : ndarray of shape (n_parameters,)
        To start from.
    tol : float
        Stop when the next step promises a smaller gain in log-likelihood.
    observed : bool, default=False
        Whether the information is the observed one, which needs no correction.

    Attributes
    ----------
    limits : float or ndarray of shape (n_parameters,)
        Bounds on the sizes of the parameters.
    parameters : ndarray of shape (n_parameters,)
        Where the log-likelihood is to be looked at next.
    best : tuple of (ndarray, float, ndarray)
        Parameters, log-likelihood and gradient of the best point; None at first.
    promised : float
        Gain that the last step promised.
    noise : float
        Differences of log-likelihoods that say nothing.
    """

    def __init__(self, parameters, tol, observed=False):
        self.parameters = parameters
        self.tol, self.observed = tol, observed
        self.limits, self.best = np.inf, None
        self.promised = np.inf
        self.noise = 0.0
        self._pairs = []

    @property
    def arrived(self):
        """Whether nothing more can be gained from the best point."""
        return self.promised <= max(self.tol, self.noise)

    def step(self, log_likelihood, gradient, information, error=0.0):
        """Move the parameters.

        Parameters
        ----------
        log_likelihood : float
            At the current parameters.
        gradient : ndarray of shape (n_parameters,)
        information : ndarray of shape (n_parameters, n_parameters)
            Expected complete-data information, or as :func:`guess_information`.
        error : float, default=0.0
            Of the log-likelihood; nearby it is nearly the same.

        Returns
        -------
        go_on : bool
            If not, the parameters are a last, small step from the best point.
        """
        if self.best is not None:
            last, last_value, last_gradient = self.best
            moved, gain = self.parameters - last, log_likelihood - last_value
            promised, noise = last_gradient @ moved, self.noise
            # as a mirrored sigma is just as good, it is not enough not to lose
            if not gain >= 1e-4 * promised - noise:
                self._pairs = []
                # far from the top a parabola misleads where information is observed: it
                # may pass between mirrored tops
                part = 0.5 if self.observed else _part(promised, gain)
                self.parameters = last + part * moved
                if promised > noise:
                    return True
                self.parameters = last
                return False
            if not self.observed and np.linalg.norm(moved) > 1e-8:
                pair = moved, last_gradient - gradient
                self._pairs = [*self._pairs, pair][-_MEMORY:]
        self.best = self.parameters, log_likelihood, gradient
        self.noise = _NOISE * (1 + abs(log_likelihood)) + _CHANGE * error
        information = self._corrected(information)
        before, step = self.promised, solve_information(information, gradient)
        self.promised = float(gradient @ step / 2)
        beyond = np.abs(self.parameters + step) > self.limits
        if np.any(beyond):
            step = self._stop_at_limits(step, beyond, gradient, information)
            self.promised = float(gradient @ step - step @ information @ step / 2)
        # not farther than all the way so far
        longest = max(_LONGEST, np.abs(self.parameters).max(initial=0.0))
        length = np.abs(step).max(initial=0.0)
        # what is promised falls, unless rounding is all that is left
        if before <= self.promised < self.noise:
            return False
        self.parameters = self.parameters + step * min(1.0, longest / max(length, 1e-9))
        return self.promised > self.tol

    def _stop_at_limits(self, step, beyond, gradient, information):
        """Return the Newton step of the others where some go to their limits."""
        limits = np.copysign(self.limits, self.parameters + step)
        step = np.where(beyond, limits - self.parameters, 0.0)
        left, rest = gradient - information @ step, ~beyond
        step[rest] = solve_information(information[np.ix_(rest, rest)], left[rest])
        return step

    def _corrected(self, information):
        for moved, change in self._pairs:
            image = information @ moved
            expected, seen = moved @ image, moved @ change
            if expected <= 0 or _GOOD[0] < seen / expected < _GOOD[1]:
                continue
            if seen < _DAMPING * expected:
                part = (1 - _DAMPING) * expected / (expected - seen)
                change = part * change + (1 - part) * image
            information = information - np.outer(image, image) / expected
            information += np.outer(change, change) / (moved @ change)
        return information


def _part(promised, gain):
    """Return how much of a step to keep: the top of a parabola, within limits."""
    if not np.isfinite(gain):
        return 0.1
    return np.clip(promised / (2 * (promised - gain)), 0.1, 0.5)


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
        Of the random effects; (n_clusters, 1, 1) if each has a scale of its own.
    effects : ndarray of shape (n_numbers,)
    effect_variances : ndarray of shape (n_numbers,)
    sigma : float or None
        Standard deviation of the rows, in linear models.
    log_likelihood : ndarray of shape (2,)
        And by how much it may be off.
    problem : str
        Why the estimates are not those of maximum likelihood, a key of
        :data:`~skprivbn.mixed_model._checks.PROBLEMS`; empty if nothing does.
    singular, converged : bool
        Whether a variance is zero, or a correlation one; whether the search ended by
        itself.
    n_iter : int
    """

    fixed: np.ndarray
    covariance: np.ndarray
    random_covariance: np.ndarray
    effects: np.ndarray
    effect_variances: np.ndarray
    sigma: float | None
    log_likelihood: np.ndarray
    problem: str
    singular: bool
    converged: bool
    n_iter: int


def estimate(
    survey, parameters, slope, effects, turn, *, collinear, few, converged, n_iter
):
    """Compute the estimates of a generalised model.

    Standard errors are from the observed information. Unless effects were drawn, a
    last Newton step undoes the rounding of the parameters.

    Parameters
    ----------
    survey : Survey
    parameters : ndarray of shape (n_parameters,)
        (beta, theta) of standardised features, at which the rest was computed.
    slope : Slope
        Of the log-likelihood there.
    effects : ndarray of shape (n_numbers, 1 + n_effects)
        Random effects, and their covariances; then scales, if each has its own.
    turn : ndarray of shape (n_fixed, n_fixed)
        What standardised features were multiplied by, see :func:`decorrelate`: the
        parameters, and what was computed there, are of the features that this makes.
    collinear, few : bool
        Whether products of the features are a singular matrix; whether the search
        ended as few rows had weight where it went on to.
    converged : bool
    n_iter : int

    Returns
    -------
    estimates : Estimates
    """
    terms = survey.terms
    design, random = survey.design, survey.design.random
    parameters, varies = parameters.copy(), _varies(survey)
    n_fixed = len(varies)
    complete = slope.complete[:n_fixed, :n_fixed]
    nothing = vanished(complete, turn)
    known = varies & ~nothing
    lowest = np.linalg.eigvalsh(complete[np.ix_(known, known)]).min(initial=np.inf)
    determined = lowest > _DETERMINED * survey.n_samples
    # where there is no curvature there should be no slope either
    steepest = np.abs(slope.gradient[:n_fixed]).max(initial=0.0)
    stuck = not determined and steepest > _STEEP * survey.n_samples
    determined &= not few and not (survey.classes and slope.value > PERFECT)
    theta = parameters[n_fixed:]
    # a scale at its bound is no free parameter, nor is a column of Lambda at zero
    free = np.append(known, np.zeros(len(theta), dtype=bool))
    is_wide = np.abs(theta) == terms.widest
    if terms.mixed and not terms.scales:
        largest = np.abs(random.matrix(theta)).max(axis=0)
        free[n_fixed:] = ~is_wide & (largest > NO_SCALE)[random.positions[1]]
    wide = bool(terms.mixed and np.any(is_wide))
    observed = (slope.complete - slope.missing)[np.ix_(free, free)]
    flat = np.linalg.eigvalsh(observed).min(initial=np.inf)
    maximum = bool(flat > -1e-6 * np.abs(observed).max(initial=1.0))
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
        problem=_first_problem(
            collinear=np.any(nothing) or (collinear and not determined),
            flat=stuck,
            few=few,
            separated=not determined and terms.target == "classes",
            no_events=not determined,
            wide=wide,
            no_maximum=not maximum,
            ended=not (converged or terms.drawn) and n_iter < terms.max_iter,
            not_converged=not (converged or terms.drawn),
        ),
        converged=converged and not wide,
        n_iter=n_iter,
        **_translate(matrix, effects, survey),
    )


def _first_problem(**problems):
    """Return the name of the first that there is."""
    return next((name for name, is_there in problems.items() if is_there), "")


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
    size = np.abs(back) @ np.abs(free)
    hidden = np.any(np.abs(back @ free) > 1e-7 * size, axis=1)
    covariance[hidden, :] = covariance[:, hidden] = np.nan
    return covariance


def estimate_linear(survey, sums, theta, fit, effects, converged, n_iter):
    """Compute the estimates of a linear model.

    Parameters
    ----------
    survey : Survey
    sums : Sums
    theta : ndarray of shape (n_theta,)
    fit : LinearFit
        For standardised features and target.
    effects : ndarray of shape (n_numbers, 1 + n_effects)
        Random effects, and their covariances.
    converged : bool
    n_iter : int

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
    covariance = unit**2 * back @ fit.covariance @ back.T
    covariance[~varies, :] = covariance[:, ~varies] = np.nan
    n_known = int(np.count_nonzero(varies))
    log_likelihood = fit.log_likelihood + sums.log_weights / 2
    log_likelihood -= sums.n_rows * np.log(unit)
    if survey.terms.reml:
        # the restricted likelihood depends on the units of the features
        log_likelihood += n_known * np.log(unit)
        log_likelihood += np.log(np.diag(back)[varies]).sum()
    determined = fit.determined or n_known < n_fixed
    if not determined:
        covariance = np.full_like(covariance, np.nan)
    matrix = unit * fit.sigma * design.random.matrix(theta)
    return Estimates(
        fixed=shift + unit * back @ fit.beta,
        covariance=covariance,
        log_likelihood=np.array([log_likelihood, 0.0]),
        sigma=float(unit * fit.sigma * np.sqrt(sums.precision)),
        problem=_first_problem(collinear=not determined, not_converged=not converged),
        converged=converged,
        n_iter=n_iter,
        **_translate(matrix, effects, survey, unit, fit.sigma),
    )


def _varies(survey):
    varies = ~survey.constant
    return np.append(True, varies) if survey.design.fit_intercept else varies


def _translate(matrix, effects, survey, unit=1.0, noise=1.0):
    """Return what is known of random effects, in the units of the columns.

    Parameters
    ----------
    matrix : ndarray of shape (n_effects, n_effects)
        Root of their covariance, in units of the target.
    effects : ndarray of shape (n_numbers, 1 + n_effects)
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
    random, back = survey.design.random, survey.design.back_random
    values = np.linalg.svd(matrix, compute_uv=False)
    means, variances, start = effects[:, 0].copy(), np.zeros(len(effects)), 0
    for factor in np.unique(random.factors):
        columns = np.flatnonzero(random.factors == factor)
        n_levels, width = len(survey.census.n_rows[factor]), len(columns)
        part = slice(start, start + n_levels * width)
        turn = back[np.ix_(columns, columns)]
        means[part] = (means[part].reshape(n_levels, width) @ turn.T).ravel()
        block = effects[part][:, 1 + columns].reshape(n_levels, width, width)
        variances[part] = np.einsum("lii->li", turn @ block @ turn.T).ravel()
        start = part.stop
    covariance = back @ matrix @ matrix.T @ back.T
    if survey.terms.scales:
        covariance = effects[:, -1, None, None] ** 2 * covariance
    return {
        "random_covariance": covariance,
        "effects": unit * means,
        "effect_variances": unit**2 * variances,
        "singular": bool(np.any(values < NO_SCALE * noise * unit)),
    }
