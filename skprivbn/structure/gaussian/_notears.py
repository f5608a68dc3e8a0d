"""NOTEARS and GOLEM: continuous structure learning from pooled rows and moments.

Measures of cycles are smooth functions that are zero exactly on acyclic weights. They
take the non-negative matrix ``M = W * W`` of a weighted adjacency matrix and return the
value with its gradient in `M`, so that linear, lagged and neural models share them.
"""

from __future__ import annotations

from math import inf, isfinite, log
from numbers import Integral, Real
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import expm, get_lapack_funcs, solve_triangular
from scipy.linalg.lapack import dgetrf, dgetri
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning

from skprivbn.bayesian_network import GaussianBayesianNetwork
from skprivbn.bayesian_network._dag import is_acyclic
from skprivbn.structure._learnt import (
    ContinuousNetworkMixin,
    refuse_constant,
    warn_if_standardised,
    warn_if_units_differ,
)
from skprivbn.utils import column_names, warn_user
from skprivbn.utils._linalg import single_threaded
from skprivbn.utils._sklearn import Interval, _fit_context
from skprivbn.utils._validation import validate_table

#: steps that curvature is read off
_MEMORY = 10


def trace_expm(squared):
    """NOTEARS' measure of cycles, ``trace(exp(M)) - d``.

    Parameters
    ----------
    squared : ndarray of shape (d, d)
        Non-negative matrix, usually the elementwise square of the weights.

    Returns
    -------
    value : float
        Zero exactly for acyclic matrices; counts closed walks otherwise. ``inf``
        where it cannot be represented.
    gradient : ndarray of shape (d, d)
        Derivative by the entries of `squared`.

    References
    ----------
    Zheng, Aragam, Ravikumar, Xing. DAGs with NO TEARS. NeurIPS 2018.
    """
    # closed walks grow as fast as the exponential of the largest column at most
    limit = min(500.0, 0.9 * log(np.finfo(squared.dtype).max))
    if not np.all(np.isfinite(squared)) or squared.sum(axis=0).max() > limit:
        return inf, np.zeros_like(squared)
    exponential = expm(squared)
    return float(np.trace(exponential) - len(squared)), exponential.T


def log_det(squared):
    """DAGMA's measure of cycles, ``-log det(I - M)``.

    Defined where the spectral radius of `squared` is below one; ``inf`` elsewhere.

    Parameters
    ----------
    squared : ndarray of shape (d, d)
        Non-negative matrix, usually the elementwise square of the weights.

    Returns
    -------
    value : float
        Zero exactly for acyclic matrices.
    gradient : ndarray of shape (d, d)
        Derivative by the entries of `squared`.

    References
    ----------
    Bello, Aragam, Ravikumar. DAGMA: learning DAGs via M-matrices. NeurIPS 2022.
    """
    d = len(squared)
    # a sum of non-negative numbers is finite if they are, and small enough to matter
    if not isfinite(squared.sum()):
        return inf, np.zeros_like(squared)
    matrix = -squared
    matrix.flat[:: d + 1] += 1.0
    factors, pivots, failed = dgetrf(matrix)
    if failed:
        return inf, np.zeros_like(squared)
    inverse, _ = dgetri(factors, pivots)
    # an M-matrix has a non-negative inverse, and only an M-matrix does
    if inverse.min() < -1e-12 * inverse.max():
        return inf, np.zeros_like(squared)
    return -float(np.log(np.abs(factors.diagonal())).sum()), inverse.T


ACYCLICITY = {"expm": trace_expm, "logdet": log_det}


def acyclic_weights(weights, threshold=0.3):
    """Drop weights below `threshold`, then the smallest ones until no cycle is left.

    Parameters
    ----------
    weights : ndarray of shape (d, d)
        ``weights[i, j]`` is the effect of variable i on variable j.
    threshold : float, default=0.3
        Weights of at most this size are set to zero.

    Returns
    -------
    ndarray of shape (d, d)
        Weights of an acyclic graph.
    """
    kept = np.where(np.abs(weights) > threshold, weights, 0.0)
    np.fill_diagonal(kept, 0.0)
    if is_acyclic(kept != 0):
        return kept
    # the number of edges to drop is found by bisection: dropping more keeps it acyclic
    rows, columns = np.nonzero(kept)
    order = np.argsort(np.abs(kept[rows, columns]), kind="stable")
    low, high = 0, len(order)
    while high - low > 1:
        middle = (low + high) // 2
        candidate = kept.copy()
        candidate[rows[order[:middle]], columns[order[:middle]]] = 0.0
        if is_acyclic(candidate != 0):
            high = middle
        else:
            low = middle
    kept[rows[order[:high]], columns[order[:high]]] = 0.0
    return kept


