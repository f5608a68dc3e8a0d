"""A party's view of one session: who takes part, and the keys it shares with each."""

import hashlib
import math
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any
from unicodedata import normalize

from skprivbn.crypto._derive import join_fields
from skprivbn.crypto.sealing import (
    SIGNATURE_BYTES,
    EphemeralKey,
    PairSecret,
    SealedChannel,
    check_signature,
)
from skprivbn.exceptions import PartitionError, ProtocolError
from skprivbn.federation._ledger import COORDINATOR
from skprivbn.federation._wire import ALL_DIGITS, encode

#: identity, session key, limits and signature
_HELLO_BYTES = 144
#: limits of a party in its greeting
_LIMITS = struct.Struct("<QIi")
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


# K simulated parties would read the same K names K times.
@lru_cache(maxsize=4)
def _read_roster(text):
    """Return the names that stand one on a line."""
    try:
        return check_roster(text.split("\n"))
    except PartitionError:
        raise ProtocolError("malformed agreement on who takes part") from None


@dataclass(frozen=True)
class HostPolicy:
    """Limits of a site, which no coordinator can lower.

    Parameters
    ----------
    min_parties : int
        Smallest roster of a session: a sum over one party is that party's data.
    min_rows : int
        Fewest rows of the site, and of an exact sum over all parties.
    allow_rows : bool
        Whether single rows may be disclosed, to the coordinator or to other parties.
    max_rounds : int or None
        Most rounds of one session: a coordinator that departs from the protocol
        asks one question in each.
    min_cell_count : int
        Smallest count of an exact table that is disclosed.
    is_simulated : bool
        Whether one person runs all parties: weights of rows may then have a public
        seed, so that a fit can be repeated.
    max_message_bytes : int
        Longest message that peers may send together in one round.
    max_numbers : int
        Longest vector of one sum.
    max_summed : float
        Most exact numbers that parties read of one session, for each own row.
    round_results : int
        Significant digits of exact numbers that the researcher gets.
    """

    min_parties: int = 1
    min_rows: int = 1
    allow_rows: bool = False
    max_rounds: int | None = None
    min_cell_count: int = 0
    is_simulated: bool = False
    max_message_bytes: int = 1 << 30
    max_numbers: int = 1 << 26
    max_summed: float = math.inf
    round_results: int = ALL_DIGITS


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
        "session": (bytes,),
        "roster": (str,),
        "protocol": (str,),
        "settings": (dict,),
        "backend": (dict, type(None)),
        "data": (dict,),
    }

    def __init__(self, agreed):
        if (
            not isinstance(agreed, dict)
            or agreed.keys() != self.TYPES.keys()
            or any(
                type(agreed[name]) not in kinds for name, kinds in self.TYPES.items()
            )
            or len(agreed["session"]) != 16
            or agreed["backend"] is not None
            and agreed["backend"].keys() != {"name", "parameters"}
        ):
            raise ProtocolError("malformed agreement on a session")
        self.session = agreed["session"]
        self.roster = _read_roster(agreed["roster"])
        self.n_name_bytes = len(agreed["roster"].encode())
        self.protocol = agreed["protocol"]
        self.settings = agreed["settings"]
        self.backend = agreed["backend"]
        self.data = agreed["data"]
        self.encoded = encode(agreed)
        self.hash = hashlib.sha256(self.encoded).digest()


# What is in greetings is public, and whether they are signed depends on these bytes
# alone: K simulated parties would read the same K greetings K times. Failures raise and
# are not kept.
@lru_cache(maxsize=2)
def _read_hellos(roster, hellos, session, roster_hash):
    """Return name, identity and key of all; identities; a digest; strictest limits."""
    ends, limits = {}, []
    for i, name in enumerate(roster):
        hello = hellos[_HELLO_BYTES * i : _HELLO_BYTES * (i + 1)]
        identity, said, signature = hello[:32], hello[32:80], hello[80:]
        about = b"hello", session, roster_hash, name.encode()
        check_signature(identity, signature, *about, said)
        ends[name] = name.encode(), identity, said[:32]
        limits.append(_LIMITS.unpack(said[32:]))
    fields = join_fields("keys of all", session, roster_hash, *chain(*ends.values()))
    keys_hash, limits = hashlib.sha256(fields).digest(), tuple(map(max, zip(*limits)))
    return ends, tuple(end[1] for end in ends.values()), keys_hash, limits


