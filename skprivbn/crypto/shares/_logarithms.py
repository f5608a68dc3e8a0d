"""Shares of (x + 1/2) ln x - x for shared x: a Taylor series under Paillier's scheme.

Lindell and Pinkas, "Privacy Preserving Data Mining" (CRYPTO 2000), as Wright and Yang
use it. A garbled circuit writes x as ``2^e (1 + d)`` with d from -1/4 to 1/2, and ends
with shares of ``e ln 2`` and of d. Then ::

    ln x = e ln 2 + d - d^2 / 2 + d^3 / 3 - ...

of which N_TERMS are taken: a polynomial of one party's share of d whose coefficients
the other computes from its own. The former encrypts the powers, the latter adds them
up, hidden by a mask. A product by the same means makes x ln x of x and ln x.

Numbers are shared as integers: masks exceed what they hide by 40 bits or more, and
nothing wraps around. So each party divides its share by itself, one unit off at most.
"""

import secrets
from math import comb, lcm, log

import gmpy2
import numpy as np

from skprivbn.crypto.shares._circuits import add, evaluate, garble
from skprivbn.crypto.shares._hash import random_words, to_bits
from skprivbn.crypto.shares._paillier_counts import (
    ciphertext_bytes,
    from_bytes,
    to_bytes,
)
from skprivbn.exceptions import ProtocolError

#: of the series: what is left out is below 2^-N_TERMS / (N_TERMS + 1)
N_TERMS = 20
#: units of 2^-24 by which a result is off at most, for every x + 1/2
STIRLING_ERROR = 6
#: bits of a result after the point, of ln x itself one less
FRACTION_BITS = 24
#: of x, so that masks of 62 bits hide it by 40
MAX_BITS = 21
_POINT = np.uint64(FRACTION_BITS)
#: bits by which masks of sums exceed them: 40, for up to 2^24 sums
_HIDING = 64
#: numbers in a circuit
_BATCH = 1 << 8
_LCM = lcm(*range(1, N_TERMS + 1))


def shared_stirling(talk, links, packed, shares, n_bits):
    """Share ``(x + 1/2) ln x - x`` of max(x, 1), times 2^24.

    Parameters
    ----------
    talk, links : Conversation and dict of Link
        Of two parties.
    packed : PackedCounts
        Who holds the own key; that of the second party is used.
    shares : ndarray of unsigned dtype, shape (m,)
        Own shares of x modulo 2^n_bits; higher bits are ignored.
    n_bits : int
        At most 21.

    Returns
    -------
    values : ndarray of uint64 of shape (m,)
        Own additive shares, modulo 2^64.
    """
    if n_bits > MAX_BITS:
        raise OverflowError("logarithms by a series are for less than 2^21")
    side = _as_garbler if talk.name == talk.roster[0] else _as_evaluator
    values = [np.empty(0, dtype=np.uint64)]
    for start in range(0, len(shares), _BATCH):
        own = shares[start : start + _BATCH].astype(np.uint64)
        values.append((yield from side(talk, links, packed, own, n_bits)))
    return np.concatenate(values)


def split(engine, a, b, masks):
    """Take x = a + b apart, as wires: each part hidden by a mask.

    Returns
    -------
    parts : wires of shape (64, 4 m)
        Sums modulo 2^64 of the masks with ``2^n_bits (1 + d)``, with ``e ln 2`` times
        2^23, with x, and with whether x is zero.
    """
    x = yield from add(engine, a, b)
    n_bits, shape = len(x), x[0].shape
    zeros = x[:1] ^ x[:1]
    # mark the highest bit
    above, marks = zeros, []
    for bit in reversed(range(n_bits)):
        marks.append((yield from engine.conjunction(engine.invert(above), x[[bit]])))
        above = above ^ marks[-1]
    is_zero = engine.invert(above)
    # instead of zero, one
    number = x.copy()
    number[:1] = x[:1] ^ is_zero
    marks[-1] = marks[-1] ^ is_zero
    marks = np.concatenate(marks[::-1])
    pairs = np.array([(i, j) for i in range(n_bits) for j in range(i + 1)])
    moved = yield from engine.conjunction(marks, number[pairs[:, 1]], pairs[:, 0])
    mantissa = np.repeat(zeros, n_bits + 1, axis=0)
    for (i, j), bits in zip(pairs, moved):
        mantissa[n_bits - 1 - i + j] ^= bits
    # from 3/2 on the next power of two is closer
    rounds_up = mantissa[[n_bits - 2]] if n_bits > 1 else zeros
    doubled = np.concatenate([zeros, mantissa[:-1]])
    change = yield from engine.conjunction(
        rounds_up, doubled ^ mantissa, np.zeros(n_bits + 1, dtype=int)
    )
    upper = yield from engine.conjunction(rounds_up, marks, np.zeros(n_bits, dtype=int))
    exponents = [
        round(e * log(2) * (1 << FRACTION_BITS - 1)) for e in range(n_bits + 1)
    ]
    logarithm = np.repeat(zeros, 64, axis=0)
    for i in range(n_bits):
        for bit in range(64):
            if exponents[i] >> bit & 1:
                logarithm[bit] ^= marks[i]
            if (exponents[i] ^ exponents[i + 1]) >> bit & 1:
                logarithm[bit] ^= upper[i]
    parts = []
    for part in (doubled ^ change, logarithm, x, is_zero):
        filling = np.repeat(zeros, 64 - len(part), axis=0)
        parts.append(np.concatenate([part, filling]))
    parts = np.stack(parts, axis=1).reshape(64, 4 * shape[0], *shape[1:])
    return (yield from add(engine, parts, masks))


