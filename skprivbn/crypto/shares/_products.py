"""Products of secret bits with secret numbers, ending as shares.

One party knows the bits, the others hold additive (or XOR) shares of the numbers.
With masks h0, h1 of a transfer, the sender of x sends ``h0 - h1 + x`` and keeps
``-h0``; the receiver with bit y finds ``h_y + y * (h0 - h1 + x) = h0 + y * x``.
"""

import numpy as np

from skprivbn.exceptions import ProtocolError


def correct(masks, values, xor=False):
    """Sender's step: (numbers to send, own shares), with the masks of both choices."""
    h0, h1 = masks
    if xor:
        return h0 ^ h1 ^ values, h0
    return h0 - h1 + values, -h0


def combine(masks, choices, correction, xor=False):
    """Receiver's step: own shares (m, length), with the masks of its choices (m,)."""
    if correction.shape != masks.shape or correction.dtype != masks.dtype:
        raise ProtocolError("a correction has the wrong shape")
    chosen = correction & -choices.astype(masks.dtype)[:, None]
    return masks ^ chosen if xor else masks + chosen


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
    choices, rows = np.ascontiguousarray(bits.T).reshape(-1), {}
    for peer in senders:
        message, rows[peer] = links[peer].receiver.rows(choices)
        talk.send(peer, message)
    dtype, length = values.dtype, values.shape[1]
    shares = -bits.T.astype(dtype)[..., None] & values
    for peer in senders:
        correction = yield from talk.receive(peer)
        masks = links[peer].receiver.numbers(rows.pop(peer), dtype, length)
        part = combine(masks, choices, correction, xor).reshape(shares.shape)
        shares = shares ^ part if xor else shares + part
    return shares


def multiply_by_their_bits(talk, links, owner, n_columns, values, *, xor=False):
    """Other side of :func:`multiply_by_my_bits`: `owner` knows the bits."""
    message = yield from talk.receive(owner)
    rows = links[owner].sender.rows(message, n_columns * len(values))
    repeated = np.broadcast_to(values, (n_columns, *values.shape))
    repeated = repeated.reshape(-1, values.shape[1])
    masks = links[owner].sender.numbers(rows, values.dtype, values.shape[1])
    correction, shares = correct(masks, repeated, xor)
    talk.send(owner, correction)
    return shares.reshape(n_columns, *values.shape)
