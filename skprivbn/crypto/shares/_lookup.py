"""Look shared numbers up in a public table; the results are shared too.

A random index r is shared bit by bit, and ``d = c - r`` is opened, which is uniform
whatever c is. The table entry wanted is then that at ``d + r``. Let the table be cut
into rows. The high bits of r become a shared one-hot vector, grown by doubling: one
multiplication of the whole vector by the next bit. With its share of the vector each
party adds up rows of the table, moved by d: these are shares of the one row that holds
the entry. The low bits of r then halve this row until the entry is left. The bits of
the entry, hidden by random ones of which there are additive shares too, are opened.

A bit b of r is known, as shares, before anything else. So the oblivious transfers in
which parties choose by their shares of b run beforehand; its product with a string then
takes one message of the string's length each way: one round. What does not need c is
made in :meth:`SharedLookup.prepare`, while c is waited for.

With 2^k entries of 40 bits about 2^(k/2 + 5) bits per lookup and direction are sent for
products, against 40 2^k for a transfer of one out of 2^k masked entries. It works for
any number of parties.
"""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from skprivbn.crypto.shares._conversation import together
from skprivbn.crypto.shares._gmw import open_bits, open_numbers
from skprivbn.crypto.shares._hash import bit_length_dtype, random_words
from skprivbn.crypto.shares._ot_extension import combine, correct

#: of what is kept for the lookups that are prepared together
_PREPARED_BYTES = 1 << 26
#: of sums of rows of a table made at a time, which should stay in the cache, and how
#: many lookups at least make sums of eight rows cheaper than of four
_SUMS_BYTES, _MANY_VECTORS = 1 << 19, 400


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
    lookup = SharedLookup(group, tables, which)
    yield from lookup.prepare(talk, links)
    return (yield from lookup.look_up(talk, links, shares))


