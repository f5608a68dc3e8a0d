"""The maths, without parties."""

import dataclasses

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from scipy.special import expit, log_expit, logsumexp
from scipy.stats import norm

from skprivbn.mixed_model._metropolis import Chains, expanded_step
from skprivbn.mixed_model._quadrature import (
    Curves,
    Grid,
    Posterior,
    Rows,
    derivatives,
    expansion_table,
    find_modes,
    log_likelihood_table,
    missing_information,
    score_table,
)
from skprivbn.mixed_model._terms import family_of
from skprivbn.mixed_model._updates import QuasiNewton, solve_information

PARAMETERS = np.array([-0.3, 0.8, 1.4])


def make_rows(X, y, category, n_categories):
    n_rows = len(y)
    return Rows(
        family_of("binomial"),
        X,
        np.ones((n_rows, 1)),
        np.asarray(y, dtype=float),
        np.ones(n_rows),
        np.zeros(n_rows),
        category,
        n_categories,
    )


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(40), rng.normal(size=40)])
    return make_rows(X, rng.integers(2, size=40), rng.integers(4, size=40), 5)


def marginal(parameters, rows, n_nodes=61):
    grid = Grid.prior(rows.n_categories, n_nodes)
    table = log_likelihood_table(rows, parameters, grid.nodes)
    return grid.integrate(table)


def test_table_is_the_sum_over_rows(rows, monkeypatch):
    nodes = np.random.default_rng(1).normal(size=(5, 3))
    expected = np.zeros((5, 3))
    for x, y, t in zip(rows.X, rows.events, rows.category):
        log_odds = x @ PARAMETERS[:-1] + PARAMETERS[-1] * nodes[t]
        expected[t] += log_expit(log_odds if y else -log_odds)
    table = log_likelihood_table(rows, PARAMETERS, nodes)
    np.testing.assert_allclose(table, expected, rtol=1e-12)
    assert np.all(table[4] == 0), "no row is in the last category"
    monkeypatch.setattr("skprivbn.mixed_model._quadrature._CHUNK", 10)
    np.testing.assert_allclose(
        log_likelihood_table(rows, PARAMETERS, nodes), table, rtol=1e-12
    )


def test_expected_gradient_is_that_of_the_marginal_likelihood(rows):
    posterior, _ = marginal(PARAMETERS, rows)
    gradient, _ = derivatives(rows, PARAMETERS, posterior)
    numerical = approx_fprime(
        PARAMETERS, lambda p: marginal(p, rows)[1].sum(), epsilon=1e-6
    )
    np.testing.assert_allclose(gradient, numerical, atol=1e-4)


def test_louis_information_is_the_hessian_of_the_marginal_likelihood(rows):
    posterior, _ = marginal(PARAMETERS, rows)
    _, complete = derivatives(rows, PARAMETERS, posterior)
    scores = score_table(rows, PARAMETERS, posterior.nodes)
    observed = complete - missing_information(scores, scores, posterior)

    def gradient(parameters):
        return derivatives(rows, parameters, marginal(parameters, rows)[0])[0]

    numerical = -np.array(
        [
            (gradient(PARAMETERS + h) - gradient(PARAMETERS - h)) / 2e-4
            for h in 1e-4 * np.eye(3)
        ]
    )
    np.testing.assert_allclose(observed, numerical, atol=1e-5)


def test_missing_information_adds_up_over_holders(rows):
    posterior, _ = marginal(PARAMETERS, rows)
    whole = score_table(rows, PARAMETERS, posterior.nodes)
    part = score_table(rows.take(slice(13)), PARAMETERS, posterior.nodes)
    shares = [missing_information(s, whole, posterior) for s in (part, whole - part)]
    expected = missing_information(whole, whole, posterior)
    np.testing.assert_allclose(sum(shares), expected, atol=1e-10)


