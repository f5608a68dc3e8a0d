"""What private K2 costs: counts against plain phe, whole fits, growth with records.

Run as ``python benchmarks/bench_k2.py [paillier] [ot] [products] [asia] [alarm]
[parties] [opens]``; all parts by default. CPU time of all parties together, one run
each.
"""

import io
import json
import os
import subprocess
import sys
import time
from itertools import product

import numpy as np
from _record import read, record
from phe import paillier

from skprivbn.crypto.shares import (
    Conversation,
    Indicators,
    JointTable,
    SharedLookup,
    joint_counts,
    open_links,
    resolve_count_backend,
    run_together,
)
from skprivbn.crypto.shares._ot_extension import (
    multiply_by_my_bits,
    multiply_by_their_bits,
)
from skprivbn.datasets import (
    load_alarm,
    load_asia,
    make_discrete_bayesian_network,
)
from skprivbn.structure import K2StructureLearner, PrivateK2StructureLearner

NAMES = ("alice", "bob")
PARTS = ["paillier", "ot", "products", "asia", "alarm", "parties", "opens"]


def random_network():
    """Return a network of 400 nodes with two states each."""
    return make_discrete_bayesian_network(
        400, n_edges=600, max_parents=2, random_state=0
    )


NETWORKS = {"Asia": load_asia, "ALARM": load_alarm, "random": random_network}


def n_bytes(message):
    """Size of a message without the frame around it."""
    if isinstance(message, dict):
        return sum(map(n_bytes, message.values()))
    if isinstance(message, np.ndarray):
        return message.nbytes
    return len(message) if isinstance(message, bytes) else 0


def run_sides(protocol, *inputs):
    """Run ``protocol(talk, links, input)`` for each party, from base transfers on.

    Returns
    -------
    results : list
        Of both parties.
    seconds, size : float
        CPU seconds, and bytes of messages.
    """
    session, total = os.urandom(16), [0]

    def side(name, own):
        talk = Conversation(name, NAMES, session)
        links = yield from open_links(talk)
        result = yield from protocol(talk, links, own)
        yield from talk.finish()
        return result

    def note(sender, receiver, payload):
        total[0] += sum(n_bytes(part) for parts in payload.values() for part in parts)

    start = time.process_time()
    sides = {name: side(name, own) for name, own in zip(NAMES, inputs)}
    found = run_together(sides, note)
    seconds = time.process_time() - start
    return [found[name] for name in NAMES], seconds, total[0]


def share_counts(make_counts, codes, n_columns, dtype):
    """Share a table of counts; return (table, CPU seconds, bytes of messages)."""

    def protocol(talk, links, own):
        table = JointTable(NAMES, Indicators([own]), n_columns)
        (share,) = yield from make_counts()(
            talk, links, [table], len(codes[0]), np.dtype(dtype)
        )
        return share

    shares, seconds, size = run_sides(protocol, *zip(codes, n_columns))
    return sum(shares), seconds, size


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
            for indicators, b in zip(encrypted, codes[1]):
                if b == row:
                    total = total + indicators[column]
            table[column, row] = private.decrypt(total)
    return table, time.process_time() - start


def bench_paillier(n=10_000, shape=(16, 16), n_phe=(100, 200)):
    """256 counts with keys of 2048 bits, by this package and by phe as it comes."""
    rng = np.random.default_rng(0)
    codes = [rng.integers(0, size, n) for size in shape]

    def make_counts():
        return resolve_count_backend("paillier").make_counts(shape[0] * shape[1])

    table, seconds, size = share_counts(make_counts, codes, shape, np.uint16)
    assert (table == plain_counts(codes, shape)).all()
    # what does not grow with n is measured apart; the rest must be proportional to n
    _, fixed = phe_counts([c[:0] for c in codes], shape)
    per_record = []
    for m in n_phe:
        found, taken = phe_counts([c[:m] for c in codes], shape)
        assert (found == plain_counts([c[:m] for c in codes], shape)).all()
        per_record.append((taken - fixed) / m)
        print(f"phe, n={m}: {per_record[-1] * 1000:.1f} ms per record")
    phe_seconds = fixed + n * min(per_record)
    print(f"packed Paillier, n={n}: {seconds:.1f} s, {size / 1e6:.1f} MB")
    print(f"  phe, extrapolated: {phe_seconds:.0f} s, {phe_seconds / seconds:.0f}x")
    return {
        "series": "256 counts by Paillier",
        "n": n,
        "seconds": seconds,
        "MB": size / 1e6,
        "phe seconds, extrapolated": phe_seconds,
        **{
            f"phe ms per record at n={m}": 1000 * value
            for m, value in zip(n_phe, per_record)
        },
        "phe / packed": phe_seconds / seconds,
    }


