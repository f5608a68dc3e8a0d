"""Correlated oblivious transfer by the million, from 128 base transfers.

Roy, "SoftSpokenOT: Quieter OT Extension from Small-Field Silent VOLE in the Minicrypt
Model" (CRYPTO 2022), with fields of 2^4 elements: four bytes are sent for a transfer.
(With fields of two elements it is the extension of Ishai, Kilian, Nissim and Petrank,
which sends sixteen.) After an extension by m transfers the sender holds rows q and a
secret, the receiver rows t with ``t = q ^ (choice * secret)``; hashing the rows gives
masks of which the receiver knows the one it chose.

The receiver knows all sixteen leaves of 32 trees of keys, stretched to streams of bits.
Of tree i it adds up all streams to u_i, and those whose number x has bit b to the rows
``t_ib``. The sender lacks one stream, that of number s_i, the i-th digit of its secret.
It adds up those with bit b in ``x ^ s_i`` instead, where the one it lacks has no part,
and so finds ``t_ib ^ s_ib u_i``. The receiver sends ``u_i ^ choices``, and a proof that
the choices are the same for all i (:mod:`~skprivbn.crypto.shares._consistency`), which
the sender checks before it has any row.
"""

import hashlib

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from skprivbn.crypto._derive import join_fields
from skprivbn.crypto.shares._base_ot import (
    DEPTH,
    N_LEAVES,
    N_TREES,
    grow_trees,
    puncture_trees,
    receive_base_keys,
    send_base_keys,
)
from skprivbn.crypto.shares._consistency import (
    N_HIDING,
    PROOF,
    LinearHash,
    is_proved,
    prove,
)
from skprivbn.crypto.shares._conversation import together
from skprivbn.crypto.shares._hash import TweakableHash, random_words
from skprivbn.exceptions import ProtocolError

N_BASE = N_TREES * DEPTH
#: of every stream: made in advance at least, and worked on at a time
_ADVANCE, _WORK = 1 << 8, 1 << 12
_CHUNK = 1 << 15
#: blocks hashed at a time
_HASHED = 1 << 12
_LEAVES = range(N_LEAVES)


def transpose_bits(rows):
    """Transpose a 128 x 8m bit matrix (128, m) of bytes into (8m, 2) words."""
    m = rows.shape[1]
    # gather 8 x 8 bit blocks into words, transpose each word, put the bytes in place
    x = np.ascontiguousarray(rows.reshape(16, 8, m).transpose(0, 2, 1))
    x = x.view("<u8")[..., 0]
    for shift, mask in (
        (7, 0x00AA00AA00AA00AA),
        (14, 0x0000CCCC0000CCCC),
        (28, 0x00000000F0F0F0F0),
    ):
        swap = (x ^ (x >> np.uint64(shift))) & np.uint64(mask)
        x ^= swap ^ (swap << np.uint64(shift))
    return np.ascontiguousarray(x.view(np.uint8).T).view(np.uint64)


