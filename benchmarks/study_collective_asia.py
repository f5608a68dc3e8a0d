"""Collective networks on Asia: errors of structure and probabilities by rows sent.

Run with ``python benchmarks/study_collective_asia.py`` (two minutes). The paper's
experiment: the Asia network with noisy or, two sites, structure learnt by tests of
independence at the sites and at the centre, without an ordering and without
post-processing, which the paper does not have. ``ordered`` rows have both. An error of
structure is a link too many or too few, whatever its direction. Divergences are those
of the tables at the ends of the links between sites, given the true structure, from
the pooled fit. A run for every seed: other patients, other random rows.
"""

import argparse
import time
import warnings
from collections import defaultdict

import numpy as np
import pandas as pd
from _record import record

from skprivbn.bayesian_network import BayesianNetwork
from skprivbn.datasets import load_asia
from skprivbn.exceptions import PrivacyLeakWarning
from skprivbn.metrics import conditional_kl_divergence
from skprivbn.structure import CollectiveBayesianNetwork

SITES = {
    "clinic": ["asia", "tub", "either", "xray", "dysp"],
    "registry": ["smoke", "lung", "bronc"],
}
ENDS = ("either", "dysp")
FRACTIONS = [0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0]
SELECTIONS = ("random", "mixed", "low_likelihood")
#: as in the paper, local edges stay as the sites found them
AS_FOUND = {"search_params": {"post_process": False}}


def wrong_links(truth, network):
    """Count links that are missing or false, whatever their direction."""
    skeletons = [n.adjacency_matrix | n.adjacency_matrix.T for n in (truth, network)]
    return int((skeletons[0] ^ skeletons[1]).sum()) // 2


def ways(asia):
    """Parameters of every fit whose links are counted, by name and fraction."""
    ordering = [asia.nodes[i] for i in asia.topological_order]
    for selection, ordered in [
        *((selection, False) for selection in SELECTIONS),
        ("low_likelihood", True),
    ]:
        known = {"ordering": ordering} if ordered else AS_FOUND
        for fraction in FRACTIONS:
            sent = {
                "disclosure": "rows",
                "selection": selection,
                "fraction": fraction,
            }
            yield selection + ", ordered" * ordered, fraction, known | sent
    yield "private counts", 0.0, AS_FOUND
    yield "private counts, ordered", 0.0, {"ordering": ordering}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=6_000)
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--method", default="cheng_bell_liu")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", PrivacyLeakWarning)
    asia = load_asia(variant="noisy_or")
    learnt = {
        "states": asia.states,
        "method": arguments.method,
        "max_parents": 4,
    }
    links, divergences = defaultdict(list), defaultdict(list)
    start = time.process_time()
    for seed in range(arguments.seeds):
        X = asia.sample(arguments.rows, random_state=1000 + seed)
        X = pd.DataFrame(X, columns=asia.nodes)
        pooled = BayesianNetwork.from_data(
            X, asia.parents, nodes=asia.nodes, states=asia.states
        )
        for name, fraction, parameters in ways(asia):
            learner = CollectiveBayesianNetwork(
                SITES, random_state=seed, **learnt, **parameters
            ).fit(X)
            links[name, fraction].append(wrong_links(asia, learner.network_))
            if "disclosure" not in parameters or "ordering" in parameters:
                continue
            del parameters["search_params"]
            learner = CollectiveBayesianNetwork(
                SITES,
                random_state=seed,
                states=asia.states,
                structure=asia.parents,
                **parameters,
            ).fit(X)
            by_node = conditional_kl_divergence(pooled, learner.network_)
            divergences[name, fraction].append([by_node[node] for node in ENDS])
        print(f"seed {seed}: {time.process_time() - start:.0f} s", flush=True)
    rows = []
    for (name, fraction), errors in links.items():
        row = {
            "selection": name,
            "fraction": fraction,
            "wrong links": np.mean(errors),
            "standard error": np.std(errors, ddof=1) / np.sqrt(len(errors)),
        }
        if (name, fraction) in divergences:
            quartiles = np.quantile(divergences[name, fraction], [0.25, 0.5, 0.75], 0)
            for node, values in zip(ENDS, quartiles.T):
                row[f"{node}: lower quartile"] = values[0]
                row[f"{node}: divergence"] = values[1]
                row[f"{node}: upper quartile"] = values[2]
        print(row)
        rows.append(row)
    record(
        "collective_asia",
        rows,
        n=arguments.rows,
        seeds=arguments.seeds,
        method=arguments.method,
    )


if __name__ == "__main__":
    main()
