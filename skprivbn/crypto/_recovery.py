"""Masked sums that survive the loss of parties: double masking of Bonawitz et al.

One sum takes five rounds, the coordinator being the only one everybody talks to:

1. keys       every party makes a fresh key pair and signs the public key;
2. shares     it shares its private key and a fresh self-mask seed among all, sealed;
3. deliver    it gets the shares meant for it, and with them the list of its peers;
   (the operation itself: vector + self mask + pairwise masks with these peers)
4. survivors  the parties sign the list of those whose masked vector arrived;
5. unmask     given the signatures of at least `threshold` of them, a party hands out
              its share of the self mask of every survivor and of the key of every
              lost party: never both for the same party.

The coordinator then removes self masks of survivors and the masks that survivors have
in common with lost parties. Keys and seeds live for one sum. A party that was left out
of a sum is left out of all later ones.
"""

import secrets
from collections import Counter
from dataclasses import replace
from weakref import WeakKeyDictionary

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from skprivbn.crypto._base import HiddenVector, SumSession
from skprivbn.crypto._derive import KeyStream, expand, extract, join_fields
from skprivbn.crypto._masking import (
    bytes_of_value,
    mask,
    open_masked,
    open_total,
    read_limbs,
    sum_of_masks,
    write_limbs,
)
from skprivbn.crypto._numbers import (
    add_limbs,
    limbs_from_bytes,
    subtract_limbs,
    wrap_limbs,
)
from skprivbn.crypto._shamir import SHARE_BYTES, join_shares, split_secret
from skprivbn.exceptions import ProtocolError

_KEY_BYTES, _SIGNATURE_BYTES, _SEAL_BYTES = 32, 64, 16

# Who has been in every sum so far, by context: new keys bring nobody back.
_present = WeakKeyDictionary()


