"""A network from columns of several parties: the search of rows, with sums on shares.

Tables are counted on shares and opened, as parties with rows add theirs up. Moments are
made of numbers that all parties share of every record: 1, the columns in units of their
standard deviation, and their products, those of two parties' columns by transfers, once
for the fit. One holder of discrete columns after another then multiplies them by the
indicators of its configurations, and the sums over the records are opened.

Nobody knows how many records have a configuration of two holders before that is opened.
So the limits of the parties are judged on shares, and one bit is opened: whether each
configuration has none or enough records, and their numbers are not nearly those of one.
If not, nothing else of these sums is opened, and no column gets these parents.
"""

from collections.abc import Generator
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from skprivbn.crypto.shares import (
    SharedNumbers,
    bit_length_dtype,
    joint_sums,
    open_links,
    open_numbers,
    refresh_numbers,
    shared_lookup,
)
from skprivbn.crypto.shares._conversation import is_array
from skprivbn.federation import Me, PartyRefusal, converse, program
from skprivbn.federation._cells import in_steps, split_tables
from skprivbn.federation.gate import FEW_VALUES, are_few, count_values
from skprivbn.federation.program import refuse_malformed, require
from skprivbn.programs._columns import (
    RING,
    ColumnsTerms,
    check_labels,
    check_table,
    compare,
    find_records,
    hang_up,
    own_columns,
    own_table,
    start_talk,
)
from skprivbn.programs._shared_tables import ColumnTables, check_unlike
from skprivbn.structure._discrete_columns import can_be_counts, encode_or_refuse
from skprivbn.structure._tables import most_cells
from skprivbn.structure.gaussian._columns import (
    FRACTION_BITS,
    Standardised,
    can_be_correlations,
    share_products,
)
from skprivbn.structure.k2._program import labels_of
from skprivbn.structure.rows._mixed import Scale, n_moments
from skprivbn.structure.rows._program import RowNetworkTerms, list_tables
from skprivbn.structure.rows._search import learning_from, tables_for
from skprivbn.utils import warn_user
from skprivbn.utils._linalg import symmetric
from skprivbn.utils._memoise import asking_others
from skprivbn.utils._validation import to_numbers

#: the largest number of a column is at most so many units of what is compared with a
#: limit, fewer where there are many records: entries of the table that compares
_UNITS, _MOST_ENTRIES = 64, 1 << 21
#: what rounding leaves along a combination of columns
_ROUNDED = 2.0**-20
#: records whose products are made together
_BATCH = 1 << 13
#: advice where an option is for rows only
_INSTEAD = {"missing": ": leave out records with gaps at their holder"}


@dataclass(frozen=True)
class ColumnNetworkTerms(RowNetworkTerms, ColumnsTerms):
    """What a network is learnt from, and who holds which column."""

    def check(self):
        """Refuse what is for rows only."""
        super().check()
        if len(self.owners) != len(self.names):
            raise ValueError("owners: one for each column")
        for name, plain in (
            ("missing", "error"),
            ("site_effects", None),
            ("n_bootstrap", 0),
        ):
            if getattr(self, name) != plain:
                raise ValueError(
                    f"{name}={getattr(self, name)!r} is not available for columns of "
                    "several parties" + _INSTEAD.get(name, "")
                )


@program(ColumnNetworkTerms)
def network_of_columns(me: Me) -> Generator[Any, Any, dict]:
    """Share numbers of records; open tables and sums that the search needs."""
    talk = start_talk(me)
    records = yield from find_records(me, talk)
    columns = OwnColumns(me, talk, records)
    told = yield from converse(
        compare(talk, columns.summary()),
        "number of records, labels, means and scales of columns",
        "plaintext aggregate",
    )
    states, scale = read_summaries(me.terms, told, len(records))
    links = yield from converse(open_links(talk), "keys of oblivious transfers")
    columns.begin(links, states)
    yield from converse(
        columns.share_products(), "shares of products of two parties' columns"
    )
    tables = tables_for(me.terms, columns.n_states, most_cells(me, len(records)))
    search = learning_from(me.terms, tables, len(records), scale)
    found = yield from asking_others(search, columns.answering)
    n_hash_calls = yield from hang_up(talk, links)
    return found | {
        "states": states,
        "n_samples": len(records),
        "n_hash_calls": n_hash_calls,
        "refused": columns.refused,
    }


