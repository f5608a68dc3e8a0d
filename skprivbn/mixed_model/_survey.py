"""The survey before a fit: labels, moments of the features, sizes of the clusters."""

from dataclasses import dataclass, replace
from itertools import combinations, starmap
from typing import Any

import numpy as np

from skprivbn.exceptions import PartitionError
from skprivbn.federation import PartyRefusal, operation
from skprivbn.federation.site._small_cells import check_cells
from skprivbn.mixed_model._census import Census, merge_few, merged_label
from skprivbn.mixed_model._design import Design
from skprivbn.mixed_model._terms import MixedTerms
from skprivbn.protocols import Moments, MomentsParty
from skprivbn.protocols._moments import FirstMoments
from skprivbn.utils._validation import is_missing

#: numbers that are held of all clusters together
MAX_NUMBERS = 1 << 24
# Room for sums per row, before they overflow a backend.
_HEADROOM = 64


def cluster_keys(n_factors):
    """Return under which names a party keeps the labels of each factor."""
    return ["cluster", *(f"cluster_{i}" for i in range(1, n_factors))][:n_factors]


def sum_unit(max_sum, n_parties, n_rows):
    """Return what sums are multiplied by to fit a backend; a power of two."""
    room = max_sum / (_HEADROOM * n_parties * n_rows)
    return 1.0 if room >= 1 else 2.0 ** np.floor(np.log2(room))


