"""Which labels the columns of several parties have, which are frequent, which rare.

Labels are public if they are declared. Otherwise parties tell each other theirs, those
of few rows left out. Frequencies are added up for the parties only, who tell the most
frequent labels, or which are rare; or, with differential privacy, in one noisy sum over
declared labels.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from skprivbn.bayesian_network._base import check_states
from skprivbn.bayesian_network._labels import sorted_states
from skprivbn.federation import (
    ALL_ROWS,
    Me,
    Noisy,
    Sum,
    converse,
    program,
    sum_over_rows,
)
from skprivbn.federation._cells import CountTerms, rare_levels
from skprivbn.federation.program import refuse_malformed, require
from skprivbn.partition import RemoteRows
from skprivbn.privacy._persons import shares_of_rows
from skprivbn.programs._columns import tell_all
from skprivbn.utils import by_column
from skprivbn.utils._validation import as_seen, read_labels

#: labels that a party tells of one column; more would be its values
MAX_LABELS = 256


def known_categories(categories, names, partition):
    """Return the labels of every column, as far as they are known without the rows.

    Parameters
    ----------
    categories : "auto", list of array-like or dict of str to array-like
        What the user gives; columns that a dict does not name are as with "auto".
    names : list of str
    partition : HorizontalPartition or RemoteRows
        What it declares is taken if the user gives nothing.

    Returns
    -------
    categories : list of (list or None)
        None for columns of which nothing is known.
    are_public : bool
        Whether all are known, and not made by pandas of values that occur.
    """
    declared = [partition.categories.get(name) for name in names]
    if isinstance(categories, str):
        return declared, None not in declared and isinstance(partition, RemoteRows)
    if isinstance(categories, Mapping):
        categories = by_column("categories", categories, names)
    elif len(categories) != len(names):
        raise ValueError(
            f"categories has {len(categories)} entries for {len(names)} columns: give "
            "a list of labels for each, or a dict of names to labels"
        )
    categories = as_seen(categories, names, partition)
    given = [
        None if labels is None else list(check_states(name, labels))
        for name, labels in zip(names, categories)
    ]
    found = [g if g is not None else d for g, d in zip(given, declared)]
    return found, None not in (found if isinstance(partition, RemoteRows) else given)


@dataclass(frozen=True)
class CategoriesTerms(CountTerms):
    """Which labels are known, whether they are counted, and with what noise.

    Parameters
    ----------
    names : list of str
        Names of the columns.
    categories : list of (list or None)
        Labels of every column; None where parties are to tell theirs.
    count : bool
        Whether the most frequent label of each column is wanted.
    min_frequency : int, float or None
        Labels that fewer rows have, or a smaller share of all rows, are told as rare;
        None asks for none of them.
    min_cell_count : int
        Labels that fewer rows have are rare in any case.
    **counts
        As of :class:`CountTerms`; `epsilon` needs declared labels. Labels that fewer
        than `min_rows` of a party's rows have are not told.
    """

    names: list[str]
    categories: list[list[Any] | None]
    count: bool = False
    min_frequency: int | float | None = None
    min_cell_count: int = 0

    def check(self):
        """Refuse what cannot be a label, and noise without declared labels."""
        if len(self.categories) != len(self.names):
            raise ValueError("categories: one list for each column")
        for name, labels in zip(self.names, self.categories):
            if labels is not None:
                check_states(name, labels)
        if self.epsilon is not None and (None in self.categories or not self.count):
            raise ValueError("epsilon: frequencies of declared labels only")
        if self.min_frequency is not None:
            is_share = isinstance(self.min_frequency, float)
            if self.count or not 0 < self.min_frequency < (1 if is_share else np.inf):
                raise ValueError("min_frequency: a number of rows, or a share of them")

    def n_labels(self):
        """Return how many labels there are at most."""
        return sum(MAX_LABELS if c is None else len(c) for c in self.categories)


@program(CategoriesTerms)
def categories(me: Me) -> Generator[Any, Any, dict]:
    """Tell labels that are not declared; find the most frequent, or the rare ones."""
    terms = me.terms
    require(np.shape(me.block["X"])[1] == len(terms.names), "invalid-data")
    least = max(me.min_rows, terms.min_rows)
    if terms.epsilon is not None:
        noise = terms.noise(len(terms.names), len(me.roster))
        counts = _count(me, terms.categories)
        counts = yield Noisy(counts, noise, "noisy frequencies of labels")
        winners = _winners(counts, terms.categories, -np.inf)
        return {"winners": winners, "largest": float(counts.max() / terms.unit)}
    found = terms.categories
    if None in found:
        mine = tell_all(me, _frequent_labels(me, least))
        told = yield from converse(mine, "labels of columns", "public")
        found = _union(told.values(), terms)
    if terms.min_frequency is not None:
        told = np.append(_count(me, found), me.n_rows)
        total = yield Sum(told, "frequencies of labels, number of rows", ALL_ROWS)
        return {"categories": found, "rare": _rare(total, found, terms)}
    if not terms.count:
        return {"categories": found}
    counts = yield Sum(_count(me, found), "frequencies of labels", ALL_ROWS)
    return {"winners": _winners(counts, found, least)}


def _frequent_labels(me, least):
    """Return the labels of columns that do not declare them, which enough rows have."""
    X, found = np.asarray(me.block["X"]), []
    for name, declared, column in zip(me.terms.names, me.terms.categories, X.T):
        labels = () if declared is not None else sorted_states(column)
        if least > 1 and labels:
            counts = _frequencies(column, labels, name)
            labels = [label for label, n in zip(labels, counts) if n >= least]
        found.append(_check_labels(name, labels, "invalid-data"))
    return found


def _check_labels(name, labels, code):
    """Return labels as a list, unless they are too many, or none that can be told."""
    require(len(labels) <= MAX_LABELS, "too-detailed")
    with refuse_malformed(code):
        return list(check_states(name, labels)) if labels else []


def _union(told, terms):
    """Return the labels of each column, in ascending order where parties tell them."""
    found = []
    for v, (name, declared) in enumerate(zip(terms.names, terms.categories)):
        if declared is not None:
            found.append(declared)
            continue
        with refuse_malformed():
            labels = [
                x for each in told for x in _check_labels(name, each[v], "refused")
            ]
        found.append(list(sorted_states(np.array(labels, dtype=object))))
    return found


def _count(me, categories):
    """Count the labels of all columns; all rows of a person are one, with noise."""
    shared_by, names = me.rows_of_person(), me.terms.names
    shares = None if shared_by is None else shares_of_rows(shared_by)

    def count(rows):
        counts = [
            _frequencies(column, labels, name, shares)
            for name, labels, column in zip(names, categories, rows.T)
        ]
        return np.concatenate(counts).astype(np.int64)

    rows = me.block["X"]
    return sum_over_rows(rows if shares is None else np.asarray(rows), count)


def _frequencies(column, labels, name, shares=None):
    """Count the rows with each label; others are left out."""
    if not labels:
        return np.zeros(0)
    codes = read_labels(column, labels, name, strict=False)
    known = codes >= 0
    shares = None if shares is None else shares[known]
    return np.bincount(codes[known], shares, minlength=len(labels))


def _winners(counts, categories, least):
    """Return the most frequent label of each column; None if it is too rare.

    The first of those that are equally frequent.
    """
    return [
        labels[of.argmax()] if labels and of.max() >= least else None
        for labels, of in zip(categories, by_sizes(counts, categories))
    ]


def _rare(total, categories, terms):
    """Tell of the labels of all columns, side by side, which are rare."""
    counts, n_rows = total[:-1], total[-1]
    is_share = isinstance(terms.min_frequency, float)
    min_count = terms.min_frequency * (n_rows if is_share else 1)
    columns = by_sizes(counts, categories)
    masks = [rare_levels(of, min_count, terms.min_cell_count) for of in columns]
    return np.concatenate(masks)


def by_sizes(values, categories):
    """Take values of the labels of all columns, side by side, apart by columns."""
    return np.split(values, np.cumsum([len(labels) for labels in categories])[:-1])
