"""A party: takes bytes, runs a program on its own rows, returns bytes.

This is what a site runs. It holds the site's data and identity and stands between the
coordinator and the program: it takes the next message only, hides what is summed,
verifies totals, seals what peers say to each other, looks at how many rows a sum is
about, and turns every exception into a public code.
"""

from __future__ import annotations

import hashlib
import logging
import traceback
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from skprivbn.crypto import MaskingBackend
from skprivbn.crypto._authentication import agree_on_group_key, read_only
from skprivbn.crypto._derive import join_fields
from skprivbn.crypto.sealing import Identity
from skprivbn.exceptions import BudgetExceededError, ProtocolError
from skprivbn.federation._session import Agreement, HostPolicy, PartySession
from skprivbn.federation._wire import (
    ALL_DIGITS,
    count_numbers,
    decode,
    encode,
    has_types,
    round_numbers,
)
from skprivbn.federation.gate import check_rows, with_rows
from skprivbn.federation.program import (
    COUNTS,
    Hear,
    Me,
    Noisy,
    PartyRefusal,
    Release,
    RowWeights,
    Sum,
    Tell,
    TooFewRows,
    refuse_malformed,
    require,
)
from skprivbn.utils._memoise import asking_others

logger = logging.getLogger("skprivbn.party")

#: bytes of the first message, which has the terms, and of messages that make keys
MAX_TERMS_BYTES = 1 << 26
MAX_KEY_BYTES = 1 << 23
#: bytes of what a researcher chooses; without arguments; for each party
MAX_CHOICE_BYTES, ENVELOPE_BYTES, PARTY_BYTES = 1 << 20, 1 << 12, 1 << 10

#: the operation of the first message; all that follow are answers
JOIN = "session.join"

_REQUEST_TYPES = {"session": bytes, "sequence": int, "operation": str, "payload": dict}


class _Block(dict):
    """A party's data by role; a missing target is explained."""

    def __missing__(self, role):
        advice = ": pass it to fit"
        if role == "y":
            advice += (
                ", and derive the estimator from ClassifierMixin or RegressorMixin"
            )
        raise KeyError(f"the block has no {role!r}{advice}")


