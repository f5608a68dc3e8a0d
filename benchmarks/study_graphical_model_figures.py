"""Figures 1 and 2 of the paper on private learning of random fields.

Run with ``python benchmarks/study_graphical_model_figures.py`` (half an hour of CPU
time, nearly all of it for figure 2). The results go to
``benchmarks/results/random_field_figures.json``; the gallery plots them. Third-order
chains and connected Erdos-Renyi graphs with twenty edges, ten variables of ten states,
Dirichlet(1) edge potentials.

- Figure 1a: mean squared error of the noisy marginals of a chain against the number of
  records, and what Proposition 4 predicts.
- Figure 1b: naive maximum likelihood from projected and from raw noisy marginals
  (penalty 1e-5; the paper: twenty states).
- Figure 1c: divergence against the ridge penalty, with exact and with noisy tables.
- Figure 2: divergence against the number of records, medians of 25 trials: five
  releases of each of five populations. "naive" has a penalty of 1e-9 and "naive, best
  penalty" the best of eight, chosen knowing the truth; "psgd", with delta = 1 / N, is
  tuned by a grid of learning rates and numbers of steps on the first population,
  knowing the truth, and has one descent for each population. ``--graphs`` and
  ``--records`` make parts of it.

Figure 3a is drawn by ``examples/graphical_model/plot_noisy_marginals.py``, and 3b by
``plot_wifi.py`` there, from ``study_holdout_likelihood.py``.
"""

import argparse
from itertools import product
from operator import itemgetter

import numpy as np
from _record import read, record
from bench_graphical_model import GRAPHS, Instance, random_estimate

from skprivbn.graphical_model._estimation import (
    collective_em,
    empirical_bayes,
    maximise_likelihood,
    projected_marginals,
)
from skprivbn.graphical_model._psgd import private_gradient_descent

RECORDS = (1_000, 10_000, 100_000, 1_000_000)
PENALTIES = 10.0 ** -np.arange(2, 10)
#: grid on which private descent is tuned
LEARNING_RATES, N_STEPS = (0.2, 0.4, 0.8), (30, 60, 120)


def penalty_path(instance, wanted, penalties, max_iter):
    """Divergences along a path of penalties, each started from the one before."""
    theta, path = None, []
    for penalty in penalties:
        theta, _ = maximise_likelihood(
            instance.layout, wanted, penalty, theta, max_iter
        )
        path.append(instance.divergence(theta))
    return path


def errors_of_marginals(n_repeats=3):
    """Figure 1a."""
    for records, epsilon in product(RECORDS, (0.1, 1.0)):
        found, predicted = [], []
        for repeat in range(n_repeats):
            instance = Instance("chain", 200 + repeat, records)
            tables = instance.release(epsilon)
            mu = instance.marginals
            found.append(np.mean((tables.values / records - mu) ** 2))
            noise = tables.variance / records**2
            predicted.append(np.mean(mu * (1 - mu) / records + noise))
        yield {
            "figure": "1a",
            "graph": "chain",
            "epsilon": epsilon,
            "records": records,
            "squared error": np.mean(found),
            "predicted": np.mean(predicted),
            "sampling part": np.mean(mu * (1 - mu)) / records,
        }


def effect_of_projection(n_repeats=1):
    """Figure 1b."""
    for records, repeat in product(RECORDS[1:], range(n_repeats)):
        instance = Instance("erdos_renyi", 200 + repeat, records)
        tables = instance.release(0.5)
        raw, projected = (
            penalty_path(instance, wanted, PENALTIES[:4], 300)[-1]
            for wanted in (tables.values / records, projected_marginals(tables))
        )
        yield {
            "figure": "1b",
            "graph": "erdos_renyi",
            "epsilon": 0.5,
            "records": records,
            "seed": 200 + repeat,
            "raw": raw,
            "projected": projected,
        }


def effect_of_penalty(records=100_000, epsilon=0.1):
    """Figure 1c."""
    instance = Instance("chain", 200, records)
    noisy = projected_marginals(instance.release(epsilon))
    penalties = 10.0 ** -np.arange(0, 8.5, 0.5)
    paths = {
        name: penalty_path(instance, wanted, penalties, 500)
        for name, wanted in (("noisy", noisy), ("exact", instance.counts / records))
    }
    for i, penalty in enumerate(penalties):
        yield {
            "figure": "1c",
            "graph": "chain",
            "epsilon": epsilon,
            "records": records,
            "penalty": penalty,
            **{name: path[i] for name, path in paths.items()},
        }


def divergences(graph, records, n_populations=5, n_releases=5):
    """Figure 2: medians over releases of several populations."""
    fields = [Instance(graph, 200 + i, records) for i in range(n_populations)]
    reference = {
        "random": [i.divergence(random_estimate(i.layout, 0)) for i in fields],
        "uniform": [i.divergence(np.zeros(i.layout.n_parameters)) for i in fields],
        "non-private": [
            penalty_path(i, i.counts / records, [1e-9], 1000)[0] for i in fields
        ],
    }
    for epsilon in (0.01, 0.1, 0.5, 1.0):
        trials = [release(i, epsilon) for i in fields for _ in range(n_releases)]
        found = {name: [trial[name] for trial in trials] for name in trials[0]}
        # as in the paper, where small epsilons were out of its reach
        if epsilon >= 0.5 and records <= 100_000:
            grid = list(product(LEARNING_RATES, N_STEPS))
            best = min(grid, key=lambda tuned: descend(fields[0], epsilon, *tuned))
            found["psgd"] = [descend(i, epsilon, *best) for i in fields]
        yield {
            "figure": "2",
            "graph": graph,
            "epsilon": epsilon,
            "records": records,
            "trials": len(trials),
            **{name: np.median(v) for name, v in (reference | found).items()},
        }


def release(instance, epsilon):
    """Divergences of the models learnt from one release."""
    tables = instance.release(epsilon)
    path = penalty_path(instance, projected_marginals(tables), PENALTIES, 200)
    return {
        "naive": path[-1],
        "naive, best penalty": min(path),
        "cgm": instance.divergence(collective_em(tables)[0]),
        "auto": instance.divergence(empirical_bayes(tables)),
    }


def descend(instance, epsilon, learning_rate, n_steps):
    """Divergence after private gradient descent."""
    theta = private_gradient_descent(
        instance.codes,
        instance.layout,
        epsilon,
        1 / len(instance.codes),
        learning_rate=learning_rate,
        n_steps=n_steps,
    )
    return instance.divergence(theta)


FIGURES = {
    "1a": errors_of_marginals,
    "1b": effect_of_projection,
    "1c": effect_of_penalty,
    "2": divergences,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--figures", nargs="+", choices=FIGURES, default=list(FIGURES))
    parser.add_argument("--graphs", nargs="+", choices=GRAPHS, default=list(GRAPHS))
    parser.add_argument("--records", nargs="+", type=int, default=list(RECORDS[1:]))
    options = parser.parse_args()
    for name in options.figures:
        settings = product(options.graphs, options.records) if name == "2" else [()]
        for setting in settings:
            store(list(FIGURES[name](*setting)))


def store(found):
    """Keep rows, in the place of those of the same graph and number of records."""
    print(*found, sep="\n", flush=True)
    rows = (read("random_field_figures") or {"rows": []})["rows"]
    case = itemgetter("figure", "graph", "records")
    again = set(map(case, found))
    rows = [row for row in rows if case(row) not in again] + found
    record("random_field_figures", sorted(rows, key=case))


if __name__ == "__main__":
    main()
