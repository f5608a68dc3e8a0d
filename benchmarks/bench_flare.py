"""What a real engine costs: rounds per second and fits on NVIDIA FLARE.

Run with ``python benchmarks/bench_flare.py`` (about two minutes; needs the extra
``nvflare``). A server and three sites run as processes of their own on this machine and
talk over loopback with mutual TLS. Ratios are against the same fit in one process, and
the fits must agree. The load of the machine is kept beside each number: five processes
share its cores.
"""

import argparse
import os
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from _record import record

from skprivbn.datasets import load_asia, make_partitioned_blobs
from skprivbn.federation.flare import LocalFederation
from skprivbn.federation.site._site import INTRODUCE
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.structure import PrivateK2StructureLearner

SITES = ["north", "south", "west"]

SITE_FILE = """\
min_parties = 2
peers = ["north", "south", "west"]

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


def rounds(federation, n_rounds, n_bytes, *, same):
    """Time rounds of messages of a given size, with short answers."""
    messages = {
        name: bytes([65 if same else 65 + i]) * n_bytes for i, name in enumerate(SITES)
    }

    def run():
        for _ in range(n_rounds):
            federation._relay.ask(INTRODUCE, messages, 10.0)

    _, seconds = timed(run)
    return {
        "what": "rounds",
        "case": "all sites told the same" if same else "each site told its own",
        "bytes_to_each_site": n_bytes,
        "n_rounds": n_rounds,
        "rounds_per_second": n_rounds / seconds,
        "load": os.getloadavg()[0],
    }


def comparison(case, remote, seconds, reference):
    """Describe a fit that took so long on the engine and in one process."""
    ledger = remote.ledger_
    return {
        "what": "fit",
        "case": case,
        "seconds": seconds,
        "seconds_in_process": reference,
        "ratio": seconds / reference,
        "n_rounds": ledger.n_rounds,
        "rounds_per_second": ledger.n_rounds / seconds,
        "megabytes": ledger.total_bytes / 1e6,
        "load": os.getloadavg()[0],
    }


def fit_mixtures(federation, X, party, n_rows):
    """Fit k=3 components in d=2 dimensions, with both kinds of backends."""
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
        yield comparison(f"PPEM k=3 d=2, {backend}", remote, seconds, reference)


def fit_k2(federation, codes, owned, order):
    """Learn Asia from three sites' columns."""
    names = [f"v{column}" for columns in owned.values() for column in columns]
    options = {"ordering": order, "max_parents": 2}
    remote, seconds = timed(
        lambda: PrivateK2StructureLearner(**options).fit(federation.columns(names))
    )
    table = codes[:, [int(name[1:]) for name in names]]
    parties = {
        site: [names.index(f"v{column}") for column in columns]
        for site, columns in owned.items()
    }
    options["ordering"] = [names.index(name) for name in order]
    local, reference = timed(
        lambda: PrivateK2StructureLearner(parties=parties, **options).fit(table)
    )
    np.testing.assert_array_equal(remote.adjacency_matrix_, local.adjacency_matrix_)
    return comparison(f"K2 Asia n={len(codes)}", remote, seconds, reference)


def main():
    """Run all comparisons, print them and keep them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000, help="records of Asia")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    X, _, party = make_partitioned_blobs(600, n_parties=3, random_state=0)
    party = np.array(SITES)[np.unique(party, return_inverse=True)[1]]
    asia = load_asia()
    codes = asia.encode(asia.sample(options.rows, random_state=0))
    # sites answer exact questions of one group about the same data: all three
    owned = {"north": [0, 1, 7], "south": [2, 3, 4], "west": [5, 6]}
    order = [f"v{column}" for column in asia.topological_order]
    rows = []

    def keep(row):
        rows.append(row)
        print(", ".join(f"{k} {_short(v)}" for k, v in row.items()), flush=True)

    with tempfile.TemporaryDirectory() as folder:
        texts = write_sites(Path(folder), X, party, codes, owned)
        with LocalFederation(Path(folder) / "federation", texts) as local:
            federation, ready = timed(lambda: local.connect("all"))
            with federation:
                keep({"what": "session", "case": "ready", "seconds": ready})
                keep(rounds(federation, 100, 1_000, same=True))
                keep(rounds(federation, 20, 1_000_000, same=True))
                keep(rounds(federation, 20, 1_000_000, same=False))
                for row in fit_mixtures(federation, X, party, options.rows):
                    keep(row)
                keep(fit_k2(federation, codes, owned, order))
    print("kept in", record("flare", rows))


def _short(value):
    return f"{value:.3g}" if isinstance(value, float) else value


if __name__ == "__main__":
    main()
