"""Metropolis-Hastings chains of the random effects, many proposals at a time.

Proposals are drawn from the prior whatever the chains' state. So a batch of them can
be evaluated in one round trip, and the chains then walk through the batch.
"""

import numpy as np

from skprivbn.mixed_model._likelihood import Posterior
from skprivbn.mixed_model._updates import solve_information


class Chains:
    """One chain per category, of its effect u ~ N(0, 1) given its rows.

    Every holder draws the same proposals from the common seed, so that a chain goes
    the same way wherever it is run.

    Parameters
    ----------
    n_categories : int
    batch_size : int
        Proposals per round trip.
    n_burn_in, n_draws : int
        Steps that are forgotten, then steps that are kept.
    seed : int
    """

    def __init__(self, n_categories, batch_size, n_burn_in, n_draws, seed):
        self.n_categories = n_categories
        self.batch_size = batch_size
        self.n_burn_in = n_burn_in
        self.n_draws = n_draws
        self.random = np.random.default_rng(seed)
        self.state = self.random.standard_normal(n_categories)
        self.restart()

    @property
    def is_complete(self):
        """Whether all draws of an E-step have been made."""
        return len(self.path) >= self.n_burn_in + self.n_draws

    def restart(self):
        """Forget the draws and go on from the last state, for new parameters."""
        self.path = []
        self.log_likelihood = None

    def propose(self):
        """Return the next values of u to evaluate.

        Returns
        -------
        candidates : ndarray of shape (n_categories, batch_size)
        """
        shape = (self.n_categories, self.batch_size)
        self.candidates = self.random.standard_normal(shape)
        if self.log_likelihood is None:
            # The likelihood of the last state is unknown under new parameters.
            self.candidates[:, 0] = self.state
        return self.candidates

    def walk(self, table):
        """Accept or reject the proposals one after the other, by category.

        The proposals come from the prior, which therefore cancels out of the
        acceptance ratio: a proposal is accepted with probability L(u') / L(u).

        Parameters
        ----------
        table : ndarray of shape (n_categories, batch_size)
            Log-likelihoods of the candidates, up to a constant per category.
        """
        thresholds = -self.random.standard_exponential(table.shape)
        if self.log_likelihood is None:
            self.log_likelihood = table[:, 0].copy()
        for candidate, value, threshold in zip(
            self.candidates.T, table.T, thresholds.T
        ):
            accepted = value - self.log_likelihood >= threshold
            self.state = np.where(accepted, candidate, self.state)
            self.log_likelihood = np.where(accepted, value, self.log_likelihood)
            self.path.append(self.state)

    def posterior(self):
        """Return the draws kept, with equal weights."""
        draws = np.array(self.path[self.n_burn_in : self.n_burn_in + self.n_draws]).T
        return Posterior(draws, np.full(draws.shape, 1 / self.n_draws))


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
