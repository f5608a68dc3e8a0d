"""Fits at real sites whose links have a delay: NVIDIA FLARE behind slow lines.

Run with ``python benchmarks/bench_sites.py [--delay 50] [fit ...]`` (a few minutes;
needs the extra ``nvflare``). A server and three sites run as processes of their own;
each site talks to the server through a port of this machine that passes everything on
after so many milliseconds, in either direction and without a limit on what is on its
way. Wall time: measure on a machine that does nothing else.
"""

import argparse
import asyncio
import json
import os
import tempfile
import threading
import time
import warnings
from contextlib import suppress
from pathlib import Path

import numpy as np
from _record import record

from skprivbn.datasets import load_asia
from skprivbn.federation.flare import LocalFederation
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.preprocessing import (
    FederatedKBinsDiscretizer,
    FederatedPCA,
    FederatedStandardScaler,
)
from skprivbn.structure import (
    FederatedBayesianNetwork,
    FederatedGaussianBayesianNetwork,
    FederatedNotearsADMM,
    PrivateK2StructureLearner,
)

SITES = ["north", "south", "west"]
ROWS_PER_SITE, N_RECORDS = 2000, 10_000
NUMBERS = [f"x{i}" for i in range(6)]
#: columns of Asia, by their positions
OWNED = {"north": [0, 1, 2], "south": [3, 4, 5], "west": [6, 7]}

SITE_FILE = """\
min_parties = 2
peers = ["north", "south", "west"]

[datasets.numbers]
path = "{folder}/{name}_numbers.csv"
min_rows = 20
max_exact_fits = 1000
estimators = ["FederatedStandardScaler", "FederatedPCA", "FederatedKBinsDiscretizer",
    "FederatedGaussianBayesianNetwork", "FederatedNotearsADMM", "PPEMGaussianMixture"]
columns = {{{numbers}}}

[datasets.labels]
path = "{folder}/{name}_labels.csv"
min_rows = 20
max_exact_fits = 1000
estimators = ["FederatedBayesianNetwork"]
columns = {{{labels}}}

[datasets.records]
path = "{folder}/{name}_records.csv"
min_rows = 20
max_exact_fits = 1000
estimators = ["PrivateK2StructureLearner"]
columns = {{{records}}}
"""


class DelayLine:
    """A port that passes on what it gets, later."""

    def __init__(self, target, seconds):
        self._target, self._seconds = target, seconds
        self._loop = asyncio.new_event_loop()
        opened = threading.Event()

        async def listen():
            server = await asyncio.start_server(self._meet, "localhost", 0)
            self.port = server.sockets[0].getsockname()[1]
            opened.set()

        self._loop.create_task(listen())
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        opened.wait()

    async def _meet(self, reader, writer):
        far_reader, far_writer = await asyncio.open_connection(
            "localhost", self._target
        )
        await asyncio.gather(
            self._pass_on(reader, far_writer), self._pass_on(far_reader, writer)
        )

    async def _pass_on(self, reader, writer):
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                self._loop.call_later(self._seconds, writer.write, data)
        self._loop.call_later(self._seconds, writer.close)


class SlowFederation(LocalFederation):
    """Sites that reach the server through delay lines."""

    def __init__(self, folder, site_files, seconds):
        super().__init__(folder, site_files)
        self._seconds, self.lines = seconds, []

    def provision(self):
        """Make the startup kits, and send the sites to lines of their own."""
        super().provision()
        for name in self.site_files:
            path = self.kits[name] / "startup" / "fed_client.json"
            config = json.loads(path.read_text())
            service = config["servers"][0]["service"]
            host, port = service["target"].split(":")
            self.lines.append(DelayLine(int(port), self._seconds))
            service["target"] = f"{host}:{self.lines[-1].port}"
            path.write_text(json.dumps(config))


