import numpy as np
import pytest
from scipy import stats

from skprivbn.datasets import make_linear_sem, make_mlp_sem, make_var_sem
from skprivbn.datasets._sem import random_connected_graph, random_dag, spectral_radius


def is_acyclic(adjacency):
    # A nilpotent matrix of path counts: independent of the package's own DAG code.
    power = np.linalg.matrix_power(adjacency.astype(float), len(adjacency))
    return not power.any()


@pytest.mark.parametrize("graph", ["erdos_renyi", "scale_free"])
@pytest.mark.parametrize(
    "n_nodes, n_edges", [(1, 0), (2, 1), (6, 0), (6, 15), (20, 40)]
)
def test_random_dag_is_acyclic_with_exact_edges(graph, n_nodes, n_edges):
    for seed in range(5):
        rng = np.random.RandomState(seed)
        adjacency, order = random_dag(n_nodes, n_edges, rng, graph=graph)
        assert adjacency.sum() == n_edges
        assert is_acyclic(adjacency)
        assert not np.tril(adjacency[np.ix_(order, order)]).any()


def test_random_dag_places_every_edge_equally_often():
    rng = np.random.RandomState(0)
    total = sum(random_dag(5, 4, rng)[0].astype(int) for _ in range(2000))
    off_diagonal = total[~np.eye(5, dtype=bool)]
    assert stats.chisquare(off_diagonal).pvalue > 1e-3


def test_scale_free_graph_has_hubs():
    most = {
        graph: np.mean(
            [
                random_dag(100, 100, np.random.RandomState(s), graph=graph)[0]
                .sum(axis=0)
                .max()
                for s in range(10)
            ]
        )
        for graph in ["erdos_renyi", "scale_free"]
    }
    assert most["scale_free"] > 3 * most["erdos_renyi"]


def test_random_dag_respects_max_parents():
    adjacency, _ = random_dag(10, 17, np.random.RandomState(0), max_parents=2)
    assert adjacency.sum(axis=0).max() == 2
    with pytest.raises(ValueError, match="at most 2 parents each has at most 17 edges"):
        random_dag(10, 18, np.random.RandomState(0), max_parents=2)


@pytest.mark.parametrize("n_nodes, n_edges", [(2, 1), (10, 9), (10, 20), (10, 45)])
def test_random_connected_graph(n_nodes, n_edges):
    nx = pytest.importorskip("networkx")
    edges = random_connected_graph(n_nodes, n_edges, np.random.RandomState(0))
    assert len(set(edges)) == n_edges
    assert all(i < j for i, j in edges)
    assert nx.is_connected(nx.Graph(edges))
    assert max(map(max, edges)) < n_nodes


def test_linear_sem_weights_and_seed():
    X, weights = make_linear_sem(20, 30, n_edges=60, random_state=3)
    magnitudes = np.abs(weights[weights != 0])
    assert len(magnitudes) == 60
    assert magnitudes.min() >= 0.5 and magnitudes.max() <= 2
    assert 0.25 < (weights[weights != 0] > 0).mean() < 0.75
    again, weights_again = make_linear_sem(20, 30, n_edges=60, random_state=3)
    np.testing.assert_array_equal(X, again)
    np.testing.assert_array_equal(weights, weights_again)


@pytest.mark.parametrize(
    "noise, distribution",
    [
        ("gaussian", stats.norm()),
        ("exponential", stats.expon()),
        ("gumbel", stats.gumbel_r()),
    ],
)
def test_linear_sem_residuals_are_independent_noise(noise, distribution):
    scale = np.array([0.5, 1.0, 2.0, 3.0])
    X, weights = make_linear_sem(
        4000, 4, n_edges=5, noise=noise, noise_scale=scale, random_state=0
    )
    residuals = (X - X @ weights) / scale
    for column in residuals.T:
        assert stats.kstest(column, distribution.cdf).pvalue > 1e-3
    correlation = np.corrcoef(residuals.T) - np.eye(4)
    assert np.abs(correlation).max() < 0.06


