"""What estimators do with rows and columns that stay where they are, once fitted."""

from functools import partial

import numpy as np

from skprivbn.crypto import resolve_backend
from skprivbn.exceptions import PartitionError
from skprivbn.federation._models import SCORED_MODEL, describe_model, rebuild_model
from skprivbn.federation._remote import name_results
from skprivbn.federation._session import warn_of_roster
from skprivbn.federation.program import Program
from skprivbn.partition import (
    HorizontalPartition,
    RemoteResults,
    RemoteRows,
    check_horizontal,
)
from skprivbn.partition._base import refuse_weights
from skprivbn.privacy._options import apply_step, warn_of_score
from skprivbn.programs._models import (
    KeptTerms,
    ModelTerms,
    keep_predictions,
    score_rows,
)


def open_federation(partition, party_class, terms, backend, **options):
    """Open a federation; warn of what its backend and its roster cannot hide.

    Parameters
    ----------
    partition : HorizontalPartition, VerticalPartition or a handle on remote ones
    party_class : type
    terms : Terms
    backend : str or AdditiveBackend
    **options
        Of ``partition.federate``.

    Returns
    -------
    federation : Federation
        To be used as a context manager.
    """
    backend = resolve_backend(backend)
    warn_of_roster(backend, partition.n_parties)
    survives = isinstance(party_class, Program) or terms.survives_losses()
    if getattr(backend, "recovery", False) and survives:
        options.setdefault("on_dropout", "continue")
    return partition.federate(party_class, terms, backend, **options)


def add_scores(estimator, X, sample_weight=None, aligned=None):
    """Return the sum of the scores of all parties' rows, and their number.

    One secure sum. It is entered in the estimator's ledger.

    Parameters
    ----------
    estimator : estimator
        Fitted, with ``_public_model`` and ``_row_scores``.
    X : HorizontalPartition or RemoteRows
    sample_weight : None
        Anything else is refused.
    aligned : dict of str to str, default=None
        What goes beside rows: names of columns of remote ones.

    Returns
    -------
    total : float or ndarray of shape (n_parts,)
        Minus infinity if a row is impossible under the model. An array if scores have
        several parts.
    n_rows : int
    """
    refuse_weights(sample_weight)
    partition = _rows_of(estimator, X, "score", aligned)
    warn_of_score(estimator)
    # what adds counts of columns cannot add scores
    backend = estimator.backend if estimator._adds_rows else "masking"
    terms = ModelTerms(describe_model(estimator))
    with open_federation(partition, score_rows, terms, backend) as federation:
        found = federation.run()
    federation.ledger.note(SCORED_MODEL)
    estimator.ledger_.append(federation.ledger)
    if found["total"] is None:
        return -np.inf, found["n_rows"]
    total = np.array(found["total"])
    return (float(total[0]) if len(total) == 1 else total), found["n_rows"]


def predict_at_sites(estimator, X, method, aligned=None):
    """Have every site apply an estimator to its rows and keep what comes out.

    Parameters
    ----------
    estimator : estimator
        Fitted.
    X : RemoteRows
    method : {"predict", "predict_proba"}
    aligned : dict of str to str, default=None
        What goes beside rows: names of columns.

    Returns
    -------
    results : RemoteResults
        Says where the sites keep them.
    """
    if isinstance(X, HorizontalPartition):
        raise PartitionError(
            f"{method} on a HorizontalPartition would pool the parties' rows: let "
            "every holder call it on its own"
        )
    rows = _rows_of(estimator, X, method, aligned)
    terms = KeptTerms(describe_model(estimator), method)
    with rows.federate(keep_predictions, terms) as federation:
        federation.run()
    estimator.ledger_.append(federation.ledger)
    file = name_results(rows.dataset, terms.keeps_results(), federation.session)
    return RemoteResults(rows.names, file, federation.ledger)


def transform_at_holders(transformer, X):
    """Return rows that their holders transform, each its own.

    Parameters
    ----------
    transformer : estimator
        Fitted.
    X : HorizontalPartition or RemoteRows

    Returns
    -------
    partition : HorizontalPartition or RemoteRows
        Remote rows are transformed whenever they are used.
    """
    rows, model = _rows_of(transformer, X, "transform"), describe_model(transformer)
    names = transformer.get_feature_names_out().tolist()
    if isinstance(rows, RemoteRows):
        return rows.transformed(model, names)
    # as at a site: names have been checked and holders' arrays have none
    step = rebuild_model(model, rows.n_features)
    transform = step.transform
    if hasattr(transformer, "privacy_spent_"):
        transform = partial(apply_step, step)
    has_names = hasattr(transformer, "feature_names_in_")
    return rows.map_rows(
        lambda X: np.asarray(transform(X)), names if has_names else None
    )


def _rows_of(estimator, X, method, aligned=None):
    if not isinstance(X, HorizontalPartition | RemoteRows):
        raise PartitionError(
            f"{method} needs whole rows, got a {type(X).__name__}: what a row is worth "
            "depends on columns of several parties, none of whom may see the others'"
        )
    return check_horizontal(
        estimator, X, reset=False, aligned=aligned, **estimator._row_checks
    )
