"""What parties may be called, and how many are enough to hide sums."""

from collections.abc import Iterable
from typing import Any
from unicodedata import normalize

from skprivbn.exceptions import PartitionError
from skprivbn.federation._ledger import COORDINATOR
from skprivbn.utils import warn_leak

#: how the ledger speaks of somebody who is no party, and of several at once
_BEGINNINGS = (COORDINATOR, "the coordinator", "all parties", "each party")
_BEGINNINGS += ("all of it together", "whoever sees the model")


def check_roster(names: Iterable[Any]) -> tuple[str, ...]:
    """Return the names of parties, all of which a reader of the ledger can tell apart.

    Parameters
    ----------
    names : iterable of str

    Returns
    -------
    names : tuple of str

    Examples
    --------
    >>> from skprivbn.federation._roster import check_roster
    >>> check_roster(["north", "south"])
    ('north', 'south')
    """
    names = tuple(names)
    seen: dict[str, str] = {}
    for name in names:
        if not isinstance(name, str):
            raise PartitionError(f"names of parties must be text, got {name!r}")
        if not name.strip() or name != name.strip() or not name.isprintable():
            raise PartitionError(
                f"{name!r} cannot be the name of a party: names of parties are not "
                "empty, and have no blanks at their ends and no line breaks"
            )
        looks = normalize("NFKC", name)
        if looks.casefold().startswith(_BEGINNINGS):
            raise PartitionError(
                f"{name!r} cannot be the name of a party: the ledger, which tells what "
                "parties learn, uses it for somebody else; choose another"
            )
        if looks in seen:
            raise PartitionError(
                f"the parties {seen[looks]!r} and {name!r} look the same: call one "
                "of them something else"
            )
        seen[looks] = name
    return names


def warn_of_roster(backend: Any, n_parties: int) -> None:
    """Warn of what a backend and so many parties cannot hide.

    Parameters
    ----------
    backend : AdditiveBackend
    n_parties : int
    """
    leaks = backend.leaks()
    if leaks is not None:
        warn_leak(leaks)
    if backend.kind == "plaintext":
        return
    if n_parties == 1:
        warn_leak(
            "all rows are taken to be one party's: there is nobody to hide them from "
            "and the sums are that party's own; say who holds each row by name, as in "
            "fit(X, party=party)"
        )
    elif n_parties == 2:
        warn_leak(
            "with two parties, each learns the other's sums by subtracting its own; "
            "three or more are needed to hide them"
        )
