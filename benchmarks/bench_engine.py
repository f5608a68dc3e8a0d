"""Where a round's time goes on NVIDIA FLARE, and how it grows with the sites.

Run with ``python benchmarks/bench_engine.py [--sites 3 8 16 32]`` (needs the extra
``nvflare``, and 400 megabytes for every site). A server and all sites run on this
machine. A round is one message of 1,000 bytes to each site and a short answer. Told
are, for each round, CPU seconds of every kind of process, and the least milliseconds
that the way took: to the job at the server, from there to the first site's job, through
our code at the site, back to the server until the last site had answered, back to the
researcher. CPU seconds do not depend on what else a machine does; the least time is the
one that was disturbed least.
"""

import argparse
import os
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from _record import read, record

from skprivbn.federation.flare import LocalFederation
from skprivbn.federation.site._site import INTRODUCE

N_ROUNDS, N_BYTES = 60, 1000

SITE_FILE = """\
min_parties = 2
peers = [{peers}]

[datasets.all]
path = "{path}"
min_rows = 2
estimators = ["FederatedStandardScaler"]

[datasets.all.columns]
a = "float"
"""

#: read by every Python process at its start: notes when messages come and go
STAMPS = """\
import importlib.abc, importlib.machinery, os, sys, time

def noted(kind, method):
    def wrapped(self, *arguments, **options):
        start = time.monotonic()
        result = method(self, *arguments, **options)
        with open(f"{os.environ['ROUND_STAMPS']}/{kind}.{os.getpid()}", "a") as file:
            file.write(f"{start!r} {time.monotonic()!r}\\n")
        return result
    return wrapped

class Loader(importlib.machinery.SourceFileLoader):
    def exec_module(self, module):
        super().exec_module(module)
        executor, controller = module.PartyExecutor, module.RelayController
        executor._answer = noted("site", executor._answer)
        controller._relay = noted("server", controller._relay)

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "skprivbn.federation.flare.engine":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        spec.loader = Loader(spec.loader.name, spec.loader.path)
        return spec

sys.meta_path.insert(0, Finder())
"""


def cpu_seconds(local):
    """Return CPU seconds so far, by kind of process."""
    used = {"the researcher": time.process_time()}
    for name in local.processes:
        kind = "the server" if name == "server" else "sites"
        for member in local.family(name):
            command = " ".join(member.cmdline())
            job = "runner_process" in command or "worker_process" in command
            role = f"jobs at {kind}" if job else kind
            spent = sum(member.cpu_times()[:2])
            used[role] = used.get(role, 0.0) + spent
    return used


def read_stamps(folder, kind, asked):
    """Return when messages of each round came and went: (processes, rounds, 2)."""
    found = []
    for path in sorted(Path(folder).glob(f"{kind}.*")):
        lines = [line.split() for line in path.read_text().splitlines()]
        stamps = np.array(lines, dtype=float)
        # others, such as signs of life, are between rounds
        first = np.searchsorted(stamps[:, 0], asked[:, 0])
        found.append(stamps[first])
    return np.array(found)


def ways(asked, folder):
    """Return the least milliseconds of each part of the way."""
    (server,) = read_stamps(folder, "server", asked)
    sites = read_stamps(folder, "site", asked)
    parts = {
        "ms to the server's job": server[:, 0] - asked[:, 0],
        "ms on to the first site": sites[:, :, 0].min(axis=0) - server[:, 0],
        "ms of our code at a site": (sites[:, :, 1] - sites[:, :, 0]).min(axis=0),
        "ms until the last is back": server[:, 1] - sites[:, :, 0].min(axis=0),
        "ms back to the researcher": asked[:, 1] - server[:, 1],
        "ms in all": asked[:, 1] - asked[:, 0],
    }
    return {name: 1000 * float(values.min()) for name, values in parts.items()}


def measure(n_sites):
    """Return the costs of a round with so many sites."""
    names = [f"site-{i}" for i in range(n_sites)]
    with tempfile.TemporaryDirectory() as folder:
        stamps = Path(folder) / "stamps"
        stamps.mkdir()
        (stamps / "sitecustomize.py").write_text(STAMPS)
        search = f"{stamps}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        os.environ["PYTHONPATH"], before = search, os.environ.get("PYTHONPATH", "")
        os.environ["ROUND_STAMPS"] = str(stamps)
        path = Path(folder) / "table.csv"
        path.write_text("a\n" + "1.5\n2.5\n" * 10)
        peers = ", ".join(f'"{name}"' for name in names)
        text = SITE_FILE.format(path=path.as_posix(), peers=peers)
        texts = dict.fromkeys(names, text)
        try:
            with LocalFederation(Path(folder) / "federation", texts) as local:
                start = time.perf_counter()
                with local.connect("all", ready_within=1500.0) as federation:
                    ready = time.perf_counter() - start
                    messages = dict.fromkeys(names, b"a" * N_BYTES)
                    federation._relay.ask(INTRODUCE, messages, 60.0)
                    used, asked = cpu_seconds(local), []
                    for _ in range(N_ROUNDS):
                        start = time.monotonic()
                        found = federation._relay.ask(INTRODUCE, messages, 60.0)
                        asked.append((start, time.monotonic()))
                        assert len(found) == n_sites
                    spent = cpu_seconds(local)
                    way = ways(np.array(asked), stamps)
                    memory = sum(
                        member.memory_info().rss
                        for name in names
                        for member in local.family(name)
                    )
        finally:
            os.environ["PYTHONPATH"] = before
    cpu = {f"CPU ms of {r}": 1000 * (spent[r] - used[r]) / N_ROUNDS for r in spent}
    return {
        "sites": n_sites,
        "seconds until ready": ready,
        "median ms of a round": 1000 * float(np.median(np.diff(asked))),
        **way,
        **cpu,
        "CPU ms of all": sum(cpu.values()),
        "MB of memory of a site": memory / n_sites / 1e6,
        "load": os.getloadavg()[0],
    }


def main():
    """Measure all numbers of sites; others that are stored stay."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sites", type=int, nargs="+", default=[3, 8])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = {row["sites"]: row for row in (read("engine") or {"rows": []})["rows"]}
    for n_sites in options.sites:
        rows[n_sites] = measure(n_sites)
        print(rows[n_sites], flush=True)
        record("engine", [rows[n] for n in sorted(rows)])


if __name__ == "__main__":
    main()
