"""A coordinator, or a relay, that says what no estimator would.

:class:`Relay` stands between a coordinator and its parties and changes bytes: it knows
the wire format and hidden vectors, and no protocol, operation or estimator.
"""

import random
from base64 import b64decode, b64encode
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple
from unittest import mock

import numpy as np

from skprivbn.crypto import (
    CKKSBackend,
    HiddenVector,
    MaskingBackend,
    PaillierBackend,
    SumSession,
    _ckks,
)
from skprivbn.crypto._masking import (
    bytes_of_value,
    open_total,
    read_limbs,
    write_limbs,
)
from skprivbn.crypto._numbers import (
    add_limbs,
    encode_fixed_point,
    limbs_from_bytes,
    limbs_to_bytes,
    pack_shortest,
    split_digits,
)
from skprivbn.exceptions import ProtocolError
from skprivbn.federation import (
    Coordinator,
    InProcessFederation,
    Runner,
    decode,
    encode,
    runner,
)
from skprivbn.federation._session import Agreement
from tests.crypto.test_masking_signed import shift_with_a_fitting_tag
from tests.federation.site.loopback import LoopbackSession

#: what carries {party: bytes} there and {party: bytes or None} back, in one process
CARRIER = InProcessFederation, "_exchange"


def as_integers(values):
    """Return the limbs of values as masks hide them."""
    return encode_fixed_point(values)


def changed(payload, **fields):
    """Return a hidden vector, as it travels, with other fields."""
    return replace(HiddenVector.from_payload(payload), **fields).to_payload()


def forge(hidden, change):
    """Change the values of a sum under masks or in the clear, but not its tag.

    Parameters
    ----------
    hidden : HiddenVector
    change : callable
        Changes limbs in place, of the values or of what hides them.

    Returns
    -------
    forged : HiddenVector
    """
    n_values, (part,) = hidden.length, hidden.parts
    if hidden.kind == "plaintext":
        limbs = limbs_from_bytes(part).copy()
        change(limbs[:, :n_values])
        return replace(hidden, parts=[limbs_to_bytes(limbs)])
    n_bytes = bytes_of_value(hidden.key)
    try:  # as vectors add up
        limbs = read_limbs(hidden)
        change(limbs[:, :n_values])
        part = write_limbs(limbs[:, :n_values], limbs[:, n_values:], n_bytes)
    except ProtocolError:  # as an opened sum travels
        limbs = open_total(hidden, n_values + MaskingBackend.ring.n_digits)
        change(limbs[:, :n_values])
        data, n_bytes, shift = pack_shortest(limbs[:, :n_values])
        part = bytes([n_bytes, shift]) + data + limbs_to_bytes(limbs[:, n_values:])
    return replace(hidden, parts=[part])


class HostileTerms:
    """Terms whose fields are changed on their way to the parties."""

    def __init__(self, terms, **changes):
        self._terms, self._changes = terms, changes

    def __getattr__(self, name):
        return getattr(self._terms, name)

    def to_payload(self):
        return self._terms.to_payload() | self._changes

    def raised_to(self, limits):
        return self


def without_agreement(monkeypatch):
    """Take a defence out: parties answer before they know that peers heard the same."""
    monkeypatch.setattr(Runner, "_compare", lambda self: iter(()))


def without_a_rule_on_losses(monkeypatch):
    """Take a defence out: several sums go on although a party is lost between them."""
    monkeypatch.setattr(Coordinator, "_check_lost", lambda self: None)
    monkeypatch.setattr(Runner, "_check_all_counted", lambda self: None)


def without_limits(monkeypatch):
    """Take a defence out: parties decode messages of any length."""
    monkeypatch.setattr(runner, "ENVELOPE_BYTES", 2**31)


def without_signed_terms(monkeypatch):
    """Take a defence out: what parties sign does not say what they were told."""
    read = Agreement.__init__

    def forget(self, agreed):
        read(self, agreed)
        self.hash = bytes(32)

    monkeypatch.setattr(Agreement, "__init__", forget)


class Message(NamedTuple):
    """Bytes on their way to a party, or its answer."""

    #: of the round trip, counted over a fit
    round: int
    party: str
    body: bytes

    @property
    def value(self):
        """What the bytes say."""
        return decode(self.body)


