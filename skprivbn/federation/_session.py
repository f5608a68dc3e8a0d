"""A party's view of one session: who takes part, and the keys it shares with each."""

import hashlib
import struct
from collections.abc import Iterable
from functools import lru_cache
from typing import Any
from unicodedata import normalize

from skprivbn.crypto._derive import join_fields
from skprivbn.crypto.sealing import (
    EphemeralKey,
    PairSecret,
    SealedChannel,
    check_signature,
)
from skprivbn.exceptions import PartitionError, ProtocolError
from skprivbn.federation._ledger import COORDINATOR
from skprivbn.federation._wire import encode
from skprivbn.utils import warn_leak

#: identity, session key, limits and signature
_HELLO_BYTES = 144
#: limits of a party in its greeting
_LIMITS = struct.Struct("<QQ")
#: words of the ledger, with which no name of a party may begin
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
    >>> from skprivbn.federation._session import check_roster
    >>> check_roster(["north", "south"])
    ('north', 'south')
    """
    names = tuple(names)
    for name in names:
        if not isinstance(name, str):
            raise PartitionError(f"names of parties must be text, got {name!r}")
    _check_names(names)
    return names


# K simulated parties would look at the same K names K times
@lru_cache(maxsize=4)
def _check_names(names):
    seen: dict[str, str] = {}
    for name in names:
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


class Agreement:
    """What is fixed before anything else and signed by every party.

    Parameters
    ----------
    agreed : dict
        ``session`` (random bytes), ``roster`` (names, one on a line),
        ``protocol`` (class path),
        ``settings`` (its terms as plain data), ``backend`` (name and parameters; None
        for a protocol without secure sums), ``data``
        (which of a site's data are meant; empty in process, where blocks are given).
    """

    TYPES = {
        "session": bytes,
        "roster": str,
        "protocol": str,
        "settings": dict,
        "backend": dict | None,
        "data": dict,
    }

    def __init__(self, agreed):
        if (
            not isinstance(agreed, dict)
            or agreed.keys() != self.TYPES.keys()
            or any(not _is(agreed[name], kind) for name, kind in self.TYPES.items())
            or len(agreed["session"]) != 16
            or not _is_roster(agreed["roster"].split("\n"))
            or agreed["backend"] is not None
            and agreed["backend"].keys() != {"name", "parameters"}
        ):
            raise ProtocolError("malformed agreement on a session")
        self.session = agreed["session"]
        self.roster = tuple(agreed["roster"].split("\n"))
        self.n_name_bytes = len("".join(self.roster).encode())
        self.protocol = agreed["protocol"]
        self.settings = agreed["settings"]
        self.backend = agreed["backend"]
        self.data = agreed["data"]
        self.hash = hashlib.sha256(encode(agreed)).digest()


def _is(value, kind):
    # a bool is an int for isinstance, and no kind here is a base class of another
    return isinstance(value, kind) and type(value) is not bool


def _is_roster(names):
    try:
        check_roster(names)
    except PartitionError:
        return False
    return True


# What is in greetings is public, and whether they are signed depends on these bytes
# alone: K simulated parties would read the same K greetings K times. Failures raise and
# are not kept.
@lru_cache(maxsize=2)
def _read_hellos(roster, hellos, session, roster_hash):
    """Return identities and keys of parties, a digest of these, strictest limits."""
    peers, limits, ends = {}, [], []
    for i, name in enumerate(roster):
        hello = hellos[_HELLO_BYTES * i : _HELLO_BYTES * (i + 1)]
        identity, said, signature = hello[:32], hello[32:80], hello[80:]
        about = b"hello", session, roster_hash, name.encode()
        check_signature(identity, signature, *about, said)
        peers[name] = (identity, said[:32])
        limits.append(_LIMITS.unpack(said[32:]))
        ends += [name.encode(), identity, said[:32]]
    fields = join_fields("keys of all", session, roster_hash, *ends)
    return peers, hashlib.sha256(fields).digest(), tuple(map(max, zip(*limits)))


class PartySession:
    """The session as one party sees it; the ``PartyContext`` of the backends.

    Parameters
    ----------
    name : str
    agreement : Agreement
    identity : Identity
        Long-term signing key of this party.
    pins : dict of str to bytes, default=None
        Identities known beforehand. None trusts the relay not to tamper.
    min_rows, min_cell_count : int
        Fewest rows that this party lets a sum, or a cell, be about; the strictest
        party's, once all are known.
    """

    def __init__(
        self, name, agreement, identity, pins=None, min_rows=1, min_cell_count=0
    ):
        self.name = name
        self.roster = agreement.roster
        self.session = agreement.session
        self.roster_hash = agreement.hash
        #: digest of the keys of all, once they are known
        self.keys_hash = b""
        #: key of all parties, made together with the keys of the first sums
        self.group = None
        self.min_rows, self.min_cell_count = min_rows, min_cell_count
        self._identity = identity
        self._pins = pins
        self._ephemeral = EphemeralKey()
        self._peers = {}
        self._secrets = {}
        self._channels = {}

    def hello(self):
        """Return this party's identity, and its session key and limits, signed."""
        said = self._ephemeral.public + _LIMITS.pack(self.min_rows, self.min_cell_count)
        about = b"hello", self.session, self.roster_hash, self.name.encode()
        signature = self._identity.sign(*about, said)
        return self._identity.public + said + signature

    def meet(self, hellos):
        """Check the signed keys of all parties, one after the other in roster order.

        A wrong one is a ProtocolError.
        """
        if len(hellos) != _HELLO_BYTES * len(self.roster):
            raise ProtocolError("malformed greetings")
        met = _read_hellos(self.roster, hellos, self.session, self.roster_hash)
        self._peers, self.keys_hash, limits = met
        self.min_rows, self.min_cell_count = limits
        if self._pins is not None:
            for name, (identity, _) in self._peers.items():
                if self._pins.get(name) != identity:
                    raise ProtocolError("an identity is not the one pinned")
        if self._peers[self.name] != (self._identity.public, self._ephemeral.public):
            raise ProtocolError("this party's own key was replaced")

    def _end(self, name):
        identity, ephemeral = self._peers[name]
        return name.encode(), identity, ephemeral

    def _secret(self, peer):
        if peer == self.name or peer not in self._peers:
            raise ProtocolError("no such peer in this session")
        if peer not in self._secrets:
            self._secrets[peer] = PairSecret(
                self._ephemeral.exchange(self._peers[peer][1]),
                self.session,
                self.roster_hash,
                self._end(self.name),
                self._end(peer),
            )
        return self._secrets[peer]

    def channel(self, peer):
        """Return the sealed channel to a peer."""
        if peer not in self._channels:
            self._channels[peer] = SealedChannel(
                self._secret(peer), self.session, self.name, peer
            )
        return self._channels[peer]

    def pair_key(self, peer, purpose):
        """Return 32 bytes that only this party and `peer` know."""
        return self._secret(peer).key(b"pair " + purpose)

    def sign(self, message):
        """Sign within this session."""
        return self._identity.sign(b"message", self.session, self.roster_hash, message)

    def verify(self, peer, message, signature):
        """Raise ProtocolError unless `peer` signed `message` in this session."""
        if peer not in self._peers:
            raise ProtocolError("no such peer in this session")
        check_signature(
            self._peers[peer][0],
            signature,
            b"message",
            self.session,
            self.roster_hash,
            message,
        )

    def __reduce__(self):
        raise TypeError("a PartySession holds keys and cannot be pickled")


def warn_of_roster(backend: Any, n_parties: int, *, has_noise: bool = False) -> None:
    """Warn of what a backend and so many parties cannot hide.

    Parameters
    ----------
    backend : AdditiveBackend
    n_parties : int
    has_noise : bool, default=False
        Whether noise hides the rows of a single holder from those who read the result.
    """
    leaks = backend.leaks()
    if leaks is not None:
        warn_leak(leaks)
    if backend.kind == "plaintext":
        return
    if n_parties == 1 and not has_noise:
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
