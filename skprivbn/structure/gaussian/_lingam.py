"""DirectLiNGAM from sums: an order of the columns from what is not normal in them.

Noise that is not normal tells directions, whatever the units and variances. The column
that depends least on what others leave of it comes first; then what it explains is
taken out of the others, and so on. Dependence is measured by entropies of single
columns, which need the means of two functions over all rows: sums.
"""

from collections.abc import Generator
from functools import partial
from typing import Any

import numpy as np
from sklearn.linear_model import lars_path_gram

from skprivbn.federation import Sum
from skprivbn.federation._rows import sum_over_rows
from skprivbn.federation.program import RowWeights
from skprivbn.structure._edge_rules import EdgeRules
from skprivbn.utils._linalg import correlation_of

# Constants of the maximum entropy approximation (Hyvarinen, 1998)
_K1, _K2, _GAMMA = 79.047, 7.4129, 0.37457
#: numbers that are worked on at a time
_CHUNK = 1 << 18


def causal_order(
    rows: Any, pooled: dict, before: np.ndarray
) -> Generator[Any, Any, np.ndarray]:
    """Find an order in which causes come first: a part of programs, one sum a column.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_features) or RowSource
        A party's own.
    pooled : dict
        `n_rows`, `mean` and `covariance` of the rows of all parties.
    before : ndarray of bool of shape (n_features, n_features)
        True at [i, j] where i has to come before j; without a circle.

    Returns
    -------
    order : ndarray of int of shape (n_features,)

    References
    ----------
    Shimizu et al. DirectLiNGAM: a direct method for learning a linear non-Gaussian
    structural equation model. JMLR 2011.

    Hyvarinen, Smith. Pairwise likelihood ratios for estimation of non-Gaussian
    structural equation models. JMLR 2013.
    """
    n_rows, mean, covariance = pooled["n_rows"][0], pooled["mean"], pooled["covariance"]
    order: list[int] = []
    left = list(range(len(mean)))
    # what is left of each column, as a combination of all of them
    mixing, covariance = np.eye(len(mean)), covariance.copy()
    while len(left) > 1:
        scale = np.sqrt(np.diag(covariance)[left])
        correlation = covariance[np.ix_(left, left)] / np.outer(scale, scale)
        functions = partial(_functions, mean, mixing[:, left] / scale, correlation)
        own, *weights = sum_over_rows(rows, partial(_add, functions))
        what = "sums of two functions of columns and residuals"
        total = yield Sum(own, what, RowWeights(*weights))
        means = (total / n_rows).reshape(2, len(left), len(left))
        first = left[_most_exogenous(means, before[np.ix_(left, left)].any(axis=0))]
        order.append(first)
        left.remove(first)
        effects = covariance[first] / covariance[first, first]
        effects[[first, *order]] = 0.0
        covariance -= np.outer(effects, covariance[first])
        mixing -= np.outer(mixing[:, first], effects)
    return np.array(order + left)


def _functions(mean, mixing, correlation, rows):
    """Return both functions of columns and of what is left of them, row by row.

    Of combinations of columns, which have variances of one and these correlations.
    Number (i, j) is of what column j leaves of column i, standardised; (i, i) of column
    i itself.
    """
    columns, d = (rows - mean) @ mixing, len(correlation)
    slopes = correlation - np.diag(np.diag(correlation))
    left = columns[:, :, np.newaxis] - columns[:, np.newaxis, :] * slopes
    left /= np.sqrt(np.maximum(1.0 - slopes**2, np.finfo(float).tiny))
    return shapes(left.reshape(len(rows), d * d))


