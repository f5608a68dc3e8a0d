"""Private random fields: how far from the truth, how fast, against whom.

Run with ``python benchmarks/bench_graphical_model.py`` (about half an hour with all
peers; ``--seeds 1 --no-mbi`` for a minute or two). Random pairwise fields with ten
variables of ten states and Dirichlet(1) edge potentials, N = 100,000 rows: third-order
chains and connected Erdos-Renyi graphs with twenty edges. Reported are medians over
seeds of the Kullback-Leibler divergence from the true field to the learnt one, and of
ratios of divergences on the same noisy tables:

- cgm / naive: "naive" is the end of a path of ridge penalties from 1e-2 to 1e-9;
- auto / oracle: the best penalty on that path, chosen knowing the truth;
- auto / mbi: mirror descent of the package mbi 2.0.0 after 300, 1000 and 4000
  iterations, in double precision, CPU time without compilation;
- Gaussian noise (delta = 1e-6) / Laplace noise, both with "auto".

A second table compares exact inference with a textbook junction tree in log space.
"""

import argparse
import time
from functools import partial

import numpy as np
from scipy.special import logsumexp

from skprivbn.datasets import make_markov_random_field
from skprivbn.graphical_model._cgm import collective_em
from skprivbn.graphical_model._counting import Contribution, count_tables
from skprivbn.graphical_model._estimation import (
    empirical_bayes,
    maximise_likelihood,
    projected_marginals,
)
from skprivbn.graphical_model._layout import TableLayout
from skprivbn.graphical_model._noisy_tables import NoisyTables
from skprivbn.privacy import CountMechanism

PENALTIES = 10.0 ** -np.arange(2, 10)
MBI_ITERATIONS = (300, 1000, 4000)
GRAPHS = {
    "chain": {"graph": "chain", "order": 3},
    "erdos_renyi": {"graph": "erdos_renyi", "n_edges": 20},
}


class Instance:
    """A random field, rows drawn from it and their exact tables."""

    def __init__(self, graph, seed, n_rows):
        potentials = make_markov_random_field(random_state=seed, **GRAPHS[graph])
        self.layout = TableLayout(list(potentials), [10] * 10)
        self.truth = self.layout.flatten(potentials.values())
        self.log_partition, self.marginals = self.layout.marginals(self.truth)
        tables, _ = self.layout.potentials(self.truth)
        _, tape = self.layout.inference.forward(tables)
        rng = np.random.RandomState(1000 + seed)
        codes = self.layout.inference.sample(tape, n_rows, rng)
        self.counts = count_tables(codes, self.layout, Contribution())

    def release(self, epsilon, delta=0.0):
        n = len(self.layout.cliques)
        noise = CountMechanism.for_budget(epsilon, delta, n, np.sqrt(n))
        return NoisyTables(
            self.layout,
            noise.release(self.counts).astype(float),
            np.full(n, noise.std),
            noise.kind,
        )

    def divergence(self, theta):
        """Kullback-Leibler divergence from the truth."""
        energy = (self.truth - theta) @ self.marginals
        return energy - self.log_partition + self.layout.log_partition(theta)


def timed(function, *args):
    start = time.process_time()
    result = function(*args)
    return result, time.process_time() - start


def naive_path(instance, tables):
    """Divergences along the path of penalties, each started from the one before."""
    wanted, theta, path = projected_marginals(tables), None, []
    for penalty in PENALTIES:
        theta, _ = maximise_likelihood(tables.layout, wanted, penalty, theta, 1000)
        path.append(instance.divergence(theta))
    return path


def mbi_path(instance, tables, std):
    """Divergence and CPU seconds of mbi's mirror descent for each iteration count."""
    import jax

    jax.config.update("jax_enable_x64", True)
    import mbi

    layout = tables.layout
    names = [f"x{i}" for i in range(len(layout.sizes))]
    domain = mbi.Domain(names, layout.sizes)
    measurements = [
        mbi.LinearMeasurement(table.ravel(), tuple(names[i] for i in clique), std)
        for clique, table in zip(layout.cliques, layout.split(tables.values))
    ]
    estimate = partial(mbi.estimation.MirrorDescent().estimate, domain, measurements)
    estimate(iters=MBI_ITERATIONS[0])  # compiles
    results = {}
    for iterations in MBI_ITERATIONS:
        start = time.process_time()
        model = estimate(iters=iterations)
        found = [
            np.asarray(model.potentials.project(measurement.clique).values)
            for measurement in measurements
        ]
        seconds = time.process_time() - start
        results[iterations] = instance.divergence(layout.flatten(found)), seconds
    return results


