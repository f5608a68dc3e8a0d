"""Shares of joint counts between two holders, from one tree of masks per record.

The second holder's configuration b of a record is one of q. The first holder grows a
binary tree of q random leaves, and one oblivious transfer per level lets the second
learn all leaves but that of b, without telling which (Goldreich, Goldwasser, Micali,
"How to construct random functions", 1986; Boyle et al., "Efficient two-round OT
extension", CCS 2019). Every leaf j is stretched to a row s_j of masks, one for each
configuration of the first holder, whose indicators are v. The first holder sends
``v + sum_j s_j`` and keeps ``-s_j``; the second knows s_j for j other than b and finds
``s_b + v``. So all q products ``[b = j] v`` are shared for the price of one row of
numbers, and are added up over the records at once.

The nodes of a level add up to the secret of the transfers: of a node x the left child
is the hash of x, the right one that hash plus x (Guo et al., "Half-Tree: Halving the
Cost of Tree Expansion in COT and DPF", EUROCRYPT 2023). So a row of a transfer serves
as it is to hide a level's sum, 16 bytes for both sides. What the second holder lacks
is, at every level, the secret plus nodes that it knows. It sees hashes of such sums,
with or without the secret added, never two under one tweak: that these look random is
what circular correlation robustness says, which the hash is used for all along.

Numbers have 8 or 16 bits. Longer counts are added up from groups of records, whose
shares are widened: of x + y = c modulo 2^8 with c below 2^7 it is known that the sum
has wrapped around if one of x and y has its top bit set.
"""

from functools import partial
from itertools import combinations, zip_longest

import numpy as np

from skprivbn.crypto.shares._conversation import together
from skprivbn.crypto.shares._ot_extension import (
    multiply_by_my_bits,
    multiply_by_their_bits,
)
from skprivbn.exceptions import ProtocolError

#: of one direction in a round, what is kept for it included; of one table in a
#: message; and of the masks made at a time, which should stay in the cache
_ROUND_BYTES = 24 << 20
_MESSAGE_BYTES = 1 << 21
_WORK_BYTES = 1 << 20
#: numbers widened in a round
_WIDEN = 1 << 20
#: columns of the second holder up to which numbers have 8 bits: a byte less for every
#: record and number, but a transfer for every cell of a group
_FEW_COLUMNS = 8


def _largest_group(dtype):
    """Records of which a count may take one half of a ring."""
    return (1 << 8 * dtype.itemsize - 1) - 1


def tree_counts(talk, links, tables, n_samples, dtype):
    """Share tables of counts of all combinations of two holders' columns.

    A round carries records of as many tables as its size allows, in both directions:
    over a network rounds cost more than bytes.

    Parameters
    ----------
    talk, links : Conversation and dict of Link
    tables : list of JointTable
        Two holders each, this party one of them; its indicators are one block of
        columns where it is the second holder.
    n_samples : int
    dtype : unsigned dtype
        The ring of the shares: modulo two to its number of bits.

    Returns
    -------
    shares : list of ndarray
        Of the shapes `n_columns` of the tables.
    """
    dtype = np.dtype(dtype)
    jobs = [_Job(table, n_samples, dtype) for table in tables]
    streams = {}
    for job in jobs:
        if 0 not in job.n_columns:
            streams.setdefault(job.holders, []).append(job)
    rounds = [_rounds(stream, n_samples) for stream in streams.values()]
    for parts in zip_longest(*rounds):
        yield from _exchange(talk, links, [pieces for pieces in parts if pieces])
    for job in jobs:
        if talk.name == job.holders[0]:
            np.negative(job.totals, out=job.totals)
    yield from _widen_jobs(talk, links, jobs, dtype)
    return [job.totals.sum(axis=0, dtype=dtype).T for job in jobs]


