"""Private K2 between holders of columns (Wright and Yang, 2004), one program.

The paper's box, for every party alike; numbers are those of the paper's sections:

====================================  ================================================
for every node, while a parent helps  :func:`find_parents`, all nodes step by step
shares of the counts (3.1, 3.2)       ``SharedK2.share_counts``
shares of the scores (3.3)            ``SharedK2.share_scores``, the paper's own with
                                      ``scores="lindell-pinkas"``
the best candidate, opened (3.4)      ``SharedK2.open_best``
====================================  ================================================

With ``opens="structure"`` it is :func:`find_structure` instead, which opens no step.
"""

from collections.abc import Generator
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np

from skprivbn.bayesian_network._base import check_states
from skprivbn.crypto.shares import joint_counts, open_links
from skprivbn.federation import Me, PartyRefusal, converse, program
from skprivbn.federation._cells import in_steps
from skprivbn.federation.program import require
from skprivbn.programs._columns import (
    check_labels,
    check_table,
    compare,
    find_records,
    hang_up,
    own_columns,
    start_talk,
)
from skprivbn.structure._discrete_columns import LabelTerms, read_codes
from skprivbn.structure._tables import check_table_sizes
from skprivbn.structure.k2._budget import K2Budget
from skprivbn.structure.k2._shared_search import K2Plan, SharedK2, count_families
from skprivbn.structure.k2._shared_structure import SharedStructure

#: counted where no step of a search is opened
MAX_FAMILIES = 1 << 14


