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

#: hidden units of a block of rows
_BLOCK = 1 << 16
#: pairs of steps and changes of the gradient that curvature is read off
_MEMORY = 10
_PLACES = np.arange(_MEMORY)


def _both(n_added):
    """Return the places of the next step and of the change of the slope."""
    return [n_added % _MEMORY, n_added % _MEMORY + _MEMORY]


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


@dataclass
class _Descent:
    """Where variables are on their way down, with what own rows say there.

    Curvature of the loss along the last steps is kept in the compact form of L-BFGS.
    Steps and changes of the slope enter through their inner products only: what a
    penalty adds to those is known.

    Parameters
    ----------
    parameters, slope : ndarray of shape (k, p)
    loss : ndarray of shape (k,)
    pairs : ndarray of shape (k, 2 * _MEMORY, p)
        Steps, then changes of the slope, in places that are used in turn.
    products : ndarray of shape (k, 2 * _MEMORY, 2 * _MEMORY)
    n_added : int, default=0

    References
    ----------
    Byrd, Nocedal, Schnabel. Representations of quasi-Newton matrices and their use in
    limited memory methods. Mathematical Programming 1994.
    """

    parameters: np.ndarray
    loss: np.ndarray
    slope: np.ndarray
    pairs: np.ndarray
    products: np.ndarray
    n_added: int = 0

    @classmethod
    def begin(cls, parameters, loss, slope):
        """Return a descent that remembers nothing."""
        (k, p), m = parameters.shape, 2 * _MEMORY
        memory = np.zeros((k, m, p)), np.zeros((k, m, m))
        return cls(parameters, loss, slope, *memory)

    def take(self, which):
        """Return the descent of some variables."""
        of_variables = (self.parameters, self.loss, self.slope, self.pairs)
        parts = [values[which] for values in (*of_variables, self.products)]
        return _Descent(*parts, self.n_added)

    def put(self, which, part):
        """Replace variables by how they went on; others have forgotten meanwhile."""
        for n_added in range(self.n_added, part.n_added)[-_MEMORY:]:
            places = _both(n_added)
            self.pairs[:, places] = self.products[:, places] = 0.0
            self.products[:, :, places] = 0.0
        for name in ("parameters", "loss", "slope", "pairs", "products"):
            getattr(self, name)[which] = getattr(part, name)
        self.n_added = part.n_added

    def move(self, parameters, loss, slope):
        """Go on to new parameters; remember the step and forget one of long ago."""
        places = _both(self.n_added)
        latest = np.stack([parameters - self.parameters, slope - self.slope], axis=1)
        self.pairs[:, places] = latest
        new = self.pairs @ latest.mT
        self.products[:, :, places], self.products[:, places] = new, new.mT
        self.parameters, self.loss, self.slope = parameters, loss, slope
        self.n_added += 1

    def newton(self, gradient, rho):
        """Return the gradient over the curvature with a penalty, variable by variable.

        Parameters
        ----------
        gradient : ndarray of shape (k, p)
        rho : float
            Curvature of the penalty.

        Returns
        -------
        ndarray of shape (k, p)
        """
        if self.n_added == 0:
            return gradient / (1.0 + rho)
        m, along = _MEMORY, (self.pairs @ gradient[:, :, None])[:, :, 0]
        steps, mixed = self.products[:, :m, :m], self.products[:, :m, m:]
        # what the penalty adds to changes, and so to their products
        step, change = along[:, :m], along[:, m:] + rho * along[:, :m]
        changes = self.products[:, m:, m:]
        changes = changes + rho * (mixed + mixed.mT) + rho**2 * steps
        mixed = mixed + rho * steps
        curvature = mixed.diagonal(axis1=1, axis2=2)
        # variables that did not move, or along a ridge, have nothing to tell
        usable = curvature > 1e-10 * steps.diagonal(axis1=1, axis2=2)
        both = usable[:, :, None] & usable[:, None, :]
        step, change, curvature = usable * step, usable * change, usable * curvature
        changes = both * changes
        age = (self.n_added - 1 - _PLACES) % m
        newest = np.where(usable, age, m).argmin(axis=1)
        each = np.arange(len(gradient))
        scale = np.full(len(gradient), 1.0 / (1.0 + rho))
        square = changes[each, newest, newest]
        np.divide(curvature[each, newest], square, where=square > 0, out=scale)
        scale = scale[:, None]
        # a triangle, if in the order of time: steps with changes no older than they are
        inverse = both * (age[:, None] > age) * mixed
        inverse[:, _PLACES, _PLACES] = np.where(usable, curvature, 1.0)
        inverse = np.linalg.inv(inverse)
        a = np.vecdot(inverse, step[:, None])
        b = curvature * a + scale * (np.vecdot(changes, a[:, None]) - change)
        b = np.vecdot(inverse.mT, b[:, None])
        weights = np.concatenate([b - scale * rho * a, -scale * a], axis=1)
        return scale * gradient + (weights[:, None] @ self.pairs)[:, 0]


