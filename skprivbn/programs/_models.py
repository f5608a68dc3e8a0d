"""A fitted model, applied to rows where they are: scores are summed, results stay.

The terms have the public model, what an estimator has learnt, as numbers and names.
Each party makes the estimator again and applies it to its own rows. It may tell the sum
of their scores; predictions are for the party itself.
"""

from collections.abc import Generator
from dataclasses import dataclass
from inspect import signature
from typing import Any, Literal

import numpy as np

from skprivbn.federation import (
    ALL_ROWS,
    Me,
    PartyRefusal,
    Sum,
    Terms,
    program,
    sum_over_rows,
)
from skprivbn.federation._models import model_memory, rebuild_model


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

    def n_parameters(self, n_features: int) -> int:
        """Return the largest number of values in a score."""
        return 3

    def summed_columns(self, n_features: int) -> list[int]:
        """Return none: a score is one number."""
        return []

    def memory(self, n_features: int) -> tuple[int, int]:
        """Return what the model needs."""
        return model_memory(self.model, n_features)


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
    try:
        score = model._row_scores
        if list(signature(score).parameters) == ["X"]:
            own = sum_over_rows(me.block["X"], lambda rows: _add_up(score(rows)))
        else:
            own = _add_up(_apply(me, model, score))
    except (TypeError, ValueError):
        raise PartyRefusal("invalid-data") from None
    total = yield Sum(own, "scores of rows, number of rows", ALL_ROWS)
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
    """Return the sum of scores, the number of impossible rows, and that of all.

    Scores may have several parts, which are columns.
    """
    impossible = np.isneginf(scores)
    totals = np.sum(scores, axis=0, where=~impossible)
    counts = np.count_nonzero(impossible), len(scores)
    return np.append(totals, counts).astype(np.float64)
