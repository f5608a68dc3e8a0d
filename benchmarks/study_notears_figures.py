"""Distances behind figures 1 to 5 of the NOTEARS-ADMM paper, and one sum beside them.

Run with ``python benchmarks/study_notears_figures.py [--figure 3] [--graphs 10]
[--parties 4] [--skip authors]``. The means of all graphs so far are stored after every
graph, so that a run can be stopped, in the place of earlier ones of the same method and
setting; the gallery draws them. CPU time grows with the votes: every party of every
setting learns alone, but for ``--skip alone``.

1. linear, K = 10 parties, n = 3 d rows, growing d
2. linear, d = 50, n = 256 rows, growing K
3. proteins of Sachs, n = 512 cells, growing K
4. networks as mechanisms, d = 50, n = 512 rows, growing K
5. as 2, with d = 10 and 20

"authors" are rounds with the penalties of the authors' runs, which are others for
networks than for linear models. Parties alone run the
rounds with themselves, "pooled" is one party with all rows; "best alone" is the best of
the parties' graphs, which needs the truth.
"""

import argparse
import warnings
from collections import defaultdict

import numpy as np
from _record import read, record
from bench_notears import AUTHORS, AUTHORS_OF_NETWORKS

from skprivbn.datasets import load_sachs, make_linear_sem, make_mlp_sem
from skprivbn.metrics import (
    false_discovery_rate,
    structural_hamming_distance,
    true_positive_rate,
)
from skprivbn.programs import Moments
from skprivbn.structure import FederatedGaussianBayesianNetwork, FederatedNotearsADMM
from skprivbn.structure.admm._program import run_locally

warnings.simplefilter("ignore")

CASE = ("figure", "d", "K", "n", "method")
PARTIES = (2, 4, 8, 16, 32, 64)
SETTINGS = {
    1: [(d, 10, 3 * d) for d in (10, 20, 50, 100)],
    2: [(50, K, 256) for K in PARTIES],
    3: [(11, K, 512) for K in PARTIES],
    4: [(50, K, 512) for K in (2, 4, 8, 16)],
    5: [(d, K, 256) for d in (10, 20) for K in PARTIES],
}


def learners(figure):
    """Return what is compared: rounds in the clear, and one sum."""
    rounds = FederatedNotearsADMM(backend="plaintext")
    one_sum = FederatedGaussianBayesianNetwork(
        "equal_variance", backend="plaintext", random_state=0
    )
    penalties = AUTHORS_OF_NETWORKS if figure == 4 else AUTHORS
    authors = FederatedNotearsADMM(backend="plaintext", **penalties)
    if figure == 4:
        rounds.set_params(method="mlp", random_state=0)
        authors.set_params(method="mlp", random_state=0)
        one_sum.set_params(basis="sigmoid")
    found = {"rounds": rounds, "authors": authors, "one sum": one_sum}
    if figure == 3:
        found["one sum, auto"] = FederatedGaussianBayesianNetwork(
            "auto", backend="plaintext", random_state=0
        )
    return found


def data(figure, d, n, seed):
    """Return rows and the true graph."""
    if figure == 3:
        sachs = load_sachs()
        rows = np.random.RandomState(seed).permutation(853)[:n]
        return sachs.data[rows], sachs.adjacency_matrix
    make = make_mlp_sem if figure == 4 else make_linear_sem
    X, weights = make(n, d, random_state=40_000 + seed)
    return X, weights != 0


def graphs(figure, X, party, skipped=()):
    """Return the graphs of all methods; those of parties alone under "alone"."""
    found = {
        name: model.fit(X, party=party).adjacency_matrix_
        for name, model in learners(figure).items()
        if name not in skipped
    }
    if "alone" in skipped:
        return found
    alone = learners(figure)["rounds"]
    found["pooled"] = graph_alone(alone, X)
    found["alone"] = [graph_alone(alone, X[party == k]) for k in np.unique(party)]
    found["voting"] = np.mean(found["alone"], axis=0) > 0.5
    return found


def graph_alone(model, rows):
    """Return the graph that one party finds; linear ones without any message."""
    if model.method == "mlp":
        return model.fit(rows).adjacency_matrix_
    model.n_features_in_ = rows.shape[1]
    terms = model._model_terms(1)
    moments = Moments(len(rows), rows.mean(axis=0), np.cov(rows.T, bias=True))
    kept = terms.kept(run_locally(moments, terms)["parameters"])
    return kept.reshape(rows.shape[1], -1) != 0


def judge(truth, found):
    """Return distance and rates of every method."""

    def measures(graph):
        return {
            "SHD": float(structural_hamming_distance(truth, graph)),
            "TPR": true_positive_rate(truth, graph),
            "FDR": false_discovery_rate(truth, graph),
        }

    alone = [measures(graph) for graph in found.pop("alone", [])]
    judged = {name: measures(graph) for name, graph in found.items()}
    if alone:
        judged["best alone"] = min(alone, key=lambda values: values["SHD"])
    return judged


def summary(case, values):
    """One row of the stored results: means and standard errors."""
    row = dict(zip(CASE, case))
    row["graphs"] = len(values)
    for name in values[0]:
        numbers = [value[name] for value in values]
        row[name] = np.mean(numbers)
        spread = np.std(numbers, ddof=1) if len(numbers) > 1 else np.nan
        row[f"{name} error"] = spread / np.sqrt(len(numbers))
    return row


def store(collected):
    """Keep means, in the place of those of the same cases."""
    rows = [summary(case, values) for case, values in collected.items()]
    stored = (read("notears_figures") or {"rows": []})["rows"]
    rows += [row for row in stored if tuple(map(row.get, CASE)) not in collected]
    record("notears_figures", sorted(rows, key=lambda row: row["figure"]))


def main(figures, n_graphs, parties, skipped):
    """Run graph by graph, and store after each."""
    collected = defaultdict(list)
    for seed in range(n_graphs):
        for figure in figures:
            for d, K, n in SETTINGS[figure]:
                if parties and K not in parties:
                    continue
                X, truth = data(figure, d, n, seed)
                found = judge(truth, graphs(figure, X, np.arange(n) % K, skipped))
                for method, values in found.items():
                    collected[figure, d, K, n, method].append(values)
            store(collected)
            print(f"graph {seed}, figure {figure}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--figure", type=int, action="append", choices=SETTINGS)
    parser.add_argument("--graphs", type=int, default=10)
    parser.add_argument("--parties", type=int, action="append", help="how many")
    parser.add_argument("--skip", action="append", default=[], help="a method")
    arguments = parser.parse_args()
    figures = arguments.figure or list(SETTINGS)
    main(figures, arguments.graphs, arguments.parties, arguments.skip)
