"""Masked sums of several rounds: one survives lost parties, one trusts no total.

Recovery is the double masking of Bonawitz et al. One sum takes five rounds, the
coordinator being the only one everybody talks to:

1. every party makes a fresh key pair and signs the public key;
2. it shares its private key and a fresh self-mask seed among all, sealed;
3. it gets the shares meant for it, and with them the list of its peers, and hides its
   vector under a cover, a self mask and pairwise masks with these peers;
4. the parties sign the list of those whose masked vector arrived;
5. given the signatures of at least `threshold` of them, a party hands out its share of
   the self mask of every survivor and of the key of every lost party: never both for
   the same party.

The coordinator then removes self masks of survivors and the masks that survivors have
in common with lost parties. Keys and seeds live for one sum. A party that was left out
of a sum is left out of all later ones.

Signed sums are for parties some of which may work for the coordinator: these have the
key of the tags, and so a tag for any total. So no party takes a total from anybody. One
sum takes three rounds:

1. every party masks its vector and signs the digest of it;
2. it gets the signed digests of all, and signs the list of them;
3. given that all have signed the same list, it sends its masked vector.

The coordinator hands all masked vectors on. Each party holds them against the digests
and adds them. Nobody can put in another vector after having seen one of the others',
and nobody can show different vectors to different parties.
"""

import hashlib
import secrets
from dataclasses import replace
from functools import lru_cache
from weakref import WeakKeyDictionary

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from skprivbn.crypto._authentication import read_only
from skprivbn.crypto._base import outvoted, read_each, read_vector
from skprivbn.crypto._derive import KeyStream, expand, extract, join_fields
from skprivbn.crypto._masking import (
    MaskingSession,
    add_masked,
    bytes_of_value,
    read_limbs,
    sum_of_masks,
    write_limbs,
)
from skprivbn.crypto._numbers import add_limbs, subtract_limbs
from skprivbn.exceptions import PartyError, ProtocolError

_KEY_BYTES, _DIGEST_BYTES, _SIGNATURE_BYTES, _SEAL_BYTES = 32, 32, 64, 16

#: the smallest prime above 2**256, so that every 32-byte secret is a field element
PRIME = 2**256 + 297
SECRET_BYTES = 32
SHARE_BYTES = 33

# Who has been in every sum so far, by context: new keys bring nobody back.
_present = WeakKeyDictionary()


