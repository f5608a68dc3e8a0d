"""What authenticated sums and small fits cost, against those of the first release.

``FIRST_RELEASE=<a checkout of 7148f9b> python benchmarks/bench_first_release.py`` takes
two minutes. One sum is all of it: hide, encode for the wire, add, read, send the total
back to the parties, and, today, verify it there. Fits are of 600 rows at three parties,
with the same parameters and numbers of iterations. Both releases run in turns, each in
a process of its own, three times; the fastest sum or fit counts. Bytes are those of all
messages, there and back.
"""

import json
import os
import subprocess
import sys
import time
import warnings

import numpy as np

import skprivbn.crypto
import skprivbn.federation
from skprivbn.federation import InProcessFederation, Party, operation
from skprivbn.graphical_model import DPCGMLearner
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.preprocessing import FederatedPCA, FederatedStandardScaler
from skprivbn.structure import FederatedNotearsADMM

CASES = [
    ("masking", 3, 100),
    ("masking", 10, 100),
    ("masking", 10, 2311),
    ("masking", 3, 20_000),
    ("ckks", 10, 19),
    ("ckks", 10, 2311),
]
SECONDS = 0.4

ROWS = np.random.default_rng(0).normal(size=(600, 4)) + np.arange(600)[:, None] % 3 * 3
CHAIN = np.cumsum(np.random.default_rng(1).normal(size=(600, 5)), axis=1)
LABELS = np.random.default_rng(2).integers(3, size=(600, 5))
MIXTURE = {"n_components": 3, "tol": 0.0, "random_state": 0}
FITS = {
    "PPEMGaussianMixture, masking": (
        PPEMGaussianMixture(max_iter=30, backend="masking", **MIXTURE),
        ROWS,
    ),
    "PPEMGaussianMixture, ckks": (
        PPEMGaussianMixture(max_iter=10, backend="ckks", **MIXTURE),
        ROWS,
    ),
    "FederatedNotearsADMM": (FederatedNotearsADMM(backend="masking"), CHAIN),
    "DPCGMLearner, chain": (DPCGMLearner("chain", states=[[0, 1, 2]] * 5), LABELS),
    "FederatedStandardScaler": (FederatedStandardScaler(backend="masking"), ROWS),
    "FederatedPCA": (FederatedPCA(2, backend="masking"), ROWS),
}


class VectorParty(Party):
    """Hides its vector whenever asked, and reads the total."""

    def schedule(self):
        while True:
            yield "vector"
            yield "read"

    @operation(tells="its vector")
    def vector(self):
        hidden = self.hide(self.block["vector"])
        # the first release left the name to the operation
        return hidden if "vector" in hidden else {"vector": hidden}

    @operation(tells="nothing", hears="the total")
    def read(self, total):
        self.reveal(total)


def run_sum(federation):
    """Run one sum, to the end."""
    total = federation.secure_sum("vector")
    federation.call("read", {"total": total})


def measure(backend, n_parties, length):
    """Return CPU seconds and bytes of a sum, of whatever release this runs in."""
    vectors = 10.0 ** np.random.default_rng(0).uniform(0, 4, (n_parties, length))
    blocks = {f"party {i}": {"vector": v} for i, v in enumerate(vectors)}
    terms = getattr(skprivbn.federation, "Terms", dict)()
    times = []
    with InProcessFederation(blocks, VectorParty, terms, backend) as federation:
        run_sum(federation)
        n_entries = len(federation.ledger.entries)
        run_sum(federation)
        entries = federation.ledger.entries[n_entries:]
        while sum(times) < SECONDS or len(times) < 7:
            start = time.process_time()
            run_sum(federation)
            times.append(time.process_time() - start)
    return min(times), sum(entry.n_bytes for entry in entries)


def measure_fit(estimator, X):
    """Return CPU seconds and bytes of a fit, of whatever release this runs in."""
    party, times = np.arange(len(X)) // 3 % 3, []
    while sum(times) < 3 * SECONDS or len(times) < 5:
        start = time.process_time()
        estimator.fit(X, party=party)
        times.append(time.process_time() - start)
    return min(times), sum(entry.n_bytes for entry in estimator.ledger_.entries)


def measure_release(path):
    """Return what all cases cost with the package that is found there."""
    process = subprocess.run(
        [sys.executable, __file__, "--measure"],
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        check=True,
    )
    return json.loads(process.stdout)


def main():
    if "--measure" in sys.argv:
        warnings.simplefilter("ignore")
        sums = [measure(*case) for case in CASES]
        print(json.dumps(sums + [measure_fit(*fit) for fit in FITS.values()]))
        return
    if "FIRST_RELEASE" not in os.environ:
        print("FIRST_RELEASE is not set: nothing to compare with")
        return
    from _record import record

    today = os.path.dirname(os.path.dirname(skprivbn.__file__))
    runs = {path: [] for path in (os.environ["FIRST_RELEASE"], today)}
    for _ in range(3):
        for path, results in runs.items():
            results.append(measure_release(path))
    first, now = (np.min(results, axis=0) for results in runs.values())
    ratios = [
        {
            "ms of the first release": 1e3 * old[0],
            "ms today": 1e3 * new[0],
            "CPU": new[0] / old[0],
            "bytes": new[1] / old[1],
        }
        for old, new in zip(first, now)
    ]
    names = ("backend", "parties", "values")
    sums = [dict(zip(names, case)) | row for case, row in zip(CASES, ratios)]
    fits = [{"fit": name} | row for name, row in zip(FITS, ratios[len(CASES) :])]
    for row in sums + fits:
        print(row)
    record("first_release", sums)
    record("first_release_fits", fits)


if __name__ == "__main__":
    main()
