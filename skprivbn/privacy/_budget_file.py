"""The budget on disk: one small JSON file that several processes may count on."""

import json
import math
import os
from dataclasses import asdict
from pathlib import Path

from skprivbn.privacy._composition import Spend
from skprivbn.utils._locked_file import hold_lock, replace_file

_FORMAT = "skprivbn-privacy-budget-1"


class BudgetFile:
    """Spends of one budget, readable by people, changed under a lock.

    The file is replaced as a whole, after its bytes have reached the disk: a crash
    leaves the old or the new file, never half of one. A damaged file is never taken
    for an empty one.

    Parameters
    ----------
    path : str or path-like
        Where. A second file with the suffix ``.lock`` lies next to it.
    epsilon, delta : float
        The budget; it must be the one that the file was made with.
    """

    def __init__(self, path, epsilon, delta):
        self.path = Path(os.path.realpath(path))
        self.epsilon, self.delta = epsilon, delta

    def create(self):
        """Make an empty file unless there is one; check the budget if there is."""
        with self.locked():
            if not self.path.exists():
                self.write([])
            self.read()

    def locked(self):
        """Hold the lock that every reader and writer takes, also other people's."""
        return hold_lock(self.path, 0o666)

    def read(self):
        """Return the list of spends; a clear error for anything unexpected."""
        *budget, spends = read_budget(self.path)
        if tuple(budget) != (self.epsilon, self.delta):
            raise ValueError(
                f"the budget file {str(self.path)!r} was made for "
                f"epsilon={budget[0]:g}, delta={budget[1]:g}, but this accountant has "
                f"epsilon={self.epsilon:g}, delta={self.delta:g}. Use the file's "
                "budget, or another file for other data."
            )
        return spends

    def write(self, spends):
        """Replace the file, after its new content has reached the disk."""
        content = {
            "format": _FORMAT,
            "epsilon": _to_json(self.epsilon),
            "delta": self.delta,
            "spends": [_spend_to_json(spend) for spend in spends],
        }
        replace_file(self.path, json.dumps(content, indent=1).encode())


def read_budget(path):
    """Read a budget file; a clear error for anything unexpected.

    Parameters
    ----------
    path : Path

    Returns
    -------
    epsilon, delta : float
        The budget that the file was made for.
    spends : list of Spend
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != _FORMAT:
            raise ValueError
        spends = [_spend_from_json(item) for item in content["spends"]]
        return float(content["epsilon"]), float(content["delta"]), spends
    except FileNotFoundError:
        raise FileNotFoundError(
            f"the budget file {str(path)!r} is gone. What was spent is no "
            "longer known, so nothing more can be spent: restore the file."
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(
            f"{str(path)!r} is not a readable budget file. If it is damaged, "
            "restore it: starting anew would forget what was already spent."
        ) from None


def _to_json(value):
    # JSON has no infinity: the word, which float() reads, stands for it
    if value is not None and math.isinf(value):
        return "inf"
    return value


def _spend_to_json(spend):
    fields = asdict(spend)
    return fields | {name: _to_json(fields[name]) for name in ("epsilon", "rho")}


def _spend_from_json(fields):
    numbers = {
        name: None if fields[name] is None else float(fields[name])
        for name in ("epsilon", "delta", "rho")
    }
    words = {name: str(fields[name]) for name in ("what", "at")}
    # files of earlier releases say no unit
    return Spend(**numbers, **words, unit=fields.get("unit"))
