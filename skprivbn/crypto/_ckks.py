"""Sums under CKKS, with TenSEAL: fast for long vectors, approximate."""

import math
from collections.abc import Sequence
from functools import lru_cache
from numbers import Integral

import numpy as np
import tenseal as ts

from skprivbn.crypto._key_holders import (
    KeyHolderBackend,
    KeyHolderSession,
    as_dtype,
)
from skprivbn.crypto._numbers import check_range
from skprivbn.exceptions import ProtocolError
from skprivbn.utils._sklearn import Interval, StrOptions

__all__ = ["CKKSBackend"]

#: name -> ring degree, bits of the primes (the last one never carries data), scale
PRESETS = {
    "default": (4096, (36, 36, 37), 50),
    "fast": (4096, (60, 49), 40),
    "large": (8192, (60, 60, 60), 60),
}

#: largest sum of prime bits with 128-bit security and ternary secrets, by ring
#: degree: the table of the Homomorphic Encryption Standard, as SEAL enforces it
MAX_MODULUS_BITS = {
    1024: 27,
    2048: 54,
    4096: 109,
    8192: 218,
    16384: 438,
    32768: 881,
}

# Fresh noise has standard deviation 3.2 per coefficient, and rounding adds 1/sqrt(12).
_NOISE = math.hypot(3.2, 1 / math.sqrt(12))
# A normal deviate beyond 8 standard deviations has probability 1e-15.
_SIGMAS = 8
# Slots are computed in double precision by a transform of log2(N) passes.
_FLOAT_ERROR = 2.0**-48
_HEADER_BYTES = 4


class CKKSBackend(KeyHolderBackend):
    """Hide vectors with the CKKS homomorphic cipher (TenSEAL).

    The coordinator adds ciphertexts with a context that holds no key of any sort.
    Only the parties, who share the secret key, can read the sum. It is approximate:
    see `error_bound`. Integers are rounded, hence exact.

    Parameters
    ----------
    preset : {"default", "fast", "large"}, default="default"
        - ``"default"``: sums up to 2**21 with an absolute error near 1e-12;
        - ``"fast"``: half the work, sums up to 2**19, error near 1e-9;
        - ``"large"``: sums up to 2**59 and errors of double precision only, for
          twice the work per ciphertext and twice the values in it.
    poly_modulus_degree : int, default=None
        Ring degree; a ciphertext holds half as many values. Overrides the preset.
    coeff_mod_bit_sizes : sequence of int, default=None
        Bits of the primes of the coefficient modulus. The last prime never carries
        data. Overrides the preset.
    scale_bits : int, default=None
        Fractional bits of the encoding. Overrides the preset.

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
    >>> CKKSBackend(poly_modulus_degree=2048).validate()
    Traceback (most recent call last):
    ...
    ValueError: a coefficient modulus of 109 bits (36 + 36 + 37) is below 128-bit ...
    """

    name = "ckks"
    hidden_by = "CKKS encryption at 128-bit security (TenSEAL)"

    _parameter_constraints = {
        "preset": [StrOptions(set(PRESETS))],
        "poly_modulus_degree": [Interval(Integral, 1024, 32768, closed="both"), None],
        "coeff_mod_bit_sizes": ["array-like", None],
        "scale_bits": [Interval(Integral, 1, 118, closed="both"), None],
    }

    def __init__(
        self,
        preset: str = "default",
        poly_modulus_degree: int | None = None,
        coeff_mod_bit_sizes: Sequence[int] | None = None,
        scale_bits: int | None = None,
    ) -> None:
        self.preset = preset
        self.poly_modulus_degree = poly_modulus_degree
        self.coeff_mod_bit_sizes = coeff_mod_bit_sizes
        self.scale_bits = scale_bits

    def validate(self) -> None:
        """Raise ValueError unless the parameters work together and are secure."""
        super().validate()
        degree, primes, scale_bits = self._parameters()
        total, sizes = sum(primes), " + ".join(map(str, primes))
        if degree not in MAX_MODULUS_BITS:
            raise ValueError(
                f"poly_modulus_degree must be one of {list(MAX_MODULUS_BITS)}, "
                f"got {degree}"
            )
        if len(primes) < 2 or not all(20 <= bits <= 60 for bits in primes):
            raise ValueError(
                "coeff_mod_bit_sizes needs at least two primes of 20 to 60 bits each, "
                f"got {list(primes)}"
            )
        if total > MAX_MODULUS_BITS[degree]:
            raise ValueError(
                f"a coefficient modulus of {total} bits ({sizes}) is below 128-bit "
                f"security at poly_modulus_degree={degree}, which allows at most "
                f"{MAX_MODULUS_BITS[degree]} bits: use fewer or smaller primes, or a "
                "larger degree"
            )
        if scale_bits > sum(primes[:-1]) - 2:
            raise ValueError(
                f"scale_bits={scale_bits} leaves no room for values in a data modulus "
                f"of {sum(primes[:-1])} bits (all primes but the last)"
            )

    def _parameters(self):
        degree, primes, scale_bits = PRESETS[self.preset]
        if self.poly_modulus_degree is not None:
            degree = self.poly_modulus_degree
        if self.coeff_mod_bit_sizes is not None:
            primes = tuple(int(bits) for bits in self.coeff_mod_bit_sizes)
        if self.scale_bits is not None:
            scale_bits = self.scale_bits
        return degree, primes, scale_bits

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
        degree, _, scale_bits = self._parameters()
        noise = _SIGMAS * _NOISE * math.sqrt(n_parties * degree / 2) / 2.0**scale_bits
        return noise + _FLOAT_ERROR * max(largest, n_parties)

    def max_sum(self) -> float:
        """Return the largest absolute value that a sum may have."""
        _, primes, scale_bits = self._parameters()
        # The primes lie slightly below their powers of two, and noise needs room.
        return 0.98 * 2.0 ** (sum(primes[:-1]) - 1 - scale_bits)

    def describe(self, roster: Sequence[str]) -> dict:
        """Return plain words on who sees what, and the precision."""
        n_parties = len(roster)
        precision = (
            f"absolute error below {self.error_bound(n_parties):.1g} plus "
            f"{_FLOAT_ERROR:.1g} of the largest value; sums up to "
            f"{self.max_sum():.3g}; integers exact"
        )
        return self._describe(roster, precision)

    def _make_key(self):
        context = _new_context(self._parameters())
        return _serialise(context, secret=True)

    def _open_session(self, context, secret):
        return CKKSSession(context, secret, self)

    def _add_parts(self, columns):
        parameters = self._parameters()
        server = _keyless_context(parameters)
        totals = []
        for column in columns:
            first, *others = (
                _load(part, self._parameters(), server) for part in column
            )
            try:
                for other in others:
                    first += other
            except Exception as error:
                raise ProtocolError("CKKS ciphertexts cannot be added") from error
            totals.append(_frame(first.serialize(), parameters))
        return totals


