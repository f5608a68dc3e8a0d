"""Correlated oblivious transfer by the million, from 128 base transfers.

Ishai, Kilian, Nissim, Petrank, "Extending Oblivious Transfers Efficiently" (CRYPTO
2003). After an extension by m transfers the sender holds rows q and a secret s, the
receiver rows t with ``t = q ^ (choice * s)``; hashing the rows gives masks of which
the receiver knows the one it chose.
"""

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from skprivbn.crypto.shares._base_ot import receive_base_keys, send_base_keys
from skprivbn.crypto.shares._hash import TweakableHash, random_words
from skprivbn.exceptions import ProtocolError

__all__ = ["Link", "OTReceiver", "OTSender", "open_links", "transpose_bits"]

N_BASE = 128
_CHUNK = 1 << 15
_ADVANCE = 1 << 10


def transpose_bits(rows):
    """Transpose a 128 x 8m bit matrix (128, m) of bytes into (8m, 2) words."""
    m = rows.shape[1]
    # gather 8 x 8 bit blocks into words, transpose each word, put the bytes in place
    x = rows.reshape(16, 8, m).transpose(2, 0, 1).copy().view("<u8")[..., 0]
    for shift, mask in (
        (7, 0x00AA00AA00AA00AA),
        (14, 0x0000CCCC0000CCCC),
        (28, 0x00000000F0F0F0F0),
    ):
        swap = (x ^ (x >> np.uint64(shift))) & np.uint64(mask)
        x ^= swap ^ (swap << np.uint64(shift))
    blocks = x[..., None].view(np.uint8).transpose(0, 2, 1)
    return np.ascontiguousarray(blocks).reshape(8 * m, 16).view(np.uint64)


class _Streams:
    """128 AES-CTR streams that only go forward."""

    def __init__(self, keys):
        self._encryptors = [
            Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
            for key in keys
        ]
        self._ready = np.empty((N_BASE, 0), dtype=np.uint8)

    def next_rows(self, n_bytes):
        missing = n_bytes - self._ready.shape[1]
        if missing > 0:
            # some in advance: many calls want a few bytes only
            zeros = bytes(max(missing, _ADVANCE))
            data = b"".join(stream.update(zeros) for stream in self._encryptors)
            fresh = np.frombuffer(data, dtype=np.uint8).reshape(N_BASE, -1)
            self._ready = np.concatenate([self._ready, fresh], axis=1)
        rows, self._ready = self._ready[:, :n_bytes], self._ready[:, n_bytes:]
        return rows


def _chunk_bytes(m):
    """Bytes per matrix row of each chunk: m bits, padded to whole bytes."""
    for start in range(0, m, _CHUNK):
        yield -(-min(_CHUNK, m - start) // 8)


class OTSender:
    """Sender of extended transfers: knows s, and both masks of every transfer."""

    def __init__(self, secret, keys, hash_):
        self._secret = np.packbits(secret, bitorder="little").view(np.uint64)
        self._select = (-np.asarray(secret, dtype=np.int8)).view(np.uint8)[:, None]
        self._streams = _Streams(keys)
        self.hash = hash_

    def masks(self, message, m, n_blocks):
        """Return the masks of choice 0 and of choice 1: two (m, n_blocks, 2)."""
        sizes = list(_chunk_bytes(m))
        data = np.frombuffer(message, dtype=np.uint8)
        if data.size != N_BASE * sum(sizes):
            raise ProtocolError("an OT extension message has the wrong length")
        rows, start = [], 0
        for size in sizes:
            u = data[start : start + N_BASE * size].reshape(N_BASE, size)
            start += N_BASE * size
            q = self._streams.next_rows(size) ^ (u & self._select)
            rows.append(transpose_bits(q))
        q = np.concatenate(rows)[:m] if rows else np.empty((0, 2), dtype=np.uint64)
        first = self.hash.take_tweaks(m * n_blocks)
        return tuple(self.hash(x, first, n_blocks) for x in (q, q ^ self._secret))


class OTReceiver:
    """Receiver of extended transfers: knows the mask of its choice."""

    def __init__(self, key_pairs, hash_):
        self._streams = [_Streams(keys) for keys in zip(*key_pairs)]
        self.hash = hash_

    def choose(self, choices, n_blocks):
        """Return the message to the sender and the chosen masks (m, n_blocks, 2)."""
        m = len(choices)
        # bits that fill the last byte are choices too: make them random
        filling = random_words(-m % 8, np.uint8) & 1
        packed = np.packbits(
            np.concatenate([np.asarray(choices, dtype=np.uint8), filling]),
            bitorder="little",
        )
        sent, rows, start = [], [], 0
        for size in _chunk_bytes(m):
            r = packed[start : start + size]
            start += size
            t, other = (stream.next_rows(size) for stream in self._streams)
            sent.append((t ^ other ^ r).tobytes())
            rows.append(transpose_bits(t))
        t = np.concatenate(rows)[:m] if rows else np.empty((0, 2), dtype=np.uint64)
        first = self.hash.take_tweaks(m * n_blocks)
        return b"".join(sent), self.hash(t, first, n_blocks)


class Link:
    """What a party shares with one peer: transfers both ways, tweaks for garbling."""

    def __init__(self, sender, receiver, garbling):
        self.sender, self.receiver, self.garbling = sender, receiver, garbling

    @property
    def n_calls(self):
        """Hash calls so far; security is about 128 minus their log2 bits."""
        hashes = (self.sender.hash, self.receiver.hash, self.garbling)
        return sum(hash_.n_calls for hash_ in hashes)


def open_links(talk):
    """Run the base transfers with every peer; return {peer: Link}."""
    links = {}
    for peer in talk.peers:
        first = talk.roster.index(talk.name) < talk.roster.index(peer)
        secret = random_words(N_BASE, np.uint8) & 1
        # the receiver of the extension sends the base transfers, and vice versa
        if first:
            pairs = yield from send_base_keys(talk, peer, N_BASE)
            keys = yield from receive_base_keys(talk, peer, secret)
        else:
            keys = yield from receive_base_keys(talk, peer, secret)
            pairs = yield from send_base_keys(talk, peer, N_BASE)
        links[peer] = Link(
            OTSender(secret, keys, _hash(talk, "transfer", talk.name, peer)),
            OTReceiver(pairs, _hash(talk, "transfer", peer, talk.name)),
            _hash(talk, "garbling", *sorted((talk.name, peer))),
        )
    return links


def _hash(talk, purpose, one, other):
    return TweakableHash(talk.session, f"{purpose} {one!r} {other!r}".encode())
