"""Directed acyclic graphs as boolean matrices: order, equivalence, Meek's rules.

``adjacency[i, j]`` is true when there is an edge from node `i` to node `j`. In a
partially directed graph an undirected edge is present in both directions.
"""

from heapq import heappop, heappush

import numpy as np


def check_adjacency(adjacency):
    """Return a square boolean matrix of edges; any non-zero entry is an edge."""
    adjacency = np.asarray(adjacency)
    if adjacency.ndim != 2 or adjacency.shape[0] != adjacency.shape[1]:
        raise ValueError(
            f"an adjacency matrix must be square, got shape {adjacency.shape}"
        )
    if adjacency.dtype.kind not in "biuf":
        raise ValueError(
            f"an adjacency matrix must hold numbers, got dtype {adjacency.dtype}"
        )
    if adjacency.dtype.kind == "f" and np.isnan(adjacency).any():
        raise ValueError("an adjacency matrix must not hold NaN")
    return adjacency != 0


def graph_of(parents):
    """Return a graph as a matrix, true at [i, j] for an edge from i to j.

    Parameters
    ----------
    parents : sequence of sequence of int
        Of every node.

    Returns
    -------
    adjacency : ndarray of bool of shape (n_nodes, n_nodes)
    """
    adjacency = np.zeros((len(parents), len(parents)), dtype=bool)
    for node, found in enumerate(parents):
        adjacency[list(found), node] = True
    return adjacency


def parents_of(adjacency):
    """Return the parents of every node, ascending."""
    return [np.flatnonzero(column).tolist() for column in adjacency.T]


def check_dag(adjacency, names=None):
    """Return a boolean matrix, or raise a ValueError that spells out a cycle."""
    adjacency = check_adjacency(adjacency)
    cycle = find_cycle(adjacency)
    if cycle is not None:
        steps = [str(i if names is None else names[i]) for i in cycle]
        raise ValueError(
            f"the graph must have no directed cycle, got {' -> '.join(steps)}"
        )
    return adjacency


def _peel(adjacency):
    """Return the nodes that can be put in order, parents first (Kahn's algorithm)."""
    n_parents = adjacency.sum(axis=0)
    ready = list(np.flatnonzero(n_parents == 0)[::-1])
    order = []
    while ready:
        node = ready.pop()
        order.append(int(node))
        children = np.flatnonzero(adjacency[node])
        n_parents[children] -= 1
        ready.extend(children[n_parents[children] == 0][::-1])
    return order


def is_acyclic(adjacency):
    """Whether no directed path leads from a node back to itself."""
    return len(_peel(adjacency)) == len(adjacency)


def find_cycle(adjacency):
    """Return the nodes of one directed cycle, first node repeated, or None."""
    unordered = sorted(set(range(len(adjacency))) - set(_peel(adjacency)))
    if not unordered:
        return None
    # A node that cannot be put in order has such a parent as well, so that walking
    # backwards must come back to a node already seen.
    walk = [unordered[0]]
    while True:
        parents = np.flatnonzero(adjacency[:, walk[-1]])
        node = next(int(i) for i in parents if i in unordered)
        if node in walk:
            return [node, *reversed(walk[walk.index(node) :])]
        walk.append(node)


def topological_order(adjacency):
    """Return node indices as a list in which parents come before their children."""
    order = _peel(adjacency)
    if len(order) < len(adjacency):
        check_dag(adjacency)
    return order


def ancestors(adjacency, nodes):
    """Return the set of the given nodes and of everything they descend from."""
    found, todo = set(), list(nodes)
    while todo:
        node = todo.pop()
        if node not in found:
            found.add(node)
            todo.extend(np.flatnonzero(adjacency[:, node]).tolist())
    return found


def skeleton(adjacency):
    """Forget the directions: a symmetric boolean matrix."""
    return adjacency | adjacency.T


def v_structures(adjacency):
    """Return the set of ``(i, k, j)``, i < j, with i -> k <- j and i, j not adjacent.

    Undirected edges take no part.
    """
    arrows = adjacency & ~adjacency.T
    adjacent = skeleton(adjacency)
    found = set()
    for k in range(len(adjacency)):
        parents = np.flatnonzero(arrows[:, k])
        apart = np.triu(~adjacent[np.ix_(parents, parents)], 1)
        found.update(
            (int(parents[a]), k, int(parents[b])) for a, b in np.argwhere(apart)
        )
    return found


def apply_meek_rules(pdag):
    """Direct every undirected edge whose direction the other edges imply.

    Meek's four rules, repeated until none applies. They are sound and complete
    for a graph that has its v-structures and possibly background knowledge.

    Parameters
    ----------
    pdag : ndarray of bool, shape (n_nodes, n_nodes)
        An undirected edge is present in both directions.

    Returns
    -------
    pdag : ndarray of bool, shape (n_nodes, n_nodes)
        A new matrix.

    References
    ----------
    C. Meek. Causal inference and causal explanation with background knowledge.
    UAI 1995.
    """
    pdag = pdag.copy()
    while True:
        before = pdag.sum()
        for implied in (_rule_1, _rule_2, _rule_3, _rule_4):
            undirected = pdag & pdag.T
            new = implied(pdag & ~pdag.T, undirected, pdag | pdag.T) & undirected
            pdag &= ~new.T | new
        if pdag.sum() == before:
            return pdag


