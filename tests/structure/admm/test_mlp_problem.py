"""Networks in rounds, against the paper's problem as it is written."""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy.linalg import expm
from scipy.optimize import minimize
from threadpoolctl import threadpool_info

from skprivbn.datasets import make_mlp_sem
from skprivbn.structure.admm._mlp import MLPProblem, n_free_of_mlp
from skprivbn.structure.admm._program import ADMMTerms, algorithm_1
from skprivbn.structure.admm._steps import ConsensusProblem

TIGHT = {"maxiter": 20_000, "maxfun": 100_000, "maxcor": 30, "ftol": 1e-15}
TIGHT |= {"gtol": 1e-10}


@dataclass
class Plain:
    """Ng and Zhang's problems (2) and (3) of networks, variable by variable.

    Parameters are those of the protocol: effects ``A[m, i, j]`` of variable i on hidden
    unit m of variable j, its biases, the weights of its hidden units, and offsets.
    """

    parts: list  # of the rows, by party
    m: int
    lambda1: float
    lambda2: float

    @property
    def d(self):
        return self.parts[0].shape[1]

    @property
    def n_effects(self):
        return self.m * self.d**2

    def effects(self, flat):
        return flat[: self.n_effects].reshape(self.m, self.d, self.d)

    def loss(self, flat, X):
        n, d, m = sum(map(len, self.parts)), self.d, self.m
        A, rest = self.effects(flat), flat[self.n_effects :]
        bias, weight = rest[: m * d].reshape(m, d), rest[m * d : -d].reshape(m, d)
        value, by_A = 0.0, np.zeros_like(A)
        by_bias, by_weight, by_offset = np.zeros((m, d)), np.zeros((m, d)), np.zeros(d)
        for j in range(d):
            hidden = 1.0 / (1.0 + np.exp(-(X @ A[:, :, j].T + bias[:, j])))
            residual = hidden @ weight[:, j] + rest[-d + j] - X[:, j]
            value += residual @ residual / (2 * n)
            by_offset[j] = residual.sum() / n
            by_weight[:, j] = hidden.T @ residual / n
            inner = residual[:, None] * hidden * (1 - hidden) * weight[:, j] / n
            by_bias[:, j] = inner.sum(axis=0)
            by_A[:, :, j] = inner.T @ X
            by_A[:, j, j] = 0.0
        gradient = by_A, by_bias, by_weight, by_offset
        return value, np.concatenate([part.ravel() for part in gradient])

    def cycles(self, flat):
        A = self.effects(flat)
        exponential = expm((A**2).sum(axis=0))
        slope = np.zeros_like(flat)
        slope[: self.n_effects] = (2 * A * exponential.T).ravel()
        return np.trace(exponential) - self.d, slope

    def penalties(self, flat):
        sparse = self.lambda1 * np.abs(self.effects(flat)).sum()
        return sparse + 0.5 * self.lambda2 * flat @ flat

    def objective(self, flat):
        """Return what is minimised over graphs: problem (1) but for its constraint."""
        return sum(self.loss(flat, X)[0] for X in self.parts) + self.penalties(flat)

    def client(self, X, W, beta, rho2):
        def problem_2(B):
            value, gradient = self.loss(B, X)
            gap = B - W
            value += beta @ gap + 0.5 * rho2 * gap @ gap
            return value, gradient + beta + rho2 * gap

        return minimize(problem_2, W, jac=True, method="L-BFGS-B", options=TIGHT).x

    def server(self, B, beta, W, alpha, rho1, rho2):
        size, own = self.n_effects, np.tile(np.eye(self.d), (self.m, 1, 1)).ravel()

        def joined(x):  # effects are what is above zero less what is below
            return np.append(x[:size] - x[size : 2 * size], x[2 * size :])

        def problem_3(x):
            W = joined(x)
            h, slope = self.cycles(W)
            value = self.penalties(W) + alpha * h + 0.5 * rho1 * h**2
            gradient = (alpha + rho1 * h) * slope + self.lambda2 * W
            for B_k, beta_k in zip(B, beta):
                gap = B_k - W
                value += beta_k @ gap + 0.5 * rho2 * gap @ gap
                gradient = gradient - beta_k - rho2 * gap
            above, free = gradient[:size], gradient[size:]
            by_sign = above + self.lambda1, self.lambda1 - above
            return value, np.concatenate([*by_sign, free])

        bounds = [(0, 0) if is_own else (0, None) for is_own in own] * 2
        bounds += [(None, None)] * (len(W) - size)
        start = np.maximum(W[:size], 0), np.maximum(-W[:size], 0), W[size:]
        options = {"jac": True, "method": "L-BFGS-B", "bounds": bounds}
        found = minimize(problem_3, np.concatenate(start), options=TIGHT, **options)
        return joined(found.x)

    def rounds(self, terms):
        """Run Algorithm 1."""
        W, alpha, rho1, rho2 = terms.start(), 0.0, terms.rho1, terms.rho2
        beta = [np.zeros_like(W) for _ in self.parts]
        for _ in range(terms.max_iter):
            B = [self.client(X, W, b, rho2) for X, b in zip(self.parts, beta)]
            W = self.server(B, beta, W, alpha, rho1, rho2)
            beta = [b + rho2 * (B_k - W) for b, B_k in zip(beta, B)]
            alpha += rho1 * self.cycles(W)[0]
            rho1, rho2 = terms.gamma1 * rho1, terms.gamma2 * rho2
        return W


