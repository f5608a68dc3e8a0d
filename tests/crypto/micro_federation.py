"""Parties of a secure sum and their coordinator, in a hundred lines and no network."""

import hashlib
import secrets
from copy import deepcopy

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from skprivbn.crypto import (
    HiddenVector,
    MaskingBackend,
    limbs_from_bytes,
)
from skprivbn.crypto._authentication import agree_on_group_key
from skprivbn.crypto._base import number_type
from skprivbn.crypto._numbers import decode_fixed_point
from skprivbn.exceptions import ProtocolError


class Context:
    """A party's view of the session, with pair keys out of thin air."""

    def __init__(self, name, roster, session, roster_hash, pair_secrets, identities):
        self.name, self.roster = name, roster
        self.session, self.roster_hash = session, roster_hash
        self.keys_hash = hashlib.sha256(session).digest()
        self.group = None
        self._pair_secrets, self._identities = pair_secrets, identities

    def pair_key(self, peer, purpose):
        secret = self._pair_secrets[frozenset((self.name, peer))]
        return hashlib.sha256(secret + purpose).digest()

    def sign(self, message):
        return self._identities[self.name].sign(message)

    def verify(self, peer, message, signature):
        try:
            self._identities[peer].public_key().verify(signature, message)
        except InvalidSignature:
            raise ProtocolError("not signed by that party") from None


def make_contexts(n_parties, roster_hash=bytes(32)):
    """Return one context per party of a new session, by name."""
    roster = tuple(f"party {i}" for i in range(n_parties))
    session = secrets.token_bytes(16)
    pair_secrets = {
        frozenset((a, b)): secrets.token_bytes(32) for a in roster for b in roster
    }
    identities = {name: Ed25519PrivateKey.generate() for name in roster}
    return {
        name: Context(name, roster, session, roster_hash, pair_secrets, identities)
        for name in roster
    }


def start_sessions(backend, contexts, readers="parties"):
    """Run the setup of all parties, for sums that are for "parties" or for "all"."""
    if next(iter(contexts.values())).group is None:
        keys = {
            name: agree_on_group_key(context, backend.key_makers(context.roster))
            for name, context in contexts.items()
        }
        for name, group in converse(keys).items():
            contexts[name].group = group
    options = {}
    if readers == "all":
        backend, options = backend.masks_for_all(), {"covered": False}
    setups = {n: backend.setup(context, **options) for n, context in contexts.items()}
    return converse(setups)


class Exchange:
    """One sum in which both sides are generators.

    Parameters
    ----------
    sessions : dict of str to SumSession
    vectors : ndarray of shape (n_parties, n_values)
    fails : iterable of (str, int)
        Party, and number of the first of its messages that does not arrive, from 0.
    tamper : callable, default=None
        Changes the coordinator's answers ``{name: payload}``.

    Attributes
    ----------
    received : list of dict
        All that the coordinator was sent, by name, in order.
    """

    def __init__(self, sessions, vectors, fails=(), tamper=None):
        self.roster, self.fails, self.tamper = tuple(sessions), dict(fails), tamper
        self.parties = {
            name: session.exchange(vector, "statistics")
            for (name, session), vector in zip(sessions.items(), vectors)
        }
        self.received = []

    def _send(self, answers):
        if self.tamper is not None and answers is not None:
            answers = self.tamper(answers)
        number, said = len(self.received), {}
        for name in list(self.parties if answers is None else answers):
            if self.fails.get(name, number + 1) <= number:
                continue
            answer = None if answers is None else deepcopy(answers[name])
            said[name] = self.parties[name].send(answer)
        self.received.append(deepcopy(said))
        return said

    def run(self, backend):
        """Return the total as `combine` returns it."""
        combine = backend.combine(self._send(None), self.roster)
        answers = None
        try:
            while True:
                answers = self._send(combine.send(answers))
        except StopIteration as stop:
            return HiddenVector.from_payload(stop.value.to_payload())

    def read(self, total, names=None):
        """Return what parties read, by name, once they are handed the total."""
        values = {}
        for name in self.roster if names is None else names:
            try:
                self.parties[name].send({"total": deepcopy(total.to_payload())})
            except StopIteration as stop:
                values[name] = stop.value
        return values


def converse(generators):
    """Carry what generators say to each other; return their results by name."""
    names, generators = list(generators), dict(generators)
    inbox = dict.fromkeys(generators)
    sessions = {}
    while generators:
        outgoing = {}
        for name, generator in list(generators.items()):
            try:
                outgoing[name] = generator.send(inbox[name])
            except StopIteration as stop:
                sessions[name] = stop.value
                del generators[name]
        inbox = {name: {} for name in generators}
        for sender, messages in outgoing.items():
            for receiver, payload in messages.items():
                inbox[receiver][sender] = deepcopy(payload)
    return {name: sessions[name] for name in names}


def hide_all(sessions, vectors, operation="statistics"):
    """Return what every party sends, after a trip over the wire."""
    return [
        HiddenVector.from_payload(session.hide(vector, operation).to_payload())
        for session, vector in zip(sessions.values(), vectors)
    ]


def secure_sum(backend, vectors, sessions=None):
    """Return the sum as the first party reads it."""
    if sessions is None:
        sessions = start_sessions(backend, make_contexts(len(vectors)))
    exchange = Exchange(sessions, vectors)
    (total,) = exchange.read(exchange.run(backend), exchange.roster[:1]).values()
    return total


def read_without_keys(hidden):
    """Return the numbers of a vector or a total as anybody reads them who has no key.

    A ProtocolError under encryption, and where masks have not cancelled.
    """
    if hidden.kind == "masked":
        return MaskingBackend().publish(hidden)[0]
    if hidden.kind == "ciphertext":
        raise ProtocolError("nobody reads ciphertexts without a key")
    (part,) = hidden.parts
    limbs = limbs_from_bytes(part)[:, : hidden.length]
    return decode_fixed_point(limbs, number_type(hidden.key))
