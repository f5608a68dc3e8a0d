"""What estimators do with the network they have learnt."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from skprivbn.base import BackendMixin, RowsMixin, by_holders
from skprivbn.bayesian_network._discrete import BayesianNetwork
from skprivbn.crypto.shares import COUNT_BACKENDS
from skprivbn.partition import RemoteColumns, RemoteResults, VerticalPartition
from skprivbn.programs._columns import add_column_scores
from skprivbn.structure._discrete_columns import score_columns
from skprivbn.utils._sklearn import StrOptions
from skprivbn.utils._typing import RandomStateLike, TableLike
from skprivbn.utils._validation import validate_table

COUNT_BACKEND_CONSTRAINT = [StrOptions(set(COUNT_BACKENDS)), *COUNT_BACKENDS.values()]


def _has_parameters(estimator):
    return getattr(estimator, "fit_parameters", True)


class LearntNetworkMixin(RowsMixin):
    """Sampling and drawing of the fitted `network_`, whatever its variables are."""

    network_: Any

    @available_if(_has_parameters)
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
        X : ndarray of shape (n_samples, n_features)
        """
        check_is_fitted(self)
        return self.network_.sample(n_samples, random_state=random_state)

    @available_if(_has_parameters)
    def to_networkx(self) -> Any:
        """Return the learnt graph as a ``networkx.DiGraph``.

        Returns
        -------
        networkx.DiGraph
            With the nodes' names.
        """
        check_is_fitted(self)
        return self.network_.to_networkx()


class DiscreteNetworkMixin(BackendMixin, LearntNetworkMixin):
    """Likelihood and completion through the fitted `network_`."""

    _row_checks = {"dtype": None, "ensure_all_finite": False}
    # how columns are counted together, where several parties hold them
    _backends = COUNT_BACKENDS

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = True
        tags.target_tags.required = False
        return tags

    def _table(self, X):
        check_is_fitted(self)
        return validate_table(
            self, X, reset=False, dtype=None, ensure_all_finite="allow-nan"
        )

    def _public_model(self):
        network = self.network_
        return {
            "nodes": list(network.nodes),
            "states": [list(network.states[node]) for node in network.nodes],
            "parents": [list(network.parents[node]) for node in network.nodes],
            "cpts": [np.asarray(network.cpts[node]) for node in network.nodes],
        }

    @classmethod
    def _public_model_memory(cls, model, n_features):
        return sum(map(len, model["states"])), 0

    @classmethod
    def _from_public_model(cls, model, n_features):
        """Make a fitted learner of a public network, which checks itself."""
        estimator = cls()
        estimator.network_ = BayesianNetwork(**model)
        if len(estimator.network_.nodes) != n_features:
            raise ValueError("the network is about other columns")
        return estimator

    @available_if(_has_parameters)
    def _row_scores(self, X):
        return self.score_samples(X)

    def _add_scores(self, X, sample_weight=None, **beside):
        if not isinstance(X, VerticalPartition | RemoteColumns):
            return super()._add_scores(X, sample_weight, **beside)
        return add_column_scores(self, X, sample_weight, score_columns)

    @available_if(_has_parameters)
    def score_samples(self, X: ArrayLike) -> np.ndarray:
        """Return the log-likelihood of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Values of the states; NaN or None where missing, which is summed out.

        Returns
        -------
        log_likelihood : ndarray of shape (n_samples,)
        """
        X = self._table(X)
        return self.network_.log_likelihood(X)

    @available_if(_has_parameters)
    @by_holders
    def predict(self, X: TableLike) -> np.ndarray | RemoteResults:
        """Return X with every missing entry replaced by its most probable value.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or RemoteRows
            Values of the states; NaN or None where missing. Sites complete whole rows
            of theirs and keep them.

        Returns
        -------
        X_completed : ndarray of shape (n_samples, n_features) or RemoteResults
        """
        X = self._table(X)
        return self.network_.predict(X)

    @available_if(_has_parameters)
    @by_holders
    def predict_proba(self, X: TableLike) -> list[np.ndarray] | RemoteResults:
        """Return the distribution of every entry, given the observed ones of its row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or RemoteRows
            Values of the states; NaN or None where missing.

        Returns
        -------
        probabilities : list of ndarray of shape (n_samples, n_states) or RemoteResults
            One array per column. An entry that is observed is certain.
        """
        X = self._table(X)
        return self.network_.predict_proba(X)
