"""Which of several shared numbers is the largest: the index, and nothing else.

Two parties use a garbled circuit (three messages); more use shared bits.
"""

import numpy as np

from skprivbn.crypto.shares._circuits import (
    add,
    add_all,
    index_width,
    pick_largest,
)
from skprivbn.crypto.shares._garbling import Evaluator, Garbler
from skprivbn.crypto.shares._gmw import SharedBits
from skprivbn.crypto.shares._products import (
    multiply_by_my_bits,
    multiply_by_their_bits,
)
from skprivbn.exceptions import ProtocolError

__all__ = ["shared_argmax"]

#: numbers in a garbled circuit, unless one list has more; a circuit is one message
_BATCH = 128


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
        Bits of the numbers in two's complement.

    Returns
    -------
    winners : ndarray of int64
    """
    bits = _to_bits(shares, width)
    positions = np.concatenate([np.arange(size) for size in sizes])
    index = _to_bits(positions.astype(np.uint64), index_width(sizes))
    if not talk.peers:
        ends = np.cumsum(sizes)
        lists = np.split(shares.astype(np.int64), ends[:-1])
        return np.array([values.argmax() for values in lists])
    if len(talk.roster) > 2:
        # every round costs the same for many lists: all at once
        winner = yield from _by_shared_bits(talk, links, bits, index, sizes)
    else:
        first = talk.name == talk.roster[0]
        protocol = _as_garbler if first else _as_evaluator
        winners = []
        for part, lengths in _batches(sizes):
            items = bits[:, part], index[:, part]
            winners.append((yield from protocol(talk, links, *items, lengths)))
        winner = np.concatenate(winners, axis=1)
    return (winner.astype(np.int64) << np.arange(len(winner))[:, None]).sum(axis=0)


def _batches(sizes):
    """Yield lists that go into one circuit: (slice of items, sizes)."""
    start, batch = 0, []
    for size in sizes:
        if batch and sum(batch) + size > _BATCH:
            yield slice(start, start + sum(batch)), batch
            start, batch = start + sum(batch), []
        batch.append(size)
    yield slice(start, start + sum(batch)), batch


def _to_bits(numbers, width):
    bits = np.unpackbits(
        numbers.astype("<u8")[:, None].view(np.uint8), axis=1, bitorder="little"
    )
    return np.ascontiguousarray(bits[:, :width].T)


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
    return (yield from talk.receive(peer))


def _as_evaluator(talk, links, bits, index, sizes):
    (peer,) = talk.peers
    none = np.zeros((bits.size, 2), dtype=np.uint64)
    mine = yield from multiply_by_my_bits(
        talk, links, [peer], bits.reshape(-1, 1).astype(bool), none, xor=True
    )
    message = yield from talk.receive(peer)
    if message["inputs"].shape != (*bits.shape, 2):
        raise ProtocolError("a garbled circuit has the wrong inputs")
    evaluator = Evaluator(links[peer].garbling, message["tables"])
    values = yield from add(
        evaluator, message["inputs"], mine[0].reshape(*bits.shape, 2)
    )
    winner = yield from pick_largest(evaluator, values, message["index"], sizes)
    opened = (winner[..., 0] & np.uint64(1)).astype(np.uint8) ^ message["decoding"]
    talk.send(peer, opened)
    return opened


def _by_shared_bits(talk, links, bits, index, sizes):
    engine = SharedBits(talk, links, talk.roster)
    inputs = yield from engine.share(bits)
    values = yield from add_all(engine, inputs)
    winner = yield from pick_largest(engine, values, engine.constant(index), sizes)
    return (yield from engine.open(winner))
