"""K2 on columns that different parties hold, as one party runs it.

All nodes take their greedy steps together, so that a step is three things, each done
once for all candidates of all nodes: share the counts, look the scores up, open who
is best. What is opened is the winning candidate, or "none", of every node and step:
the ordered list of its parents. Counts, scores and comparisons stay shared.

A family whose columns have one holder is counted and scored by it alone. The counts
of ``F + candidate`` follow from those of F (kept from the step before) and of the
candidate's states but the last; with two holders, also one configuration of the party
that does not hold the candidate follows from the other's own counts. So only what is
left is computed under encryption. With a fixed ordering a set of columns is the
family of one node only: nothing else would be worth caching.
"""

from dataclasses import dataclass, field
from functools import partial
from math import prod

import numpy as np

from skprivbn.crypto.two_party import (
    Indicators,
    bit_length_dtype,
    open_numbers,
    refresh_numbers,
    shared_argmax,
    shared_lookup,
)
from skprivbn.structure._k2_scores import score_terms

__all__ = ["K2Plan", "SharedK2"]

#: tables of scores have an entry for every count up to the number of records
MAX_SAMPLES = 1 << 24
_CHUNK = 1 << 16


@dataclass(frozen=True)
class K2Plan:
    """What everybody knows before the first count.

    Attributes
    ----------
    owners : tuple of str
        Holder of every variable.
    n_states : tuple of int
    ordering : tuple of int
        Parents come from earlier in the ordering.
    n_samples, max_parents : int
    criterion : str
    equivalent_sample_size : float
    """

    owners: tuple
    n_states: tuple
    ordering: tuple
    n_samples: int
    max_parents: int
    criterion: str = "k2"
    equivalent_sample_size: float = 10.0

    def __post_init__(self):
        if self.n_samples > MAX_SAMPLES:
            raise OverflowError(f"more than {MAX_SAMPLES} records")

    @property
    def max_counts(self):
        """Bound on the counts of all families of a search."""
        largest = sorted(self.n_states, reverse=True)[: self.max_parents + 1]
        n_pairs = len(self.owners) * (len(self.owners) - 1) // 2
        return max(1, n_pairs * self.max_parents * prod(largest))

    def terms(self, family):
        """Score tables of a family: its node, then its parents."""
        node, *parents = family
        # only this criterion's tables depend on the number of configurations
        q = prod(self.n_states[v] for v in parents) if self.criterion == "bdeu" else 1
        return score_terms(
            self.criterion,
            self.n_samples,
            self.n_states[node],
            q,
            self.equivalent_sample_size,
        )

    def score_width(self, family):
        """Bits of a family's score in two's complement."""
        node, *parents = family
        q = prod(self.n_states[v] for v in parents)
        return self.terms(family).bound(self.n_states[node], q).bit_length() + 1


@dataclass
class _Node:
    """State of one node's greedy search."""

    family: list
    counts: np.ndarray | None = None
    score: np.uint64 = np.uint64(0)
    searching: bool = True
    candidates: list = field(default_factory=list)


