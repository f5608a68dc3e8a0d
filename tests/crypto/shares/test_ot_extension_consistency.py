"""Receivers that choose inconsistently, or make wrong trees of keys, are caught."""

import os

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from skprivbn.crypto.shares import Conversation
from skprivbn.crypto.shares import _base_ot as base
from skprivbn.crypto.shares import _ot_extension as extension
from skprivbn.crypto.shares._base_ot import (
    grow_trees,
    puncture_trees,
    receive_base_keys,
    send_base_keys,
)
from skprivbn.crypto.shares._hash import TweakableHash, random_words
from skprivbn.crypto.shares._ot_extension import LinearHash, OTReceiver, OTSender
from skprivbn.exceptions import ProtocolError

M = 200
REFUSED = "choices of transfers differ"


def make_pair(choices=None, change_sums=None, names=(b"a to b", b"a to b")):
    """A sender and a receiver, whose base transfers have these choices."""
    pairs = [(os.urandom(16), os.urandom(16)) for _ in range(128)]
    if choices is None:
        choices = random_words(128, np.uint8) & 1
    keys = [pair[bit] for pair, bit in zip(pairs, choices)]
    leaves, sums = grow_trees(pairs)
    if change_sums is not None:
        sums = change_sums(sums)
    known, places = puncture_trees(sums, keys, choices)
    hashes = [TweakableHash(b"session", name) for name in names]
    return OTSender(known, places, hashes[0]), OTReceiver(leaves, hashes[1])


