"""The coordinator's side: one loop for all protocols.

It carries sealed messages, adds what it cannot read, hands totals back, and writes the
ledger from what parties say they tell. It tells a program nothing but totals and, where
a program asks for one, the researcher's choice.
"""

import hashlib
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from skprivbn.crypto import AdditiveBackend, MaskingBackend, resolve_backend
from skprivbn.crypto._base import outvoted
from skprivbn.crypto._registry import named_parameters
from skprivbn.crypto.sealing import SIGNATURE_BYTES
from skprivbn.exceptions import PartyError, ProtocolError
from skprivbn.federation._ledger import COORDINATOR, KINDS, Ledger
from skprivbn.federation._session import HostPolicy, check_roster
from skprivbn.federation._terms import Terms
from skprivbn.federation._wire import decode, encode
from skprivbn.federation.program import PartyRefusal, Program
from skprivbn.federation.runner import JOIN, Runner

#: characters of what a person at a site writes to the researcher
MAX_WORDS = 1000
#: in which parties that wait for nobody may say nothing, one after the other
MAX_IDLE_ROUNDS = 1000
#: by which parties' results may differ, which come of products of matrices
RESULT_RTOL = 1e-7

#: what parties may say, and what such a reply has beside ``released``
_SAYS: tuple[dict, ...] = (
    {"hello": bytes},
    {"signed": bytes},
    {"sealed": dict, "phase": int},
    {"sealed": dict, "phase": int, "tells": str, "kind": str, "waits": bool},
    {"hears": str},
    {"result": object},
)


