"""What can be done with a fitted mixture."""

import math

import numpy as np
from sklearn.base import DensityMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from skprivbn.mixture._gaussian_steps import (
    Mixture,
    e_step,
    log_likelihood,
    weighted_log_density,
)
from skprivbn.mixture._score_protocol import ScoreParty
from skprivbn.partition import check_horizontal
from skprivbn.utils import warn_leak

__all__ = ["FittedMixtureMixin"]


class FittedMixtureMixin(DensityMixin):
    """Methods of a fitted mixture, those of scikit-learn's ``GaussianMixture``."""

    def _mixture(self):
        return Mixture(
            self.covariance_type,
            self.weights_.astype(np.float64),
            self.means_.astype(np.float64),
            self.covariances_.astype(np.float64),
            self.precisions_cholesky_.astype(np.float64),
        )

    def _check(self, X):
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        return X.astype(np.float64, copy=False)

    def predict(self, X):
        """Return the most probable component of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            Components.
        """
        return weighted_log_density(self._check(X), self._mixture()).argmax(axis=1)

    def predict_proba(self, X):
        """Return the probability of each component, for each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        responsibilities : ndarray of shape (n_samples, n_components)
            Probabilities.
        """
        return e_step(self._check(X), self._mixture())[1]

    def score_samples(self, X):
        """Return the log-likelihood of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        log_likelihood : ndarray of shape (n_samples,)
            Log-likelihoods.
        """
        return log_likelihood(self._check(X), self._mixture())

    def score(self, X, y=None, sample_weight=None):
        """Return the mean log-likelihood of rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or HorizontalPartition
            Rows; those of a partition are summed under masks.
        y : Ignored
            Not used, present for API consistency by convention.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, if they are an array.

        Returns
        -------
        score : float
            Mean log-likelihood.
        """
        if hasattr(X, "federate"):
            total, n_samples = self._federated_log_likelihood(X)
            return total / n_samples
        return float(np.average(self.score_samples(X), weights=sample_weight))

    def _federated_log_likelihood(self, partition):
        check_is_fitted(self)
        partition = check_horizontal(
            self, partition, reset=False, dtype=[np.float64, np.float32]
        )
        if self.epsilon is not None:
            warn_leak(
                "score tells the exact log-likelihood of the parties' rows, which the "
                "privacy budget of the fit does not cover"
            )
        mixture = self._mixture()
        settings = {
            "covariance_type": mixture.covariance_type,
            "weights": mixture.weights,
            "means": mixture.means,
            "covariances": mixture.covariances,
        }
        with self._federate(partition, ScoreParty, settings) as federation:
            total, n_samples = federation.secure_sum("log_likelihood")
        return float(total), int(n_samples)

    def bic(self, X):
        """Return the Bayesian information criterion; lower is better.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or HorizontalPartition
            Rows.

        Returns
        -------
        bic : float
            Criterion.
        """
        total, n_samples = self._log_likelihood(X)
        return -2 * total + self._n_parameters() * math.log(n_samples)

    def aic(self, X):
        """Return Akaike's information criterion; lower is better.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or HorizontalPartition
            Rows.

        Returns
        -------
        aic : float
            Criterion.
        """
        total, _ = self._log_likelihood(X)
        return -2 * total + 2 * self._n_parameters()

    def _log_likelihood(self, X):
        if hasattr(X, "federate"):
            return self._federated_log_likelihood(X)
        likelihoods = self.score_samples(X)
        return float(likelihoods.sum()), len(likelihoods)

    def _n_parameters(self):
        n_components, n_features = self.means_.shape
        n_covariances = {
            "full": n_components * n_features * (n_features + 1) // 2,
            "tied": n_features * (n_features + 1) // 2,
            "diag": n_components * n_features,
            "spherical": n_components,
        }[self.covariance_type]
        return n_covariances + n_components * n_features + n_components - 1

    def sample(self, n_samples=1):
        """Draw rows from the fitted mixture.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            Rows, ordered by component.
        y : ndarray of shape (n_samples,)
            Components.
        """
        check_is_fitted(self)
        if n_samples < 1:
            raise ValueError(
                f"Invalid value for 'n_samples': {n_samples}. The sampling requires at "
                "least one sample."
            )
        rng = check_random_state(self.random_state)
        mixture = self._mixture()
        weights = mixture.weights / mixture.weights.sum()
        counts = rng.multinomial(n_samples, weights)
        n_components, n_features = mixture.means.shape
        covariances = mixture.covariances
        if self.covariance_type == "tied":
            covariances = [covariances] * n_components
        blocks = []
        for mean, covariance, count in zip(mixture.means, covariances, counts):
            if self.covariance_type in ("full", "tied"):
                blocks.append(rng.multivariate_normal(mean, covariance, int(count)))
            else:
                normal = rng.standard_normal(size=(count, n_features))
                blocks.append(mean + normal * np.sqrt(covariance))
        return np.vstack(blocks), np.repeat(np.arange(n_components), counts)
