"""Effects that are drawn by Metropolis-Hastings, as in the EM paper's appendix B."""

from dataclasses import replace
from typing import Any

import numpy as np

from skprivbn.federation import Sum
from skprivbn.mixed_model._likelihood import derivatives, log_likelihood_table
from skprivbn.mixed_model._posterior import Chains, expanded_step
from skprivbn.mixed_model._terms import INTERCEPT
from skprivbn.mixed_model._updates import QuasiNewton
from skprivbn.utils._linalg import symmetric, upper


def metropolis_em(search):
    """EM as in the paper's appendix B: Metropolis-Hastings, then Newton-Raphson.

    Sections B.9 and B.10: what each party computes of its own rows is the vector, the
    joint computation is that of the total, which here every party does by itself.
    """
    search.begin_to_draw()
    for _ in range(search.terms.max_iter):
        # E-step: effects z' are proposed from N(0, sigma), log-likelihoods added up,
        # and z is replaced by z' with the probability A(z, z')
        search.chains.restart()
        while not search.chains.is_complete:
            vector = search.propose()
            total = yield Sum(
                vector, "log-likelihoods at proposed effects", search.weights
            )
            search.accept(total)
        # M-step: beta by a step of Newton-Raphson, sigma by the variance of the draws
        vector = search.expected_derivatives()
        total = yield Sum(vector, "expected gradient and Hessian", search.weights)
        search.maximise(total)


# Scale of the effects at first, where they are drawn.
_FIRST_SCALE = 0.7


class DrawnEffects:
    """What a search does with draws, where it does not integrate."""

    data: Any
    scales: np.ndarray

    def begin_to_draw(self):
        """Start from the model without effects."""
        terms, start = self.terms, self._padded(self.without.best[0])
        start[-1] = _FIRST_SCALE
        if terms.scales:
            start[-1] = 1.0
            self._rescale(np.full(self.data.n_categories, _FIRST_SCALE))
            self.integral.twice = False
        self.optimiser = QuasiNewton(start, terms.tol)
        sizes = terms.batch_size, terms.n_burn_in, terms.n_draws
        self.chains = Chains(self.data.n_categories, *sizes, terms.seed)

    def _rescale(self, scales):
        """Give every cluster's effect a standard deviation of its own."""
        before = self.scales if len(self.scales) else np.ones(len(scales))
        ratio, self.scales = (scales / before)[self.data.category], scales
        self.data = replace(self.data, Z=self.data.Z * ratio[:, None])
        self.integral.data = self.data

    def propose(self):
        """Return log-likelihoods of opened clusters at proposed effects."""
        candidates = self.chains.propose()
        zero = np.zeros((len(candidates), 1))
        self.own_table = log_likelihood_table(self.data, self.parameters, candidates)
        self.own_table -= log_likelihood_table(self.data, self.parameters, zero)
        eta = self.data.predictor(self.parameters, self.chains.state[:, None])[:, 0]
        self.weights, _ = self._weigh(eta, by_cluster=True)
        return self.own_table[self.integral.opened].ravel()

    def accept(self, total):
        """Accept or reject what was proposed, cluster by cluster."""
        table = self.own_table.copy()
        table[self.integral.opened] = total.reshape(-1, table.shape[1])
        self.chains.walk(table)

    def expected_derivatives(self):
        """Return the expected gradient and Hessian, and moments of the effects."""
        posterior = self.integral.posterior = self.chains.posterior()
        gradient, information = derivatives(self.data, self.parameters, posterior)
        mean, variance = posterior.mean(), posterior.variance()
        told = self.integral.speaks_for
        moments = [mean[told].sum(), (variance + mean**2)[told].sum()]
        if self.terms.scales:
            # that the common mean of effects of known scales is made of
            scales = self.scales[told]
            moments = [(mean[told] / scales).sum(), (scales**-2).sum()]
        eta = self.data.predictor(self.parameters, mean[:, None])[:, 0]
        self.weights, sizes = self._weigh(eta, by_cluster=False)
        return np.concatenate([sizes[:2], gradient, upper(information), moments])

    def maximise(self, total):
        """Take a step of parameter-expanded EM."""
        self.n_iter += 1
        size = len(self.parameters)
        ends = np.cumsum([2, size, size * (size + 1) // 2])
        sizes, gradient, complete, moments = np.split(total, ends)
        self._read_sizes(*sizes)
        moments = moments / np.count_nonzero(self.census.n_rows[-1])
        if self.terms.scales:
            moments = moments[0] / moments[1], 1.0 + (moments[0] / moments[1]) ** 2
        if not (self.terms.fit_intercept and self.random.columns[0] == INTERCEPT):
            # a mean of the effects would be that of no fixed effect
            moments = 0.0, moments[1]
        parameters = expanded_step(
            self.parameters, gradient, symmetric(complete), *moments
        )
        if self.terms.scales:
            wider, parameters[-1] = parameters[-1], 1.0
            posterior = self.integral.posterior
            away = self.scales * posterior.mean() - moments[0]
            second = self.scales**2 * posterior.variance() + away**2
            known = self.integral.opened | self.integral.own
            self._rescale(np.where(known, wider * np.sqrt(second), self.scales))
        self.optimiser.parameters = parameters
        self.path.append(np.append(parameters, self.scales))
