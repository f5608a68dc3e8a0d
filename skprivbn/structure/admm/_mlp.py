"""Every variable a small neural network of the others (NOTEARS-MLP), in numpy.

Flat parameters: `n_hidden` maps of shape (d, d), where ``maps[m, i, j]`` leads from
variable i to hidden unit m of the network of variable j; then the hidden biases
(n_hidden, d), the output weights (n_hidden, d) and the output biases (d,).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit
from sklearn.utils import check_random_state

from skprivbn.bayesian_network._dag import topological_order
from skprivbn.bayesian_network._gaussian import normal_log_density
from skprivbn.federation import check_received
from skprivbn.utils._linalg import single_threaded

#: hidden units of all rows, of the variables that are worked on together
_N_UNITS = 1 << 17
_TINY = np.finfo(float).tiny


def n_free_of_mlp(n_variables, n_hidden):
    """Number of parameters that are not maps."""
    return (2 * n_hidden + 1) * n_variables


def initial_mlp(n_variables, n_hidden, random_state):
    """Small random parameters; hidden units would stay alike from zero."""
    rng = check_random_state(random_state)
    d, m = n_variables, n_hidden
    maps = rng.uniform(-0.1, 0.1, size=(m, d, d)) / np.sqrt(d)
    maps[:, np.arange(d), np.arange(d)] = 0.0
    output = rng.uniform(-1.0, 1.0, size=(m, d)) / np.sqrt(m)
    return np.concatenate([maps.ravel(), np.zeros(m * d), output.ravel(), np.zeros(d)])


def unpack_mlp(flat, d, n_hidden):
    """Return maps, hidden biases, output weights and output biases."""
    ends = n_hidden * d * d, n_hidden * d * (d + 1), n_hidden * d * (d + 2)
    return (
        flat[: ends[0]].reshape(n_hidden, d, d),
        flat[ends[0] : ends[1]].reshape(n_hidden, 1, d),
        flat[ends[1] : ends[2]].reshape(n_hidden, 1, d),
        flat[ends[2] :],
    )


def mlp_forward(X, flat, n_hidden):
    """Return the prediction of every variable from the others, shape (n, d)."""
    maps, bias, output, offset = unpack_mlp(flat, X.shape[1], n_hidden)
    total = np.tile(offset, (len(X), 1))
    for weights, shift, factor in zip(maps, bias, output):
        total += expit(X @ weights + shift) * factor
    return total


@dataclass(frozen=True)
class MLPNetwork:
    """A network whose variables are small neural networks of their parents.

    An immutable value with the methods of
    :class:`~skprivbn.bayesian_network.GaussianBayesianNetwork` that have a closed form
    for non-linear models: likelihood, sampling and prediction of complete rows.

    Parameters
    ----------
    nodes : sequence of str
        Names of the variables.
    adjacency_matrix : ndarray of bool of shape (d, d)
        Edges; weights of other pairs are cut.
    parameters : ndarray
        Flat parameters, for rows centred at `mean`.
    n_hidden : int
        Hidden units of every variable's network.
    mean : ndarray of shape (d,)
        Where rows were centred.
    intercepts : ndarray of shape (d,)
        Mean residuals, added to the predictions.
    variances : ndarray of shape (d,)
        Variances of the noise.
    """

    nodes: Sequence[str]
    adjacency_matrix: np.ndarray
    parameters: np.ndarray
    n_hidden: int
    mean: np.ndarray
    intercepts: np.ndarray
    variances: np.ndarray

    def __post_init__(self):
        """Refuse fields that do not fit together: somebody may have sent them."""
        d, m = len(self.nodes), self.n_hidden
        if type(m) is not int or m < 1:
            raise ValueError("n_hidden must be an integer of at least 1")
        check_received(self.adjacency_matrix, (d, d))
        check_received(self.parameters, (m * d * d + n_free_of_mlp(d, m),))
        for values in (self.mean, self.intercepts, self.variances):
            check_received(values, (d,))
        if np.any(self.variances <= 0):
            raise ValueError("variances must be above zero")

    def given_parents(self, X):
        """Return the mean of every variable given its parents, shape (n, d)."""
        centred = np.asarray(X, dtype=float) - self.mean
        forward = mlp_forward(centred, self.parameters, self.n_hidden)
        return forward + self.mean + self.intercepts

    #: rows are complete: nothing else is left to predict
    predict = given_parents

    def log_likelihood(self, X):
        """Return the Gaussian log-density of every row."""
        noise = np.asarray(X, dtype=float) - self.given_parents(X)
        return normal_log_density(noise, self.variances).sum(axis=1)

    def sample(self, n_samples=1, random_state=None):
        """Draw rows, parents first."""
        rng = check_random_state(random_state)
        noise = rng.standard_normal((n_samples, len(self.nodes)))
        noise *= np.sqrt(self.variances)
        X = np.tile(self.mean, (n_samples, 1))
        for j in topological_order(self.adjacency_matrix):
            X[:, j] = self.given_parents(X)[:, j] + noise[:, j]
        return X

    def to_networkx(self):
        """Return the graph as a ``networkx.DiGraph``."""
        from skprivbn.utils import import_optional

        networkx = import_optional("networkx", "MLPNetwork.to_networkx")
        graph = networkx.DiGraph()
        graph.add_nodes_from(self.nodes)
        edges = np.argwhere(self.adjacency_matrix)
        graph.add_edges_from((self.nodes[i], self.nodes[j]) for i, j in edges)
        return graph


def _slopes_of_tanh(bent, out):
    np.multiply(bent, bent, out=out)
    np.subtract(1.0, out, out=out)


@dataclass
class _Descent:
    """Where some variables are on their way down, and what own rows say there.

    Parameters
    ----------
    which : ndarray of int of shape (k,)
    linear : ndarray of shape (k, p)
        Slope of the penalty at zero.
    parameters : ndarray of shape (k, p)
    scores, bent, ahead, spare : ndarray of shape (k, n_hidden, n)
        Halves of what enters hidden units, and their hyperbolic tangents; memory for
        those at the end of a step.
    residuals : ndarray of shape (k, n)
    loss : ndarray of shape (k,)
    slope : ndarray of shape (k, p)
        Of the loss.
    gradient, direction : ndarray of shape (k, p)
        Of the objective, and where to go.
    reach : ndarray of shape (k,)
        Share of the next step to go: below one after a step that led up.
    """

    which: np.ndarray
    linear: np.ndarray
    parameters: np.ndarray
    scores: np.ndarray
    bent: np.ndarray
    ahead: np.ndarray
    spare: np.ndarray
    residuals: np.ndarray
    loss: np.ndarray
    slope: np.ndarray
    gradient: np.ndarray
    direction: np.ndarray
    reach: np.ndarray

    def take(self, some):
        """Return the descent of some of these variables."""
        return _Descent(*(values[some] for values in vars(self).values()))


class MLPProblem:
    """A party's problem (2): least squares near the consensus, by conjugate gradients.

    The networks of two variables share no parameter. Each therefore has a direction and
    a step of its own, in one row of an array, and those that are solved are left alone.

    Scores, the arguments of sigmoids, are linear along a direction. One product of
    matrices thus gives both the second derivative along it, whose Newton step is taken,
    and the scores at its end: a step costs what a value and its gradient cost, and
    nothing has to be remembered but the direction.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        The party's centred rows.
    n_total : float
        Rows of all parties.
    n_hidden : int
        Hidden units of every variable's network.
    max_iter : int, default=200
        Bound on the steps of one round.
    tol : float, default=1e-8
        Share of a variable's loss by which its objective may be above its minimum.

    References
    ----------
    Polak, Ribière. Note sur la convergence de méthodes de directions conjuguées. Revue
    française d'informatique et de recherche opérationnelle 1969.
    """

    def __init__(self, X, n_total, n_hidden, max_iter=200, tol=1e-8):
        n, d = X.shape
        # one row per variable, and one of ones for the biases
        self.columns = np.ones((d + 1, n))
        self.columns[:d] = X.T
        self.n_total, self.n_hidden = n_total, n_hidden
        self.max_iter, self.tol = max_iter, tol
        self._at = self._slopes = None

    @single_threaded
    def solve(self, consensus, dual, rho):
        """Minimise the loss plus the augmented Lagrangian's terms."""
        centre, dual = self._by_variable(consensus), self._by_variable(dual)
        d, n = len(centre), self.columns.shape[1]
        k = max(1, _N_UNITS // max(1, self.n_hidden * n))
        together = [np.arange(first, min(first + k, d)) for first in range(0, d, k)]
        if self._at is None:
            self._at = centre.copy()
            self._memory = np.empty((4, min(k, d), self.n_hidden, n))
            slopes = [self.evaluate(centre[which], which)[1] for which in together]
            self._slopes = np.vstack(slopes)
        for which in together:
            self._descend(which, dual[which] - rho * centre[which], rho)
        return self._flat(self._at)

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
        memory = np.empty((3, len(which), self.n_hidden, self.columns.shape[1]))
        scores, bent, spare = memory
        self._score(parameters, scores)
        residuals, loss = self._fit(parameters, scores, bent, which)
        return loss, self._slope(parameters, bent, residuals, which, spare)

    def _descend(self, which, linear, rho):
        """Take steps with some variables; with the unsolved only once those are few."""
        parameters, slope = self._at[which], self._slopes[which]
        scores, bent, *memory = self._memory[:, : len(which)]
        self._score(parameters, scores)
        fit = self._fit(parameters, scores, bent, which)
        gradient = slope + linear + rho * parameters
        where = which, linear, parameters, scores, bent, *memory, *fit, slope
        at = _Descent(*where, gradient, -gradient, np.ones(len(which)))
        for _ in range(self.max_iter):
            # the minimum is at most half this below, unless the loss is concave
            below = np.vecdot(at.gradient, at.gradient) / rho
            unsolved = below > self.tol * np.maximum(1.0 / len(self._at), at.loss)
            if 2 * unsolved.sum() <= len(unsolved):
                self._at[at.which], self._slopes[at.which] = at.parameters, at.slope
                at = at.take(unsolved)
                if len(at.which) == 0:
                    return
            self._step(at, rho)
        self._at[at.which], self._slopes[at.which] = at.parameters, at.slope

    def _step(self, at, rho):
        """Go Newton's step along each direction, unless that leads up; turn."""
        self._score(at.direction, at.ahead)
        down = np.vecdot(at.gradient, at.direction)
        square = rho * np.vecdot(at.direction, at.direction)
        convex, rest = self._curvature(at)
        convex += square + _TINY
        length = at.reach * -down / np.maximum(convex + rest, 0.1 * convex)
        new = length[:, None] * at.direction
        new += at.parameters
        at.ahead *= length[:, None, None]
        at.ahead += at.scores
        residuals, loss = self._fit(new, at.ahead, at.spare, at.which)
        penalty = down - np.vecdot(at.slope, at.direction) + 0.5 * length * square
        is_down = loss + length * (penalty - 1e-4 * down) <= (1.0 + 1e-15) * at.loss
        if not is_down.all():
            ends = new, at.ahead, at.spare, residuals, loss
            old = at.parameters, at.scores, at.bent, at.residuals, at.loss
            for values, before in zip(ends, old):
                values[~is_down] = before[~is_down]
        at.parameters, at.residuals, at.loss = new, residuals, loss
        at.scores, at.ahead = at.ahead, at.scores
        at.bent, at.spare = at.spare, at.bent
        at.reach = np.where(is_down, 1.0, 0.3 * at.reach)
        at.slope = self._slope(new, at.bent, residuals, at.which, at.spare)
        before, at.gradient = at.gradient, rho * new
        at.gradient += at.linear
        at.gradient += at.slope
        now = np.vecdot(at.gradient, at.gradient)
        kept = now - np.vecdot(at.gradient, before)
        kept = np.maximum(kept / (np.vecdot(before, before) + _TINY), 0.0)
        # steepest descent after a step that led up, and where the old direction does
        kept *= kept * np.vecdot(at.gradient, at.direction) < 0.5 * now
        at.direction *= kept[:, None]
        at.direction -= at.gradient

    def _score(self, parameters, scores):
        """Write halves of what enters hidden units, which is linear in parameters."""
        k, maps = len(parameters), self._parts(parameters)[0]
        flat = scores.reshape(k * self.n_hidden, -1)
        np.matmul(maps.reshape(len(flat), -1), self.columns, out=flat)
        flat *= 0.5

    def _fit(self, parameters, scores, bent, which):
        """Write tangents of scores; return residuals and losses."""
        _, output, offset = self._parts(parameters)
        # a sigmoid is (1 + tanh(z / 2)) / 2, and numpy's tanh takes a third of the time
        np.tanh(scores, out=bent)
        residuals = (0.5 * output[:, None] @ bent)[:, 0]
        residuals += offset + 0.5 * output.sum(axis=1, keepdims=True)
        residuals -= self.columns[which]
        return residuals, np.vecdot(residuals, residuals) * (0.5 / self.n_total)

    def _slope(self, parameters, bent, residuals, which, spare):
        """Return gradients of losses."""
        slope = np.empty_like(parameters)
        maps, output, offset = self._parts(slope)
        _slopes_of_tanh(bent, out=spare)
        spare *= residuals[:, None]
        products = spare.reshape(self.n_hidden * len(which), -1) @ self.columns.T
        factors = (0.25 / self.n_total) * self._parts(parameters)[1][:, :, None]
        maps = maps.reshape(*bent.shape[:2], -1)
        np.multiply(products.reshape(maps.shape), factors, out=maps)
        maps[np.arange(len(which)), :, which] = 0.0
        offset[:] = residuals.sum(axis=1, keepdims=True) / self.n_total
        output[:] = (bent @ residuals[:, :, None])[:, :, 0]
        output *= 0.5 / self.n_total
        output += 0.5 * offset
        return slope

    def _curvature(self, at):
        """Return second derivatives of losses along directions, in two parts.

        The first has the squares of derivatives of residuals, the second the residuals
        and their second derivatives.
        """
        _, output, _ = self._parts(at.parameters)
        _, to_output, to_offset = self._parts(at.direction)
        residuals, inner = at.residuals[:, :, None], at.spare
        _slopes_of_tanh(at.bent, out=inner)
        inner *= at.ahead
        first = output[:, None] @ inner + to_output[:, None] @ at.bent
        first = 0.5 * (first[:, 0] + to_output.sum(axis=1, keepdims=True)) + to_offset
        second = np.vecdot(to_output, (inner @ residuals)[:, :, 0])
        inner *= at.ahead
        inner *= at.bent
        second -= np.vecdot(output, (inner @ residuals)[:, :, 0])
        return np.vecdot(first, first) / self.n_total, second / self.n_total

    def _by_variable(self, flat):
        """Return a row of maps with biases, output weights and offset per variable."""
        d = len(self.columns) - 1
        maps, bias, output, offset = unpack_mlp(flat, d, self.n_hidden)
        maps = np.concatenate([maps, bias], axis=1).transpose(2, 0, 1)
        return np.hstack([maps.reshape(d, -1), output[:, 0].T, offset[:, None]])

    def _parts(self, parameters):
        """Return maps with biases, output weights and offsets of some variables."""
        n_maps = self.n_hidden * len(self.columns)
        return parameters[:, :n_maps], parameters[:, n_maps:-1], parameters[:, -1:]

    def _flat(self, parameters):
        d = len(parameters)
        maps, output, offset = self._parts(parameters)
        maps = maps.reshape(d, self.n_hidden, d + 1).transpose(1, 2, 0)
        parts = maps[:, :d], maps[:, d], output.T, offset
        return np.concatenate([part.ravel() for part in parts])
