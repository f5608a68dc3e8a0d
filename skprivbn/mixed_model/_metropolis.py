"""EM with effects that are drawn, as in the paper's appendix B.

Sections B.9 and B.10: what each party computes of its own rows is the vector of a sum,
the joint computation is that of its total, which here every party does by itself.

Proposals come from N(0, sigma) whatever the state of a chain. So a batch of them is
evaluated in one round trip, and the chains then walk through the batch.
"""

from dataclasses import dataclass, replace

import numpy as np

from skprivbn.federation import Sum
from skprivbn.mixed_model._quadrature import (
    Grid,
    Posterior,
    derivatives,
    log_likelihood_table,
)
from skprivbn.mixed_model._terms import INTERCEPT
from skprivbn.mixed_model._updates import QuasiNewton, solve_information
from skprivbn.utils._linalg import symmetric, upper

# Scale of the effects at first.
_FIRST_SCALE = 0.7


def metropolis_em(search):
    """Draw the effects (E-step) and take a step of Newton-Raphson (M-step), in turn."""
    draws = Draws(search)
    for _ in range(search.terms.max_iter):
        # E-step: effects z' are proposed from N(0, sigma), log-likelihoods added up,
        # and z is replaced by z' with the probability A(z, z')
        draws.chains.restart()
        while not draws.chains.is_complete:
            vector, weights = draws.propose()
            total = yield Sum(vector, "log-likelihoods at proposed effects", weights)
            draws.accept(total)
        # M-step: beta by a step of Newton-Raphson, sigma by the variance of the draws
        vector, weights = draws.expected_derivatives()
        total = yield Sum(vector, "expected gradient and Hessian", weights)
        draws.maximise(total)
    draws.average()


class Draws:
    """State of EM at one party: draws of the effects, and the parameters.

    Parameters
    ----------
    search : Search
        Own rows and parameters, from the model without effects on.
    """

    def __init__(self, search):
        self.search, terms, self.path = search, search.terms, []
        n_clusters = search.data.n_categories
        start = search.padded(search.without.best[0])
        start[-1] = _FIRST_SCALE
        if terms.scales:
            start[-1] = 1.0
            self._rescale(np.full(n_clusters, _FIRST_SCALE))
            search.integral.twice = False
        search.optimiser = QuasiNewton(start, terms.tol)
        sizes = terms.batch_size, terms.n_burn_in, terms.n_draws
        self.chains = Chains(n_clusters, *sizes, terms.seed)

    def _rescale(self, scales):
        """Give every cluster's effect a standard deviation of its own."""
        search = self.search
        before = search.scales if len(search.scales) else np.ones(len(scales))
        ratio, search.scales = (scales / before)[search.data.category], scales
        search.data = replace(search.data, Z=search.data.Z * ratio[:, None])
        search.integral.data = search.data

    def propose(self):
        """Return log-likelihoods of opened clusters at proposed effects."""
        search, candidates = self.search, self.chains.propose()
        data, parameters = search.data, search.parameters
        zero = np.zeros((len(candidates), 1))
        self.own_table = log_likelihood_table(data, parameters, candidates)
        self.own_table -= log_likelihood_table(data, parameters, zero)
        eta = data.predictor(parameters, self.chains.state[:, None])[:, 0]
        weights, _ = search.weigh(eta, by_cluster=True)
        return self.own_table[search.integral.opened].ravel(), weights

    def accept(self, total):
        """Accept or reject what was proposed, cluster by cluster."""
        table = self.own_table.copy()
        table[self.search.integral.opened] = total.reshape(-1, table.shape[1])
        self.chains.walk(table)

    def expected_derivatives(self):
        """Return the expected gradient and Hessian, and moments of the effects."""
        search, posterior = self.search, self.chains.posterior()
        search.integral.posterior = posterior
        gradient, information = derivatives(search.data, search.parameters, posterior)
        mean, variance = posterior.mean(), posterior.variance()
        told = search.integral.speaks_for
        moments = [mean[told].sum(), (variance + mean**2)[told].sum()]
        if search.terms.scales:
            # that the common mean of effects of known scales is made of
            scales = search.scales[told]
            moments = [(mean[told] / scales).sum(), (scales**-2).sum()]
        eta = search.data.predictor(search.parameters, mean[:, None])[:, 0]
        weights, sizes = search.weigh(eta, by_cluster=False)
        parts = sizes[:2], gradient, upper(information), moments
        return np.concatenate(parts), weights

    def maximise(self, total):
        """Take a step of parameter-expanded EM."""
        search, terms = self.search, self.search.terms
        search.n_iter += 1
        size = len(search.parameters)
        ends = np.cumsum([2, size, size * (size + 1) // 2])
        sizes, gradient, complete, moments = np.split(total, ends)
        search.read_sizes(*sizes)
        moments = moments / np.count_nonzero(search.census.n_rows[-1])
        if terms.scales:
            moments = moments[0] / moments[1], 1.0 + (moments[0] / moments[1]) ** 2
        if not (terms.fit_intercept and search.random.columns[0] == INTERCEPT):
            # a mean of the effects would be that of no fixed effect
            moments = 0.0, moments[1]
        parameters = expanded_step(
            search.parameters, gradient, symmetric(complete), *moments
        )
        if terms.scales:
            wider, parameters[-1] = parameters[-1], 1.0
            posterior = search.integral.posterior
            away = search.scales * posterior.mean() - moments[0]
            second = search.scales**2 * posterior.variance() + away**2
            known = search.integral.opened | search.integral.own
            self._rescale(np.where(known, wider * np.sqrt(second), search.scales))
        search.optimiser.parameters = parameters
        self.path.append(np.append(parameters, search.scales))

    def average(self):
        """End at the mean of the path, whose first half is on the way.

        Averaging evens out the noise of the draws, which say where nodes are put.
        """
        search, integral = self.search, self.search.integral
        posterior = integral.posterior
        spread = np.sqrt(posterior.variance()).clip(1e-3, 1)
        integral.grid = Grid(posterior.mean(), spread, integral.grid.n_nodes)
        mean = np.mean(self.path[len(self.path) // 2 :], axis=0)
        size = len(search.parameters)
        search.optimiser.parameters, scales = np.split(mean, [size])
        if len(scales):
            self._rescale(np.rint(scales * 2.0**20) / 2.0**20)


@dataclass
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

    n_categories: int
    batch_size: int
    n_burn_in: int
    n_draws: int
    seed: int

    def __post_init__(self):
        self.random = np.random.default_rng(self.seed)
        self.state = self.random.standard_normal(self.n_categories)
        self.restart()

    @property
    def is_complete(self):
        """Whether all draws of an E-step have been made."""
        return len(self.path) >= self.n_burn_in + self.n_draws

    def restart(self):
        """Discard the draws; go on from the last state, with new parameters."""
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
