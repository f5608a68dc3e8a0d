"""What hiding costs: CPU time and bytes of a secure sum, by backend.

Run with ``python benchmarks/bench_backends.py`` (about a minute). One sum is
everything that every party and the coordinator do: hide, encode for the wire, add,
and read the total where it may be known. Ratios are against the plaintext backend.
The vector lengths are those of the statistics of a Gaussian mixture with k components
in d dimensions: counts, sums, products and a log-likelihood. "phe naive" encrypts
every number on its own with the package phe, as one would write it without packing.
"""

import argparse
import time

import numpy as np
from _record import record

from skprivbn.crypto import (
    CKKSBackend,
    MaskingBackend,
    PaillierBackend,
    PlaintextBackend,
)
from skprivbn.federation import (
    ALL_ROWS,
    Hear,
    InProcessFederation,
    Release,
    Terms,
    program,
)

BACKENDS = {
    "plaintext": PlaintextBackend(),
    "masking": MaskingBackend(),
    "masking, recovery": MaskingBackend(recovery=True),
    "masking, signed": MaskingBackend(signed=True),
    "ckks": CKKSBackend(),
    "ckks, fast": CKKSBackend(preset="fast"),
    "ckks, large": CKKSBackend(preset="large"),
    "paillier 2048": PaillierBackend(),
}


@program(Terms)
def sums(me):
    """Add up the parties' vectors as often as the researcher wants."""
    while (yield Hear(bool, "whether there is another sum")):
        yield Release(me.block["vector"], "a vector", ALL_ROWS)
    return "done"


def n_statistics(k, d):
    """Return the number of values a party sends in one step of a mixture's fit."""
    return k + k * d + k * d * (d + 1) // 2 + 1


def measure(backend, n_parties, length, seconds):
    """Return CPU seconds per sum, kilobytes per party, set-up seconds, the error."""
    rng = np.random.default_rng(0)
    vectors = 10.0 ** rng.uniform(0, 4, (n_parties, length))
    blocks = {f"party {i}": {"vector": v} for i, v in enumerate(vectors)}
    federation = InProcessFederation(blocks, sums, Terms(), backend)
    start = time.process_time()
    with federation:
        setup = time.process_time() - start
        run_sum(federation)
        n_entries = len(federation.ledger.entries)
        run_sum(federation)
        sent = [
            entry.n_bytes
            for entry in federation.ledger.entries[n_entries:]
            if entry.sender == "party 1"
        ]
        times = []
        while sum(times) < seconds or len(times) < 2:
            start = time.process_time()
            total = run_sum(federation)
            times.append(time.process_time() - start)
        error = np.abs(total - vectors.sum(axis=0)).max()
    return np.median(times), sum(sent) / 1000, setup, error


def measure_naive(n_parties, length):
    """Return the same of phe by itself, one ciphertext per number, 2048 bits."""
    from phe import paillier

    rng = np.random.default_rng(0)
    # every party's cost is the same: two of them stand for all
    vectors = 10.0 ** rng.uniform(0, 4, (2, length))
    start = time.process_time()
    public, private = paillier.generate_paillier_keypair(n_length=2048)
    setup = time.process_time() - start
    start = time.process_time()
    sent = [[public.encrypt(float(value)) for value in vector] for vector in vectors]
    encrypt = (time.process_time() - start) / len(vectors)
    start = time.process_time()
    total = [a + b for a, b in zip(*sent)]
    add = time.process_time() - start
    start = time.process_time()
    found = np.array([private.decrypt(number) for number in total])
    decrypt = time.process_time() - start
    cpu = n_parties * encrypt + (n_parties - 1) * add + n_parties * decrypt
    size = sum(len(n.ciphertext(be_secure=False).to_bytes(512)) for n in sent[0])
    return cpu, size / 1000, setup, np.abs(found - vectors.sum(axis=0)).max()


def run_sum(federation):
    """Run one sum, to the end."""
    (total,) = federation.ask(True)
    return total


def compare(series, cases, seconds, names):
    """Yield one row per backend and case (n_parties, length), printing it."""
    print(f"\n{series}")
    header = ("backend", "parties", "values", "CPU ms/sum", "ms/party", "ratio")
    header += ("kB/party", "set-up ms", "error")
    print("{:18}{:>8}{:>8}{:>12}{:>10}{:>9}{:>10}{:>11}{:>10}".format(*header))
    for n_parties, length in cases:
        base = None
        for name in names:
            if name == "phe naive":
                measured = measure_naive(n_parties, length)
            else:
                measured = measure(BACKENDS[name], n_parties, length, seconds)
            cpu, kilobytes, setup, error = measured
            base = cpu if base is None else base
            print(
                f"{name:18}{n_parties:8d}{length:8d}{1e3 * cpu:12.2f}"
                f"{1e3 * cpu / n_parties:10.2f}{cpu / base:9.1f}{kilobytes:10.1f}"
                f"{1e3 * setup:11.1f}{error:10.1e}",
                flush=True,
            )
            yield {
                "series": series,
                "backend": name,
                "parties": n_parties,
                "values": length,
                "ms per sum": 1e3 * cpu,
                "ms per party": 1e3 * cpu / n_parties,
                "ratio to plaintext": cpu / base,
                "kB sent by a party": kilobytes,
                "set-up ms": 1e3 * setup,
                "largest error": error,
            }


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=0.5, help="CPU per line")
    seconds = parser.parse_args().seconds
    small, large = n_statistics(3, 2), n_statistics(10, 20)
    quick = [name for name in BACKENDS if "paillier" not in name]
    rows = [
        *compare(
            "statistics of k=3, d=2",
            [(10, small)],
            seconds,
            [*BACKENDS, "phe naive"],
        ),
        *compare("statistics of k=10, d=20", [(10, large)], seconds, BACKENDS),
        *compare("parties", [(k, large) for k in (5, 10, 20)], seconds, quick),
        *compare("values", [(3, n) for n in (200, 2000, 20000)], seconds, quick),
    ]
    record("backends", rows)


if __name__ == "__main__":
    main()
