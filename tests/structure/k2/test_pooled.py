"""The pooled learner against K2 written out with math.lgamma, and its scores."""

from itertools import product
from math import lgamma, log, pi

import numpy as np
import pandas as pd
import pytest

from skprivbn.bayesian_network import BayesianNetwork
from skprivbn.bayesian_network._labels import count_rows
from skprivbn.datasets import load_asia
from skprivbn.structure import K2StructureLearner
from skprivbn.structure._scores import FRACTION_BITS, score_terms


def naive_score(rows, node, parents, states, criterion="k2"):
    """Score of a family in floating point, cell by cell."""
    r, total = states[node], 0.0
    configurations = list(product(*(range(states[p]) for p in parents)))
    for configuration in configurations:
        chosen = [
            row for row in rows if tuple(row[p] for p in parents) == configuration
        ]
        counts = [sum(row[node] == k for row in chosen) for k in range(r)]
        n = len(chosen)
        if criterion == "k2":
            total += lgamma(r) - lgamma(n + r) + sum(lgamma(c + 1) for c in counts)
        elif criterion == "stirling":

            def s(count):
                number = max(count, 1)
                return (
                    0.5 * log(2 * pi)
                    + 0.5 * log(number)
                    + number * log(number)
                    - number
                )

            total += lgamma(r) - s(n + r - 1) + sum(s(c) for c in counts)
        elif criterion == "wright_yang":
            # the paper's sub-formulas (1) to (4); an empty cell counts one
            cells, t = [max(c, 1) for c in counts], max(n + r - 1, 1)
            total += 0.5 * (sum(log(c) for c in cells) - log(t))
            total += sum(c * log(c) for c in cells) - t * log(t)
            total += t - sum(cells)
        elif criterion == "bdeu":
            a = 10.0 / len(configurations)
            total += lgamma(a) - lgamma(n + a)
            total += sum(lgamma(c + a / r) - lgamma(a / r) for c in counts)
        else:
            total += sum(c * log(c / n) for c in counts if c)
            total -= 0.5 * log(len(rows)) * (r - 1)
    return total


def naive_k2(rows, states, max_parents, criterion):
    found = {}
    for node in range(len(states)):
        parents, best = [], naive_score(rows, node, [], states, criterion)
        while len(parents) < max_parents:
            scores = [
                (naive_score(rows, node, [*parents, c], states, criterion), -c)
                for c in range(node)
                if c not in parents
            ]
            if not scores or max(scores)[0] <= best + 1e-9:
                break
            best, candidate = max(scores)
            parents.append(-candidate)
        found[node] = parents
    return found


CRITERIA = ["k2", "stirling", "wright_yang", "bdeu", "bic"]


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("seed", range(3))
def test_integer_scores_are_the_real_ones(criterion, seed):
    rng = np.random.default_rng(seed)
    states = [3, 2, 4]
    X = np.stack([rng.integers(0, r, 50) for r in states], axis=1)
    for family in ([0], [0, 1], [0, 2, 1]):
        counts = count_rows(X, family, states)
        q = counts[0].size if criterion == "bdeu" else 1
        terms = score_terms(criterion, 50, states[0], q)
        score = terms.score(counts) / (1 << FRACTION_BITS)
        expected = naive_score(X.tolist(), 0, family[1:], states, criterion)
        n_entries = counts.size + 2 * counts[0].size
        assert abs(score - expected) <= n_entries * 2.0 ** -(FRACTION_BITS + 1) + 1e-9
        assert abs(terms.score(counts)) <= terms.bound(states[0], counts[0].size)


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("seed", range(4))
def test_equals_k2_in_floating_point(criterion, seed):
    rng = np.random.default_rng(seed)
    states = [2, 3, 2, 2, 3]
    X = np.stack([rng.integers(0, r, 80) for r in states], axis=1)
    X[:, 3] = (X[:, 0] + (rng.random(80) < 0.1)) % 2
    X[:, 4] = (X[:, 1] + X[:, 2]) % 3
    learner = K2StructureLearner(max_parents=2, criterion=criterion, states=states)
    learner.fit(X)
    expected = naive_k2(X.tolist(), states, 2, criterion)
    assert learner.parents_ == {
        f"x{v}": [f"x{p}" for p in parents] for v, parents in expected.items()
    }


def half_clamped_stirling(counts):
    """Stirling's score with max(count, 1) inside the logarithms only."""

    def log_factorial(count):
        logarithm = np.log(np.maximum(count, 1))
        return 0.5 * (np.log(2 * np.pi) + logarithm) + count * logarithm - count

    return log_factorial(counts).sum() - log_factorial(counts.sum(axis=0) + 1).sum()


def test_stirling_is_clamped_in_every_term():
    # clamped inside the logarithms only, every empty configuration earns a bonus
    right = {"clamped": 0, "half clamped": 0}
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X = rng.integers(0, 2, (60, 5))
        X[:, 4] = X[:, 0] ^ (rng.random(60) < 0.05)
        X[:, 1:4] = 0  # parents that only add empty configurations
        families = ([4, 0], [4, 0, 1], [4, 0, 1, 2], [4, 0, 1, 2, 3])
        counts = [count_rows(X, family, [2] * 5) for family in families]
        choices = {
            "exact": [score_terms("k2", 60, 2, 1).score(c) for c in counts],
            "clamped": [score_terms("stirling", 60, 2, 1).score(c) for c in counts],
            "half clamped": [half_clamped_stirling(c) for c in counts],
        }
        best = {name: int(np.argmax(scores)) for name, scores in choices.items()}
        assert best["exact"] == 0
        for name in right:
            right[name] += best[name] == best["exact"]
    assert right == {"clamped": 20, "half clamped": 0}


