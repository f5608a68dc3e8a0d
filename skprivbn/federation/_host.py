"""The host of a party of operations: what is not yet a program."""

import hashlib
import inspect
from functools import lru_cache

import numpy as np

from skprivbn.crypto._authentication import open_sums
from skprivbn.crypto._masking import exact_sums_next_to, signs
from skprivbn.exceptions import ProtocolError
from skprivbn.federation._wire import decode, encode
from skprivbn.federation.program import PartyRefusal, Program
from skprivbn.federation.runner import (
    ENVELOPE_BYTES as _ENVELOPE_BYTES,
)
from skprivbn.federation.runner import (
    MAX_KEY_BYTES,
    HostPolicy,
    Runner,
)
from skprivbn.federation.runner import (
    PARTY_BYTES as _PARTY_BYTES,
)
from skprivbn.federation.runner import public_code as _public_code

__all__ = ["HostPolicy", "PartyHost", "_public_code"]


class PartyHost(Runner):
    """Runs one party's side of a session, be it a program or operations."""

    def _forget(self):
        super()._forget()
        self._party = self._plain_sums = None
        self._exact_sums = self._covered_sums = None
        self._party_class = None
        self._schedule, self._expected = None, ()
        self._conversation = None
        self._limits, self._hidden_bytes = {}, 0

    def _most_bytes(self):
        """Return how long the next message may be, given what is due."""
        if self._agreement is None or self._rest is not None:
            return super()._most_bytes()
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

    def _answer(self, request):
        name, payload = request["operation"], request["payload"]
        if name == "session.join" or self._rest is not None:
            return super()._answer(request)
        reply = self._answer_operation(name, payload)
        if reply and "vector" in reply:
            n_vectors = len(self._agreement.roster) if signs(self._backend) else 1
            self._hidden_bytes = n_vectors * len(encode(reply))
        return reply

    def _answer_operation(self, name, payload):
        if self._conversation is not None and name != "session.talk":
            raise PartyRefusal("refused")
        control = {
            "session.meet": self._meet,
            "session.rotate": self._rotate,
            "session.talk": self._talk,
            "backend": self._control_backend,
        }.get(name)
        if control is not None:
            return control(**payload)
        return self._operate(name, payload)

    def _begin(self):
        """Start a program, or greet and wait for operations."""
        if isinstance(self._protocol, Program):
            return super()._begin()
        self._party_class = self._protocol
        if self._agreement.backend is None:
            self._backend = None
        # whatever is due: what a message about all parties takes
        roster = self._agreement.roster
        names = sum(len(name.encode()) for name in roster)
        self._limits[""] = 4 * names + _PARTY_BYTES * len(roster)
        return {"hello": self._session.hello()}

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
        return self._begin_talk(name, open_sums(self._backend, self._session))

    def _keys_made(self, name, sums):
        self._plain_sums = sums
        if name == "session.rotate":
            self._advance(name)
        return {"sealed": {}, "done": True}

    def _control_backend(self, step, **payload):
        if self._plain_sums is None:
            raise PartyRefusal("refused")
        roster = self._agreement.roster
        everybody = set(payload.get("survivors", roster)) == set(roster)
        # The difference of two sums, one with and one without a party, is what that
        # party told.
        if not everybody and not self._terms.survives_losses():
            raise PartyRefusal("refused")
        return (self._party.unsent_sums() or self._plain_sums).control(step, payload)

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
        self._bind(name, {word: payload[word] for word in payload if word != "total"})
        self._party.expect_sum(f"{name} {self._heard.hex()}", self._sums_for(words))
        result = method(**payload)
        if total is not None and not self._party.has_revealed(total):
            self._bind(name, {"total": total})
        if inspect.isgenerator(result):
            return self._begin_talk(name, result)
        if self._needs_agreement(result):
            return self._begin_talk(name, self._agree(result))
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

    def _bind(self, name, told):
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
        return self._plain_sums

    def _masked_sums(self, coordinator_reads):
        backend = exact_sums_next_to(self._backend, coordinator_reads)
        return _result_without_messages(backend.setup(self._session))

    def _advance(self, name):
        try:
            self._expected = _as_names(self._schedule.send(name))
        except StopIteration:
            self._expected = ()

    def _begin_talk(self, name, generator):
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
