"""What noise would leave of a linear mixed model with a random intercept.

Run with ``python benchmarks/study_noisy_mixed_model.py`` (a minute). No estimator does
this: it is why `PrivateGLMMRegressor` refuses ``epsilon``, and what building it would
give. A row z = [1, x, y] within public bounds enters one matrix of products and the sum
of z of one public cluster. Gaussian noise hides it in both together. Within clusters,
products give the coefficients; noise is taken out of the squares of clusters' sums on
the average. Errors are those of the coefficients, and of the scale of the effects.
"""

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm

EPSILON, DELTA, N_ROWS, N_STUDIES = 1.0, 1e-6, 10_000, 200
BETA, SCALE = np.array([0.5, -0.3, 0.2]), 0.5
# half widths of the bounds of features and target
BOUND_X, BOUND_Y = 4.0, 5.0
# how much finer sums of clusters are told than products
FINER = 2.0


def noise_for(change):
    """Return the smallest noise that hides a change of this Euclidean norm."""

    def excess(std):
        above = norm.cdf(change / (2 * std) - EPSILON * std / change)
        below = norm.cdf(-change / (2 * std) - EPSILON * std / change)
        return above - np.exp(EPSILON) * below - DELTA

    return brentq(excess, 1e-3 * change, 100 * change)


def study(rng, n_clusters, with_noise):
    """Return errors of the coefficients and of the scale of effects, in one study."""
    X = rng.normal(size=(N_ROWS, len(BETA)))
    cluster = rng.integers(n_clusters, size=N_ROWS)
    effects = SCALE * rng.normal(size=n_clusters)
    y = X @ BETA + effects[cluster] + rng.normal(size=N_ROWS)
    columns = [np.ones(N_ROWS), X / BOUND_X, y / BOUND_Y]
    Z = np.clip(np.column_stack(columns), -1, 1)
    width = Z.shape[1]
    sums = np.zeros((n_clusters, width))
    np.add.at(sums, cluster, Z)
    change = np.sqrt(width * (width + 1) / 2 + FINER**2 * width)
    std = noise_for(change) if with_noise else 0.0
    noise = np.triu(std * rng.normal(size=(width, width)))
    products = Z.T @ Z + noise + np.triu(noise, 1).T
    std /= FINER
    sums += std * rng.normal(size=sums.shape)
    counts, sums = np.maximum(sums[:, 0], max(3 * std, 1.0)), sums[:, 1:]
    between = (sums.T / counts) @ sums - np.eye(width - 1) * (std**2 / counts).sum()
    values, vectors = np.linalg.eigh(products[1:, 1:] - between)
    within = (vectors * np.maximum(values, 1e-3 * values.max())) @ vectors.T
    beta = np.linalg.solve(within[:-1, :-1], within[:-1, -1])
    n_free = max(products[0, 0] - n_clusters, 10)
    residual = (within[-1, -1] - within[:-1, -1] @ beta) / n_free
    means = (sums[:, -1] - sums[:, :-1] @ beta) / counts
    centre = np.average(means, weights=counts)
    of_noise = std**2 * (1 + beta @ beta + centre**2) / counts**2 + residual / counts
    away = (means - centre) ** 2 * n_clusters / (n_clusters - 1)
    scale = BOUND_Y * np.sqrt(max(np.mean(away - of_noise), 0.0))
    return np.append(beta * BOUND_Y / BOUND_X - BETA, scale - SCALE)


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    for n_clusters in (10, 20, 50, 100, 200):
        for with_noise in (False, True):
            errors = [study(rng, n_clusters, with_noise) for _ in range(N_STUDIES)]
            *coefficients, scale = np.sqrt(np.mean(np.square(errors), axis=0))
            print(
                f"{n_clusters:4d} clusters, {'noise' if with_noise else 'exact'}: "
                f"coefficients {np.mean(coefficients):.3f}, scale {scale:.3f}"
            )
