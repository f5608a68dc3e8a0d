"""A fitted model, applied to rows where they are: scores are summed, results stay.

The coordinator tells all parties the same public model, what an estimator of this
package has learnt, as numbers and names. Each party makes the estimator again and
applies it to its own rows. It may tell the sum of their scores; predictions are for
the party itself.
"""

from collections.abc import Generator
from importlib import import_module
from inspect import signature
from typing import Any

import numpy as np

from skprivbn.federation._party import Party, PartyRefusal, operation

__all__ = [
    "MADE_UP",
    "MODELS",
    "TRANSFORMERS",
    "ModelParty",
    "describe_model",
    "rebuild_model",
    "sum_scores",
]

#: transformers that parties apply before anything else sees their rows
TRANSFORMERS = {
    "FederatedKBinsDiscretizer": "skprivbn.preprocessing",
    "FederatedPCA": "skprivbn.preprocessing",
    "FederatedStandardScaler": "skprivbn.preprocessing",
}
#: estimators that parties apply to their rows, and where they are defined
MODELS = TRANSFORMERS | {
    "CollectiveBayesianNetwork": "skprivbn.bayesian_network",
    "DPCGMLearner": "skprivbn.graphical_model",
    "FederatedDynotears": "skprivbn.structure",
    "FederatedGaussianBayesianNetwork": "skprivbn.structure",
    "FederatedNotearsADMM": "skprivbn.structure",
    "PPEMGaussianMixture": "skprivbn.mixture",
    "PrivateGLMM": "skprivbn.mixed_model",
    "PrivateK2StructureLearner": "skprivbn.structure",
    "VotingStructureLearner": "skprivbn.structure",
}
#: what the ledger says of a score
MADE_UP = (
    "the parties were told the parameters of the model: parameters made up to fit one "
    "row would tell whether somebody holds it"
)
#: methods whose results a party keeps for itself
KEPT = ("predict", "predict_proba")


def describe_model(estimator):
    """Return a fitted estimator as a public model, in a form that travels.

    Parameters
    ----------
    estimator : estimator
        With a method ``_public_model`` that returns numbers, arrays and names, and a
        class method ``_from_public_model(model, n_features)`` that checks them all.

    Returns
    -------
    model : dict
    """
    name = type(estimator).__name__
    if name not in MODELS or not type(estimator).__module__.startswith("skprivbn."):
        raise ValueError(
            f"parties apply these estimators of skprivbn only: {sorted(MODELS)}; got "
            f"{name}"
        )
    return {"estimator": name, "fitted": estimator._public_model()}


def rebuild_model(model, n_features):
    """Make a fitted estimator of a public model; refuses whatever is not one.

    Parameters
    ----------
    model : dict
        From :func:`describe_model`, or from a coordinator that pretends so.
    n_features : int
        Of the rows that it will be applied to.

    Returns
    -------
    estimator : estimator
    """
    try:
        name, fitted = model["estimator"], model["fitted"]
        estimator_class = getattr(import_module(MODELS[name]), name)
        estimator = estimator_class._from_public_model(fitted, n_features)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        raise PartyRefusal("refused") from None
    estimator.n_features_in_ = n_features
    return estimator


class ModelParty(Party):
    """A data holder that applies a public model to its rows.

    Settings are the ``model`` (:func:`describe_model`), the ``task`` ("score" or
    "keep") and, for the latter, the ``method`` whose results the party keeps.
    """

    @classmethod
    def models(cls, settings: dict) -> list:
        """Return the one model."""
        return [settings["model"]]

    @classmethod
    def survives_losses(cls, settings: dict) -> bool:
        """Tell that there is one sum: the score is then that of the others' rows."""
        return True

    @classmethod
    def keeps_results(cls, settings: dict) -> bool:
        """Tell whether this is for the party's own use."""
        return settings["task"] == "keep"

    def prepare(self) -> None:
        """Make the model; nothing is computed before it is asked for."""
        self.X = np.asarray(self.block["X"])
        self.model = rebuild_model(self.settings["model"], self.X.shape[1])
        self.kept = None

    def schedule(self) -> Generator[Any, Any, Any]:
        """One task."""
        task = self.settings["task"]
        if task not in ("score", "keep"):
            raise PartyRefusal("refused")
        yield task

    @operation(
        tells="the sum of the scores of its rows under the model that it was told, "
        "how many rows are impossible under it, and how many there are",
        exact=True,
    )
    def score(self) -> dict:
        """Sum the scores of the own rows."""
        try:
            scores = self._apply(self.model._row_scores)
        except (TypeError, ValueError):
            raise PartyRefusal("invalid-data") from None
        impossible = np.isneginf(scores)
        total = np.sum(scores, where=~impossible)
        counts = np.count_nonzero(impossible), len(scores)
        return {"vector": self.hide(np.array([total, *counts], dtype=np.float64))}

    def _apply(self, method):
        """Call a method with the own rows and what it wants to know beside them."""
        wanted = signature(method).parameters
        beside = {k: v for k, v in self.block.items() if k in wanted and k != "X"}
        return method(self.X, **beside)

    @operation(tells="that it was asked")
    def keep(self) -> None:
        """Apply the model for the own use; say the same whatever comes of it."""
        try:
            if self.settings["method"] in KEPT:
                self.kept = self._apply(getattr(self.model, self.settings["method"]))
        except Exception:
            # Whether a model of the coordinator's making fits the rows would be an
            # answer about them.
            self.kept = None


def sum_scores(federation):
    """Sum the scores of all parties' rows: the coordinator's side.

    Parameters
    ----------
    federation : Federation
        Opened with :class:`ModelParty` and the task "score".

    Returns
    -------
    total : float
        Minus infinity if a row is impossible under the model.
    n_rows : int
    """
    total, n_impossible, n_rows = federation.secure_sum("score")
    federation.ledger.note(MADE_UP)
    return (-np.inf if n_impossible > 0.5 else float(total)), int(n_rows)
