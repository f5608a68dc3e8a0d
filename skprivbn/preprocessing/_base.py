"""What the federated transformers share."""

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skprivbn.privacy._options import (
    apply_to_rows,
    charge,
    check_bounds,
    protected_by,
)
from skprivbn.protocols import MomentsParty, MomentsTerms, collect_moments
from skprivbn.protocols._applied import transform_at_holders
from skprivbn.utils._validation import validate_table

__all__ = ["fit_moments", "transform_rows"]


def transform_rows(transformer, X):
    """Apply a fitted transformer to rows, wherever they are.

    After a fit with noise, or with nothing but public bounds, no row is refused:
    what follows may be private, and an error would tell that there is such a row.

    Parameters
    ----------
    transformer : estimator
        With `_transform`, from an array of finite rows to another.
    X : array-like of shape (n_samples, n_features) or HorizontalPartition

    Returns
    -------
    X_new : ndarray of shape (n_samples, n_features_out) or HorizontalPartition
    """
    check_is_fitted(transformer)
    if hasattr(X, "federate"):
        return transform_at_holders(transformer, X)
    total = hasattr(transformer, "privacy_spent_")
    X = validate_table(
        transformer,
        X,
        reset=False,
        dtype=[np.float64, np.float32],
        ensure_all_finite=not total,
    )
    return (
        apply_to_rows(transformer._transform, X) if total else transformer._transform(X)
    )


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
