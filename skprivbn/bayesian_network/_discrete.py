"""A Bayesian network over variables with finitely many states."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from skprivbn.bayesian_network import _bif
from skprivbn.bayesian_network._base import check_names
from skprivbn.bayesian_network._checks import (
    check_cpt,
    check_parents,
    check_states,
    known_states,
    per_node,
)
from skprivbn.bayesian_network._dag import check_dag
from skprivbn.bayesian_network._discrete_queries import DiscreteQueries
from skprivbn.bayesian_network._labels import (
    MISSING,
    check_columns,
    encode,
    feature_names,
    sorted_states,
)
from skprivbn.bayesian_network._tables import smoothed
from skprivbn.utils import import_optional
from skprivbn.utils._frozen import FrozenMapping
from skprivbn.utils._typing import WeightsLike
from skprivbn.utils._validation import declared_categories


@dataclass(frozen=True, eq=False, repr=False)
class BayesianNetwork(DiscreteQueries):
    """A discrete Bayesian network: an immutable value.

    Missing entries of a table (None or NaN) are summed out exactly, by variable
    elimination. Tables hold the original labels of the states, not codes.

    Parameters
    ----------
    nodes : sequence of str
        Names of the variables, in the order of the columns of a table.

    states : mapping or list
        Labels of every node's states: strings, integers, floats or booleans; or their
        number k for 0, ..., k - 1.

    parents : mapping of str to sequence of str, or sequence of sequences
        Names of every node's parents. In a mapping, a node that is left out has none.

    cpts : mapping of str to array-like, or sequence of array-like
        Conditional probability tables. The axes of a node's table are its parents,
        in their order, and then the node itself, so that the last axis sums to 1.
        Tables are kept as they are given, also if a row's sum is off by a rounding
        error of at most 1e-6; what is inferred from them is normalised.

    See Also
    --------
    GaussianBayesianNetwork : The same for continuous variables.

    Examples
    --------
    >>> from skprivbn.bayesian_network import BayesianNetwork
    >>> network = BayesianNetwork(
    ...     nodes=["rain", "wet"],
    ...     states={"rain": ["yes", "no"], "wet": ["yes", "no"]},
    ...     parents={"wet": ["rain"]},
    ...     cpts={"rain": [0.25, 0.75], "wet": [[0.9, 0.1], [0.1, 0.9]]},
    ... )
    >>> network.query("rain", {"wet": "yes"})
    array([0.75, 0.25])
    >>> network.predict([[None, "yes"], [None, "no"]])
    array([['yes', 'yes'],
           ['no', 'no']], dtype=object)
    """

    nodes: Sequence[str]
    states: Mapping
    parents: Mapping
    cpts: Mapping

    def __post_init__(self):
        nodes = check_names(self.nodes)
        states = per_node(self.states, nodes, "states")
        parents = per_node(self.parents, nodes, "parents", default=())
        cpts = per_node(self.cpts, nodes, "cpts")
        states = {node: check_states(node, states[node]) for node in nodes}
        parents = {node: check_parents(node, parents[node], nodes) for node in nodes}
        for name, value in (
            ("nodes", nodes),
            ("states", FrozenMapping(states)),
            ("parents", FrozenMapping(parents)),
        ):
            object.__setattr__(self, name, value)
        check_dag(self.adjacency_matrix, nodes)
        tables = {
            node: check_cpt(
                node, cpts[node], [len(states[v]) for v in (*parents[node], node)]
            )
            for node in nodes
        }
        object.__setattr__(self, "cpts", FrozenMapping(tables))

    def __reduce__(self):
        fields = (self.states, self.parents, self.cpts)
        return type(self), (self.nodes, *(dict(field) for field in fields))

    def __eq__(self, other):
        if not isinstance(other, BayesianNetwork):
            return NotImplemented
        return (
            self.nodes == other.nodes
            and self._typed_states == other._typed_states
            and self.parents == other.parents
            and all(np.array_equal(self.cpts[v], other.cpts[v]) for v in self.nodes)
        )

    def __hash__(self):
        return hash((self.nodes, self._typed_states, tuple(self.parents.items())))

    def _summary(self):
        return f"n_parameters={self.n_parameters}"

    @cached_property
    def adjacency_matrix(self):
        """Boolean (n_nodes, n_nodes) matrix, true at [i, j] for an edge i -> j."""
        adjacency = np.zeros((len(self.nodes),) * 2, dtype=bool)
        for j, node in enumerate(self.nodes):
            adjacency[
                [self.nodes.index(parent) for parent in self.parents[node]], j
            ] = 1
        adjacency.setflags(write=False)
        return adjacency

    @property
    def n_parameters(self) -> int:
        """Number of free probabilities."""
        return sum(cpt.size - cpt.size // cpt.shape[-1] for cpt in self.cpts.values())

    @cached_property
    def _typed_states(self):
        """Labels with their types, since 1, 1.0 and True compare equal."""
        return tuple(
            tuple((type(label), label) for label in self.states[node])
            for node in self.nodes
        )

    @classmethod
    def from_counts(
        cls,
        nodes: Sequence[str],
        states: Any,
        parents: Any,
        counts: Mapping[str, ArrayLike] | Sequence,
        *,
        alpha: float = 0.0,
    ) -> Self:
        """Estimate the tables from how often each configuration was seen.

        Parameters
        ----------
        nodes, states, parents
            As in the constructor.

        counts : mapping of str to array-like, or sequence of array-like
            Shaped like the tables.

        alpha : float, default=0.0
            Pseudo-count added to every cell: the posterior mean under a symmetric
            Dirichlet prior. A row that stays without any count becomes uniform.

        Returns
        -------
        network : BayesianNetwork
        """
        if not alpha >= 0:
            raise ValueError(f"alpha must be a number of at least 0, got {alpha!r}")
        nodes = check_names(nodes)
        cpts = {}
        for node, table in per_node(counts, nodes, "counts").items():
            table = np.asarray(table, dtype=float)
            if table.ndim == 0 or not np.isfinite(table).all() or (table < 0).any():
                raise ValueError(
                    f"the counts of node {node!r} must be finite and not negative"
                )
            cpts[node] = smoothed(table, alpha)
        return cls(nodes, states, parents, cpts)

    @classmethod
    def from_data(
        cls,
        X: ArrayLike,
        parents: Mapping[str, Sequence[str]] | Sequence,
        *,
        nodes: Sequence[str] | None = None,
        states: Mapping | Sequence | None = None,
        alpha: float = 1.0,
        sample_weight: WeightsLike | None = None,
    ) -> Self:
        """Estimate the tables of a known structure from complete rows.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_nodes)
            Labels without missing entries.

        parents : mapping of str to sequence of str, or sequence of sequences
            As in the constructor.

        nodes : sequence of str, default=None
            Names of the columns; by default those of a data frame, and otherwise
            x0, x1, ...

        states : mapping or list, default=None
            As in the constructor. None takes the categories that a data frame
            declares, and for other columns the labels that occur, in ascending order.

        alpha : float, default=1.0
            Pseudo-count added to every cell, see :meth:`from_counts`.

        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        network : BayesianNetwork
        """
        if nodes is None:
            nodes = feature_names(X) or [f"x{j}" for j in range(np.shape(X)[1])]
        nodes = check_names(nodes)
        declared = dict(zip(nodes, declared_categories(X)))
        X = check_columns(X, nodes)
        weights = _check_weights(sample_weight, len(X))
        known = known_states(states, nodes, declared) or [None] * len(nodes)
        states = {
            node: check_states(node, labels or sorted_states(column))
            for node, labels, column in zip(nodes, known, X.T)
        }
        parents = per_node(parents, nodes, "parents", default=())
        parents = {node: check_parents(node, parents[node], nodes) for node in nodes}
        codes = encode(X, nodes, states)
        if (codes == MISSING).any():
            raise ValueError("X has missing entries; drop or complete these rows first")
        counts = {}
        for node in nodes:
            family = [nodes.index(v) for v in (*parents[node], node)]
            shape = [len(states[nodes[i]]) for i in family]
            cells = np.ravel_multi_index([codes[:, i] for i in family], shape)
            counts[node] = np.bincount(
                cells, weights=weights, minlength=int(np.prod(shape))
            ).reshape(shape)
        return cls.from_counts(nodes, states, parents, counts, alpha=alpha)

    def to_bif(self, path: str | PathLike[str] | None = None) -> str:
        """Return the network as text in the Bayesian interchange format.

        Numbers are written with all their digits, so that :meth:`from_bif` gives an
        equal network back.

        Parameters
        ----------
        path : str or path-like, default=None
            A file that the text is also written to.

        Returns
        -------
        text : str
        """
        text = _bif.write_bif(self.nodes, self.states, self.parents, self.cpts)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    @classmethod
    def from_bif(cls, source: str | PathLike[str]) -> Self:
        """Read a network from the Bayesian interchange format.

        Parameters
        ----------
        source : str or path-like
            A file, or the contents of one: a string is a path if it ends in ``.bif``.

        Returns
        -------
        network : BayesianNetwork
        """
        if not isinstance(source, str) or source.endswith(".bif"):
            source = Path(source).read_text(encoding="utf-8")
        return cls(*_bif.read_bif(source))

    def to_pgmpy(self) -> Any:
        """Return the network as a ``pgmpy.models.DiscreteBayesianNetwork``.

        Returns
        -------
        model : pgmpy.models.DiscreteBayesianNetwork
        """
        TabularCPD = import_optional("pgmpy.factors.discrete", "to_pgmpy").TabularCPD
        model = import_optional("pgmpy.models", "to_pgmpy").DiscreteBayesianNetwork()
        model.add_nodes_from(self.nodes)
        model.add_edges_from(self.edges)
        for node, cpt in self.cpts.items():
            parents = self.parents[node]
            model.add_cpds(
                TabularCPD(
                    node,
                    cpt.shape[-1],
                    cpt.reshape(-1, cpt.shape[-1]).T,
                    evidence=list(parents) or None,
                    evidence_card=list(cpt.shape[:-1]) or None,
                    state_names={v: list(self.states[v]) for v in (node, *parents)},
                )
            )
        return model

    def _node_attributes(self, node):
        return {"states": self.states[node], "cpt": self.cpts[node]}

    def _describe(self, node):
        shape = " x ".join(str(size) for size in self.cpts[node].shape)
        return f"{shape} table"


def _check_weights(sample_weight, n_rows):
    if sample_weight is None:
        return None
    weights = np.asarray(sample_weight, dtype=float)
    if weights.shape != (n_rows,):
        raise ValueError(
            f"sample_weight has the shape {weights.shape}, X has {n_rows} rows: give "
            "one weight per row"
        )
    return weights
