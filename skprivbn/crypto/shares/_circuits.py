"""Circuits of logarithmic depth on arrays of numbers, for any engine.

A number is an array of wires with the bits on axis 0, lowest first, and the items on
axis 1. `engine` offers ``conjunction`` (AND, a generator) and ``invert`` (NOT); XOR is
``^`` on the arrays. Where one row is needed for several ANDs, ``conjunction(a, b, of)``
says for every row of b which one of a it is: that may cost less than as many ANDs.

:class:`Garbler` and :class:`Evaluator` are the engines of two parties, by half-gates
garbling of whole layers of gates (Zahur, Rosulek, Evans, "Two Halves Make a Whole",
EUROCRYPT 2015): two 128-bit rows per AND gate, XOR and NOT for free. A wire is a
128-bit label; an array of wires is an array with a last axis of two words. Any number
of parties run the same circuits under :class:`~skprivbn.crypto.shares._gmw.SharedBits`.
"""

import numpy as np

from skprivbn.crypto.shares._conversation import is_array
from skprivbn.crypto.shares._hash import random_words
from skprivbn.crypto.shares._ot_extension import (
    multiply_by_my_bits,
    multiply_by_their_bits,
)
from skprivbn.exceptions import ProtocolError

_ONE = np.uint64(1)


def add(engine, a, b):
    """Sum modulo 2^width, by a Sklansky prefix adder."""
    width = len(a)
    half_sum = a ^ b
    carry = yield from engine.conjunction(a, b)
    spread = half_sum.copy()
    distance = 1
    while distance < width:
        high = np.array([i for i in range(width) if i & distance])
        low = (high // distance) * distance - 1
        # blocks that start at bit 0 have no carry to pass on any more
        inner = high >= 2 * distance
        tops, carried = np.unique(low, return_inverse=True)
        inner_tops, passed = np.unique(low[inner], return_inverse=True)
        both = yield from engine.conjunction(
            np.concatenate([carry[tops], spread[inner_tops]]),
            spread[np.concatenate([high, high[inner]])],
            np.concatenate([carried, len(tops) + passed]),
        )
        # generate and propagate exclude each other, so XOR is OR
        carry[high] = carry[high] ^ both[: len(high)]
        spread[high[inner]] = both[len(high) :]
        distance *= 2
    total = half_sum.copy()
    total[1:] = half_sum[1:] ^ carry[:-1]
    return total


def add_all(engine, numbers):
    """Sum of several numbers modulo 2^width; carries run once only."""
    if len(numbers) == 1:
        return numbers[0]
    return (yield from add(engine, *(yield from _save_carries(engine, numbers))))


def _save_carries(engine, numbers):
    """Two numbers with the same sum, all threes of a level at a time."""
    numbers = list(numbers)
    while len(numbers) > 2:
        whole = len(numbers) // 3 * 3
        a, b, c = (np.stack(numbers[i:whole:3], axis=1) for i in range(3))
        # the majority of three bits is what they carry over
        majority = a ^ (yield from engine.conjunction(a ^ b, a ^ c))
        carry = np.concatenate([majority[:1] ^ majority[:1], majority[:-1]])
        two = (a ^ b ^ c, carry)
        saved = [part[:, i] for i in range(whole // 3) for part in two]
        numbers = saved + numbers[whole:]
    return numbers


def sign_of_sum(engine, numbers):
    """Whether the sum of two or more numbers is negative: wires of shape (items,)."""
    a, b = yield from _save_carries(engine, numbers)
    sign, spread = a[-1] ^ b[-1], (a ^ b)[:-1]
    carry = yield from engine.conjunction(a[:-1], b[:-1])
    while len(carry) > 1:
        # pair neighbours; an odd lowest bit waits
        odd = len(carry) % 2
        low, high = slice(odd, None, 2), slice(odd + 1, None, 2)
        upper = spread[high]
        both = yield from engine.conjunction(
            upper,
            np.concatenate([carry[low], spread[low]]),
            np.tile(np.arange(len(upper)), 2),
        )
        n = len(both) // 2
        carry = np.concatenate([carry[:odd], carry[high] ^ both[:n]])
        spread = np.concatenate([spread[:odd], both[n:]])
    return sign ^ carry[0]


def undefeated(engine, later_wins, pairs, n_items):
    """Which items win all their duels: wires of shape (items,).

    Parameters
    ----------
    engine : object
    later_wins : wires of shape (n_pairs,)
    pairs : ndarray of shape (2, n_pairs)
        The earlier and the later item of every duel. Public.
    n_items : int
    """
    won = np.concatenate([engine.invert(later_wins), later_wins])
    # the results of every item one below another; who has fewer wins the rest
    item = pairs.ravel()
    order = np.argsort(item, kind="stable")
    n_duels = np.bincount(item, minlength=n_items)
    place = np.arange(len(item)) - np.repeat(np.cumsum(n_duels) - n_duels, n_duels)
    ones = engine.invert(np.zeros(1, dtype=won.dtype))
    results = np.repeat(ones, max(1, n_duels.max()) * n_items)
    results = results.reshape(-1, n_items)
    results[place, item[order]] = won[order]
    while len(results) > 1:
        half = len(results) // 2
        both = yield from engine.conjunction(results[:half], results[half : 2 * half])
        results = np.concatenate([both, results[2 * half :]])
    return results[0]


def is_greater(engine, a, b):
    """Whether a > b as two's complement numbers: wires of shape (1, items)."""
    a, b = a.copy(), b.copy()
    a[-1], b[-1] = engine.invert(a[-1]), engine.invert(b[-1])
    differ = a ^ b
    equal = engine.invert(differ)
    greater = yield from engine.conjunction(a, differ)
    while len(greater) > 1:
        odd = len(greater) % 2
        # pair neighbours, the higher decides unless equal; an odd top bit waits
        top = slice(len(greater) - odd, None)
        high, low = slice(1, None, 2), slice(0, len(greater) - odd, 2)
        if odd:
            high = slice(1, len(greater) - 1, 2)
        upper = equal[high]
        both = yield from engine.conjunction(
            upper,
            np.concatenate([greater[low], equal[low]]),
            np.tile(np.arange(len(upper)), 2),
        )
        n = len(both) // 2
        greater = np.concatenate([greater[high] ^ both[:n], greater[top]])
        equal = np.concatenate([both[n:], equal[top]])
    return greater


def index_width(sizes):
    """Bits of an index into the longest list."""
    return max(1, (max(sizes) - 1).bit_length())


def pick_largest(engine, values, index, sizes):
    """Index of the largest number of each list; the first of equals.

    Parameters
    ----------
    engine : object
    values : wires of shape (width, sum of sizes)
        The lists one after another.
    index : wires of shape (index_width(sizes), sum of sizes)
        Each item's position in its own list.
    sizes : list of int

    Returns
    -------
    winner : wires of shape (index_width(sizes), len(sizes))
    """
    width = len(values)
    items = np.concatenate([values, index])
    ends = np.cumsum(sizes)
    lists = [list(range(end - size, end)) for size, end in zip(sizes, ends)]
    while max(map(len, lists)) > 1:
        left = [i for columns in lists for i in columns[: len(columns) // 2 * 2 : 2]]
        right = [i for columns in lists for i in columns[1::2]]
        waiting = [columns[-1] for columns in lists if len(columns) % 2]
        switch = yield from is_greater(
            engine, items[:width, right], items[:width, left]
        )
        change = items[:, right] ^ items[:, left]
        change = yield from engine.conjunction(
            switch, change, np.zeros(len(change), dtype=int)
        )
        items = np.concatenate([items[:, left] ^ change, items[:, waiting]], axis=1)
        lists = _renumber(lists, len(left))
    return items[width:, [columns[0] for columns in lists]]


def _renumber(lists, n_winners):
    """Columns of each list after a round: winners first, then those who waited."""
    renumbered, winner, waiting = [], 0, n_winners
    for columns in lists:
        pairs, odd = divmod(len(columns), 2)
        renumbered.append([*range(winner, winner + pairs), *([waiting] * odd)])
        winner, waiting = winner + pairs, waiting + odd
    return renumbered


def _select(bits, blocks):
    """Blocks where the bit is 1, zero elsewhere."""
    return blocks & -bits[:, None]


class Garbler:
    """Makes a garbled circuit; wires are the labels that mean 0.

    Parameters
    ----------
    hash_ : TweakableHash
        Source of tweaks, two per AND gate, shared by all circuits of a pair.
    """

    def __init__(self, hash_):
        self._hash = hash_
        self.delta = random_words(2)
        self.delta[0] |= _ONE
        self.tables = []

    def fresh_wires(self, shape):
        """Return new wires."""
        return random_words((*shape, 2))

    def labels(self, wires, bits):
        """Return the labels that stand for `bits` on `wires`."""
        return wires ^ (self.delta & -bits.astype(np.uint64)[..., None])

    def decoding_bits(self, wires):
        """Return the bits that turn labels of `wires` into values."""
        return (wires[..., 0] & _ONE).astype(np.uint8)

    def invert(self, a):
        """NOT."""
        return a ^ self.delta

    def conjunction(self, a, b, of=None):
        """AND of arrays of wires of equal shape, or of ``a[of]`` and b."""
        yield from ()
        a, shape = a if of is None else a[of], b.shape
        a, b = a.reshape(-1, 2), b.reshape(-1, 2)
        m = len(a)
        first = self._hash.take_tweaks(2 * m)
        inputs = np.concatenate([a, b])
        zero, one = (
            self._hash(x, first)[:, 0].reshape(2, m, 2)
            for x in (inputs, inputs ^ self.delta)
        )
        p_a, p_b = a[:, 0] & _ONE, b[:, 0] & _ONE
        generator_half = zero[0] ^ one[0] ^ _select(p_b, self.delta)
        evaluator_half = zero[1] ^ one[1] ^ a
        self.tables.append(np.stack([generator_half, evaluator_half]))
        out = zero[0] ^ _select(p_a, generator_half)
        out ^= zero[1] ^ _select(p_b, evaluator_half ^ a)
        return out.reshape(shape)


class Evaluator:
    """Evaluates a garbled circuit; wires are the labels of the actual values.

    Parameters
    ----------
    hash_ : TweakableHash
        As the garbler's.
    tables : ndarray of shape (2, n_and, 2)
        The garbler's rows, in the order of the circuit.
    """

    def __init__(self, hash_, tables):
        self._hash = hash_
        self._tables, self._used = tables, 0

    def invert(self, a):
        """NOT: the meaning changes on the garbler's side only."""
        return a

    def conjunction(self, a, b, of=None):
        """AND of arrays of wires of equal shape, or of ``a[of]`` and b."""
        yield from ()
        a, shape = a if of is None else a[of], b.shape
        a, b = a.reshape(-1, 2), b.reshape(-1, 2)
        m = len(a)
        rows = self._tables[:, self._used : self._used + m]
        self._used += m
        if not is_array(rows, (2, m, 2), np.uint64):
            raise ProtocolError("a garbled circuit has too few tables")
        first = self._hash.take_tweaks(2 * m)
        hashed = self._hash(np.concatenate([a, b]), first)[:, 0].reshape(2, m, 2)
        out = hashed[0] ^ _select(a[:, 0] & _ONE, rows[0])
        out ^= hashed[1] ^ _select(b[:, 0] & _ONE, rows[1] ^ a)
        return out.reshape(shape)


def garble(talk, links, circuit, bits, given):
    """Garbler's side of two: make a circuit and send it; return the output's shape.

    Parameters
    ----------
    talk, links : Conversation and dict of Link
    circuit : generator function
        Takes an engine, and the wires of the garbler's bits, of the evaluator's, of
        which there are as many, and of `given`.
    bits, given : ndarray of uint8
        Own inputs.
    """
    (peer,) = talk.peers
    garbler = Garbler(links[peer].garbling)
    mine, further = garbler.fresh_wires(bits.shape), garbler.fresh_wires(given.shape)
    # sharing delta times the evaluator's bits leaves it with its labels, and this
    # party with the labels of 0
    delta = np.broadcast_to(garbler.delta, (bits.size, 2))
    theirs = yield from multiply_by_their_bits(talk, links, peer, 1, delta, xor=True)
    made = yield from circuit(garbler, mine, theirs[0].reshape(mine.shape), further)
    talk.send(
        peer,
        {
            "inputs": garbler.labels(mine, bits),
            "given": garbler.labels(further, given),
            "tables": np.concatenate(garbler.tables, axis=1),
            "decoding": garbler.decoding_bits(made),
        },
    )
    return made.shape[:-1]


def evaluate(talk, links, circuit, bits, shape):
    """Evaluator's side of :func:`garble`: return bits; `given` has this shape."""
    (peer,) = talk.peers
    none = np.zeros((bits.size, 2), dtype=np.uint64)
    mine = yield from multiply_by_my_bits(
        talk, links, [peer], bits.reshape(-1, 1).astype(bool), none, xor=True
    )
    message = yield from talk.receive(peer)
    for name, expected in (("inputs", bits.shape), ("given", shape)):
        if not is_array(message[name], (*expected, 2), np.uint64):
            raise ProtocolError("a garbled circuit has the wrong inputs")
    evaluator = Evaluator(links[peer].garbling, message["tables"])
    own = mine[0].reshape(*bits.shape, 2)
    made = yield from circuit(evaluator, message["inputs"], own, message["given"])
    if not is_array(message["decoding"], made.shape[:-1], np.uint8):
        raise ProtocolError("a garbled circuit has the wrong outputs")
    return (made[..., 0] & _ONE).astype(np.uint8) ^ message["decoding"]
