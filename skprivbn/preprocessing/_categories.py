"""Which labels the columns of several parties have, and which is the most frequent.

Labels are public if they are declared. Otherwise parties tell theirs, those of few
rows left out. Frequencies are added up for the parties only, who tell the winners; or,
with differential privacy, in one noisy sum over declared labels.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from skprivbn.bayesian_network._checks import check_states
from skprivbn.bayesian_network._labels import encode, sorted_states
from skprivbn.federation import Party, PartyRefusal, operation, sum_over_rows
from skprivbn.federation._cells import CountTerms
from skprivbn.partition import RemoteRows
from skprivbn.privacy._options import warn_of_noise
from skprivbn.privacy._persons import shares_of_rows

#: labels that a party tells of one column; more would be its values
MAX_LABELS = 256


def known_categories(categories, names, partition):
    """Return the labels of every column, as far as they are known without the rows.

    Parameters
    ----------
    categories : "auto" or list of array-like
        What the user gives.
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
    if isinstance(categories, str):
        declared = partition.categories
        known = [declared.get(name) for name in names]
        are_public = None not in known and isinstance(partition, RemoteRows)
        return known, are_public
    if len(categories) != len(names):
        raise ValueError(
            f"categories has {len(categories)} entries for {len(names)} columns: give "
            "a list of labels for each"
        )
    return [list(check_states(n, c)) for n, c in zip(names, categories)], True


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
    **counts
        As of :class:`CountTerms`; `epsilon` needs declared labels. Labels that fewer
        than `min_rows` of a party's rows have are not told.
    """

    names: list[str]
    categories: list[list[Any] | None]
    count: bool = False

    def check(self):
        """Refuse what cannot be a label, and noise without declared labels."""
        if len(self.categories) != len(self.names):
            raise ValueError("categories: one list for each column")
        for name, labels in zip(self.names, self.categories):
            if labels is not None:
                check_states(name, labels)
        if self.epsilon is not None and (None in self.categories or not self.count):
            raise ValueError("epsilon: frequencies of declared labels only")

    def rounds(self, n_parties):
        """Return three: labels, counts and the result."""
        return 3

    def n_labels(self):
        """Return how many labels there are at most."""
        return sum(MAX_LABELS if c is None else len(c) for c in self.categories)

    def n_parameters(self, n_features):
        """Return how many labels are told, the most frequent ones included."""
        told = sum(MAX_LABELS for c in self.categories if c is None)
        return told + self.count * n_features

    def memory(self, n_features):
        """Return the codes of the rows, and the counts."""
        return n_features, self.n_labels()

    def summed_columns(self, n_features):
        """Return none: only parties read counts, and rare labels are not told."""
        return []


class CategoriesParty(Party):
    """A holder of rows that tells its labels, and counts them."""

    terms: Any = CategoriesTerms

    def prepare(self):
        """Check that the terms are about the own columns."""
        if np.shape(self.block["X"])[1] != len(self.terms.names):
            raise PartyRefusal("invalid-data")
        self.X, self.shared_by = self.block["X"], self.rows_of_person()
        self.categories = self.terms.categories

    def schedule(self):
        """Labels, if they are not public; their frequencies; the most frequent."""
        if self.terms.epsilon is not None:
            yield "noisy_frequencies"
            return
        if None in self.terms.categories:
            yield "labels"
        if self.terms.count:
            yield "frequencies"
            yield "release"

    @operation(
        tells="the labels of columns without declared categories",
        answers={"labels": list},
    )
    def labels(self):
        """Tell the labels that enough of the own rows have."""
        X, told = np.asarray(self.X), []
        for name, declared, column in zip(self.terms.names, self.categories, X.T):
            found = [] if declared is not None else self._frequent(column)
            if len(found) > MAX_LABELS:
                raise PartyRefusal("too-detailed")
            try:
                told.append(list(check_states(name, found)) if found else [])
            except ValueError:
                raise PartyRefusal("invalid-data") from None
        return {"labels": told}

    def _frequent(self, column):
        labels, least = sorted_states(column), max(self.min_rows, self.terms.min_rows)
        if least <= 1:
            return list(labels)
        codes = encode(column[:, None], ["column"], {"column": labels})
        counts = np.bincount(codes[codes >= 0], minlength=len(labels))
        return [label for label, n in zip(labels, counts) if n >= least]

    @operation(
        tells="how many of its rows have each label",
        hears="labels of columns without declared categories",
        parties_only=True,
    )
    def frequencies(self, found):
        """Count the labels of all columns."""
        try:
            self.categories = [
                list(check_states(name, told if declared is None else declared))
                for name, declared, told in zip(
                    self.terms.names, self.categories, found, strict=True
                )
            ]
        except (TypeError, ValueError):
            raise PartyRefusal("refused") from None
        return self.hide(sum_over_rows(self.X, self._count))

    def _count(self, rows, weights=None):
        rows = np.asarray(rows)
        counts = []
        for name, labels, column in zip(self.terms.names, self.categories, rows.T):
            codes = encode(column[:, None], [name], {name: labels}, strict=False)[:, 0]
            known = codes >= 0
            beside = None if weights is None else weights[known]
            counts.append(np.bincount(codes[known], beside, minlength=len(labels)))
        return np.concatenate(counts).astype(np.int64)

    @operation(
        tells="the most frequent label of each column",
        kind="plaintext aggregate",
        answers={"winners": np.ndarray},
    )
    def release(self, total):
        """Tell the winners: -1 where nobody, or hardly anybody, has a value."""
        counts, least = self.reveal(total), max(self.min_rows, self.terms.min_rows)
        return {"winners": _winners(counts, self.categories, least)}

    @operation(
        tells="noisy frequencies of the labels of each of its columns",
        kind="noisy release",
        exact=True,
    )
    def noisy_frequencies(self):
        """Count the declared labels and add this party's noise."""
        if self.shared_by is None:
            counts = sum_over_rows(self.X, self._count)
        else:
            counts = self._count(np.asarray(self.X), shares_of_rows(self.shared_by))
        return self.hide_noisy(counts)


