"""Collective graphical models: both E-steps, and stopping before the noise."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize

from skprivbn.graphical_model._estimation import (
    _minimise_in_box,
    collective_em,
    expected_tables_by_dual,
    naive_mle,
    nonlinear_belief_propagation,
)
from tests.graphical_model.fields import divergence, noisy_tables, random_field


def log_posterior(tables, theta, shift, n_records):
    """The E-step's objective at the tables N mu(theta + shift)."""
    layout = tables.layout
    log_partition, marginals = layout.marginals(theta + shift)
    expected = n_records * marginals
    entropy = n_records * log_partition - (theta + shift) @ expected
    residual = tables.values - expected
    if tables.kind == "laplace":
        noise = -np.sum(np.abs(residual) / tables.mean_absolute_noise)
    else:
        noise = -np.sum(residual**2 / (2 * tables.variance))
    return theta @ expected + entropy + noise


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_dual_solves_the_e_step(kind):
    layout, truth = random_field(4, 3)
    tables = noisy_tables(layout, truth, 2000, 30.0, kind)
    n_records = tables.n_records()
    theta = np.zeros_like(truth)
    shift, expected = expected_tables_by_dual(
        tables, theta, n_records, theta, max_iter=2000, tol=1e-7
    )
    assert_allclose(expected, n_records * layout.marginals(theta + shift)[1])
    best = log_posterior(tables, theta, shift, n_records)
    rng = np.random.default_rng(0)
    for size in (1e-3, 1e-2, 1e-1):
        for _ in range(20):
            other = shift + size * rng.normal(size=shift.size)
            assert log_posterior(tables, theta, other, n_records) <= best + 1e-5
    if kind == "laplace":
        assert np.all(np.abs(shift) <= 1 / tables.mean_absolute_noise + 1e-12)
    else:
        residual = tables.values - expected
        assert_allclose(shift, residual / tables.variance, atol=1e-4)


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_nonlinear_belief_propagation_finds_the_same_tables(kind):
    layout, truth = random_field(4, 3)
    tables = noisy_tables(layout, truth, 2000, 30.0, kind)
    n_records, theta = tables.n_records(), np.zeros_like(truth)
    _, dual = expected_tables_by_dual(
        tables, theta, n_records, theta, max_iter=2000, tol=1e-7
    )
    found = nonlinear_belief_propagation(tables, theta, n_records, 3000, tol=1e-7)
    assert np.abs(found - dual).max() < 0.01 * 30.0


def test_constant_damping_is_for_gaussian_noise():
    layout, truth = random_field(4, 3)
    far = {}
    for kind in ("laplace", "gaussian"):
        tables = noisy_tables(layout, truth, 2000, 30.0, kind)
        n_records, theta = tables.n_records(), np.zeros_like(truth)
        _, dual = expected_tables_by_dual(
            tables, theta, n_records, theta, max_iter=2000, tol=1e-7
        )
        found = nonlinear_belief_propagation(
            tables, theta, n_records, 500, tol=1e-7, damping=0.9
        )
        far[kind] = np.abs(found - dual).max() / 30.0
    # the iterates jump around the kinks of the Laplace likelihood
    assert far["gaussian"] < 0.01 < far["laplace"]


def test_both_e_steps_learn_the_same_field():
    layout, truth = random_field(4, 3)
    tables = noisy_tables(layout, truth, 2000, 20.0)
    one, n_one, _ = collective_em(tables, "dual")
    other, n_other, _ = collective_em(tables, "nlbp")
    assert abs(n_one - n_other) <= 1
    assert divergence(layout, one, other) < 1e-2


@pytest.mark.slow
def test_stopping_by_discrepancy_beats_the_limit_and_naive():
    ratios = []
    for seed in range(3):
        layout, truth = random_field(4, seed=seed)
        tables = noisy_tables(layout, truth, 2000, 20.0, seed=seed)
        stopped, n_iter, converged = collective_em(tables)
        assert converged and n_iter < 40
        # far enough on the way to the limit to have learnt the noise
        limit, _, _ = collective_em(tables, discrepancy=0.0, max_iter=80)
        naive, _, _ = naive_mle(tables, 1e-7, max_iter=300)
        kl = [divergence(layout, truth, theta) for theta in (stopped, limit, naive)]
        assert kl[0] < kl[1]
        ratios.append(kl[0] / kl[2])
    assert np.median(ratios) <= 0.3


def test_em_climbs_the_likelihood_of_the_noisy_tables():
    layout, truth = random_field(4, 3)
    tables = noisy_tables(layout, truth, 2000, 20.0)
    distances = []
    for n_iter in (1, 5, 20, 60):
        theta, _, _ = collective_em(tables, discrepancy=0.0, max_iter=n_iter)
        expected = tables.n_records() * layout.marginals(theta)[1]
        distances.append(np.abs(tables.values - expected).mean())
    assert distances == sorted(distances, reverse=True)


@pytest.mark.parametrize("bound", [0.5, 3.0, np.inf])
def test_minimisation_in_a_box_agrees_with_scipy(bound):
    rng = np.random.default_rng(0)
    root = rng.normal(size=(30, 40))
    matrix = root.T @ root / 30 + 0.1 * np.eye(40)
    linear = rng.normal(size=40)

    def objective(x):
        return x @ matrix @ x / 2 - linear @ x, matrix @ x - linear

    found, _ = _minimise_in_box(
        lambda x: (*objective(x), None),
        np.zeros(40),
        lambda _: np.diag(matrix),
        bound,
        tol=1e-9,
        max_iter=5000,
    )
    expected = minimize(
        objective,
        np.zeros(40),
        jac=True,
        method="L-BFGS-B",
        bounds=[(-bound, bound)] * 40,
        options={"ftol": 1e-15, "gtol": 1e-10},
    ).x
    assert np.abs(found).max() <= bound
    assert_allclose(found, expected, atol=1e-6)
