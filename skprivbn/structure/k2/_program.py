"""Private K2 between holders of columns, as every one of them runs it."""

from collections.abc import Generator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from skprivbn.bayesian_network._checks import check_states
from skprivbn.crypto.shares import joint_counts, open_links
from skprivbn.federation import Me, PartyRefusal, converse, program
from skprivbn.federation._cells import in_steps
from skprivbn.programs._columns import (
    ColumnsTerms,
    CountBackend,
    check_labels,
    check_table,
    compare,
    find_records,
    hang_up,
    own_columns,
    own_table,
    start_talk,
)
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


@program(K2Terms)
def private_k2(me: Me) -> Generator[Any, Any, dict]:
    """K2 on shares (Wright and Yang): find the parents of every column together.

    All nodes take their greedy steps at a time. What is opened is the best candidate of
    every node and step, or that there is none, and in the end the tables, if asked for.
    """
    terms, talk = me.terms, start_talk(me)
    codes, states = _read_codes(me)
    codes = codes[(yield from find_records(me, talk))]
    told = {"n_samples": len(codes), "states": _labels_to_tell(me, codes, states)}
    told = yield from converse(
        compare(talk, told), "number of records, labels of columns", "public"
    )
    plan, states = make_plan(terms, told, len(codes))
    links = yield from converse(open_links(talk), "keys of oblivious transfers")
    noise = terms.noise(len(codes.T), len(me.roster))
    search = SharedK2(
        talk,
        links,
        plan,
        dict(zip(own_columns(me), codes.T)),
        terms.backend.make().make_counts(plan.max_counts),
        joint_counts,
        noise and noise.choices,
    )
    margins = None
    if noise is not None and noise.margins is not None:
        margins = yield from converse(
            search.open_counts(noise=noise.margins.share),
            "counts of every column, with noise",
        )
    try:
        parents = yield from find_parents(search, margins)
    except ValueError:  # noise that 64 bits do not hold
        raise PartyRefusal("out-of-range") from None
    counts = {}
    if terms.fit_parameters and noise is not None:
        counts = yield from converse(
            search.open_counts(noise=noise.tables.share),
            "counts of every column with its parents, with noise",
        )
    elif terms.fit_parameters:
        for v, found in parents.items():
            n_cells = prod(plan.n_states[u] for u in [v, *found])
            check_table(me, n_cells, plan.n_samples)
        counts = yield from converse(
            search.open_counts(_in_steps(plan, terms.min_cell_count)),
            "counts of every column with its parents",
        )
    return {
        "n_samples": plan.n_samples,
        "states": states,
        "parents": [parents[v] for v in range(len(terms.owners))],
        "counts": [counts[v] for v in sorted(counts)],
        "n_hash_calls": (yield from hang_up(talk, links)),
    }


def find_parents(search: SharedK2, margins: Any = None) -> Generator[Any, Any, dict]:
    """Add the best candidate to every node's parents, as long as one is a gain.

    Parameters
    ----------
    search : SharedK2
    margins : dict of int to ndarray, default=None
        Noisy counts of every column by itself.

    Returns
    -------
    parents : dict of int to list of int
        In the order found.
    """
    search.start(margins)
    for _ in range(search.plan.max_parents):
        nodes = search.searching()
        if not nodes:
            break
        counts = yield from converse(
            search.share_counts(nodes), "shares of counts of candidates"
        )
        scores = yield from converse(
            search.share_scores(nodes, counts), "shares of scores of candidates"
        )
        winners = yield from converse(
            search.open_best(nodes, scores), "the best candidate of every column"
        )
        search.add_parents(nodes, winners, counts, scores)
    return search.parents()


def _read_codes(me):
    """Turn the labels of the own columns into codes; refuse what are none."""
    X, terms = own_table(me), me.terms
    own, declared = own_columns(me), terms.states
    if declared is not None:
        declared = [declared[v] for v in own]
    if terms.epsilon is not None:
        return encode_declared(X, declared), declared
    try:
        return encode_columns(X, own, declared)
    except ValueError:
        raise PartyRefusal("invalid-data") from None


def _labels_to_tell(me, codes, states):
    """Return the labels of the own columns, unless rare ones would be told."""
    declared = me.terms.states or [None] * len(me.terms.owners)
    own = zip(own_columns(me), codes.T)
    check_labels(me, (column.tolist() for v, column in own if declared[v] is None))
    return states


def make_plan(
    terms: K2Terms, told: dict[str, Any], n_samples: int
) -> tuple[K2Plan, list]:
    """Return what everybody knows before the first count, and the labels of all.

    Parameters
    ----------
    terms : K2Terms
    told : dict of str to dict
        Number of records and labels, as each party tells them.
    n_samples : int
        Own number of records, which others must have, too.

    Returns
    -------
    plan : K2Plan
    states : list of list
    """
    owners, states = terms.owners, {}
    for name, shape in told.items():
        held = [v for v, owner in enumerate(owners) if owner == name]
        try:
            if shape["n_samples"] != n_samples:
                raise ValueError("other records")
            states.update(_labels_of(shape["states"], held, terms.states))
        except (KeyError, TypeError, ValueError):
            raise PartyRefusal("invalid-data") from None
    listed = [states[v] for v in range(len(owners))]
    n_states = tuple(len(labels) for labels in listed)
    try:
        check_table_sizes(n_states, terms.ordering, terms.max_parents)
    except ValueError:
        raise PartyRefusal("out-of-range") from None
    plan = K2Plan(
        tuple(owners),
        n_states,
        tuple(terms.ordering),
        n_samples,
        terms.max_parents,
        terms.criterion,
        terms.equivalent_sample_size,
    )
    return plan, listed


def _labels_of(told, held, declared):
    """Labels of columns that a party told of; an error if they cannot be."""
    for v, labels in zip(held, told, strict=True):
        # a number would stand for as many labels, whatever memory they take
        if type(labels) is not list:
            raise ValueError("no list of labels")
        check_states(v, labels)
        known = None if declared is None else declared[v]
        if known is not None and labels != list(known):
            raise ValueError("labels that were not declared")
        yield v, labels


def _in_steps(plan, minimum):
    """Return the table that counts are opened by, in steps, or None."""
    if minimum <= 1:
        return None
    return in_steps(np.arange(plan.n_samples + 1), minimum)
