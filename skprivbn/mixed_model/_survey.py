"""Survey before a fit: labels, moments of the features, sizes of the clusters."""

from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass, replace
from itertools import combinations, starmap
from typing import Any, NamedTuple

import numpy as np

from skprivbn.federation import PartyRefusal, RowWeights, Sum, TooFewRows, converse
from skprivbn.federation._rows import row_blocks, unit_of_squares
from skprivbn.federation.gate import (
    N_PARTITIONS,
    centres_of_pairs,
    count_values,
    kish,
    rows_beside,
    rows_of_pairs,
    rows_of_values,
)
from skprivbn.mixed_model._checks import (
    check_clusters,
    check_survey,
    check_target,
    cluster_keys,
    finite_per_row,
)
from skprivbn.mixed_model._clusters import (
    OTHER,
    Census,
    joined,
    merge_few,
    merged_label,
    sides_by_group,
    weigh,
)
from skprivbn.mixed_model._terms import Design, MixedTerms
from skprivbn.programs._columns import tell_all
from skprivbn.programs._moments import Moments
from skprivbn.utils._validation import is_missing

# Standard deviation of an offset in which exposures differ by a factor of 20: of days
# and of years, of villages and of cities, the logarithms differ less.
_WIDE_OFFSET = 3.0


@dataclass(frozen=True)
class Survey:
    """Public facts about the data before the fit.

    Attributes
    ----------
    classes : list
        Labels of the target, if it has any.
    census : Census
        Small clusters pooled, if that was asked for; one level without random effects.
    pooled : list of list of str
        Labels of each factor that were.
    varies, is_zero : ndarray of bool of shape (n_columns,)
        Of the features, then of the target where that is a number, or the offset.
    n_features : int
    terms : MixedTerms
    moments : Moments, default=None
        Of these columns; for the parties.
    weight : float, default=1.0
        Mean weight of the rows.
    wide_offset : bool, default=False
        Whether offsets differ more than logarithms of exposures do.
    """

    classes: list
    census: Census
    pooled: list
    varies: np.ndarray
    is_zero: np.ndarray
    n_features: int
    terms: MixedTerms
    moments: Any = None
    weight: float = 1.0
    wide_offset: bool = False

    @property
    def n_samples(self):
        """Rows of all parties."""
        return int(self.census.n_rows[0].sum())

    @property
    def constant(self):
        """Mask of constant features; without an intercept, of those that are zero."""
        n, has_intercept = self.n_features, self.terms.fit_intercept
        return ~self.varies[:n] & (self.is_zero[:n] | has_intercept)

    @property
    def scale(self):
        """What columns are divided by: 1 if they do not vary."""
        return np.sqrt(np.where(self.varies, self.moments.covariance, 1.0))

    @property
    def design(self):
        """The columns of the model, with standardised features."""
        n, terms = self.n_features, self.terms
        mean, scale = self.moments.mean[:n], self.scale[:n]
        return Design(mean, scale, terms.fit_intercept, terms.random)

    @property
    def columns(self):
        """Number or name of each column of products, for the words of a refusal."""
        first = [None] * self.terms.fit_intercept
        return [*first, *range(self.n_features), "y"]

    @classmethod
    def of_labels(cls, classes, clusters, n_features, terms):
        """Return what is known once labels have been told."""
        labels = [[_hashable(label) for label in known] for known in clusters]
        labels = labels if terms.mixed else [["all"]]
        none = [np.zeros(len(known), dtype=int) for known in labels]
        census = Census(labels, none, none, terms.nested)
        unknown = np.zeros(0, dtype=bool)
        return cls(classes, census, [], unknown, unknown, n_features, terms)

    def counted(self, rows, holders):
        """Return the survey with the sizes of the clusters."""
        ends = np.cumsum([len(known) for known in self.census.labels])[:-1]
        rows, holders = (
            np.split(np.rint(counts).astype(np.int64), ends)
            for counts in (rows, holders)
        )
        return replace(
            self, census=replace(self.census, n_rows=rows, n_holders=holders)
        )

    def measured(self, moments, weight):
        """Return the survey with the moments of the columns, and the mean weight."""
        rounding = np.finfo(float).eps * moments.n_rows * np.abs(moments.mean)
        has_log = self.terms.centres_offset and self.terms.link != "logit"
        return replace(
            self,
            varies=moments.covariance > rounding**2,
            is_zero=moments.mean == 0,
            moments=moments,
            weight=float(weight),
            wide_offset=has_log and bool(moments.covariance[-1] > _WIDE_OFFSET**2),
        )

    def with_pooled(self, census, positions, rows):
        """Return the survey and own rows with small clusters as one.

        Parameters
        ----------
        census, positions :
            Of :meth:`Census.pooled` or :meth:`Census.joined`.
        rows : OwnRows
        """
        before = self.census
        codes = [new[old] for new, old in zip(positions, rows.codes)]
        pooled = [
            [str(name) for name in before.names(i) if name not in set(census.names(i))]
            for i in range(before.n_factors)
        ]
        if self.pooled:
            pooled = [[*a, *b] for a, b in zip(self.pooled, pooled)]
        survey = replace(self, census=census, pooled=pooled)
        return survey, replace(rows, codes=codes)

    def to_payload(self):
        """Return what the researcher is told."""
        census = self.census
        return {
            "classes": self.classes,
            "labels": [[_plain(label) for label in known] for known in census.labels],
            "n_rows": census.n_rows,
            "n_holders": census.n_holders,
            "pooled": self.pooled,
            "varies": self.varies.tolist(),
            "is_zero": self.is_zero.tolist(),
            "wide_offset": self.wide_offset,
        }

    @classmethod
    def from_payload(cls, told, terms, n_features):
        """Read what the researcher is told."""
        labels = [[_hashable(label) for label in known] for known in told["labels"]]
        census = Census(labels, told["n_rows"], told["n_holders"], terms.nested)
        varies, is_zero = (
            np.array(told[name], dtype=bool) for name in ("varies", "is_zero")
        )
        known = told["classes"], census, told["pooled"], varies, is_zero
        wide_offset = bool(told["wide_offset"])
        return cls(*known, n_features, terms, wide_offset=wide_offset)


