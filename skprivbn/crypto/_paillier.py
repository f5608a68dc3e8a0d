"""Sums under Paillier encryption, with phe: exact, slow, based on factoring."""

import secrets
from collections.abc import Sequence
from numbers import Integral

import gmpy2
import numpy as np
from joblib import Parallel, delayed

from skprivbn.crypto._authentication import TagRing
from skprivbn.crypto._base import KeyHolderBackend, SumSession
from skprivbn.exceptions import ProtocolError
from skprivbn.utils import LazyModule
from skprivbn.utils._sklearn import Interval

phe = LazyModule("phe")

# Sums of 112 bits, as of all backends.
_FIELD_BYTES = 14
_SECURE_KEY_SIZE = 2048
#: sizes that sites let others choose; to make a larger key takes long
KEY_SIZES = (2048, 3072, 4096)
#: threads of one party
MAX_JOBS = 64


class PaillierBackend(KeyHolderBackend):
    """Hide vectors with the Paillier cryptosystem (phe).

    Values become multiples of 2**-56 in fields of 112 bits, and a ciphertext holds as
    many fields as fit: 18 in a key of 2048 bits. Sums are exact in this number format.
    Only the parties, who share the key, can read them. Where two parties count
    columns together, each has a key of its own.

    Parameters
    ----------
    key_size : int, default=2048
        Bits of the modulus. 2048 bits are about 112-bit security, 3072 bits 128-bit.
    insecure_test_key : bool, default=False
        Allow keys below 2048 bits, which can be factored, for fast tests. Warns.
    n_jobs : int, default=None
        Threads that a party uses to encrypt and decrypt, as in joblib. None is 1.

    See Also
    --------
    CKKSBackend : The same sums, much faster for long vectors.

    Examples
    --------
    >>> from skprivbn.crypto import PaillierBackend
    >>> PaillierBackend(key_size=1024).validate()
    Traceback (most recent call last):
    ...
    ValueError: key_size=1024 can be factored; use 2048 (about 112-bit security) ...
    """

    name = "paillier"
    ring = TagRing(2**127 - 1, coefficient_bits=127, digit_bits=64)
    hidden_by = "Paillier encryption (phe)"

    _parameter_constraints = {
        "key_size": [Interval(Integral, 256, 8192, closed="both")],
        "insecure_test_key": ["boolean"],
        "n_jobs": [Interval(Integral, -MAX_JOBS, MAX_JOBS, closed="both"), None],
    }

    def __init__(
        self,
        key_size: int = 2048,
        insecure_test_key: bool = False,
        n_jobs: int | None = None,
    ) -> None:
        self.key_size = key_size
        self.insecure_test_key = insecure_test_key
        self.n_jobs = n_jobs

    def validate(self) -> None:
        """Raise ValueError unless the key is long enough."""
        super().validate()
        if self.key_size < _SECURE_KEY_SIZE and not self.insecure_test_key:
            raise ValueError(
                f"key_size={self.key_size} can be factored; use {_SECURE_KEY_SIZE} "
                "(about 112-bit security) or 3072 (128-bit), or insecure_test_key=True "
                "in tests"
            )
        if self.key_size % 8:
            raise ValueError(f"key_size must be a multiple of 8, got {self.key_size}")

    def preset_name(self) -> str | None:
        """Return the size of the key, if it is a usual one."""
        return str(self.key_size) if self.key_size in KEY_SIZES else None

    def leaks(self) -> str | None:
        """Say so if the key is a test key."""
        if self.key_size < _SECURE_KEY_SIZE:
            return (
                f"a Paillier key of {self.key_size} bits can be factored: the "
                "coordinator can read every party's vectors"
            )
        return None

    def describe(self, roster: Sequence[str]) -> dict:
        """Return plain words on who sees what, and the precision."""
        words = self._describe(
            roster,
            "every value rounded to a multiple of 2**-56, then exact; "
            f"sums up to {self.max_sum():.3g}; integers exact",
        )
        level = "128-bit" if self.key_size >= 3072 else "about 112-bit"
        if self.key_size < _SECURE_KEY_SIZE:
            level = "no"
        words["hidden_by"] += f"; {self.key_size} bits, {level} security"
        return words

    def _make_key(self):
        _, private = phe.generate_paillier_keypair(n_length=self.key_size)
        width = self.key_size // 8
        return b"".join(int(f).to_bytes(width, "big") for f in (private.p, private.q))

    def _open_session(self, context, secret):
        return PaillierSession(context, secret, self)

    def add_parts(self, columns: list[list[bytes]]) -> list[bytes]:
        """Multiply ciphertexts, which adds what is in them."""
        # The modulus is public but not among the parameters: it is the first part.
        (modulus, *others), *columns = columns
        if any(other != modulus for other in others):
            raise ProtocolError("Paillier ciphertexts under different keys")
        square = gmpy2.mpz(_read_modulus(modulus, self.key_size)) ** 2
        totals = []
        for column in columns:
            total = gmpy2.mpz(1)
            for part in column:
                total = total * _read_ciphertext(part, square) % square
            totals.append(_write_ciphertext(total, self.key_size))
        return [modulus, *totals]


