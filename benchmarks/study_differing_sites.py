"""Networks of sites that differ, and noise that is not normal: which method finds them.

Run with ``python benchmarks/study_differing_sites.py`` (some minutes, most of them in
the tests of the peer).

- Sites: six variables, ten sites of 100 rows, linear mechanisms; those of half of the
  variables have other weights and another spread at each site (after Li et al.,
  Federated causal discovery from heterogeneous data, 2024). F1 of the skeleton and of
  directed edges, and the share of variables of which is known whether they change;
  sums, and kilobytes that a site sends and receives. Beside them, the skeleton of PC
  on the tests of `python-fedci`, with its defaults, where half of them change.
- Shapes: ten variables, 1,000 rows of standardised columns. Structural Hamming
  distances, beside those of the package `lingam` on pooled rows, and in how many graphs
  both find the same edges.
- Costs: what the parties add for six columns of ten sites with 100 rows, by method.
"""

import argparse
from time import process_time

import numpy as np
from _record import record

from skprivbn.datasets import make_linear_sem
from skprivbn.metrics import skeleton_f1, structural_hamming_distance
from skprivbn.partition import HorizontalPartition
from skprivbn.structure import (
    FederatedBayesianNetwork,
    FederatedFCI,
    FederatedGaussianBayesianNetwork,
)
from skprivbn.structure._fci import find_skeleton

N_SITES = 10


def differing_sites(seed, share, d=6, n_rows=100):
    """Return rows of each site, the graph, and which mechanisms change."""
    rng = np.random.default_rng(seed)
    order, graph = rng.permutation(d), np.zeros((d, d), dtype=bool)
    for place, i in enumerate(order):
        graph[i, order[place + 1 :]] = rng.random(d - place - 1) < 2 / (d - 1)

    def draw():
        return graph * rng.uniform(0.5, 2.0, (d, d)) * rng.choice([-1, 1], (d, d))

    weights, changes, rows = draw(), rng.random(d) < share, {}
    for k in range(N_SITES):
        own = np.where(changes, draw(), weights)
        scale = np.where(changes, np.sqrt(rng.uniform(1, 3, d)), 1.0)
        X = np.zeros((n_rows, d))
        for j in order:
            X[:, j] = X @ own[:, j] + scale[j] * rng.normal(size=n_rows)
        rows[f"site {k}"] = X
    return rows, graph, changes


def directed_f1(truth, found):
    """Return the F1 score of edges with their directions."""
    return 2 * np.sum(truth & found) / max(truth.sum() + found.sum(), 1)


def measure_sites(share, n_graphs):
    """Yield a row for each method, on sites of which a share of mechanisms differs."""
    for effects in (None, "levels", "mechanisms"):
        scores = []
        for seed in range(n_graphs):
            rows, graph, changes = differing_sites(seed, share)
            start = process_time()
            model = FederatedGaussianBayesianNetwork(site_effects=effects)
            found = model.fit(HorizontalPartition(rows)).adjacency_matrix_
            known = getattr(model, "changing_mechanisms_", np.zeros(len(found)))
            scores.append(
                [
                    skeleton_f1(graph, found),
                    directed_f1(graph, found),
                    np.mean(known == changes),
                    model.n_iter_,
                    model.ledger_.total_bytes / N_SITES / 1e3,
                    process_time() - start,
                ]
            )
        skeleton, directed, known, n_sums, size, seconds = np.mean(scores, axis=0)
        yield {
            "site_effects": effects or "none",
            "share that changes": share,
            "graphs": n_graphs,
            "skeleton F1": skeleton,
            "directed F1": directed,
            "changes known": known,
            "sums": n_sums,
            "kB per site": size,
            "CPU seconds": seconds,
        }


