import numpy as np
import pytest
from scipy.optimize import minimize

from skprivbn.structure.admm._mlp import (
    MLPProblem,
    initial_mlp,
    mlp_forward,
    n_free_of_mlp,
)
from skprivbn.structure.admm._steps import ConsensusProblem, LinearProblem
from skprivbn.structure.gaussian._notears import ACYCLICITY, minimise_l1


def test_local_step_is_equation_8():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(7, 5))
    S = X.T @ X / 20
    W, beta, rho = rng.normal(size=(5, 5)), rng.normal(size=(5, 5)), 0.03
    expected = np.linalg.inv(S + rho * np.eye(5)) @ (rho * W - beta + S)
    solved = LinearProblem(S).solve(W.ravel(), beta.ravel(), rho)
    np.testing.assert_allclose(solved.reshape(5, 5), expected, rtol=1e-9)


def test_local_step_minimises_the_lagged_problem():
    rng = np.random.default_rng(1)
    Z = rng.normal(size=(30, 6))
    start, dual, rho = rng.normal(size=18), rng.normal(size=18), 0.2

    def objective(flat):
        rest = Z[:, :3] - Z @ flat.reshape(6, 3)
        gap = flat - start
        return 0.5 * (rest**2).sum() / 40 + dual @ gap + 0.5 * rho * gap @ gap

    solved = LinearProblem(Z.T @ Z / 40, 3).solve(start, dual, rho)
    best = minimize(objective, np.zeros(18), tol=1e-12)
    assert objective(solved) <= best.fun + 1e-10


def objective_of(problem, target, weight, alpha, rho1):
    def value(flat):
        h = problem.cycles(flat)
        n = problem.n_maps * problem.n_variables**2
        return (
            0.5 * weight * np.sum((flat - target) ** 2)
            + 0.5 * problem.lambda2 * np.sum(flat**2)
            + problem.lambda1 * np.abs(flat[:n]).sum()
            + problem.lambda_free * np.abs(flat[n:]).sum()
            + alpha * h
            + 0.5 * rho1 * h * h
        )

    return value


@pytest.mark.parametrize("acyclicity", ["expm", "logdet"])
@pytest.mark.parametrize(("alpha", "rho1"), [(0.0, 0.1), (0.5, 10.0), (5.0, 1e5)])
def test_consensus_step_is_as_good_as_lbfgs(acyclicity, alpha, rho1):
    """On average: the problem has local minima, and either may find the better one."""
    d, weight, ratios = 6, 0.7, []
    measure = ACYCLICITY[acyclicity]
    off = ~np.eye(d, dtype=bool)
    for seed in range(10):
        rng = np.random.default_rng(seed)
        target = rng.normal(size=(d, d)) * (rng.random((d, d)) < 0.5)
        problem = ConsensusProblem(d, lambda1=0.05, acyclicity=acyclicity)

        def smooth(W, target=target):
            h, slope = measure(W * W)
            if not np.isfinite(h):
                return 1e10, np.zeros_like(W)
            value = 0.5 * weight * np.sum((W - target) ** 2)
            gradient = weight * (W - target) + (alpha + rho1 * h) * 2.0 * slope * W
            return value + alpha * h + 0.5 * rho1 * h * h, gradient

        lbfgs = minimise_l1(smooth, np.zeros((d, d)), 0.05, free=off)
        ours, h = problem.step(
            target.ravel(),
            np.zeros(d * d),
            weight=weight,
            alpha=alpha,
            rho1=rho1,
            tol=1e-10,
        )
        assert h == pytest.approx(problem.cycles(ours))
        assert not np.diag(ours.reshape(d, d)).any()
        value = objective_of(problem, target.ravel(), weight, alpha, rho1)
        ratios.append(value(ours) / value(lbfgs.ravel()))
    assert np.mean(ratios) < 1.01


def test_consensus_step_never_goes_up():
    rng = np.random.default_rng(3)
    problem = ConsensusProblem(4, n_maps=3, n_free=5, lambda1=0.1, lambda2=0.2)
    target, start = rng.normal(size=53), 0.1 * rng.normal(size=53)
    problem.maps(start)[:, np.arange(4), np.arange(4)] = 0.0
    value = objective_of(problem, target, 0.5, 0.3, 2.0)
    new, _ = problem.step(target, start, weight=0.5, alpha=0.3, rho1=2.0)
    assert value(new) < value(start)
    np.testing.assert_allclose(new[48:], 0.5 * target[48:] / 0.7)


def test_without_cycles_the_consensus_is_a_soft_threshold():
    target = np.triu(np.random.default_rng(0).normal(size=(4, 4)), 1)
    problem = ConsensusProblem(4, lambda1=0.2)
    new, _ = problem.step(target.ravel(), np.zeros(16), weight=2.0, alpha=9.0, rho1=9.0)
    expected = np.sign(target) * np.maximum(np.abs(target) - 0.1, 0.0)
    np.testing.assert_allclose(new.reshape(4, 4), expected, atol=1e-12)


def mlp_objective(flat, X, n_hidden, consensus, dual, rho):
    """What a party minimises, from the definition."""
    gap = flat - consensus
    loss = 0.5 * np.mean((mlp_forward(X, flat, n_hidden) - X) ** 2, axis=0).sum()
    return loss + gap @ dual + 0.5 * rho * gap @ gap


