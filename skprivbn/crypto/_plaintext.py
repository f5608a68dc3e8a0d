"""Sums in the clear: for comparing, and for data that are nobody's secret."""

import math
from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from skprivbn.crypto._base import (
    AdditiveBackend,
    HiddenVector,
    PartyContext,
    SumSession,
)
from skprivbn.crypto._numbers import check_range, check_vector
from skprivbn.exceptions import ProtocolError

__all__ = ["PlaintextBackend"]

_NUMBER_TYPES = {b"float64": "<f8", b"int64": "<i8"}


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
    sum_known_to = "coordinator"
    _parameter_constraints = {}

    def leaks(self) -> str | None:
        """Say that nothing is hidden."""
        return (
            "the plaintext backend hides nothing: the coordinator reads every party's "
            "vectors"
        )

    def setup(self, context: PartyContext) -> Generator[Any, Any, Any]:
        """Return the session; there is no key to agree on."""
        return PlaintextSession(context)
        yield  # makes this a generator, as every backend's setup is

    def add(self, hidden: list[HiddenVector]) -> HiddenVector:
        """Add vectors."""
        first, *others = hidden
        for other in others:
            first.check_same_sum(other)
        total = np.sum([_read(h) for h in hidden], axis=0)
        return replace(
            first,
            parts=[total.tobytes()],
            addends=sum(h.addends for h in hidden),
        )

    def open(self, total: HiddenVector) -> np.ndarray:
        """Read the sum."""
        return _read(total).copy()

    def max_sum(self) -> float:
        """Return the largest absolute value that a sum may have."""
        return math.inf

    def describe(self, roster: Sequence[str]) -> dict:
        """Return plain words on who sees what, and the precision."""
        return {
            "sum_known_to": "the coordinator, and whoever it tells",
            "hidden_by": "nothing: the coordinator reads every party's vectors",
            "broken_by": "the coordinator alone",
            "precision": "double precision; integers exact",
        }


class PlaintextSession(SumSession):
    """A party's side, which only counts the rounds."""

    def __init__(self, context):
        self._n_parties = len(context.roster)
        self._round = 0

    def hide(self, vector, operation):
        """Write the vector down as it is."""
        vector = check_vector(vector)
        if vector.dtype == np.int64:
            check_range(vector, self._n_parties, 2**63, "use floats")
        self._round += 1
        key = vector.dtype.name.encode()
        part = vector.astype(_NUMBER_TYPES[key], copy=False).tobytes()
        return HiddenVector("plaintext", vector.size, self._round, key, [part])

    def reveal(self, total):
        """Read the sum."""
        if total.addends != self._n_parties:
            raise ProtocolError(
                f"the sum is over {total.addends} of {self._n_parties} parties"
            )
        return _read(total).copy()


def _read(hidden):
    if (
        hidden.kind != "plaintext"
        or hidden.key not in _NUMBER_TYPES
        or [len(part) for part in hidden.parts] != [8 * hidden.length]
    ):
        raise ProtocolError("not a plaintext vector")
    return np.frombuffer(hidden.parts[0], dtype=_NUMBER_TYPES[hidden.key])
