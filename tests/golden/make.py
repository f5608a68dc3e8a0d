"""Compute the golden results anew: python -m tests.golden.make [case ...].

Every case runs twice: results that differ from run to run are no golden ones. The case
"sites" is what sites answer.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

from tests.golden.cases import CASES
from tests.golden.recording import differences, record
from tests.golden.sites import POLICIES, SIZES, ask_all

FOLDER = Path(__file__).parent
#: what is found, what that costs, and which questions sites answer
RESULTS, COSTS = FOLDER / "results.json", FOLDER / "costs.json"
SITES = FOLDER / "sites.json"


def make(case):
    """Return the results of a case; raise if they are not the same twice."""
    first, second = record(case), record(case)
    lines = differences(first, second, case.rtol, owner="")
    if lines:
        raise ValueError(f"{case.name} is not reproducible: {lines}")
    return first


def make_sites():
    """Return which questions sites of each kind answer."""
    answers = {}
    for size in SIZES:
        for policy in POLICIES:
            with tempfile.TemporaryDirectory() as folder:
                answers[f"{size}, {policy}"] = ask_all(Path(folder), size, policy)
    return answers


def load(path):
    """Return what was kept of all cases."""
    return json.loads(path.read_text())


def save(path, kept):
    """Write what is kept, one case a line."""
    lines = [f"{json.dumps(name)}: {json.dumps(kept[name])}" for name in sorted(kept)]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def main(names):
    """Write the results of some cases, or of all."""
    results, costs = (load(RESULTS), load(COSTS)) if names else ({}, {})
    if not names or "sites" in names:
        save(SITES, make_sites())
    for name in [name for name in names or CASES if name != "sites"]:
        start = time.process_time()
        found = make(CASES[name])
        if "costs" in found:
            costs[name] = found.pop("costs")
        results[name] = found
        print(f"{(time.process_time() - start) / 2:6.2f} s {name}", flush=True)
    for path, kept in ((RESULTS, results), (COSTS, costs)):
        save(path, {name: kept[name] for name in CASES if name in kept})


if __name__ == "__main__":
    main(sys.argv[1:])