def plain_counts(codes, shape):
    """Count in the clear."""
    joint = codes[0] * shape[1] + codes[1]
    return np.bincount(joint, minlength=shape[0] * shape[1]).reshape(shape)


def bench_ot(n=1_000_000):
    """One count by oblivious transfer."""
    codes = np.random.default_rng(0).integers(0, 2, (2, n))
    table, seconds, size = share_counts(lambda: joint_counts, codes, [1, 1], np.uint32)
    assert table == (codes == 0).all(axis=0).sum()
    print(f"OT, n={n}, one count: {seconds:.2f} s, {size / n:.2f} bytes per record")
    return {
        "series": "one count by transfers",
        "n": n,
        "seconds": seconds,
        "MB": size / 1e6,
        "bytes per record": size / n,
    }


def bench_products(n=10_000, batch=1000):
    """What networks of discrete and continuous columns, or mixtures, would be made of.

    Numbers have 64 bits; a continuous column that chooses has 18, a set of four
    configurations as many.
    """
    rng = np.random.default_rng(0)

    def by_bits(talk, links, own):
        total = 0
        for start in range(0, n, batch):
            part = own[start : start + batch]
            if talk.name == NAMES[0]:
                none = np.zeros((len(part), n_numbers), np.uint64)
                side = multiply_by_my_bits(talk, links, NAMES[1:], part, none)
            else:
                side = multiply_by_their_bits(talk, links, NAMES[0], n_bits, part)
            total = total + (yield from side).sum(axis=1, dtype=np.uint64)
        return total

    def look_up(talk, links, own):
        table, which = np.arange(1 << 14)[None] << 16, np.zeros(n, dtype=int)
        lookup = SharedLookup(NAMES, table, which)
        yield from lookup.prepare(talk, links)
        return (yield from lookup.look_up(talk, links, own))

    rows = []

    def note(what, seconds, size):
        row = {"series": "primitives", "what": what, "n": n, "seconds": seconds}
        rows.append(row | {"MB": size / 1e6, "bytes per record": size / n})
        print(rows[-1], flush=True)

    for n_bits, n_numbers, what in (
        (18, 1, "product of two continuous columns"),
        (4, 5, "5 numbers, added up by 4 configurations"),
    ):
        bits = rng.integers(0, 2, (n, n_bits)).astype(bool)
        numbers = rng.integers(0, 1 << 18, (n, n_numbers)).astype(np.uint64)
        shares, *costs = run_sides(by_bits, bits, numbers)
        assert (sum(shares) == bits.T.astype(np.uint64) @ numbers).all()
        note(what, *costs)
    codes = rng.integers(0, 1 << 14, (2, n)).astype(np.uint16)
    shares, *costs = run_sides(look_up, *codes)
    assert (sum(shares) == (codes.sum(axis=0) % (1 << 14)) << 16).all()
    note("a lookup in 2^14 entries for each record", *costs)
    return rows


def memory(entry):
    """Return a number of megabytes that Linux keeps about this process."""
    with open("/proc/self/status") as status:
        (line,) = (line for line in status if line.startswith(entry))
    return int(line.split()[1]) / 1024


