"""Sums under CKKS, with TenSEAL: fast for long vectors, approximate."""

import math
from collections.abc import Sequence
from functools import lru_cache
from numbers import Integral

import numpy as np
import tenseal as ts

from skprivbn.crypto._authentication import TagRing
from skprivbn.crypto._base import SumSession
from skprivbn.crypto._key_holders import KeyHolderBackend
from skprivbn.crypto._numbers import FixedPoint
from skprivbn.exceptions import ProtocolError
from skprivbn.utils._sklearn import Interval, StrOptions

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
# Double precision keeps so many bits less of larger sums; nobody adds up to more.
_MAX_SUM_BITS = 33
# A slot that holds what is left of a value has so many bits, at most.
_LOW_BITS = 38
_HEADER_BYTES = 4


class CKKSBackend(KeyHolderBackend):
    """Hide vectors with the CKKS homomorphic cipher (TenSEAL).

    The coordinator adds ciphertexts with a context that holds no key of any sort.
    Only the parties, who share the secret key, can read the sum. CKKS is approximate:
    see `error_bound`. Therefore values are rounded to a grid, coarse enough that the
    sum of the rounded values comes out exactly, and can be verified.

    Parameters
    ----------
    preset : {"default", "fast", "large"}, default="default"
        - ``"default"``: sums up to 2**21, values rounded to multiples of 2**-63, or
          of 2**-25 in vectors of more than 1,023 values;
        - ``"fast"``: half the work, sums up to 2**19, about the same grids;
        - ``"large"``: sums up to 2**33, multiples of 2**-51, or of 2**-13 in vectors of
          more than 2,047 values, for twice the work per ciphertext.
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
    ring = TagRing(2**61 - 1, coefficient_bits=61, digit_bits=31)
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
        if self.numbers(1, 1).fraction_bits < 1:
            raise ValueError(
                f"scale_bits={scale_bits} leaves too much noise to tell integers apart"
            )

    def preset_name(self) -> str | None:
        """Return the preset, if nothing overrides it."""
        chosen = (self.poly_modulus_degree, self.coeff_mod_bit_sizes, self.scale_bits)
        return self.preset if chosen == (None, None, None) else None

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

    def numbers(self, n_parties: int, length: int) -> FixedPoint:
        """Return the grid of values, at least four times the error of the largest sum.

        Where it takes no more ciphertexts, what is left of a value between two points
        of the grid goes into a slot of its own.

        Parameters
        ----------
        n_parties : int
        length : int
            Number of values.

        Returns
        -------
        numbers : FixedPoint
        """
        limit, n_slots = self.max_sum(), self._parameters()[0] // 2
        fraction_bits = math.floor(-math.log2(4 * self.error_bound(n_parties, limit)))
        spare_bits = math.floor(math.log2(limit / n_parties)) + fraction_bits - 1
        roomy = 2 * length + self.ring.n_digits <= n_slots
        return FixedPoint(
            fraction_bits,
            limit,
            n_limbs=1,
            low_bits=min(spare_bits, _LOW_BITS) if roomy else 0,
            hint="rescale the data, or use CKKSBackend(preset='large') or "
            "MaskingBackend",
        )

    def max_sum(self) -> float:
        """Return the largest absolute value that a sum may have."""
        _, primes, scale_bits = self._parameters()
        # The primes lie slightly below their powers of two, and noise needs room.
        bits = min(sum(primes[:-1]) - 1 - scale_bits, _MAX_SUM_BITS)
        return 0.98 * 2.0**bits

    def describe(self, roster: Sequence[str]) -> dict:
        """Return plain words on who sees what, and the precision."""
        n_slots = self._parameters()[0] // 2
        short, long = (self.numbers(len(roster), n) for n in (1, n_slots))
        precision = (
            f"every value rounded to a multiple of 2**{math.log2(short.grid):.0f} "
            f"(2**{math.log2(long.grid):.0f} in vectors of {n_slots // 2} values or "
            f"more), then exact; sums up to {short.limit:.3g}; integers exact"
        )
        return self._describe(roster, precision)

    def _make_key(self):
        context = _new_context(self._parameters())
        return _serialise(context, secret=True)

    def _open_session(self, context, secret):
        return CKKSSession(context, secret, self)

    def add_parts(self, columns: list[list[bytes]]) -> list[bytes]:
        """Add ciphertexts without any key."""
        parameters = self._parameters()
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


class CKKSSession(SumSession):
    """One key holder's CKKS sums."""

    def __init__(self, context, secret, backend):
        super().__init__(context, backend)
        self._parameters = backend._parameters()
        degree, _, scale_bits = self._parameters
        self._n_slots = degree // 2
        numbers = backend.numbers(len(self._roster), self._n_slots)
        self._fraction_bits, self._limit = numbers.fraction_bits, numbers.limit
        try:
            self._context = ts.context_from(secret, n_threads=1)
            complete = self._context.has_secret_key()
        except Exception as error:
            raise ProtocolError("not a CKKS key") from error
        if not complete or self._context.global_scale != 2.0**scale_bits:
            raise ProtocolError("the CKKS key is not for the parameters agreed on")

    def hide_integers(self, integers, number, key):
        """Encrypt integers, as many as a ciphertext holds at a time."""
        values = np.ldexp(
            integers[0].view(np.int64).astype(np.float64), -self._fraction_bits
        )
        parts = []
        for start in range(0, len(values), self._n_slots):
            slots = values[start : start + self._n_slots].tolist()
            encrypted = ts.ckks_vector(self._context, slots)
            parts.append(_frame(encrypted.serialize(), self._parameters))
        return parts

    def reveal_integers(self, total, n_integers):
        """Decrypt, and take every slot for the integer that it is close to."""
        sizes = [
            min(self._n_slots, n_integers - start)
            for start in range(0, n_integers, self._n_slots)
        ]
        if len(total.parts) != len(sizes):
            raise ProtocolError("the sum has too many or too few ciphertexts")
        values = np.concatenate(
            [self._decrypt(part, size) for part, size in zip(total.parts, sizes)]
        )
        values = np.ldexp(values, self._fraction_bits)
        integers = np.rint(values)
        # rounding down may take each party's value one step beyond its share
        most = np.ldexp(self._limit, self._fraction_bits) + len(self._roster)
        if not np.all(np.abs(integers) <= most):  # nor NaN
            raise ProtocolError("a decrypted sum is beyond the limit")
        if not np.all(np.abs(values - integers) <= 0.25):
            raise ProtocolError("a decrypted sum is not on the grid")
        return integers.astype(np.int64).view(np.uint64)[np.newaxis]

    def _decrypt(self, part, size):
        encrypted = _load(part, self._parameters, self._context)
        if encrypted.size() != size:
            raise ProtocolError("a CKKS ciphertext has too many or too few values")
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
        encrypted = ts.ckks_vector_from(context, data)
        (ciphertext,) = encrypted.ciphertext()
    except Exception as error:
        raise ProtocolError("not a CKKS ciphertext") from error
    # Anything else is no sum of fresh ciphertexts: a product, say, has another scale.
    _, _, scale_bits = parameters
    if (
        ciphertext.size() != 2
        or ciphertext.scale != 2.0**scale_bits
        or ciphertext.parms_id() != _first_parms_id(parameters)
    ):
        raise ProtocolError("not a CKKS ciphertext as parties make them")
    return encrypted


@lru_cache(maxsize=16)
def _first_parms_id(parameters):
    """Return what SEAL calls the parameters of a fresh ciphertext."""
    (ciphertext,) = ts.ckks_vector(_new_context(parameters), [0.0]).ciphertext()
    return ciphertext.parms_id()