# For the same reason.
@lru_cache(maxsize=2)
def _check_signed(identities, signatures, n_losable, *about):
    """Raise ProtocolError unless all but so many have signed; the others did not."""
    starts = range(0, len(signatures), SIGNATURE_BYTES)
    for identity, start in zip(identities, starts, strict=True):
        signature = signatures[start : start + SIGNATURE_BYTES]
        if identity is None:  # was lost before
            continue
        if any(signature):
            check_signature(identity, signature, *about)
        else:
            n_losable -= 1
    if n_losable < 0:
        raise ProtocolError("too few parties compare what they were told")


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
    policy : HostPolicy
        With the fewest rows that this party lets a sum, or a cell, be about, and the
        digits of what the researcher gets; the strictest party's, once all are known.
    pairs : dict, default=None
        Where simulated parties, which are all in one process, find what two of them
        share: each pair then agrees on it once, and not at both ends.
    """

    def __init__(
        self,
        name,
        agreement,
        identity,
        pins=None,
        policy=HostPolicy(),  # noqa: B008 -- frozen
        pairs=None,
    ):
        self.name = name
        self.roster = agreement.roster
        self.session = agreement.session
        self.roster_hash = agreement.hash
        #: digest of the keys of all, once they are known
        self.keys_hash = b""
        #: key of all parties, made together with the keys of the first sums
        self.group = None
        self.min_rows, self.min_cell_count = policy.min_rows, policy.min_cell_count
        self.round_results = policy.round_results
        self._identity = identity
        self._pins = pins
        self._ephemeral = EphemeralKey()
        #: name, identity and session key of every party; identities, in order
        self._ends, self._identities = {}, ()
        self._pairs = {} if pairs is None else pairs
        self._channels = {}

    def hello(self):
        """Return this party's identity, and its session key and limits, signed."""
        # of all three the largest is the strictest
        limits = self.min_rows, self.min_cell_count, -self.round_results
        said = self._ephemeral.public + _LIMITS.pack(*limits)
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
        self._ends, self._identities, self.keys_hash, limits = met
        self.min_rows, self.min_cell_count, self.round_results = limits
        self.round_results *= -1
        if self._pins is not None:
            for name, (_, identity, _) in self._ends.items():
                if self._pins.get(name) != identity:
                    raise ProtocolError("an identity is not the one pinned")
        mine = self.name.encode(), self._identity.public, self._ephemeral.public
        if self._ends[self.name] != mine:
            raise ProtocolError("this party's own key was replaced")

    def _secret(self, peer):
        if peer == self.name or peer not in self._ends:
            raise ProtocolError("no such peer in this session")
        # both ends find the same, if they were shown the same keys of all
        pair = self.keys_hash, frozenset((self.name, peer))
        if pair not in self._pairs:
            mine, theirs = self._ends[self.name], self._ends[peer]
            about = self.session, self.roster_hash, mine, theirs
            self._pairs[pair] = PairSecret(self._ephemeral.exchange(theirs[2]), *about)
        return self._pairs[pair]

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
        if peer not in self._ends:
            raise ProtocolError("no such peer in this session")
        about = b"message", self.session, self.roster_hash, message
        check_signature(self._ends[peer][1], signature, *about)

    def check_signed(self, message, signatures, counted, n_losable=0):
        """Raise ProtocolError unless the counted parties all signed `message`.

        Signatures are in the order of the roster; zeros, of which some are allowed,
        stand for those of parties that were lost.
        """
        if len(signatures) != SIGNATURE_BYTES * len(self.roster):
            raise ProtocolError("malformed signatures")
        identities = self._identities
        if counted != self.roster:
            held = zip(self.roster, identities)
            identities = tuple(key if name in counted else None for name, key in held)
        about = b"message", self.session, self.roster_hash, message
        _check_signed(identities, signatures, n_losable, *about)

    def __reduce__(self):
        raise TypeError("a PartySession holds keys and cannot be pickled")


def leaks_of_roster(
    backend: Any, names: Sequence[str], *, has_noise: bool = False
) -> Iterator[str]:
    """Say what a backend and so few parties cannot hide.

    Parameters
    ----------
    backend : AdditiveBackend
    names : sequence of str
        Of the parties.
    has_noise : bool, default=False
        Whether noise hides the rows of a single holder from those who read the result.

    Yields
    ------
    leak : str
    """
    leak = backend.leaks()
    if leak is not None:
        yield leak
    if backend.kind == "plaintext":
        return
    if len(names) == 1 and not has_noise:
        yield (
            "all rows are taken to be one party's: there is nobody to hide them from "
            "and the sums are that party's own; say who holds each row by name, as in "
            "fit(X, party=party), in pipelines after "
            "sklearn.set_config(enable_metadata_routing=True)"
        )
    elif len(names) == 2:
        # named: a fold of a search may lack the third
        yield (
            f"with two parties, {names[0]!r} and {names[1]!r}, each learns the other's "
            "sums by subtracting its own; three or more are needed to hide them"
        )
