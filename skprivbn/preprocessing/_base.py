"""What the federated transformers share."""

from typing import ClassVar

import numpy as np
from sklearn.base import TransformerMixin

from skprivbn.base import PrivateEstimator, by_holders
from skprivbn.partition import HorizontalPartition
from skprivbn.privacy._options import (
    apply_to_rows,
    charge,
    check_bounds,
    protected_by,
)
from skprivbn.protocols import MomentsParty, MomentsTerms, collect_moments
from skprivbn.utils._typing import TableLike
from skprivbn.utils._validation import validate_table

__all__ = ["FederatedTransformer", "fit_moments"]


class FederatedTransformer(TransformerMixin, PrivateEstimator):
    """Rows of numbers, which stay as precise as they are.

    After a fit with noise, or with nothing but public bounds, no row is refused: what
    follows may be private, and an error would tell that there is such a row.
    """

    _fit_checks: ClassVar[dict] = {"ensure_all_finite": True}

    @property
    def _row_checks(self):
        finite = not hasattr(self, "privacy_spent_")
        return {"dtype": [np.float64, np.float32], "ensure_all_finite": finite}

    @by_holders
    def transform(self, X: TableLike) -> np.ndarray | HorizontalPartition:
        """Transform rows, locally.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or HorizontalPartition
            Sites transform remote rows whenever these are used.

        Returns
        -------
        X_new : ndarray of shape (n_samples, n_features_out) or HorizontalPartition
            After a fit with `epsilon`, or to public edges of bins, rows with missing
            entries are missing.
        """
        X = validate_table(self, X, reset=False, **self._row_checks)
        if hasattr(self, "privacy_spent_"):
            return apply_to_rows(self._transform, X)
        return self._transform(X)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def fit_moments(estimator, partition, second):
    """Return the moments of all parties' rows; sets `ledger_` and `privacy_spent_`.

    Parameters
    ----------
    estimator : estimator
        With `backend` and the parameters of privacy.
    partition : HorizontalPartition
    second : {"full", "diagonal", "none"}

    Returns
    -------
    moments : Moments
    """
    terms, noise = MomentsTerms(second), None
    if estimator.epsilon is not None:
        terms = MomentsTerms(
            second,
            check_bounds(estimator.bounds, partition.n_features),
            estimator.epsilon,
            estimator.delta,
            estimator.min_honest,
            protected_by(partition),
        )
        # may raise, before budget is spent
        noise = terms.noise(partition.n_features, partition.n_parties)
    spent = charge(estimator, "means and variances", noise)
    with estimator._federate(partition, MomentsParty, terms) as federation:
        moments = collect_moments(federation)
    estimator.ledger_ = federation.ledger
    if spent is not None:
        estimator.privacy_spent_ = spent
    return moments
