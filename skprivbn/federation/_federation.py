"""The coordinator's side: ask, add what it cannot read, relay what is sealed."""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from inspect import isgeneratorfunction, unwrap
from typing import Any

from sklearn.base import clone

from skprivbn.crypto import AdditiveBackend
from skprivbn.crypto._masking import exact_sums_next_to
from skprivbn.crypto._recovery import minority
from skprivbn.crypto._registry import named_parameters
from skprivbn.exceptions import PartyError, ProtocolError
from skprivbn.federation._answers import OpenSum, as_hidden, check_same, read_go_on
from skprivbn.federation._host import HostPolicy, PartyHost
from skprivbn.federation._ledger import COORDINATOR, declare_noise
from skprivbn.federation._party import Operation
from skprivbn.federation._terms import Terms
from skprivbn.federation._wire import decode, encode
from skprivbn.federation.coordinator import Coordinator
from skprivbn.federation.program import Program
from skprivbn.privacy import DistributedNoise
from skprivbn.utils._progress import Progress

#: what a party answers in a conversation
_TURN: dict = {"sealed": dict, "done": bool}

_HIDDEN_KINDS = ("ciphertext", "masked", "plaintext")

_CONTROL = {
    "session.join": Operation(
        tells="its public identity and session key",
        answers={"hello": bytes},
        hears="roster, estimator and public parameters of the session",
    ),
    "session.meet": Operation(
        hears="the signed session keys of all parties", answers=_TURN
    ),
    "session.rotate": Operation(answers=_TURN),
    "session.talk": Operation(answers=_TURN),
    "backend": Operation(),
}


