"""Time series from random structural vector autoregressions."""

from numbers import Integral, Real

import numpy as np
from sklearn.utils import check_random_state

from skprivbn.datasets._graphs import random_dag, random_weights
from skprivbn.datasets._sem import check_weight_range
from skprivbn.utils._sklearn import Interval, validate_params
from skprivbn.utils._typing import RandomStateLike


@validate_params(
    {
        "n_samples": [Interval(Integral, 1, None, closed="left")],
        "n_features": [Interval(Integral, 1, None, closed="left")],
        "n_series": [Interval(Integral, 1, None, closed="left")],
        "n_lags": [Interval(Integral, 1, None, closed="left")],
        "n_edges": [Interval(Integral, 0, None, closed="left"), None],
        "n_lagged_edges": [Interval(Integral, 0, None, closed="left"), None],
        "weight_range": [tuple, list],
        "lagged_weight_range": [tuple, list],
        "max_radius": [Interval(Real, 0, 1, closed="neither")],
        "noise_scale": [Interval(Real, 0, None, closed="neither")],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
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
    if n_edges is None:
        n_edges = min(n_features, n_features * (n_features - 1) // 2)
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
