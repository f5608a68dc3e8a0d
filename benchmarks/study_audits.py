"""Audits of every path with epsilon: what attackers prove, of it and of broken twins.

Run with ``python benchmarks/study_audits.py`` (about ten minutes of one core), or with
names of paths, which replaces their rows. Neighbours and attackers stand with the
tests. Columns:

- claim: epsilon of the fit, with delta;
- bound: what was proved, at the confidence given; a sound path stays below the claim;
- reach: what the same number of guesses proves, on average, of ideal noise on the same
  numbers; where it is not given, the attacker does not see all that is opened;
- cost: what these neighbours cost exactly if nothing but opened numbers depends on
  rows, for Laplace noise;
- trials: how often, in both worlds; of "answers" where holders' noisy answers do not
  depend on each other and are drawn without a fit, which follows from them to the last
  bit (``tests/privacy/test_audit_neighbours.py``), else of whole "fits";
- twin: what was proved of the same path without one of its defences.
"""

import sys
import warnings
from pathlib import Path

from _record import read, record

# attacks stand with the tests
sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.privacy.attacks import AUDITS, N_ANSWERS, n_trials

CONFIDENCE, TWIN_CONFIDENCE = 0.999, 0.99


def audit(name):
    """Return the row of a path."""
    case = AUDITS[name]
    attack = case.make()
    n = n_trials(name, attack)
    asked = n, case.delta, CONFIDENCE
    sees_all = hasattr(attack, "reach")
    n_twin = min(n, 500)
    return {
        "path": name,
        "claim": case.claim,
        "delta": case.delta,
        "cost": attack.largest_loss() if sees_all and case.delta == 0 else None,
        "bound": attack.run(*asked),
        "reach": attack.reach(*asked) if sees_all else None,
        "confidence": CONFIDENCE,
        "trials": n,
        "of": "answers" if n == N_ANSWERS else "fits",
        "twin": case.twin,
        "twin's bound": case.attack_twin(n_twin, TWIN_CONFIDENCE),
        "twin's confidence": TWIN_CONFIDENCE,
        "twin's trials": n_twin,
    }


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    names, sys.argv[1:] = sys.argv[1:] or list(AUDITS), []
    rows = {row["path"]: row for row in (read("audits") or {"rows": []})["rows"]}
    for name in names:
        rows[name] = audit(name)
        print(rows[name], flush=True)
        # what is known so far: attacks take minutes
        record("audits", [rows[path] for path in AUDITS if path in rows])
