"""Algorithm 1 of Ng and Zhang: consensus ADMM over parties, only sums disclosed.

The server's problem needs the parties' ``B_k + beta_k / rho2`` in one sum only. Where
the coordinator may know sums, it solves that problem and sends the consensus; where
key holders know them, every party solves it for itself and the coordinator hears
whether to go on.
"""

from dataclasses import dataclass

import numpy as np

from skprivbn.federation import Party, PartyRefusal, check_told, operation
from skprivbn.structure.admm._mlp import MLPProblem, mlp_forward
from skprivbn.structure.admm._steps import (
    ConsensusProblem,
    LinearProblem,
    typical_variance,
)

__all__ = [
    "ADMMParty",
    "ADMMResult",
    "collect_residuals",
    "lagged_rows",
    "run_admm",
    "run_locally",
]


class ConsensusState:
    """What all sides know of the run: consensus, penalties, convergence.

    Parameters
    ----------
    settings : dict
        Public parameters of the run.
    n_parties : int
        Number of parties.
    """

    def __init__(self, settings, n_parties):
        self.problem = ConsensusProblem(**settings["problem"])
        self.settings, self.n_parties = settings, n_parties
        self.consensus = np.array(settings["start"], dtype=float)
        self.alpha, self.rho1, self.rho2 = 0.0, settings["rho1"], settings["rho2"]
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
            near = self.distance <= self.settings["tol"]
            self.converged = bool(near and self.h <= self.settings["h_tol"])
        if self.converged or self.n_iter == self.settings["max_iter"]:
            return False
        self.consensus = self.solve(total)
        self.h = self.problem.cycles(self.consensus)
        self.alpha += self.rho1 * self.h
        self.rho1 = min(self.rho1 * self.settings["gamma1"], self.settings["rho_max"])
        self.rho2 = min(self.rho2 * self.settings["gamma2"], self.settings["rho_max"])
        self.n_iter += 1
        return True

    def kept(self):
        """Parameters of the graph: the consensus without its weak weights."""
        thresholds = self.settings["threshold"], self.settings["lagged_threshold"]
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

    def prepare(self):
        """Centre own rows; refuse those that are not finite numbers."""
        X = self.finite_numbers()
        self.n_variables = X.shape[1]
        if self.settings["n_lags"]:
            series = self.block.get("series", np.zeros(len(X), dtype=int))
            X = lagged_rows(X, series, self.settings["n_lags"])
        self.mean = X.mean(axis=0) if len(X) else np.zeros(X.shape[1])
        self.rows = X - self.mean
        self.column_squares = (self.rows[:, : self.n_variables] ** 2).sum(axis=0)
        self.state = ConsensusState(self.settings, len(self.context.roster))
        self.local = np.zeros(self.state.problem.size)
        self.dual = np.zeros(self.state.problem.size)
        self.rho2 = self.settings["rho2"]
        self.squares = 0.0
        self.problem = None
        self.by_parties = self.settings["solved_by"] == "parties"

    def schedule(self):
        """Numbers of rows and spread, the rounds, and what the fitted model needs."""
        yield "spread"
        yield "propose"
        by_parties = self.by_parties
        for _ in range(self.settings["max_iter"]):
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
        return {"vector": self.hide(np.append(self.column_squares, len(self.rows)))}

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
            self._accept(check_told(consensus, self.local.shape))
            self.state.consensus = consensus
        self.local = self.problem.solve(self.state.consensus, self.dual, self.rho2)
        return {"vector": self.hide(self._proposal())}

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
        return {"vector": self.hide(self._proposal())}

    @operation(
        tells="the consensus",
        hears="the exact sum of the last round",
        hears_kind="plaintext aggregate",
    )
    def finish(self, total):
        """Problem (3) for the exact sum: no decryption leaves the key holders."""
        self.state.consensus = self.state.solve(total)
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
        if self.settings["n_hidden"]:
            forward = mlp_forward(self.rows, parameters, self.settings["n_hidden"])
        else:
            forward = self.rows @ parameters.reshape(self.rows.shape[1], d)
        rest = self.rows[:, :d] - forward
        sums = [len(self.rows) * self.mean[:d], rest.sum(axis=0), (rest**2).sum(axis=0)]
        return {"vector": self.hide(np.concatenate(sums))}

    def _is_plausible(self, n_rows, scale):
        """Fewer rows or less spread than its own would blow up what it adds."""
        if type(n_rows) is not int or type(scale) is not float:
            return False
        if n_rows < len(self.rows):
            return False
        if self.settings["scale"] is not None:
            return scale == self.settings["scale"]
        # half, because sums are rounded
        least = 0.5 * typical_variance(self.column_squares / n_rows)
        return max(least, 1e-300) <= scale <= 1e300

    def _make_problem(self, divisor):
        if self.settings["n_hidden"]:
            hidden = self.settings["n_hidden"]
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
        grown = self.rho2 * self.settings["gamma2"]
        self.rho2 = min(grown, self.settings["rho_max"])


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
    settings = federation.settings
    state = ConsensusState(settings, len(federation.roster))
    *squares, n_rows = federation.secure_sum("spread")
    if n_rows < 1:
        raise ValueError(
            f"no series has more than n_lags={settings['n_lags']} rows, so that "
            "nothing has a past: give longer series"
        )
    n_rows, variances = int(n_rows), np.array(squares) / n_rows
    # columns that do not vary are named at the end, when their means are known
    scale = settings["scale"] or typical_variance(variances) or 1.0
    payload, going = {"n_rows": n_rows, "scale": scale}, True
    if settings["solved_by"] == "coordinator":
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
        "coordinator" if settings["solved_by"] == "coordinator" else "all parties",
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


def run_locally(moments, settings):
    """Run the rounds on moments that one desk holds, with no message at all."""
    state = ConsensusState(settings, 1)
    variances = np.diag(moments.covariance)
    scale = settings["scale"] or typical_variance(variances) or 1.0
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
