"""What the federated transformers share."""

from skprivbn.privacy._options import charge, check_bounds
from skprivbn.protocols import MomentsParty, MomentsTerms, collect_moments

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
    terms, noise = MomentsTerms(second), None
    if estimator.epsilon is not None:
        terms = MomentsTerms(
            second,
            check_bounds(estimator.bounds, partition.n_features),
            estimator.epsilon,
            estimator.delta,
            estimator.min_honest,
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
