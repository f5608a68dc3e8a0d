"""Base transfers, their extension and the hash, against slow independent versions."""

import hashlib
import os

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from nacl import bindings as sodium

from skprivbn.crypto.shares import Conversation, open_links, run_together
from skprivbn.crypto.shares._base_ot import (
    grow_trees,
    puncture_trees,
    receive_base_keys,
    send_base_keys,
)
from skprivbn.crypto.shares._hash import TweakableHash, random_words
from skprivbn.crypto.shares._ot_extension import (
    OTReceiver,
    OTSender,
    _Streams,
    transpose_bits,
)
from skprivbn.exceptions import ProtocolError
from tests.crypto.shares._sides import deal_links, messages_of


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
        keys, said = yield from protocol(talk, "b" if name == "a" else "a", *arguments)
        yield from talk.finish()
        return keys, said

    return run_together(
        {
            "a": side("a", send_base_keys, len(choices)),
            "b": side("b", receive_base_keys, choices),
        }
    )


def test_base_transfers_give_the_chosen_key_only():
    choices = random_words(20, np.uint8) & 1
    (pairs, said), (keys, heard) = run_base(choices).values()
    for choice, pair, chosen in zip(choices, pairs, keys):
        assert chosen == pair[choice] and chosen != pair[1 - choice]
    assert len({key for pair in pairs for key in pair}) == 40
    assert said == heard and len(said) == 21 * 32


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


@pytest.mark.parametrize("answer", ["the offer", "the identity", "of small order"])
def test_answers_that_are_no_sum_with_a_point_are_refused(answer):
    # to answer with the offer itself would make the key of choice 1 public
    talk = Conversation("a", ("a", "b"), b"s")
    side = send_base_keys(talk, "b", 1)
    ((offer,),) = (sent["messages"] for sent in next(side).values())
    order_8 = "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"
    said = {
        "the offer": offer,
        "the identity": b"\x01" + bytes(31),
        "of small order": sodium.crypto_core_ed25519_add(offer, bytes.fromhex(order_8)),
    }
    with pytest.raises(ProtocolError, match="invalid point"):
        side.send({"b": {"messages": [said[answer]]}})


def test_answers_do_not_depend_on_the_choice_in_distribution():
    # every answer is a fresh point of the group, whatever the choice
    for choice in (0, 1):
        talk = Conversation("b", ("a", "b"), b"s")
        side = receive_base_keys(talk, "a", [choice] * 8)
        next(side)
        offer = sodium.crypto_scalarmult_ed25519_base_noclamp(b"\x05" + bytes(31))
        with pytest.raises(StopIteration):
            side.send({"a": {"messages": [offer]}})
        (answers,) = talk._outbox["a"]["messages"]
        points = {answers[i : i + 32] for i in range(0, len(answers), 32)}
        assert len(points) == 8
        assert all(map(sodium.crypto_core_ed25519_is_valid_point, points))


def make_pair():
    """A sender and a receiver, and what both are made of."""
    pairs = [(os.urandom(16), os.urandom(16)) for _ in range(128)]
    choices = random_words(128, np.uint8) & 1
    keys = [pair[bit] for pair, bit in zip(pairs, choices)]
    leaves, sums = grow_trees(pairs)
    known, places = puncture_trees(sums, keys, choices)
    hashes = [TweakableHash(b"session", b"one direction") for _ in range(2)]
    sender = OTSender(known, places, hashes[0])
    return sender, OTReceiver(leaves, hashes[1]), (leaves, known, places)


def test_one_leaf_of_every_tree_of_keys_stays_unknown():
    _, _, (leaves, known, places) = make_pair()
    assert len(leaves) == 32 and all(len(keys) == 16 for keys in leaves)
    for keys, theirs, place in zip(leaves, known, places):
        assert theirs[place] is None
        assert keys[:place] == theirs[:place]
        assert keys[place + 1 :] == theirs[place + 1 :]
    assert len({key for keys in leaves for key in keys}) == 512


def test_trees_of_keys_of_another_size_are_refused():
    with pytest.raises(ProtocolError, match="wrong size"):
        puncture_trees(bytes(100), [bytes(16)] * 128, [0] * 128)


@pytest.mark.parametrize("m", [1, 7, 8, 1000, (1 << 15) + 9])
def test_extension_gives_the_chosen_mask(m):
    sender, receiver, _ = make_pair()
    for dtype, length in ((np.uint8, 1), (np.uint64, 5)):
        choices = random_words(m, np.uint8) & 1
        message, rows = receiver.rows(choices)
        masks = receiver.numbers(rows, dtype, length)
        zero, one = sender.numbers(sender.rows(message, m), dtype, length)
        expected = np.where(choices[:, None].astype(bool), one, zero)
        np.testing.assert_array_equal(masks, expected)
        if length > 1:
            assert not (zero == one).any()