def measure_peer(share, n_graphs, significance=0.01):
    """Return the same of PC's skeleton on federated tests of `python-fedci`."""
    import polars as pl
    from fedci import Client, Server

    scores = []
    for seed in range(n_graphs):
        rows, graph, _ = differing_sites(seed, share)
        names, start = [f"x{j}" for j in range(len(graph))], process_time()
        clients = [Client(k, pl.DataFrame(X, schema=names)) for k, X in rows.items()]
        server, n_tests, n_rounds = Server(clients), 0, 0

        def independent(x, y, given, server=server):
            nonlocal n_tests, n_rounds
            result = server.test(f"x{x}", f"x{y}", [f"x{v}" for v in given])
            n_tests, n_rounds = n_tests + 1, n_rounds + result.get_iterations()
            return result.p_value > significance

        found, _ = find_skeleton(independent, len(names), len(names) - 2)
        scores.append(
            [skeleton_f1(graph, found), n_tests, n_rounds, process_time() - start]
        )
    skeleton, n_tests, n_rounds, seconds = np.mean(scores, axis=0)
    return {
        "site_effects": "python-fedci",
        "share that changes": share,
        "graphs": n_graphs,
        "skeleton F1": skeleton,
        "sums": n_rounds,
        "tests": n_tests,
        "CPU seconds": seconds,
    }


def measure_shapes(noise, n_graphs):
    """Return mean distances on standardised columns with noise of one shape."""
    from lingam import DirectLiNGAM

    distances, n_equal = {}, 0
    for seed in range(n_graphs):
        X, weights = make_linear_sem(1000, 10, noise=noise, random_state=seed)
        X, truth = (X - X.mean(axis=0)) / X.std(axis=0), weights != 0
        found = {}
        for method in ("auto", "bic", "lingam"):
            model = FederatedGaussianBayesianNetwork(method)
            found[method] = model.fit(X, party=np.arange(1000) % 4).adjacency_matrix_
        found["pooled lingam"] = DirectLiNGAM().fit(X).adjacency_matrix_.T != 0
        n_equal += np.array_equal(found["lingam"], found["pooled lingam"])
        for name, graph in found.items():
            distance = structural_hamming_distance(truth, graph)
            distances.setdefault(name, []).append(distance)
    means = {name: np.mean(values) for name, values in distances.items()}
    return {"noise": noise, "graphs": n_graphs, **means, "same edges": n_equal}


def measure_costs():
    """Yield sums, rounds and bytes of every method, on the same sites."""
    numbers, _, _ = differing_sites(0, 0.5)
    labels = {site: np.digitize(X, [-1.0, 1.0]) for site, X in numbers.items()}
    half = {
        site: np.hstack([labels[site][:, :3], numbers[site][:, 3:]]) for site in labels
    }
    kinds = [3, 3, 3, *["continuous"] * 3]
    gaussian, discrete = FederatedGaussianBayesianNetwork, FederatedBayesianNetwork
    for name, learner, rows in (
        ("bic", gaussian("bic"), numbers),
        ("auto", gaussian(), numbers),
        ("lingam", gaussian("lingam"), numbers),
        ("mechanisms", gaussian(site_effects="mechanisms"), numbers),
        ("hill climbing", discrete(states=[3] * 6), labels),
        ("mechanisms", discrete(states=[3] * 6, site_effects="mechanisms"), labels),
        ("FCI", FederatedFCI(), numbers),
        ("FCI", FederatedFCI(states=[3] * 6), labels),
        ("FCI", FederatedFCI(states=kinds), half),
    ):
        ledger = learner.fit(HorizontalPartition(rows)).ledger_
        sent = [e for e in ledger.entries if (e.sender, e.kind) == ("site 0", "masked")]
        columns = {id(numbers): "continuous", id(labels): "discrete"}
        yield {
            "method": name,
            "columns": columns.get(id(rows), "both"),
            "sums": len(sent),
            "rounds": ledger.n_rounds,
            "kB per site": ledger.total_bytes / N_SITES / 1e3,
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", type=int, default=20, help="in each setting")
    parser.add_argument("--parts", nargs="+", default=["sites", "shapes", "costs"])
    arguments = parser.parse_args()
    n_graphs = arguments.graphs
    if "sites" in arguments.parts:
        shares = (0.0, 0.5, 1.0)
        rows = [row for share in shares for row in measure_sites(share, n_graphs)]
        rows.append(measure_peer(0.5, n_graphs))
        record("differing_sites", rows, sites=N_SITES)
    if "shapes" in arguments.parts:
        noises = ("gaussian", "exponential", "gumbel")
        rows = [measure_shapes(noise, n_graphs) for noise in noises]
        record("shapes_of_noise", rows, parties=4)
    if "costs" in arguments.parts:
        record("structure_costs", measure_costs(), sites=N_SITES)


if __name__ == "__main__":
    main()
