"""The survey before EM: labels, moments of the features, sizes of the categories."""

from dataclasses import dataclass

import numpy as np

from skprivbn.exceptions import PartitionError
from skprivbn.federation import PartyRefusal, operation
from skprivbn.protocols import Moments, MomentsParty, collect_moments

__all__ = ["Survey", "SurveyParty", "take_survey"]


class SurveyParty(MomentsParty):
    """A data holder that tells its labels and counts its rows."""

    terms = None

    def prepare(self):
        super().prepare()
        self.mixed = self.settings["mixed"]
        needed = ["y", "cluster"] if self.mixed else ["y"]
        if any(_has_missing(self.block, key) for key in needed):
            raise PartyRefusal("invalid-data")

    def schedule(self):
        yield "labels"
        yield from super().schedule()
        yield "census"
        yield "compare_census"

    @operation(tells="which classes and, unless all are given, clusters it holds")
    def labels(self):
        classes, held = np.unique(self.block["y"]).tolist(), []
        if len(classes) > 2:
            # Perhaps not classes at all, but values that nobody should be told.
            raise PartyRefusal("invalid-data")
        if self.mixed and self.settings["clusters"] is None:
            held = np.unique(self.block["cluster"]).tolist()
        return {"classes": classes, "clusters": held}

    @operation(
        tells="its number of rows in each cluster, and whether it has any",
        hears="all classes and clusters",
        exact=True,
    )
    def census(self, classes, clusters):
        y = _codes(self.block["y"], classes)
        if self.mixed:
            category = _codes(self.block["cluster"], clusters)
        else:
            category = np.zeros(len(y), dtype=int)
        self.y, self.category = y.astype(float), category
        self.own_rows = np.bincount(category, minlength=max(len(clusters), 1))
        return self.hide(np.append(self.own_rows, self.own_rows > 0))

    @operation(peers="shares of its number of rows in each cluster")
    def compare_census(self):
        """Add the census up with the peers alone.

        A coordinator who made up that a cluster has several holders would be told
        what one of them should keep to itself.
        """
        own = np.append(self.own_rows, self.own_rows > 0)
        total = yield from self.add_among_peers(own)
        self.n_rows, self.n_holders = np.split(total, 2)


def _has_missing(block, key):
    if key not in block:
        return True
    labels = np.asarray(block[key])
    if labels.dtype == object:
        return any(label is None or label != label for label in labels)
    return bool(np.any(labels != labels))


def _codes(labels, known):
    """Return the position of each label among the known ones."""
    positions = {label: i for i, label in enumerate(known)}
    values, inverse = np.unique(labels, return_inverse=True)
    try:
        return np.array([positions[value] for value in values.tolist()])[inverse]
    except KeyError:
        raise PartyRefusal("invalid-data") from None


@dataclass(frozen=True)
class Survey:
    """What is known of the data before EM.

    Attributes
    ----------
    classes, clusters : list
        Labels; no clusters without random effects.
    n_rows, n_holders : ndarray of int of shape (n_categories,)
        Of each category; one category without random effects.
    moments : Moments
        Of the features.
    scale : ndarray of shape (n_features,)
        What features are divided by; 1 if they do not vary.
    """

    classes: list
    clusters: list
    n_rows: np.ndarray
    n_holders: np.ndarray
    moments: Moments
    scale: np.ndarray

    @property
    def constant(self):
        """Mask of the features that do not vary."""
        return ~_varies(self.moments)


def take_survey(federation):
    """Learn the labels, the features' moments and the categories' sizes.

    Parameters
    ----------
    federation : Federation
        Opened with :class:`GLMMParty`.

    Returns
    -------
    survey : Survey
    """
    replies = federation.call("labels").values()
    classes = _union("y", [reply["classes"] for reply in replies])
    clusters = federation.settings["clusters"]
    if clusters is None:
        clusters = _union("cluster", [reply["clusters"] for reply in replies])
    moments = collect_moments(federation)
    scale = np.ones(len(moments.mean))
    varies = _varies(moments)
    scale[varies] = np.sqrt(moments.covariance[varies])
    payload = {"classes": classes, "clusters": clusters}
    census = federation.secure_sum("census", payload).astype(np.int64)
    federation.converse("compare_census")
    federation.ledger.learns("all parties", "rows and holders of every cluster")
    return Survey(classes, clusters, *np.split(census, 2), moments, scale)


def _union(name, held):
    labels = {label for labels in held for label in labels}
    try:
        return sorted(labels)
    except TypeError:
        kinds = sorted({type(label).__name__ for label in labels})
        raise PartitionError(
            f"parties use different kinds of labels in {name}: {kinds}"
        ) from None


def _varies(moments):
    rounding = np.finfo(float).eps * moments.n * np.abs(moments.mean)
    return moments.covariance > rounding**2
