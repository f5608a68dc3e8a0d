"""Checks of what users pass, and what they are warned of."""

import numpy as np
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import column_or_1d

from skprivbn.utils import warn_leak

__all__ = ["check_clusters", "check_target", "some", "warn_of_holders"]


def check_target(estimator, y):
    """Return `y` as labels of two classes, or say what is wrong."""
    if y is None:
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is "
            "None"
        )
    y = column_or_1d(y, warn=True)
    check_classification_targets(y)
    kind = type_of_target(y, input_name="y", raise_unknown=True)
    if kind != "binary":
        raise ValueError(
            "Only binary classification is supported. The type of the target is "
            f"{kind}."
        )
    return y


def check_clusters(cluster, known):
    """Refuse labels with gaps, and those that are not `known` unless that is None."""
    labels = np.ravel(cluster).tolist()
    if any(label is None or label != label for label in labels):
        raise ValueError("cluster has missing labels: give every row a category")
    if known is not None:
        unknown = sorted(set(labels) - set(np.asarray(known).tolist()), key=str)
        if unknown:
            raise ValueError(f"cluster has labels that clusters lacks: {unknown[:5]}")


def some(labels, mask, most=5):
    """Return a few of the labels, for a message."""
    chosen = [label for label, is_in in zip(labels, mask) if is_in]
    text = ", ".join(map(repr, chosen[:most]))
    return f"[{text}, ... {len(chosen)} in all]" if len(chosen) > most else f"[{text}]"


def warn_of_holders(survey, ledger, release_effects):
    """Say which clusters' sums are one party's, or can be told apart by two."""
    alone, two = survey.n_holders == 1, survey.n_holders == 2
    if np.any(alone) and release_effects == "all":
        message = (
            f"clusters {some(survey.clusters, alone)} are held by one party each: "
            "their random effects tell about that party's rows alone; "
            "release_effects='shared' withholds them"
        )
        ledger.note(message)
        warn_leak(message)
    if np.any(two) and len(ledger.parties) > 2:
        message = (
            f"clusters {some(survey.clusters, two)} are held by two parties: each "
            "learns the other's sums by subtracting its own; min_parties=3 refuses "
            "such clusters"
        )
        ledger.note(message)
        warn_leak(message)