def minimise_l1(smooth, start, l1, *, free=None, max_iter=1000, tol=1e-9):
    """Minimise ``smooth(W) + sum(l1 |W|)``: L-BFGS within orthants (OWL-QN).

    A step stays where no entry changes its sign, so that the objective is smooth along
    it, and entries that would change theirs become exact zeros.

    Parameters
    ----------
    smooth : callable
        Returns value and gradient at an array shaped like `start`. The value may be
        infinite outside the domain.
    start : ndarray
        Initial point.
    l1 : float or ndarray
        Weight of the absolute values, broadcast against `start`.
    free : ndarray of bool, default=None
        Entries that may differ from zero.
    max_iter : int, default=1000
        Bound on the iterations of the optimiser.
    tol : float, default=1e-9
        Relative decrease of the objective at which it stops.

    Returns
    -------
    ndarray
        The minimiser, shaped like `start`.

    References
    ----------
    Andrew, Gao. Scalable training of L1-regularized log-linear models. ICML 2007.
    """
    free = np.ones(start.shape, dtype=bool) if free is None else free
    l1 = np.where(free, l1, 0.0).astype(start.dtype)

    def objective(W):
        value, gradient = smooth(W)
        return value + np.vdot(l1, np.abs(W)), np.where(free, gradient, 0.0)

    W = np.where(free, start, 0.0)
    value, gradient = objective(W)
    pairs = []
    for _ in range(max_iter):
        steepest = _steepest_ascent(W, gradient, l1)
        direction = _over_curvature(steepest, pairs)
        # where curvature would have an entry leave uphill, it stays
        direction[direction * steepest <= 0] = 0.0
        orthant = np.where(W == 0, -np.sign(steepest), np.sign(W))
        length = 1.0
        while length > 1e-12:
            tried = W - length * direction
            tried[tried * orthant <= 0] = 0.0
            new, new_gradient = objective(tried)
            if new <= value + 1e-4 * np.vdot(steepest, tried - W):
                break
            length *= 0.5
        else:
            break
        moved, change = tried - W, new_gradient - gradient
        product = np.vdot(moved, change)
        if product > 1e-12 * np.vdot(change, change):
            pairs = [*pairs, (moved, change, product)][-_MEMORY:]
        decrease, scale = value - new, max(abs(value), abs(new), 1.0)
        W, value, gradient = tried, new, new_gradient
        if decrease <= tol * scale:
            break
    return W


def _steepest_ascent(W, gradient, l1):
    """Gradient of the objective, or at zeros that of the side on which it falls."""
    at_zero = np.sign(gradient) * np.maximum(np.abs(gradient) - l1, 0.0)
    return np.where(W == 0, at_zero, gradient + l1 * np.sign(W))


def _over_curvature(gradient, pairs):
    """Return the gradient times the inverse Hessian that the last steps suggest."""
    if not pairs:
        return gradient / max(1.0, np.linalg.norm(gradient))
    gradient, weights = gradient.copy(), []
    for moved, change, product in reversed(pairs):
        weights.append(np.vdot(moved, gradient) / product)
        gradient -= weights[-1] * change
    _, change, product = pairs[-1]
    gradient *= product / np.vdot(change, change)
    for (moved, change, product), weight in zip(pairs, reversed(weights)):
        gradient += (weight - np.vdot(change, gradient) / product) * moved
    return gradient


