"""Products of secret bits with secret numbers, ending as shares.

Everything above this file is built from two products. *Numbers times an owner's bits*:
one party knows the bits, the others hold additive (or XOR) shares of the numbers.
*Shared bits times shared strings*: nobody knows either; one product for every ordered
pair of parties, as in Goldreich, Micali, Wigderson (STOC 1987).

With masks h0, h1 of a transfer, the sender of x sends ``h0 - h1 + x`` and keeps
``-h0``; the receiver with bit y finds ``h_y + y * (h0 - h1 + x) = h0 + y * x``.
"""

import numpy as np

from skprivbn.exceptions import ProtocolError

__all__ = [
    "bits_to_numbers",
    "multiply_by_my_bits",
    "multiply_by_their_bits",
    "multiply_shared",
]


def _n_blocks(dtype, length):
    return max(1, -(-length * np.dtype(dtype).itemsize // 16))


def _as_numbers(blocks, dtype, length):
    """Read (m, n_blocks, 2) words as (m, length) numbers of `dtype`."""
    return blocks.reshape(len(blocks), -1).view(dtype)[:, :length]


def _correct(link, message, values, xor):
    """Sender's step: (numbers to send, own shares). Values are (m, length)."""
    m, length = values.shape
    masks = link.sender.masks(message, m, _n_blocks(values.dtype, length))
    h0, h1 = (_as_numbers(mask, values.dtype, length) for mask in masks)
    if xor:
        return h0 ^ h1 ^ values, h0.copy()
    return h0 - h1 + values, -h0


def _combine(masks, choices, correction, dtype, length, xor):
    """Receiver's step: own shares (m, length)."""
    h = _as_numbers(masks, dtype, length)
    correction = np.asarray(correction)
    if correction.shape != h.shape or correction.dtype != h.dtype:
        raise ProtocolError("a correction has the wrong shape")
    select = -choices.astype(dtype)[:, None]
    correction = correction & select
    return h ^ correction if xor else h + correction


def multiply_by_my_bits(talk, links, senders, bits, values, *, xor=False):
    """Multiply shared numbers by bits that this party knows.

    Parameters
    ----------
    talk, links : Conversation and dict of Link
    senders : list of str
        The other parties that hold shares of the numbers.
    bits : ndarray of shape (m, v), bool
    values : ndarray of shape (m, length), unsigned
        Own share of the numbers (zeros if it has none).
    xor : bool, default=False
        Shares add up by XOR instead of modulo the word size.

    Returns
    -------
    shares : ndarray of shape (v, m, length)
        Own share of ``bits[i, a] * values[i, b]``.
    """
    dtype, length = values.dtype, values.shape[1]
    choices = np.ascontiguousarray(bits.T).reshape(-1)
    masks = {}
    for peer in senders:
        message, masks[peer] = links[peer].receiver.choose(
            choices, _n_blocks(dtype, length)
        )
        talk.send(peer, message)
    select = -bits.T.astype(dtype)[..., None]
    shares = select & values
    for peer in senders:
        correction = yield from talk.receive(peer)
        part = _combine(masks.pop(peer), choices, correction, dtype, length, xor)
        part = part.reshape(shares.shape)
        shares = shares ^ part if xor else shares + part
    return shares


def multiply_by_their_bits(talk, links, owner, n_columns, values, *, xor=False):
    """Other side of :func:`multiply_by_my_bits`: `owner` knows the bits."""
    message = yield from talk.receive(owner)
    repeated = np.broadcast_to(values, (n_columns, *values.shape))
    repeated = repeated.reshape(-1, values.shape[1])
    correction, shares = _correct(links[owner], message, repeated, xor)
    talk.send(owner, correction)
    return shares.reshape(n_columns, *values.shape)


def multiply_shared(talk, links, group, bits, strings):
    """Multiply XOR-shared bits (m,) with XOR-shared strings (m, length) of bytes."""
    peers = [peer for peer in group if peer != talk.name]
    choices = bits.astype(bool)
    dtype, length = strings.dtype, strings.shape[1]
    masks = {}
    for peer in peers:
        message, masks[peer] = links[peer].receiver.choose(
            choices, _n_blocks(dtype, length)
        )
        talk.send(peer, message)
    shares = strings & -choices.astype(dtype)[:, None]
    for peer in peers:
        message = yield from talk.receive(peer)
        correction, own = _correct(links[peer], message, strings, xor=True)
        talk.send(peer, correction)
        shares ^= own
    for peer in peers:
        correction = yield from talk.receive(peer)
        shares ^= _combine(masks.pop(peer), choices, correction, dtype, length, True)
    return shares


def bits_to_numbers(talk, links, group, bits, dtype):
    """Turn XOR-shared bits (m, width), lowest first, into additive shares (m,).

    One party after another joins in: x xor y = x + y - 2xy, where x is shared among
    the parties so far and y is the next party's own bit.
    """
    mine, flat = group.index(talk.name), bits.astype(dtype).reshape(-1, 1)
    share = flat if mine == 0 else np.zeros_like(flat)
    minus_two = np.array(-2, dtype=np.int64).astype(dtype)
    for position in range(1, len(group)):
        owner = group[position]
        if mine < position:
            product = yield from multiply_by_their_bits(
                talk, links, owner, 1, share * minus_two
            )
        elif mine == position:
            product = yield from multiply_by_my_bits(
                talk,
                links,
                list(group[:position]),
                flat.astype(bool),
                np.zeros_like(flat),
            )
            share = flat
        else:
            continue
        share = share + product[0]
    weights = np.array(1, dtype=dtype) << np.arange(bits.shape[1], dtype=dtype)
    return (share.reshape(bits.shape) * weights).sum(axis=1, dtype=dtype)
