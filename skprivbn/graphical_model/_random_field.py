"""A Markov random field over variables with finitely many states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from skprivbn.bayesian_network._base import NetworkValue, check_names
from skprivbn.bayesian_network._inference import evidence_groups
from skprivbn.bayesian_network._labels import MISSING, decode, encode
from skprivbn.graphical_model._elimination import EliminationPlan
from skprivbn.graphical_model._loopy import LoopyPropagation
from skprivbn.graphical_model._states import check_column_states
from skprivbn.utils import import_optional, warn_user
from skprivbn.utils._typing import RandomStateLike

#: cells of intermediate tables held at once when many rows are conditioned on
_CHUNK_CELLS = 2**21


@dataclass(frozen=True, eq=False, repr=False)
class MarkovRandomField(NetworkValue):
    """An undirected graphical model: an immutable value.

    The probability of a row is proportional to the exponential of the sum of its
    log-potentials over cliques. Missing entries of a table (None or NaN) are summed
    out. Tables hold the original labels of the states, not codes.

    Parameters
    ----------
    nodes : sequence of str
        Names of the variables, in the order of the columns of a table.

    states : mapping or list
        Labels of every node's states: strings, integers, floats or booleans; or their
        number k for 0, ..., k - 1.

    potentials : mapping of tuple of str to array-like
        Log-potentials of each clique, with one axis per node in the clique's order.
        Minus infinity is a structural zero.

    inference : {"exact", "loopy"}, default="exact"
        Exact inference takes time and memory exponential in the treewidth. Loopy
        belief propagation is approximate, and cannot sample.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivbn.graphical_model import MarkovRandomField
    >>> field = MarkovRandomField(
    ...     nodes=["rain", "wet"],
    ...     states={"rain": ["yes", "no"], "wet": ["yes", "no"]},
    ...     potentials={("rain", "wet"): np.log([[0.3, 0.1], [0.1, 0.5]])},
    ... )
    >>> field.query("rain", {"wet": "yes"})
    array([0.75, 0.25])
    >>> field.predict([[None, "yes"], [None, "no"]])
    array([['yes', 'yes'],
           ['no', 'no']], dtype=object)
    """

    nodes: tuple
    states: Mapping
    potentials: Mapping
    inference: str = "exact"

    def __post_init__(self):
        nodes = check_names(self.nodes)
        states = check_column_states(self.states, nodes)
        potentials = {}
        for clique, table in self.potentials.items():
            clique = _check_clique(clique, nodes)
            shape = tuple(len(states[node]) for node in clique)
            potentials[clique] = _check_table(clique, table, shape)
        if self.inference not in ("exact", "loopy"):
            raise ValueError(
                f"inference must be 'exact' or 'loopy', got {self.inference!r}"
            )
        self._set(nodes=nodes, states=states, potentials=potentials)

    def __hash__(self):
        return hash((self.nodes, tuple(self.states.items()), tuple(self.potentials)))

    def __repr__(self):
        return (
            f"MarkovRandomField(n_nodes={len(self.nodes)}, "
            f"n_cliques={len(self.potentials)})"
        )

    @property
    def cliques(self) -> list[tuple[str, ...]]:
        """List of the cliques' nodes."""
        return list(self.potentials)

    @cached_property
    def _sizes(self):
        return tuple(len(self.states[node]) for node in self.nodes)

    @cached_property
    def _scopes(self):
        return [tuple(self.nodes.index(v) for v in clique) for clique in self.cliques]

    @cached_property
    def _peaks(self):
        return [table.max(initial=-np.inf) for table in self.potentials.values()]

    @cached_property
    def _linear(self):
        return [
            np.exp(table - peak)
            for table, peak in zip(self.potentials.values(), self._peaks)
        ]

    def _engine(self, scopes, sizes):
        kind = EliminationPlan if self.inference == "exact" else LoopyPropagation
        return kind(scopes, sizes)

    @cached_property
    def _forward(self):
        engine = self._engine(self._scopes, self._sizes)
        log_partition, tape = _propagate(engine, [t[None] for t in self._linear])
        if not np.isfinite(log_partition[0]):
            raise ValueError("the potentials exclude every configuration")
        return engine, float(log_partition[0] + sum(self._peaks)), tape

    @property
    def log_partition(self) -> float:
        """Logarithm of the sum of unnormalised probabilities of all configurations."""
        return self._forward[1]

    def marginals(self) -> dict[tuple[str, ...], np.ndarray]:
        """Return the marginal probabilities of every clique.

        Returns
        -------
        marginals : dict of tuple of str to ndarray
        """
        engine, _, tape = self._forward
        tables = engine.backward(tape)
        return {clique: table[0] for clique, table in zip(self.cliques, tables)}

    def encode(self, X: ArrayLike) -> np.ndarray:
        """Return the codes of a table of labels, -1 where an entry is missing."""
        return encode(X, self.nodes, self.states)

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """Return the labels of a table of codes."""
        return decode(codes, self.nodes, self.states)

    def log_likelihood(self, X: ArrayLike) -> np.ndarray:
        """Return the log-probability of the observed entries of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_nodes)
            Labels; None and NaN are missing.

        Returns
        -------
        log_likelihood : ndarray of shape (n_samples,)
        """
        codes = self.encode(X)
        result = np.full(len(codes), -self.log_partition)
        for hidden, rows in evidence_groups(codes):
            result[rows] += self._condition(codes[rows], sorted(hidden), ())[0]
        return result

    def predict_proba(self, X: ArrayLike) -> list[np.ndarray]:
        """Return the distribution of every entry given the observed ones of its row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_nodes)
            Labels; None and NaN are missing.

        Returns
        -------
        probabilities : list of ndarray of shape (n_samples, n_states)
            One array per node. An observed entry has probability one.
        """
        codes = self.encode(X)
        result = [np.zeros((len(codes), size)) for size in self._sizes]
        for i, table in enumerate(result):
            seen = np.flatnonzero(codes[:, i] != MISSING)
            table[seen, codes[seen, i]] = 1.0
        for hidden, rows in evidence_groups(codes):
            if not hidden:
                continue
            hidden = sorted(hidden)
            asked = [(i,) for i in hidden]
            log_mass, posteriors = self._condition(codes[rows], hidden, asked)
            if np.isneginf(log_mass).any():
                raise ValueError(
                    f"row {rows[np.isneginf(log_mass).argmax()]} has observed entries "
                    "of probability zero under this field"
                )
            for i, posterior in zip(hidden, posteriors):
                result[i][rows] = posterior
        return result

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Return X with each missing entry replaced by its most probable state.

        Each entry on its own, given the observed entries of its row, consistently
        with :meth:`predict_proba`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_nodes)
            Labels; None and NaN are missing.

        Returns
        -------
        completed : ndarray of shape (n_samples, n_nodes)
        """
        codes = [table.argmax(axis=1) for table in self.predict_proba(X)]
        return self.decode(np.stack(codes, axis=1))

    def query(
        self, nodes: str | Sequence[str], evidence: Mapping[str, Any] | None = None
    ) -> np.ndarray:
        """Return the joint distribution of some nodes given the states of others.

        Parameters
        ----------
        nodes : str or sequence of str
            Asked nodes.
        evidence : mapping of str to label, default=None
            Known states.

        Returns
        -------
        probabilities : ndarray
            One axis per asked node.
        """
        nodes = (nodes,) if isinstance(nodes, str) else tuple(nodes)
        asked = tuple(self.nodes.index(v) for v in _check_clique(nodes, self.nodes))
        evidence = dict(evidence or {})
        unknown = set(evidence) - set(self.nodes)
        if unknown or set(evidence) & set(nodes):
            raise ValueError(
                f"evidence must name other nodes than the asked ones, got "
                f"{sorted(map(str, evidence))}"
            )
        row = np.empty((1, len(self.nodes)), dtype=object)
        for node, label in evidence.items():
            row[0, self.nodes.index(node)] = label
        codes = self.encode(row)
        hidden = tuple(np.flatnonzero(codes[0] == MISSING))
        if self.inference == "loopy" and len(asked) > 1:
            return self._query_loopy(codes, hidden, asked)
        log_mass, (table,) = self._condition(codes, hidden, [asked])
        if np.isneginf(log_mass[0]):
            raise ValueError("the evidence has probability zero under this field")
        return table[0]

    def _query_loopy(self, codes, hidden, asked):
        """Joint distribution within one clique, all that beliefs can tell."""
        for scope in self._scopes:
            if set(asked) <= set(scope) and set(scope) <= set(hidden):
                # a second table of the same nodes would not be joined with the first
                _, (table,) = self._condition(codes, hidden, [scope], own=True)
                others = tuple(a for a, i in enumerate(scope) if i not in asked)
                kept = [i for i in scope if i in asked]
                return (
                    table[0].sum(axis=others).transpose([kept.index(i) for i in asked])
                )
        raise ValueError(
            "loopy belief propagation gives joint distributions only of nodes that "
            "are together in a clique without evidence"
        )

    def sample(
        self,
        n_samples: int = 1,
        random_state: RandomStateLike = None,
        method: str = "independent",
    ) -> np.ndarray:
        """Draw rows.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows.
        random_state : int, RandomState instance or None, default=None
            Makes the rows reproducible.
        method : {"independent", "rounded"}, default="independent"
            Draw each row by itself; or such that marginals are kept: of rows with the
            same states of the nodes that come before, as many have each state as are
            expected, rounded up or down at random.

        Returns
        -------
        X : ndarray of shape (n_samples, n_nodes)
            Labels.
        """
        if method not in ("independent", "rounded"):
            raise ValueError(
                f"method must be 'independent' or 'rounded', got {method!r}"
            )
        if self.inference != "exact":
            raise ValueError("sampling needs inference='exact'")
        if n_samples < 0:
            raise ValueError(f"n_samples must not be negative, got {n_samples}")
        rng = check_random_state(random_state)
        engine, _, tape = self._forward
        return self.decode(engine.sample(tape, n_samples, rng, method == "rounded"))

    def kl_divergence(self, other: MarkovRandomField) -> float:
        """Return the Kullback-Leibler divergence from this field to another, in nats.

        Exact, for fields with any cliques over the same nodes and states, which are
        matched by name and label.

        Parameters
        ----------
        other : MarkovRandomField

        Returns
        -------
        divergence : float
        """
        same_states = self.states.keys() == other.states.keys() and all(
            set(labels) == set(other.states[node])
            for node, labels in self.states.items()
        )
        if not same_states:
            raise ValueError("the fields must have the same nodes and states")
        if self.inference != "exact":
            raise ValueError("the divergence needs inference='exact'")
        theirs = {clique: self._in_own_order(clique, other) for clique in other.cliques}
        scopes = [tuple(map(self.nodes.index, clique)) for clique in theirs]
        ones = [np.ones(table.shape) for table in theirs.values()]
        engine = self._engine(self._scopes + scopes, self._sizes)
        _, tape = engine.forward([table[None] for table in self._linear + ones])
        tables = [*self.potentials.values(), *theirs.values()]
        signs = [1] * len(self.potentials) + [-1] * len(theirs)
        divergence = other.log_partition - self.log_partition
        for sign, table, marginal in zip(signs, tables, engine.backward(tape)):
            probable = marginal[0] > 0
            divergence += sign * (marginal[0][probable] @ table[probable])
        return float(max(divergence, 0.0))

    def _in_own_order(self, clique, other):
        """Potentials of another field's clique, states in the order of this one."""
        table = other.potentials[clique]
        for axis, node in enumerate(clique):
            order = [other.states[node].index(label) for label in self.states[node]]
            table = table.take(order, axis=axis)
        return table

    def to_networkx(self) -> Any:
        """Return the independence graph as a ``networkx.Graph``."""
        networkx = import_optional("networkx", "to_networkx")
        graph = networkx.Graph()
        graph.add_nodes_from(self.nodes)
        for clique in self.cliques:
            graph.add_edges_from(
                (a, b) for k, a in enumerate(clique) for b in clique[k + 1 :]
            )
        return graph

    def _condition(self, codes, hidden, asked, own=False):
        """Unnormalised log-mass of rows, and posteriors of groups of hidden nodes.

        All rows miss the same entries, `hidden`. With `own`, the groups are cliques
        and their posteriors those of the cliques' own tables.
        """
        place = {i: k for k, i in enumerate(hidden)}
        scopes, tables, log_mass = [], [], np.zeros(len(codes))
        for scope, linear, peak in zip(self._scopes, self._linear, self._peaks):
            seen = [a for a, i in enumerate(scope) if i not in place]
            kept = [a for a, i in enumerate(scope) if i in place]
            index = tuple(codes[:, scope[a]] for a in seen)
            if not kept:
                with np.errstate(divide="ignore"):
                    log_mass += np.log(linear[index]) + peak
                continue
            tables.append((linear.transpose(seen + kept), index))
            scopes.append(tuple(place[scope[a]] for a in kept))
            log_mass += peak
        if not hidden:
            return log_mass, []
        sizes = [self._sizes[i] for i in hidden]
        groups = [tuple(place[i] for i in group) for group in asked]
        if own:
            ones, where = [], [scopes.index(group) for group in groups]
        else:
            ones = [np.ones([1] + [sizes[k] for k in group]) for group in groups]
            where = range(len(scopes), len(scopes) + len(groups))
            scopes += groups
        engine = self._engine(scopes, sizes)
        posteriors = [
            np.empty([len(codes)] + [self._sizes[i] for i in group]) for group in asked
        ]
        size = max(_CHUNK_CELLS // engine.n_cells, 1)
        for start in range(0, len(codes), size):
            rows = slice(start, start + size)
            batch = [
                table[tuple(i[rows] for i in index)] if index else table[None]
                for table, index in tables
            ]
            with np.errstate(divide="ignore"):
                mass, tape = _propagate(engine, batch + ones)
            log_mass[rows] += mass
            if asked:
                marginals = engine.backward(tape)
                for posterior, place_of in zip(posteriors, where):
                    posterior[rows] = marginals[place_of]
        return log_mass, posteriors


def _propagate(engine, tables):
    result = engine.forward(tables)
    if not engine.converged:
        warn_user(
            f"loopy belief propagation has not converged after {engine.max_iter} "
            "rounds: probabilities may be far off; use fewer or smaller cliques, or "
            "inference='exact'",
            ConvergenceWarning,
        )
    return result


def _check_clique(clique, nodes):
    clique = (clique,) if isinstance(clique, str) else tuple(clique)
    for node in clique:
        if node not in nodes:
            raise ValueError(f"{node!r} is not a node; the nodes are {list(nodes)}")
    if len(set(clique)) != len(clique):
        raise ValueError(f"clique {clique!r} names a node twice")
    return clique


def _check_table(clique, table, shape):
    table = np.array(table, dtype=float)
    if table.shape != shape:
        raise ValueError(
            f"the potentials of clique {clique!r} have shape {table.shape}, expected "
            f"{shape}"
        )
    if np.isnan(table).any() or np.isposinf(table).any():
        raise ValueError(f"the potentials of clique {clique!r} are not all finite")
    if table.size and np.isneginf(table).all():
        raise ValueError(f"the potentials of clique {clique!r} exclude every state")
    table.flags.writeable = False
    return table
