"""What the learners of continuous networks share once they are fitted."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import (
    check_is_fitted,
)

from skprivbn.bayesian_network import GaussianBayesianNetwork
from skprivbn.partition import RemoteResults
from skprivbn.privacy._uncounted import note_exact_score
from skprivbn.protocols._applied import add_scores, predict_at_sites
from skprivbn.utils import column_names, warn_user
from skprivbn.utils._saved_version import SavedVersionMixin
from skprivbn.utils._typing import RandomStateLike, TableLike, WeightsLike
from skprivbn.utils._validation import validate_table

__all__ = [
    "NetworkMixin",
    "public_network",
    "refuse_constant",
    "warn_if_standardised",
]


def public_network(network):
    """Return the parameters of a Gaussian network, as a site is told them."""
    return {
        "nodes": list(network.nodes),
        "weights": network.weights,
        "intercepts": network.intercepts,
        "variances": network.variances,
    }


class NetworkMixin(SavedVersionMixin):
    """Prediction, likelihood and sampling through the fitted `network_`."""

    network_: Any

    def _node_names(self):
        return column_names(self)

    def _rows(self, X):
        check_is_fitted(self)
        return validate_table(self, X, reset=False, dtype=np.float64)

    def _public_model(self):
        return public_network(self.network_)

    @classmethod
    def _from_public_model(cls, model, n_features):
        """Make a fitted learner of a public network, which checks itself."""
        network = GaussianBayesianNetwork(**model)
        if len(network.nodes) != n_features:
            raise ValueError("the network is about other columns")
        estimator = cls()
        estimator.network_ = network
        return estimator

    def _row_scores(self, X):
        return self.score_samples(X)

    def _add_scores(self, X, sample_weight):
        return add_scores(self, X, sample_weight, dtype=np.float64)

    def predict(self, X: TableLike) -> np.ndarray | RemoteResults:
        """Predict every variable from its parents.

        To fill in missing entries from all observed ones, use ``network_.predict``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or RemoteRows
            Complete rows. Sites keep the predictions for remote ones.

        Returns
        -------
        ndarray of shape (n_samples, n_features) or RemoteResults
            Mean of every variable given its parents; a root's is its overall mean.
        """
        check_is_fitted(self)
        if hasattr(X, "federate"):
            return predict_at_sites(self, X, "predict", dtype=np.float64)
        X = self._rows(X)
        return X @ self.network_.weights + self.network_.intercepts

    def score_samples(self, X: ArrayLike) -> np.ndarray:
        """Return the log-likelihood of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Complete rows.

        Returns
        -------
        log_likelihood : ndarray of shape (n_samples,)
        """
        return self.network_.log_likelihood(self._rows(X))

    def score(
        self, X: TableLike, y: object = None, sample_weight: WeightsLike | None = None
    ) -> float:
        """Return the mean Gaussian log-likelihood per row of the fitted network.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or HorizontalPartition
            Rows; those of a partition are summed under masks. An estimator that
            learns from columns of several parties scores them, too.
        y : Ignored
            Not used, present for API consistency by convention.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        float
            Higher is better.
        """
        check_is_fitted(self)
        if hasattr(X, "federate"):
            total, n_rows = self._add_scores(X, sample_weight)
            return total / n_rows
        note_exact_score(self)
        return float(np.average(self._row_scores(X), weights=sample_weight))

    def sample(
        self, n_samples: int = 1, random_state: RandomStateLike = None
    ) -> np.ndarray:
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

    def to_networkx(self) -> Any:
        """Return the learnt graph as a ``networkx.DiGraph``.

        Returns
        -------
        networkx.DiGraph
            With the nodes' names.
        """
        check_is_fitted(self)
        return self.network_.to_networkx()


def refuse_constant(names, mean, variances, where):
    """Raise if columns do not vary; names them, and where they do not."""
    # what is left of a constant column after cancellation is not variation
    rounding = 1e-12 * (variances + mean**2)
    constant = [name for name, v, e in zip(names, variances, rounding) if v <= e]
    if constant:
        raise ValueError(
            f"columns {constant} are constant {where}: they cannot be part of a "
            "network, leave them out"
        )


def warn_if_standardised(variances):
    """Warn if all variables have the same spread, which hides the directions."""
    if len(variances) > 1 and variances.max() <= 1.02 * variances.min():
        warn_user(
            "all variables have nearly the same variance, as after standardising: "
            "methods that assume equal noise variances read directions off unequal "
            "marginal variances and fail on such data; give the variables in their "
            "own units, or use FederatedGaussianBayesianNetwork(method='ges'), 'pc' "
            "or 'bic'"
        )
