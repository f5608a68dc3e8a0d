"""Algorithm 1 of Ng and Zhang: consensus ADMM over parties, only sums disclosed.

The server's problem needs the parties' ``B_k + beta_k / rho2`` in one sum only. Every
party verifies that sum and solves the problem for itself: a consensus that somebody
told could be a question about single rows. Where the coordinator may know sums, it
solves the problem, too, and so knows when to stop; where only key holders know them, it
hears from them whether to go on.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from skprivbn.federation import (
    Party,
    PartyRefusal,
    Terms,
    operation,
)
from skprivbn.structure.admm._mlp import (
    initial_mlp,
    mlp_forward,
    n_free_of_mlp,
)
from skprivbn.structure.admm._mlp_problem import MLPProblem
from skprivbn.structure.admm._steps import (
    ConsensusProblem,
    LinearProblem,
    typical_variance,
)


@dataclass(frozen=True)
class ADMMTerms(Terms):
    """The problem, and the penalties of the rounds.

    Parameters
    ----------
    problem : ConsensusProblem
    scale : float or None
        By which losses are divided; None finds it from the parties' variances.
    rho1, rho2, gamma1, gamma2, rho_max : float
        Penalties, their growth and where it ends.
    max_iter : int
    tol, h_tol : float
    solved_by : {"coordinator", "parties"}
        Who knows the sums, and so the solution of the server's problem.
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
    solved_by: Literal["coordinator", "parties"]
    threshold: float
    scale: float | None = 1.0
    rho_max: float = 1e16
    lagged_threshold: float = 0.0
    n_lags: int = 0
    n_hidden: int = 0
    seed: int = 0

    def check(self):
        """Refuse numbers that are none."""
        if min(self.max_iter, self.n_lags, self.n_hidden, self.seed) < 0:
            raise ValueError("max_iter, n_lags, n_hidden, seed must not be negative")
        d, n_hidden = self.problem.n_variables, self.n_hidden
        size = n_hidden * d**2 + n_free_of_mlp(d, n_hidden)
        if n_hidden and size != self.problem.size:
            raise ValueError(f"networks of these sizes have {size} parameters")

    def start(self):
        """Return the first consensus."""
        if self.n_hidden == 0:
            return np.zeros(self.problem.size)
        return initial_mlp(self.problem.n_variables, self.n_hidden, self.seed)

    def rounds(self, n_parties):
        """Return two a round, and those before and after."""
        return 2 * self.max_iter + 6

    def n_parameters(self, n_features):
        """Return those of the consensus."""
        return self.problem.size

    def memory(self, n_features):
        """Return lagged rows or hidden units, and the parameters.

        Hidden units are held for a block of rows only, but all of them take time.
        """
        per_row = (self.n_lags + self.n_hidden) * n_features
        lagged = self.n_lags * n_features
        return per_row, max(self.problem.size, lagged**2)


class ConsensusState:
    """What all sides know of the run: consensus, penalties, convergence.

    Parameters
    ----------
    terms : ADMMTerms
        Public parameters of the run.
    n_parties : int
        Number of parties.
    """

    def __init__(self, terms, n_parties):
        self.problem = terms.problem
        self.terms, self.n_parties = terms, n_parties
        self.consensus = terms.start()
        self.alpha, self.rho1, self.rho2 = 0.0, terms.rho1, terms.rho2
        self.h = self.problem.cycles(self.consensus)
        self.distance, self.n_iter, self.converged = np.inf, 0, False

    def update(self, total):
        """Take a round's sum; return whether to go on.

        The last entry is the sum over parties of ``|B_k - W|^2`` after the round
        before, so convergence is seen one sum later and costs no extra round.
        """
        if self.n_iter:
            size = max(1.0, np.linalg.norm(self.consensus))
            squares = max(total[-1], 0.0) / self.n_parties
            self.distance = float(np.sqrt(squares) / size)
            near = self.distance <= self.terms.tol
            self.converged = bool(near and self.h <= self.terms.h_tol)
        if self.converged or self.n_iter == self.terms.max_iter:
            return False
        self.step(total)
        return True

    def step(self, total):
        """Take a round's sum for the next consensus."""
        self.consensus, self.h = self.solve(total)
        self.alpha += self.rho1 * self.h
        self.rho1 = min(self.rho1 * self.terms.gamma1, self.terms.rho_max)
        self.rho2 = min(self.rho2 * self.terms.gamma2, self.terms.rho_max)
        self.n_iter += 1

    def kept(self):
        """Parameters of the graph: the consensus without its weak weights."""
        thresholds = self.terms.threshold, self.terms.lagged_threshold
        return self.problem.cut(self.consensus, *thresholds)

    def solve(self, total):
        """Problem (3) for a round's sum, from the present consensus; and its cycles."""
        return self.problem.step(
            total[:-1] / self.n_parties,
            self.consensus,
            weight=self.n_parties * self.rho2,
            alpha=self.alpha,
            rho1=self.rho1,
        )


