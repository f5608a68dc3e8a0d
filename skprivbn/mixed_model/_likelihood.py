"""Sums over rows that a logistic model with random effects is fitted from.

The model is logit P(y = 1) = x beta + sigma u, with u ~ N(0, 1) for each category:
the scale of the effects is the coefficient of u, so that its derivatives have the same
form as those of the fixed effects. Parameters are one vector, (beta, sigma). What is
known of a category's effect is a :class:`Posterior`: nodes and their weights.
"""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array
from scipy.special import expit

__all__ = [
    "Posterior",
    "Rows",
    "derivatives",
    "log_likelihood_table",
    "missing_information",
    "score_table",
    "symmetric",
    "upper",
]

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
    X : ndarray of shape (n_rows, n_fixed)
        Fixed effects, with a column of ones.
    y : ndarray of shape (n_rows,)
        Zeros and ones.
    category : ndarray of int of shape (n_rows,)
        Number of each row's category.
    n_categories : int
    """

    X: np.ndarray
    y: np.ndarray
    category: np.ndarray
    n_categories: int

    def chunks(self, n_nodes):
        """Yield the rows in pieces that are small with `n_nodes` values per row."""
        size = max(_CHUNK // max(n_nodes, 1), 1)
        for start in range(0, len(self.y), size):
            piece = slice(start, start + size)
            yield Rows(
                self.X[piece], self.y[piece], self.category[piece], self.n_categories
            )

    def log_odds(self, parameters, nodes):
        """Return the log-odds of each row at each node of its category."""
        effects = parameters[-1] * nodes[self.category]
        return (self.X @ parameters[:-1])[:, None] + effects

    def sum_by_category(self, values):
        """Add the values of each category's rows."""
        n_rows = len(self.y)
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
        log_odds = piece.log_odds(parameters, nodes)
        values = piece.y[:, None] * log_odds - np.logaddexp(0, log_odds)
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
        nodes = posterior.nodes[piece.category]
        weights = posterior.weights[piece.category]
        p = expit(piece.log_odds(parameters, posterior.nodes))
        residual = weights * (piece.y[:, None] - p)
        gradient[:-1] += piece.X.T @ residual.sum(axis=1)
        gradient[-1] += np.vdot(residual, nodes)
        spread = weights * p * (1 - p)
        information[:-1, :-1] += (piece.X * spread.sum(axis=1)[:, None]).T @ piece.X
        spread *= nodes
        information[:-1, -1] += piece.X.T @ spread.sum(axis=1)
        information[-1, -1] += np.vdot(spread, nodes)
    information[-1, :-1] = information[:-1, -1]
    return gradient, information


def score_table(rows, parameters, nodes):
    """Return the gradient by the fixed effects of each category at each node.

    Parameters
    ----------
    rows : Rows
    parameters : ndarray of shape (n_fixed + 1,)
    nodes : ndarray of shape (n_categories, n_nodes)

    Returns
    -------
    scores : ndarray of shape (n_categories, n_nodes, n_fixed)
    """
    scores = np.zeros((*nodes.shape, rows.X.shape[1]))
    for piece in rows.chunks(nodes.shape[1]):
        residual = piece.y[:, None] - expit(piece.log_odds(parameters, nodes))
        for j, column in enumerate(piece.X.T):
            scores[:, :, j] += piece.sum_by_category(residual * column[:, None])
    return scores


def missing_information(own, total, posterior):
    """Return one holder's share of the information lost for not seeing the effects.

    Louis' formula: the covariance of the scores under the posterior. It is bilinear,
    so that the holder's own scores times everybody's add up to it over holders.

    Parameters
    ----------
    own, total : ndarray of shape (n_categories, n_nodes, n_fixed)
        Scores of the holder's rows, and of all rows of the categories.
    posterior : Posterior

    Returns
    -------
    missing : ndarray of shape (n_fixed + 1, n_fixed + 1)
    """
    own, total = (
        # the derivative by sigma is u times that by the intercept
        np.concatenate([s, posterior.nodes[:, :, None] * s[:, :, :1]], axis=2)
        for s in (own, total)
    )
    mean = np.einsum("tq,tqj->tj", posterior.weights, total)
    weighted = posterior.weights[:, :, None] * own
    return np.tensordot(weighted, total - mean[:, None, :], axes=([0, 1], [0, 1]))


def upper(matrix):
    """Return the upper triangle of a symmetric matrix as a vector."""
    return matrix[np.triu_indices(len(matrix))]


def symmetric(values, size):
    """Return the symmetric matrix with this upper triangle."""
    matrix = np.zeros((size, size))
    index = np.triu_indices(size)
    matrix[index] = matrix.T[index] = values
    return matrix
