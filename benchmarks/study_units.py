"""Which search of a linear network to take by default: units, noise, seeds.

Run with ``python benchmarks/study_units.py`` (ten minutes). Mean structural Hamming
distances over random graphs, rows at four parties, sums in the clear:

- noise variances are equal, or differ: standard deviations are log-uniform between one
  half and two;
- columns are as simulated, in random units (multiplied by ``10**U(-1.5, 1.5)``, as
  years, mmHg and euros are), or standardised;
- noise is Gaussian or exponential.

An empty graph misses every edge: its distance is the number of edges. "warned" is the
share of fits in which a method that assumes equal noise variances said that columns
look standardised or are in different units.
"""

import argparse
import warnings
from itertools import product

import numpy as np
from _record import record

from skprivbn.datasets import make_linear_sem
from skprivbn.metrics import structural_hamming_distance
from skprivbn.structure import FederatedGaussianBayesianNetwork, FederatedNotearsADMM

N_PARTIES = 4
CLEAR = {"backend": "plaintext"}
METHODS = ("auto", "equal_variance", "bic", "ges", "pc", "golem", "notears")
#: of these the warnings are counted
WATCHED = ("auto", "equal_variance", "ADMM")


def learners():
    """Return every method of one sum, and the rounds."""
    found = {m: FederatedGaussianBayesianNetwork(m, **CLEAR) for m in METHODS}
    return found | {"ADMM": FederatedNotearsADMM(**CLEAR)}


def data(n_rows, n_variables, noise, variances, columns, seed):
    """Return rows and the true graph."""
    rng = np.random.default_rng([seed, n_variables])
    # drawn in every setting, so that graphs and units are the same in all of them
    scales = 2 ** rng.uniform(-1, 1, n_variables)
    units = 10 ** rng.uniform(-1.5, 1.5, n_variables)
    X, weights = make_linear_sem(
        n_rows,
        n_variables,
        noise=noise,
        noise_scale=1.0 if variances == "equal" else scales,
        random_state=seed,
    )
    if columns == "random units":
        X = X * units
    elif columns == "standardised":
        X = (X - X.mean(axis=0)) / X.std(axis=0)
    return X, weights != 0


def fit(learner, X):
    """Return the graph found, and whether units or equal variances were warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        learner.fit(X, party=np.arange(len(X)) % N_PARTIES)
    texts = [str(warning.message) for warning in caught]
    warned = any("comparable units" in t or "standardising" in t for t in texts)
    return learner.adjacency_matrix_, warned


def measure(setting, n_graphs):
    """Return mean distances, and shares of warnings, over graphs."""
    distances, warned = {"no edges": []}, {}
    for seed in range(n_graphs):
        X, truth = data(**setting, seed=seed)
        distances["no edges"].append(truth.sum())
        for name, learner in learners().items():
            found, said = fit(learner, X)
            distance = structural_hamming_distance(truth, found)
            distances.setdefault(name, []).append(distance)
            warned.setdefault(f"{name} warned", []).append(said)
    row = {name: float(np.mean(values)) for name, values in distances.items()}
    return row | {f"{m} warned": float(np.mean(warned[f"{m} warned"])) for m in WATCHED}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", type=int, default=20, help="in each setting")
    arguments = parser.parse_args()
    rows = []
    for (n_variables, n_rows), noise, variances, columns in product(
        ((10, 1000), (20, 256)),
        ("gaussian", "exponential"),
        ("equal", "unequal"),
        ("as simulated", "random units", "standardised"),
    ):
        setting = {"n_variables": n_variables, "n_rows": n_rows, "noise": noise}
        setting |= {"variances": variances, "columns": columns}
        row = {"variables": n_variables, "rows": n_rows, "noise": noise}
        row |= {"variances": variances, "columns": columns, "graphs": arguments.graphs}
        row |= measure(setting, arguments.graphs)
        print(row, flush=True)
        rows.append(row)
        record("units", rows, parties=N_PARTIES)


if __name__ == "__main__":
    main()
