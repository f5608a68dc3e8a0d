"""Estimators from noisy tables: optimality conditions and comparisons."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skprivbn.graphical_model._estimation import (
    empirical_bayes,
    maximise_likelihood,
    naive_mle,
    projected_marginals,
    signal_strength,
)
from skprivbn.graphical_model._tables import (
    Contribution,
    NoisyTables,
    TableLayout,
    count_tables,
    project_to_simplex,
)
from tests.graphical_model.fields import divergence, draw, noisy_tables, random_field


@pytest.mark.parametrize("seed", range(5))
def test_projection_is_the_closest_point(seed):
    rng = np.random.default_rng(seed)
    vector, total = rng.normal(size=12), 1.5
    projected = project_to_simplex(vector, total)
    assert projected.min() >= 0
    assert_allclose(projected.sum(), total)
    best = np.sum((projected - vector) ** 2)
    for _ in range(200):
        other = total * rng.dirichlet(np.ones(12))
        assert np.sum((other - vector) ** 2) >= best - 1e-12


def test_gradient_of_the_log_partition_function():
    layout, theta = random_field(4, 3)
    rng = np.random.default_rng(1)
    direction = rng.normal(size=theta.size)
    _, gradient = layout.marginals(theta)
    step = 1e-5
    change = (
        layout.marginals(theta + step * direction)[0]
        - layout.marginals(theta - step * direction)[0]
    )
    assert_allclose(gradient @ direction, change / (2 * step), rtol=1e-7)


def test_tied_marginals_are_sums_over_cliques():
    untied = TableLayout([(0, 1), (1, 2), (2, 3)], [3] * 4)
    tied = TableLayout([(0, 1), (1, 2), (2, 3)], [3] * 4, ties=[0, 0, 0])
    shared = np.random.default_rng(0).normal(size=9)
    a, marginals = untied.marginals(np.tile(shared, 3))
    b, total = tied.marginals(shared)
    assert_allclose(a, b)
    assert_allclose(total, marginals.reshape(3, 9).sum(axis=0), atol=1e-14)


def test_exact_marginals_are_matched():
    layout, theta = random_field()
    _, wanted = layout.marginals(theta)
    found, _ = maximise_likelihood(layout, wanted, 0.0, max_iter=2000)
    assert_allclose(layout.marginals(found)[1], wanted, atol=1e-6)
    assert divergence(layout, theta, found) < 1e-9


def test_ridge_satisfies_its_stationarity_condition():
    layout, theta = random_field()
    tables = noisy_tables(layout, theta, 2000, 20.0)
    penalty = 1e-3
    found, _, _ = naive_mle(tables, penalty)
    gap = layout.marginals(found)[1] - projected_marginals(tables)
    assert_allclose(gap, -2 * penalty * found, atol=1e-6)


def test_without_projection_the_ridge_is_fitted_to_negative_counts():
    layout, truth = random_field(4, 3)
    tables = noisy_tables(layout, truth, 200, 30.0)
    assert tables.values.min() < 0
    theta, _, _ = naive_mle(tables, 1e-2, projection=False)
    wanted = tables.values / tables.n_records()
    gradient = layout.marginals(theta)[1] - wanted + 2e-2 * theta
    inside = np.abs(theta) < 29.9  # the rest is at the bound
    assert inside.mean() > 0.9 and np.abs(gradient[inside]).max() < 1e-5
    projected, _, _ = naive_mle(tables, 1e-2)
    assert divergence(layout, truth, projected) < divergence(layout, truth, theta)


def test_number_of_records_averages_table_totals():
    layout = TableLayout([(0,), (1,)], [2, 5])
    values = np.array([60.0, 50.0, 10, 20, 30, 40, 50])
    tables = NoisyTables(layout, values, np.array([1.0, 2.0]), "laplace")
    weights = 1 / np.array([1.0 * 2, 4.0 * 5])
    expected = np.average([110, 150], weights=weights)
    assert_allclose(tables.n_records(), expected)
    empty = NoisyTables(layout, -values, np.ones(2), "laplace")
    assert empty.n_records() == 1.0


def test_rescaled_tables_have_the_same_total():
    layout = TableLayout([(0,), (1,)], [2, 2])
    values = np.array([60.0, 40.0, 30.0, 20.0])
    tables = NoisyTables(layout, values, np.array([1.0, 1.0]), "laplace").rescaled()
    totals = tables.values.reshape(2, 2).sum(axis=1)
    assert_allclose(totals[0], totals[1])
    assert_allclose(tables.std, totals[0] / np.array([100.0, 50.0]))


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.slow
def test_empirical_bayes_beats_naive_and_uniform(kind):
    ratios = []
    for seed in range(3):
        layout, theta = random_field(seed=seed)
        tables = noisy_tables(layout, theta, 20_000, 150.0, kind, seed)
        bayes = divergence(layout, theta, empirical_bayes(tables))
        naive = divergence(layout, theta, naive_mle(tables, 1e-6, 100)[0])
        assert bayes < divergence(layout, theta, np.zeros_like(theta))
        ratios.append(bayes / naive)
    assert np.median(ratios) < 0.7


@pytest.mark.slow
def test_empirical_bayes_is_close_to_the_best_penalty():
    ratios = []
    for seed in range(3):
        layout, theta = random_field(seed=seed)
        tables = noisy_tables(layout, theta, 20_000, 100.0, seed=seed)
        wanted, start, path = projected_marginals(tables), None, []
        for penalty in 10.0 ** np.arange(-1.5, -5, -0.5):
            start, _ = maximise_likelihood(layout, wanted, penalty, start, 300)
            path.append(divergence(layout, theta, start))
        bayes = divergence(layout, theta, empirical_bayes(tables))
        ratios.append(bayes / min(path))
    assert np.median(ratios) <= 1.15


@pytest.mark.parametrize("scale", [0.1, 10.0, 100.0])
def test_tables_of_a_uniform_field_have_no_signal_whatever_the_noise(scale):
    # rows vary by chance, too: next to no noise must not make a signal of that
    layout, theta = random_field(4, 3, spread=0.0)
    found = [
        signal_strength(noisy_tables(layout, theta, 5000, scale, "gaussian", seed=seed))
        for seed in range(40)
    ]
    assert abs(np.mean(found)) < 1
    assert np.mean(np.array(found) < 2) > 0.8
    layout, theta = random_field(4, 3)
    assert signal_strength(noisy_tables(layout, theta, 5000, scale, "gaussian")) > 3


def test_pure_noise_gives_the_uniform_field():
    layout, theta = random_field(spread=0.0)
    tables = noisy_tables(layout, theta, 1000, 2000.0, seed=1)
    assert signal_strength(tables) < 2
    assert not empirical_bayes(tables).any()


@pytest.mark.parametrize("potentials", ["flat", "normal", "peaked", "sticky"])
def test_auto_is_not_worse_than_the_uniform_field_when_noise_drowns_the_tables(
    potentials,
):
    layout, _ = random_field(10, 10)
    rng = np.random.default_rng(0)
    theta = {
        "flat": lambda: 0.1 * rng.normal(size=layout.n_parameters),
        "normal": lambda: rng.normal(size=layout.n_parameters),
        "peaked": lambda: np.log(rng.gamma(0.2, size=layout.n_parameters) + 1e-12),
        "sticky": lambda: np.tile(2 * np.eye(10).ravel(), len(layout.cliques)),
    }[potentials]()
    uniform = divergence(layout, theta, np.zeros_like(theta))
    signals = []
    for seed in range(12):
        # what epsilon 0.01 needs for 17 tables
        tables = noisy_tables(layout, theta, 10_000, 1700.0, seed=seed)
        signals.append(signal_strength(tables))
        found = divergence(layout, theta, empirical_bayes(tables))
        assert found <= 1.02 * uniform + 0.1
    assert min(signals) < 2


def test_divergence_without_noise_is_the_parameters_over_twice_the_rows():
    layout, theta = random_field(4, 3, spread=0.5)
    free = sum(2 * 2 for _ in layout.cliques) + 4 * 2
    n_rows, found = 5000, []
    for seed in range(12):
        counts = count_tables(draw(layout, theta, n_rows, seed), layout, Contribution())
        fitted, _ = maximise_likelihood(layout, counts / n_rows, 1e-10)
        found.append(divergence(layout, theta, fitted))
    # twice N times the divergence is chi-square distributed: mean `free`, here over 12
    error = np.sqrt(2 * free / 12)
    assert abs(2 * n_rows * np.mean(found) - free) < 4 * error


def test_structural_zeros_stay_zero_and_noise_on_them_is_ignored():
    support = np.ones(9, dtype=bool)
    support[[1, 5]] = False
    layout = TableLayout([(0, 1)], [3, 3], support=support)
    values = np.full(9, 1000.0)
    tables = NoisyTables(layout, values, np.array([5.0]), "laplace")
    assert tables.n_records() == 7000
    for theta in (empirical_bayes(tables), naive_mle(tables, 1e-6)[0]):
        assert_allclose(layout.marginals(theta)[1], support / 7, atol=1e-3)