class SharedLookup:
    """Lookups of which all but the numbers is known.

    Parameters
    ----------
    group : sequence of str
        The parties that hold shares, in the agreed order.
    tables : ndarray of shape (n_tables, 2^k), int64
        Public.
    which : ndarray of shape (m,)
        Table of each lookup. Public.
    max_bytes : float
        Of what is prepared at a time, the same at every party.
    """

    def __init__(self, group, tables, which, max_bytes=_PREPARED_BYTES):
        k = tables.shape[1].bit_length() - 1
        if tables.shape[1] != 1 << k:
            raise ValueError("a table must have a power of two entries")
        self._group, self._which = tuple(group), which
        self._lowest = tables.min(axis=1)
        self._tables = (tables - self._lowest[:, None]).view(np.uint64)
        self._shape = _Shape(k, max(1, int(self._tables.max()).bit_length()))
        # lookups in one table next to each other, to prepare its rows less often
        order = np.argsort(which, kind="stable")
        n_bytes = self._shape.n_bytes * max(1, len(group) - 1)
        step = max(1, int(max_bytes // n_bytes))
        self._parts = [order[i : i + step] for i in range(0, len(order), step)]
        self._ready = None

    def prepare(self, talk, links):
        """Make the randomness of the first lookups, as many as memory allows."""
        if self._parts:
            self._ready = _Randomness(self._group, len(self._parts[0]), self._shape)
            yield from self._ready.prepare(talk, links)

    def look_up(self, talk, links, shares):
        """Return own shares of the entries, given those of the numbers."""
        values = np.empty(len(shares), dtype=np.uint64)
        for number, part in enumerate(self._parts):
            if number > 0:
                self._ready = _Randomness(self._group, len(part), self._shape)
                yield from self._ready.prepare(talk, links)
            ready, self._ready = self._ready, None
            values[part] = yield from ready.look_up(
                talk, shares[part], self._tables, self._which[part]
            )
        if talk.name == self._group[0]:
            values += self._lowest[self._which].astype(np.uint64)
        return values


class _Shape:
    """Public sizes of a lookup in 2^k entries of so many bits."""

    def __init__(self, k, width):
        self.k, self.width = k, width
        self.entry_bytes = -(-width // 8)
        # vector and row of about equal size
        self.n_low = max(0, (k - (8 * self.entry_bytes).bit_length() + 1) // 2)
        self.index_dtype = bit_length_dtype(k)
        #: bytes of the strings that are multiplied by each bit but the lowest high one
        self.lengths = [
            max(1, (1 << level) // 8) for level in range(1, k - self.n_low)
        ] + [self.entry_bytes << level for level in reversed(range(self.n_low))]
        # with one peer: the masks of a transfer for each bit, and those of strings
        self.n_bytes = 24 * (k + 2 * width) + 3 * sum(self.lengths)
        #: of bit i as a number that is multiplied by 2^i, the bytes that count
        self.counted = 8 * np.arange(8) + np.arange(width)[:, None] < 64

    @property
    def levels(self):
        """Bits of the index by which strings are multiplied, in order."""
        return [*range(self.n_low + 1, self.k), *reversed(range(self.n_low))]


class _Randomness:
    """What some lookups need before their numbers are known.

    Parameters
    ----------
    group : sequence of str
    m : int
        Number of lookups.
    shape : _Shape
    """

    def __init__(self, group, m, shape):
        self._group, self._m, self._shape = group, m, shape

    def prepare(self, talk, links):
        """Share random bits as numbers, too, and grow vectors of them."""
        shape, m = self._shape, self._m
        self._bits = random_words((m, shape.k), np.uint8) & 1
        self._hiding = random_words((m, shape.width), np.uint8) & 1
        mine = self._group.index(talk.name)
        before, after = self._group[:mine], self._group[mine + 1 :]
        chosen, offered = {}, {}
        for peer in (*before, *after):
            chosen[peer] = self._choose(talk, links[peer], peer, peer in before)
        for peer in (*before, *after):
            message = yield from talk.receive(peer)
            offered[peer] = self._offer(links[peer], message, peer in after)
        self._transferred = [
            (
                level,
                {
                    peer: (chosen[peer].strings[i], offered[peer].strings[i])
                    for peer in chosen
                },
            )
            for i, level in enumerate(shape.levels)
        ]
        found = yield from together(
            talk,
            {
                "index": lambda branch: self._as_numbers(
                    branch, self._bits, shape.index_dtype, chosen, offered, 0
                ),
                "entry": lambda branch: self._as_numbers(
                    branch, self._hiding, np.dtype(np.uint64), chosen, offered, 1
                ),
                "vectors": self._grow,
            },
        )
        weights = np.arange(shape.k, dtype=shape.index_dtype)
        weights = shape.index_dtype.type(1) << weights
        self._index = (found["index"] * weights).sum(axis=1, dtype=shape.index_dtype)
        self._numbers, self._vectors = found["entry"], found["vectors"]

    def _transfers(self, numbers):
        """Return (bits to multiply, type and length of masks) of all with a peer.

        Bits are turned into numbers by one party after another: only with peers that
        come before does a party choose by its own bits.
        """
        shape, transfers = self._shape, []
        if numbers:
            transfers.append((self._bits.ravel(), shape.index_dtype, 1))
            transfers.append((self._hiding.ravel(), np.uint64, 1))
        for level, length in zip(shape.levels, shape.lengths):
            transfers.append((self._bits[:, level], np.uint8, length))
        return transfers

    def _choose(self, talk, link, peer, numbers):
        """Choose in all transfers with a peer at once; return masks of each."""
        transfers = self._transfers(numbers)
        bits = [np.empty(0, dtype=np.uint8), *(bits for bits, *_ in transfers)]
        message, rows = link.receiver.rows(np.concatenate(bits))
        talk.send(peer, message)
        return _Masks(link.receiver, rows, transfers, numbers)

    def _offer(self, link, message, numbers):
        """Masks of both choices of a peer, of all transfers with it."""
        transfers = self._transfers(numbers)
        rows = link.sender.rows(message, sum(len(bits) for bits, *_ in transfers))
        return _Masks(link.sender, rows, transfers, numbers)

    def _as_numbers(self, talk, bits, dtype, chosen, offered, which):
        """Turn XOR-shared bits into additive shares of the same bits.

        One party after another joins in: x xor y = x + y - 2xy, where x is shared
        among the parties so far and y is the next party's own bit. Bits of an entry
        will be multiplied by powers of two, so that upper bytes are not sent.
        """
        mine, flat = self._group.index(talk.name), bits.astype(dtype).reshape(-1, 1)
        minus_two = np.array(-2, dtype=np.int64).astype(dtype)
        counted = self._shape.counted if which else np.ones((1, dtype.itemsize), bool)
        n_counted = len(flat) // len(counted) * np.count_nonzero(counted)
        share = flat
        for peer in self._group[:mine]:
            sent = yield from talk.receive_array(peer, (n_counted,), np.uint8)
            correction = np.zeros((len(flat), dtype.itemsize), dtype=np.uint8)
            correction.reshape(-1, *counted.shape)[:, counted] = sent.reshape(
                -1, np.count_nonzero(counted)
            )
            masks = chosen[peer].numbers[which]
            share = share + combine(masks, flat.ravel(), correction.view(dtype))
        for peer in self._group[mine + 1 :]:
            masks = offered[peer].numbers[which]
            correction, product = correct(masks, share * minus_two)
            correction = correction.view(np.uint8).reshape(-1, *counted.shape)
            talk.send(peer, correction[:, counted].ravel())
            share = share + product
        return share.reshape(bits.shape)

    def _grow(self, talk):
        """One-hot vectors of the high bits."""
        shape = self._shape
        first = np.uint8(talk.name == self._group[0])
        lowest = self._bits[:, shape.n_low, None]
        vectors = (lowest ^ first) | lowest << np.uint8(1)
        for level in range(1, shape.k - shape.n_low):
            high = yield from self._multiply(talk, vectors)
            if level < 3:
                # vectors of less than a byte
                size = 1 << level
                high &= np.uint8((1 << size) - 1)
                vectors = vectors ^ high | high << np.uint8(size)
            else:
                vectors = np.concatenate([vectors ^ high, high], axis=1)
        return vectors

    def _multiply(self, talk, values):
        """Multiply the next bit with XOR-shared strings."""
        level, masks = self._transferred.pop(0)
        bits = self._bits[:, level]
        product = values & -bits[:, None]
        for peer, (_, offered) in masks.items():
            correction, own = correct(offered, values, xor=True)
            talk.send(peer, correction)
            product ^= own
        for peer, (chosen, _) in masks.items():
            correction = yield from talk.receive_array(peer, chosen.shape, np.uint8)
            product ^= combine(chosen, bits, correction, xor=True)
        return product

    def look_up(self, talk, shares, tables, which):
        """Return own shares of table entries, less the public lowest of each table."""
        shape, dtype = self._shape, self._shape.index_dtype
        modulus = np.array((1 << shape.k) - 1, dtype=dtype)
        distance = (shares.astype(dtype) - self._index) & modulus
        distance = (yield from open_numbers(talk, self._group, distance)) & modulus
        row = np.empty((self._m, 1 << shape.n_low), dtype=np.uint64)
        for number in np.unique(which):
            chosen = which == number
            row[chosen] = _sum_of_rows(
                tables[number], self._vectors[chosen], distance[chosen]
            )
        row = row.view(np.uint8).reshape(self._m, -1, 8)[..., : shape.entry_bytes]
        row = row.reshape(self._m, -1)
        for _ in range(shape.n_low):
            low, high = np.split(row, 2, axis=1)
            row = low ^ (yield from self._multiply(talk, low ^ high))
        bits = np.unpackbits(row, axis=1, bitorder="little")
        bits = bits[:, : shape.width] ^ self._hiding
        opened = (yield from open_bits(talk, self._group, bits)).astype(np.uint64)
        # x xor y = y + x (1 - 2y), y being the opened bit
        numbers = self._numbers * (np.uint64(1) - np.uint64(2) * opened)
        if talk.name == self._group[0]:
            numbers += opened
        weights = np.uint64(1) << np.arange(shape.width, dtype=np.uint64)
        return (numbers * weights).sum(axis=1, dtype=np.uint64)


class _Masks:
    """Masks of the transfers with a peer: of numbers, if there are any, and strings."""

    def __init__(self, side, rows, transfers, numbers):
        ends = np.cumsum([len(bits) for bits, *_ in transfers], dtype=int)
        masks = [
            side.numbers(part, dtype, length)
            for part, (_, dtype, length) in zip(np.split(rows, ends[:-1]), transfers)
        ]
        self.numbers, self.strings = masks[: 2 * numbers], masks[2 * numbers :]


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
    n_rows, m = min(8 * vectors.shape[1], len(table)), len(vectors)
    length = len(table) // n_rows
    by_rows, by_entries = np.divmod(distance.astype(np.int64), length)
    selected = np.ascontiguousarray(_move_bits(vectors, by_rows, n_rows).T)
    # all sums of up to eight rows at a time, or of four for few vectors, as in the
    # method of four Russians, each with the row that follows it, to begin in the middle
    n_bits = min(n_rows, 8 if m >= _MANY_VECTORS else 4)
    if n_bits == 4 < n_rows:
        selected = np.stack([selected & 15, selected >> 4], axis=1).reshape(-1, m)
    both = sliding_window_view(np.append(table, table[:length]), 2 * length)[::length]
    both = both.reshape(-1, n_bits, 1, 2 * length)
    some = min(len(both), max(1, _SUMS_BYTES // (16 * length << n_bits)))
    sums = np.zeros((some, 1 << n_bits, 2 * length), dtype=np.uint64)
    # windows as single items, which numpy copies faster than rows of words
    windows = np.ndarray(
        sums.size - length, f"V{8 * length}", sums, strides=sums.strides[-1:]
    )
    step = max(1, _SUMS_BYTES // (16 * length * m))
    total = np.zeros((m, length), dtype=np.uint64)
    for start in range(0, len(both), some):
        rows = both[start : start + some]
        for i in range(n_bits):
            known, new = sums[: len(rows), : 1 << i], sums[: len(rows), 1 << i : 2 << i]
            np.bitwise_xor(known, rows[:, i], out=new)
        place = selected[start : start + some].astype(np.intp)
        place += np.arange(len(rows))[:, None] << n_bits
        place *= 2 * length
        place += by_entries
        for first in range(0, len(rows), step):
            chosen = windows[place[first : first + step]].view(np.uint64)
            chosen = chosen.reshape(-1, m, length)
            total ^= chosen[0] if step == 1 else np.bitwise_xor.reduce(chosen)
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
