"""What the federated transformers share."""

from skprivbn.federation import MomentsParty, collect_moments, moments_settings
from skprivbn.privacy._options import charge, check_bounds

__all__ = ["fit_moments"]


def fit_moments(estimator, partition, second):
    """Return the moments of all parties' rows; sets `ledger_` and `privacy_spent_`.

    Parameters
    ----------
    estimator : estimator
        With `backend`, `epsilon`, `delta`, `bounds` and `accountant`.
    partition : HorizontalPartition
    second : {"full", "diagonal", "none"}

    Returns
    -------
    moments : Moments
    """
    spent = charge(estimator, "means and variances")
    if spent is None:
        settings = moments_settings(second)
    else:
        settings = moments_settings(
            second,
            bounds=check_bounds(estimator.bounds, partition.n_features),
            noise=(estimator.epsilon, estimator.delta),
            n_parties=partition.n_parties,
        )
    with estimator._federate(partition, MomentsParty, settings) as federation:
        moments = collect_moments(federation)
    estimator.ledger_ = federation.ledger
    if spent is not None:
        estimator.privacy_spent_ = spent
    return moments
