"""What a site does with its own columns, and which of its rows go to the centre.

Rows that are unlikely at every site tell most about links between sites, and least
about how often things happen: outside the selected set the inclusion probability is
zero, which no weight repairs. ``"random"`` rows have equal probabilities; ``"mixed"``
takes unlikely rows with certainty and some of the others at random, with the inverse
of their probability as weight.
"""

import hashlib
from math import ceil, prod
from typing import Any

import numpy as np

from skprivbn.bayesian_network._dag import parents_of
from skprivbn.bayesian_network._discrete import BayesianNetwork
from skprivbn.bayesian_network._labels import count_rows
from skprivbn.crypto._psi import normalise_key
from skprivbn.crypto.shares import bit_length_dtype, open_links
from skprivbn.federation import PartyRefusal
from skprivbn.federation.program import require
from skprivbn.programs._columns import check_table, own_columns
from skprivbn.programs._shared_tables import ColumnTables, check_unlike
from skprivbn.structure._discrete_columns import can_be_counts
from skprivbn.structure._search import complete
from skprivbn.structure._tables import AskedTables
from skprivbn.structure.collective._structure import (
    choosing_again,
    largest_table,
    scores_of_rows,
)

#: of one session; masks of Paillier counts are sized for them
MAX_COUNTS = 1 << 22


SELECTIONS = ("low_likelihood", "mixed", "random")


