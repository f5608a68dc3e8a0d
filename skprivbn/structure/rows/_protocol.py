"""Tables of rows at several parties, added up: both sides of the conversation."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from math import prod
from typing import Any, Literal

import numpy as np

from skprivbn.bayesian_network._checks import (
    MAX_STATES,
    check_found,
    check_parents,
    check_states,
)
from skprivbn.bayesian_network._dag import check_dag
from skprivbn.bayesian_network._labels import MISSING, encode, sorted_states
from skprivbn.bayesian_network._mixed_inference import MAX_CONFIGURATIONS
from skprivbn.federation import Party, PartyRefusal, Terms, operation
from skprivbn.federation._cells import in_steps, is_small
from skprivbn.federation._ledger import COORDINATOR
from skprivbn.federation.site._small_cells import check_cells
from skprivbn.structure.rows._em import FamiliesEM
from skprivbn.structure.rows._mixed import Scale, configuration_moments, n_moments
from skprivbn.structure.rows._tables import (
    MAX_CELLS,
    ROUND_CELLS,
    count_extended,
    one_hot,
)
from skprivbn.utils._progress import NO_PROGRESS
from skprivbn.utils._validation import is_missing, to_numbers

#: more sets of columns than these are counted, not named, in the ledger
_LISTED = 500


@dataclass(frozen=True)
class RowTablesTerms(Terms):
    """Which tables may be asked for, and what is left out of them.

    Parameters
    ----------
    names : list of str
        Names of the columns.
    states : list of (list or None)
        Labels of every column; None where parties are to tell theirs. Continuous
        columns have one that does not matter.
    continuous : list of int
        Positions of continuous columns.
    max_parents : int
        A table has at most one variable more.
    min_cell_count : int
        Parties tell their counts in steps of it: fewer rows count as none.
    missing : {"error", "skip", "em"}
        Whether entries may be missing. Rows are left out of tables that need them;
        probabilities may then be learnt by EM.
    alpha : float
        Pseudo-count of every cell, for EM.
    max_iter : int
        Most steps of EM.
    """

    names: list[str]
    states: list[list[Any] | None]
    continuous: list[int]
    max_parents: int
    min_cell_count: int
    missing: Literal["error", "skip", "em"]
    alpha: float = 1.0
    max_iter: int = 0

    def check(self):
        """Refuse names and labels that are none."""
        if len(set(self.names)) != len(self.names):
            raise ValueError("names: a column is named twice")
        if len(self.states) != len(self.names):
            raise ValueError("states: one list for each column")
        if not set(self.continuous) <= set(range(len(self.names))):
            raise ValueError("continuous: positions of columns")
        if any(self.states[v] != [0] for v in self.continuous):
            raise ValueError("states: those of continuous columns do not matter")
        for name, labels in zip(self.names, self.states):
            if labels is not None:
                check_states(name, labels)
        if self.max_parents < 0 or self.min_cell_count < 0:
            raise ValueError("max_parents, min_cell_count: at least 0")
        if self.missing == "em" and self.min_cell_count > 1:
            raise ValueError("min_cell_count: EM adds up fractions of rows")
        if not 0 <= self.alpha < np.inf:
            raise ValueError("alpha: a number of at least 0")

    def n_parameters(self, n_features):
        """Return none: tables are checked when it is known which they are."""
        return 0

    def summed_columns(self, n_features):
        """Return the continuous ones; of others there are tables."""
        return self.continuous

    def shows_small_cells(self):
        """Tell whether EM adds up fractions of rows."""
        return self.missing == "em" and self.min_cell_count <= 1

    def memory(self, n_features):
        """Return a code and an indicator per label, and the tables of a round."""
        n_labels = sum(len(labels or [0] * MAX_STATES) for labels in self.states)
        n_products = n_moments(len(self.continuous))
        return n_features + n_labels + n_products + 1, 2 * ROUND_CELLS


class RowTablesParty(Party):
    """A holder of rows that counts them whenever a search needs a table."""

    terms: Any = RowTablesTerms

    def prepare(self):
        """Check that the terms are about the own columns."""
        self.X = np.asarray(self.block["X"])
        if self.X.ndim != 2 or self.X.shape[1] != len(self.terms.names):
            raise PartyRefusal("invalid-data")
        self.codes, self.answered = None, set()

    def schedule(self):
        """Labels, if they are not public; the number of rows; tables; EM."""
        if None in self.terms.states:
            yield "labels"
        yield "size"
        yield "accept"
        asked = ("tables", "moments") if self.terms.continuous else ("tables",)
        may = (*asked, "begin") if self.terms.missing == "em" else asked
        while (yield may) in asked:
            pass
        for _ in range(self.terms.max_iter):
            yield "expect"

    @operation(
        tells="the labels that occur in columns without declared states",
        answers={"labels": list},
    )
    def labels(self):
        """Tell the labels of columns that nobody has declared."""
        asked = [v for v, known in enumerate(self.terms.states) if known is None]
        self.check_labels(_known(self.X[:, v]) for v in asked)
        found = []
        for name, declared, column in zip(
            self.terms.names, self.terms.states, self.X.T
        ):
            labels = [] if declared is not None else sorted_states(column)
            try:
                found.append(check_found(name, labels) if labels else [])
            except ValueError:
                raise PartyRefusal("invalid-data") from None
        return {"labels": found}

    @operation(
        tells="its number of rows; numbers, sums and absolute sums of values of "
        "continuous columns",
        hears="labels of all columns",
        exact=True,
    )
    def size(self, states):
        """Turn labels into codes and count the rows."""
        names, terms = self.terms.names, self.terms
        rest = [v for v in range(len(names)) if v not in terms.continuous]
        self.codes = np.zeros(self.X.shape, dtype=np.intp)
        try:
            labels = {
                name: check_states(name, declared if declared is not None else told)
                for name, declared, told in zip(
                    names, terms.states, states, strict=True
                )
            }
            discrete = [names[v] for v in rest]
            if rest:
                self.codes[:, rest] = encode(self.X[:, rest], discrete, labels)
            self.values = to_numbers(self.X[:, terms.continuous])
        except (TypeError, ValueError):
            raise PartyRefusal("invalid-data") from None
        gaps = (self.codes == MISSING).any() or np.isnan(self.values).any()
        if (gaps and terms.missing == "error") or np.isinf(self.values).any():
            raise PartyRefusal("invalid-data")
        for n_values in (~np.isnan(self.values)).sum(axis=0).tolist():
            if n_values:  # sums over few rows would be about these
                self.check_table(1, n_values)
        self.n_states = [len(labels[name]) for name in names]
        self.indicators = one_hot(self.codes, self.n_states)
        return self.hide(Scale.sums(self.values))

    @operation(
        hears="the number of all rows; numbers, sums and absolute sums of values of "
        "continuous columns",
        hears_kind="plaintext aggregate",
    )
    def accept(self, total):
        """Hear of all rows, and scale by them, from a sum that nobody has made up."""
        sums = self.reveal(total)
        if self.terms.continuous:
            self.values = Scale.from_sums(sums, self.values.shape[1]).apply(self.values)

    @operation(
        tells="contingency tables of its rows",
        hears="which columns to count together",
        exact=True,
    )
    def tables(self, asked):
        """Count tables that were not asked for before."""
        parts = [
            count_extended(self.codes, self.n_states, base, found, self.indicators)
            for base, found in _by_base(self._check_families(asked))
        ]
        counts = np.concatenate(parts)
        return self.hide(in_steps(counts, self.terms.min_cell_count))

    @operation(
        tells="count, sums and products of continuous columns for configurations of "
        "discrete ones",
        hears="which discrete columns make up configurations",
        exact=True,
    )
    def moments(self, asked):
        """Sum up continuous columns by configurations not asked for before."""
        parts = []
        for given in self._check_given(asked):
            part = configuration_moments(self.codes, self.values, self.n_states, given)
            few = part[..., 0] < self.terms.min_cell_count
            # sums of these rows are what sums of all others lack
            if self.min_cell_count > 1 and np.any(few & (part[..., 0] > 0)):
                raise PartyRefusal("too-detailed")
            part[few] = 0.0
            parts.append(part.ravel())
        return self.hide(np.concatenate(parts))

    def _check_sets(self, asked, what, most, n_rows, per_cell=1):
        """Return sets of columns; refuse what would show single rows."""
        if (
            not isinstance(asked, np.ndarray)
            or asked.ndim != 2
            or asked.dtype.kind != "i"
            or asked.shape[1] > most
            or not len(asked)
            or (asked.size and (asked.min() < -1 or asked.max() >= len(self.n_states)))
        ):
            raise PartyRefusal("refused")
        sets, n_numbers = [], 0
        for row in asked.tolist():
            columns = [v for v in row if v >= 0]
            size = per_cell * prod(self.n_states[v] for v in columns)
            if len(set(columns)) < len(columns) or size > MAX_CELLS:
                raise PartyRefusal("refused")
            self.check_table(size, n_rows)
            key = what, frozenset(columns)
            # the same with other cells hidden would tell more
            if key in self.answered:
                raise PartyRefusal("refused")
            self.answered.add(key)
            sets.append(columns)
            n_numbers += size
        if n_numbers > 2 * ROUND_CELLS:
            raise PartyRefusal("refused")
        return sets

    def _check_families(self, asked):
        """Return the columns of tables."""
        most, n_rows = self.terms.max_parents + 1, len(self.codes)
        families = self._check_sets(asked, "tables", most, n_rows)
        if not all(families):
            raise PartyRefusal("refused")
        return families

    def _check_given(self, asked):
        """Return the discrete columns that moments are given."""
        numbers = self.terms.continuous
        n_rows = int((~np.isnan(self.values).any(axis=1)).sum())
        sets = self._check_sets(
            asked, "moments", self.terms.max_parents, n_rows, n_moments(len(numbers))
        )
        for given in sets:
            if set(given) & set(numbers):
                raise PartyRefusal("refused")
            self._check_left_out(given)
            self._check_values(given)
        return sets

    def _check_left_out(self, given):
        """Refuse if few rows lack an entry: sums with and without them differ by these.

        Sums of :meth:`size` are over all rows that have a number; others over those
        that have all numbers, and over those of them that have all given columns.
        """
        least = max(self.min_cell_count, self.terms.min_cell_count)
        if least <= 1:
            return
        gaps, unknown = np.isnan(self.values), self.codes == MISSING
        lacks = gaps.any(axis=1)
        n_rows = [
            gaps.sum(axis=0),
            np.sum(lacks[:, None] & ~gaps, axis=0),
            unknown.sum(axis=0),
        ]
        if given:
            some = ~lacks & unknown[:, given].any(axis=1)
            cells = self.codes[some][:, given]
            n_rows.append(np.unique(cells, axis=0, return_counts=True)[1])
        if is_small(np.concatenate(n_rows), least).any():
            raise PartyRefusal("too-detailed")

    def _check_values(self, given):
        """Refuse if few rows of a configuration share one of few values.

        Sums of zeros and ones are counts, though their column is called continuous.
        """
        if self.min_cell_count <= 1 or not given:
            return
        there = (self.codes[:, given] >= 0).all(axis=1) & ~np.isnan(self.values).any(1)
        values, columns = self.values[there], range(self.values.shape[1])
        _, cells = np.unique(self.codes[there][:, given], axis=0, return_inverse=True)
        is_grouped = np.zeros(len(columns), dtype=bool)
        names = [self.terms.names[v] for v in self.terms.continuous]
        for cell in range(cells.max(initial=-1) + 1):
            rows = values[np.ravel(cells) == cell]
            check_cells(rows, columns, is_grouped, self.min_cell_count, names)

    @operation(
        tells="tables, or sums and products, of families, of those of its rows that "
        "have all entries",
        hears="the parents of every column",
        exact=True,
    )
    def begin(self, parents):
        """Count what EM starts from."""
        self.em = FamiliesEM(
            self._check_parents(parents), self.n_states, self.terms.continuous
        )
        if self.em.n_configurations > MAX_CONFIGURATIONS:
            raise PartyRefusal("refused")
        return self.hide(self.em.complete_counts(self.codes, self.values))

    @operation(
        tells="expected tables, or sums and products, of families and log-likelihood "
        "of its rows, by the probabilities that the last sums give",
        hears="the last sums",
        hears_kind="plaintext aggregate",
        exact=True,
    )
    def expect(self, total):
        """One step of EM, from sums that nobody has made up."""
        model = self.em.maximise(self.reveal(total), self.terms.alpha)
        return self.hide(self.em.expected(*model, self.codes, self.values))

    def _check_parents(self, parents):
        """Return the parents of every column, if they may be asked for."""
        n_columns = len(self.n_states)
        adjacency = np.zeros((n_columns, n_columns), dtype=bool)
        try:
            if len(parents) != n_columns:
                raise ValueError
            numbers = set(self.terms.continuous)
            for child, found in enumerate(parents):
                check_parents(child, found, range(n_columns))
                if child not in numbers and numbers & set(found):
                    raise ValueError
                adjacency[list(found), child] = True
            check_dag(adjacency)
        except (IndexError, TypeError, ValueError):
            raise PartyRefusal("refused") from None
        for child, found in enumerate(parents):
            n_cells = prod(self.n_states[v] for v in (*found, child))
            if child in numbers:
                n_cells *= (2 + len(numbers & set(found))) ** 2
            if len(found) > self.terms.max_parents or n_cells > MAX_CELLS:
                raise PartyRefusal("refused")
            self.check_table(n_cells, len(self.codes))
        return [list(found) for found in parents]


def _known(column):
    return [label for label in column.tolist() if not is_missing(label)]


def _by_base(families) -> Iterator[tuple[list[int], list[int]]]:
    """Yield bases, and candidates of families that differ in the last variable only."""
    for base, group in groupby(families, key=lambda family: family[:-1]):
        yield base, [family[-1] for family in group]


def agree_on_states(federation):
    """Return the labels of every column and the number of rows.

    Parameters
    ----------
    federation : Federation
        Opened with :class:`RowTablesParty`.

    Returns
    -------
    states : list of list
    n_samples : int
    scale : Scale
        Of the continuous columns.
    """
    terms, told = federation.terms, []
    if None in terms.states:
        told = [reply["labels"] for reply in federation.call("labels").values()]
    states = []
    for v, (name, declared) in enumerate(zip(terms.names, terms.states)):
        labels = declared
        if declared is None:
            found = np.array([x for labels in told for x in labels[v]], dtype=object)
            labels = list(sorted_states(found))
        if not labels:
            raise ValueError(
                f"column {name!r} has no value at any party: leave it out, or declare "
                "its states"
            )
        states.append(labels)
    total = federation.secure_sum("size", {"states": states})
    federation.call("accept", {"total": total})
    n_continuous = len(terms.continuous)
    return states, int(round(total[0])), Scale.from_sums(total, n_continuous)


def sum_tables(federation, progress=NO_PROGRESS):
    """Return a function that counts tables of all parties' rows, for a search.

    Parameters
    ----------
    federation : Federation
        After :func:`agree_on_states`.
    progress : Progress
        Told of every round.

    Returns
    -------
    count : callable
        As ``AskedTables`` wants it.
    """

    def count(requests):
        families = [[*base, v] for base, candidates in requests for v in candidates]
        with progress.step():
            total = federation.secure_sum("tables", {"asked": _side_by_side(families)})
        return np.rint(total).astype(np.int64)

    return count


def sum_moments(federation, progress=NO_PROGRESS):
    """Return a function that sums moments of all parties' rows, for a search.

    Parameters
    ----------
    federation : Federation
        After :func:`agree_on_states`.
    progress : Progress
        Told of every round.

    Returns
    -------
    count : callable
        As ``AskedMoments`` wants it.
    """

    def count(asked):
        with progress.step():
            return federation.secure_sum("moments", {"asked": _side_by_side(asked)})

    return count


def _side_by_side(sets):
    """Return sets of columns as rows of an array, filled up with -1."""
    asked = np.full((len(sets), max(map(len, sets))), -1, dtype=np.int32)
    for row, variables in zip(asked, sets):
        row[: len(variables)] = variables
    return asked


def list_tables(ledger, terms, tables, moments):
    """Say in the ledger which tables became known.

    Parameters
    ----------
    ledger : Ledger
    terms : RowTablesTerms
    tables : AskedTables
    moments : AskedMoments or None
    """
    asked = [" x ".join(terms.names[v] for v in key) for key in tables.asked]
    what = "; ".join(asked)
    if len(asked) > _LISTED:
        sizes = sorted(Counter(map(len, tables.asked)).items())
        what = ", ".join(f"{n} of {size} columns" for size, n in sizes)
        what += ", listed in tables_"
    if asked:
        ledger.learns(COORDINATOR, f"contingency tables of all rows: {what}")
    if moments is not None:
        given = [" x ".join(terms.names[v] for v in key) for key in moments.asked]
        ledger.learns(
            COORDINATOR,
            "count, sums and products of continuous columns for every "
            "configuration of: " + "; ".join(found or "all rows" for found in given),
        )
    if terms.min_cell_count > 1:
        ledger.note(
            f"every party tells its counts in steps of {terms.min_cell_count}, rounded "
            "down; tables that overlap tell other counts within such a step"
        )
    if terms.min_cell_count > 1 and moments is not None:
        ledger.note(
            "count, sums and products of continuous columns are told as they are, of "
            f"none or at least {terms.min_cell_count} rows of a party"
        )