@dataclass(frozen=True)
class OwnRows:
    """Rows of one party.

    Attributes
    ----------
    X : ndarray of shape (n_rows, n_features)
    y, offset, weights : ndarray of shape (n_rows,)
        The target (classes as 0 and 1; less the offset in linear models), the known
        part of the predictor, and how much rows count.
    labels : list of list
        Clusters of each factor; of nested ones, whole paths.
    codes : list of ndarray of int of shape (n_rows,)
        Their numbers in the census.
    """

    X: np.ndarray
    y: np.ndarray
    offset: np.ndarray
    weights: np.ndarray
    labels: list
    codes: list

    def counts(self, census):
        """Return how many of the rows are in each cluster of each factor."""
        return [
            np.bincount(codes, minlength=len(labels))
            for codes, labels in zip(self.codes, census.labels)
        ]

    def derivatives(self, family, eta):
        """Return derivatives of each row's log-likelihood by its predictor."""
        return family.derivatives(self.weights * self.y, self.weights, eta)


def take_survey(me, look=None) -> Generator[Any, Any, tuple]:
    """Learn labels, moments of the features and sizes of the clusters.

    Parameters
    ----------
    me : Me
    look : callable, default=None
        What else is summed beside squares of the features: takes rows, columns of
        features in rough units, sums of the target and the number of rows of all
        parties; returns a vector and weights.

    Returns
    -------
    survey : Survey
    rows : OwnRows or None
        None if no model can be fitted: the survey tells the researcher why.
    look : Look or None
    """
    terms, rows = me.terms, _read_rows(me)
    n_features = rows.X.shape[1]
    classes, clusters = yield from _tell_labels(me, rows)
    survey = Survey.of_labels(classes, clusters, n_features, terms)
    if not can_be_fitted(survey, me):
        return survey, None, None
    rows = _code(rows, survey)
    columns = _summed(rows, terms)
    survey, rows, total = yield from _add_sizes(rows, columns, survey)
    width, n_labels = columns.shape[1], sum(map(len, survey.census.labels))
    ends = np.cumsum([2, width, width, n_labels, n_labels])
    (n, weight), sums, sizes, counts, holders, target = np.split(total, ends)
    survey = survey.counted(counts, holders)
    if terms.pool and len(me.roster) > 1:
        for limits in ((1, me.min_rows, True), terms.limits):
            smaller = survey.census.pooled(*limits)
            survey, rows = survey.with_pooled(*smaller, rows)
    mean, unit = sums / n, unit_of_squares(sizes / n, n)
    # products have weights, too, which need room
    rough = 2.0**7 * unit
    deviations, more, counted = (columns - mean) / unit, np.zeros(0), None
    if terms.centres_offset:
        rows = replace(rows, offset=rows.offset - mean[-1])
    if look is not None:
        columns_of = Design(
            mean[:n_features], rough[:n_features], terms.fit_intercept, terms.random
        )
        more, counted = look(rows, columns_of.fixed(rows.X), target, n)
    vector = np.append((deviations**2).sum(axis=0), more)
    survey, rows, total = yield from _add_squares(
        vector, deviations, target, counted, survey, rows, 2.0**15 * unit
    )
    squares, more = np.split(total, [width])
    survey = survey.measured(Moments(n, mean, squares / n * unit**2), weight / n)
    if not can_be_fitted(survey, me):
        return survey, None, None
    ones = np.ones(int(terms.fit_intercept))
    rough = np.append(ones, rough[:n_features] / survey.scale[:n_features])
    return survey, rows, Look(target, more, rough)


