"""Algorithm 1 of Ng and Zhang: consensus ADMM, in which parties add what they ask for.

The server's problem needs the parties' ``B_k + beta_k / rho2`` in one sum only. Every
party verifies that sum and solves the server's problem for itself, so that nobody can
tell it a consensus that would be a question about single rows.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np

from skprivbn.federation import (
    ALL_ROWS,
    Me,
    PartyRefusal,
    RowWeights,
    Sum,
    Terms,
    program,
)
from skprivbn.federation._rows import unit_of_squares
from skprivbn.federation.gate import rows_of_sizes
from skprivbn.programs import Moments
from skprivbn.programs._moments import add_moments
from skprivbn.structure.admm._mlp import (
    MLPProblem,
    initial_mlp,
    mlp_forward,
    n_free_of_mlp,
)
from skprivbn.structure.admm._steps import ConsensusProblem, LinearProblem


@dataclass(frozen=True)
class ADMMTerms(Terms):
    """The problem, and the penalties of the rounds.

    Parameters
    ----------
    problem : ConsensusProblem
    loss_scale : float or None
        By which losses are divided; None finds it from the parties' variances.
    rho1, rho2, gamma1, gamma2, rho_max : float
        Penalties, their growth and where it ends.
    max_iter : int
    tol, h_tol : float
    threshold, lagged_threshold : float
        Weaker weights are cut.
    n_lags, n_hidden : int
        Of time series and of neural networks; 0 for neither.
    seed : int
        Of the first weights of networks, which everybody draws alike: weights of
        somebody's choice could make a network that looks at one row.
    """

    problem: ConsensusProblem
    rho1: float
    rho2: float
    gamma1: float
    gamma2: float
    max_iter: int
    tol: float
    h_tol: float
    threshold: float
    loss_scale: float | None = 1.0
    rho_max: float = 1e16
    lagged_threshold: float = 0.0
    n_lags: int = 0
    n_hidden: int = 0
    seed: int = 0

    def check(self) -> None:
        """Refuse numbers that are none."""
        if min(self.max_iter, self.n_lags, self.n_hidden, self.seed) < 0:
            raise ValueError("max_iter, n_lags, n_hidden, seed must not be negative")
        d, n_hidden = self.problem.n_variables, self.n_hidden
        size = n_hidden * d**2 + n_free_of_mlp(d, n_hidden)
        if n_hidden and size != self.problem.size:
            raise ValueError(f"networks of these sizes have {size} parameters")

    def start(self) -> np.ndarray:
        """Return the first consensus."""
        if self.n_hidden == 0:
            return np.zeros(self.problem.size)
        return initial_mlp(self.problem.n_variables, self.n_hidden, self.seed)

    def kept(self, parameters: np.ndarray) -> np.ndarray:
        """Return the parameters of the graph: those without weak weights."""
        return self.problem.cut(parameters, self.threshold, self.lagged_threshold)

    def weights(self, parameters: np.ndarray) -> np.ndarray:
        """Return the effects of variables on each other; norms of them in networks."""
        maps = self.problem.maps(parameters)
        return np.linalg.norm(maps, axis=0) if self.n_hidden else maps[0]


#: what the ledger says of the sum of a round
ROUND = "local parameters plus multipliers, each round"


@program(ADMMTerms)
def admm(me: Me) -> Generator[Any, Any, dict]:
    """Learn scales, run Algorithm 1, and add what the model leaves unexplained."""
    terms, rows = me.terms, _rows_with_past(me)
    n, d = len(rows), me.terms.problem.n_variables
    scales = yield from add_moments(
        me, rows[:, :d], np.ones(n), second="diagonal", centre="party", pairs=True
    )
    n_rows, variances = scales["n_rows"][0], scales["covariance"]
    if n_rows == 0:
        return {"n_rows": 0}
    rows = rows - (rows.mean(axis=0) if n else 0.0)
    own = _own_problem(rows, n_rows * loss_scale(variances, terms), terms)

    unit = unit_of_squares(np.sqrt(variances), n_rows)
    # a row enters the own problem by its products
    standard = rows[:, :d] / np.sqrt(np.where(variances > 0, variances, 1.0))
    products = RowWeights.of(np.mean(standard**2, axis=1))
    agreed = yield from algorithm_1(own, terms, len(me.roster), products)

    rest = _residuals(rows, terms.kept(agreed["parameters"]), terms) / unit
    sums = np.append(rest.sum(axis=0), (rest**2).sum(axis=0))
    # where columns are alike but for one row, squares are its; cut weights hide that
    every = _residuals(rows, agreed["parameters"], terms) / unit
    sides = rows_of_sizes(np.hstack([rest, every]) ** 2, np.ones(n))
    left = RowWeights.of(rest)._replace(columns=(*range(d),) * 3, sides=sides)
    total = yield Sum(sums, "sums of residuals and of their squares", left)
    shift, squares = np.split(total / n_rows, 2)
    shift, squares = shift * unit, squares * unit**2
    return agreed | {
        "n_rows": int(n_rows),
        "mean": scales["mean"],
        "variances": variances,
        "shift": shift,
        "noise": np.maximum(squares - shift**2, 1e-12 * variances),
    }


def algorithm_1(
    own: Any, terms: ADMMTerms, K: int, weights: Any = ALL_ROWS
) -> Generator[Any, Any, dict]:
    """Reach a consensus of `K` parties: the paper's Algorithm 1, line by line.

    The paper has no rule to stop. Here, how far parties are from the consensus, and
    its cycles, go along with the next sum, which costs no further round: a decision
    must not depend on the rounding error of one party's processor.

    Parameters
    ----------
    own : LinearProblem or MLPProblem
        Problem (2) of the own rows.
    terms : ADMMTerms
    K : int
    weights : RowWeights or ALL_ROWS, default=ALL_ROWS
        How much own rows count in the own problem.

    Returns
    -------
    agreed : dict
    """
    W = terms.start()
    h, beta, gap = terms.problem.cycles(W), np.zeros_like(W), np.zeros_like(W)
    alpha, rho1, rho2 = 0.0, terms.rho1, terms.rho2
    for t in range(terms.max_iter + 1):  # line 1
        B = own.solve(W, beta, rho2)  # line 2: problem (2)
        # beside what the box has: how far this party was from W, and the cycles of W
        far = (gap @ gap) / max(1.0, W @ W)
        message = np.concatenate([B + beta / rho2, [far, h]])
        total = yield Sum(message, ROUND, weights)  # line 3
        V, (mean_far, mean_h) = np.split(total / K, [-2])
        # in the first round nobody has been compared with a consensus yet
        distance = float(np.sqrt(max(mean_far, 0.0))) if t else np.inf
        converged = bool(distance <= terms.tol and mean_h <= terms.h_tol)
        if converged or t == terms.max_iter:
            break
        W, h = terms.problem.step(  # lines 4 and 5: problem (3), at every party
            V, W, weight=K * rho2, alpha=alpha, rho1=rho1
        )
        gap = B - W  # lines 6 and 7:
        beta = beta + rho2 * gap  # (4)
        alpha += rho1 * h  # (5)
        rho1 = min(terms.gamma1 * rho1, terms.rho_max)  # (6)
        rho2 = min(terms.gamma2 * rho2, terms.rho_max)  # (7)
    return {
        "parameters": W,
        "h": float(h),
        "distance": distance,
        "n_iter": t,
        "converged": converged,
    }


def run_locally(moments: Moments, terms: ADMMTerms) -> dict:
    """Run the rounds on moments that are known, with no message at all.

    Parameters
    ----------
    moments : Moments
    terms : ADMMTerms

    Returns
    -------
    agreed : dict
    """
    scale = loss_scale(np.diag(moments.covariance), terms)
    own = LinearProblem(moments.covariance / scale)
    rounds = algorithm_1(own, terms, 1)
    total = None
    while True:
        try:
            total = rounds.send(total).vector
        except StopIteration as stop:
            return stop.value


def loss_scale(variances: np.ndarray, terms: ADMMTerms) -> float:
    """Return what losses are divided by: the geometric mean of variances, if not given.

    Every column counts alike in it: an arithmetic mean would be that of the column in
    the finest unit. Columns that do not vary are named at the end, when their means are
    known.
    """
    if terms.loss_scale is not None or np.any(variances <= 0):
        return terms.loss_scale or 1.0
    return float(np.exp(np.mean(np.log(variances))))


def lagged_rows(X: np.ndarray, series: np.ndarray, n_lags: int) -> np.ndarray:
    """Return ``[x_t, x_(t-1), ..., x_(t-p)]`` for all t, never across series."""
    blocks = []
    for name in np.unique(series):
        rows = X[series == name]
        n = len(rows) - n_lags
        if n > 0:
            lags = [rows[n_lags - lag : n_lags - lag + n] for lag in range(n_lags + 1)]
            blocks.append(np.hstack(lags))
    return np.vstack(blocks) if blocks else np.empty((0, X.shape[1] * (n_lags + 1)))


def _rows_with_past(me):
    """Return own rows; of time series those that have a past, and beside them that."""
    X, n_lags = np.asarray(me.numbers()), me.terms.n_lags
    if n_lags == 0:
        return X
    series = me.block.get("series", np.zeros(len(X), dtype=int))
    return lagged_rows(X, series, n_lags)


def _own_problem(rows, divisor, terms):
    """Return problem (2) of own rows about their mean."""
    if terms.n_hidden:
        return MLPProblem(rows, divisor, terms.n_hidden)
    second = rows.T @ rows / divisor
    if not np.all(np.isfinite(second)):  # its eigenvalues may not converge
        raise PartyRefusal("out-of-range")
    return LinearProblem(second, terms.problem.n_variables)


def _residuals(rows, parameters, terms):
    d = terms.problem.n_variables
    if terms.n_hidden:
        return rows - mlp_forward(rows, parameters, terms.n_hidden)
    return rows[:, :d] - rows @ parameters.reshape(-1, d)
