"""Random graphs with an exact number of edges, for the generators."""

import numpy as np


def random_dag(n_nodes, n_edges, rng, *, graph="erdos_renyi", max_parents=None):
    """Draw a directed acyclic graph with exactly ``n_edges`` edges.

    Parameters
    ----------
    n_nodes : int
        Number of nodes.
    n_edges : int
        Number of edges.
    rng : RandomState
        Source of randomness.
    graph : {"erdos_renyi", "scale_free"}
        How edges are placed; see :func:`~skprivbn.datasets.make_linear_sem`.
    max_parents : int, default=None
        Largest number of parents of a node, "erdos_renyi" only.

    Returns
    -------
    adjacency : ndarray of shape (n_nodes, n_nodes), dtype=bool
        ``adjacency[i, j]`` says whether there is an edge from i to j.
    order : ndarray of shape (n_nodes,)
        Nodes in a topological order.
    """
    limit = n_nodes - 1 if max_parents is None else max_parents
    most = int(np.minimum(np.arange(n_nodes), limit).sum())
    if n_edges > most:
        raise ValueError(
            f"n_edges={n_edges} is too many: an acyclic graph of {n_nodes} nodes"
            + (f" with at most {max_parents} parents each" if max_parents else "")
            + f" has at most {most} edges."
        )
    if graph == "scale_free":
        ordered = _preferential_attachment(n_nodes, n_edges, rng)
    else:
        ordered = _uniform_edges(n_nodes, n_edges, limit, rng)
    order = rng.permutation(n_nodes)
    adjacency = np.zeros((n_nodes, n_nodes), dtype=bool)
    adjacency[np.ix_(order, order)] = ordered
    return adjacency, order


def _uniform_edges(n_nodes, n_edges, max_parents, rng):
    """Upper triangular adjacency: edges in random order, while there is room."""
    sources, targets = np.triu_indices(n_nodes, k=1)
    adjacency = np.zeros((n_nodes, n_nodes), dtype=bool)
    room = np.full(n_nodes, max_parents)
    placed = 0
    for edge in rng.permutation(len(sources)):
        if placed == n_edges:
            break
        if room[targets[edge]]:
            adjacency[sources[edge], targets[edge]] = True
            room[targets[edge]] -= 1
            placed += 1
    return adjacency


def _preferential_attachment(n_nodes, n_edges, rng):
    """Upper triangular adjacency in which few nodes collect most of the edges.

    Nodes arrive one by one and each points at earlier ones with probability
    proportional to 1 + their in-degree (Barabasi-Albert). An arrival gets
    ``n_edges / n_nodes`` edges or as near as an exact total allows.
    """
    n_links = np.zeros(n_nodes, dtype=int)
    while (missing := n_edges - n_links.sum()) > 0:
        open_nodes = np.flatnonzero(n_links < np.arange(n_nodes))
        n_links[rng.permutation(open_nodes)[:missing]] += 1
    adjacency = np.zeros((n_nodes, n_nodes), dtype=bool)
    in_degree = np.zeros(n_nodes)
    for node in range(n_nodes):
        if not n_links[node]:
            continue
        appeal = 1 + in_degree[:node]
        hubs = rng.choice(node, n_links[node], replace=False, p=appeal / appeal.sum())
        adjacency[node, hubs] = True
        in_degree[hubs] += 1
    # Arrivals point backwards: reversing time makes the matrix upper triangular.
    return adjacency[::-1, ::-1]


def random_connected_graph(n_nodes, n_edges, rng):
    """Draw a connected undirected graph, uniform given its random spanning tree.

    Returns
    -------
    edges : list of (int, int)
        Pairs i < j in lexicographic order.
    """
    pairs = n_nodes * (n_nodes - 1) // 2
    if not n_nodes - 1 <= n_edges <= pairs:
        raise ValueError(
            f"n_edges={n_edges} is not possible: a connected graph of {n_nodes} nodes "
            f"has {n_nodes - 1} to {pairs} edges."
        )
    adjacency = np.zeros((n_nodes, n_nodes), dtype=bool)
    # A random walk's first visits are a uniformly random spanning tree (Aldous-Broder).
    here, unseen = rng.randint(n_nodes), n_nodes - 1
    seen = np.arange(n_nodes) == here
    while unseen:
        there = rng.choice(np.delete(np.arange(n_nodes), here))
        if not seen[there]:
            adjacency[min(here, there), max(here, there)] = seen[there] = True
            unseen -= 1
        here = there
    free = np.flatnonzero(np.triu(~adjacency, k=1))
    adjacency.flat[rng.choice(free, n_edges - (n_nodes - 1), replace=False)] = True
    return [(int(i), int(j)) for i, j in np.argwhere(adjacency)]


def random_weights(mask, weight_range, rng):
    """Draw a weight of random sign, uniform in magnitude, wherever ``mask`` is true."""
    low, high = weight_range
    magnitudes = rng.uniform(low, high, size=mask.shape)
    signs = rng.choice([-1.0, 1.0], size=mask.shape)
    return np.where(mask, signs * magnitudes, 0.0)
