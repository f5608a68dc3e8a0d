"""Where structure learners of linear data go wrong: scaled columns, curved effects.

Run with ``python benchmarks/study_structure_assumptions.py`` (two minutes). Mean
structural Hamming distances over random graphs, 8 parties, sums in the clear:

- data as simulated (20 variables, 256 rows), and the same with standardised columns,
  which have lost the variances that tell directions;
- effects through small neural networks, learnt by networks, by votes over networks, by
  one sum as if effects were linear, and by one sum with basis functions.

An empty graph misses every edge: its distance is the number of edges.
"""

import argparse
import warnings

import numpy as np
from _record import record
from sklearn.preprocessing import StandardScaler

from skprivbn.datasets import make_linear_sem, make_mlp_sem
from skprivbn.metrics import structural_hamming_distance
from skprivbn.structure import (
    FederatedGaussianBayesianNetwork,
    FederatedNotearsADMM,
    VotingStructureLearner,
)

N_PARTIES = 8
CLEAR = {"backend": "plaintext"}


def linear_learners():
    learners = {
        "ADMM": FederatedNotearsADMM(**CLEAR),
        "one sum": FederatedGaussianBayesianNetwork("equal_variance", **CLEAR),
    }
    for search in ("bic", "pc", "ges"):
        learner = FederatedGaussianBayesianNetwork(search, **CLEAR)
        learners[f"one sum ({search})"] = learner
    return learners


def curved_learners():
    mlp = FederatedNotearsADMM("mlp", random_state=0, **CLEAR)
    return {
        "voting (mlp)": VotingStructureLearner(mlp, **CLEAR),
        "ADMM (mlp)": mlp,
        "one sum": FederatedGaussianBayesianNetwork("equal_variance", **CLEAR),
        "one sum (basis)": FederatedGaussianBayesianNetwork(
            "equal_variance", basis="sigmoid", **CLEAR
        ),
    }


def mean_distances(problems, learners):
    """Return the mean distance of every learner's graph, and of no edges."""
    distances = {"no edges": []} | {name: [] for name in learners()}
    for X, truth in problems:
        party = np.arange(len(X)) % N_PARTIES
        distances["no edges"].append(truth.sum())
        for name, learner in learners().items():
            found = learner.fit(X, party=party).adjacency_matrix_
            distances[name].append(structural_hamming_distance(truth, found))
    return {name: float(np.mean(values)) for name, values in distances.items()}


def problems(make, n_rows, n_features, n_graphs, standardise=False):
    for seed in range(n_graphs):
        X, weights = make(n_rows, n_features, random_state=seed)
        yield StandardScaler().fit_transform(X) if standardise else X, weights != 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", type=int, default=10, help="linear ones")
    parser.add_argument("--curved", type=int, default=3, help="graphs with networks")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    linear = ("linear", make_linear_sem, linear_learners, arguments.graphs)
    curved = ("curved", make_mlp_sem, curved_learners, arguments.curved)
    rows = []
    for (effects, make, learners, n_graphs), variables, n_rows, standardise in (
        (linear, 20, 256, False),
        (linear, 20, 256, True),
        (curved, 10, 200, False),
        (curved, 20, 512, False),
    ):
        row = {"effects": effects, "variables": variables, "rows": n_rows}
        row |= {"columns": "standardised" if standardise else "as simulated"}
        row |= {"graphs": n_graphs}
        made = problems(make, n_rows, variables, n_graphs, standardise)
        row |= mean_distances(made, learners)
        print(row, flush=True)
        rows.append(row)
        record("structure_assumptions", rows, parties=N_PARTIES)


if __name__ == "__main__":
    main()