def test_ties_go_to_the_first_and_only_gains_are_taken():
    rng = np.random.default_rng(0)
    column = rng.integers(0, 2, 100)
    X = np.stack([column, column, column], axis=1)
    learner = K2StructureLearner().fit(X)
    assert learner.parents_ == {"x0": [], "x1": ["x0"], "x2": ["x0"]}


def test_fitted_network_is_the_bayesian_estimate():
    asia = load_asia()
    X = asia.encode(asia.sample(500, random_state=0))
    learner = K2StructureLearner(ordering=asia.topological_order).fit(X)
    names = [f"x{i}" for i in range(8)]
    expected = BayesianNetwork.from_data(
        X,
        learner.parents_,
        nodes=names,
        states={name: [0, 1] for name in names},
        alpha=1.0,
    )
    assert learner.network_ == expected
    assert learner.score(X) == pytest.approx(expected.log_likelihood(X).mean())
    assert learner.score_samples(X).shape == (500,)
    assert learner.sample(5, random_state=0).shape == (5, 8)


def test_completes_missing_entries():
    asia = load_asia()
    X = asia.encode(asia.sample(2000, random_state=0))
    learner = K2StructureLearner(ordering=asia.topological_order).fit(X)
    holes = X[:50].astype(float)
    holes[:, 3] = np.nan
    completed = learner.predict(holes)
    np.testing.assert_array_equal(np.delete(completed, 3, 1), np.delete(X[:50], 3, 1))
    np.testing.assert_array_equal(
        completed[:, 3], learner.predict_proba(holes)[3].argmax(axis=1)
    )


def as_categories(X):
    return pd.DataFrame(X, columns=list("abcdefgh")).astype("category")


def as_mixed(X):
    frame = pd.DataFrame(X == "yes", columns=list("abcdefgh"))
    return frame.assign(a=X[:, 0], b=3.0 * frame["b"], c=-2 * frame["c"])


@pytest.mark.parametrize(
    "convert, labels",
    [
        (np.asarray, [("no", "yes")] * 8),
        (lambda X: X.astype(str), [("no", "yes")] * 8),
        (as_categories, [("no", "yes")] * 8),
        (lambda X: X == "yes", [(False, True)] * 8),
        (lambda X: 5.0 * (X == "yes"), [(0, 5)] * 8),
        (as_mixed, [("no", "yes"), (0, 3), (-2, 0)] + [(False, True)] * 5),
    ],
    ids=["objects", "strings", "categories", "booleans", "numbers", "mixed"],
)
def test_labels_of_any_kind(convert, labels):
    asia = load_asia()
    X = asia.sample(500, random_state=0)
    parameters = {"ordering": asia.topological_order}
    learner = K2StructureLearner(**parameters).fit(convert(X))
    codes = K2StructureLearner(**parameters).fit(asia.encode(X))
    np.testing.assert_array_equal(learner.adjacency_matrix_, codes.adjacency_matrix_)
    states = list(learner.network_.states.values())
    assert [[(type(v), v) for v in found] for found in states] == [
        [(type(v), v) for v in expected] for expected in labels
    ]
    np.testing.assert_allclose(
        learner.score_samples(convert(X)), codes.score_samples(asia.encode(X))
    )


def test_order_of_declared_states():
    X = np.array([["low", "no"], ["high", "no"], ["low", "no"]])
    states = {"x0": ["low", "middle", "high"], "x1": ["no", "yes"]}
    network = K2StructureLearner(max_parents=0, states=states).fit(X).network_
    assert network.states == {"x0": ("low", "middle", "high"), "x1": ("no", "yes")}
    np.testing.assert_allclose(network.cpts["x0"], [3 / 6, 1 / 6, 2 / 6])
    np.testing.assert_allclose(network.cpts["x1"], [4 / 5, 1 / 5])


@pytest.mark.parametrize(
    "X, match",
    [
        ([[0.5, 1], [1, 0]], "non-integer"),
        ([[np.nan, 1], [1, 0]], "NaN"),
        ([["yes", "no"], [None, "no"]], "NaN in column 'x0'"),
        (
            np.array([[b"yes", 0], [b"no", 1]], dtype=object),
            "must be strings or numbers",
        ),
        ([[2.0**63, 1], [1, 0]], "64 bits at most"),
        ([["\ud800", "no"], ["yes", "no"]], "must be strings or numbers"),
        (np.arange(600).reshape(300, 2), "'x0' has 300 different values"),
    ],
)
def test_unsuitable_tables(X, match):
    with pytest.raises(ValueError, match=match):
        K2StructureLearner().fit(X)


@pytest.mark.parametrize(
    "parameters, match",
    [
        ({"ordering": [0, 1, 1]}, "each of the 3 columns once"),
        ({"ordering": [0, 1]}, "each of the 3 columns once"),
        ({"ordering": ["x0", "x1", "oops"]}, "'oops'"),
        ({"states": [2, 2]}, "states has 2 entries, but there are 3 nodes"),
        ({"states": {"x0": 2, "x1": 2}}, "states lacks node 'x2'"),
        ({"states": [2, 1, 2]}, "'x1' holds 1, which is not one of its states"),
        ({"states": [2, ["no", "yes"], 2]}, "'x1' holds 1, which is not one of"),
        ({"states": [99, 99, 99]}, "max_parents=3 is too large"),
    ],
)
def test_unsuitable_parameters(parameters, match):
    X = np.array([[0, 1, 0], [1, 0, 1]])
    with pytest.raises(ValueError, match=match):
        K2StructureLearner(**parameters).fit(X)
