"""What a real engine costs: rounds per second and fits on NVIDIA FLARE.

Run with ``python benchmarks/bench_flare.py`` (about two minutes; needs the extra
``nvflare``). A server and three sites run as processes of their own on this machine and
talk over loopback with mutual TLS. Ratios are against the same fit in one process, and
the fits must agree.
"""

import argparse
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

from skprivbn.datasets import load_asia, make_partitioned_blobs
from skprivbn.federation._site import INTRODUCE
from skprivbn.federation.flare import LocalFederation
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.structure import PrivateK2StructureLearner

SITES = ["north", "south", "west"]

SITE_FILE = """\
min_parties = 2

[datasets.all]
path = "{path}"
min_rows = 20
max_exact_fits = 1000
estimators = ["PPEMGaussianMixture", "PrivateK2StructureLearner"]

[datasets.all.columns]
a = "float"
b = "float"
{own}
"""


def timed(function):
    """Return what a function returns and the seconds it took."""
    start = time.perf_counter()
    result = function()
    return result, time.perf_counter() - start


def write_sites(folder, X, party, codes, owned):
    """Write every site's table; return the texts of the site files."""
    texts = {}
    for name in SITES:
        columns = owned.get(name, [])
        n_rows = len(codes)
        table = np.full((n_rows, 2 + len(columns)), "", dtype=object)
        rows = X[party == name]
        # the mixture's rows are repeated to the length of the other columns
        table[:, :2] = [
            [f"{v:.17g}" for v in rows[i % len(rows)]] for i in range(n_rows)
        ]
        table[:, 2:] = codes[:, columns].astype(str)
        names = [f"v{column}" for column in columns]
        lines = [",".join(["a", "b", *names]), *(",".join(row) for row in table)]
        path = folder / f"{name}.csv"
        path.write_text("\n".join(lines) + "\n")
        own = "\n".join(f'{column} = ["0", "1"]' for column in names)
        texts[name] = SITE_FILE.format(path=path.as_posix(), own=own)
    return texts


def bench_rounds(federation, n_rounds, n_bytes):
    """Return rounds per second: messages of a given size, short answers."""
    message = b"x" * n_bytes

    def run():
        for _ in range(n_rounds):
            federation._relay(INTRODUCE, dict.fromkeys(SITES, message), 10.0)

    return n_rounds / timed(run)[1]


def main():
    """Run all comparisons and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000, help="records of Asia")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    X, _, party = make_partitioned_blobs(600, n_parties=3, random_state=0)
    party = np.array(SITES)[np.unique(party, return_inverse=True)[1]]
    asia = load_asia()
    codes = asia.encode(asia.sample(options.rows, random_state=0))
    owned = {"north": [0, 1, 2, 7], "south": [3, 4, 5, 6]}
    order = [f"v{column}" for column in asia.topological_order]
    with tempfile.TemporaryDirectory() as folder:
        texts = write_sites(Path(folder), X, party, codes, owned)
        with LocalFederation(Path(folder) / "federation", texts) as local:
            federation, ready = timed(lambda: local.connect("all"))
            with federation:
                print(f"session ready after {ready:.1f} s")
                for n_rounds, n_bytes in [(100, 1_000), (20, 1_000_000)]:
                    rate = bench_rounds(federation, n_rounds, n_bytes)
                    print(
                        f"{n_bytes:>9,} bytes to each site: {rate:5.1f} rounds a second"
                    )
                compare_mixture(federation, X, party, options.rows)
                compare_k2(federation, codes, owned, order)


def report(name, remote, local, n_rounds):
    """Print one line of the comparison."""
    print(
        f"{name:<28} FLARE {remote:7.2f} s   one process {local:7.2f} s   "
        f"ratio {remote / local:5.1f}   {n_rounds} rounds, "
        f"{n_rounds / remote:.1f} per second"
    )


def compare_mixture(federation, X, party, n_rows):
    """Fit k=3 components in d=2 dimensions, with both backends."""
    blocks = [X[party == name] for name in SITES]
    rows = np.vstack([block[np.arange(n_rows) % len(block)] for block in blocks])
    labels = np.repeat(SITES, n_rows)
    for backend in ("masking", "ckks"):

        def fit(*arguments, backend=backend, **options):
            model = PPEMGaussianMixture(3, backend=backend, random_state=0)
            return model.fit(*arguments, **options)

        remote, seconds = timed(lambda: fit(federation.rows(["a", "b"])))
        local, reference = timed(lambda: fit(rows, party=labels))
        np.testing.assert_allclose(remote.means_, local.means_, rtol=1e-6)
        n_rounds = remote.ledger_.n_rounds
        report(f"PPEM, {backend}, k=3, d=2", seconds, reference, n_rounds)


def compare_k2(federation, codes, owned, order):
    """Learn Asia from two sites' columns."""
    names = [f"v{column}" for columns in owned.values() for column in columns]
    options = {"ordering": order, "max_parents": 2}
    remote, seconds = timed(
        lambda: PrivateK2StructureLearner(**options).fit(federation.columns(names))
    )
    table = codes[:, [int(name[1:]) for name in names]]
    parties = {"north": [0, 1, 2, 3], "south": [4, 5, 6, 7]}
    options["ordering"] = [names.index(name) for name in order]
    local, reference = timed(
        lambda: PrivateK2StructureLearner(parties=parties, **options).fit(table)
    )
    np.testing.assert_array_equal(remote.adjacency_matrix_, local.adjacency_matrix_)
    report(
        f"private K2, Asia n={len(codes):,}",
        seconds,
        reference,
        remote.ledger_.n_rounds,
    )


if __name__ == "__main__":
    main()
