"""Numbers as the backends add them: checked vectors as integers on a grid.

A vector of signed integers of 64 or 128 bits is an array of shape (1, n) or (2, n) of
unsigned 64-bit limbs, the low limbs first, in two's complement. A value is its integer
times the grid, a power of two.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = [
    "FixedPoint",
    "RangeError",
    "add_limbs",
    "check_range",
    "check_vector",
    "decode_fixed_point",
    "encode_fixed_point",
    "limbs_from_bytes",
    "limbs_to_bytes",
    "subtract_limbs",
    "sum_limbs",
]


class RangeError(OverflowError):
    """A value is too large for the number format that the parties agreed on."""


def check_vector(vector):
    """Return a finite one-dimensional float64 or int64 array, or raise ValueError."""
    vector = np.asarray(vector)
    if vector.ndim != 1:
        raise ValueError(f"expected a one-dimensional vector, got {vector.ndim}-D")
    if vector.dtype.kind in "biu":
        if vector.dtype == np.uint64 and vector.size and vector.max() >= 2**63:
            raise RangeError("unsigned integers of 2**63 or more cannot be summed")
        return vector.astype(np.int64, copy=False)
    if vector.dtype.kind != "f":
        raise ValueError(f"cannot sum values of dtype {vector.dtype}")
    vector = vector.astype(np.float64, copy=False)
    if not np.isfinite(vector).all():
        raise ValueError("cannot sum NaN or infinite values")
    return vector


def check_range(vector, n_parties, limit, hint):
    """Raise RangeError unless `n_parties` such vectors sum to less than `limit`.

    Every party checks its own values for the sum of all, so that no sum can wrap
    around and nobody needs to know the others' magnitudes.
    """
    if vector.size == 0:
        return
    # Python numbers: abs(int64 minimum) and the product may not fit 64 bits.
    largest = max(-vector.min().item(), vector.max().item())
    if largest * n_parties >= limit:
        raise RangeError(
            f"the sum over {n_parties} parties may exceed the largest value this "
            f"backend can add, {float(limit):.3g}; {hint}"
        )


@dataclass(frozen=True)
class FixedPoint:
    """How a backend writes values as integers, and how large sums may be.

    Parameters
    ----------
    fraction_bits : int, default=64
        Values are rounded to multiples of ``2**-fraction_bits``.
    limit : float, default=2**63
        Sums stay below it in absolute value; every party checks its own share.
    n_limbs : {1, 2}, default=2
        Integers of 64 or of 128 bits.
    low_bits : int, default=0
        With one limb, so many bits more behind the point, in integers of their own.
    hint : str
        What to do about values that are too large.

    Examples
    --------
    >>> import numpy as np
    >>> numbers = FixedPoint(fraction_bits=4, limit=1000, n_limbs=1)
    >>> numbers.encode(np.array([0.25, -1.0])).view(np.int64)
    array([[  4, -16]])
    >>> numbers.decode(numbers.encode(np.array([0.3])), np.dtype(float))
    array([0.3125])
    """

    fraction_bits: int = 64
    limit: float = 2**63
    n_limbs: int = 2
    low_bits: int = 0
    hint: str = "rescale the data"

    @property
    def grid(self) -> float:
        """What values are rounded to multiples of."""
        return 2.0 ** -(self.fraction_bits + self.low_bits)

    def n_integers(self, length: int) -> int:
        """Return how many integers so many values take."""
        return 2 * length if self.low_bits else length

    def encode(self, vector: np.ndarray) -> np.ndarray:
        """Return a checked vector as limbs of shape (n_limbs, n_integers)."""
        if self.n_limbs == 2:
            return encode_fixed_point(vector, self.fraction_bits)
        if vector.dtype == np.int64:
            whole, rest = vector << self.fraction_bits, np.zeros_like(vector)
        else:
            scaled = np.ldexp(vector, self.fraction_bits)
            whole = np.floor(scaled) if self.low_bits else np.rint(scaled)
            rest = np.rint(np.ldexp(scaled - whole, self.low_bits))
        integers = [whole, rest] if self.low_bits else [whole]
        return np.concatenate(integers).astype(np.int64).view(np.uint64)[np.newaxis]

    def decode(self, limbs: np.ndarray, dtype: np.dtype) -> np.ndarray:
        """Return limbs as a vector of float64 or int64."""
        if self.n_limbs == 2:
            return decode_fixed_point(limbs, dtype, self.fraction_bits)
        integers = limbs[0].view(np.int64)
        length = len(integers) // 2 if self.low_bits else len(integers)
        whole, rest = integers[:length], integers[length:]
        if dtype == np.int64:
            return whole >> self.fraction_bits
        values = whole.astype(np.float64)
        if self.low_bits:
            values += np.ldexp(rest.astype(np.float64), -self.low_bits)
        return np.ldexp(values, -self.fraction_bits)


def encode_fixed_point(vector, fraction_bits=64):
    """Encode a checked vector as two limbs; floats are rounded to the grid.

    Examples
    --------
    >>> import numpy as np
    >>> encode_fixed_point(np.array([1, -1]))
    array([[                   0,                    0],
           [                   1, 18446744073709551615]], dtype=uint64)
    """
    limbs = np.zeros((2, vector.size), dtype=np.uint64)
    if vector.dtype == np.int64:
        limbs[0] = (
            (vector << fraction_bits).view(np.uint64) if fraction_bits < 64 else 0
        )
        limbs[1] = (vector >> 64 - fraction_bits).view(np.uint64)
        return limbs
    # All steps are exact but the rounding: scaling by a power of two moves the exponent
    # only, and a float has 53 bits.
    magnitude = np.rint(np.abs(vector) * 2.0**fraction_bits)
    high = np.floor(magnitude * 2.0**-64)
    limbs[0] = magnitude - high * 2.0**64
    limbs[1] = high
    _negate_where(limbs, vector < 0)
    return limbs


def decode_fixed_point(limbs, dtype, fraction_bits=64):
    """Read two limbs as a float64 or int64 vector, the inverse of the encoding."""
    low, high = limbs
    if dtype == np.int64:
        if fraction_bits == 64:
            return high.view(np.int64).copy()
        shift = np.uint64(fraction_bits)
        return (high << np.uint64(64) - shift | low >> shift).view(np.int64)
    negative = high >= np.uint64(2**63)
    limbs = limbs.copy()
    _negate_where(limbs, negative)
    values = limbs[1] * 2.0 ** (64 - fraction_bits) + limbs[0] * 2.0**-fraction_bits
    np.negative(values, out=values, where=negative)
    return values


def add_limbs(total, limbs):
    """Add `limbs` to `total` modulo 2**128, in place."""
    low, high = total
    low += limbs[0]
    high += limbs[1]
    high += low < limbs[0]


def subtract_limbs(total: np.ndarray, limbs: np.ndarray) -> None:
    """Subtract `limbs` from `total` modulo 2**128, in place.

    Parameters
    ----------
    total : ndarray of uint64 of shape (2, n_integers)
        Changed.
    limbs : ndarray of uint64 of shape (2, n_integers)
        Low and high halves of integers of 128 bits, in two's complement.
    """
    low, high = total
    high -= low < limbs[0]
    low -= limbs[0]
    high -= limbs[1]


def sum_limbs(vectors: Sequence[bytes]) -> np.ndarray:
    """Add many vectors, given as bytes of limbs, modulo 2**128.

    Digits of 32 bits add up in 64 bits without loss, so that carries are due once.

    Parameters
    ----------
    vectors : sequence of bytes
        From :func:`limbs_to_bytes`, all of the same length.

    Returns
    -------
    limbs : ndarray of uint64 of shape (2, n_integers)
        Low and high halves of integers of 128 bits, in two's complement.
    """
    digits = np.frombuffer(b"".join(vectors), dtype="<u4").reshape(len(vectors), -1)
    digits = digits.sum(axis=0, dtype=np.uint64).reshape(2, -1, 2)
    low, middle = digits[0].T
    middle = middle + (low >> 32)
    limbs = np.empty(digits.shape[:2], dtype=np.uint64)
    limbs[0] = (low & 0xFFFFFFFF) | (middle << 32)
    limbs[1] = digits[1, :, 0] + (digits[1, :, 1] << 32) + (middle >> 32)
    return limbs


def _negate_where(limbs, where):
    """Change the sign of some of the numbers, in place: flip all bits and add one."""
    low, high = limbs
    one = where.astype(np.uint64)
    flip = np.uint64(0) - one
    low ^= flip
    high ^= flip
    low += one
    high += where & (low == 0)


def limbs_to_bytes(limbs: np.ndarray) -> bytes:
    """Return little-endian bytes, all low limbs first.

    Parameters
    ----------
    limbs : ndarray of uint64 of shape (2, n_integers)
        Low and high halves of integers of 128 bits, in two's complement.

    Returns
    -------
    data : bytes
        16 for each integer.
    """
    return limbs.astype("<u8", copy=False).tobytes()


def limbs_from_bytes(data: bytes) -> np.ndarray:
    """Return a read-only view of little-endian bytes.

    Parameters
    ----------
    data : bytes
        From :func:`limbs_to_bytes`.

    Returns
    -------
    limbs : ndarray of uint64 of shape (2, n_integers)
        Low and high halves of integers of 128 bits, in two's complement.
    """
    return np.frombuffer(data, dtype="<u8").reshape(2, -1)