class RecoverySession(MaskingSession):
    """A party's side of sums with recovery.

    Every party covers its vector by a mask that all parties know. Once they have signed
    who is in the total, they take off the covers of these.

    Parameters
    ----------
    context : PartyContext
    backend : MaskingBackend
    covered : bool, default=True
    """

    def __init__(self, context, backend, covered=True):
        super().__init__(context, backend, covered)
        self._context = context
        self._threshold = backend.n_needed(len(self._roster))
        #: who is in the total, as this party and a quorum signed
        self._signed = ()
        self._present = _present.setdefault(context, set(self._roster))

    def _make_masks(self, context):
        return None  # there are new ones for every sum

    def _covered_by(self):
        return self._roster

    def exchange(self, vector, operation):
        """Make keys, share them, hide, sign who is left, unmask; read the total."""
        self._round += 1
        self._masks, self._signed = None, ()
        private, seed = X25519PrivateKey.generate(), secrets.token_bytes(SECRET_BYTES)
        public = private.public_key().public_bytes_raw()
        answer = yield {
            "round": self._round,
            "binding": self._binding,
            "public": public,
            "signature": self._context.sign(self._key_text(self._name, public)),
        }
        publics = self._check_keys(read_only(answer, "keys"), public)
        received, sealed = self._share(private.private_bytes_raw(), seed, publics)
        answer = yield {"shares": sealed}
        received |= self._open_shares(read_only(answer, "shares"), publics)
        self._masks = [(_stream(seed), True)] + [
            (_common_stream(private, publics[p]), _adds(self._roster, self._name, p))
            for p in received.keys() - {self._name}
        ]
        answer = yield {"vector": self.hide(vector, operation).to_payload()}
        survivors = read_only(answer, "survivors", list)
        self._check_quorum(survivors)
        if not set(survivors) <= received.keys():
            raise ProtocolError("a survivor took no part in this sum")
        text = join_fields("survivors", self._binding, self._round, *survivors)
        answer = yield {"signature": self._context.sign(text)}
        signatures = read_only(answer, "signatures")
        if not signatures.keys() <= set(survivors):
            raise ProtocolError("signed by a party that is no survivor")
        if len(signatures) < self._threshold:
            raise ProtocolError("too few parties signed the list of survivors")
        for name, signature in signatures.items():
            self._context.verify(name, text, signature)
        # Who was left out of a sum stays out. The difference of two sums, one with and
        # one without a party, would be that party's vector.
        self._present.intersection_update(survivors)
        # The total must be over these and nobody else.
        self._signed = tuple(survivors)
        lost = received.keys() - set(survivors)
        told = {
            "seeds": {name: received[name][1] for name in survivors},
            "keys": {name: received[name][0] for name in lost},
        }
        del private, seed, received
        return self.read_total((yield told))

    def _next_number(self):
        # counted when the keys of the sum were made, which serve one vector
        if self._masks is None:
            raise ProtocolError("a recoverable sum starts with fresh keys")
        return self._round

    def hide_integers(self, integers, number, key):
        """Mask integers; nothing else is hidden under the same masks."""
        parts = super().hide_integers(integers, number, key)
        self._masks = None
        return parts

    def _check_keys(self, keys, mine):
        """Return the fresh public keys of the parties, if they have signed them."""
        self._check_quorum(keys)
        for name, key in keys.items():
            if not isinstance(key, dict) or key.keys() != {"public", "signature"}:
                raise ProtocolError("malformed key")
            text = self._key_text(name, key["public"])
            self._context.verify(name, text, key["signature"])
        publics = {name: key["public"] for name, key in keys.items()}
        if publics[self._name] != mine:
            raise ProtocolError("this party's own key was replaced")
        return publics

    def _share(self, private, seed, publics):
        """Return this party's shares of its own secrets, and those of all, sealed."""
        points = [_point(self._roster, name) for name in publics]
        key_shares, seed_shares = (
            split_secret(secret, self._threshold, points) for secret in (private, seed)
        )
        shares = dict(zip(publics, zip(key_shares, seed_shares)))
        mine = {self._name: shares.pop(self._name)}
        return mine, {
            name: self._sealer(self._name, name).encrypt(bytes(12), b"".join(two), None)
            for name, two in shares.items()
        }

    def _open_shares(self, sealed, publics):
        """Return the shares that others have sealed for this party."""
        self._check_quorum({**sealed, self._name: None})
        if self._name in sealed or not sealed.keys() <= publics.keys():
            raise ProtocolError("shares of a party without a key")
        received = {}
        for name, message in sealed.items():
            try:
                opened = self._sealer(name, self._name).decrypt(
                    bytes(12), message, None
                )
            except (InvalidTag, TypeError):
                raise ProtocolError("a share was damaged on its way") from None
            received[name] = (opened[:SHARE_BYTES], opened[SHARE_BYTES:])
        return received

    @property
    def counted(self) -> tuple[str, ...]:
        """Names of the parties on the list that this one and a quorum signed."""
        if not self._signed:
            raise ProtocolError("a total without a signed list of its parties")
        return self._signed

    def _check_quorum(self, names):
        """Raise unless these are enough distinct parties, this one among them."""
        distinct = set(names)
        if (
            len(distinct) != len(names)
            or not distinct <= self._present
            or self._name not in distinct
            or len(distinct) < self._threshold
        ):
            raise ProtocolError("not enough parties of the roster for this step")

    def _key_text(self, name, public):
        return join_fields("mask key", self._binding, self._round, name, public)

    def _sealer(self, sender, receiver):
        """Cipher for the one message of shares from sender to receiver this round."""
        peer = receiver if sender == self._name else sender
        info = join_fields("shares", self._binding, self._round, sender, receiver)
        pair_key = self._context.pair_key(peer, b"mask recovery")
        return ChaCha20Poly1305(expand(extract(pair_key), info))


