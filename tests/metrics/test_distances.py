import numpy as np
import pytest

from skprivbn.bayesian_network import BayesianNetwork, GaussianBayesianNetwork
from skprivbn.datasets import load_alarm, load_asia
from skprivbn.metrics import conditional_kl_divergence, kl_divergence

STATES = {"a": ["x", "y"], "b": [0, 1, 2], "c": [0, 1], "d": [0, 1]}
GRAPHS = [
    {},
    {"c": ["a", "b"], "d": ["c"]},
    {"c": ["b", "a"], "d": ["c"]},
    {"a": ["b"], "b": ["d"], "c": ["d", "a"]},
]


def random_network(parents, seed, nodes="abcd", states=STATES, zeros=0.0):
    rng = np.random.default_rng(seed)
    cpts = {}
    for node in nodes:
        shape = [len(states[v]) for v in (*parents.get(node, ()), node)]
        table = rng.dirichlet(np.ones(shape[-1]), size=shape[:-1])
        if zeros:
            table = np.where(rng.random(table.shape) < zeros, 0, table) + 1e-300
            table = table / table.sum(axis=-1, keepdims=True)
            table = np.where(table < 1e-200, 0, table)
        cpts[node] = table
    return BayesianNetwork(list(nodes), states, parents, cpts)


def enumerated_kl(p, q):
    rows = np.array(np.meshgrid(*(p.states[v] for v in p.nodes), indexing="ij"), object)
    rows = rows.reshape(len(p.nodes), -1).T
    order = [list(p.nodes).index(node) for node in q.nodes]
    log_p, log_q = p.log_likelihood(rows), q.log_likelihood(rows[:, order])
    possible = np.isfinite(log_p)
    log_p, log_q = log_p[possible], log_q[possible]
    return (np.exp(log_p) * (log_p - log_q)).sum()


@pytest.mark.parametrize("of_p", range(4))
@pytest.mark.parametrize("of_q", range(4))
def test_discrete_divergence_by_enumeration(of_p, of_q):
    p = random_network(GRAPHS[of_p], seed=1, zeros=0.2)
    states = STATES | {"b": [2, 0, 1], "a": ["y", "x"]}
    q = random_network(GRAPHS[of_q], seed=2, nodes="dbca", states=states)
    assert kl_divergence(p, q) == pytest.approx(enumerated_kl(p, q), rel=1e-10)


@pytest.mark.parametrize("of_p", range(4))
@pytest.mark.parametrize("of_q", range(4))
def test_divergence_of_each_node_by_enumeration(of_p, of_q):
    p = random_network(GRAPHS[of_p], seed=1, zeros=0.2)
    q = random_network(GRAPHS[of_q], seed=2)
    found = conditional_kl_divergence(p, q)
    if p.edges == q.edges:
        assert sum(found.values()) == pytest.approx(kl_divergence(p, q))
    joint = p.query(list("abcd"))
    for node in "abcd":
        parents = [v for v in "abcd" if v in q.parents[node]]
        others = tuple("abcd".index(v) for v in "abcd" if v not in (*parents, node))
        family = joint.sum(axis=others)
        family = np.moveaxis(
            family, [v for v in "abcd" if v in (*parents, node)].index(node), -1
        )
        conditional = family / np.maximum(family.sum(axis=-1, keepdims=True), 1e-300)
        axes = [q.parents[node].index(v) for v in parents]
        table = q.cpts[node].transpose([*axes, len(axes)])
        expected = np.where(
            family > 0, family * np.log(np.where(family > 0, conditional, 1) / table), 0
        )
        assert found[node] == pytest.approx(expected.sum(), abs=1e-12)


def test_divergence_of_each_node_wants_two_discrete_networks_of_the_same_nodes():
    asia = load_asia()
    with pytest.raises(TypeError, match="expected two BayesianNetwork, got"):
        conditional_kl_divergence(asia, GaussianBayesianNetwork(["a"], [[0]]))
    with pytest.raises(ValueError, match="same nodes"):
        conditional_kl_divergence(asia, load_alarm())


@pytest.mark.parametrize("load", [load_asia, load_alarm])
def test_a_network_has_no_distance_to_itself(load):
    assert kl_divergence(load(), load()) == 0


