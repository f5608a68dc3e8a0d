"""What several tests of this family share: a private estimator, an audit."""

import warnings
from functools import partial
from unittest import mock

import numpy as np
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from skprivbn.graphical_model import DPCGMLearner
from skprivbn.mixed_model import PrivateGLMMRegressor, _noisy_linear
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.privacy import CountMechanism, audit_epsilon, check_accountant
from skprivbn.structure import FederatedGaussianBayesianNetwork

# The noise is never seeded. A sound mechanism is blamed once in a billion runs; that a
# broken one is caught needs less certainty, and must not depend on luck either.
prove_epsilon = partial(audit_epsilon, confidence=1 - 1e-9)
suspect_epsilon = partial(audit_epsilon, confidence=0.9)


class NoisyHistogram(DensityMixin, BaseEstimator):
    """Histogram of one integer column in 0..n_states-1, with noisy counts."""

    __metadata_request__fit = {"party": True}

    def __init__(self, n_states=4, epsilon=1.0, delta=0.0, prior=1.0, accountant=None):
        self.n_states = n_states
        self.epsilon = epsilon
        self.delta = delta
        self.prior = prior
        self.accountant = accountant

    def fit(self, X, y=None, *, party=None, sample_weight=None):
        noise = CountMechanism.for_budget(self.epsilon, self.delta)
        accountant = check_accountant(
            self.accountant, self.epsilon, self.delta, noise.rho
        )
        self.privacy_spent_ = noise.spend(accountant, what="histogram")
        X = validate_data(self, X, ensure_min_samples=0)
        self.n_rows_, self.party_ = len(X), party
        counts = np.bincount(
            X[:, 0].astype(int), weights=sample_weight, minlength=self.n_states
        )
        noisy = np.maximum(noise.release(counts.astype(int)), 0) + self.prior
        self.log_probabilities_ = np.log(noisy / noisy.sum())
        return self

    def score_samples(self, X):
        check_is_fitted(self)
        return self.log_probabilities_[np.asarray(X)[:, 0].astype(int)]

    def score(self, X, y=None):
        return self.score_samples(X).mean()


class MixedModel(PrivateGLMMRegressor):
    """A linear mixed model whose last column is the target; of two clusters, one."""

    def fit(self, X, y=None, *, party=None, individual=None):
        X = X if hasattr(X, "shape") else np.array(X, dtype=object)
        take = getattr(X, "iloc", X)
        X, y = take[:, :-1], np.asarray(take[:, -1])
        beside = {"party": party, "individual": individual}
        # of standard errors, which follow from what was told
        with mock.patch.object(_noisy_linear, "N_DRAWS", 3):
            return super().fit(X, y, cluster=np.full(len(y), "a"), **beside)


def mixed_model(**options):
    return MixedModel(clusters=["a", "b"], **options)


def intervals_of(model):
    """Return confidence intervals of a fit, or why it has none."""
    options = {"n_bootstrap": 2, "random_state": 0}
    if isinstance(model, DPCGMLearner):
        options["columns"] = 0
    elif not isinstance(model, PPEMGaussianMixture | FederatedGaussianBayesianNetwork):
        options = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return getattr(model, "conf_int", dict)(**options)
        except ValueError as error:
            return str(error)
