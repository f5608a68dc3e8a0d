"""What networks share: names and the graph, and checks that name the wrong node."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cached_property
from html import escape
from numbers import Integral
from typing import Any

import numpy as np

from skprivbn.bayesian_network._dag import (
    graph_of,
    markov_equivalent,
    to_cpdag,
    topological_order,
)
from skprivbn.bayesian_network._labels import is_missing, sorted_states
from skprivbn.utils import html_table, import_optional


class FrozenMapping(Mapping):
    """A read-only mapping.

    Like ``types.MappingProxyType``, which neither copies nor pickles, and so cannot be
    a parameter of an estimator.

    Parameters
    ----------
    values : mapping

    Examples
    --------
    >>> from skprivbn.bayesian_network._base import FrozenMapping
    >>> FrozenMapping({"smoker": ("no", "yes")})
    {'smoker': ('no', 'yes')}
    """

    def __init__(self, values: Mapping) -> None:
        self._values = dict(values)

    def __getitem__(self, key: Any) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __or__(self, other: Mapping) -> dict:
        return self._values | dict(other)

    def __ror__(self, other: Mapping) -> dict:
        return dict(other) | self._values

    def __deepcopy__(self, memo: dict) -> "FrozenMapping":
        # as for a tuple of numbers: what cannot change need not be copied
        return self

    def __repr__(self) -> str:
        return repr(self._values)


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


class NetworkValue:
    """An immutable value: a frozen dataclass, whose `__post_init__` checks fields."""

    def _set(self, **checked):
        """Set fields, mappings as such that nobody can change."""
        for name, value in checked.items():
            value = FrozenMapping(value) if isinstance(value, Mapping) else value
            object.__setattr__(self, name, value)

    def _values(self):
        return [getattr(self, f.name) for f in fields(self)]

    def __reduce__(self):
        plain = (dict(v) if isinstance(v, Mapping) else v for v in self._values())
        return type(self), tuple(plain)

    def __eq__(self, other):
        if not isinstance(other, type(self)):
            return NotImplemented
        return all(map(_is_same, self._values(), other._values()))


class BaseNetwork(NetworkValue, ABC):
    """A network with `nodes` and an `adjacency_matrix`."""

    nodes: Sequence[str]
    parents: Mapping

    @cached_property
    def adjacency_matrix(self) -> np.ndarray:
        """Boolean (n_nodes, n_nodes) matrix, true at [i, j] for an edge i -> j."""
        place = {node: i for i, node in enumerate(self.nodes)}
        adjacency = graph_of([[place[u] for u in self.parents[v]] for v in place])
        adjacency.setflags(write=False)
        return adjacency

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
        rows = [
            (node, ", ".join(self._parents(j)), self._describe(node))
            for j, node in enumerate(self.nodes)
        ]
        table = html_table(["node", "parents", "parameters"], rows)
        head = f"<summary><code>{escape(repr(self))}</code></summary>"
        return f"<details>{head}{table}</details>"

    def _parents(self, j):
        return [self.nodes[i] for i in np.flatnonzero(self.adjacency_matrix[:, j])]

    @abstractmethod
    def _describe(self, node):
        """Return a node's parameters in a few words."""


# Published networks print seven digits: three times 0.3333333 is meant to be one.
ROW_SUM_TOLERANCE = 1e-6
MAX_STATES = 256


def check_reachable(probabilities):
    """Raise if some row's observed entries have probability zero."""
    impossible = np.isnan(probabilities).any(axis=1)
    if impossible.any():
        raise ValueError(
            f"row {impossible.argmax()} has observed entries of probability zero "
            "under this network, so that nothing can be inferred from them; networks "
            "estimated with alpha > 0 have no such rows"
        )


def per_node(values, nodes, what, default=None):
    """Return a dict from node to value, out of a mapping or an aligned sequence."""
    if isinstance(values, Mapping):
        unknown = [key for key in values if key not in nodes]
        if unknown:
            raise ValueError(f"{what} names {unknown[0]!r}, which is not a node")
        absent = [node for node in nodes if node not in values]
        if absent and default is None:
            raise ValueError(f"{what} lacks node {absent[0]!r}")
        return {node: values.get(node, default) for node in nodes}
    values = list(values)
    if len(values) != len(nodes):
        raise ValueError(
            f"{what} has {len(values)} entries, but there are {len(nodes)} nodes"
        )
    return dict(zip(nodes, values))


