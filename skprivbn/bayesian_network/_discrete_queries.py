"""What a discrete network answers: likelihoods, missing entries, queries, rows."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from skprivbn.bayesian_network._base import BaseNetwork
from skprivbn.bayesian_network._checks import check_reachable
from skprivbn.bayesian_network._inference import Inference
from skprivbn.bayesian_network._labels import MISSING, decode, encode
from skprivbn.utils._typing import RandomStateLike


class DiscreteQueries(BaseNetwork):
    """A network with `states`, `parents` and `cpts`, by node."""

    states: Mapping
    parents: Mapping
    cpts: Mapping

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