def lagged_rows(X, series, n_lags):
    """Return ``[x_t, x_(t-1), ..., x_(t-p)]`` for all t, never across series."""
    blocks = []
    for name in np.unique(series):
        rows = X[series == name]
        n = len(rows) - n_lags
        if n > 0:
            lags = [rows[n_lags - lag : n_lags - lag + n] for lag in range(n_lags + 1)]
            blocks.append(np.hstack(lags))
    return np.vstack(blocks) if blocks else np.empty((0, X.shape[1] * (n_lags + 1)))


class ADMMParty(Party):
    """A holder of rows: keeps `B_k`, `beta_k` and its rows to itself."""

    terms = ADMMTerms

    def prepare(self):
        """Centre own rows; refuse those that are not finite numbers."""
        X = self.finite_numbers()
        self.n_variables = X.shape[1]
        if self.terms.n_lags:
            series = self.block.get("series", np.zeros(len(X), dtype=int))
            X = lagged_rows(X, series, self.terms.n_lags)
        self.mean = X.mean(axis=0) if len(X) else np.zeros(X.shape[1])
        self.rows = X - self.mean
        self.column_squares = (self.rows[:, : self.n_variables] ** 2).sum(axis=0)
        self.state = ConsensusState(self.terms, len(self.context.roster))
        self.local = np.zeros(self.state.problem.size)
        self.dual = np.zeros(self.state.problem.size)
        self.rho2 = self.terms.rho2
        self.squares = 0.0
        self.problem = None
        self.by_parties = self.terms.solved_by == "parties"

    def schedule(self):
        """Numbers of rows and spread, the rounds, and what the fitted model needs."""
        yield "spread"
        yield "propose"
        by_parties = self.by_parties
        for _ in range(self.terms.max_iter):
            if by_parties:
                yield "update"
                if not self.go_on:
                    break
                yield "propose"
            elif (yield ("propose", "residuals")) == "residuals":
                return
        else:
            if by_parties:
                yield "update"
        if by_parties:
            yield "release"
            yield "finish"
        yield "residuals"

    @operation(tells="number of its rows and sums of their squares", exact=True)
    def spread(self):
        """How many rows it contributes, and how far they spread about its means."""
        # Series may be such that hardly any row has a past here, or none: then sums
        # are about these, or are another party's.
        if 1 < self.min_rows > len(self.rows):
            raise PartyRefusal("too-few-rows")
        return self.hide(np.append(self.column_squares, len(self.rows)))

    @operation(
        tells="its parameters B_k + beta_k / rho2 of one round, and its distance to "
        "the consensus",
        hears="the sum of the round before; at first, of rows and squares",
        hears_kind="plaintext aggregate",
    )
    def propose(self, total=None):
        """Problem (2): own parameters, given the consensus that follows from sums."""
        if self.problem is None:
            self._make_problem(self.reveal(total))
        elif not self.by_parties:
            self.state.step(self.reveal(total))
            self._accept(self.state.consensus)
        elif total is not None:
            raise PartyRefusal("refused")
        self.local = self.problem.solve(self.state.consensus, self.dual, self.rho2)
        return self.hide(self._proposal())

    @operation(
        tells="whether to go on",
        hears="a ciphertext of the round's sum",
        answers={"go_on": bool},
    )
    def update(self, total):
        """Problem (3), solved by every key holder alike."""
        self.go_on = self.state.update(self.reveal(total))
        if self.go_on:
            self._accept(self.state.consensus)
        return {"go_on": self.go_on}

    @operation(
        tells="its parameters B_k + beta_k / rho2 of the last round, and its distance "
        "to the consensus",
        exact=True,
    )
    def release(self):
        """The last proposal once more, for an exact sum that may leave the parties."""
        return self.hide(self._proposal())

    @operation(
        tells="the consensus, after how many rounds, and whether parties agree",
        hears="the exact sum of the last round",
        hears_kind="plaintext aggregate",
        answers={"consensus": np.ndarray, "n_iter": int, "converged": bool},
    )
    def finish(self, total):
        """Problem (3) for the exact sum: no decryption leaves the key holders."""
        self.state.consensus, _ = self.state.solve(self.reveal(total))
        return {
            "consensus": self.state.consensus,
            "n_iter": self.state.n_iter,
            "converged": self.state.converged,
        }

    @operation(
        tells="sums of its rows, of its residuals and of their squares", exact=True
    )
    def residuals(self):
        """Means and noise of the model it knows, the strong weights only."""
        d, parameters = self.n_variables, self.state.kept()
        if self.terms.n_hidden:
            forward = mlp_forward(self.rows, parameters, self.terms.n_hidden)
        else:
            forward = self.rows @ parameters.reshape(self.rows.shape[1], d)
        rest = self.rows[:, :d] - forward
        sums = [len(self.rows) * self.mean[:d], rest.sum(axis=0), (rest**2).sum(axis=0)]
        return self.hide(np.concatenate(sums))

    def _make_problem(self, spread):
        n_rows, _, scale = read_spread(spread, self.terms)
        if n_rows < max(1, self.min_rows):
            raise PartyRefusal("too-few-rows")
        divisor = n_rows * scale
        if self.terms.n_hidden:
            self.problem = MLPProblem(self.rows, divisor, self.terms.n_hidden)
            return
        second = self.rows.T @ self.rows / divisor
        if not np.all(np.isfinite(second)):  # its eigenvalues may not converge
            raise PartyRefusal("out-of-range")
        self.problem = LinearProblem.from_moments(second, self.n_variables)

    def _proposal(self):
        return np.append(self.local + self.dual / self.rho2, self.squares)

    def _accept(self, consensus):
        """Equation (4) and the growth (7), after the server's step."""
        gap = self.local - consensus
        self.squares = float(gap @ gap)
        self.dual = self.dual + self.rho2 * gap
        grown = self.rho2 * self.terms.gamma2
        self.rho2 = min(grown, self.terms.rho_max)


