import numpy as np
import pytest
from scipy.optimize import minimize

from skprivbn.structure._acyclicity import ACYCLICITY
from skprivbn.structure.admm._mlp import (
    MLPProblem,
    _Descent,
    initial_mlp,
    mlp_forward,
    n_free_of_mlp,
)
from skprivbn.structure.admm._steps import ConsensusProblem, LinearProblem
from skprivbn.structure.gaussian._notears import minimise_l1


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
def test_mlp_losses_and_their_gradients(which, monkeypatch):
    monkeypatch.setattr("skprivbn.structure.admm._mlp._BLOCK", 1)
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


def descent(rng):
    """Return a descent of three variables with six parameters each."""
    return _Descent.begin(np.zeros((3, 6)), rng.normal(size=3), np.zeros((3, 6)))


@pytest.mark.parametrize("n_alone", [1, 9, 10, 12])
def test_variables_that_go_on_alone_leave_others_where_they_would_have_stayed(n_alone):
    rng = np.random.default_rng(n_alone)
    together, apart = (
        descent(np.random.default_rng(0)),
        descent(np.random.default_rng(0)),
    )
    alone, moving = None, np.array([True, False, True])
    for k in range(4 + n_alone):
        if k == 4:
            alone = apart.take(moving)
        moved, change = rng.normal(size=(2, 3, 6))
        goes = np.ones(3, dtype=bool) if k < 4 else moving
        for one, which in ((together, slice(None)), (alone or apart, goes)):
            part = np.where(goes[:, None], [moved, change], 0.0)[:, which]
            one.move(one.parameters + part[0], one.loss, one.slope + part[1])
    apart.put(moving, alone)
    assert apart.n_added == together.n_added
    for name in ("parameters", "loss", "slope", "pairs", "products"):
        found, expected = getattr(apart, name), getattr(together, name)
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("n_pairs", [0, 1, 4, 10, 17])
def test_remembered_curvature_is_that_of_bfgs_updates(n_pairs):
    rng, rho = np.random.default_rng(n_pairs), 0.7
    memory, seen = descent(rng), []
    for k in range(n_pairs):
        root = rng.normal(size=(3, 6, 6))
        moved = rng.normal(size=(3, 6))
        change = np.einsum("vij,vkj,vk->vi", root, root, moved)
        # one variable stays, one goes along a ridge that the penalty does not mend
        moved[k % 3] *= k % 2
        change[k % 3] *= k % 2
        change[(k + 1) % 3] *= -5.0 if k % 4 == 3 else 1.0
        memory.move(memory.parameters + moved, memory.loss, memory.slope + change)
        seen.append((moved, change))
    gradient = rng.normal(size=(3, 6))
    found = memory.newton(gradient, rho)
    for v in range(3):
        pairs = [(s[v], y[v] + rho * s[v]) for s, y in seen[-10:]]
        pairs = [(s, y) for s, y in pairs if s @ y > 1e-10 * s @ s]
        inverse = np.eye(6) / (1 + rho)
        if pairs:
            s, y = pairs[-1]
            inverse = np.eye(6) * (s @ y) / (y @ y)
        for s, y in pairs:
            left = np.eye(6) - np.outer(s, y) / (s @ y)
            inverse = left @ inverse @ left.T + np.outer(s, s) / (s @ y)
        expected = inverse @ gradient[v]
        np.testing.assert_allclose(found[v], expected, rtol=1e-7)


def test_later_rounds_of_mlp_steps_start_with_what_is_known(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    X[:, 1] += np.tanh(X[:, 0])
    problem, start = MLPProblem(X, 200, 4), initial_mlp(3, 4, 0)
    asked = []
    evaluate = problem.evaluate

    def counted(parameters, which=None):
        asked.append(len(parameters))
        return evaluate(parameters, which)

    monkeypatch.setattr(problem, "evaluate", counted)
    numbers = []
    for rho in (0.1, 0.11, 0.12):
        problem.solve(start, np.zeros_like(start), rho)
        numbers.append(sum(asked))
        asked.clear()
    assert numbers[0] > 2 * numbers[1] > 2 * numbers[2]


def test_a_party_without_rows_proposes_the_consensus():
    start = initial_mlp(3, 4, 0)
    problem = MLPProblem(np.empty((0, 3)), 40, 4)
    solved = problem.solve(start, np.zeros_like(start), 1.0)
    np.testing.assert_array_equal(solved, start)
