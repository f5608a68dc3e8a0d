"""What discrete and Gaussian networks share: names and the graph."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cached_property
from html import escape
from typing import Any

import numpy as np

from skprivbn.bayesian_network._dag import (
    markov_equivalent,
    to_cpdag,
    topological_order,
)
from skprivbn.utils import import_optional


def check_names(nodes):
    """Return node names as a tuple of distinct strings."""
    if isinstance(nodes, str):
        raise ValueError(f"nodes must be a sequence of names, got {nodes!r}")
    nodes = tuple(str(v) if isinstance(v, np.str_) else v for v in nodes)
    if not nodes:
        raise ValueError("a network must have at least one node")
    for node in nodes:
        if not isinstance(node, str):
            raise ValueError(f"names of nodes must be strings, got {node!r}")
    if len(set(nodes)) != len(nodes):
        twice = next(node for node in nodes if nodes.count(node) > 1)
        raise ValueError(f"node {twice!r} is named twice")
    return nodes


def _is_same(one, other):
    """Whether two fields are equal; labels with their types, since 1 == 1.0 == True."""
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(
            _is_same(value, other[key]) for key, value in one.items()
        )
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other)
    return one == other and [*map(type, one)] == [*map(type, other)]


class BaseNetwork(ABC):
    """A network with `nodes` and an `adjacency_matrix`."""

    nodes: Sequence[str]
    parents: Mapping

    @cached_property
    def adjacency_matrix(self) -> np.ndarray:
        """Boolean (n_nodes, n_nodes) matrix, true at [i, j] for an edge i -> j."""
        place = {node: i for i, node in enumerate(self.nodes)}
        adjacency = np.zeros((len(place), len(place)), dtype=bool)
        for node, found in self.parents.items():
            adjacency[[place[parent] for parent in found], place[node]] = True
        adjacency.setflags(write=False)
        return adjacency

    def _values(self):
        return [getattr(self, f.name) for f in fields(self)]

    def __reduce__(self):
        plain = (dict(v) if isinstance(v, Mapping) else v for v in self._values())
        return type(self), tuple(plain)

    def __eq__(self, other):
        if not isinstance(other, type(self)):
            return NotImplemented
        return all(map(_is_same, self._values(), other._values()))

    def __hash__(self):
        return hash((self.nodes, self.adjacency_matrix.tobytes()))

    @property
    @abstractmethod
    def n_parameters(self) -> int:
        """Number of free parameters."""

    @abstractmethod
    def _node_attributes(self, node):
        """Return what a networkx graph keeps of a node."""

    def _edge_attributes(self, parent, child):
        return {}

    @property
    def edges(self) -> list[tuple[str, str]]:
        """List of (parent, child) names, by parent in the order of the nodes."""
        return [
            (self.nodes[i], self.nodes[j])
            for i, j in np.argwhere(self.adjacency_matrix)
        ]

    @cached_property
    def topological_order(self):
        """Tuple of node indices in which parents come before their children."""
        return tuple(topological_order(self.adjacency_matrix))

    def _indices(self, names):
        for name in names:
            if name not in self.nodes:
                raise ValueError(
                    f"{name!r} is not a node; the nodes are {list(self.nodes)}"
                )
        return [self.nodes.index(name) for name in names]

    def to_cpdag(self) -> np.ndarray:
        """Return the graph of the network's Markov equivalence class.

        Returns
        -------
        cpdag : ndarray of bool, shape (n_nodes, n_nodes)
            An edge that may point either way is present in both directions.
        """
        return to_cpdag(self.adjacency_matrix)

    def is_markov_equivalent(self, other: Any) -> bool:
        """Tell whether another network's graph implies the same independences.

        Parameters
        ----------
        other : BayesianNetwork or GaussianBayesianNetwork
            Nodes are matched by name.

        Returns
        -------
        equivalent : bool
        """
        if set(self.nodes) != set(other.nodes):
            return False
        order = [other.nodes.index(node) for node in self.nodes]
        theirs = other.adjacency_matrix[np.ix_(order, order)]
        return markov_equivalent(self.adjacency_matrix, theirs)

    def to_networkx(self) -> Any:
        """Return the network as a ``networkx.DiGraph``.

        Returns
        -------
        graph : networkx.DiGraph
            With the parameters as attributes of its nodes and edges.
        """
        networkx = import_optional("networkx", "to_networkx")
        graph = networkx.DiGraph()
        for node in self.nodes:
            graph.add_node(node, **self._node_attributes(node))
        for parent, child in self.edges:
            graph.add_edge(parent, child, **self._edge_attributes(parent, child))
        return graph

    def __repr__(self):
        return (
            f"{type(self).__name__}(n_nodes={len(self.nodes)}, "
            f"n_edges={len(self.edges)}, n_parameters={self.n_parameters})"
        )

    def _repr_html_(self):
        rows = "".join(
            f"<tr><td>{escape(node)}</td><td>{escape(', '.join(self._parents(j)))}</td>"
            f"<td>{escape(self._describe(node))}</td></tr>"
            for j, node in enumerate(self.nodes)
        )
        head = "<tr><th>node</th><th>parents</th><th>parameters</th></tr>"
        return (
            f"<details><summary><code>{escape(repr(self))}</code></summary>"
            f"<table><thead>{head}</thead><tbody>{rows}</tbody></table></details>"
        )

    def _parents(self, j):
        return [self.nodes[i] for i in np.flatnonzero(self.adjacency_matrix[:, j])]

    @abstractmethod
    def _describe(self, node):
        """Return a node's parameters in a few words."""
