"""Private random fields: how far from the truth, how fast, against whom.

Run with ``python benchmarks/bench_graphical_model.py`` (twenty minutes of CPU time,
most of it for mbi and the naive path; ``--seeds 1 --mbi-seeds 0`` for two). Results are
kept seed by seed in ``benchmarks/results/random_fields.json``: ``--resume`` computes
what is not there yet, ``--show`` prints the medians of what is.

Random pairwise fields with ten variables of ten states and Dirichlet(1) edge
potentials, N = 100,000 rows: third-order chains and connected Erdos-Renyi graphs with
twenty edges. Measured are Kullback-Leibler divergences from the true field to the
learnt one, and their ratios on the same noisy tables:

- cgm / naive: "naive" is the end of a path of ridge penalties from 1e-2 to 1e-9, two
  for each factor of ten (one with ``--coarse``), each started from the one before;
- auto / oracle: the best penalty on that path, chosen knowing the truth;
- auto / mbi: mirror descent of the package mbi 2.0.0 after 300, 1000 and 4000
  iterations, in double precision, CPU time without compilation;
- Gaussian noise (delta = 1e-6) / Laplace noise, both with "auto".

For reference: "uniform" is the uniform field; "random" learns, by maximum likelihood,
from random tables instead of the data's; "non-private" from the exact tables.
Exact inference is compared with a textbook junction tree in log space, which is all
that ``--inference`` does.
"""

import argparse
import time
from functools import partial
from itertools import product

import numpy as np
from _record import read, record
from scipy.special import logsumexp

from skprivbn.datasets import make_markov_random_field
from skprivbn.graphical_model._estimation import (
    collective_em,
    empirical_bayes,
    maximise_likelihood,
    projected_marginals,
)
from skprivbn.graphical_model._tables import (
    Contribution,
    NoisyTables,
    TableLayout,
    count_tables,
)
from skprivbn.privacy import CountMechanism

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
        self.codes = self.layout.inference.sample(tape, n_rows, rng)
        self.counts = count_tables(self.codes, self.layout, Contribution())

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
        return energy - self.log_partition + self.layout.marginals(theta)[0]


def timed(function, *args):
    start = time.process_time()
    result = function(*args)
    return result, time.process_time() - start


def naive_path(instance, tables, penalties):
    """Divergences along the path of penalties, each started from the one before."""
    wanted, theta, path = projected_marginals(tables), None, []
    for penalty in penalties:
        theta, _ = maximise_likelihood(tables.layout, wanted, penalty, theta, 1000)
        path.append(instance.divergence(theta))
    return path


def mbi_path(instance, tables, std, iteration_counts):
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
    estimate(iters=iteration_counts[0])  # compiles
    results = {}
    for iterations in iteration_counts:
        start = time.process_time()
        model = estimate(iters=iterations)
        found = [
            np.asarray(model.potentials.project(measurement.clique).values)
            for measurement in measurements
        ]
        seconds = time.process_time() - start
        results[iterations] = instance.divergence(layout.flatten(found)), seconds
    return results


def random_estimate(layout, seed):
    """Potentials learnt from tables that have nothing to do with the data."""
    rng = np.random.default_rng(seed)
    tables = [rng.dirichlet(np.ones(n)) for n in layout.n_cells]
    marginals = np.concatenate(tables)
    return maximise_likelihood(layout, marginals, 1e-9, None, 1000)[0]


def learn(graph, epsilon, seed, n_rows, penalties, mbi_iterations):
    """Divergences and CPU seconds of all methods for one random field."""
    instance = Instance(graph, seed, n_rows)
    layout, tables = instance.layout, instance.release(epsilon)
    exact, _ = maximise_likelihood(layout, instance.counts / n_rows, 1e-9)
    auto, auto_seconds = timed(empirical_bayes, tables)
    (cgm, _, _), cgm_seconds = timed(collective_em, tables)
    path, path_seconds = timed(naive_path, instance, tables, penalties)
    gaussian = empirical_bayes(instance.release(epsilon, 1e-6))
    row = {
        "uniform": instance.divergence(np.zeros(layout.n_parameters)),
        "random": instance.divergence(random_estimate(layout, seed)),
        "non-private": instance.divergence(exact),
        "auto": instance.divergence(auto),
        "auto, gaussian": instance.divergence(gaussian),
        "cgm": instance.divergence(cgm),
        "naive": path[-1],
        "oracle": min(path),
        "oracle penalty": penalties[np.argmin(path)],
        "penalties": len(penalties),
        "auto seconds": auto_seconds,
        "cgm seconds": cgm_seconds,
        "naive path seconds": path_seconds,
    }
    if mbi_iterations:
        peers = mbi_path(instance, tables, float(tables.std[0]), mbi_iterations)
        for iterations, (divergence, seconds) in peers.items():
            row[f"mbi {iterations}"] = divergence
            row[f"mbi {iterations} seconds"] = seconds
    return row


