"""What privacy costs on tables of people: likelihood of holdout data against epsilon.

Run with ``python benchmarks/study_holdout_likelihood.py`` (some minutes of CPU time).
The results go to ``benchmarks/results/holdout_likelihood.json``; the gallery has plots.

- Adult: fifteen discrete columns, its own training and test rows. MSNBC: which of
  seventeen kinds of pages a visitor saw, a fifth of the rows held out. For each of them
  a tree is chosen once, privately with epsilon = 1 (which the curves do not count), so
  that all methods learn the same tables. For every epsilon the tables are released
  anew; "auto", "cgm" and "naive" learn from the same releases, with default parameters.
  "psgd" releases gradients with delta = 1e-6 instead, and is not tuned. The score is
  the mean log-likelihood of a holdout row.
- Wifi: simulated connections of 60,000 people-days to twenty access points, a quarter
  of them held out; a chain with tied transitions and normalised contributions, as in
  section 4.2 of the paper. Only hours in which nobody is unconnected for two time steps
  in a row are learnt and scored: tables that leave such transitions out of other hours,
  as the paper's, are not those of any chain. Every method releases anew. "psgd", with
  delta = 1 / N, is tuned for each epsilon by a grid of learning rates and numbers of
  steps, knowing the holdout score, which costs no privacy here.
"""

import argparse
import time
import warnings
from functools import partial
from itertools import product

import numpy as np
from _record import read, record
from sklearn.model_selection import train_test_split

from skprivbn.datasets import load_adult, load_msnbc, make_wifi_sessions
from skprivbn.exceptions import PrivacyLeakWarning
from skprivbn.graphical_model import DPCGMLearner
from skprivbn.privacy import PrivacyAccountant

#: of all rows, of which a run may measure some again
COMMAND = "python benchmarks/study_holdout_likelihood.py"
PSGD = {"method": "psgd", "delta": 1e-6, "method_params": {"n_steps": 60}}
#: grid on which it is tuned for the chain
LEARNING_RATES, N_STEPS = (0.2, 0.4, 0.8), (30, 60, 120)
ACCOUNTANT = PrivacyAccountant(epsilon=np.inf, delta=0.01)
#: of two time steps in a row, people are connected at one
IMPOSSIBLE = np.zeros((21, 21), dtype=bool)
IMPOSSIBLE[0, 0] = True
WIFI = {
    "clique_params": {"stationary": True, "structural_zeros": {(0, 1): IMPOSSIBLE}},
    "contribution": "normalize",
    "states": [21] * 6,
    "accountant": ACCOUNTANT,
}


def adult():
    parts = [load_adult(subset=part, discretized=True) for part in ("train", "test")]
    train, test = (np.column_stack([part.data, part.target]) for part in parts)
    return train, test, [len(states) for states in parts[0].categories.values()]


def msnbc():
    rows = load_msnbc().data
    train, test = train_test_split(rows, test_size=0.2, random_state=0)
    return train, test, [2] * rows.shape[1]


def positions(clique):
    return tuple(int(name[1:]) for name in clique)


def tree_learner(tree, states, **parameters):
    return DPCGMLearner(tree, states=states, accountant=ACCOUNTANT, **parameters)


def scores_of_one_release(tree, states, train, test, epsilon):
    """Holdout scores of all methods, but for "psgd" from the same tables."""
    released = tree_learner(tree, states, epsilon=epsilon).fit(train)
    tables = {positions(c): t for c, t in released.noisy_tables_.items()}
    found = {"auto": released.score(test)}
    for method in ("cgm", "naive"):
        again = tree_learner(tree, states, method=method)
        again.fit_marginals(tables, released.noise_.std)
        found[method] = again.score(test)
    private = tree_learner(tree, states, epsilon=epsilon, **PSGD).fit(train)
    return {**found, "psgd": private.score(test)}


def measure_rows(name, load, epsilons, n_repeats):
    train, test, states = load()
    chosen = tree_learner("mst", states).fit(train).cliques_
    tree = [positions(clique) for clique in chosen if len(clique) == 2]
    start = time.process_time()
    tree_learner(tree, states).fit(train)
    seconds = time.process_time() - start
    exact = tree_learner(
        tree, states, epsilon=None, method_params={"max_iter": 200}
    ).fit(train)
    common = {"dataset": name, "records": len(train), "holdout records": len(test)}
    yield {
        **common,
        "method": "non-private",
        "score": exact.score(test),
        "seconds of the default fit": seconds,
    }
    uniform = -float(np.log(states).sum())
    yield {**common, "method": "uniform", "score": uniform}
    for epsilon in epsilons:
        for repeat in range(n_repeats):
            found = scores_of_one_release(tree, states, train, test, epsilon)
            for method, score in found.items():
                yield {
                    **common,
                    "method": method,
                    "epsilon": epsilon,
                    "repeat": repeat,
                    "score": score,
                }


def measure_wifi(epsilons, n_repeats):
    X, individual = make_wifi_sessions(60_000, 20, random_state=0)
    connected = ((X[:, 1:] > 0) | (X[:, :-1] > 0)).all(axis=1)
    X, individual = X[connected], individual[connected]
    held_out = individual % 4 == 0
    train, test, person = X[~held_out], X[held_out], individual[~held_out]

    def score(**parameters):
        learner = DPCGMLearner("chain", **WIFI, **parameters)
        return learner.fit(train, individual=person).score(test)

    def descend(epsilon, learning_rate, n_steps):
        tuned = {"learning_rate": learning_rate, "n_steps": n_steps}
        return score(
            method="psgd", epsilon=epsilon, delta=1 / len(train), method_params=tuned
        )

    common = {"dataset": "wifi", "records": len(train), "holdout records": len(test)}
    exact = score(epsilon=None, method_params={"max_iter": 200})
    yield {**common, "method": "non-private", "score": exact}
    uniform = -float(np.log(WIFI["states"]).sum())
    yield {**common, "method": "uniform", "score": uniform}
    for epsilon in epsilons:
        ways = {
            method: partial(score, method=method, epsilon=epsilon)
            for method in ("auto", "cgm", "naive")
        }
        grid = list(product(LEARNING_RATES, N_STEPS))
        best = max(grid, key=lambda setting: descend(epsilon, *setting))
        ways["psgd"] = partial(descend, epsilon, *best)
        for repeat, (method, fit) in product(range(n_repeats), ways.items()):
            yield {
                **common,
                "method": method,
                "epsilon": epsilon,
                "repeat": repeat,
                "score": fit(),
            }


def main():
    names = ("adult", "msnbc", "wifi")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="+", choices=names, default=names)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore", PrivacyLeakWarning)
    for name in options.datasets:
        if name == "wifi":
            rows = measure_wifi([0.01, 0.03, 0.1, 0.3, 1.0], options.repeats)
        else:
            load = adult if name == "adult" else msnbc
            rows = measure_rows(name, load, [0.1, 0.3, 1.0, 3.0], options.repeats)
        found = []
        for row in rows:
            found.append(row)
            print(row, flush=True)
        stored = read("holdout_likelihood") or {"rows": []}
        others = [row for row in stored["rows"] if row["dataset"] != name]
        record("holdout_likelihood", [*others, *found], command=COMMAND)


if __name__ == "__main__":
    main()
