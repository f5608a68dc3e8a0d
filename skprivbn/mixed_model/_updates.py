"""M-steps: from expected derivatives to the next parameters (beta, sigma)."""

import numpy as np

__all__ = ["QuasiNewton", "expanded_step", "solve_information"]

_MEMORY = 10
# Directions in which the information is smaller than this are left alone.
_RANK_TOLERANCE = 1e-11


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
    known = values > _RANK_TOLERANCE * values[-1]
    vectors = vectors[:, known]
    return (vectors / values[known]) @ (vectors.T @ gradient)


class QuasiNewton:
    """EM with one Newton step per M-step, sped up by what past gradients tell.

    The expected information overstates how much the rows say, since the effects are
    not seen; EM is therefore slow. Differences of marginal gradients between
    iterations correct it (Lange 1995), here by BFGS updates. A step that lowered the
    log-likelihood is halved.

    Parameters
    ----------
    parameters : ndarray of shape (n_parameters,)
        To start from.
    tol : float
        Stop when the next step promises a smaller gain in log-likelihood.

    Attributes
    ----------
    parameters : ndarray of shape (n_parameters,)
    """

    def __init__(self, parameters, tol):
        self.parameters = parameters
        self.tol = tol
        self._best = None
        self._pairs = []

    def step(self, log_likelihood, gradient, information):
        """Move the parameters.

        Parameters
        ----------
        log_likelihood : float
            At the current parameters.
        gradient : ndarray of shape (n_parameters,)
        information : ndarray of shape (n_parameters, n_parameters)
            Expected complete-data information.

        Returns
        -------
        go_on : bool
        """
        if self._best is not None:
            last, last_value, last_gradient = self._best
            if log_likelihood < last_value - 1e-7 * (1 + abs(last_value)):
                self._pairs = []
                self.parameters = (self.parameters + last) / 2
                return True
            self._remember(self.parameters - last, last_gradient - gradient)
        self._best = self.parameters, log_likelihood, gradient
        step = solve_information(self._corrected(information), gradient)
        self.parameters = self.parameters + step
        return bool(gradient @ step / 2 > self.tol)

    def forget(self):
        """Drop everything but the parameters."""
        self._best, self._pairs = None, []

    def _remember(self, moved, change):
        norm = np.linalg.norm(moved)
        # Only where the log-likelihood is concave, and above rounding errors.
        if norm > 1e-8 and moved @ change > 1e-8 * norm * np.linalg.norm(change):
            self._pairs = [*self._pairs, (moved, change)][-_MEMORY:]

    def _corrected(self, information):
        for moved, change in self._pairs:
            image = information @ moved
            if moved @ image <= 0:
                continue
            information = (
                information
                - np.outer(image, image) / (moved @ image)
                + np.outer(change, change) / (moved @ change)
            )
        return information


def expanded_step(parameters, gradient, information, first, second):
    """Take one step of parameter-expanded EM (Liu, Rubin and Wu 1998).

    A Newton step for the fixed effects given the draws; then mean and variance of the
    draws go into intercept and sigma. Plain EM, which keeps the mean at zero, has the
    same solution and needs many more iterations.

    Parameters
    ----------
    parameters : ndarray of shape (n_parameters,)
    gradient : ndarray of shape (n_parameters,)
    information : ndarray of shape (n_parameters, n_parameters)
    first, second : float
        Means over categories and draws of u and its square.

    Returns
    -------
    parameters : ndarray of shape (n_parameters,)
    """
    parameters = parameters + solve_information(information, gradient)
    sigma = parameters[-1]
    parameters[0] += sigma * first
    parameters[-1] = abs(sigma) * np.sqrt(max(second - first**2, 0.0))
    return parameters
