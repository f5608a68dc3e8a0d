import pickle

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import multivariate_normal
from sklearn.linear_model import LinearRegression

from skprivbn.bayesian_network import GaussianBayesianNetwork

NODES = list("abcde")


def random_network(seed=0):
    rng = np.random.default_rng(seed)
    weights = np.triu(rng.normal(size=(5, 5)), 1) * (rng.random((5, 5)) < 0.6)
    order = rng.permutation(5)
    return GaussianBayesianNetwork(
        NODES,
        weights[np.ix_(order, order)],
        rng.normal(size=5),
        rng.uniform(0.2, 3, size=5),
    )


def with_gaps(X, share, seed=0):
    X = X.copy()
    X[np.random.default_rng(seed).random(X.shape) < share] = np.nan
    return X


def joint(network):
    """Mean and covariance from the definition, x = (I - W')^-1 (b + noise)."""
    inverse = np.linalg.inv(np.eye(len(network.nodes)) - network.weights.T)
    mean = inverse @ network.intercepts
    return mean, inverse @ np.diag(network.variances) @ inverse.T


@pytest.mark.parametrize("seed", range(3))
def test_moments(seed):
    network = random_network(seed)
    mean, covariance = joint(network)
    assert_allclose(network.mean, mean, atol=1e-12)
    assert_allclose(network.covariance, covariance, atol=1e-12)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.8])
def test_log_likelihood_as_scipy_says(share):
    network = random_network()
    mean, covariance = joint(network)
    X = with_gaps(network.sample(50, random_state=0), share)
    for row, value in zip(X, network.log_likelihood(X)):
        seen = np.flatnonzero(~np.isnan(row))
        expected = 0.0
        if len(seen):
            expected = multivariate_normal(
                mean[seen], covariance[np.ix_(seen, seen)]
            ).logpdf(row[seen])
        assert value == pytest.approx(expected)


def test_predict_by_the_precision_matrix():
    """E[hidden | seen] solves the normal equations of the joint precision."""
    network = random_network(1)
    mean, covariance = joint(network)
    precision = np.linalg.inv(covariance)
    X = with_gaps(network.sample(60, random_state=0), 0.4)
    completed = network.predict(X)
    assert np.isnan(X).any()
    for row, full in zip(X, completed):
        hidden = np.isnan(row)
        assert_array_equal(full[~hidden], row[~hidden])
        gradient = precision @ (full - mean)
        assert_allclose(gradient[hidden], 0, atol=1e-9)


def test_query():
    network = random_network(2)
    mean, covariance = joint(network)
    got_mean, got_covariance = network.query(["d", "a"], {"c": 1.5, "e": -1.0})
    precision = np.linalg.inv(covariance[np.ix_([3, 0, 2, 4], [3, 0, 2, 4])])
    assert_allclose(got_covariance, np.linalg.inv(precision[:2, :2]), rtol=1e-9)
    shift = np.array([1.5, -1.0]) - mean[[2, 4]]
    expected = mean[[3, 0]] - got_covariance @ precision[:2, 2:] @ shift
    assert_allclose(got_mean, expected, rtol=1e-9)
    alone = network.query("b")
    assert_allclose(alone[0], mean[[1]])
    assert_allclose(alone[1], covariance[1:2, 1:2])


@pytest.mark.parametrize(
    ("nodes", "evidence", "message"),
    [
        ("z", {}, "'z' is not a node"),
        ("a", {"a": 1.0}, "asked for or observed once"),
        (["a", "a"], {}, "asked for or observed once"),
        ("a", {"b": np.nan}, "finite"),
    ],
)
def test_wrong_questions_are_refused(nodes, evidence, message):
    with pytest.raises(ValueError, match=message):
        random_network().query(nodes, evidence)


def test_sample_has_the_right_moments():
    network = random_network()
    X = network.sample(100_000, random_state=0)
    assert_array_equal(X, network.sample(100_000, random_state=0))
    deviations = np.sqrt(np.diag(network.covariance))
    z = (X - network.mean) / deviations
    assert_allclose(z.mean(axis=0), 0, atol=5 / np.sqrt(len(X)))
    correlation = network.covariance / np.outer(deviations, deviations)
    assert_allclose(z.T @ z / len(X), correlation, atol=8 / np.sqrt(len(X)))