def _add_sizes(rows, columns, survey):
    """Sum up rows and clusters; if pooled, clusters of few rows are merged first."""
    while True:
        vector, counted = _first_sums(rows, columns, survey)
        try:
            total = yield Sum(
                vector, "sizes of clusters, sums of features and target", counted
            )
            return survey, rows, total
        except TooFewRows as few:
            sizes, labels = sum(map(len, survey.census.labels)), survey.census.labels
            others, sizes = np.split(few.blocks, [len(few.blocks) - sizes])
            if not survey.terms.pool or np.any(others):
                raise
            masks = np.split(sizes, np.cumsum([len(known) for known in labels])[:-1])
            for known, mask in zip(labels, masks):
                # how large others are is not known yet: the last of them joins
                left = np.flatnonzero(~mask)
                if OTHER in known and mask[known.index(OTHER)]:
                    if not left.size:
                        raise
                    mask[left[-1]] = True
            survey, rows = survey.with_pooled(*survey.census.joined(masks), rows)


def _first_sums(rows, columns, survey):
    """Return numbers and sums of rows and of clusters, and how many count in each."""
    own = np.concatenate(rows.counts(survey.census))
    target, counted = _by_intercept(rows, survey.terms)
    sums = columns.sum(axis=0), np.abs(columns).sum(axis=0), own, own > 0
    vector = np.concatenate([[len(columns), rows.weights.sum()], *sums, target])
    if survey.terms.pool:
        # counts, which tell which clusters are to be pooled before sums are opened
        return vector, counted._replace(cells=own.astype(float))
    sizes = RowWeights(own, own)
    return vector, joined(counted, sizes)


def _add_squares(vector, deviations, target, more, survey, rows, typical):
    """Sum up squares; if pooled, clusters with few rows of an outcome are merged."""
    while True:

        def counted(rows=rows, survey=survey):
            beside = _count_values(rows, deviations, survey, typical)
            return joined(beside, _weigh_clusters(rows, target, survey), more)

        try:
            total = yield Sum(
                vector, "squares of features; first gradient and Hessian", counted
            )
            return survey, rows, total
        except TooFewRows as few:
            census = survey.census
            inside = np.array([column == "cluster" for column in counted().columns])
            if not survey.terms.pool or census.n_factors > 1 or not inside.any():
                raise
            opened = _opened(survey, 0)
            small = opened.copy()
            small[opened] = few.blocks[inside].reshape(-1, opened.sum()).any(axis=0)
            others = np.where(small, np.inf, census.n_rows[0])
            if np.any(few.blocks[~inside]) or np.isinf(others).all():
                raise
            small[np.argmin(np.where(others > 0, others, np.inf))] |= small.sum() < 2
            survey, rows = survey.with_pooled(*census.joined([small]), rows)


class Look(NamedTuple):
    """What is known of the target before the fit.

    Attributes
    ----------
    target : ndarray of shape (3,)
        Sums of two derivatives by the intercept where the predictor is zero, and of
        absolute values of the first.
    total : ndarray
        The sum of what was looked at.
    rough : ndarray of shape (n_fixed,)
        What columns there are to be multiplied by, to be standardised.
    """

    target: np.ndarray
    total: np.ndarray
    rough: np.ndarray


def can_be_fitted(survey, me):
    """Tell whether the researcher will find nothing wrong with the survey."""
    try:
        check_survey(survey, len(me.roster))
    except ValueError:
        return False
    return True