class MLPProblem:
    """A party's problem (2): least squares near the consensus, by L-BFGS.

    The networks of two variables share no parameter. Each therefore has parameters, a
    step length and a memory of curvature of its own, in one row of an array, and those
    that are solved are left alone. Hidden units of all variables are computed together,
    for blocks of rows that stay in the processor's cache.

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
        self._at = None

    @single_threaded
    def solve(self, consensus, dual, rho):
        """Minimise the loss plus the augmented Lagrangian's terms."""
        centre, dual = self._by_variable(consensus), self._by_variable(dual)
        if self._at is None:
            self._at = _Descent.begin(centre.copy(), *self.evaluate(centre))
        which = np.arange(len(centre))
        self._descend(self._at, which, centre, dual, rho, self.max_iter)
        return self._flat(self._at.parameters)

    def _descend(self, at, which, centre, dual, rho, n_steps, elsewhere=0.0):
        """Take steps with some variables; with the unsolved only once those are few."""

        def value(parameters, loss, some):
            gap = parameters - centre[some]
            return loss + np.vecdot(gap, dual[some] + 0.5 * rho * gap)

        unsolved = np.ones(len(which), dtype=bool)
        for n_left in range(n_steps, 0, -1):
            now = value(at.parameters, at.loss, slice(None))
            gradient = at.slope + dual + rho * (at.parameters - centre)
            total = abs(elsewhere + now.sum())
            enough = self.tol * max(1.0, total) / (len(self.columns) - 1)
            # steps gain at most one over rho times that, unless the loss is concave
            unsolved &= 10.0 * np.vecdot(gradient, gradient) > rho * enough
            if 2 * unsolved.sum() <= len(which):
                if unsolved.any():
                    part, rest = at.take(unsolved), elsewhere + now[~unsolved].sum()
                    about = centre[unsolved], dual[unsolved], rho
                    self._descend(part, which[unsolved], *about, n_left, rest)
                    at.put(unsolved, part)
                break
            step = -at.newton(gradient, rho)
            decrease = -np.vecdot(gradient, step)
            unsolved &= decrease > enough
            if not unsolved.any():
                break
            enough_down = now - 1e-4 * decrease
            stuck = self._move(at, which, step, unsolved, value, enough_down)
            unsolved[stuck] = False

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
        maps, output, offset = self._parts(parameters)
        # a sigmoid is (1 + tanh(z / 2)) / 2, and numpy's tanh takes a third of the time
        maps = 0.5 * maps.reshape(k * n_hidden, width)
        half, level = 0.5 * output[:, None], offset + 0.5 * output.sum(1, keepdims=True)
        loss, by_maps = np.zeros(k), np.zeros_like(maps)
        by_output, by_offset = np.zeros_like(output), np.zeros_like(offset)
        n_rows = max(64, _BLOCK // (k * n_hidden))
        for start in range(0, self.columns.shape[1], n_rows):
            block = self.columns[:, start : start + n_rows]
            hidden = maps @ block
            hidden = np.tanh(hidden, out=hidden).reshape(k, n_hidden, -1)
            residual = (half @ hidden)[:, 0] + level - block[which]
            loss += np.vecdot(residual, residual)
            by_output += (hidden @ residual[:, :, None])[:, :, 0]
            by_offset += residual.sum(axis=1, keepdims=True)
            hidden *= hidden
            np.subtract(1.0, hidden, out=hidden)
            hidden *= residual[:, None]
            by_maps += hidden.reshape(len(maps), -1) @ block.T
        by_output = 0.5 * (by_output + by_offset)
        by_maps = by_maps.reshape(k, n_hidden, width) * (0.25 * output[:, :, None])
        by_maps[np.arange(k), :, which] = 0.0
        parts = [by_maps.reshape(k, -1), by_output, by_offset]
        return 0.5 * loss / self.n_total, np.hstack(parts) / self.n_total

    def _move(self, at, which, step, unsolved, value, at_most):
        """Go along each variable's step, or a part of it; return who found no way."""
        new = at.parameters.copy(), at.loss.copy(), at.slope.copy()
        length, left = 1.0, np.flatnonzero(unsolved)
        while len(left) and length > 1e-8:
            tried = at.parameters[left] + length * step[left]
            loss, slope = self.evaluate(tried, which[left])
            good = value(tried, loss, left) <= at_most[left]
            for values, found in zip(new, (tried, loss, slope)):
                values[left[good]] = found[good]
            left, length = left[~good], 0.3 * length
        at.move(*new)
        return left

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