def test_mlp_sem_is_nonlinear_and_acts_along_edges_only():
    X, adjacency = make_mlp_sem(3000, 6, n_edges=6, random_state=1)
    assert adjacency.dtype == bool and adjacency.sum() == 6 and is_acyclic(adjacency)
    roots = ~adjacency.any(axis=0)
    np.testing.assert_allclose(X[:, roots].std(axis=0), 1, atol=0.1)
    # Sums of sigmoids of the parents spread more than the unit noise alone.
    assert (X[:, ~roots].std(axis=0) > 1.2).all()


def test_mlp_sem_noise_does_not_depend_on_parents():
    X, adjacency = make_mlp_sem(20000, 2, n_edges=1, random_state=0)
    parent, child = np.argwhere(adjacency)[0]
    rows = np.argsort(X[:, parent])
    # Within narrow slices of the parent what is left is the unit noise.
    slices = X[rows, child].reshape(-1, 20)
    assert np.sqrt(slices.var(axis=1, ddof=1).mean()) == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("n_lags", [1, 3])
def test_var_sem_is_stable(n_lags):
    for seed in range(20):
        X, series, weights, lagged = make_var_sem(
            30, 6, n_series=2, n_lags=n_lags, n_lagged_edges=20, random_state=seed
        )
        assert X.shape == (60, 6) and lagged.shape == (n_lags, 6, 6)
        np.testing.assert_array_equal(series, np.repeat([0, 1], 30))
        assert is_acyclic(weights != 0) and (weights != 0).sum() == 6
        assert ((lagged != 0).sum(axis=(1, 2)) == 20).all()
        assert spectral_radius(weights, lagged) <= 0.95 + 1e-9


def test_var_sem_keeps_weights_of_a_stable_process():
    *_, lagged = make_var_sem(
        5,
        4,
        n_edges=0,
        n_lagged_edges=1,
        lagged_weight_range=(0.3, 0.5),
        random_state=0,
    )
    assert 0.3 <= np.abs(lagged[lagged != 0]).min() <= 0.5


def test_var_sem_obeys_its_equation():
    X, series, weights, lagged = make_var_sem(
        500, 3, n_series=4, n_lags=2, noise_scale=0.5, random_state=0
    )
    panel = X.reshape(4, 500, 3)
    past = panel[:, 1:-1] @ lagged[0] + panel[:, :-2] @ lagged[1]
    noise = (panel[:, 2:] - panel[:, 2:] @ weights - past).reshape(-1, 3)
    np.testing.assert_allclose(noise.std(axis=0), 0.5, rtol=0.06)
    assert np.abs(np.corrcoef(noise.T) - np.eye(3)).max() < 0.08
    for lag in (1, 2):
        assert abs(np.corrcoef(noise[lag:, 0], noise[:-lag, 0])[0, 1]) < 0.08


def test_spectral_radius_of_a_known_process():
    # x_t = 0.5 x_(t-1) + 0.3 x_(t-2): the roots of z^2 - 0.5 z - 0.3.
    expected = np.abs(np.roots([1, -0.5, -0.3])).max()
    lagged = np.array([[[0.5]], [[0.3]]])
    assert spectral_radius(np.zeros((1, 1)), lagged) == pytest.approx(expected)


@pytest.mark.parametrize(
    "make, kwargs, match",
    [
        (make_linear_sem, {"n_features": 4, "n_edges": 7}, "at most 6 edges"),
        (make_linear_sem, {"weight_range": (2, 1)}, "weight_range must be two"),
        (make_linear_sem, {"noise_scale": [1, 2]}, "noise_scale must be a positive"),
        (make_linear_sem, {"noise": "cauchy"}, "'noise' parameter"),
        (make_mlp_sem, {"n_hidden": 0}, "'n_hidden' parameter"),
        (make_var_sem, {"n_lagged_edges": 26}, "25 pairs"),
        (make_var_sem, {"max_radius": 1.0}, "'max_radius' parameter"),
        (make_var_sem, {"lagged_weight_range": (1,)}, "lagged_weight_range must be"),
    ],
)
def test_bad_arguments(make, kwargs, match):
    with pytest.raises(ValueError, match=match):
        make(**kwargs)
