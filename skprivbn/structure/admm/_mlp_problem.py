"""A party's problem (2) for neural networks: least squares near the consensus.

The networks of two variables share no parameter. Each therefore has parameters, a step
length and a memory of curvature of its own, in one row of an array, and those that are
solved are left alone. Hidden units of all variables are computed together, for blocks
of rows that stay in the processor's cache.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from skprivbn.structure.admm._mlp import unpack_mlp

#: hidden units of a block of rows
_BLOCK = 1 << 16
#: pairs of steps and changes of the gradient that curvature is read off
_MEMORY = 10


@dataclass
class _Point:
    """Parameters of all variables, with what the own rows say there.

    Parameters
    ----------
    parameters : ndarray of shape (d, p)
    loss : ndarray of shape (d,)
    slope : ndarray of shape (d, p)
    """

    parameters: np.ndarray
    loss: np.ndarray
    slope: np.ndarray

    def copy(self):
        return _Point(self.parameters.copy(), self.loss.copy(), self.slope.copy())


class MLPProblem:
    """A party's rows, ready for many penalised solutions by L-BFGS.

    The penalty's curvature is known, so only that of the loss is remembered: a round
    starts with the value, the slope and the curvature with which the last one ended,
    although penalty and consensus have changed, and soon takes one evaluation.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        The party's centred rows.
    n_total : float
        Rows of all parties.
    n_hidden : int
        Hidden units of every variable's network.
    max_iter : int, default=100
        Bound on the optimiser's iterations in one round.
    tol : float, default=1e-7
        Expected relative decrease of the objective at which it stops.
    """

    def __init__(self, X, n_total, n_hidden, max_iter=100, tol=1e-7):
        n, d = X.shape
        # one row per variable, and one of ones for the biases
        self.columns = np.ones((d + 1, n))
        self.columns[:d] = X.T
        self.n_total, self.n_hidden = n_total, n_hidden
        self.max_iter, self.tol = max_iter, tol
        self._at, self._pairs = None, []

    def solve(self, consensus, dual, rho):
        """Minimise the loss plus the augmented Lagrangian's terms."""
        centre, dual = self._by_variable(consensus), self._by_variable(dual)
        if self._at is None:
            self._at = _Point(centre, *self.evaluate(centre))

        def value(parameters, loss, which=slice(None)):
            gap = parameters - centre[which]
            return loss + np.vecdot(gap, dual[which] + 0.5 * rho * gap)

        unsolved = np.ones(len(centre), dtype=bool)
        for _ in range(self.max_iter):
            at = self._at
            now = value(at.parameters, at.loss)
            gradient = at.slope + dual + rho * (at.parameters - centre)
            step = -self._newton(gradient, rho)
            decrease = -np.vecdot(gradient, step)
            unsolved &= decrease > self.tol * max(1.0, abs(now.sum())) / len(now)
            if not unsolved.any():
                break
            stuck = self._move(step, unsolved, value, now - 1e-4 * decrease)
            unsolved[stuck] = False
        return self._flat(self._at.parameters)

    def evaluate(self, parameters, which=None):
        """Return losses of some variables and their gradients.

        Parameters
        ----------
        parameters : ndarray of shape (k, p)
            Of the variables asked for.
        which : ndarray of int of shape (k,), default=None
            These variables; all if None.

        Returns
        -------
        losses : ndarray of shape (k,)
        gradients : ndarray of shape (k, p)
            Zero for the effect of a variable on itself.
        """
        which = np.arange(len(parameters)) if which is None else which
        k, width, n_hidden = len(which), len(self.columns), self.n_hidden
        maps, output, offset = np.split(
            parameters, [n_hidden * width, n_hidden * (width + 1)], axis=1
        )
        maps = maps.reshape(k * n_hidden, width)
        loss, by_maps = np.zeros(k), np.zeros_like(maps)
        by_output, by_offset = np.zeros_like(output), np.zeros_like(offset)
        n_rows = max(64, _BLOCK // (k * n_hidden))
        for start in range(0, self.columns.shape[1], n_rows):
            block = self.columns[:, start : start + n_rows]
            hidden = maps @ block
            hidden = expit(hidden, out=hidden).reshape(k, n_hidden, -1)
            residual = (output[:, None] @ hidden)[:, 0] + offset - block[which]
            loss += np.vecdot(residual, residual)
            by_output += (hidden @ residual[:, :, None])[:, :, 0]
            by_offset += residual.sum(axis=1, keepdims=True)
            inner = 1.0 - hidden
            inner *= hidden
            inner *= residual[:, None]
            by_maps += inner.reshape(len(maps), -1) @ block.T
        by_maps = by_maps.reshape(k, n_hidden, width) * output[:, :, None]
        by_maps[np.arange(k), :, which] = 0.0
        parts = [by_maps.reshape(k, -1), by_output, by_offset]
        return 0.5 * loss / self.n_total, np.hstack(parts) / self.n_total

    def _move(self, step, unsolved, value, at_most):
        """Go along each variable's step, or a part of it; return who found no way."""
        old, new = self._at, self._at.copy()
        length, left = 1.0, np.flatnonzero(unsolved)
        while len(left) and length > 1e-8:
            tried = old.parameters[left] + length * step[left]
            loss, slope = self.evaluate(tried, left)
            good = value(tried, loss, left) <= at_most[left]
            found = left[good]
            new.parameters[found] = tried[good]
            new.loss[found], new.slope[found] = loss[good], slope[good]
            left, length = left[~good], 0.3 * length
        pair = new.parameters - old.parameters, new.slope - old.slope
        self._pairs = [*self._pairs, pair][-_MEMORY:]
        self._at = new
        return left

    def _newton(self, gradient, rho):
        """Return the gradient over the remembered curvature, variable by variable."""
        seen = np.zeros(len(gradient), dtype=bool)
        scale, weights = np.full(len(gradient), 1.0 / (1.0 + rho)), []
        gradient = gradient.copy()
        for moved, change in reversed(self._pairs):
            change = change + rho * moved
            product = np.vecdot(moved, change)
            # variables that did not move, or along a ridge, have nothing to tell
            usable = product > 1e-10 * np.vecdot(moved, moved)
            inverse = np.divide(1.0, product, where=usable, out=np.zeros_like(product))
            weight = inverse * np.vecdot(moved, gradient)
            gradient -= weight[:, None] * change
            weights.append((moved, change, inverse, weight))
            squares = np.vecdot(change, change)
            np.divide(product, squares, where=usable & ~seen, out=scale)
            seen |= usable
        gradient *= scale[:, None]
        for moved, change, inverse, weight in reversed(weights):
            weight = weight - inverse * np.vecdot(change, gradient)
            gradient += weight[:, None] * moved
        return gradient

    def _by_variable(self, flat):
        """Return a row of maps with biases, output weights and offset per variable."""
        d = len(self.columns) - 1
        maps, bias, output, offset = unpack_mlp(flat, d, self.n_hidden)
        maps = np.concatenate([maps, bias], axis=1).transpose(2, 0, 1)
        return np.hstack([maps.reshape(d, -1), output[:, 0].T, offset[:, None]])

    def _flat(self, parameters):
        d, n_hidden = len(parameters), self.n_hidden
        ends = [n_hidden * (d + 1), n_hidden * (d + 2)]
        maps, output, offset = np.split(parameters, ends, axis=1)
        maps = maps.reshape(d, n_hidden, d + 1).transpose(1, 2, 0)
        parts = maps[:, :d], maps[:, d], output.T, offset
        return np.concatenate([part.ravel() for part in parts])
