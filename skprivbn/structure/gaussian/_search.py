"""From pooled moments to a graph: one entry for every search.

Partially directed graphs are boolean matrices with undirected edges present in both
directions, as in :mod:`skprivbn.bayesian_network`.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.special import ndtr

from skprivbn.bayesian_network import GaussianBayesianNetwork
from skprivbn.bayesian_network._dag import extend_to_dag, to_cpdag
from skprivbn.structure._equivalence import searching_equivalence
from skprivbn.structure._fci import direct_edges, find_skeleton
from skprivbn.structure._learnt import MAX_NOISE_RATIO, noise_ratio
from skprivbn.structure._search import complete
from skprivbn.structure.gaussian._lingam import graph_in_order
from skprivbn.structure.gaussian._notears import (
    acyclic_weights,
    golem,
    notears,
    top_down,
)
from skprivbn.structure.gaussian._scores import (
    COLLINEAR,
    FeatureMoments,
    ResidualScores,
    edge_penalty,
    effective_rows,
    graph_score,
    hill_climb,
    nearest_covariance,
)
from skprivbn.utils._linalg import correlation_of

#: searches that take no rules about edges
FREE_SEARCHES = ("pc", "golem", "notears")
#: searches whose directions come from equal noise variances
EQUAL_VARIANCE_SEARCHES = ("equal_variance", "golem", "notears")
#: searches that tell every direction
DIRECTED_SEARCHES = (*EQUAL_VARIANCE_SEARCHES, "lingam")
#: more variables have too many subsets for the memory of "exact"
MAX_VARIABLES = 20


@dataclass(frozen=True)
class FoundGraph:
    """A graph, the weights it was read off (if any) and its equivalence class."""

    adjacency: np.ndarray
    cpdag: np.ndarray
    weights: np.ndarray | None = None

    @classmethod
    def directed(cls, adjacency, weights=None):
        """Return a graph with its equivalence class."""
        return cls(adjacency, to_cpdag(adjacency), weights)

    @classmethod
    def of_strong(cls, weights, threshold):
        """Return the acyclic graph of weights above a threshold."""
        return cls.directed(acyclic_weights(weights, threshold) != 0, weights)


def _features(moments, options):
    features = options.get("features")
    if features is None:
        features = FeatureMoments.linear(moments.covariance, effective_rows(moments))
    return features


def _climb(moments, options, starts, equal_variances):
    """Climb from given graphs; keep the best end, of equal ones the first."""
    features = _features(moments, options)
    penalty = edge_penalty(moments.n_rows, len(moments.mean), features.n_features)
    how = {"equal_variances": equal_variances, "rules": options.get("rules")}
    best, highest = None, -np.inf
    for start in starts:
        graph, score = hill_climb(features, start, penalty=penalty, **how)
        # scores may differ by rounding
        if best is None or score > highest + 1e-9 * abs(highest):
            best, highest = graph, score
    return FoundGraph.directed(best)


def _equal_variance(moments, options):
    ordered = acyclic_weights(top_down(nearest_covariance(moments.covariance))) != 0
    starts = [_golem_graph(moments.covariance, 1e-4), ordered, None]
    return _climb(moments, options, starts, equal_variances=True)


def _golem_graph(covariance, tol):
    # single precision and a loose tolerance do: climbs start from strong weights
    covariance = nearest_covariance(covariance)
    return acyclic_weights(golem(covariance, tol=tol, dtype=np.float32)) != 0


def _bic(moments, options):
    # the first finds directions, if noise variances are equal; where they are far from
    # it, the start would follow the columns' units, as the score does not
    first = _golem_graph(moments.covariance, 1e-6)
    if _noise_ratio(moments, first) > MAX_NOISE_RATIO:
        first = _golem_graph(correlation_of(moments.covariance), 1e-6)
    starts = [first, _ges_graph(moments), None]
    return _climb(moments, options, starts, equal_variances=False)


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
    return _climb(moments, options, [_ges_graph(moments)], equal_variances=False)


def _exact(moments, options):
    penalty = edge_penalty(moments.n_rows, len(moments.mean))
    covariance = nearest_covariance(moments.covariance)
    scores = gaussian_scores(covariance, effective_rows(moments), penalty=penalty)
    rules = options.get("rules")
    if rules is not None:
        scores = partial(scores_within, scores, rules)
    graph, _ = exact_graph(scores, len(covariance))
    cpdag = to_cpdag(graph)
    # of the graphs that score alike, not the one that rounding errors prefer
    return FoundGraph(graph if rules is not None else extend_to_dag(cpdag), cpdag)


def scores_within(scores, rules, child):
    """Return the scores of all subsets as parents, of those that rules allow."""
    found, bits = scores(child), 1 << np.arange(len(rules.allowed))
    subsets = np.arange(len(found))
    must, never = (
        bits[which[:, child]].sum() for which in (rules.required, ~rules.allowed)
    )
    keeps = (subsets & must == must) & (subsets & never == 0)
    return np.where(keeps, found, -np.inf)


def _pc(moments, options):
    pdag = pc(
        moments.covariance,
        effective_rows(moments),
        significance=options["significance"],
    )
    return FoundGraph(extend_to_dag(pdag), pdag)


def _notears(moments, options):
    weights, _, _ = notears(moments.covariance, lambda1=options["lambda1"])
    return FoundGraph.of_strong(weights, options["threshold"])


def _golem(moments, options):
    return FoundGraph.of_strong(golem(moments.covariance), options["threshold"])


def _lingam(moments, options):
    rules = options.get("rules")
    graph = graph_in_order(moments.covariance, moments.n_rows, options["order"], rules)
    return FoundGraph.directed(graph)


SEARCHES = {
    "equal_variance": _equal_variance,
    "bic": _bic,
    "ges": _ges,
    "exact": _exact,
    "notears": _notears,
    "golem": _golem,
    "pc": _pc,
    "lingam": _lingam,
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
        ``lambda1``, ``threshold``, ``significance``, ``features`` (basis functions),
        ``order`` (of "lingam"), ``rules`` (EdgeRules), as far as the method uses them.

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
    different units, or noise differs, one variance loses. Where columns are not normal,
    which an `order` says, "lingam" takes the place of "bic".

    Parameters
    ----------
    moments : Moments
        Number of rows, mean and covariance.
    **options
        As of :func:`search`.

    Returns
    -------
    method : str
        "equal_variance", "bic" or "lingam"; "pc" if there are not more rows than
        columns.
    found : FoundGraph
    """
    d, features = len(moments.mean), _features(moments, options)
    if features.n_features == 1 and moments.n_rows <= d and not options.get("rules"):
        # likelihoods of so few rows favour noise; tests of single edges do not
        return "pc", search("pc", moments, **options)
    penalty = edge_penalty(moments.n_rows, d, features.n_features)
    other = "bic" if options.get("order") is None else "lingam"
    one = search("equal_variance", moments, **options)
    # privacy noise leaves few effective rows, which tell variances apart too late
    if _noise_ratio(moments, one.adjacency) > MAX_NOISE_RATIO:
        return other, search(other, moments, **options)
    # a sum of residual variances is d times the one that all share
    gain = 0.5 * features.n_rows * d * np.log(d)
    cost = 0.5 * (d - 1) * np.log(max(moments.n_rows, 2.0))
    bar = graph_score(features, one.adjacency, penalty=penalty) + gain + cost
    each = {"equal_variances": False, "penalty": penalty}
    rules = options.get("rules")
    # where variances of their own gain less than half their cost on the graph at hand,
    # the longer search for another graph can be spared
    if hill_climb(features, one.adjacency, rules=rules, **each)[1] <= bar - 0.5 * cost:
        return "equal_variance", one
    found = search("bic", moments, **options)
    if graph_score(features, found.adjacency, **each) <= bar:
        return "equal_variance", one
    return other, found if other == "bic" else search(other, moments, **options)


