"""What CKKS and Paillier share: all parties hold one key, the coordinator none.

The first party of the roster makes the key and sends it, sealed, to each of the
others. Every ciphertext holds, next to the values, a check value of its sender that
only key holders can compute: a wrong key, a missing or repeated party, a mixed-up
round or damaged bytes then raise instead of decrypting to garbage. It detects
accidents; a key holder who wants to cheat can.
"""

from abc import abstractmethod
from collections.abc import Generator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from skprivbn.crypto._base import (
    AdditiveBackend,
    HiddenVector,
    PartyContext,
    SumSession,
)
from skprivbn.crypto._derive import expand, extract, join_fields, session_binding
from skprivbn.crypto._numbers import check_vector
from skprivbn.exceptions import ProtocolError

__all__ = ["KeyHolderBackend", "KeyHolderSession"]


class KeyHolderSession(SumSession):
    """A key holder's side of the secure sums of one session.

    Parameters
    ----------
    context : PartyContext
    secret : bytes
        The serialised secret key, from which identifiers and checks are derived.
    """

    holds_key = True

    def __init__(self, context, secret):
        self._n_parties = len(context.roster)
        self._place = context.roster.index(context.name)
        self._derivation_key = extract(secret, salt=session_binding(context))
        self._round = 0
        self._hidden = {}

    @abstractmethod
    def _encrypt(self, vector, check):
        """Return ciphertexts; ``check(i)`` is a 64-bit number to plant in the i-th."""

    @abstractmethod
    def _decrypt(self, parts, length, dtype, check):
        """Return the sum; ProtocolError unless the i-th part holds ``check(i)``."""

    def _key_id(self, operation, dtype):
        return expand(
            self._derivation_key, join_fields("key id", operation, dtype.str), 16
        )

    def _check(self, place, number, operation, length, part):
        """Return the check number of one party, by its place in the roster."""
        info = join_fields("check", place, number, operation, length, part)
        return int.from_bytes(expand(self._derivation_key, info, 8), "big")

    def hide(self, vector, operation):
        """Encrypt a vector; see :meth:`SumSession.hide`."""
        vector = check_vector(vector)
        number = self._round + 1
        check = partial(self._check, self._place, number, operation, vector.size)
        parts = self._encrypt(vector, check)
        hidden = HiddenVector(
            self.kind,
            vector.size,
            number,
            self._key_id(operation, vector.dtype),
            parts,
        )
        self._round = number
        # of the last round only: a sum of an earlier one is not read again
        self._hidden = {number: (operation, vector.dtype, replace(hidden, parts=[]))}
        return hidden

    def reveal(self, total):
        """Decrypt a sum that this party added to; see :meth:`SumSession.reveal`."""
        if total.round not in self._hidden:
            raise ProtocolError("this party hid nothing in that round, or has gone on")
        operation, dtype, mine = self._hidden[total.round]
        if total.key != mine.key:
            raise ProtocolError(
                "the sum is under another key, or of another operation or number type"
            )
        if (total.kind, total.length) != (mine.kind, mine.length):
            raise ProtocolError("the sum is not of the vectors that were hidden")
        if total.addends != self._n_parties:
            raise ProtocolError(
                f"the sum is over {total.addends} of {self._n_parties} parties"
            )

        def check(part):
            return sum(
                self._check(place, total.round, operation, total.length, part)
                for place in range(self._n_parties)
            )

        return self._decrypt(total.parts, total.length, dtype, check)

    def __reduce__(self):
        raise TypeError("a sum session holds keys and cannot be pickled")


class KeyHolderBackend(AdditiveBackend):
    """Base of the backends in which all parties share one secret key."""

    kind = "ciphertext"
    sum_known_to = "parties"

    @abstractmethod
    def _make_key(self):
        """Return a fresh secret key as bytes."""

    @abstractmethod
    def _open_session(self, context, secret):
        """Return the KeyHolderSession of one party; ProtocolError if no such key."""

    @abstractmethod
    def _add_parts(self, columns):
        """Add ciphertexts: one list of bytes per position, one result each."""

    def setup(self, context: PartyContext) -> Generator[Any, Any, Any]:
        """Make the key (first party) or wait for it; see `AdditiveBackend.setup`."""
        self.validate()
        maker, *others = context.roster
        if context.name == maker:
            secret = self._make_key()
            if others:
                yield {peer: {"key": _pad(secret)} for peer in others}
        else:
            incoming = yield {}
            while not incoming:
                incoming = yield {}
            message = incoming.get(maker)
            if (
                incoming.keys() != {maker}
                or not isinstance(message, dict)
                or message.keys() != {"key"}
                or type(message["key"]) is not bytes
            ):
                raise ProtocolError("expected the key of the sums from the first party")
            secret = _unpad(message["key"])
        return self._open_session(context, secret)

    def add(self, hidden: list[HiddenVector]) -> HiddenVector:
        """Add ciphertexts without any key."""
        first, *others = hidden
        for other in others:
            first.check_same_sum(other)
        if first.kind != self.kind:
            raise ProtocolError(f"{self.name} cannot add {first.kind} vectors")
        parts = self._add_parts([list(c) for c in zip(*(h.parts for h in hidden))])
        return replace(first, parts=parts, addends=sum(h.addends for h in hidden))

    def open(self, total: HiddenVector) -> np.ndarray:
        """Refuse: the coordinator holds no key."""
        raise ProtocolError(
            f"only the parties can read a {self.name} sum: the coordinator has no key"
        )

    def _describe(self, roster, precision):
        maker = roster[0]
        return {
            "sum_known_to": "all parties, who share one key; not the coordinator",
            "hidden_by": f"{self.hidden_by}; {maker} makes the key and sends it to the "
            "other parties over sealed channels",
            "broken_by": "the coordinator together with any one party, so no party may "
            "run on the coordinator's host; not by the coordinator alone, nor by "
            "parties alone",
            "precision": precision,
        }


def _pad(secret):
    """Hide the length of a serialised key, which varies by chance by a few bytes."""
    size = -(-(len(secret) + 1024) // 4096) * 4096
    return len(secret).to_bytes(8, "little") + secret.ljust(size, b"\0")


def _unpad(message):
    size = int.from_bytes(message[:8], "little")
    return message[8 : 8 + size]


def as_dtype(values, dtype):
    """Round to int64 where all parties hid integers."""
    if dtype == np.int64:
        return np.rint(values).astype(np.int64)
    return values
