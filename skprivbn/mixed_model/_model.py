"""What a fitted mixed model answers: predictions, scores, a summary."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import check_is_fitted, validate_data

from skprivbn.exceptions import PartitionError
from skprivbn.federation import Ledger, check_received
from skprivbn.mixed_model._summary import GLMMSummary
from skprivbn.partition import RemoteResults
from skprivbn.partition._horizontal import one_per_row
from skprivbn.protocols._applied import add_scores, predict_at_sites
from skprivbn.utils import column_names
from skprivbn.utils._typing import TableLike, WeightsLike

__all__ = ["FLOATS", "FittedGLMMMixin"]

FLOATS = [np.float64, np.float32]


class FittedGLMMMixin:
    """Methods of estimators that keep effects in `coef_` and `random_effects_`."""

    classes_: np.ndarray
    clusters_: np.ndarray
    coef_: np.ndarray
    coef_se_: np.ndarray
    intercept_: np.ndarray
    intercept_se_: np.ndarray
    ledger_: Ledger
    log_likelihood_: float
    n_samples_: int
    random_effect_scale_: float
    random_effects_: np.ndarray

    __metadata_request__predict = {"cluster": True}
    __metadata_request__predict_proba = {"cluster": True}
    __metadata_request__predict_log_proba = {"cluster": True}
    __metadata_request__decision_function = {"cluster": True}
    __metadata_request__score = {"cluster": True}

    def decision_function(
        self, X: ArrayLike, *, cluster: ArrayLike | None = None
    ) -> np.ndarray:
        """Return the log-odds of the second class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        cluster : array-like of shape (n_samples,), default=None
            Category of each row; unknown ones, and None, have effect 0.

        Returns
        -------
        log_odds : ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=FLOATS)
        log_odds = X @ self.coef_[0] + self.intercept_[0]
        if cluster is None:
            return log_odds
        cluster = one_per_row("cluster", cluster, len(X))
        known = dict(zip(self.clusters_.tolist(), np.nan_to_num(self.random_effects_)))
        return log_odds + [known.get(label, 0.0) for label in cluster.tolist()]

    def predict_proba(
        self, X: TableLike, *, cluster: ArrayLike | None = None
    ) -> np.ndarray | RemoteResults:
        """Return probabilities of the classes.

        Those of a typical cluster (effect 0), not averaged over clusters, where the
        cluster is unknown.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or RemoteRows
            Sites keep the results for remote rows.
        cluster : array-like of shape (n_samples,) or str, default=None
            Category of each row; the name of a column of remote rows.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, 2) or RemoteResults
        """
        if hasattr(X, "federate"):
            return self._predict_at_sites(X, cluster, "predict_proba")
        log_odds = self.decision_function(X, cluster=cluster)
        return np.column_stack([expit(-log_odds), expit(log_odds)])

    def predict_log_proba(
        self, X: ArrayLike, *, cluster: ArrayLike | None = None
    ) -> np.ndarray:
        """Return logarithms of the probabilities of the classes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        cluster : array-like of shape (n_samples,), default=None
            Category of each row.

        Returns
        -------
        log_probabilities : ndarray of shape (n_samples, 2)
        """
        log_odds = self.decision_function(X, cluster=cluster)
        return -np.logaddexp(0, np.column_stack([log_odds, -log_odds]))

    def predict(
        self, X: TableLike, *, cluster: ArrayLike | None = None
    ) -> np.ndarray | RemoteResults:
        """Return the more probable class of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or RemoteRows
            Sites keep the results for remote rows.
        cluster : array-like of shape (n_samples,) or str, default=None
            Category of each row; the name of a column of remote rows.

        Returns
        -------
        y : ndarray of shape (n_samples,) or RemoteResults
        """
        if hasattr(X, "federate"):
            return self._predict_at_sites(X, cluster, "predict")
        log_odds = self.decision_function(X, cluster=cluster)
        return self.classes_[(log_odds > 0).astype(int)]

    def _predict_at_sites(self, X, cluster, method):
        check_is_fitted(self)
        return predict_at_sites(
            self, X, method, dtype=FLOATS, aligned={"cluster": cluster}
        )

    def score(
        self,
        X: Any,
        y: ArrayLike | None = None,
        sample_weight: WeightsLike | None = None,
        *,
        cluster: ArrayLike | None = None,
    ) -> float:
        """Return the accuracy.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or HorizontalPartition
            Hits among the rows of a partition, which carries `y` and `cluster`, are
            summed under masks.
        y : array-like of shape (n_samples,) or str
            Classes; the name of a column of remote rows.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.
        cluster : array-like of shape (n_samples,) or str, default=None
            Category of each row; the name of a column of remote rows.

        Returns
        -------
        score : float
        """
        if hasattr(X, "federate"):
            check_is_fitted(self)
            if y is None and "y" not in X.aligned:
                raise PartitionError("the partition has no y to compare with")
            aligned = {"y": y, "cluster": cluster}
            hits, n_rows = add_scores(
                self, X, sample_weight, dtype=FLOATS, aligned=aligned
            )
            return hits / n_rows
        predicted = self.predict(X, cluster=cluster)
        return accuracy_score(y, predicted, sample_weight=sample_weight)

    def _row_scores(self, X, y, cluster=None):
        return (self.predict(X, cluster=cluster) == y).astype(float)

    def _public_model(self):
        return {
            "classes": self.classes_.tolist(),
            "clusters": self.clusters_.tolist(),
            "coefficients": np.append(self.intercept_, self.coef_),
            "effects": np.nan_to_num(self.random_effects_),
        }

    @classmethod
    def _from_public_model(cls, model, n_features):
        """Make a fitted model of public parameters, all of which are checked."""
        if len(model["classes"]) != 2:
            raise ValueError("there must be two classes")
        coefficients = check_received(model["coefficients"], (n_features + 1,))
        estimator = cls()
        estimator.classes_ = np.array(model["classes"])
        estimator.clusters_ = np.array(model["clusters"])
        estimator.intercept_, estimator.coef_ = coefficients[:1], coefficients[None, 1:]
        n_clusters = len(model["clusters"])
        estimator.random_effects_ = check_received(model["effects"], (n_clusters,))
        return estimator

    def summary(self) -> GLMMSummary:
        """Return the table of fixed and random effects.

        Returns
        -------
        summary : GLMMSummary
            Prints as text, shows as HTML in a notebook; ``conf_int()``,
            ``to_frame()``.
        """
        check_is_fitted(self)
        mixed = len(self.clusters_) > 0
        return GLMMSummary(
            names=["(Intercept)", *column_names(self)],
            estimates=np.append(self.intercept_, self.coef_),
            standard_errors=np.append(self.intercept_se_, self.coef_se_),
            scale=self.random_effect_scale_ if mixed else None,
            log_likelihood=self.log_likelihood_,
            n_rows=self.n_samples_,
            n_clusters=len(self.clusters_),
            n_parties=len(self.ledger_.parties),
        )
