"""A Bayesian network of linear regressions with Gaussian noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular
from sklearn.utils import check_array, check_random_state

from skprivbn.bayesian_network._base import BaseNetwork, check_names
from skprivbn.bayesian_network._dag import check_adjacency, check_dag
from skprivbn.bayesian_network._inference import evidence_groups
from skprivbn.bayesian_network._labels import check_columns
from skprivbn.utils._typing import RandomStateLike


@dataclass(frozen=True, eq=False, repr=False)
class GaussianBayesianNetwork(BaseNetwork):
    """A linear Gaussian Bayesian network: an immutable value.

    Every node is a linear function of its parents plus independent Gaussian noise,
    ``x_j = intercepts[j] + sum_i weights[i, j] x_i + noise_j``.

    Parameters
    ----------
    nodes : sequence of str
        Names of the variables, in the order of the columns of a table.

    weights : array-like of shape (n_nodes, n_nodes)
        ``weights[i, j]`` is the effect of node i on node j; zero means no edge.

    intercepts : array-like of shape (n_nodes,), default=None
        Means of the nodes when all their parents are zero. By default zero.

    variances : array-like of shape (n_nodes,), default=None
        Variances of the noise, above zero. By default one.

    See Also
    --------
    BayesianNetwork : The same for variables with finitely many states.

    Examples
    --------
    >>> from skprivbn.bayesian_network import GaussianBayesianNetwork
    >>> network = GaussianBayesianNetwork(["dose", "effect"], [[0, 2], [0, 0]])
    >>> network.covariance
    array([[1., 2.],
           [2., 5.]])
    >>> network.predict([[1.5, float("nan")]])
    array([[1.5, 3. ]])
    """

    nodes: Sequence[str]
    weights: np.ndarray
    intercepts: Any = None
    variances: Any = None

    def __post_init__(self):
        nodes = check_names(self.nodes)
        n_nodes = len(nodes)
        intercepts = np.zeros(n_nodes) if self.intercepts is None else self.intercepts
        variances = np.ones(n_nodes) if self.variances is None else self.variances
        weights = _check_numbers(self.weights, (n_nodes, n_nodes), "weights")
        variances = _check_numbers(variances, (n_nodes,), "variances")
        if (variances <= 0).any():
            node = nodes[int(variances.argmin())]
            raise ValueError(
                f"variances must be above zero, got {variances.min()} for {node!r}"
            )
        check_dag(weights, nodes)
        intercepts = _check_numbers(intercepts, (n_nodes,), "intercepts")
        self._set(
            nodes=nodes, weights=weights, intercepts=intercepts, variances=variances
        )

    @cached_property
    def adjacency_matrix(self):
        """Boolean (n_nodes, n_nodes) matrix, true at [i, j] for an edge i -> j."""
        adjacency = self.weights != 0
        adjacency.setflags(write=False)
        return adjacency

    @property
    def n_parameters(self) -> int:
        """Number of weights that are not zero, intercepts and variances."""
        return int(self.adjacency_matrix.sum()) + 2 * len(self.nodes)

    @cached_property
    def _total_effects(self):
        """Effect of each node's noise on each node: the inverse of I - weights."""
        order = list(self.topological_order)
        square = np.ix_(order, order)
        identity = np.eye(len(order))
        # In topological order I - weights is upper triangular, so that the inverse
        # is exact substitution.
        effects = np.empty_like(identity)
        effects[square] = solve_triangular(
            identity - self.weights[square], identity, unit_diagonal=True
        )
        return effects

    @cached_property
    def mean(self):
        """Mean of the joint distribution, shape (n_nodes,)."""
        mean = self.intercepts @ self._total_effects
        mean.setflags(write=False)
        return mean

    @cached_property
    def covariance(self):
        """Covariance of the joint distribution, shape (n_nodes, n_nodes)."""
        scaled = self._total_effects * np.sqrt(self.variances)[:, np.newaxis]
        covariance = scaled.T @ scaled
        covariance.setflags(write=False)
        return covariance

    def _check_X(self, X):
        # Nested lists may hold None, which float() refuses and NumPy turns into NaN.
        X = check_columns(X, self.nodes)
        return check_array(
            X, dtype=np.float64, ensure_all_finite="allow-nan", ensure_min_samples=0
        )

    def log_likelihood(self, X: ArrayLike) -> np.ndarray:
        """Return the log-density of each row.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_nodes)
            Missing entries (NaN) are integrated out.

        Returns
        -------
        log_likelihood : ndarray of shape (n_samples,)
        """
        X = self._check_X(X)
        log_likelihood = np.zeros(len(X))
        for hidden, rows in evidence_groups(np.where(np.isnan(X), -1, 0)):
            if not hidden:
                noise = X[rows] - X[rows] @ self.weights - self.intercepts
                densities = normal_log_density(noise, self.variances)
                log_likelihood[rows] = densities.sum(axis=1)
                continue
            seen = [i for i in range(len(self.nodes)) if i not in hidden]
            log_likelihood[rows] = gaussian_log_density(
                X[np.ix_(rows, seen)],
                self.mean[seen],
                self.covariance[np.ix_(seen, seen)],
            )
        return log_likelihood

    def given_parents(self, X: np.ndarray) -> np.ndarray:
        """Return the mean of every node given its parents.

        Parameters
        ----------
        X : ndarray of shape (n_samples, n_nodes)
            Complete rows.

        Returns
        -------
        means : ndarray of shape (n_samples, n_nodes)
        """
        return X @ self.weights + self.intercepts

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Return X with every missing entry replaced by its conditional mean.

        For a Gaussian, the mean of each entry given the observed ones of its row is
        also the most probable completion of the row.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_nodes)
            NaN where missing.

        Returns
        -------
        X_completed : ndarray of shape (n_samples, n_nodes)
        """
        X = self._check_X(X).copy()
        for hidden, rows in evidence_groups(np.where(np.isnan(X), -1, 0)):
            asked = sorted(hidden)
            seen = [i for i in range(len(self.nodes)) if i not in hidden]
            mean, _ = self._condition(asked, seen, X[np.ix_(rows, seen)])
            X[np.ix_(rows, asked)] = mean
        return X

    def query(
        self, nodes: str | Sequence[str], evidence: Mapping[str, float] | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean and covariance of some nodes, given the values of others.

        Parameters
        ----------
        nodes : str or sequence of str
            Whose distribution to return.

        evidence : mapping of str to float, default=None
            Observed values.

        Returns
        -------
        mean : ndarray of shape (n_asked,)

        covariance : ndarray of shape (n_asked, n_asked)
        """
        names = [nodes] if isinstance(nodes, str) else list(nodes)
        evidence = {} if evidence is None else dict(evidence)
        asked, seen = self._indices(names), self._indices(evidence)
        if len({*asked, *seen}) != len(asked) + len(seen):
            raise ValueError(
                f"every node can be asked for or observed once, got {names} given "
                f"{list(evidence)}"
            )
        values = _check_numbers(list(evidence.values()), (len(seen),), "evidence")
        mean, covariance = self._condition(asked, seen, values[np.newaxis])
        return mean[0], covariance

    def _condition(self, asked, seen, values):
        """Return the conditional means, one row per row of values, and covariance."""
        covariance = self.covariance[np.ix_(asked, asked)]
        if not seen:
            mean = np.broadcast_to(self.mean[asked], (len(values), len(asked)))
            return mean.copy(), covariance.copy()
        factor = np.linalg.cholesky(self.covariance[np.ix_(seen, seen)])
        cross = solve_triangular(
            factor, self.covariance[np.ix_(seen, asked)], lower=True
        )
        surprise = solve_triangular(factor, (values - self.mean[seen]).T, lower=True)
        return self.mean[asked] + surprise.T @ cross, covariance - cross.T @ cross

    def sample(
        self, n_samples: int = 1, random_state: RandomStateLike = None
    ) -> np.ndarray:
        """Draw rows.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows.

        random_state : int, RandomState instance or None, default=None
            Pass an int for reproducible rows.

        Returns
        -------
        X : ndarray of shape (n_samples, n_nodes)
        """
        rng = check_random_state(random_state)
        noise = rng.standard_normal((n_samples, len(self.nodes)))
        noise *= np.sqrt(self.variances)
        return (self.intercepts + noise) @ self._total_effects

    @classmethod
    def fit_from_moments(
        cls,
        mean: ArrayLike,
        covariance: ArrayLike,
        adjacency: ArrayLike,
        *,
        nodes: Sequence[str] | None = None,
    ) -> Self:
        """Estimate the parameters of a known structure from a mean and covariance.

        Every node is regressed on its parents by least squares, which is maximum
        likelihood when the moments are those of a sample (divided by n).

        Parameters
        ----------
        mean : array-like of shape (n_nodes,)
            Means of the nodes.

        covariance : array-like of shape (n_nodes, n_nodes)
            Their covariance.

        adjacency : array-like of shape (n_nodes, n_nodes)
            Non-zero at [i, j] for an edge i -> j.

        nodes : sequence of str, default=None
            Names of the nodes, by default x0, x1, ...

        Returns
        -------
        network : GaussianBayesianNetwork
        """
        adjacency = check_adjacency(adjacency)
        n_nodes = len(adjacency)
        nodes = check_names(nodes or [f"x{j}" for j in range(n_nodes)])
        check_dag(adjacency, nodes)
        mean = _check_numbers(mean, (n_nodes,), "mean")
        covariance = _check_numbers(covariance, (n_nodes, n_nodes), "covariance")
        if (np.diag(covariance) <= 0).any():
            node = nodes[int(np.diag(covariance).argmin())]
            raise ValueError(f"node {node!r} is constant: it has no variance")
        weights, variances = regress_on_parents(covariance, adjacency)
        return cls(nodes, weights, mean - mean @ weights, variances)

    def _node_attributes(self, node):
        j = self.nodes.index(node)
        return {
            "intercept": float(self.intercepts[j]),
            "variance": float(self.variances[j]),
        }

    def _edge_attributes(self, parent, child):
        i, j = self._indices([parent, child])
        return {"weight": float(self.weights[i, j])}

    def _describe(self, node):
        j = self.nodes.index(node)
        terms = [f"{self.intercepts[j]:.3g}"]
        terms += [
            f"{self.weights[i, j]:+.3g} {self.nodes[i]}"
            for i in np.flatnonzero(self.weights[:, j])
        ]
        return f"{' '.join(terms)}, variance {self.variances[j]:.3g}"


