"""Numbers as the backends add them: checked vectors as integers on a grid.

A vector of signed integers of 128 bits is an array of shape (2, n) of unsigned 64-bit
limbs, the low limbs first, in two's complement. A value is its integer times the grid,
a power of two. Integers that need fewer bytes are packed into these.
"""

from collections.abc import Sequence
from functools import cache
from math import isfinite

import numpy as np

#: values are rounded to multiples of ``2**-FRACTION_BITS``, and sums stay below the
#: limit in absolute value: integers have 112 bits. Vectors of integers are written as
#: they are, and their sums have 64 bits
FRACTION_BITS, MAX_SUM = 56, 2**55
# Vectors of more integers than these are added one by one.
_LONG = 1024


class RangeError(OverflowError):
    """A value is too large for the number format that the parties agreed on."""


def check_vector(vector, n_parties=1):
    """Return a finite float64 or int64 vector, of which so many can be added.

    Anything else is a ValueError, and values that are no numbers, or too large, a
    RangeError. Every party checks its own values for the sum of all, so that no sum can
    wrap around and nobody needs to know the others' magnitudes.
    """
    vector = np.asarray(vector)
    if vector.ndim != 1:
        raise ValueError(f"expected a one-dimensional vector, got {vector.ndim}-D")
    if vector.dtype.kind not in "biuf":
        raise ValueError(f"cannot sum values of dtype {vector.dtype}")
    limit = MAX_SUM if vector.dtype.kind == "f" else 2**63
    # Python numbers: abs(int64 minimum) and the product may not fit 64 bits.
    ends = [f.reduce(vector).item() for f in (np.minimum, np.maximum) if vector.size]
    if not all(map(isfinite, ends)):
        raise RangeError("cannot sum NaN or infinite values")
    if max(map(abs, ends), default=0) * n_parties >= limit:
        raise RangeError(
            f"the sum over {n_parties} parties may exceed the largest value that can "
            f"be added, {float(limit):.3g}; rescale the data"
        )
    return vector.astype(np.float64 if limit == MAX_SUM else np.int64, copy=False)


def split_digits(limbs: np.ndarray, n_bits: int, n_digits: int) -> np.ndarray:
    """Write integers in digits of so many bits; the last one has the sign.

    Parameters
    ----------
    limbs : ndarray of uint64 of shape (2, n_integers)
        In two's complement.
    n_bits, n_digits : int
        Together more than 64 bits before the last digit.

    Returns
    -------
    digits : ndarray of int64 of shape (n_digits, n_integers)
        The lowest first.

    Examples
    --------
    >>> import numpy as np
    >>> digits = split_digits(encode_fixed_point(np.array([-3, 2**40])), 38, 3)
    >>> digits[1]
    array([274877906943,            4])
    >>> join_digits(digits, 38)[0].view(np.int64)
    array([           -3, 1099511627776])
    """
    low, high = limbs
    digits = np.empty((n_digits, limbs.shape[1]), dtype=np.int64)
    mask = np.uint64((1 << n_bits) - 1)
    for i in range(n_digits - 1):
        shift = i * n_bits
        if shift >= 64:
            word = high >> np.uint64(shift - 64)
        else:
            word = low >> np.uint64(shift)
            if shift:
                word |= high << np.uint64(64 - shift)
        digits[i] = (word & mask).view(np.int64)
    digits[-1] = high.view(np.int64) >> ((n_digits - 1) * n_bits - 64)
    return digits


def join_digits(digits: np.ndarray, n_bits: int) -> np.ndarray:
    """Return the integers of which these are the digits, or sums of digits.

    Parameters
    ----------
    digits : ndarray of int64 of shape (n_digits, n_integers)
    n_bits : int

    Returns
    -------
    limbs : ndarray of uint64 of shape (2, n_integers)
    """
    limbs = np.zeros((2, digits.shape[1]), dtype=np.uint64)
    for i, digit in enumerate(digits):
        shift = i * n_bits
        if shift >= 64:
            limbs[1] += (digit << (shift - 64)).view(np.uint64)
            continue
        high = digit >> min(64 - shift, 63)
        add_limbs(limbs, np.stack([digit << shift, high]).view(np.uint64))
    return limbs