@pytest.mark.parametrize("which", [None, np.array([2, 0])])
def test_mlp_losses_and_their_gradients(which):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 4))
    problem = MLPProblem(X, 150, 3)
    flat = initial_mlp(4, 3, 0) + 0.1 * initial_mlp(4, 3, 1)
    parameters = problem._by_variable(flat)
    np.testing.assert_array_equal(problem._flat(parameters), flat)
    chosen = np.arange(4) if which is None else which
    losses, gradients = problem.evaluate(parameters[chosen], which)
    residual = mlp_forward(X, flat, 3) - X
    expected = 0.5 * np.mean(residual**2, axis=0)[chosen]
    np.testing.assert_allclose(losses, expected)
    direction = problem._by_variable(initial_mlp(4, 3, 2))[chosen]
    up, down = (
        problem.evaluate(parameters[chosen] + s * 1e-6 * direction, which)[0]
        for s in (1, -1)
    )
    slopes = (gradients * direction).sum(axis=1)
    np.testing.assert_allclose((up - down) / 2e-6, slopes, rtol=1e-5)


def test_mlp_forward_by_hand():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5, 3))
    flat = rng.normal(size=2 * 9 + n_free_of_mlp(3, 2))
    maps, bias = flat[:18].reshape(2, 3, 3), flat[18:24].reshape(2, 3)
    output, offset = flat[24:30].reshape(2, 3), flat[30:]
    expected = np.empty((5, 3))
    for row in range(5):
        for j in range(3):
            hidden = [
                1 / (1 + np.exp(-(X[row] @ maps[m, :, j] + bias[m, j]))) for m in (0, 1)
            ]
            expected[row, j] = np.dot(hidden, output[:, j]) + offset[j]
    np.testing.assert_allclose(mlp_forward(X, flat, 2), expected)


def test_mlp_local_steps_are_those_of_an_independent_optimiser():
    # with a strong penalty there is one minimum; a second round starts from the first
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    X[:, 1] += np.tanh(X[:, 0])
    problem = MLPProblem(X, 40, 4, tol=1e-12)
    start = initial_mlp(3, 4, 0)
    free = initial_mlp(3, 4, 1) != 0
    free[36:] = True
    for rho, consensus in ((1.0, start), (2.0, start + 0.1 * initial_mlp(3, 4, 2))):
        dual = 0.01 * initial_mlp(3, 4, 3)
        solved = problem.solve(consensus, dual, rho)

        def objective(values, consensus=consensus, dual=dual, rho=rho):
            flat = np.where(free, 0.0, consensus)
            flat[free] = values
            return mlp_objective(flat, X, 4, consensus, dual, rho)

        known = minimize(objective, consensus[free], tol=1e-12).x
        np.testing.assert_allclose(solved[free], known, atol=1e-4)
        np.testing.assert_array_equal(solved[~free], 0.0)


def problem_far_from_solved(d=3, n=200):
    """Return a party's problem, a consensus far from its solution, and a dual."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    X[:, 1] += 3.0 * np.tanh(X[:, 0])
    consensus, dual = 3.0 * initial_mlp(d, 4, 0), 0.1 * initial_mlp(d, 4, 1)
    return MLPProblem(X, n, 4), consensus, dual


class Watched(MLPProblem):
    """Calls `watch` before and after each step."""

    def _step(self, at, rho):
        self.watch(at)
        super()._step(at, rho)
        self.watch(at)


def test_second_derivatives_along_a_direction():
    problem, consensus, dual = problem_far_from_solved()
    slopes, seen = [], []

    def watch(at):
        seen.append((at.parameters.copy(), at.direction.copy()))
        if len(seen) == 1:
            problem._score(at.direction, at.ahead)
            slopes.append(sum(problem._curvature(at)))

    problem.__class__, problem.watch = Watched, watch
    problem.solve(consensus, dual, 0.1)
    at, direction = seen[0]
    up, down = (
        np.vecdot(problem.evaluate(at + s * 1e-6 * direction)[1], direction)
        for s in (1, -1)
    )
    np.testing.assert_allclose((up - down) / 2e-6, slopes[0], rtol=1e-5)


def test_no_step_leads_up():
    problem, consensus, dual = problem_far_from_solved()
    centre, dual_rows = map(problem._by_variable, (consensus, dual))
    values, reaches = [], []

    def watch(at):
        gap = at.parameters - centre[at.which]
        penalty = np.vecdot(gap, dual_rows[at.which] + 0.05 * gap)
        values.append(problem.evaluate(at.parameters, at.which)[0] + penalty)
        reaches.append(at.reach)

    problem.__class__, problem.watch = Watched, watch
    problem.solve(consensus, dual, 0.1)
    for before, after in zip(values[::2], values[1::2]):
        assert (after <= before + 1e-14).all()
    # some would have, without the check
    assert min(map(np.min, reaches)) < 1


@pytest.mark.parametrize("n_units", [1, 2 * 4 * 200])
def test_variables_solved_apart_are_those_solved_together(n_units, monkeypatch):
    solved = []
    for units in (1 << 17, n_units):
        monkeypatch.setattr("skprivbn.structure.admm._mlp._N_UNITS", units)
        problem, consensus, dual = problem_far_from_solved()
        problem.tol = 1e-14
        solved.append(problem.solve(consensus, dual, 2.0))
    np.testing.assert_allclose(solved[0], solved[1], atol=1e-6)


def test_later_rounds_of_mlp_steps_start_where_the_last_one_ended():
    problem, consensus, dual = problem_far_from_solved()
    numbers, taken = [], []
    problem.__class__, problem.watch = Watched, lambda at: taken.append(len(at.which))
    for rho in (0.1, 0.1, 0.11):
        problem.solve(consensus, dual, rho)
        numbers.append(sum(taken))
        taken.clear()
    assert numbers[0] > 2 * numbers[2] > 0
    assert numbers[1] == 0


def test_a_party_without_rows_proposes_the_consensus():
    start = initial_mlp(3, 4, 0)
    problem = MLPProblem(np.empty((0, 3)), 40, 4)
    solved = problem.solve(start, np.zeros_like(start), 1.0)
    np.testing.assert_array_equal(solved, start)