class SharedK2:
    """One party's side of the search.

    Parameters
    ----------
    talk, links : Conversation and dict of Link
        To the other parties.
    plan : K2Plan
    columns : dict of int to ndarray
        This party's own variables: the code of every record.
    pair_counts : callable
        Shares counts between two holders, with the signature of
        :func:`~skprivbn.crypto.two_party.joint_counts`.
    many_counts : callable
        The same among more than two.
    """

    def __init__(self, talk, links, plan, columns, pair_counts, many_counts):
        self.talk, self.links, self.plan = talk, links, plan
        self.pair_counts, self.many_counts = pair_counts, many_counts
        self.index_bits = plan.n_samples.bit_length()
        self.ring = bit_length_dtype(self.index_bits)
        self.columns = columns
        self.nodes = [self._first_state(node) for node in plan.ordering]

    def _first_state(self, variable):
        node = _Node([variable])
        if self.plan.owners[variable] == self.talk.name:
            node.counts = self._own_counts([variable]).astype(self.ring)
            node.score = self._own_score(node.family, node.counts)
        return node

    def learn(self):
        """Search; return {variable: list of its parents in the order found}."""
        ordering = self.plan.ordering
        for _ in range(self.plan.max_parents):
            active = []
            for position, node in enumerate(self.nodes):
                node.candidates = [
                    v for v in ordering[:position] if v not in node.family
                ]
                if node.searching and node.candidates:
                    active.append(node)
            if not active:
                break
            counts = {}
            for node in active:
                counts.update((yield from self._share_counts(node)))
            yield from self._step(active, counts)
        return {node.family[0]: node.family[1:] for node in self.nodes}

    def _step(self, active, counts):
        """Score all candidates, open the best of each node, take it."""
        scores = yield from self._share_scores(active, counts)
        listed, width = [], 1
        for node in active:
            listed.append(node.score)
            for candidate in node.candidates:
                family = (*node.family, candidate)
                listed.append(scores.get(family, np.uint64(0)))
                width = max(width, self.plan.score_width(family))
            width = max(width, self.plan.score_width(node.family))
        sizes = [1 + len(node.candidates) for node in active]
        winners = yield from shared_argmax(
            self.talk, self.links, np.array(listed, dtype=np.uint64), sizes, width
        )
        for node, winner in zip(active, winners):
            # the current score comes first and so wins ties: only gains are taken
            node.searching = winner > 0
            if node.searching:
                node.family = [*node.family, node.candidates[winner - 1]]
                node.counts = counts.get(tuple(node.family))
                node.score = scores.get(tuple(node.family), np.uint64(0))

    def _holders(self, family):
        owners = {self.plan.owners[v] for v in family}
        return tuple(name for name in self.talk.roster if name in owners)

    def _share_counts(self, node):
        """Own shares of the counts of the node's family with each candidate."""
        counts = {}
        for owner in self.talk.roster:
            chosen = [v for v in node.candidates if self.plan.owners[v] == owner]
            holders = self._holders([*node.family, *chosen[:1]])
            if not chosen or self.talk.name not in holders:
                continue
            if len(holders) == 1:
                for candidate in chosen:
                    family = (*node.family, candidate)
                    counts[family] = self._own_counts(family).astype(self.ring)
                continue
            # the candidates' owner begins; the others' configurations are bits
            others = [name for name in holders if name != owner]
            shares = yield from self._joint_counts(node, chosen, [owner, *others])
            for candidate, share in shares.items():
                counts[(*node.family, candidate)] = share
        return counts

    def _joint_counts(self, node, chosen, holders):
        n_states, owner = self.plan.n_states, holders[0]
        held = {
            name: [v for v in node.family if self.plan.owners[v] == name]
            for name in holders
        }
        shapes = {name: [n_states[v] for v in held[name]] for name in holders}
        two = len(holders) == 2
        # of two holders, the second's last configuration follows from the margin
        n_columns = [
            sum(prod(shapes[owner]) * (n_states[c] - 1) for c in chosen),
            *(prod(shapes[name]) - two for name in holders[1:]),
        ]
        if self.talk.name == owner:
            blocks = [self._candidate_block(held[owner], c) for c in chosen]
        else:
            mine = self.talk.name
            blocks = [
                (partial(self._codes, held[mine]), n_columns[holders.index(mine)])
            ]
        share_counts = self.pair_counts if two else self.many_counts
        products = yield from share_counts(
            self.talk,
            self.links,
            holders,
            Indicators(blocks),
            n_columns,
            self.plan.n_samples,
            self.ring,
        )
        axes = [*held[owner], None, *(v for name in holders[1:] for v in held[name])]
        shares, start = {}, 0
        for candidate in chosen:
            stop = start + prod(shapes[owner]) * (n_states[candidate] - 1)
            part = products[start:stop]
            if two:
                part = self._complete_margin(part, held[owner], candidate, owner)
            shape = [*shapes[owner], n_states[candidate] - 1]
            shape += [size for name in holders[1:] for size in shapes[name]]
            part = part.reshape(shape).transpose(
                [axes.index(v) for v in (*node.family, None)]
            )
            shares[candidate] = self._complete_candidate(part, node)
            start = stop
        return shares

    def _candidate_block(self, held, candidate):
        """Codes of own configurations with a candidate's states but the last."""
        n_states = self.plan.n_states
        n_kept = n_states[candidate] - 1

        def codes(rows):
            states = self.columns[candidate][rows]
            joint = self._codes(held, rows) * n_kept + states
            return np.where(states < n_kept, joint, -1)

        return codes, prod(n_states[v] for v in held) * n_kept

    def _complete_margin(self, part, held, candidate, owner):
        last = -part.sum(axis=1, keepdims=True, dtype=self.ring)
        if self.talk.name == owner:
            margin = self._own_counts([*held, candidate])[..., :-1]
            last += margin.reshape(-1, 1).astype(self.ring)
        return np.concatenate([part, last], axis=1)

    def _complete_candidate(self, part, node):
        last = -part.sum(axis=-1, keepdims=True, dtype=self.ring)
        if node.counts is not None:
            last += node.counts[..., None]
        return np.concatenate([part, last], axis=-1)

    def _own_counts(self, variables):
        shape = [self.plan.n_states[v] for v in variables]
        counts = 0
        for start in range(0, self.plan.n_samples, _CHUNK):
            codes = self._codes(variables, slice(start, start + _CHUNK))
            counts += np.bincount(codes, minlength=prod(shape))
        return counts.reshape(shape)

    def _codes(self, variables, rows):
        """Number the configurations of own variables, the last fastest."""
        joint = np.zeros(len(range(self.plan.n_samples)[rows]), dtype=np.int64)
        for v in variables:
            joint = joint * self.plan.n_states[v] + self.columns[v][rows]
        return joint

    def _own_score(self, family, counts):
        score = self.plan.terms(family).score(counts.astype(np.int64))
        return np.int64(score).astype(np.uint64)

    def _share_scores(self, active, counts):
        """Own shares of the scores of all candidate families."""
        scores, by_holders = {}, {}
        for node in active:
            for candidate in node.candidates:
                family = (*node.family, candidate)
                holders = self._holders(family)
                if self.talk.name not in holders:
                    continue
                if len(holders) == 1:
                    scores[family] = self._own_score(family, counts[family])
                else:
                    by_holders.setdefault(holders, []).append(family)
        for holders in sorted(by_holders, key=self._position):
            families = by_holders[holders]
            shares = yield from self._look_up(holders, families, counts)
            scores.update(zip(families, shares))
        return scores

    def _position(self, holders):
        return [self.talk.roster.index(name) for name in holders]

    def _look_up(self, holders, families, counts):
        book, indices, which, ends = _TableBook(self.index_bits), [], [], []
        for family in families:
            terms, own = self.plan.terms(family), counts[family]
            totals = own.sum(axis=0, dtype=self.ring)
            for table, shares in ((terms.cell, own), (terms.configuration, totals)):
                indices.append(shares.ravel())
                which.append(np.full(shares.size, book.position(table)))
            ends.append(own.size + totals.size)
        values = yield from shared_lookup(
            self.talk,
            self.links,
            holders,
            np.concatenate(indices),
            book.tables(),
            np.concatenate(which),
        )
        starts = np.cumsum([0, *ends[:-1]])
        scores = np.add.reduceat(values, starts)
        if self.talk.name == holders[0]:
            constants = [
                self.plan.terms(family).constant * counts[family][0].size
                for family in families
            ]
            scores += np.array(constants, dtype=np.int64).astype(np.uint64)
        return scores

    def open_counts(self, transform=None, noise=None):
        """Tell everybody the counts of every node's family.

        Parameters
        ----------
        transform : ndarray of shape (n_samples + 1,), default=None
            Public table applied to every count before it is opened.
        noise : callable, default=None
            Own noise share for an array of a given shape, added before opening.

        Returns
        -------
        counts : dict of int to ndarray of int64
            Axes: the node, then its parents in the order found.
        """
        opened = {}
        for node in self.nodes:
            holders = self._holders(node.family)
            shape = [self.plan.n_states[v] for v in node.family]
            share = np.zeros(shape, dtype=np.uint64)
            if self.talk.name in holders:
                share = yield from self._wide_share(holders, node.counts, transform)
            if noise is not None:
                share = share + noise(share.shape).astype(np.int64).astype(np.uint64)
            # a share may be a whole count, or nothing but noise: opened as it is, the
            # parties' noise could be told apart and taken away
            roster = self.talk.roster
            share = yield from refresh_numbers(self.talk, roster, share)
            total = yield from open_numbers(self.talk, roster, share)
            opened[node.family[0]] = total.astype(np.int64)
        return opened

    def _wide_share(self, holders, counts, transform):
        """Shares modulo 2^64 of the counts, or of a public table of them."""
        if transform is None:
            transform = np.arange(self.plan.n_samples + 1)
        if len(holders) == 1:
            return transform[counts].astype(np.int64).astype(np.uint64)
        book = _TableBook(self.index_bits)
        which = np.full(counts.size, book.position(transform))
        values = yield from shared_lookup(
            self.talk, self.links, holders, counts.ravel(), book.tables(), which
        )
        return values.reshape(counts.shape)


class _TableBook:
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
