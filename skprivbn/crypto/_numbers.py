"""Numbers as the backends add them: checked vectors and 128-bit fixed point.

A fixed-point vector is an array of shape (2, n) of unsigned 64-bit limbs, the low
limbs first: value = (high * 2**64 + low) / 2**64 in two's complement. The binary
point sits between the limbs, so an integer is its high limb and nothing is rounded.
"""

import numpy as np

__all__ = [
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

FRACTION_BITS = 64


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


def encode_fixed_point(vector):
    """Encode a checked vector as limbs; float64 is rounded to multiples of 2**-64.

    Examples
    --------
    >>> import numpy as np
    >>> encode_fixed_point(np.array([1, -1]))
    array([[                   0,                    0],
           [                   1, 18446744073709551615]], dtype=uint64)
    """
    limbs = np.zeros((2, vector.size), dtype=np.uint64)
    if vector.dtype == np.int64:
        limbs[1] = vector.view(np.uint64)
        return limbs
    magnitude = np.abs(vector)
    whole = np.floor(magnitude)
    # Both steps are exact: a float's fraction has at most 53 bits, and scaling by a
    # power of two moves the exponent only. Rounding cannot reach 2**64.
    limbs[0] = np.rint((magnitude - whole) * 2.0**FRACTION_BITS)
    limbs[1] = whole
    _negate_where(limbs, vector < 0)
    return limbs


def decode_fixed_point(limbs, dtype):
    """Read limbs as a float64 or int64 vector, the inverse of the encoding."""
    if dtype == np.int64:
        return limbs[1].view(np.int64).copy()
    negative = limbs[1] >= np.uint64(2**63)
    limbs = limbs.copy()
    _negate_where(limbs, negative)
    values = limbs[1].astype(np.float64) + limbs[0] * 2.0**-FRACTION_BITS
    np.negative(values, out=values, where=negative)
    return values


def add_limbs(total, limbs):
    """Add `limbs` to `total` modulo 2**128, in place."""
    low, high = total
    low += limbs[0]
    high += limbs[1]
    high += low < limbs[0]


def subtract_limbs(total, limbs):
    """Subtract `limbs` from `total` modulo 2**128, in place."""
    low, high = total
    high -= low < limbs[0]
    low -= limbs[0]
    high -= limbs[1]


def sum_limbs(vectors):
    """Add many vectors, given as bytes of limbs, modulo 2**128.

    Digits of 32 bits add up in 64 bits without loss, so that carries are due once.
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


def limbs_to_bytes(limbs):
    """Return little-endian bytes, all low limbs first."""
    return limbs.astype("<u8", copy=False).tobytes()


def limbs_from_bytes(data):
    """Return a read-only (2, n) view of little-endian bytes."""
    return np.frombuffer(data, dtype="<u8").reshape(2, -1)
