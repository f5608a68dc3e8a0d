"""Partial ancestral graphs: what is known of causes where some may be hidden."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np

#: marks at the ends of edges: nobody knows; not a cause of the other; a cause of it
CIRCLE, ARROW, TAIL = 1, 2, 3

_LEFT = {CIRCLE: "o", ARROW: "<", TAIL: "-"}
_RIGHT = {CIRCLE: "o", ARROW: ">", TAIL: "-"}


@dataclass(frozen=True, eq=False, repr=False)
class PartialAncestralGraph:
    """Edges whose ends are arrows, tails, or circles where both are possible.

    ``a --> b`` says that a is a cause of b, ``a <-> b`` that neither is one of the
    other, so that both have a hidden common cause; ``a o-> b`` that b is not a cause
    of a.

    Parameters
    ----------
    marks : array-like of int of shape (n_nodes, n_nodes)
        Entry (i, j) is the mark at j of the edge between i and j: 0 (no edge), 1
        (circle), 2 (arrow) or 3 (tail).
    nodes : sequence of str, default=None
        Names; by default positions.

    See Also
    --------
    skprivbn.structure.FederatedFCI : Learns one.

    Examples
    --------
    >>> from skprivbn.bayesian_network import PartialAncestralGraph
    >>> marks = [[0, 2, 0], [1, 0, 2], [0, 3, 0]]
    >>> graph = PartialAncestralGraph(marks, ["a", "b", "c"])
    >>> print(graph)
    a o-> b
    b --> c
    >>> graph.causes("c")
    ['b']
    """

    marks: Any
    nodes: Any = None

    def __post_init__(self) -> None:
        marks = np.asarray(self.marks)
        if marks.ndim != 2 or marks.shape[0] != marks.shape[1]:
            raise ValueError(f"marks must be a square matrix, got shape {marks.shape}")
        if not np.isin(marks, (0, CIRCLE, ARROW, TAIL)).all() or np.any(
            (marks == 0) != (marks.T == 0)
        ):
            raise ValueError(
                "marks must be 0 (no edge), 1 (circle), 2 (arrow) or 3 (tail), and 0 "
                "at both ends or at none"
            )
        if np.any(np.diag(marks)):
            raise ValueError("a node must not have an edge to itself")
        nodes = tuple(range(len(marks)) if self.nodes is None else self.nodes)
        if len(nodes) != len(marks):
            raise ValueError(f"got {len(nodes)} nodes for {len(marks)} of marks")
        object.__setattr__(self, "marks", marks.astype(np.int64))
        object.__setattr__(self, "nodes", nodes)

    def edges(self) -> list[tuple]:
        """Return the edges, each as two nodes and what is between them.

        Returns
        -------
        edges : list of (node, str, node)
            Such as ``("a", "o->", "b")``; arrows point to the right where only one
            does.
        """
        found = []
        for i, j in np.argwhere(np.triu(self.marks)).tolist():
            if self.marks[j, i] == ARROW and self.marks[i, j] != ARROW:
                i, j = j, i
            between = f"{_LEFT[self.marks[j, i]]}-{_RIGHT[self.marks[i, j]]}"
            found.append((self.nodes[i], between, self.nodes[j]))
        return found

    def causes(self, node: Hashable) -> list:
        """Return the nodes that are certainly causes of a node, by one edge.

        Parameters
        ----------
        node : hashable

        Returns
        -------
        causes : list of node
        """
        j = self.nodes.index(node)
        found = (self.marks[:, j] == ARROW) & (self.marks[j] == TAIL)
        return [self.nodes[i] for i in np.flatnonzero(found)]

    def hidden_causes(self) -> list[tuple]:
        """Return the pairs of nodes that certainly have a hidden common cause.

        Returns
        -------
        pairs : list of (node, node)
        """
        both = np.triu((self.marks == ARROW) & (self.marks.T == ARROW))
        return [(self.nodes[i], self.nodes[j]) for i, j in np.argwhere(both).tolist()]

    def distance(self, other: "PartialAncestralGraph") -> int:
        """Return how many marks differ, an edge that only one has counting twice.

        Parameters
        ----------
        other : PartialAncestralGraph
            With the same nodes, in any order.

        Returns
        -------
        distance : int
        """
        if set(self.nodes) != set(other.nodes):
            raise ValueError("the graphs must have the same nodes")
        order = [other.nodes.index(node) for node in self.nodes]
        return int(np.sum(self.marks != other.marks[np.ix_(order, order)]))

    def __eq__(self, other):
        if not isinstance(other, PartialAncestralGraph):
            return NotImplemented
        return set(self.nodes) == set(other.nodes) and self.distance(other) == 0

    def __hash__(self):
        return hash(frozenset(self.nodes))

    def __str__(self):
        return "\n".join(" ".join(map(str, edge)) for edge in self.edges())

    def __repr__(self):
        n_edges = np.count_nonzero(self.marks) // 2
        return f"<PartialAncestralGraph of {len(self.nodes)} nodes, {n_edges} edges>"
