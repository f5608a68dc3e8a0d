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
the choices are the same for all i, which the sender checks before it has any row.

A receiver that tells the sender other choices in one tree than in the rest adds a digit
of the secret to rows, and reads it off what is computed of these. So it has to prove
that all trees have one column c of choices: by the check of SoftSpokenOT (Roy also
found the gap in the proof of the check of Keller, Orsini and Scholl). For a hash
R that is linear over bits it sends R c, and a digest of R t of all 128 columns t. The
sender has columns ``q = t ^ s c``, with the bits s of its secret, and compares with
``R q ^ s R c``. R is GHASH, the polynomial hash of AES-GCM: two different columns of n
blocks of 128 bits collide for at most n + 1 keys in 2^128. Its key is a hash of the
message that holds the choices, so that it cannot be known before, and no round is
added. The first block of every column are random choices that serve nothing else: they
make R c uniform.

Transfers make products of secret bits with secret numbers, ending as shares. One party
knows the bits, the others hold additive (or XOR) shares of the numbers. With masks h0,
h1 of a transfer, the sender of x sends ``h0 - h1 + x`` and keeps ``-h0``; the receiver
with bit y finds ``h_y + y * (h0 - h1 + x) = h0 + y * x``.
"""

import hashlib
import hmac
from copy import copy

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

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
from skprivbn.crypto.shares._conversation import together
from skprivbn.crypto.shares._hash import TweakableHash, random_words
from skprivbn.exceptions import ProtocolError

N_BASE = N_TREES * DEPTH
#: bytes of every stream made in advance, at least and at most; of all at a time
_ADVANCE, _AHEAD, _WORK = 1 << 8, 1 << 12, 1 << 20
_CHUNK = 1 << 17
#: blocks hashed at a time
_HASHED = 1 << 13
_LEAVES = range(N_LEAVES)
#: bytes of every column that hide the rest of it; of a hash; and of a proof
N_HIDING = _HASH = 16
PROOF = _HASH + 32
#: what GCM adds to every tag is the same for all columns, and is taken away
_NONCE = bytes(12)


class LinearHash:
    """Hash columns of equal length to 16 bytes each; sums of columns to sums.

    Parameters
    ----------
    key : bytes of length 16
        Public, drawn after the columns.
    """

    def __init__(self, key):
        self._cipher = AESGCM(key)

    def __call__(self, columns):
        """Hash the rows of an array (n, n_bytes) of bytes: (n, 16)."""
        parts = [bytes(columns.shape[1]), *map(memoryview, columns)]
        tags = b"".join([self._cipher.encrypt(_NONCE, b"", part) for part in parts])
        hashed = np.frombuffer(tags, dtype=np.uint8).reshape(-1, _HASH)
        return hashed[1:] ^ hashed[0]


def prove(hash_, choices, columns):
    """Receiver's step: bytes that go with its choices.

    Parameters
    ----------
    hash_ : LinearHash
    choices : ndarray of uint8 of shape (n_bytes,)
        Packed bits, the first `N_HIDING` bytes of them random.
    columns : ndarray of uint8 of shape (128, n_bytes)
    """
    return hash_(choices[None]).tobytes() + _digest(hash_(columns))


def is_proved(hash_, proof, columns, select):
    """Sender's step: tell whether its columns fit the proof.

    Parameters
    ----------
    hash_ : LinearHash
    proof : bytes of length `PROOF`
    columns : ndarray of uint8 of shape (128, n_bytes)
    select : ndarray of uint8 of shape (128, 1)
        The secret: 255 where its bit is 1.
    """
    of_choices = np.frombuffer(proof[:_HASH], dtype=np.uint8)
    expected = hash_(columns) ^ (of_choices & select)
    return hmac.compare_digest(_digest(expected), proof[_HASH:])


def _digest(hashed):
    return hashlib.sha256(b"skprivbn check of transfers" + hashed.tobytes()).digest()


def transpose_bits(rows, out=None):
    """Transpose a 128 x 8m bit matrix (128, m) of bytes into (8m, 2) words."""
    m = rows.shape[1]
    # row i of every 8 side by side, so that what is exchanged is long; a word more, as
    # rows whose length is a power of two would fall into the same lines of the cache
    x = np.empty((8, 16, m + -m % 8 + 8), dtype=np.uint8)
    x[..., :m] = rows.reshape(16, 8, m).transpose(1, 0, 2)
    words = x.view("<u8").reshape(8, -1)
    swap = np.empty((4, words.shape[1]), dtype=words.dtype)
    # transpose 8 x 8 bit blocks: halves of 4 rows, of 2, of 1 exchange bits
    for n, mask in ((4, 0x0F), (2, 0x33), (1, 0x55)):
        shift, mask = np.uint64(n), np.uint64(mask * 0x0101010101010101)
        for i in range(0, 8, 2 * n):
            upper, lower = words[i : i + n], words[i + n : i + 2 * n]
            bits = np.right_shift(upper, shift, out=swap[:n])
            bits ^= lower
            bits &= mask
            lower ^= bits
            bits <<= shift
            upper ^= bits
    # and put the bytes in place
    out = np.empty((8 * m, 2), dtype=np.uint64) if out is None else out
    out.view(np.uint8).reshape(m, 8, 16)[...] = x[..., :m].transpose(2, 0, 1)
    return out


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
        self._ready = [np.empty((n, 0), dtype=np.uint8) for n in (N_TREES, N_BASE)]

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
        missing = n_bytes - self._ready[0].shape[1]
        if missing > 0:
            # as much in advance as was made before: calls of AES are dear, bytes cheap
            advance = min(max(_ADVANCE, 16 * self._n_blocks), _AHEAD)
            fresh = self._add_up(-(-max(missing, advance) // 16) * 16)
            pairs = zip(self._ready, fresh)
            self._ready = [np.concatenate(pair, axis=1) for pair in pairs]
        rows = [part[:, :n_bytes] for part in self._ready]
        self._ready = [part[:, n_bytes:] for part in self._ready]
        if self._ready[0].shape[1] < n_bytes:
            # a copy, which lets go of what is used: many streams wait for their turn
            self._ready = [part.copy() for part in self._ready]
        return rows

    def _add_up(self, n_bytes):
        counters = np.empty((n_bytes // 16, 2), dtype=np.uint64)
        counters[:, 0] = np.arange(self._n_blocks, self._n_blocks + len(counters))
        counters[:, 1] = self._upper
        self._n_blocks += len(counters)
        counters = counters.tobytes()
        sums = np.empty((N_TREES, n_bytes // 8), dtype=np.uint64)
        by_bits = np.empty((N_TREES, DEPTH, n_bytes // 8), dtype=np.uint64)
        # some trees at a time, in memory that stays in the cache, with a block more:
        # fresh bytes cost more than AES
        some = min(N_TREES, max(1, _WORK // (N_LEAVES * n_bytes)))
        room = np.empty(some * N_LEAVES * n_bytes + 16, dtype=np.uint8)
        view = memoryview(room)
        for start in range(0, N_TREES, some):
            trees = slice(start, min(N_TREES, start + some))
            ciphers = self._ciphers[N_LEAVES * start : N_LEAVES * trees.stop]
            for place, cipher in enumerate(ciphers):
                first = place * n_bytes
                if cipher:
                    cipher.update_into(counters, view[first : first + n_bytes + 16])
                else:
                    room[first : first + n_bytes] = 0
            streams = room[: n_bytes * len(ciphers)].view(np.uint64)
            streams = streams.reshape(-1, N_LEAVES, n_bytes // 8)
            for bit in reversed(range(DEPTH)):
                # the upper half are the numbers with this bit
                upper = streams[:, 1 << bit :]
                np.bitwise_xor.reduce(upper, axis=1, out=by_bits[trees, bit])
                streams = streams[:, : 1 << bit]
                streams ^= upper
            sums[trees] = streams[:, 0]
        return [x.view(np.uint8).reshape(-1, n_bytes) for x in (sums, by_bits)]


def _chunk_bytes(m):
    """Bytes per matrix row of each chunk: m bits, padded to whole bytes."""
    for start in range(0, m, _CHUNK):
        yield -(-min(_CHUNK, m - start) // 8)


class _Side:
    """Streams, hash and number of checks, which both sides of transfers have."""

    def __init__(self, leaves, places, hash_):
        self._streams = _Streams.from_leaves(leaves, places)
        self.hash, self.n_checks = hash_, 0

    def branch(self, label):
        """Return a side with streams and tweaks of its own."""
        other = copy(self)
        other._streams = self._streams.branch(label)
        other.hash, other.n_checks = self.hash.branch(label), 0
        return other


class OTSender(_Side):
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
        super().__init__(leaves, places, hash_)

    def rows(self, message, m):
        """Return the rows of choice 0, (m, 2); an error unless all is proved."""
        sizes = [N_HIDING + size for size in _chunk_bytes(m)]
        if len(message) != sum(N_TREES * size + PROOF for size in sizes):
            raise ProtocolError("an OT extension message has the wrong length")
        rows, done, start = _room(m), 0, 0
        for size in sizes:
            middle = start + N_TREES * size
            hidden, proof = message[start:middle], message[middle : middle + PROOF]
            start = middle + PROOF
            sent = np.frombuffer(hidden, dtype=np.uint8).reshape(N_TREES, size)
            _, q = self._streams.next_rows(size)
            selected = sent[:, None] & self._select.reshape(N_TREES, DEPTH, 1)
            q = q ^ selected.reshape(N_BASE, size)
            if not is_proved(_next_check(self, hidden), proof, q, self._select):
                self._forget()
                raise ProtocolError("choices of transfers differ between trees of keys")
            done += _put_rows(rows[done:], q)
        return rows[:m]

    def _forget(self):
        """Erase the secret: each further try would tell more of it."""
        self.secret.fill(0)
        self._select.fill(0)
        self._streams.forget()

    def flip(self, rows):
        """Return the rows of choice 1, given those of choice 0."""
        # a copy of the secret for each, as numpy is slow at rows of two words
        flipped = np.tile(self.secret, (len(rows), 1))
        flipped ^= rows
        return flipped

    def numbers(self, rows, dtype, length):
        """Return masks of both choices that come from some rows: two (m, length)."""
        n_blocks = _n_blocks(dtype, length)
        first = self.hash.take_tweaks(len(rows) * n_blocks)
        both = rows, self.flip(rows)
        return tuple(_hash_numbers(self.hash, x, first, dtype, length) for x in both)


class OTReceiver(_Side):
    """Receiver of extended transfers: knows the mask of its choice.

    Parameters
    ----------
    leaves : list of list of bytes
        All of the trees of keys.
    hash_ : TweakableHash
    """

    def __init__(self, leaves, hash_):
        super().__init__(leaves, [0] * N_TREES, hash_)

    def rows(self, choices):
        """Return the message to the sender and the chosen rows (m, 2)."""
        m = len(choices)
        # bits that fill the last byte are choices too: make them random
        filling = random_words(-m % 8, np.uint8) & 1
        packed = np.packbits(
            np.concatenate([np.asarray(choices, dtype=np.uint8), filling]),
            bitorder="little",
        )
        sent, rows, start = [], _room(m), 0
        for size in _chunk_bytes(m):
            total, t = self._streams.next_rows(N_HIDING + size)
            hiding = random_words(N_HIDING, np.uint8)
            chosen = np.concatenate([hiding, packed[start : start + size]])
            hidden = (total ^ chosen).tobytes()
            sent += [hidden, prove(_next_check(self, hidden), chosen, t)]
            start += _put_rows(rows[8 * start :], t) // 8
        return b"".join(sent), rows[:m]

    def numbers(self, rows, dtype, length):
        """Return the masks that come from some rows: (m, length)."""
        n_blocks = _n_blocks(dtype, length)
        first = self.hash.take_tweaks(len(rows) * n_blocks)
        return _hash_numbers(self.hash, rows, first, dtype, length)


def _room(m):
    """Memory for m rows, and for those of the bits that fill the last byte."""
    return np.empty((m + -m % 8, 2), dtype=np.uint64)


def _put_rows(rows, columns):
    """Transpose a chunk, but for what hides it, into rows; return how many."""
    columns = columns[:, N_HIDING:]
    transpose_bits(columns, rows[: 8 * columns.shape[1]])
    return 8 * columns.shape[1]


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