def check_states(node, labels):
    """Return a node's labels, or 0, 1, ... if it is their number, as a tuple."""
    if isinstance(labels, Integral):
        labels = range(labels)
    if isinstance(labels, str):
        raise ValueError(
            f"the states of node {node!r} must be a sequence, or 'continuous' where "
            f"that is possible; got {labels!r}"
        )
    labels = tuple(v.item() if isinstance(v, np.generic) else v for v in labels)
    if not labels:
        raise ValueError(f"node {node!r} must have at least one state")
    for label in labels:
        if is_missing(label) or not _can_be_sent(label):
            raise ValueError(
                f"the states of node {node!r} must be strings or numbers (integers of "
                f"64 bits at most), got {label!r}: make text or numbers of the column, "
                "as by astype(str)"
            )
    if len(set(labels)) != len(labels):
        raise ValueError(f"node {node!r} has a state twice: {list(labels)}")
    return labels


def check_found(name, labels):
    """Return the labels of a column in order, whole numbers as integers."""
    labels = sorted_states(np.fromiter(labels, dtype=object))
    if len(labels) > MAX_STATES:
        advice = "declare its states, or leave it out if it is a key or a date"
        if not isinstance(labels[0], str):
            advice = (
                "discretise it first, for example by pandas.cut(..., labels=False), "
                "declare its states, or take FederatedBayesianNetwork with "
                f"states={{{name!r}: 'continuous'}}; leave it out if it numbers the "
                "rows"
            )
        raise ValueError(
            f"column {name!r} has {len(labels)} different values, more than "
            f"{MAX_STATES}: {advice}"
        )
    for label in labels:
        if isinstance(label, float) and not label.is_integer():
            raise ValueError(
                f"column {name!r} has the non-integer value {label!r}: discretise "
                "continuous columns first, as FederatedKBinsDiscretizer does, declare "
                "its states, or take FederatedBayesianNetwork with "
                f"states={{{name!r}: 'continuous'}}"
            )
    labels = [int(label) if isinstance(label, float) else label for label in labels]
    return list(check_states(name, labels))


def known_states(states, nodes, declared):
    """Return the labels of every node, as far as they are known before the data.

    Parameters
    ----------
    states : mapping, sequence or None
        What the user gives.
    nodes : sequence of str
    declared : mapping of str to list
        Categories that come with the data, used if the user gives nothing.

    Returns
    -------
    states : list of (list or None), or None
        None if nothing is known of a node, or of all.
    """
    if states is None:
        states = {node: declared.get(node) for node in nodes}
    given = per_node(states, nodes, "states", default=None)
    known = [
        None if given[node] is None else list(check_states(node, given[node]))
        for node in nodes
    ]
    return None if all(labels is None for labels in known) else known


def _can_be_sent(label):
    """Whether it is a number or text that messages between parties can hold."""
    if isinstance(label, str):
        # text from broken files may hold half a character
        return label.isascii() or label == label.encode(errors="replace").decode()
    if isinstance(label, int):
        return -(2**63) <= label < 2**63
    return isinstance(label, float)


def check_parents(node, parents, nodes):
    """Return the names of a node's parents as a tuple."""
    if isinstance(parents, str):
        raise ValueError(
            f"the parents of node {node!r} must be a sequence, got {parents!r}"
        )
    parents = tuple(parents)
    for parent in parents:
        if parent not in nodes:
            raise ValueError(f"node {node!r} has parent {parent!r}, which is no node")
    if len(set(parents)) != len(parents):
        raise ValueError(f"node {node!r} has a parent twice: {list(parents)}")
    return parents


def check_cpt(node, cpt, shape):
    """Return a conditional probability table as a read-only array."""
    cpt = np.array(cpt, dtype=float)
    if cpt.shape != tuple(shape):
        raise ValueError(
            f"the table of node {node!r} must have shape {tuple(shape)} (the states of "
            f"its parents, then its own), got {cpt.shape}"
        )
    if not ((cpt >= 0) & (cpt <= 1)).all():
        raise ValueError(f"the table of node {node!r} must hold probabilities")
    off = np.abs(cpt.sum(axis=-1) - 1)
    if off.max() > ROW_SUM_TOLERANCE:
        row = tuple(int(i) for i in np.unravel_index(off.argmax(), off.shape))
        raise ValueError(
            f"the table of node {node!r} must sum to 1 along its last axis, got "
            f"{cpt[row].sum():.8g} at parent states {row}"
        )
    cpt.setflags(write=False)
    return cpt
