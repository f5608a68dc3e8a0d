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

Numbers have 16 bits at most. Longer counts are added up from groups of records, whose
shares are widened: of x + y = c modulo 2^16 with c below 2^15 it is known that the sum
has wrapped around if one of x and y has its top bit set.
"""

from itertools import combinations, zip_longest

import numpy as np

from skprivbn.crypto.shares._products import (
    multiply_by_my_bits,
    multiply_by_their_bits,
)
from skprivbn.exceptions import ProtocolError

__all__ = ["tree_counts"]

_NARROW = np.dtype(np.uint16)
_GROUP = (1 << 15) - 1
#: of one direction in a round, what is kept for it included; of one table in a
#: message; and of the masks made at a time, which should stay in the cache
_ROUND_BYTES = 3 << 20
_MESSAGE_BYTES = 1 << 19
_WORK_BYTES = 1 << 18
#: numbers widened in a round
_WIDEN = 1 << 15


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
    wide = dtype.itemsize > _NARROW.itemsize
    step = _GROUP if wide else max(1, n_samples)
    groups = [
        slice(start, min(start + step, n_samples))
        for start in range(0, n_samples, step)
    ]
    jobs = [_Job(table, len(groups), _NARROW if wide else dtype) for table in tables]
    streams = {}
    for job in jobs:
        if 0 not in job.n_columns:
            streams.setdefault(job.holders, []).append(job)
    rounds = [_rounds(stream, groups) for stream in streams.values()]
    for parts in zip_longest(*rounds):
        yield from _exchange(talk, links, [pieces for pieces in parts if pieces])
    if wide:
        yield from _widen_jobs(talk, links, jobs, dtype)
    return [job.totals.sum(axis=0, dtype=dtype).T for job in jobs]


class _Job:
    """A table: its public sizes, and own shares for every group of records."""

    def __init__(self, table, n_groups, dtype):
        self.holders, self.indicators = tuple(table.holders), table.indicators
        self.n_columns = table.n_columns
        self.shape = _Shape(*table.n_columns, dtype)
        self.totals = np.zeros((n_groups, *table.n_columns[::-1]), dtype)


def _rounds(jobs, groups):
    """Yield the pieces of each round: lists of (job, group, records)."""
    pieces, used = [], 0
    for job in jobs:
        for group, records in enumerate(groups):
            for rows in job.shape.messages(records):
                n_bytes = (rows.stop - rows.start) * job.shape.row_bytes
                if pieces and used + n_bytes > _ROUND_BYTES:
                    yield pieces
                    pieces, used = [], 0
                pieces.append((job, group, rows))
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

    def __init__(self, n_numbers, n_columns, dtype):
        self.n_numbers, self.n_columns, self.dtype = n_numbers, n_columns, dtype
        # a leaf for records that are in none of the columns
        self.n_leaves = n_columns + 1
        self.depth = n_columns.bit_length()
        self.n_blocks = -(-n_numbers * dtype.itemsize // 16)
        # of a record on its way: a choice and two keys for every level, its numbers
        self.row_bytes = 48 * self.depth + n_numbers * dtype.itemsize

    def messages(self, records):
        """Yield the records of each message as a slice."""
        step = max(1, _MESSAGE_BYTES // self.row_bytes)
        for start in range(records.start, records.stop, step):
            yield slice(start, min(records.stop, start + step))

    def pieces(self, n_rows, n_blocks=1):
        """Yield the rows to work on together, with so many blocks to a leaf."""
        step = max(1, _WORK_BYTES // (16 * n_blocks * self.n_leaves))
        for start in range(0, n_rows, step):
            yield slice(start, min(n_rows, start + step))

    def path(self, own):
        """Return the node of every level on the way to each record's own leaf."""
        return own >> np.arange(self.depth, dtype=own.dtype)[::-1, None]

    def n_parents(self, level):
        """Nodes of a level that have needed leaves below them."""
        return -(-self.n_leaves >> (self.depth - level))

    def stretch(self, leaves, hash_):
        """Yield (rows, masks), masks of shape (n_leaves, rows, n_numbers or more)."""
        leaves = leaves[: self.n_leaves]
        for rows in self.pieces(leaves.shape[1], self.n_blocks):
            part = leaves[:, rows]
            first = hash_.take_tweaks(part[..., 0].size * self.n_blocks)
            masks = hash_(part.reshape(-1, 2), first, self.n_blocks)
            yield rows, masks.view(self.dtype).reshape(*part.shape[:2], -1)


def _children(nodes, hash_):
    """Two children of every node: from (n, rows, 2) words to (2n, rows, 2)."""
    n, n_rows, _ = nodes.shape
    first = hash_.take_tweaks(2 * n * n_rows)
    children = hash_(nodes.reshape(-1, 2), first, 2).reshape(n, n_rows, 2, 2)
    return children.transpose(0, 2, 1, 3).reshape(2 * n, n_rows, 2)


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
    """First holder: make the trees, keep the own shares."""
    hash_, pairs = link.sender.hash, []
    # all of a round first: the peer's tweaks come in this order
    for job, _, rows in pieces:
        n_keys = job.shape.depth * (rows.stop - rows.start)
        message = yield from talk.receive(peer)
        pairs.append(link.sender.masks(message, n_keys, 1))
    for job, group, rows in pieces:
        shape, m = job.shape, rows.stop - rows.start
        sent = np.stack(pairs.pop(0)).reshape(2, shape.depth, m, 2)
        numbers = np.empty((m, shape.n_numbers), dtype=shape.dtype)
        for piece in shape.pieces(m):
            leaves = _grow(sent[:, :, piece], shape, hash_)
            filled = numbers[piece]
            for part, stretched in shape.stretch(leaves, hash_):
                job.totals[group] -= _sum_rows(stretched)[:-1, : shape.n_numbers]
                filled[part] = _sum_leaves(stretched)[:, : shape.n_numbers]
        _add_indicators(numbers, job.indicators.codes(rows))
        # a copy, which lets go of the first level's keys
        talk.send(peer, {"keys": sent[:, 1:].copy(), "numbers": numbers})


