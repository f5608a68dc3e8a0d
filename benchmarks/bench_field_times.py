"""Random fields: how much longer the better methods take, as the paper reports it.

Run with ``python benchmarks/bench_field_times.py`` (a minute). CPU seconds of
fits to the paper's third-order chains and random graphs of ten variables with ten
states, 10,000 rows, epsilon = 1 (private SGD with delta = 1/N), medians over fields;
the paper's ratios are from its section 4.1. ``wifi`` is the chain with tied transitions
of ``study_holdout_likelihood.py``, section 4.2. ``iteration`` compares one iteration of
the paper's algorithm 2 by its non-linear belief propagation and a maximisation with
ours by the dual, which gives both at once, on grids of variables with three states.
"""

import argparse
import time
import warnings
from functools import partial

import numpy as np
from _record import read, record
from study_holdout_likelihood import WIFI

from skprivbn.datasets import make_markov_random_field, make_wifi_sessions
from skprivbn.graphical_model import DPCGMLearner, MarkovRandomField
from skprivbn.graphical_model._estimation import (
    expected_tables_by_dual,
    maximise_likelihood,
    nonlinear_belief_propagation,
)
from skprivbn.graphical_model._tables import NoisyTables, TableLayout
from skprivbn.privacy import CountMechanism

N_ROWS = 10_000
GRAPHS = {
    "chain": {"graph": "chain", "order": 3},
    "erdos_renyi": {"graph": "erdos_renyi", "n_edges": 20},
}
PAPER = {
    ("chain", "cgm"): 4.0,
    ("erdos_renyi", "cgm"): 8.0,
    ("chain", "psgd"): 27.0,
    ("erdos_renyi", "psgd"): 40.0,
    ("wifi", "cgm"): 15.0,
    ("wifi", "psgd"): 46.0,
}


def timed(function, *args):
    start = time.process_time()
    result = function(*args)
    return result, time.process_time() - start


def fit_seconds(graph, seed):
    """CPU seconds of every method on one random field."""
    potentials = make_markov_random_field(random_state=seed, **GRAPHS[graph])
    nodes = [f"x{i}" for i in range(10)]
    named = {
        tuple(nodes[i] for i in clique): table for clique, table in potentials.items()
    }
    states = dict.fromkeys(nodes, range(10))
    field = MarkovRandomField(nodes, states, named)
    X = field.sample(N_ROWS, random_state=seed)
    return seconds_by_method(X, cliques=list(potentials), states=[10] * 10)


def seconds_by_method(X, individual=None, **parameters):
    seconds = {}
    for method in ("naive", "cgm", "auto", "psgd"):
        delta = 1 / len(X) if method == "psgd" else 0.0
        learner = DPCGMLearner(method=method, epsilon=1.0, delta=delta, **parameters)
        seconds[method] = timed(partial(learner.fit, X, individual=individual))[1]
    return seconds


def wifi_seconds():
    """CPU seconds of every method on the chain of people's connections."""
    X, individual = make_wifi_sessions(60_000, 20, random_state=0)
    connected = ((X[:, 1:] > 0) | (X[:, :-1] > 0)).all(axis=1)
    X, individual = X[connected], individual[connected]
    return seconds_by_method(X, individual, cliques="chain", **WIFI)


def iterations(side):
    """CPU seconds of one iteration of EM on a grid, by the dual and by messages."""
    place = np.arange(side * side).reshape(side, side)
    edges = [
        *zip(place[:, :-1].ravel(), place[:, 1:].ravel()),
        *zip(place[:-1].ravel(), place[1:].ravel()),
    ]
    layout = TableLayout([(int(a), int(b)) for a, b in edges], [3] * side**2)
    rng = np.random.default_rng(0)
    theta = rng.normal(size=layout.n_parameters)
    counts = np.rint(N_ROWS * layout.marginals(theta)[1]).astype(np.int64)
    noise = CountMechanism.for_budget(1.0, 0.0, len(edges), np.sqrt(len(edges)))
    tables = NoisyTables(
        layout,
        noise.release(counts).astype(float),
        np.full(len(edges), noise.std),
        noise.kind,
    )
    start, zero = np.zeros_like(theta), np.zeros_like(theta)
    (_, exact), dual = timed(expected_tables_by_dual, tables, start, N_ROWS, zero)
    found, expectation = timed(nonlinear_belief_propagation, tables, start, N_ROWS)
    _, maximisation = timed(
        lambda: maximise_likelihood(
            layout, found / N_ROWS, 0.0, start, max_iter=200, tol=1e-7
        )
    )
    messages = expectation + maximisation
    return {
        "grid": f"{side} x {side}",
        "dual seconds": dual,
        "messages seconds": messages,
        "messages / dual": messages / dual,
        "largest difference in rows": float(np.abs(found - exact).max()),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fields", type=int, default=3)
    names = [*GRAPHS, "wifi", "iteration"]
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    stored = read("field_times") or {"rows": []}
    rows = [
        row
        for row in stored["rows"]
        if row.get("graph", row["experiment"]) not in arguments.only
    ]
    for graph in arguments.only:
        if graph == "iteration":
            continue
        measure = wifi_seconds if graph == "wifi" else partial(fit_seconds, graph)
        seeds = [()] if graph == "wifi" else zip(range(arguments.fields))
        runs = [measure(*seed) for seed in seeds]
        medians = {name: np.median([run[name] for run in runs]) for name in runs[0]}
        for method, seconds in medians.items():
            row = {
                "experiment": "fits",
                "graph": graph,
                "method": method,
                "seconds": seconds,
                "ratio to naive": seconds / medians["naive"],
            }
            if (graph, method) in PAPER:
                row["paper's ratio"] = PAPER[graph, method]
            print(row, flush=True)
            rows.append(row)
    for side in (2, 3, 4, 5) if "iteration" in arguments.only else ():
        rows.append({"experiment": "iteration", **iterations(side)})
        print(rows[-1], flush=True)
    record("field_times", rows, fields=arguments.fields)


if __name__ == "__main__":
    main()
