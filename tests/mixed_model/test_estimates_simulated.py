"""Three hundred simulated studies: nothing diverges, and nothing better is missed.

Sizes, prevalences, variances, numbers of clusters and spreads over parties are drawn
at random. The result is compared with the model without effects and with a dense grid
over the scale; ``benchmarks/bench_glmm.py --simulate`` compares a sample with lme4.
"""

import warnings

import numpy as np
import pytest
from scipy.special import log_expit, logsumexp, roots_hermite

from skprivbn.mixed_model import PrivateGLMMClassifier

U, WEIGHTS = roots_hermite(101)
LOG_PRIOR = np.log(WEIGHTS) - np.log(np.pi) / 2
U = np.sqrt(2) * U
N_STUDIES, N_CHUNKS = 300, 30


def draw(seed):
    """Return rows, classes, clusters and holders of a random study."""
    rng = np.random.default_rng([19, seed])
    n_rows = int(np.exp(rng.uniform(np.log(200), np.log(100_000))))
    n_clusters = int(np.exp(rng.uniform(np.log(2), np.log(min(500, n_rows // 10)))))
    prevalence = np.exp(rng.uniform(np.log(0.005), np.log(0.5)))
    scale = rng.choice([0.0, 0.1, rng.uniform(0, 3)])
    cluster = rng.integers(n_clusters, size=n_rows)
    X = np.column_stack([rng.normal(size=n_rows), rng.normal(size=n_clusters)[cluster]])
    effects = scale * rng.normal(size=n_clusters)
    eta = X @ [0.5, 0.3] + effects[cluster] + np.log(prevalence / (1 - prevalence))
    y = (rng.random(n_rows) < 1 / (1 + np.exp(-eta))).astype(int)
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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = PrivateGLMMClassifier(min_rows=1)
        return model.fit(X, y, cluster=cluster, party=party)


def marginal(scale, predictor, y, cluster):
    """Log-likelihood at a scale, with nodes that do not adapt."""
    sign, total = 2.0 * y - 1, 0.0
    order = np.argsort(cluster, kind="stable")
    bounds = np.flatnonzero(np.diff(cluster[order], prepend=-1))
    table = np.empty((len(bounds), len(U)))
    for q, u in enumerate(U):
        rows = log_expit(sign * (predictor + scale * u))[order]
        table[:, q] = np.add.reduceat(rows, bounds)
    total += logsumexp(table + LOG_PRIOR, axis=1).sum()
    return total


def assert_nothing_better(model, X, y, cluster):
    beta = model.coef_[0]
    # a rare class may be told apart by a feature of the clusters
    separated = np.isnan(model.coef_std_).any()
    assert separated or (np.abs(beta).max() < 20 and model.random_effect_scale_ < 20)
    predictor = X @ beta + model.intercept_
    # fixed nodes are good enough for small clusters only
    largest = np.bincount(cluster).max()
    if largest * y.mean() * (1 - y.mean()) < 20:
        for scale in (0.0, 0.1, 0.3, 0.6, 1.0, 1.5, 2.0, 3.0):
            other = marginal(scale, predictor, y, cluster)
            assert model.log_likelihood_ > other - 1e-3
    without = np.sum(log_expit((2.0 * y - 1) * predictor))
    assert model.log_likelihood_ > without - 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(N_CHUNKS))
def test_simulated_studies(chunk):
    for seed in range(chunk, N_STUDIES, N_CHUNKS):
        X, y, cluster, party = draw(seed)
        assert_nothing_better(fit(X, y, cluster, party), X, y, cluster)
