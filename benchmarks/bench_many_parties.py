"""What a session of many parties takes: setting up keys, and one sum of 100 values.

Run as ``python benchmarks/bench_many_parties.py``; CPU seconds of all parties and the
coordinator together, in one process, one run each. Masks between all pairs are left out
beyond 256 parties.
"""

import time

import numpy as np
from _record import record

from skprivbn.crypto import MaskingBackend
from skprivbn.federation import ALL_ROWS, InProcessFederation, Sum, Terms, program

BACKENDS = {
    "masking, all pairs": MaskingBackend(max_colluders=None),
    "masking": MaskingBackend(),
}
SIZES = {"masking, all pairs": (64, 128, 256), "masking": (64, 128, 256, 512, 1000)}
LENGTH = 100


@program(Terms)
def one_sum(me):
    """Add up the parties' vectors."""
    total = yield Sum(me.block["vector"], "a vector", ALL_ROWS)
    return {"total": total}


def measure(name, n_parties):
    """Return CPU seconds and bytes of one session."""
    vectors = np.random.default_rng(0).integers(0, 1000, (n_parties, LENGTH))
    blocks = {f"party {i}": {"vector": v} for i, v in enumerate(vectors)}
    start = time.process_time()
    with InProcessFederation(blocks, one_sum, Terms(), BACKENDS[name]) as federation:
        total = federation.run()["total"]
    seconds = time.process_time() - start
    assert np.array_equal(total, vectors.sum(axis=0))
    sent = [entry.n_bytes for entry in federation.ledger.entries]
    return {
        "backend": name,
        "parties": n_parties,
        "neighbours": BACKENDS[name].n_neighbours(n_parties),
        "seconds": seconds,
        "MB": sum(sent) / 1e6,
    }


def main():
    """Measure all sizes, small ones first."""
    rows = []
    for name, sizes in SIZES.items():
        for n_parties in sizes:
            rows.append(measure(name, n_parties))
            print(rows[-1], flush=True)
    record("many_parties", rows, max_colluders=0.5)


if __name__ == "__main__":
    main()
