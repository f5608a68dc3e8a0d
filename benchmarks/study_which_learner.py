"""Which structure learner fits which data: ten settings, every learner that takes them.

Run with ``python benchmarks/study_which_learner.py`` (a minute or two). Six variables
of five sites, five graphs for each setting, linear effects unless said. F1 of skeletons
and of directed edges, and the share of directions that are wrong: from a variable that
is no ancestor of the other. With hidden causes the true skeleton is what FCI reads off
the population.
"""

import argparse

import numpy as np
from _record import record
from study_differing_sites import differing_sites, directed_f1

from skprivbn.bayesian_network._dag import closure
from skprivbn.datasets import make_linear_sem, make_mlp_sem
from skprivbn.metrics import skeleton_f1
from skprivbn.partition import HorizontalPartition
from skprivbn.structure import (
    FederatedBayesianNetwork,
    FederatedFCI,
    FederatedGaussianBayesianNetwork,
)
from skprivbn.structure._fci import fci
from skprivbn.structure.gaussian._search import fisher_z

N_SITES, N_ROWS, D = 5, 1000, 6
ARROW, TAIL = 2, 3


def spread(X):
    """Return rows by site."""
    return {f"site {k}": X[k::N_SITES] for k in range(N_SITES)}


def linear(noise="gaussian", standardise=False, units=False):
    """Linear effects and noise of one shape."""

    def draw(seed):
        X, weights = make_linear_sem(N_ROWS, D, noise=noise, random_state=seed)
        if units:
            X = X * 10 ** np.random.default_rng(seed).uniform(-1.5, 1.5, D)
        if standardise:
            X = (X - X.mean(axis=0)) / X.std(axis=0)
        return spread(X), weights != 0

    return draw


def curved(seed):
    """Effects through small neural networks."""
    X, graph = make_mlp_sem(N_ROWS, D, random_state=seed)
    return spread(X), np.asarray(graph) != 0


def levels(seed):
    """Every site has another level of every column."""
    rows, graph = linear(units=True)(seed)
    rng = np.random.default_rng(seed)
    scale = np.vstack(list(rows.values())).std(axis=0)
    return {k: X + 3 * scale * rng.normal(size=D) for k, X in rows.items()}, graph