@pytest.mark.parametrize("n_rows, sigma", [(3, 0.5), (50, 1.0), (2000, 2.0)])
def test_adapted_quadrature_equals_a_fine_grid(n_rows, sigma):
    rng = np.random.default_rng(n_rows)
    X = np.ones((n_rows, 1))
    y = (rng.random(n_rows) < expit(1.5 * sigma)).astype(float)
    data = make_rows(X, y, np.zeros(n_rows, dtype=int), 1)
    parameters = np.array([0.2, sigma])
    grid, table = _adapted(data, parameters)
    posterior, log_integral = grid.integrate(table)
    assert np.abs(grid.errors(table)) < 1e-5
    u = np.linspace(-9, 9, 20001)[None]
    density = log_likelihood_table(data, parameters, u) + norm.logpdf(u)
    density = np.exp(density - log_integral)
    step = u[0, 1] - u[0, 0]
    np.testing.assert_allclose(density.sum() * step, 1, atol=1e-6)
    mean = (density * u).sum() * step
    np.testing.assert_allclose(posterior.mean()[0], mean, atol=1e-5)
    variance = (density * (u - mean) ** 2).sum() * step
    np.testing.assert_allclose(posterior.variance()[0], variance, rtol=1e-4)


@pytest.mark.parametrize("family", ["binomial", "poisson"])
def test_curves_tell_where_nodes_should_be_after_a_step(rows, family):
    """Nodes, and the posterior there, follow from a table at other parameters."""
    rows = dataclasses.replace(rows, family=family_of(family))
    before, after = PARAMETERS, PARAMETERS + [0.2, -0.1, 0.4]
    grid, table = _adapted(rows, before)
    expansion = expansion_table(rows, before, grid.centre)
    curves = Curves.through(grid, before[-1], table, expansion)
    same, again = curves.place(before[-1], 0.0, 25)
    np.testing.assert_allclose(same.centre, grid.centre, atol=1e-8)
    np.testing.assert_allclose(same.spread, grid.spread, atol=1e-8)
    np.testing.assert_allclose(again, table, atol=1e-6)
    shift = curves.shares @ (after - before)[:-1]
    ahead, there = curves.place(after[-1], shift[:, None], 25)
    exact, table = _adapted(rows, after)
    assert np.max(np.abs(ahead.centre - exact.centre) / exact.spread) < 0.1
    np.testing.assert_allclose(ahead.spread, exact.spread, rtol=0.1)
    weights, expected = (
        g.integrate(t)[0].weights for g, t in ((ahead, there), (exact, table))
    )
    np.testing.assert_allclose(weights, expected, atol=0.05)


def _adapted(rows, parameters):
    """Return nodes around the modes, and log-likelihoods there."""

    def by_effect(u):
        slope, bend, *_ = expansion_table(rows, parameters, u).T
        return parameters[-1] * slope - u, 1 + parameters[-1] ** 2 * bend

    mode, bend = find_modes(by_effect, np.zeros(rows.n_categories))
    grid = Grid(mode, 1 / np.sqrt(bend), 25)
    return grid, log_likelihood_table(rows, parameters, grid.nodes)


def test_modes_are_found_where_newton_alone_would_go_astray():
    far = np.array([0.0, 30.0, -30.0])

    def derivatives(u):
        p = expit(10 * (u - 1))
        return 5 * (0.5 - p), 50 * p * (1 - p) + 1e-12

    modes, _ = find_modes(derivatives, far)
    np.testing.assert_allclose(modes, 1.0, atol=1e-6)


def test_the_error_of_too_few_nodes_is_known():
    """Clusters without events and a scale of 6: posteriors are far from normal."""
    parameters, u = np.array([-1.0, 6.0]), np.linspace(-14, 14, 20001)[None]
    known, true = [], []
    for n_rows in range(3, 13):
        X, category = np.ones((n_rows, 1)), np.zeros(n_rows, dtype=int)
        data = make_rows(X, np.zeros(n_rows), category, 1)
        grid, table = _adapted(data, parameters)
        density = log_likelihood_table(data, parameters, u) + norm.logpdf(u)
        exact = logsumexp(density) + np.log(u[0, 1] - u[0, 0])
        true.append(grid.integrate(table)[1][0] - exact)
        known.append(grid.errors(table)[0])
    known, true = np.array(known), np.array(true)
    assert np.abs(true).sum() > 1e-3
    assert np.abs(known - true).sum() < 0.5 * np.abs(true).sum()


def run_chains(rows, n_draws, sign=1):
    chains = Chains(rows.n_categories, 50, 100, n_draws, seed=0)
    while not chains.is_complete:
        chains.walk(sign * log_likelihood_table(rows, PARAMETERS, chains.propose()))
    return chains.posterior()


def test_chains_draw_from_the_posterior(rows):
    exact, _ = marginal(PARAMETERS, rows)
    posterior = run_chains(rows, 20000)
    assert posterior.nodes.shape == (5, 20000)
    np.testing.assert_allclose(posterior.mean(), exact.mean(), atol=0.05)
    np.testing.assert_allclose(posterior.variance(), exact.variance(), atol=0.05)


