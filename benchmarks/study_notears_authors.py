"""NOTEARS by ADMM: the code that its authors published, beside ours.

Run with ``python benchmarks/study_notears_authors.py PATH [--graphs 3]`` on a checkout
of github.com/ignavierng/notears-admm; it needs torch and igraph. Rows are those of the
two notebooks there (twenty variables, eight parties) and of figure 4's simulation.
Results are stored graph by graph. "authors" are our rounds with their penalties; their
code has no vote, so "voting" is over networks that parties fit alone with ours.
"""

import argparse
import sys
import time
import warnings
from importlib import import_module
from itertools import product

import numpy as np
from _record import record
from bench_notears import AUTHORS, AUTHORS_OF_NETWORKS

from skprivbn.datasets import make_mlp_sem
from skprivbn.metrics import (
    false_discovery_rate,
    structural_hamming_distance,
    true_positive_rate,
)
from skprivbn.structure import FederatedNotearsADMM

COMMAND = "python benchmarks/study_notears_authors.py PATH"


def notebook(utils, linear):
    """Return the rows and the graph of one of their notebooks."""
    utils.set_random_seed(1)
    graph = utils.simulate_dag(20, 20, "ER")
    if linear:
        weights = utils.simulate_parameter(graph)
        return utils.simulate_linear_sem(weights, 256, "gauss"), graph
    return utils.simulate_nonlinear_sem(graph, 512, "mlp"), graph


def compared(X, party, linear):
    """Yield the name of every method of ours and what finds its graph."""
    common = {"backend": "plaintext", "method": "linear" if linear else "mlp"}
    ours = FederatedNotearsADMM(random_state=0, **common)
    penalties = AUTHORS if linear else AUTHORS_OF_NETWORKS
    theirs = FederatedNotearsADMM(random_state=0, **common, **penalties)
    yield "rounds", lambda: ours.fit(X, party=party).adjacency_matrix_
    yield "authors", lambda: theirs.fit(X, party=party).adjacency_matrix_

    def vote():
        alone = [ours.fit(X[party == k]).adjacency_matrix_ for k in np.unique(party)]
        return np.mean(alone, axis=0) > 0.5

    if not linear:
        yield "voting", vote


def main(path, n_graphs):
    """Run case by case, and store after each."""
    sys.path.insert(0, path)
    import torch

    linear_admm, nonlinear_admm, postprocess, utils = (
        import_module(f"notears_admm.{name}")
        for name in ("linear_admm", "nonlinear_admm", "postprocess", "utils")
    )
    torch.set_default_dtype(torch.double)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    cases = [("linear notebook", 20, 8, 0), ("notebook of networks", 20, 8, 0)]
    for seed, (d, K) in product(range(n_graphs), ((50, 2), (20, 2), (20, 8))):
        cases.append(("figure 4", d, K, seed))
    rows = []
    for data, d, K, seed in cases:
        linear = data == "linear notebook"
        if data == "figure 4":
            X, truth = make_mlp_sem(512, d, random_state=40_000 + seed)
        else:
            X, truth = notebook(utils, linear)
        run = linear_admm.notears_linear_admm
        run = run if linear else nonlinear_admm.notears_nonlinear_admm
        party = np.repeat(np.arange(K), len(X) // K)
        blocks = X.reshape(K, -1, d)

        def published(run=run, blocks=blocks):
            utils.set_random_seed(1)
            return postprocess.postprocess(run(blocks), threshold=0.3)

        for method, find in [
            ("published code", published),
            *compared(X, party, linear),
        ]:
            start = time.process_time()
            found = find() != 0
            seconds = time.process_time() - start
            rows.append(
                {
                    "data": data,
                    "d": d,
                    "K": K,
                    "seed": seed,
                    "method": method,
                    "edges": int(found.sum()),
                    "SHD": structural_hamming_distance(truth != 0, found),
                    "TPR": true_positive_rate(truth != 0, found),
                    "FDR": false_discovery_rate(truth != 0, found),
                    "CPU seconds": seconds,
                }
            )
            print(rows[-1], flush=True)
        record("notears_authors", rows, command=COMMAND)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", nargs="?", help="their repository")
    parser.add_argument("--graphs", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.path:
        main(arguments.path, arguments.graphs)
    else:
        print("nothing to run without a checkout of the authors' repository")