def _add(functions, rows):
    """Return sums of functions, of their sizes and of their squares, in pieces."""
    size = max(_CHUNK // rows.shape[1] ** 2, 1)
    pieces = (functions(rows[k : k + size]) for k in range(0, max(len(rows), 1), size))
    return sum(
        np.stack([f.sum(axis=0), np.abs(f).sum(axis=0), np.einsum("ij,ij->j", f, f)])
        for f in pieces
    )


def shapes(Z: np.ndarray) -> np.ndarray:
    """Return both functions of each standardised column, row by row.

    Of rows far out they grow no faster than the rows themselves: a sum of fourth powers
    would be that of one outlier.

    Parameters
    ----------
    Z : ndarray of shape (n_rows, n_features)

    Returns
    -------
    functions : ndarray of shape (n_rows, 2 * n_features)
    """
    return np.hstack(_both(Z))


def _both(z):
    """Return log cosh, without overflow, and an odd function that outliers leave."""
    sizes = np.abs(z)
    log_cosh = sizes + np.log1p(np.exp(-2.0 * sizes)) - np.log(2.0)
    return log_cosh, z * np.exp(-0.5 * z**2)


def _most_exogenous(means, comes_later):
    """Return the column that is most likely no effect of another, if it may be."""
    entropy = -_negentropy(*means)
    # entropies of j and of what j leaves of i, against the other way round
    own, of_residuals = np.diag(entropy), entropy - np.diag(np.diag(entropy))
    gain = (own + of_residuals) - (own + of_residuals).T
    against = np.sum(np.minimum(gain, 0.0) ** 2, axis=1)
    return int(np.argmin(np.where(comes_later, np.inf, against)))


def _negentropy(log_cosh, odd):
    """Return how much entropy a standardised column lacks, from two means."""
    return _K1 * (log_cosh - _GAMMA) ** 2 + _K2 * odd**2


def graph_in_order(
    covariance: np.ndarray,
    n_rows: float,
    order: np.ndarray,
    rules: EdgeRules | None = None,
) -> np.ndarray:
    """Find each column's parents among those before it, by the adaptive lasso.

    Parameters
    ----------
    covariance : ndarray of shape (n_features, n_features)
    n_rows : float
    order : ndarray of int of shape (n_features,)
    rules : EdgeRules, default=None
        None allows every edge.

    Returns
    -------
    adjacency : ndarray of bool of shape (n_features, n_features)
        Entry (i, j) is an edge from i to j.
    """
    correlation = correlation_of(covariance)
    graph = np.zeros(covariance.shape, dtype=bool)
    for k in range(1, len(order)):
        before, target = order[:k], order[k]
        if rules is not None:
            before = before[rules.allowed[before, target]]
            graph[:, target] |= rules.required[:, target]
        if len(before):
            gram = correlation[np.ix_(before, before)]
            found = _adaptive_lasso(gram, correlation[before, target], n_rows)
            graph[before, target] |= found != 0
    return graph


def _adaptive_lasso(gram, products, n_rows):
    """Return coefficients on the lasso's path with the best BIC, from moments."""
    least_squares = np.linalg.lstsq(gram, products, rcond=None)[0]
    size = np.abs(least_squares)
    gram_scaled, products_scaled = gram * np.outer(size, size), products * size
    path = lars_path_gram(
        products_scaled * n_rows,
        gram_scaled * n_rows,
        n_samples=round(n_rows),
        method="lasso",
    )[2]
    path = path * size[:, None]
    explained = 2 * products @ path - np.einsum("ip,ij,jp->p", path, gram, path)
    residual = np.maximum(1.0 - explained, np.finfo(float).tiny)
    n_parents = np.count_nonzero(path, axis=0)
    least = 1.0 - products @ least_squares
    noise = max(least * n_rows / max(n_rows - len(gram) - 1, 1.0), 1e-12)
    bic = n_rows * residual / noise + np.log(n_rows) * n_parents
    return path[:, np.argmin(bic)]


def normality(total: np.ndarray, n_rows: float) -> np.ndarray:
    """Return the p values of a test that columns are normal.

    By the entropy that a column lacks, for its variance.

    Parameters
    ----------
    total : ndarray of shape (2 * n_features,)
        Sums of :func:`shapes` over the rows of all parties.
    n_rows : float

    Returns
    -------
    p_values : ndarray of shape (n_features,)

    References
    ----------
    Hyvarinen. New approximations of differential entropy for independent component
    analysis and projection pursuit. NIPS 1997.
    """
    # Twice the negentropy of all rows is chi-squared with two degrees of freedom: the
    # constants are one over twice the variances of both means.
    return np.exp(-n_rows * _negentropy(*np.split(total / n_rows, 2)))