def read_summaries(terms, told, n_records):
    """Return the labels of all columns, and where continuous ones are.

    Parameters
    ----------
    terms : ColumnNetworkTerms
    told : dict of str to dict
        What every party tells of its own columns.
    n_records : int
        Own number of records, which others must have, too.

    Returns
    -------
    states : list of list
    scale : Scale
        Of integers.
    """
    states, where = {}, np.empty((2, len(terms.continuous)))
    with refuse_malformed("invalid-data"):
        for name, summary in told.items():
            held = [v for v, owner in enumerate(terms.owners) if owner == name]
            states |= labels_of(summary["states"], held, terms.states)
            own = [i for i, v in enumerate(terms.continuous) if v in held]
            found = summary["scale"]
            if not is_array(found, (2, len(own)), np.float64):
                raise ValueError("means and scales of other columns")
            where[:, own] = found
            if summary["n_rows"] != n_records:
                raise ValueError("other records")
        if not (np.isfinite(where).all() and (where[1] > 0).all()):
            raise ValueError("scales that columns cannot have")
    unit = where[1] * 2.0**-FRACTION_BITS
    return [states[v] for v in range(len(terms.owners))], Scale(where[0], unit)


def note_columns(ledger, terms, found):
    """Say in the ledger what became known of the columns.

    Parameters
    ----------
    ledger : Ledger
    terms : ColumnNetworkTerms
    found : dict
        What :func:`network_of_columns` returned.
    """
    ledger.learns("all parties", "tables and sums that the search opened")
    exactly = replace(terms, min_cell_count=0)
    opened = [key for key in found["moments"] if key not in found["refused"]]
    list_tables(ledger, exactly, found["tables"], opened)
    if terms.min_cell_count > 1:
        step = terms.min_cell_count
        ledger.note(f"counts of tables are opened in steps of {step}, rounded down")
    if found["refused"]:
        sets = [" x ".join(terms.names[v] for v in key) for key in found["refused"]]
        words = (
            "not opened, as some configuration has too few records, or one record is "
            f"most of its sums: {'; '.join(sets)}"
        )
        ledger.note(words)
        warn_user(
            f"sums of continuous columns were {words}. No column got these as its "
            "discrete parents: merge rare labels, or lower min_cell_count (at "
            "sites, also min_rows)"
        )


