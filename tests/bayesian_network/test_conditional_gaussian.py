"""Mixed networks against sums over all discrete configurations."""

import pickle
from itertools import product

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from skprivbn.bayesian_network import ConditionalGaussianBayesianNetwork


def make_network(seed=0):
    """a -> b, a -> c(3); x | a, y | b, c and x, z | x and y; columns mixed."""
    rng = np.random.default_rng(seed)
    return ConditionalGaussianBayesianNetwork(
        nodes=["x", "a", "y", "b", "c", "z"],
        states={"a": ["no", "yes"], "b": [0, 1], "c": ["u", "v", "w"]},
        parents={
            "b": ["a"],
            "c": ["a"],
            "x": ["a"],
            "y": ["x", "c", "b"],
            "z": ["x", "y"],
        },
        cpts={
            "a": [0.3, 0.7],
            "b": rng.dirichlet([1, 1], size=2),
            "c": rng.dirichlet([1, 1, 1], size=2),
        },
        intercepts={"x": [0.0, 2.0], "y": rng.normal(size=(3, 2)), "z": 1.0},
        weights={
            "x": np.zeros((2, 0)),
            "y": rng.normal(size=(3, 2, 1)),
            "z": [0.5, -1.0],
        },
        variances={"x": [1.0, 0.5], "y": rng.uniform(0.5, 2, size=(3, 2)), "z": 0.3},
    )


NETWORK = make_network()
#: columns of the continuous nodes x, y, z
NUMBERS = [0, 2, 5]


def naive_joint(a, b, c):
    """Probability of a configuration, mean and covariance of x, y, z given it."""
    n = NETWORK
    share = n.cpts["a"][a] * n.cpts["b"][a, b] * n.cpts["c"][a, c]
    weights = np.zeros((3, 3))
    weights[0, 1] = n.weights["y"][c, b, 0]
    weights[:2, 2] = n.weights["z"]
    intercepts = [n.intercepts["x"][a], n.intercepts["y"][c, b], n.intercepts["z"]]
    noise = [n.variances["x"][a], n.variances["y"][c, b], n.variances["z"]]
    effects = np.linalg.inv(np.eye(3) - weights)
    return share, intercepts @ effects, effects.T @ np.diag(noise) @ effects


def naive(row):
    """Density of what is observed; distributions of a, b, c; moments of x, y, z."""
    seen = [i for i, j in enumerate(NUMBERS) if row[j] == row[j]]
    lost = [i for i in range(3) if i not in seen]
    values = np.array([row[NUMBERS[i]] for i in seen], dtype=float)
    labels = [NETWORK.states[v] for v in "abc"]
    tables = [np.zeros(len(states)) for states in labels]
    first, second = np.zeros(3), np.zeros(3)
    for configuration in product(*(range(len(states)) for states in labels)):
        entries = [row[1], row[3], row[4]]
        if any(
            entry is not None and labels[k].index(entry) != code
            for k, (entry, code) in enumerate(zip(entries, configuration))
        ):
            continue
        weight, mean, covariance = naive_joint(*configuration)
        block = covariance[np.ix_(seen, seen)]
        moments, spread = np.zeros(3), np.zeros(3)
        moments[seen] = values
        if seen:
            weight *= multivariate_normal(mean[seen], block).pdf(values)
        gain = covariance[np.ix_(lost, seen)] @ np.linalg.inv(block)
        moments[lost] = mean[lost] + gain @ (values - mean[seen])
        left = covariance[np.ix_(lost, lost)] - gain @ covariance[np.ix_(seen, lost)]
        spread[lost] = np.diag(left)
        for table, code in zip(tables, configuration):
            table[code] += weight
        first += weight * moments
        second += weight * (spread + moments**2)
    total = tables[0].sum()
    mean = first / total
    return total, [t / total for t in tables], mean, second / total - mean**2


def rows_with_gaps(share, n=40):
    X = NETWORK.sample(n, random_state=1)
    gaps = np.random.default_rng(0).random(X.shape) < share
    for j in range(X.shape[1]):
        X[gaps[:, j], j] = np.nan if j in NUMBERS else None
    return X


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 1.0])
def test_answers_are_sums_over_all_configurations(share):
    X = rows_with_gaps(share)
    log_likelihood = NETWORK.log_likelihood(X)
    found = NETWORK.predict_proba(X)
    for i, row in enumerate(X):
        total, tables, mean, variance = naive(row)
        assert log_likelihood[i] == pytest.approx(np.log(total), abs=1e-9)
        for j, table in zip((1, 3, 4), tables):
            np.testing.assert_allclose(found[j][i], table, atol=1e-9)
        for k, j in enumerate(NUMBERS):
            np.testing.assert_allclose(found[j][i], [mean[k], variance[k]], atol=1e-8)


