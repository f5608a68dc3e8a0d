"""Linear NOTEARS-ADMM against a straightforward torch version of Algorithm 1.

Run with ``python benchmarks/bench_notears.py`` (needs ``skprivbn[bench]``; ten
minutes, nearly all of it in torch). Both sides run in one process with the coordinator
reading sums in the clear, so that what is compared is the optimisation; the cost of
masking is a column of its own. DAGMA, a successor of NOTEARS, gets the pooled rows, and
its own defaults. One thread. ``results/notears.json`` keeps every graph.

``--ours`` measures our side again and keeps torch's. ``--growth`` only times growing
problems and counts bytes. Distances over many graphs are in ``study_notears.py``, those
behind the paper's figures in ``study_notears_figures.py``.
"""

import argparse
import time
import warnings

import numpy as np
from _record import read, record

from skprivbn.datasets import make_linear_sem
from skprivbn.metrics import (
    structural_hamming_distance,
)
from skprivbn.structure import FederatedGaussianBayesianNetwork, FederatedNotearsADMM
from skprivbn.structure.gaussian._notears import acyclic_weights

warnings.simplefilter("ignore")

#: penalties of the authors' runs
AUTHORS = {
    "lambda1": 0.01,
    "admm_params": {
        "rho1": 1e-3,
        "rho2": 1e-3,
        "gamma2": 1.25,
        "loss_scale": 1.0,
        "acyclicity": "expm",
    },
}
#: penalties of their runs with networks as mechanisms
AUTHORS_OF_NETWORKS = {
    "lambda1": 0.001,
    "admm_params": AUTHORS["admm_params"] | {"rho1": 0.1, "rho2": 0.1},
}
GROWTH = [(10, 8), (50, 8), (100, 8), (200, 8), (20, 16), (20, 64), (20, 256)]


def torch_admm(blocks, *, lambda1=0.01, rho=0.001, max_iter=200):
    """Algorithm 1 as one would write it: autograd, L-BFGS-B, a fixed number of rounds.

    Parameters as in the authors' runs: both penalties start at 0.001 and grow by 1.75
    and 1.25, the l1 norm by its subgradient, every client's system solved anew.
    """
    import torch
    from scipy.optimize import minimize

    torch.set_num_threads(1)
    n, d = sum(map(len, blocks)), blocks[0].shape[1]
    eye = torch.eye(d, dtype=torch.float64)
    centred = [torch.tensor(X - X.mean(axis=0)) for X in blocks]
    S = [X.T @ X / n for X in centred]
    W = torch.zeros((d, d), dtype=torch.float64)
    dual = [torch.zeros_like(W) for _ in S]
    alpha, rho1, rho2 = 0.0, rho, rho
    for _ in range(max_iter):
        B = [
            torch.linalg.solve(S_k + rho2 * eye, rho2 * W - b + S_k)
            for S_k, b in zip(S, dual)
        ]

        def objective(flat, B=B, dual=dual, alpha=alpha, rho1=rho1, rho2=rho2):
            Z = torch.tensor(flat.reshape(d, d), requires_grad=True)
            h = torch.trace(torch.matrix_exp(Z * Z)) - d
            loss = lambda1 * Z.abs().sum() + alpha * h + 0.5 * rho1 * h * h
            for B_k, b in zip(B, dual):
                gap = B_k - Z
                loss = loss + (b * gap).sum() + 0.5 * rho2 * (gap * gap).sum()
            loss.backward()
            return loss.item(), Z.grad.numpy().ravel()

        solved = minimize(objective, W.numpy().ravel(), jac=True, method="L-BFGS-B")
        W = torch.tensor(solved.x.reshape(d, d))
        h = float(torch.trace(torch.matrix_exp(W * W)) - d)
        dual = [b + rho2 * (B_k - W) for B_k, b in zip(B, dual)]
        alpha += rho1 * h
        rho1, rho2 = min(1.75 * rho1, 1e16), min(1.25 * rho2, 1e16)
    return acyclic_weights(W.numpy(), 0.3) != 0


def dagma(X):
    """Return DAGMA's graph of pooled rows, with the penalty of its documentation."""
    from dagma.linear import DagmaLinear

    return DagmaLinear("l2").fit(X, lambda1=0.02) != 0


