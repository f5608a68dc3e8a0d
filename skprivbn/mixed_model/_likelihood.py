"""Sums over rows that a model with one random effect per cluster is fitted from.

The predictor is eta = offset + x beta + sigma z u, with u ~ N(0, 1) for each category:
the scale of the effects is a coefficient, that of z u, so that its derivatives have the
same form as those of the fixed effects. Parameters are one vector, (beta, sigma). What
is known of a category's effect is a :class:`Posterior`: nodes and their weights.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csr_array

from skprivbn.mixed_model._families import Family

# Rows times nodes that are held in memory at once.
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Posterior:
    """A discrete distribution of every category's effect u.

    Parameters
    ----------
    nodes, weights : ndarray of shape (n_categories, n_nodes)
        Weights of a category sum to one.
    """

    nodes: np.ndarray
    weights: np.ndarray

    def mean(self):
        """Return the mean of every category's u."""
        return np.einsum("tq,tq->t", self.weights, self.nodes)

    def variance(self):
        """Return the variance of every category's u."""
        away = self.nodes - self.mean()[:, None]
        return np.einsum("tq,tq->t", self.weights, away**2)


@dataclass(frozen=True)
class Rows:
    """Rows of one holder.

    Parameters
    ----------
    family : Family
    X : ndarray of shape (n_rows, n_fixed)
        Columns of the fixed effects.
    Z : ndarray of shape (n_rows, n_effects)
        Columns of the random effects.
    events, trials : ndarray of shape (n_rows,)
        What was seen, in how many trials or over which exposure.
    offset : ndarray of shape (n_rows,)
    category : ndarray of int of shape (n_rows,)
        Number of each row's category.
    n_categories : int
    """

    family: Family
    X: np.ndarray
    Z: np.ndarray
    events: np.ndarray
    trials: np.ndarray
    offset: np.ndarray
    category: np.ndarray
    n_categories: int

    def __len__(self):
        return len(self.events)

    def take(self, chosen):
        """Return a choice of the rows."""
        names = ("X", "Z", "events", "trials", "offset", "category")
        return replace(self, **{name: getattr(self, name)[chosen] for name in names})

    def chunks(self, n_nodes):
        """Yield the rows in pieces that are small with `n_nodes` values per row."""
        size = max(_CHUNK // max(n_nodes, 1), 1)
        for start in range(0, len(self), size):
            yield self.take(slice(start, start + size))

    def predictor(self, parameters, nodes):
        """Return the predictor of each row at each node of its category."""
        fixed = self.offset + self.X @ parameters[: self.X.shape[1]]
        return fixed[:, None] + parameters[-1] * self.Z[:, :1] * nodes[self.category]

    def log_likelihood(self, eta):
        """Return the log-likelihood of each row at its predictors.

        Less the greatest that it can be: of large counts little else is left over.
        """
        events, trials = self.events[:, None], self.trials[:, None]
        best = self.family.saturated(events, trials)
        return self.family.log_likelihood(events, trials, eta) - best

    def derivatives(self, eta):
        """Return derivatives of each row's log-likelihood by its predictors."""
        return self.family.derivatives(self.events[:, None], self.trials[:, None], eta)

    def sum_by_category(self, values):
        """Add the values of each category's rows."""
        n_rows = len(self)
        membership = csr_array(
            (np.ones(n_rows), self.category, np.arange(n_rows + 1)),
            shape=(n_rows, self.n_categories),
        )
        return membership.T @ values


def log_likelihood_table(rows, parameters, nodes):
    """Return the log-likelihood of each category's rows at each of its nodes.

    Parameters
    ----------
    rows : Rows
    parameters : ndarray of shape (n_fixed + 1,)
    nodes : ndarray of shape (n_categories, n_nodes)

    Returns
    -------
    table : ndarray of shape (n_categories, n_nodes)
    """
    table = np.zeros(nodes.shape)
    for piece in rows.chunks(nodes.shape[1]):
        values = piece.log_likelihood(piece.predictor(parameters, nodes))
        table += piece.sum_by_category(values)
    return table


def derivatives(rows, parameters, posterior):
    """Return expected gradient and negative Hessian of the log-likelihood given u.

    By Fisher's identity the gradient is that of the marginal log-likelihood.

    Parameters
    ----------
    rows : Rows
    parameters : ndarray of shape (n_fixed + 1,)
    posterior : Posterior

    Returns
    -------
    gradient : ndarray of shape (n_fixed + 1,)
    information : ndarray of shape (n_fixed + 1, n_fixed + 1)
    """
    size = len(parameters)
    gradient, information = np.zeros(size), np.zeros((size, size))
    for piece in rows.chunks(posterior.nodes.shape[1]):
        effects = piece.Z[:, :1] * posterior.nodes[piece.category]
        weights = posterior.weights[piece.category]
        by_eta = piece.derivatives(piece.predictor(parameters, posterior.nodes))
        residual = weights * by_eta.first
        gradient[:-1] += piece.X.T @ residual.sum(axis=1)
        gradient[-1] += np.vdot(residual, effects)
        spread = weights * by_eta.weight
        information[:-1, :-1] += (piece.X * spread.sum(axis=1)[:, None]).T @ piece.X
        spread = spread * effects
        information[:-1, -1] += piece.X.T @ spread.sum(axis=1)
        information[-1, -1] += np.vdot(spread, effects)
    information[-1, :-1] = information[:-1, -1]
    return gradient, information


def working_weights(rows, eta):
    """Return how much each row counts in sums of products at its predictor.

    Parameters
    ----------
    rows : Rows
    eta : ndarray of shape (n_rows,)

    Returns
    -------
    weights : ndarray of shape (n_rows,)
    """
    return np.abs(rows.derivatives(eta[:, None]).weight[:, 0])


def score_table(rows, parameters, nodes):
    """Return the gradient of each category at each node, by beta and by z's effect.

    Parameters
    ----------
    rows : Rows
    parameters : ndarray of shape (n_fixed + 1,)
    nodes : ndarray of shape (n_categories, n_nodes)

    Returns
    -------
    scores : ndarray of shape (n_categories, n_nodes, n_fixed + 1)
    """
    scores = np.zeros((*nodes.shape, rows.X.shape[1] + 1))
    for piece in rows.chunks(nodes.shape[1]):
        residual = piece.derivatives(piece.predictor(parameters, nodes)).first
        columns = np.column_stack([piece.X, piece.Z[:, :1]])
        for j, column in enumerate(columns.T):
            scores[:, :, j] += piece.sum_by_category(residual * column[:, None])
    return scores


def expansion_table(rows, parameters, centre):
    """Return derivatives of each category by its effect, around `centre`.

    Parameters
    ----------
    rows : Rows
    parameters : ndarray of shape (n_fixed + 1,)
    centre : ndarray of shape (n_categories,)
        Values of u.

    Returns
    -------
    table : ndarray of shape (n_categories, 2 + n_fixed)
        First and minus second derivative by sigma u, and weighted products of z and
        the fixed effects' columns.
    """
    by_eta = rows.derivatives(rows.predictor(parameters, centre[:, None]))
    z = rows.Z[:, :1]
    columns = [by_eta.first * z, by_eta.weight * z**2, by_eta.weight * z * rows.X]
    return rows.sum_by_category(np.concatenate(columns, axis=1))


def missing_information(own, total, posterior):
    """Return one holder's share of the information lost for not seeing the effects.

    Louis' formula: the covariance of the scores under the posterior. It is bilinear,
    so that the holder's own scores times everybody's add up to it over holders.

    Parameters
    ----------
    own, total : ndarray of shape (n_categories, n_nodes, n_fixed + 1)
        Scores of the holder's rows, and of all rows of the categories.
    posterior : Posterior

    Returns
    -------
    missing : ndarray of shape (n_fixed + 1, n_fixed + 1)
    """
    own, total = (
        # the derivative by sigma is u times that by z's effect
        np.concatenate([s[..., :-1], posterior.nodes[:, :, None] * s[..., -1:]], axis=2)
        for s in (own, total)
    )
    mean = np.einsum("tq,tqj->tj", posterior.weights, total)
    weighted = posterior.weights[:, :, None] * own
    return np.tensordot(weighted, total - mean[:, None, :], axes=([0, 1], [0, 1]))