def ges(covariance, n_rows, *, penalty):
    """Greedy equivalence search with a Gaussian penalised likelihood.

    Parameters
    ----------
    covariance : ndarray of shape (d, d)
        Covariance of the variables.
    n_rows : float
        Rows behind it.
    penalty : float
        Cost of an edge; ``log(n) / 2`` is BIC.

    Returns
    -------
    ndarray of bool of shape (d, d)
        The equivalence class, undirected edges in both directions.
    """
    moments = FeatureMoments.linear(covariance, n_rows)
    scores = ResidualScores(moments, equal_variances=False, penalty=penalty)
    return complete(searching_equivalence(scores))


def pc(covariance, n_rows, *, significance=0.01):
    """PC through partial correlations and Fisher's z, the order-independent variant.

    Parameters
    ----------
    covariance : ndarray of shape (d, d)
        Covariance of the variables.
    n_rows : float
        Rows behind it.
    significance : float, default=0.01
        Level of the independence tests.

    Returns
    -------
    ndarray of bool of shape (d, d)
        Partially directed graph, undirected edges in both directions.

    References
    ----------
    Colombo, Maathuis. Order-independent constraint-based causal structure learning.
    JMLR 2014.
    """
    d, test = len(covariance), fisher_z(covariance, n_rows, significance)
    return direct_edges(*find_skeleton(test, d, d - 2))