def _read_rows(me):
    """Return the own rows, or refuse what is missing or no number."""
    terms, block = me.terms, me.block
    keys = cluster_keys(terms.n_factors)
    beside_rows = {key: np.ravel(block.get(key)).tolist() for key in ["y", *keys]}
    if gaps := [key for key, own in beside_rows.items() if any(map(is_missing, own))]:
        raise PartyRefusal("gaps", columns=gaps)
    X = np.concatenate(list(row_blocks(me.numbers())))
    beside = {"offset": np.zeros(len(X)), "sample_weight": np.ones(len(X)), **block}
    try:
        if terms.has_offset != ("offset" in block):
            raise ValueError("offset is there, or missing, against the terms")
        if np.any(terms.random.columns >= X.shape[1]):
            raise ValueError("slopes are of columns that X lacks")
        offset = finite_per_row("offset", beside["offset"], len(X))
        weights = finite_per_row("sample_weight", beside["sample_weight"], len(X))
        if np.any(weights < 0):
            raise ValueError("sample_weight must not be negative")
        y = check_target(np.asarray(block["y"]), terms.target, weights)
        clusters = {key: block[key] for key in keys}
        check_clusters(clusters, terms.clusters and terms.clusters[0])
    except (TypeError, ValueError) as error:
        raise PartyRefusal("invalid-data", str(error)) from None
    if terms.target == "numbers":
        y = y - offset
    return OwnRows(X, y, offset, weights, own_labels(me), [])


def own_labels(me):
    """Return labels of the rows, one list per factor; of nested ones, whole paths."""
    terms, keys = me.terms, cluster_keys(me.terms.n_factors)
    columns = [np.asarray(me.block[key]).tolist() for key in keys]
    # names that are given have none for clusters that are merged
    if terms.pool and terms.clusters is None:
        enough, other = terms.min_cell_count, merged_label(me.name)
        columns = [merge_few(labels, enough, other) for labels in columns]
    if not terms.nested:
        return columns
    paths = [list(zip(*columns[: i + 1])) for i in range(1, len(columns))]
    return [*columns[:1], *paths]


def check_labels(columns, min_cell_count):
    """Refuse to name labels of few own rows.

    If a column of numbers, or several columns read together, are taken as labels, each
    label is a row.

    Parameters
    ----------
    columns : iterable of iterable
        Labels of all own rows.
    min_cell_count : int
    """
    for labels in columns if min_cell_count > 1 else ():
        counts = Counter(labels)
        rarest = min(counts, key=counts.__getitem__, default=None)
        if counts and counts[rarest] < min_cell_count:
            why = f"{counts[rarest]} rows are {rarest!r}: fewer than min_cell_count"
            raise PartyRefusal("too-detailed", why, ["cluster"])


def _tell_labels(me, rows):
    """Tell peers which labels there are; return those of all parties."""
    terms, clusters = me.terms, [[] for _ in rows.labels]
    if terms.clusters is None:
        check_labels(rows.labels, terms.min_cell_count)
        clusters = [_in_order(set(labels)) for labels in rows.labels]
    if terms.crossed:
        # pairs of clusters are opened, too
        check_labels(starmap(zip, combinations(rows.labels, 2)), terms.min_cell_count)
    classes = _in_order(set(rows.y.tolist())) if terms.target == "classes" else []
    mine = {"classes": classes, "clusters": clusters}
    told = {me.name: mine}
    if classes or terms.clusters is None:
        telling = tell_all(me, mine)
        told = yield from converse(
            telling, "labels of its classes and clusters", "public"
        )
    held = told.values()
    classes, order = _union([party["classes"] for party in held]), terms.classes or []
    classes.sort(key=lambda c: order.index(c) if c in order else len(order))
    if terms.clusters is not None:
        return classes, terms.clusters
    names = range(len(rows.labels))
    return classes, [_union([party["clusters"][i] for party in held]) for i in names]


def _union(held):
    return _in_order({_hashable(label) for labels in held for label in labels})


def _in_order(labels):
    """Return labels as they travel, in the same order at all parties."""
    try:
        labels = sorted(labels)
    except TypeError:  # parties have labels of different kinds
        labels = sorted(labels, key=lambda label: (type(label).__name__, str(label)))
    return [_plain(label) for label in labels]


def _plain(label):
    return list(label) if isinstance(label, tuple) else label


def _hashable(label):
    return tuple(label) if isinstance(label, list) else label


