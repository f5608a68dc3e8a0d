"""DirectLiNGAM from sums, beside a plain one on pooled rows."""

import numpy as np
import pytest

from skprivbn.datasets import make_linear_sem
from skprivbn.metrics import structural_hamming_distance
from skprivbn.partition import HorizontalPartition
from skprivbn.structure import FederatedGaussianBayesianNetwork
from skprivbn.structure.gaussian._lingam import normality, shapes


def entropy(u):
    log_cosh, odd = np.mean(np.log(np.cosh(u))), np.mean(u * np.exp(-(u**2) / 2))
    normal = (1 + np.log(2 * np.pi)) / 2
    return normal - 79.047 * (log_cosh - 0.37457) ** 2 - 7.4129 * odd**2


def plain_order(X):
    """Shimizu et al. (2011) with the measure of Hyvarinen and Smith (2013)."""
    X, left, order = X - X.mean(axis=0), list(range(X.shape[1])), []
    while len(left) > 1:
        found = []
        for i in left:
            total = 0.0
            for j in left:
                if i != j:
                    one, other = X[:, i] / X[:, i].std(), X[:, j] / X[:, j].std()
                    slope = np.mean(one * other)
                    of_one, of_other = one - slope * other, other - slope * one
                    forward = entropy(other) + entropy(of_one / of_one.std())
                    backward = entropy(one) + entropy(of_other / of_other.std())
                    total += min(0.0, forward - backward) ** 2
            found.append(-total)
        first = left[int(np.argmax(found))]
        order.append(first)
        left.remove(first)
        for j in left:
            slope = np.mean(X[:, j] * X[:, first]) / np.mean(X[:, first] ** 2)
            X[:, j] -= slope * X[:, first]
    return order + left


def standardised(noise, seed, n_rows=600, d=6):
    X, weights = make_linear_sem(n_rows, d, noise=noise, random_state=seed)
    return (X - X.mean(axis=0)) / X.std(axis=0), weights != 0


def fit(X, n_parties):
    party = np.arange(len(X)) % n_parties
    rows = {f"p{k}": X[party == k] for k in range(n_parties)}
    return FederatedGaussianBayesianNetwork("lingam").fit(HorizontalPartition(rows))


@pytest.mark.parametrize("noise", ["exponential", "gumbel"])
@pytest.mark.parametrize("seed", range(3))
def test_edges_follow_the_order_of_the_plain_algorithm(noise, seed):
    X, truth = standardised(noise, seed)
    place = np.argsort(plain_order(X))
    graph = fit(X, 3).adjacency_matrix_
    assert np.all(place[np.nonzero(graph)[0]] < place[np.nonzero(graph)[1]])
    assert structural_hamming_distance(truth, graph) <= 2


def test_the_graph_does_not_depend_on_how_rows_are_spread():
    X, _ = standardised("exponential", 1)
    graphs = [fit(X, n_parties).adjacency_matrix_ for n_parties in (3, 4, 7)]
    np.testing.assert_array_equal(graphs[0], graphs[1])
    np.testing.assert_array_equal(graphs[0], graphs[2])


def test_auto_asks_whether_columns_are_normal():
    party = np.arange(600) % 3
    X, truth = standardised("exponential", 0)
    model = FederatedGaussianBayesianNetwork().fit(X, party=party)
    assert model.method_ == "lingam"
    assert structural_hamming_distance(truth, model.adjacency_matrix_) <= 1
    X, _ = standardised("gaussian", 0)
    model = FederatedGaussianBayesianNetwork().fit(X, party=party)
    assert model.method_ == "bic"
    assert model.normality_pvalues_.min() > 0.001


def p_values(X):
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    return normality(shapes(Z).sum(axis=0), len(X))


def test_the_test_of_normality_keeps_its_level():
    rng = np.random.default_rng(0)
    X = rng.normal(3.0, 2.0, size=(400, 3000))
    p = p_values(X)
    for level in (0.01, 0.05, 0.2):
        assert np.mean(p < level) == pytest.approx(level, abs=0.35 * level)
    X = rng.exponential(size=(400, 50))
    assert p_values(X).max() < 1e-6


@pytest.mark.parametrize(
    "options, words",
    [
        ({"epsilon": 1.0, "bounds": (-5, 5)}, "not available with epsilon"),
        ({"basis": "sigmoid"}, "basis"),
        ({"parties": {"a": [0], "b": [1, 2, 3, 4, 5]}}, "columns of parties"),
    ],
)
def test_what_lingam_cannot_do_is_said(options, words):
    X, _ = standardised("exponential", 0, 60)
    with pytest.raises(ValueError, match=words):
        FederatedGaussianBayesianNetwork("lingam", **options).fit(X)


def test_rules_are_kept_by_an_order_of_causes():
    X, truth = standardised("exponential", 1)
    parent, child = np.argwhere(truth)[0].tolist()
    party = np.arange(len(X)) % 3
    for rules, holds in (
        ({"required_edges": [(child, parent)]}, lambda g: g[child, parent]),
        ({"forbidden_edges": [(parent, child)]}, lambda g: not g[parent, child]),
        ({"tiers": [[3, 4, 5], [0, 1, 2]]}, lambda g: not g[:3, 3:].any()),
    ):
        model = FederatedGaussianBayesianNetwork("lingam", search_params=rules)
        assert holds(model.fit(X, party=party).adjacency_matrix_)


def test_covariances_drawn_given_the_order_tell_how_sure_an_edge_is():
    X, truth = standardised("exponential", 0)
    options = {"n_bootstrap": 20, "random_state": 0}
    model = FederatedGaussianBayesianNetwork("lingam", **options)
    sure = model.fit(X, party=np.arange(len(X)) % 3).edge_confidence_
    assert sure[truth].mean() > 0.8 > 0.3 > sure[~truth].mean()
    assert not np.any((sure > 0) & (sure.T > 0))
    # two sums of moments, one for the test of normality, one for each of five columns
    assert model.n_iter_ == 2 + 1 + 5