class CKKSSession(KeyHolderSession):
    """One key holder's CKKS sums. The first slot of each ciphertext is a check."""

    kind = "ciphertext"

    def __init__(self, context, secret, backend):
        super().__init__(context, secret)
        self._parameters = backend._parameters()
        self._limit = backend.max_sum()
        self._error_bound = backend.error_bound
        degree, _, scale_bits = self._parameters
        self._n_values = degree // 2 - 1
        try:
            self._context = ts.context_from(secret, n_threads=1)
            complete = self._context.has_secret_key()
        except Exception as error:
            raise ProtocolError("not a CKKS key") from error
        if not complete or self._context.global_scale != 2.0**scale_bits:
            raise ProtocolError("the CKKS key is not for the parameters agreed on")

    def _encrypt(self, vector, check):
        limit = self._limit
        if vector.dtype == np.int64:
            # Beyond, double precision could round to a neighbouring integer.
            limit = min(limit, 0.25 / _FLOAT_ERROR)
        check_range(
            vector,
            self._n_parties,
            limit,
            "rescale the data, or use CKKSBackend(preset='large') or MaskingBackend",
        )
        parts = []
        for index in range(self._n_parts(vector.size)):
            values = vector[index * self._n_values : (index + 1) * self._n_values]
            # The check comes first, so that its place does not depend on the length.
            slots = np.concatenate([[_check_value(check(index), 1)], values])
            encrypted = ts.ckks_vector(self._context, slots)
            parts.append(_frame(encrypted.serialize(), self._parameters))
        return parts

    def _decrypt(self, parts, length, dtype, check):
        if len(parts) != self._n_parts(length):
            raise ProtocolError("the sum has too many or too few ciphertexts")
        values = []
        for index, part in enumerate(parts):
            expected = _check_value(check(index), self._n_parties)
            slots = self._decrypt_slots(part)
            n_expected = min(self._n_values, length - index * self._n_values) + 1
            # Values share the error of the largest, and so does the check.
            largest = np.abs(slots).max(initial=0)
            tolerance = 1e-6 + 2 * self._error_bound(self._n_parties, largest)
            if slots.size != n_expected or abs(slots[0] - expected) > tolerance:
                raise ProtocolError(
                    "the decrypted check value is wrong: damaged ciphertext, wrong "
                    "key, or not the sum over all parties"
                )
            values.append(slots[1:])
        return as_dtype(np.concatenate(values), dtype)

    def _decrypt_slots(self, part):
        encrypted = _load(part, self._parameters, self._context)
        try:
            return np.array(encrypted.decrypt())
        except Exception as error:
            raise ProtocolError("a CKKS ciphertext cannot be decrypted") from error

    def _n_parts(self, length):
        return max(1, -(-length // self._n_values))


def _check_value(check, n_parties):
    """Map a sum of `n_parties` 64-bit numbers to one of values between 1/2 and 1."""
    return n_parties / 2 + check / 2.0**65


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


def _load(part, parameters, context):
    """Take a ciphertext out of its frame; anything unexpected is a ProtocolError."""
    size = int.from_bytes(part[:_HEADER_BYTES], "little")
    data, padding = part[_HEADER_BYTES:][:size], part[_HEADER_BYTES + size :]
    if (
        len(data) != size
        or len(data) + len(padding) not in _frame_sizes(parameters)
        or padding.strip(b"\0")
    ):
        raise ProtocolError("damaged CKKS ciphertext")
    try:
        return ts.ckks_vector_from(context, data)
    except Exception as error:
        raise ProtocolError("not a CKKS ciphertext") from error