class RecoverySession(SumSession):
    """A party's side. Each step is accepted once, in this order, within a round.

    Parameters
    ----------
    context : PartyContext
    backend : MaskingBackend
    """

    kind = "masked"
    #: step -> names in its payload
    STEPS = {
        "keys": set(),
        "shares": {"keys"},
        "deliver": {"shares"},
        "survivors": {"survivors"},
        "unmask": {"signatures"},
    }

    def __init__(self, context, backend):
        super().__init__(context, backend)
        self._context = context
        self._threshold = backend.n_needed(len(self._roster))
        #: who is in the total, as this party and a quorum signed
        self._signed = ()
        self._present = _present.setdefault(context, set(self._roster))
        self._forget_round()

    def _forget_round(self):
        self._private = self._seed = None
        self._public_keys, self._received = {}, {}
        self._survivors = ()
        self._next_step = "keys"

    def exchange(self, vector, operation):
        """Make keys, share them, hide, sign who is left, unmask; read the total."""
        answer = yield self.control("keys", {})
        answer = yield self.control("shares", answer)
        self.control("deliver", answer)
        answer = yield {"vector": self.hide(vector, operation).to_payload()}
        answer = yield self.control("survivors", answer)
        answer = yield self.control("unmask", answer)
        return self.read_total(answer)

    def control(self, step, payload):
        """Answer one step of the sum protocol."""
        # "keys" is always welcome: it drops an unfinished sum and its secrets.
        if step not in self.STEPS or step not in ("keys", self._next_step):
            raise ProtocolError(f"step {step!r} of a recoverable sum is out of turn")
        if payload.keys() != self.STEPS[step]:
            raise ProtocolError(f"malformed step {step!r} of a recoverable sum")
        # Unless this step succeeds, only a new round will do.
        self._next_step = "keys"
        return getattr(self, f"_answer_{step}")(**payload)

    def _answer_keys(self):
        self._forget_round()
        self._round += 1
        self._private = X25519PrivateKey.generate()
        public = self._private.public_key().public_bytes_raw()
        self._next_step = "shares"
        return {
            "round": self._round,
            "binding": self._binding,
            "public": public,
            "signature": self._context.sign(self._key_text(self._name, public)),
        }

    def _answer_shares(self, keys):
        self._check_quorum(keys)
        for name, key in keys.items():
            if not isinstance(key, dict) or key.keys() != {"public", "signature"}:
                raise ProtocolError("malformed key")
            self._context.verify(
                name, self._key_text(name, key["public"]), key["signature"]
            )
            self._public_keys[name] = key["public"]
        own_public = self._private.public_key().public_bytes_raw()
        if self._public_keys[self._name] != own_public:
            raise ProtocolError("this party's own key was replaced")
        self._seed = secrets.token_bytes(32)
        points = [_point(self._roster, name) for name in keys]
        key_shares, seed_shares = (
            split_secret(secret, self._threshold, points)
            for secret in (self._private.private_bytes_raw(), self._seed)
        )
        sealed = {}
        for name, key_share, seed_share in zip(keys, key_shares, seed_shares):
            if name == self._name:
                self._received[name] = (key_share, seed_share)
            else:
                sealed[name] = self._sealer(self._name, name).encrypt(
                    bytes(12), key_share + seed_share, None
                )
        self._next_step = "deliver"
        return {"shares": sealed}

    def _answer_deliver(self, shares):
        self._check_quorum({**shares, self._name: None})
        if self._name in shares or not shares.keys() <= self._public_keys.keys():
            raise ProtocolError("shares of a party without a key")
        for name, sealed in shares.items():
            try:
                opened = self._sealer(name, self._name).decrypt(bytes(12), sealed, None)
            except (InvalidTag, TypeError):
                raise ProtocolError("a share was damaged on its way") from None
            self._received[name] = (opened[:SHARE_BYTES], opened[SHARE_BYTES:])
        self._next_step = "hide"
        return {}

    def hide(self, vector, operation):
        """Hide a vector, once the keys of this sum are there."""
        if self._next_step != "hide":
            raise ProtocolError("a recoverable sum starts with fresh keys")
        self._signed = ()
        return super().hide(vector, operation)

    def _next_number(self):
        # counted by the first step
        self._next_step = "survivors"
        return self._round

    def hide_integers(self, integers, number, key):
        """Mask integers twice: pairwise, and with a mask of one's own."""
        masks = [(_stream(self._seed), True)]
        for peer in self._received.keys() - {self._name}:
            secret = _pair_secret(self._private, self._public_keys[peer])
            masks.append((_stream(secret), _adds(self._roster, self._name, peer)))
        return [mask(integers, number, key, masks)]

    def _answer_survivors(self, survivors):
        self._check_quorum(survivors)
        if not set(survivors) <= self._received.keys():
            raise ProtocolError("a survivor took no part in this sum")
        self._survivors = tuple(survivors)
        self._next_step = "unmask"
        return {"signature": self._context.sign(self._survivor_text())}

    def _answer_unmask(self, signatures):
        if not signatures.keys() <= set(self._survivors):
            raise ProtocolError("signed by a party that is no survivor")
        if len(signatures) < self._threshold:
            raise ProtocolError("too few parties signed the list of survivors")
        for name, signature in signatures.items():
            self._context.verify(name, self._survivor_text(), signature)
        seeds, keys = {}, {}
        for name, (key_share, seed_share) in self._received.items():
            if name in self._survivors:
                seeds[name] = seed_share
            else:
                keys[name] = key_share
        # Who was left out of a sum stays out. The difference of two sums, one with and
        # one without a party, would be that party's vector.
        self._present.intersection_update(self._survivors)
        # Kept until the total is verified, which must be over these and nobody else.
        self._signed = self._survivors
        self._forget_round()
        return {"seeds": seeds, "keys": keys}

    def _counted(self):
        if not self._signed:
            raise ProtocolError("a total without a signed list of its parties")
        return self._signed

    def reveal_integers(self, total, n_integers):
        """Read a sum, which is no secret any more."""
        return open_total(total, n_integers)

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

    def _survivor_text(self):
        return join_fields("survivors", self._binding, self._round, *self._survivors)

    def _sealer(self, sender, receiver):
        """Cipher for the one message of shares from sender to receiver this round."""
        peer = receiver if sender == self._name else sender
        info = join_fields("shares", self._binding, self._round, sender, receiver)
        pair_key = self._context.pair_key(peer, b"mask recovery")
        return ChaCha20Poly1305(expand(extract(pair_key), info))


