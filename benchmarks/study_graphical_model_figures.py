"""Figures 1 and 2 of the paper on private learning of random fields.

Run with ``python benchmarks/study_graphical_model_figures.py`` (some minutes of CPU
time). The results go to ``benchmarks/results/random_field_figures.json``; the gallery
plots them. Third-order chains and connected Erdos-Renyi graphs with twenty edges, ten
variables of ten states, Dirichlet(1) edge potentials.

- Figure 1a: mean squared error of the noisy marginals of a chain against the number of
  records, and what Proposition 4 predicts.
- Figure 1b: naive maximum likelihood from projected and from raw noisy marginals
  (penalty 1e-5; the paper: twenty states).
- Figure 1c: divergence against the ridge penalty, with exact and with noisy tables.
- Figure 2: divergence against the number of records. "naive" has a penalty of 1e-9 and
  "naive, best penalty" the best of eight, chosen knowing the truth; "psgd", with
  delta = 1 / N, is not tuned.

Figure 3a is drawn by ``examples/graphical_model/plot_noisy_marginals.py``, and 3b by
``plot_wifi.py`` there, from ``study_holdout_likelihood.py``.
"""

import argparse
from itertools import product

import numpy as np
from _record import read, record
from bench_graphical_model import Instance, random_estimate

from skprivbn.graphical_model._estimation import (
    collective_em,
    empirical_bayes,
    maximise_likelihood,
    projected_marginals,
)
from skprivbn.graphical_model._psgd import private_gradient_descent

RECORDS = (1_000, 10_000, 100_000, 1_000_000)
PENALTIES = 10.0 ** -np.arange(2, 10)


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


def divergences(n_repeats=1):
    """Figure 2."""
    settings = product(("chain", "erdos_renyi"), RECORDS[1:], range(n_repeats))
    for graph, records, repeat in settings:
        instance = Instance(graph, 200 + repeat, records)
        layout = instance.layout
        exact = instance.counts / records
        reference = {
            "random": instance.divergence(random_estimate(layout, repeat)),
            "uniform": instance.divergence(np.zeros(layout.n_parameters)),
            "non-private": penalty_path(instance, exact, [1e-9], 1000)[0],
        }
        for epsilon in (0.01, 0.1, 0.5, 1.0):
            tables = instance.release(epsilon)
            path = penalty_path(instance, projected_marginals(tables), PENALTIES, 200)
            row = {
                "figure": "2",
                "graph": graph,
                "epsilon": epsilon,
                "records": records,
                "seed": 200 + repeat,
                **reference,
                "naive": path[-1],
                "naive, best penalty": min(path),
                "cgm": instance.divergence(collective_em(tables)[0]),
                "auto": instance.divergence(empirical_bayes(tables)),
            }
            # as in the paper, where small epsilons were out of its reach
            if epsilon >= 0.5 and records <= 100_000 and repeat == 0:
                theta = private_gradient_descent(
                    instance.codes,
                    layout,
                    epsilon,
                    1 / records,
                    n_steps=60,
                )
                row["psgd"] = instance.divergence(theta)
            yield row


FIGURES = {
    "1a": errors_of_marginals,
    "1b": effect_of_projection,
    "1c": effect_of_penalty,
    "2": divergences,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--figures", nargs="+", choices=FIGURES, default=list(FIGURES))
    options = parser.parse_args()
    for name in options.figures:
        found = []
        for row in FIGURES[name]():
            found.append(row)
            print(row, flush=True)
        stored = read("random_field_figures") or {"rows": []}
        others = [row for row in stored["rows"] if row["figure"] != name]
        record("random_field_figures", [*others, *found])


if __name__ == "__main__":
    main()
