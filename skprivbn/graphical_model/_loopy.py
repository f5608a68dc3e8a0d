"""Approximate inference where the exact one is too large: belief propagation.

Plain belief propagation on cycles has several fixed points, between which learning
would jump. Here every clique is weighted by the share of forests that it belongs to,
out of a few that together cover all cliques (tree-reweighted belief propagation,
Wainwright, Jaakkola and Willsky, 2005): then there is one solution, it varies smoothly
with the tables, and its log-partition function is an upper bound.
"""

from math import prod

import numpy as np

_TINY = 1e-300
#: weight of the messages before, and their change in a round at which they are done
_DAMPING, _DONE = 0.1, 1e-9
#: change of messages in the last round up to which they count as converged
_ROUGH = 1e-3
#: fewest forests: with few of them the shares are uneven
_MIN_FORESTS = 10
#: random potentials that are tried, and their standard deviation as logarithms
_N_TRIALS, _SPREAD = 3, 0.5


class LoopyPropagation:
    """Sum-product on the factor graph of cliques and variables, with damping.

    Exact if the factor graph has no cycle. Otherwise the log-partition function is an
    upper bound, and the marginals are its derivatives; those of different cliques
    still agree on single variables.

    Cliques whose tables have the same shape are handled as one stack.

    Parameters
    ----------
    cliques : list of tuple of int
        Scope of each table.
    sizes : sequence of int
        Number of states of each variable.
    max_iter : int, default=200
        Most rounds of messages.
    warm_start : bool, default=False
        Start from the messages of the last call, whose tables were similar.

    Attributes
    ----------
    n_cells : int
        Number of cells of all tables and beliefs.
    converged : bool
        Whether the messages of the last call had come to rest.
    """

    def __init__(self, cliques, sizes, max_iter=200, warm_start=False):
        self.cliques = [tuple(clique) for clique in cliques]
        self.sizes = tuple(int(size) for size in sizes)
        self.max_iter, self.warm_start = max_iter, warm_start
        by_shape = {}
        for c, clique in enumerate(self.cliques):
            by_shape.setdefault(tuple(self.sizes[i] for i in clique), []).append(c)
        weights = forest_weights(self.cliques, len(self.sizes))
        self._stacks = [
            _Stack(self.cliques, weights, *stack) for stack in by_shape.items()
        ]
        self.n_cells = sum(self.sizes) + sum(
            prod(stack.shape) * len(stack) for stack in self._stacks
        )
        #: weights of the entropies of single variables
        self._counting = np.ones(len(self.sizes))
        for clique, weight in zip(self.cliques, weights):
            self._counting[list(clique)] -= weight
        n_states = np.asarray(self.sizes, dtype=int)[:, None, None]
        self._padding = np.arange(n_states.max(initial=1)) >= n_states
        self.converged, self._last = True, None

    def forward(self, tables):
        """Same as in :class:`EliminationPlan`, approximately."""
        n_batch = max((len(t) for t in tables), default=1)
        stacked = [stack.gather(tables, n_batch) for stack in self._stacks]
        messages = self._start(n_batch)
        change = 0.0
        for _ in range(self.max_iter):
            beliefs = self._beliefs(messages, n_batch)
            change = 0.0
            for stack, table, old in zip(self._stacks, stacked, messages):
                incoming = stack.incoming(old, beliefs)
                product = _times(table, incoming)
                for axis, sent in enumerate(old):
                    others = tuple(a + 2 for a in range(len(old)) if a != axis)
                    message = product.sum(axis=others)
                    message = _normalise(message / np.maximum(incoming[axis], _TINY))
                    change = max(change, np.abs(message - sent).max(initial=0.0))
                    # geometric mean: beliefs are products of powers of messages
                    log = _DAMPING * _log(sent) + (1 - _DAMPING) * _log(message)
                    np.exp(log - log.max(axis=-1, keepdims=True), out=sent)
                    sent /= sent.sum(axis=-1, keepdims=True)
            if change <= _DONE:
                break
        self.converged = change <= _ROUGH
        self._last = n_batch, messages
        beliefs = self._beliefs(messages, n_batch)
        marginals = [
            _normalise(_times(table, stack.incoming(sent, beliefs)))
            for stack, table, sent in zip(self._stacks, stacked, messages)
        ]
        tape = [None] * len(self.cliques)
        for stack, marginal in zip(self._stacks, marginals):
            for c, one in zip(stack.members, marginal):
                tape[c] = one
        return self._bound(stacked, marginals, beliefs), tape

    def backward(self, tape):
        """Marginals of all cliques, in their own axis order."""
        return tape

    def _start(self, n_batch):
        """Messages of each stack along each axis: uniform, or of the last call."""
        if self.warm_start and self._last is not None and self._last[0] == n_batch:
            return self._last[1]
        return [
            [np.full((len(stack), n_batch, size), 1 / size) for size in stack.shape]
            for stack in self._stacks
        ]

    def _beliefs(self, messages, n_batch):
        """Beliefs of variables, padded with zeros to the same number of states."""
        logs = np.zeros((len(self.sizes), n_batch, self._padding.shape[-1]))
        for stack, sent in zip(self._stacks, messages):
            for variables, message in zip(stack.scopes, sent):
                own_states = logs[..., : message.shape[-1]]
                np.add.at(own_states, variables, stack.weights * _log(message))
        np.copyto(logs, -np.inf, where=self._padding)
        return _normalise(np.exp(logs - logs.max(axis=-1, keepdims=True)))

    def _bound(self, stacked, marginals, beliefs):
        """Expected log-potentials plus the weighted entropies."""
        total = np.zeros(beliefs.shape[1])
        for stack, table, marginal in zip(self._stacks, stacked, marginals):
            # the tables are already taken to the power of one over the weight
            ratio = _log(table) - _log(marginal)
            within = (marginal * ratio).sum(axis=tuple(range(2, marginal.ndim)))
            total += stack.weights[:, 0, 0] @ within
        entropy = -(beliefs * _log(beliefs)).sum(axis=-1)
        return total + self._counting @ entropy


