"""What defaults of a private mixture are worth: agreement with the true components.

Run with ``python benchmarks/study_private_mixture_defaults.py`` (some minutes). Well
separated normal components with unit variances in the box between -15 and 15, 10,000
rows of three parties, five data sets. The adjusted Rand index is that of the fitted
with the true components, the log-likelihood that of a row: with the number of
iterations that the budget bears, and with others.
"""

import argparse
import warnings
from itertools import product

import numpy as np
from _record import record
from sklearn.metrics import adjusted_rand_score

from skprivbn.mixture import PPEMGaussianMixture

N_ROWS = 10_000
VARIANTS = {"defaults": None, "10 iterations": 10, "100 iterations": 100}


def draw(n_components, n_features, seed):
    """Return rows of components whose centres are at least six apart."""
    rng = np.random.default_rng(seed)
    centres = [rng.uniform(-10, 10, n_features)]
    while len(centres) < n_components:
        candidate = rng.uniform(-10, 10, n_features)
        if min(np.linalg.norm(candidate - centre) for centre in centres) > 6:
            centres.append(candidate)
    truth = rng.choice(n_components, N_ROWS)
    return np.array(centres)[truth] + rng.normal(size=(N_ROWS, n_features)), truth


def fit(X, truth, n_components, seed, max_iter, budget):
    """Return the Rand index, the score and the number of iterations of a fit."""
    mixture = PPEMGaussianMixture(
        n_components, max_iter=max_iter, bounds=(-15, 15), random_state=seed, **budget
    )
    mixture.fit(X, party=np.arange(N_ROWS) % 3)
    found = mixture.predict(X)
    return adjusted_rand_score(truth, found), mixture.score(X), mixture.n_iter_


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for n_components, n_features, epsilon, delta in product(
        (2, 3, 5), (2, 5), (0.5, 1.0, 3.0), (0.0, 1e-6)
    ):
        budget = {"epsilon": epsilon, "delta": delta}
        data = [draw(n_components, n_features, s) for s in range(arguments.seeds)]
        for name, max_iter in VARIANTS.items():
            fits = [
                fit(*rows_and_truth, n_components, seed, max_iter, budget)
                for seed, rows_and_truth in enumerate(data)
            ]
            rand, scores, n_iter = zip(*fits)
            row = {"components": n_components, "features": n_features, **budget}
            row |= {"variant": name, "iterations": n_iter[0]}
            row |= {"Rand index": np.mean(rand), "worst": min(rand)}
            rows.append(row | {"log-likelihood": np.mean(scores)})
            print(rows[-1], flush=True)
    record("private_mixture_defaults", rows, seeds=arguments.seeds, n_rows=N_ROWS)


if __name__ == "__main__":
    main()