def agree_on_categories(federation):
    """Return the labels of every column, declared or told by the parties.

    Parameters
    ----------
    federation : Federation
        Opened with :class:`CategoriesParty`.

    Returns
    -------
    categories : list of list
        In ascending order where parties tell them.
    """
    declared = federation.terms.categories
    if None not in declared:
        return declared
    told = [reply["labels"] for reply in federation.call("labels").values()]
    categories = []
    for v, (name, labels) in enumerate(zip(federation.terms.names, declared)):
        if labels is None:
            found = np.array([x for answer in told for x in answer[v]], dtype=object)
            labels = list(sorted_states(found))
        if not labels:
            raise ValueError(
                f"column {name!r} has no value at any party, or none that enough rows "
                "have: leave it out, or declare categories="
            )
        categories.append(labels)
    federation.ledger.learns("coordinator", "the labels of columns that do not declare")
    return categories


def find_most_frequent(federation):
    """Find the most frequent label of each column: the coordinator's side.

    Parameters
    ----------
    federation : Federation
        Opened with :class:`CategoriesParty`, its terms counting.

    Returns
    -------
    winners : list
        The first of those that are equally frequent.
    """
    if federation.terms.epsilon is not None:
        return _noisy_winners(federation)
    categories = agree_on_categories(federation)
    total = federation.secure_sum("frequencies", {"found": categories})
    federation.ledger.learns("coordinator", "the most frequent label of each column")
    winners = federation.unanimous("release", {"total": total})["winners"]
    for name, winner in zip(federation.terms.names, winners):
        if winner < 0:
            raise ValueError(
                f"hardly any row of any party has a value of column {name!r}: leave "
                "it out"
            )
    return [labels[code] for labels, code in zip(categories, winners)]


def _noisy_winners(federation):
    terms = federation.terms
    noise = terms.noise(len(terms.names), len(federation.roster))
    what = "noisy frequencies of all labels"
    counts = np.array(federation.noisy_sum("noisy_frequencies", noise, what))
    counts = counts / terms.unit
    warn_of_noise(3 * noise.std / terms.unit, counts.max())
    winners = _winners(counts, terms.categories, -np.inf)
    return [labels[code] for labels, code in zip(terms.categories, winners)]


def _winners(counts, categories, least):
    """Return the code of the largest count of each column; -1 if it is too small."""
    ends = np.cumsum([len(labels) for labels in categories])[:-1]
    parts = np.split(np.asarray(counts), ends)
    return np.array([p.argmax() if p.max() >= least else -1 for p in parts])