def learn(graph, epsilon, seed, n_rows, with_mbi):
    """One row of results."""
    instance = Instance(graph, seed, n_rows)
    tables = instance.release(epsilon)
    row = {"uniform": instance.divergence(np.zeros(tables.layout.n_parameters))}
    exact = instance.counts / n_rows
    theta, _ = maximise_likelihood(tables.layout, exact, 1e-9, None, 1000)
    row["non-private"] = instance.divergence(theta)
    theta, row["auto seconds"] = timed(empirical_bayes, tables)
    row["auto"] = instance.divergence(theta)
    (theta, _, _), row["cgm seconds"] = timed(collective_em, tables)
    row["cgm"] = instance.divergence(theta)
    path, row["naive path seconds"] = timed(naive_path, instance, tables)
    row["naive"], row["oracle"] = path[-1], min(path)
    gaussian = empirical_bayes(instance.release(epsilon, 1e-6))
    row["auto, gaussian"] = instance.divergence(gaussian)
    row["cgm / naive"] = row["cgm"] / row["naive"]
    row["auto / oracle"] = row["auto"] / row["oracle"]
    row["gaussian / laplace"] = row["auto, gaussian"] / row["auto"]
    row["auto / uniform"] = row["auto"] / row["uniform"]
    if with_mbi:
        peers = mbi_path(instance, tables, float(tables.std[0]))
        for iterations, (divergence, seconds) in peers.items():
            row[f"mbi {iterations}"] = divergence
            row[f"auto / mbi {iterations}"] = row["auto"] / divergence
            row[f"seconds, auto / mbi {iterations}"] = row["auto seconds"] / seconds
    return row


def textbook_junction_tree(theta, n_nodes, n_states):
    """Marginals of a third-order chain by log-space messages between 4-cliques."""
    tables = iter(theta)
    cliques = [np.zeros((n_states,) * 4) for _ in range(n_nodes - 3)]
    for i in range(n_nodes):
        for j in range(i + 1, min(i + 4, n_nodes)):
            c = min(i, n_nodes - 4)
            shape = [1] * 4
            shape[i - c], shape[j - c] = n_states, n_states
            cliques[c] = cliques[c] + next(tables).reshape(shape)
    forward, backward = [0.0], [0.0]
    for table in cliques[:-1]:
        message = logsumexp(table + forward[-1], axis=0)
        forward.append(message[..., None])
    for table in cliques[:0:-1]:
        message = logsumexp(table + backward[-1], axis=3)
        backward.append(message[None])
    log_partition = logsumexp(cliques[-1] + forward[-1])
    beliefs = [
        np.exp(table + f + b - log_partition)
        for table, f, b in zip(cliques, forward, backward[::-1])
    ]
    marginals = []
    for i in range(n_nodes):
        for j in range(i + 1, min(i + 4, n_nodes)):
            c = min(i, n_nodes - 4)
            others = tuple(a for a in range(4) if a not in (i - c, j - c))
            marginals.append(beliefs[c].sum(axis=others))
    return log_partition, marginals


def compare_inference():
    """CPU seconds of one evaluation of all marginals, ours and the textbook's."""
    print("\nexact inference, third-order chains: milliseconds of CPU per evaluation")
    print(f"{'nodes':>6} {'states':>6} {'ours':>9} {'textbook':>9} {'ratio':>7}")
    rng = np.random.default_rng(0)
    for n_nodes, n_states in ((10, 10), (10, 20), (40, 10), (160, 10)):
        cliques = [
            (i, j) for i in range(n_nodes) for j in range(i + 1, min(i + 4, n_nodes))
        ]
        layout = TableLayout(cliques, [n_states] * n_nodes)
        theta = rng.normal(size=layout.n_parameters)
        ours, theirs = (
            partial(layout.marginals, theta),
            partial(textbook_junction_tree, layout.split(theta), n_nodes, n_states),
        )
        (_, fast), (_, slow) = ours(), theirs()
        assert np.allclose(fast, layout.flatten(slow), atol=1e-10)
        seconds = []
        for function, repeats in ((ours, 30), (theirs, 3)):
            _, total = timed(lambda f=function, n=repeats: [f() for _ in range(n)])
            seconds.append(1000 * total / repeats)
        ratio = seconds[1] / seconds[0]
        print(
            f"{n_nodes:6} {n_states:6} {seconds[0]:9.2f} {seconds[1]:9.2f} {ratio:7.1f}"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=100)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.1, 1.0])
    parser.add_argument("--graphs", nargs="+", default=list(GRAPHS), choices=GRAPHS)
    parser.add_argument("--no-mbi", action="store_true")
    options = parser.parse_args()
    compare_inference()
    for graph in options.graphs:
        for epsilon in options.epsilons:
            rows = [
                learn(graph, epsilon, seed, options.rows, not options.no_mbi)
                for seed in np.arange(options.seeds) + options.first_seed
            ]
            print(f"\n{graph}, epsilon {epsilon}: medians over {options.seeds} seeds")
            for name in rows[0]:
                values = [row[name] for row in rows]
                print(
                    f"  {name:28} {np.median(values):10.4f}   "
                    f"[{min(values):.4f}, {max(values):.4f}]",
                    flush=True,
                )


if __name__ == "__main__":
    main()