def test_the_same_distribution_with_another_graph():
    forwards = BayesianNetwork(
        ["a", "b"],
        [(0, 1)] * 2,
        {"b": ["a"]},
        [[0.25, 0.75], [[0.5, 0.5], [0.1, 0.9]]],
    )
    joint = forwards.query(["a", "b"])
    b = joint.sum(axis=0)
    backwards = BayesianNetwork(
        ["a", "b"], [(0, 1)] * 2, {"a": ["b"]}, [(joint / b).T, b]
    )
    assert kl_divergence(forwards, backwards) == pytest.approx(0, abs=1e-15)


def test_the_divergence_of_a_large_network_is_the_mean_log_ratio():
    alarm = load_alarm()
    X = alarm.sample(20_000, random_state=0)
    chain = {b: [a] for a, b in zip(alarm.nodes[:-1], alarm.nodes[1:])}
    other = BayesianNetwork.from_data(
        X[:500], chain, nodes=alarm.nodes, states=alarm.states
    )
    ratios = alarm.log_likelihood(X) - other.log_likelihood(X)
    error = ratios.std() / np.sqrt(len(X))
    assert abs(kl_divergence(alarm, other) - ratios.mean()) < 5 * error


def test_what_q_excludes_is_infinitely_far():
    fair = BayesianNetwork(["a"], [(0, 1)], {}, [[0.5, 0.5]])
    never = BayesianNetwork(["a"], [(0, 1)], {}, [[1, 0]])
    assert kl_divergence(fair, never) == np.inf
    assert kl_divergence(never, fair) == pytest.approx(np.log(2))


@pytest.mark.parametrize("same_graph", [True, False])
def test_what_p_excludes_does_not_count(same_graph):
    """A row of a table that p never reaches may differ infinitely."""
    nodes, states = ["a", "b", "c"], [(0, 1)] * 3
    p = BayesianNetwork(
        nodes, states, {"b": ["a"]}, [[1, 0], [[0.5, 0.5], [0.5, 0.5]], [0.5, 0.5]]
    )
    table = np.array([[0.25, 0.75], [1, 0]])
    parents = {"b": ["a"] if same_graph else ["a", "c"]}
    if not same_graph:
        table = np.stack([table, table], axis=1)
    q = BayesianNetwork(nodes, states, parents, [[0.5, 0.5], table, [0.5, 0.5]])
    expected = np.log(2) + 0.5 * np.log(0.5 / 0.25) + 0.5 * np.log(0.5 / 0.75)
    assert kl_divergence(p, q) == pytest.approx(expected)


def test_gaussian_divergence_by_the_textbook_formula():
    rng = np.random.default_rng(0)
    nodes = list("abcd")
    weights = [np.triu(rng.normal(size=(4, 4)), 1) for _ in range(2)]
    p = GaussianBayesianNetwork(
        nodes, weights[0], rng.normal(size=4), rng.uniform(0.5, 2, 4)
    )
    order = [2, 0, 3, 1]
    q = GaussianBayesianNetwork(
        nodes, weights[1], rng.normal(size=4), rng.uniform(0.5, 2, 4)
    )
    precision, shift = np.linalg.inv(q.covariance), q.mean - p.mean
    expected = 0.5 * (
        np.trace(precision @ p.covariance)
        + shift @ precision @ shift
        - 4
        + np.linalg.slogdet(q.covariance)[1]
        - np.linalg.slogdet(p.covariance)[1]
    )
    shuffled = GaussianBayesianNetwork(
        [nodes[i] for i in order],
        q.weights[np.ix_(order, order)],
        q.intercepts[order],
        q.variances[order],
    )
    assert kl_divergence(p, q) == pytest.approx(expected)
    assert kl_divergence(p, shuffled) == pytest.approx(expected)
    assert kl_divergence(p, p) == pytest.approx(0, abs=1e-14)


def test_wrong_pairs_are_refused():
    coin = BayesianNetwork(["a"], [(0, 1)], {}, [[0.5, 0.5]])
    with pytest.raises(TypeError, match="got BayesianNetwork and Gaussian"):
        kl_divergence(coin, GaussianBayesianNetwork(["a"], [[0]]))
    with pytest.raises(ValueError, match="same nodes"):
        kl_divergence(coin, BayesianNetwork(["b"], [(0, 1)], {}, [[0.5, 0.5]]))
    with pytest.raises(ValueError, match="has states"):
        kl_divergence(coin, BayesianNetwork(["a"], [(0, 2)], {}, [[0.5, 0.5]]))
