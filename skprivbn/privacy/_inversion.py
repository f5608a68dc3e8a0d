"""Exact sampling by comparing random bits with enclosed probabilities.

A probability is never a float here. It is a pair of integers below and above
2^bits times its value, for as many bits as a comparison needs; functions that give such
pairs come from integer arithmetic and MPFR's directed rounding. A uniform real number
is drawn from the operating system, its first 64 bits at once. When they lie clear of
all bounds they decide the outcome, whatever bits would follow; otherwise (almost never)
more bits are drawn and tighter bounds computed until they decide.

So outcomes are distributed exactly as if a uniform real number had been compared with
the real probabilities.
"""

import os
import secrets
from contextlib import contextmanager

import gmpy2
import numpy as np
from gmpy2 import mpz

WORD = 64


def random_words(size):
    """Return 64-bit words from the operating system."""
    return np.frombuffer(os.urandom(8 * size), dtype="<u8")


def enclose(function, bits):
    """Return integers below and above 2^bits times a real number in [0, 1].

    Parameters
    ----------
    function : callable
        ``function(down, up)`` computes the number in MPFR inside ``with down:`` and
        ``with up:`` blocks, which round toward and away from the wanted side.
    bits : int
        Precision.
    """
    down, up = _rounding(gmpy2.RoundDown, bits), _rounding(gmpy2.RoundUp, bits)
    low, high = function(down, up), function(up, down)
    with down():
        low = mpz(gmpy2.floor(gmpy2.mul_2exp(low, bits)))
    with up():
        high = mpz(gmpy2.ceil(gmpy2.mul_2exp(high, bits)))
    return low, high


def _rounding(mode, bits):
    @contextmanager
    def rounding():
        with gmpy2.context(gmpy2.get_context(), precision=bits + WORD, round=mode):
            yield

    return rounding


def decide(prefix, bounds, bits=WORD):
    """Draw whether a uniform number with these first bits lies below a probability.

    Parameters
    ----------
    prefix : int
        First `bits` bits of the uniform number.
    bounds : callable
        ``bounds(bits)`` encloses the probability in units of 2^-bits.
    bits : int, default=64
        Length of the prefix.
    """
    while True:
        low, high = bounds(bits)
        if prefix < low:
            return True
        if prefix >= high:
            return False
        prefix, bits = (prefix << WORD) | secrets.randbits(WORD), bits + WORD


class TableSampler:
    """Draws from a distribution on 0, 1, 2, ... by inverting its distribution function.

    A draw is one search in a sorted table, so its time tells next to nothing.

    Parameters
    ----------
    bounds : callable
        ``bounds(bits)`` yields, for k = 0, 1, ..., integers below and above 2^bits
        times the probability of at most k.
    prefix_bits : int, default=64
        Bits drawn at first; fewer only to test what happens when they do not decide.
    """

    def __init__(self, bounds, prefix_bits=WORD):
        self._bounds, self._prefix_bits = bounds, prefix_bits
        lower, upper = [], []
        for low, high in bounds(prefix_bits):
            if high >> prefix_bits:  # the rest of the tail is left to _decide
                break
            lower.append(int(low))
            upper.append(int(high))
        self._lower = np.array(lower, dtype=np.uint64)
        self._upper = np.array([0, *upper], dtype=np.uint64)

    def sample(self, size):
        """Return `size` independent draws as int64."""
        prefix = random_words(size) >> np.uint64(WORD - self._prefix_bits)
        # the first entry whose lower bound lies above every completion of the prefix
        draws = np.searchsorted(self._lower, prefix, side="right")
        # ... while its predecessor's upper bound lies below every completion
        decided = (draws < self._lower.size) & (self._upper[draws] <= prefix)
        draws = draws.astype(np.int64)
        for i in np.flatnonzero(~decided):
            draws[i] = self._decide(int(prefix[i]))
        return draws

    def _decide(self, prefix):
        bits = self._prefix_bits
        while True:
            prefix, bits = (prefix << WORD) | secrets.randbits(WORD), bits + WORD
            before = 0
            for k, (low, high) in enumerate(self._bounds(bits)):
                if low > prefix:
                    if before <= prefix:
                        return k
                    break  # an upper bound is in the way: more bits
                if high >> bits:
                    break
                before = high
