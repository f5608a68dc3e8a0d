"""Circuits on XOR-shared bits among any number of parties.

Goldreich, Micali, Wigderson (STOC 1987): XOR and NOT are local. For every AND there is
a triple, shares of two random bits and of their product, made beforehand by oblivious
transfers between every pair (Beaver, "Efficient multiparty protocols using circuit
randomization", CRYPTO 1991); both inputs are then opened, each hidden by a random bit:
one round. Safe as long as one party does not collude.
"""

import numpy as np

from skprivbn.crypto.shares._conversation import is_array
from skprivbn.crypto.shares._hash import random_words
from skprivbn.exceptions import ProtocolError


def make_triples(talk, links, group, n):
    """Share `n` triples: bits a, b and ``a & b``, (3, n)."""
    peers = [peer for peer in group if peer != talk.name]
    a, b = random_words((2, n), np.uint8) & 1
    rows = {}
    for peer in peers:
        message, rows[peer] = links[peer].receiver.rows(a)
        talk.send(peer, message)
    c = a & b
    for peer in peers:
        sender = links[peer].sender
        rows_of_peer = sender.rows((yield from talk.receive(peer)), n)
        zero, one = (x[:, 0] & 1 for x in sender.numbers(rows_of_peer, np.uint8, 1))
        talk.send(peer, np.packbits(zero ^ one ^ b))
        c ^= zero
    for peer in peers:
        correction = _unpack((yield from talk.receive(peer)), b.shape)
        masks = links[peer].receiver.numbers(rows.pop(peer), np.uint8, 1)
        c ^= (masks[:, 0] & 1) ^ (a & correction)
    return np.stack([a, b, c])


def _unpack(packed, shape):
    """Bits that a peer has sent."""
    n = int(np.prod(shape))
    if not is_array(packed, (-(-n // 8),), np.uint8):
        raise ProtocolError("a peer sent another number of bits")
    return np.unpackbits(packed, count=n).reshape(shape)


def open_bits(talk, group, bits):
    """Tell the group the bits of which everybody has an XOR share."""
    peers, packed = [peer for peer in group if peer != talk.name], np.packbits(bits)
    for peer in peers:
        talk.send(peer, packed)
    for peer in peers:
        bits = bits ^ _unpack((yield from talk.receive(peer)), bits.shape)
    return bits


class SharedBits:
    """Engine whose wires are this party's XOR shares, arrays of 0 and 1.

    Parameters
    ----------
    talk : Conversation
    group : sequence of str
        The parties that hold shares.
    triples : ndarray of shape (3, n)
        As many as the circuit has ANDs; each is used once.
    """

    def __init__(self, talk, group, triples):
        self._talk, self._group = talk, tuple(group)
        self._triples = triples
        self._first = np.uint8(talk.name == group[0])

    def inputs(self, bits):
        """Return wires of everybody's own bits, in order.

        What a party knows is shared already: its share are the bits, the others' are
        zero. Nothing is opened but sums with random bits of all parties.
        """
        zeros = np.zeros(bits.shape, dtype=np.uint8)
        own = bits.astype(np.uint8)
        return [own if name == self._talk.name else zeros for name in self._group]

    def constant(self, bits):
        """Return wires for public bits."""
        return bits.astype(np.uint8) * self._first

    def invert(self, a):
        """NOT."""
        return a ^ self._first

    def conjunction(self, a, b):
        """AND of two arrays of equal shape: one round."""
        (x, y, xy), self._triples = np.split(self._triples, [a.size], axis=1)
        if len(x) != a.size:
            raise ProtocolError("the circuit has more ANDs than triples were made for")
        hidden = np.stack([a.reshape(-1) ^ x, b.reshape(-1) ^ y])
        d, e = yield from open_bits(self._talk, self._group, hidden)
        # (x + d)(y + e)
        return (xy ^ (d & y) ^ (e & x) ^ (d & e & self._first)).reshape(a.shape)

    def open(self, a):
        """Tell everybody the bits."""
        return (yield from open_bits(self._talk, self._group, a))


class AndCounter:
    """Engine that computes nothing and counts the ANDs of a circuit."""

    def __init__(self, n_parties):
        self.n_parties, self.n_ands = n_parties, 0

    def inputs(self, bits):
        """Return wires of everybody's own bits."""
        return [np.zeros(bits.shape, dtype=np.uint8)] * self.n_parties

    def invert(self, a):
        """NOT."""
        return a

    def conjunction(self, a, b):
        """AND of two arrays of equal shape."""
        yield from ()
        self.n_ands += a.size
        return np.zeros(a.shape, dtype=np.uint8)


def open_numbers(talk, group, shares):
    """Tell the group the sum of additive shares (modulo the word size)."""
    peers = [peer for peer in group if peer != talk.name]
    for peer in peers:
        talk.send(peer, shares)
    for peer in peers:
        theirs = yield from talk.receive_array(peer, shares.shape, shares.dtype)
        shares = shares + theirs
    return shares


def refresh_numbers(talk, group, shares):
    """Make additive shares of the same numbers that say nothing one by one.

    Every two parties exchange random numbers, which one adds and the other subtracts.
    To be done before shares are opened that hold more than randomness and the result,
    such as one party's own count or its part of a noise.
    """
    peers = [peer for peer in group if peer != talk.name]
    for peer in peers:
        part = random_words(shares.shape, shares.dtype)
        talk.send(peer, part)
        shares = shares - part
    for peer in peers:
        theirs = yield from talk.receive_array(peer, shares.shape, shares.dtype)
        shares = shares + theirs
    return shares