def fisher_z(covariance, n_rows, significance):
    """Return Fisher's test of no partial correlation, as PC and FCI take it.

    Parameters
    ----------
    covariance : ndarray of shape (d, d)
    n_rows : float
    significance : float
        Level, up to which p values speak against independence.

    Returns
    -------
    independent : callable
        From two variables, and a tuple of those that are given, to a bool.
    """
    correlation = correlation_of(covariance)

    def independent(x, y, given):
        index = [x, y, *given]
        precision = np.linalg.pinv(correlation[np.ix_(index, index)], hermitian=True)
        partial = -precision[0, 1] / np.sqrt(precision[0, 0] * precision[1, 1])
        z = np.arctanh(np.clip(partial, -1.0 + 1e-12, 1.0 - 1e-12))
        # too few rows for a test say nothing against independence
        p = 2.0 * ndtr(-abs(z) * np.sqrt(max(n_rows - len(given) - 3, 0.0)))
        return bool(p > significance)

    return independent


def exact_graph(scores, n_variables):
    """Find a graph with the highest sum of scores of its families.

    By dynamic programming over subsets of the variables. A subset is an integer, whose
    bit `v` says whether variable `v` is in it.

    Parameters
    ----------
    scores : callable
        From a child to the scores of all subsets as its parents, an ndarray of shape
        (2**n_variables,); -inf where the child is one of them.
    n_variables : int
        At most 20.

    Returns
    -------
    adjacency : ndarray of bool of shape (n_variables, n_variables)
        One of the graphs that share the highest score.
    score : float

    References
    ----------
    Singh, Moore. Finding optimal Bayesian networks by dynamic programming. CMU 2005.
    Silander, Myllymäki. A simple approach for finding the globally optimal Bayesian
    network structure. UAI 2006.
    """
    d = n_variables
    subsets = np.arange(2**d)
    sizes = np.bitwise_count(subsets)
    # of all subsets of the candidates, the best parents
    best = np.array([_highest_within(scores(child)) for child in range(d)])
    # a graph of some variables has a sink: its parents are among the others
    total, sink = np.full(2**d, -np.inf), np.zeros(2**d, dtype=np.int8)
    total[0] = 0.0
    for size in range(1, d + 1):
        layer = subsets[sizes == size]
        for child in range(d):
            last = layer[layer >> child & 1 == 1]
            others = last ^ 1 << child
            found = total[others] + best[child, others]
            higher = found > total[last]
            total[last[higher]], sink[last[higher]] = found[higher], child
    graph, left = np.zeros((d, d), dtype=bool), 2**d - 1
    while left:
        child = int(sink[left])
        left ^= 1 << child
        within = np.where(subsets & ~left == 0, scores(child), -np.inf)
        graph[:, child] = int(within.argmax()) >> np.arange(d) & 1
    return graph, float(total[-1])


def gaussian_scores(covariance, n_rows, *, penalty):
    """Return the penalised Gaussian likelihoods of all families.

    Parameters
    ----------
    covariance : ndarray of shape (d, d)
    n_rows : float
        Rows behind it.
    penalty : float
        Cost of an edge; ``log(n) / 2`` is BIC.

    Returns
    -------
    scores : callable
        As :func:`exact_graph` takes it.
    """
    volumes, subsets = log_determinants(covariance), np.arange(2 ** len(covariance))
    costs = penalty * np.bitwise_count(subsets).astype(np.int64)

    def scores(child):
        with_child = subsets | 1 << child
        found = -0.5 * n_rows * (volumes[with_child] - volumes) - costs
        return np.where(with_child == subsets, -np.inf, found)

    return scores


def log_determinants(covariance):
    """Return the log-determinants of the covariances of all subsets of variables.

    Parameters
    ----------
    covariance : ndarray of shape (d, d)

    Returns
    -------
    volumes : ndarray of shape (2**d,)
    """
    found, given = np.zeros(1), covariance[None]
    for variance in np.diag(covariance):
        # covariances given the subset, with and without the next variable
        least = COLLINEAR * max(variance, np.finfo(float).tiny)
        pivot = np.maximum(given[:, 0, 0], least)
        found = np.append(found, found + np.log(pivot))
        row, rest = given[:, 0, 1:], given[:, 1:, 1:]
        change = row[:, :, None] * (row / pivot[:, None])[:, None, :]
        given = np.concatenate([rest, rest - change])
    return found


def _highest_within(scores):
    """Return the highest of the scores of all subsets of each subset."""
    highest = scores.copy()
    for v in range(len(scores).bit_length() - 1):
        without, with_v = np.moveaxis(highest.reshape(-1, 2, 2**v), 1, 0)
        np.maximum(with_v, without, out=with_v)
    return highest
