"""Clusters to start from: the order that they are put in."""

from itertools import permutations

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from skprivbn.mixture._seeding import Given, most_likely_order


def moments(kind, X, labels):
    """Return means and covariances of clusters, and the latter as matrices."""
    n_features, clusters = X.shape[1], [X[labels == k] for k in range(4)]
    full = np.array([np.cov(rows.T, bias=True) for rows in clusters])
    if kind == "full":
        covariances = matrices = full
    elif kind == "tied":
        covariances = np.average(full, axis=0, weights=np.bincount(labels))
        matrices = np.array([covariances] * 4)
    elif kind == "diag":
        covariances = full.diagonal(axis1=1, axis2=2)
        matrices = np.array([np.diag(row) for row in covariances])
    else:
        covariances = full.diagonal(axis1=1, axis2=2).mean(axis=1)
        matrices = np.array([value * np.eye(n_features) for value in covariances])
    return np.array([rows.mean(axis=0) for rows in clusters]), covariances, matrices


@pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical"])
@pytest.mark.parametrize("names", ["m", "w", "p", "mw", "mp", "wp"])
def test_clusters_take_the_most_likely_order(kind, names):
    rng = np.random.default_rng([len(kind), *names.encode()])
    labels = np.repeat(range(4), [30, 50, 70, 90])
    X = rng.normal(size=(240, 3)) * rng.uniform(0.5, 2, (4, 3))[labels]
    X += rng.normal(size=(4, 3))[labels]
    shares = np.bincount(labels) / 240
    means, covariances, matrices = moments(kind, X, labels)
    X_other = rng.normal(size=(240, 3)) * rng.uniform(0.5, 2, (4, 3))[labels]
    _, others, other_matrices = moments(kind, X_other, labels)
    full = kind in ("full", "tied")
    given = Given(
        means=rng.normal(size=(4, 3)) if "m" in names else None,
        weights=rng.dirichlet(np.ones(4)) if "w" in names else None,
        precisions=(np.linalg.inv(others) if full else 1 / others)
        if "p" in names
        else None,
    )

    def log_likelihood(order):
        total = 0.0
        for component, cluster in enumerate(order):
            mean, covariance = means[cluster], matrices[cluster]
            if "m" in names:
                mean = given.means[component]
            if "p" in names:
                covariance = other_matrices[component]
            rows = X[labels == cluster]
            total += multivariate_normal.logpdf(rows, mean, covariance).sum()
            if "w" in names:
                total += len(rows) * np.log(given.weights[component])
        return total

    found = most_likely_order(kind, shares, means, covariances, given)
    values = [log_likelihood(order) for order in permutations(range(4))]
    assert log_likelihood(found) == pytest.approx(max(values), rel=1e-12)
    if (kind, names) != ("tied", "p"):
        assert max(values) - np.sort(values)[-2] > 1e-6
