"""K2 of which nobody learns the steps: only the structure is opened, all at once.

Which families a greedy step has to count depends on the steps before it. If these are
to stay hidden, all families are counted and scored: every column with every set of up
to `max_parents` columns before it. The search is then a walk over shared scores. From
each set of parents one step would lead to the best set that has one more, or end; which
one, an argmax leaves as shared bits, for all sets at a time. The walk begins at the
empty set. Whether it takes a step is the AND of whether it reaches the set and of the
step's bit, so that `max_parents` - 1 ANDs, one after another, follow all walks of all
columns. A column is a parent if some step adds it: the XOR of the bits of these steps,
of which at most one is taken. These bits are opened, and nothing else.
"""

from itertools import combinations

import numpy as np

from skprivbn.crypto.shares import open_circuit
from skprivbn.structure.k2._shared_search import SharedK2, _Node


class SharedStructure(SharedK2):
    """One party's side of the search, with the parameters of :class:`SharedK2`."""

    def start(self, margins=None):
        """Score all columns without parents, each at its holder."""
        super().start(margins)
        self._scores = {tuple(node.family): node.score for node in self.nodes}
        self._place = {v: i for i, v in enumerate(self.plan.ordering)}
        self._grown = self.nodes
        most = min(self.plan.max_parents, len(self.nodes) - 1)
        self._lists = list(self._list_families(most))

    def _list_families(self, max_parents):
        """Yield every family that can grow, and all that have one parent more."""
        ordering = self.plan.ordering
        for n_parents in range(max_parents):
            for position, child in enumerate(ordering[n_parents + 1 :], n_parents + 1):
                for parents in combinations(ordering[:position], n_parents):
                    added = [v for v in ordering[:position] if v not in parents]
                    larger = [sorted([*parents, v], key=self._place.get) for v in added]
                    yield [(child, *parents), *((child, *found) for found in larger)]

    def searching(self):
        """Return the largest families so far, with all columns that can be added.

        Parents are in the order of the columns, so that a set is counted once.
        """
        if len(self._grown[0].family) > self.plan.max_parents:
            return []
        for node in self._grown:
            child, *parents = (self._place[v] for v in node.family)
            after = parents[-1] + 1 if parents else 0
            node.candidates = list(self.plan.ordering[after:child])
        return [node for node in self._grown if node.candidates]

    def keep(self, counts, scores):
        """Keep own shares of the counts and scores of the families just found."""
        self._known |= counts
        self._scores |= scores
        self._grown = [_Node([*f]) for node in self._grown for f in node.families]

    def _compared(self, nodes):
        """Return all lists beside the last counts, and nothing before."""
        is_last = len(nodes[0].families[0]) == len(self._lists[-1][-1])
        return self._lists if is_last else []

    def open_structure(self):
        """Tell everybody the parents of every node; keep the counts of its family."""
        edges, steps = _list_steps(self._lists)
        bits = np.zeros(0, dtype=bool)
        if edges:
            marks = yield from self._find_best(self._lists, self._scores)
            bits = yield from open_circuit(
                self.talk,
                self._branch("walk"),
                self.talk.roster,
                lambda engine: _walk(engine, marks, steps, len(edges)),
            )
        for node in self.nodes:
            (child,) = node.family
            # in the order of the columns
            node.family += [u for (v, u), bit in zip(edges, bits) if bit and v == child]
            node.counts = self._known.get(tuple(node.family))
        return self.parents()

    def are_parents(self, parents):
        """Tell whether the walk could have ended with these parents.

        A party that flips what it opens is caught where a column has too many, of
        which there are no counts, and whose table may not fit into memory.
        """
        return all(len(found) <= self.plan.max_parents for found in parents.values())


def _list_steps(lists):
    """List what a step can add, (child, parent), and all steps, those of a size a row.

    Parameters
    ----------
    lists : list of list of tuple
        Families of the same number of parents together, the smallest first.

    Returns
    -------
    edges : list of tuple
    steps : list of ndarray of int of shape (4, n_steps)
        Place of its bit among the families of all lists, set from which it leads, set
        to which, number of the edge.
    """
    edges: dict = {}
    numbers: dict = {}
    by_size: dict = {}
    place = 0
    for family, *larger in lists:
        for grown in larger:
            place += 1
            (added,) = set(grown) - set(family)
            by_size.setdefault(len(family), []).append(
                (
                    place,
                    numbers.setdefault(family, len(numbers)),
                    numbers.setdefault(grown, len(numbers)),
                    edges.setdefault((family[0], added), len(edges)),
                )
            )
        place += 1
    return list(edges), [np.array(rows).T for rows in by_size.values()]


def _walk(engine, marks, steps, n_edges):
    """Follow the marked steps of all nodes from their empty sets of parents.

    Parameters
    ----------
    engine : object
    marks : wires of shape (n_marks,)
        Whether a step leads from its set to the best one.
    steps : list of ndarray
        From :func:`_list_steps`.
    n_edges : int

    Returns
    -------
    added : wires of shape (n_edges,)
        Whether a step was taken that adds the edge.
    """
    added = np.zeros(n_edges, dtype=np.uint8)
    reached = np.zeros(1 + max(row[2].max() for row in steps), dtype=np.uint8)
    for size, (place, start, end, edge) in enumerate(steps):
        taken = marks[place]
        if size > 0:
            starts, of = np.unique(start, return_inverse=True)
            taken = yield from engine.conjunction(
                reached[starts][:, None], taken[:, None], of
            )
            taken = taken[:, 0]
        np.bitwise_xor.at(reached, end, taken)
        np.bitwise_xor.at(added, edge, taken)
    return added