def mechanisms(seed):
    """Half of the variables have other weights and spreads at each site."""
    rows, graph, _ = differing_sites(seed, 0.5, n_rows=N_ROWS // N_SITES)
    return dict(list(rows.items())[:N_SITES]), graph


def hidden(seed):
    """Two of eight variables are not recorded."""
    X, weights = make_linear_sem(N_ROWS, D + 2, random_state=seed)
    inverse = np.linalg.inv(np.eye(D + 2) - weights)
    covariance = (inverse.T @ inverse)[:D, :D]
    marks = fci(fisher_z(covariance, 1e9, 1e-6), D)
    return spread(X[:, :D]), weights != 0, np.triu(marks) > 0


def binary(share):
    """Yes or no, by log-odds; a share of the variables has other effects by site."""

    def draw(seed):
        rng = np.random.default_rng(seed)
        order, graph = rng.permutation(D), np.zeros((D, D), dtype=bool)
        for place, i in enumerate(order):
            graph[i, order[place + 1 :]] = rng.random(D - place - 1) < 2 / (D - 1)
        changes, rows = rng.random(D) < share, {}

        def effects():
            return rng.uniform(0.7, 1.5, (D, D)) * rng.choice([-1, 1], (D, D))

        common = effects()
        for k in range(N_SITES):
            own, X = np.where(changes, effects(), common) * graph, np.zeros((600, D))
            for j in order:
                odds = (2 * X - 1) @ own[:, j]
                X[:, j] = rng.random(600) < 1 / (1 + np.exp(-odds))
            rows[f"site {k}"] = X.astype(int)
        return rows, graph

    return draw


def mixed(seed):
    """Three binary causes, three numbers after them."""
    rng = np.random.default_rng(seed)
    graph = np.zeros((D, D), dtype=bool)
    graph[:3, 3:] = rng.random((3, 3)) < 0.5
    graph[3:, 3:] = np.triu(rng.random((3, 3)) < 0.5, 1)
    graph[0, 1] = True
    X = np.zeros((N_ROWS, D))
    X[:, 0], X[:, 2] = rng.integers(2, size=(2, N_ROWS))
    X[:, 1] = rng.random(N_ROWS) < np.where(X[:, 0] > 0, 0.8, 0.3)
    for j in range(3, D):
        weights = rng.uniform(0.7, 1.5, D) * rng.choice([-1, 1], D) * graph[:, j]
        X[:, j] = X @ weights + rng.normal(size=N_ROWS)
    return spread(X), graph


def numbers(**options):
    """A learner of continuous columns."""
    return FederatedGaussianBayesianNetwork(**options)


NUMBERS = {
    "default": numbers,
    "lingam": lambda: numbers(method="lingam"),
    "basis": lambda: numbers(basis="sigmoid"),
    "levels": lambda: numbers(site_effects="levels"),
    "mechanisms": lambda: numbers(site_effects="mechanisms"),
    "FCI": FederatedFCI,
}
_YES_NO = [2] * D
BINARY = {
    "default": lambda: FederatedBayesianNetwork(states=_YES_NO),
    "mechanisms": lambda: FederatedBayesianNetwork(
        states=_YES_NO, site_effects="mechanisms"
    ),
    "FCI": lambda: FederatedFCI(states=_YES_NO),
}
_MIXED = [2] * 3 + ["continuous"] * 3
MIXED = {
    "default": lambda: FederatedBayesianNetwork(states=_MIXED),
    "FCI": lambda: FederatedFCI(states=_MIXED),
}
SETTINGS = {
    "equal noise": (linear(), NUMBERS),
    "columns in other units": (linear(units=True), NUMBERS),
    "skewed noise, standardised": (linear("exponential", standardise=True), NUMBERS),
    "curved effects": (curved, NUMBERS),
    "levels differ by site": (levels, NUMBERS),
    "half of the mechanisms differ": (mechanisms, NUMBERS),
    "two hidden causes": (hidden, NUMBERS),
    "binary columns": (binary(0.0), BINARY),
    "binary, half of the mechanisms differ": (binary(0.5), BINARY),
    "binary and continuous columns": (mixed, MIXED),
}


def edges(model):
    """Return joined nodes and certain directions."""
    if not hasattr(model, "pag_"):
        return model.adjacency_matrix_, model.adjacency_matrix_
    marks = model.pag_.marks
    return np.triu(marks) > 0, (marks == ARROW) & (marks.T == TAIL)


def measure(setting, n_graphs):
    """Yield a row for each learner."""
    draw, learners = SETTINGS[setting]
    for name, make in learners.items():
        scores = []
        for seed in range(n_graphs):
            rows, truth, *joined = draw(seed)
            edge, arrow = edges(make().fit(HorizontalPartition(rows)))
            wrong = arrow & ~closure(truth)[:D, :D]
            truth = truth[:D, :D]
            scores.append(
                [
                    skeleton_f1(joined[0] if joined else truth, edge),
                    directed_f1(truth, arrow),
                    wrong.sum() / max(arrow.sum(), 1),
                ]
            )
        skeleton, arrows, wrong = np.mean(scores, axis=0)
        yield {
            "setting": setting,
            "learner": name,
            "graphs": n_graphs,
            "skeleton F1": skeleton,
            "directed F1": arrows,
            "wrong directions": wrong,
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", type=int, default=5, help="in each setting")
    n_graphs = parser.parse_args().graphs
    rows = [row for setting in SETTINGS for row in measure(setting, n_graphs)]
    record("which_learner", rows, sites=N_SITES)
    for row in rows:
        print(row)


if __name__ == "__main__":
    main()
