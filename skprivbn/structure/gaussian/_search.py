"""From pooled moments to a graph: one entry for every search."""

from dataclasses import dataclass

import numpy as np

from skprivbn.bayesian_network import GaussianBayesianNetwork
from skprivbn.bayesian_network._dag import extend_to_dag, to_cpdag
from skprivbn.structure._acyclicity import acyclic_weights
from skprivbn.structure.gaussian._equivalence_search import ges, pc
from skprivbn.structure.gaussian._hill_climbing import (
    FeatureMoments,
    edge_penalty,
    hill_climb,
)
from skprivbn.structure.gaussian._moments import effective_rows
from skprivbn.structure.gaussian._notears import golem, notears

#: searches whose directions come from equal noise variances
EQUAL_VARIANCE_SEARCHES = ("equal_variance", "golem", "notears")


@dataclass(frozen=True)
class FoundGraph:
    """A graph, the weights it was read off (if any) and its equivalence class."""

    adjacency: np.ndarray
    cpdag: np.ndarray
    weights: np.ndarray | None = None


def best_hill_climb(moments, starts, **options):
    """Climb from given graphs and from the empty one; keep the best end.

    Of ends that score alike but for rounding, that of the first start.
    """
    best, highest = None, -np.inf
    for start in (*starts, None):
        graph, score = hill_climb(moments, start, **options)
        if best is None or score > highest + 1e-9 * abs(highest):
            best, highest = graph, score
    return best


def _equal_variance(moments, options):
    features = options.get("features")
    if features is None:
        features = FeatureMoments.linear(moments.covariance, effective_rows(moments))
    penalty = edge_penalty(moments.n_rows, len(moments.mean), features.n_features)
    starts = [acyclic_weights(golem(moments.covariance)) != 0]
    graph = best_hill_climb(features, starts, penalty=penalty)
    return FoundGraph(graph, to_cpdag(graph))


def _bic(moments, options):
    features = options.get("features")
    if features is None:
        features = FeatureMoments.linear(moments.covariance, effective_rows(moments))
    penalty = edge_penalty(moments.n_rows, len(moments.mean), features.n_features)
    # the first finds directions, if noise variances are equal; the second does not
    # depend on the columns' units, nor does the score
    starts = [acyclic_weights(golem(moments.covariance)) != 0, _ges_graph(moments)]
    graph = best_hill_climb(features, starts, equal_variances=False, penalty=penalty)
    return FoundGraph(graph, to_cpdag(graph))


def _ges_graph(moments):
    penalty = edge_penalty(moments.n_rows, len(moments.mean))
    return extend_to_dag(
        ges(moments.covariance, effective_rows(moments), penalty=penalty)
    )


def _ges(moments, options):
    # greedy equivalence search can end short of a maximum; going on from a member of
    # the class never lowers the score
    features = FeatureMoments.linear(moments.covariance, effective_rows(moments))
    penalty = edge_penalty(moments.n_rows, len(moments.mean))
    graph, _ = hill_climb(
        features, _ges_graph(moments), equal_variances=False, penalty=penalty
    )
    return FoundGraph(graph, to_cpdag(graph))


def _pc(moments, options):
    pdag = pc(
        moments.covariance,
        effective_rows(moments),
        significance=options["significance"],
    )
    return FoundGraph(extend_to_dag(pdag), pdag)


def _notears(moments, options):
    weights, _, _ = notears(moments.covariance, lambda1=options["lambda1"])
    graph = acyclic_weights(weights, options["threshold"]) != 0
    return FoundGraph(graph, to_cpdag(graph), weights)


def _golem(moments, options):
    weights = golem(moments.covariance)
    graph = acyclic_weights(weights, options["threshold"]) != 0
    return FoundGraph(graph, to_cpdag(graph), weights)


SEARCHES = {
    "equal_variance": _equal_variance,
    "bic": _bic,
    "ges": _ges,
    "notears": _notears,
    "golem": _golem,
    "pc": _pc,
}


def search(method, moments, **options):
    """Learn a graph from moments.

    Parameters
    ----------
    method : str
        One of :data:`SEARCHES`.
    moments : Moments
        Number of rows, mean and covariance.
    **options
        ``lambda1``, ``threshold``, ``significance``, ``features`` (basis functions), as
        far as the method uses them.

    Returns
    -------
    FoundGraph
        With an acyclic adjacency matrix.
    """
    return SEARCHES[method](moments, options)


def held_out(adjacency, moments, other):
    """Mean log-likelihood of rows known by their moments `other` only.

    The network is fitted on `moments`; quadratic forms in rows average to moments.
    """
    network = GaussianBayesianNetwork.fit_from_moments(
        moments.mean, moments.covariance, adjacency
    )
    shift = other.mean - network.mean
    second = other.covariance + np.outer(shift, shift)
    rest = np.eye(len(shift)) - network.weights
    residual = np.einsum("ij,ik,kj->j", rest, second, rest)
    terms = residual / network.variances + np.log(2.0 * np.pi * network.variances)
    return float(-0.5 * terms.sum())