def combine_recoverable(backend, said, roster):
    """Coordinator's side of one sum; parties lost on the way are left out of it.

    Parameters
    ----------
    backend : MaskingBackend
    said : dict of str to dict
        The fresh key of each party.
    roster : sequence of str
        All parties of the session.

    Returns
    -------
    total : HiddenVector
        Over the survivors, with their number as `addends`.
    """
    roster = tuple(roster)
    threshold = backend.n_needed(len(roster))

    def read(said, one, step):
        # who answers garbage is as good as lost
        return _enough(read_each(said, one, is_strict=False), threshold, step)

    keys = read(said, _read_key, "keys")
    for name in outvoted({n: (k["round"], k["binding"]) for n, k in keys.items()}):
        del keys[name]
    signed_keys = {
        name: {"public": key["public"], "signature": key["signature"]}
        for name, key in keys.items()
    }
    sent = read(
        (yield dict.fromkeys(keys, {"keys": signed_keys})), _read_shares, "shares"
    )
    for name in [n for n in sent if sent[n]["shares"].keys() != keys.keys() - {n}]:
        del sent[name]
    _enough(sent, threshold, "shares")
    meant_for = {
        name: {n: reply["shares"][name] for n, reply in sent.items() if n != name}
        for name in sent
    }
    delivered = yield {name: {"shares": meant_for[name]} for name in sent}
    hidden = read(delivered, read_vector, "vectors")
    for name in backend.find_unlike(hidden):
        del hidden[name]
    survivors = [name for name in roster if name in _enough(hidden, threshold, "sum")]
    signed = read(
        (yield dict.fromkeys(survivors, {"survivors": survivors})),
        _read_signature,
        "survivors",
    )
    shares = read(
        (yield dict.fromkeys(signed, {"signatures": signed})),
        lambda reply: _read_opened(reply, hidden, sent),
        "unmask",
    )
    total = backend.add([hidden[name] for name in survivors])
    publics = {name: keys[name]["public"] for name in sent}
    givers = {name: shares[name] for name in list(shares)[:threshold]}
    return _remove_masks(total, roster, publics, set(hidden), givers)


def _of_size(reply, word, size):
    if type(reply[word]) is not bytes or len(reply[word]) != size:
        raise ProtocolError(f"a {word} has the wrong size")
    return reply[word]


def _read_signature(reply):
    return _of_size(reply, "signature", _SIGNATURE_BYTES)


def _read_key(reply):
    """Return a party's answer to the first step, if it is one."""
    _of_size(reply, "public", _KEY_BYTES)
    _read_signature(reply)
    _of_size(reply, "binding", _KEY_BYTES)
    if type(reply["round"]) is not int:
        raise ProtocolError("a round is no number")
    return reply


def _read_shares(reply):
    """Return a party's answer to the second step: sealed shares."""
    if type(reply["shares"]) is not dict:
        raise ProtocolError("shares for nobody")
    for name in reply["shares"]:
        _of_size(reply["shares"], name, 2 * SHARE_BYTES + _SEAL_BYTES)
    return reply


def _read_opened(reply, hidden, sent):
    """Return a party's answer to the last step: a share of every party, of one kind."""
    lost = sent.keys() - hidden.keys()
    if type(reply["seeds"]) is not dict or type(reply["keys"]) is not dict:
        raise ProtocolError("no shares")
    if reply["seeds"].keys() != hidden.keys() or reply["keys"].keys() != lost:
        raise ProtocolError("shares of other parties than were asked for")
    for shares in (reply["seeds"], reply["keys"]):
        for name in shares:
            _of_size(shares, name, SHARE_BYTES)
    return reply


def _enough(replies, threshold, step):
    if len(replies) < threshold:
        raise ProtocolError(
            f"only {len(replies)} parties are left at {step!r}; the masks can be "
            f"removed only while {threshold} are there"
        )
    return replies