@single_threaded
def notears(
    covariance, *, lambda1=0.1, max_iter=100, h_tol=1e-8, rho_max=1e16, tol=1e-6
):
    """NOTEARS on a covariance: least squares, l1 penalty, no cycles.

    Augmented Lagrangian with the schedule of Zheng et al. (2018): the penalty grows
    tenfold whenever `h` did not fall to a quarter.

    Parameters
    ----------
    covariance : ndarray of shape (d, d)
        Second moments of centred variables.
    lambda1 : float, default=0.1
        Weight of the absolute values.
    max_iter : int, default=100
        Bound on the number of dual updates.
    h_tol : float, default=1e-8
        Value of `h` that counts as acyclic.
    rho_max : float, default=1e16
        Bound on the penalty.
    tol : float, default=1e-6
        Relative decrease at which each subproblem counts as solved.

    Returns
    -------
    weights : ndarray of shape (d, d)
        ``weights[i, j]`` is the effect of variable i on variable j.
    h : float
        Measure of the cycles left.
    n_iter : int
        Number of dual updates.
    """
    d = len(covariance)
    free = ~np.eye(d, dtype=bool)
    weights, alpha, rho, h = np.zeros((d, d)), 0.0, 1.0, np.inf

    def smooth(W):
        residual = covariance @ (W - np.eye(d))
        h, slope = trace_expm(W * W)
        if not np.isfinite(h):
            return np.inf, np.zeros_like(W)
        loss = 0.5 * np.vdot(W - np.eye(d), residual)
        value = loss + 0.5 * rho * h * h + alpha * h
        return value, residual + (rho * h + alpha) * 2.0 * slope * W

    for n_iter in range(1, max_iter + 1):  # noqa: B007 -- returned
        while True:
            candidate = minimise_l1(smooth, weights, lambda1, free=free, tol=tol)
            new_h = trace_expm(candidate * candidate)[0]
            if new_h <= 0.25 * h or rho >= rho_max:
                break
            rho *= 10.0
        weights, h = candidate, new_h
        alpha += rho * h
        if h <= h_tol or rho >= rho_max:
            break
    return weights, h, n_iter


def golem(covariance, *, lambda1=0.02, lambda2=5.0, tol=1e-7, dtype=np.float64):
    """GOLEM: likelihood with soft sparsity and soft acyclicity, on a covariance.

    All variables share one noise variance.

    Parameters
    ----------
    covariance : ndarray of shape (d, d)
        Second moments of centred variables.
    lambda1 : float, default=0.02
        Weight of the absolute values.
    lambda2 : float, default=5.0
        Weight of the measure of cycles.
    tol : float, default=1e-7
        Relative decrease of the objective at which it stops.
    dtype : type, default=numpy.float64
        Of the computation.

    Returns
    -------
    weights : ndarray of shape (d, d)
        ``weights[i, j]`` is the effect of variable i on variable j.

    References
    ----------
    Ng, Ghassami, Zhang. On the role of sparsity and DAG constraints for learning
    linear DAGs. NeurIPS 2020.
    """
    d = len(covariance)
    covariance = covariance.astype(dtype)
    identity = np.eye(d, dtype=dtype)
    factorise, invert = get_lapack_funcs(("getrf", "getri"), dtype=dtype)

    def smooth(W):
        rest = identity - W
        factors, pivots, singular = factorise(rest)
        h, slope = trace_expm(W * W)
        if singular or not np.isfinite(h):
            return np.inf, np.zeros_like(W)
        log_determinant = np.log(np.abs(factors.diagonal())).sum()
        product = covariance @ rest
        total = np.vdot(rest, product)
        gradient = invert(factors, pivots)[0].T - (d / total) * product
        gradient += (2.0 * lambda2) * slope * W
        return 0.5 * d * np.log(total) - log_determinant + lambda2 * h, gradient

    start = np.zeros((d, d), dtype=dtype)
    return minimise_l1(smooth, start, lambda1, free=~np.eye(d, dtype=bool), tol=tol)


