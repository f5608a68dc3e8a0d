"""From pooled moments to a graph: one entry for every search."""

from dataclasses import dataclass

import numpy as np

from skprivbn.bayesian_network import GaussianBayesianNetwork
from skprivbn.bayesian_network._dag import extend_to_dag, to_cpdag
from skprivbn.structure._acyclicity import acyclic_weights
from skprivbn.structure._continuous import MAX_NOISE_RATIO, noise_ratio
from skprivbn.structure.gaussian._equivalence_search import ges, pc
from skprivbn.structure.gaussian._exact import exact_graph
from skprivbn.structure.gaussian._hill_climbing import (
    FeatureMoments,
    edge_penalty,
    graph_score,
    hill_climb,
)
from skprivbn.structure.gaussian._moments import effective_rows, nearest_covariance
from skprivbn.structure.gaussian._notears import golem, notears, top_down

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


def _features(moments, options):
    features = options.get("features")
    if features is None:
        features = FeatureMoments.linear(moments.covariance, effective_rows(moments))
    return features


def _equal_variance(moments, options):
    features = _features(moments, options)
    penalty = edge_penalty(moments.n_rows, len(moments.mean), features.n_features)
    ordered = top_down(nearest_covariance(moments.covariance))
    starts = [_golem_graph(moments.covariance, 1e-4), acyclic_weights(ordered) != 0]
    graph = best_hill_climb(features, starts, penalty=penalty)
    return FoundGraph(graph, to_cpdag(graph))


def _golem_graph(covariance, tol):
    # single precision and a loose tolerance do: climbs start from strong weights
    covariance = nearest_covariance(covariance)
    return acyclic_weights(golem(covariance, tol=tol, dtype=np.float32)) != 0


def _bic(moments, options):
    features = _features(moments, options)
    penalty = edge_penalty(moments.n_rows, len(moments.mean), features.n_features)
    # the first finds directions, if noise variances are equal; where they are far from
    # it, the start would follow the columns' units, as the score does not
    first = _golem_graph(moments.covariance, 1e-6)
    if _noise_ratio(moments, first) > MAX_NOISE_RATIO:
        scale = np.sqrt(np.diag(moments.covariance))
        first = _golem_graph(moments.covariance / np.outer(scale, scale), 1e-6)
    starts = [first, _ges_graph(moments)]
    graph = best_hill_climb(features, starts, equal_variances=False, penalty=penalty)
    return FoundGraph(graph, to_cpdag(graph))


def _noise_ratio(moments, graph):
    network = GaussianBayesianNetwork.fit_from_moments(
        moments.mean, nearest_covariance(moments.covariance), graph
    )
    return noise_ratio(network, moments.noise)[0]


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


def _exact(moments, options):
    penalty = edge_penalty(moments.n_rows, len(moments.mean))
    covariance = nearest_covariance(moments.covariance)
    graph, _ = exact_graph(covariance, effective_rows(moments), penalty=penalty)
    # of the graphs that score alike, not the one that rounding errors prefer
    cpdag = to_cpdag(graph)
    return FoundGraph(extend_to_dag(cpdag), cpdag)


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
    "exact": _exact,
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


def choose(moments, **options):
    """Search as the moments themselves speak for: what "auto" does.

    The graph of "equal_variance" with one noise variance, and that of "bic" with one
    for each variable, are compared by their penalised likelihoods; each variance costs
    half a logarithm of the rows, as a weight does in BIC. Where columns are in
    different units, or noise differs, one variance loses.

    Parameters
    ----------
    moments : Moments
        Number of rows, mean and covariance.
    **options
        As of :func:`search`.

    Returns
    -------
    method : str
        "equal_variance" or "bic"; "pc" if there are not more rows than columns.
    found : FoundGraph
    """
    d, features = len(moments.mean), _features(moments, options)
    if features.n_features == 1 and moments.n_rows <= d:
        # likelihoods of so few rows favour noise; tests of single edges do not
        return "pc", search("pc", moments, **options)
    penalty = edge_penalty(moments.n_rows, d, features.n_features)

    one = search("equal_variance", moments, **options)
    # privacy noise leaves few effective rows, which tell variances apart too late
    if _noise_ratio(moments, one.adjacency) > MAX_NOISE_RATIO:
        return "bic", search("bic", moments, **options)
    # a sum of residual variances is d times the one that all share
    gain = 0.5 * features.n_rows * d * np.log(d)
    cost = 0.5 * (d - 1) * np.log(max(moments.n_rows, 2.0))
    bar = graph_score(features, one.adjacency, penalty=penalty) + gain + cost
    each = {"equal_variances": False, "penalty": penalty}
    # where variances of their own gain less than half their cost on the graph at hand,
    # the longer search for another graph can be spared
    if hill_climb(features, one.adjacency, **each)[1] <= bar - 0.5 * cost:
        return "equal_variance", one
    found = search("bic", moments, **options)
    if graph_score(features, found.adjacency, **each) <= bar:
        return "equal_variance", one
    return "bic", found
