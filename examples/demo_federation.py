"""A federation of three hospitals on this machine, from certificates to a fitted model.

Run by ``make demo-federation``. A server and three sites start as separate processes
and communicate over loopback with mutual TLS, as between organisations; all are
stopped at the end.
"""

import argparse
import sys
import tempfile
import textwrap
import time
from itertools import groupby
from pathlib import Path

import numpy as np

from skprivbn.datasets import make_partitioned_blobs
from skprivbn.federation.__main__ import main as federation_command
from skprivbn.federation.flare import LocalFederation
from skprivbn.mixture import PPEMGaussianMixture

HOSPITALS = ["north", "south", "west"]

SITE_FILE = """\
min_parties = 3
peers = ["north", "south", "west"]
results = "results"

[datasets.icu]
path = "{path}"
min_rows = 20
max_exact_fits = 10
estimators = ["PPEMGaussianMixture"]

[datasets.icu.columns]
pulse = "float"
pressure = "float"
"""


def print_ledger(ledger):
    """Print who learnt what, in lines that fit a terminal."""
    wrap = {"initial_indent": "  - ", "subsequent_indent": "    ", "width": 88}
    size = f"{ledger.total_bytes / 1e6:.1f} MB"
    print(f"{len(ledger.entries)} messages in {ledger.n_rounds} rounds, {size}")
    for who, told in groupby(ledger.who_learns_what(), key=lambda row: row[0]):
        print(f"what {who} learnt:")
        for _, what, source, kind, *_ in told:
            print(textwrap.fill(f"{what} (from {source}, as {kind})", **wrap))
    print("notes:")
    for note in ledger.notes:
        print(textwrap.fill(note, **wrap))


def main():
    """Provision, start, fit, print, stop."""
    parser = argparse.ArgumentParser(description=__doc__)
    words = (
        "leave the sites running until Enter is pressed, to look at one as a steward"
    )
    parser.add_argument("--wait", action="store_true", help=words)
    waits = parser.parse_args().wait
    X, _, party = make_partitioned_blobs(600, n_parties=3, random_state=0)
    names = np.array(HOSPITALS)[np.unique(party, return_inverse=True)[1]]
    start = time.perf_counter()

    def say(text):
        print(f"{time.perf_counter() - start:5.1f} s  {text}", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        site_files = {}
        for name in HOSPITALS:
            path = folder / f"{name}.csv"
            rows = X[names == name]
            np.savetxt(path, rows, "%.17g", ",", header="pulse,pressure", comments="")
            site_files[name] = SITE_FILE.format(path=path.as_posix())
        say("making certificates and startup kits, starting a server and three sites")
        with LocalFederation(folder / "federation", site_files) as local:
            for name, process in local.processes.items():
                say(f"{name} is process {process.pid}")
            with local.connect("icu") as federation:
                rows = federation.rows()
                say(f"connected: {rows}")
                model = PPEMGaussianMixture(3, backend="ckks", random_state=0)
                model.fit(rows)
                say(f"fitted in {model.n_iter_} iterations of encrypted sums")
                print(model.means_.round(3))
                print("mean log-likelihood, a secure sum:", round(model.score(rows), 6))
                results = model.predict(rows)
                say(f"predictions stay at the sites: {results}")
            same = PPEMGaussianMixture(3, backend="ckks", random_state=0)
            same.fit(X, party=names)
            difference = np.abs(model.means_ - same.means_).max()
            print(
                f"largest difference to the same fit in one process: {difference:.1e}"
            )
            print()
            print_ledger(model.ledger_)
            print()
            log = local.kits["south"] / "local" / "skprivbn_audit.jsonl"
            print("end of the audit log of site south:")
            federation_command(["audit", "--last", "3", str(log)])
            if waits:
                print("\nin another terminal:")
                for command in ("status", "audit", "console"):
                    kit = local.kits["north"]
                    print(f"{sys.executable} -m skprivbn.federation {command} {kit}")
                input("Enter stops everything ")
        say("everything is stopped")


if __name__ == "__main__":
    main()
