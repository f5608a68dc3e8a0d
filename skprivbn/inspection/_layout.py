"""Places for the nodes and edges of a DAG, in layers from top to bottom.

Sugiyama's method: put every node one layer below its lowest parent, order each
layer so that few edges cross, then move nodes sideways towards their neighbours.
An edge that passes a layer gets a place of its own there, so that it never runs
through a label.
"""

import numpy as np
from scipy.optimize import isotonic_regression

from skprivbn.bayesian_network._dag import topological_order

N_SWEEPS = 24


def layered_layout(adjacency, widths, *, gap=0.25, lane=0.12, height=1.0):
    """Return where to draw the nodes, and through which points the edges.

    Parameters
    ----------
    adjacency : ndarray of bool, shape (n_nodes, n_nodes)
        A directed acyclic graph.
    widths : array-like of shape (n_nodes,)
        Widths of the nodes' boxes.
    gap : float
        Room between two boxes.
    lane : float
        Width kept free for an edge that passes a layer.
    height : float
        Distance between two layers.

    Returns
    -------
    positions : ndarray of shape (n_nodes, 2)
        Centres of the boxes; parents above children.
    routes : dict of (int, int) to ndarray of shape (n_points, 2)
        For each edge, its places in the layers it passes, ends included.
    """
    depth = _depths(adjacency)
    layers, edges, chains = _add_lanes(adjacency, depth)
    widths = [*widths, *[lane] * (sum(map(len, layers)) - len(widths))]
    layers = _order_layers(layers, edges, len(widths))
    x = _sideways(layers, edges, np.array(widths), gap, n_nodes=len(adjacency))
    y = np.empty(len(widths))
    for level, layer in enumerate(layers):
        y[layer] = -level * height
    points = np.column_stack([x, y])
    routes = {edge: points[chain] for edge, chain in chains.items()}
    return points[: len(adjacency)], routes


def _depths(adjacency):
    """Return each node's layer; a node without parents is just above its children."""
    order = topological_order(adjacency)
    depth = np.zeros(len(adjacency), dtype=int)
    for node in order:
        parents = np.flatnonzero(adjacency[:, node])
        depth[node] = depth[parents].max(initial=-1) + 1
    for node in order:
        children = np.flatnonzero(adjacency[node])
        if not adjacency[:, node].any() and len(children):
            depth[node] = depth[children].min() - 1
    return depth


def _add_lanes(adjacency, depth):
    """Cut long edges into steps of one layer.

    Returns the nodes of each layer, the (upper, lower) steps, and for each edge the
    chain of nodes it runs through. Lanes are numbered after the real nodes.
    """
    layers = [[] for _ in range(depth.max(initial=0) + 1)]
    for node, level in enumerate(depth):
        layers[level].append(node)
    edges, chains = [], {}
    n_places = len(adjacency)
    for i, j in np.argwhere(adjacency).tolist():
        chain = [i]
        for level in range(depth[i] + 1, depth[j]):
            layers[level].append(n_places)
            chain.append(n_places)
            n_places += 1
        chain.append(j)
        edges += zip(chain[:-1], chain[1:])
        chains[i, j] = chain
    return layers, edges, chains


def _neighbours(edges, n_places):
    above = [[] for _ in range(n_places)]
    below = [[] for _ in range(n_places)]
    for upper, lower in edges:
        above[lower].append(upper)
        below[upper].append(lower)
    return above, below


def _order_layers(layers, edges, n_places):
    """Sort each layer by its neighbours' mean rank, up and down, and keep the best."""
    above, below = _neighbours(edges, n_places)
    layers = [list(layer) for layer in layers]
    best, fewest = layers, _n_crossings(layers, edges)
    for sweep in range(N_SWEEPS):
        near = above if sweep % 2 == 0 else below
        rank = {node: k for layer in layers for k, node in enumerate(layer)}
        sequence = layers if sweep % 2 == 0 else layers[::-1]
        for layer in sequence:
            centre = {
                node: np.mean([rank[v] for v in near[node]])
                if near[node]
                else rank[node]
                for node in layer
            }
            layer.sort(key=centre.get)
            rank.update((node, k) for k, node in enumerate(layer))
        crossings = _n_crossings(layers, edges)
        if crossings < fewest:
            best, fewest = [list(layer) for layer in layers], crossings
    return best


def _n_crossings(layers, edges):
    rank = {node: k for layer in layers for k, node in enumerate(layer)}
    level = {node: k for k, layer in enumerate(layers) for node in layer}
    total = 0
    for k in range(len(layers) - 1):
        ends = np.array(
            [(rank[i], rank[j]) for i, j in edges if level[i] == k]
        ).reshape(-1, 2)
        upper = ends[:, 0, np.newaxis] - ends[:, 0]
        lower = ends[:, 1, np.newaxis] - ends[:, 1]
        total += int((upper * lower < 0).sum()) // 2
    return total


def _sideways(layers, edges, widths, gap, n_nodes):
    """Return horizontal positions: near the neighbours, boxes apart, order kept.

    Moving one layer is a least-squares problem with a minimal distance between
    neighbours, which subtracting these distances turns into isotonic regression.
    """
    above, below = _neighbours(edges, len(widths))
    x = np.zeros(len(widths))
    offsets = []
    for layer in layers:
        half = widths[layer] / 2
        steps = half[:-1] + half[1:] + gap
        offset = np.concatenate([[0.0], np.cumsum(steps)])
        offsets.append(offset)
        x[layer] = offset - offset[-1] / 2
    near = [up + down for up, down in zip(above, below)]
    # Lanes pull hardest, since long edges should be straight; a node without edges
    # stays where it is.
    pulls = [
        np.array([4.0 if max(node, other) >= n_nodes else 1.0 for other in others])
        for node, others in enumerate(near)
    ]
    weights = np.array([pull.sum() or 0.1 for pull in pulls])
    levels = list(range(len(layers)))
    for _ in range(2 * N_SWEEPS):
        for level in levels + levels[::-1]:
            layer = layers[level]
            wanted = [
                pulls[node] @ x[near[node]] / weights[node] if near[node] else x[node]
                for node in layer
            ]
            shifted = isotonic_regression(
                wanted - offsets[level], weights=weights[layer]
            )
            x[layer] = shifted.x + offsets[level]
    return x
