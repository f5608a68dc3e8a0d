"""What every additive backend offers: hide vectors, add them blindly, reveal the sum.

A backend object holds hyper-parameters only, so that it can be cloned, searched
over and shown. Keys live in the :class:`SumSession` that a party makes at the start
of a session and forgets at its end.
"""

import zlib
from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from sklearn.base import BaseEstimator

from skprivbn.exceptions import ProtocolError

__all__ = ["AdditiveBackend", "HiddenVector", "PartyContext", "SumSession"]


@dataclass(frozen=True)
class HiddenVector:
    """A vector nobody can read alone, as it travels.

    Parameters
    ----------
    kind : {"ciphertext", "masked", "plaintext"}
        What a reader of the message sees; recorded in the ledger.
    length : int
        Number of values inside. Public.
    round : int
        Number of the secure sum within the session, counted by each party itself.
    key : bytes
        Identifies the key, mask set or format, so that a mix-up is an error.
    parts : list of bytes
        The ciphertexts or encoded buffers, of a size that does not depend on the data.
    addends : int
        Number of parties' vectors summed inside: 1 as a party sends it.
    """

    kind: str
    length: int
    round: int
    key: bytes
    parts: list
    addends: int = 1

    def to_payload(self) -> dict:
        """Return the dict that the wire format carries."""
        return {
            "hidden": self.kind,
            "length": self.length,
            "round": self.round,
            "key": self.key,
            "parts": list(self.parts),
            "addends": self.addends,
            "checksum": _checksum(self.parts),
        }

    @classmethod
    def from_payload(cls, payload: dict) -> Self:
        """Rebuild from a received dict; anything unexpected is a ProtocolError."""
        expected = {
            "hidden": str,
            "length": int,
            "round": int,
            "key": bytes,
            "parts": list,
            "addends": int,
            "checksum": int,
        }
        if (
            not isinstance(payload, dict)
            or payload.keys() != expected.keys()
            or any(type(payload[name]) is not kind for name, kind in expected.items())
            or not all(type(part) is bytes for part in payload["parts"])
            or payload["length"] < 0
            or payload["round"] < 0
            or payload["addends"] < 1
        ):
            raise ProtocolError("not a hidden vector")
        # Against accidents, before anything is parsed; channels authenticate.
        if payload["checksum"] != _checksum(payload["parts"]):
            raise ProtocolError("a hidden vector was damaged on its way")
        return cls(
            payload["hidden"],
            payload["length"],
            payload["round"],
            payload["key"],
            payload["parts"],
            payload["addends"],
        )

    def check_same_sum(self, other: "HiddenVector") -> None:
        """Raise unless `other` may be added to this vector."""
        mine = (self.kind, self.length, self.round, self.key, len(self.parts))
        its = (other.kind, other.length, other.round, other.key, len(other.parts))
        if mine != its:
            raise ProtocolError(
                "hidden vectors of different kind, length, round or key cannot be added"
            )


def _checksum(parts):
    checksum = 0
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return checksum


class PartyContext(Protocol):
    """What a backend may know of the session, on a party's side.

    Attributes: `name` (own), `roster` (names of all parties, in order), `session`
    (random bytes), `roster_hash` (binds roster, estimator and public parameters).
    """

    name: str
    roster: tuple
    session: bytes
    roster_hash: bytes

    def pair_key(self, peer: str, purpose: bytes) -> bytes:
        """Return 32 bytes that only this party and `peer` know; same on both sides."""

    def sign(self, message: bytes) -> bytes:
        """Sign with this party's long-term identity."""

    def verify(self, peer: str, message: bytes, signature: bytes) -> None:
        """Raise ProtocolError unless `peer` signed `message`."""


class SumSession(ABC):
    """A party's side of the secure sums of one session. Holds the secrets."""

    #: whether this side can read sums that the coordinator cannot
    holds_key: ClassVar[bool] = False

    @abstractmethod
    def hide(self, vector: np.ndarray, operation: str) -> HiddenVector:
        """Encode and hide a vector (float64, or int64 which is summed exactly)."""

    @abstractmethod
    def reveal(self, total: HiddenVector) -> np.ndarray:
        """Return the sum as float64 (int64 if all parties hid integers)."""

    def control(self, step: str, payload: dict) -> dict:
        """Answer a message of the sum protocol itself (mask recovery)."""
        raise ProtocolError(f"this backend has no step {step!r}")


class AdditiveBackend(BaseEstimator, ABC):
    """Hyper-parameters of one way to add vectors that nobody may see."""

    #: name accepted in place of an instance, as in ``backend="ckks"``
    name: ClassVar[str]
    #: kind of the hidden vectors, for the ledger
    kind: ClassVar[str]
    #: who can read the sum: "parties" (key holders) or "coordinator" (and so everybody)
    sum_known_to: ClassVar[str]

    def validate(self) -> None:
        """Raise ValueError unless the hyper-parameters make sense and are safe."""
        self._validate_params()

    def leaks(self) -> str | None:
        """Say what this backend fails to hide by its very choice; None if nothing.

        Whoever opens a session on the coordinator's side shows the text once, as a
        :class:`~skprivbn.exceptions.PrivacyLeakWarning`.
        """

    @abstractmethod
    def setup(self, context: PartyContext) -> Generator[Any, Any, Any]:
        """Party's side of the key exchange: a generator that returns a SumSession.

        Yields ``{peer: payload}`` and is sent ``{peer: payload}``, sealed between
        peers. Backends that need no exchange return before the first yield.
        """

    @abstractmethod
    def add(self, hidden: list[HiddenVector]) -> HiddenVector:
        """Add without any key; what the coordinator does."""

    def secure_sum(
        self, federation: Any, operation: str, payload: dict | None = None
    ) -> HiddenVector:
        """Coordinator's side of one sum: ask everybody, add."""
        replies = federation.call(operation, payload)
        return self.add(
            [HiddenVector.from_payload(reply["vector"]) for reply in replies.values()]
        )

    @abstractmethod
    def open(self, total: HiddenVector) -> np.ndarray:
        """Read the sum on the coordinator's side; ProtocolError if it may not."""

    @abstractmethod
    def max_sum(self) -> float:
        """Return the largest absolute value that a sum may have."""

    @abstractmethod
    def describe(self, roster: Sequence[str]) -> dict:
        """Plain words: {"sum_known_to", "hidden_by", "broken_by", "precision"}."""