class PaillierSession(SumSession):
    """One key holder's Paillier sums."""

    def __init__(self, context, secret, backend):
        super().__init__(context, backend)
        self._key_size = backend.key_size
        self._n_jobs = backend.n_jobs
        self._private = _read_key(secret, backend.key_size)
        self._modulus = self._private.public_key.n.to_bytes(
            backend.key_size // 8, "big"
        )
        self._n_fields = (backend.key_size - 1) // (8 * _FIELD_BYTES)
        # Fields must not go negative: each party lifts its values by half of its share
        # of the field, and the total is lowered by what all parties added.
        self._lift = 2 ** (8 * _FIELD_BYTES - 1) // len(self._roster)

    def hide_integers(self, integers, number, key):
        """Encrypt integers, as many as a ciphertext holds at a time."""
        plaintexts = [
            self._pack(integers[:, start : start + self._n_fields])
            for start in range(0, integers.shape[1], self._n_fields)
        ]
        ciphertexts = self._map(_encrypt_as_owner, plaintexts)
        return [
            self._modulus,
            *(_write_ciphertext(number, self._key_size) for number in ciphertexts),
        ]

    def reveal_integers(self, total, n_integers):
        """Decrypt; a bit more than the fields have is an error."""
        modulus, *parts = total.parts
        starts = range(0, n_integers, self._n_fields)
        if len(parts) != len(starts):
            raise ProtocolError("the sum has too many or too few ciphertexts")
        if modulus != self._modulus:
            raise ProtocolError("the sum is under another Paillier key")
        square = self._private.public_key.nsquare
        ciphertexts = [_read_ciphertext(part, square) for part in parts]
        plaintexts = self._map(phe.PaillierPrivateKey.raw_decrypt, ciphertexts)
        return np.hstack(
            [
                self._unpack(plaintext, min(self._n_fields, n_integers - start))
                for start, plaintext in zip(starts, plaintexts)
            ]
        )

    def _map(self, function, numbers):
        # Threads, so that the key stays in this process: gmpy2 lets go of the
        # interpreter lock while it computes.
        return Parallel(n_jobs=self._n_jobs, prefer="threads")(
            delayed(_without_lock)(function, self._private, number)
            for number in numbers
        )

    def _pack(self, integers):
        fields = []
        for field in _limbs_as_bytes(integers)[:, :_FIELD_BYTES]:
            signed = int.from_bytes(field.tobytes(), "little", signed=True)
            fields.append((signed + self._lift).to_bytes(_FIELD_BYTES, "little"))
        return int.from_bytes(b"".join(fields), "little")

    def _unpack(self, plaintext, n_fields):
        n_bytes = n_fields * _FIELD_BYTES
        if plaintext >> 8 * n_bytes:
            raise ProtocolError("a decrypted sum has more bits than its fields")
        data = plaintext.to_bytes(n_bytes, "little")
        wide = np.zeros((n_fields, 16), dtype=np.uint8)
        lifted = len(self._roster) * self._lift
        for row, start in zip(wide, range(0, n_bytes, _FIELD_BYTES)):
            number = int.from_bytes(data[start : start + _FIELD_BYTES], "little")
            signed = (number - lifted).to_bytes(16, "little", signed=True)
            row[:] = np.frombuffer(signed, dtype=np.uint8)
        return np.ascontiguousarray(wide.view("<u8").T)


def _limbs_as_bytes(limbs):
    """Return one row of 16 little-endian bytes per value."""
    return np.ascontiguousarray(limbs.T.astype("<u8")).view(np.uint8)


def _without_lock(function, *arguments):
    with gmpy2.context(allow_release_gil=True):
        return function(*arguments)


def _encrypt_as_owner(private, plaintext):
    """Encrypt with a random n-th residue made modulo p**2 and q**2 separately.

    r**p mod p**2 runs over the n-th residues modulo p**2 as r runs over 1..p-1, so
    the owner of the factors needs two exponentiations with half the bits each, on
    numbers of half the size: 6 to 8 times faster than r**n mod n**2, and the same
    distribution.
    """
    p, q = gmpy2.mpz(private.p), gmpy2.mpz(private.q)
    at_p = gmpy2.powmod(secrets.randbelow(int(p) - 1) + 1, p, p * p)
    at_q = gmpy2.powmod(secrets.randbelow(int(q) - 1) + 1, q, q * q)
    lift = gmpy2.invert(p * p, q * q)
    obfuscator = at_p + p * p * ((at_q - at_p) * lift % (q * q))
    public = private.public_key
    nude = public.raw_encrypt(plaintext, r_value=1)
    return int(gmpy2.mpz(nude) * obfuscator % public.nsquare)


def _read_key(secret, key_size):
    width = key_size // 8
    p = int.from_bytes(secret[:width], "big")
    q = int.from_bytes(secret[width:], "big")
    if (
        len(secret) != 2 * width
        or (p * q).bit_length() != key_size
        or p == q
        or not (gmpy2.is_prime(p) and gmpy2.is_prime(q))
        or gmpy2.gcd(p * q, (p - 1) * (q - 1)) != 1
    ):
        raise ProtocolError("not a Paillier key of the size agreed on")
    return phe.PaillierPrivateKey(phe.PaillierPublicKey(p * q), p, q)


def _read_modulus(part, key_size):
    modulus = int.from_bytes(part, "big")
    if len(part) != key_size // 8 or modulus.bit_length() != key_size:
        raise ProtocolError("not a Paillier modulus")
    return modulus


def _write_ciphertext(number, key_size):
    """Write at fixed width."""
    return int(number).to_bytes(key_size // 4, "big")


def _read_ciphertext(part, square):
    number = int.from_bytes(part, "big")
    if len(part) != -(-square.bit_length() // 8) or not 0 < number < square:
        raise ProtocolError("not a Paillier ciphertext")
    return number