def _remove_masks(total, roster, publics, survivors, givers):
    """Take self masks, and masks in common with lost parties, out of the total.

    Parameters
    ----------
    total : HiddenVector
        Sum of what the survivors sent.
    roster : tuple of str
    publics : dict of str to bytes
        Public keys of the parties that the survivors have masks in common with.
    survivors : set of str
    givers : dict of str to dict
        The shares handed out, by as many parties as it takes.

    Returns
    -------
    total : HiddenVector
    """
    limbs = read_limbs(total)

    def rebuild(kind, owner):
        shares = {_point(roster, name): g[kind][owner] for name, g in givers.items()}
        return join_shares(shares)

    # What survivors added has to be subtracted, and the other way round.
    added, subtracted = [_stream(rebuild("seeds", name)) for name in survivors], []
    for lost in publics.keys() - survivors:
        private = X25519PrivateKey.from_private_bytes(rebuild("keys", lost))
        if private.public_key().public_bytes_raw() != publics[lost]:
            raise ProtocolError(f"the shares of the key of {lost!r} are wrong")
        for survivor in survivors:
            streams = added if _adds(roster, survivor, lost) else subtracted
            streams.append(_common_stream(private, publics[survivor]))
    for streams, change in ((added, subtract_limbs), (subtracted, add_limbs)):
        for masks in sum_of_masks(streams, total.round, total.key, limbs.shape[1]):
            change(limbs, masks)
    values, tail = limbs[:, : total.length], limbs[:, total.length :]
    return replace(total, parts=[write_limbs(values, tail, bytes_of_value(total.key))])


def _stream(secret):
    """The one mask that comes from a secret made for one sum."""
    return KeyStream(expand(extract(secret), b"mask"))


def _point(roster, name):
    """Where a party's shares are evaluated: its place in the roster, from 1."""
    return roster.index(name) + 1


def _adds(roster, name, peer):
    """Of two parties the earlier one adds their common mask, the other subtracts."""
    return roster.index(name) < roster.index(peer)


def _common_stream(private, peer_public):
    """The one mask that two parties have in common."""
    try:
        secret = private.exchange(X25519PublicKey.from_public_bytes(peer_public))
    except (ValueError, TypeError):
        raise ProtocolError("not a public key") from None
    return _stream(secret)


def split_secret(secret, threshold, points):
    """Share a secret among parties (Shamir): fewer than the threshold know nothing.

    Parameters
    ----------
    secret : bytes of length 32
    threshold : int
        How many shares it takes.
    points : sequence of int
        One distinct positive number per party.

    Returns
    -------
    shares : list of bytes

    Examples
    --------
    >>> shares = split_secret(bytes(range(32)), 2, [1, 2, 3])
    >>> join_shares({1: shares[0], 3: shares[2]}) == bytes(range(32))
    True
    """
    if len(secret) != SECRET_BYTES:
        raise ValueError("secrets of 32 bytes only")
    if len(set(points)) != len(points) or not all(0 < x < PRIME for x in points):
        raise ValueError("points must be distinct and positive")
    if not 1 <= threshold <= len(points):
        raise ValueError("the threshold must be between 1 and the number of shares")
    coefficients = [secrets.randbelow(PRIME) for _ in range(threshold - 1)]
    coefficients.append(int.from_bytes(secret, "big"))
    shares = []
    for x in points:
        value = 0
        for coefficient in coefficients:
            value = (value * x + coefficient) % PRIME
        shares.append(value.to_bytes(SHARE_BYTES, "big"))
    return shares


def join_shares(shares):
    """Recover a secret from at least as many shares as its threshold.

    Parameters
    ----------
    shares : dict of int to bytes
        Shares by point.

    Returns
    -------
    secret : bytes of length 32
        Nonsense if the shares are too few or do not belong together: callers check
        it against something public.
    """
    secret = 0
    for share, weight in zip(shares.values(), _weights_at_zero(tuple(shares))):
        value = int.from_bytes(share, "big")
        if len(share) != SHARE_BYTES or value >= PRIME:
            raise ProtocolError("malformed share of a secret")
        secret += value * weight
    secret %= PRIME
    if secret >> 8 * SECRET_BYTES:
        raise ProtocolError("the shares do not belong to one secret")
    return secret.to_bytes(SECRET_BYTES, "big")


@lru_cache(maxsize=32)
def _weights_at_zero(points):
    """Lagrange weights: the same survivors rebuild many secrets."""
    weights = []
    for x in points:
        numerator = denominator = 1
        for other in points:
            if other != x:
                numerator = numerator * other % PRIME
                denominator = denominator * (other - x) % PRIME
        weights.append(numerator * pow(denominator, -1, PRIME) % PRIME)
    return weights


class SignedMaskingSession(MaskingSession):
    """A party's side of signed sums.

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
