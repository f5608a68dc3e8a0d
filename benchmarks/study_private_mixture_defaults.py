"""What defaults of a private mixture are worth: agreement with the true components.

``BEFORE=<a checkout> python benchmarks/study_private_mixture_defaults.py`` takes some
minutes. Well separated normal components with unit variances in the box between -15 and
15, 10,000 rows of three parties, eight data sets, none of which constants were chosen
with. The adjusted Rand index is that of the fitted with the true components, the
log-likelihood that of a row: with the number of iterations that the budget bears, with
others, and with the defaults of the checkout, which averages no sums, shrinks no
covariances and counts on the coarser grid.
"""

import argparse
import json
import os
import subprocess
import sys
import warnings
from itertools import product

import numpy as np
from _record import record
from sklearn.metrics import adjusted_rand_score

from skprivbn.mixture import PPEMGaussianMixture

N_ROWS = 10_000
FIRST_SEED = 100  # constants were chosen with those from 0 on
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


def measure(variants, n_seeds):
    """Return a row for each size of a mixture, budget and variant."""
    seeds, rows = range(FIRST_SEED, FIRST_SEED + n_seeds), []
    for n_components, n_features, epsilon, delta in product(
        (2, 3, 5), (2, 5), (0.5, 1.0, 3.0), (0.0, 1e-6)
    ):
        budget = {"epsilon": epsilon, "delta": delta}
        data = [draw(n_components, n_features, seed) for seed in seeds]
        for name, max_iter in variants.items():
            fits = [
                fit(*rows_and_truth, n_components, seed, max_iter, budget)
                for seed, rows_and_truth in zip(seeds, data)
            ]
            rand, scores, n_iter = zip(*fits)
            row = {"components": n_components, "features": n_features, **budget}
            row |= {"variant": name, "iterations": n_iter[0]}
            row |= {"Rand index": np.mean(rand), "worst": min(rand)}
            rows.append(row | {"log-likelihood": np.mean(scores)})
            print(rows[-1], file=sys.stderr, flush=True)
    return rows


def measure_before(path, n_seeds):
    """Return what the defaults of a checkout give on the same rows."""
    process = subprocess.run(
        [sys.executable, __file__, "--measure-before", f"--seeds={n_seeds}"],
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(process.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--measure-before", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.measure_before:
        print(json.dumps(measure({"defaults before": None}, arguments.seeds)))
        return
    if "BEFORE" not in os.environ:
        print("BEFORE is not set: nothing to compare with")
        return
    rows = measure_before(os.environ["BEFORE"], arguments.seeds)
    rows += measure(VARIANTS, arguments.seeds)
    names = "components", "features", "epsilon", "delta"
    rows.sort(key=lambda row: [row[name] for name in names])
    record(
        "private_mixture_defaults",
        rows,
        seeds=arguments.seeds,
        first_seed=FIRST_SEED,
        n_rows=N_ROWS,
    )


if __name__ == "__main__":
    main()