def write_sites(folder):
    """Write every site's tables; return the texts of the site files."""
    rng, asia, texts = np.random.default_rng(0), load_asia(), {}
    codes = asia.encode(asia.sample(N_RECORDS, random_state=0))
    names = [f"v{i}" for i in range(codes.shape[1])]
    for position, name in enumerate(SITES):
        X = rng.normal(size=(ROWS_PER_SITE, len(NUMBERS)))
        X[:, 1] += X[:, 0]
        X[:, 3] += 2 * (rng.random(ROWS_PER_SITE) < 0.5)
        rows = codes[position * ROWS_PER_SITE : (position + 1) * ROWS_PER_SITE]
        own = [names[i] for i in OWNED[name]]
        tables = {
            "numbers": (X, NUMBERS, "%.17g"),
            "labels": (rows, names, "%d"),
            "records": (codes[:, OWNED[name]], own, "%d"),
        }
        for table, (values, header, form) in tables.items():
            path, head = folder / f"{name}_{table}.csv", ",".join(header)
            np.savetxt(path, values, form, ",", header=head, comments="")
        texts[name] = SITE_FILE.format(
            folder=folder.as_posix(),
            name=name,
            numbers=", ".join(f'{column} = "float"' for column in NUMBERS),
            labels=", ".join(f'{column} = ["0", "1"]' for column in names),
            records=", ".join(f'{column} = ["0", "1"]' for column in own),
        )
    return texts


def k2():
    """Return a learner with an ordering of Asia's columns."""
    ordering = [f"v{i}" for i in load_asia().topological_order]
    return PrivateK2StructureLearner(ordering=ordering)


FITS = {
    "FederatedStandardScaler": ("numbers", FederatedStandardScaler),
    "FederatedPCA": ("numbers", lambda: FederatedPCA(2)),
    "FederatedKBinsDiscretizer": ("numbers", FederatedKBinsDiscretizer),
    "FederatedGaussianBayesianNetwork": (
        "numbers",
        FederatedGaussianBayesianNetwork,
    ),
    "FederatedNotearsADMM": ("numbers", FederatedNotearsADMM),
    "PPEMGaussianMixture": (
        "numbers",
        lambda: PPEMGaussianMixture(2, random_state=0),
    ),
    "FederatedBayesianNetwork": ("labels", FederatedBayesianNetwork),
    "K2, Asia, three sites": ("records", k2),
}


def measure(federation, name, delay):
    """Fit once at the sites; return a row."""
    dataset, make = FITS[name]
    if dataset == "records":
        names = [f"v{i}" for columns in OWNED.values() for i in columns]
        X = federation.columns(names)
    else:
        n_labels = sum(map(len, OWNED.values()))
        labels = [f"v{i}" for i in range(n_labels)]
        X = federation.rows(NUMBERS if dataset == "numbers" else labels)
    start = time.perf_counter()
    ledger = make().fit(X).ledger_
    seconds = time.perf_counter() - start
    return {
        "fit": name,
        "delay ms": delay,
        "seconds": seconds,
        "rounds": ledger.n_rounds,
        "MB": ledger.total_bytes / 1e6,
        "seconds of delays": 2 * delay / 1000 * ledger.n_rounds,
        "load": os.getloadavg()[0],
    }


def main():
    """Run all fits, print them and keep them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--delay", type=float, default=50.0, help="ms, one way")
    parser.add_argument("fits", nargs="*", help="all if none is named")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    names, rows = options.fits or list(FITS), []
    with tempfile.TemporaryDirectory() as folder:
        texts = write_sites(Path(folder))
        place = Path(folder) / "federation"
        with SlowFederation(place, texts, options.delay / 1000) as local:
            for dataset in dict.fromkeys(FITS[name][0] for name in names):
                with local.connect(dataset, ready_within=600.0) as federation:
                    for name in names:
                        if FITS[name][0] == dataset:
                            rows.append(measure(federation, name, options.delay))
                            print(rows[-1], flush=True)
    print("kept in", record("sites", rows, title="Fits at sites behind slow links"))


if __name__ == "__main__":
    main()
