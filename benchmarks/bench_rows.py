"""Discrete networks from rows of parties: distance to the truth, CPU, large networks.

Run as ``python benchmarks/bench_rows.py [alarm] [large] [private] [confidence]``; all
by default.
CPU time of all parties together, one run each.
"""

import resource
import sys
import time
import warnings
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
from _record import read, record
from pgmpy.causal_discovery import GES, HillClimbSearch

from skprivbn.bayesian_network._dag import extend_to_dag, to_cpdag
from skprivbn.datasets import load_alarm, load_asia, make_discrete_bayesian_network
from skprivbn.metrics import structural_hamming_distance
from skprivbn.structure import FederatedBayesianNetwork
from skprivbn.structure.gaussian._notears import acyclic_weights

N_PARTIES = 10


def timed(function):
    start = time.process_time()
    result = function()
    return result, time.process_time() - start


def ours(model, X, party):
    """Fit ours to the rows of all parties; return its equivalence class."""
    return model.fit(X, party=party).cpdag_


def theirs(learner, X, nodes):
    """Fit a learner of pgmpy to pooled rows; return its equivalence class."""
    learner.fit(X)
    graph = np.zeros((len(nodes),) * 2, dtype=bool)
    for parent, child in learner.causal_graph_.edges():
        graph[nodes.index(parent), nodes.index(child)] = True
    return to_cpdag(extend_to_dag(graph))


def voting(X, party, method):
    """Let every party learn alone; keep the edges that most of them found."""
    graphs = [
        FederatedBayesianNetwork(method).fit(X[party == p]).adjacency_matrix_
        for p in np.unique(party)
    ]
    share = np.mean(graphs, axis=0)
    elected = acyclic_weights(np.where(share > 0.5, share, 0.0), 0.0)
    return to_cpdag(elected != 0)


def alarm():
    """ALARM at 5,000 rows: ours over ten parties, pgmpy's and a vote.

    Cases that the results hold already are not run again: pgmpy's take minutes.
    """
    network = load_alarm()
    nodes = list(network.nodes)
    rows = (read("rows_alarm") or {"rows": []})["rows"]
    done = {(row["who"], row["method"], row["seed"]) for row in rows}
    peers = {"hill_climbing": HillClimbSearch, "ges": GES}
    cases = [
        (who, method, seed)
        for who in ("ours", "vote of parties", "pgmpy, pooled")
        for method in peers
        for seed in range(5)
    ]
    for who, method, seed in [case for case in cases if case not in done]:
        X = pd.DataFrame(network.sample(5000, random_state=seed), columns=nodes)
        X = X.astype("category")
        party = np.arange(len(X)) % N_PARTIES
        fit = {
            "ours": partial(ours, FederatedBayesianNetwork(method), X, party),
            "vote of parties": partial(voting, X, party, method),
            "pgmpy, pooled": partial(
                theirs, peers[method](scoring_method="bic-d"), X, nodes
            ),
        }[who]
        cpdag, seconds = timed(fit)
        distance = structural_hamming_distance(network.to_cpdag(), cpdag)
        row = {"who": who, "method": method, "seed": seed, "distance": distance}
        rows.append(row | {"cpu_seconds": seconds})
        print(rows[-1], flush=True)
        record("rows_alarm", rows, title="ALARM from 5,000 rows of ten parties")


def large():
    """400 nodes, ten parties, 10,000 rows."""
    network = make_discrete_bayesian_network(
        400, n_states=(2, 4), n_edges=600, random_state=0
    )
    X = pd.DataFrame(network.sample(10_000, random_state=0), columns=network.nodes)
    party = np.arange(len(X)) % N_PARTIES
    states = {node: list(labels) for node, labels in network.states.items()}
    start = time.perf_counter()
    model, seconds = timed(
        lambda: FederatedBayesianNetwork(states=states).fit(X, party=party)
    )
    row = {
        "nodes": 400,
        "parties": N_PARTIES,
        "rows": len(X),
        "cpu_seconds": seconds,
        "seconds": time.perf_counter() - start,
        "tables": len(model.tables_),
        "rounds": model.ledger_.n_rounds,
        "megabytes_sent": sum(e.n_bytes for e in model.ledger_.entries) / 1e6,
        "megabytes_memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
        "edges": int(model.adjacency_matrix_.sum()),
        "distance": structural_hamming_distance(network.to_cpdag(), model.cpdag_),
    }
    print(row, flush=True)
    record("rows_large", [row], title="400 nodes from 10,000 rows of ten parties")


