"""Sums in the clear: for comparing, and for data that are nobody's secret."""

from collections.abc import Generator, Sequence
from typing import Any

from skprivbn.crypto._base import AdditiveBackend, PartyContext, SumSession
from skprivbn.crypto._numbers import limbs_from_bytes, limbs_to_bytes, sum_limbs
from skprivbn.exceptions import ProtocolError


class PlaintextBackend(AdditiveBackend):
    """Hide nothing: the coordinator reads every party's vector.

    Whoever fits with it gets a :class:`~skprivbn.exceptions.PrivacyLeakWarning`.

    Examples
    --------
    >>> from skprivbn.crypto import PlaintextBackend
    >>> PlaintextBackend().leaks()
    "the plaintext backend hides nothing: the coordinator reads every party's vectors"
    """

    name = "plaintext"
    kind = "plaintext"
    _parameter_constraints = {}

    def leaks(self) -> str | None:
        """Say that nothing is hidden."""
        return (
            "the plaintext backend hides nothing: the coordinator reads every party's "
            "vectors"
        )

    def setup(self, context: PartyContext) -> Generator[Any, Any, Any]:
        """Return the session; there is no key to agree on."""
        return PlaintextSession(context, self)
        yield  # makes this a generator, as every backend's setup is

    def add_parts(self, columns: list[list[bytes]]) -> list[bytes]:
        """Add vectors."""
        (column,) = columns
        for part in column:
            _read(part, len(column[0]) // 16)
        return [limbs_to_bytes(sum_limbs(column))]

    def describe(self, roster: Sequence[str]) -> dict:
        """Return plain words on who sees what, and the precision."""
        return {
            "sum_known_to": "the coordinator, and whoever it tells",
            "hidden_by": "nothing: the coordinator reads every party's vectors",
            "broken_by": "the coordinator alone",
            "precision": "every value rounded to a multiple of 2**-56, then exact; "
            "integers exact",
        }


class PlaintextSession(SumSession):
    """A party's side, which writes integers down as they are."""

    kind = "plaintext"

    def hide_integers(self, integers, number, key):
        """Hide nothing."""
        return [limbs_to_bytes(integers)]

    def reveal_integers(self, total, n_integers):
        """Read the sum."""
        return _read(total.parts[0], n_integers)


def _read(part, n_integers):
    if len(part) != 16 * n_integers:
        raise ProtocolError("a plaintext vector is longer or shorter than it says")
    return limbs_from_bytes(part)
