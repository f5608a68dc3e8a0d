"""Keep what a benchmark measured: ``benchmarks/results/NAME.json``, one row a line.

A file holds the release and commit of the package, the machine, the command that
reproduces it, the CPU seconds of that and ``rows``, a list of flat dictionaries.
``benchmarks/report.py`` makes its tables and plots from nothing else.
"""

import json
import os
import platform
import shlex
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parent / "results"
PEERS = ("scikit-learn", "numpy", "scipy", "phe", "tenseal", "torch", "mbi", "pgmpy")
PEERS += ("pandas", "pyarrow", "pyagrum", "dagma")


def machine():
    """Return what the numbers depend on: processor, threads, versions."""
    threads = os.environ.get("OMP_NUM_THREADS")
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": int(threads) if threads else None,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in PEERS if _version(name)},
    }


def commit():
    """Return the last commit that changed the package, "+" if files differ."""
    package = RESULTS.parents[1] / "skprivbn"

    def git(*arguments):
        command = ["git", "-C", str(package), *arguments, "--", "."]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        log, changed = git("log", "-1", "--format=%h"), git("status", "--short")
    except (OSError, subprocess.CalledProcessError):
        return None  # no git, or no checkout
    return log + ("+" if changed else "")


def record(name, rows, **more):
    """Write rows and what else is worth keeping; return the path.

    Parameters
    ----------
    name : str
        Name of the file, such as "ppem" or "notears_growth".
    rows : iterable of dict
        Flat dictionaries: what varied (strings, numbers) and what was measured.
        numpy scalars are fine; no list or dictionary inside a row.
    **more : object
        Anything else JSON can hold: a title, the seeds, parameters of all rows.
    """
    rows = [_flat(row) for row in rows]
    arguments = [Path(sys.argv[0]).name, *sys.argv[1:]]
    head = {
        "machine": machine(),
        "command": f"python benchmarks/{shlex.join(arguments)}",
        # of this run, which may have gone on after rows of another one
        "release": version("skprivbn"),
        "commit": commit(),
        "CPU_seconds": round(sum(os.times()[:4])),
        **more,
    }
    fields = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    lines = ",\n  ".join(json.dumps(row, allow_nan=False) for row in rows)
    text = "{\n" + ",\n".join([*fields, f'"rows": [\n  {lines}\n]']) + "\n}\n"
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    written = path.with_suffix(f".{os.getpid()}")
    written.write_text(text)
    written.replace(path)  # at once: another run may be reading
    return path


def read(name):
    """Return what `record` wrote under a name, or None if nothing was."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def _flat(row):
    """Return a row of plain Python values, floats with six digits; nan is None."""
    return {str(key): _plain(value) for key, value in row.items()}


def _plain(value):
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return float(f"{value:.6g}") if np.isfinite(value) else None
    if value is None or isinstance(value, (bool, int, str)):
        return value
    raise TypeError(f"rows hold numbers and strings, got {value!r}")


def _version(name):
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _processor():
    """Return the processor's name; Linux keeps it where platform does not look."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if "model name" in line]
    return names[0] if names else platform.processor()
