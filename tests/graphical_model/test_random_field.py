"""The value class against the joint table."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skprivbn.bayesian_network import BayesianNetwork
from skprivbn.graphical_model import MarkovRandomField
from skprivbn.metrics import kl_divergence
from tests.graphical_model.brute_force import joint, marginal

NODES = ("a", "b", "c", "d")
STATES = {"a": ("x", "y"), "b": (0, 1, 2), "c": (False, True), "d": (1.5, 2.5)}
SIZES = (2, 3, 2, 2)
CLIQUES = [("a", "b"), ("b", "c"), ("c", "a"), ("d",), ("d", "b")]


@pytest.fixture
def field():
    rng = np.random.default_rng(0)
    sizes = dict(zip(NODES, SIZES))
    return MarkovRandomField(
        NODES,
        STATES,
        {c: rng.normal(size=[sizes[v] for v in c]) for c in CLIQUES},
    )


@pytest.fixture
def table(field):
    scopes = [tuple(NODES.index(v) for v in c) for c in CLIQUES]
    return joint(scopes, SIZES, [np.exp(t) for t in field.potentials.values()])


def test_log_likelihood_with_and_without_missing_entries(field, table):
    X = np.array(
        [["x", 2, True, 1.5], ["y", None, True, 2.5], [None, None, None, None]],
        dtype=object,
    )
    p = table / table.sum()
    expected = np.log([p[0, 2, 1, 0], p[1, :, 1, 1].sum(), 1.0])
    assert_allclose(field.log_likelihood(X), expected, atol=1e-12)
    assert_allclose(field.log_partition, np.log(table.sum()), rtol=1e-12)


def test_posteriors(field, table):
    X = np.array([["x", None, None, 1.5], ["y", None, None, 2.5]], dtype=object)
    a, b, c, d = field.predict_proba(X)
    assert_allclose(a, np.eye(2))
    assert_allclose(d, np.eye(2))
    for row, (i, m) in enumerate([(0, 0), (1, 1)]):
        rest = table[i, :, :, m] / table[i, :, :, m].sum()
        assert_allclose(b[row], rest.sum(axis=1), atol=1e-12)
        assert_allclose(c[row], rest.sum(axis=0), atol=1e-12)
    completed = field.predict(X)
    assert completed[0, 1] == STATES["b"][b[0].argmax()]
    assert completed[1, 0] == "y"


def test_queries_keep_the_asked_order(field, table):
    p = table / table.sum()
    assert_allclose(field.query(("d", "a")), marginal(p, (3, 0)), atol=1e-12)
    given = p[:, 1] / p[:, 1].sum()
    assert_allclose(field.query("c", {"b": 1}), given.sum(axis=(0, 2)), atol=1e-12)
    for clique, found in field.marginals().items():
        scope = tuple(NODES.index(v) for v in clique)
        assert_allclose(found, marginal(p, scope), atol=1e-12)


def test_kl_divergence_between_different_cliques(field, table):
    rng = np.random.default_rng(1)
    other = MarkovRandomField(
        NODES, STATES, {("a", "d"): rng.normal(size=(2, 2)), ("b",): [0.0, 1.0, 2.0]}
    )
    q = joint([(0, 3), (1,)], SIZES, [np.exp(t) for t in other.potentials.values()])
    p, q = table / table.sum(), q / q.sum()
    assert_allclose(field.kl_divergence(other), (p * np.log(p / q)).sum(), rtol=1e-10)
    assert field.kl_divergence(field) == pytest.approx(0, abs=1e-12)


def test_kl_divergence_matches_names_and_labels(field):
    reordered = MarkovRandomField(
        NODES[::-1],
        {node: labels[::-1] for node, labels in STATES.items()},
        {c[::-1]: np.flip(table).T for c, table in field.potentials.items()},
    )
    X = field.sample(20, random_state=0)
    assert_allclose(reordered.log_likelihood(X[:, ::-1]), field.log_likelihood(X))
    assert field.kl_divergence(reordered) == pytest.approx(0, abs=1e-12)
    rng = np.random.default_rng(2)
    other = MarkovRandomField(NODES, STATES, {("d", "a"): rng.normal(size=(2, 2))})
    expected = other.kl_divergence(field)
    assert_allclose(other.kl_divergence(reordered), expected, rtol=1e-10)


def test_metric_takes_two_fields(field):
    other = MarkovRandomField(NODES, STATES, {})
    assert kl_divergence(field, other) == field.kl_divergence(other) > 0.1
    with pytest.raises(TypeError, match="got MarkovRandomField and"):
        kl_divergence(field, BayesianNetwork(["a"], [("x", "y")], {}, [[0.5, 0.5]]))


def test_divergence_from_an_impossible_configuration_is_infinite():
    states = {"a": [0, 1], "b": [0, 1]}
    whole = MarkovRandomField(["a", "b"], states, {("a", "b"): np.zeros((2, 2))})
    diagonal = MarkovRandomField(
        ["a", "b"], states, {("a", "b"): [[0.0, -np.inf], [-np.inf, 0.0]]}
    )
    assert whole.kl_divergence(diagonal) == np.inf
    assert diagonal.kl_divergence(whole) == pytest.approx(np.log(2))


def test_structural_zeros_are_never_drawn_and_have_no_likelihood():
    potentials = {("a", "b"): [[0.0, -np.inf], [-np.inf, 0.0]]}
    field = MarkovRandomField(["a", "b"], {"a": [0, 1], "b": [0, 1]}, potentials)
    X = field.sample(200, random_state=0)
    assert np.array_equal(X[:, 0], X[:, 1])
    assert set(X[:, 0]) == {0, 1}
    assert np.isneginf(field.log_likelihood([[0, 1]]))[0]


def test_samples_are_labels_and_reproducible(field):
    X = field.sample(50, random_state=3)
    assert X.shape == (50, 4)
    assert set(X[:, 0]) <= {"x", "y"}
    assert np.array_equal(X, field.sample(50, random_state=3))


def test_value_semantics(field):
    copy = pickle.loads(pickle.dumps(field))
    assert copy == field
    assert hash(copy) == hash(field)
    assert "n_cliques=5" in repr(field)
    with pytest.raises(ValueError, match="read-only"):
        field.potentials["a", "b"][0, 0] = 1.0


def test_loopy_field_agrees_on_a_tree():
    rng = np.random.default_rng(4)
    states = {v: [0, 1, 2] for v in "abc"}
    potentials = {c: rng.normal(size=(3, 3)) for c in [("a", "b"), ("b", "c")]}
    exact = MarkovRandomField("a b c".split(), states, potentials)
    loopy = MarkovRandomField("a b c".split(), states, potentials, inference="loopy")
    X = np.array([[0.0, np.nan, 2.0], [1.0, 1.0, np.nan]])
    assert_allclose(loopy.log_likelihood(X), exact.log_likelihood(X), atol=1e-6)
    for one, other in zip(exact.predict_proba(X), loopy.predict_proba(X)):
        assert_allclose(other, one, atol=1e-6)
    assert_allclose(loopy.query(("b", "a")), exact.query(("b", "a")), atol=1e-6)
    for impossible in (
        lambda: loopy.sample(1),
        lambda: loopy.kl_divergence(exact),
        lambda: loopy.query(("a", "c")),
    ):
        with pytest.raises(ValueError, match="exact|together in a clique"):
            impossible()


@pytest.mark.parametrize(
    "potentials, message",
    [
        ({("a", "z"): np.zeros((2, 2))}, "'z' is not a node"),
        ({("a", "a"): np.zeros((2, 2))}, "twice"),
        ({("a", "b"): np.zeros((2, 3))}, "shape"),
        ({("a", "b"): np.full((2, 2), np.nan)}, "finite"),
        ({("a", "b"): np.full((2, 2), -np.inf)}, "exclude every"),
    ],
)
def test_bad_potentials(potentials, message):
    with pytest.raises(ValueError, match=message):
        MarkovRandomField(["a", "b"], {"a": [0, 1], "b": [0, 1]}, potentials)


@pytest.mark.parametrize(
    "states, message",
    [
        ({"a": [0, 1]}, "lacks node 'b'"),
        ({"a": [0, 1], "b": [0], "c": [0]}, "'c', which is not a node"),
        ({"a": [0, 0], "b": [0, 1]}, "'a' has a state twice"),
        ({"a": "yes", "b": [0, 1]}, "'a' must be a sequence"),
        ([2, [None, 1]], "'b' must be strings or numbers"),
        ([2, 0], "'b' must have at least one state"),
    ],
)
def test_bad_states(states, message):
    with pytest.raises(ValueError, match=message):
        MarkovRandomField(["a", "b"], states, {})


def test_numbers_of_states_stand_for_codes():
    field = MarkovRandomField(["a", "b"], [2, ["x", "y"]], {})
    assert field.states == {"a": (0, 1), "b": ("x", "y")}
    network = BayesianNetwork(["a"], {"a": 3}, {}, [[0.2, 0.3, 0.5]])
    assert network.states == {"a": (0, 1, 2)}


def test_bad_questions(field):
    with pytest.raises(ValueError, match="not one of its states"):
        field.log_likelihood([["z", 0, True, 1.5]])
    with pytest.raises(ValueError, match="other nodes"):
        field.query("a", {"a": "x"})
    with pytest.raises(ValueError, match="same nodes"):
        field.kl_divergence(MarkovRandomField(["a"], {"a": [0, 1]}, {}))
