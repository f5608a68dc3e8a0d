"""Ordinary data on which the first optimiser diverged: nothing explodes any more."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import norm, poisson

from skprivbn.mixed_model import (
    PrivateGLMMClassifier,
    PrivateGLMMRegressor,
)
from tests.mixed_model import studies
from tests.mixed_model.pooled import log_likelihood


def three_hospitals(n_rows, seed):
    """Age, number of stays, ward and death; clusters differ little."""
    rng = np.random.default_rng([seed, n_rows])
    age = np.round(rng.normal(63, 14, n_rows).clip(18, 99), 1)
    stays = rng.poisson(2, n_rows) + 1.0
    ward = rng.choice(["surgery", "medicine"], n_rows, p=[0.4, 0.6])
    log_odds = -4 + 0.05 * age + 0.3 * (ward == "surgery") - 0.1 * stays
    y = (rng.random(n_rows) < 1 / (1 + np.exp(-log_odds))).astype(int)
    party = rng.choice(["north", "south", "west"], n_rows, p=[0.746, 0.224, 0.03])
    cluster = np.array([f"{w}{i % 20}" for i, w in enumerate(ward)])
    return np.column_stack([age, stays]), y, cluster, party


def no_variance(n_rows, n_clusters, seed):
    """Clusters that do not differ at all."""
    rng = np.random.default_rng([seed, n_rows, n_clusters])
    X = rng.normal(size=(n_rows, 2))
    y = (rng.random(n_rows) < 1 / (1 + np.exp(1 - X @ [0.5, -0.5]))).astype(int)
    return X, y, rng.integers(n_clusters, size=n_rows), rng.integers(3, size=n_rows)


def without_effects(X, y):
    """Return the log-likelihood of the logistic regression, and its parameters."""
    Z = np.column_stack([np.ones(len(y)), (X - X.mean(axis=0)) / X.std(axis=0)])

    def loss(beta):
        eta = Z @ beta
        p = 1 / (1 + np.exp(-eta))
        return np.logaddexp(0, eta).sum() - y @ eta, Z.T @ (p - y)

    found = minimize(loss, np.zeros(Z.shape[1]), jac=True, method="BFGS")
    return -found.fun


def assert_at_the_top(X, y, cluster, party):
    """Nothing diverges, and no scale on a grid is better at the coefficients found."""
    model = PrivateGLMMClassifier(min_rows=2).fit(X, y, cluster=cluster, party=party)
    beta = np.append(model.intercept_, model.coef_)
    assert np.all(np.abs(beta) < 20) and model.random_effect_scale_ < 3
    assert model.log_likelihood_ > without_effects(X, y) - 1e-4
    for scale in (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, model.random_effect_scale_):
        other = log_likelihood(np.append(beta, scale), X, y, cluster)
        assert model.log_likelihood_ > other - 1e-4
    return model


@pytest.mark.filterwarnings("ignore::skprivbn.exceptions.PrivacyLeakWarning")
@pytest.mark.parametrize("n_rows, seed", [(10000, 2), (10000, 3)])
def test_what_exploded_does_not(n_rows, seed):
    model = assert_at_the_top(*three_hospitals(n_rows, seed))
    assert 0.05 < model.random_effect_scale_ < 0.3
    assert model.n_iter_ < 20


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::skprivbn.exceptions.PrivacyLeakWarning")
@pytest.mark.parametrize("n_rows", [1000, 3000, 10000, 20000])
def test_three_hospitals(n_rows):
    for seed in range(8):
        assert_at_the_top(*three_hospitals(n_rows, seed))


@pytest.mark.filterwarnings("ignore::skprivbn.exceptions.PrivacyLeakWarning")
@pytest.mark.parametrize("n_clusters", [4, 20])
def test_clusters_that_do_not_differ_at_all(n_clusters):
    scales = []
    for seed in range(3):
        model = assert_at_the_top(*no_variance(400, n_clusters, seed))
        scales.append(model.random_effect_scale_)
    assert min(scales) < 1e-3, "zero is an answer"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::skprivbn.exceptions.PrivacyLeakWarning")
@pytest.mark.parametrize("n_rows", [300, 1000, 5000])
@pytest.mark.parametrize("n_clusters", [3, 10, 30])
def test_zero_variance(n_rows, n_clusters):
    for seed in range(4):
        assert_at_the_top(*no_variance(n_rows, n_clusters, seed))


def poisson_likelihood(parameters, X, y, cluster):
    """Return the log-likelihood on pooled rows: sums over fine grids around modes."""
    *fixed, scale = parameters
    mean, total = np.exp(fixed[0] + X @ fixed[1:]), 0.0
    for label in np.unique(cluster):
        mine = cluster == label
        rest, prior = y[mine].sum(), 1 / scale**2
        effect = np.log(rest / mean[mine].sum())
        for _ in range(50):
            expected = np.exp(effect) * mean[mine].sum()
            effect += (rest - expected - prior * effect) / (expected + prior)
        width = 1 / np.sqrt(np.exp(effect) * mean[mine].sum() + prior)
        grid = effect + width * np.linspace(-10, 10, 401)
        heights = poisson.logpmf(y[mine], np.exp(grid)[:, None] * mean[mine]).sum(1)
        heights += norm.logpdf(grid, scale=scale)
        top = heights.max()
        total += top + np.log(np.exp(heights - top).sum() * (grid[1] - grid[0]))
    return total


@pytest.mark.parametrize("size, most", [(1e5, 20), (1e7, 30)])
@pytest.mark.parametrize("coefficients", [(0.1, -0.05), (1.0, 0.5)])
def test_large_counts(size, most, coefficients):
    rng = np.random.default_rng(0)
    X, cluster = rng.normal(size=(1000, 2)), rng.integers(20, size=1000)
    effects = rng.normal(size=20)[cluster]
    y = rng.poisson(size * np.exp(X @ coefficients + effects))
    model = PrivateGLMMRegressor("poisson")
    model.fit(X, y, cluster=cluster, party=rng.integers(3, size=1000))
    assert model.converged_ and model.n_iter_ <= most
    top = np.hstack([model.intercept_, model.coef_, model.random_effect_scale_])
    best = poisson_likelihood(top, X, y, cluster)
    # one part in 1e9 of what large counts have of log-likelihood
    assert model.log_likelihood_ == pytest.approx(best, abs=1e-4)
    for i, step in enumerate([0.05, *model.coef_std_, 0.05]):
        for sign in (1, -1):
            other = top + sign * step * np.eye(4)[i]
            assert best > poisson_likelihood(other, X, y, cluster)


@pytest.mark.filterwarnings("ignore::skprivbn.exceptions.PrivacyLeakWarning")
@pytest.mark.parametrize("seed, most", [(28, 12), (16, 20)])
def test_laplace_does_not_creep_towards_no_variance(seed, most):
    X, y, cluster, party = studies.draw(seed)
    model = PrivateGLMMClassifier(slopes=[0], min_rows=1)
    model.fit(X, y, cluster=cluster, party=party)
    # 78 and 20 steps, while information vanished with the variance
    assert model.converged_ and model.n_iter_ <= most
    assert model.log_likelihood_ > studies.without_effects(X, y) - 1e-4
