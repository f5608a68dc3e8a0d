"""The state of a collective network: counts within sites, and counts across them."""

from dataclasses import dataclass, field

import numpy as np

from skprivbn.bayesian_network._discrete import BayesianNetwork


@dataclass
class CollectiveModel:
    """Graph and counts, from which the networks follow; new counts can be added.

    Attributes
    ----------
    names, owners : list of str
        Of every variable.
    states : list of list
        Labels of every variable.
    local : ndarray of bool, shape (n_variables, n_variables)
        Edges of the sites' own networks.
    adjacency : ndarray of bool, shape (n_variables, n_variables)
        Edges of the collective network.
    local_counts : dict of int to ndarray
        Of every variable with its parents in `local`.
    cross_counts : dict of int to ndarray
        Of variables with a parent at another site, with their parents in
        `adjacency`. Weighted, if rows were.
    cuts : dict of str to float or None
        Log-likelihood below which a row does not fit a site's own network.
    """

    names: list
    owners: list
    states: list
    local: np.ndarray
    adjacency: np.ndarray
    local_counts: dict
    cross_counts: dict
    cuts: dict = field(default_factory=dict)

    def add(self, local_counts, cross_counts):
        """Add the counts of new rows."""
        for kept, new in (
            (self.local_counts, local_counts),
            (self.cross_counts, cross_counts),
        ):
            for v, counts in new.items():
                kept[v] = kept[v] + counts

    def _variables(self):
        held = {}
        for v, owner in enumerate(self.owners):
            held.setdefault(owner, []).append(v)
        return held

    def network(self, alpha):
        """Return the collective network."""
        counts = [
            self.cross_counts.get(v, self.local_counts[v])
            for v in range(len(self.names))
        ]
        return self._build(range(len(self.names)), self.adjacency, counts, alpha)

    def local_networks(self, alpha):
        """Return every site's own network."""
        return {
            site: self._build(
                variables, self.local, [self.local_counts[v] for v in variables], alpha
            )
            for site, variables in self._variables().items()
        }

    def _build(self, variables, adjacency, counts, alpha):
        return BayesianNetwork.from_counts(
            [self.names[v] for v in variables],
            [self.states[v] for v in variables],
            [
                [self.names[u] for u in np.flatnonzero(adjacency[:, v])]
                for v in variables
            ],
            counts,
            alpha=alpha,
        )

    def named(self, edges):
        """Return edges, pairs of numbers, as pairs of names."""
        return [(self.names[u], self.names[v]) for u, v in edges]
