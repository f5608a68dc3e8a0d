"""The tweakable hash of oblivious transfer and garbling, and operating-system bits.

Labels and rows are 128-bit blocks, kept as arrays of shape (..., 2) of ``uint64``.
"""

import hashlib
import os

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from skprivbn.crypto._derive import join_fields

#: hashed at a time: more would not stay in the cache
_CALL_BLOCKS = 1 << 12


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

    def permute(self, blocks, room):
        """Apply pi to every block; `room` (one block more) takes the result."""
        self._encryptor.update_into(
            np.ascontiguousarray(blocks).data.cast("B"), room.data.cast("B")
        )
        return room[: len(blocks)]

    def __call__(self, x, tweaks, n_blocks=1):
        """Hash every block of `x` (m, 2) to `n_blocks` blocks: (m, n_blocks, 2).

        Block b of row i gets tweak ``tweaks[i] + b``; if `tweaks` is a number, it is
        the first of as many as there are blocks.
        """
        m, further = len(x), np.arange(n_blocks, dtype=np.uint64)
        if np.ndim(tweaks) == 0:
            tweaks = np.arange(tweaks, tweaks + m * n_blocks, n_blocks, dtype=np.uint64)
        out = np.empty((m, n_blocks, 2), dtype=np.uint64)
        step = max(1, _CALL_BLOCKS // n_blocks)
        # memory that is used again stays in the cache; fresh bytes cost more than AES
        rooms = np.empty((2, min(m, step) * n_blocks + 1, 2), dtype=np.uint64)
        for start in range(0, m, step):
            part = slice(start, min(m, start + step))
            once = self.permute(x[part], rooms[0])
            if n_blocks > 1:
                # repeat blocks of 16 bytes, which numpy does faster than rows of words
                once = once.view(np.complex128).repeat(n_blocks).view(np.uint64)
                once = once.reshape(-1, 2)
            tweaked = out[part].reshape(-1, 2)
            of_blocks = (tweaks[part, None] + further).ravel()
            np.bitwise_xor(once[:, 0], of_blocks, out=tweaked[:, 0])
            np.bitwise_xor(once[:, 1], self._domain, out=tweaked[:, 1])
            np.bitwise_xor(self.permute(tweaked, rooms[1]), once, out=tweaked)
        return out
