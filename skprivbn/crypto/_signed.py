"""Masked sums that every party adds up by itself, from what all have signed.

A party that works for the coordinator has the key of the tags, and so a tag for any
total. So here no party takes a total from anybody. One sum takes three rounds:

1. the operation  every party masks its vector and signs the digest of it;
2. list           it gets the signed digests of all, and signs the list of them;
3. send           given that all have signed the same list, it sends its masked vector.

The coordinator hands all masked vectors on. Each party holds them against the digests
and adds them. Nobody can put in another vector after having seen one of the others',
and nobody can show different vectors to different parties.
"""

import hashlib
from dataclasses import replace

from skprivbn.crypto._base import HiddenVector, read_each
from skprivbn.crypto._derive import join_fields
from skprivbn.crypto._masking import MaskingSession, PartyMaskingSession, add_masked
from skprivbn.crypto._recovery import minority
from skprivbn.exceptions import PartyError, ProtocolError

_DIGEST_BYTES, _SIGNATURE_BYTES = 32, 64


class _AddedByAll:
    """A party's side; each step is accepted once, in this order, after a vector."""

    #: step -> what its payload has
    STEPS = {"list": "digests", "send": "signatures"}

    def __init__(self, context, backend):
        super().__init__(context, backend)
        self._context = context
        self._next_step, self._part = None, b""
        self._digests = {}

    @property
    def unsent(self):
        return self._next_step is not None

    def hide_integers(self, integers, number, key):
        """Mask integers, and sign a digest, which is all that is sent so far."""
        (self._part,) = super().hide_integers(integers, number, key)
        self._digests, self._next_step = {}, "list"
        digest = hashlib.sha256(self._part).digest()
        return [digest + self._context.sign(self._digest_text(self._name, digest, key))]

    def exchange(self, vector, operation):
        """Sign, see that all have signed the same, send; then add what all sent."""
        answer = yield {"vector": self.hide(vector, operation).to_payload()}
        answer = yield self.control("list", answer)
        answer = yield self.control("send", answer)
        return self.read_total(answer)

    def control(self, step, payload):
        """Answer one step of the sum protocol."""
        if step != self._next_step or payload.keys() != {self.STEPS[step]}:
            raise ProtocolError(f"step {step!r} of a signed sum is out of turn")
        (told,) = payload.values()
        if (
            type(told) is not dict
            or told.keys() != set(self._roster)
            or not all(type(value) is bytes for value in told.values())
        ):
            raise ProtocolError("expected something of every party")
        # Unless this step succeeds, only another vector will do.
        self._next_step = None
        return self._sign_list(told) if step == "list" else self._send(told)

    def _sign_list(self, digests):
        key = self._last.key
        for name, signed in digests.items():
            digest, signature = signed[:_DIGEST_BYTES], signed[_DIGEST_BYTES:]
            self._context.verify(name, self._digest_text(name, digest, key), signature)
            self._digests[name] = digest
        if self._digests[self._name] != hashlib.sha256(self._part).digest():
            raise ProtocolError("this party's own vector was replaced")
        self._next_step = "send"
        return {"signature": self._context.sign(self._list_text())}

    def _send(self, signatures):
        for name, signature in signatures.items():
            self._context.verify(name, self._list_text(), signature)
        last = self._last
        hidden = HiddenVector(
            self.kind, last.length, last.number, last.key, [self._part]
        )
        return {"vector": hidden.to_payload()}

    def reveal_integers(self, total, n_integers):
        """Add what the parties have signed; there is no other total."""
        parts, digests = total.parts, [self._digests.get(n) for n in self._roster]
        if [hashlib.sha256(part).digest() for part in parts] != digests:
            raise ProtocolError("not the vectors that the parties have signed")
        added = replace(total, parts=add_masked([parts]))
        return super().reveal_integers(added, n_integers)

    def _digest_text(self, name, digest, key):
        return join_fields("masked vector", self._binding, name, key, digest)

    def _list_text(self):
        ordered = [self._digests[name] for name in self._roster]
        return join_fields("masked vectors", self._binding, self._last.key, *ordered)


class SignedMaskingSession(_AddedByAll, MaskingSession):
    """A party's side of sums that the coordinator reads."""


class SignedPartyMaskingSession(_AddedByAll, PartyMaskingSession):
    """A party's side of sums for parties only."""


def signed_sum(backend, federation, operation, payload):
    """Coordinator's side of one sum: relay digests, signatures and vectors.

    Parameters
    ----------
    backend : MaskingBackend or PartyMaskingBackend
    federation : Federation
    operation : str
    payload : dict or None

    Returns
    -------
    total : HiddenVector
        Its parts are the masked vectors of all parties.
    """
    promised = federation.call(operation, payload, read=_read_promise)
    for name in minority({name: hidden.form for name, hidden in promised.items()}):
        raise PartyError(name, operation, "garbage")
    digests = {name: hidden.parts[0] for name, hidden in promised.items()}
    step = {"step": "list", "digests": digests}
    signatures = federation.call("backend", step, read=_read_signature)
    step = {"step": "send", "signatures": signatures}
    sent = federation.call("backend", step, read=HiddenVector.from_reply)
    for name, hidden in sent.items():
        digest = hashlib.sha256(b"".join(hidden.parts)).digest()
        if len(hidden.parts) != 1 or digest != digests[name][:_DIGEST_BYTES]:
            raise PartyError(name, operation, "garbage")
    parts = [hidden.parts[0] for hidden in sent.values()]
    return replace(next(iter(sent.values())), parts=parts, addends=len(parts))


def combine_signed(said):
    """Coordinator's side of one sum: relay digests, signatures and vectors.

    Parameters
    ----------
    said : dict of str to dict
        The signed digest of each party's vector.

    Returns
    -------
    total : HiddenVector
        Its parts are the masked vectors of all parties.
    """
    promised = read_each(said, _read_promise)
    for name in minority({name: hidden.form for name, hidden in promised.items()}):
        raise PartyError(name, "sum", "garbage")
    digests = {name: hidden.parts[0] for name, hidden in promised.items()}
    signed = yield dict.fromkeys(said, {"digests": digests})
    signatures = read_each(signed, _read_signature)
    sent = yield dict.fromkeys(said, {"signatures": signatures})
    vectors = read_each(sent, HiddenVector.from_reply)
    for name, hidden in vectors.items():
        digest = hashlib.sha256(b"".join(hidden.parts)).digest()
        if len(hidden.parts) != 1 or digest != digests[name][:_DIGEST_BYTES]:
            raise PartyError(name, "sum", "garbage")
    parts = [hidden.parts[0] for hidden in vectors.values()]
    return replace(next(iter(vectors.values())), parts=parts, addends=len(parts))


def _read_promise(reply):
    """Return the digest of a vector, with a signature, in the place of the vector."""
    hidden = HiddenVector.from_reply(reply)
    if [len(part) for part in hidden.parts] != [_DIGEST_BYTES + _SIGNATURE_BYTES]:
        raise ProtocolError("not a signed digest")
    return hidden


def _read_signature(reply):
    signature = reply["signature"]
    if type(signature) is not bytes or len(signature) != _SIGNATURE_BYTES:
        raise ProtocolError("a signature has the wrong size")
    return signature
