"""The host of a party: takes bytes, lets only what is due through, returns bytes.

This is what a site runs. It holds the site's data and identity, opens one session at
a time, and stands between the coordinator and the protocol's code: it checks order
and replay, seals and opens what peers say to each other, and turns every exception
into a public code.
"""

import hashlib
import inspect
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from skprivbn.crypto import MaskingBackend
from skprivbn.crypto._authentication import open_sums
from skprivbn.crypto._masking import exact_sums_next_to, signs
from skprivbn.crypto.sealing import Identity
from skprivbn.exceptions import BudgetExceededError, ProtocolError
from skprivbn.federation._models import check_steps
from skprivbn.federation._party import PartyRefusal
from skprivbn.federation._session import Agreement, PartySession
from skprivbn.federation._wire import decode, encode

logger = logging.getLogger("skprivbn.party")

#: bytes of the first message, which has the terms, and of messages that make keys
MAX_TERMS_BYTES = 1 << 26
MAX_KEY_BYTES = 1 << 23
#: bytes of a message without arguments, and for each party that it is about
_ENVELOPE_BYTES = 1 << 12
_PARTY_BYTES = 1 << 10

_REQUEST_TYPES = {
    "session": bytes,
    "sequence": int,
    "operation": str,
    "payload": dict,
}


@dataclass(frozen=True)
class HostPolicy:
    """What a site insists on, whatever the coordinator asks.

    Parameters
    ----------
    min_parties : int
        Smallest roster it takes part in: a sum over one party is that party's data.
    min_rows : int
        Fewest rows it needs to have to take part.
    allow_rows : bool
        Whether operations that show rows of data, to the coordinator or to other
        parties, are answered.
    max_rounds : int or None
        Most operations of one session: a coordinator that departs from the protocol
        asks one question in each.
    min_cell_count : int
        Smallest count of an exact table that is told.
    max_cells_per_row : float
        Most cells of an exact table, for each row that it is made of.
    is_simulated : bool
        Whether nobody is there to hide from, as in one process: a party may then draw
        weights of its rows by a seed that others know, so that a fit can be repeated.
    """

    min_parties: int = 1
    min_rows: int = 1
    allow_rows: bool = False
    max_rounds: int | None = None
    min_cell_count: int = 0
    max_cells_per_row: float = math.inf
    is_simulated: bool = False


