"""What CKKS and Paillier share: all parties hold one key, the coordinator none.

The first party of the roster makes the key and sends it, sealed, to each of the
others. A wrong key, a missing or repeated party, a mixed-up round or damaged bytes
decrypt to garbage, which the tag of the sum gives away.
"""

from abc import abstractmethod
from collections.abc import Generator
from typing import Any

from skprivbn.crypto._base import AdditiveBackend, PartyContext
from skprivbn.exceptions import ProtocolError


class KeyHolderBackend(AdditiveBackend):
    """Base of the backends in which all parties share one secret key."""

    kind = "ciphertext"

    @abstractmethod
    def _make_key(self):
        """Return a fresh secret key as bytes."""

    @abstractmethod
    def _open_session(self, context, secret):
        """Return the SumSession of one party; ProtocolError if no such key."""

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

    def _describe(self, roster, precision):
        maker = roster[0]
        return {
            "sum_known_to": "all parties, by one key; the coordinator reads results",
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
