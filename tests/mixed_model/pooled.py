"""A logistic mixed model on pooled rows, written independently and slowly.

Effects are integrated by the trapezoid rule on a fine grid; scipy climbs the marginal
likelihood by numerical derivatives.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_expit, logsumexp
from scipy.stats import norm

U = np.linspace(-8, 8, 161)


@dataclass
class Study:
    """Rows of a simulated study, with what they were drawn from."""

    X: np.ndarray
    y: np.ndarray
    cluster: np.ndarray
    party: np.ndarray

    @property
    def arguments(self):
        return {"cluster": self.cluster, "party": self.party}


def simulate(
    n_rows=600, n_clusters=15, n_parties=4, sigma=0.8, level_two=False, seed=0
):
    """Draw rows, centres and holders; `level_two` adds a feature of centres."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 3)) * [1.0, 1.0, 20.0] + [0.0, 0.0, 100.0]
    cluster = rng.integers(n_clusters, size=n_rows)
    if level_two:
        X[:, 1] = rng.normal(size=n_clusters)[cluster]
    effects = sigma * rng.normal(size=n_clusters)
    log_odds = X @ [0.8, -0.5, 0.02] - 2.5 + effects[cluster]
    y = (rng.random(n_rows) < 1 / (1 + np.exp(-log_odds))).astype(int)
    return Study(X, y, cluster, rng.integers(n_parties, size=n_rows))


def log_likelihood(parameters, X, y, cluster):
    """Return the marginal log-likelihood at (intercept, coefficients, sigma)."""
    *fixed, sigma = parameters
    signs = 2.0 * y - 1
    predictor = fixed[0] + X @ fixed[1:]
    rows = log_expit(signs[:, None] * (predictor[:, None] + sigma * U))
    total = 0.0
    for label in np.unique(cluster):
        joint = rows[cluster == label].sum(axis=0) + norm.logpdf(U)
        total += logsumexp(joint) + np.log(U[1] - U[0])
    return total


def fit(X, y, cluster):
    """Return parameters, standard errors and log-likelihood at the maximum."""
    mean, scale = X.mean(axis=0), X.std(axis=0)
    Z = (X - mean) / scale

    def loss(parameters):
        return -log_likelihood(parameters, Z, y, cluster)

    start = np.append(np.zeros(X.shape[1] + 1), 0.7)
    found = minimize(loss, start, method="BFGS", options={"gtol": 1e-4})
    hessian = numerical_hessian(loss, found.x)
    back = np.diag(np.concatenate([[1.0], 1 / scale, [1.0]]))
    back[0, 1:-1] = -mean / scale
    covariance = back @ np.linalg.inv(hessian) @ back.T
    parameters = back @ found.x
    parameters[-1] = abs(parameters[-1])
    return parameters, np.sqrt(np.diag(covariance)), -found.fun


def numerical_hessian(function, x, h=1e-3):
    """Return the second derivatives by central differences."""
    steps = h * np.eye(len(x))
    return np.array(
        [
            [
                (
                    function(x + a + b)
                    - function(x + a - b)
                    - function(x - a + b)
                    + function(x - a - b)
                )
                / (4 * h * h)
                for b in steps
            ]
            for a in steps
        ]
    )


def posterior_moments(parameters, X, y, cluster):
    """Return mean and standard deviation of every cluster's effect."""
    *fixed, sigma = parameters
    signs = 2.0 * y - 1
    predictor = fixed[0] + X @ fixed[1:]
    moments = []
    for label in np.unique(cluster):
        mine = cluster == label
        log_odds = predictor[mine, None] + sigma * U
        joint = log_expit(signs[mine, None] * log_odds).sum(axis=0) + norm.logpdf(U)
        weights = np.exp(joint - logsumexp(joint))
        mean = weights @ U
        moments.append((sigma * mean, sigma * np.sqrt(weights @ (U - mean) ** 2)))
    return np.array(moments).T
