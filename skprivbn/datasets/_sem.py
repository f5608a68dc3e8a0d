"""Rows and time series from random structural equation models, and random graphs."""

from __future__ import annotations

from numbers import Integral, Real

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from skprivbn.utils._sklearn import Interval, StrOptions, validate_params
from skprivbn.utils._typing import RandomStateLike

MODEL_CONSTRAINTS = {
    "n_samples": [Interval(Integral, 1, None, closed="left")],
    "n_features": [Interval(Integral, 1, None, closed="left")],
    "n_edges": [Interval(Integral, 0, None, closed="left"), None],
    "random_state": ["random_state"],
}
GRAPH_CONSTRAINTS = {
    **MODEL_CONSTRAINTS,
    "graph": [StrOptions({"erdos_renyi", "scale_free"})],
    "noise_scale": [Interval(Real, 0, None, closed="neither"), "array-like"],
}


@validate_params(
    {
        **GRAPH_CONSTRAINTS,
        "weight_range": [tuple, list],
        "noise": [StrOptions({"gaussian", "exponential", "gumbel"})],
    }
)
def make_linear_sem(
    n_samples: int = 100,
    n_features: int = 10,
    *,
    n_edges: int | None = None,
    graph: str = "erdos_renyi",
    weight_range: tuple[float, float] = (0.5, 2.0),
    noise: str = "gaussian",
    noise_scale: ArrayLike = 1.0,
    random_state: RandomStateLike = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Generate data from a random linear structural equation model.

    A random directed acyclic graph gets random weights, and every variable is
    the weighted sum of its parents plus independent noise, ``X = X W + N``.

    Parameters
    ----------
    n_samples : int, default=100
        Number of rows.
    n_features : int, default=10
        Number of variables.
    n_edges : int, default=None
        Exact number of edges; `None` means ``n_features``, or as many as an
        acyclic graph can hold.
    graph : {"erdos_renyi", "scale_free"}, default="erdos_renyi"
        "erdos_renyi" places all edges uniformly at random. "scale_free" lets
        variables attach preferentially (Barabasi-Albert): a few of them have
        very many parents.
    weight_range : tuple of (float, float), default=(0.5, 2.0)
        Smallest and largest magnitude of a weight; signs are random.
    noise : {"gaussian", "exponential", "gumbel"}, default="gaussian"
        Distribution of the noise. The last two are not centred: their means are
        1 and 0.577 times the scale.
    noise_scale : float or array-like of shape (n_features,), default=1.0
        Scale of the noise, for a Gaussian its standard deviation; one number for
        all variables or one for each.
    random_state : int, RandomState instance or None, default=None
        Seed for reproducible output.

    Returns
    -------
    X : ndarray of shape (n_samples, n_features)
        The generated rows.
    weights : ndarray of shape (n_features, n_features)
        ``weights[i, j]`` is the effect of variable i on variable j, 0 without an
        edge.

    See Also
    --------
    make_mlp_sem : Non-linear effects.
    make_var_sem : Time series.

    Notes
    -----
    These are the simulations of the NOTEARS papers [1]_. Variances grow along
    the order of causes, which many learners exploit: standardise the columns to
    see what remains [2]_.

    References
    ----------
    .. [1] Zheng, Aragam, Ravikumar and Xing (2018). DAGs with NO TEARS: Continuous
       optimization for structure learning. NeurIPS.
    .. [2] Reisach, Seiler and Weichwald (2021). Beware of the simulated DAG! Causal
       discovery benchmarks may be easy to game. NeurIPS.

    Examples
    --------
    >>> from skprivbn.datasets import make_linear_sem
    >>> X, weights = make_linear_sem(n_samples=50, n_features=5, random_state=0)
    >>> X.shape
    (50, 5)
    >>> int((weights != 0).sum())
    5
    """
    rng = check_random_state(random_state)
    weight_range = check_weight_range(weight_range)
    scale = _check_noise_scale(noise_scale, n_features)
    n_edges = _default_edges(n_edges, n_features)
    adjacency, _ = random_dag(n_features, n_edges, rng, graph=graph)
    weights = random_weights(adjacency, weight_range, rng)
    draw = rng.normal if noise == "gaussian" else getattr(rng, noise)
    errors = draw(size=(n_samples, n_features))
    X = np.linalg.solve((np.eye(n_features) - weights).T, (errors * scale).T).T
    return np.ascontiguousarray(X), weights


@validate_params(
    {**GRAPH_CONSTRAINTS, "n_hidden": [Interval(Integral, 1, None, closed="left")]}
)
def make_mlp_sem(
    n_samples: int = 100,
    n_features: int = 10,
    *,
    n_edges: int | None = None,
    graph: str = "erdos_renyi",
    n_hidden: int = 100,
    noise_scale: ArrayLike = 1.0,
    random_state: RandomStateLike = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Generate data from a random non-linear structural equation model.

    Every variable is a random neural network of its parents, with one hidden
    layer of sigmoid units, plus independent Gaussian noise.

    Parameters
    ----------
    n_samples : int, default=100
        Number of rows.
    n_features : int, default=10
        Number of variables.
    n_edges : int, default=None
        Exact number of edges; `None` means ``n_features``, or as many as an
        acyclic graph can hold.
    graph : {"erdos_renyi", "scale_free"}, default="erdos_renyi"
        How edges are placed, as in :func:`make_linear_sem`.
    n_hidden : int, default=100
        Number of hidden units of each network; all its weights have random signs
        and magnitudes uniform in [0.5, 2].
    noise_scale : float or array-like of shape (n_features,), default=1.0
        Standard deviation of the noise, one for all variables or one for each.
    random_state : int, RandomState instance or None, default=None
        Seed for reproducible output.

    Returns
    -------
    X : ndarray of shape (n_samples, n_features)
        The generated rows.
    adjacency_matrix : ndarray of shape (n_features, n_features), dtype=bool
        ``adjacency_matrix[i, j]`` says whether variable i acts on variable j.

    See Also
    --------
    make_linear_sem : Linear effects.

    References
    ----------
    .. [1] Zheng, Dan, Aragam, Ravikumar and Xing (2020). Learning sparse
       nonparametric DAGs. AISTATS.

    Examples
    --------
    >>> from skprivbn.datasets import make_mlp_sem
    >>> X, adjacency_matrix = make_mlp_sem(50, 5, n_edges=4, random_state=0)
    >>> X.shape
    (50, 5)
    >>> int(adjacency_matrix.sum())
    4
    """
    rng = check_random_state(random_state)
    scale = _check_noise_scale(noise_scale, n_features)
    n_edges = _default_edges(n_edges, n_features)
    adjacency, order = random_dag(n_features, n_edges, rng, graph=graph)
    X = rng.normal(size=(n_samples, n_features)) * scale
    for node in order:
        parents = np.flatnonzero(adjacency[:, node])
        if not len(parents):
            continue
        everywhere = np.ones((len(parents) + 1, n_hidden), dtype=bool)
        network = random_weights(everywhere, (0.5, 2.0), rng)
        hidden = 1 / (1 + np.exp(-X[:, parents] @ network[:-1]))
        X[:, node] += hidden @ network[-1]
    return X, adjacency


def check_weight_range(weight_range, name="weight_range"):
    """Return the range as two floats with 0 <= low <= high, or raise."""
    if len(weight_range) != 2 or not 0 <= weight_range[0] <= weight_range[1]:
        raise ValueError(
            f"{name} must be two magnitudes, 0 <= smallest <= largest, "
            f"got {weight_range!r}."
        )
    return float(weight_range[0]), float(weight_range[1])


def _check_noise_scale(noise_scale, n_features):
    scale = np.asarray(noise_scale, dtype=float)
    if scale.shape not in ((), (n_features,)) or not (scale > 0).all():
        raise ValueError(
            f"noise_scale must be a positive number or {n_features} of them (one per "
            f"variable), got {noise_scale!r}."
        )
    return scale


def _default_edges(n_edges, n_features):
    most = n_features * (n_features - 1) // 2
    return min(n_features, most) if n_edges is None else n_edges


@validate_params(
    {
        **MODEL_CONSTRAINTS,
        "n_series": [Interval(Integral, 1, None, closed="left")],
        "n_lags": [Interval(Integral, 1, None, closed="left")],
        "n_lagged_edges": [Interval(Integral, 0, None, closed="left"), None],
        "weight_range": [tuple, list],
        "lagged_weight_range": [tuple, list],
        "max_radius": [Interval(Real, 0, 1, closed="neither")],
        "noise_scale": [Interval(Real, 0, None, closed="neither")],
    }
)
def make_var_sem(
    n_samples: int = 100,
    n_features: int = 5,
    *,
    n_series: int = 1,
    n_lags: int = 1,
    n_edges: int | None = None,
    n_lagged_edges: int | None = None,
    weight_range: tuple[float, float] = (0.5, 2.0),
    lagged_weight_range: tuple[float, float] = (0.3, 0.5),
    max_radius: float = 0.95,
    noise_scale: float = 1.0,
    random_state: RandomStateLike = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Generate time series from a random structural vector autoregression.

    Variables act on each other at once, along a directed acyclic graph with
    weights W, and after 1 to ``n_lags`` steps, with weights A that need not be
    acyclic: ``x_t = x_t W + x_(t-1) A_1 + ... + x_(t-p) A_p + noise``.

    Parameters
    ----------
    n_samples : int, default=100
        Number of time steps of each series.
    n_features : int, default=5
        Number of variables.
    n_series : int, default=1
        Number of independent series from the same model.
    n_lags : int, default=1
        How many steps back effects reach.
    n_edges : int, default=None
        Exact number of instantaneous effects; `None` means ``n_features``, or as
        many as an acyclic graph can hold.
    n_lagged_edges : int, default=None
        Exact number of effects for each lag, effects of a variable on itself
        included; `None` means ``n_features``.
    weight_range : tuple of (float, float), default=(0.5, 2.0)
        Smallest and largest magnitude of an instantaneous weight.
    lagged_weight_range : tuple of (float, float), default=(0.3, 0.5)
        The same for lagged weights, before they are shrunk for stability.
    max_radius : float, default=0.95
        Largest spectral radius of the process. One that would exceed it (1 or
        more is unstable) has its lag-l weights multiplied by c^l, with the c
        that meets the bound exactly.
    noise_scale : float, default=1.0
        Standard deviation of the Gaussian noise.
    random_state : int, RandomState instance or None, default=None
        Seed for reproducible output.

    Returns
    -------
    X : ndarray of shape (n_series * n_samples, n_features)
        The series one below the other, each in the order of time.
    series : ndarray of shape (n_series * n_samples,)
        Which series a row belongs to, 0 to ``n_series - 1``.
    weights : ndarray of shape (n_features, n_features)
        ``weights[i, j]`` is the instantaneous effect of variable i on variable j.
    lagged_weights : ndarray of shape (n_lags, n_features, n_features)
        ``lagged_weights[l - 1, i, j]`` is the effect of variable i on variable j
        after l steps.

    See Also
    --------
    make_linear_sem : Independent rows.

    References
    ----------
    .. [1] Pamfil, Sriwattanaworachai, Desai, Pilgerstorfer, Beaumont, Georgatzis
       and Aragam (2020). DYNOTEARS: Structure learning from time-series data.
       AISTATS.

    Examples
    --------
    >>> from skprivbn.datasets import make_var_sem
    >>> X, series, weights, lagged_weights = make_var_sem(
    ...     n_samples=50, n_features=4, n_series=3, n_lags=2, random_state=0
    ... )
    >>> X.shape, lagged_weights.shape
    ((150, 4), (2, 4, 4))
    """
    rng = check_random_state(random_state)
    weight_range = check_weight_range(weight_range)
    lagged_range = check_weight_range(lagged_weight_range, "lagged_weight_range")
    n_edges = _default_edges(n_edges, n_features)
    if n_lagged_edges is None:
        n_lagged_edges = n_features
    if n_lagged_edges > n_features**2:
        raise ValueError(
            f"n_lagged_edges={n_lagged_edges} is too many: {n_features} variables "
            f"have {n_features**2} pairs."
        )
    adjacency, _ = random_dag(n_features, n_edges, rng)
    weights = random_weights(adjacency, weight_range, rng)
    lagged_mask = np.zeros((n_lags, n_features, n_features), dtype=bool)
    for mask in lagged_mask:
        mask.flat[rng.choice(mask.size, n_lagged_edges, replace=False)] = True
    lagged_weights = random_weights(lagged_mask, lagged_range, rng)

    radius = spectral_radius(weights, lagged_weights)
    if radius > max_radius:
        powers = np.arange(1, n_lags + 1)[:, None, None]
        lagged_weights *= (max_radius / radius) ** powers

    X = _simulate(weights, lagged_weights, n_series, n_samples, noise_scale, rng)
    series = np.repeat(np.arange(n_series), n_samples)
    return X.reshape(-1, n_features), series, weights, lagged_weights


def spectral_radius(weights, lagged_weights):
    """Return the largest modulus among the eigenvalues of the process.

    Below 1 the process is stable. The eigenvalues are those of the companion
    matrix of the reduced form ``x_t = sum_l x_(t-l) A_l (I - W)^-1 + ...``.
    """
    n_lags, n_features, _ = lagged_weights.shape
    reduced = lagged_weights @ np.linalg.inv(np.eye(n_features) - weights)
    companion = np.eye(n_lags * n_features, k=n_features)
    companion[:, :n_features] = reduced.reshape(-1, n_features)
    return float(np.abs(np.linalg.eigvals(companion)).max())


def _simulate(weights, lagged_weights, n_series, n_samples, noise_scale, rng):
    """Run all series side by side, forgetting the start before recording."""
    n_lags, n_features, _ = lagged_weights.shape
    now = np.linalg.inv(np.eye(n_features) - weights)
    stacked = lagged_weights.reshape(-1, n_features)
    # Long enough that what is left of the start is a millionth.
    radius = spectral_radius(weights, lagged_weights)
    burn_in = 50 + (int(np.log(1e-6) / np.log(radius)) if radius > 0 else 0)
    X = np.zeros((n_series, n_lags + burn_in + n_samples, n_features))
    noise = rng.normal(scale=noise_scale, size=X.shape)
    for t in range(n_lags, X.shape[1]):
        past = X[:, t - n_lags : t][:, ::-1].reshape(n_series, -1)
        X[:, t] = (past @ stacked + noise[:, t]) @ now
    return X[:, n_lags + burn_in :]


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