class _Streams:
    """What leaves stretch to, added up: blocks of counters that only go forward.

    Parameters
    ----------
    ciphers : list of AES or None
        Under the leaves of all trees; None where the leaf is not known.
    path : tuple of bytes
        Labels of the branch and of those that it is a branch of: their digest is the
        upper half of the counters.
    """

    def __init__(self, ciphers, path=()):
        self._ciphers, self._path = ciphers, path
        digest = hashlib.sha256(b"skprivbn streams" + join_fields(*path)).digest()
        self._upper = np.uint64(int.from_bytes(digest[:8], "little"))
        self._n_blocks = 0
        self._ready = np.empty((N_TREES, 1 + DEPTH, 0), dtype=np.uint8)

    @classmethod
    def from_leaves(cls, leaves, places):
        """Make the streams of a session; leaves are counted from places, by XOR."""
        keys = [tree[x ^ place] for tree, place in zip(leaves, places) for x in _LEAVES]
        # Single blocks of counters: AES as a function of the key, in counter mode.
        return cls(
            [
                key and Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # nosec
                for key in keys
            ]
        )

    def branch(self, label):
        """Return streams under the same keys whose counters are others."""
        return _Streams(self._ciphers, (*self._path, label))

    def forget(self):
        """Erase the keys, also those of all branches."""
        self._ciphers.clear()
        self._ready = None

    def next_rows(self, n_bytes):
        """Return sums (N_TREES, n_bytes) and sums by bits (N_BASE, n_bytes)."""
        missing = n_bytes - self._ready.shape[2]
        if missing > 0:
            # some in advance: many calls want a few bytes only
            n_fresh = -(-max(missing, _ADVANCE) // 16) * 16
            fresh = [
                self._add_up(min(_WORK, n_fresh - start))
                for start in range(0, n_fresh, _WORK)
            ]
            self._ready = np.concatenate([self._ready, *fresh], axis=2)
        rows, self._ready = np.split(self._ready, [n_bytes], axis=2)
        return rows[:, 0], rows[:, 1:].reshape(N_BASE, n_bytes)

    def _add_up(self, n_bytes):
        counters = np.empty((n_bytes // 16, 2), dtype=np.uint64)
        counters[:, 0] = np.arange(self._n_blocks, self._n_blocks + len(counters))
        counters[:, 1] = self._upper
        self._n_blocks += len(counters)
        counters, unknown = counters.tobytes(), bytes(n_bytes)
        data = b"".join(
            [cipher.update(counters) if cipher else unknown for cipher in self._ciphers]
        )
        streams = np.frombuffer(data, dtype=np.uint64).reshape(N_TREES, N_LEAVES, -1)
        sums = np.empty((N_TREES, 1 + DEPTH, n_bytes // 8), dtype=np.uint64)
        for bit in reversed(range(DEPTH)):
            # the upper half are the numbers with this bit
            lower, upper = np.split(streams, 2, axis=1)
            np.bitwise_xor.reduce(upper, axis=1, out=sums[:, 1 + bit])
            streams = lower ^ upper
        sums[:, 0] = streams[:, 0]
        return sums.view(np.uint8)


def _chunk_bytes(m):
    """Bytes per matrix row of each chunk: m bits, padded to whole bytes."""
    for start in range(0, m, _CHUNK):
        yield -(-min(_CHUNK, m - start) // 8)


class OTSender:
    """Sender of extended transfers: knows the secret, and both masks of every transfer.

    Parameters
    ----------
    leaves : list of list of bytes
        Of the trees of keys; None in the place of one leaf of each.
    places : sequence of int
        Where this is. They are the secret.
    hash_ : TweakableHash
    """

    def __init__(self, leaves, places, hash_):
        digits = np.array(places, dtype=np.uint8)[:, None] >> np.arange(DEPTH) & 1
        bits = digits.astype(np.uint8).ravel()
        self.secret = np.packbits(bits, bitorder="little").view(np.uint64)
        self._select = (-bits)[:, None]
        self._streams = _Streams.from_leaves(leaves, places)
        self.hash, self.n_checks = hash_, 0

    def branch(self, label):
        """Return a sender with streams and tweaks of its own."""
        other = object.__new__(OTSender)
        other.secret, other._select = self.secret, self._select
        other._streams = self._streams.branch(label)
        other.hash, other.n_checks = self.hash.branch(label), 0
        return other

    def rows(self, message, m):
        """Return the rows of choice 0, (m, 2); an error unless all is proved."""
        sizes = [N_HIDING + size for size in _chunk_bytes(m)]
        if len(message) != sum(N_TREES * size + PROOF for size in sizes):
            raise ProtocolError("an OT extension message has the wrong length")
        rows, start = [np.empty((0, 2), dtype=np.uint64)], 0
        for size in sizes:
            middle = start + N_TREES * size
            hidden, proof = message[start:middle], message[middle : middle + PROOF]
            start = middle + PROOF
            sent = np.frombuffer(hidden, dtype=np.uint8).reshape(N_TREES, size)
            _, q = self._streams.next_rows(size)
            q = q ^ (sent.repeat(DEPTH, axis=0) & self._select)
            if not is_proved(_next_check(self, hidden), proof, q, self._select):
                self._forget()
                raise ProtocolError("choices of transfers differ between trees of keys")
            rows.append(transpose_bits(q)[8 * N_HIDING :])
        return np.concatenate(rows)[:m]

    def _forget(self):
        """Erase the secret: each further try would tell more of it."""
        self.secret.fill(0)
        self._select.fill(0)
        self._streams.forget()

    def numbers(self, rows, dtype, length):
        """Return masks of both choices that come from some rows: two (m, length)."""
        n_blocks = _n_blocks(dtype, length)
        first = self.hash.take_tweaks(len(rows) * n_blocks)
        both = rows, rows ^ self.secret
        return tuple(_hash_numbers(self.hash, x, first, dtype, length) for x in both)


class OTReceiver:
    """Receiver of extended transfers: knows the mask of its choice.

    Parameters
    ----------
    leaves : list of list of bytes
        All of the trees of keys.
    hash_ : TweakableHash
    """

    def __init__(self, leaves, hash_):
        self._streams = _Streams.from_leaves(leaves, [0] * N_TREES)
        self.hash, self.n_checks = hash_, 0

    def branch(self, label):
        """Return a receiver with streams and tweaks of its own."""
        other = object.__new__(OTReceiver)
        other._streams = self._streams.branch(label)
        other.hash, other.n_checks = self.hash.branch(label), 0
        return other

    def rows(self, choices):
        """Return the message to the sender and the chosen rows (m, 2)."""
        m = len(choices)
        # bits that fill the last byte are choices too: make them random
        filling = random_words(-m % 8, np.uint8) & 1
        packed = np.packbits(
            np.concatenate([np.asarray(choices, dtype=np.uint8), filling]),
            bitorder="little",
        )
        sent, rows, start = [], [np.empty((0, 2), dtype=np.uint64)], 0
        for size in _chunk_bytes(m):
            total, t = self._streams.next_rows(N_HIDING + size)
            hiding = random_words(N_HIDING, np.uint8)
            chosen = np.concatenate([hiding, packed[start : start + size]])
            hidden = (total ^ chosen).tobytes()
            sent += [hidden, prove(_next_check(self, hidden), chosen, t)]
            rows.append(transpose_bits(t)[8 * N_HIDING :])
            start += size
        return b"".join(sent), np.concatenate(rows)[:m]

    def numbers(self, rows, dtype, length):
        """Return the masks that come from some rows: (m, length)."""
        n_blocks = _n_blocks(dtype, length)
        first = self.hash.take_tweaks(len(rows) * n_blocks)
        return _hash_numbers(self.hash, rows, first, dtype, length)


def _next_check(side, hidden):
    """Return the hash of a check: of all that was said, and of what was sent last."""
    side.n_checks += 1
    return LinearHash(side.hash.derive(side.n_checks, hidden)[:16])


def _n_blocks(dtype, length):
    return max(1, -(-length * np.dtype(dtype).itemsize // 16))


def _hash_numbers(hash_, rows, first, dtype, length):
    """Hash rows to numbers, some at a time: blocks are longer than what is kept."""
    n_blocks = _n_blocks(dtype, length)
    numbers = np.empty((len(rows), length), dtype=dtype)
    step = max(1, _HASHED // n_blocks)
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        blocks = hash_(part, first + start * n_blocks, n_blocks)
        blocks = blocks.reshape(len(part), -1).view(dtype)
        numbers[start : start + step] = blocks[:, :length]
    return numbers


class Link:
    """What a party shares with one peer: transfers both ways, tweaks for garbling."""

    def __init__(self, sender, receiver, garbling):
        self.sender, self.receiver, self.garbling = sender, receiver, garbling
        self._branches = {}

    @property
    def n_calls(self):
        """Hash calls so far; security is about 128 minus their log2 bits."""
        hashes = (self.sender.hash, self.receiver.hash, self.garbling)
        of_branches = sum(branch.n_calls for branch in self._branches.values())
        return sum(hash_.n_calls for hash_ in hashes) + of_branches

    def branch(self, label):
        """Return a link for a sub-protocol that runs beside others.

        Both sides use a link in the same order, which nobody can tell of protocols
        that run at a time. A branch has counters of its own, of streams and of tweaks;
        they go on when its label is used again.
        """
        if label not in self._branches:
            name = label.encode()
            self._branches[label] = Link(
                self.sender.branch(name),
                self.receiver.branch(name),
                self.garbling.branch(name),
            )
        return self._branches[label]


def branch_links(links, label, peers=None):
    """Return the branches of the links to some peers, or to all."""
    return {
        peer: links[peer].branch(label) for peer in (links if peers is None else peers)
    }


def open_links(talk):
    """Run the base transfers with all peers at a time; return {peer: Link}."""

    def position(name):
        return talk.roster.index(name)

    sides = {}
    for peer in talk.peers:
        one, other = sorted((position(talk.name), position(peer)))
        sides[f"{one} {other}"] = lambda branch, peer=peer: _open_link(branch, peer)
    links = yield from together(talk, sides)
    return dict(zip(talk.peers, links.values()))


def _open_link(talk, peer):
    """Run the base transfers of both directions at a time."""
    choices = random_words(N_BASE, np.uint8) & 1

    def as_sender(branch):
        # the sender of the extension receives the base transfers, and vice versa
        keys, said = yield from receive_base_keys(branch, peer, choices)
        sums = yield from branch.receive(peer)
        hash_ = _hash(talk, "transfer", talk.name, peer, said + sums)
        return OTSender(*puncture_trees(sums, keys, choices), hash_)

    def as_receiver(branch):
        pairs, said = yield from send_base_keys(branch, peer, N_BASE)
        leaves, sums = grow_trees(pairs)
        branch.send(peer, sums)
        hash_ = _hash(talk, "transfer", peer, talk.name, said + sums)
        return OTReceiver(leaves, hash_)

    up, down = "from the first", "from the second"
    if talk.roster.index(talk.name) > talk.roster.index(peer):
        up, down = down, up
    found = yield from together(talk, {up: as_sender, down: as_receiver})
    garbling = _hash(talk, "garbling", *sorted((talk.name, peer)))
    return Link(found[up], found[down], garbling)


def _hash(talk, purpose, one, other, said=b""):
    domain = f"{purpose} {one!r} {other!r}".encode()
    return TweakableHash(talk.session, domain + hashlib.sha256(said).digest())
