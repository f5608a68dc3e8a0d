"""Base transfers, their extension and the hash, against slow independent versions."""

import os

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from nacl import bindings as sodium

from skprivbn.crypto.shares import Conversation, open_links, run_together
from skprivbn.crypto.shares._base_ot import receive_base_keys, send_base_keys
from skprivbn.crypto.shares._hash import TweakableHash, random_words
from skprivbn.crypto.shares._ot_extension import (
    OTReceiver,
    OTSender,
    transpose_bits,
)
from skprivbn.exceptions import ProtocolError


def slow_aes(key, block):
    return Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(block)


def xor(a, b):
    return bytes(x ^ y for x, y in zip(a, b))


def test_aes_is_the_standard():
    # FIPS-197, appendix C.1
    key = bytes.fromhex("000102030405060708090a0b0c0d0e0f")
    plain = bytes.fromhex("00112233445566778899aabbccddeeff")
    assert slow_aes(key, plain).hex() == "69c4e0d86a7b0430d8cdb78070b4c55a"


def test_hash_is_tmmo():
    import hashlib

    session, domain = b"session", b"domain"
    key = hashlib.sha256(b"skprivbn fixed-key permutation" + session).digest()[:16]
    upper = hashlib.sha256(b"skprivbn tweak domain" + session + domain).digest()[:8]
    x = random_words((5, 2))
    hashed = TweakableHash(session, domain)(x, 1000, 3)
    for i in range(5):
        once = slow_aes(key, x[i].tobytes())
        for b in range(3):
            tweak = (1000 + 3 * i + b).to_bytes(8, "little") + upper
            expected = xor(slow_aes(key, xor(once, tweak)), once)
            assert hashed[i, b].tobytes() == expected


def test_transpose():
    rows = random_words((128, 40), np.uint8)
    bits = np.unpackbits(rows, axis=1, bitorder="little").T
    expected = np.packbits(bits, axis=1, bitorder="little")
    assert transpose_bits(rows).tobytes() == expected.tobytes()


def run_base(choices):
    session = os.urandom(16)

    def side(name, protocol, *arguments):
        talk = Conversation(name, ("a", "b"), session)
        keys = yield from protocol(talk, "b" if name == "a" else "a", *arguments)
        yield from talk.finish()
        return keys

    return run_together(
        {
            "a": side("a", send_base_keys, len(choices)),
            "b": side("b", receive_base_keys, choices),
        }
    )


def test_base_transfers_give_the_chosen_key_only():
    choices = random_words(20, np.uint8) & 1
    keys = run_base(choices)
    for choice, pair, chosen in zip(choices, keys["a"], keys["b"]):
        assert chosen == pair[choice] and chosen != pair[1 - choice]
    assert len({key for pair in keys["a"] for key in pair}) == 40


@pytest.mark.parametrize(
    "point",
    [
        bytes(32),
        b"\x01" + bytes(31),  # the identity
        # a point of order 8
        bytes.fromhex(
            "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"
        ),
        b"\xff" * 32,
    ],
)
def test_invalid_points_are_refused(point):
    talk = Conversation("b", ("a", "b"), b"s")
    side = receive_base_keys(talk, "a", [0, 1])
    next(side)
    with pytest.raises(ProtocolError, match="invalid point"):
        side.send({"a": {"messages": [point]}})


def test_answers_do_not_depend_on_the_choice_in_distribution():
    # every answer is a fresh point of the group, whatever the choice
    for choice in (0, 1):
        talk = Conversation("b", ("a", "b"), b"s")
        side = receive_base_keys(talk, "a", [choice] * 8)
        next(side)
        offer = sodium.crypto_scalarmult_ed25519_base_noclamp(b"\x05" + bytes(31))
        with pytest.raises(StopIteration):
            side.send({"a": {"messages": [offer]}})
        (answers,) = talk._outbox["a"]
        points = {answers[i : i + 32] for i in range(0, len(answers), 32)}
        assert len(points) == 8
        assert all(map(sodium.crypto_core_ed25519_is_valid_point, points))


