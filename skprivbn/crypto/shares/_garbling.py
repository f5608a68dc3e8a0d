"""Half-gates garbling of whole layers of gates at once.

Zahur, Rosulek, Evans, "Two Halves Make a Whole" (EUROCRYPT 2015): two 128-bit rows
per AND gate, XOR and NOT for free. A wire is a 128-bit label; an array of wires is an
array with a last axis of two words. The engines offer what circuits need: ``^`` on
arrays, :meth:`invert`, :meth:`conjunction` (a generator, so that the same circuit also
runs under :class:`~skprivbn.crypto.shares._gmw.SharedBits`).
"""

import numpy as np

from skprivbn.crypto.shares._conversation import is_array
from skprivbn.crypto.shares._hash import random_words
from skprivbn.exceptions import ProtocolError

_ONE = np.uint64(1)


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