def encode_fixed_point(vector):
    """Return a checked vector as limbs: floats rounded to the grid, integers as is.

    Examples
    --------
    >>> import numpy as np
    >>> encode_fixed_point(np.array([1, -1]))
    array([[                   1, 18446744073709551615],
           [                   0, 18446744073709551615]], dtype=uint64)
    >>> decode_fixed_point(encode_fixed_point(np.array([0.3])), np.dtype(float))
    array([0.3])
    """
    limbs = np.empty((2, vector.size), dtype=np.uint64)
    if vector.dtype == np.int64:
        limbs[0], limbs[1] = vector.view(np.uint64), (vector >> 63).view(np.uint64)
        return limbs
    # All steps are exact but the rounding: a float has 53 bits, so that a large one is
    # an integer of 64 bits, moved to the left. NumPy shifts by 64 bits as by fewer.
    scaled = np.rint(vector * 2.0**FRACTION_BITS)
    shift = np.maximum(np.frexp(scaled)[1] - 63, 0)
    integers = np.ldexp(scaled, -shift).astype(np.int64)
    limbs[0] = (integers << shift).view(np.uint64)
    limbs[1] = (integers >> 64 - shift).view(np.uint64)
    return limbs


def decode_fixed_point(limbs, dtype):
    """Read two limbs as a float64 or int64 vector, the inverse of the encoding."""
    low, high = limbs
    if dtype == np.int64:
        return low.view(np.int64).copy()
    # of a negative number, flip all bits and add one
    sign = high.view(np.int64) >> 63
    flip = sign.view(np.uint64)
    low_size = (low ^ flip) - flip
    high_size = (high ^ flip) - flip * (low == 0)
    values = high_size * 2.0 ** (64 - FRACTION_BITS) + low_size * 2.0**-FRACTION_BITS
    return np.copysign(values, sign)


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


def sum_limbs(vectors: Sequence[bytes], n_bytes: int = 16) -> np.ndarray:
    """Add many vectors, given as bytes, modulo a power of two.

    Parameters
    ----------
    vectors : sequence of bytes
        From :func:`limbs_to_bytes` or :func:`pack_limbs`, all of the same length.
    n_bytes : int, default=16
        Of each integer.

    Returns
    -------
    limbs : ndarray of uint64 of shape (2, n_integers)
        Low and high halves of integers of 128 bits, of which so many bytes count.
    """
    is_long = len(vectors[0]) > n_bytes * _LONG
    if len(vectors) == 1 or is_long or n_bytes < 8:
        limbs, *others = (_read_limbs(vector, n_bytes) for vector in vectors)
        for other in others:
            add_limbs(limbs, other)
        return limbs
    if n_bytes == 16:
        return _sum_short(vectors)
    rows = np.frombuffer(b"".join(vectors), dtype=np.uint8).reshape(len(vectors), -1)
    n_integers = rows.shape[1] // n_bytes
    low, *higher = (
        rows[:, start * n_integers : (start + size) * n_integers].view(f"<u{size}")
        for start, size in _blocks(n_bytes)
    )
    sums = np.add.accumulate(low, dtype=np.uint64)
    limbs = np.empty((2, n_integers), dtype=np.uint64)
    limbs[0] = sums[-1]
    # a sum that is smaller than what was added last has wrapped around
    np.add.reduce(sums[1:] < low[1:], dtype=np.uint64, out=limbs[1])
    for (start, _), part in zip(_blocks(n_bytes)[1:], higher):
        limbs[1] += np.add.reduce(part, dtype=np.uint64) << (start - 8) * 8
    return limbs


def _sum_short(vectors):
    """Add vectors of whole limbs, by digits of 32 bits: their sums have 64."""
    digits = np.frombuffer(b"".join(vectors), dtype="<u4").reshape(len(vectors), -1)
    digits = digits.sum(axis=0, dtype=np.uint64).reshape(2, -1, 2)
    low, middle = digits[0].T
    middle = middle + (low >> 32)
    limbs = np.empty(digits.shape[:2], dtype=np.uint64)
    limbs[0] = (low & 0xFFFFFFFF) | (middle << 32)
    limbs[1] = digits[1, :, 0] + (digits[1, :, 1] << 32) + (middle >> 32)
    return limbs


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


@cache
def _blocks(n_bytes):
    """Return where the parts of packed integers start, and how many bytes they have.

    A part has 8, 4, 2 or 1 bytes, so that it is an array of numbers and in one limb.
    """
    blocks = []
    start = 0
    while start < n_bytes:
        size = next(size for size in (8, 4, 2, 1) if start + size <= n_bytes)
        blocks.append((start, size))
        start += size
    return blocks


