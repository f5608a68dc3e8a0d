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

import numpy as np

from skprivbn.crypto.two_party._products import (
    multiply_by_my_bits,
    multiply_by_their_bits,
)
from skprivbn.exceptions import ProtocolError

__all__ = ["tree_counts"]

_NARROW = np.dtype(np.uint16)
_GROUP = (1 << 15) - 1
#: of a message; and of the masks made at a time, which should stay in the cache
_MESSAGE_BYTES = 1 << 20
_WORK_BYTES = 1 << 18


def tree_counts(talk, links, holders, indicators, n_columns, n_samples, dtype):
    """Share the counts of all combinations of two holders' columns.

    Parameters
    ----------
    talk, links : Conversation and dict of Link
    holders : sequence of str
        Two, this party one of them.
    indicators : Indicators
        This party's own; one block of columns if it is the second holder.
    n_columns : sequence of int
        Of both holders.
    n_samples : int
    dtype : unsigned dtype
        The ring of the shares: modulo two to its number of bits.

    Returns
    -------
    shares : ndarray of shape n_columns
    """
    dtype = np.dtype(dtype)
    total = np.zeros(n_columns, dtype=dtype)
    if 0 in n_columns:
        return total
    first, second = holders
    wide = dtype.itemsize > _NARROW.itemsize
    shape = _Shape(*n_columns, _NARROW if wide else dtype)
    step = _GROUP if wide else n_samples
    for start in range(0, n_samples, step):
        messages = list(shape.messages(start, min(start + step, n_samples)))
        side, peer = (_as_first, second) if talk.name == first else (_as_second, first)
        share = yield from side(talk, links[peer], peer, indicators, shape, messages)
        if wide:
            share = yield from _widen(talk, links, holders, share, dtype)
        total += share
    return total


class _Shape:
    """Public sizes: of the tree, of a row of numbers, of messages and pieces."""

    def __init__(self, n_numbers, n_columns, dtype):
        self.n_numbers, self.n_columns, self.dtype = n_numbers, n_columns, dtype
        # a leaf for records that are in none of the columns
        self.n_leaves = n_columns + 1
        self.depth = n_columns.bit_length()
        self.n_blocks = -(-n_numbers * dtype.itemsize // 16)
        largest = max(16 * self.depth, n_numbers * dtype.itemsize)
        self.message_rows = max(1, _MESSAGE_BYTES // largest)

    def messages(self, start, stop):
        """Yield the records of each message as a slice."""
        for first in range(start, stop, self.message_rows):
            yield slice(first, min(stop, first + self.message_rows))

    def pieces(self, n_rows, n_blocks=1):
        """Yield the rows to work on together, with so many blocks to a leaf."""
        step = max(1, _WORK_BYTES // (16 * n_blocks * self.n_leaves))
        for start in range(0, n_rows, step):
            yield slice(start, min(n_rows, start + step))

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


def _as_first(talk, link, peer, indicators, shape, messages):
    """Make the trees; return own shares."""
    hash_, total = link.sender.hash, 0
    for rows in messages:
        m = rows.stop - rows.start
        masks = link.sender.masks((yield from talk.receive(peer)), shape.depth * m, 1)
        sent = np.stack(masks).reshape(2, shape.depth, m, 2)
        numbers = np.empty((m, shape.n_numbers), dtype=shape.dtype)
        for piece in shape.pieces(m):
            leaves = _grow(sent[:, :, piece], shape, hash_)
            filled = numbers[piece]
            for part, masks in shape.stretch(leaves, hash_):
                total = total + _sum_rows(masks)
                filled[part] = _sum_leaves(masks)[:, : shape.n_numbers]
        _add_indicators(numbers, indicators.codes(rows))
        talk.send(peer, {"keys": sent[:, 1:], "numbers": numbers})
    return -total[:-1, : shape.n_numbers].T


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


def _as_second(talk, link, peer, indicators, shape, messages):
    """Learn all leaves but one; return own shares."""
    hash_, total = link.receiver.hash, 0
    for rows in messages:
        own = indicators.single(rows)
        own = np.where((own >= 0) & (own < shape.n_columns), own, shape.n_columns)
        m = len(own)
        # node of every level on the way to the own leaf; keys are of its siblings
        path = own >> np.arange(shape.depth)[::-1, None]
        message, keys = link.receiver.choose(1 - path.ravel() % 2, 1)
        talk.send(peer, message)
        keys = keys.reshape(shape.depth, m, 2)
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
                total = total + _sum_rows(masks)
    return total[:-1, : shape.n_numbers].T


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
