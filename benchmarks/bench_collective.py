"""Collective networks on ALARM: time against pgmpy's pooled fit, and accuracy.

Run with ``python benchmarks/bench_collective.py`` (a few minutes). The structure is
known and 15,000 rows of 37 columns are spread over four sites. pgmpy estimates the same
tables from the pooled table, with the same pseudo-counts. Accuracy is the conditional
divergence from the pooled fit, summed over the nodes with a parent at another site.
"""

import argparse
import time
import warnings

import numpy as np
import pandas as pd
from _record import record

from skprivbn.bayesian_network import BayesianNetwork
from skprivbn.datasets import load_alarm
from skprivbn.exceptions import PrivacyLeakWarning
from skprivbn.metrics import conditional_kl_divergence
from skprivbn.structure import CollectiveBayesianNetwork


def pgmpy_fit(X, network, alpha):
    """Return pgmpy's estimate of all tables of the pooled rows, as one of ours."""
    from pgmpy.estimators import BayesianEstimator
    from pgmpy.models import DiscreteBayesianNetwork

    model = DiscreteBayesianNetwork(network.edges)
    model.add_nodes_from(network.nodes)
    states = {v: list(labels) for v, labels in network.states.items()}
    counts = {
        v: np.full((len(states[v]), network.cpts[v].size // len(states[v])), alpha)
        for v in network.nodes
    }
    estimator = BayesianEstimator(model, X, state_names=states)
    return estimator.get_parameters(
        prior_type="dirichlet", pseudo_counts=counts, n_jobs=1
    )


def largest_difference(cpds, network):
    """Return how far pgmpy's tables are from a network's."""
    worst = 0.0
    for cpd in cpds:
        node, parents = cpd.variable, list(cpd.variables[1:])
        axes = [*(parents.index(u) for u in network.parents[node]), len(parents)]
        table = np.moveaxis(cpd.values, 0, -1).transpose(axes)
        worst = max(worst, float(np.abs(table - network.cpts[node]).max()))
    return worst


def seconds(function, repeat):
    """Return CPU seconds of the shortest of some runs, and the last result."""
    times = []
    for _ in range(repeat):
        start = time.process_time()
        result = function()
        times.append(time.process_time() - start)
    return min(times), result


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=15_000)
    parser.add_argument("--sites", type=int, default=4)
    parser.add_argument("--fraction", type=float, default=0.35)
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", PrivacyLeakWarning)
    warnings.simplefilter("ignore", FutureWarning)  # of pgmpy, about its own names

    alarm = load_alarm()
    X = pd.DataFrame(alarm.sample(arguments.rows, random_state=0), columns=alarm.nodes)
    sites = {
        f"site {i}": list(alarm.nodes[i :: arguments.sites])
        for i in range(arguments.sites)
    }
    known = {"structure": alarm.parents, "states": alarm.states}
    pooled = BayesianNetwork.from_data(
        X, alarm.parents, nodes=alarm.nodes, states=alarm.states
    )
    peer, cpds = seconds(lambda: pgmpy_fit(X, alarm, 1.0), arguments.repeat)
    print(
        f"pgmpy, pooled           {peer:6.2f} s    differs from ours by at most "
        f"{largest_difference(cpds, pooled):.1e}"
    )
    runs = {
        "all rows": {"disclosure": "rows", "fraction": 1.0},
        **{
            selection: {
                "disclosure": "rows",
                "selection": selection,
                "fraction": arguments.fraction,
                "random_state": 0,
            }
            for selection in ("random", "mixed", "low_likelihood")
        },
        "private_counts": {},
    }
    rows = []
    for name, parameters in runs.items():
        estimator = CollectiveBayesianNetwork(sites, **known, **parameters)
        taken, fitted = seconds(lambda e=estimator: e.fit(X), arguments.repeat)
        nodes = sorted({child for _, child in fitted.cross_edges_})
        by_node = conditional_kl_divergence(pooled, fitted.network_)
        divergence = sum(by_node[node] for node in nodes)
        print(
            f"{name:22s}  {taken:6.2f} s  x{taken / peer:5.2f}  "
            f"{fitted.communicated_fraction_:5.0%} of rows sent  "
            f"{fitted.ledger_.total_bytes / 1e6:6.2f} MB  "
            f"divergence of {len(nodes)} nodes {divergence:.4f}"
        )
        rows.append(
            {
                "case": name,
                "n": arguments.rows,
                "sites": arguments.sites,
                "seconds": taken,
                "ratio to pgmpy": taken / peer,
                "rows sent": fitted.communicated_fraction_,
                "MB": fitted.ledger_.total_bytes / 1e6,
                "rounds": fitted.ledger_.n_rounds,
                "nodes across sites": len(nodes),
                "divergence": divergence,
            }
        )
    record(
        "collective",
        rows,
        peer="pgmpy's BayesianEstimator on the pooled rows",
        peer_seconds=peer,
        largest_difference_from_peer=largest_difference(cpds, pooled),
    )


if __name__ == "__main__":
    main()
