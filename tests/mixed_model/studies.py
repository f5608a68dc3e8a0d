"""Simulated studies: sizes, prevalences, variances, clusters and holders at random."""

import warnings

import numpy as np
from scipy.special import expit, log_expit, logsumexp, roots_hermite

from skprivbn.mixed_model import PrivateGLMMClassifier

__all__ = ["SCALES", "draw", "fit", "marginal", "without_effects"]

NODES, WEIGHTS = roots_hermite(25)
#: at which a better log-likelihood is looked for
SCALES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8, 1.0, 1.3, 1.6, 2.0, 2.5, 3.0, 4.0)


def draw(seed):
    """Return rows, classes, clusters and holders of a random study.

    Most have some hundreds or thousands of rows, every twentieth tens of thousands, and
    every hundredth 100,000.
    """
    rng = np.random.default_rng([19, seed])
    most = 20_000 if seed % 7 == 0 else 3_000
    if seed % 20 == 1:
        most = 100_000
    n_rows = int(np.exp(rng.uniform(np.log(200), np.log(most))))
    if seed % 100 == 1:
        n_rows = 100_000
    n_clusters = int(np.exp(rng.uniform(np.log(2), np.log(min(500, n_rows // 10)))))
    prevalence = np.exp(rng.uniform(np.log(0.005), np.log(0.5)))
    scale = rng.choice([0.0, 0.1, rng.uniform(0, 3)])
    cluster = rng.integers(n_clusters, size=n_rows)
    X = np.column_stack([rng.normal(size=n_rows), rng.normal(size=n_clusters)[cluster]])
    effects = scale * rng.normal(size=n_clusters)
    eta = X @ [0.5, 0.3] + effects[cluster] + np.log(prevalence / (1 - prevalence))
    y = (rng.random(n_rows) < expit(eta)).astype(int)
    y[:2] = [0, 1]
    kind = rng.choice(["mixed", "by cluster", "uneven"])
    party = rng.integers(4, size=n_rows)
    if kind == "by cluster":
        party = cluster % 4
    elif kind == "uneven":
        party = np.where(
            cluster % 3 == 0, 0, rng.choice(3, size=n_rows, p=[0.8, 0.1, 0.1])
        )
    return X, y, cluster, party


def fit(X, y, cluster, party):
    """Return the fitted model; all clusters are allowed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = PrivateGLMMClassifier(min_rows=1)
        return model.fit(X, y, cluster=cluster, party=party)


def marginal(scale, predictor, y, cluster):
    """Return the log-likelihood at a scale: adaptive quadrature on pooled rows."""
    _, cluster = np.unique(cluster, return_inverse=True)
    sign, n = 2.0 * y - 1, cluster.max() + 1
    u = np.zeros(n)
    for _ in range(30):
        p = expit(predictor + scale * u[cluster])
        slope = scale * np.bincount(cluster, y - p, n) - u
        bend = 1 + scale**2 * np.bincount(cluster, p * (1 - p), n)
        step = np.clip(slope / bend, -1, 1)
        u = u + step
        if np.abs(step).max() < 1e-6:
            break
    spread = np.sqrt(2 / bend)
    table = np.empty((n, len(NODES)))
    for q, (node, weight) in enumerate(zip(NODES, WEIGHTS)):
        at = u + spread * node
        rows = np.bincount(cluster, log_expit(sign * (predictor + scale * at[cluster])))
        table[:, q] = rows - at**2 / 2 + node**2 + np.log(weight)
    return (logsumexp(table, axis=1) + np.log(spread / np.sqrt(2 * np.pi))).sum()


def without_effects(X, y):
    """Return the log-likelihood of the logistic regression, by Newton's method."""
    Z = np.column_stack([np.ones(len(y)), X])
    beta, best = np.zeros(Z.shape[1]), -np.inf
    beta[0] = np.log(y.mean() / (1 - y.mean()))
    for _ in range(30):
        eta = Z @ beta
        best = max(best, log_expit((2.0 * y - 1) * eta).sum())
        p = expit(eta)
        information = (Z * (p * (1 - p))[:, None]).T @ Z + 1e-10 * np.eye(len(beta))
        step = np.linalg.solve(information, Z.T @ (y - p))
        beta = beta + step * min(1, 3 / np.abs(step).max())
        if np.abs(step).max() < 1e-8:
            break
    return best
