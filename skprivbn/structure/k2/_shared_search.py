"""K2 on columns that different parties hold, as one party runs it.

All nodes take their greedy steps together, so that a step is three things, each done
once for all candidates of all nodes, in as few rounds as the size of messages allows:
share the counts, look the scores up, open who is best. All randomness of the latter two
is made beside the counting, in the same rounds. What is opened is the winning
candidate, or "none", of every node and step: the ordered list of its parents. Counts,
scores and comparisons stay shared. With differential privacy every party adds noise to
its shares of the scores before they are compared.

A family whose columns have one holder is counted and scored by it alone. Of others,
what follows from counts of the steps before is not computed again: see
:class:`~skprivbn.structure.k2._crossing.Crossing`. With a fixed ordering a set of
columns is the family of one node only: nothing else would be worth caching.
"""

from dataclasses import dataclass, field
from functools import partial
from math import comb, prod

import numpy as np

from skprivbn.crypto.shares import (
    SharedArgmax,
    SharedLookup,
    add_noise,
    bit_length_dtype,
    branch_links,
    open_noisy_numbers,
    open_numbers,
    refresh_numbers,
    together,
)
from skprivbn.crypto.shares._logarithms import STIRLING_ERROR
from skprivbn.structure._discrete_columns import can_be_counts
from skprivbn.structure._scores import DistanceTerms, score_terms
from skprivbn.structure.k2._crossing import (
    Crossing,
    DistanceLookup,
    OwnColumns,
    ScoreLookup,
    SeriesScores,
    TableBook,
)

#: tables of scores have an entry for every count up to the number of records
MAX_SAMPLES = 1 << 24
#: of all lookups that a party prepares at a time
_LOOKUP_BYTES = 3 << 26


