"""A Bayesian network over discrete and continuous variables: conditional Gaussian."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from skprivbn.bayesian_network._base import (
    BaseNetwork,
    check_names,
    check_parents,
    check_reachable,
    per_node,
)
from skprivbn.bayesian_network._dag import check_dag
from skprivbn.bayesian_network._discrete import BayesianNetwork
from skprivbn.bayesian_network._labels import MISSING, check_columns
from skprivbn.bayesian_network._mixed_inference import MixedInference
from skprivbn.utils._typing import RandomStateLike
from skprivbn.utils._validation import to_numbers


@dataclass(frozen=True, eq=False, repr=False)
class ConditionalGaussianBayesianNetwork(BaseNetwork):
    """A network of discrete and continuous variables: an immutable value.

    A continuous node is a linear function of its continuous parents plus Gaussian
    noise, with coefficients and variance of its own for every configuration of its
    discrete parents. Discrete nodes have discrete parents only. Given all discrete
    nodes, the continuous ones are jointly Gaussian [1]_.

    Parameters
    ----------
    nodes : sequence of str
        Names of the variables, in the order of the columns of a table.
    states : mapping of str to sequence
        Labels of the discrete nodes. The other nodes are continuous.
    parents : mapping of str to sequence of str
        Names of every node's parents; a node that is left out has none.
    cpts : mapping of str to array-like
        Conditional probability tables of the discrete nodes, as in
        :class:`BayesianNetwork`.
    intercepts : mapping of str to array-like
        For every continuous node an array with one axis per discrete parent.
    weights : mapping of str to array-like
        The same with one more axis, for the continuous parents in their order.
    variances : mapping of str to array-like
        Variances of the noise, above zero, shaped like the intercepts.

    See Also
    --------
    BayesianNetwork : Discrete variables only.
    GaussianBayesianNetwork : Continuous variables only.

    References
    ----------
    .. [1] S. Lauritzen, "Propagation of Probabilities, Means and Variances in Mixed
       Graphical Association Models", JASA 87, 1992.

    Examples
    --------
    >>> from skprivbn.bayesian_network import ConditionalGaussianBayesianNetwork
    >>> network = ConditionalGaussianBayesianNetwork(
    ...     nodes=["sick", "temperature"],
    ...     states={"sick": ["no", "yes"]},
    ...     parents={"temperature": ["sick"]},
    ...     cpts={"sick": [0.9, 0.1]},
    ...     intercepts={"temperature": [36.8, 38.8]},
    ...     weights={"temperature": [[], []]},
    ...     variances={"temperature": [0.1, 0.5]},
    ... )
    >>> network.predict([[None, 39.0], ["no", None]])
    array([['yes', 39.0],
           ['no', 36.8]], dtype=object)
    """

    nodes: Sequence[str]
    states: Mapping
    parents: Mapping
    cpts: Mapping
    intercepts: Mapping
    weights: Mapping
    variances: Mapping

    def __post_init__(self):
        nodes = check_names(self.nodes)
        parents = per_node(self.parents, nodes, "parents", default=())
        parents = {node: check_parents(node, parents[node], nodes) for node in nodes}
        self._set(nodes=nodes, parents=parents)
        discrete = [node for node in nodes if node in self.states]
        for node in discrete:
            wrong = [parent for parent in parents[node] if parent not in self.states]
            if wrong:
                raise ValueError(
                    f"discrete node {node!r} has the continuous parent {wrong[0]!r}: "
                    "only continuous nodes can have continuous parents"
                )
        for name in ("states", "cpts"):
            self._set(**{name: getattr(self._discrete, name, {})})
        check_dag(self.adjacency_matrix, nodes)
        for name in ("intercepts", "weights", "variances"):
            given = per_node(getattr(self, name), self.continuous, name)
            checked = {
                node: self._check_numbers(name, node, given[node]) for node in given
            }
            self._set(**{name: checked})

    @cached_property
    def _discrete(self) -> BayesianNetwork | None:
        """The network of the discrete nodes, if there are any."""
        nodes = [node for node in self.nodes if node in self.states]
        if not nodes:
            return None
        parents = {node: self.parents[node] for node in nodes}
        return BayesianNetwork(nodes, self.states, parents, self.cpts)

    def _check_numbers(self, name, node, values):
        shape = tuple(len(self.states[v]) for v in self.discrete_parents(node))
        if name == "weights":
            shape = (*shape, len(self.continuous_parents(node)))
        values = np.array(values, dtype=np.float64)
        if values.shape != shape and values.size == 0 == np.prod(shape):
            values = values.reshape(shape)
        if values.shape != shape:
            raise ValueError(
                f"{name} of node {node!r} must have shape {shape}, got {values.shape}"
            )
        if not np.isfinite(values).all() or (name == "variances" and values.min() <= 0):
            raise ValueError(
                f"{name} of node {node!r} must be finite, and variances above zero"
            )
        values.setflags(write=False)
        return values

    @property
    def continuous(self) -> tuple[str, ...]:
        """Names of the continuous nodes."""
        return tuple(node for node in self.nodes if node not in self.states)

    def discrete_parents(self, node: str) -> list[str]:
        """Return the discrete parents of a node, in order.

        Parameters
        ----------
        node : str

        Returns
        -------
        parents : list of str
        """
        return [parent for parent in self.parents[node] if parent in self.states]

    def continuous_parents(self, node: str) -> list[str]:
        """Return the continuous parents of a node, in order.

        Parameters
        ----------
        node : str

        Returns
        -------
        parents : list of str
        """
        return [parent for parent in self.parents[node] if parent not in self.states]

    @property
    def n_parameters(self) -> int:
        """Number of free probabilities, coefficients and variances."""
        discrete = 0 if self._discrete is None else self._discrete.n_parameters
        return discrete + sum(
            2 * self.intercepts[node].size + self.weights[node].size
            for node in self.continuous
        )

    def _node_attributes(self, node):
        if node in self.states:
            return {"states": self.states[node], "cpt": self.cpts[node]}
        fields = ("intercepts", "weights", "variances")
        return {name: getattr(self, name)[node] for name in fields}

    def _describe(self, node):
        if node in self.states:
            return f"{len(self.states[node])} states"
        n_lines = self.intercepts[node].size
        return f"continuous, {n_lines} regression{'s' if n_lines > 1 else ''}"

    @cached_property
    def _inference(self):
        return MixedInference(self)

    def _encode(self, X):
        """Return codes of the discrete columns and numbers of the continuous ones."""
        X = check_columns(X, self.nodes)
        place = {node: j for j, node in enumerate(self.nodes)}
        codes = np.zeros((len(X), 0), dtype=np.intp)
        if self._discrete is not None:
            codes = self._discrete.encode(
                X[:, [place[v] for v in self._discrete.nodes]]
            )
        values = to_numbers(X[:, [place[v] for v in self.continuous]])
        if np.isinf(values).any():
            raise ValueError("X contains infinity")
        return codes, values

    def log_likelihood(self, X: ArrayLike) -> np.ndarray:
        """Return the log-density of each row.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_nodes)
            Labels and numbers; missing entries are summed or integrated out.

        Returns
        -------
        log_likelihood : ndarray of shape (n_samples,)
        """
        return self._inference.log_likelihood(*self._encode(X))

    def predict_proba(self, X: ArrayLike) -> list[np.ndarray]:
        """Return the distribution of every entry, given the observed ones of its row.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_nodes)
            Labels and numbers; None and NaN are missing.

        Returns
        -------
        probabilities : list of ndarray of shape (n_samples, n_states)
            One array per column; for continuous columns its mean and variance.
        """
        tables, mean, variance = self._inference.posteriors(*self._encode(X))
        for table in tables:
            check_reachable(table)
        by_node = dict(zip(self.continuous, np.stack([mean.T, variance.T], axis=-1)))
        if self._discrete is not None:
            by_node |= dict(zip(self._discrete.nodes, tables))
        return [by_node[node] for node in self.nodes]

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Return X with every missing entry replaced: by its mode, or by its mean.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_nodes)
            Labels and numbers; None and NaN are missing.

        Returns
        -------
        X_completed : ndarray of object of shape (n_samples, n_nodes)
        """
        codes, values = self._encode(X)
        completed = np.empty((len(codes), len(self.nodes)), dtype=object)
        discrete = () if self._discrete is None else self._discrete.nodes
        found = dict(zip(self.nodes, self.predict_proba(X)))
        for j, node in enumerate(self.nodes):
            if node in self.states:
                own = codes[:, discrete.index(node)]
                own = np.where(own == MISSING, found[node].argmax(axis=1), own)
                completed[:, j] = [self.states[node][code] for code in own]
            else:
                own = values[:, self.continuous.index(node)]
                completed[:, j] = np.where(np.isnan(own), found[node][:, 0], own)
        return completed

    def query(self, node: str, evidence: Mapping[str, Any] | None = None) -> np.ndarray:
        """Return the distribution of a node, given the values of others.

        Parameters
        ----------
        node : str
            Whose distribution to return.
        evidence : mapping of str to label or float, default=None
            Observed values.

        Returns
        -------
        probabilities : ndarray
            Of the states; of a continuous node its mean and variance.
        """
        evidence = {} if evidence is None else dict(evidence)
        self._indices([node, *evidence])
        if node in evidence:
            raise ValueError(f"node {node!r} is both asked for and observed")
        row = np.array([[evidence.get(v) for v in self.nodes]], dtype=object)
        return self.predict_proba(row)[self.nodes.index(node)][0]

    def sample(
        self, n_samples: int = 1, random_state: RandomStateLike = None
    ) -> np.ndarray:
        """Draw rows, parents before children.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows.
        random_state : int, RandomState instance or None, default=None
            Pass an int for reproducible rows.

        Returns
        -------
        X : ndarray of object of shape (n_samples, n_nodes)
        """
        rng = check_random_state(random_state)
        codes = np.zeros((n_samples, 0), dtype=np.intp)
        X = np.empty((n_samples, len(self.nodes)), dtype=object)
        if self._discrete is not None:
            drawn = self._discrete.sample(n_samples, rng)
            codes = self._discrete.encode(drawn)
            X[:, [self.nodes.index(v) for v in self._discrete.nodes]] = drawn
        values = np.zeros((n_samples, len(self.continuous)))
        for j in self._inference.order:
            mean, variance = self._inference.regression(j, codes, values)
            values[:, j] = mean + np.sqrt(variance) * rng.standard_normal(n_samples)
        X[:, [self.nodes.index(v) for v in self.continuous]] = values
        return X