class Coordinator(ABC):
    """The coordinator's side of one session.

    A transport implements :meth:`_exchange`. Use as a context manager; at its end the
    parties erase their keys.

    Parameters
    ----------
    roster : sequence of str
        Names of the parties.
    program : Program
        Run by every party.
    terms : Terms
        Its public parameters.
    backend : str, AdditiveBackend or None
        How sums are hidden; None for masks.
    timeout : float, default=None
        Seconds to wait for an answer; None waits for ever.
    on_dropout : {"raise", "continue"}, default="raise"
        What to do at a dropout during the only sum of a program. "continue" needs a
        backend with recovery (``MaskingBackend(recovery=True)``).

    Attributes
    ----------
    ledger : Ledger
    roster : tuple of str
        All parties that took part.
    lost : dict of str to tuple of str
        Dropouts: for each party the failed step and the code of the reason.
    session : bytes
        Random public identifier of the session.
    released : list of ndarray or None
        Sums released to the researcher since the last choice, including noisy ones.
    """

    #: how parties are reached: "relayed", "authenticated" or a "simulation"
    connection = "relayed"
    #: how the ledger describes the authentication of parties
    authentication = "relay trusted not to tamper: party identities were not pinned"
    #: which of the sites' data are meant, where sites hold more than one block
    data: dict = {}

    def __init__(
        self,
        roster: Iterable[str],
        program: Program,
        terms: Terms,
        backend: str | AdditiveBackend | None = None,
        *,
        timeout: float | None = None,
        on_dropout: str = "raise",
    ) -> None:
        self.roster = check_roster(roster)
        self.program, self.terms = program, terms
        self.backend = None if backend is None else resolve_backend(backend)
        self.timeout, self.on_dropout = timeout, on_dropout
        self.ledger = Ledger(parties=self.roster)
        self.lost: dict[str, Any] = {}
        self._refusals: dict[str, tuple[tuple[str, ...], str]] = {}
        self.session = secrets.token_bytes(16)
        self._sequences = dict.fromkeys(self.roster, 0)
        #: what each party said last and has got no answer to
        self._said: dict[str, dict] = {}
        #: sealed messages on their way, by conversation and receiver
        self._inbox: dict[tuple[int, str], dict[str, bytes]] = {}
        self.released: list[np.ndarray | None] = []
        self._n_sums = 0
        #: rounds in a row in which parties wait, and nobody says anything
        self._n_idle = 0

    @abstractmethod
    def _exchange(self, requests, timeout):
        """Carry {party: bytes} there and {party: bytes or None} back; None is late."""

    def _close(self):
        """Tell the parties that the session is over."""

    def _cause(self, name):
        """Return the exception behind a party's refusal; known in one process only."""

    def __enter__(self):
        try:
            self._start()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *exception):
        self._close()

    @property
    def active(self) -> tuple[str, ...]:
        """Names of the parties still taking part."""
        return tuple(name for name in self.roster if name not in self.lost)

    def run(self, progress: Any = None, turn: Any = None) -> Any:
        """Run the program at all parties to its end.

        Parameters
        ----------
        progress : callable, default=None
            Called with the description of every sum and of every exchange of messages
            between parties.
        turn : callable, default=None
            Returns a context manager, in which messages are carried between parties.

        Returns
        -------
        result : object
            The return value of the program, the same at all parties.
        """
        self._advance(progress, turn)
        if "result" not in self._first_words():
            raise ProtocolError("the program waits for a choice: use ask")
        results = {name: {"result": r["result"]} for name, r in self._said.items()}
        return check_same(results, self.program.__qualname__, RESULT_RTOL)["result"]

    def ask(self, choice: Any, turn: Any = None) -> list[np.ndarray | None]:
        """Send the choice for which the program waits.

        Parameters
        ----------
        choice : object
            Plain data.
        turn : callable, default=None
            As of :meth:`run`.

        Returns
        -------
        released : list of ndarray or None
            Sums released before the next choice, or the end; None for sums over too
            few rows.
        """
        self._advance(turn=turn)
        if "hears" not in self._first_words():
            raise ProtocolError("the program waits for no choice")
        self.released = []
        self._answer(dict.fromkeys(self.active, {"choice": choice}))
        self._advance(turn=turn)
        return self.released

    def _first_words(self):
        return next(iter(self._said.values()))

    def _advance(self, progress=None, turn=None):
        """Go on until all parties wait for a choice, or have ended."""
        while True:
            # what peers say in one conversation is not for those in an earlier one
            phases = {n: s["phase"] for n, s in self._said.items() if "sealed" in s}
            if phases:
                first, words = min(phases.values()), self._first_words()
                if progress is not None and "tells" in words:
                    progress(words["tells"])
                talking = [name for name in phases if phases[name] == first]
                with nullcontext() if turn is None else turn():
                    self._deliver(talking)
                continue
            kind = self._same_point()
            if kind == "hello":
                hellos = b"".join(said["hello"] for said in self._said.values())
                self._answer(dict.fromkeys(self.active, {"hellos": hellos}))
            elif kind == "signed":
                nothing, size = {"signed": bytes(SIGNATURE_BYTES)}, SIGNATURE_BYTES
                said = [self._said.get(name, nothing) for name in self.roster]
                signed = b"".join(words["signed"] for words in said)
                starts = {n: size * i for i, n in enumerate(self.roster)}
                self._answer(
                    # all but the own one
                    {
                        n: {"signed": signed[: starts[n]] + signed[starts[n] + size :]}
                        for n in self.active
                    }
                )
            elif kind == "sum":
                if progress is not None:
                    progress(self._first_words()["sum"])
                self._add()
            else:
                return

    def _start(self):
        agreement = {
            "session": self.session,
            "roster": "\n".join(self.roster),
            "protocol": self.program.path,
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
        self._answer(dict.fromkeys(self.roster, {"agreement": agreement}), JOIN)

    def _same_point(self):
        """Return what all parties wait for; name the one that waits for another."""
        points = {
            name: next(
                (word, said[word] if word in ("sum", "hears") else "")
                for word in ("hello", "sum", "signed", "hears", "result")
                if word in said
            )
            for name, said in self._said.items()
        }
        if not points:
            self._check_lost()
            raise ProtocolError("no party is left")
        for name in outvoted(points):
            raise PartyError(name, points[name][1] or points[name][0], "garbage")
        return next(iter(points.values()))[0]

    def _deliver(self, talking):
        """Hand parties what peers have sealed for them."""
        phase = self._said[talking[0]]["phase"]
        ready = {
            name: {"sealed": self._inbox.pop((phase, name))}
            for name in talking
            if (phase, name) in self._inbox
        }
        if ready:
            done = [n for n in talking if not self._said[n].get("waits", True)]
            self._answer({name: {"sealed": {}} for name in done} | ready)
            return
        # With nothing to deliver, let those go on who expect no answer.
        self._answer({name: {"sealed": {}} for name in talking})
        said = [self._said.get(name, {}) for name in talking]
        if any(s.get("sealed") != {} or s["phase"] != phase for s in said):
            self._n_idle = 0
            return
        # They have nothing to say to each other, and who is in another conversation,
        # or at a sum, waits for them. Who waits for nobody may still count rounds.
        self._n_idle += 1
        if all(s.get("waits", True) for s in said) or self._n_idle > MAX_IDLE_ROUNDS:
            self._check_lost()
            raise ProtocolError(f"{talking} wait for messages nobody sends")

    def _add(self):
        """Add what parties hid, and hand the total back."""
        first = self._first_words()
        what, readers = first["sum"], first.get("for", "parties")
        if self._n_sums > 0:
            # what a lost party told before does not go together with other sums
            self._check_lost()
        self._n_sums += 1
        backend = self.backend or MaskingBackend()
        if readers == "all":
            backend = backend.masks_for_all()
        combine = backend.combine(dict(self._said), self.roster)
        answers = None
        try:
            while True:
                answers = combine.send(answers)
                for name in [n for n in self.active if n not in answers]:
                    self._lose(name, what, "garbage")
                self._answer(answers)
                answers = {n: self._said[n] for n in answers if n in self._said}
        except StopIteration as stop:
            total = stop.value
        if readers == "all":
            values, total = backend.publish(total)
            self.released.append(values)
        else:
            self.ledger.learns("all parties", what, is_total=True)
        self._answer(dict.fromkeys(self.active, {"total": total.to_payload()}), what)

    def _answer(self, answers, what="next"):
        """Tell parties what they wait for, and hear what they say next: a round trip.

        In the first they wait to be asked, and have said nothing.
        """
        self.ledger.n_rounds += 1
        encoded: dict = {}
        requests = {
            name: self._request(name, payload, what, encoded)
            for name, payload in answers.items()
        }
        for name in answers:
            self._said.pop(name, None)
        replies = self._exchange(requests, self.timeout)
        told = {}
        for name in answers:
            said, code = self._read(name, replies.get(name))
            if code is None:
                self._said[name] = said
                if "released" in said:
                    told[name] = said.pop("released")
            else:
                self._lose(name, what, code)
        # in the order of the roster, whoever was answered last
        self._said = {n: self._said[n] for n in self.roster if n in self._said}
        if told:
            self.released.append(self._check_release(told))

    def _check_lost(self):
        """Raise what was wrong with a party that is missing, if one is."""
        for name, (what, code) in self.lost.items():
            raise PartyError(name, what, code)

    def _lose(self, name, what, code):
        """Go on without a party, where that is allowed; else a PartyError."""
        if self.on_dropout != "continue":
            error = PartyError(name, what, code, *self._refusals.get(name, ()))
            cause = self._cause(name)
            is_said = cause is None or isinstance(cause, PartyRefusal)
            for why in getattr(cause, "__notes__", [] if is_said else [repr(cause)]):
                error.add_note(f"known because all parties are in this process: {why}")
            raise error from cause
        self.lost[name] = what, code
        self._said.pop(name, None)
        self.ledger.note(f"party {name} was lost at {what} ({code})", "lost", name)

    def _check_release(self, told):
        """Return what the first party tells, if all others hold the same."""
        (first, values), *others = told.items()
        if len(told) != len(self.active):
            raise ProtocolError("not all parties tell the release")
        digest = None
        if values is not None:
            if not isinstance(values, np.ndarray):
                raise PartyError(first, "release", "garbage")
            digest = hashlib.sha256(encode(values)).digest()
        if any(said != digest for _, said in others):
            raise ProtocolError("the parties do not tell the same release")
        return values

    def _request(self, name, payload, what, encoded):
        # what is the same for several parties is encoded once
        key = id(payload), self._sequences[name]
        if key not in encoded:
            encoded[key] = encode(
                {
                    "session": self.session,
                    "sequence": self._sequences[name],
                    "operation": JOIN if "agreement" in payload else "next",
                    "payload": payload,
                }
            )
        message = encoded[key]
        self._sequences[name] += 1
        kind, size = "public", len(message)
        if "total" in payload:
            kind = payload["total"][0]
        elif "sealed" in payload:
            # counted once, from sender to receiver, when they were sent
            size -= sum(map(len, payload["sealed"].values()))
        told = "roster, estimator, public parameters"
        tells = told if "agreement" in payload else ""
        self.ledger.record(what, COORDINATOR, name, message[:size], kind, tells)
        return message

    def _read(self, name, message):
        """Return (what a party says, None), or (None, code) if it says nothing."""
        if message is None:
            return None, "timeout"
        try:
            reply = decode(message)
            if reply["ok"] is False:
                code, columns = reply["code"], reply.get("columns", [])
                words = reply.get("words", "")
                if type(columns) is list and all(
                    type(text) is str for text in [*columns, words]
                ):
                    # without what could move a terminal's cursor
                    words = "".join(filter(str.isprintable, words[:MAX_WORDS]))
                    self._refusals[name] = tuple(columns), words
                return None, code if code in PartyError.REASONS else "garbage"
            said = reply["payload"]
            if reply["ok"] is not True or not self._is_said(said):
                return None, "garbage"
            self._record(name, message, said)
        except (ProtocolError, LookupError, TypeError, ValueError):
            return None, "garbage"
        return said, None

    def _is_said(self, said):
        """Tell whether a reply has the parts of one thing that parties may say."""
        if type(said) is not dict:
            return False
        if type(said.get("sum")) is str:
            return said.get("for", "all") == "all"
        keys = said.keys() - {"released"}
        parts = next((parts for parts in _SAYS if parts.keys() == keys), {})
        if not parts or not all(isinstance(said[key], parts[key]) for key in keys):
            return False
        sealed = said.get("sealed", {})
        return (
            sealed.keys() <= self._sequences.keys()
            and all(type(message) is bytes for message in sealed.values())
            and said.get("kind", "public") in KINDS
        )

    def _record(self, name, message, said):
        """Write down a reply; sealed messages as what they are, one by one."""
        size, what, tells, kind = len(message), "session", "", "public"
        if "sealed" in said:
            what = said.get("tells", "keys and digests")
            for receiver, sealed in said["sealed"].items():
                size -= len(sealed)
                self.ledger.record(what, name, receiver, sealed, "sealed", "")
                if "tells" in said:
                    self.ledger.learns(receiver, what, said["kind"])
                inbox = self._inbox.setdefault((said["phase"], receiver), {})
                if name in inbox:
                    raise ProtocolError(f"{receiver} does not read what {name} says")
                inbox[name] = sealed
        elif "sum" in said:
            what = said["sum"]
            if "vector" in said:
                tells, kind = what, said["vector"][0]
        elif "result" in said:
            what = tells = "the result"
        if said.get("released") is not None:
            kind = "plaintext aggregate"
        self.ledger.record(what, name, COORDINATOR, message[:size], kind, tells)


class InProcessFederation(Coordinator):
    """All parties in this process: for trying, testing and benchmarking.

    Every message is still encoded, checked and counted as on a wire, and each party
    is handed its own block only.

    Parameters
    ----------
    blocks : dict of str to dict
        Each party's data.
    program, terms, backend, timeout, on_dropout :
        As in :class:`Coordinator`.
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
        program: Program,
        terms: Terms,
        backend: str | AdditiveBackend | None = None,
        *,
        policy: HostPolicy = HostPolicy(),  # noqa: B008 -- frozen
        debug: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(blocks, program, terms, backend, **options)
        kind: Any = type(self.backend)
        policy = replace(policy, is_simulated=True)
        #: what parties make once for all, or for two of them
        self._shared: dict = {}
        self._runners = {
            name: Runner(
                name,
                block,
                lambda path: program,
                lambda name: kind(),
                policy,
                debug=debug,
                shared=self._shared,
            )
            for name, block in blocks.items()
        }

    def _exchange(self, requests, timeout):
        replies = {}
        for name, message in requests.items():
            start = time.monotonic()
            reply = self._runners[name].handle(message)
            late = timeout is not None and time.monotonic() - start > timeout
            replies[name] = None if late else reply
        return replies

    def _cause(self, name):
        return self._runners[name].failure

    def _close(self):
        self._shared.clear()
        for runner in self._runners.values():
            runner.close()


def check_same(replies: dict[str, dict], operation: str, rtol: float = 0.0) -> dict:
    """Return what all parties answered, a ProtocolError if they did not all.

    Parameters
    ----------
    replies : dict of str to dict
    operation : str
    rtol : float, default=0.0
        By how much numbers may differ, relative to the largest.

    Returns
    -------
    reply : dict
    """
    first, *others = replies.values()
    for other in others:
        if not _is_same(first, other, rtol):
            raise ProtocolError(f"parties disagree on the result of {operation}")
    return first


def _is_same(one, other, rtol):
    """Tell whether two answers are the same, numbers up to `rtol`."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(
            _is_same(value, other[key], rtol) for key, value in one.items()
        )
    if isinstance(one, list):
        return len(one) == len(other) and all(
            _is_same(*pair, rtol) for pair in zip(one, other)
        )
    if isinstance(one, float | np.ndarray):
        one, other = np.asarray(one), np.asarray(other)
        if one.shape != other.shape:
            return False
        if one.dtype == other.dtype and one.tobytes() == other.tobytes():
            return True
        # NaN stands for what is not told
        same = (one == other) | (one != one) & (other != other)
        if rtol == 0 or one.dtype.kind == "b":
            return bool(same.all())
        largest = np.max(np.abs(one), initial=0.0, where=np.isfinite(one))
        return bool(np.all(np.abs(one[~same] - other[~same]) <= rtol * largest))
    return one == other