class _Stack:
    """Cliques whose tables have the same shape.

    Parameters
    ----------
    cliques : list of tuple of int
        All cliques.
    weights : ndarray of shape (n_cliques,)
        Their weights.
    shape : tuple of int
        Of their tables.
    members : list of int
        Which cliques.
    """

    def __init__(self, cliques, weights, shape, members):
        self.shape, self.members = shape, members
        # variables along each axis of the tables
        self.scopes = np.array([cliques[c] for c in members], dtype=int).T
        self.weights = weights[members, None, None]

    def __len__(self):
        return len(self.members)

    def gather(self, tables, n_batch):
        """Tables of all members as one array, to the power of one over the weight."""
        stacked = np.empty((len(self), n_batch, *self.shape))
        for place, c in enumerate(self.members):
            stacked[place] = tables[c]
        exponent = 1 / self.weights.reshape(-1, *[1] * (stacked.ndim - 1))
        return stacked if (exponent == 1).all() else stacked**exponent

    def incoming(self, sent, beliefs):
        """Messages from variables along each axis: beliefs without the own message."""
        return [
            _normalise(
                beliefs[variables, :, : message.shape[-1]] / np.maximum(message, _TINY)
            )
            for variables, message in zip(self.scopes, sent)
        ]


def comes_to_rest(cliques, sizes):
    """Tell whether messages converge for random potentials of this graph.

    Whether they do depends more on how dense the graph is than on the potentials, so
    that it can be said before there are any. One trial that converges is enough.

    Parameters
    ----------
    cliques : list of tuple of int
        Scopes.
    sizes : sequence of int
        Number of states of each variable.

    Returns
    -------
    converges : bool
    """
    rng = np.random.default_rng(0)
    engine = LoopyPropagation(cliques, sizes)
    for _ in range(_N_TRIALS):
        shapes = [(1, *(sizes[i] for i in clique)) for clique in cliques]
        engine.forward([np.exp(_SPREAD * rng.normal(size=shape)) for shape in shapes])
        if engine.converged:
            return True
    return False


def forest_weights(cliques, n_variables):
    """Share of forests that each clique belongs to; one if there are no cycles.

    Forests are sets of cliques whose factor graph has no cycle. Each is filled with
    the cliques that were in the fewest so far, which makes the shares even.

    Parameters
    ----------
    cliques : list of tuple of int
        Scopes.
    n_variables : int
        Number of variables.

    Returns
    -------
    weights : ndarray of shape (n_cliques,)
        In (0, 1].
    """
    times, n_forests = np.zeros(len(cliques), dtype=int), 0
    while n_forests < _MIN_FORESTS or not times.all():
        tree = np.arange(n_variables)  # which tree of the forest each variable is in
        for c in np.argsort(times, kind="stable"):
            scope = list(cliques[c])
            joined = tree[scope]
            if len(set(joined.tolist())) == len(scope):
                tree[np.isin(tree, joined)] = tree[scope[0]] if scope else 0
                times[c] += 1
        n_forests += 1
        if times.all() and n_forests == 1:
            break
    return times / n_forests


def _times(table, incoming):
    product = table
    for axis, message in enumerate(incoming):
        shape = [*message.shape[:2]] + [1] * len(incoming)
        shape[axis + 2] = -1
        product = product * message.reshape(shape)
    return product


def _log(table):
    return np.log(np.maximum(table, _TINY))


def _normalise(table):
    """Divide by the sum over all but the first two axes."""
    axes = tuple(range(2, table.ndim))
    return table / np.maximum(table.sum(axis=axes, keepdims=True), _TINY)