class SurveyParty(MomentsParty):
    """A data holder that tells its labels and counts its rows."""

    terms = MixedTerms

    def prepare(self):
        super().prepare()
        self.keys = cluster_keys(self.terms.n_factors)
        self.random = self.terms.random
        if any(_has_missing(self.block, key) for key in ["y", *self.keys]):
            raise PartyRefusal("invalid-data")
        self.mixed = self.terms.mixed
        n_rows = len(self.rows)
        self.offset = self._numbers("offset", np.zeros(n_rows))
        if self.terms.has_offset != ("offset" in self.block):
            raise PartyRefusal("invalid-data")
        self.weights = self._numbers("sample_weight", np.ones(n_rows))
        if np.any(self.weights < 0):
            raise PartyRefusal("invalid-data")
        if self.terms.target != "classes":
            self.y = self._check_numbers(self._numbers("y", None))
        if self.terms.target == "numbers":
            # the target is standardised like a feature
            self.rows = np.column_stack([self.rows, self.y])
        if self.terms.centres_offset:
            self.rows = np.column_stack([self.rows, self.offset])

    def _numbers(self, key, default):
        if key not in self.block:
            return default
        values = np.asarray(self.block[key])
        if values.dtype.kind not in "fiub" or not np.all(np.isfinite(values)):
            raise PartyRefusal("invalid-data")
        return values.astype(float)

    def _check_numbers(self, y):
        target = self.terms.target
        if target == "numbers":
            return y - self.offset
        whole = self.weights * y if target == "proportions" else y
        if np.any(y < 0) or np.any(np.abs(whole - np.rint(whole)) > 1e-6):
            raise PartyRefusal("invalid-data")
        if target == "proportions" and np.any(y > 1):
            raise PartyRefusal("invalid-data")
        return y

    def schedule(self):
        yield "labels"
        yield "census"

    @operation(
        tells="which classes and, unless all are given, clusters it holds (if small "
        "ones are pooled, those of few rows of a site as one); its number of rows, "
        "sums and absolute sums of each feature, and of the offset",
        answers={"classes": list, "clusters": list, "vector": dict},
        exact=True,
    )
    def labels(self):
        classes = []
        if self.terms.target == "classes":
            classes = np.unique(self.block["y"]).tolist()
        if len(classes) > 2:
            # Perhaps not classes at all, but values that nobody should be told.
            raise PartyRefusal("invalid-data")
        own, held = self._own_labels(), [[] for _ in self.keys]
        # also declared ones are counted, by the next sum
        self.check_labels(own)
        if self.terms.crossed:
            # and so are pairs, which share rows
            self.check_labels(starmap(zip, combinations(own, 2)))
        if self.terms.clusters is None:
            held = [_unique(labels) for labels in own]
        return {"classes": classes, "clusters": held, **self.sums()}

    def _own_labels(self):
        """Labels of the rows, one list per factor; of nested ones, whole paths."""
        columns = [np.asarray(self.block[key]).tolist() for key in self.keys]
        # names that are given have none for clusters that are merged
        if self.terms.pool and self.terms.clusters is None:
            enough, other = self.min_cell_count, merged_label(self.name)
            columns = [merge_few(labels, enough, other) for labels in columns]
        if not self.terms.nested:
            return columns
        paths = [list(zip(*columns[: i + 1])) for i in range(1, len(columns))]
        return [*columns[:1], *paths]

    @operation(
        tells="its sums of squares about the common mean, its number of rows in each "
        "cluster and whether it has any, and sums of the target that tell its mean",
        hears="all classes and clusters, and the sums of all parties",
        hears_kind="plaintext aggregate",
        exact=True,
    )
    def census(self, total, classes, clusters):
        squares = self.sum_squares(total)
        if self.terms.centres_offset:
            self.offset = self.offset - self.first.mean[-1]
        if self.terms.target == "classes":
            # more than two would count some rows more than once
            if len(classes) > 2 or len(set(classes)) < len(classes):
                raise PartyRefusal("refused")
            self.y = _codes(self.block["y"].tolist(), classes).astype(float)
        declared = self.terms.clusters
        if len(clusters) != len(self.keys) or declared not in (None, clusters):
            raise PartyRefusal("refused")
        # what the terms take for a row, they take for a cluster, too
        per_cluster, _ = self.terms.memory(self.rows.shape[1])
        if per_cluster * sum(map(len, clusters)) > MAX_NUMBERS:
            raise PartyRefusal("too-large")
        self.all_labels = [[_hashable(label) for label in known] for known in clusters]
        if any(len(set(known)) < len(known) for known in self.all_labels):
            raise PartyRefusal("refused")
        self.codes = [
            _codes(own, known)
            for own, known in zip(self._own_labels(), self.all_labels)
        ]
        if not self.mixed:
            self.codes, self.all_labels = [np.zeros(len(self.y), dtype=int)], [["all"]]
        own = self.own_rows = [
            np.bincount(codes, minlength=len(labels))
            for codes, labels in zip(self.codes, self.all_labels)
        ]
        counts = np.concatenate([*own, *(rows > 0 for rows in own)])
        return self.hide(np.concatenate([squares, counts, self.sum_target()]))

    def sum_target(self):
        """Return what tells the mean of the target, where a model needs it."""
        return np.zeros(0)

    def read_census(self, total):
        """Take what all parties counted, verified: moments, and sizes of the clusters.

        A coordinator who made up that a cluster has several holders would be told
        what one of them should keep to itself.

        Returns
        -------
        rest : ndarray
            Everybody's :meth:`sum_target`.
        """
        values = self.reveal(total)
        n_squares = self.rows.shape[1]
        self.moments = self.first.with_second(values[:n_squares], self.terms.second)
        n_labels = sum(map(len, self.all_labels))
        counts, rest = np.split(values[n_squares:], [2 * n_labels])
        self.known = _read_census(counts, self.all_labels, self.terms.nested)
        return rest

    def settle_clusters(self, opened):
        """Pool small clusters if that was agreed, and refuse those that remain.

        The coordinator has checked this too; a party does not rely on it.

        Parameters
        ----------
        opened : bool
            Whether sums of clusters with one holder are opened, too.
        """
        if not self.mixed or len(self.context.roster) == 1:
            return
        limits = self.terms.min_parties, self.terms.min_rows, opened
        if self.terms.pool:
            self.known, positions = self.known.pooled(*limits)
            self.codes = [new[old] for new, old in zip(positions, self.codes)]
            self.own_rows = [
                np.bincount(codes, minlength=len(labels))
                for codes, labels in zip(self.codes, self.known.labels)
            ]
        for rows, holders, mask in zip(
            self.known.n_rows, self.known.n_holders, self.known.too_small(*limits)
        ):
            if np.any(rows[mask] < self.terms.min_rows):
                raise PartyRefusal("too-few-rows")
            if np.any(holders[mask] < self.terms.min_parties):
                raise PartyRefusal("too-few-parties")
        for factor, codes in enumerate(self.codes):
            shown = opened | self.known.shown(factor)
            if np.any(shown & self.weighs_on_few(codes, len(self.own_rows[factor]))):
                raise PartyRefusal("too-few-rows")
            self._check_values(factor, shown)
            rows = self.own_rows[factor]
            # the effect of a cluster of one row is that row's
            few = (rows > 0) & (rows < self.min_rows) & ~shown
            if self.terms.release_effects == "all" and np.any(few):
                raise PartyRefusal("too-few-rows")

    def _check_values(self, factor, shown):
        """Refuse if few rows of a cluster that is opened share one of few values.

        Sums of zeros and ones are counts, and so are those of outcomes.
        """
        if self.min_cell_count <= 1:
            return
        n_features = np.shape(self.block["X"])[1]
        values = np.column_stack([self.rows[:, :n_features], self.y])
        names = [*(f"feature {i}" for i in range(n_features)), "y"]
        columns, is_grouped = range(len(names)), np.zeros(len(names), dtype=bool)
        by_cluster = values[np.argsort(self.codes[factor], kind="stable")]
        parts = np.split(by_cluster, np.cumsum(self.own_rows[factor])[:-1])
        for cluster in np.flatnonzero(shown):
            check_cells(parts[cluster], columns, is_grouped, self.min_cell_count, names)

    def weighs_on_few(self, codes, size):
        """Tell of the own clusters whether weights leave less than half of the rows.

        Weights that are nearly all nothing are a filter, also within one cluster. Rows
        beyond `min_rows` may be left out.

        Parameters
        ----------
        codes : ndarray of int of shape (n_rows,)
            Cluster of each row.
        size : int
            Number of clusters.

        Returns
        -------
        mask : ndarray of bool of shape (size,)
        """
        weights = self.weights / (self.weights.max(initial=0.0) or 1.0)
        total, squares = (np.bincount(codes, weights**i, size) for i in (1, 2))
        # Kish's number of rows, that of equal weights
        effective = total**2 / np.where(squares > 0, squares, 1.0)
        wanted = np.minimum(np.bincount(codes, minlength=size), self.terms.min_rows)
        return (total > 0) & (effective < wanted / 2)

    def make_design(self):
        """Return the design in the units that everybody uses."""
        n_features = np.shape(self.block["X"])[1]
        columns = self.random.columns
        if np.any((columns < -1) | (columns >= n_features)):
            raise PartyRefusal("refused")
        return design_of(self.moments, n_features, self.terms)


