"""Algorithm 1 of Ng and Zhang: consensus ADMM over parties, only sums disclosed.

The server's problem needs the parties' ``B_k + beta_k / rho2`` in one sum only. Where
the coordinator may know sums, it solves that problem and sends the consensus; where
key holders know them, every party solves it for itself and the coordinator hears
whether to go on.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from skprivbn.federation import (
    Party,
    PartyRefusal,
    Terms,
    check_received,
    operation,
)
from skprivbn.structure.admm._mlp import MLPProblem, mlp_forward
from skprivbn.structure.admm._steps import (
    ConsensusProblem,
    LinearProblem,
    typical_variance,
)

__all__ = [
    "ADMMParty",
    "ADMMResult",
    "ADMMTerms",
    "collect_residuals",
    "lagged_rows",
    "run_admm",
    "run_locally",
]


@dataclass(frozen=True)
class ADMMTerms(Terms):
    """The problem, the start, and the penalties of the rounds.

    Parameters
    ----------
    problem : ConsensusProblem
    start : ndarray
        First consensus.
    scale : float or None
        By which losses are divided; None finds it from the parties' variances.
    rho1, rho2, gamma1, gamma2, rho_max : float
        Penalties, their growth and where it ends.
    max_iter : int
    tol, h_tol : float
    solved_by : {"coordinator", "parties"}
        Who solves the server's problem: who knows the sums.
    threshold, lagged_threshold : float
        Weaker weights are cut.
    n_lags, n_hidden : int
        Of time series and of neural networks; 0 for neither.
    """

    problem: ConsensusProblem
    start: np.ndarray
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

    def check(self):
        """Refuse sizes that do not go together."""
        if min(self.max_iter, self.n_lags, self.n_hidden) < 0:
            raise ValueError("max_iter, n_lags and n_hidden must not be negative")
        if self.start.shape != (self.problem.size,):
            raise ValueError(f"start must have {self.problem.size} entries")

    def rounds(self, n_parties):
        """Return two a round, and those before and after."""
        return 2 * self.max_iter + 6

    def memory(self, n_features):
        """Return lagged rows or hidden units, and the parameters."""
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
        self.consensus = np.array(terms.start, dtype=float)
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
        self.consensus = self.solve(total)
        self.h = self.problem.cycles(self.consensus)
        self.alpha += self.rho1 * self.h
        self.rho1 = min(self.rho1 * self.terms.gamma1, self.terms.rho_max)
        self.rho2 = min(self.rho2 * self.terms.gamma2, self.terms.rho_max)
        self.n_iter += 1
        return True

    def kept(self):
        """Parameters of the graph: the consensus without its weak weights."""
        thresholds = self.terms.threshold, self.terms.lagged_threshold
        return self.problem.cut(self.consensus, *thresholds)

    def solve(self, total):
        """Problem (3) for a round's sum, from the present consensus."""
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
        return self.hide(np.append(self.column_squares, len(self.rows)))

    @operation(
        tells="its parameters B_k + beta_k / rho2 of one round, and its distance to "
        "the consensus",
        hears="the consensus of the round before; at first, number of rows and scale",
        hears_kind="plaintext aggregate",
    )
    def propose(self, consensus=None, n_rows=None, scale=None):
        """Problem (2): own parameters, given the last consensus."""
        if self.problem is None:
            if consensus is not None or not self._is_plausible(n_rows, scale):
                raise PartyRefusal("refused")
            self._make_problem(n_rows * scale)
        elif (
            n_rows is not None
            or scale is not None
            or (consensus is not None) == self.by_parties
        ):
            raise PartyRefusal("refused")
        elif consensus is not None:
            self._accept(check_received(consensus, self.local.shape))
            self.state.consensus = consensus
        self.local = self.problem.solve(self.state.consensus, self.dual, self.rho2)
        return self.hide(self._proposal())

    @operation(tells="whether to go on", hears="a ciphertext of the round's sum")
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
        tells="the consensus",
        hears="the exact sum of the last round",
        hears_kind="plaintext aggregate",
    )
    def finish(self, total):
        """Problem (3) for the exact sum: no decryption leaves the key holders."""
        self.state.consensus = self.state.solve(self.reveal(total))
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

    def _is_plausible(self, n_rows, scale):
        """Fewer rows or less spread than its own would blow up what it adds."""
        if type(n_rows) is not int or type(scale) is not float:
            return False
        if n_rows < len(self.rows):
            return False
        if self.terms.scale is not None:
            return scale == self.terms.scale
        # half, because sums are rounded
        least = 0.5 * typical_variance(self.column_squares / n_rows)
        return max(least, 1e-300) <= scale <= 1e300

    def _make_problem(self, divisor):
        if self.terms.n_hidden:
            hidden = self.terms.n_hidden
            self.problem = MLPProblem(self.rows, divisor, hidden)
        else:
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
    *squares, n_rows = federation.secure_sum("spread")
    if n_rows < 1:
        raise ValueError(
            f"no series has more than n_lags={terms.n_lags} rows, so that "
            "nothing has a past: give longer series"
        )
    n_rows, variances = int(n_rows), np.array(squares) / n_rows
    # columns that do not vary are named at the end, when their means are known
    scale = terms.scale or typical_variance(variances) or 1.0
    payload, going = {"n_rows": n_rows, "scale": scale}, True
    if terms.solved_by == "coordinator":
        while going:
            with progress.step() as tell:
                going = state.update(federation.secure_sum("propose", payload))
                payload = {"consensus": state.consensus}
                tell(distance=state.distance, h=state.h)
        n_iter, converged, distance = state.n_iter, state.converged, state.distance
    else:
        while going:
            with progress.step():
                total = federation.secure_sum("propose", payload)
                going = federation.agree("update", {"total": total})
                payload = {}
        total = federation.secure_sum("release")
        # All parties hear the sum, or later sums would not be theirs together.
        reply = federation.call("finish", {"total": total})[federation.first]
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
