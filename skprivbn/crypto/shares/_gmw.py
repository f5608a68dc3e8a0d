"""Circuits on XOR-shared bits among any number of parties.

Goldreich, Micali, Wigderson (STOC 1987): XOR and NOT are local, an AND of two arrays
is one exchange of oblivious transfers between every pair. Safe as long as one party
does not collude.
"""

import numpy as np

from skprivbn.crypto.shares._hash import random_words
from skprivbn.crypto.shares._products import multiply_shared

__all__ = ["SharedBits", "open_numbers", "refresh_numbers"]


class SharedBits:
    """Engine whose wires are this party's XOR shares, arrays of 0 and 1.

    Parameters
    ----------
    talk, links : Conversation and dict of Link
    group : sequence of str
        The parties that hold shares.
    """

    def __init__(self, talk, links, group):
        self._talk, self._links, self._group = talk, links, tuple(group)
        self._peers = [peer for peer in group if peer != talk.name]
        self._first = np.uint8(talk.name == group[0])

    def share(self, bits):
        """Share this party's own bits with everybody; return all inputs in order."""
        inputs, kept = {}, bits.astype(np.uint8)
        for peer in self._peers:
            part = random_words(bits.shape, np.uint8) & 1
            self._talk.send(peer, np.packbits(part))
            kept = kept ^ part
        inputs[self._talk.name] = kept
        for peer in self._peers:
            packed = yield from self._talk.receive(peer)
            inputs[peer] = np.unpackbits(packed, count=bits.size).reshape(bits.shape)
        return [inputs[name] for name in self._group]

    def constant(self, bits):
        """Return wires for public bits."""
        return bits.astype(np.uint8) * self._first

    def invert(self, a):
        """NOT."""
        return a ^ self._first

    def conjunction(self, a, b):
        """AND of two arrays of equal shape: one exchange."""
        product = yield from multiply_shared(
            self._talk, self._links, self._group, a.reshape(-1), b.reshape(-1, 1)
        )
        return (product & 1).reshape(a.shape)

    def open(self, a):
        """Tell everybody the bits."""
        for peer in self._peers:
            self._talk.send(peer, np.packbits(a))
        for peer in self._peers:
            packed = yield from self._talk.receive(peer)
            a = a ^ np.unpackbits(packed, count=a.size).reshape(a.shape)
        return a


def open_numbers(talk, group, shares):
    """Tell the group the sum of additive shares (modulo the word size)."""
    peers = [peer for peer in group if peer != talk.name]
    for peer in peers:
        talk.send(peer, shares)
    for peer in peers:
        shares = shares + (yield from talk.receive(peer))
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
        shares = shares + (yield from talk.receive(peer))
    return shares