def n_lowest(selection, n_rows):
    """Return how many of the rows to send are chosen for their low likelihood."""
    return {"low_likelihood": n_rows, "mixed": n_rows // 2, "random": 0}[selection]


def priorities(keys, seed):
    """Put records in a random order that depends on their keys only.

    Sites that know the same keys agree on it, wherever their files hold the records.

    Parameters
    ----------
    keys : sequence of str
    seed : bytes

    Returns
    -------
    rank : ndarray of int
        Position of every record.
    """
    digests = [hashlib.sha256(seed + key.encode()).digest() for key in keys]
    return np.argsort(sorted(range(len(digests)), key=digests.__getitem__))


def lowest_rows(log_likelihood, rank, n_rows):
    """Mark the `n_rows` least likely rows; among equals the first in rank."""
    chosen = np.zeros(len(rank), dtype=bool)
    chosen[np.lexsort((rank, log_likelihood))[:n_rows]] = True
    return chosen


def unlikely_rows(log_likelihood, n_std):
    """Mark rows whose likelihood is below its mean plus `n_std` standard deviations."""
    # a common factor changes neither side of the comparison, and avoids underflow
    likelihood = np.exp(log_likelihood - log_likelihood.max())
    return likelihood < likelihood.mean() + n_std * likelihood.std()


def draw_rows(rank, taken, n_rows):
    """Return the `n_rows` rows first in rank that are not taken, ascending."""
    rest = np.flatnonzero(~taken)
    return np.sort(rest[np.argsort(rank[rest])[:n_rows]])


def common_lowest(offer, n_samples, n_rows):
    """Find the rows that are among the least likely at every site.

    Parameters
    ----------
    offer : callable
        From a number of rows to the mark of those that every site counts among so
        many of its least likely ones; a generator, of rounds, that returns it.
    n_samples : int
    n_rows : int
        How many rows to find.

    Returns
    -------
    chosen : ndarray of bool, shape (n_samples,)
        The smallest such set that holds at least `n_rows` rows.
    """
    low, high, chosen = n_rows, n_samples, None
    while low < high:
        middle = (low + high) // 2
        offered = yield from offer(middle)
        if offered.sum() >= n_rows:
            high, chosen = middle, offered
        else:
            low = middle + 1
    return (yield from offer(high)) if chosen is None else chosen


def row_weights(n_samples, n_unlikely, n_random):
    """Return weights of unlikely rows, then of random ones.

    Inverse inclusion probabilities, scaled to add up to the effective sample size
    (Kish, 1965), which is what a score's penalty and a prior count compare with.

    Parameters
    ----------
    n_samples : int
        Rows that each site has.
    n_unlikely, n_random : int
        Rows sent.

    Returns
    -------
    weights : ndarray of shape (n_unlikely + n_random,)
    """
    weights = np.ones(n_unlikely + n_random)
    if n_random and n_unlikely:
        weights[n_unlikely:] = (n_samples - n_unlikely) / n_random
        weights *= weights.sum() / (weights**2).sum()
    return weights


class Site:
    """What a site does with its own columns.

    Parameters
    ----------
    me : Me
    talk : Conversation
    codes : ndarray of int of shape (n_records, n_own_columns)
    records : ndarray of int
        Which of the own records they are.
    states : list of list
        Labels of the own columns.

    Attributes
    ----------
    n_states : list of int
        Of all columns, once all have told them.
    least : int
        The smallest count, but none, that is told or opened.
    """

    n_states: list[int]

    def __init__(self, me, talk, codes, records, states):
        self.me, self.terms, self.talk = me, me.terms, talk
        self.codes, self.states, self.variables = codes, states, own_columns(me)
        self.least = max(me.min_cell_count, me.terms.min_cell_count)
        self._own_sizes = [len(labels) for labels in states]
        check_unlike(codes, self._own_sizes, self.least, range(len(states)))
        self._keys = [str(i) for i in records]
        if self.terms.has_keys:
            keys = np.asarray(me.block["keys"]).tolist()
            self._keys = [normalise_key(keys[i]) for i in records]
        self._ranks: dict = {}
        self._links: Any = None

    def learn_local(self):
        """Learn the network of the own columns, or count new rows for a given one."""
        codes, given, self.unlikely = self.codes, self.terms.model, None
        if given is None:
            self.parents = self._find_parents()
            counts = self._family_counts(codes)
            self._score_rows(counts)
        else:
            self.parents = self._own_parents(given.parents)
            self._score_rows([given.counts[v] for v in self.variables])
            self.unlikely = self._do_not_fit(given.cuts.get(self.me.name))
            if self.unlikely is not None:
                # as in the paper: rows that do not fit go to the centre instead
                codes = codes[~self.unlikely]
            counts = self._family_counts(codes)
        return {
            "n_samples": len(self.codes),
            "states": self.states,
            "parents": self.parents,
            "counts": counts,
        }

    def _do_not_fit(self, cut):
        """Mark new rows below a threshold: of these rows, or the one before."""
        if self.terms.disclosure == "rows" and self.terms.n_std is not None:
            return unlikely_rows(self.log_likelihood, self.terms.n_std)
        return None if cut is None else self.log_likelihood <= cut

    def _places(self, columns):
        """Return where columns are among the own ones; others are left out."""
        return [self.variables.index(v) for v in columns if v in self.variables]

    def _own_parents(self, parents):
        return [self._places(parents[v]) for v in self.variables]

    def _find_parents(self):
        terms = self.terms
        if terms.parents is not None:
            return self._own_parents(terms.parents)
        ordering = terms.ordering
        if ordering is not None:
            ordering = self._places(ordering)
        scores = scores_of_rows(self.codes, self._own_sizes, least=self.least)
        found = complete(terms.learning_structure(scores, ordering))
        return parents_of(complete(choosing_again(found, range(len(found)), scores)))

    def _family_counts(self, codes):
        families = [[*found, v] for v, found in enumerate(self.parents)]
        for family in families:
            n_cells = prod(self._own_sizes[v] for v in family)
            check_table(self.me, n_cells, len(codes))
        tables = AskedTables.from_rows(codes, self._own_sizes, least=self.least)
        return [tables.ordered(family) for family in families]

    def _score_rows(self, counts):
        """Compute how likely every row is under the own network."""
        names = [str(v) for v in range(len(self.parents))]
        try:
            network = BayesianNetwork.from_counts(
                names,
                [range(size) for size in self._own_sizes],
                [[names[u] for u in found] for found in self.parents],
                counts,
                alpha=self.terms.alpha,
            )
        except ValueError:  # a given model that is none of these columns
            raise PartyRefusal("refused") from None
        self.log_likelihood = network.log_likelihood(self.codes)

    def count(self, tables):
        """Count columns of all sites; return own shares of each table.

        Parameters
        ----------
        tables : list of tuple of int
            As the centre asks for; those of which cells are single rows are refused.

        Returns
        -------
        shares : list of (ndarray or None)
            None of tables of others' columns, and of those that have small counts.
        """
        owners = self.terms.owners
        for variables in tables:
            self._check_size(variables)
        if self._links is None:
            self._links = yield from open_links(self.talk)
            self._shared = ColumnTables(
                self.talk,
                self._links,
                owners,
                self.n_states,
                dict(zip(self.variables, self.codes.T)),
                bit_length_dtype(len(self.codes).bit_length()),
                self.terms.backend.make().make_counts(MAX_COUNTS),
            )
        hidden = np.zeros(len(tables), dtype=bool)
        if self.least > 1:
            hidden = yield from self._shared.are_few(tables, self.least)
        shares = yield from self._shared.share(tables)
        held = [any(owners[v] == self.me.name for v in table) for table in tables]
        return [
            share if is_held and not is_hidden else None
            for share, is_held, is_hidden in zip(shares, held, hidden)
        ]

    def can_be_counts(self, variables, table):
        """Tell whether an opened table fits the own rows."""
        own = [axis for axis, v in enumerate(variables) if v in self.variables]
        margin = count_rows(self.codes, self._places(variables), self._own_sizes)
        return can_be_counts(table, own, margin)

    def _check_size(self, variables):
        """Refuse what is no table, or one so large that its cells are single rows."""
        known = range(len(self.terms.owners))
        require(variables and len(set(variables)) == len(variables))
        require(all(type(v) is int and v in known for v in variables))
        n_cells = prod(self.n_states[v] for v in variables)
        check_table(self.me, n_cells, len(self.codes))
        declared = self.terms.parents or []
        if n_cells > largest_table(len(self.codes)) and not any(
            set(variables) <= {v, *parents} for v, parents in enumerate(declared)
        ):
            raise PartyRefusal("refused")

    def _rank(self, purpose):
        """Order the rows at random: for ties and for draws independently."""
        if purpose not in self._ranks:
            self._ranks[purpose] = priorities(self._keys, self.terms.seed + purpose)
        return self._ranks[purpose]

    def offer(self, n_rows):
        """Mark rows that the own network does not explain well."""
        n_std = self.terms.n_std
        if self.unlikely is not None:
            return self.unlikely
        if n_std is not None:
            return unlikely_rows(self.log_likelihood, n_std)
        return lowest_rows(self.log_likelihood, self._rank(b"ties"), n_rows)

    def take_rows(self, unlikely, n_random):
        """Return rows that all have offered, and random ones, to be sent.

        Parameters
        ----------
        unlikely : ndarray of bool of shape (n_records,)
        n_random : int

        Returns
        -------
        sample : dict
            With the log-likelihood of the most likely of the former as ``cut``.
        """
        # the last step to a number of common rows may add one per site
        most = ceil(self.terms.fraction * len(unlikely)) + len(self.me.peers)
        require(unlikely.sum() + n_random <= most)
        drawn = draw_rows(self._rank(b"draw"), unlikely, n_random)
        rows = np.concatenate([np.flatnonzero(unlikely), drawn])
        cut = float(self.log_likelihood[unlikely].max()) if unlikely.any() else None
        return {"rows": self.codes[rows].astype(np.uint8), "cut": cut}
