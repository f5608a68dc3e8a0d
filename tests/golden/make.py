"""Compute the golden results anew: python -m tests.golden.make [case ...].

Every case runs twice: results that differ from run to run are no golden ones.
"""

import json
import sys
import time
from pathlib import Path

from tests.golden.cases import CASES
from tests.golden.recording import differences, record

RESULTS = Path(__file__).with_name("results.json")


def make(case):
    """Return the results of a case; raise if they are not the same twice."""
    first, second = record(case), record(case)
    lines = differences(first, second, case.rtol, owner="")
    if lines:
        raise ValueError(f"{case.name} is not reproducible: {lines}")
    return first


def load():
    """Return the results of all cases, as they were kept."""
    kept = json.loads(RESULTS.read_text())
    texts = kept.pop("texts")
    return {name: _map_texts(lambda i: texts[int(i)], kept[name]) for name in kept}


def save(results):
    """Write results, one case a line, and every text once."""
    texts = {}
    kept = {
        name: _map_texts(lambda text: str(texts.setdefault(text, len(texts))), found)
        for name, found in sorted(results.items())
    }
    lines = [f"{json.dumps(name)}: {json.dumps(kept[name])}" for name in kept]
    lines.append(f'"texts": {json.dumps(list(texts), indent=0)}')
    RESULTS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _map_texts(function, found):
    if isinstance(found, str):
        return function(found)
    if isinstance(found, list):
        return [_map_texts(function, member) for member in found]
    if isinstance(found, dict):
        return {name: _map_texts(function, member) for name, member in found.items()}
    return found


def main(names):
    """Write the results of some cases, or of all."""
    results = load() if names else {}
    for name in names or CASES:
        start = time.process_time()
        results[name] = make(CASES[name])
        print(f"{(time.process_time() - start) / 2:6.2f} s {name}")
    save({name: results[name] for name in CASES})


if __name__ == "__main__":
    main(sys.argv[1:])
