"""What the learners of continuous networks share once they are fitted."""

import warnings

import numpy as np
from sklearn.utils.validation import (
    check_is_fitted,
    validate_data,
)

__all__ = ["NetworkMixin", "warn_if_standardised"]


class NetworkMixin:
    """Prediction, likelihood and sampling through the fitted `network_`."""

    def _node_names(self):
        names = getattr(self, "feature_names_in_", None)
        if names is None:
            return [f"x{j}" for j in range(self.n_features_in_)]
        return [str(name) for name in names]

    def _rows(self, X):
        check_is_fitted(self)
        return validate_data(self, X, reset=False, dtype=np.float64)

    def predict(self, X):
        """Predict every variable from its parents.

        To fill in missing entries from all observed ones, use ``network_.predict``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Complete rows.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            Mean of every variable given its parents; a root's is its overall mean.
        """
        X = self._rows(X)
        return X @ self.network_.weights + self.network_.intercepts

    def score(self, X, y=None, sample_weight=None):
        """Return the mean Gaussian log-likelihood per row of the fitted network.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, held by whoever computes the score.
        y : Ignored
            Not used, present for API consistency by convention.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        float
            Higher is better.
        """
        X = self._rows(X)
        log_likelihood = self.network_.log_likelihood(X)
        if sample_weight is None:
            return float(log_likelihood.mean())
        return float(np.average(log_likelihood, weights=sample_weight))

    def sample(self, n_samples=1, random_state=None):
        """Draw rows from the fitted network.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows.
        random_state : int, RandomState instance or None, default=None
            Makes the rows reproducible.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            The rows.
        """
        check_is_fitted(self)
        return self.network_.sample(n_samples, random_state=random_state)

    def to_networkx(self):
        """Return the learnt graph as a ``networkx.DiGraph``.

        Returns
        -------
        networkx.DiGraph
            With the nodes' names.
        """
        check_is_fitted(self)
        return self.network_.to_networkx()


def warn_if_standardised(variances):
    """Warn if all variables have the same spread, which hides the directions."""
    if len(variances) > 1 and variances.max() <= 1.02 * variances.min():
        warnings.warn(
            "all variables have nearly the same variance, as after standardising: "
            "methods that assume equal noise variances read directions off unequal "
            "marginal variances and fail on such data; give the variables in their "
            "own units, or use FederatedGaussianBayesianNetwork(search='bic'), 'ges' "
            "or 'pc'",
            UserWarning,
            stacklevel=3,
        )
