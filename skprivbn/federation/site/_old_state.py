"""Files in which release 0.2 kept the state of a site, read once and put aside."""

import json
import re
from dataclasses import asdict

from skprivbn.privacy._budget_file import read_budget

#: what is added to the name of a file that was read
READ = ".read"
#: how files of an account end; reservations, which last minutes, are not read
_KINDS = re.compile(r"\.(budget|snapshots|([\w-]+)\.(exact|refused))\.json(?:\.read)?")


def read(account, prefix):
    """Read the files of an account, also if another site of this machine has.

    Parameters
    ----------
    account : str
    prefix : Path
        What the names of the files begin with.

    Returns
    -------
    rows : list of (str, dict)
        Tables of the state, and what to add to them.
    files : list of Path
    """
    rows, files = [], []
    for path in sorted(prefix.parent.glob("*.json*")):
        kind = _KINDS.fullmatch(path.name.removeprefix(prefix.name))
        if kind is None or not path.name.startswith(prefix.name):
            continue
        files.append(path)
        if kind[1] == "snapshots":
            content = json.loads(path.read_text(encoding="utf-8"))
            rows += _snapshots(content["contents"], content.get("weights", {}), content)
            continue
        epsilon, delta, spends = read_budget(path)
        if kind[1] == "budget":
            rows.append(("budgets", {"epsilon": epsilon, "delta": delta}))
        known = {"kind": kind[3] or "noisy", "version": kind[2] or "", "is_charged": 1}
        rows += [("charges", known | asdict(spend)) for spend in spends]
    return [(table, {"account": account, **row}) for table, row in rows], files


def _snapshots(contents, weights, state):
    yield "sketch_keys", {"sketch_key": state["key"]}
    for content in contents:
        yield "fingerprints", {"fingerprint": content["fingerprint"]}
        yield "contents", {"content": json.dumps(content)}
    for version, roster in state["rosters"].items():
        asked = {"roster": json.dumps(roster), "weights": weights.get(version)}
        yield "rosters", {"version": version, **asked}


def put_aside(files):
    """Give files that were read another name, under which nobody changes them."""
    for path in files:
        if path.suffix != READ:
            path.chmod(0o400)
            path.rename(f"{path}{READ}")
