"""The tweakable hash of oblivious transfer and garbling, and operating-system bits.

Labels and rows are 128-bit blocks, kept as arrays of shape (..., 2) of ``uint64``.
"""

import hashlib
import os

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from skprivbn.crypto._derive import join_fields

#: hashed at a time: more would not stay in the cache
_CALL_BLOCKS = 1 << 13


def random_words(shape, dtype=np.uint64):
    """Return uniform unsigned integers from the operating system."""
    dtype = np.dtype(dtype)
    n_bytes = int(np.prod(shape)) * dtype.itemsize
    return np.frombuffer(os.urandom(n_bytes), dtype=dtype).reshape(shape).copy()


def bit_length_dtype(n_bits):
    """Return the smallest unsigned dtype that holds `n_bits` bits."""
    for dtype in (np.uint8, np.uint16, np.uint32, np.uint64):
        if n_bits <= 8 * np.dtype(dtype).itemsize:
            return np.dtype(dtype)
    raise ValueError(f"{n_bits} bits do not fit in a machine word")


def to_bits(numbers, width):
    """Return the bits of 64-bit numbers, lowest first: (width, n)."""
    bits = np.unpackbits(
        numbers.astype("<u8")[:, None].view(np.uint8), axis=1, bitorder="little"
    )
    return np.ascontiguousarray(bits[:, :width].T)


class TweakableHash:
    r"""TMMO: :math:`H(x, i) = \pi(\pi(x) \oplus i) \oplus \pi(x)`, pi a fixed-key AES.

    Tweakable circular correlation robust in the ideal-permutation model [1]_, if no
    tweak serves twice. So tweaks are taken from this object only: the upper 64 bits
    name the domain (session, direction, purpose), the lower 64 are a counter that
    never restarts.

    Parameters
    ----------
    session : bytes
        Fixes the permutation.
    domain : bytes
        Who uses this object for what; the same on both sides.

    References
    ----------
    .. [1] C. Guo, J. Katz, X. Wang, Y. Yu, "Efficient and Secure Multiparty
       Computation from Fixed-Key Block Ciphers", IEEE S&P 2020.
    """

    def __init__(self, session, domain):
        self._origin = session, domain
        key = hashlib.sha256(b"skprivbn fixed-key permutation" + session).digest()[:16]
        # Single blocks: AES as a permutation, not as an encryption of data.
        permutation = Cipher(algorithms.AES(key), modes.ECB())  # nosec B305
        self._encryptor = permutation.encryptor()
        digest = hashlib.sha256(b"skprivbn tweak domain" + session + domain).digest()
        self._domain = np.uint64(int.from_bytes(digest[:8], "little"))
        self.n_calls = 0

    def branch(self, label):
        """Return a hash of a domain of its own, below this one."""
        session, domain = self._origin
        return TweakableHash(session, join_fields(domain, label))

    def derive(self, *fields):
        """Return 32 bytes bound to session, domain and fields; a public value."""
        data = join_fields("skprivbn derived", *self._origin, *fields)
        return hashlib.sha256(data).digest()

    def take_tweaks(self, n):
        """Reserve `n` tweaks and return the first."""
        first = self.n_calls
        self.n_calls += n
        return first

    def __call__(self, x, tweaks, n_blocks=1):
        """Hash every block of `x` (m, 2) to `n_blocks` blocks: (m, n_blocks, 2).

        Block b of row i gets tweak ``tweaks[i] + b``; if `tweaks` is a number, it is
        the first of as many as there are blocks.
        """
        m, in_order = len(x), np.ndim(tweaks) == 0
        out = np.empty((m, n_blocks, 2), dtype=np.uint64)
        step = min(m, max(1, _CALL_BLOCKS // n_blocks))
        # memory that is used again stays in the cache; fresh bytes cost more than AES,
        # which writes into a block more than it is given
        once, twice = np.empty((2, step * n_blocks + 1, 2), dtype=np.uint64)
        of_blocks = np.empty((step * n_blocks, 2), dtype=np.uint64)
        of_blocks[:, 1] = self._domain
        if in_order:
            of_blocks[:, 0] = np.arange(tweaks, tweaks + len(of_blocks))
        else:
            further = np.tile(np.arange(n_blocks, dtype=np.uint64), step)
        for start in range(0, m, max(1, step)):
            part = slice(start, min(m, start + step))
            result = out[part].reshape(-1, 2)
            numbers = of_blocks[: len(result)]
            if not in_order:
                repeated = tweaks[part].repeat(n_blocks)
                np.add(repeated, further[: len(result)], out=numbers[:, 0])
            pi = self._permute(x[part], once)
            if n_blocks > 1:
                # repeat blocks of 16 bytes, which numpy does faster than rows of words
                pi = pi.view(np.complex128).repeat(n_blocks).view(np.uint64)
                pi = pi.reshape(-1, 2)
            np.bitwise_xor(pi, numbers, out=result)
            np.bitwise_xor(self._permute(result, twice), pi, out=result)
            if in_order:
                of_blocks[:, 0] += np.uint64(len(of_blocks))
        return out

    def _permute(self, blocks, room):
        """Apply pi to every block; `room` takes the result."""
        blocks = np.ascontiguousarray(blocks)
        self._encryptor.update_into(blocks.data.cast("B"), room.data.cast("B"))
        return room[: len(blocks)]