def digit_of(sender, tree):
    """The digit of the secret that belongs to a tree of keys."""
    return int(sender.secret[tree // 16]) >> 4 * (tree % 16) & 15


def slow_product(x, y):
    """Of two blocks in GF(2^128), bit by bit, as NIST SP 800-38D has it."""
    z, v = 0, int.from_bytes(y, "big")
    for i in reversed(range(128)):
        if int.from_bytes(x, "big") >> i & 1:
            z ^= v
        v = v >> 1 ^ (0xE1 << 120 if v & 1 else 0)
    return z.to_bytes(16, "big")


def xor(a, b):
    return bytes(x ^ y for x, y in zip(a, b))


@pytest.mark.parametrize("n_bytes", [16, 17, 50])
def test_the_hash_is_a_polynomial_in_its_key(n_bytes):
    key, columns = os.urandom(16), random_words((3, n_bytes), np.uint8)
    point = Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(bytes(16))
    for column, hashed in zip(columns, LinearHash(key)(columns)):
        data, total = column.tobytes() + bytes(-n_bytes % 16), bytes(16)
        for i in range(0, len(data), 16):
            total = slow_product(xor(total, data[i : i + 16]), point)
        # the block of lengths follows, of which all columns have the same
        assert slow_product(total, point) == hashed.tobytes()


def test_the_hash_is_linear():
    hash_ = LinearHash(os.urandom(16))
    one, other = random_words((2, 5, 100), np.uint8)
    np.testing.assert_array_equal(hash_(one ^ other), hash_(one) ^ hash_(other))
    assert not hash_(one ^ one).any()


class OtherStreams:
    """A receiver's streams, changed."""

    def __init__(self, streams, change):
        self._streams, self._change = streams, change

    def next_rows(self, n_bytes):
        total, t = self._streams.next_rows(n_bytes)
        return self._change(total.copy(), t.copy())


def other_choice(tree, byte=20):
    def change(total, t):
        total[tree, byte] ^= 4
        return total, t

    return change


@pytest.mark.parametrize("tree", [0, 31])
@pytest.mark.parametrize("byte", [0, 16, 40])
def test_a_choice_that_differs_in_one_tree_is_found(tree, byte):
    sender, receiver = make_pair()
    receiver._streams = OtherStreams(receiver._streams, other_choice(tree, byte))
    message, _ = receiver.rows(random_words(M, np.uint8) & 1)
    if digit_of(sender, tree) == 0:
        # what was told of this tree changes nothing: the receiver guessed it to be 0
        sender.rows(message, M)
        return
    with pytest.raises(ProtocolError, match=REFUSED):
        sender.rows(message, M)
    # it has no secret left that could be asked again
    assert not sender.secret.any() and not sender._select.any()
    assert not sender._streams._ciphers


@pytest.mark.parametrize("guess", range(16))
def test_who_gets_away_with_it_has_guessed_a_digit(guess):
    # four bits of the secret, with a chance of 2^-4
    tree, byte = 3, 20
    bits = (guess >> np.arange(4) & 1).astype(np.uint8)

    def change(total, t):
        total[tree, byte] ^= 4
        # the columns that it has if the guess is right
        t[4 * tree : 4 * tree + 4, byte] ^= 4 * bits
        return total, t

    for right in (True, False):
        sender, receiver = make_pair()
        while (digit_of(sender, tree) == guess) != right:
            sender, receiver = make_pair()
        receiver._streams = OtherStreams(receiver._streams, change)
        message, _ = receiver.rows(np.zeros(M, dtype=np.uint8))
        if right:
            sender.rows(message, M)
        else:
            with pytest.raises(ProtocolError, match=REFUSED):
                sender.rows(message, M)


@pytest.mark.parametrize("side", [0, 1])
def test_wrong_trees_of_keys_are_found_by_whom_they_concern(side):
    # one bit of the secret, with a chance of a half
    number = 4 * 7 + 2

    def change(sums):
        changed = bytearray(sums)
        changed[16 * (2 * number + side)] ^= 1
        return bytes(changed)

    choices = random_words(128, np.uint8) & 1
    for choice in (side, 1 - side):
        choices[number] = choice
        sender, receiver = make_pair(choices, change)
        message, _ = receiver.rows(random_words(M, np.uint8) & 1)
        if choice == side:
            with pytest.raises(ProtocolError, match=REFUSED):
                sender.rows(message, M)
        else:
            sender.rows(message, M)


def test_a_proof_is_bound_to_its_place_and_direction():
    sender, receiver = make_pair(names=(b"a to b", b"b to a"))
    with pytest.raises(ProtocolError, match=REFUSED):
        sender.rows(receiver.rows(np.zeros(M))[0], M)
    sender, receiver = make_pair()
    message, _ = receiver.rows(np.zeros(M))
    sender.rows(message, M)
    with pytest.raises(ProtocolError, match=REFUSED):
        sender.rows(message, M)


def test_a_proof_says_nothing_about_choices(monkeypatch):
    def hashes_of_choices(n_runs):
        _, receiver = make_pair()
        messages = [receiver.rows(np.ones(M))[0] for _ in range(n_runs)]
        return [message[-48:-32] for message in messages], messages, receiver

    hashes, *_ = hashes_of_choices(2)
    assert hashes[0] != hashes[1]

    def known_choices(found, messages, receiver):
        """Whether the choices were all one, by who has seen the messages only."""
        column = np.full((1, 16 + M // 8), 255, dtype=np.uint8)
        column[0, :16] = 0
        return [
            LinearHash(receiver.hash.derive(i + 1, message[:-48])[:16])(
                column
            ).tobytes()
            == hashed
            for i, (hashed, message) in enumerate(zip(found, messages))
        ]

    assert not any(known_choices(*hashes_of_choices(2)))
    # the twin whose first choices are not random
    monkeypatch.setattr(
        extension, "random_words", lambda shape, dtype: np.zeros(shape, dtype=dtype)
    )
    assert all(known_choices(*hashes_of_choices(2)))


def test_a_peer_that_sends_back_what_it_got_has_other_keys(monkeypatch):
    def keys_in_common():
        session, choices = os.urandom(16), [0, 1, 1, 0]
        talks = [Conversation("a", ("a", "b"), session) for _ in range(2)]
        offering = send_base_keys(talks[0], "b", len(choices))
        (offer,) = next(offering)["b"]["messages"]
        choosing = receive_base_keys(talks[1], "b", choices)
        next(choosing)
        with pytest.raises(StopIteration) as chosen:
            choosing.send({"b": {"messages": [offer]}})
        (answers,) = talks[1]._take_outbox()["b"]["messages"]
        with pytest.raises(StopIteration) as offered:
            offering.send({"b": {"messages": [answers]}})
        pairs, keys = offered.value.value[0], chosen.value.value[0]
        return sum(pair[c] == key for pair, c, key in zip(pairs, choices, keys))

    assert keys_in_common() == 0
    # the twin whose keys do not name the direction
    honest = base._key
    monkeypatch.setattr(base, "_key", lambda index, _, *rest: honest(index, (), *rest))
    assert keys_in_common() == 4
