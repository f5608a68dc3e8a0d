"""Look shared numbers up in a public table; the results are shared too.

A random index r is shared bit by bit, and a shared one-hot vector of length 2^k is
grown from it by doubling: one multiplication of the whole vector by the next bit, with
oblivious transfers of strings. Then ``c - r`` is opened, which is uniform whatever c
is; every party rotates the public table by it and takes the inner product with its
share of the vector. This needs 2^k / 8 bytes per lookup and direction, against 8 * 2^k
for a transfer of one out of 2^k masked entries, and works for any number of parties.
"""

import numpy as np

from skprivbn.crypto.two_party._gmw import open_numbers
from skprivbn.crypto.two_party._hash import bit_length_dtype, random_words
from skprivbn.crypto.two_party._products import bits_to_numbers, multiply_shared

__all__ = ["shared_lookup", "shared_one_hot"]

_CHUNK_BYTES = 1 << 22


def shared_one_hot(talk, links, group, bits):
    """One-hot vectors, XOR-shared and packed, of XOR-shared numbers.

    Parameters
    ----------
    bits : ndarray of shape (m, k)
        Shares of the bits of the numbers, lowest first.

    Returns
    -------
    vectors : ndarray of shape (m, max(1, 2^k / 8)), uint8
        Position j is bit j % 8 of byte j // 8.
    """
    first = np.uint8(talk.name == group[0])
    k = bits.shape[1]
    vectors = np.stack([bits[:, 0] ^ first, bits[:, 0]], axis=1)
    for level in range(1, k):
        if level == 3:
            vectors = np.packbits(vectors, axis=1, bitorder="little")
        high = yield from multiply_shared(talk, links, group, bits[:, level], vectors)
        if level < 3:
            high &= 1
        vectors = np.concatenate([vectors ^ high, high], axis=1)
    if k <= 3:
        vectors = np.packbits(vectors, axis=1, bitorder="little")
    return vectors


def shared_lookup(talk, links, group, shares, tables, which):
    """Shares of ``tables[which[i]][c_i]`` for additively shared c_i.

    Parameters
    ----------
    talk, links : Conversation and dict of Link
    group : sequence of str
        The parties that hold shares, in the agreed order.
    shares : ndarray of shape (m,), unsigned
        Own shares of the numbers, modulo 2^k; higher bits are ignored.
    tables : ndarray of shape (n_tables, 2^k), int64
        Public.
    which : ndarray of shape (m,)
        Table of each lookup. Public.

    Returns
    -------
    values : ndarray of shape (m,), uint64
        Own additive shares, modulo 2^64.
    """
    k = tables.shape[1].bit_length() - 1
    if tables.shape[1] != 1 << k:
        raise ValueError("a table must have a power of two entries")
    lowest = tables.min(axis=1)
    # twice in a row: every rotation is then a slice
    doubled = np.tile((tables - lowest[:, None]).astype(np.uint64), 2)
    width = max(1, int(doubled.max()).bit_length())
    step = max(1, _CHUNK_BYTES * 8 >> k)
    values = np.empty(len(shares), dtype=np.uint64)
    for start in range(0, len(shares), step):
        part = slice(start, start + step)
        values[part] = yield from _lookup_chunk(
            talk, links, group, shares[part], doubled, which[part], k, width
        )
    if talk.name == group[0]:
        values += lowest[which].astype(np.uint64)
    return values


def _lookup_chunk(talk, links, group, shares, doubled, which, k, width):
    dtype, m = bit_length_dtype(k), len(shares)
    bits = random_words((m, k), np.uint8) & 1
    index = yield from bits_to_numbers(talk, links, group, bits, dtype)
    vectors = yield from shared_one_hot(talk, links, group, bits)
    modulus = np.array((1 << k) - 1, dtype=dtype)
    distance = (shares.astype(dtype) - index) & modulus
    distance = (yield from open_numbers(talk, group, distance)) & modulus
    found = np.empty(m, dtype=np.uint64)
    for i in range(m):
        mask = np.unpackbits(vectors[i], count=1 << k, bitorder="little")
        rotated = doubled[which[i], distance[i] : int(distance[i]) + (1 << k)]
        found[i] = np.bitwise_xor.reduce(rotated[mask.view(bool)])
    found = np.unpackbits(found[:, None].view(np.uint8), axis=1, bitorder="little")
    return (yield from bits_to_numbers(talk, links, group, found[:, :width], np.uint64))