class Runner:
    """Runs one party's side of a session.

    Parameters
    ----------
    name : str
        The party's name in the roster.
    block : dict of str to array
        Its data. Only what a program yields leaves this object.
    find_protocol : callable
        From a path to a :class:`Program`, or None if not allowed here.
    find_backend : callable
        From a name to an ``AdditiveBackend``, or None if not allowed here.
    policy : HostPolicy
    identity : Identity, default=None
        Long-term signing key; a fresh one if None.
    pins : dict of str to bytes, default=None
        Identities of the other parties, known beforehand.
    debug : bool, default=False
        Raise exceptions instead of returning codes: for developing a protocol on
        public data.
    shared : dict, default=None
        Cache of simulated parties: terms, and keys that two of them share.
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
        shared: dict | None = None,
    ) -> None:
        self.name = name
        self._block = block
        self._find_protocol = find_protocol
        self._find_backend = find_backend
        self._policy = policy
        self._identity = identity or Identity()
        self._pins = pins
        self._debug, self._shared = debug, shared
        #: what went wrong last, for the people on this side
        self.failure: Exception | None = None
        self._forget()

    def _forget(self):
        """Forget the keys and the state of a session."""
        self._agreement = self._session = None
        self._protocol = self._terms = self._noise = None
        #: of exact numbers for the researcher, alike at all parties
        self._digits = ALL_DIGITS
        self._backend, self._sums = None, {}
        #: the rest of the session, as a generator of replies
        self._rest: Any = None
        self._heard = bytes(32)
        self._n_rounds, self._n_sums, self._spent = 0, 0, (0.0, 0.0)
        #: exact numbers that parties have read
        self._n_summed = 0
        #: conversations so far: what peers say in one is not heard in another
        self._phase = 0
        #: parties that are still there, as this party signed
        self._counted = ()
        self._has_uncompared_total = False
        #: what the next reply carries beside its own: a release, as it was verified
        self._beside: dict = {}
        self._last_sequence, self._last_digest, self._last_reply = -1, None, None
        self._last_length, self._expected_bytes = 0, MAX_TERMS_BYTES
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
            most_bytes = max(self._expected_bytes, self._last_length)
            require(len(message) <= most_bytes, "too-large")
            digest = hashlib.sha256(message).digest()
            if digest == self._last_digest:
                return self._last_reply
            request = self._check_request(decode(message))
            payload = self._answer(request) or {}
            try:
                reply = encode({"ok": True, "payload": payload})
            except ProtocolError as error:
                raise TypeError(f"said or returned by the program: {error}") from None
        except Exception as error:
            if self._debug and not isinstance(error, PartyRefusal):
                raise
            self.failure = error
            _clear_frames(error)
            code = public_code(error)
            logger.info("%s: request refused or failed: %s", self.name, code)
            said: dict = {"ok": False, "code": code}
            if columns := self._name_columns(getattr(error, "columns", ())):
                said["columns"] = columns
            if words := getattr(error, "words", ""):
                said["words"] = words
            reply = encode(said)
            # Half a session is no session: the next one starts from nothing.
            self._forget()
            self._closed = True
        self._last_digest, self._last_reply = digest, reply
        self._last_length = len(message) if digest is not None else 0
        return reply

    def _check_request(self, request):
        if not has_types(request, _REQUEST_TYPES):
            raise ProtocolError("malformed request")
        if request["operation"] == JOIN:
            require(self._agreement is None)
            self._forget()
        else:
            require(
                not self._closed
                and self._agreement is not None
                and request["session"] == self._agreement.session
                and request["sequence"] == self._last_sequence + 1
            )
        self._last_sequence = request["sequence"]
        return request

    def _answer(self, request):
        """Go on with what the coordinator says; return what is said next."""
        name, payload = request["operation"], request["payload"]
        if name == JOIN and payload.keys() == {"agreement"}:
            return self._join(**payload)
        require(name == "next" and self._rest is not None)
        self._n_rounds += 1
        most = self._policy.max_rounds
        require(most is None or self._n_rounds <= most, "too-many-rounds")
        self._expected_bytes = 0  # unless the next step says what it waits for
        reply = self._rest.send(payload)
        beside, self._beside = self._beside, {}
        return reply | beside

    def _join(self, agreement):
        """Check what is asked, before any data are read; return a signed greeting."""
        agreement = Agreement(agreement)
        n_parties, policy = len(agreement.roster), self._policy
        require(self.name in agreement.roster)
        require(n_parties >= policy.min_parties, "too-few-parties")
        self._check_rows()
        self._protocol, self._terms = self._read_terms(agreement)
        self._backend = self._make_backend(agreement)
        # the survivors of a sum
        n_needed = self._backend.n_needed(n_parties)
        require(n_needed >= policy.min_parties, "too-few-parties")
        self._agreement = agreement
        # terms protect parties from each other, where there are some
        wanted = self._terms.least_rows() if n_parties > 1 else 1
        limits = replace(policy, min_rows=max(policy.min_rows, wanted))
        self._session = PartySession(
            self.name, agreement, self._identity, self._pins, limits, self._shared
        )
        self._rest = self._run()
        return next(self._rest)

    def _check_rows(self):
        n_rows, least = self._count_rows(), self._policy.min_rows
        require(n_rows >= least, "too-few-rows", f"{n_rows} rows: {least} are needed")

    def _count_rows(self):
        return min((len(values) for values in self._block.values()), default=0)

    def _read_terms(self, agreement):
        """Return the protocol that a session asks for and its terms, checked."""
        protocol = self._find_protocol(agreement.protocol)
        require(protocol is not None, "not-allowed")
        known = {} if self._shared is None else self._shared
        if agreement.encoded not in known:
            with refuse_malformed():
                terms = protocol.terms.from_payload(agreement.settings)
            known[agreement.encoded] = terms
        return protocol, known[agreement.encoded]

    def _make_backend(self, agreement):
        if agreement.backend is None:
            return MaskingBackend()
        backend = self._find_backend(agreement.backend["name"])
        require(backend is not None, "not-allowed")
        with refuse_malformed():
            backend.set_params(**agreement.backend["parameters"])
            backend.validate()
        return backend

    def _load(self):
        """Get the block ready, now that all parties have signed the agreement."""

    def _run(self) -> Generator[dict, dict, None]:
        """One session: greetings, the program, a comparison, the result."""
        n_parties = len(self._agreement.roster)
        self._expect(PARTY_BYTES * n_parties)
        answer = yield {"hello": self._session.hello()}
        self._session.meet(read_only(answer, "hellos", bytes))
        self._counted = self._agreement.roster
        self._load()
        n_columns = (*np.shape(self._block.get("X", ())), 1, 1)[1]
        self._noise = self._terms.noise(n_columns, n_parties)
        if self._noise is None:  # else there is nothing exact to be rounded
            self._digits = self._session.round_results
        agreement, policy = self._agreement, self._policy
        me = Me(
            _Block(self._block),
            self._terms,
            self.name,
            agreement.roster,
            self._session.min_rows,
            policy.is_simulated,
            self._keep,
            agreement.session + agreement.hash,
            self._session.min_cell_count,
            policy.min_rows,
            self._hold_records,
        )
        result = yield from self._converse(self._protocol(me))
        result = round_numbers(result, self._digits)
        self._tells("result", "the result", count_numbers(result))
        yield from self._compare()
        self._closed = True
        self._opens()
        self._learns(result)
        yield {"result": result}

    def _converse(self, program):
        """Do what a program yields, round after round; return its result."""
        kinds = {
            Sum: self._sum,
            Release: self._release,
            Noisy: self._add_noise,
            Tell: self._tell,
            Hear: self._hear,
        }
        answer: Any = None
        while True:
            try:
                if isinstance(answer, PartyRefusal):
                    step = program.throw(answer)
                else:
                    step = program.send(answer)
            except StopIteration as stop:
                return stop.value
            if type(step) not in kinds:
                raise TypeError(f"a program cannot yield {type(step).__name__}")
            n_numbers = np.size(step.vector) if isinstance(step, Sum) else 0
            self._tells(type(step).__name__, step.what, n_numbers)
            try:
                answer = yield from kinds[type(step)](step)
            except PartyRefusal as refusal:
                if refusal.code != "too-few-rows":
                    raise
                # at all parties alike: the program may step back
                answer = refusal

    def _tells(self, kind, what, n_numbers):
        """Announce a round before it is hidden; a site charges and may refuse it."""

    def _opens(self):
        """Note that the numbers announced last leave with the next reply."""

    def _learns(self, result):
        """Note the result of the session; a site remembers fitted transformers."""

    def _name_columns(self, columns):
        """Return the names of columns that a refusal is about, as far as known."""
        return [name for name in columns if isinstance(name, str)]

    def _hold_records(self, records):
        """Note which own records all parties have; sites remember that."""

    def _keep(self, results):
        """Keep what a program computed for the party's own use."""

    def _sum(self, step):
        """Add a vector to those of all parties; return the total, if enough rows."""
        require(self._noise is None, why="an exact sum beside noise")
        if step.new_keys:
            self._sums.pop("parties", None)
        vector, session = np.ravel(np.asarray(step.vector)), self._session
        self._n_summed += vector.size
        most = self._policy.max_summed * self._count_rows()
        why = "more sums than the rows can hide in"
        require(self._n_summed <= most, "too-detailed", why)
        limits = session.min_rows, session.min_cell_count
        weights = step.weights if max(limits) > 1 else COUNTS  # nothing to count
        weights = weights() if callable(weights) else weights
        told, size = with_rows(vector, weights, self._count_rows()), vector.size
        cells = weights.cells if isinstance(weights, RowWeights) else ()
        is_left_out = len(cells) > 0 and session.min_cell_count <= 1
        if is_left_out:  # nobody hides counts: cells need not travel
            told = np.delete(told, size + np.arange(len(cells)))
        total = yield from self._add("parties", told, step)
        if is_left_out:
            total = np.insert(total, np.full(len(cells), size), 0)
        self._has_uncompared_total = True
        return check_rows(total, size, step.what, weights, *limits)

    def _release(self, step):
        """Add a vector to those of all parties; the next reply tells the total."""
        try:
            total = yield from self._sum(step)
        except TooFewRows:
            self._beside = {"released": None}
            raise
        self._opens()
        total = round_numbers(total, self._digits)
        # One party says the numbers, the others that they have the same.
        digest = hashlib.sha256(encode(total)).digest()
        self._beside = {"released": total if self.name == self._counted[0] else digest}

    def _add_noise(self, step):
        """Add counts with shares of the noise, which everybody may read."""
        self._charge(step.noise)
        counts = np.ravel(step.counts)
        if counts.dtype.kind not in "biu":
            raise TypeError("Noisy takes integers: its noise would not hide fractions")
        # after dropouts, the noise of the survivors alone must hide enough
        masks, n_parties = self._backend.masks_for_all(), len(self._agreement.roster)
        step.noise.check_survivors(masks.n_needed(n_parties))
        noisy = self._with_noise(counts, step.noise)
        return (yield from self._add("all", noisy, step))

    def _with_noise(self, counts, noise):
        """Add this party's share of the noise; what leaves with epsilon passes here."""
        return counts + noise.share(counts.shape)

    def _charge(self, noise):
        """Refuse noise that hides less than what the terms say, which was paid for."""
        require(self._noise is not None, why="a noisy sum that nothing was paid for")
        rho, epsilon = self._spent
        known = None not in (noise.rho, self._noise.rho)
        self._spent = rho + (noise.rho or 0.0), epsilon + noise.epsilon
        spent, paid = self._spent[1], self._noise.epsilon
        if known:
            spent, paid = self._spent[0], self._noise.rho
        require(spent <= paid * (1 + 1e-9), why="less noise than was paid for")

    def _add(self, readers, vector, step):
        """Hide a vector, and read the verified sum of all parties' vectors."""
        sums = yield from self._keys(readers)
        require(vector.size <= self._policy.max_numbers, "too-large")
        if self._n_sums > 0:
            self._check_all_counted()
        self._n_sums += 1
        # bound to the choices heard: masks of parties that heard others do not cancel
        exchange = sums.exchange(vector, f"{step.what} {self._heard.hex()}")
        said = {"sum": step.what} | ({"for": "all"} if readers == "all" else {})
        answer: Any = None
        n_bytes = 0
        while True:
            try:
                reply = exchange.send(answer)
                if answer and "survivors" in answer:
                    self._hold_survivors(answer["survivors"])
            except StopIteration as stop:
                self._phase += 1
                self._counted = sums.counted
                if self._n_sums > 1:
                    self._check_all_counted()
                return stop.value
            # a total is as long as what this party hid, or as what all did, if signed;
            # where parties may be lost, other messages come between the two
            roster, hidden = self._agreement.roster, reply.get("vector", ())
            n_vectors = len(roster) if getattr(self._backend, "signed", False) else 1
            n_bytes = max(n_bytes, n_vectors * sum(map(len, hidden)))
            names = 4 * self._agreement.n_name_bytes
            self._expect(n_bytes + PARTY_BYTES * len(roster) + names)
            answer = yield reply | said

    def _check_all_counted(self):
        """Refuse another sum without a party: the difference would be its own."""
        is_whole = self._counted == self._agreement.roster
        require(is_whole, why="a party is lost, and this is not the only sum")

    def _hold_survivors(self, names):
        """Note the survivors of a dropout, whose sum this party signs."""

    def _keys(self, readers):
        """Return the session of the sums, whose keys are made when they are needed."""
        session, backend = self._session, self._backend
        if session.group is None:
            makers = backend.key_makers(session.roster)
            keys = agree_on_group_key(session, makers)
            session.group = yield from self._exchange_keys(keys)
        if readers not in self._sums:
            if readers == "all":
                setup = backend.masks_for_all().setup(session, covered=False)
            else:
                setup = backend.setup(session)
            self._sums[readers] = yield from self._exchange_keys(setup)
        return self._sums[readers]

    def _exchange_keys(self, generator):
        self._phase += 1
        keys = yield from asking_others(
            generator, lambda messages: self._tell(Tell(messages, ""), MAX_KEY_BYTES)
        )
        self._phase += 1
        return keys

    def _tell(self, step, most_bytes=None):
        """Seal messages for peers; return those that came from them."""
        allowed = step.kind != "raw rows" or self._policy.allow_rows
        require(allowed, why="rows would be shown")
        self._expect(most_bytes or self._policy.max_message_bytes)
        # bound to the choices heard: a party that heard others cannot open it
        words = f"{self._agreement.protocol} {self._phase} {self._heard.hex()}"
        session = self._session
        sealed = {
            peer: session.channel(peer).seal(words, encode(message))
            for peer, message in step.messages.items()
        }
        said: dict = {"sealed": sealed, "phase": self._phase}
        if step.what:
            said |= {"tells": step.what, "kind": step.kind, "waits": step.waits}
        answer = yield said
        received = read_only(answer, "sealed")
        return {
            # taken out, so that long messages are not kept while they are answered
            peer: decode(session.channel(peer).open(words, received.pop(peer)))
            for peer in list(received)
        }

    def _hear(self, step):
        """Return what the researcher chooses, and bind all that follows to it."""
        self._expect(MAX_CHOICE_BYTES)
        answer = yield {"hears": step.what}
        if answer.keys() != {"choice"}:
            raise ProtocolError("not a choice")
        self._phase += 1
        words = self._heard + encode({step.what: answer["choice"]})
        self._heard = hashlib.sha256(words).digest()
        with refuse_malformed():
            return step.check(answer["choice"])

    def _compare(self):
        """Make sure that all peers verified the same totals and heard the same choices.

        The keys of later vectors depend on all totals so far, so that parties with
        different totals cannot go on. The last total needs this comparison: a party
        that colludes with the coordinator could have forged it.
        """
        if not self._has_uncompared_total or len(self._counted) == 1:
            return
        session, roster = self._session, self._agreement.roster
        # a digest under a key of all parties: nobody else can guess what was signed
        text = join_fields("compared", self._heard, session.group.transcript)
        self._expect(PARTY_BYTES * len(roster))
        mine = session.sign(text)
        answer = yield {"signed": mine}
        # with recovery, some may be lost since their vectors were added
        n_losable = len(roster) - self._backend.n_needed(len(roster))
        signed = read_only(answer, "signed", bytes)
        place = roster.index(session.name) * len(mine)
        signed = signed[:place] + mine + signed[place:]
        session.check_signed(text, signed, self._counted, n_losable)

    def _expect(self, n_bytes):
        """Say how long the next message may be."""
        self._expected_bytes = ENVELOPE_BYTES + n_bytes


def _clear_frames(error):
    """Forget local variables of what has failed, among them rows; keep the words."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def public_code(error: Exception) -> str:
    """Return what may be said of an error."""
    if isinstance(error, PartyRefusal):
        return error.code
    if isinstance(error, ProtocolError):
        return "not-authentic"
    if isinstance(error, BudgetExceededError):
        return "budget-exceeded"
    if isinstance(error, MemoryError):
        return "too-large"
    if isinstance(error, OverflowError):
        return "out-of-range"
    return "failed"
