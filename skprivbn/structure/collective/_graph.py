"""From local networks and links between sites to one collective network."""

from dataclasses import dataclass, field

import numpy as np

from skprivbn.bayesian_network import BayesianNetwork
from skprivbn.bayesian_network._dag import ancestors
from skprivbn.structure.collective._local_structure import bic_score, drop_parents


def adjacency_matrix(parents):
    """Return a graph as a matrix, true at [i, j] for an edge from i to j."""
    adjacency = np.zeros((len(parents), len(parents)), dtype=bool)
    for v, found in enumerate(parents):
        adjacency[found, v] = True
    return adjacency


def parents_of(adjacency):
    """Return the parents of every variable, ascending."""
    return [np.flatnonzero(column).tolist() for column in adjacency.T]


def crossing(adjacency, owners):
    """Return the edges whose ends belong to different sites."""
    owners = np.asarray(owners)
    return adjacency & (owners[:, None] != owners)


def families_across(adjacency, owners):
    """Return columns with a parent at another site, each with all its parents."""
    nodes = np.flatnonzero(crossing(adjacency, owners).any(axis=0)).tolist()
    return {v: [*np.flatnonzero(adjacency[:, v]).tolist(), v] for v in nodes}


def join_graphs(local, links, tables):
    """Add links between sites to the local edges, strongest first.

    A link that would close a cycle is turned round, which is always possible; one
    that makes a table too large for the rows there are is left out.

    Parameters
    ----------
    local, links : ndarray of bool, shape (n_variables, n_variables)
        Directed acyclic each.
    tables : Tables

    Returns
    -------
    adjacency : ndarray of bool, shape (n_variables, n_variables)
    """
    joined = local.copy()
    pairs = np.argwhere(links).tolist()
    gain = {
        (u, v): bic_score(tables, v, [u]) - bic_score(tables, v, []) for u, v in pairs
    }
    for u, v in sorted(gain, key=gain.get, reverse=True):
        if v in ancestors(joined, [u]):
            u, v = v, u
        joined[u, v] = tables.fits([u, v, *np.flatnonzero(joined[:, v])])
    return joined


def explain_away(adjacency, owners, tables):
    """Remove false local edges that stood for a variable at another site.

    A site that does not see w in u -> w -> v, or in u <- w -> v, finds an edge from u
    to v. Once w is known to be a parent of v, local parents of v that are connected
    with w are scored again.

    Parameters
    ----------
    adjacency : ndarray of bool, shape (n_variables, n_variables)
    owners : sequence of str
    tables : Tables

    Returns
    -------
    adjacency : ndarray of bool, shape (n_variables, n_variables)
    """
    kept, remote = adjacency.copy(), crossing(adjacency, owners)
    for node in np.flatnonzero(remote.any(axis=0)).tolist():
        suspects = []
        for parent in np.flatnonzero(kept[:, node] & ~remote[:, node]).tolist():
            without = kept.copy()
            without[parent, node] = False
            above = ancestors(without, [parent])
            if any(
                above & ancestors(without, [other])
                for other in np.flatnonzero(remote[:, node]).tolist()
            ):
                suspects.append(parent)
        parents = np.flatnonzero(kept[:, node]).tolist()
        kept[:, node] = False
        kept[drop_parents(tables, node, parents, suspects), node] = True
    return kept


@dataclass
class CollectiveModel:
    """Graph and counts, from which the networks follow; new counts can be added.

    Attributes
    ----------
    names, owners : list of str
        Of every variable.
    states : list of list
        Labels of every variable.
    local_parents, parents : list of list of int
        Of every variable: in its site's own network, and in the collective one.
    local_counts : list of ndarray
        Of every variable with its local parents.
    cross_counts : list of (ndarray or None)
        Of variables with a parent at another site, with all their parents. Weighted,
        if rows were.
    cuts : dict of str to float or None
        Log-likelihood below which a row does not fit a site's own network.
    """

    names: list
    owners: list
    states: list
    local_parents: list
    local_counts: list
    parents: list
    cross_counts: list
    cuts: dict = field(default_factory=dict)

    def add(self, local_counts, cross_counts):
        """Add the counts of new rows."""
        self.local_counts = [a + b for a, b in zip(self.local_counts, local_counts)]
        self.cross_counts = [
            None if kept is None else kept + new
            for kept, new in zip(self.cross_counts, cross_counts)
        ]

    def cross_edges(self):
        """Return the edges between sites, as pairs of names."""
        adjacency = adjacency_matrix(self.parents)
        return self.named(np.argwhere(crossing(adjacency, self.owners)))

    def network(self, alpha):
        """Return the collective network."""
        pairs = zip(self.cross_counts, self.local_counts)
        counts = [local if cross is None else cross for cross, local in pairs]
        return self._build(range(len(self.names)), self.parents, counts, alpha)

    def local_networks(self, alpha):
        """Return every site's own network."""
        held = {}
        for v, owner in enumerate(self.owners):
            held.setdefault(owner, []).append(v)
        return {
            site: self._build(variables, self.local_parents, self.local_counts, alpha)
            for site, variables in held.items()
        }

    def _build(self, variables, parents, counts, alpha):
        return BayesianNetwork.from_counts(
            [self.names[v] for v in variables],
            [self.states[v] for v in variables],
            [[self.names[u] for u in parents[v]] for v in variables],
            [counts[v] for v in variables],
            alpha=alpha,
        )

    def named(self, edges):
        """Return edges, pairs of numbers, as pairs of names."""
        return [(self.names[u], self.names[v]) for u, v in edges]
