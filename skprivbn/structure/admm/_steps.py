"""The two steps of consensus ADMM for acyclic models, as pure functions.

Parameters travel as one flat vector: first the `n_maps * d * d` weights from which
cycles are counted (one map for a linear model, one per hidden unit for a neural one,
``maps[m, i, j]`` leading from variable i to variable j), then the free ones.
"""

from dataclasses import dataclass

import numpy as np

from skprivbn.structure.gaussian._notears import ACYCLICITY, acyclic_weights
from skprivbn.utils._memoise import memoise


class LinearProblem:
    """A party's least squares problem, ready for many penalised solutions.

    Regresses the first `d` of `p` variables on all `p`: all of them are targets in
    NOTEARS, those at the present time in DYNOTEARS. One eigendecomposition makes
    every later solution two matrix products, whatever the penalty.

    Parameters
    ----------
    second : ndarray of shape (p, p)
        The party's cross-products over the total number of rows.
    n_targets : int, default=None
        The `d`; all if None.
    """

    def __init__(self, second, n_targets=None):
        eigenvalues, self.eigenvectors = np.linalg.eigh(second)
        self.eigenvalues = np.maximum(eigenvalues, 0.0)
        self.cross = second[:, :n_targets]

    def solve(self, consensus, dual, rho):
        """Equation (8): ``(S + rho I)^-1 (rho W - beta + S)``, as a flat vector."""
        right = (rho * consensus - dual).reshape(self.cross.shape) + self.cross
        inverse = 1.0 / (self.eigenvalues + rho)
        rotated = inverse[:, None] * (self.eigenvectors.T @ right)
        return (self.eigenvectors @ rotated).ravel()


