"""What a site does with its own columns in collective learning."""

from math import ceil, prod
from typing import Any

import numpy as np

from skprivbn.bayesian_network._discrete import BayesianNetwork
from skprivbn.bayesian_network._tables import Tables
from skprivbn.crypto._psi import normalise_key
from skprivbn.crypto.shares import bit_length_dtype, open_links
from skprivbn.federation import PartyRefusal
from skprivbn.programs._columns import check_table, own_columns
from skprivbn.programs._shared_tables import ColumnTables
from skprivbn.structure.collective._selection import (
    draw_rows,
    lowest_rows,
    priorities,
    unlikely_rows,
)

#: of one session; masks of Paillier counts are sized for them
MAX_COUNTS = 1 << 22


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
    """

    n_states: list[int]

    def __init__(self, me, talk, codes, records, states):
        self.me, self.terms, self.talk = me, me.terms, talk
        self.codes, self.states, self.variables = codes, states, own_columns(me)
        self._own_sizes = [len(labels) for labels in states]
        self._keys = [str(i) for i in records]
        if self.terms.has_keys:
            keys = np.asarray(me.block["keys"]).tolist()
            self._keys = [normalise_key(keys[i]) for i in records]
        self._ranks: dict = {}
        self._links: Any = None

    def learn_local(self):
        """Learn the network of the own columns, or count new rows for a given one."""
        tables, given = Tables.from_rows(self.codes, self._own_sizes), self.terms.model
        self.cut = None
        if given is None:
            self.parents = self._find_parents(tables)
            counts = self._family_counts(tables)
            self._score_rows(counts)
        else:
            place = {v: i for i, v in enumerate(self.variables)}
            own = [given.parents[v] for v in self.variables]
            self.parents = [[place[u] for u in found] for found in own]
            self._score_rows([given.counts[v] for v in self.variables])
            self.cut = given.cuts.get(self.me.name)
            if self.cut is not None:
                # as in the paper: rows that do not fit go to the centre instead
                fitting = self.codes[self.log_likelihood > self.cut]
                tables = Tables.from_rows(fitting, self._own_sizes)
            counts = self._family_counts(tables)
        return {
            "n_samples": len(self.codes),
            "states": self.states,
            "parents": self.parents,
            "counts": counts,
        }

    def _find_parents(self, tables):
        terms = self.terms
        if terms.parents is not None:
            place = {v: i for i, v in enumerate(self.variables)}
            return [
                [place[u] for u in terms.parents[v] if u in place]
                for v in self.variables
            ]
        ordering = terms.ordering
        if ordering is not None:
            ordering = [
                self.variables.index(v) for v in ordering if v in self.variables
            ]
        adjacency = terms.learn_structure(tables, ordering)
        return [np.flatnonzero(column).tolist() for column in adjacency.T]

    def _family_counts(self, tables):
        for v, found in enumerate(self.parents):
            n_cells = prod(self._own_sizes[u] for u in [*found, v])
            check_table(self.me, n_cells, tables.n_samples)
        return [tables([*found, v]) for v, found in enumerate(self.parents)]

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
        return (yield from self._shared.share(tables))

    def _check_size(self, variables):
        """Refuse what is no table, or one so large that its cells are single rows."""
        known = range(len(self.terms.owners))
        if not variables or len(set(variables)) < len(variables):
            raise PartyRefusal("refused")
        if any(type(v) is not int or v not in known for v in variables):
            raise PartyRefusal("refused")
        n_cells = prod(self.n_states[v] for v in variables)
        check_table(self.me, n_cells, len(self.codes))
        declared = self.terms.parents or []
        if n_cells > Tables.largest(len(self.codes)) and not any(
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
        if self.cut is not None:
            return self.log_likelihood <= self.cut
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
        if unlikely.sum() + n_random > most:
            raise PartyRefusal("refused")
        drawn = draw_rows(self._rank(b"draw"), unlikely, n_random)
        rows = np.concatenate([np.flatnonzero(unlikely), drawn])
        cut = float(self.log_likelihood[unlikely].max()) if unlikely.any() else None
        return {"rows": self.codes[rows].astype(np.uint8), "cut": cut}