def test_predictions_complete_rows():
    X = rows_with_gaps(0.4)
    completed = NETWORK.predict(X)
    for row, filled in zip(X, completed):
        for before, after in zip(row, filled):
            if before is not None and before == before:
                assert before == after
    assert set(completed[:, 1]) <= {"no", "yes"}
    assert np.isfinite(completed[:, NUMBERS].astype(float)).all()


def test_samples_have_the_distribution_of_the_network():
    X = NETWORK.sample(20_000, random_state=0)
    assert np.mean(X[:, 1] == "yes") == pytest.approx(0.7, abs=0.02)
    mean, variance = NETWORK.query("z")
    z = X[:, 5].astype(float)
    assert z.mean() == pytest.approx(mean, abs=5 * np.sqrt(variance / 20_000))
    assert z.var() == pytest.approx(variance, rel=0.05)
    np.testing.assert_array_equal(NETWORK.sample(5, 3), NETWORK.sample(5, 3))


def test_queries():
    row = [np.nan, None, np.nan, 1, None, 2.5]
    _, tables, mean, variance = naive(row)
    evidence = {"b": 1, "z": 2.5}
    np.testing.assert_allclose(NETWORK.query("c", evidence), tables[2])
    np.testing.assert_allclose(NETWORK.query("x", evidence), [mean[0], variance[0]])
    with pytest.raises(ValueError, match="both asked for and observed"):
        NETWORK.query("b", evidence)
    with pytest.raises(ValueError, match="is not a node"):
        NETWORK.query("q")


def test_a_value_like_the_others():
    assert pickle.loads(pickle.dumps(NETWORK)) == NETWORK != make_network(1)
    assert hash(NETWORK) == hash(make_network())
    assert NETWORK.n_parameters == 1 + 2 + 4 + 4 + 18 + 4
    assert NETWORK.continuous == ("x", "y", "z")
    assert "n_nodes=6, n_edges=8" in repr(NETWORK)
    assert "6 regressions" in NETWORK._repr_html_()
    graph = NETWORK.to_networkx()
    assert set(graph.nodes["y"]) == {"intercepts", "weights", "variances"}
    with pytest.raises(ValueError):
        NETWORK.variances["z"][...] = 1


def test_networks_of_one_kind_are_special_cases():
    gaussian = ConditionalGaussianBayesianNetwork(
        ["x", "y"],
        {},
        {"y": ["x"]},
        {},
        {"x": 0.0, "y": 1.0},
        {"x": [], "y": [2.0]},
        {"x": 1.0, "y": 0.5},
    )
    np.testing.assert_allclose(gaussian.query("y"), [1.0, 4.5])
    assert gaussian.log_likelihood([[np.nan, np.nan]]) == [0.0]
    discrete = ConditionalGaussianBayesianNetwork(
        ["a"], {"a": 2}, {}, {"a": [0.2, 0.8]}, {}, {}, {}
    )
    np.testing.assert_allclose(discrete.query("a"), [0.2, 0.8])


@pytest.mark.parametrize(
    "change, message",
    [
        ({"parents": {"a": ["x"]}}, "has the continuous parent 'x'"),
        ({"variances": {"x": -1.0}}, "variances above zero"),
        ({"intercepts": {"x": [1.0, 2.0]}}, "must have shape"),
        ({"weights": {}}, "weights lacks node 'x'"),
    ],
)
def test_wrong_parameters(change, message):
    fields = {
        "nodes": ["a", "x"],
        "states": {"a": 2},
        "parents": {},
        "cpts": {"a": [0.5, 0.5]},
        "intercepts": {"x": 0.0},
        "weights": {"x": []},
        "variances": {"x": 1.0},
    }
    ConditionalGaussianBayesianNetwork(**fields)
    with pytest.raises(ValueError, match=message):
        ConditionalGaussianBayesianNetwork(**fields | change)
