"""Private K2 between data holders: what a party does, and what the coordinator asks."""

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from skprivbn.bayesian_network._checks import check_states
from skprivbn.crypto.shares import joint_counts, open_links
from skprivbn.federation import PartyRefusal, operation
from skprivbn.federation._answers import check_same
from skprivbn.federation._cells import in_steps
from skprivbn.protocols._columns import ColumnsParty, ColumnsTerms, CountBackend
from skprivbn.structure.k2._base import (
    check_table_sizes,
    encode_columns,
    encode_declared,
)
from skprivbn.structure.k2._budget import K2Budget
from skprivbn.structure.k2._shared_search import K2Plan, SharedK2


@dataclass(frozen=True)
class K2Terms(ColumnsTerms):
    """Parameters of the search, how counts are shared, what noise there is."""

    ordering: list[int]
    max_parents: int
    criterion: str
    equivalent_sample_size: float
    states: list[list[Any] | None] | None
    backend: CountBackend
    fit_parameters: bool
    min_cell_count: int
    epsilon: float | None
    delta: float
    min_honest: int | None

    def check(self):
        """Refuse orderings that are none, and noise that would not hide all."""
        if sorted(self.ordering) != list(range(len(self.owners))):
            raise ValueError("ordering must have every column once")
        if self.epsilon is None and self.criterion == "total_variation":
            raise ValueError(
                "criterion='total_variation' compares with noisy counts of single "
                "columns: give epsilon=, or choose another criterion"
            )
        if self.epsilon is not None and None in (self.states or [None]):
            raise ValueError(
                "epsilon needs states=, those of all columns: which values occur is "
                "not private"
            )

    def rounds(self, n_parties):
        """Return align, learn, release."""
        return 3

    def n_parameters(self, n_features):
        """Return none: tables are checked when it is known which they are."""
        return 0

    def summed_columns(self, n_features):
        """Return none: there are tables."""
        return []

    def memory(self, n_features):
        """Return the codes of the own columns and the labels of all."""
        n_labels = sum(len(labels or []) for labels in self.states or [])
        return n_labels, n_labels

    def for_tests_only(self):
        """Tell whether keys of counts can be broken."""
        return self.backend.is_weak

    def noise(self, n_features, n_parties):
        """Return the noise on all that is opened, or None."""
        if self.epsilon is None:
            return None
        n_columns, min_honest = len(self.owners), self.min_honest
        return K2Budget(
            self.epsilon,
            self.delta,
            n_columns,
            n_choices=sum(min(self.max_parents, i) for i in range(n_columns)),
            needs_margins=self.criterion == "total_variation",
            fit_parameters=self.fit_parameters,
            n_parties=n_parties,
            # half of them, rounded up
            min_honest=-(-n_parties // 2) if min_honest is None else min_honest,
        )


class K2Party(ColumnsParty):
    """A holder of columns. Learns the network, and its peers' labels."""

    terms = K2Terms

    def prepare(self):
        """Check the own columns and turn labels into codes."""
        X, declared = np.asarray(self.block["X"]), self.terms.states
        if X.ndim != 2 or X.shape[1] != len(self.variables):
            raise PartyRefusal("invalid-data")
        if declared is not None:
            declared = [declared[v] for v in self.variables]
        if self.terms.epsilon is not None:
            self.codes, self.states = encode_declared(X, declared), declared
            return
        try:
            self.codes, self.states = encode_columns(X, self.variables, declared)
        except ValueError:
            raise PartyRefusal("invalid-data") from None

    def schedule(self):
        """Align, learn, hand over: each once."""
        if self.terms.has_keys:
            yield "align"
        yield "learn"
        yield "release"

    def keep(self, records):
        """Keep the records that all parties have."""
        self.codes = self.codes[records]

    @operation(
        peers="number of records, labels of columns; shares, transfers and garbled "
        "circuits"
    )
    def learn(self):
        """Search for the parents of every column; open the tables if asked to."""
        terms, talk = self.terms, self.talk()
        declared = terms.states or [None] * len(terms.owners)
        self.check_labels(
            codes.tolist()
            for v, codes in zip(self.variables, self.codes.T)
            if declared[v] is None
        )
        plan = yield from self._agree_on_plan(talk)
        links = yield from open_links(talk)
        columns = dict(zip(self.variables, self.codes.T))
        noise = terms.noise(len(self.variables), len(self.context.roster))
        search = SharedK2(
            talk,
            links,
            plan,
            columns,
            terms.backend.make().make_counts(plan.max_counts),
            joint_counts,
            noise and noise.choices,
        )
        margins = None
        if noise is not None and noise.margins is not None:
            margins = yield from search.open_counts(noise=noise.margins.share)
        try:
            self.parents = yield from search.learn(margins)
        except ValueError:  # noise that 64 bits do not hold
            raise PartyRefusal("out-of-range") from None
        self.counts = {}
        if terms.fit_parameters and noise is not None:
            self.counts = yield from search.open_counts(noise=noise.tables.share)
        elif terms.fit_parameters:
            self._check_tables(plan)
            self.counts = yield from search.open_counts(self._without_small(plan))
        self.plan = plan
        self.n_hash_calls = sum(link.n_calls for link in links.values())
        yield from talk.finish()

    def _check_tables(self, plan):
        for v, found in self.parents.items():
            n_cells = prod(plan.n_states[u] for u in [v, *found])
            self.check_table(n_cells, plan.n_samples)

    def _agree_on_plan(self, talk):
        """Tell the peers this party's number of records and labels; hear theirs."""
        terms = self.terms
        states = dict(zip(self.variables, self.states))
        for peer in talk.peers:
            talk.send(peer, {"n_samples": len(self.codes), "states": self.states})
        for peer in talk.peers:
            shape = yield from talk.receive(peer)
            held = [v for v, owner in enumerate(terms.owners) if owner == peer]
            try:
                states.update(self._labels_of_peer(shape, held))
            except (KeyError, TypeError, ValueError):
                raise PartyRefusal("invalid-data") from None
        self.all_states = [states[v] for v in range(len(terms.owners))]
        n_states = tuple(len(labels) for labels in self.all_states)
        try:
            check_table_sizes(n_states, terms.ordering, terms.max_parents)
        except ValueError:
            raise PartyRefusal("out-of-range") from None
        return K2Plan(
            tuple(terms.owners),
            n_states,
            tuple(terms.ordering),
            len(self.codes),
            terms.max_parents,
            terms.criterion,
            terms.equivalent_sample_size,
        )

    def _labels_of_peer(self, shape, held):
        """Labels of columns that a peer told of; an error if they cannot be."""
        if shape["n_samples"] != len(self.codes):
            raise ValueError("other records")
        declared = self.terms.states
        for v, labels in zip(held, shape["states"], strict=True):
            # a number would stand for as many labels, whatever memory they take
            if type(labels) is not list:
                raise ValueError("no list of labels")
            check_states(v, labels)
            known = None if declared is None else declared[v]
            if known is not None and labels != list(known):
                raise ValueError("labels that were not declared")
            yield v, labels

    def _without_small(self, plan):
        """Return the table that counts are opened by, in steps, or None."""
        minimum = self.terms.min_cell_count
        if minimum <= 1:
            return None
        return in_steps(np.arange(plan.n_samples + 1), minimum)

    @operation(
        tells="the network, as all parties know it: number of records, labels, parents "
        "and counts; and its number of hash calls",
        answers={
            "n_samples": int,
            "states": list,
            "n_hash_calls": int,
            "parents": list,
            "counts": list,
        },
    )
    def release(self):
        """Hand the result over; it is the same at every party."""
        return {
            "n_samples": len(self.codes),
            "states": self.all_states,
            "n_hash_calls": self.n_hash_calls,
            "parents": [self.parents[v] for v in range(len(self.plan.owners))],
            "counts": [self.counts[v] for v in sorted(self.counts)],
        }


def run_private_k2(federation, progress):
    """Coordinator's side: let the parties talk, take the result."""
    if federation.terms.has_keys:
        federation.converse("align", progress=progress)
    federation.converse("learn", progress=progress)
    replies = federation.call("release")
    # every party counts its own
    n_calls = {name: reply.pop("n_hash_calls") for name, reply in replies.items()}
    result = check_same(replies, "release")
    return result | {"n_hash_calls": n_calls[federation.first]}
