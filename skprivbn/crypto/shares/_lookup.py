"""Look shared numbers up in a public table; the results are shared too.

A random index r is shared bit by bit, and ``d = c - r`` is opened, which is uniform
whatever c is. The table entry wanted is then that at ``d + r``. Let the table be cut
into rows. The high bits of r become a shared one-hot vector, grown by doubling: one
multiplication of the whole vector by the next bit, with oblivious transfers of
strings. With its share of the vector each party adds up rows of the table, moved by d:
these are shares of the one row that holds the entry. The low bits of r then halve this
row until the entry is left.

With 2^k entries of 64 bits about 2^(k/2 + 4) bits per lookup and direction are sent,
against 2^(k + 6) for a transfer of one out of 2^k masked entries. It works for any
number of parties.
"""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from skprivbn.crypto.shares._gmw import open_numbers
from skprivbn.crypto.shares._hash import bit_length_dtype, random_words
from skprivbn.crypto.shares._products import bits_to_numbers, multiply_shared

__all__ = ["shared_lookup", "shared_one_hot"]

#: of the one-hot vectors made together; and of a message with a transfer for each bit
_VECTOR_BYTES = 1 << 21
_MESSAGE_BYTES = 1 << 20


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
    tables = (tables - lowest[:, None]).view(np.uint64)
    width = max(1, int(tables.max()).bit_length())
    # vector and row of equal size, an entry of the row being 64 bits long
    n_low = max(0, (k - 6) // 2)
    # with small tables the transfers for the index, 16 bytes a bit, take the most
    step = max(1, min(_VECTOR_BYTES * 8 >> (k - n_low), _VECTOR_BYTES // (8 * k)))
    # lookups in one table next to each other, to prepare its rows less often
    order = np.argsort(which, kind="stable")
    values = np.empty(len(shares), dtype=np.uint64)
    for start in range(0, len(shares), step):
        part = order[start : start + step]
        values[part] = yield from _lookup_chunk(
            talk, links, group, shares[part], tables, which[part], n_low, width
        )
    if talk.name == group[0]:
        values += lowest[which].astype(np.uint64)
    return values


def _lookup_chunk(talk, links, group, shares, tables, which, n_low, width):
    k, m = tables.shape[1].bit_length() - 1, len(shares)
    dtype = bit_length_dtype(k)
    bits = random_words((m, k), np.uint8) & 1
    index = yield from bits_to_numbers(talk, links, group, bits, dtype)
    vectors = yield from shared_one_hot(talk, links, group, bits[:, n_low:])
    modulus = np.array((1 << k) - 1, dtype=dtype)
    distance = (shares.astype(dtype) - index) & modulus
    distance = (yield from open_numbers(talk, group, distance)) & modulus
    row = np.empty((m, 1 << n_low), dtype=np.uint64)
    for number in np.unique(which):
        chosen = which == number
        row[chosen] = _sum_of_rows(tables[number], vectors[chosen], distance[chosen])
    for level in reversed(range(n_low)):
        low, high = np.split(row, 2, axis=1)
        switch = bits[:, level]
        row = low ^ (yield from multiply_shared(talk, links, group, switch, low ^ high))
    # the entries have most bits of all: a part of them at a time
    values, step = np.empty(m, dtype=np.uint64), max(1, _MESSAGE_BYTES // (16 * width))
    for start in range(0, m, step):
        part = slice(start, start + step)
        found = np.unpackbits(row[part].view(np.uint8), axis=1, bitorder="little")
        values[part] = yield from bits_to_numbers(
            talk, links, group, found[:, :width], np.uint64
        )
    return values


def _sum_of_rows(table, vectors, distance):
    """XOR of the rows of a table that packed bits select, moved by a distance.

    Parameters
    ----------
    table : ndarray of shape (2^k,), uint64
    vectors : ndarray of shape (m, max(1, n_rows / 8)), uint8
        Bit i of each selects row i of all that the table has.
    distance : ndarray of shape (m,)
        Row i begins at entry ``distance + i * length``, modulo 2^k.

    Returns
    -------
    rows : ndarray of shape (m, length), uint64
    """
    n_rows = min(8 * vectors.shape[1], len(table))
    length = len(table) // n_rows
    by_rows, by_entries = np.divmod(distance.astype(np.int64), length)
    selected = _move_bits(vectors, by_rows, n_rows)
    rows = table.reshape(n_rows, length)
    total = np.zeros((len(vectors), length), dtype=np.uint64)
    # all sums of up to eight rows at a time, as in the method of four Russians, each
    # with the row that follows it, to begin in the middle of one
    sums = np.zeros((256, 2 * length), dtype=np.uint64)
    windows = sliding_window_view(sums, length, axis=1)
    for group, chosen in enumerate(np.ascontiguousarray(selected.T)):
        for i, row in enumerate(range(8 * group, min(n_rows, 8 * group + 8))):
            both = rows[[row, (row + 1) % n_rows]].ravel()
            np.bitwise_xor(sums[: 1 << i], both, out=sums[1 << i : 2 << i])
        total ^= windows[chosen, by_entries]
    return total


def _move_bits(vectors, distance, n_bits):
    """Rotate packed vectors of `n_bits` bits, a power of two, to higher positions."""
    if n_bits < 8:
        bits = np.unpackbits(vectors, axis=1, bitorder="little", count=n_bits)
        place = (np.arange(n_bits) - distance[:, None]) % n_bits
        bits = np.take_along_axis(bits, place, axis=1)
        return np.packbits(bits, axis=1, bitorder="little")
    # byte by byte, then within pairs of bytes
    n_bytes, first = vectors.shape[1], -(distance // 8) - 1
    pairs = sliding_window_view(np.tile(vectors, 2), n_bytes + 1, axis=1)
    pairs = pairs[np.arange(len(vectors)), first % n_bytes]
    pairs = pairs[:, 1:].astype(np.uint16) << 8 | pairs[:, :-1]
    shift = (distance % 8).astype(np.uint16)[:, None]
    return (pairs << shift >> 8).astype(np.uint8)
