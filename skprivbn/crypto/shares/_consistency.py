"""That the receiver of extended transfers made one choice a transfer, in all trees.

A receiver that tells the sender other choices in one tree than in the rest adds a digit
of the secret to rows, and reads it off what is computed of these. So it has to prove
that all trees have one column c of choices: by the check of SoftSpokenOT (Roy, CRYPTO
2022, who also found the gap in the proof of the check of Keller, Orsini and Scholl,
CRYPTO 2015). For a hash R that is linear over bits it sends R c, and a digest of R t of
all 128 columns t. The sender has columns ``q = t ^ s c``, with the bits s of its
secret, and compares with ``R q ^ s R c``.

R is GHASH, the polynomial hash of AES-GCM: two different columns of n blocks of 128
bits collide for at most n + 1 keys in 2^128. Its key is a hash of the message that
holds the choices, so that it cannot be known before, and no round is added. The first
block of every column are random choices that serve nothing else: they make R c uniform.
"""

import hashlib
import hmac

import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

#: bytes of every column that hide the rest of it; of a hash; and of a proof
N_HIDING = _HASH = 16
PROOF = _HASH + 32
#: what GCM adds to every tag is the same for all columns, and is taken away
_NONCE = bytes(12)


class LinearHash:
    """Hash columns of equal length to 16 bytes each; sums of columns to sums.

    Parameters
    ----------
    key : bytes of length 16
        Public, drawn after the columns.
    """

    def __init__(self, key):
        self._cipher = AESGCM(key)

    def __call__(self, columns):
        """Hash the rows of an array (n, n_bytes) of bytes: (n, 16)."""
        data, size = columns.tobytes(), columns.shape[1]
        parts = [bytes(size), *(data[i : i + size] for i in range(0, len(data), size))]
        tags = b"".join([self._cipher.encrypt(_NONCE, b"", part) for part in parts])
        hashed = np.frombuffer(tags, dtype=np.uint8).reshape(-1, _HASH)
        return hashed[1:] ^ hashed[0]


def prove(hash_, choices, columns):
    """Receiver's step: bytes that go with its choices.

    Parameters
    ----------
    hash_ : LinearHash
    choices : ndarray of uint8 of shape (n_bytes,)
        Packed bits, the first `N_HIDING` bytes of them random.
    columns : ndarray of uint8 of shape (128, n_bytes)
    """
    return hash_(choices[None]).tobytes() + _digest(hash_(columns))


def is_proved(hash_, proof, columns, select):
    """Sender's step: tell whether its columns fit the proof.

    Parameters
    ----------
    hash_ : LinearHash
    proof : bytes of length `PROOF`
    columns : ndarray of uint8 of shape (128, n_bytes)
    select : ndarray of uint8 of shape (128, 1)
        The secret: 255 where its bit is 1.
    """
    of_choices = np.frombuffer(proof[:_HASH], dtype=np.uint8)
    expected = hash_(columns) ^ (of_choices & select)
    return hmac.compare_digest(_digest(expected), proof[_HASH:])


def _digest(hashed):
    return hashlib.sha256(b"skprivbn check of transfers" + hashed.tobytes()).digest()