def slow_rows(keys, n_bytes):
    return [
        Cipher(algorithms.AES(key), modes.CTR(bytes(16)))
        .encryptor()
        .update(bytes(n_bytes))
        for key in keys
    ]


def make_pair():
    pairs = [(os.urandom(16), os.urandom(16)) for _ in range(128)]
    secret = random_words(128, np.uint8) & 1
    chosen = [pair[bit] for pair, bit in zip(pairs, secret)]
    hashes = [TweakableHash(b"session", b"one direction") for _ in range(2)]
    return OTSender(secret, chosen, hashes[0]), OTReceiver(pairs, hashes[1]), pairs


@pytest.mark.parametrize("m", [1, 7, 8, 1000, (1 << 15) + 9])
def test_extension_gives_the_chosen_mask(m):
    sender, receiver, _ = make_pair()
    for n_blocks in (1, 3):
        choices = random_words(m, np.uint8) & 1
        message, masks = receiver.choose(choices, n_blocks)
        zero, one = sender.masks(message, m, n_blocks)
        expected = np.where(choices[:, None, None].astype(bool), one, zero)
        np.testing.assert_array_equal(masks, expected)
        assert not (zero == one).any()


def test_extension_is_iknp():
    _, receiver, pairs = make_pair()
    choices = random_words(16, np.uint8) & 1
    message, masks = receiver.choose(choices, 1)
    streams = [slow_rows(side, 2) for side in zip(*pairs)]
    packed = np.packbits(choices, bitorder="little").tobytes()
    sent = [xor(xor(t, other), packed) for t, other in zip(*streams)]
    assert message == b"".join(sent)
    bits = np.unpackbits(
        np.frombuffer(b"".join(streams[0]), dtype=np.uint8).reshape(128, 2),
        axis=1,
        bitorder="little",
    )
    rows = np.ascontiguousarray(np.packbits(bits.T, axis=1, bitorder="little"))
    hashed = TweakableHash(b"session", b"one direction")(rows.view(np.uint64), 0)
    np.testing.assert_array_equal(masks, hashed)


def repeats(messages):
    """Whether two messages share an aligned 16-byte block."""
    blocks = [m[i : i + 16] for m in messages for i in range(0, len(m) - 15, 16)]
    return len(set(blocks)) < len(blocks)


def test_streams_never_restart():
    _, receiver, pairs = make_pair()
    choices = np.zeros(1024, dtype=np.uint8)
    assert not repeats([receiver.choose(choices, 1)[0] for _ in range(3)])
    # the twin that restarts its streams for every message is found out
    twins = [OTReceiver(pairs, receiver.hash) for _ in range(2)]
    assert repeats([twin.choose(choices, 1)[0] for twin in twins])


def test_a_message_of_wrong_length_is_refused():
    sender, receiver, _ = make_pair()
    message, _ = receiver.choose(np.zeros(10), 1)
    with pytest.raises(ProtocolError, match="wrong length"):
        sender.masks(message + b"x", 10, 1)


def test_two_sessions_share_nothing():
    transcripts = []
    for _ in range(2):
        said, session = [], os.urandom(16)

        def side(name, session=session):
            talk = Conversation(name, ("a", "b"), session)
            yield from open_links(talk)
            yield from talk.finish()

        run_together(
            {name: side(name) for name in "ab"},
            lambda s, r, p, said=said: said.extend(p["messages"]),
        )
        transcripts.append({m[i : i + 32] for m in said for i in range(0, len(m), 32)})
    assert not transcripts[0] & transcripts[1]


def test_directions_and_purposes_have_tweaks_of_their_own():
    session = os.urandom(16)

    def side(name):
        talk = Conversation(name, ("a", "b"), session)
        opened = yield from open_links(talk)
        yield from talk.finish()
        return opened

    opened = run_together({name: side(name) for name in "ab"})
    link, other = opened["a"]["b"], opened["b"]["a"]
    hashes = (link.sender.hash, link.receiver.hash, link.garbling)
    theirs = (other.receiver.hash, other.sender.hash, other.garbling)
    assert len({h._domain for h in hashes}) == 3
    assert [h._domain for h in hashes] == [h._domain for h in theirs]
