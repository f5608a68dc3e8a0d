"""Collective networks on Asia: errors of structure and probabilities by rows sent.

Run with ``python benchmarks/bench_collective_asia.py`` (two minutes). The paper's
experiment: the Asia network with noisy or, two sites, structure learnt by tests of
independence at the sites and at the centre. An error of structure is an edge too many
or too few, whatever its direction. Divergences are from the pooled fit of the true
structure. A run for every seed: other patients, other random rows.
"""

import argparse
import time
import warnings

import numpy as np
import pandas as pd
from _record import record

from skprivbn.bayesian_network import BayesianNetwork, CollectiveBayesianNetwork
from skprivbn.datasets import load_asia
from skprivbn.exceptions import PrivacyLeakWarning
from skprivbn.metrics import kl_divergence

SITES = {
    "clinic": ["asia", "tub", "either", "xray", "dysp"],
    "registry": ["smoke", "lung", "bronc"],
}
FRACTIONS = [0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0]


def wrong_edges(truth, network):
    """Count edges that are missing or false."""
    return int((truth.adjacency_matrix ^ network.adjacency_matrix).sum())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=6_000)
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--method", default="cheng_bell_liu")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", PrivacyLeakWarning)
    asia = load_asia(variant="noisy_or")
    known = {
        "ordering": [asia.nodes[i] for i in asia.topological_order],
        "states": asia.states,
        "method": arguments.method,
        "max_parents": 4,
    }
    ways = {
        f"{selection}, {fraction}": {
            "disclosure": "rows",
            "selection": selection,
            "fraction": fraction,
        }
        for selection in ("random", "mixed", "low_likelihood")
        for fraction in FRACTIONS
    }
    ways["private counts"] = {}
    measured = {way: [] for way in ways}
    start = time.process_time()
    for seed in range(arguments.seeds):
        X = asia.sample(arguments.rows, random_state=1000 + seed)
        X = pd.DataFrame(X, columns=asia.nodes)
        pooled = BayesianNetwork.from_data(
            X, asia.parents, nodes=asia.nodes, states=asia.states
        )
        for way, parameters in ways.items():
            learner = CollectiveBayesianNetwork(
                SITES, random_state=seed, **known, **parameters
            ).fit(X)
            measured[way].append(
                (
                    wrong_edges(asia, learner.network_),
                    kl_divergence(pooled, learner.network_),
                    learner.communicated_fraction_,
                )
            )
        print(f"seed {seed}: {time.process_time() - start:.0f} s", flush=True)
    rows = []
    for way, runs in measured.items():
        errors, divergences, sent = np.transpose(runs)
        low, middle, high = np.quantile(divergences, [0.25, 0.5, 0.75])
        rows.append(
            {
                "selection": way.partition(",")[0],
                "fraction": ways[way].get("fraction", 0.0),
                "rows sent": sent.mean(),
                "wrong edges": errors.mean(),
                "standard error": errors.std(ddof=1) / np.sqrt(len(errors)),
                "divergence": middle,
                "lower quartile": low,
                "upper quartile": high,
            }
        )
        print(rows[-1])
    record(
        "collective_asia",
        rows,
        n=arguments.rows,
        seeds=arguments.seeds,
        method=arguments.method,
    )


if __name__ == "__main__":
    main()
