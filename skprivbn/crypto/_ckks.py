"""Sums under CKKS, with TenSEAL: fast for long vectors, exact in small digits."""

import math
import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from skprivbn.crypto._base import KeyHolderBackend, SumSession
from skprivbn.crypto._numbers import join_digits, split_digits
from skprivbn.exceptions import ProtocolError
from skprivbn.utils import LazyModule
from skprivbn.utils._sklearn import StrOptions

ts = LazyModule("tenseal")

#: name -> ring degree, bits of the primes (the last one never carries data), scale.
#: With ternary secrets all have 128-bit security, as SEAL makes sure
PRESETS = {
    "default": (4096, (36, 36, 37), 50),
    "fast": (4096, (60, 49), 40),
    "large": (8192, (60, 60, 60), 60),
}

# Fresh noise has standard deviation 3.2 per coefficient, and rounding adds 1/sqrt(12).
_NOISE = math.hypot(3.2, 1 / math.sqrt(12))
# A normal deviate beyond 8 standard deviations has probability 1e-15.
_SIGMAS = 8
# Slots are computed in double precision by a transform of log2(N) passes.
_FLOAT_ERROR = 2.0**-48
# Double precision keeps so many bits less of larger sums; nobody adds up to more.
_MAX_SUM_BITS = 33
# Integers of all backends have so many bits, and their sums no more.
_INTEGER_BITS = 112
_HEADER_BYTES = 4


class CKKSBackend(KeyHolderBackend):
    """Hide vectors with the CKKS homomorphic cipher (TenSEAL).

    The coordinator adds ciphertexts with a context that holds no key of any sort.
    Only the parties, who share the secret key, can read the sum. CKKS is approximate:
    see `error_bound`. Therefore a number is written in digits, one in a slot, small
    enough that their sums come out exactly, and can be verified. Numbers and sums are
    those of :class:`MaskingBackend`, to the last bit.

    Parameters
    ----------
    preset : {"default", "fast", "large"}, default="default"
        - ``"default"``: three slots a number with up to 250 parties;
        - ``"fast"``: a third of the work and two thirds of the bytes; three slots a
          number with up to 31 parties;
        - ``"large"``: twice the slots in a ciphertext, two thirds of the work and 1.4
          times the bytes; three slots a number with up to 250 parties.

    See Also
    --------
    MaskingBackend : Exact and much faster; the sum becomes known to the coordinator.
    PaillierBackend : Exact, slow; the sum stays with the parties.

    Notes
    -----
    A CKKS decryption carries the noise of the ciphertext. Whoever sees both, at full
    precision, can compute the secret key, so a decrypted sum must not leave the
    parties as it is; rounded integers may.

    Examples
    --------
    >>> from skprivbn.crypto import CKKSBackend
    >>> backend = CKKSBackend(preset="fast")
    >>> backend.error_bound(n_parties=10) < 1e-8
    True
    """

    name = "ckks"
    hidden_by = "CKKS encryption at 128-bit security (TenSEAL)"

    _parameter_constraints = {"preset": [StrOptions(set(PRESETS))]}

    def __init__(self, preset: str = "default") -> None:
        self.preset = preset

    def preset_name(self) -> str:
        """Return the preset."""
        return self.preset

    @property
    def _parameters(self):
        """Ring degree, bits of the primes, and scale."""
        return PRESETS[self.preset]

    def error_bound(self, n_parties: int, largest: float = 1.0) -> float:
        """Bound the absolute error of every value of a sum, but for chance 1e-15.

        Parameters
        ----------
        n_parties : int
        largest : float, default=1.0
            Largest absolute value of the sum.

        Returns
        -------
        bound : float
        """
        degree, _, scale_bits = self._parameters
        noise = _SIGMAS * _NOISE * math.sqrt(n_parties * degree / 2) / 2.0**scale_bits
        return noise + _FLOAT_ERROR * max(largest, n_parties)

    def digits(self, n_parties: int) -> "SlotDigits":
        """Return how integers are written in slots, so that their sums are exact.

        A slot is a multiple of at least four times the error of the largest sum.

        Parameters
        ----------
        n_parties : int

        Returns
        -------
        digits : SlotDigits
        """
        _, primes, scale_bits = self._parameters
        # The primes lie slightly below their powers of two, and noise needs room.
        most_bits = min(sum(primes[:-1]) - 1 - scale_bits, _MAX_SUM_BITS)
        limit = 0.98 * 2.0**most_bits
        fraction_bits = math.floor(-math.log2(4 * self.error_bound(n_parties, limit)))
        n_bits = math.floor(math.log2(limit / n_parties)) + fraction_bits
        return SlotDigits(limit, fraction_bits, n_bits)

    def describe(self, roster: Sequence[str]) -> dict:
        """Return plain words on who sees what, and the precision."""
        precision = (
            "every value rounded to a multiple of 2**-56, then exact; sums up to "
            f"{self.max_sum():.3g}; integers exact; "
            f"{self.digits(len(roster)).n_digits} slots of a ciphertext each"
        )
        return self._describe(roster, precision)

    def _make_key(self):
        context = _new_context(self._parameters)
        return _serialise(context, secret=True)

    def _open_session(self, context, secret):
        return CKKSSession(context, secret, self)

    def add_parts(self, columns: list[list[bytes]]) -> list[bytes]:
        """Add ciphertexts without any key."""
        parameters = self._parameters
        server = _keyless_context(parameters)
        totals = []
        for column in columns:
            first, *others = (_load(part, parameters, server) for part in column)
            try:
                for other in others:
                    first += other
            except Exception as error:
                raise ProtocolError("CKKS ciphertexts cannot be added") from error
            totals.append(_frame(first.serialize(), parameters))
        return totals


