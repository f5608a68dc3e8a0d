"""Approximate inference where the exact one is too large: loopy belief propagation."""

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

__all__ = ["LoopyPropagation"]

_TINY = 1e-300
#: change of messages in the last round above which a warning is due
_ROUGH = 1e-3


class LoopyPropagation:
    """Sum-product on the factor graph of cliques and variables, with damping.

    Exact if the factor graph has no cycle. Otherwise the marginals are those of a
    stationary point of the Bethe free energy and the log-partition function is its
    Bethe approximation; then marginals of different cliques still agree on single
    variables.

    Parameters
    ----------
    cliques : list of tuple of int
        Scope of each table.
    sizes : sequence of int
        Number of states of each variable.
    damping : float, default=0.3
        Weight of the previous messages.
    max_iter : int, default=100
        Most rounds of messages.
    tol : float, default=1e-9
        Stop when no message changes by more.
    """

    def __init__(self, cliques, sizes, damping=0.3, max_iter=100, tol=1e-9):
        self.cliques = [tuple(clique) for clique in cliques]
        self.sizes = tuple(int(size) for size in sizes)
        self.damping, self.max_iter, self.tol = damping, max_iter, tol
        self._last = None

    def forward(self, tables):
        """Same as in :class:`EliminationPlan`, approximately."""
        n_batch = max((len(t) for t in tables), default=1)
        messages = self._start(n_batch)
        for _ in range(self.max_iter):
            beliefs = self._variable_beliefs(messages, n_batch)
            change = 0.0
            updated = {}
            for c, clique in enumerate(self.cliques):
                incoming = self._incoming(c, messages, beliefs)
                product = _times(tables[c], incoming)
                for axis, i in enumerate(clique):
                    others = tuple(a + 1 for a in range(len(clique)) if a != axis)
                    message = product.sum(axis=others)
                    message = message / np.maximum(incoming[axis], _TINY)
                    message = _normalise(message)
                    old = messages[c, i]
                    change = max(change, np.abs(message - old).max())
                    updated[c, i] = self.damping * old + (1 - self.damping) * message
            messages = updated
            if change <= self.tol:
                break
        else:
            if messages and change > _ROUGH:
                warnings.warn(
                    f"loopy belief propagation has not converged after {self.max_iter} "
                    f"rounds (last change {change:.1e}): marginals are approximate",
                    ConvergenceWarning,
                    stacklevel=2,
                )
        self._last = n_batch, messages
        beliefs = self._variable_beliefs(messages, n_batch)
        marginals = [
            _normalise(_times(table, self._incoming(c, messages, beliefs)))
            for c, table in enumerate(tables)
        ]
        return self._bethe(tables, marginals, beliefs), marginals

    def backward(self, tape):
        """Marginals of all cliques, in their own axis order."""
        return tape

    def _start(self, n_batch):
        """Uniform messages, or those of the last call: its tables were similar."""
        if self._last is not None and self._last[0] == n_batch:
            return self._last[1]
        return {
            (c, i): np.full((n_batch, self.sizes[i]), 1 / self.sizes[i])
            for c, clique in enumerate(self.cliques)
            for i in clique
        }

    def _variable_beliefs(self, messages, n_batch):
        logs = [np.zeros((n_batch, size)) for size in self.sizes]
        for (_, i), message in messages.items():
            logs[i] += np.log(np.maximum(message, _TINY))
        return [_normalise(np.exp(b - b.max(axis=1, keepdims=True))) for b in logs]

    def _incoming(self, c, messages, beliefs):
        """Messages from variables to clique c: beliefs without its own message."""
        return [
            _normalise(beliefs[i] / np.maximum(messages[c, i], _TINY))
            for i in self.cliques[c]
        ]

    def _bethe(self, tables, marginals, beliefs):
        """Bethe log-partition: expected log-potentials plus Bethe entropy."""
        degree = np.bincount(
            [i for clique in self.cliques for i in clique], minlength=len(self.sizes)
        )
        total = np.zeros(len(beliefs[0]) if beliefs else 1)
        for table, marginal in zip(tables, marginals):
            axes = tuple(range(1, marginal.ndim))
            ratio = np.log(np.maximum(table, _TINY)) - np.log(
                np.maximum(marginal, _TINY)
            )
            total += (marginal * ratio).sum(axis=axes)
        for i, belief in enumerate(beliefs):
            entropy = -(belief * np.log(np.maximum(belief, _TINY))).sum(axis=1)
            total += (1 - degree[i]) * entropy
        return total


def _times(table, incoming):
    product = table
    for axis, message in enumerate(incoming):
        shape = [len(message)] + [1] * len(incoming)
        shape[axis + 1] = -1
        product = product * message.reshape(shape)
    return product


def _normalise(table):
    axes = tuple(range(1, table.ndim))
    return table / np.maximum(table.sum(axis=axes, keepdims=True), _TINY)