def _code(rows, survey):
    """Return the rows with numbers for classes and clusters."""
    terms, y = survey.terms, rows.y
    if terms.target == "classes":
        y = _codes(y.tolist(), survey.classes).astype(float)
    if not terms.mixed:
        return replace(rows, y=y, codes=[np.zeros(len(y), dtype=int)])
    codes = [
        _codes(own, known) for own, known in zip(rows.labels, survey.census.labels)
    ]
    return replace(rows, y=y, codes=codes)


def _codes(labels, known):
    """Return the position of each label among the known ones."""
    positions = {label: i for i, label in enumerate(known)}
    return np.array([positions[label] for label in labels], dtype=int)


def _summed(rows, terms):
    """Return the columns of which moments are summed."""
    columns = [rows.X]
    if terms.target == "numbers":
        # the target is standardised like a feature
        columns.append(rows.y[:, None])
    if terms.centres_offset:
        columns.append(rows.offset[:, None])
    return np.concatenate(columns, axis=1)


def _by_intercept(rows, terms):
    """Return sums of two derivatives by the intercept, and how much rows count."""
    first = bend = zero = np.zeros(len(rows.y))
    if terms.target != "numbers":
        by_eta = rows.derivatives(terms.distribution, zero)
        first, bend = by_eta.first, by_eta.weight
    sums = np.array([first.sum(), bend.sum(), np.abs(first).sum()])
    return sums, weigh([(first, 1.0), (bend, 1.0)])


def _opened(survey, factor):
    """Tell of which clusters of a factor sums are opened."""
    return survey.terms.crossed | survey.census.shown(factor)


def _weigh_clusters(rows, target, survey):
    """Return how much rows count in gradients of clusters that may yet be pooled."""
    terms = survey.terms
    if not terms.pool or terms.target == "numbers" or terms.n_factors != 1:
        return None
    family = terms.distribution
    eta = rows.offset + family.intercept(*target[:2]) * terms.fit_intercept
    first = rows.derivatives(family, eta).first
    weights = weigh([(first, 1.0)], [(rows.codes[0], _opened(survey, 0))])
    n_clusters = len(weights.total) - 1
    return weights._replace(columns=(None, *["cluster"] * n_clusters))


def _count_values(rows, deviations, survey, typical):
    """Return how many rows count in sums of columns, and on each side of their means.

    Of clusters that are opened, outcomes and columns with random slopes are looked at,
    too. The first gradient tells the cells of columns of two values with such a target.
    """
    terms = survey.terms
    plain = weigh([(np.ones(len(deviations)), 1.0)])
    ones, beside = np.ones(len(rows.y)), [rows.offset, rows.weights, rows.y]
    own = np.column_stack([rows.X, *beside])
    mean = own.mean(axis=0) if len(own) else np.zeros(own.shape[1])
    centres, counted = centres_of_pairs(own, mean)
    # products of typical sizes are about one
    size = np.append(typical[: rows.X.shape[1]], np.ones(3))
    size[-1] = typical[rows.X.shape[1]] if terms.target == "numbers" else 1.0
    products = rows_of_pairs((own - centres) / size, ones, counted)
    own = own - mean
    beside, sides = rows_beside(own[:, -3:], ones), rows_beside(deviations, ones)
    values = rows_of_values(rows.X, ones, count_values(rows.X))
    groups = [
        (codes, _opened(survey, factor))
        for factor, codes in enumerate(rows.codes if terms.mixed else ())
    ]
    random = np.unique(terms.random.columns[terms.random.columns >= 0])
    # numbers by the mean of all parties, in units; of classes, a count says all
    has_numbers = terms.target == "numbers"
    inside = [*random, rows.X.shape[1]] if has_numbers else random
    by_cluster = sides_by_group(deviations[:, inside], ones, groups)
    outcomes = own[:, -1:] if not has_numbers else own[:, :0]
    outcomes = kish(sides_by_group(outcomes, ones, groups))
    cells = kish(np.hstack([beside, values]))
    # which columns these are about
    names = [*range(rows.X.shape[1]), "offset", "sample_weight", "y"]
    pairs = list(combinations(names, 2))
    columns = (None, *names[-3:] * 2, *names[:-3] * (2 * N_PARTITIONS))
    columns += ("cluster",) * len(outcomes) + (*names[-3:],) * 2
    columns += (*range(deviations.shape[1]),) * 2 + (*pairs,) * 4
    columns += (*names, *("cluster",) * by_cluster.shape[1])
    cells = np.append(cells, outcomes)
    sides = np.hstack([beside, sides, products, by_cluster])
    return plain._replace(cells=cells, columns=columns, sides=sides)
