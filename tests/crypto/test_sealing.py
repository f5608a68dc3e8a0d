"""Known answers of the standards, and what a relay must not be able to do."""

import pickle

import nacl.bindings
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand

from skprivbn.crypto.sealing import (
    EphemeralKey,
    Identity,
    PairSecret,
    SealedChannel,
    check_signature,
)
from skprivbn.exceptions import ProtocolError

SESSION, ROSTER = b"s" * 16, b"r" * 32


def test_x25519_known_answer_of_rfc_7748():
    alice = EphemeralKey(
        bytes.fromhex(
            "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a"
        )
    )
    bob = EphemeralKey(
        bytes.fromhex(
            "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb"
        )
    )
    shared = "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"
    assert alice.exchange(bob.public).hex() == shared
    assert bob.exchange(alice.public).hex() == shared


def test_ed25519_known_answer_of_rfc_8032():
    identity = Identity(
        bytes.fromhex(
            "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"
        )
    )
    assert identity.public.hex() == (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    )
    assert identity.sign().hex() == (
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590"
        "a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"
    )


def pair(session=SESSION, roster=(ROSTER, ROSTER)):
    keys = EphemeralKey(), EphemeralKey()
    ends = [(name, b"id-" + name, key.public) for name, key in zip([b"a", b"b"], keys)]
    return [
        PairSecret(
            keys[i].exchange(keys[1 - i].public),
            session,
            roster[i],
            ends[i],
            ends[1 - i],
        )
        for i in range(2)
    ]


def channels(**options):
    a, b = pair(**options)
    return SealedChannel(a, SESSION, "a", "b"), SealedChannel(b, SESSION, "b", "a")


def framed(*fields):
    return b"".join(len(f).to_bytes(4, "big") + f for f in fields)


def test_derived_keys_are_hkdf_of_rfc_5869():
    ends = (b"a", b"id-a", b"key-a"), (b"b", b"id-b", b"key-b")
    secret = PairSecret(b"shared", SESSION, ROSTER, *ends)
    info = framed(b"skprivbn", SESSION, ROSTER, *ends[0], *ends[1])
    hkdf = HKDF(hashes.SHA256(), length=32, salt=None, info=info)
    key = hkdf.derive(b"shared")
    expand = HKDFExpand(hashes.SHA256(), length=32, info=b"purpose")
    assert secret.key(b"purpose") == expand.derive(key)
    assert secret.key(b"other purpose") != secret.key(b"purpose")


def test_sealing_is_chacha20_poly1305_of_rfc_8439():
    secret, _ = pair()
    channel = SealedChannel(secret, SESSION, "a", "b")
    sealed = [channel.seal("op", b"first"), channel.seal("op", b"second")]
    ends = framed(b"seal", SESSION, b"a", b"b")
    key = secret.key(ends)
    for count, message in enumerate([b"first", b"second"]):
        nonce = count.to_bytes(12, "little")
        header = ends + framed(b"op", nonce)
        expected = nacl.bindings.crypto_aead_chacha20poly1305_ietf_encrypt(
            message, header, nonce, key
        )
        assert sealed[count] == expected


def test_messages_arrive_in_both_directions():
    a, b = channels()
    for text in (b"one", b"two", b""):
        assert b.open("op", a.seal("op", text)) == text
        assert a.open("op", b.seal("op", text)) == text


def test_the_same_message_never_looks_the_same():
    a, _ = channels()
    assert a.seal("op", b"x") != a.seal("op", b"x")


def test_a_twin_that_uses_a_nonce_again_shows_how_messages_differ():
    one, other = b"patient 17 is ill", b"patient 17 is well"[:17]
    difference = bytes(x ^ y for x, y in zip(one, other))

    def seen(a, again):
        first = a.seal("op", one)
        if again:
            a._sent -= 1
        return bytes(x ^ y for x, y in zip(first, a.seal("op", other)))[: len(one)]

    assert seen(channels()[0], again=True) == difference
    assert seen(channels()[0], again=False) != difference


def replay(a, b):
    first = a.seal("op", b"x")
    b.open("op", first)
    b.open("op", first)


def reorder(a, b):
    a.seal("op", b"x")
    b.open("op", a.seal("op", b"y"))


def reflect(a, b):
    a.open("op", a.seal("op", b"x"))


def other_operation(a, b):
    b.open("other", a.seal("op", b"x"))


def flip_a_bit(a, b):
    sealed = bytearray(a.seal("op", b"x"))
    sealed[0] ^= 1
    b.open("op", bytes(sealed))


def truncate(a, b):
    b.open("op", a.seal("op", b"x")[:5])


@pytest.mark.parametrize(
    "attack", [replay, reorder, reflect, other_operation, flip_a_bit, truncate]
)
def test_a_relay_cannot(attack):
    with pytest.raises(ProtocolError, match="not authentic"):
        attack(*channels())


def test_parties_with_different_rosters_share_no_key():
    a, b = channels(roster=(ROSTER, b"x" * 32))
    with pytest.raises(ProtocolError):
        b.open("op", a.seal("op", b"x"))


def test_low_order_points_are_refused():
    with pytest.raises(ProtocolError):
        EphemeralKey().exchange(bytes(32))


def test_signatures_bind_every_field():
    identity = Identity()
    signature = identity.sign(b"ab", b"c")
    check_signature(identity.public, signature, b"ab", b"c")
    for fields in [(b"a", b"bc"), (b"abc",), (b"ab", b"d")]:
        with pytest.raises(ProtocolError):
            check_signature(identity.public, signature, *fields)
    with pytest.raises(ProtocolError):
        check_signature(b"short", signature, b"ab", b"c")
    # bytes must not move between signature and message
    with pytest.raises(ProtocolError):
        check_signature(identity.public, signature[:-1], signature[-1:] + b"ab", b"c")


def test_a_bad_signature_stays_bad_after_a_good_one():
    """Good checks are remembered, bad ones are not mistaken for them."""
    identity, other = Identity(), Identity()
    signature = identity.sign(b"text")
    for _ in range(2):
        check_signature(identity.public, signature, b"text")
        for public, fields in [(other.public, b"text"), (identity.public, b"texts")]:
            with pytest.raises(ProtocolError):
                check_signature(public, signature, fields)


def test_secrets_cannot_be_pickled():
    for holder in (Identity(), EphemeralKey(), pair()[0], channels()[0]):
        with pytest.raises(TypeError):
            pickle.dumps(holder)