def slow_stream(key, n_bits, first=0, label=b""):
    """Bits of a leaf's stream, as AES in counter mode."""
    upper = hashlib.sha256(b"skprivbn streams" + label).digest()[:8]
    counters = [(first + i).to_bytes(8, "little") + upper for i in range(n_bits // 128)]
    data = b"".join(slow_aes(key, block) for block in counters)
    return np.unpackbits(np.frombuffer(data, dtype=np.uint8), bitorder="little")


def test_extension_is_softspoken():
    sender, receiver, (leaves, _, places) = make_pair()
    choices = random_words(128, np.uint8) & 1
    message, rows = receiver.rows(choices)
    found = np.unpackbits(rows.view(np.uint8), axis=1, bitorder="little").T
    # 16 bytes of every row are random choices for the proof, which follows the rows
    sent = np.frombuffer(message[: 32 * 32], dtype=np.uint8).reshape(32, 32)
    assert len(message) == 32 * 32 + 48
    hiding = set()
    for tree, keys in enumerate(leaves):
        streams = [slow_stream(key, 256) for key in keys]
        total = np.bitwise_xor.reduce(streams)
        bits = np.unpackbits(sent[tree], bitorder="little") ^ total
        np.testing.assert_array_equal(bits[128:], choices)
        hiding.add(bits[:128].tobytes())
        for b in range(4):
            chosen = [stream for x, stream in enumerate(streams) if x >> b & 1]
            expected = np.bitwise_xor.reduce(chosen)
            np.testing.assert_array_equal(found[4 * tree + b], expected[128:])
    assert len(hiding) == 1
    # rows differ by the secret, whose digits are the places of the unknown leaves
    difference = rows ^ sender.rows(message, 128)
    np.testing.assert_array_equal(difference, sender.secret * choices[:, None])
    digits = np.unpackbits(sender.secret.view(np.uint8), bitorder="little")
    digits = digits.reshape(32, 4) @ [1, 2, 4, 8]
    assert digits.tolist() == places


def repeats(messages):
    """Whether two messages share an aligned 16-byte block."""
    blocks = [m[i : i + 16] for m in messages for i in range(0, len(m) - 15, 16)]
    return len(set(blocks)) < len(blocks)


def test_streams_never_restart():
    _, receiver, (leaves, *_) = make_pair()
    choices = np.zeros(1024, dtype=np.uint8)
    assert not repeats([receiver.rows(choices)[0] for _ in range(3)])
    # the twin that restarts its streams for every message is found out
    twins = [OTReceiver(leaves, receiver.hash) for _ in range(2)]
    assert repeats([twin.rows(choices)[0] for twin in twins])


def dealt_link():
    return deal_links(("a", "b"), os.urandom(16))["a"]["b"]


def test_branches_have_streams_and_tweaks_of_their_own(monkeypatch):
    choices = np.zeros(1024, dtype=np.uint8)

    def sent_by_branches():
        link = dealt_link()
        branches = [link, link.branch("one"), link.branch("other")]
        # the same label again goes on where it was
        branches.append(link.branch("one"))
        return [branch.receiver.rows(choices)[0] for branch in branches]

    assert not repeats(sent_by_branches())
    link = dealt_link()
    hashes = [
        hash_
        for branch in (link, link.branch("one"), link.branch("other"))
        for hash_ in (branch.sender.hash, branch.receiver.hash, branch.garbling)
    ]
    assert len({hash_._domain for hash_ in hashes}) == 9
    # the twin whose branches all count from zero under one label is found out
    branch = _Streams.branch
    monkeypatch.setattr(_Streams, "branch", lambda self, label: branch(self, b""))
    assert repeats(sent_by_branches())


def test_branches_of_different_branches_differ(monkeypatch):
    choices = random_words((2, 1024), np.uint8) & 1

    def choices_that_differ():
        """What anybody on the way finds out from messages of two branches."""
        link = dealt_link()
        branches = [link.branch(label).branch("counts") for label in ("one", "other")]
        sent = [b.receiver.rows(own)[0] for b, own in zip(branches, choices)]
        first, second = (np.frombuffer(message, np.uint8) for message in sent)
        # after the random choices of the proof
        return np.unpackbits((first ^ second)[16:144], bitorder="little")

    differ = choices[0] ^ choices[1]
    assert not np.array_equal(choices_that_differ(), differ)
    # the twin that forgets of what a branch is a branch
    monkeypatch.setattr(_Streams, "branch", lambda s, x: _Streams(s._ciphers, (x,)))
    assert np.array_equal(choices_that_differ(), differ)
    link = dealt_link()
    assert (
        link.branch("a / b").sender.hash._domain
        != link.branch("a").branch("b").sender.hash._domain
    )


def test_calls_of_branches_are_counted():
    link = dealt_link()
    before = link.n_calls
    branch = link.branch("one")
    branch.receiver.numbers(branch.receiver.rows([0, 1, 1])[1], np.uint8, 1)
    assert link.n_calls == before + 3


def test_branches_of_both_sides_fit():
    ends = deal_links(("a", "b"), os.urandom(16))
    choices = random_words(50, np.uint8) & 1
    for label in ("one", "other", "one"):
        sender = ends["a"]["b"].branch(label).sender
        receiver = ends["b"]["a"].branch(label).receiver
        message, rows = receiver.rows(choices)
        zero, one = sender.numbers(sender.rows(message, 50), np.uint64, 1)
        masks = receiver.numbers(rows, np.uint64, 1)
        np.testing.assert_array_equal(masks, np.where(choices[:, None], one, zero))


def test_a_message_of_wrong_length_is_refused():
    sender, receiver, _ = make_pair()
    message, _ = receiver.rows(np.zeros(10))
    with pytest.raises(ProtocolError, match="wrong length"):
        sender.rows(message + b"x", 10)


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
            lambda s, r, p, said=said: said.extend(messages_of(p)),
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
