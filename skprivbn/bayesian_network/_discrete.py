"""A Bayesian network over variables with finitely many states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from skprivbn.bayesian_network import _bif
from skprivbn.bayesian_network._base import (
    BaseNetwork,
    check_cpt,
    check_names,
    check_parents,
    check_reachable,
    check_states,
    known_states,
    per_node,
)
from skprivbn.bayesian_network._dag import check_dag
from skprivbn.bayesian_network._inference import Inference
from skprivbn.bayesian_network._labels import (
    MISSING,
    check_columns,
    decode,
    encode,
    feature_names,
    smoothed,
    sorted_states,
)
from skprivbn.utils import import_optional
from skprivbn.utils._typing import RandomStateLike, WeightsLike
from skprivbn.utils._validation import declared_categories


@dataclass(frozen=True, eq=False, repr=False)
class BayesianNetwork(BaseNetwork):
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
        self._set(nodes=nodes, states=states, parents=parents)
        check_dag(self.adjacency_matrix, nodes)
        tables = {
            node: check_cpt(
                node, cpts[node], [len(states[v]) for v in (*parents[node], node)]
            )
            for node in nodes
        }
        self._set(cpts=tables)

    @property
    def n_parameters(self) -> int:
        """Number of free probabilities."""
        return sum(cpt.size - cpt.size // cpt.shape[-1] for cpt in self.cpts.values())

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

    @cached_property
    def _inference(self):
        index = {node: i for i, node in enumerate(self.nodes)}
        return Inference(
            [self.cpts[node] for node in self.nodes],
            [[index[v] for v in (*self.parents[node], node)] for node in self.nodes],
            [len(self.states[node]) for node in self.nodes],
        )

    def encode(self, X: ArrayLike) -> np.ndarray:
        """Return the codes of a table of labels.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_nodes)
            Labels; None and NaN are missing.

        Returns
        -------
        codes : ndarray of int, shape (n_samples, n_nodes)
            Position of each label in the node's states, -1 where it is missing.
        """
        return encode(X, self.nodes, self.states)

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """Return the labels of a table of codes.

        Parameters
        ----------
        codes : ndarray of int, shape (n_samples, n_nodes)
            Positions in the nodes' states, none of them missing.

        Returns
        -------
        X : ndarray of shape (n_samples, n_nodes)
            Boolean, integer or float if all labels are, and otherwise object.
        """
        return decode(np.asarray(codes), self.nodes, self.states)

    def log_likelihood(self, X: ArrayLike) -> np.ndarray:
        """Return the log-probability of each row.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_nodes)
            Labels; missing entries are summed out.

        Returns
        -------
        log_likelihood : ndarray of shape (n_samples,)
            Minus infinity for an impossible row.
        """
        return self._inference.log_likelihood(self.encode(X))

    def predict_proba(self, X: ArrayLike) -> list[np.ndarray]:
        """Return the distribution of every entry, given the observed ones of its row.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_nodes)
            Labels; None and NaN are missing.

        Returns
        -------
        probabilities : list of ndarray of shape (n_samples, n_states)
            One array per column. An entry that is observed is certain.
        """
        return self._posteriors(self.encode(X))

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Return X with every missing entry replaced by its most probable value.

        Each entry is the mode of its own distribution in :meth:`predict_proba`, which
        makes as few wrong entries as possible; taken together, the entries of a row
        need not be its most probable joint completion.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_nodes)
            Labels; None and NaN are missing.

        Returns
        -------
        X_completed : ndarray of shape (n_samples, n_nodes)
        """
        codes = self.encode(X)
        modes = [table.argmax(axis=1) for table in self._posteriors(codes)]
        completed = np.where(codes == MISSING, np.transpose(modes), codes)
        return self.decode(completed)

    def _posteriors(self, codes):
        result = self._inference.posteriors(codes)
        for table in result:
            check_reachable(table)
        return result

    def query(
        self, nodes: str | Sequence[str], evidence: Mapping[str, Any] | None = None
    ) -> np.ndarray:
        """Return the joint distribution of some nodes, given the values of others.

        Asked for one node after the other with the same evidence, all nodes are
        answered in one go at the second question, and looked up from then on.

        Parameters
        ----------
        nodes : str or sequence of str
            Whose distribution to return.

        evidence : mapping of str to label, default=None
            Observed values.

        Returns
        -------
        probabilities : ndarray
            One axis per node, in the order given; sums to 1.
        """
        names = [nodes] if isinstance(nodes, str) else list(nodes)
        keep = self._indices(names)
        if len(set(keep)) != len(keep):
            raise ValueError(f"a node is asked for twice in {names}")
        observed = self._encode_evidence(evidence, names)
        if len(keep) == 1:
            shared = self._shared_posteriors(observed)
            if keep[0] in shared:
                return shared[keep[0]].copy()
        table = self._inference.joint(keep, observed)
        total = table.sum()
        if total == 0:
            raise ValueError(f"the evidence has probability zero: {evidence}")
        ascending = sorted(keep)
        return table.transpose([ascending.index(i) for i in keep]) / total

    def _shared_posteriors(self, observed):
        """Return the posteriors of all nodes if the last question was the same."""
        key = frozenset(observed.items())
        last, shared = vars(self).get("_last_asked", (None, None))
        if last != key:
            shared = None  # a single question is answered faster by itself
        elif shared is None:
            shared = self._all_posteriors(observed)
        # not a field of the network: a network does not change
        vars(self)["_last_asked"] = key, shared
        return shared or {}

    def _all_posteriors(self, observed):
        """Return the posterior of every node; none if evidence is impossible."""
        codes = np.full((1, len(self.nodes)), MISSING, dtype=np.intp)
        codes[0, list(observed)] = list(observed.values())
        try:
            tables = self._inference.posteriors(codes)
        except ValueError:  # all nodes together need more memory than one
            return {}
        if self._inference.log_likelihood(codes)[0] == -np.inf:
            return {}
        return {i: table[0] for i, table in enumerate(tables)}

    def _encode_evidence(self, evidence, asked):
        codes = {}
        for node, label in ({} if evidence is None else dict(evidence)).items():
            (i,) = self._indices([node])
            if node in asked:
                raise ValueError(f"node {node!r} is both asked for and observed")
            if label not in self.states[node]:
                raise ValueError(
                    f"node {node!r} cannot be {label!r}; its states are "
                    f"{list(self.states[node])}"
                )
            codes[i] = self.states[node].index(label)
        return codes

    def sample(
        self,
        n_samples: int = 1,
        random_state: RandomStateLike = None,
        *,
        evidence: Mapping[str, Any] | None = None,
    ) -> np.ndarray:
        """Draw rows, parents before children.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows.

        random_state : int, RandomState instance or None, default=None
            Pass an int for reproducible rows.

        evidence : mapping of str to label, default=None
            Values that all rows have: the others are drawn given these.

        Returns
        -------
        X : ndarray of shape (n_samples, n_nodes)
            Labels.
        """
        rng = check_random_state(random_state)
        observed = self._encode_evidence(evidence, ())
        if observed:
            return self.decode(self._draw_given(rng, n_samples, observed))
        codes = np.zeros((n_samples, len(self.nodes)), dtype=np.intp)
        for i in self.topological_order:
            cumulated = self._inference.tables[i].cumsum(axis=-1)
            cumulated /= cumulated[..., -1:]
            *parents, _ = self._inference.families[i]
            rows = cumulated[tuple(codes[:, parent] for parent in parents)]
            uniform = rng.uniform(size=(n_samples, 1))
            codes[:, i] = (uniform >= rows).sum(axis=1)
        return self.decode(codes)

    def _draw_given(self, rng, n_samples, observed):
        """Draw the codes of rows with some nodes observed, one node after the other."""
        codes = np.full((n_samples, len(self.nodes)), MISSING, dtype=np.intp)
        codes[:, list(observed)] = list(observed.values())
        for i in self.topological_order:
            if i not in observed:
                # rows that are alike so far have the same distribution
                distinct, kind = np.unique(codes, axis=0, return_inverse=True)
                shares = self._posteriors(distinct)[i].cumsum(axis=1)[kind.ravel()]
                uniform = rng.uniform(size=(n_samples, 1)) * shares[:, -1:]
                codes[:, i] = (uniform >= shares).sum(axis=1)
        return codes

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
