"""Shares of joint counts between two holders, by packed Paillier ciphertexts.

The scalar product of the paper: the first holder encrypts its indicators, the second
multiplies the ciphertexts of its records and adds an encrypted mask. Here one
plaintext carries the indicators of many columns side by side in wide fields, so that
one encryption serves all of them, for several records if there is room; and the second
holder sorts the records by its own configuration, so that one multiplication per record
serves all configurations.
"""

import secrets
from functools import partial
from math import isqrt

import gmpy2
import numpy as np
from joblib import Parallel, delayed

from skprivbn.crypto.shares._conversation import together
from skprivbn.crypto.shares._counts import label_tables
from skprivbn.exceptions import ProtocolError
from skprivbn.utils import LazyModule

paillier = LazyModule("phe.paillier")

#: bits by which masks exceed what they hide, for all fields of a session together
STATISTICAL_BITS = 40
#: ciphertexts in a message, and tables on their way at a time
_CHUNK = 1 << 11
_TABLES = 64


def nth_residues(p, q, size):
    """Draw uniform n-th residues modulo n^2, knowing n = p q.

    Modulo p^2 they are the p-th powers of the residues of p (q has no common factor
    with p - 1), and likewise modulo q^2: two powers of half the length, put together
    by the Chinese remainder theorem.
    """
    p, q = gmpy2.mpz(p), gmpy2.mpz(q)
    p2, q2 = p * p, q * q
    inverse = gmpy2.invert(q2, p2)
    drawn = []
    for _ in range(size):
        modulo_p = gmpy2.powmod(1 + secrets.randbelow(int(p - 1)), p, p2)
        modulo_q = gmpy2.powmod(1 + secrets.randbelow(int(q - 1)), q, q2)
        drawn.append(modulo_q + q2 * ((modulo_p - modulo_q) * inverse % p2))
    return drawn


