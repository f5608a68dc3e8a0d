"""Distances behind figures 1 to 5 of the NOTEARS-ADMM paper, and one sum beside them.

Run with ``python benchmarks/study_notears_figures.py [--figure 3] [--graphs 10]
[--parties 4] [--skip authors]``. The means of all graphs so far are stored after every
graph, so that a run can be stopped, in the place of earlier ones of the same method and
setting; the gallery draws them. ``--first 8`` goes on after 8 stored graphs and adds to
their means. CPU time grows with the votes: every party of every setting learns alone,
but for ``--skip alone``.

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
import shlex
import sys
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


def summary(case, values, before):
    """One row of the stored results: means and standard errors, with those before."""
    row, n_before = dict(zip(CASE, case)), before.get("graphs", 0)
    row["graphs"] = n = n_before + len(values)
    for name in values[0]:
        numbers = np.array([value[name] for value in values])
        mean, error = before.get(name, 0.0), before.get(f"{name} error") or 0.0
        row[name] = (n_before * mean + numbers.sum()) / n
        squares = n_before * ((n_before - 1) * error**2 + (mean - row[name]) ** 2)
        squares += np.sum((numbers - row[name]) ** 2)
        row[f"{name} error"] = np.sqrt(squares / (n * (n - 1))) if n > 1 else np.nan
    return row


def stored_rows():
    """Return the rows of earlier runs by case."""
    rows = (read("notears_figures") or {"rows": []})["rows"]
    return {tuple(map(row.get, CASE)): row for row in rows}


def store(collected, before, command):
    """Keep means, in the place of those of the same cases."""
    rows = [summary(*item, before.get(item[0], {})) for item in collected.items()]
    rows += [row for case, row in stored_rows().items() if case not in collected]
    rows.sort(key=lambda row: row["figure"])
    record("notears_figures", rows, command=command)


def main(figures, seeds, parties, skipped):
    """Run graph by graph, and store after each."""
    collected = defaultdict(list)
    before, command = {}, f"python {shlex.join(sys.argv)}"
    if seeds.start:
        before = stored_rows()
        command = f"{read('notears_figures')['command']} && {command}"
    for seed in seeds:
        for figure in figures:
            for d, K, n in SETTINGS[figure]:
                if parties and K not in parties:
                    continue
                X, truth = data(figure, d, n, seed)
                found = judge(truth, graphs(figure, X, np.arange(n) % K, skipped))
                for method, values in found.items():
                    case = figure, d, K, n, method
                    n_before = before.get(case, {}).get("graphs", 0)
                    if n_before != seeds.start:
                        raise SystemExit(f"{case} has {n_before} graphs")
                    collected[case].append(values)
            store(collected, before, command)
            print(f"graph {seed}, figure {figure}", flush=True)
    for case, values in collected.items():
        row = summary(case, values, before.get(case, {}))
        found = ", ".join(f"{name} {row[name]:.3g}" for name in ("SHD", "TPR", "FDR"))
        print(" ".join(f"{name}={row[name]}" for name in (*CASE, "graphs")), found)
    print("stored in benchmarks/results/notears_figures.json")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--figure", type=int, action="append", choices=SETTINGS)
    parser.add_argument("--graphs", type=int, default=10, help="number of graphs")
    parser.add_argument(
        "--first", type=int, default=0, help="go on after this number of stored graphs"
    )
    parser.add_argument(
        "--parties", type=int, action="append", help="only for this number of parties"
    )
    parser.add_argument(
        "--skip", action="append", default=[], help="leave out a method, such as alone"
    )
    arguments = parser.parse_args()
    figures = arguments.figure or list(SETTINGS)
    seeds = range(arguments.first, arguments.graphs)
    main(figures, seeds, arguments.parties, arguments.skip)
