"""How far a learnt graph is from the true one."""

from typing import Any

import numpy as np

from skprivbn.bayesian_network._base import BaseNetwork
from skprivbn.bayesian_network._dag import (
    check_adjacency,
    check_dag,
    skeleton,
    to_cpdag,
)


def _check_graphs(truth, learnt):
    """Return two boolean matrices over the same nodes; networks match by name."""
    if isinstance(truth, BaseNetwork) and isinstance(learnt, BaseNetwork):
        if set(truth.nodes) != set(learnt.nodes):
            raise ValueError(
                "the networks must have the same nodes, got "
                f"{sorted(set(truth.nodes) ^ set(learnt.nodes))[:5]} in one only"
            )
        order = [learnt.nodes.index(node) for node in truth.nodes]
        return truth.adjacency_matrix, learnt.adjacency_matrix[np.ix_(order, order)]
    matrices = [
        graph.adjacency_matrix if isinstance(graph, BaseNetwork) else graph
        for graph in (truth, learnt)
    ]
    truth, learnt = (check_adjacency(matrix) for matrix in matrices)
    if truth.shape != learnt.shape:
        raise ValueError(
            f"the graphs must have the same nodes, got {len(truth)} and {len(learnt)}"
        )
    for graph in (truth, learnt):
        if graph.diagonal().any():
            raise ValueError("a node must not have an edge to itself")
    return truth, learnt


def structural_hamming_distance(
    truth: Any, learnt: Any, *, double_for_reversed: bool = False
) -> int:
    """Number of edges to add, remove or turn to get from one graph to the other.

    Parameters
    ----------
    truth, learnt : network or array-like of shape (n_nodes, n_nodes)
        Networks, weights or adjacency matrices, where non-zero at [i, j] is an edge
        i -> j. An edge present in both directions is undirected, so that CPDAGs can
        be compared too. Two networks are matched by the names of their nodes.

    double_for_reversed : bool, default=False
        By default every pair of nodes that is joined differently counts once, and so
        does an edge that points the wrong way (as is usual since Tsamardinos et al.
        and in NOTEARS). If true, such an edge counts as one to remove and one to add.

    Returns
    -------
    distance : int

    Examples
    --------
    >>> from skprivbn.metrics import structural_hamming_distance
    >>> chain = [[0, 1, 0], [0, 0, 1], [0, 0, 0]]
    >>> first_edge_turned = [[0, 0, 0], [1, 0, 1], [0, 0, 0]]
    >>> structural_hamming_distance(chain, first_edge_turned)
    1
    >>> structural_hamming_distance(chain, first_edge_turned, double_for_reversed=True)
    2
    """
    truth, learnt = _check_graphs(truth, learnt)
    distance = _n_edges(truth != learnt)
    if double_for_reversed:
        arrows = truth & ~truth.T
        distance += int((arrows & (learnt & ~learnt.T).T).sum())
    return distance


def true_positive_rate(truth: Any, learnt: Any) -> float:
    """Share of the true edges that were learnt with the right direction.

    Parameters
    ----------
    truth, learnt : network or array-like of shape (n_nodes, n_nodes)
        As for :func:`structural_hamming_distance`. An undirected learnt edge counts
        as right if it is true in either direction.

    Returns
    -------
    rate : float
        1.0 if there is no true edge.

    Examples
    --------
    >>> from skprivbn.metrics import true_positive_rate
    >>> true_positive_rate([[0, 1], [0, 0]], [[0, 0], [1, 0]])
    0.0
    """
    truth, learnt = _check_graphs(truth, learnt)
    n_edges = _n_edges(truth)
    return _n_right(truth, learnt) / n_edges if n_edges else 1.0


def false_discovery_rate(truth: Any, learnt: Any) -> float:
    """Share of the learnt edges that are absent from the truth or point the wrong way.

    Parameters
    ----------
    truth, learnt : network or array-like of shape (n_nodes, n_nodes)
        As for :func:`structural_hamming_distance`. An undirected learnt edge counts
        as right if it is true in either direction.

    Returns
    -------
    rate : float
        0.0 if no edge was learnt.

    Examples
    --------
    >>> from skprivbn.metrics import false_discovery_rate
    >>> false_discovery_rate([[0, 1], [0, 0]], [[0, 1], [0, 0]])
    0.0
    """
    truth, learnt = _check_graphs(truth, learnt)
    n_edges = _n_edges(learnt)
    return 1.0 - _n_right(truth, learnt) / n_edges if n_edges else 0.0


def _n_edges(graph):
    return int(np.triu(skeleton(graph)).sum())


def _n_right(truth, learnt):
    return int(np.triu(skeleton(truth & learnt)).sum())


def skeleton_f1(truth: Any, learnt: Any) -> float:
    """F1 score of the learnt edges, whatever their direction.

    Parameters
    ----------
    truth, learnt : network or array-like of shape (n_nodes, n_nodes)
        As for :func:`structural_hamming_distance`.

    Returns
    -------
    score : float
        Between 0 and 1; 1.0 if there is neither a true nor a learnt edge.

    Examples
    --------
    >>> from skprivbn.metrics import skeleton_f1
    >>> skeleton_f1([[0, 1], [0, 0]], [[0, 0], [1, 0]])
    1.0
    """
    truth, learnt = (skeleton(graph) for graph in _check_graphs(truth, learnt))
    n_edges = _n_edges(truth) + _n_edges(learnt)
    return 2 * _n_edges(truth & learnt) / n_edges if n_edges else 1.0


def cpdag_distance(truth: Any, learnt: Any) -> int:
    """Structural Hamming distance between two DAGs' Markov equivalence classes.

    Edges that observations cannot direct are compared as undirected ones, so that
    equivalent graphs have distance zero.

    Parameters
    ----------
    truth, learnt : network or array-like of shape (n_nodes, n_nodes)
        Directed acyclic graphs, as for :func:`structural_hamming_distance`.

    Returns
    -------
    distance : int

    Examples
    --------
    >>> from skprivbn.metrics import cpdag_distance
    >>> cpdag_distance([[0, 1], [0, 0]], [[0, 0], [1, 0]])
    0
    """
    truth, learnt = (check_dag(graph) for graph in _check_graphs(truth, learnt))
    return structural_hamming_distance(to_cpdag(truth), to_cpdag(learnt))
