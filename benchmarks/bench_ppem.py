"""What encryption adds to federated EM: CPU time, bytes and error by backend.

Run with ``python benchmarks/bench_ppem.py`` (about a minute). An iteration is all that
ten parties and the coordinator do, wire format included, with one key per fit. Its
cost is the difference of a long and a short fit, so that the start does not count.
Ratios are against the plaintext backend and against scikit-learn on the pooled rows;
errors are the largest difference from scikit-learn's parameters.
"""

import argparse
import time
import warnings

import numpy as np
from _record import record
from sklearn.mixture import GaussianMixture

from skprivbn.crypto import CKKSBackend
from skprivbn.mixture import PPEMGaussianMixture

BACKENDS = {
    "plaintext": "plaintext",
    "masking": "masking",
    "ckks, fast": CKKSBackend(preset="fast"),
    "ckks": "ckks",
    "ckks, large": CKKSBackend(preset="large"),
}
SHORT, LONG = 4, 16
CASES = [(3, 2, 3000), (10, 20, 10000)]


def make_problem(n_components, n_features, n_rows):
    """Return overlapping blobs and a common start that does not converge at once."""
    rng = np.random.default_rng(0)
    centres = rng.normal(0, 3, size=(n_components, n_features))
    X = centres[rng.integers(n_components, size=n_rows)]
    X = X + rng.normal(size=X.shape)
    start = {
        "weights_init": np.full(n_components, 1 / n_components),
        "means_init": centres + rng.normal(0, 0.5, size=centres.shape),
        "precisions_init": np.tile(np.eye(n_features), (n_components, 1, 1)),
    }
    return X, start


def cpu_of(fit):
    start = time.process_time()
    fit()
    return time.process_time() - start


def per_iteration(estimator, repeats, *args, **kwargs):
    """Return CPU seconds of an iteration: the median over some pairs of fits."""
    differences = []
    for _ in range(repeats):
        seconds = [
            cpu_of(lambda n=n: estimator.set_params(max_iter=n).fit(*args, **kwargs))
            for n in (SHORT, LONG)
        ]
        differences.append((seconds[1] - seconds[0]) / (LONG - SHORT))
    return np.median(differences)


def bytes_per_iteration(estimator, *args, **kwargs):
    """Return bytes that one party sends and receives in an iteration."""
    found = []
    for n_iterations in (SHORT, LONG):
        ledger = (
            estimator.set_params(max_iter=n_iterations).fit(*args, **kwargs).ledger_
        )
        name = ledger.parties[1]
        found.append(
            [
                sum(e.n_bytes for e in ledger.entries if getattr(e, side) == name)
                for side in ("sender", "receiver")
            ]
        )
    return np.subtract(found[1], found[0]) / (LONG - SHORT)


def difference(found, expected):
    names = ("weights_", "means_", "covariances_")
    return max(np.abs(getattr(found, n) - getattr(expected, n)).max() for n in names)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--parties", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for n_components, n_features, n_rows in CASES:
        X, start = make_problem(n_components, n_features, n_rows)
        party = np.arange(n_rows) % arguments.parties
        pooled = GaussianMixture(n_components, tol=0, **start)
        pooled_seconds = per_iteration(pooled, arguments.repeats, X)
        print(
            f"\nk={n_components}, d={n_features}, {n_rows} rows, "
            f"{arguments.parties} parties; scikit-learn on pooled rows: "
            f"{1e3 * pooled_seconds:.2f} ms per iteration"
        )
        header = ("backend", "CPU ms", "ratio", "added", "kB sent", "kB received")
        print("{:15}{:>9}{:>8}{:>8}{:>10}{:>13}{:>10}".format(*header, "error"))
        plain = None
        for name, backend in BACKENDS.items():
            mixture = PPEMGaussianMixture(
                n_components, tol=0, backend=backend, min_rows=1, **start
            )
            seconds = per_iteration(mixture, arguments.repeats, X, party=party)
            plain = seconds if plain is None else plain
            sent, received = bytes_per_iteration(mixture, X, party=party)
            print(
                f"{name:15}{1e3 * seconds:9.2f}{seconds / plain:8.2f}"
                f"{seconds / plain - 1:8.2f}{sent / 1e3:10.1f}{received / 1e3:13.1f}"
                f"{difference(mixture, pooled):10.1e}",
                flush=True,
            )
            rows.append(
                {
                    "k": n_components,
                    "d": n_features,
                    "n": n_rows,
                    "parties": arguments.parties,
                    "backend": name,
                    "ms per iteration": 1e3 * seconds,
                    "ratio to plaintext": seconds / plain,
                    "ratio to scikit-learn": seconds / pooled_seconds,
                    "kB sent by a party": sent / 1e3,
                    "kB received by a party": received / 1e3,
                    "rounds of the fit": mixture.ledger_.n_rounds,
                    "iterations of the fit": mixture.n_iter_,
                    "largest difference": difference(mixture, pooled),
                }
            )
    record("ppem", rows, peer="scikit-learn's GaussianMixture on the pooled rows")


if __name__ == "__main__":
    main()