def _joined(left, right):
    """Whether some node c has both ``left[a, c]`` and ``right[c, b]``."""
    return (left.astype(np.float32) @ right.astype(np.float32)) > 0


def _rule_1(arrows, undirected, adjacent):
    """c -> a - b with c, b not adjacent: a <- b would make a new v-structure."""
    return _joined(arrows.T, ~adjacent)


def _rule_2(arrows, undirected, adjacent):
    """a -> c -> b and a - b: a <- b would close a cycle."""
    return _joined(arrows, arrows)


def _rule_3(arrows, undirected, adjacent):
    """a - c -> b, a - d -> b with c, d not adjacent, and a - b."""
    new = np.zeros_like(arrows)
    for a, b in np.argwhere(undirected):
        middle = np.flatnonzero(undirected[a] & arrows[:, b])
        apart = ~adjacent[np.ix_(middle, middle)]
        new[a, b] = np.triu(apart, 1).any()
    return new


def _rule_4(arrows, undirected, adjacent):
    """a - d -> c -> b with a, c adjacent, d, b not adjacent, and a - b."""
    new = np.zeros_like(arrows)
    for a, b in np.argwhere(undirected):
        first = undirected[a] & ~adjacent[:, b]
        first[b] = False
        second = adjacent[a] & arrows[:, b]
        new[a, b] = arrows[np.ix_(first, second)].any()
    return new


def extend_to_dag(pdag):
    """Direct the undirected edges of a graph without new v-structures or cycles.

    Dor and Tarsi's algorithm. Where no such extension exists (tests on few rows may
    contradict each other), the node that costs least is taken, so the result is
    always acyclic with the same skeleton.

    Parameters
    ----------
    pdag : ndarray of bool of shape (d, d)
        The partially directed graph.

    Returns
    -------
    ndarray of bool of shape (d, d)
        A directed acyclic graph.
    """
    out = [set(np.flatnonzero(row).tolist()) for row in pdag & ~pdag.T]
    undirected = [set(np.flatnonzero(row).tolist()) for row in pdag & pdag.T]
    adjacent = [set(np.flatnonzero(row).tolist()) for row in pdag | pdag.T]

    def cost(node):
        # a sink whose undirected neighbours see all its neighbours comes last
        near = adjacent[node]
        conflicts = (len(near - adjacent[other]) - 1 for other in undirected[node])
        return len(out[node]), sum(conflicts)

    dag, costs = np.zeros_like(pdag), {node: cost(node) for node in range(len(pdag))}
    ready = [node for node, found in costs.items() if found == (0, 0)]
    while costs:
        sink = heappop(ready) if ready else min(costs, key=lambda v: (costs[v], v))
        near = adjacent[sink]
        dag[list(near), sink] = True
        del costs[sink]
        for node in near:
            for of in (out, undirected, adjacent):
                of[node].discard(sink)
        for node in near:
            before, costs[node] = costs[node], cost(node)
            if costs[node] == (0, 0) != before:
                heappush(ready, node)
    return dag


def to_cpdag(adjacency):
    """Return the graph of a DAG's Markov equivalence class.

    Parameters
    ----------
    adjacency : ndarray of bool, shape (n_nodes, n_nodes)
        A directed acyclic graph.

    Returns
    -------
    cpdag : ndarray of bool, shape (n_nodes, n_nodes)
        Edges whose direction every equivalent DAG shares, and in both directions
        those that may be turned round.

    References
    ----------
    D. M. Chickering. A transformational characterization of equivalent Bayesian
    network structures. UAI 1995.
    """
    parents = [set(np.flatnonzero(column).tolist()) for column in adjacency.T]
    order = topological_order(adjacency)
    rank = {node: place for place, node in enumerate(order)}
    compelled = [set() for _ in parents]  # parents that cannot become children
    for y in order:
        if parents[y]:
            x = max(parents[y], key=rank.get)
            shared = compelled[x] <= parents[y] <= parents[x] | {x}
            compelled[y] = compelled[x] if shared else parents[y]
    cpdag = skeleton(adjacency)
    for y, found in enumerate(compelled):
        cpdag[y, list(found)] = False
    return cpdag


def markov_equivalent(first, second):
    """Whether two DAGs imply the same independences (Verma and Pearl, 1990)."""
    return np.array_equal(skeleton(first), skeleton(second)) and (
        v_structures(first) == v_structures(second)
    )


def closure(graph):
    """Which node of an acyclic graph reaches which by one edge or more."""
    reach = graph.copy()
    for node in reversed(topological_order(graph)):
        children = np.flatnonzero(graph[node])
        if len(children):
            reach[node] |= reach[children].any(axis=0)
    return reach
