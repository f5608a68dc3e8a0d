"""K2 with differential privacy on Asia and ALARM: edges and likelihood for an epsilon.

Run with ``python benchmarks/study_private_k2.py`` (some minutes). Learners get the true
order of the columns and find at most two parents of each:

- K2 with "total_variation", with and without a delta of 1e-6, and with the K2 score;
- PrivBayes (Zhang, Cormode, Procopiuc, Srivastava and Xiao, ACM TODS 42, 2017), of one
  curator who sees all columns, with its score R, beta = 0.3, theta = 4 and the same
  order and number of parents;
- K2 without noise.

What private K2 computes on shares is computed here in the clear, with the same noise as
between two parties: two draws for every score and every count.
"""

import json
from itertools import combinations
from math import prod
from pathlib import Path
from tempfile import gettempdir
from time import process_time

import numpy as np
from _record import record

from skprivbn.bayesian_network import BayesianNetwork
from skprivbn.crypto.shares import Conversation, joint_counts, run_together
from skprivbn.datasets import load_alarm, load_asia
from skprivbn.privacy import add_discrete_laplace
from skprivbn.privacy._distributed import ChoiceNoise, discrete_gumbel
from skprivbn.structure import K2StructureLearner
from skprivbn.structure.k2._budget import K2Budget
from skprivbn.structure.k2._program import find_parents
from skprivbn.structure.k2._shared_search import K2Plan, SharedK2

NETWORKS = {"Asia": load_asia, "ALARM": load_alarm}
#: how many of each size
SAMPLES = {
    ("Asia", 10_000): 3,
    ("Asia", 100_000): 3,
    ("ALARM", 10_000): 2,
    ("ALARM", 100_000): 1,
}
EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
MAX_PARENTS = 2
N_PARTIES = 2


class NoiseOfAll(ChoiceNoise):
    """What the parties' noise adds up to."""

    def share(self, scales):
        return sum(super(NoiseOfAll, self).share(scales) for _ in range(N_PARTIES))


def said(steps):
    """Hand on what a program says, unsealed."""
    received = None
    while True:
        try:
            tell = steps.send(received)
        except StopIteration as stop:
            return stop.value
        received = yield tell.messages


def private_k2(X, n_states, ordering, epsilon, criterion, delta):
    """Run the search of private K2 with one party that has the noise of two."""
    n, d = X.shape
    n_choices = sum(min(MAX_PARENTS, i) for i in range(d))
    margins = criterion == "total_variation"
    budget = K2Budget(epsilon, delta, d, n_choices, margins, True, N_PARTIES, 1)

    def of_all(noise):
        return lambda shape: sum(noise.share(shape) for _ in range(N_PARTIES))

    def side():
        talk = Conversation("all", ("all",), b"benchmark")
        plan = K2Plan(
            ("all",) * d, tuple(n_states), tuple(ordering), n, MAX_PARENTS, criterion
        )
        noise = NoiseOfAll(**vars(budget.choices))
        columns = dict(enumerate(X.T))
        search = SharedK2(talk, {}, plan, columns, joint_counts, joint_counts, noise)
        counts = None
        if margins:
            counts = yield from search.open_counts(noise=of_all(budget.margins))
        parents = yield from said(find_parents(search, counts))
        tables = yield from search.open_counts(noise=of_all(budget.tables))
        yield from talk.finish()
        return parents, tables

    parents, tables = run_together({"all": side()})["all"]
    return parents, {v: np.moveaxis(t, 0, -1) for v, t in tables.items()}


def count(X, variables, n_states):
    """Return the table of some variables, the last fastest."""
    codes = np.zeros(len(X), dtype=np.int64)
    for v in variables:
        codes = codes * n_states[v] + X[:, v]
    shape = [n_states[v] for v in variables]
    return np.bincount(codes, minlength=prod(shape)).reshape(shape)


