"""Masked sums that every party adds up by itself, from what all have signed.

A party that works for the coordinator has the key of the tags, and so a tag for any
total. So here no party takes a total from anybody. One sum takes three rounds:

1. every party masks its vector and signs the digest of it;
2. it gets the signed digests of all, and signs the list of them;
3. given that all have signed the same list, it sends its masked vector.

The coordinator hands all masked vectors on. Each party holds them against the digests
and adds them. Nobody can put in another vector after having seen one of the others',
and nobody can show different vectors to different parties.
"""

import hashlib
from dataclasses import replace

from skprivbn.crypto._authentication import read_only
from skprivbn.crypto._base import outvoted, read_each, read_vector
from skprivbn.crypto._derive import join_fields
from skprivbn.crypto._masking import MaskingSession, add_masked
from skprivbn.exceptions import PartyError, ProtocolError

_DIGEST_BYTES, _SIGNATURE_BYTES = 32, 64


class SignedMaskingSession(MaskingSession):
    """A party's side.

    Parameters
    ----------
    context : PartyContext
    backend : MaskingBackend
    covered : bool, default=True
    """

    def __init__(self, context, backend, covered=True):
        super().__init__(context, backend, covered)
        self._context = context
        #: of the vectors that all have promised, in the order of the roster
        self._digests = []

    def exchange(self, vector, operation):
        """Sign, see that all have signed the same, send; then add what all sent."""
        self._digests = []
        hidden = self.hide(vector, operation)
        digest = hashlib.sha256(hidden.parts[0]).digest()
        signature = self._context.sign(self._digest_text(self._name, digest))
        promise = replace(hidden, parts=[digest + signature])
        answer = yield {"vector": promise.to_payload()}
        promised = self._of_all(answer, "digests")
        for name, signed in promised.items():
            text = self._digest_text(name, signed[:_DIGEST_BYTES])
            self._context.verify(name, text, signed[_DIGEST_BYTES:])
        if promised[self._name] != promise.parts[0]:
            raise ProtocolError("this party's own vector was replaced")
        digests = [promised[name][:_DIGEST_BYTES] for name in self._roster]
        text = self._list_text(digests)
        answer = yield {"signature": self._context.sign(text)}
        for name, signature in self._of_all(answer, "signatures").items():
            self._context.verify(name, text, signature)
        self._digests = digests
        answer = yield {"vector": hidden.to_payload()}
        return self.read_total(answer)

    def _of_all(self, answer, word):
        """Return what the coordinator hands on from every party."""
        told = read_only(answer, word)
        kinds = set(map(type, told.values()))
        if told.keys() != set(self._roster) or kinds != {bytes}:
            raise ProtocolError("expected something of every party")
        return told

    def reveal_integers(self, total, n_integers):
        """Add what the parties have signed; there is no other total."""
        digests = [hashlib.sha256(part).digest() for part in total.parts]
        if digests != self._digests:
            raise ProtocolError("not the vectors that the parties have signed")
        added = replace(total, parts=add_masked([total.parts]))
        return super().reveal_integers(added, n_integers)

    def _digest_text(self, name, digest):
        return join_fields("masked vector", self._binding, name, self._last.key, digest)

    def _list_text(self, digests):
        return join_fields("masked vectors", self._binding, self._last.key, *digests)


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
    for name in outvoted({name: hidden.form for name, hidden in promised.items()}):
        raise PartyError(name, "sum", "garbage")
    digests = {name: hidden.parts[0] for name, hidden in promised.items()}
    signed = yield dict.fromkeys(said, {"digests": digests})
    signatures = read_each(signed, _read_signature)
    sent = yield dict.fromkeys(said, {"signatures": signatures})
    vectors = read_each(sent)
    for name, hidden in vectors.items():
        digest = hashlib.sha256(b"".join(hidden.parts)).digest()
        if len(hidden.parts) != 1 or digest != digests[name][:_DIGEST_BYTES]:
            raise PartyError(name, "sum", "garbage")
    parts = [hidden.parts[0] for hidden in vectors.values()]
    return replace(next(iter(vectors.values())), parts=parts, addends=len(parts))


def _read_promise(reply):
    """Return the digest of a vector, with a signature, in the place of the vector."""
    hidden = read_vector(reply)
    if [len(part) for part in hidden.parts] != [_DIGEST_BYTES + _SIGNATURE_BYTES]:
        raise ProtocolError("not a signed digest")
    return hidden


def _read_signature(reply):
    signature = reply["signature"]
    if type(signature) is not bytes or len(signature) != _SIGNATURE_BYTES:
        raise ProtocolError("a signature has the wrong size")
    return signature