def _as_garbler(talk, links, packed, own, n_bits):
    (peer,) = talk.peers
    masks = random_words((4, len(own)))
    masks[0] >>= np.uint64(2)  # this one must not wrap around
    hiding = to_bits(masks.ravel(), 64)
    yield from garble(talk, links, split, to_bits(own, n_bits), hiding)
    d, exponent, x, is_zero = masks
    series = [_series(int(r) + (1 << n_bits), n_bits) for r in d]
    hiding = yield from _offer(talk, peer, packed, series, _LCM << n_bits * N_TERMS)
    logarithm = -exponent - _quotients(hiding, n_bits)
    odd = np.uint64(1) - np.uint64(2) * x
    linear = [[0, int(a), int(b)] for a, b in zip(logarithm, odd)]
    hiding = yield from _offer(talk, peer, packed, linear, 1 << 130)
    return odd * logarithm - _words(hiding) + (x + is_zero << _POINT)


def _as_evaluator(talk, links, packed, own, n_bits):
    (peer,) = talk.peers
    m = len(own)
    bits = to_bits(own, n_bits)
    opened = yield from evaluate(talk, links, split, bits, (64, 4 * m))
    numbers = np.packbits(opened.T.copy(), axis=1, bitorder="little").view(np.uint64)
    d, exponent, x, is_zero = numbers.reshape(4, m)
    powers = [[int(z) ** i for i in range(1, N_TERMS + 1)] for z in d]
    hidden = yield from _ask(talk, peer, packed, powers)
    logarithm = exponent + _quotients(hidden, n_bits)
    odd = np.uint64(2) * x
    known = [[int(a), int(b)] for a, b in zip(odd, logarithm)]
    hidden = yield from _ask(talk, peer, packed, known)
    return odd * logarithm + _words(hidden) - (x + is_zero << _POINT)


def _series(rho, n_bits):
    """Coefficients of z^0, z^1, ... of the series of d, 2^n_bits d being z - rho."""
    weights = [
        (-1) ** (i - 1) * (_LCM // i) << n_bits * (N_TERMS - i)
        for i in range(1, N_TERMS + 1)
    ]
    return [
        sum(
            weight * comb(i, j) * (-rho) ** (i - j)
            for i, weight in enumerate(weights, start=1)
            if i >= j
        )
        for j in range(N_TERMS + 1)
    ]


def _quotients(numbers, n_bits):
    """Sums of the series, of which one is lcm(1, 2, ...) 2^(n_bits N_TERMS)."""
    one = _LCM << n_bits * N_TERMS
    return _words([(number << FRACTION_BITS - 1) // one for number in numbers])


def _words(numbers):
    return np.array([int(number) % (1 << 64) for number in numbers], dtype=np.uint64)


def _ask(talk, peer, packed, known):
    """Encrypt own numbers; return sums of them, hidden, with the peer's weights."""
    public = packed.private_key.public_key
    width, flat = ciphertext_bytes(public), [x for row in known for x in row]
    key, plaintexts = to_bytes([public.n], width), [x % public.n for x in flat]
    talk.send(peer, key + packed.encrypt(plaintexts, width))
    answer = from_bytes((yield from talk.receive(peer)), width)
    if len(answer) != len(known):
        raise ProtocolError("wrong number of hidden sums")
    return [packed.private_key.raw_decrypt(int(c)) for c in answer]


def _offer(talk, peer, packed, weights, bound):
    """Add up the peer's numbers with own weights, and a mask; return the masks.

    Parameters
    ----------
    talk, peer, packed : Conversation, str and PackedCounts
    weights : list of list of int
        For every sum the constant, then the weight of each number.
    bound : int
        No sum exceeds it.
    """
    if bound.bit_length() + _HIDING + 1 >= packed.key_size:
        raise OverflowError("the Paillier key is too short for logarithms")
    message = yield from talk.receive(peer)
    public = packed.public_key_of(message[: packed.key_size // 4])
    width, square = ciphertext_bytes(public), gmpy2.mpz(public.nsquare)
    received = from_bytes(message[packed.key_size // 4 :], width)
    if len(received) != sum(len(row) - 1 for row in weights):
        raise ProtocolError("wrong number of encrypted numbers")
    ciphertexts = iter(received)
    masks, answer = [], []
    for constant, *row in weights:
        # above the bound, so that sums are not negative
        masks.append(bound + secrets.randbelow(bound << _HIDING))
        total = gmpy2.mpz(public.raw_encrypt((constant + masks[-1]) % public.n))
        for weight, c in zip(row, ciphertexts):
            total = total * gmpy2.powmod(c, weight % public.n, square) % square
        answer.append(total)
    talk.send(peer, to_bytes(answer, width))
    return masks
