"""What authenticated sums cost, against those of the first release, without tags.

``FIRST_RELEASE=<a checkout of 7148f9b> python benchmarks/bench_first_release.py`` takes
two minutes. One sum is all of it: hide, encode for the wire, add, read, send the total
back to the parties, and, today, verify it there. Both releases run in turns, each in a
process of its own, three times; the fastest sum counts. Bytes are those of all
messages, there and back.
"""

import json
import os
import subprocess
import sys
import time

import numpy as np

import skprivbn.crypto
import skprivbn.federation
from skprivbn.federation import InProcessFederation, Party, operation

CASES = [
    ("masking", 3, 100),
    ("masking", 10, 100),
    ("masking", 10, 2311),
    ("masking", 3, 20_000),
    ("ckks", 10, 19),
    ("ckks", 10, 2311),
]
SECONDS = 0.4


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
        print(json.dumps([measure(*case) for case in CASES]))
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
    rows = []
    for case, old, new in zip(CASES, first, now):
        backend, n_parties, length = case
        rows.append(
            {
                "backend": backend,
                "parties": n_parties,
                "values": length,
                "ms of the first release": 1e3 * old[0],
                "ms today": 1e3 * new[0],
                "CPU": new[0] / old[0],
                "bytes": new[1] / old[1],
            }
        )
        print(rows[-1], flush=True)
    record("first_release", rows)


if __name__ == "__main__":
    main()