class OwnColumns:
    """Own columns as codes and integers, and what is counted with those of others.

    Parameters
    ----------
    me : Me
    talk : Conversation
    records : ndarray of int
        Own rows that all parties have.

    Attributes
    ----------
    refused : list of list of int
        Discrete columns given which nothing was opened.
    """

    def __init__(self, me, talk, records):
        terms, own, X = me.terms, own_columns(me), own_table(me)[records]
        self.me, self.talk, self.n_records = me, talk, len(records)
        # as of sums over rows: one record may be most of them, or few have a value
        self.least_cell = max(me.min_cell_count, terms.min_cell_count)
        self.limit = max(me.min_rows, self.least_cell)
        self.units = max(4, min(_UNITS, _MOST_ENTRIES // self.n_records))
        self.refused, self.whole = [], None
        labelled = [v for v in own if v not in terms.continuous]
        at, names = [own.index(v) for v in labelled], [terms.names[v] for v in labelled]
        declared = [terms.states[v] for v in labelled]
        rest = [i for i in range(len(own)) if i not in at]
        codes, states = encode_or_refuse(X, at, names, declared)
        with refuse_malformed("invalid-data"):
            values = to_numbers(X[:, rest])
        check_labels(
            me, ((i, X[:, i].tolist()) for i, known in zip(at, declared) if not known)
        )
        check_unlike(codes, [len(labels) for labels in states], self.least_cell, at)
        self.codes = dict(zip(labelled, codes.T))
        self.states = dict(zip(labelled, states))
        self.numbers = Standardised(me, values, rest) if values.size else None
        # sums of such a column would count its values, in configurations of others
        few = self.numbers and (count_values(values) <= FEW_VALUES).any()
        require(self.least_cell <= 1 or not few, "too-detailed", "few values")
        self._check_together(at, rest)

    def _check_together(self, at, rest):
        """Refuse own numbers that follow from own labels, but for one record.

        Sums of products with another's column, by label, would tell its value.
        """
        if self.least_cell <= 1 or self.numbers is None:
            return
        columns, named = [self.numbers.integers], [*rest]
        for place, codes, labels in zip(at, self.codes.values(), self.states.values()):
            counts = np.bincount(codes, minlength=len(labels))
            # columns that have rare labels are left to those who judge sums
            if not are_few(counts, self.least_cell).any():
                columns.append(codes[:, None] == np.arange(len(labels)))
                named.append(place)
        if _one_stands_out(np.hstack(columns, dtype=np.float64)):
            why = "numbers follow from labels, but for one record"
            raise PartyRefusal("too-detailed", why, sorted(named))

    def summary(self):
        """Return what the result tells anyway, of own columns."""
        scale = np.empty((2, 0))
        if self.numbers:
            scale = np.stack([self.numbers.mean, self.numbers.scale])
        states = [list(self.states.get(v, [0])) for v in own_columns(self.me)]
        return {"n_rows": self.n_records, "states": states, "scale": scale}

    def begin(self, links, states):
        """Learn the labels of all columns; count with all others."""
        self.links, self.n_states = links, [len(labels) for labels in states]
        self.tables = ColumnTables(
            self.talk,
            links,
            self.me.terms.owners,
            self.n_states,
            self.codes,
            bit_length_dtype(self.n_records.bit_length()),
        )

    def share_products(self):
        """Share all numbers of every record that sums are made of."""
        terms, name, roster = self.me.terms, self.me.name, self.me.roster
        owners = np.array([terms.owners[v] for v in terms.continuous], dtype=object)
        own = np.zeros((self.n_records, len(owners)), dtype=np.int64)
        if self.numbers:
            own[:, owners == name] = self.numbers.integers
        mine = own[:, owners == name]
        crossed = yield from share_products(
            self.me, self.talk, self.links, owners, mine, _BATCH, added_up=False
        )
        # the number of records is the first party's to count
        holders = np.array([roster[0], *owners], dtype=object)
        rows = np.column_stack([np.ones(self.n_records, dtype=np.int64), own])
        shares, held = [], {party: [] for party in roster}
        for i, j in zip(*np.triu_indices(len(holders))):
            of = {holders[j]} | ({holders[i]} if i else set())
            for party in roster:
                held[party].append(party in of)
            if of == {name}:
                shares.append((rows[:, i] * rows[:, j]).view(RING))
            elif name in of:
                shares.append(crossed[frozenset((i - 1, j - 1))])
        if self.least_cell > 1:
            for party in roster:
                held[party] += (owners == party).tolist() * 2
            if self.numbers:
                integers = self.numbers.integers
                deviations = integers - np.rint(np.median(integers, axis=0))
                sizes = _sizes(deviations, self.units)
                shares += [*sizes.T, *(deviations != 0).T.astype(RING)]
        masks = {p: np.array(mask) for p, mask in held.items() if any(mask)}
        empty = np.empty((self.n_records, 0), dtype=RING)
        self.shared = SharedNumbers(masks, np.column_stack([empty, *shares]))

    def answering(self, question):
        """Open what a search asks for."""
        if question.kind == "tables":
            return (yield from self.count(question.asked))
        return (yield from self.moments(question.asked))

    def count(self, asked):
        """Open tables; in steps, if small counts are to be hidden."""
        terms, shapes = self.me.terms, [self._shape(v) for v in asked]
        for shape in shapes:
            check_table(self.me, prod(shape), self.n_records)
        shares = yield from converse(
            self.tables.share(asked), "shares of tables of the search"
        )
        flat, step = np.concatenate([s.ravel() for s in shares]), terms.min_cell_count
        if step > 1:
            rounded = in_steps(np.arange(self.n_records + 1), step)[None]
            flat = yield from converse(
                self._look_up(flat, rounded), "shares of counts in steps"
            )
        counts = yield from converse(
            self._open(flat), "contingency tables of the search"
        )
        counts = counts.astype(np.int64)
        for variables, table in zip(asked, split_tables(counts, shapes)):
            self._check_counts(variables, table, max(step, 1))
        return counts

    def moments(self, asked):
        """Open sums by configuration, but for those that are about too few records."""
        n_numbers, n_asked = n_moments(len(self.me.terms.continuous)), len(asked)
        for given in asked:
            n_cells = prod(self._shape(given))
            check_table(self.me, n_cells * n_numbers, self.n_records)
        parts = [self._parts(given) for given in asked]
        sums = yield from converse(
            joint_sums(
                self.talk,
                self.links,
                self.shared,
                [(part.holders, part.codes) for part in parts],
            ),
            "shares of sums of numbers, by configuration",
        )
        few = np.zeros(n_asked, dtype=bool)
        if self.limit > 1:
            few = yield from converse(
                self._judge(asked, sums),
                "which columns have configurations of few records",
            )
            self.refused += [list(given) for given, is_few in zip(asked, few) if is_few]
            # of all records together there is nothing else to compare with
            require(() not in [*map(tuple, self.refused)], "too-few-rows")
        kept = [s[:n_numbers].ravel() for s, is_few in zip(sums, few) if not is_few]
        opened = yield from converse(
            self._open(np.concatenate([np.empty(0, dtype=RING), *kept])),
            "sums and products of numbers, by configuration",
        )
        found, ends = [], np.cumsum([len(part) for part in kept], dtype=int)
        left = iter(np.split(opened, ends[:-1]))
        for given, part, is_few in zip(asked, parts, few):
            shape = self._shape(given)
            if is_few:
                found.append(np.full(prod(shape) * n_numbers, np.nan))
                continue
            total = part.in_order(next(left).reshape(n_numbers, -1), given, shape)
            self._check_sums(given, total)
            found.append(total.view(np.int64).astype(np.float64).ravel())
        return np.concatenate(found)

    def _shape(self, variables):
        return [self.n_states[v] for v in variables]

    def _parts(self, given):
        """Say who has which configurations, those with few of them first."""
        owners, mine = self.me.terms.owners, self.me.name
        parts = [
            (name, [v for v in given if owners[v] == name]) for name in self.me.roster
        ]
        parts = [(name, part) for name, part in parts if part]
        parts.sort(key=lambda part: prod(self._shape(part[1])))
        return _Parts(
            [(name, prod(self._shape(part))) for name, part in parts],
            self._joint([v for v in given if owners[v] == mine]),
            [v for _, part in parts for v in part],
        )

    def _joint(self, own):
        """Return own configurations of some own columns, the last fastest."""
        if not own:
            return None
        return np.ravel_multi_index([self.codes[v] for v in own], self._shape(own))

    def _judge(self, asked, sums):
        """Open, for every list of sums, whether it is about too few records.

        The sizes of numbers in a configuration add up to at least as many times the
        largest of the column as the limit says, unless all are the column's median:
        sums about any value follow from those that are opened. That bounds the share
        of each record.
        """
        first_size = n_moments(len(self.me.terms.continuous))
        judged = [np.vstack([s[:1], s[first_size:]]) for s in sums]
        numbers = np.arange(self.n_records * self.units + 1)
        tables = np.stack(
            [
                (numbers > 0) & (numbers < self.limit),
                numbers < self.least_cell * self.units,
                # without a record off the median, sizes are small, and do not count
                -(numbers == 0).astype(int),
            ]
        )
        n_sizes = (len(judged[0]) - 1) // 2
        which = [
            np.repeat([0, 1, 2], np.array([1, n_sizes, n_sizes]) * s.shape[1])
            for s in judged
        ]
        found = yield from self._look_up(
            np.concatenate([s.ravel() for s in judged]), tables, np.concatenate(which)
        )
        starts = np.cumsum([0, *(s.size for s in judged[:-1])])
        n_small = np.add.reduceat(found, starts)
        # what a holder of numbers and labels sees by itself counts, too
        n_small += np.array(
            [self._one_stands_out(given) for given in asked], n_small.dtype
        )
        # how many are small is nobody's business
        most = max(s.size for s in judged) + len(self.me.roster)
        is_any = np.arange(most + 1) > 0
        marks = yield from self._look_up(n_small, is_any[None])
        return (yield from self._open(marks)) > 0

    def _one_stands_out(self, given):
        """Tell whether one record of an own configuration does, in own numbers."""
        own = [v for v in given if v in self.codes]
        if not own or self.numbers is None:
            return False
        joint, fewest = self._joint(own), max(self.least_cell, 2)
        numbers = self.numbers.integers.astype(np.float64)
        return any(
            _one_stands_out(numbers[joint == configuration], fewest)
            for configuration in np.unique(joint)
        )

    def _look_up(self, shares, tables, which=None):
        """Share entries of public tables, of which there are as many as numbers."""
        n_entries = tables.shape[1]
        padding = (1 << (n_entries - 1).bit_length()) - n_entries
        tables = np.pad(tables.astype(np.int64), ((0, 0), (0, padding)))
        which = np.zeros(len(shares), dtype=int) if which is None else which
        roster = self.me.roster
        return (
            yield from shared_lookup(
                self.talk, self.links, roster, shares, tables, which
            )
        )

    def _open(self, shares):
        """Tell all parties the sums of shares, and nothing else of them."""
        roster = self.me.roster
        # a share may be a whole count, or a sum that one party has computed
        shares = yield from refresh_numbers(self.talk, roster, shares)
        return (yield from open_numbers(self.talk, roster, shares))

    def _check_counts(self, variables, table, step=1):
        """Refuse counts that are not those of the own columns, too."""
        own = [v for v in variables if v in self.codes]
        margin = np.array(self.n_records)
        if own:
            counts = np.bincount(self._joint(own), minlength=prod(self._shape(own)))
            margin = counts.reshape(self._shape(own))
        axes = [variables.index(v) for v in own]
        require(can_be_counts(table, axes, margin, step), "inconsistent")

    def _check_sums(self, given, total):
        """Refuse sums by configuration that do not add up to those of all records."""
        added = total.reshape(-1, total.shape[-1]).sum(axis=0, dtype=RING)
        self._check_counts(given, total[..., 0].astype(np.int64))
        if self.whole is None:
            self.whole = added
            moments = symmetric(added.view(np.int64))
            per_record = self.n_records * 4.0**FRACTION_BITS
            require(can_be_correlations(moments[1:, 1:] / per_record), "inconsistent")
        require((added == self.whole).all(), "inconsistent")


@dataclass(frozen=True)
class _Parts:
    """Who has configurations of some columns, and how many; the own ones of records."""

    holders: list
    codes: Any
    columns: list

    def in_order(self, sums, given, shape):
        """Return sums with an axis for every given column, and numbers in the last."""
        sizes = [shape[given.index(v)] for v in self.columns]
        axes = [1 + self.columns.index(v) for v in given]
        sums = sums.reshape(-1, *sizes).transpose([*axes, 0])
        return np.ascontiguousarray(sums)


def _sizes(deviations, units):
    """Return how large numbers are, in so many units of the largest, rounded down."""
    sizes = np.abs(deviations)
    return (sizes / sizes.max(axis=0) * units).astype(RING)


def _one_stands_out(rows, fewest=2):
    """Tell whether one record is nearly all of the squares along some combination.

    The limit is that of the gate, for numbers of one party.
    """
    centred = rows - rows.mean(axis=0)
    size = np.sqrt((centred**2).sum(axis=0))
    axes, along, _ = np.linalg.svd(centred / np.where(size > 0, size, 1.0), False)
    shares = (axes[:, along > _ROUNDED] ** 2).sum(axis=1)
    return bool((shares**2 * (fewest - 0.5) > 1).any())