class Federation(Coordinator):
    """The parties of one session, as the coordinator sees them.

    A transport implements :meth:`_exchange`. Use as a context manager: entering
    authenticates the parties to each other and sets up keys, leaving forgets them.

    Parameters
    ----------
    roster : sequence of str
        Names of the parties.
    party_class : type
        The protocol: a subclass of ``Party``.
    terms : Terms
        Its public parameters.
    backend : str, AdditiveBackend or None
        How sums are hidden; None for protocols without.
    timeout : float, default=None
        Seconds to wait for an answer; None waits for ever.
    on_dropout : {"raise", "continue"}, default="raise"
        What to do when a party is lost during a secure sum. Going on needs a backend
        that can recover (``MaskingBackend(recovery=True)``).

    Attributes
    ----------
    ledger : Ledger
    roster : tuple of str
        All parties that took part.
    lost : dict of str to str
        Parties lost on the way, and the operation they failed at.
    replies : dict of str to dict
        What parties answered last, as they did: what they said beside a vector that
        was hidden, for instance.
    """

    #: how parties are reached: "relayed", "authenticated" or a "simulation"
    connection = "relayed"
    #: how the ledger describes the authentication of parties
    authentication = "relay trusted not to tamper: party identities were not pinned"
    #: which of the sites' data are meant, where sites hold more than one block
    data = {}

    def __init__(
        self,
        roster: Iterable[str],
        party_class: Any,
        terms: Terms,
        backend: str | AdditiveBackend | None = None,
        *,
        timeout: float | None = None,
        on_dropout: str = "raise",
    ) -> None:
        super().__init__(
            roster, party_class, terms, backend, timeout=timeout, on_dropout=on_dropout
        )
        self.party_class = party_class
        self.replies: dict[str, dict] = {}
        self._operations = dict(_CONTROL)
        if not self._is_program:
            self._operations |= party_class.operations()

    @property
    def _is_program(self):
        return isinstance(self.party_class, Program)

    def __enter__(self):
        if self._is_program:
            return super().__enter__()
        try:
            self._join()
        except BaseException:
            self._close()
            raise
        return self

    @property
    def coordinator_reads(self) -> bool:
        """Whether the coordinator reads sums as soon as they are hidden."""
        return self.backend is not None and self.backend.sum_known_to == COORDINATOR

    @property
    def first(self) -> str:
        """The first active party."""
        return self.active[0]

    def _join(self):
        path = f"{self.party_class.__module__}:{self.party_class.__qualname__}"
        agreement = {
            "session": self._session,
            "roster": list(self.roster),
            "protocol": path,
            "settings": self.terms.to_payload(),
            "backend": None,
            "data": self.data,
        }
        self.ledger.note(self.authentication, "connection", self.connection)
        if self.backend is not None:
            agreement["backend"] = named_parameters(self.backend)
            for topic, words in self.backend.describe(self.roster).items():
                topic = topic.replace("_", " ")
                self.ledger.note(words, topic, agreement["backend"])
        replies = self.call("session.join", {"agreement": agreement})
        hellos = {name: reply["hello"] for name, reply in replies.items()}
        self._relay("session.meet", self.call("session.meet", {"hellos": hellos}))

    def rotate_keys(self) -> None:
        """Have the parties replace the keys of the secure sums."""
        self._relay("session.rotate", self.call("session.rotate", {}))

    def call(
        self,
        operation: str,
        payload: dict | None = None,
        *,
        to: str | Sequence[str] | None = None,
        each: dict[str, dict] | None = None,
        timeout: float | None = None,
        missing: str = "raise",
        read: Callable[[dict], Any] | None = None,
    ) -> dict[str, Any]:
        """Ask parties to do something and wait for all of them: one round trip.

        Parameters
        ----------
        operation : str
        payload : dict, default=None
            Arguments, the same for all.
        to : str or sequence of str, default=None
            Which parties; all active ones if None.
        each : dict of str to dict, default=None
            Arguments of each party's own, in place of `payload` and `to`.
        timeout : float, default=None
            Seconds; the federation's own if None.
        missing : {"raise", "drop"}, default="raise"
            Whether a party that fails ends the session or is left out from now on
            (only if the federation was opened with ``on_dropout="continue"``).
        read : callable, default=None
            What to make of a payload. If it raises, the party has answered garbage.

        Returns
        -------
        replies : dict of str to dict
            Payload of every party that answered, or what `read` made of it.
        """
        if operation not in self._operations:
            raise ValueError(f"{self.party_class.__name__} has no {operation!r}")
        if each is None:
            names = self.active if to is None else (to,) if isinstance(to, str) else to
            each = dict.fromkeys(names, payload or {})
        replies = self._ask(operation, each, timeout, missing)
        turns = {name: _is_turn(reply) for name, reply in replies.items()}
        if any(turns.values()) and not self._converses(operation):
            # Before they answer, parties make sure that all hold the same totals.
            for name in minority(turns):
                raise PartyError(name, operation, "garbage")
            inbox = self._sort(operation, replies)
            if inbox.keys() - replies.keys():
                raise ValueError(
                    f"{operation!r} tells what came of sums, which parties do together "
                    "or not at all: ask all of them, without `to`"
                )
            each = {name: {"sealed": inbox.get(name, {})} for name in replies}
            replies = self._ask("session.talk", each, timeout, missing, operation)
        if operation != "backend":  # whose steps are part of a sum
            self.replies = replies
        read_replies = {}
        for name, reply in replies.items():
            try:
                read_replies[name] = reply if read is None else read(reply)
            except (ProtocolError, LookupError, TypeError, ValueError):
                self._fail(name, operation, "garbage", missing)
        return read_replies

    def _ask(self, operation, each, timeout, missing, answers=None):
        """Do one round trip, the answers being those to an earlier question if said."""
        self.ledger.n_rounds += 1
        encoded: dict = {}
        requests = {
            name: self._request_of(name, operation, arguments, encoded)
            for name, arguments in each.items()
        }
        timeout = self.timeout if timeout is None else timeout
        messages = self._exchange(requests, timeout)
        asked, replies = answers or operation, {}
        for name in each:
            reply, code = self._read_reply(
                name, asked, messages.get(name), answers is None
            )
            if code is None:
                replies[name] = reply
            else:
                self._fail(name, asked, code, missing)
        return replies

    def _fail(self, name, operation, code, missing):
        if missing != "drop":
            raise PartyError(name, operation, code) from self._cause(name)
        self.lose(name, operation, code)

    def lose(self, name: str, operation: str, code: str) -> None:
        """Go on without a party, where that is allowed; else a PartyError.

        Parameters
        ----------
        name : str
        operation : str
            What it failed at.
        code : str
            One of ``PartyError.REASONS``.
        """
        if self.on_dropout != "continue":
            raise PartyError(name, operation, code) from self._cause(name)
        self.lost[name] = operation
        words = f"party {name} was lost at {operation} ({code})"
        self.ledger.note(words, "lost", name)

    def secure_sum(
        self, operation: str, payload: dict | None = None
    ) -> "OpenSum | dict":
        """Add the vectors that parties hide in answer to an operation.

        Parameters
        ----------
        operation : str
            Its answers hold a hidden vector under ``"vector"``.
        payload : dict, default=None

        Returns
        -------
        total : OpenSum or dict
            The sum, where the coordinator may know it; else a ciphertext. Either can
            be handed to the parties, who verify and read it with ``reveal``.
            Operations declared with ``exact=True`` are summed in integers under masks
            whatever the backend and revealed to the coordinator, those with
            ``parties_only=True`` never are.
        """
        backend = self.backend
        if backend is None:
            name = self.party_class.__name__
            raise ValueError(f"a federation of {name} was opened without a backend")
        words = self._operations[operation]
        if words.exact and not self.coordinator_reads:
            backend = exact_sums_next_to(backend, coordinator_reads=True)
        elif words.parties_only and self.coordinator_reads:
            backend = exact_sums_next_to(backend, coordinator_reads=False)
        total = backend.secure_sum(self, operation, payload)
        what = f"sum over parties of: {words.tells}"
        kind = "plaintext aggregate" if words.kind == "public" else words.kind
        if backend.sum_known_to == COORDINATOR:
            self.ledger.learns(COORDINATOR, what, kind)
            return OpenSum(*backend.publish(total))
        self.ledger.learns("all parties (they hold the key)", what, kind)
        return total.to_payload()

    def noisy_sum(self, operation: str, noise: DistributedNoise, what: str) -> OpenSum:
        """Add vectors with the parties' shares of noise: the one release of a session.

        Parameters
        ----------
        operation : str
            Declared with ``kind="noisy release"`` and ``exact=True``.
        noise : DistributedNoise
            Whose shares the parties add.
        what : str
            What is released, in plain words, for the ledger.

        Returns
        -------
        total : OpenSum
        """
        total: Any = self.secure_sum(operation)
        # afterwards: parties are lost in a sum, and their noise with them
        noise.check_survivors(len(self.active))
        declare_noise(self.ledger, noise, what, self.terms.protects)
        return total

    def agree(self, operation: str, payload: dict | None = None) -> bool:
        """Ask all parties a question to which they must give the same answer.

        Parameters
        ----------
        operation : str
            Its answers hold ``"go_on"``.
        payload : dict, default=None

        Returns
        -------
        go_on : bool
        """
        replies = self.call(operation, payload, read=read_go_on)
        return _only_answer(replies.values(), operation)

    def sum_and_agree(
        self, operation: str, payload: dict | None = None
    ) -> "tuple[OpenSum | dict, bool]":
        """Add what parties hide, and hear whether they want to go on: one round trip.

        Parameters
        ----------
        operation : str
            Its answers hold a hidden vector and ``"go_on"``.
        payload : dict, default=None

        Returns
        -------
        total : OpenSum or dict
            As of :meth:`secure_sum`.
        go_on : bool
        """
        total = self.secure_sum(operation, payload)
        answers = (reply["go_on"] for reply in self.replies.values())
        return total, _only_answer(answers, operation)

    def unanimous(
        self, operation: str, payload: dict | None = None, *, rtol: float = 0.0
    ) -> dict:
        """Ask all parties for what they know alike, and compare their answers.

        One party alone could make the result up.

        Parameters
        ----------
        operation : str
        payload : dict, default=None
        rtol : float, default=0.0
            By how much numbers may differ, relative to the largest: parties that
            compute the same on different machines do not round the same.

        Returns
        -------
        reply : dict
        """
        return check_same(self.call(operation, payload), operation, rtol)

    def converse(
        self,
        operation: str,
        payload: dict | None = None,
        *,
        between: Sequence[str] | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Let parties talk to each other, sealed, until all have what they want.

        Parameters
        ----------
        operation : str
            A generator method of the party class.
        payload : dict, default=None
            Its arguments.
        between : sequence of str, default=None
            Which parties; all active ones if None.
        progress : Progress, default=None
            Told of every turn.
        """
        step = nullcontext if progress is None else progress.step
        self._relay(operation, self.call(operation, payload, to=between), step)

    def _relay(self, operation, replies, step=nullcontext):
        """Carry sealed messages until every party in the conversation is done."""
        waiting = dict.fromkeys(replies)
        silent = False
        while True:
            inbox = self._sort(operation, replies)
            for sender, reply in replies.items():
                if reply["done"]:
                    waiting.pop(sender, None)
            if not inbox and not waiting:
                return
            if not inbox and silent:
                names = sorted(waiting)
                raise ProtocolError(f"{names} wait for messages nobody sends")
            # With nothing to deliver, let those go on who expect no answer.
            silent = not inbox
            each = {name: {"sealed": inbox.get(name, {})} for name in inbox or waiting}
            with step():
                replies = self.call("session.talk", each=each)

    def _sort(self, operation, replies):
        """Return the sealed messages of one turn, {receiver: {sender: bytes}}."""
        words, inbox = self._operations[operation], {}
        for sender, reply in replies.items():
            if not _is_turn(reply) or not reply["sealed"].keys() <= set(self.roster):
                raise PartyError(sender, operation, "garbage")
            for receiver, sealed in reply["sealed"].items():
                self.ledger.record(operation, sender, receiver, sealed, "sealed", "")
                if words.peers:
                    self.ledger.learns(receiver, words.peers, words.peers_kind)
                inbox.setdefault(receiver, {})[sender] = sealed
        return inbox

    def _converses(self, operation):
        """Tell whether an operation is a conversation of the parties."""
        if operation in _CONTROL:
            return True
        return isgeneratorfunction(unwrap(getattr(self.party_class, operation)))

    def _request_of(self, name, operation, payload, encoded):
        # what is the same for several parties is encoded once
        key = id(payload), self._sequences[name]
        if key not in encoded:
            encoded[key] = encode(
                {
                    "session": self._session,
                    "sequence": self._sequences[name],
                    "operation": operation,
                    "payload": {k: as_hidden(value) for k, value in payload.items()},
                }
            )
        message = encoded[key]
        self._sequences[name] += 1
        words = self._operations[operation]
        heard = words.hears_kind, words.hears
        self._record_message(operation, COORDINATOR, name, message, payload, *heard)
        return message

    def _read_reply(self, name, operation, message, may_talk=True):
        """Return (payload, None), or (None, code) if there is none to be had."""
        if message is None:
            return None, "timeout"
        try:
            reply = decode(message)
            if reply["ok"] is False:
                code = reply["code"]
                return None, code if code in PartyError.REASONS else "garbage"
            payload, words = reply["payload"], self._operations[operation]
            is_turn = may_talk and _is_turn(payload) and not self._converses(operation)
            if reply["ok"] is not True or not (is_turn or words.fits(payload)):
                return None, "garbage"
        except (ProtocolError, KeyError, TypeError):
            return None, "garbage"
        kind, tells = ("public", "") if is_turn else (words.kind, words.tells)
        self._record_message(
            operation, name, COORDINATOR, message, payload, kind, tells
        )
        return payload, None

    def _record_message(
        self, operation, sender, receiver, message, payload, kind, tells
    ):
        parts = (value for value in payload.values() if isinstance(value, dict))
        hidden = [p["hidden"] for p in parts if p.get("hidden") in _HIDDEN_KINDS]
        if hidden:
            kind = hidden[0] if hidden[0] != "plaintext" else "plaintext aggregate"
        elif any(isinstance(value, OpenSum) for value in payload.values()):
            # a sum that comes back to the parties: they read it, too
            kind = "plaintext aggregate"
        sealed = payload.get("sealed")
        if isinstance(sealed, dict) and all(
            isinstance(part, bytes) for part in sealed.values()
        ):
            # Sealed messages are counted once, from sender to receiver, by _relay.
            message = message[: len(message) - sum(map(len, sealed.values()))]
        self.ledger.record(operation, sender, receiver, message, kind, tells)


def _only_answer(answers, operation):
    """Return the answer that all parties gave."""
    different = set(answers)
    if len(different) != 1:
        raise ProtocolError(f"parties disagree on whether to go on in {operation}")
    return different.pop()


def _is_turn(reply):
    """Tell whether a reply is one turn of a conversation."""
    return (
        isinstance(reply, dict)
        and reply.keys() == {"sealed", "done"}
        and isinstance(reply["sealed"], dict)
        and isinstance(reply["done"], bool)
        and all(isinstance(sealed, bytes) for sealed in reply["sealed"].values())
    )


class InProcessFederation(Federation):
    """All parties in this process: for trying, testing and benchmarking.

    Every message is still encoded, checked and counted as on a wire, and each party
    is handed its own block only.

    Parameters
    ----------
    blocks : dict of str to dict
        Each party's data.
    party_class, terms, backend, timeout, on_dropout :
        As in :class:`Federation`.
    policy : HostPolicy
        What every party insists on.
    debug : bool, default=False
        Let exceptions of party code through.
    """

    connection = "simulation"
    authentication = "simulation: all parties run in one process"

    def __init__(
        self,
        blocks: dict[str, dict],
        party_class: Any,
        terms: Terms,
        backend: str | AdditiveBackend | None = None,
        *,
        policy: HostPolicy = HostPolicy(),  # noqa: B008 -- frozen
        debug: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(blocks, party_class, terms, backend, **options)
        self._hosts = {
            name: PartyHost(
                name,
                block,
                lambda path: party_class,
                lambda name: clone(self.backend),
                replace(policy, is_simulated=True),
                debug=debug,
            )
            for name, block in blocks.items()
        }

    def _exchange(self, requests, timeout):
        replies = {}
        for name, message in requests.items():
            start = time.monotonic()
            reply = self._hosts[name].handle(message)
            late = timeout is not None and time.monotonic() - start > timeout
            replies[name] = None if late else reply
        return replies

    def _cause(self, name):
        return self._hosts[name].failure

    def _close(self):
        for host in self._hosts.values():
            host.close()
