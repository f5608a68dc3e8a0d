"""Continuous data from random structural equation models."""

from numbers import Integral, Real

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from skprivbn.datasets._graphs import random_dag, random_weights
from skprivbn.utils._sklearn import Interval, StrOptions, validate_params
from skprivbn.utils._typing import RandomStateLike

GRAPH_CONSTRAINTS = {
    "n_samples": [Interval(Integral, 1, None, closed="left")],
    "n_features": [Interval(Integral, 1, None, closed="left")],
    "n_edges": [Interval(Integral, 0, None, closed="left"), None],
    "graph": [StrOptions({"erdos_renyi", "scale_free"})],
    "noise_scale": [Interval(Real, 0, None, closed="neither"), "array-like"],
    "random_state": ["random_state"],
}


@validate_params(
    {
        **GRAPH_CONSTRAINTS,
        "weight_range": [tuple, list],
        "noise": [StrOptions({"gaussian", "exponential", "gumbel"})],
    },
    prefer_skip_nested_validation=True,
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
    draw = {"gaussian": rng.normal, "gumbel": rng.gumbel}.get(noise)
    size = (n_samples, n_features)
    errors = rng.exponential(size=size) if draw is None else draw(size=size)
    X = np.linalg.solve((np.eye(n_features) - weights).T, (errors * scale).T).T
    return np.ascontiguousarray(X), weights


@validate_params(
    {**GRAPH_CONSTRAINTS, "n_hidden": [Interval(Integral, 1, None, closed="left")]},
    prefer_skip_nested_validation=True,
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