def fit(name, n, max_parents):
    """Fit privately, check against pooled K2; print a row for the process above."""
    network = NETWORKS[name]()
    X = np.load(io.BytesIO(sys.stdin.buffer.read()))
    columns = np.arange(X.shape[1])
    parties = {"hospital": columns[::2].tolist(), "lab": columns[1::2].tolist()}
    parameters = {
        "ordering": network.topological_order,
        "max_parents": int(max_parents),
    }
    before, start = memory("VmRSS"), time.process_time()
    private = PrivateK2StructureLearner(parties, **parameters).fit(X)
    seconds, peak = time.process_time() - start, memory("VmHWM")
    start = time.process_time()
    pooled = K2StructureLearner(**parameters).fit(X)
    row = {
        "series": name,
        "n": int(n),
        "max_parents": int(max_parents),
        "seconds": seconds,
        "MB": private.ledger_.total_bytes / 1e6,
        "rounds": private.ledger_.n_rounds,
        "peak memory MB": peak,
        "memory of the fit MB": peak - before,
        "seconds of pooled K2": time.process_time() - start,
        "same as pooled K2": private.network_ == pooled.network_,
    }
    print(json.dumps(row))


def fit_apart(name, n, max_parents=3):
    """Fit in a process of its own, so that its memory is the fit's."""
    network = NETWORKS[name]()
    table = io.BytesIO()
    np.save(table, network.encode(network.sample(n, random_state=0)).astype(np.uint8))
    command = [sys.executable, __file__, "fit", name, str(n), str(max_parents)]
    done = subprocess.run(
        command, input=table.getvalue(), capture_output=True, check=True
    )
    row = json.loads(done.stdout)
    assert row["same as pooled K2"]
    print(row, flush=True)
    return row


def bench_asia():
    """Whole fits of Asia, and how they grow."""
    sizes = (1000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
    return [fit_apart("Asia", n) for n in sizes]


def bench_alarm():
    """A network of 37 columns."""
    return [fit_apart("ALARM", 100_000, max_parents) for max_parents in (2, 3)]


def fit_here(series, name, n_parties, n, max_parents=3, n_columns=None, **options):
    """Fit the first columns of a network, spread over parties; return a row."""
    network = NETWORKS[name]()
    kept = sorted(network.topological_order[:n_columns])
    X = network.encode(network.sample(n, random_state=0))[:, kept]
    columns = list(range(X.shape[1]))
    parties = {f"site {i}": columns[i::n_parties] for i in range(n_parties)}
    ordering = [kept.index(v) for v in network.topological_order[:n_columns]]
    search = {"ordering": ordering, "max_parents": max_parents}
    start = time.process_time()
    private = PrivateK2StructureLearner(parties, **search, **options).fit(X)
    seconds = time.process_time() - start
    pooled = K2StructureLearner(**search).fit(X)
    assert (private.adjacency_matrix_ == pooled.adjacency_matrix_).all()
    row = {
        "series": series,
        "network": name,
        "parties": n_parties,
        "columns": len(kept),
        "n": n,
        "max_parents": max_parents,
        **options,
        "seconds": seconds,
        "MB": private.ledger_.total_bytes / 1e6,
        "rounds": private.ledger_.n_rounds,
    }
    print(row, flush=True)
    return row


def bench_parties(n=2000):
    """Two, three and five parties."""
    return [
        fit_here("parties", name, n_parties, n)
        for name, n_parties in product(("Asia", "ALARM"), (2, 3, 5))
    ]


def bench_opens(n=2000):
    """What it costs that no step of the search is opened."""
    settings = [("Asia", 2, 3, 8), ("Asia", 3, 3, 8), ("ALARM", 2, 2, 16)]
    return [
        fit_here("opens", name, n_parties, n, most, size, opens=opens)
        for name, n_parties, most, size in settings
        for opens in ("order", "structure")
    ]


def bench_random():
    """A network of 400 nodes; not among the parts that run by default."""
    return fit_apart("random", 5000, max_parents=2)


def main(parts):
    """Run some parts; keep the rows that others have left."""
    kept = (read("k2") or {"rows": []})["rows"]
    for part in parts or PARTS:
        rows = globals()[f"bench_{part}"]()
        rows = rows if isinstance(rows, list) else [rows]
        names = {row["series"] for row in rows}
        kept = [row for row in kept if row["series"] not in names] + rows
        # all rows together are what the command without parts makes
        del sys.argv[1:]
        record("k2", kept, backend="ot")


if __name__ == "__main__":
    if sys.argv[1:2] == ["fit"]:
        fit(*sys.argv[2:])
    else:
        main(sys.argv[1:])
