"""Circuits on XOR-shared bits among any number of parties.

Goldreich, Micali, Wigderson (STOC 1987): XOR and NOT are local. For every AND there is
a triple, shares of two random bits and of their product, made beforehand by oblivious
transfers between every pair (Beaver, "Efficient multiparty protocols using circuit
randomization", CRYPTO 1991); both inputs are then opened, each hidden by a random bit:
one round. Safe as long as one party does not collude. ANDs with one input in common
share the transfers: of a random bit with several others, as of a bit with a string.
"""

import numpy as np

from skprivbn.crypto.shares._conversation import is_array
from skprivbn.crypto.shares._hash import random_words
from skprivbn.exceptions import ProtocolError


def make_triples(talk, links, group, n_products):
    """Share triples: bits a, up to eight bits b for each, and all ``a & b``.

    Parameters
    ----------
    talk, links : Conversation and dict of Link
    group : sequence of str
    n_products : ndarray of int of shape (n,)
        Bits b of every triple, from 1 to 8: a transfer serves all of them.

    Returns
    -------
    triples : ndarray of uint8 of shape (3, n)
        A bit, and two bytes of which the lowest bits are used.
    """
    peers = [peer for peer in group if peer != talk.name]
    n, used = len(n_products), np.arange(8) < n_products[:, None]
    a, b = random_words((2, n), np.uint8)
    in_use = _bytes_of(used)
    a, b = a & 1, b & in_use
    rows = {}
    for peer in peers:
        message, rows[peer] = links[peer].receiver.rows(a)
        talk.send(peer, message)
    c = b & -a
    for peer in peers:
        sender = links[peer].sender
        rows_of_peer = sender.rows((yield from talk.receive(peer)), n)
        zero, one = (x[:, 0] for x in sender.numbers(rows_of_peer, np.uint8, 1))
        talk.send(peer, np.packbits(_bits_of(zero ^ one ^ b)[used]))
        c ^= zero
    for peer in peers:
        correction = np.zeros(used.shape, dtype=np.uint8)
        sent = yield from talk.receive(peer)
        correction[used] = _unpack(sent, (np.count_nonzero(used),))
        masks = links[peer].receiver.numbers(rows.pop(peer), np.uint8, 1)
        c ^= masks[:, 0] ^ (_bytes_of(correction) & -a)
    return np.stack([a, b, c & in_use])


def _bits_of(numbers):
    return np.unpackbits(numbers[:, None], axis=1, bitorder="little")


def _bytes_of(bits):
    return np.packbits(bits, axis=1, bitorder="little")[:, 0]


class _Fan:
    """Which triple and which of its bits serve each of several ANDs; public.

    Parameters
    ----------
    of : ndarray of int of shape (n_rows,)
        The left operand of every AND.
    """

    def __init__(self, of):
        order = np.argsort(of, kind="stable")
        n_times = np.bincount(of)
        n_slots = -(-n_times // 8)
        starts = np.cumsum(n_times) - n_times
        rank = np.empty(len(of), dtype=int)
        rank[order] = np.arange(len(of)) - np.repeat(starts, n_times)
        self.slot = (np.cumsum(n_slots) - n_slots)[of] + rank // 8
        self.bit = (rank % 8).astype(np.uint8)[:, None]
        self.owner = np.repeat(np.arange(len(n_slots)), n_slots)
        self.n_products = np.bincount(self.slot)


def _as_rows(a, b, of):
    """Left operands and right ones as rows, and what triples serve them."""
    if of is None:
        return a.reshape(1, -1), b.reshape(1, -1), _Fan(np.zeros(1, dtype=int))
    return a, b, _Fan(of)


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
        As :class:`AndCounter` noted for the circuit; each is used once.
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

    def conjunction(self, a, b, of=None):
        """AND of arrays of equal shape, or of ``a[of]`` and b: one round."""
        shape = b.shape
        a, b, fan = _as_rows(a, b, of)
        n_slots, n_items = len(fan.owner), a.shape[1]
        used, self._triples = np.split(self._triples, [n_slots * n_items], axis=1)
        if used.shape[1] != n_slots * n_items:
            raise ProtocolError("the circuit has more ANDs than triples were made for")
        x, y, xy = used.reshape(3, n_slots, n_items)
        hidden_a = a[fan.owner] ^ x
        x, y, xy = (part[fan.slot] for part in (x, y, xy))
        y, xy = (y >> fan.bit) & 1, (xy >> fan.bit) & 1
        hidden = np.concatenate([hidden_a, b ^ y])
        opened = yield from open_bits(self._talk, self._group, hidden)
        d, e = opened[:n_slots][fan.slot], opened[n_slots:]
        # (x + d)(y + e)
        return (xy ^ (d & y) ^ (e & x) ^ (d & e & self._first)).reshape(shape)

    def open(self, a):
        """Tell everybody the bits."""
        return (yield from open_bits(self._talk, self._group, a))


class AndCounter:
    """Engine that computes nothing and notes what triples a circuit needs."""

    def __init__(self, n_parties):
        self.n_parties = n_parties
        self._noted = [np.empty(0, dtype=int)]

    @property
    def n_products(self):
        """ANDs that each triple serves, one triple after another."""
        return np.concatenate(self._noted)

    def inputs(self, bits):
        """Return wires of everybody's own bits."""
        return [np.zeros(bits.shape, dtype=np.uint8)] * self.n_parties

    def invert(self, a):
        """NOT."""
        return a

    def conjunction(self, a, b, of=None):
        """AND of arrays of equal shape, or of ``a[of]`` and b."""
        yield from ()
        rows, _, fan = _as_rows(a, b, of)
        self._noted.append(np.repeat(fan.n_products, rows.shape[1]))
        return np.zeros(b.shape, dtype=np.uint8)


def without_messages(circuit):
    """Result of a circuit under an engine that has nobody to talk to."""
    try:
        next(circuit)
    except StopIteration as stop:
        return stop.value
    raise ValueError("the engine waits for messages")


def open_circuit(talk, links, group, circuit):
    """Tell the group the bits that a circuit ends with; make the triples for it.

    Parameters
    ----------
    talk, links : Conversation and dict of Link
    group : sequence of str
    circuit : callable
        From an engine to a generator that returns bits. What it does depends on
        nothing secret.
    """
    counter = AndCounter(len(group))
    without_messages(circuit(counter))
    triples = yield from make_triples(talk, links, group, counter.n_products)
    bits = yield from circuit(SharedBits(talk, group, triples))
    return (yield from open_bits(talk, group, bits))


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


def add_noise(shares, noise):
    """Return own shares modulo 2^64 of numbers with one's own noise, integers, added.

    For numbers that go on into :class:`SharedArgmax` or a lookup. Before they are
    opened themselves, shares have to be made anew: :func:`open_noisy_numbers`.
    """
    if shares.dtype != np.uint64:
        raise TypeError("noise needs shares modulo 2^64")
    return shares + np.asarray(noise, dtype=np.int64).astype(np.uint64)


def open_noisy_numbers(talk, group, shares, noise):
    """Tell the group the sum of additive shares and of everybody's noise.

    Parameters
    ----------
    talk : Conversation
    group : sequence of str
    shares : ndarray of uint64
        Own shares modulo 2^64.
    noise : ndarray of int64
        Own noise, of the same shape.

    Returns
    -------
    numbers : ndarray of int64
    """
    # A share may be a whole count, or nothing but noise: opened as it is, the parties'
    # noise could be told apart and taken away.
    shares = yield from refresh_numbers(talk, group, add_noise(shares, noise))
    return (yield from open_numbers(talk, group, shares)).astype(np.int64)
