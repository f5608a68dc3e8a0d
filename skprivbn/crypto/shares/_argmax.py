"""Which of several shared numbers is the largest: the index, and nothing else.

Two parties use a garbled circuit (three messages); more use shared bits.
"""

import numpy as np

from skprivbn.crypto.shares._argmax_in_blocks import ArgmaxInBlocks
from skprivbn.crypto.shares._circuits import add, index_width, pick_largest
from skprivbn.crypto.shares._conversation import is_array
from skprivbn.crypto.shares._garbling import Evaluator, Garbler
from skprivbn.crypto.shares._hash import to_bits
from skprivbn.crypto.shares._products import (
    multiply_by_my_bits,
    multiply_by_their_bits,
)
from skprivbn.exceptions import ProtocolError

#: numbers in a garbled circuit or compared by shared bits, unless one list has more
_BATCH = 1 << 11


def shared_argmax(talk, links, shares, sizes, width):
    """Open the index of the largest number of each list; the first of equals.

    Parameters
    ----------
    talk, links : Conversation and dict of Link
    shares : ndarray of uint64
        Own additive shares modulo 2^64 of signed numbers, the lists one after
        another.
    sizes : list of int
        Length of each list.
    width : int
        Bits of the numbers in two's complement, less than 64.

    Returns
    -------
    winners : ndarray of int64
    """
    argmax = SharedArgmax(talk.roster, sizes, width)
    yield from argmax.prepare(talk, links)
    return (yield from argmax.open(talk, links, shares))


class SharedArgmax:
    """An argmax whose sizes are known before its numbers.

    Parameters
    ----------
    group : sequence of str
        The parties that hold shares.
    sizes : list of int
    width : int
    """

    def __init__(self, group, sizes, width):
        if width > 63:
            raise ValueError("differences of such numbers do not fit in a machine word")
        self._group, self._width = tuple(group), width
        self._batches = list(_batches(sizes))
        self._prepared = None

    def prepare(self, talk, links):
        """Make what the first batch needs, while there is something to wait for."""
        if len(self._group) > 2:
            yield from self._make_blocks(talk, links, 0)

    def open(self, talk, links, shares):
        """Return the winners, given own shares of the numbers."""
        winners = []
        for number, (part, lengths) in enumerate(self._batches):
            own = shares[part]
            if len(self._group) == 1:
                ends = np.cumsum(lengths)
                lists = np.split(own.astype(np.int64), ends[:-1])
                found = np.array([values.argmax() for values in lists])
            elif len(self._group) == 2:
                found = yield from _by_garbling(talk, links, own, lengths, self._width)
            else:
                if number > 0:
                    yield from self._make_blocks(talk, links, number)
                blocks, self._prepared = self._prepared, None
                found = yield from blocks.open(talk, own)
            winners.append(found)
        return np.concatenate(winners)

    def _make_blocks(self, talk, links, number):
        _, lengths = self._batches[number]
        self._prepared = ArgmaxInBlocks(self._group, lengths, self._width)
        yield from self._prepared.prepare(talk, links)


def _batches(sizes):
    """Yield lists that go into one circuit: (slice of items, sizes)."""
    start, batch = 0, []
    for size in sizes:
        if batch and sum(batch) + size > _BATCH:
            yield slice(start, start + sum(batch)), batch
            start, batch = start + sum(batch), []
        batch.append(size)
    yield slice(start, start + sum(batch)), batch


def _by_garbling(talk, links, shares, sizes, width):
    """Argmax of two parties."""
    bits = to_bits(shares, width)
    positions = np.concatenate([np.arange(size) for size in sizes])
    index = to_bits(positions.astype(np.uint64), index_width(sizes))
    protocol = _as_garbler if talk.name == talk.roster[0] else _as_evaluator
    winner = yield from protocol(talk, links, bits, index, sizes)
    return (winner.astype(np.int64) << np.arange(len(winner))[:, None]).sum(axis=0)


def _as_garbler(talk, links, bits, index, sizes):
    (peer,) = talk.peers
    garbler = Garbler(links[peer].garbling)
    mine, public = garbler.fresh_wires(bits.shape), garbler.fresh_wires(index.shape)
    # sharing delta times the evaluator's bits leaves it with its labels, and this
    # party with the labels of 0
    delta = np.broadcast_to(garbler.delta, (bits.size, 2))
    theirs = yield from multiply_by_their_bits(talk, links, peer, 1, delta, xor=True)
    values = yield from add(garbler, mine, theirs[0].reshape(mine.shape))
    winner = yield from pick_largest(garbler, values, public, sizes)
    talk.send(
        peer,
        {
            "inputs": garbler.labels(mine, bits),
            "index": garbler.labels(public, index),
            "tables": np.concatenate(garbler.tables, axis=1),
            "decoding": garbler.decoding_bits(winner),
        },
    )
    return (yield from talk.receive_array(peer, winner.shape[:-1], np.uint8))


def _as_evaluator(talk, links, bits, index, sizes):
    (peer,) = talk.peers
    none = np.zeros((bits.size, 2), dtype=np.uint64)
    mine = yield from multiply_by_my_bits(
        talk, links, [peer], bits.reshape(-1, 1).astype(bool), none, xor=True
    )
    message = yield from talk.receive(peer)
    if not is_array(message["inputs"], (*bits.shape, 2), np.uint64) or not is_array(
        message["index"], (*index.shape, 2), np.uint64
    ):
        raise ProtocolError("a garbled circuit has the wrong inputs")
    evaluator = Evaluator(links[peer].garbling, message["tables"])
    values = yield from add(
        evaluator, message["inputs"], mine[0].reshape(*bits.shape, 2)
    )
    winner = yield from pick_largest(evaluator, values, message["index"], sizes)
    if not is_array(message["decoding"], winner.shape[:-1], np.uint8):
        raise ProtocolError("a garbled circuit has the wrong outputs")
    opened = (winner[..., 0] & np.uint64(1)).astype(np.uint8) ^ message["decoding"]
    talk.send(peer, opened)
    return opened
