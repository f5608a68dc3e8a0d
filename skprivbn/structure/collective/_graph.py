"""From local networks and links between sites to one collective network."""

import numpy as np

from skprivbn.bayesian_network._dag import ancestors
from skprivbn.structure.collective._local_structure import bic_score, drop_parents


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