class PrivBayes:
    """PrivBayes with a given order; scores are kept for other epsilons."""

    def __init__(self, X, n_states, ordering):
        self.X, self.n_states, self.ordering = X, n_states, ordering
        self._scores = {}

    def fit(self, epsilon, beta=0.3, theta=4):
        n, d = self.X.shape
        for_graph, for_tables = beta * epsilon, (1 - beta) * epsilon
        # a table of more cells would have less signal than theta times its noise
        most = n * for_tables / (2 * d * theta)
        scale = 2 * (3 + 2 / n) / (for_graph / (d - 1))
        parents, tables = {}, {}
        for i, v in enumerate(self.ordering):
            sets = self._maximal(self.ordering[:i], most / self.n_states[v])
            scores = [self._score(v, members) for members in sets]
            noise = discrete_gumbel(np.full(len(sets), round(scale * 2**20))) / 2**20
            parents[v] = list(sets[int(np.argmax(np.add(scores, noise)))])
            counts = count(self.X, [*parents[v], v], self.n_states)
            tables[v] = add_discrete_laplace(counts, 2 * d, for_tables)
        return parents, tables

    def _maximal(self, before, most):
        """Sets of parents of the largest domains that are allowed."""
        sets = [
            members
            for size in range(MAX_PARENTS + 1)
            for members in combinations(before, size)
            if size == 0 or prod(self.n_states[v] for v in members) <= most
        ]
        inside = {m[:i] + m[i + 1 :] for m in sets for i in range(len(m))}
        return [members for members in sets if members not in inside]

    def _score(self, v, members):
        """R times the number of records: half the distance to independence."""
        if (v, members) not in self._scores:
            counts = count(self.X, [*members, v], self.n_states)
            counts = counts.reshape(-1, self.n_states[v])
            expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / len(self.X)
            self._scores[v, members] = np.abs(counts - expected).sum() / 2
        return self._scores[v, members]


def measure(network, n, seed):
    """Yield (learner, epsilon, wrong edges, edges, likelihood) for one sample."""
    X = network.encode(network.sample(n, random_state=seed))
    X_new = network.sample(10_000, random_state=1000 + seed)
    nodes = list(network.nodes)
    states = [network.states[node] for node in nodes]
    n_states = [len(labels) for labels in states]
    ordering = list(network.topological_order)
    truth = {
        (nodes.index(u), nodes.index(v)) for v in nodes for u in network.parents[v]
    }

    def judge(parents, tables):
        found = {(u, v) for v, members in parents.items() for u in members}
        named = {nodes[v]: [nodes[u] for u in parents[v]] for v in parents}
        counts = [np.maximum(tables[v], 0) for v in range(len(nodes))]
        learnt = BayesianNetwork.from_counts(nodes, states, named, counts, alpha=1.0)
        likelihood = float(np.mean(learnt.log_likelihood(X_new)))
        return len(found ^ truth), len(found), likelihood

    exact = K2StructureLearner(
        max_parents=MAX_PARENTS, ordering=ordering, states=n_states
    ).fit(X)
    parents = {
        v: [int(name[1:]) for name in exact.parents_[f"x{v}"]]
        for v in range(len(nodes))
    }
    tables = {v: count(X, [*parents[v], v], n_states) for v in parents}
    without = judge(parents, tables)
    priv_bayes = PrivBayes(X, n_states, ordering)
    for epsilon in EPSILONS:
        yield "K2 without noise", epsilon, *without
        yield "PrivBayes", epsilon, *judge(*priv_bayes.fit(epsilon))
        for name, criterion, delta in (
            ("total_variation", "total_variation", 0.0),
            ("total_variation, delta", "total_variation", 1e-6),
            ("k2, delta", "k2", 1e-6),
        ):
            found = private_k2(X, n_states, ordering, epsilon, criterion, delta)
            yield name, epsilon, *judge(*found)


def main():
    rows = []
    for (name, n), n_samples in SAMPLES.items():
        for seed in range(n_samples):
            rows += sample(name, n, seed)
    means = {}
    for row in rows:
        key = row["network"], row["rows"], row["learner"], row["epsilon"]
        means.setdefault(key, []).append(row)
    record("private_k2", [mean(*key, found) for key, found in means.items()])


def sample(name, n, seed):
    """Measure one sample, or read what an interrupted run has measured."""
    path = Path(gettempdir()) / f"bench_private_k2_{name}_{n}_{seed}.json"
    if not path.exists():
        start = process_time()
        found = [
            {
                "network": name,
                "rows": n,
                "learner": learner,
                "epsilon": epsilon,
                "wrong edges": wrong,
                "edges": edges,
                "likelihood": likelihood,
            }
            for learner, epsilon, wrong, edges, likelihood in measure(
                NETWORKS[name](), n, seed
            )
        ]
        path.write_text(json.dumps(found))
        print(f"{name} {n} {seed}: {process_time() - start:.0f} CPU seconds")
    return json.loads(path.read_text())


def mean(network, n, learner, epsilon, found):
    head = {"network": network, "rows": n, "learner": learner, "epsilon": epsilon}
    return (
        head
        | {"samples": len(found)}
        | {
            what: float(np.mean([row[what] for row in found]))
            for what in ("wrong edges", "edges", "likelihood")
        }
    )


if __name__ == "__main__":
    main()