def problem(d, n_parties, n, seed):
    X, weights = make_linear_sem(n, d, random_state=seed)
    return X, weights != 0, np.repeat(np.arange(n_parties), -(-n // n_parties))[:n]


def timed(function):
    start = time.process_time()
    result = function()
    return time.process_time() - start, result


def against_torch(n_graphs, keep_torch):
    """Time torch's 200 rounds and ours on the same graphs, and keep every graph."""
    stored = {case(row): row for row in (read("notears") or {"rows": []})["rows"]}
    for seed in range(10_000, 10_000 + n_graphs):
        for d, n_parties, n in [(10, 10, 30), (20, 64, 256), (50, 10, 150)]:
            X, truth, party = problem(d, n_parties, n, seed)
            row = {"d": d, "K": n_parties, "n": n, "seed": seed}
            if keep_torch:
                known = stored[case(row)]
                row |= {name: known[name] for name in ("torch seconds", "torch SHD")}
            else:
                blocks = [X[party == k] for k in range(n_parties)]
                seconds, graph = timed(lambda b=blocks: torch_admm(b))
                distance = structural_hamming_distance(truth, graph)
                row |= {"torch seconds": seconds, "torch SHD": distance}
            seconds, graph = timed(lambda X=X: dagma(X))
            distance = structural_hamming_distance(truth, graph)
            row |= {"DAGMA seconds": seconds, "DAGMA SHD": distance}
            row |= our_side(X, truth, party)
            row["ratio"] = row["torch seconds"] / row["rounds seconds"]
            print(row, flush=True)
            stored[case(row)] = row
            more = {"command": "python benchmarks/bench_notears.py"}
            if keep_torch:
                more["what"] = "torch was measured earlier, on the same machine"
            record("notears", sorted(stored.values(), key=case), **more)


def case(row):
    return row["d"], row["K"], row["n"], row["seed"]


def our_side(X, truth, party):
    """CPU seconds and distances of our estimators."""
    models = {
        "rounds": FederatedNotearsADMM(backend="plaintext"),
        "masked rounds": FederatedNotearsADMM(),
        "masked one sum": FederatedGaussianBayesianNetwork("equal_variance"),
    }
    row = {}
    for name, model in models.items():
        seconds, _ = timed(lambda m=model: m.fit(X, party=party))
        row[f"{name} seconds"] = seconds
        found = model.adjacency_matrix_
        row[f"{name} SHD"] = structural_hamming_distance(truth, found)
    return row


def growth():
    """Masked fits with few rounds: what a round costs does not depend on how many.

    All parties and the coordinator share one core here; a party of a real federation
    pays for its own masks only, one K-th of it. The bytes are those of the ledger.
    """
    rows = []
    for d, n_parties in GROWTH:
        X, _, party = problem(d, n_parties, max(3 * d, 4 * n_parties), 0)
        clear = FederatedNotearsADMM(backend="plaintext")
        seconds, _ = timed(lambda m=clear, X=X, p=party: m.fit(X, party=p))
        more = 10 if n_parties < 100 else 2
        short, longer = (FederatedNotearsADMM(max_iter=n) for n in (1, 1 + more))
        first, _ = timed(lambda m=short, X=X, p=party: m.fit(X, party=p))
        both, _ = timed(lambda m=longer, X=X, p=party: m.fit(X, party=p))
        per_round = max(both - first, 0.0) / more
        bytes_of_both = bytes_of_a_party(longer) - bytes_of_a_party(short)
        sent, received = (bytes_of_both / more).round().astype(int)
        # one round takes two proposals: the second tells how far parties are apart
        begin = max(first - 2 * per_round, 0.0)
        row = {"d": d, "K": n_parties, "rounds": clear.n_iter_}
        row |= {"clear fit seconds": seconds, "masked begin seconds": begin}
        row |= {"masked round seconds": per_round, "bytes sent": sent}
        rows.append(row | {"bytes received": received})
        print(rows[-1], flush=True)
        record("notears_growth", rows, what="all parties on one core; bytes per party")


def bytes_of_a_party(model):
    """Return what a party sends and receives in a fit, from the ledger."""
    ledger, party = model.ledger_, model.ledger_.parties[0]
    sent = sum(e.n_bytes for e in ledger.entries if e.sender == party)
    return np.array(
        [sent, sum(e.n_bytes for e in ledger.entries if e.receiver == party)]
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", type=int, default=3, help="for torch")
    parser.add_argument("--ours", action="store_true")
    parser.add_argument("--growth", action="store_true", help="only that")
    arguments = parser.parse_args()
    growth()
    if not arguments.growth:
        against_torch(arguments.graphs, arguments.ours)