def read_spread(total, terms):
    """Return number of rows, variances, and what losses are divided by."""
    *squares, n_rows = total
    if n_rows < 1:
        return 0, np.zeros(len(squares)), 1.0
    variances = np.array(squares) / n_rows
    # columns that do not vary are named at the end, when their means are known
    return int(n_rows), variances, terms.scale or typical_variance(variances) or 1.0


@dataclass(frozen=True)
class ADMMResult:
    """Outcome of a run."""

    parameters: np.ndarray
    kept: np.ndarray
    n_rows: float
    variances: np.ndarray
    scale: float
    n_iter: int
    h: float
    distance: float
    converged: bool


def run_admm(federation, progress):
    """The coordinator's side: adds what parties propose until they agree."""
    terms = federation.terms
    state = ConsensusState(terms, len(federation.roster))
    total = federation.secure_sum("spread")
    n_rows, variances, scale = read_spread(total, terms)
    if n_rows == 0:
        raise ValueError(
            f"no series has more than n_lags={terms.n_lags} rows, so that "
            "nothing has a past: give longer series"
        )
    payload, going = {"total": total}, True
    if terms.solved_by == "coordinator":
        while going:
            with progress.step() as tell:
                total = federation.secure_sum("propose", payload)
                going, payload = state.update(total), {"total": total}
                tell(distance=state.distance, h=state.h)
        n_iter, converged, distance = state.n_iter, state.converged, state.distance
    else:
        while going:
            with progress.step():
                total = federation.secure_sum("propose", payload)
                going = federation.agree("update", {"total": total})
                payload = {}
        total = federation.secure_sum("release")
        reply = federation.unanimous("finish", {"total": total}, rtol=1e-6)
        state.consensus, n_iter = reply["consensus"], reply["n_iter"] + 1
        converged = reply["converged"]
        squares = max(total[-1], 0.0) / len(federation.roster)
        distance = np.sqrt(squares) / max(1.0, np.linalg.norm(state.consensus))
    h = state.problem.cycles(state.consensus)
    federation.ledger.learns(
        "coordinator" if terms.solved_by == "coordinator" else "all parties",
        f"the sums of all {n_iter} rounds, which together can determine every party's "
        "covariance",
    )
    return ADMMResult(
        state.consensus,
        state.kept(),
        n_rows,
        variances,
        scale,
        n_iter,
        h,
        float(distance),
        converged,
    )


def collect_residuals(federation):
    """Return sums of rows, residuals and squared residuals."""
    return np.split(federation.secure_sum("residuals"), 3)


def run_locally(moments, terms):
    """Run the rounds on pooled moments, with no message at all."""
    state = ConsensusState(terms, 1)
    variances = np.diag(moments.covariance)
    scale = terms.scale or typical_variance(variances) or 1.0
    problem = LinearProblem.from_moments(moments.covariance / scale)
    dual = np.zeros_like(state.consensus)
    squares, going = 0.0, True
    while going:
        rho2 = state.rho2
        local = problem.solve(state.consensus, dual, rho2)
        going = state.update(np.append(local + dual / rho2, squares))
        gap = local - state.consensus
        if going:
            dual, squares = dual + rho2 * gap, float(gap @ gap)
    return ADMMResult(
        state.consensus,
        state.kept(),
        moments.n_rows,
        variances,
        scale,
        state.n_iter,
        state.h,
        state.distance,
        state.converged,
    )