def _read_limbs(data, n_bytes):
    """Return limbs that may be changed."""
    if n_bytes == 16:
        return limbs_from_bytes(data).astype(np.uint64)
    return unpack_limbs(data, n_bytes)


def wrap_limbs(limbs: np.ndarray, n_bytes: int) -> None:
    """Make integers of 128 bits signed ones of fewer bytes, in place.

    Parameters
    ----------
    limbs : ndarray of uint64 of shape (2, n_integers)
        Changed.
    n_bytes : int
        From 8 to 16.
    """
    low, high = limbs.view(np.int64)
    if n_bytes == 8:
        high[:] = low >> 63
    else:
        high <<= 8 * (16 - n_bytes)
        high >>= 8 * (16 - n_bytes)


def pack_limbs(limbs: np.ndarray, n_bytes: int) -> bytes:
    """Return the lowest bytes of integers of 128 bits.

    Parameters
    ----------
    limbs : ndarray of uint64 of shape (2, n_integers)
    n_bytes : int
        Of each integer, from 1 to 16.

    Returns
    -------
    data : bytes
        First the lowest bytes of all integers, then their next ones.

    Examples
    --------
    >>> import numpy as np
    >>> numbers = np.array([[1, 2], [0, 0]], dtype=np.uint64)
    >>> pack_limbs(numbers, 3).hex()
    '010002000000'
    >>> unpack_limbs(pack_limbs(numbers, 3), 3)[0]
    array([1, 2], dtype=uint64)
    """
    return b"".join(
        (limbs[start // 8] >> start % 8 * 8).astype(f"<u{size}").tobytes()
        if start % 8 or size < 8
        else limbs_to_bytes(limbs[start // 8])
        for start, size in _blocks(n_bytes)
    )


def unpack_limbs(data: bytes, n_bytes: int) -> np.ndarray:
    """Read what :func:`pack_limbs` wrote, as signed integers.

    Parameters
    ----------
    data : bytes
        So many that each integer has `n_bytes`.
    n_bytes : int

    Returns
    -------
    limbs : ndarray of uint64 of shape (2, n_integers)
    """
    n_integers = len(data) // n_bytes
    limbs = np.empty((2, n_integers), dtype=np.int64)
    for start, size in _blocks(n_bytes):
        # the last part has the sign
        kind = "i" if start + size == n_bytes else "u"
        part = np.frombuffer(data, f"<{kind}{size}", n_integers, start * n_integers)
        if start % 8 == 0:
            limbs[start // 8] = part.view(f"<i{size}") if size == 8 else part
        else:
            limbs[start // 8] |= part.astype(np.int64) << start % 8 * 8
    if n_bytes <= 8:
        np.right_shift(limbs[0], 63, out=limbs[1])
    return limbs.view(np.uint64)


def pack_shortest(limbs: np.ndarray) -> tuple[bytes, int, int]:
    """Write signed integers in as few bytes as all of them fit in.

    Low bits that are zero in all of them are left out, too.

    Parameters
    ----------
    limbs : ndarray of uint64 of shape (2, n_integers)

    Returns
    -------
    data : bytes
    n_bytes : int
        Of each integer.
    shift : int
        How many bits were left out, below 64.
    """
    low, high = limbs
    sign = (high.view(np.int64) >> 63).view(np.uint64)
    some_low = int(np.bitwise_or.reduce(low, initial=0))
    shift = min((some_low & -some_low).bit_length() - 1, 63) if some_low else 63
    size = int(np.bitwise_or.reduce(low ^ sign, initial=0))
    size |= int(np.bitwise_or.reduce(high ^ sign, initial=0)) << 64
    n_bytes = max(1, -(-(size.bit_length() + 1 - shift) // 8))
    if shift:
        right, left = np.uint64(shift), np.uint64(64 - shift)
        high = (high.view(np.int64) >> shift).view(np.uint64)
        limbs = np.array([low >> right | limbs[1] << left, high])
    return pack_limbs(limbs, n_bytes), n_bytes, shift


def unpack_shortest(data: bytes, n_bytes: int, shift: int) -> np.ndarray:
    """Read what :func:`pack_shortest` wrote.

    Parameters
    ----------
    data : bytes
    n_bytes, shift : int

    Returns
    -------
    limbs : ndarray of uint64 of shape (2, n_integers)
    """
    limbs = unpack_limbs(data, n_bytes)
    if shift:
        left, right = np.uint64(shift), np.uint64(64 - shift)
        low, high = limbs
        limbs = np.array([low << left, high << left | low >> right])
    return limbs