def ratios(rows):
    """Pairs (name, values over seeds) of what is compared."""

    def ratio(above, below):
        return [row[above] / row[below] for row in rows if below in row]

    yield "cgm / naive", ratio("cgm", "naive")
    yield "auto / oracle", ratio("auto", "oracle")
    yield "gaussian / laplace", ratio("auto, gaussian", "auto")
    yield "auto / uniform", ratio("auto", "uniform")
    for iterations in MBI_ITERATIONS:
        peer = f"mbi {iterations}"
        yield f"auto / {peer}", ratio("auto", peer)
        yield f"seconds, auto / {peer}", ratio("auto seconds", f"{peer} seconds")


COMMAND = "python benchmarks/bench_graphical_model.py"
SETTING = ("experiment", "graph", "epsilon", "records", "seed")


def load():
    stored = read("random_fields")
    return [] if stored is None else stored["rows"]


def store(row):
    """Keep one row at once, so that an interrupted run loses nothing."""
    rows = [other for other in load() if not same_setting(row, other)] + [row]
    rows = [row for row in rows if row["experiment"] != "medians"]
    rows.sort(key=lambda row: [str(row.get(name)) for name in SETTING])
    record("random_fields", [*rows, *medians(rows)], command=COMMAND)


def by_setting(rows):
    """Rows of learning, by graph, epsilon and number of records."""
    groups = {}
    for row in rows:
        if row["experiment"] == "learning":
            key = row["graph"], row["epsilon"], row["records"]
            groups.setdefault(key, []).append(row)
    return groups


def medians(rows):
    """One row per setting: medians over seeds, and against mbi's best choice."""
    for (graph, epsilon, records), own in by_setting(rows).items():
        found = {"experiment": "medians", "graph": graph, "epsilon": epsilon}
        found |= {"records": records, "seeds": len(own)}
        for name in ("naive", "cgm", "auto", "oracle"):
            found[name] = np.median([row[name] for row in own])
        for name, values in ratios(own):
            if values and "mbi" not in name:
                found[name] = np.median(values)
        choices = {
            n: np.median(values)
            for n in MBI_ITERATIONS
            if (values := [row[f"mbi {n}"] for row in own if f"mbi {n}" in row])
        }
        if choices:
            best = f"mbi {min(choices, key=choices.get)}"
            compared = dict(ratios(own))
            found["best of mbi"] = best
            found["auto / best of mbi"] = np.median(compared[f"auto / {best}"])
            found["CPU as share of mbi's"] = np.median(
                compared[f"seconds, auto / {best}"]
            )
        yield found


def same_setting(row, other):
    names = (*SETTING, "nodes", "states")
    return all(row.get(name) == other.get(name) for name in names)


def show():
    """Print medians and ranges over the stored seeds."""
    for (graph, epsilon, records), own in by_setting(load()).items():
        print(f"\n{graph}, epsilon {epsilon}, {records} records")
        print("  median [smallest, largest] (seeds)")
        names = dict.fromkeys(n for row in own for n in row if n not in SETTING)
        columns = {n: [row[n] for row in own if n in row] for n in names}
        for name, values in [*columns.items(), *ratios(own)]:
            if values:
                print(
                    f"  {name:26} {np.median(values):10.4g}   "
                    f"[{min(values):.4g}, {max(values):.4g}] ({len(values)})"
                )


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
        mine, other = (
            1000 * min(timed(function)[1] for _ in range(repeats))
            for function, repeats in ((ours, 30), (theirs, 3))
        )
        print(f"{n_nodes:6} {n_states:6} {mine:9.2f} {other:9.2f} {other / mine:7.1f}")
        store(
            {
                "experiment": "inference",
                "graph": "chain",
                "nodes": n_nodes,
                "states": n_states,
                "ours milliseconds": mine,
                "textbook milliseconds": other,
                "textbook / ours": other / mine,
            }
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--mbi-seeds", type=int, default=3, help="how many with mbi")
    parser.add_argument("--mbi-iterations", type=int, nargs="+", default=MBI_ITERATIONS)
    parser.add_argument("--coarse", action="store_true", help="fewer penalties")
    parser.add_argument("--resume", action="store_true", help="skip stored seeds")
    parser.add_argument("--first-seed", type=int, default=100)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.1, 1.0])
    parser.add_argument("--graphs", nargs="+", default=list(GRAPHS), choices=GRAPHS)
    parser.add_argument("--inference", action="store_true", help="only its speed")
    parser.add_argument("--show", action="store_true", help="only what is stored")
    options = parser.parse_args()
    if not options.show:
        compare_inference()
    if options.inference:
        return
    penalties = 10.0 ** -np.arange(2, 9.5, 1.0 if options.coarse else 0.5)
    names = [] if options.show else list(product(options.graphs, options.epsilons))
    for number, (graph, epsilon) in product(range(options.seeds), names):
        setting = {
            "experiment": "learning",
            "graph": graph,
            "epsilon": epsilon,
            "records": options.rows,
            "seed": options.first_seed + number,
        }
        if options.resume and any(same_setting(setting, row) for row in load()):
            continue
        counts = options.mbi_iterations if number < options.mbi_seeds else ()
        row = learn(graph, epsilon, setting["seed"], options.rows, penalties, counts)
        store({**setting, **row})
        print({**setting, **row}, flush=True)
    show()


if __name__ == "__main__":
    main()
