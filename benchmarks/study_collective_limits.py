"""Collective networks where small counts are not opened: what limits cost, on Asia.

Run with ``python benchmarks/study_collective_limits.py`` (two minutes). Two and three
sites, private counts, the default search without an ordering, with and without
``min_cell_count`` of 5. Links are compared whatever their direction; divergence (KL, in
nats) is of the learnt network from the one that records were drawn from. A run for
every seed: other records.
"""

import argparse
import time
from itertools import product

import numpy as np
import pandas as pd
from _record import record

from skprivbn.datasets import load_asia
from skprivbn.metrics import kl_divergence
from skprivbn.structure import CollectiveBayesianNetwork

SITES = {
    2: {
        "clinic": ["asia", "tub", "either", "xray", "dysp"],
        "registry": ["smoke", "lung", "bronc"],
    },
    3: {
        "clinic": ["asia", "tub", "either", "xray"],
        "registry": ["smoke", "lung"],
        "practice": ["bronc", "dysp"],
    },
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    arguments = parser.parse_args()
    asia, rows = load_asia(variant="noisy_or"), []
    true = asia.adjacency_matrix | asia.adjacency_matrix.T
    for n, n_sites, least in product([2_000, 6_000], SITES, [0, 5]):
        found, start = [], time.process_time()
        for seed in range(arguments.seeds):
            X = pd.DataFrame(asia.sample(n, random_state=seed), columns=asia.nodes)
            learner = CollectiveBayesianNetwork(
                SITES[n_sites],
                states=asia.states,
                search_params={"min_cell_count": least},
            ).fit(X)
            edges = learner.adjacency_matrix_ | learner.adjacency_matrix_.T
            missing, false = (true & ~edges).sum() / 2, (edges & ~true).sum() / 2
            divergence = kl_divergence(asia, learner.network_)
            found.append([missing, false, divergence])
        n_missing, n_false, divergence = np.mean(found, axis=0)
        row = {
            "records": n,
            "sites": n_sites,
            "min_cell_count": least,
            "missing links": n_missing,
            "false links": n_false,
            "divergence": divergence,
            "CPU s": (time.process_time() - start) / arguments.seeds,
        }
        print(row, flush=True)
        rows.append(row)
    record("collective_limits", rows, seeds=arguments.seeds)


if __name__ == "__main__":
    main()
