"""What is installed here for parties to run: estimators and backends, announced.

A distribution announces its estimators in the entry-point group
``skprivbn.protocols`` and its backends in ``skprivbn.backends``; this package's own
are entered like anybody's. Nothing that is not installed here can run here, and a
site file says which of it may.
"""

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

PROTOCOLS = "skprivbn.protocols"
BACKENDS = "skprivbn.backends"
#: whose names stand for themselves, without their distribution
OURS = "skprivbn"


@cache
def _all_announced(group):
    return tuple(e for e in entry_points(group=group) if e.dist is not None)


def announced(group: str, distribution: str | None = None) -> dict[str, EntryPoint]:
    """Return what is announced, by name; ours goes before others of the same name.

    Parameters
    ----------
    group : str
        :data:`PROTOCOLS` or :data:`BACKENDS`.
    distribution : str, default=None
        Only what this one announces.

    Returns
    -------
    found : dict of str to EntryPoint
    """
    found: dict[str, Any] = {}
    for one in sorted(_all_announced(group), key=lambda one: one.dist.name == OURS):
        if distribution in (None, one.dist.name):
            found[one.name] = one
    return found