def _has_missing(block, key):
    if key not in block:
        return True
    return any(map(is_missing, np.asarray(block[key]).tolist()))


def _unique(labels):
    return [list(v) if isinstance(v, tuple) else v for v in sorted(set(labels))]


def _hashable(label):
    return tuple(label) if isinstance(label, list) else label


def _codes(labels, known):
    """Return the position of each label among the known ones."""
    positions = {label: i for i, label in enumerate(known)}
    try:
        return np.array([positions[label] for label in labels], dtype=int)
    except KeyError:
        raise PartyRefusal("invalid-data") from None


def _read_census(total, labels, nested):
    ends = np.cumsum([len(known) for known in labels])[:-1]
    rows, holders = np.split(np.rint(np.asarray(total)).astype(np.int64), 2)
    return Census(labels, np.split(rows, ends), np.split(holders, ends), nested)


@dataclass(frozen=True)
class Survey:
    """What is known of the data before the fit.

    Attributes
    ----------
    classes : list
        Labels of the target, if it has any.
    census : Census
        One level without random effects.
    moments : Moments
        Of the features, and of the target where that is a number, or the offset.
    scale : ndarray of shape (n_features,)
        What features are divided by; 1 if they do not vary.
    design : Design
    total : OpenSum
        The sum that the parties verify.
    """

    classes: list
    census: Census
    moments: Moments
    scale: np.ndarray
    design: Design
    total: Any

    def pooled(self, *limits):
        """Return the survey with small clusters as one; see :meth:`Census.pooled`."""
        return replace(self, census=self.census.pooled(*limits)[0])

    @property
    def n_samples(self):
        """Rows of all parties."""
        return int(self.census.n_rows[0].sum())

    @property
    def varies(self):
        """Mask of the columns of `moments` that vary."""
        return _varies(self.moments)

    @property
    def constant(self):
        """Mask of the features that say nothing, as an intercept says the same.

        Without an intercept, only those that are zero.
        """
        mean = self.design.mean
        constant = ~self.varies[: len(mean)]
        return constant if self.design.fit_intercept else constant & (mean == 0)


def take_survey(federation, n_features):
    """Learn the labels, the features' moments and the clusters' sizes.

    Parameters
    ----------
    federation : Federation
        Opened with a :class:`SurveyParty`.
    n_features : int

    Returns
    -------
    survey : Survey
    """
    terms = federation.terms
    first = federation.secure_sum("labels")
    replies = list(federation.replies.values())
    classes = _union("y", [reply["classes"] for reply in replies])
    clusters = terms.clusters
    if clusters is None:
        clusters = [
            _union("cluster", [reply["clusters"][i] for reply in replies])
            for i in range(terms.n_factors)
        ]
    payload = {"total": first, "classes": classes, "clusters": clusters}
    total = federation.secure_sum("census", payload)
    federation.ledger.learns("all parties", "rows and holders of every cluster")
    labels = [[_hashable(label) for label in known] for known in clusters] or [["all"]]
    first = FirstMoments.read(first)
    squares, counts = np.split(np.asarray(total), [len(first.mean)])
    moments = first.with_second(squares, terms.second)
    census = _read_census(counts[: 2 * sum(map(len, labels))], labels, terms.nested)
    design = design_of(moments, n_features, terms)
    return Survey(classes, census, moments, scale_of(moments), design, total)


def scale_of(moments):
    """Return what features are divided by: 1 if they do not vary."""
    varies = _varies(moments)
    return np.sqrt(np.where(varies, moments.covariance, 1.0))


def design_of(moments, n_features, terms):
    """Return the design whose features are standardised by these moments."""
    return Design(
        moments.mean[:n_features],
        scale_of(moments)[:n_features],
        terms.fit_intercept,
        terms.random,
    )


def _union(name, held):
    labels = {_hashable(label) for labels in held for label in labels}
    try:
        return [list(v) if isinstance(v, tuple) else v for v in sorted(labels)]
    except TypeError:
        kinds = sorted({type(label).__name__ for label in labels})
        raise PartitionError(
            f"parties use different kinds of labels in {name}: {kinds}"
        ) from None


def _varies(moments):
    rounding = np.finfo(float).eps * moments.n_rows * np.abs(moments.mean)
    return moments.covariance > rounding**2