@dataclass(frozen=True)
class K2Terms(LabelTerms):
    """Parameters of the search, what is opened of it, and with what noise."""

    ordering: list[int]
    max_parents: int
    criterion: str
    equivalent_sample_size: float
    scores: Literal["tables", "lindell-pinkas"]
    opens: Literal["order", "structure"]
    missing: Literal["error", "skip"]
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
        if self.scores == "lindell-pinkas" and (
            self.criterion != "wright_yang"
            or self.backend.name != "paillier"
            or self.epsilon is not None
            or len(set(self.owners)) > 2
        ):
            raise ValueError(
                "scores='lindell-pinkas' is the paper's protocol: for two parties, "
                "criterion='wright_yang', backend='paillier', without epsilon"
            )
        n_families = count_families(len(self.owners), self.max_parents)
        if self.opens == "structure" and n_families > MAX_FAMILIES:
            raise ValueError(
                f"opens='structure' would count {n_families} families, more than "
                f"{MAX_FAMILIES}: lower max_parents, or choose opens='order'"
            )
        if self.missing == "skip" and (
            self.opens != "order" or self.scores != "tables" or self.epsilon is not None
        ):
            raise ValueError(
                "missing='skip' compares families on the records that have their "
                "entries: with opens='order', scores='tables', and without epsilon, "
                "where what is missing counts as the first state"
            )
        if self.epsilon is not None and None in (self.states or [None]):
            raise ValueError(
                "epsilon needs states=, those of all columns: which values occur is "
                "not private"
            )

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
    """Find the parents of every column together; open tables of the families found."""
    terms, talk = me.terms, start_talk(me)
    noise = terms.noise(len(terms.owners), len(me.roster))
    codes, states = read_codes(
        me,
        range(len(terms.owners)),
        terms.states,
        strict=noise is None,
        gaps=terms.missing == "skip",
    )
    codes = codes[(yield from find_records(me, talk))]
    plan, states = yield from agree_on_plan(me, talk, codes, states)
    links = yield from converse(open_links(talk), "keys of oblivious transfers")
    hides_steps = terms.opens == "structure"
    search = (SharedStructure if hides_steps else SharedK2)(
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
    find = find_structure if hides_steps else find_parents
    parents = yield from find(search, margins)
    counts = {}
    if terms.fit_parameters:
        counts = yield from open_tables(me, search, noise)
    n_hash_calls = yield from hang_up(talk, links)
    columns = range(len(terms.owners))
    return {
        "n_samples": plan.n_samples,
        "states": states,
        "parents": [parents[v] for v in columns],
        "counts": [counts[v] for v in columns if v in counts],
        "n_hash_calls": n_hash_calls,
    }


def agree_on_plan(
    me: Me, talk: Any, codes: np.ndarray, states: list
) -> Generator[Any, Any, tuple[K2Plan, list]]:
    """Tell each other the number of records and the labels; make the plan of these."""
    declared = me.terms.states or [None] * len(me.terms.owners)
    columns = enumerate(zip(own_columns(me), codes.T, states))
    check_labels(
        me,
        (
            (i, column[column < len(labels)].tolist())
            for i, (v, column, labels) in columns
            if declared[v] is None
        ),
    )
    told = yield from converse(
        compare(talk, {"n_samples": len(codes), "states": states}),
        "number of records, labels of columns",
        "public",
    )
    return make_plan(me.terms, told, len(codes))


def find_parents(search: SharedK2, margins: Any = None) -> Generator[Any, Any, dict]:
    """Add the best candidate to every node's parents, as long as one is a gain.

    All nodes take their steps together. What is opened is the best candidate of every
    node, or that none is better than what it has.

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


def find_structure(search: Any, margins: Any = None) -> Generator[Any, Any, dict]:
    """Find the same parents, of which nobody learns the order.

    Parameters
    ----------
    search : SharedStructure
    margins : dict of int to ndarray, default=None
        Noisy counts of every column by itself.

    Returns
    -------
    parents : dict of int to list of int
        In the order of the columns.
    """
    search.start(margins)
    while nodes := search.searching():
        counts = yield from converse(
            search.share_counts(nodes), "shares of counts of all families"
        )
        scores = yield from converse(
            search.share_scores(nodes, counts), "shares of scores of all families"
        )
        search.keep(counts, scores)
    parents = yield from converse(
        search.open_structure(), "the parents of every column, at the end"
    )
    require(search.are_parents(parents), "inconsistent")
    return parents


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
            states.update(labels_of(shape["states"], held, terms.states))
        except (KeyError, TypeError, ValueError):
            raise PartyRefusal("invalid-data") from None
    listed = [states[v] for v in range(len(owners))]
    n_states = tuple(len(labels) for labels in listed)
    plan = K2Plan(
        tuple(owners),
        n_states,
        tuple(terms.ordering),
        n_samples,
        terms.max_parents,
        terms.criterion,
        terms.equivalent_sample_size,
        terms.scores,
        terms.opens,
        terms.missing,
    )
    try:
        check_table_sizes(plan.n_codes, terms.ordering, terms.max_parents)
    except ValueError:
        raise PartyRefusal("out-of-range") from None
    return plan, listed


def labels_of(told, held, declared):
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


def open_tables(
    me: Me, search: SharedK2, noise: K2Budget | None
) -> Generator[Any, Any, dict[int, np.ndarray]]:
    """Open the counts of every node with its parents: with noise, in steps, or exactly.

    Parameters
    ----------
    me : Me
    search : SharedK2
        With the parents found.
    noise : K2Budget or None

    Returns
    -------
    counts : dict of int to ndarray
    """
    if noise is not None:
        return (
            yield from converse(
                search.open_counts(noise=noise.tables.share),
                "counts of every column with its parents, with noise",
            )
        )
    plan, step = search.plan, max(1, me.terms.min_cell_count)
    for v, found in search.parents().items():
        n_cells = prod(plan.n_states[u] for u in [v, *found])
        check_table(me, n_cells, plan.n_samples)
    transform = in_steps(np.arange(plan.n_samples + 1), step) if step > 1 else None
    counts = yield from converse(
        search.open_counts(transform), "counts of every column with its parents"
    )
    require(search.are_counts(counts, step), "inconsistent")
    return counts
