"""A fitted model, applied to rows where they are: scores are summed, results stay.

The terms have the public model, what an estimator has learnt, as numbers and names.
Each party makes the estimator again and applies it to its own rows. It may tell the sum
of their scores; predictions are for the party itself.
"""

from collections.abc import Generator
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Any, Literal

import numpy as np

from skprivbn.exceptions import PartitionError
from skprivbn.federation import Me, RowWeights, Sum, Terms, program, row_blocks
from skprivbn.federation._models import SCORED_MODEL, describe_model, rebuild_model
from skprivbn.federation._remote import name_results
from skprivbn.federation.gate import kish, rows_beside
from skprivbn.federation.program import refuse_malformed
from skprivbn.partition import (
    HorizontalPartition,
    RemoteResults,
    RemoteRows,
    check_horizontal,
)
from skprivbn.partition._base import refuse_weights
from skprivbn.privacy._options import apply_step, warn_of_score


@dataclass(frozen=True)
class ModelTerms(Terms):
    """A public model, whose scores of rows are summed.

    Parameters
    ----------
    model : dict
        From ``describe_model``.
    """

    model: dict[str, Any]

    def models(self) -> list:
        """Return the one model."""
        return [self.model]


@dataclass(frozen=True)
class KeptTerms(ModelTerms):
    """A public model, and a method whose results parties keep.

    Parameters
    ----------
    model : dict
        From ``describe_model``.
    method : {"predict", "predict_proba"}
    """

    method: Literal["predict", "predict_proba"]

    def keeps_results(self) -> str:
        """Name what a party keeps for its own use."""
        return f"{self.model['estimator']}.{self.method}"


@program(ModelTerms)
def score_rows(me: Me) -> Generator[Any, Any, dict]:
    """Add up the scores of all rows.

    Parameters
    ----------
    me : Me

    Returns
    -------
    found : dict
        With ``total``, one number for each part of a score, or None if a row is
        impossible under the model; and ``n_rows``.
    """
    model = _rebuild(me)
    with refuse_malformed("invalid-data"):
        score = model._row_scores
        if list(signature(score).parameters) == ["X"]:
            blocks = [score(rows) for rows in row_blocks(me.block["X"])]
            scores = np.concatenate(blocks)
        else:
            scores = np.asarray(_apply(me, model, score))
    scores = np.reshape(scores, (len(scores), -1)).astype(np.float64)
    possible = np.where(np.isneginf(scores), np.nan, scores)
    own, weights = _add_up(scores), lambda: _weigh(possible)
    total = yield Sum(own, "scores of rows, number of rows", weights)
    *parts, n_impossible, n_rows = total.tolist()
    return {"total": parts if n_impossible < 0.5 else None, "n_rows": int(n_rows)}


@program(KeptTerms)
def keep_predictions(me: Me) -> Generator[Any, Any, None]:
    """Apply the model for the own use; say the same whatever comes of it.

    Parameters
    ----------
    me : Me
    """
    model, results = _rebuild(me), None
    try:
        results = _apply(me, model, getattr(model, me.terms.method))
    except Exception:
        # Whether a model of the coordinator's making fits the rows would be an
        # answer about them.
        results = None
    me.keep(results)
    return
    yield  # no round: nothing is told


def _rebuild(me):
    return rebuild_model(me.terms.model, np.shape(me.block["X"])[1])


def _apply(me, model, method):
    """Call a method with the own rows and what it wants to know beside them."""
    wanted, block = signature(method).parameters, me.block
    if hasattr(model, "_join_beside"):
        block = model._join_beside(block)
    beside = {k: v for k, v in block.items() if k in wanted and k != "X"}
    return method(np.asarray(me.block["X"]), **beside)


def _add_up(scores):
    """Return the sum of each part of scores, the number of impossible ones, of rows."""
    impossible = np.isneginf(scores)
    totals = np.sum(scores, axis=0, where=~impossible)
    counts = np.count_nonzero(impossible), len(scores)
    return np.append(totals, counts).astype(np.float64)


def _weigh(parts):
    """Return how many rows count in a sum of scores: a model may be made for one row.

    What differs from the mean score counts, on each side of it, and impossible rows.
    """
    mean = np.nansum(parts, axis=0) / np.maximum(np.sum(~np.isnan(parts), axis=0), 1)
    sides = rows_beside(parts - mean, np.ones(len(parts)))
    cells = np.append(kish(sides), np.sum(np.isnan(parts), axis=0))
    return RowWeights(np.array([float(len(parts))]), None, cells, sides=sides)


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
    with estimator._federate(partition, score_rows, terms, backend) as federation:
        found = federation.run()
    federation.ledger.note(SCORED_MODEL)
    estimator.ledger_.append(federation.ledger)
    if found["total"] is None:
        return -np.inf, found["n_rows"]
    total = np.array(found["total"])
    return (float(total[0]) if len(total) == 1 else total), found["n_rows"]


def refuse_pooling(X: Any, method: str) -> None:
    """Refuse values of single rows of a partition in this process, and say what to do.

    Parameters
    ----------
    X : array-like or partition
    method : str
        What was called, for the message.
    """
    if isinstance(X, HorizontalPartition):
        raise PartitionError(
            f"{method} on a HorizontalPartition would pool the parties' rows: call it "
            "on the table of each party, as in model.predict(tables['north'])"
        )


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
    refuse_pooling(X, method)
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
    if getattr(transformer, "handle_unknown", None) == "error":
        # it names the column, and is not to make a label of a missing one
        transform = transformer._apply_columns
    elif hasattr(transformer, "privacy_spent_"):
        transform = partial(apply_step, step)
    has_names = hasattr(transformer, "feature_names_in_")
    made = rows.map_rows(
        lambda X: np.asarray(transform(X)), names if has_names else None
    )
    rest = getattr(step, "rest", [])
    return made._typed_as(rows, [None] * (len(names) - len(rest)) + rest)


def _rows_of(estimator, X, method, aligned=None):
    if not isinstance(X, HorizontalPartition | RemoteRows):
        raise PartitionError(
            f"{method} needs whole rows, got a {type(X).__name__}: the result for a "
            "record depends on columns of several parties. Pass a table, or rows of "
            "parties, that have all columns"
        )
    return check_horizontal(
        estimator, X, reset=False, aligned=aligned, **estimator._row_checks
    )
