"""Families whose columns have several holders: their counts and scores on shares.

The counts of ``F + candidate`` are a table. Of what is known already, each of these
leaves one entry less of an axis to be computed on shares:

- the counts of F, kept from the step before: the candidate's last state;
- those of ``F + candidate`` without the newest member of F, which was a candidate in
  the step before, too: the newest member's last state;
- the counts of the newest member and the candidate by themselves, since the first step
  has counted all pairs: the last configuration of all other members, if these have one
  holder;
- otherwise, if all but the holder of candidate and newest member are one, the former's
  own counts: the last configuration of the latter.

All of these are shares already, or counts of one holder. What follows is a sum of
shares, so nobody learns more than from the table itself.

Scores are looked up in public tables by shared counts, or computed by a series.
"""

from functools import partial
from math import prod

import numpy as np

from skprivbn.crypto.shares import (
    Indicators,
    JointTable,
    SharedLookup,
    shared_stirling,
    together,
)
from skprivbn.structure._scores import FRACTION_BITS

_CHUNK = 1 << 16


def _signed(n):
    """Return the smallest type of numbers from -1 to n: records are many."""
    return np.min_scalar_type(-1 - n)


class OwnColumns:
    """The columns of this party.

    Parameters
    ----------
    columns : dict of int to ndarray
        The code of every record, by variable.
    n_states : tuple of int
        Of all variables.
    n_samples : int
    """

    def __init__(self, columns, n_states, n_samples):
        self._columns, self._n_states = columns, n_states
        self._n_samples = n_samples

    def counts(self, variables):
        """Count the configurations of some variables."""
        shape = [self._n_states[v] for v in variables]
        counts = 0
        for start in range(0, self._n_samples, _CHUNK):
            codes = self.codes(variables, slice(start, start + _CHUNK))
            counts += np.bincount(codes, minlength=prod(shape))
        return counts.reshape(shape)

    def codes(self, variables, rows):
        """Number the configurations of some variables, the last fastest."""
        n_cells = prod(self._n_states[v] for v in variables)
        joint = np.zeros(len(range(self._n_samples)[rows]), dtype=_signed(n_cells))
        for v in variables:
            joint *= joint.dtype.type(self._n_states[v])
            joint += self._columns[v][rows].astype(joint.dtype)
        return joint