class SlotDigits(NamedTuple):
    """How integers of 112 bits are written in slots.

    Attributes
    ----------
    limit : float
        Sums in a slot stay below it.
    fraction_bits : int
        Slots hold multiples of ``2**-fraction_bits``.
    n_bits : int
        Of a digit: sums of so many parties' digits stay below the limit.
    """

    limit: float
    fraction_bits: int
    n_bits: int

    @property
    def n_digits(self) -> int:
        """Slots of one integer."""
        return -(-_INTEGER_BITS // self.n_bits)


class CKKSSession(SumSession):
    """One key holder's CKKS sums."""

    def __init__(self, context, secret, backend):
        super().__init__(context, backend)
        self._parameters = backend._parameters
        degree, _, scale_bits = self._parameters
        self._n_slots = degree // 2
        self._digits = backend.digits(len(self._roster))
        try:
            self._context = ts.context_from(secret, n_threads=1)
            complete = self._context.has_secret_key()
        except Exception as error:
            raise ProtocolError("not a CKKS key") from error
        if not complete or self._context.global_scale != 2.0**scale_bits:
            raise ProtocolError("the CKKS key is not for the parameters agreed on")

    def hide_integers(self, integers, number, key):
        """Encrypt the digits of integers, as many as a ciphertext holds at a time."""
        digits = split_digits(integers, self._digits.n_bits, self._digits.n_digits)
        values = np.ldexp(digits.ravel(), -self._digits.fraction_bits)
        parts = []
        for start in range(0, len(values), self._n_slots):
            slots = values[start : start + self._n_slots].tolist()
            encrypted = ts.ckks_vector(self._context, slots)
            parts.append(_frame(encrypted.serialize(), self._parameters))
        return parts

    def reveal_integers(self, total, n_integers):
        """Decrypt, and take every slot for the integer that it is close to."""
        limit, fraction_bits, n_bits = self._digits
        n_filled = n_integers * self._digits.n_digits
        sizes = [
            min(self._n_slots, n_filled - start)
            for start in range(0, n_filled, self._n_slots)
        ]
        if len(total.parts) != len(sizes):
            raise ProtocolError("the sum has too many or too few ciphertexts")
        values = np.concatenate(
            [self._decrypt(part, size) for part, size in zip(total.parts, sizes)]
        )
        values = np.ldexp(values, fraction_bits)
        digits = np.rint(values)
        if not np.all(np.abs(digits) <= np.ldexp(limit, fraction_bits)):  # nor NaN
            raise ProtocolError("a decrypted sum is beyond the limit")
        if not np.all(np.abs(values - digits) <= 0.25):
            raise ProtocolError("a decrypted sum is not on the grid")
        return join_digits(digits.reshape(-1, n_integers).astype(np.int64), n_bits)

    def _decrypt(self, part, size):
        encrypted = _load(part, self._parameters, self._context, size)
        try:
            return np.array(encrypted.decrypt())
        except Exception as error:
            raise ProtocolError("a CKKS ciphertext cannot be decrypted") from error


def _new_context(parameters):
    """Return a context with a fresh secret key."""
    degree, primes, scale_bits = parameters
    context = ts.Context(
        ts.SCHEME_TYPE.CKKS,
        poly_modulus_degree=degree,
        coeff_mod_bit_sizes=list(primes),
        encryption_type=ts.ENCRYPTION_TYPE.SYMMETRIC,
        n_threads=1,
    )
    context.global_scale = 2.0**scale_bits
    return context


def _serialise(context, *, secret):
    return context.serialize(
        save_public_key=False,
        save_secret_key=secret,
        save_galois_keys=False,
        save_relin_keys=False,
    )


@lru_cache(maxsize=16)
def _keyless_context(parameters):
    """Return a context that can add and nothing else.

    TenSEAL draws a key with every context; this one is dropped by serialising the
    parameters alone, and has nothing to do with the parties' key anyway.
    """
    return ts.context_from(
        _serialise(_new_context(parameters), secret=False), n_threads=1
    )


def _frame(data, parameters):
    """Pad to a size set by the parameters: compressed ciphertexts vary by chance."""
    size = next(size for size in _frame_sizes(parameters) if len(data) <= size)
    return len(data).to_bytes(_HEADER_BYTES, "little") + data.ljust(size, b"\0")


@lru_cache(maxsize=16)
def _frame_sizes(parameters):
    """Return the size of a well-compressed ciphertext, and of one not compressed.

    Residues are stored in 8 bytes each. A byte-wise entropy coder gets close to the
    entropy of the mix of random bytes, partly random bytes and zeros; parameters for
    which the coder of TenSEAL gives up always take the second size.
    """
    degree, primes, _ = parameters
    frequency = np.zeros(256)
    for bits in primes[:-1]:
        full, rest = divmod(bits, 8)
        frequency += full / 256
        frequency[: 2**rest] += 1 / 2**rest
        frequency[0] += 7 - full
    share = frequency / frequency.sum()
    entropy = -(share * np.log2(share, where=share > 0, out=np.zeros(256))).sum()
    n_bytes = 2 * degree * 8 * len(primes[:-1])
    overhead = 1024
    return (
        min(n_bytes, math.ceil(n_bytes * entropy / 8)) + overhead,
        n_bytes + n_bytes // 64 + overhead,
    )


def _load(part, parameters, context, size=None):
    """Take a ciphertext out of its frame; anything unexpected is a ProtocolError.

    Parameters
    ----------
    part : bytes
    parameters : tuple
    context : tenseal.Context
    size : int, default=None
        Number of values that it must have; None for as many as it says.

    Returns
    -------
    encrypted : tenseal.CKKSVector
    """
    n_bytes = int.from_bytes(part[:_HEADER_BYTES], "little")
    data, padding = part[_HEADER_BYTES:][:n_bytes], part[_HEADER_BYTES + n_bytes :]
    if (
        len(data) != n_bytes
        or len(data) + len(padding) not in _frame_sizes(parameters)
        or padding.strip(b"\0")
    ):
        raise ProtocolError("damaged CKKS ciphertext")
    _check_serialised(data, parameters, size)
    try:
        encrypted = ts.ckks_vector_from(context, data)
        (ciphertext,) = encrypted.ciphertext()
    except Exception as error:
        raise ProtocolError("not a CKKS ciphertext") from error
    # Anything else is no sum of fresh ciphertexts: a product, say, has another scale.
    _, _, scale_bits = parameters
    if (
        ciphertext.size() != 2
        or ciphertext.scale != 2.0**scale_bits
        or ciphertext.parms_id() != _fresh(parameters).parms_id
    ):
        raise ProtocolError("not a CKKS ciphertext as parties make them")
    return encrypted


def _check_serialised(data, parameters, size):
    """Refuse bytes that TenSEAL does not write, before its parser reads any of them.

    TenSEAL trusts the numbers of values that a message declares: ``[k, 2**32 - k + n]``
    add up to n in 32 bits, and make `decrypt` read k values, far beyond the slots. So
    everything around the ciphertext is compared with the one way to write it.
    """
    declared = _read_varint(data, 2) if size is None else size
    if not 1 <= declared <= parameters[0] // 2:
        raise ProtocolError("a CKKS ciphertext has too many or too few values")
    # protobuf: numbers of values (field 1), ciphertexts (2), scale (3)
    values = _varint(declared)
    sizes = b"\x0a" + _varint(len(values)) + values
    if not data.startswith(sizes):
        raise ProtocolError("a CKKS ciphertext has too many or too few values")
    n_bytes = _read_varint(data, len(sizes) + 1)
    before = sizes + b"\x12" + _varint(n_bytes)
    header = _fresh(parameters).seal_header + struct.pack("<Q", n_bytes)
    scale = b"\x19" + struct.pack("<d", 2.0 ** parameters[2])
    if (
        len(data) != len(before) + n_bytes + len(scale)
        or not data.startswith(before + header)
        or not data.endswith(scale)
    ):
        raise ProtocolError("not a CKKS ciphertext as parties make them")


def _varint(value):
    """Return how protobuf writes an integer: 7 bits a byte, the lowest first."""
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])


def _read_varint(data, start):
    """Return the integer of up to five bytes that begin at `start`."""
    value = 0
    for i, byte in enumerate(data[start : start + 5]):
        value |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            break
    return value


class _Fresh(NamedTuple):
    """What all ciphertexts of the same parameters have in common.

    Attributes
    ----------
    parms_id : list of int
        What SEAL calls the parameters of a fresh ciphertext.
    seal_header : bytes
        SEAL's magic number, version and way to compress.
    """

    parms_id: list
    seal_header: bytes


@lru_cache(maxsize=16)
def _fresh(parameters):
    """Return what is common to ciphertexts, as read off one that is made here."""
    encrypted = ts.ckks_vector(_new_context(parameters), [0.0])
    (ciphertext,) = encrypted.ciphertext()
    data = encrypted.serialize()
    # behind the fields' tags and lengths: 0a 01 01 12 and the length of what follows
    start = 4 + len(_varint(_read_varint(data, 4)))
    return _Fresh(ciphertext.parms_id(), data[start : start + 8])
