"""Linear NOTEARS-ADMM against a straightforward torch version of Algorithm 1.

Run with ``python benchmarks/bench_notears.py`` (needs ``skprivbn[bench]``; several
minutes, most of them in torch). Both sides run in one process with the coordinator
reading sums in the clear, so that what is compared is the optimisation; the cost of
masking is a column of its own. One thread.

``--quick`` runs one graph of each kind, ``--torch-rounds`` stops torch early (its time
is then a lower bound), ``--simulation`` prints the table of the guide (mean distances
over fresh graphs), ``--growth`` times growing problems and counts bytes, ``--backends``
compares distances in the clear and under masks, ``--nonlinear`` networks with basis
functions and votes, ``--sachs`` measures distances on the data of Sachs.
"""

import argparse
import time
import warnings

import numpy as np
from sklearn.base import clone

from skprivbn.datasets import load_sachs, make_linear_sem, make_mlp_sem
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


def problem(d, n_parties, n, seed):
    X, weights = make_linear_sem(n, d, random_state=seed)
    return X, weights != 0, np.repeat(np.arange(n_parties), -(-n // n_parties))[:n]


def timed(function):
    start = time.process_time()
    result = function()
    return time.process_time() - start, result


def against_torch(n_graphs, rounds):
    print(
        "CPU seconds per fit (mean distance to the true graph), torch with "
        f"{rounds} rounds"
    )
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
            seconds, graph = timed(lambda b=blocks: torch_admm(b, max_iter=rounds))
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
    """Masked fits with few rounds: what a round costs does not depend on how many.

    All parties and the coordinator share one core here; a party of a real federation
    pays for its own masks only, one K-th of it. The bytes are those of the ledger.
    """
    print(
        "all parties on one core: CPU seconds of a fit in the clear and its rounds; "
        "masked, seconds to begin and per round; bytes per party and round"
    )
    print(
        f"{'d':>4} {'K':>4} {'clear':>8} {'rounds':>6} {'begin':>8} {'round':>8} "
        f"{'one party':>9} {'sent':>8} {'received':>8}"
    )
    for d, n_parties in GROWTH:
        X, _, party = problem(d, n_parties, max(3 * d, 4 * n_parties), 0)
        clear = FederatedNotearsADMM(backend="plaintext")
        seconds, _ = timed(lambda m=clear, X=X, p=party: m.fit(X, party=p))
        more = 10 if n_parties < 100 else 2
        short, longer = (FederatedNotearsADMM(max_iter=n) for n in (1, 1 + more))
        first, _ = timed(lambda m=short, X=X, p=party: m.fit(X, party=p))
        both, _ = timed(lambda m=longer, X=X, p=party: m.fit(X, party=p))
        per_round = max(both - first, 0.0) / more
        sent, received = bytes_of_a_round(longer.ledger_)
        # one round takes two proposals: the second tells how far parties are apart
        begin = max(first - 2 * per_round, 0.0)
        print(
            f"{d:4} {n_parties:4} {seconds:8.2f} {clear.n_iter_:6} {begin:8.2f} "
            f"{per_round:8.3f} {per_round / n_parties:9.4f} {sent:8} {received:8}",
            flush=True,
        )


def bytes_of_a_round(ledger):
    """Return what a party sends and receives in the last round, from the ledger."""
    party = ledger.parties[0]
    entries = [entry for entry in ledger.entries if entry.operation == "propose"]
    last = max(entry.round for entry in entries)
    sent = sum(e.n_bytes for e in entries if (e.round, e.sender) == (last, party))
    got = sum(e.n_bytes for e in entries if (e.round, e.receiver) == (last, party))
    return sent, got


def backends(n_graphs):
    """Masks change the last digits of sums, and with them single graphs at most."""
    print("(10, 10, 30): distances in the clear and under masks")
    distances = []
    for seed in range(n_graphs):
        X, truth, party = problem(10, 10, 30, 30_000 + seed)
        distances.append(
            [
                structural_hamming_distance(
                    truth,
                    FederatedNotearsADMM(backend=backend)
                    .fit(X, party=party)
                    .adjacency_matrix_,
                )
                for backend in ("plaintext", "masking")
            ]
        )
    distances = np.array(distances)
    differ = np.mean(distances[:, 0] != distances[:, 1])
    print(
        "mean {:.2f} and {:.2f} over {} graphs; {:.0%} of them differ".format(
            *distances.mean(axis=0), n_graphs, differ
        )
    )


def nonlinear(n_graphs, sizes=((10, 200), (20, 512)), n_parties=8):
    print(f"networks as mechanisms, {n_parties} parties: mean distance (CPU seconds)")
    for d, n in sizes:
        results = {"empty": [], "voting": [], "mlp": [], "basis": [], "linear": []}
        for seed in range(n_graphs):
            X, weights = make_mlp_sem(n, d, random_state=seed)
            truth, party = weights != 0, np.arange(n) % n_parties
            mlp = FederatedNotearsADMM("mlp", backend="plaintext", random_state=0)
            one_sum = FederatedGaussianBayesianNetwork(backend="plaintext")
            models = {
                "voting": VotingStructureLearner(mlp, backend="plaintext"),
                "mlp": mlp,
                "basis": clone(one_sum).set_params(basis="sigmoid"),
                "linear": one_sum,
            }
            results["empty"].append((np.sum(truth), 0.0))
            for name, model in models.items():
                seconds, _ = timed(lambda m=model, X=X, p=party: m.fit(X, party=p))
                found = model.adjacency_matrix_
                distance = structural_hamming_distance(truth, found)
                results[name].append((distance, seconds))
                print(d, n, seed, name, distance, round(seconds, 1), flush=True)
        for name, values in results.items():
            print(
                "{:4} {:4}  {:7} {:5.2f} ({:.1f})".format(
                    d, n, name, *np.mean(values, axis=0)
                )
            )


def sachs(n_permutations):
    print("Sachs, 512 of 853 cells: mean distance (standard error)")
    data = load_sachs()
    truth = data.adjacency_matrix
    for n_parties in (2, 16, 64):
        distances = []
        for seed in range(n_permutations):
            rows = np.random.RandomState(seed).permutation(853)[:512]
            models = (
                FederatedNotearsADMM(backend="plaintext"),
                FederatedGaussianBayesianNetwork(backend="plaintext"),
                FederatedGaussianBayesianNetwork(
                    "auto", random_state=0, backend="plaintext"
                ),
            )
            party = np.arange(512) % n_parties
            distances.append(
                [
                    structural_hamming_distance(
                        truth, model.fit(data.data[rows], party=party).adjacency_matrix_
                    )
                    for model in models
                ]
            )
        mean = np.mean(distances, axis=0)
        error = np.std(distances, axis=0, ddof=1) / np.sqrt(n_permutations)
        for name, m, e in zip(("admm", "equal_variance", "auto"), mean, error):
            print(f"{n_parties:4}  {name:15} {m:5.2f} ({e:.2f})", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one graph of each kind")
    parser.add_argument("--torch-rounds", type=int, metavar="ROUNDS", default=200)
    parser.add_argument("--simulation", type=int, metavar="GRAPHS", default=0)
    parser.add_argument("--baselines", action="store_true")
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--backends", type=int, metavar="GRAPHS", default=0)
    parser.add_argument("--nonlinear", type=int, metavar="GRAPHS", default=0)
    parser.add_argument("--sachs", type=int, metavar="PERMUTATIONS", default=0)
    arguments = parser.parse_args()
    if arguments.simulation:
        simulation(arguments.simulation, arguments.baselines)
    elif arguments.growth:
        growth()
    elif arguments.backends:
        backends(arguments.backends)
    elif arguments.nonlinear:
        nonlinear(arguments.nonlinear)
    elif arguments.sachs:
        sachs(arguments.sachs)
    else:
        against_torch(1 if arguments.quick else 5, arguments.torch_rounds)