def top_down(covariance):
    """Weights in the order of the variables' conditional variances.

    With one noise variance for all, that variable comes next whose variance given
    those before it is the least. Found by a Cholesky factorisation that pivots.

    Parameters
    ----------
    covariance : ndarray of shape (d, d)

    Returns
    -------
    weights : ndarray of shape (d, d)
        Of the regressions on all variables that come before.

    References
    ----------
    Chen, Drton, Wang. On causal discovery with an equal-variance assumption.
    Biometrika 2019.
    """
    rest, d = np.array(covariance, dtype=float), len(covariance)
    scale = np.diag(rest).copy()
    left, order = np.arange(d), []
    for _ in range(d):
        place = int(np.diag(rest)[left].argmin())
        k = left[place]
        order.append(k)
        left = np.delete(left, place)
        if rest[k, k] > 1e-9 * scale[k]:
            rest -= np.outer(rest[:, k], rest[k] / rest[k, k])
    ridge = np.diag(1e-9 * scale[order])
    root = np.linalg.cholesky(covariance[np.ix_(order, order)] + ridge)
    residuals = np.diag(root)[:, None] * solve_triangular(root, np.eye(d), lower=True)
    weights = np.zeros((d, d))
    weights[np.ix_(order, order)] = -np.triu(residuals.T, 1)
    return weights


class Notears(ContinuousNetworkMixin, BaseEstimator):
    """Linear NOTEARS on pooled rows: the reference that federated learners approach.

    Read more in the :ref:`User Guide <structure_federated>`.

    Parameters
    ----------
    lambda1 : float, default=0.1
        Weight of the absolute values of the weights.
    threshold : float, default=0.3
        Weights of at most this size are no edge.
    max_iter : int, default=100
        Bound on the dual updates.
    h_tol : float, default=1e-8
        Measure of cycles that counts as none.

    Attributes
    ----------
    network_ : GaussianBayesianNetwork
        Weights, intercepts and noise variances by least squares on the graph.
    adjacency_matrix_ : ndarray of bool of shape (n_features, n_features)
        The graph; entry (i, j) is an edge from i to j.
    weights_ : ndarray of shape (n_features, n_features)
        Raw weights.
    h_ : float
        Measure of the cycles left in the raw weights.
    n_iter_ : int
        Number of dual updates.
    n_samples_ : int
        Number of rows.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Their names, if `X` has string names.

    See Also
    --------
    FederatedNotearsADMM : The same over parties.

    References
    ----------
    .. [1] Zheng, Aragam, Ravikumar, Xing. DAGs with NO TEARS: continuous optimization
       for structure learning. NeurIPS 2018.

    Examples
    --------
    >>> from skprivbn.datasets import make_linear_sem
    >>> from skprivbn.structure import Notears
    >>> X, weights = make_linear_sem(500, 4, random_state=0)
    >>> model = Notears().fit(X)
    >>> bool((model.adjacency_matrix_ == (weights != 0)).all())
    True
    """

    _parameter_constraints = {
        "lambda1": [Interval(Real, 0, None, closed="left")],
        "threshold": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "h_tol": [Interval(Real, 0, None, closed="left")],
    }

    def __init__(
        self,
        lambda1: float = 0.1,
        *,
        threshold: float = 0.3,
        max_iter: int = 100,
        h_tol: float = 1e-8,
    ) -> None:
        self.lambda1 = lambda1
        self.threshold = threshold
        self.max_iter = max_iter
        self.h_tol = h_tol

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Learn the network.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        y : Ignored
            Not used, present for API consistency by convention.

        Returns
        -------
        self : object
            Fitted estimator.
        """
        X = validate_table(self, X, **self._row_checks, **self._fit_checks)
        self.n_samples_ = len(X)
        mean = X.mean(axis=0)
        covariance = (X - mean).T @ (X - mean) / len(X)
        refuse_constant(column_names(self), mean, np.diag(covariance), "in these rows")
        warn_if_standardised(np.diag(covariance))
        self.weights_, self.h_, self.n_iter_ = notears(
            covariance, lambda1=self.lambda1, max_iter=self.max_iter, h_tol=self.h_tol
        )
        if self.h_ > max(self.h_tol, 1e-6):
            warn_user(
                f"the graph still has cycles: their measure is {self.h_:.2g}, above "
                f"h_tol={self.h_tol}; increase max_iter",
                ConvergenceWarning,
            )
        kept = acyclic_weights(self.weights_, self.threshold)
        self.adjacency_matrix_ = kept != 0
        self.network_ = GaussianBayesianNetwork.fit_from_moments(
            mean, covariance, kept, nodes=column_names(self)
        )
        warn_if_units_differ(self.network_, len(X), "NOTEARS")
        return self
