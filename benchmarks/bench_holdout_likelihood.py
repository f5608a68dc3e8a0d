"""What privacy costs on real tables: likelihood of holdout rows against epsilon.

Run with ``python benchmarks/bench_holdout_likelihood.py`` (some ten minutes of CPU
time, most of them for "cgm" on Adult with a small epsilon). The results go to
``benchmarks/results/holdout_likelihood.json``, which the gallery plots. What is stored
comes from ``--datasets msnbc`` and ``--datasets adult --repeats 1``.

Adult: fifteen discrete columns, its own training and test rows. MSNBC: which of
seventeen kinds of pages a visitor saw, a fifth of the rows held out. For each data set
a tree is chosen once, privately with epsilon = 1 (which the curves do not count), so
that all methods learn the same tables. For every epsilon the tables are released
anew; "auto", "cgm" and "naive" learn from the same releases, with default parameters.
"psgd" releases gradients with delta = 1e-6 instead, and is not tuned.
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.model_selection import train_test_split

from skprivbn.datasets import load_adult, load_msnbc
from skprivbn.exceptions import PrivacyLeakWarning
from skprivbn.graphical_model import DPCGMLearner
from skprivbn.privacy import PrivacyAccountant

RESULTS = Path(__file__).parent / "results" / "holdout_likelihood.json"
METHODS = ("auto", "cgm", "naive", "psgd")
PSGD = {"method": "psgd", "delta": 1e-6, "psgd_params": {"n_steps": 60}}


def adult():
    parts = [load_adult(subset=part, discretized=True) for part in ("train", "test")]
    train, test = (np.column_stack([part.data, part.target]) for part in parts)
    return train, test, [len(states) for states in parts[0].categories.values()]


def msnbc():
    rows = load_msnbc().data
    train, test = train_test_split(rows, test_size=0.2, random_state=0)
    return train, test, [2] * rows.shape[1]


DATASETS = {"adult": adult, "msnbc": msnbc}


def positions(clique):
    return tuple(int(name[1:]) for name in clique)


def scores_of_methods(learner, train, test, max_iter):
    """Holdout scores of all methods for one release."""
    released = learner().fit(train)
    tables = {positions(c): t for c, t in released.noisy_tables_.items()}
    found = {"auto": released.score(test)}
    for method in ("cgm", "naive"):
        again = learner(method=method, max_iter=max_iter)
        again.fit_marginals(tables, released.noise_.std)
        found[method] = again.score(test)
    found["psgd"] = learner(**PSGD).fit(train).score(test)
    return found


def measure(name, epsilons, n_repeats, max_iter):
    train, test, domain = DATASETS[name]()
    accountant = PrivacyAccountant(epsilon=np.inf, delta=0.01)

    def learner(cliques, **parameters):
        return DPCGMLearner(cliques, domain=domain, accountant=accountant, **parameters)

    chosen = learner("mst").fit(train).cliques_
    tree = [positions(clique) for clique in chosen if len(clique) == 2]
    start = time.process_time()
    learner(tree).fit(train)
    seconds = time.process_time() - start
    exact = learner(tree, method="non_private", max_iter=200).fit(train)
    curves = {method: [] for method in METHODS}
    for epsilon in epsilons:
        runs = [
            scores_of_methods(
                lambda epsilon=epsilon, **parameters: learner(
                    tree, epsilon=epsilon, **parameters
                ),
                train,
                test,
                max_iter,
            )
            for _ in range(n_repeats)
        ]
        for method, curve in curves.items():
            curve.append([round(run[method], 4) for run in runs])
        print(name, epsilon, {m: c[-1] for m, c in curves.items()}, flush=True)
    return {
        "rows": [len(train), len(test)],
        "tree": tree,
        "max_iter": max_iter,
        "seconds of the default fit": round(seconds, 2),
        "uniform": round(-float(np.log(domain).sum()), 4),
        "non-private": round(exact.score(test), 4),
        "epsilon": epsilons,
        "scores": curves,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--datasets", nargs="+", choices=DATASETS, default=list(DATASETS)
    )
    parser.add_argument(
        "--epsilons", type=float, nargs="+", default=[0.1, 0.3, 1.0, 3.0]
    )
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--max-iter", type=int, default=2000)
    options = parser.parse_args()
    warnings.simplefilter("ignore", PrivacyLeakWarning)
    for name in options.datasets:
        found = measure(name, options.epsilons, options.repeats, options.max_iter)
        results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        results[name] = found
        lines = [f"  {json.dumps(key)}: {json.dumps(results[key])}" for key in results]
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