class Relay:
    """Carries the messages of fits, and keeps them. Adversaries override two methods.

    Attributes
    ----------
    requests, replies : list of Message
        As the coordinator and the parties sent them.
    n_rounds : int
    n_times : int
        How often every message is carried; the last answers count.
    """

    n_times = 1

    def __init__(self):
        self.requests, self.replies, self.n_rounds = [], [], 0

    def to_party(self, message):
        """Return what reaches the party in place of a message; None if nothing does."""
        return message.body

    def to_coordinator(self, message):
        """Return what reaches the coordinator; None if nothing does."""
        return message.body

    @contextmanager
    def carrying(self):
        """Stand in the way of all messages."""
        owner, name = CARRIER
        carry = getattr(owner, name)

        def exchange(federation, requests, timeout):
            number, self.n_rounds = self.n_rounds, self.n_rounds + 1
            sent = [Message(number, *item) for item in requests.items()]
            self.requests += sent
            changed = {message.party: self.to_party(message) for message in sent}
            carried = {name: body for name, body in changed.items() if body is not None}
            for _ in range(self.n_times):
                replies = carry(federation, carried, timeout)
                received = [Message(number, *item) for item in replies.items()]
                self.replies += received
            told = {message.party: self.to_coordinator(message) for message in received}
            return dict.fromkeys(requests) | told

        with mock.patch.object(owner, name, exchange):
            yield self

    @contextmanager
    def at_sites(self):
        """Stand where the server is that relays between a researcher and sites."""
        command = LoopbackSession.do_app_command

        def relay(session, job_id, name, data):
            number, self.n_rounds = self.n_rounds, self.n_rounds + 1
            asked, bodies = data.get("sites", {}), data.get("bodies", [])
            sent = [
                Message(number, site, b64decode(bodies[place]))
                for site, place in asked.items()
            ]
            self.requests += sent
            changed = [b64encode(self.to_party(message)).decode() for message in sent]
            places = {message.party: place for place, message in enumerate(sent)}
            data = {**data, "sites": places, "bodies": changed}
            return command(session, job_id, name, data)

        with mock.patch.object(LoopbackSession, "do_app_command", relay):
            yield self

    def heard_by(self, party):
        """Return the messages that were sent to a party."""
        return [message for message in self.requests if message.party == party]


class Accomplice:
    """A party that gives the coordinator what it knows: the keys of its sums.

    Parameters
    ----------
    name : str
    """

    def __init__(self, name):
        self.name, self.sums = name, {}

    @contextmanager
    def helping(self):
        """Keep the keys of every sum that this party takes part in."""
        hide = SumSession.hide

        def kept(session, vector, what):
            hidden = hide(session, vector, what)
            if session._name == self.name:
                self.sums[hidden.key] = session
            return hidden

        with mock.patch.object(SumSession, "hide", kept):
            yield self

    def shifted(self, hidden, shift):
        """Return a total with other values and a tag that fits them."""
        session, (first, *others) = self.sums[hidden.key], hidden.parts
        padded = np.zeros(hidden.length, dtype=np.asarray(shift).dtype)
        padded[: len(shift)] = shift
        part = shift_with_a_fitting_tag(session, first, padded)
        return replace(hidden, parts=[part, *others])


class Dropping(Relay):
    """Loses the answer of a party, the first that was asked, in one round."""

    def __init__(self, number):
        super().__init__()
        self.number, self._lost = number, False

    def to_coordinator(self, message):
        if message.round == self.number and not self._lost:
            self._lost = True
            return None
        return message.body


class Losing(Relay):
    """Loses a party for good: from some round on, nothing reaches it.

    Parameters
    ----------
    party : str
    number : int
        The first round without it.
    """

    def __init__(self, party, number):
        super().__init__()
        self.party, self.number = party, number

    def to_party(self, message):
        is_lost = message.party == self.party and message.round >= self.number
        return None if is_lost else message.body


class Changing(Relay):
    """Puts another message in the place of one, or of one round to all parties.

    Parameters
    ----------
    change : callable
        Of the message; returns bytes, or None for no message.
    number : int
        The round.
    party : str, default=None
        All if None.
    """

    def __init__(self, change, number, party=None):
        super().__init__()
        self.change, self.number, self.party = change, number, party

    def to_party(self, message):
        if message.round == self.number and self.party in (None, message.party):
            return self.change(message)
        return message.body