def regress_on_parents(covariance, adjacency):
    """Return least-squares weights and noise variances from a covariance matrix.

    Parameters
    ----------
    covariance : ndarray of shape (n_nodes, n_nodes)
    adjacency : ndarray of bool, shape (n_nodes, n_nodes)

    Returns
    -------
    weights : ndarray of shape (n_nodes, n_nodes)
    variances : ndarray of shape (n_nodes,)
        At least 1e-12 of a node's own variance, so that a node that is an exact
        function of its parents still has a density.
    """
    weights = np.zeros_like(covariance)
    for j in range(len(covariance)):
        parents = np.flatnonzero(adjacency[:, j])
        # Parents may be collinear; lstsq then takes the smallest weights.
        weights[parents, j] = np.linalg.lstsq(
            covariance[np.ix_(parents, parents)], covariance[parents, j], rcond=None
        )[0]
    residual = np.eye(len(covariance)) - weights
    variances = np.einsum("ij,ik,kj->j", residual, covariance, residual)
    return weights, np.maximum(variances, 1e-12 * np.diag(covariance))


def normal_log_density(deviations, variances):
    """Return the log-density of normal numbers, each with its own variance."""
    return -0.5 * (deviations**2 / variances + np.log(2 * np.pi * variances))


def gaussian_log_density(X, mean, covariance):
    """Return the log-density of each row under a multivariate Gaussian."""
    factor = np.linalg.cholesky(covariance)
    standard = solve_triangular(factor, (X - mean).T, lower=True)
    log_determinant = 2 * np.log(np.diag(factor)).sum()
    return -0.5 * (
        (standard**2).sum(axis=0) + log_determinant + len(mean) * np.log(2 * np.pi)
    )


def _check_numbers(values, shape, name):
    values = np.array(values, dtype=np.float64)
    if values.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {values.shape}")
    if not np.isfinite(values).all():
        raise ValueError(f"{name} must be finite")
    values.setflags(write=False)
    return values
