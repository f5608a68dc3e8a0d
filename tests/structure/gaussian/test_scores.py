from itertools import permutations, product

import numpy as np
import pytest

from skprivbn.bayesian_network._dag import is_acyclic
from skprivbn.datasets import make_linear_sem, make_mlp_sem
from skprivbn.metrics import structural_hamming_distance
from skprivbn.structure.gaussian._notears import golem, top_down
from skprivbn.structure.gaussian._scores import (
    FeatureMoments,
    basis_features,
    edge_penalty,
    expand,
    graph_score,
    hill_climb,
)


def residual_variance(X, child, parents):
    """By least squares on the rows, not on moments."""
    y = X[:, child] - X[:, child].mean()
    Z = X[:, list(parents)] - X[:, list(parents)].mean(axis=0)
    if len(parents):
        y = y - Z @ np.linalg.lstsq(Z, y, rcond=None)[0]
    return np.mean(y**2)


def test_residuals_by_regression():
    X = make_linear_sem(50, 6, random_state=0)[0]
    moments = FeatureMoments.linear(np.cov(X.T, bias=True), 50)
    now, added, removed = moments.residuals(2, np.array([0, 4]))
    assert now == pytest.approx(residual_variance(X, 2, [0, 4]))
    for other in (1, 3, 5):
        assert added[other] == pytest.approx(residual_variance(X, 2, [0, 4, other]))
    assert removed[0] == pytest.approx(residual_variance(X, 2, [4]))
    assert removed[4] == pytest.approx(residual_variance(X, 2, [0]))
    assert np.isinf(removed[[1, 2, 3, 5]]).all()


def test_residuals_of_basis_functions_by_regression():
    X = make_mlp_sem(200, 4, random_state=0)[0]
    mean, scale = X.mean(axis=0), X.std(axis=0)
    Z = expand((X - mean) / scale, "sigmoid")
    moments = basis_features(np.cov(Z.T, bias=True), 200, scale)
    columns = np.hstack([X[:, [1]], Z[:, 0:5], Z[:, 15:20]])
    now, added, removed = moments.residuals(1, np.array([0]))
    assert now == pytest.approx(residual_variance(columns, 0, range(1, 6)), rel=1e-4)
    both = residual_variance(columns, 0, range(1, 11))
    assert added[3] == pytest.approx(both, rel=1e-4)
    assert removed[0] == pytest.approx(X[:, 1].var(), rel=1e-6)


def all_dags(d):
    pairs = [(i, j) for i in range(d) for j in range(d) if i < j]
    seen = set()
    for order in permutations(range(d)):
        for bits in product([False, True], repeat=len(pairs)):
            graph = np.zeros((d, d), dtype=bool)
            for (i, j), bit in zip(pairs, bits):
                graph[order[i], order[j]] = bit
            if graph.tobytes() not in seen:
                seen.add(graph.tobytes())
                yield graph


@pytest.mark.parametrize("equal_variances", [True, False])
def test_finds_the_best_of_all_graphs_of_three_variables(equal_variances):
    for seed in range(5):
        X = make_linear_sem(80, 3, random_state=seed)[0]
        moments = FeatureMoments.linear(np.cov(X.T, bias=True), 80)
        graph, score = hill_climb(moments, equal_variances=equal_variances)
        scores = [
            graph_score(moments, other, equal_variances=equal_variances)
            for other in all_dags(3)
        ]
        assert len(scores) == 25
        assert score == pytest.approx(max(scores))
        assert is_acyclic(graph)


def test_score_is_a_penalised_likelihood():
    X, W = make_linear_sem(60, 4, random_state=1)
    graph = W != 0
    rss = [residual_variance(X, j, np.flatnonzero(graph[:, j])) for j in range(4)]
    moments = FeatureMoments.linear(np.cov(X.T, bias=True), 60)
    penalty = (0.5 * np.log(60) + np.log(4)) * graph.sum()
    assert graph_score(moments, graph) == pytest.approx(
        -0.5 * 60 * 4 * np.log(sum(rss)) - penalty
    )
    assert edge_penalty(60, 4) == pytest.approx(0.5 * np.log(60) + np.log(4))


def test_no_single_change_improves_the_result():
    X = make_linear_sem(60, 5, random_state=4)[0]
    moments = FeatureMoments.linear(np.cov(X.T, bias=True), 60)
    graph, score = hill_climb(moments)
    for i, j in permutations(range(5), 2):
        for change in ("flip", "turn"):
            other = graph.copy()
            if change == "flip":
                other[i, j] = not other[i, j]
            elif graph[i, j]:
                other[i, j], other[j, i] = False, True
            if is_acyclic(other):
                assert graph_score(moments, other) <= score + 1e-6


def test_collinear_columns_do_not_look_like_perfect_parents():
    X = make_linear_sem(100, 3, random_state=0)[0]
    X = np.column_stack([X, X[:, 0] + X[:, 1], 2 * X[:, 2]])
    graph, score = hill_climb(FeatureMoments.linear(np.cov(X.T, bias=True), 100))
    assert is_acyclic(graph)
    assert np.isfinite(score)


def test_cyclic_start_is_refused():
    moments = FeatureMoments.linear(np.eye(2), 10)
    with pytest.raises(ValueError, match="cycle"):
        hill_climb(moments, np.ones((2, 2), dtype=bool))


def test_basis_functions_see_what_lines_do_not():
    distances = {"linear": [], "sigmoid": []}
    for seed in range(6):
        X, truth = make_mlp_sem(200, 8, random_state=seed)
        mean, scale = X.mean(axis=0), X.std(axis=0)
        expanded = np.cov(expand((X - mean) / scale, "sigmoid").T, bias=True)
        linear = FeatureMoments.linear(np.cov(X.T, bias=True), 200)
        for name, moments in (
            ("linear", linear),
            ("sigmoid", basis_features(expanded, 200, scale)),
        ):
            graph, _ = hill_climb(moments)
            distances[name].append(structural_hamming_distance(truth, graph))
    assert np.mean(distances["sigmoid"]) < np.mean(distances["linear"])


def test_top_down_weights_are_regressions_in_the_order_of_variances():
    X, truth = make_linear_sem(5000, 6, random_state=2)
    covariance = np.cov(X.T, bias=True)
    weights = top_down(covariance)
    np.testing.assert_array_equal(np.abs(weights) > 0.3, truth != 0)
    assert is_acyclic(weights != 0)
    for j, column in enumerate(weights.T):
        chosen = np.flatnonzero(column)
        rest = residual_variance(X, j, chosen)
        shown = np.eye(6)[j] - column
        assert shown @ covariance @ shown == pytest.approx(rest, rel=1e-6)


def test_columns_that_are_sums_of_others_have_an_order():
    X = make_linear_sem(20, 4, random_state=0)[0]
    X = np.column_stack([X, X[:, 0] + X[:, 1], X[:, 2]])
    weights = top_down(np.cov(X.T, bias=True))
    assert np.isfinite(weights).all()
    assert is_acyclic(weights != 0)


def test_single_precision_keeps_strong_weights():
    X, truth = make_linear_sem(2000, 12, random_state=3)
    covariance = np.cov(X.T, bias=True)
    single = golem(covariance, tol=1e-5, dtype=np.float32)
    double = golem(covariance, tol=1e-5)
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, double, atol=0.05)
    np.testing.assert_array_equal(np.abs(single) > 0.3, truth != 0)