class PartyHost:
    """Runs one party's side of a session.

    Parameters
    ----------
    name : str
        The party's name in the roster.
    block : dict of str to array
        Its data. They never leave this object except through operations.
    find_protocol : callable
        From a class path to a :class:`Party` subclass, or None if not allowed here.
    find_backend : callable
        From a name to an ``AdditiveBackend``, or None if not allowed here.
    policy : HostPolicy
    identity : Identity, default=None
        Long-term signing key; a fresh one if None.
    pins : dict of str to bytes, default=None
        Identities of the other parties, known beforehand.
    debug : bool, default=False
        Let exceptions through instead of turning them into codes. For developing
        a protocol on data that are nobody's secret.
    """

    def __init__(
        self,
        name: str,
        block: dict[str, ArrayLike],
        find_protocol: Callable,
        find_backend: Callable,
        policy: HostPolicy = HostPolicy(),  # noqa: B008 -- frozen
        identity: Identity | None = None,
        pins: dict[str, bytes] | None = None,
        debug: bool = False,
    ) -> None:
        self.name = name
        self._block = block
        self._find_protocol = find_protocol
        self._find_backend = find_backend
        self._policy = policy
        self._identity = identity or Identity()
        self._pins = pins
        self._debug = debug
        #: what went wrong last, for the people on this side
        self.failure: Exception | None = None
        self._forget()

    def _forget(self):
        self._agreement = self._session = self._party = None
        self._party_class = self._terms = None
        self._backend = self._sums = self._exact_sums = self._covered_sums = None
        self._schedule, self._expected = None, ()
        self._conversation = None
        self._heard = bytes(32)
        self._n_rounds = 0
        self._last_sequence, self._last_digest, self._last_reply = -1, None, None
        self._last_length = 0
        self._limits, self._hidden_bytes = {}, 0
        self._closed = False

    def close(self) -> None:
        """End the session and forget its keys and state."""
        self._forget()
        self._closed = True

    def handle(self, message: bytes) -> bytes:
        """Answer one request of the coordinator; never raises.

        Parameters
        ----------
        message : bytes

        Returns
        -------
        reply : bytes
            ``{"ok": True, "payload": ...}`` or ``{"ok": False, "code": ...}``.
        """
        digest = None
        try:
            # before anything is computed from it
            if len(message) > max(self._most_bytes(), self._last_length):
                raise PartyRefusal("too-large")
            digest = hashlib.sha256(message).digest()
            if digest == self._last_digest:
                return self._last_reply
            request = self._check_request(decode(message))
            payload = self._answer(request) or {}
            reply = encode({"ok": True, "payload": payload})
            if "vector" in payload:
                n_vectors = len(self._agreement.roster) if signs(self._backend) else 1
                self._hidden_bytes = n_vectors * len(reply)
        except Exception as error:
            if self._debug and not isinstance(error, PartyRefusal):
                raise
            self.failure = error
            code = _public_code(error)
            logger.info("%s: request refused or failed: %s", self.name, code)
            reply = encode({"ok": False, "code": code})
            # Half a session is no session: the next one starts from nothing.
            self._forget()
            self._closed = True
        self._last_digest, self._last_reply = digest, reply
        self._last_length = len(message) if digest is not None else 0
        return reply

    def _most_bytes(self):
        """Return how long the next message may be, given what is due."""
        if self._agreement is None:
            return MAX_TERMS_BYTES
        name = None if self._conversation is None else self._conversation[0]
        if name in ("session.keys", "session.rotate"):
            return MAX_KEY_BYTES
        if name in self._limits:
            return self._limits[name]
        due = max(self._limits.get(name, 0) for name in ("", *self._expected))
        # A total is as long as what this party hid, or as what all hid, if signed.
        return due + self._hidden_bytes + _ENVELOPE_BYTES

    def _set_limits(self):
        """Work out from the terms how long messages of each operation may be."""
        n_parties, n_features = len(self._agreement.roster), _n_columns(self._block)
        for name in self._party.operations():
            if _is_told_things(self._party_class, name):
                most = self._terms.message_bytes(name, n_features, n_parties)
                self._limits[name] = _ENVELOPE_BYTES + most

    def _check_request(self, request):
        if (
            not isinstance(request, dict)
            or {key: type(value) for key, value in request.items()} != _REQUEST_TYPES
        ):
            raise ProtocolError("malformed request")
        if request["operation"] == "session.join":
            if self._agreement is not None:
                raise PartyRefusal("refused")
            self._forget()
        elif (
            self._closed
            or self._agreement is None
            or request["session"] != self._agreement.session
            or request["sequence"] != self._last_sequence + 1
        ):
            raise PartyRefusal("refused")
        self._last_sequence = request["sequence"]
        return request

    def _answer(self, request):
        name, payload = request["operation"], request["payload"]
        if self._conversation is not None and name != "session.talk":
            raise PartyRefusal("refused")
        control = {
            "session.join": self._join,
            "session.meet": self._meet,
            "session.rotate": self._rotate,
            "session.talk": self._talk,
            "backend": self._control_backend,
        }.get(name)
        if control is not None:
            return control(**payload)
        return self._operate(name, payload)

    def _join(self, agreement):
        agreement = Agreement(agreement)
        if self.name not in agreement.roster:
            raise PartyRefusal("refused")
        if len(agreement.roster) < self._policy.min_parties:
            raise PartyRefusal("too-few-parties")
        self._check_rows()
        self._party_class, self._terms = self._read_terms(agreement)
        self._backend = self._make_backend(agreement)
        self._check_units()
        if isinstance(self._backend, MaskingBackend):
            # so few may be left in a sum
            n_needed = self._backend.n_needed(len(agreement.roster))
            if n_needed < self._policy.min_parties:
                raise PartyRefusal("too-few-parties")
        self._agreement = agreement
        # whatever is due: what a message about all parties takes
        names = sum(len(name.encode()) for name in agreement.roster)
        self._limits[""] = 4 * names + _PARTY_BYTES * len(agreement.roster)
        self._session = PartySession(self.name, agreement, self._identity, self._pins)
        return {"hello": self._session.hello()}

    def _check_units(self):
        """Refuse terms by which values would be scaled for another backend."""
        told = self._terms.assumed_limit()
        if None not in (told, self._backend) and told != self._backend.max_sum():
            raise PartyRefusal("refused")

    def _check_rows(self):
        n_rows, least = _n_rows(self._block), self._policy.min_rows
        if n_rows < least:
            why = f"there are {n_rows} rows, and {least} are needed"
            raise PartyRefusal("too-few-rows", why)

    def _read_terms(self, agreement):
        """Return the protocol that a session asks for and its terms, checked."""
        party_class = self._find_protocol(agreement.protocol)
        if party_class is None:
            raise PartyRefusal("not-allowed")
        try:
            terms = party_class.terms.from_payload(agreement.settings)
        except (TypeError, ValueError):
            raise PartyRefusal("refused") from None
        check_steps(agreement.data.get("steps", []), terms)
        return party_class, terms

    def _make_backend(self, agreement):
        if agreement.backend is None:
            return None
        backend = self._find_backend(agreement.backend["name"])
        if backend is None:
            raise PartyRefusal("not-allowed")
        try:
            backend.set_params(**agreement.backend["parameters"])
            backend.validate()
        except (TypeError, ValueError):
            raise PartyRefusal("refused") from None
        return backend

    def _meet(self, hellos):
        if self._session is None or self._party is not None:
            raise PartyRefusal("refused")
        self._session.meet(hellos)
        self._load()
        self._party = self._party_class(self._block, self._terms, self._session)
        self._party.min_rows = self._policy.min_rows
        self._party.min_cell_count = self._policy.min_cell_count
        self._party.max_cells_per_row = self._policy.max_cells_per_row
        self._party.is_simulated = self._policy.is_simulated
        self._set_limits()
        self._party.coordinator_reads = self._coordinator_reads()
        self._schedule = self._party.schedule()
        self._expected = _as_names(next(self._schedule, ()))
        return self._make_keys("session.keys")

    def _load(self):
        """Get the block ready, now that all parties have signed the agreement."""

    def _rotate(self):
        """Make fresh keys, where the schedule has it."""
        if self._party is None or "session.rotate" not in self._expected:
            raise PartyRefusal("refused")
        return self._make_keys("session.rotate")

    def _make_keys(self, name):
        """Make keys for the secure sums, in a conversation with the peers."""
        operations = self._party.operations().values()
        masked = any(words.exact or words.parties_only for words in operations)
        if self._backend is None and not masked:
            return self._keys_made(name, None)
        return self._begin(name, open_sums(self._backend, self._session))

    def _keys_made(self, name, sums):
        self._sums = sums
        if name == "session.rotate":
            self._advance(name)
        return {"sealed": {}, "done": True}

    def _control_backend(self, step, **payload):
        if self._sums is None:
            raise PartyRefusal("refused")
        roster = self._agreement.roster
        everybody = set(payload.get("survivors", roster)) == set(roster)
        # The difference of two sums, one with and one without a party, is what that
        # party told.
        if not everybody and not self._terms.survives_losses():
            raise PartyRefusal("refused")
        return (self._party.unsent_sums() or self._sums).control(step, payload)

    def _operate(self, name, payload):
        if self._party is None or name not in self._expected:
            raise PartyRefusal("refused")
        self._n_rounds += 1
        most = self._policy.max_rounds
        if most is not None and self._n_rounds > most:
            raise PartyRefusal("too-many-rounds")
        words = self._party.operations()[name]
        shows_rows = "raw rows" in (words.kind, words.peers_kind)
        if shows_rows and not self._policy.allow_rows:
            raise PartyRefusal("refused")
        method = getattr(self._party, name)
        if not _takes(type(self._party), name, frozenset(payload)):
            raise ProtocolError("the payload does not fit the operation")
        # A total that a party verifies is in the transcript of all sums already.
        total = payload.get("total")
        self._hear(name, {word: payload[word] for word in payload if word != "total"})
        self._party.expect_sum(f"{name} {self._heard.hex()}", self._sums_for(words))
        result = method(**payload)
        if total is not None and not self._party.has_revealed(total):
            self._hear(name, {"total": total})
        if inspect.isgenerator(result):
            return self._begin(name, result)
        if self._needs_agreement(result):
            return self._begin(name, self._agree(result))
        self._advance(name)
        return result

    def _needs_agreement(self, answer):
        """Tell whether peers must agree on totals before an answer leaves.

        Vectors are hidden under keys to which all verified totals belong. What is told
        in the clear is not, and a party that works for the coordinator could have made
        up the last total. A yes, a no or a word only says how to go on.
        """
        in_clear = [v for word, v in (answer or {}).items() if word != "vector"]
        tells = any(type(value) not in (bool, str) for value in in_clear)
        return tells and self._party.has_news and len(self._party.peers) > 0

    def _agree(self, answer):
        """Answer once all peers have verified the same totals and heard the same."""
        mine = hashlib.sha256(self._heard + self._session.group.transcript).digest()
        peers = self._party.peers
        if self._backend is not None:
            peers = self._backend.compared_with(self._session)
        wanted = dict.fromkeys(peers, {"digest": mine})
        if (yield wanted) != wanted:
            raise ProtocolError("the parties were not told the same totals")
        self._party.has_news = False
        return answer

    def _hear(self, name, told):
        """Bind later sums to what was told.

        A coordinator that tells parties different things, so that it knows the answers
        of all but one, gets masks that do not cancel.
        """
        if told:
            words = self._heard + encode({name: told})
            self._heard = hashlib.sha256(words).digest()

    def _coordinator_reads(self):
        return self._backend is not None and self._backend.sum_known_to != "parties"

    def _coordinator_reads_sum_of(self, words):
        return words.exact or (self._coordinator_reads() and not words.parties_only)

    def _sums_for(self, words):
        """Return the session for the sums of an operation."""
        if words.exact and not self._coordinator_reads():
            if self._exact_sums is None:
                self._exact_sums = self._masked_sums(coordinator_reads=True)
            return self._exact_sums
        if words.parties_only and self._coordinator_reads():
            if self._covered_sums is None:
                self._covered_sums = self._masked_sums(coordinator_reads=False)
            return self._covered_sums
        return self._sums

    def _masked_sums(self, coordinator_reads):
        backend = exact_sums_next_to(self._backend, coordinator_reads)
        return _result_without_messages(backend.setup(self._session))

    def _advance(self, name):
        try:
            self._expected = _as_names(self._schedule.send(name))
        except StopIteration:
            self._expected = ()

    def _begin(self, name, generator):
        self._conversation = (name, generator)
        return self._resume(None)

    def _talk(self, sealed):
        if self._conversation is None:
            raise PartyRefusal("refused")
        name, _ = self._conversation
        return self._resume(
            {
                # taken out, so that long messages are not kept while it is answered
                peer: decode(self._session.channel(peer).open(name, sealed.pop(peer)))
                for peer in list(sealed)
            }
        )

    def _resume(self, received):
        name, generator = self._conversation
        try:
            outgoing = generator.send(received)
        except StopIteration as stop:
            self._conversation = None
            if name in ("session.keys", "session.rotate"):
                return self._keys_made(name, stop.value)
            self._advance(name)
            # an answer, if one was held back
            return stop.value or {"sealed": {}, "done": True}
        return {
            "sealed": {
                peer: self._session.channel(peer).seal(name, encode(payload))
                for peer, payload in outgoing.items()
            },
            "done": False,
        }