class _Job:
    """A table: its public sizes, and own shares for every group of records."""

    def __init__(self, table, n_samples, ring):
        self.holders, self.indicators = tuple(table.holders), table.indicators
        self.n_columns = table.n_columns
        dtype = np.dtype(np.uint8 if table.n_columns[1] <= _FEW_COLUMNS else np.uint16)
        if dtype.itemsize >= ring.itemsize:
            dtype, group = ring, max(1, n_samples)
        else:
            group = _largest_group(dtype)
        self.shape = _Shape(*table.n_columns, dtype, group)
        n_groups = -(-n_samples // group)
        self.totals = np.zeros((n_groups, *table.n_columns[::-1]), dtype)

    def add(self, start, masks):
        """Add masks (n_columns, rows, numbers or more) to the records from `start`."""
        group, n_numbers = self.shape.group, self.shape.n_numbers
        first, n_rows = start // group, masks.shape[1]
        if not self.shape.many_groups:
            self.totals[first] += _sum_rows(masks)[:, :n_numbers]
            return
        n_whole = n_rows // group
        if n_whole:
            # a group has every n-th of these records: long rows are added up faster
            whole = masks[:, : n_whole * group].reshape(len(masks), group, -1)
            total = whole.sum(axis=1, dtype=masks.dtype)
            total = total.reshape(len(masks), n_whole, -1).transpose(1, 0, 2)
            self.totals[first : first + n_whole] += total[..., :n_numbers]
        if n_rows > n_whole * group:
            rest = masks[:, n_whole * group :].sum(axis=1, dtype=masks.dtype)
            self.totals[first + n_whole] += rest[:, :n_numbers]

    def codes(self, rows):
        """Return the second holder's own configurations of some records."""
        return self.indicators.single(rows)

    def add_values(self, numbers, rows):
        """Add the first holder's own indicators of some records."""
        start = 0
        for codes, n_columns in self.indicators.codes(rows):
            if n_columns <= _FEW_COLUMNS:
                for column in range(n_columns):
                    numbers[:, start + column] += codes == column
            else:
                inside = np.flatnonzero((codes >= 0) & (codes < n_columns))
                numbers[:, start : start + n_columns][inside, codes[inside]] += 1
            start += n_columns


class TreeProducts:
    """Products of one party's numbers with another's indicators, for every record.

    Parameters
    ----------
    n_numbers, n_columns, n_records : int
    dtype : unsigned dtype
    added_up : bool
        Whether only the sum over the records is wanted.
    """

    def __init__(self, n_numbers, n_columns, n_records, dtype, added_up):
        self.shape = _Shape(n_numbers, n_columns, np.dtype(dtype), 1)
        self._rows, self._added_up = slice(0, n_records), added_up
        size = n_columns, 1 if added_up else n_records, n_numbers
        self._shares = np.zeros(size, dtype=dtype)

    def add(self, start, masks):
        """Keep masks of the records from `start`, or add them up."""
        n_numbers = self.shape.n_numbers
        if self._added_up:
            self._shares[:, 0] += _sum_rows(masks)[..., :n_numbers]
        else:
            stop = start + masks.shape[1]
            self._shares[:, start:stop] = masks[..., :n_numbers]

    def codes(self, rows):
        """Return the second holder's own configurations of some records."""
        return self._codes[rows]

    def add_values(self, numbers, rows):
        """Add the first holder's own numbers of some records."""
        numbers += self._values[rows]

    def answer(self, talk, link, peer, values):
        """First holder's side: return own shares (n_records or 1, products)."""
        self._values = values
        yield from _answer(talk, link, peer, [(self, self._rows)])
        np.negative(self._shares, out=self._shares)
        return self._by_record()

    def ask(self, talk, link, peer, codes):
        """Second holder's side: begin, before there are numbers."""
        self._codes = codes
        self._chosen = _ask(talk, link, peer, [(self, self._rows)])

    def use_answer(self, talk, link, peer):
        """Second holder's side: return own shares (n_records or 1, products)."""
        pieces = [(self, self._rows)]
        yield from _use_answers(talk, link, peer, pieces, self._chosen)
        return self._by_record()

    def _by_record(self):
        shares = self._shares.transpose(1, 2, 0)
        return shares.reshape(shares.shape[0], -1)


def _rounds(jobs, n_samples):
    """Yield the pieces of each round: lists of (job, records)."""
    pieces, used = [], 0
    for job in jobs:
        for rows in job.shape.messages(n_samples):
            n_bytes = (rows.stop - rows.start) * job.shape.row_bytes
            if pieces and used + n_bytes > _ROUND_BYTES:
                yield pieces
                pieces, used = [], 0
            pieces.append((job, rows))
            used += n_bytes
    yield pieces


def _exchange(talk, links, parts):
    """Ask, answer what is asked, use the answers; each with all peers at a time."""
    asked, answered = [], []
    for pieces in parts:
        first, second = pieces[0][0].holders
        if talk.name == second:
            chosen = _ask(talk, links[first], first, pieces)
            asked.append((first, pieces, chosen))
        else:
            answered.append((second, pieces))
    for peer, pieces in answered:
        yield from _answer(talk, links[peer], peer, pieces)
    for peer, pieces, chosen in asked:
        yield from _use_answers(talk, links[peer], peer, pieces, chosen)


class _Shape:
    """Public sizes: of the tree, of a row of numbers, of messages and pieces."""

    def __init__(self, n_numbers, n_columns, dtype, group):
        self.n_numbers, self.n_columns, self.dtype = n_numbers, n_columns, dtype
        self.group = group
        # a leaf for records that are in none of the columns
        self.n_leaves = n_columns + 1
        self.depth = n_columns.bit_length()
        self.n_blocks = -(-n_numbers * dtype.itemsize // 16)
        # of a record on its way: a row and a key for every level, its numbers
        self.row_bytes = 32 * self.depth + n_numbers * dtype.itemsize
        # what is worked on together has many groups of records, or a part of one
        self.many_groups = group * self.row_bytes < _MESSAGE_BYTES

    def messages(self, n_samples):
        """Yield the records of each message as a slice."""
        outer = n_samples if self.many_groups else self.group
        step = self._step(_MESSAGE_BYTES // self.row_bytes)
        for start in range(0, n_samples, max(1, outer)):
            stop = min(n_samples, start + outer)
            for first in range(start, stop, step):
                yield slice(first, min(stop, first + step))

    def _step(self, n_rows):
        if self.many_groups:
            return max(1, n_rows // self.group) * self.group
        return max(1, n_rows)

    def pieces(self, n_rows, n_blocks=1):
        """Yield the rows to work on together, with so many blocks to a leaf."""
        step = self._step(_WORK_BYTES // (16 * n_blocks * self.n_leaves))
        for start in range(0, n_rows, step):
            yield slice(start, min(n_rows, start + step))

    def path(self, own):
        """Return the node of every level on the way to each record's own leaf."""
        return own >> np.arange(self.depth, dtype=own.dtype)[::-1, None]

    def stretch(self, leaves, hash_, own=None):
        """Yield (rows, masks), masks of shape (n_leaves, rows, n_numbers or more).

        Whose own leaf of every record is unknown has masks of all but one leaf: in the
        place of the own leaf's are those of the last.
        """
        leaves = leaves[: self.n_leaves]
        for rows in self.pieces(leaves.shape[1], self.n_blocks):
            part = np.ascontiguousarray(leaves[:, rows])
            n_tweaks = part[..., 0].size * self.n_blocks
            tweaks = hash_.take_tweaks(n_tweaks)
            if own is not None:
                tweaks = np.arange(
                    tweaks, tweaks + n_tweaks, self.n_blocks, dtype=np.uint64
                )
                place, record = _unknown(own[rows], self.n_columns)
                n_kept = self.n_columns * part.shape[1]
                for x in (_items(part), tweaks):
                    x[place] = x[n_kept + record]
                part, tweaks = part[:-1], tweaks[:n_kept]
            masks = hash_(part.reshape(-1, 2), tweaks, self.n_blocks)
            yield rows, masks.view(self.dtype).reshape(*part.shape[:2], -1)


def _items(rows):
    """View rows one after another as single items, which numpy copies faster."""
    return rows.view(f"V{rows.shape[-1] * rows.itemsize}").reshape(-1)


def _unknown(own, n_columns):
    """Return which of all leaves are unknown, and of which records, if in a column."""
    record = np.flatnonzero(own < n_columns)
    return own[record].astype(np.intp) * len(own) + record, record


def _children(nodes, hash_):
    """Two children of every node: from (n, rows, 2) words to (2n, rows, 2)."""
    n, n_rows, _ = nodes.shape
    left = hash_(nodes.reshape(-1, 2), hash_.take_tweaks(n * n_rows))
    both = np.empty((n, 2, n_rows, 2), dtype=np.uint64)
    both[:, 0] = left.reshape(nodes.shape)
    np.bitwise_xor(both[:, 0], nodes, out=both[:, 1])
    return both.reshape(2 * n, n_rows, 2)


def _sum_rows(masks):
    """Add up over the records: from (n, rows, length) to (n, length)."""
    n, n_rows, length = masks.shape
    # some records side by side: numpy is slow at adding up short rows
    fold = max(1, 512 // length)
    whole = n_rows // fold * fold
    folded = masks[:, :whole].reshape(n, -1, fold * length)
    total = folded.sum(axis=1, dtype=masks.dtype).reshape(n, fold, length)
    total = np.concatenate([total, masks[:, whole:]], axis=1)
    return total.sum(axis=1, dtype=masks.dtype)


def _sum_leaves(masks):
    """Add up over the leaves: from (n, rows, length) to (rows, length)."""
    together = masks.reshape(len(masks), -1).sum(axis=0, dtype=masks.dtype)
    return together.reshape(masks.shape[1:])


def _answer(talk, link, peer, pieces):
    """First holder: make the trees, keep what the own shares are the negative of."""
    sender, sizes = link.sender, _n_transfers(pieces)
    message = yield from talk.receive(peer)
    rows_of = _split(sender.rows(message, sum(sizes)), sizes)
    for job, rows in pieces:
        shape, m = job.shape, rows.stop - rows.start
        sums = rows_of.pop(0).reshape(shape.depth, m, 2)
        numbers = np.empty((m, shape.n_numbers), dtype=shape.dtype)
        for piece in shape.pieces(m):
            leaves = _grow(sums[:, piece], sender)
            filled = numbers[piece]
            for part, masks in shape.stretch(leaves, sender.hash):
                filled[part] = _sum_leaves(masks)[:, : shape.n_numbers]
                job.add(rows.start + piece.start + part.start, masks[:-1])
        job.add_values(numbers, rows)
        # a copy, which lets go of the row of the first level
        talk.send(peer, {"sums": sums[1:].copy(), "numbers": numbers})


def _grow(rows, sender):
    """Return leaves; in rows of transfers, hide the sum of each level's left nodes."""
    nodes = np.stack([rows[0], sender.flip(rows[0])])
    for level in range(1, len(rows)):
        nodes = _children(nodes, sender.hash)
        rows[level] ^= np.bitwise_xor.reduce(nodes[::2])
    return nodes


def _ask(talk, link, peer, pieces):
    """Second holder: choose sides; return own configurations and rows."""
    chosen, sides = [], [np.empty(0, dtype=np.uint8)]
    for job, rows in pieces:
        own, n_columns = job.codes(rows), job.shape.n_columns
        own = np.where((own >= 0) & (own < n_columns), own, n_columns)
        chosen.append(own.astype(np.min_scalar_type(-1 - n_columns)))
        # to learn the siblings of the nodes on the way to the own leaf
        sides.append((~job.shape.path(chosen[-1]).ravel() & 1).astype(np.uint8))
    message, found = link.receiver.rows(np.concatenate(sides))
    talk.send(peer, message)
    return list(zip(chosen, _split(found, _n_transfers(pieces))))


def _n_transfers(pieces):
    """Return how many transfers each piece takes: one for a level and a record."""
    return [job.shape.depth * (rows.stop - rows.start) for job, rows in pieces]


def _split(rows, sizes):
    return np.split(rows, np.cumsum(sizes, dtype=int)[:-1])


def _use_answers(talk, link, peer, pieces, chosen):
    """Second holder: learn all leaves but one, keep the own shares."""
    hash_ = link.receiver.hash
    for (job, rows), (own, found) in zip(pieces, chosen):
        shape, m = job.shape, len(own)
        path, sums = shape.path(own), found.reshape(shape.depth, m, 2)
        answer = yield from talk.receive(peer)
        sent, numbers = answer["sums"], answer["numbers"]
        if (
            sent.shape != (shape.depth - 1, m, 2)
            or sent.dtype != np.uint64
            or numbers.shape != (m, shape.n_numbers)
            or numbers.dtype != shape.dtype
        ):
            raise ProtocolError("masked numbers have the wrong shape")
        sums[1:] ^= sent
        for piece in shape.pieces(m):
            leaves = _grow_all_but_one(path[:, piece], sums[:, piece], hash_)
            configurations, received = own[piece], numbers[piece]
            for part, masks in shape.stretch(leaves, hash_, configurations):
                rest = _sum_leaves(masks)
                np.negative(rest, out=rest)
                rest[:, : shape.n_numbers] += received[part]
                place, record = _unknown(configurations[part], shape.n_columns)
                _items(masks)[place] = _items(rest)[record]
                job.add(rows.start + piece.start + part.start, masks)


def _grow_all_but_one(path, sums, hash_):
    """Return leaves; that at the end of the path has no meaning."""
    nodes, n = np.stack([sums[0], sums[0]]), path.shape[1]
    siblings, record = (path ^ 1).astype(np.intp), np.arange(n)
    for level in range(1, len(path)):
        nodes = _children(nodes, hash_)
        # of the unknown node's children one stays unknown, one is the rest of a sum:
        # all nodes of its side add up to it, but for what was in its place so far
        total = np.bitwise_xor.reduce(nodes.reshape(-1, 2, n, 2))
        total ^= sums[level]
        rest = _items(total)[siblings[level] % 2 * n + record].view(np.uint64)
        place = siblings[level] * n + record
        rest ^= _items(nodes)[place].view(np.uint64)
        _items(nodes)[place] = _items(rest.reshape(-1, 2))
    return nodes


def _widen_jobs(talk, links, jobs, ring):
    """Widen numbers that have fewer bits than the ring, of all pairs at a time."""
    sides = {}
    for pair in combinations(talk.roster, 2):
        chosen = [job for job in jobs if set(job.holders) == set(pair)]
        if chosen:
            label = " ".join(str(talk.roster.index(name)) for name in pair)
            sides[label] = partial(
                _widen_pair, links=links, pair=pair, jobs=chosen, ring=ring
            )
    yield from together(talk, sides)


def _widen_pair(talk, links, pair, jobs, ring):
    """Double the bits of numbers and add up groups, until they fill the ring."""
    narrow = np.dtype(np.uint8)
    while narrow != ring:
        wide = np.dtype(f"u{2 * narrow.itemsize}")
        chosen = [job for job in jobs if job.totals.dtype == narrow and job.totals.size]
        shares = [np.empty(0, dtype=wide)]
        flat = [np.empty(0, dtype=narrow), *(job.totals.ravel() for job in chosen)]
        flat = np.concatenate(flat)
        for start in range(0, len(flat), _WIDEN):
            part = flat[start : start + _WIDEN]
            shares.append((yield from _widen(talk, links, pair, part, wide)))
        ends = np.cumsum([job.totals.size for job in chosen], dtype=int)
        n_added = _largest_group(wide) // _largest_group(narrow)
        for job, totals in zip(chosen, np.split(np.concatenate(shares), ends[:-1])):
            totals = totals.reshape(job.totals.shape)
            starts = np.arange(0, len(totals), n_added)
            job.totals = np.add.reduceat(totals, starts, axis=0, dtype=wide)
        narrow = wide


def _widen(talk, links, holders, shares, dtype):
    """Shares of numbers below half of their ring, in a ring of twice the bits."""
    first, second = holders
    n_bits = 8 * shares.dtype.itemsize
    top = (shares >> shares.dtype.type(n_bits - 1)).reshape(-1, 1)
    # whether the sum wrapped around: top or their top = top + theirs - top * theirs.
    # It stands for 2^n_bits: in a ring of twice the bits it counts modulo 2^n_bits
    if talk.name == first:
        both = yield from multiply_by_their_bits(talk, links, second, 1, top)
    else:
        both = yield from multiply_by_my_bits(
            talk, links, [first], top.astype(bool), np.zeros_like(top)
        )
    wrapped = (top - both[0]).reshape(shares.shape).astype(dtype)
    return shares.astype(dtype) - (wrapped << dtype.type(n_bits))