class Crossing:
    """Families of a node and candidates of one owner that cross parties; public.

    Parameters
    ----------
    plan : K2Plan
    family : list of int
        The node and its parents so far, the newest last.
    chosen : list of int
        Candidates, all of the first holder.
    holders : list of str
        Of family and candidates, the candidates' owner first.
    """

    def __init__(self, plan, family, chosen, holders):
        self.family, self.chosen, self.holders = tuple(family), chosen, holders
        self._n_states = plan.n_codes
        self._newest = family[-1] if len(family) > 1 else None
        self._held, self._others = {}, {}
        for name in holders:
            held = [v for v in family if plan.owners[v] == name]
            self._held[name] = held
            self._others[name] = [v for v in held if v != self._newest]
        with_others = [name for name in holders if self._others[name]]
        owner, *rest = holders
        self._by_pairs = len(with_others) == 1
        if self._by_pairs:
            (self._follows,) = with_others
        elif len(rest) == 1 and self._newest in self._held[owner]:
            (self._follows,) = rest
        else:
            self._follows = None
        self.n_columns = [
            sum(self._n_cells(candidate) for candidate in chosen),
            *(prod(self._kept(name)) for name in rest),
        ]

    def _kept(self, name):
        """Configurations of a holder that are counted: of others, of the newest."""
        n_others = prod(self._n_states[v] for v in self._others[name])
        n_newest = 1
        if self._newest in self._held[name]:
            n_newest = self._n_states[self._newest] - 1
        return n_others - (name == self._follows), n_newest

    def _n_cells(self, candidate):
        return prod(self._kept(self.holders[0])) * (self._n_states[candidate] - 1)

    def table(self, name, own):
        """Return what has to be counted together, as one of the holders sees it."""
        if name == self.holders[0]:
            blocks = [self._block(name, own, candidate) for candidate in self.chosen]
        else:
            blocks = [self._block(name, own)]
        return JointTable(self.holders, Indicators(blocks), self.n_columns)

    def _block(self, name, own, candidate=None):
        """Own configurations that are counted, each with a candidate's states."""
        axes = [(self._others[name], self._kept(name)[0])]
        if self._newest in self._held[name]:
            axes.append(([self._newest], self._kept(name)[1]))
        if candidate is not None:
            axes.append(([candidate], self._n_states[candidate] - 1))

        n_columns = prod(n_kept for _, n_kept in axes)
        dtype = _signed(prod(self._n_states[v] for held, _ in axes for v in held))

        def codes(rows):
            joint, counted = dtype.type(0), True
            for variables, n_kept in axes:
                code = own.codes(variables, rows).astype(dtype)
                joint = joint * dtype.type(n_kept) + code
                counted = counted & (code < n_kept)
            return np.where(counted, joint, dtype.type(-1))

        return codes, n_columns

    def complete(self, name, own, products, known):
        """Yield (family, own shares of its counts), with what follows.

        Parameters
        ----------
        name : str
            Of this party, one of the holders.
        own : OwnColumns
        products : ndarray of shape `n_columns`
            Own shares of what was counted.
        known : callable
            Own shares of the counts of a family; None if this party has none.

        Yields
        ------
        family : tuple of int
        counts : ndarray
        """
        start = 0
        for candidate in self.chosen:
            stop = start + self._n_cells(candidate)
            part = self._add_last_configuration(
                name, own, products[start:stop], candidate, known
            )
            axes = [*self._held[self.holders[0]], candidate]
            axes += [v for other in self.holders[1:] for v in self._held[other]]
            shape = [self._n_states[v] - (v in (self._newest, candidate)) for v in axes]
            family = (*self.family, candidate)
            part = part.reshape(shape).transpose([axes.index(v) for v in family])
            if self._newest is not None:
                before = known((*self.family[:-1], candidate))
                if before is not None:
                    before = before[..., None, :-1]
                part = _add_last(part, -2, before)
            before = known(self.family)
            if before is not None:
                before = before[..., None]
            yield family, _add_last(part, -1, before)
            start = stop

    def _add_last_configuration(self, name, own, part, candidate, known):
        """Complete the axis of the holder whose last configuration was left out."""
        if self._follows is None:
            return part
        owner, *rest = self.holders
        shape = [*self._kept(owner), self._n_states[candidate] - 1]
        for other in rest:
            shape += self._kept(other)
        # two axes for every holder, and that of the candidate after its owner's
        place = self.holders.index(self._follows)
        axis = 2 * place + (place > 0)
        margin = self._margin(name, own, candidate, known)
        if margin is not None:
            shape_of_margin = list(shape)
            shape_of_margin[axis] = 1
            margin = margin.reshape(shape_of_margin)
        return _add_last(part.reshape(shape), axis, margin)

    def _margin(self, name, own, candidate, known):
        """Own shares of the sum over an axis: of what is counted, all but last states.

        Axes are in the order of the holders.
        """
        owner, newest = self.holders[0], self._newest
        if self._by_pairs and newest is not None:
            pair = known((newest, candidate))
            if pair is None:
                pair = known((candidate, newest))
                pair = None if pair is None else pair.T
            if pair is None:
                return None
            pair = pair[:-1, :-1]
            return pair if newest in self._held[owner] else pair.T
        if name != owner:
            return None
        margin = own.counts([*self._held[owner], candidate])[..., :-1]
        return margin if newest is None else margin[..., :-1, :]


def _add_last(part, axis, total):
    """Complete an axis, given own shares of the sum over it, if there are any."""
    last = -part.sum(axis=axis, keepdims=True, dtype=part.dtype)
    if total is not None:
        last += total.astype(part.dtype)
    return np.concatenate([part, last], axis=axis)


class _FamilyLookup:
    """Scores of all families that the same parties hold, by lookups.

    Parameters
    ----------
    search : SharedK2
    holders : tuple of str
    families : list of tuple
    max_bytes : float
        Of what is prepared at a time.
    """

    def __init__(self, search, holders, families, max_bytes):
        self._search, self._holders, self._families = search, holders, families
        self._links, self._lookups = {}, {}
        self._plan(TableBook(search.index_bits), max_bytes)

    def _add(self, stage, tables, which, max_bytes):
        """Plan a lookup, in links of its own, for each entry of `which`."""
        search, holders = self._search, self._holders
        peers = [name for name in holders if name != search.talk.name]
        label = f"{stage} {search._label(holders)}"
        self._links[stage] = search._branch(label, peers)
        which = np.array(which, dtype=int)
        self._lookups[stage] = SharedLookup(holders, tables, which, max_bytes)

    def prepare(self, talk):
        """Make what does not need the counts."""
        sides = {
            stage: partial(lookup.prepare, links=self._links[stage])
            for stage, lookup in self._lookups.items()
        }
        return together(talk, sides)

    def _look_up(self, talk, stage, indices):
        indices = np.concatenate(indices)
        return self._lookups[stage].look_up(talk, self._links[stage], indices)

    def _scores(self, talk, values, sizes, constants):
        """Return {family: own share of its score}, from shares of its parts."""
        scores = np.add.reduceat(values, np.cumsum([0, *sizes[:-1]]))
        if talk.name == self._holders[0]:
            scores += np.array(constants, dtype=np.int64).astype(np.uint64)
        return dict(zip(self._families, scores))