@dataclass(frozen=True)
class ConsensusProblem:
    """What the parties agree on: sparse parameters without cycles.

    Parameters
    ----------
    n_variables : int
        Number of variables `d`.
    n_maps : int, default=1
        Number of (d, d) weight maps.
    n_free : int, default=0
        Number of further parameters, on which cycles do not depend.
    lambda1 : float, default=0.01
        Weight of the absolute values of the maps.
    lambda_free : float, default=0.0
        Weight of the absolute values of the free parameters.
    lambda2 : float, default=0.0
        Half this times the squares of all parameters is added.
    acyclicity : {"logdet", "expm"}, default="logdet"
        Measure `h` of cycles.
    """

    n_variables: int
    n_maps: int = 1
    n_free: int = 0
    lambda1: float = 0.01
    lambda_free: float = 0.0
    lambda2: float = 0.0
    acyclicity: str = "logdet"

    @property
    def size(self):
        """Length of the flat parameter vector."""
        return self.n_maps * self.n_variables**2 + self.n_free

    def maps(self, flat):
        """Return the maps within a flat vector, of shape (n_maps, d, d)."""
        d = self.n_variables
        return flat[: self.n_maps * d * d].reshape(self.n_maps, d, d)

    def cycles(self, flat):
        """Return `h` at these parameters."""
        return ACYCLICITY[self.acyclicity](_strength(self.maps(flat)))[0]

    def cut(self, flat, threshold, free_threshold=0.0):
        """Return the parameters of the acyclic graph of strong weights, others zero."""
        maps, free = self.maps(flat), flat[self.n_maps * self.n_variables**2 :]
        kept = acyclic_weights(np.linalg.norm(maps, axis=0), threshold) != 0
        free = np.where(np.abs(free) > free_threshold, free, 0.0)
        return np.concatenate([(maps * kept).ravel(), free])

    @memoise
    def step(self, target, start, *, weight, alpha, rho1, tol=1e-6, max_iter=100):
        """Equation (3): the best parameters near what the parties ask for.

        Minimises ``lambda1 |W| + alpha h(W) + rho1 / 2 h(W)^2 + weight / 2 |W - V|^2``
        (and the other penalties), where `V` is the mean of ``B_k + beta_k / rho2`` and
        `weight` is ``K rho2``: the paper's sums over parties differ by a constant.

        `h` is replaced by its tangent in the *squared* weights. What is left is
        separable given one number, the multiplier ``mu = alpha + rho1 h``, which a few
        Newton steps find; the solution is a soft threshold divided by
        ``weight + 2 mu gradient``. A line search on the true objective keeps every
        step a descent, and the fixed points are the stationary points of the problem.
        Each step costs one evaluation of `h`, and 5 to 20 suffice where L-BFGS needs
        hundreds, more so the larger the penalties.

        Parameters
        ----------
        target, start : ndarray of shape (size,)
            The mean `V`, and the warm start.
        weight, alpha, rho1 : float
            Coefficients above.
        tol : float, default=1e-6
            Relative decrease of the objective at which it stops.
        max_iter : int, default=100
            Bound on the number of steps.

        Returns
        -------
        parameters : ndarray of shape (size,)
            The new consensus; no variable has an effect on itself.
        h : float
            How far it is from acyclic.
        """
        V, W = self.maps(target), self.maps(start)
        shrunk = _soft_threshold(weight * V, self.lambda1)
        diagonal = np.arange(self.n_variables)
        shrunk[:, diagonal, diagonal] = 0.0
        strongest = _strength(shrunk)
        ridge = weight + self.lambda2
        measure = ACYCLICITY[self.acyclicity]

        def evaluate(W):
            strength = _strength(W)
            h, slope = measure(strength)
            distance = W - V
            objective = (
                0.5 * weight * np.vdot(distance, distance)
                + 0.5 * self.lambda2 * strength.sum()
                + self.lambda1 * np.abs(W).sum()
                + (alpha + 0.5 * rho1 * h) * h
            )
            # of the tangent of h: its value where there are no weights, and its slope
            return objective, h, h - np.vdot(slope, strength), slope

        mu = alpha
        objective, h, offset, slope = evaluate(W)
        for _ in range(max_iter):
            mu = _multiplier(slope, strongest, offset, ridge, alpha, rho1, mu)
            direction = shrunk / (ridge + 2.0 * mu * slope) - W
            length = 1.0
            while True:
                candidate = W + length * direction
                new, *measured = evaluate(candidate)
                if new <= objective or length < 1e-6:
                    break
                length *= 0.5
            if new > objective:
                break
            decrease = objective - new
            W, objective, (h, offset, slope) = candidate, new, measured
            if decrease <= tol * max(abs(objective), 1.0):
                break
        free = target[W.size :]
        free = _soft_threshold(weight * free, self.lambda_free) / ridge
        return np.concatenate([W.ravel(), free]), h


def _soft_threshold(values, threshold):
    """Shrink towards zero by `threshold`."""
    return np.sign(values) * np.maximum(np.abs(values) - threshold, 0.0)


def _strength(maps):
    """Return the (d, d) sums of squares over maps."""
    return maps[0] * maps[0] if len(maps) == 1 else np.einsum("mij,mij->ij", maps, maps)


def _multiplier(slope, strength, offset, ridge, alpha, rho1, start):
    """Solve ``mu = alpha + rho1 max(0, h(mu))`` for the tangent of `h`.

    The tangent at the minimiser for a given `mu` is convex and decreasing in `mu`, so
    Newton's method climbs to the root monotonically once it is below, which a step from
    above makes it. `start` is near the root, unless the tangent has changed a lot.
    """
    slope = slope.ravel()
    first = slope * strength.ravel()
    second, twice = slope * first, 2.0 * slope
    mu = start
    for _ in range(50):
        inverse = 1.0 / (mu * twice + ridge)
        squares = inverse * inverse
        h = offset + first @ squares
        if h <= 0.0:
            if mu <= alpha:
                break
            mu = alpha
            continue
        excess = alpha + rho1 * h - mu
        step = excess / (1.0 + 4.0 * rho1 * (second @ (squares * inverse)))
        mu = max(mu + step, alpha)
        if abs(step) <= 1e-10 * mu:
            break
    return mu
