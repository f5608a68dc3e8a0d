"""How long fits take across a network: a delay is put between coordinator and parties.

Run as ``python benchmarks/bench_wan.py [estimator ...]``; all estimators by default. A
round costs a request and an answer to every party at a time: twice the delay. The floor
is what messages take at 100 megabits a second, and the rounds at this delay: what is
above are computations. Wall time of one run each, all parties on this machine.
"""

import sys
import time
from contextlib import contextmanager

import numpy as np
from _record import record

from skprivbn.datasets import load_alarm, load_asia
from skprivbn.federation import InProcessFederation
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.structure import (
    FederatedGaussianBayesianNetwork,
    FederatedNotearsADMM,
    PrivateK2StructureLearner,
)

#: in milliseconds, one way
DELAYS = (0, 25, 50, 100)
BANDWIDTH = 100e6 / 8
ROWS_PER_SITE, N_SITES = 2000, 3


@contextmanager
def delayed(seconds):
    """Have every request and every answer travel for some time."""
    exchange = InProcessFederation._exchange

    def slow(self, requests, timeout):
        time.sleep(2 * seconds)
        return exchange(self, requests, timeout)

    InProcessFederation._exchange = slow
    try:
        yield
    finally:
        InProcessFederation._exchange = exchange


def numbers():
    """Rows of three sites with some structure: (X, party)."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_SITES * ROWS_PER_SITE, 6))
    X[:, 1] += X[:, 0]
    X[:, 3] += 2 * (rng.random(len(X)) < 0.5)
    return X, np.repeat(np.arange(N_SITES), ROWS_PER_SITE)


def k2(load, n, n_parties):
    """Return a function that fits private K2 to records of a known network."""
    network = load()
    X = network.encode(network.sample(n, random_state=0))
    parties = {f"site {i}": slice(i, None, n_parties) for i in range(n_parties)}
    ordering = list(network.topological_order)
    return lambda: PrivateK2StructureLearner(parties, ordering=ordering).fit(X)


def rows(estimator):
    """Return a function that fits an estimator to rows of several sites."""
    X, party = numbers()
    return lambda: estimator.fit(X, party=party)


CASES = {
    "mixture": lambda: rows(PPEMGaussianMixture(2, backend="ckks", random_state=0)),
    "gaussian_network": lambda: rows(FederatedGaussianBayesianNetwork()),
    "notears_admm": lambda: rows(FederatedNotearsADMM()),
    "k2_asia_two": lambda: k2(load_asia, 10_000, 2),
    "k2_asia_three": lambda: k2(load_asia, 10_000, 3),
    "k2_alarm_two": lambda: k2(load_alarm, 2000, 2),
}


def main(names):
    """Fit every estimator at every delay."""
    found = []
    for name in names or CASES:
        fit = CASES[name]()
        for delay in DELAYS:
            start = time.perf_counter()
            with delayed(delay / 1000):
                ledger = fit().ledger_
            seconds = time.perf_counter() - start
            sent = sum(entry.n_bytes for entry in ledger.entries)
            floor = sent / BANDWIDTH + 2 * delay / 1000 * ledger.n_rounds
            found.append(
                {
                    "estimator": name,
                    "delay ms": delay,
                    "seconds": seconds,
                    "floor seconds": floor,
                    "rounds": ledger.n_rounds,
                    "MB": sent / 1e6,
                }
            )
            print(found[-1], flush=True)
    record("wan", found, title="Fits across a network")


if __name__ == "__main__":
    main(sys.argv[1:])
