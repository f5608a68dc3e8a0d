"""From derivatives of the log-likelihood to the next parameters."""

import numpy as np

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
# By which differences are taken.
_STEP = 1e-3


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


def decorrelate(products):
    """Return what takes nearly collinear columns apart, from their sums of products.

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
    """Tell of which columns nothing is left: those before them explain them.

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
    limits : float or ndarray of shape (n_parameters,), default=inf
        Bounds on the sizes of the parameters.

    Attributes
    ----------
    parameters : ndarray of shape (n_parameters,)
        Where the log-likelihood is to be looked at next.
    best : tuple of (ndarray, float, ndarray)
        Parameters, log-likelihood and gradient of the best point; None at first.
    promised : float
        Gain that the last step promised.
    noise : float
        Differences of log-likelihoods that say nothing.
    """

    def __init__(self, parameters, tol, limits=np.inf):
        self.parameters = parameters
        self.tol, self.limits = tol, limits
        self.best = None
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
            Expected complete-data information.
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
                self.parameters = last + _part(promised, gain) * moved
                if promised > noise:
                    return True
                self.parameters = last
                return False
            self._remember(moved, last_gradient - gradient)
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

    def _remember(self, moved, change):
        if np.linalg.norm(moved) > 1e-8:
            self._pairs = [*self._pairs, (moved, change)][-_MEMORY:]

    def _corrected(self, information):
        for moved, change in self._pairs:
            image = information @ moved
            expected, seen = moved @ image, moved @ change
            if expected <= 0 or _GOOD[0] < seen / expected < _GOOD[1]:
                continue
            if seen < _DAMPING * expected:
                part = (1 - _DAMPING) * expected / (expected - seen)
                change = part * change + (1 - part) * image
            information = (
                information
                - np.outer(image, image) / expected
                + np.outer(change, change) / (moved @ change)
            )
        return information


def _part(promised, gain):
    """Return how much of a step to keep: the top of a parabola, within limits."""
    if not np.isfinite(gain):
        return 0.1
    return np.clip(promised / (2 * (promised - gain)), 0.1, 0.5)


def stencil(theta):
    """Return points around theta that give gradient and Hessian there.

    Parameters
    ----------
    theta : ndarray of shape (n_theta,)

    Returns
    -------
    points : ndarray of shape (n_points, n_theta)
        Theta itself first.
    """
    steps = _STEP * np.eye(len(theta))
    i, j = np.triu_indices(len(theta), 1)
    here = np.zeros((1, len(theta)))
    away = [here, steps, -steps, 2 * steps, -2 * steps, steps[i] + steps[j]]
    return theta + np.concatenate(away)


def _derivatives(values, size):
    """Return gradient and Hessian from the values on a stencil."""
    bounds = np.cumsum([1, size, size, size, size])
    centre, plus, minus, far_plus, far_minus, both = np.split(values, bounds)
    gradient = (8 * (plus - minus) - (far_plus - far_minus)) / (12 * _STEP)
    hessian = np.diag((plus - 2 * centre + minus) / _STEP**2)
    i, j = np.triu_indices(size, 1)
    hessian[i, j] = hessian[j, i] = (both - plus[i] - plus[j] + centre) / _STEP**2
    return gradient, hessian


class ThetaSearch:
    """Newton's method on theta, from values on stencils; never ends below its best.

    The log-likelihood is even in the columns of Lambda, so that no bound is needed.

    Parameters
    ----------
    theta : ndarray of shape (n_theta,)
        To start from.
    tol : float
        Stop when the next step promises a smaller gain.

    Attributes
    ----------
    theta : ndarray of shape (n_theta,)
        Around which the log-likelihood is to be looked at next.
    """

    def __init__(self, theta, tol):
        self.theta = theta
        self.tol = tol
        self._best = None

    def update(self, values):
        """Move theta.

        Parameters
        ----------
        values : ndarray of shape (n_points,)
            Log-likelihoods on the stencil of theta.

        Returns
        -------
        go_on : bool
            If not, theta is where the search ends, and `values` are about it.
        """
        if self._best is not None:
            best, value, gradient = self._best
            promised = gradient @ (self.theta - best)
            if values[0] - value < 1e-3 * promised - 1e-9:
                self.theta = (self.theta + best) / 2
                return bool(np.abs(self.theta - best).max() > 1e-9)
        if not len(self.theta):
            return False
        gradient, hessian = _derivatives(values, len(self.theta))
        self._best = self.theta, values[0], gradient
        curvature, vectors = np.linalg.eigh(-hessian)
        # Where it is not concave, a step of about the same size uphill.
        size = np.maximum(np.abs(curvature), 1e-6 * np.abs(curvature).max() + 1e-12)
        step = vectors @ ((vectors.T @ gradient) / size)
        longest = 2 * max(np.linalg.norm(self.theta), 0.1)
        step *= min(longest / max(np.linalg.norm(step), 1e-300), 1.0)
        if gradient @ step / 2 <= self.tol:
            return False
        self.theta = self.theta + step
        return True