class ScoreLookup(_FamilyLookup):
    """A lookup for each cell, and one for each configuration of parents.

    Of records with gaps, those of the table without the last parent are subtracted.
    """

    def _plan(self, book, max_bytes):
        which, signs, self._sizes, self._constants = [], [], [], []
        for family in self._families:
            size, constant = 0, 0
            for part, sign in zip(self._search.scored(family), (1, -1)):
                terms = self._search.terms(part)
                n_cells, q = self._search._n_lookups(part)
                which += [book.position(terms.cell)] * n_cells
                which += [book.position(terms.configuration)] * q
                signs += [sign] * (n_cells + q)
                size += n_cells + q
                constant += sign * terms.constant * q
            self._sizes.append(size)
            self._constants.append(constant)
        self._signs = np.array(signs).astype(np.uint64)
        self._add("scores", book.tables(), which, max_bytes)

    def look_up(self, talk, counts):
        """Return {family: own share of its score}."""
        indices = []
        for family in self._families:
            own = self._search.complete(family, counts[family])
            for _ in self._search.scored(family):
                indices += [own.ravel(), own.sum(axis=0, dtype=own.dtype).ravel()]
                own = own.sum(axis=-1, dtype=own.dtype)
        values = yield from self._look_up(talk, "scores", indices)
        return self._scores(talk, values * self._signs, self._sizes, self._constants)


class SeriesScores(_FamilyLookup):
    """The paper's score g of families of two holders, by logarithms on shares.

    Parameters
    ----------
    search : SharedK2
        Whose pairs are counted under Paillier's scheme.
    holders : tuple of str
    families : list of tuple
    max_bytes : float
        Not used: numbers pass in small batches.
    """

    def _plan(self, book, max_bytes):
        self._series_links = self._search._branch("series")

    def prepare(self, talk):
        """Make nothing: all begins with the counts."""
        yield from ()

    def look_up(self, talk, counts):
        """Return {family: own share of its score}."""
        numbers, signs, sizes = [], [], []
        for family in self._families:
            own = counts[family]
            totals = own.sum(axis=0, dtype=own.dtype).ravel()
            if talk.name == talk.roster[0]:
                totals += own.dtype.type(len(own) - 1)
            numbers += [own.ravel(), totals]
            signs += [1] * own.size + [-1] * totals.size
            sizes.append(own.size + totals.size)
        values = yield from shared_stirling(
            talk,
            self._series_links,
            self._search.pair_counts,
            np.concatenate(numbers),
            self._search.index_bits,
        )
        values *= np.array(signs).astype(np.uint64)
        return self._scores(talk, values, sizes, [0] * len(sizes))


class DistanceLookup(_FamilyLookup):
    """The same for "total_variation": two lookups, one after the other.

    First from the number of records of a configuration to those that each state but the
    last would have; then from the difference of counts to its absolute value. The
    differences of a configuration add up to zero, which gives those of the last state.
    """

    def _plan(self, book, max_bytes):
        which, self._sizes = [], []
        for family in self._families:
            n_cells, q = self._search._n_lookups(family)
            for table in self._search.terms(family).by_state[:-1]:
                which += [book.position(table)] * q
            self._sizes.append(n_cells)
        self._add("expected", book.tables(), which, max_bytes / 2)
        size = 2 << self._search.index_bits
        signed = np.arange(size)
        signed = np.minimum(signed, size - signed) << FRACTION_BITS - 1
        self._add("absolute", signed[None], [0] * sum(self._sizes), max_bytes / 2)

    def look_up(self, talk, counts):
        """Return {family: own share of its score}."""
        indices = []
        for family in self._families:
            own = counts[family]
            totals = own.sum(axis=0, dtype=own.dtype).ravel()
            indices += [totals] * (len(own) - 1)
        expected = yield from self._look_up(talk, "expected", indices)
        differences, start = [], 0
        for family in self._families:
            own = counts[family].reshape(len(counts[family]), -1)
            stop = start + own[:-1].size
            found = expected[start:stop].astype(own.dtype).reshape(own[:-1].shape)
            but_last, start = own[:-1] - found, stop
            last = -but_last.sum(axis=0, dtype=own.dtype)
            differences += [but_last.ravel(), last]
        distances = yield from self._look_up(talk, "absolute", differences)
        constants = [
            self._search.terms(family).constant(counts[family][0].size)
            for family in self._families
        ]
        return self._scores(talk, distances, self._sizes, constants)


class TableBook:
    """Different public tables, each kept once and filled up to a power of two."""

    def __init__(self, index_bits):
        self._size = 1 << index_bits
        self._tables = {}

    def position(self, table):
        """Return the number of a table, adding it if it is new."""
        # held here, so that its identity stays its own
        position, _ = self._tables.setdefault(id(table), (len(self._tables), table))
        return position

    def tables(self):
        """Return all tables as one array."""
        filled = np.zeros((len(self._tables), self._size), dtype=np.int64)
        for position, table in self._tables.values():
            filled[position, : len(table)] = table
        return filled
