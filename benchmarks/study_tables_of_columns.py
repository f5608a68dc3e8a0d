"""Private tables of columns at one, two and three holders: Adult, by `DPCGMLearner`.

Run with ``python benchmarks/study_tables_of_columns.py`` (some minutes). The holders'
columns are dealt out in turn. A fit runs in one process; the seconds over a network
are computed, not measured: CPU seconds of all parties one after another, two delays of
50 ms for every round, a request and its answer, and the messages at 100 megabits a
second. Errors are those of ``bench_tables.py``. Means of ``--releases`` fits.
"""

import argparse
import time
import warnings
from itertools import product

import numpy as np
from _record import record
from bench_tables import DELTA, errors, load

from skprivbn.graphical_model import DPCGMLearner
from skprivbn.privacy import PrivacyAccountant

DELAY, BANDWIDTH = 0.05, 100e6 / 8


def fit(train, test, sizes, epsilon, n_holders):
    """One release: its errors, and what it costs."""
    columns, parties = list(range(len(sizes))), None
    if n_holders > 1:
        parties = {f"holder {i}": columns[i::n_holders] for i in range(n_holders)}
    learner = DPCGMLearner(
        parties=parties,
        epsilon=epsilon,
        delta=DELTA,
        states=sizes,
        accountant=PrivacyAccountant(epsilon=np.inf, delta=0.5),
    )
    start = time.process_time()
    learner.fit(train)
    seconds = time.process_time() - start
    row = {
        **errors(train, sizes, learner.marginal),
        "held-out likelihood": learner.score(test),
        "CPU seconds": seconds,
    }
    if n_holders > 1:
        ledger = learner.ledger_
        n_rounds, n_bytes = ledger.n_rounds, ledger.total_bytes
        over_network = seconds + 2 * DELAY * n_rounds + n_bytes / BANDWIDTH
        row |= {
            "rounds": n_rounds,
            "MB": n_bytes / 1e6,
            "seconds over a network, computed": over_network,
        }
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=["adult8", "adult15"])
    parser.add_argument("--holders", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--epsilon", nargs="+", type=float, default=[0.1, 1.0, 10.0])
    parser.add_argument("--releases", type=int, default=3)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in arguments.data:
        data, rows = load(name), []
        for epsilon, n_holders in product(arguments.epsilon, arguments.holders):
            fits = [fit(*data, epsilon, n_holders) for _ in range(arguments.releases)]
            row = {"data": name, "epsilon": epsilon, "holders": n_holders}
            row |= {key: np.mean([found[key] for found in fits]) for key in fits[0]}
            row["releases"] = arguments.releases
            print(row, flush=True)
            rows.append(row)
        record(f"columns_of_{name}", rows, delta=DELTA)


if __name__ == "__main__":
    main()
