"""How many rows a private mixture needs: log-likelihood against the number of rows.

Run with ``python benchmarks/study_private_mixture.py`` (a minute). Three blobs in the
plane, rows of three parties, epsilon 1 and delta 1e-6, five iterations. The score is
the mean log-likelihood of a row; "private" is the median over fits, each with new
noise. Without noise: the same mixture, and a single Gaussian.
"""

import argparse
import warnings

import numpy as np
from _record import record
from sklearn.mixture import GaussianMixture

from skprivbn.datasets import make_partitioned_blobs
from skprivbn.exceptions import PrivacyLeakWarning
from skprivbn.mixture import PPEMGaussianMixture

BUDGET = {"epsilon": 1.0, "delta": 1e-6, "max_iter": 5}


def score(X, party, seed):
    """Return the score of one private fit; the bounds are public, and generous."""
    mixture = PPEMGaussianMixture(
        3, bounds=(-15.0, 15.0), backend="masking", random_state=seed, **BUDGET
    )
    return mixture.fit(X, party=party).score(X)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fits", type=int, default=9)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", PrivacyLeakWarning)
    rows = []
    for n_rows in (300, 3_000, 30_000):
        X, _, party = make_partitioned_blobs(n_rows, n_parties=3, random_state=3)
        private = [score(X, party, seed) for seed in range(arguments.fits)]
        row = {"rows": n_rows, "private": np.median(private)}
        row |= {"worst private": min(private), "best private": max(private)}
        for name, k in (("without noise", 3), ("one Gaussian", 1)):
            row[name] = GaussianMixture(k, n_init=5, random_state=0).fit(X).score(X)
        print(row, flush=True)
        rows.append(row)
    record("private_mixture", rows, fits=arguments.fits, **BUDGET)


if __name__ == "__main__":
    main()