def test_an_inverted_acceptance_ratio_would_be_noticed(rows):
    exact, _ = marginal(PARAMETERS, rows)
    inverted = run_chains(rows, 5000, sign=-1)
    assert np.abs(inverted.mean() - exact.mean()).max() > 0.5


def test_chains_start_where_they_were(rows):
    chains = Chains(rows.n_categories, 10, 0, 10, 0)
    chains.walk(log_likelihood_table(rows, PARAMETERS, chains.propose()))
    state = chains.state
    chains.restart()
    np.testing.assert_array_equal(chains.propose()[:, 0], state)


def test_solving_leaves_unknown_directions_alone():
    information = np.array([[2.0, 2.0], [2.0, 2.0]])
    step = solve_information(information, np.array([4.0, 4.0]))
    np.testing.assert_allclose(step, [1.0, 1.0])


def test_quasi_newton_is_faster_than_its_first_guess_of_the_curvature():
    curvature = np.diag([1.0, 0.05, 0.01])
    guess, top = np.eye(3), np.array([3.0, -2.0, 1.0])

    def climb(memory):
        optimiser = QuasiNewton(np.zeros(3), 1e-12, observed=not memory)
        n_steps, go_on = 0, True
        while go_on:
            n_steps += 1
            away = optimiser.parameters - top
            value = -away @ curvature @ away / 2
            go_on = optimiser.step(value, -curvature @ away, guess)
        np.testing.assert_allclose(optimiser.parameters, top, atol=1e-3)
        return n_steps

    assert climb(memory=True) < 20 < 100 < climb(memory=False)


def test_a_step_too_long_is_taken_back_by_interpolation():
    optimiser = QuasiNewton(np.array([0.0]), 1e-8)
    optimiser.step(0.0, np.array([1.0]), np.array([[0.5]]))
    assert optimiser.parameters == 2
    # the parabola of slope 1 at 0 that passes through (2, -1) has its top at 2/3
    assert optimiser.step(-1.0, np.array([-2.0]), np.array([[0.5]]))
    np.testing.assert_allclose(optimiser.parameters, 2 / 3)
    assert optimiser.best[0] == 0, "the best point is not forgotten"
    assert optimiser.step(-np.inf, np.array([np.nan]), np.array([[0.5]]))
    np.testing.assert_allclose(optimiser.parameters, 2 / 30)


def test_a_mirrored_point_is_no_gain():
    """Steps from sigma to -sigma and back would go on for ever."""
    optimiser = QuasiNewton(np.array([1.0]), 1e-8)
    optimiser.step(-5.0, np.array([-2.0]), np.array([[1.0]]))
    assert optimiser.parameters == -1
    assert optimiser.step(-5.0, np.array([2.0]), np.array([[1.0]]))
    assert optimiser.parameters == 0


def test_a_worse_point_is_not_kept_if_no_gain_was_promised():
    optimiser = QuasiNewton(np.array([0.0]), 1e-12)
    optimiser.step(-1000.0, np.array([1e-5]), np.array([[0.1]]))
    assert not optimiser.step(-1000.1, np.array([1e-5]), np.array([[0.1]]))
    assert optimiser.parameters == 0


def test_a_pair_that_tells_of_little_curvature_is_damped():
    """Undamped, the information would fall to 0.01, and the step grow to 49.5."""
    optimiser = QuasiNewton(np.array([0.0]), 1e-8)
    optimiser.step(0.0, np.array([0.5]), np.array([[1.0]]))
    optimiser.step(0.24, np.array([0.495]), np.array([[1.0]]))
    np.testing.assert_allclose(optimiser.parameters, 0.5 + 0.495 / 0.2)


def test_expanded_step_is_at_rest_at_the_solution():
    parameters = np.array([0.4, 1.0, 0.8])
    rested = expanded_step(parameters, np.zeros(3), np.eye(3), 0.0, 1.0)
    np.testing.assert_allclose(rested, parameters)
    moved = expanded_step(parameters, np.zeros(3), np.eye(3), 0.5, 1.25)
    np.testing.assert_allclose(moved, [0.8, 1.0, 0.8])


def test_posterior_moments():
    posterior = Posterior(np.array([[0.0, 2.0]]), np.array([[0.5, 0.5]]))
    assert posterior.mean() == 1 and posterior.variance() == 1