def test_fit_from_moments_is_least_squares():
    network = random_network()
    X = network.sample(200, random_state=0)
    fitted = GaussianBayesianNetwork.fit_from_moments(
        X.mean(axis=0), np.cov(X.T, bias=True), network.adjacency_matrix, nodes=NODES
    )
    assert_array_equal(fitted.adjacency_matrix, network.adjacency_matrix)
    for j in range(5):
        parents = np.flatnonzero(network.adjacency_matrix[:, j])
        residual = X[:, j] - X[:, j].mean()
        if len(parents):
            regression = LinearRegression().fit(X[:, parents], X[:, j])
            assert_allclose(fitted.weights[parents, j], regression.coef_)
            assert fitted.intercepts[j] == pytest.approx(regression.intercept_)
            residual = X[:, j] - regression.predict(X[:, parents])
        assert fitted.variances[j] == pytest.approx(np.mean(residual**2))
    better = fitted.log_likelihood(X).sum()
    assert better > network.log_likelihood(X).sum()


def test_fit_from_true_moments_gives_the_network_back():
    network = random_network(3)
    fitted = GaussianBayesianNetwork.fit_from_moments(
        network.mean, network.covariance, network.adjacency_matrix
    )
    assert fitted.nodes == ("x0", "x1", "x2", "x3", "x4")
    assert_allclose(fitted.weights, network.weights, atol=1e-10)
    assert_allclose(fitted.intercepts, network.intercepts, atol=1e-10)
    assert_allclose(fitted.variances, network.variances)


def test_collinear_parents_have_a_fit():
    covariance = np.array([[1.0, 1, 1], [1, 1, 1], [1, 1, 1]])
    adjacency = np.array([[0, 1, 1], [0, 0, 1], [0, 0, 0]])
    fitted = GaussianBayesianNetwork.fit_from_moments(
        np.zeros(3), covariance, adjacency
    )
    assert_allclose(fitted.weights[:, 2], [0.5, 0.5, 0])
    assert (fitted.variances > 0).all()


def test_constant_nodes_are_refused():
    with pytest.raises(ValueError, match="'x1' is constant"):
        GaussianBayesianNetwork.fit_from_moments(
            [0, 0], np.diag([1.0, 0]), np.zeros((2, 2))
        )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodes": ["a"]}, r"weights must have shape \(1, 1\)"),
        ({"nodes": ["a", "a"]}, "named twice"),
        ({"weights": [[0, 1], [1, 0]]}, "cycle"),
        ({"weights": [[0, np.nan], [0, 0]]}, "weights must be finite"),
        ({"intercepts": [0]}, "intercepts must have shape"),
        ({"variances": [1, 0]}, "above zero, got 0.0 for 'b'"),
    ],
)
def test_wrong_networks_are_refused(change, message):
    fields = {"nodes": ["a", "b"], "weights": [[0, 1], [0, 0]]}
    GaussianBayesianNetwork(**fields)
    with pytest.raises(ValueError, match=message):
        GaussianBayesianNetwork(**(fields | change))


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.zeros((2, 3)), "3 columns, but the network has 5 nodes"),
        (np.full((1, 5), np.inf), "infinity"),
        (pd.DataFrame(np.zeros((1, 5)), columns=list("edcba")), "in another order"),
        ([["x"] * 5], "could not convert string"),
    ],
)
def test_wrong_tables_are_refused(X, message):
    with pytest.raises(ValueError, match=message):
        random_network().log_likelihood(X)


def test_frames_and_none():
    network = random_network()
    row = [0.5, None, 1.0, 2, None]
    frame = pd.DataFrame([row], columns=NODES)
    assert_array_equal(network.predict([row]), network.predict(frame))


def test_a_network_cannot_be_changed():
    weights = np.zeros((1, 1))
    network = GaussianBayesianNetwork(["a"], weights)
    weights[0, 0] = 5
    assert network.weights[0, 0] == 0
    with pytest.raises(AttributeError):
        network.weights = weights
    for values in (network.weights, network.mean, network.covariance):
        with pytest.raises(ValueError, match="read-only"):
            values[0] = 0
    network = random_network()
    copy = pickle.loads(pickle.dumps(network))
    assert copy == network
    assert hash(copy) == hash(network)
    assert copy != random_network(1)


def test_graph_views_agree():
    network = random_network()
    graph = network.to_networkx()
    for i, j in np.argwhere(network.adjacency_matrix):
        edge = graph.edges[NODES[i], NODES[j]]
        assert edge["weight"] == network.weights[i, j]
    assert graph.number_of_edges() == network.adjacency_matrix.sum()
    assert graph.nodes["b"]["variance"] == network.variances[1]
    assert network.n_parameters == graph.number_of_edges() + 10
    assert network.is_markov_equivalent(network)
    html = network._repr_html_()
    assert repr(network).startswith("GaussianBayesianNetwork(n_nodes=5, ")
    assert all(f">{node}</td>" in html for node in NODES)
