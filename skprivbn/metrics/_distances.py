"""How far a learnt distribution, or graph, is from the true one."""

from collections.abc import Hashable
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import rel_entr

from skprivbn.bayesian_network import BayesianNetwork, GaussianBayesianNetwork
from skprivbn.bayesian_network._base import BaseNetwork
from skprivbn.bayesian_network._dag import (
    check_adjacency,
    check_dag,
    skeleton,
    to_cpdag,
)


def kl_divergence(p: Any, q: Any) -> float:
    """Kullback-Leibler divergence from model p to model q, in nats.

    Parameters
    ----------
    p, q : BayesianNetwork, GaussianBayesianNetwork or MarkovRandomField
        Two models of the same kind over the same nodes, matched by name. Their
        graphs may differ. States are matched by label.

    Returns
    -------
    divergence : float
        Zero if the distributions are the same; infinite if q excludes something that
        is possible under p.

    Notes
    -----
    The divergence is exact. For discrete networks it is summed family by family,
    with the marginals of p on the families of q from exact inference, and the joint
    table is never built.

    Examples
    --------
    >>> from skprivbn.bayesian_network import BayesianNetwork
    >>> from skprivbn.metrics import kl_divergence
    >>> fair = BayesianNetwork(["coin"], [["head", "tail"]], [[]], [[0.5, 0.5]])
    >>> loaded = BayesianNetwork(["coin"], [["head", "tail"]], [[]], [[0.75, 0.25]])
    >>> round(kl_divergence(fair, loaded), 6)
    0.143841
    """
    for kind, divergence in (
        (BayesianNetwork, _discrete_kl),
        (GaussianBayesianNetwork, _gaussian_kl),
    ):
        if isinstance(p, kind) and isinstance(q, kind):
            _check_nodes(p, q)
            return divergence(p, q)
    # Undirected models bring their own divergence: metrics do not import them.
    if type(p) is type(q) and hasattr(p, "kl_divergence"):
        return p.kl_divergence(q)
    raise TypeError(
        "expected two BayesianNetwork, two GaussianBayesianNetwork or two "
        f"MarkovRandomField, got {type(p).__name__} and {type(q).__name__}"
    )


def conditional_kl_divergence(
    p: BayesianNetwork, q: BayesianNetwork
) -> dict[Hashable, float]:
    """Kullback-Leibler divergence of each node given its parents, in nats.

    Parameters
    ----------
    p, q : BayesianNetwork
        Two networks over the same nodes, matched by name, with the same states,
        matched by label.

    Returns
    -------
    divergences : dict of node to float
        For each node, the divergence of q's table from the conditional distribution
        of p given the parents that the node has in q, averaged over these parents
        as p has them. Never negative. Where both networks have the same parents,
        the values add up to :func:`kl_divergence`.

    Examples
    --------
    >>> from skprivbn.datasets import load_asia
    >>> from skprivbn.metrics import conditional_kl_divergence
    >>> asia = load_asia()
    >>> learnt = asia.from_data(
    ...     asia.sample(1000, random_state=0),
    ...     asia.parents,
    ...     nodes=asia.nodes,
    ...     states=asia.states,
    ... )
    >>> by_node = conditional_kl_divergence(asia, learnt)
    >>> max(by_node, key=by_node.get)
    'dysp'
    """
    if not (isinstance(p, BayesianNetwork) and isinstance(q, BayesianNetwork)):
        raise TypeError(
            f"expected two BayesianNetwork, got {type(p).__name__} and "
            f"{type(q).__name__}"
        )
    _check_nodes(p, q)
    _check_states(p, q)
    return {node: float(_conditional_kl(p, q, node)) for node in p.nodes}


def _check_nodes(p, q):
    if set(p.nodes) != set(q.nodes):
        raise ValueError(
            "the networks must have the same nodes, got "
            f"{sorted(set(p.nodes) ^ set(q.nodes))[:5]} in one only"
        )


def _check_states(p, q):
    for node in p.nodes:
        if set(p.states[node]) != set(q.states[node]):
            raise ValueError(
                f"node {node!r} has states {list(p.states[node])} in one network and "
                f"{list(q.states[node])} in the other"
            )


def _discrete_kl(p, q):
    _check_states(p, q)
    return float(sum(_family_kl(p, q, node) for node in p.nodes))


def _family_kl(p, q, node):
    """Return one node's part: E_p of log p(node | its parents) - log q(node | ...)."""
    ours, theirs = p.parents[node], q.parents[node]
    if set(ours) == set(theirs):
        return _conditional_kl(p, q, node)
    own = p.query([*ours, node])
    cross = p.query([*theirs, node])
    q_table = _normalised(_in_states_of(p, q, node))
    with np.errstate(divide="ignore"):
        log_q = np.where(cross > 0, np.log(q_table), 0.0)
    log_p = np.log(_normalised(p.cpts[node]), where=own > 0, out=np.zeros_like(own))
    return (own * log_p).sum() - (cross * log_q).sum()


def _conditional_kl(p, q, node):
    """Return E_p of the divergence of p from q at the node, given q's parents."""
    ours, theirs = p.parents[node], q.parents[node]
    q_table = _normalised(_in_states_of(p, q, node))
    if set(ours) == set(theirs):
        # p's own table, which inference would round.
        axes = [ours.index(parent) for parent in theirs]
        p_table = _normalised(p.cpts[node].transpose([*axes, len(axes)]))
        weights = p.query(theirs) if theirs else np.ones(())
    else:
        joint = p.query([*theirs, node])
        weights = joint.sum(axis=-1)
        p_table = joint / np.where(weights > 0, weights, 1.0)[..., None]
    # An impossible configuration of the parents has no part, even if infinite.
    rows = np.where(weights > 0, rel_entr(p_table, q_table).sum(axis=-1), 0.0)
    return (weights * rows).sum()


def _normalised(table):
    return table / table.sum(axis=-1, keepdims=True)


def _in_states_of(p, q, node):
    """Return q's table of a node with its axes in the order of p's labels."""
    table = q.cpts[node]
    for axis, variable in enumerate((*q.parents[node], node)):
        labels = q.states[variable]
        order = [labels.index(label) for label in p.states[variable]]
        table = table.take(order, axis=axis)
    return table


def _gaussian_kl(p, q):
    order = [q.nodes.index(node) for node in p.nodes]
    q_factor = np.linalg.cholesky(q.covariance[np.ix_(order, order)])
    p_factor = np.linalg.cholesky(p.covariance)
    ratio = solve_triangular(q_factor, p_factor, lower=True)
    shift = solve_triangular(q_factor, q.mean[order] - p.mean, lower=True)
    # Both factors are lower triangular, and so is their ratio: its diagonal gives
    # the log-determinants.
    log_determinants = -2 * np.log(np.diag(ratio)).sum()
    squares = (ratio**2).sum() + (shift**2).sum() - len(order)
    return float(max(0.0, 0.5 * (squares + log_determinants)))


def _check_graphs(truth, learnt):
    """Return two boolean matrices over the same nodes; networks match by name."""
    if isinstance(truth, BaseNetwork) and isinstance(learnt, BaseNetwork):
        _check_nodes(truth, learnt)
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
