"""Directed acyclic graphs as boolean matrices: order, equivalence, Meek's rules; PAGs.

``adjacency[i, j]`` is true when there is an edge from node `i` to node `j`. In a
partially directed graph an undirected edge is present in both directions. Partial
ancestral graphs (PAG) say what is known of causes where some may be hidden.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

import numpy as np


def check_adjacency(adjacency):
    """Return a square boolean matrix of edges; any non-zero entry is an edge."""
    adjacency = np.asarray(adjacency)
    if adjacency.ndim != 2 or adjacency.shape[0] != adjacency.shape[1]:
        raise ValueError(
            f"an adjacency matrix must be square, got shape {adjacency.shape}"
        )
    if adjacency.dtype.kind not in "biuf":
        raise ValueError(
            f"an adjacency matrix must hold numbers, got dtype {adjacency.dtype}"
        )
    if adjacency.dtype.kind == "f" and np.isnan(adjacency).any():
        raise ValueError("an adjacency matrix must not hold NaN")
    return adjacency != 0


def graph_of(parents):
    """Return a graph as a matrix, true at [i, j] for an edge from i to j.

    Parameters
    ----------
    parents : sequence of sequence of int
        Of every node.

    Returns
    -------
    adjacency : ndarray of bool of shape (n_nodes, n_nodes)
    """
    adjacency = np.zeros((len(parents), len(parents)), dtype=bool)
    for node, found in enumerate(parents):
        adjacency[list(found), node] = True
    return adjacency


def parents_of(adjacency):
    """Return the parents of every node, ascending."""
    return [np.flatnonzero(column).tolist() for column in adjacency.T]


def check_dag(adjacency, names=None):
    """Return a boolean matrix, or raise a ValueError that spells out a cycle."""
    adjacency = check_adjacency(adjacency)
    cycle = find_cycle(adjacency)
    if cycle is not None:
        steps = [str(i if names is None else names[i]) for i in cycle]
        raise ValueError(
            f"the graph must have no directed cycle, got {' -> '.join(steps)}"
        )
    return adjacency


def _children_of(adjacency):
    """Return the children of every node, ascending."""
    children = [[] for _ in adjacency]
    tails, heads = np.nonzero(adjacency)
    for tail, head in zip(tails.tolist(), heads.tolist()):
        children[tail].append(head)
    return children


def _peel(adjacency):
    """Return the nodes that can be put in order, parents first (Kahn's algorithm)."""
    children = _children_of(adjacency)
    n_parents = adjacency.sum(axis=0).tolist()
    ready = [node for node, n in enumerate(n_parents) if n == 0][::-1]
    order = []
    while ready:
        node = ready.pop()
        order.append(node)
        for child in reversed(children[node]):
            n_parents[child] -= 1
            if n_parents[child] == 0:
                ready.append(child)
    return order


def is_acyclic(adjacency):
    """Whether no directed path leads from a node back to itself."""
    return len(_peel(adjacency)) == len(adjacency)


def find_cycle(adjacency):
    """Return the nodes of one directed cycle, first node repeated, or None."""
    unordered = sorted(set(range(len(adjacency))) - set(_peel(adjacency)))
    if not unordered:
        return None
    # A node that cannot be put in order has such a parent as well, so that walking
    # backwards must come back to a node already seen.
    walk = [unordered[0]]
    while True:
        parents = np.flatnonzero(adjacency[:, walk[-1]])
        node = next(int(i) for i in parents if i in unordered)
        if node in walk:
            return [node, *reversed(walk[walk.index(node) :])]
        walk.append(node)


def topological_order(adjacency):
    """Return node indices as a list in which parents come before their children."""
    order = _peel(adjacency)
    if len(order) < len(adjacency):
        check_dag(adjacency)
    return order


def ancestors(adjacency, nodes):
    """Return the set of the given nodes and of everything they descend from."""
    found, todo = set(), list(nodes)
    while todo:
        node = todo.pop()
        if node not in found:
            found.add(node)
            todo.extend(np.flatnonzero(adjacency[:, node]).tolist())
    return found


def skeleton(adjacency):
    """Forget the directions: a symmetric boolean matrix."""
    return adjacency | adjacency.T


def apply_meek_rules(pdag):
    """Direct every undirected edge whose direction the other edges imply.

    Meek's four rules, repeated until none applies. They are sound and complete
    for a graph that has its v-structures and possibly background knowledge.

    Parameters
    ----------
    pdag : ndarray of bool, shape (n_nodes, n_nodes)
        An undirected edge is present in both directions.

    Returns
    -------
    pdag : ndarray of bool, shape (n_nodes, n_nodes)
        A new matrix.

    References
    ----------
    C. Meek. Causal inference and causal explanation with background knowledge.
    UAI 1995.
    """
    pdag = pdag.copy()
    while True:
        before = pdag.sum()
        for implied in (_rule_1, _rule_2, _rule_3, _rule_4):
            undirected = pdag & pdag.T
            new = implied(pdag & ~pdag.T, undirected, pdag | pdag.T) & undirected
            pdag &= ~new.T | new
        if pdag.sum() == before:
            return pdag


def _joined(left, right):
    """Whether some node c has both ``left[a, c]`` and ``right[c, b]``."""
    return (left.astype(np.float32) @ right.astype(np.float32)) > 0


def _rule_1(arrows, undirected, adjacent):
    """c -> a - b with c, b not adjacent: a <- b would make a new v-structure."""
    return _joined(arrows.T, ~adjacent)


def _rule_2(arrows, undirected, adjacent):
    """a -> c -> b and a - b: a <- b would close a cycle."""
    return _joined(arrows, arrows)


def _rule_3(arrows, undirected, adjacent):
    """a - c -> b, a - d -> b with c, d not adjacent, and a - b."""
    new = np.zeros_like(arrows)
    for a, b in np.argwhere(undirected):
        middle = np.flatnonzero(undirected[a] & arrows[:, b])
        apart = ~adjacent[np.ix_(middle, middle)]
        new[a, b] = np.triu(apart, 1).any()
    return new


def _rule_4(arrows, undirected, adjacent):
    """a - d -> c -> b with a, c adjacent, d, b not adjacent, and a - b."""
    new = np.zeros_like(arrows)
    for a, b in np.argwhere(undirected):
        first = undirected[a] & ~adjacent[:, b]
        first[b] = False
        second = adjacent[a] & arrows[:, b]
        new[a, b] = arrows[np.ix_(first, second)].any()
    return new


def extend_to_dag(pdag):
    """Direct the undirected edges of a graph without new v-structures or cycles.

    Dor and Tarsi's algorithm. Where no such extension exists (tests on few rows may
    contradict each other), the node that costs least is taken, so the result is
    always acyclic with the same skeleton.

    Parameters
    ----------
    pdag : ndarray of bool of shape (d, d)
        The partially directed graph.

    Returns
    -------
    ndarray of bool of shape (d, d)
        A directed acyclic graph.
    """
    out, undirected = _sets(pdag & ~pdag.T), _sets(pdag & pdag.T)
    adjacent = _sets(pdag | pdag.T)

    def cost(node):
        # a sink whose undirected neighbours see all its neighbours comes last
        near = adjacent[node]
        conflicts = (len(near - adjacent[other]) - 1 for other in undirected[node])
        return len(out[node]), sum(conflicts)

    dag, costs = np.zeros_like(pdag), {node: cost(node) for node in range(len(pdag))}
    ready = [node for node, found in costs.items() if found == (0, 0)]
    while costs:
        sink = heappop(ready) if ready else min(costs, key=lambda v: (costs[v], v))
        near = adjacent[sink]
        dag[list(near), sink] = True
        del costs[sink]
        for node in near:
            for of in (out, undirected, adjacent):
                of[node].discard(sink)
        for node in near:
            before, costs[node] = costs[node], cost(node)
            if costs[node] == (0, 0) != before:
                heappush(ready, node)
    return dag


def _sets(related):
    """Return the related nodes of every node, of a graph with few edges."""
    found = [set() for _ in related]
    # numpy looks for places in one dimension several times faster than in two
    places = np.flatnonzero(related).tolist()
    for node, other in (divmod(place, len(found)) for place in places):
        found[node].add(other)
    return found


def to_cpdag(adjacency):
    """Return the graph of a DAG's Markov equivalence class.

    Parameters
    ----------
    adjacency : ndarray of bool, shape (n_nodes, n_nodes)
        A directed acyclic graph.

    Returns
    -------
    cpdag : ndarray of bool, shape (n_nodes, n_nodes)
        Edges whose direction every equivalent DAG shares, and in both directions
        those that may be turned round.

    References
    ----------
    D. M. Chickering. A transformational characterization of equivalent Bayesian
    network structures. UAI 1995.
    """
    parents = _sets(adjacency.T)
    order = topological_order(adjacency)
    rank = {node: place for place, node in enumerate(order)}
    compelled = [set() for _ in parents]  # parents that cannot become children
    for y in order:
        if parents[y]:
            x = max(parents[y], key=rank.get)
            shared = compelled[x] <= parents[y] <= parents[x] | {x}
            compelled[y] = compelled[x] if shared else parents[y]
    cpdag = skeleton(adjacency)
    for y, found in enumerate(compelled):
        cpdag[y, list(found)] = False
    return cpdag


def markov_equivalent(first, second):
    """Whether two DAGs imply the same independences."""
    return np.array_equal(to_cpdag(first), to_cpdag(second))


def closure(graph):
    """Which node of an acyclic graph reaches which by one edge or more."""
    children, n_bytes = _children_of(graph), -(-len(graph) // 8)
    reach = [0] * len(graph)  # sets of nodes, as the bits of integers
    for node in reversed(topological_order(graph)):
        for child in children[node]:
            reach[node] |= reach[child] | 1 << child
    packed = b"".join(found.to_bytes(n_bytes, "little") for found in reach)
    packed = np.frombuffer(packed, dtype=np.uint8).reshape(len(graph), n_bytes)
    bits = np.unpackbits(packed, axis=1, count=len(graph), bitorder="little")
    return bits.astype(bool)


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
