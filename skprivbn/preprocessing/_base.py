"""What the federated transformers share."""

from skprivbn.privacy._options import charge, check_bounds
from skprivbn.protocols import MomentsParty, collect_moments, moments_settings

__all__ = ["fit_moments"]


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
    options = {}
    if estimator.epsilon is not None:
        options = {
            "bounds": check_bounds(estimator.bounds, partition.n_features),
            "noise": (estimator.epsilon, estimator.delta),
            "n_parties": partition.n_parties,
            "min_honest": estimator.min_honest,
        }
    settings = moments_settings(second, **options)
    spent = charge(estimator, "means and variances")
    with estimator._federate(partition, MomentsParty, settings) as federation:
        moments = collect_moments(federation)
    estimator.ledger_ = federation.ledger
    if spent is not None:
        estimator.privacy_spent_ = spent
    return moments
