from itertools import permutations

import numpy as np
import pytest

from skprivbn.bayesian_network._dag import is_acyclic, markov_equivalent
from skprivbn.datasets import make_linear_sem
from skprivbn.structure import FederatedGaussianBayesianNetwork
from skprivbn.structure.gaussian._scores import (
    FeatureMoments,
    edge_penalty,
    graph_score,
)
from skprivbn.structure.gaussian._search import (
    exact_graph,
    gaussian_scores,
    log_determinants,
)
from tests.structure.gaussian.test_scores import all_dags, residual_variance


def best(covariance, n_rows, penalty):
    return exact_graph(
        gaussian_scores(covariance, n_rows, penalty=penalty), len(covariance)
    )


def problem(n, d, seed):
    rng = np.random.default_rng(seed)
    X, weights = make_linear_sem(
        n, d, n_edges=d - 1, noise_scale=rng.uniform(0.5, 2, d), random_state=seed
    )
    return X, weights != 0


def test_determinants_of_all_subsets():
    covariance = np.cov(problem(60, 5, 0)[0].T, bias=True)
    for subset, found in enumerate(log_determinants(covariance)):
        chosen = [v for v in range(5) if subset >> v & 1]
        expected = np.linalg.slogdet(covariance[np.ix_(chosen, chosen)])[1]
        assert found == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("d, n_dags", [(2, 3), (3, 25), (4, 543)])
def test_best_of_all_graphs(d, n_dags):
    for seed in range(5):
        X, _ = problem(40, d, seed)
        covariance, penalty = np.cov(X.T, bias=True), 0.5 * np.log(40)
        moments = FeatureMoments.linear(covariance, 40)
        options = {"equal_variances": False, "penalty": penalty}
        scores = [graph_score(moments, dag, **options) for dag in all_dags(d)]
        assert len(scores) == n_dags
        graph, score = best(covariance, 40, penalty)
        assert is_acyclic(graph)
        assert score == pytest.approx(max(scores), abs=1e-8)
        assert graph_score(moments, graph, **options) == pytest.approx(score)


def best_over_orders(X, penalty):
    """Search all orders, with regressions on the rows."""
    n, d = X.shape
    families = {}
    for child in range(d):
        for subset in range(2**d):
            parents = [v for v in range(d) if subset >> v & 1]
            if child not in parents:
                loss = 0.5 * n * np.log(residual_variance(X, child, parents))
                families[child, subset] = -loss - penalty * len(parents)
    best = {}
    for (child, subset), score in sorted(families.items()):
        smaller = [best[child, subset ^ 1 << v] for v in range(d) if subset >> v & 1]
        best[child, subset] = max([score, *smaller])
    return max(
        sum(best[v, sum(1 << u for u in order[:i])] for i, v in enumerate(order))
        for order in permutations(range(d))
    )


@pytest.mark.parametrize("d", [6, 7, pytest.param(8, marks=pytest.mark.slow)])
def test_best_over_all_orders(d):
    X, _ = problem(50, d, d)
    penalty = edge_penalty(50, d)
    _, score = best(np.cov(X.T, bias=True), 50, penalty)
    assert score == pytest.approx(best_over_orders(X, penalty), abs=1e-7)


def test_no_search_scores_higher():
    for seed in range(4):
        X, _ = problem(60, 9, seed)
        covariance, penalty = np.cov(X.T, bias=True), edge_penalty(60, 9)
        moments = FeatureMoments.linear(covariance, 60)
        _, highest = best(covariance, 60, penalty)
        for method in ("bic", "ges", "pc", "equal_variance"):
            learner = FederatedGaussianBayesianNetwork(method, backend="masking")
            graph = learner.fit(X, party=np.arange(60) % 3).adjacency_matrix_
            options = {"equal_variances": False, "penalty": penalty}
            assert graph_score(moments, graph, **options) <= highest + 1e-6


def test_the_class_of_many_rows_whatever_the_units():
    X, truth = problem(20_000, 7, 1)
    party = np.arange(len(X)) % 3
    learner = FederatedGaussianBayesianNetwork("exact")
    found = learner.fit(X, party=party).adjacency_matrix_
    assert markov_equivalent(found, truth)
    units = 10.0 ** np.arange(-3, 4)
    again = learner.fit(X * units, party=party).adjacency_matrix_
    np.testing.assert_array_equal(again, found)


def test_columns_that_are_sums_of_others():
    X = make_linear_sem(50, 3, random_state=0)[0]
    X = np.column_stack([X, X[:, 0] + X[:, 1]])
    graph, score = best(np.cov(X.T, bias=True), 50, 2.0)
    assert is_acyclic(graph)
    assert np.isfinite(score)


def test_too_many_columns():
    X = np.random.default_rng(0).normal(size=(50, 21))
    with pytest.raises(ValueError, match="at most 20 columns, got 21"):
        FederatedGaussianBayesianNetwork("exact").fit(X)
