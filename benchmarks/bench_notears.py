"""Linear NOTEARS-ADMM against a straightforward torch version of Algorithm 1.

Run with ``python benchmarks/bench_notears.py`` (needs ``skprivbn[bench]``; several
minutes, most of them in torch). Both sides run in one process with the coordinator
reading sums in the clear, so that what is compared is the optimisation; the cost of
masking is a column of its own. One thread.

``--quick`` runs one graph of each kind, ``--simulation`` prints the table of the user
guide (mean distances over fresh graphs), ``--growth`` times growing problems.
"""

import argparse
import time
import warnings

import numpy as np

from skprivbn.datasets import make_linear_sem
from skprivbn.metrics import (
    false_discovery_rate,
    structural_hamming_distance,
    true_positive_rate,
)
from skprivbn.structure import (
    FederatedGaussianBayesianNetwork,
    FederatedNotearsADMM,
    Notears,
    VotingStructureLearner,
)
from skprivbn.structure._acyclicity import acyclic_weights

warnings.simplefilter("ignore")

SIMULATION = [(10, 10, 30), (20, 10, 60), (20, 64, 256), (50, 10, 150), (50, 16, 256)]


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


def problem(d, n_parties, n, seed):
    X, weights = make_linear_sem(n, d, random_state=seed)
    return X, weights != 0, np.repeat(np.arange(n_parties), -(-n // n_parties))[:n]


def timed(function):
    start = time.process_time()
    result = function()
    return time.process_time() - start, result


def against_torch(n_graphs):
    print("CPU seconds per fit (mean distance to the true graph)")
    print(
        f"{'d, K, n':>14} {'torch':>16} {'ours':>16} {'ratio':>7} "
        f"{'masked':>8} {'one sum':>14}"
    )
    for d, n_parties, n in [(10, 10, 30), (20, 64, 256), (50, 10, 150)]:
        rows = []
        for seed in range(n_graphs):
            X, truth, party = problem(d, n_parties, n, 10_000 + seed)
            blocks = [X[party == k] for k in range(n_parties)]
            plain = FederatedNotearsADMM(backend="plaintext")
            seconds, graph = timed(lambda b=blocks: torch_admm(b))
            ours, _ = timed(lambda m=plain, X=X, p=party: m.fit(X, party=p))
            masked, _ = timed(
                lambda X=X, p=party: FederatedNotearsADMM().fit(X, party=p)
            )
            once = FederatedGaussianBayesianNetwork(backend="plaintext")
            one, _ = timed(lambda m=once, X=X, p=party: m.fit(X, party=p))
            distances = [
                structural_hamming_distance(truth, found)
                for found in (graph, plain.adjacency_matrix_, once.adjacency_matrix_)
            ]
            rows.append([seconds, ours, masked, one, *distances])
        seconds, ours, masked, one, *shd = np.mean(rows, axis=0)
        print(
            f"{d:4} {n_parties:3} {n:5} {seconds:9.2f} ({shd[0]:4.1f}) {ours:9.2f} "
            f"({shd[1]:4.1f}) {seconds / ours:7.1f} {masked:8.2f} {one:7.2f} "
            f"({shd[2]:4.1f})",
            flush=True,
        )


def best_alone(X, party, truth):
    """Distance of the best graph any party learns alone: needs the truth."""
    distances = []
    for name in np.unique(party):
        rows = X[party == name]
        found = np.zeros_like(truth)
        if len(rows) > 1:
            found = Notears().fit(rows).adjacency_matrix_
        distances.append(structural_hamming_distance(truth, found))
    return min(distances)


def simulation(n_graphs, baselines):
    print("mean SHD / TPR / FDR over graphs, edges as many as variables")
    for d, n_parties, n in SIMULATION:
        results = {"admm": [], "one sum": []}
        if baselines:
            results |= {"voting": [], "best alone": []}
        for seed in range(n_graphs if d < 50 else max(n_graphs // 2, 1)):
            X, truth, party = problem(d, n_parties, n, 20_000 + seed)
            models = {
                "admm": FederatedNotearsADMM(backend="plaintext"),
                "one sum": FederatedGaussianBayesianNetwork(backend="plaintext"),
            }
            if baselines:
                models["voting"] = VotingStructureLearner(backend="plaintext")
                alone = best_alone(X, party, truth)
                results["best alone"].append((alone, np.nan, np.nan))
            for name, model in models.items():
                found = model.fit(X, party=party).adjacency_matrix_
                results[name].append(
                    (
                        structural_hamming_distance(truth, found),
                        true_positive_rate(truth, found),
                        false_discovery_rate(truth, found),
                    )
                )
        for name, values in results.items():
            shd, tpr, fdr = np.mean(values, axis=0)
            print(
                f"{d:4} {n_parties:3} {n:5}  {name:10} {shd:5.2f} {tpr:.2f} {fdr:.2f}"
            )


def growth():
    print("CPU seconds, rounds and bytes that a party sends per round (masked)")
    for d, n_parties in [(10, 8), (50, 8), (100, 8), (200, 8), (20, 32), (20, 256)]:
        X, _, party = problem(d, n_parties, max(3 * d, 4 * n_parties), 0)
        model = FederatedNotearsADMM(backend="plaintext")
        seconds, _ = timed(lambda m=model, X=X, p=party: m.fit(X, party=p))
        # a masked number takes 16 bytes; one more slot checks that masks cancel
        n_bytes = 16 * (d * d + 2)
        print(f"{d:4} {n_parties:4} {seconds:8.2f} {model.n_iter_:5} {n_bytes:9}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one graph of each kind")
    parser.add_argument("--simulation", type=int, metavar="GRAPHS", default=0)
    parser.add_argument("--baselines", action="store_true")
    parser.add_argument("--growth", action="store_true")
    arguments = parser.parse_args()
    if arguments.simulation:
        simulation(arguments.simulation, arguments.baselines)
    elif arguments.growth:
        growth()
    else:
        against_torch(1 if arguments.quick else 5)