class CoveredRecoverySession(RecoverySession):
    """A party's side of sums that the coordinator cannot read.

    Every party covers its vector by a mask that all parties know. Once they have signed
    who is in the total, they take off the covers of these.
    """

    def __init__(self, context, backend):
        super().__init__(context, backend)
        self._covers = {
            name: self._group.stream("cover", self._binding, name)
            for name in self._roster
        }

    def hide_integers(self, integers, number, key):
        """Cover integers, then mask them twice."""
        integers = integers.copy()
        piece = self._covers[self._name].piece(number, key, 16 * integers.shape[1])
        add_limbs(integers, limbs_from_bytes(piece))
        return super().hide_integers(integers, number, key)

    def reveal_integers(self, total, n_integers):
        """Take off the covers of the parties that are in the total."""
        integers = open_masked(total, n_integers)
        streams = [self._covers[name] for name in self._counted()]
        for covers in sum_of_masks(streams, total.round, total.key, n_integers):
            subtract_limbs(integers, covers)
        wrap_limbs(integers[:, : total.length], bytes_of_value(total.key))
        return integers


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
        return _enough(_readable(said, one), threshold, step)

    keys = read(said, _read_key, "keys")
    for name in minority({n: (k["round"], k["binding"]) for n, k in keys.items()}):
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
    hidden = read((yield _to_deliver(sent)), HiddenVector.from_reply, "vectors")
    for name in backend.find_unlike(hidden):
        del hidden[name]
    survivors = [name for name in roster if name in _enough(hidden, threshold, "sum")]
    signed = read(
        (yield dict.fromkeys(survivors, {"survivors": survivors})),
        lambda reply: _of_size(reply, "signature", _SIGNATURE_BYTES),
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


def _readable(said, read):
    """Return what can be read; who answers garbage is as good as lost."""
    made = {}
    for name, reply in said.items():
        try:
            made[name] = read(reply)
        except (ProtocolError, LookupError, TypeError, ValueError):
            continue
    return made


def _to_deliver(sent):
    """Return the shares meant for each party."""
    return {
        name: {
            "shares": {
                sender: reply["shares"][name]
                for sender, reply in sent.items()
                if sender != name
            }
        }
        for name in sent
    }


def recoverable_sum(backend, federation, operation, payload):
    """Coordinator's side of one sum; parties lost on the way are left out of it.

    Parameters
    ----------
    backend : MaskingBackend
    federation : Federation
    operation : str
    payload : dict or None

    Returns
    -------
    total : HiddenVector
        Over the survivors, with their number as `addends`.
    """
    roster = tuple(federation.roster)
    threshold = backend.n_needed(len(roster))

    def ask(step, to=None, read=None, **content):
        payload = {"step": step, **content}
        replies = federation.call("backend", payload, to=to, missing="drop", read=read)
        return _enough(replies, threshold, step)

    keys = ask("keys", read=_read_key)
    for name in minority({n: (k["round"], k["binding"]) for n, k in keys.items()}):
        federation.lose(name, "backend", "garbage")
        del keys[name]
    signed_keys = {
        name: {"public": key["public"], "signature": key["signature"]}
        for name, key in keys.items()
    }
    sent = ask("shares", to=tuple(keys), read=_read_shares, keys=signed_keys)
    for name in [n for n in sent if sent[n]["shares"].keys() != keys.keys() - {n}]:
        federation.lose(name, "backend", "garbage")
        del sent[name]
    _enough(sent, threshold, "shares")
    hiding = _deliver(federation, sent)
    hidden = federation.call(
        operation, payload, to=hiding, missing="drop", read=HiddenVector.from_reply
    )
    for name in backend.find_unlike(hidden):
        federation.lose(name, operation, "garbage")
        del hidden[name]
    _enough(hidden, threshold, operation)
    survivors = tuple(name for name in roster if name in hidden)
    signed = ask(
        "survivors",
        to=survivors,
        read=lambda reply: _of_size(reply, "signature", _SIGNATURE_BYTES),
        survivors=list(survivors),
    )
    shares = ask(
        "unmask",
        to=tuple(signed),
        read=lambda reply: _read_opened(reply, hidden, sent),
        signatures=signed,
    )
    total = backend.add(list(hidden.values()))
    publics = {name: keys[name]["public"] for name in sent}
    givers = {name: shares[name] for name in list(shares)[:threshold]}
    return _remove_masks(total, roster, publics, set(hidden), givers)


def _of_size(reply, word, size):
    if type(reply[word]) is not bytes or len(reply[word]) != size:
        raise ProtocolError(f"a {word} has the wrong size")
    return reply[word]


def _read_key(reply):
    """Return a party's answer to the first step, if it is one."""
    _of_size(reply, "public", _KEY_BYTES)
    _of_size(reply, "signature", _SIGNATURE_BYTES)
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


def minority(answers):
    """Name the parties that say otherwise than most."""
    (usual, n_usual), *_ = Counter(answers.values()).most_common(1)
    if 2 * n_usual <= len(answers):
        raise ProtocolError("the parties are not in the same round")
    return [name for name, answer in answers.items() if answer != usual]


def _enough(replies, threshold, step):
    if len(replies) < threshold:
        raise ProtocolError(
            f"only {len(replies)} parties are left at {step!r}; the masks can be "
            f"removed only while {threshold} are there"
        )
    return replies


def _deliver(federation, sent):
    """Hand every party the shares meant for it; return those still there."""
    each = {
        name: {
            "step": "deliver",
            "shares": {
                sender: reply["shares"][name]
                for sender, reply in sent.items()
                if sender != name
            },
        }
        for name in sent
    }
    return tuple(federation.call("backend", each=each, missing="drop"))


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
            streams.append(_stream(_pair_secret(private, publics[survivor])))
    for streams, change in ((added, subtract_limbs), (subtracted, add_limbs)):
        for masks in sum_of_masks(streams, total.round, total.key, limbs.shape[1]):
            change(limbs, masks)
    values, tail = limbs[:, : total.length], limbs[:, total.length :]
    return replace(total, parts=[write_limbs(values, tail, bytes_of_value(total.key))])


def _stream(secret):
    """The one mask that comes from a secret made for one sum."""
    return KeyStream(expand(extract(secret), b"mask", KeyStream.KEY_BYTES))


def _point(roster, name):
    """Where a party's shares are evaluated: its place in the roster, from 1."""
    return roster.index(name) + 1


def _adds(roster, name, peer):
    """Of two parties the earlier one adds their common mask, the other subtracts."""
    return roster.index(name) < roster.index(peer)


def _pair_secret(private, peer_public):
    try:
        return private.exchange(X25519PublicKey.from_public_bytes(peer_public))
    except (ValueError, TypeError):
        raise ProtocolError("not a public key") from None
