"""What is installed here for parties to run: estimators and backends, announced.

A distribution announces its estimators in the entry-point group
``skprivbn.protocols`` and its backends in ``skprivbn.backends``; this package's own
are entered like anybody's. Nothing that is not installed here can run here, and a
site file says which of it may.
"""

from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

PROTOCOLS = "skprivbn.protocols"
BACKENDS = "skprivbn.backends"
#: whose names stand for themselves, without their distribution
OURS = "skprivbn"


@dataclass(frozen=True)
class Announced:
    """An estimator or a backend that an installed distribution announces.

    Attributes
    ----------
    name : str
        By which a site file, and a session, know it.
    distribution, version : str
        Who announces it.
    """

    name: str
    distribution: str
    version: str
    _entry: EntryPoint

    def load(self) -> Any:
        """Return the class."""
        return self._entry.load()


@cache
def _all_announced(group):
    return tuple(
        Announced(e.name, e.dist.name, e.dist.version, e)
        for e in entry_points(group=group)
        if e.dist is not None
    )


def announced(group: str, distribution: str | None = None) -> dict[str, Announced]:
    """Return what is announced, by name; ours goes before others of the same name.

    Parameters
    ----------
    group : str
        :data:`PROTOCOLS` or :data:`BACKENDS`.
    distribution : str, default=None
        Only what this one announces.

    Returns
    -------
    found : dict of str to Announced
    """
    found = [
        one
        for one in _all_announced(group)
        if distribution is None or one.distribution == distribution
    ]
    found.sort(key=lambda one: one.distribution == OURS)
    return {one.name: one for one in found}