class PackedCounts:
    """One party's side of Paillier counts, with its key.

    Parameters
    ----------
    key_size : int
        Bits of the modulus.
    n_jobs : int or None
        Processes that encrypt.
    max_fields : int
        Most counts of a session; masks are sized for all of them together.
    """

    def __init__(self, key_size, n_jobs=None, max_fields=1 << 20):
        self.key_size, self._n_jobs = key_size, n_jobs
        self._max_fields = max_fields
        self._private = None
        self._n_fields = 0

    @property
    def private_key(self):
        """The own key, made when it is first needed."""
        if self._private is None:
            _, self._private = paillier.generate_paillier_keypair(
                n_length=self.key_size
            )
        return self._private

    def public_key_of(self, message):
        """Return the key that a peer has sent, as long as the own one."""
        if type(message) is not bytes or len(message) != 2 * self.key_size // 8:
            raise ProtocolError("a Paillier key has the wrong size")
        public = paillier.PaillierPublicKey(int.from_bytes(message, "big"))
        if public.n.bit_length() != self.key_size:
            raise ProtocolError("a Paillier key has the wrong size")
        return public

    def __call__(self, talk, links, tables, n_samples, dtype):
        """Share counts, as :func:`~skprivbn.crypto.shares.joint_counts` does."""
        sides = {
            label: partial(self._share, table=table, n_samples=n_samples, dtype=dtype)
            for label, table in label_tables(talk, tables).items()
        }
        costs = dict.fromkeys(sides, 1)
        found = yield from together(talk, sides, costs, _TABLES)
        return list(found.values())

    def _share(self, talk, table, n_samples, dtype):
        first, second = table.holders
        n_fields, n_rows = table.n_columns
        self._n_fields += n_fields * n_rows
        if self._n_fields > self._max_fields:
            raise OverflowError("more counts than the masks are sized for")
        if 0 in table.n_columns:
            return np.zeros(table.n_columns, dtype=dtype)
        layout = _Layout.fitting(
            n_samples, n_fields, n_rows, self._max_fields, self.key_size
        )
        if talk.name == first:
            side, peer = self._as_first, second
        else:
            side, peer = self._as_second, first
        return (
            yield from side(
                talk, peer, table.indicators, n_samples, n_rows, layout, dtype
            )
        )

    def _as_first(self, talk, peer, indicators, n_samples, n_rows, layout, dtype):
        public = self.private_key.public_key
        width = ciphertext_bytes(public)
        talk.send(peer, to_bytes([public.n], width))
        for rows in layout.messages(n_samples):
            plaintexts = layout.pack_indicators(indicators.columns(rows, bool))
            talk.send(peer, self.encrypt(plaintexts, width))
            # a chunk at a time: the peer asks for the next one
            yield from talk.receive(peer)
        answer = from_bytes((yield from talk.receive(peer)), width)
        if len(answer) != layout.n_slots * n_rows * layout.n_plaintexts:
            raise ProtocolError("wrong number of masked counts")
        fields = layout.unpack([self._private.raw_decrypt(int(c)) for c in answer])
        return layout.add_slots(fields, dtype)

    def encrypt(self, plaintexts, width):
        """Encrypt under the own key, with residues by the short way."""
        private = self.private_key
        public = private.public_key
        n_tasks = 1 if self._n_jobs in (None, 1) else 16
        sizes = [len(part) for part in np.array_split(plaintexts, n_tasks)]
        residues = Parallel(n_jobs=self._n_jobs)(
            delayed(nth_residues)(private.p, private.q, size) for size in sizes
        )
        residues = [residue for part in residues for residue in part]
        return to_bytes(
            [
                public.raw_encrypt(int(m), r_value=1) * residue % public.nsquare
                for m, residue in zip(plaintexts, residues)
            ],
            width,
        )

    def _as_second(self, talk, peer, indicators, n_samples, n_rows, layout, dtype):
        public = self.public_key_of((yield from talk.receive(peer)))
        width, square = ciphertext_bytes(public), gmpy2.mpz(public.nsquare)
        n_totals, n_plaintexts = layout.n_slots * n_rows, layout.n_plaintexts
        masks = np.array(
            [
                [secrets.randbelow(layout.n_masks) for _ in range(layout.n_fields)]
                for _ in range(n_totals)
            ],
            dtype=object,
        )
        # a fresh encryption of the masks hides which ciphertexts were multiplied
        totals = [
            [gmpy2.mpz(public.raw_encrypt(m)) for m in layout.pack(row)]
            for row in masks
        ]
        for records in layout.messages(n_samples):
            ciphertexts = from_bytes((yield from talk.receive(peer)), width)
            talk.send(peer, None)
            rows = indicators.single(records)
            if len(ciphertexts) != -(-len(rows) // layout.n_slots) * n_plaintexts:
                raise ProtocolError("wrong number of encrypted records")
            for i, row in enumerate(rows):
                if 0 <= row < n_rows:
                    group, slot = divmod(i, layout.n_slots)
                    total = totals[slot * n_rows + row]
                    for j in range(n_plaintexts):
                        c = ciphertexts[group * n_plaintexts + j]
                        total[j] = total[j] * c % square
        talk.send(peer, to_bytes([c for row in totals for c in row], width))
        return layout.add_slots(-masks, dtype)


class _Layout:
    """Fields of equal width in as few plaintexts as needed.

    If the columns of a record leave room in a plaintext, several records go into one,
    each in a slot of fields of its own. The second holder then keeps a total for every
    slot and row. In a total of one slot the fields of the others hold what nobody
    asked for; they are masked all the same, and thrown away.

    Parameters
    ----------
    n_columns : int
        Fields of a record.
    n_slots : int
        Records that go into a plaintext.
    field_bits, key_size : int
    largest : int
        Largest count of a field.
    """

    def __init__(self, n_columns, n_slots, field_bits, key_size, largest):
        self.n_columns, self.n_slots, self.field_bits = n_columns, n_slots, field_bits
        self.n_fields, self.largest = n_columns * n_slots, largest
        # one bit less than the modulus, so that no plaintext wraps around
        self.per_plaintext = (key_size - 1) // field_bits
        if self.per_plaintext == 0:
            raise OverflowError("the Paillier key is too short for one count")
        self.n_plaintexts = -(-self.n_fields // self.per_plaintext)
        # a masked count must not reach the next field
        self.n_masks = (1 << field_bits) - largest

    @classmethod
    def fitting(cls, n_samples, n_columns, n_rows, max_fields, key_size):
        """Return the layout that needs the least work."""
        # an encryption by the key owner for every n_slots records, and about four
        # times its work for every total
        n_slots = max(1, isqrt(n_samples // (4 * n_rows)))
        while True:
            largest = -(-n_samples // n_slots)
            # every slot of every total is masked, wanted or not
            field_bits = (
                largest.bit_length()
                + STATISTICAL_BITS
                + (max_fields * n_slots**2 - 1).bit_length()
            )
            layout = cls(n_columns, n_slots, field_bits, key_size, largest)
            if n_slots == 1 or layout.n_plaintexts == 1:
                return layout
            n_slots -= 1

    def messages(self, n_samples):
        """Yield the records of each message as a slice."""
        step = _CHUNK * self.n_slots
        for start in range(0, n_samples, step):
            yield slice(start, min(start + step, n_samples))

    def pack(self, values):
        """Plaintexts of one row of numbers."""
        return [
            sum(
                int(value) << (self.field_bits * i)
                for i, value in enumerate(values[start : start + self.per_plaintext])
            )
            for start in range(0, self.n_fields, self.per_plaintext)
        ]

    def pack_indicators(self, records):
        """Plaintexts of rows of bits, one row after another, as an object array."""
        records = np.pad(records, ((0, -len(records) % self.n_slots), (0, 0)))
        records = records.reshape(-1, self.n_fields)
        weights = np.array(
            [1 << (self.field_bits * i) for i in range(self.per_plaintext)],
            dtype=object,
        )
        packed = np.empty((len(records), self.n_plaintexts), dtype=object)
        for j in range(self.n_plaintexts):
            part = records[:, j * self.per_plaintext : (j + 1) * self.per_plaintext]
            packed[:, j] = part.astype(object) @ weights[: part.shape[1]]
        return packed.ravel()

    def unpack(self, plaintexts):
        """Numbers of all totals: (n_slots x n_rows, n_fields)."""
        field = (1 << self.field_bits) - 1
        rows = []
        for start in range(0, len(plaintexts), self.n_plaintexts):
            row = [
                (plaintext >> (self.field_bits * i)) & field
                for plaintext in plaintexts[start : start + self.n_plaintexts]
                for i in range(self.per_plaintext)
            ]
            rows.append(row[: self.n_fields])
        return np.array(rows, dtype=object)

    def add_slots(self, totals, dtype):
        """Own shares: of the total of each slot its own fields, (n_columns, n_rows)."""
        shape = (self.n_slots, -1, self.n_slots, self.n_columns)
        wanted = np.einsum("srsc->src", totals.reshape(shape)).sum(axis=0)
        return (wanted % (1 << 8 * np.dtype(dtype).itemsize)).astype(dtype).T


def ciphertext_bytes(public):
    return -(-public.nsquare.bit_length() // 8)


def to_bytes(numbers, width):
    return b"".join(int(number).to_bytes(width, "big") for number in numbers)


def from_bytes(message, width):
    if len(message) % width:
        raise ProtocolError("ciphertexts have the wrong width")
    return [
        gmpy2.mpz(int.from_bytes(message[i : i + width], "big"))
        for i in range(0, len(message), width)
    ]
