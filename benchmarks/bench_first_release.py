"""What small fits cost, against those of release 0.2.

``FIRST_RELEASE=<a checkout of it> python benchmarks/bench_first_release.py`` takes a
minute. Fits are of 600 rows at three parties, with the same parameters and numbers of
iterations. Both releases run in turns, each in a process of its own, three times; the
fastest fit counts. Bytes are those of all messages, there and back.
"""

import json
import os
import subprocess
import sys
import time
import warnings

import numpy as np

import skprivbn
from skprivbn.graphical_model import DPCGMLearner
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.preprocessing import FederatedPCA, FederatedStandardScaler
from skprivbn.structure import FederatedNotearsADMM

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
        print(json.dumps([measure_fit(*fit) for fit in FITS.values()]))
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
            "ms of release 0.2": 1e3 * old[0],
            "ms today": 1e3 * new[0],
            "CPU": new[0] / old[0],
            "bytes": new[1] / old[1],
        }
        for old, new in zip(first, now)
    ]
    fits = [{"fit": name} | row for name, row in zip(FITS, ratios)]
    for row in fits:
        print(row)
    record("first_release_fits", fits)


if __name__ == "__main__":
    main()