def private():
    """Asia with epsilon: edges between the right nodes, and others, of ten seeds."""
    network, rows = load_asia(), []
    states = {node: list(labels) for node, labels in network.states.items()}
    truth = network.adjacency_matrix | network.adjacency_matrix.T
    for n_rows, max_parents, epsilon in product((5000, 50_000), (1, 2), (1.0, None)):
        found = []
        for seed in range(10):
            X = pd.DataFrame(
                network.sample(n_rows, random_state=seed), columns=network.nodes
            )
            model = FederatedBayesianNetwork(
                epsilon=epsilon, max_parents=max_parents, states=states
            ).fit(X)
            edges = model.adjacency_matrix_
            found.append([np.sum(edges & truth), np.sum(edges & ~truth)])
        right, wrong = np.mean(found, axis=0)
        row = {
            "rows": n_rows,
            "max_parents": max_parents,
            "epsilon": "none" if epsilon is None else epsilon,
            "right edges of 8": right,
            "wrong edges": wrong,
        }
        rows.append(row)
        print(rows[-1], flush=True)
    record("rows_private", rows, title="Asia from tables with noise")


def confidence():
    """ALARM at 5,000 rows of ten parties: what bootstrap samples cost and tell."""
    network, rows = load_alarm(), []
    X = pd.DataFrame(network.sample(5000, random_state=0), columns=network.nodes)
    states = {node: list(labels) for node, labels in network.states.items()}
    joined = network.adjacency_matrix | network.adjacency_matrix.T
    for n_bootstrap in (0, 20, 100):
        model = FederatedBayesianNetwork(
            states=states,
            search_params={"n_bootstrap": n_bootstrap},
            random_state=0,
        )
        _, seconds = timed(partial(model.fit, X, party=np.arange(len(X)) % N_PARTIES))
        row = {
            "samples": n_bootstrap,
            "cpu_seconds": seconds,
            "rounds": model.ledger_.n_rounds,
            "megabytes_sent": sum(e.n_bytes for e in model.ledger_.entries) / 1e6,
        }
        if n_bootstrap:
            sure = np.triu(model.edge_confidence_ + model.edge_confidence_.T)
            for what, found in {
                "in all samples": sure > 1 - 1e-9,
                "in half of them": (sure >= 0.5) & (sure <= 1 - 1e-9),
                "in fewer": (sure > 0) & (sure < 0.5),
            }.items():
                row[what] = f"{np.sum(found & joined)} of {np.sum(found)}"
        rows.append(row)
        print(row, flush=True)
    record("rows_confidence", rows, title="ALARM: edges of bootstrap samples")


def bootstraps():
    """Samples drawn table by table, next to samples of the pooled rows."""
    rows = []
    for name, n_rows, n_seeds, n_samples in (
        ("Asia", 300, 4, 100),
        ("Asia", 2000, 4, 100),
        ("ALARM", 1000, 1, 40),
        ("ALARM", 5000, 1, 40),
    ):
        network = load_asia() if name == "Asia" else load_alarm()
        states = {node: list(labels) for node, labels in network.states.items()}
        pairs = np.triu_indices(len(states), 1)
        joined = (network.adjacency_matrix | network.adjacency_matrix.T)[pairs]
        found = {"each table": [], "pooled rows": []}
        for seed in range(n_seeds):
            X = pd.DataFrame(
                network.sample(n_rows, random_state=seed), columns=network.nodes
            )
            options = {"states": states, "random_state": seed}
            model = FederatedBayesianNetwork(
                search_params={"n_bootstrap": n_samples}, **options
            ).fit(X)
            shares = model.edge_confidence_
            found["each table"].append((shares + shares.T)[pairs])
            rng, shares = np.random.default_rng(seed), 0.0
            for _ in range(n_samples):
                again = X.iloc[rng.integers(n_rows, size=n_rows)]
                graph = FederatedBayesianNetwork(**options).fit(again).adjacency_matrix_
                shares = shares + (graph | graph.T) / n_samples
            found["pooled rows"].append(shares[pairs])
        for drawn, shares in found.items():
            row = {"network": name, "rows": n_rows, "drawn from": drawn}
            sure = np.array(shares)
            for what, low, high in (
                ("0.95 and more", 0.95, 2),
                ("0.5 to 0.95", 0.5, 0.95),
                ("0.05 to 0.5", 0.05, 0.5),
            ):
                some = (sure >= low) & (sure < high)
                row[what] = f"{np.sum(some & joined)} of {np.sum(some)}"
            row["squared error"] = float(np.mean(np.sum((sure - joined) ** 2, axis=1)))
            rows.append(row)
            print(row, flush=True)
    record("rows_bootstraps", rows, title="Shares of samples with an edge")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    parts = {"alarm": alarm, "large": large, "private": private}
    parts |= {"confidence": confidence, "bootstraps": bootstraps}
    for part in sys.argv[1:] or parts:
        parts[part]()
