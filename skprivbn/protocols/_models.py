"""A fitted model, applied to rows where they are: scores are summed, results stay.

The coordinator tells all parties the same public model, what an estimator of this
package has learnt, as numbers and names. Each party makes the estimator again and
applies it to its own rows. It may tell the sum of their scores; predictions are for
the party itself.
"""

from collections.abc import Generator
from dataclasses import dataclass
from inspect import signature
from typing import Any, Literal

import numpy as np

from skprivbn.federation import (
    Party,
    PartyRefusal,
    Terms,
    operation,
    sum_over_rows,
)
from skprivbn.federation._models import model_memory, rebuild_model

#: what the ledger says of a score
SCORED_MODEL = (
    "the parties were told the parameters of the model: parameters made up to fit one "
    "row would tell whether somebody holds it"
)


@dataclass(frozen=True)
class ModelTerms(Terms):
    """A public model, and what parties do with it.

    Parameters
    ----------
    model : dict
        From ``describe_model``.
    task : {"score", "keep"}
        Tell the sum of the scores of the rows, or keep what comes out.
    method : {"predict", "predict_proba"} or None
        Whose results are kept.
    """

    model: dict[str, Any]
    task: Literal["score", "keep"] = "score"
    method: Literal["predict", "predict_proba"] | None = None

    def check(self) -> None:
        """Say which method is meant, if and only if its results are kept."""
        if (self.task == "keep") != (self.method is not None):
            raise ValueError("method goes with the task 'keep'")

    def rounds(self, n_parties: int) -> int:
        """Return one."""
        return 1

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

    def survives_losses(self) -> bool:
        """Tell that there is one sum: the score is then that of the others' rows."""
        return True

    def keeps_results(self) -> str | None:
        """Name what a party keeps for its own use."""
        if self.method is None:
            return None
        return f"{self.model['estimator']}.{self.method}"


class ModelParty(Party):
    """A data holder that applies a public model to its rows."""

    terms: Any = ModelTerms

    def prepare(self) -> None:
        """Make the model; nothing is computed before it is asked for."""
        self.X = self.block["X"]
        self.model = rebuild_model(self.terms.model, np.shape(self.X)[1])
        self.kept = None

    def schedule(self) -> Generator[Any, Any, Any]:
        """One task."""
        yield self.terms.task

    @operation(
        tells="the sum of the scores of its rows under the model that it was told (in "
        "mixed regressions: of what is unexplained, of the target and of its spread), "
        "how many rows are impossible under it, and how many there are",
        exact=True,
    )
    def score(self) -> dict:
        """Sum the scores of the own rows."""
        try:
            score = self.model._row_scores
            if list(signature(score).parameters) == ["X"]:
                total = sum_over_rows(self.X, lambda rows: _add_up(score(rows)))
            else:
                total = _add_up(self._apply(score))
        except (TypeError, ValueError):
            raise PartyRefusal("invalid-data") from None
        return self.hide(total)

    def _apply(self, method):
        """Call a method with the own rows and what it wants to know beside them."""
        wanted, block = signature(method).parameters, self.block
        if hasattr(self.model, "_join_beside"):
            block = self.model._join_beside(block)
        beside = {k: v for k, v in block.items() if k in wanted and k != "X"}
        return method(np.asarray(self.X), **beside)

    @operation(tells="that it was asked", answers={})
    def keep(self) -> None:
        """Apply the model for the own use; say the same whatever comes of it."""
        try:
            self.kept = self._apply(getattr(self.model, self.terms.method))
        except Exception:
            # Whether a model of the coordinator's making fits the rows would be an
            # answer about them.
            self.kept = None


def _add_up(scores):
    """Return the sum of scores, the number of impossible rows, and that of all.

    Scores may have several parts, which are columns.
    """
    impossible = np.isneginf(scores)
    totals = np.sum(scores, axis=0, where=~impossible)
    counts = np.count_nonzero(impossible), len(scores)
    return np.append(totals, counts).astype(np.float64)


def sum_scores(federation):
    """Sum the scores of all parties' rows: the coordinator's side.

    Parameters
    ----------
    federation : Federation
        Opened with :class:`ModelParty` and the task "score".

    Returns
    -------
    total : float or ndarray of shape (n_parts,)
        Minus infinity if a row is impossible under the model. An array if scores have
        several parts.
    n_rows : int
    """
    *parts, n_impossible, n_rows = federation.secure_sum("score")
    federation.ledger.note(SCORED_MODEL)
    total = float(parts[0]) if len(parts) == 1 else np.array(parts)
    return (-np.inf if n_impossible > 0.5 else total), int(n_rows)
