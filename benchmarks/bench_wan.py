"""How long fits take across a network: a delay is put between coordinator and parties.

Run as ``python benchmarks/bench_wan.py [--count] [fit ...]``; all fits by default. A
round costs a request and an answer to every party at a time: twice the delay. The floor
is what messages take at 100 megabits a second, and the rounds at this delay: what is
above are computations, of which CPU seconds are told, too. Wall time of one run each,
all parties on this machine; with ``--count`` fits run without a delay and only rounds,
messages and CPU time are kept, from which floors follow.
"""

import sys
import time
import warnings
from contextlib import contextmanager

import numpy as np
from _record import read, record

from skprivbn.datasets import load_alarm, load_asia, make_mlp_sem
from skprivbn.federation import InProcessFederation
from skprivbn.graphical_model import DPCGMLearner
from skprivbn.mixed_model import PrivateGLMMClassifier, PrivateGLMMRegressor
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.preprocessing import (
    FederatedKBinsDiscretizer,
    FederatedPCA,
    FederatedStandardScaler,
)
from skprivbn.structure import (
    CollectiveBayesianNetwork,
    FederatedBayesianNetwork,
    FederatedDynotears,
    FederatedGaussianBayesianNetwork,
    FederatedNotearsADMM,
    PrivateK2StructureLearner,
    VotingStructureLearner,
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


def sites():
    """Return which of three sites has each row."""
    return np.repeat(np.arange(N_SITES), ROWS_PER_SITE)


def numbers(estimator):
    """Return a function that fits an estimator to numbers with some structure."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_SITES * ROWS_PER_SITE, 6))
    X[:, 1] += X[:, 0]
    X[:, 3] += 2 * (rng.random(len(X)) < 0.5)
    return lambda: estimator.fit(X, party=sites())


def curved(estimator):
    """Return a function that fits an estimator to variables that act by networks."""
    X, _ = make_mlp_sem(N_SITES * ROWS_PER_SITE, 6, random_state=0)
    return lambda: estimator.fit(X, party=sites())


def labels(estimator):
    """Return a function that fits an estimator to records of Asia, row by row."""
    network = load_asia()
    X = network.encode(network.sample(N_SITES * ROWS_PER_SITE, random_state=0))
    return lambda: estimator.fit(X, party=sites())


def clusters(estimator):
    """Return a function that fits a mixed model to thirty clusters."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_SITES * ROWS_PER_SITE, 3))
    cluster = rng.integers(0, 30, len(X))
    y = X @ [1.0, -0.5, 0.2] + rng.normal(size=30)[cluster] + rng.normal(size=len(X))
    if isinstance(estimator, PrivateGLMMClassifier):
        y = (y > 0).astype(int)
    return lambda: estimator.fit(X, y, cluster=cluster, party=sites())


def k2(load, n, n_parties):
    """Return a function that fits private K2 to records of a known network."""
    network = load()
    X = network.encode(network.sample(n, random_state=0))
    parties = {f"site {i}": slice(i, None, n_parties) for i in range(n_parties)}
    ordering = list(network.topological_order)
    return lambda: PrivateK2StructureLearner(parties, ordering=ordering).fit(X)


def collective():
    """Return a function that learns a network of columns of two sites."""
    network = load_asia()
    X = network.encode(network.sample(ROWS_PER_SITE, random_state=0))
    parties = {"a": slice(0, 4), "b": slice(4, 8)}
    return lambda: CollectiveBayesianNetwork(parties, random_state=0).fit(X)


def private_field():
    """Return a learner of a random field with a budget."""
    states = [range(2)] * 8
    return DPCGMLearner(epsilon=1.0, states=states)


CASES = {
    "FederatedStandardScaler": lambda: numbers(FederatedStandardScaler()),
    "FederatedPCA": lambda: numbers(FederatedPCA(2)),
    "FederatedKBinsDiscretizer": lambda: numbers(FederatedKBinsDiscretizer()),
    "FederatedGaussianBayesianNetwork": lambda: numbers(
        FederatedGaussianBayesianNetwork()
    ),
    "VotingStructureLearner": lambda: numbers(VotingStructureLearner()),
    "FederatedBayesianNetwork": lambda: labels(FederatedBayesianNetwork()),
    "DPCGMLearner, epsilon 1": lambda: labels(private_field()),
    "FederatedNotearsADMM": lambda: numbers(FederatedNotearsADMM()),
    "FederatedNotearsADMM, networks": lambda: curved(
        FederatedNotearsADMM("mlp", random_state=0)
    ),
    "FederatedDynotears": lambda: numbers(FederatedDynotears()),
    "PPEMGaussianMixture": lambda: numbers(PPEMGaussianMixture(2, random_state=0)),
    "PPEMGaussianMixture, CKKS": lambda: numbers(
        PPEMGaussianMixture(2, backend="ckks", random_state=0)
    ),
    "PrivateGLMMRegressor": lambda: clusters(PrivateGLMMRegressor()),
    "PrivateGLMMClassifier": lambda: clusters(PrivateGLMMClassifier()),
    "CollectiveBayesianNetwork": collective,
    "K2, Asia, two sites": lambda: k2(load_asia, 10_000, 2),
    "K2, Asia, three sites": lambda: k2(load_asia, 10_000, 3),
    "K2, ALARM, two sites": lambda: k2(load_alarm, 2000, 2),
}


def measure(name, delays):
    """Return a row per delay: one fit each, or one for all if there are no delays."""
    fit = CASES[name]()
    start = time.process_time()
    ledger = fit().ledger_
    seconds_of_cpu = time.process_time() - start
    sent = sum(entry.n_bytes for entry in ledger.entries)
    rows = []
    for delay in DELAYS:
        seconds = None
        if delay in delays:
            start = time.perf_counter()
            with delayed(delay / 1000):
                fit()
            seconds = time.perf_counter() - start
        floor = sent / BANDWIDTH + 2 * delay / 1000 * ledger.n_rounds
        rows.append(
            {
                "fit": name,
                "delay": f"{delay} ms",
                "seconds": seconds,
                "floor seconds": floor,
                "rounds": ledger.n_rounds,
                "MB": sent / 1e6,
                "CPU seconds": seconds_of_cpu,
            }
        )
    return rows


def main(arguments):
    """Fit every estimator at every delay; other stored fits stay."""
    delays = () if "--count" in arguments else DELAYS
    names = [name for name in arguments if name != "--count"] or list(CASES)
    stored = read("wan") or {"rows": []}
    found = {name: [r for r in stored["rows"] if r["fit"] == name] for name in CASES}
    warnings.simplefilter("ignore")
    # all rows together are what the command without names makes
    sys.argv[1:] = [] if delays else ["--count"]
    for name in names:
        found[name] = measure(name, delays)
        print(*found[name], sep="\n", flush=True)
        rows = [row for rows in found.values() for row in rows]
        record("wan", rows, title="Fits across a network")


if __name__ == "__main__":
    main(sys.argv[1:])