def run(generators):
    """Add what parties ask for, until they are done."""
    total = None
    while True:
        try:
            total = sum([parties.send(total).vector for parties in generators])
        except StopIteration as stop:
            return stop.value


class TightProblem(ConsensusProblem):
    """Problem (3), solved to more digits than a round needs."""

    def step(self, *where, **penalties):
        return super().step(*where, tol=1e-14, max_iter=1000, **penalties)


@pytest.mark.parametrize(
    "problem, digits, within",
    [
        pytest.param(TightProblem, (1000, 1e-14), {"rel": 1e-6}, id="to many digits"),
        pytest.param(ConsensusProblem, (), {"abs": 1e-6}, id="as a fit does"),
    ],
)
@pytest.mark.parametrize("d, K, m, seed", [(3, 2, 2, 0), (4, 3, 2, 1), (5, 2, 3, 2)])
def test_rounds_reach_the_objective_of_the_problem_as_written(
    d, K, m, seed, problem, digits, within
):
    X, _ = make_mlp_sem(90, d, random_state=seed)
    X = (X - X.mean(axis=0)) / X.std()
    plain = Plain(np.array_split(X, K), m, lambda1=0.01, lambda2=0.01)
    penalties = {"lambda1": 0.01, "lambda2": 0.01, "acyclicity": "expm"}
    terms = ADMMTerms(
        problem(d, m, n_free_of_mlp(d, m), **penalties),
        rho1=0.1,
        rho2=1.0 / K,
        gamma1=1.25,
        gamma2=1.2,
        max_iter=6,
        tol=0.0,
        h_tol=0.0,
        threshold=0.3,
        n_hidden=m,
        seed=seed,
    )
    own = [MLPProblem(part, len(X), m, *digits) for part in plain.parts]
    found = run([algorithm_1(party, terms, K) for party in own])
    expected = plain.rounds(terms)
    assert found["n_iter"] == terms.max_iter
    reached = plain.objective(found["parameters"])
    assert reached == pytest.approx(plain.objective(expected), **within)
    assert found["h"] == pytest.approx(plain.cycles(expected)[0], **within)
    assert reached < 0.9 * plain.objective(terms.start())


def test_small_products_of_a_round_take_one_thread():
    class Watched(MLPProblem):
        def evaluate(self, *where):
            pools = [p for p in threadpool_info() if p["user_api"] == "blas"]
            seen.update(pool["num_threads"] for pool in pools)
            return super().evaluate(*where)

    seen, m = set(), 2
    X, _ = make_mlp_sem(30, 3, random_state=0)
    start = np.zeros(m * 3**2 + n_free_of_mlp(3, m))
    Watched(X, len(X), m).solve(start, start, 1.0)
    assert seen == {1}