def _grow(sent, shape, hash_):
    """Return leaves; mask the sums of each level's left and right nodes in `sent`."""
    # the keys of the first transfer are the nodes of the first level
    nodes = sent[:, 0]
    for level in range(1, shape.depth):
        nodes = _children(nodes[: shape.n_parents(level)], hash_)
        for side in (0, 1):
            sent[side, level] ^= np.bitwise_xor.reduce(nodes[side::2])
    return nodes


def _add_indicators(numbers, blocks):
    start = 0
    for codes, n_columns in blocks:
        inside = np.flatnonzero((codes >= 0) & (codes < n_columns))
        numbers[inside, start + codes[inside]] += 1
        start += n_columns


def _ask(talk, link, peer, pieces):
    """Second holder: choose the keys; return own configurations and keys."""
    chosen = []
    for job, _, rows in pieces:
        own, n_columns = job.indicators.single(rows), job.shape.n_columns
        inside = (own >= 0) & (own < n_columns)
        own = np.where(inside, own, n_columns).astype(np.int32)
        # keys are of the siblings of the nodes on the way to the own leaf
        message, keys = link.receiver.choose(1 - job.shape.path(own).ravel() % 2, 1)
        talk.send(peer, message)
        chosen.append((own, keys))
    return chosen


def _use_answers(talk, link, peer, pieces, chosen):
    """Second holder: learn all leaves but one, keep the own shares."""
    hash_ = link.receiver.hash
    for (job, group, _), (own, keys) in zip(pieces, chosen):
        shape, m = job.shape, len(own)
        path, keys = shape.path(own), keys.reshape(shape.depth, m, 2)
        answer = yield from talk.receive(peer)
        sent, numbers = answer["keys"], answer["numbers"]
        if (
            sent.shape != (2, shape.depth - 1, m, 2)
            or sent.dtype != np.uint64
            or numbers.shape != (m, shape.n_numbers)
            or numbers.dtype != shape.dtype
        ):
            raise ProtocolError("masked numbers have the wrong shape")
        for piece in shape.pieces(m):
            leaves = _grow_all_but_one(
                path[:, piece], keys[:, piece], sent[:, :, piece], shape, hash_
            )
            configurations, received = own[piece], numbers[piece]
            for part, masks in shape.stretch(leaves, hash_):
                unknown = configurations[part], np.arange(masks.shape[1])
                masks[unknown] = 0
                found = -_sum_leaves(masks)
                found[:, : shape.n_numbers] += received[part]
                masks[unknown] = found
                job.totals[group] += _sum_rows(masks)[:-1, : shape.n_numbers]


def _grow_all_but_one(path, keys, sent, shape, hash_):
    """Return leaves, zero for the one at the end of the path."""
    record = np.arange(path.shape[1])
    nodes = np.zeros((2, len(record), 2), dtype=np.uint64)
    nodes[path[0] ^ 1, record] = keys[0]
    for level in range(1, shape.depth):
        nodes = _children(nodes[: shape.n_parents(level)], hash_)
        # of the unknown node's children one is the rest of a sum, one stays unknown
        sibling = path[level] ^ 1
        nodes[path[level], record] = nodes[sibling, record] = 0
        sums = np.stack([np.bitwise_xor.reduce(nodes[side::2]) for side in (0, 1)])
        sums ^= sent[:, level - 1]
        nodes[sibling, record] = keys[level] ^ sums[sibling % 2, record]
    return nodes


def _widen_jobs(talk, links, jobs, dtype):
    """Widen the shares of all groups of records, of all tables of two holders."""
    for pair in combinations(talk.roster, 2):
        chosen = [job for job in jobs if set(job.holders) == set(pair)]
        if not chosen:
            continue
        narrow = np.concatenate([job.totals.ravel() for job in chosen])
        wide = np.empty(narrow.shape, dtype=dtype)
        for start in range(0, len(narrow), _WIDEN):
            part = slice(start, start + _WIDEN)
            wide[part] = yield from _widen(talk, links, pair, narrow[part], dtype)
        ends = np.cumsum([job.totals.size for job in chosen])
        for job, totals in zip(chosen, np.split(wide, ends[:-1])):
            job.totals = totals.reshape(job.totals.shape)


def _widen(talk, links, holders, shares, dtype):
    """Shares modulo 2^16 of numbers below 2^15 as shares in a larger ring."""
    first, second = holders
    top = (shares >> np.array(15, dtype=shares.dtype)).astype(dtype).reshape(-1, 1)
    # whether the sum wrapped around: top or their top = top + theirs - top * theirs
    if talk.name == first:
        both = yield from multiply_by_their_bits(talk, links, second, 1, top)
    else:
        both = yield from multiply_by_my_bits(
            talk, links, [first], top.astype(bool), np.zeros_like(top)
        )
    wrapped = (top - both[0]).reshape(shares.shape)
    return shares.astype(dtype) - (wrapped << np.array(16, dtype=dtype))
