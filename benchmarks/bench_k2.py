"""What private K2 costs: counts against plain phe, whole fits, growth with records.

Run as ``python benchmarks/bench_k2.py [paillier] [ot] [asia] [alarm]``; all parts but
``alarm`` by default. CPU time of all parties together, one run each.
"""

import os
import resource
import sys
import time

import numpy as np
from phe import paillier

from skprivbn.crypto.two_party import (
    Conversation,
    Indicators,
    PaillierCountBackend,
    joint_counts,
    open_links,
    run_together,
)
from skprivbn.datasets import load_alarm, load_asia
from skprivbn.structure import K2StructureLearner, PrivateK2StructureLearner

NAMES = ("alice", "bob")


def n_bytes(message):
    """Size of a message without the frame around it."""
    if isinstance(message, np.ndarray):
        return message.nbytes
    return len(message) if isinstance(message, bytes) else 0


def share_counts(make_counts, codes, n_columns, dtype):
    """Share a table of counts; return (table, CPU seconds, bytes of messages)."""
    session, total = os.urandom(16), [0]

    def side(name, own, n_own):
        talk = Conversation(name, NAMES, session)
        links = yield from open_links(talk)
        own = Indicators([(own, n_own)])
        n = len(codes[0])
        share = yield from make_counts()(
            talk, links, NAMES, own, n_columns, n, np.dtype(dtype)
        )
        yield from talk.finish()
        return share

    def note(sender, receiver, payload):
        total[0] += sum(map(n_bytes, payload["messages"]))

    start = time.process_time()
    sides = {name: side(name, c, n) for name, c, n in zip(NAMES, codes, n_columns)}
    shares = run_together(sides, note)
    return sum(shares.values()), time.process_time() - start, total[0]


def phe_counts(codes, n_columns):
    """The same with phe as it comes, each ciphertext used for all of Bob's columns."""
    public, private = paillier.generate_paillier_keypair(n_length=2048)
    start = time.process_time()
    encrypted = [
        [public.encrypt(int(a == column)) for column in range(n_columns[0])]
        for a in codes[0]
    ]
    table = np.zeros(n_columns, dtype=int)
    for column in range(n_columns[0]):
        for row in range(n_columns[1]):
            total = public.encrypt(0)
            for record, b in zip(encrypted, codes[1]):
                if b == row:
                    total = total + record[column]
            table[column, row] = private.decrypt(total)
    return table, time.process_time() - start


def bench_paillier(n=10_000, n_phe=40):
    """256 counts with keys of 2048 bits."""
    rng = np.random.default_rng(0)
    shape = (32, 8)
    codes = [rng.integers(0, size, n) for size in shape]

    def make_counts():
        return PaillierCountBackend().make_counts(max_counts=256)

    table, seconds, size = share_counts(make_counts, codes, shape, np.uint16)
    expected = np.bincount(codes[0] * shape[1] + codes[1], minlength=256)
    assert (table.ravel() == expected).all()
    _, phe_seconds = phe_counts([c[:n_phe] for c in codes], shape)
    # what does not grow with n is measured apart
    _, fixed_seconds = phe_counts([c[:0] for c in codes], shape)
    per_record = (phe_seconds - fixed_seconds) / n_phe
    phe_seconds = fixed_seconds + n * per_record
    print(f"packed Paillier, n={n}, 256 counts: {seconds:.1f} s, {size / 1e6:.1f} MB")
    print(f"  phe, from n={n_phe}: {phe_seconds:.0f} s, {phe_seconds / seconds:.0f}x")


def bench_ot(n=1_000_000):
    """One count by oblivious transfer."""
    codes = np.random.default_rng(0).integers(0, 2, (2, n))
    table, seconds, size = share_counts(lambda: joint_counts, codes, [1, 1], np.uint32)
    assert table == (codes == 0).all(axis=0).sum()
    print(f"OT, n={n}, one count: {seconds:.2f} s, {size / n:.2f} bytes per record")


def fit_both(network, n, **parameters):
    """Fit privately, check against pooled K2, report."""
    X = network.encode(network.sample(n, random_state=0))
    columns = np.arange(X.shape[1])
    parties = {"hospital": columns[::2].tolist(), "lab": columns[1::2].tolist()}
    parameters["ordering"] = network.topological_order
    start = time.process_time()
    private = PrivateK2StructureLearner(parties, **parameters).fit(X)
    seconds = time.process_time() - start
    assert private.network_ == K2StructureLearner(**parameters).fit(X).network_
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"  n={n}: {seconds:.1f} s, {private.ledger_.total_bytes / 1e6:.1f} MB in "
        f"{private.ledger_.n_rounds} rounds, peak memory {memory:.0f} MB",
        flush=True,
    )


def bench_asia():
    """Whole fits of Asia, and how they grow."""
    print("Asia, two parties, max_parents=3")
    for n in (1000, 10_000, 100_000, 1_000_000):
        fit_both(load_asia(), n)


def bench_alarm():
    """A network of 37 columns."""
    for max_parents in (2, 3):
        print(f"ALARM, two parties, max_parents={max_parents}")
        fit_both(load_alarm(), 100_000, max_parents=max_parents)


if __name__ == "__main__":
    for part in sys.argv[1:] or ["paillier", "ot", "asia"]:
        globals()[f"bench_{part}"]()