def _n_rows(block):
    return min((len(values) for values in block.values()), default=0)


@lru_cache(maxsize=1024)
def _is_told_things(party_class, name):
    """Tell whether messages of an operation have more in them than a sum."""
    method = getattr(party_class, name)
    told = set(inspect.signature(method).parameters) - {"self", "total"}
    return bool(told) or inspect.isgeneratorfunction(inspect.unwrap(method))


@lru_cache(maxsize=1024)
def _takes(party_class, name, arguments):
    """Tell whether an operation can be called with these arguments."""
    try:
        signature = inspect.signature(getattr(party_class, name))
        signature.bind(None, **dict.fromkeys(arguments))
    except TypeError:
        return False
    return True


def _n_columns(block):
    shape = np.shape(block.get("X", ()))
    return shape[1] if len(shape) > 1 else 1


def _as_names(expected):
    return (expected,) if isinstance(expected, str) else tuple(expected)


def _result_without_messages(generator):
    try:
        next(generator)
    except StopIteration as stop:
        return stop.value
    raise ProtocolError("this backend cannot start without an exchange of keys")


def _public_code(error):
    if isinstance(error, PartyRefusal):
        return error.code
    if isinstance(error, ProtocolError):
        return "not-authentic"
    if isinstance(error, BudgetExceededError):
        return "budget-exceeded"
    if isinstance(error, OverflowError):
        return "out-of-range"
    return "failed"
