"""How long records of several parties take to be aligned by keys.

Run as ``python benchmarks/bench_alignment.py``; three parties in one process. CPU
seconds of all parties together; the floor are the multiplications alone, one for every
key of every list at every party, measured in the same run. Both cores work, so that on
a machine that does nothing else the wall time is half of the CPU seconds.
"""

import os
import time

import numpy as np
from _record import record
from nacl import bindings as sodium

from skprivbn.crypto._psi import align_records
from skprivbn.crypto.shares import Conversation, run_together

NAMES = ("north", "south", "west")


def seconds_of_multiplication(n=20_000):
    """Return CPU seconds of one multiplication by libsodium."""
    secret, point = os.urandom(32), sodium.crypto_scalarmult_base(os.urandom(32))
    start = time.process_time()
    for _ in range(n):
        sodium.crypto_scalarmult(secret, point)
    return (time.process_time() - start) / n


def align(n_keys, in_common=0.8):
    """Align lists that have most keys in common; return a row."""
    rng, n_common = np.random.default_rng(0), int(in_common * n_keys)
    session, sent = os.urandom(16), [0]
    keys = {
        name: rng.permutation(
            np.r_[:n_common, (i + 1) * 10**7 : (i + 1) * 10**7 + n_keys - n_common]
        )
        for i, name in enumerate(NAMES)
    }

    def note(sender, receiver, payload):
        parts = (part for parts in payload.values() for part in parts)
        sent[0] += sum(len(part) for part in parts if isinstance(part, bytes))

    def side(name):
        talk = Conversation(name, NAMES, session)
        records = yield from align_records(talk, keys[name])
        yield from talk.finish()
        return records

    before = seconds_of_multiplication()
    start, wall = time.process_time(), time.perf_counter()
    found = run_together({name: side(name) for name in NAMES}, note)
    cpu, wall = time.process_time() - start, time.perf_counter() - wall
    lists = [keys[name][found[name]] for name in NAMES]
    assert len(lists[0]) == n_common
    assert all(np.array_equal(lists[0], other) for other in lists)
    each = (before + seconds_of_multiplication()) / 2
    return {
        "parties": len(NAMES),
        "keys of each": n_keys,
        "CPU seconds": cpu,
        "floor: CPU seconds of multiplications": len(NAMES) ** 2 * n_keys * each,
        "microseconds of a multiplication": 1e6 * each,
        "on two cores": cpu / 2,
        "wall seconds": wall,
        "MB": sent[0] / 1e6,
    }


if __name__ == "__main__":
    rows = []
    for n_keys in (10_000, 100_000):
        rows.append(align(n_keys))
        print(rows[-1], flush=True)
    record("alignment", rows)