def count_families(n_columns, max_parents):
    """Count the sets of columns that could be the parents of one, but the empty set."""
    # the node is the last of one column more
    most = min(max_parents, n_columns - 1)
    return sum(comb(n_columns, size + 1) for size in range(1, most + 1))


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
    scores : {"tables", "lindell-pinkas"}
    opens : {"order", "structure"}
    missing : {"error", "skip"}
        "skip": a missing entry has the code after the last state's. Families are
        compared on the records that have all of their entries.
    """

    owners: tuple
    n_states: tuple
    ordering: tuple
    n_samples: int
    max_parents: int
    criterion: str = "k2"
    equivalent_sample_size: float = 10.0
    scores: str = "tables"
    opens: str = "order"
    missing: str = "error"

    def __post_init__(self):
        if self.n_samples > MAX_SAMPLES:
            raise OverflowError(f"more than {MAX_SAMPLES} records")

    @property
    def has_gaps(self):
        """Whether entries may be missing."""
        return self.missing == "skip"

    @property
    def n_codes(self):
        """States of every variable, and that of a missing entry."""
        return tuple(n + self.has_gaps for n in self.n_states)

    @property
    def max_counts(self):
        """Bound on the counts of all families of a search."""
        largest = sorted(self.n_codes, reverse=True)[: self.max_parents + 1]
        n = len(self.owners)
        n_families = n * (n - 1) // 2 * self.max_parents
        if self.opens == "structure":
            n_families = count_families(n, self.max_parents)
        return max(1, n_families * prod(largest))

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


@dataclass
class _Node:
    """State of one node's greedy search."""

    family: list
    counts: np.ndarray | None = None
    score: np.uint64 = np.uint64(0)
    searching: bool = True
    candidates: list = field(default_factory=list)

    @property
    def families(self):
        """The node with its parents and one candidate, for every candidate."""
        return [(*self.family, candidate) for candidate in self.candidates]


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
        :func:`~skprivbn.crypto.shares.joint_counts`.
    many_counts : callable
        The same among more than two.
    noise : ChoiceNoise, default=None
        That every party adds to its shares of scores. None compares exact scores.
    """

    def __init__(
        self, talk, links, plan, columns, pair_counts, many_counts, noise=None
    ):
        self.talk, self.links, self.plan = talk, links, plan
        self.pair_counts, self.many_counts = pair_counts, many_counts
        self.noise = noise
        # a series takes the numbers of records and states together
        more = max(plan.n_states) - 1 if plan.scores == "lindell-pinkas" else 0
        self.index_bits = (plan.n_samples + more).bit_length()
        # differences of counts have a sign
        has_sign = plan.criterion == "total_variation"
        self.ring = bit_length_dtype(self.index_bits + has_sign)
        self.own = OwnColumns(columns, plan.n_codes, plan.n_samples)
        self.nodes = [self._first_state(node) for node in plan.ordering]
        #: own shares of counts by family: of single columns, then of all pairs and of
        #: the candidates of the last step
        self._known = {(node.family[0],): node.counts for node in self.nodes}

    def _first_state(self, variable):
        node = _Node([variable])
        if self.plan.owners[variable] == self.talk.name:
            node.counts = self.own.counts([variable]).astype(self.ring)
        return node

    def start(self, margins=None):
        """Score all columns without parents, each at its holder.

        Parameters
        ----------
        margins : dict of int to ndarray, default=None
            Noisy counts of every variable by itself, public; "total_variation" needs
            them.
        """
        n = self.plan.n_samples
        self.distances = {v: DistanceTerms(x, n) for v, x in (margins or {}).items()}
        for node in self.nodes:
            # of records with gaps, what a parent gains is scored
            if node.counts is not None and not self.plan.has_gaps:
                node.score = self._own_score(node.family, node.counts)

    def searching(self):
        """Return the nodes that may get another parent, with their candidates."""
        ordering = self.plan.ordering
        for position, node in enumerate(self.nodes):
            node.candidates = [v for v in ordering[:position] if v not in node.family]
        return [node for node in self.nodes if node.searching and node.candidates]

    def share_counts(self, nodes):
        """Return own shares of the counts of all candidate families.

        Beside them, all that the scores and their comparison need is made.
        """
        self._lookups = self._plan_lookups([f for node in nodes for f in node.families])
        sides = {
            f"scores {label}": lookup.prepare for label, lookup in self._lookups.items()
        }
        lists = self._compared(nodes)
        if lists:
            self._argmax = self._plan_comparison(lists)
            links = self._branch("argmax")
            sides["argmax"] = lambda talk: self._argmax.prepare(talk, links)
        sides["counts"] = lambda talk: self._count(talk, nodes)
        return (yield from together(self.talk, sides))["counts"]

    def _compared(self, nodes):
        """Families of which the best is wanted: what a node has, and candidates."""
        return [[tuple(node.family), *node.families] for node in nodes]

    def share_scores(self, nodes, counts):
        """Return own shares of the scores of all candidate families."""
        scores = {
            family: self._own_score(family, counts[family])
            for node in nodes
            for family in node.families
            if self._holders(family) == (self.talk.name,)
        }
        sides = {
            f"scores {label}": partial(lookup.look_up, counts=counts)
            for label, lookup in self._lookups.items()
        }
        for found in (yield from together(self.talk, sides)).values():
            scores.update(found)
        return scores

    def open_best(self, nodes, scores):
        """Tell everybody which candidate of each node is best; 0 if none is better."""
        so_far = {tuple(node.family): node.score for node in nodes}
        return self._find_best(self._compared(nodes), so_far | scores)

    def _find_best(self, lists, scores):
        """Find the best family of each list, given own shares of their scores."""
        listed = [scores.get(f, np.uint64(0)) for families in lists for f in families]
        listed = np.array(listed, dtype=np.uint64)
        if self.noise is not None:
            listed = self._with_noise(listed, self._sizes, self._scales)
        if self.talk.name == self.talk.roster[0]:
            leads = [self._lead(families) for families in lists]
            behind = [np.arange(n) * lead for n, lead in zip(self._sizes, leads)]
            listed -= np.concatenate(behind).astype(np.uint64)
        return self._argmax.open(self.talk, self._branch("argmax"), listed)

    def add_parents(self, nodes, winners, counts, scores):
        """Give every node its best candidate, if there is one, and keep its counts."""
        for node, winner in zip(nodes, winners):
            # the current score comes first and so wins ties: only gains are taken
            node.searching = winner > 0
            if node.searching:
                node.family = [*node.family, node.candidates[winner - 1]]
                node.counts = counts.get(tuple(node.family))
                if not self.plan.has_gaps:
                    node.score = scores.get(tuple(node.family), np.uint64(0))
        pairs = {f: c for f, c in self._known.items() if len(f) == 2}
        self._known = pairs | counts

    def parents(self):
        """Return {variable: list of its parents in the order found}."""
        return {node.family[0]: node.family[1:] for node in self.nodes}

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
        roster = self.talk.roster
        if transform is None and noise is None:
            # in the ring in which they were shared
            shares = [
                np.zeros([self.plan.n_states[v] for v in node.family], self.ring)
                if node.counts is None
                else self.complete(node.family, node.counts)
                for node in self.nodes
            ]
        else:
            shares = yield from self._wide_shares(transform)
        flat = np.concatenate([share.ravel() for share in shares])
        if noise is not None:
            own = noise(flat.shape)
            flat = yield from open_noisy_numbers(self.talk, roster, flat, own)
        else:
            # a share may be a whole count
            flat = yield from refresh_numbers(self.talk, roster, flat)
            flat = (yield from open_numbers(self.talk, roster, flat)).astype(np.int64)
        ends = np.cumsum([share.size for share in shares])
        return {
            node.family[0]: counts.reshape(share.shape)
            for node, share, counts in zip(
                self.nodes, shares, np.split(flat, ends[:-1])
            )
        }

    def are_counts(self, tables, step=1):
        """Tell whether opened tables can be counts of the records.

        A party that shifts its shares is caught where a cell is negative, or where
        cells do not add up to the number of records, to the counts of own columns,
        or to those of a column in another table. Whose share is wrong, nobody knows.

        Parameters
        ----------
        tables : dict of int to ndarray
            From :meth:`open_counts`.
        step : int, default=1
            Counts are rounded down to multiples of it.

        Returns
        -------
        possible : bool
        """
        margins: dict = {}
        for node in self.nodes:
            family, table = node.family, tables[node.family[0]]
            mine = [v for v in family if self.plan.owners[v] == self.talk.name]
            own = [family.index(v) for v in mine]
            margin = self.complete(mine, self.own.counts(mine))
            if not can_be_counts(table, own, margin, step, self.plan.has_gaps):
                return False
            # tables with gaps are of other records each
            for i, v in enumerate(family) if step == 1 else ():
                margin = table.sum(axis=tuple(j for j in range(len(family)) if j != i))
                if not self.plan.has_gaps and (
                    (margins.setdefault(v, margin) != margin).any()
                ):
                    return False
        return True

    def complete(self, family, counts):
        """Return the part of a table that is of records without gaps."""
        return counts[tuple(slice(self.plan.n_states[v]) for v in family)]

    def scored(self, family):
        """Families whose scores make up that of a family: added, then subtracted."""
        return [family, family[:-1]] if self.plan.has_gaps else [family]

    def terms(self, family):
        """Score tables of a family: its node, then its parents."""
        if self.plan.criterion == "total_variation":
            return self.distances[family[0]]
        return self.plan.terms(family)

    def _holders(self, family):
        owners = {self.plan.owners[v] for v in family}
        return tuple(name for name in self.talk.roster if name in owners)

    def _branch(self, label, peers=None):
        return branch_links(self.links, label, peers)

    def _label(self, holders):
        return " ".join(str(self.talk.roster.index(name)) for name in holders)

    def _plan_comparison(self, lists):
        """Say how many scores of which size, with noise, are to be compared."""
        largest, self._scales = 1, []
        self._sizes = [len(families) for families in lists]
        try:
            for families in lists:
                self._scales.append(self._noise_scale(families))
                more = self._most_noise(self._scales[-1], len(families) - 1)
                more += self._lead(families) * (len(families) - 1)
                largest = max(largest, max(map(self._bound, families)) + more)
            # in two's complement
            n_bits = largest.bit_length() + 1
            opens = self.plan.opens == "order"
            return SharedArgmax(self.talk.roster, self._sizes, n_bits, opens)
        except ValueError as error:  # noise that 64 bits do not hold
            raise OverflowError(str(error)) from None

    def _bound(self, family):
        n_states = self.plan.n_states
        return sum(
            self.terms(part).bound(
                n_states[part[0]], prod(n_states[v] for v in part[1:])
            )
            for part in self.scored(family)
            if part
        )

    def _lead(self, families):
        """By how much a score has to beat an earlier one: by what both may be off.

        Without this, the errors of a series would decide between equal scores.
        """
        if self.plan.scores == "tables":
            return 0
        n_cells = max(sum(self._n_lookups(family)) for family in families)
        # counts and totals with half of one each, and with the states for totals
        return 2 * STIRLING_ERROR * (2 * self.plan.n_samples + 2 * n_cells)

    def _noise_scale(self, families):
        """Scale of the noise on scores that are compared with each other."""
        if self.noise is None:
            return 0
        return self.noise.scale(max(self.terms(f).sensitivity for f in families))

    def _most_noise(self, scale, n_candidates):
        if self.noise is None:
            return 0
        return self.noise.bound(scale) + self.noise.handicap(scale, n_candidates)

    def _with_noise(self, listed, sizes, scales):
        """Add own noise to own shares; the first of each list is to stay, if in doubt.

        Without this, noise alone would find parents for every node.
        """
        listed = add_noise(listed, self.noise.share(np.repeat(scales, sizes)))
        if self.talk.name == self.talk.roster[0]:
            starts = np.cumsum([0, *sizes[:-1]])
            listed[starts] += np.array(
                [self.noise.handicap(s, size - 1) for s, size in zip(scales, sizes)],
                dtype=np.uint64,
            )
        return listed

    def _count(self, talk, nodes):
        """Own shares of the counts of all candidate families."""
        counts, pairs, more = {}, [], []
        for node in nodes:
            for owner in self.talk.roster:
                chosen = [v for v in node.candidates if self.plan.owners[v] == owner]
                holders = self._holders([*node.family, *chosen[:1]])
                if not chosen or self.talk.name not in holders:
                    continue
                if len(holders) == 1:
                    for candidate in chosen:
                        family = (*node.family, candidate)
                        counts[family] = self.own.counts(family).astype(self.ring)
                    continue
                # the candidates' owner begins; the others' configurations are bits
                holders = [owner, *(name for name in holders if name != owner)]
                crossing = Crossing(self.plan, node.family, chosen, holders)
                (pairs if len(holders) == 2 else more).append(crossing)
        found = yield from together(
            talk,
            {
                "pairs": lambda branch: self.pair_counts(
                    branch,
                    self._branch("pairs"),
                    [crossing.table(talk.name, self.own) for crossing in pairs],
                    self.plan.n_samples,
                    self.ring,
                ),
                "more": lambda branch: self.many_counts(
                    branch,
                    self._branch("more"),
                    [crossing.table(talk.name, self.own) for crossing in more],
                    self.plan.n_samples,
                    self.ring,
                ),
            },
        )
        for kind, crossings in (("pairs", pairs), ("more", more)):
            for crossing, products in zip(crossings, found[kind]):
                counts.update(
                    crossing.complete(talk.name, self.own, products, self._known.get)
                )
        return counts

    def _own_score(self, family, counts):
        counts = self.complete(family, counts).astype(np.int64)
        score = self.terms(family).score(counts)
        if self.plan.has_gaps:
            # the gain of the last parent, on the same records
            score -= self.terms(family[:-1]).score(counts.sum(axis=-1))
        return np.int64(score).astype(np.uint64)

    def _plan_lookups(self, families):
        """Lookups of all families that cross parties, by a label of the holders."""
        by_holders, sizes = {}, {}
        for family in families:
            holders = self._holders(family)
            if len(holders) > 1:
                by_holders.setdefault(holders, []).append(family)
                n_lookups = sum(sum(self._n_lookups(f)) for f in self.scored(family))
                sizes[holders] = sizes.get(holders, 0) + n_lookups * len(holders)
        # what all have together is public, so that everybody shares memory out alike
        per_size = _LOOKUP_BYTES / max(1, sum(sizes.values()))
        kind = ScoreLookup
        if self.plan.criterion == "total_variation":
            kind = DistanceLookup
        elif self.plan.scores == "lindell-pinkas":
            kind = SeriesScores
        return {
            self._label(holders): kind(
                self, holders, by_holders[holders], per_size * sizes[holders]
            )
            for holders in sorted(by_holders, key=self._label)
            if self.talk.name in holders
        }

    def _n_lookups(self, family):
        """Cells of a family's table, and configurations of its parents."""
        q = prod(self.plan.n_states[v] for v in family[1:])
        return self.plan.n_states[family[0]] * q, q

    def _wide_shares(self, transform):
        """Shares modulo 2^64 of all nodes' counts, or of a public table of them."""
        if transform is None:
            transform = np.arange(self.plan.n_samples + 1)
        shares, by_holders = [], {}
        for node in self.nodes:
            shape = [self.plan.n_states[v] for v in node.family]
            share = np.zeros(shape, dtype=np.uint64)
            shares.append(share)
            holders = self._holders(node.family)
            if holders == (self.talk.name,):
                own = self.complete(node.family, node.counts)
                share[...] = transform[own].astype(np.int64)
            elif self.talk.name in holders:
                own = self.complete(node.family, node.counts)
                by_holders.setdefault(holders, []).append((own, share))
        sides = {
            f"tables {self._label(holders)}": partial(
                self._look_up_tables,
                holders=holders,
                shares=by_holders[holders],
                transform=transform,
            )
            for holders in sorted(by_holders, key=self._label)
        }
        yield from together(self.talk, sides)
        return shares

    def _look_up_tables(self, talk, holders, shares, transform):
        """Fill in shares of a public table of shared counts."""
        counts = np.concatenate([counts.ravel() for counts, _ in shares])
        book = TableBook(self.index_bits)
        which = np.full(counts.size, book.position(transform))
        peers = [name for name in holders if name != talk.name]
        links = self._branch(f"tables {self._label(holders)}", peers)
        lookup = SharedLookup(holders, book.tables(), which)
        yield from lookup.prepare(talk, links)
        values = yield from lookup.look_up(talk, links, counts)
        for _, share in shares:
            share[...] = values[: share.size].reshape(share.shape)
            values = values[share.size :]