def leaves(value, path=()):
    """Yield where in a decoded message values stand, and the values."""
    if isinstance(value, dict):
        for key, member in value.items():
            yield from leaves(member, (*path, key))
    elif isinstance(value, list):
        for key, member in enumerate(value):
            yield from leaves(member, (*path, key))
    else:
        yield path, value


def with_leaf(value, path, leaf):
    """Return a decoded message with another value in one place."""
    if not path:
        return leaf
    key, *rest = path
    changed = dict(value) if isinstance(value, dict) else list(value)
    changed[key] = with_leaf(value[key], rest, leaf)
    return changed


def nudged(leaf, chance):
    """Return a value of the same type that is not the same."""
    if isinstance(leaf, bool):
        return not leaf
    if isinstance(leaf, int):
        return leaf + chance.choice([-1, 1])
    if isinstance(leaf, float):
        return 2.0 * leaf + 1.0 if np.isfinite(leaf) else 1.0
    if isinstance(leaf, str):
        return leaf + "x"
    if isinstance(leaf, bytes) and leaf:
        place = chance.randrange(len(leaf))
        return leaf[:place] + bytes([leaf[place] ^ 1]) + leaf[place + 1 :]
    if isinstance(leaf, np.ndarray) and leaf.size:
        other = leaf.copy()
        place = chance.randrange(leaf.size)
        other.flat[place] = (
            not other.flat[place] if leaf.dtype == bool else (other.flat[place] + 1)
        )
        return other
    return 1


def nudge(seed):
    """Return a change of one value of a message, which still can be decoded."""

    def change(message):
        chance, value = random.Random(seed), message.value
        path, leaf = chance.choice(list(leaves(value)))
        return encode(with_leaf(value, path, nudged(leaf, chance)))

    return change


def hidden_vectors(value, path=()):
    """Yield where in a decoded message hidden vectors stand, and the vectors."""
    if isinstance(value, dict):
        for key, member in value.items():
            yield from hidden_vectors(member, (*path, key))
    elif isinstance(value, list):
        try:
            yield path, HiddenVector.from_payload(value)
        except (ProtocolError, LookupError, TypeError, ValueError):
            for key, member in enumerate(value):
                yield from hidden_vectors(member, (*path, key))


def with_vectors(message, change):
    """Return a message all of whose hidden vectors are changed."""
    value = message.value
    for path, hidden in hidden_vectors(value):
        value = with_leaf(value, path, change(hidden).to_payload())
    return encode(value)


def add_plaintext(backend, hidden, shift):
    """Add numbers to a hidden sum without any key, as anybody on the way can.

    Parameters
    ----------
    backend : AdditiveBackend
    hidden : HiddenVector
    shift : ndarray
        Added to the first values.

    Returns
    -------
    forged : HiddenVector
    """
    is_encrypted = hidden.kind == "ciphertext"
    if is_encrypted and isinstance(backend, PaillierBackend):
        modulus, ciphertext, *others = hidden.parts
        n = int.from_bytes(modulus, "big")
        more = sum(int(x) << 56 + 112 * i for i, x in enumerate(shift))
        number = int.from_bytes(ciphertext, "big") * (1 + more * n) % n**2
        parts = [modulus, number.to_bytes(len(ciphertext), "big"), *others]
        return replace(hidden, parts=parts)
    if is_encrypted and isinstance(backend, CKKSBackend):
        parameters = backend._parameters
        server = _ckks._keyless_context(parameters)
        encrypted = _ckks._load(hidden.parts[0], parameters, server)
        digits = backend.digits(hidden.addends)
        added = split_digits(as_integers(shift), digits.n_bits, digits.n_digits)
        n_integers = encrypted.size() // digits.n_digits
        slots = np.zeros((digits.n_digits, n_integers))
        slots[:, : len(shift)] = np.ldexp(added.astype(float), -digits.fraction_bits)
        encrypted += slots.ravel().tolist()
        return replace(hidden, parts=[_ckks._frame(encrypted.serialize(), parameters)])

    def change(limbs):
        add_limbs(limbs[:, : len(shift)], as_integers(shift))

    return forge(hidden, change)
