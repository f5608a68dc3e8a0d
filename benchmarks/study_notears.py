"""Distances of linear NOTEARS over fresh graphs, and whether masks change them.

Run with ``python benchmarks/study_notears.py [--graphs 20] [--masked 50]``. Means over
graphs of the paper's settings: rounds with the penalties of the authors' runs, with
ours, and one sum. Then distances in the clear and under masks, which are only printed.
"""

import argparse
import warnings

import numpy as np
from _record import record
from bench_notears import AUTHORS, problem

from skprivbn.metrics import (
    false_discovery_rate,
    structural_hamming_distance,
    true_positive_rate,
)
from skprivbn.structure import FederatedGaussianBayesianNetwork, FederatedNotearsADMM

warnings.simplefilter("ignore")

SIMULATION = [(10, 10, 30), (20, 10, 60), (20, 64, 256), (50, 10, 150), (50, 16, 256)]
SIMULATION += [(100, 10, 300)]


def simulation(n_graphs):
    """Distances on the paper's settings, over fresh graphs."""
    rows = []
    for d, n_parties, n in SIMULATION:
        results = {"authors": [], "rounds": [], "one sum": []}
        share = 1 if d < 50 else 2 if d < 100 else 4
        for seed in range(-(-n_graphs // share)):
            X, truth, party = problem(d, n_parties, n, 20_000 + seed)
            models = {
                "authors": FederatedNotearsADMM(backend="plaintext", **AUTHORS),
                "rounds": FederatedNotearsADMM(backend="plaintext"),
                "one sum": FederatedGaussianBayesianNetwork(
                    "equal_variance", backend="plaintext"
                ),
            }
            for name, model in models.items():
                found = model.fit(X, party=party).adjacency_matrix_
                results[name].append(
                    (
                        structural_hamming_distance(truth, found),
                        true_positive_rate(truth, found),
                        false_discovery_rate(truth, found),
                    )
                )
        for name, values in results.items():
            shd, tpr, fdr = np.mean(values, axis=0)
            error = np.std(values, axis=0)[0] / np.sqrt(len(values))
            row = {"d": d, "K": n_parties, "n": n, "method": name}
            row |= {"graphs": len(values), "SHD": shd, "SHD error": error}
            rows.append(row | {"TPR": tpr, "FDR": fdr})
            print(rows[-1], flush=True)
            record("notears_simulation", rows)


def backends(n_graphs):
    """Masks change the last digits of sums, and with them single graphs at most."""
    print("(10, 10, 30): distances in the clear and under masks")
    distances = []
    for seed in range(n_graphs):
        X, truth, party = problem(10, 10, 30, 30_000 + seed)
        distances.append(
            [
                structural_hamming_distance(
                    truth,
                    FederatedNotearsADMM(backend=backend)
                    .fit(X, party=party)
                    .adjacency_matrix_,
                )
                for backend in ("plaintext", "masking")
            ]
        )
    distances = np.array(distances)
    differ = np.mean(distances[:, 0] != distances[:, 1])
    print(
        "mean {:.2f} and {:.2f} over {} graphs; {:.0%} of them differ".format(
            *distances.mean(axis=0), n_graphs, differ
        )
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", type=int, default=20)
    parser.add_argument("--masked", type=int, default=50, help="graphs, also masked")
    arguments = parser.parse_args()
    simulation(arguments.graphs)
    backends(arguments.masked)
