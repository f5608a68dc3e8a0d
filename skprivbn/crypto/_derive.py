"""Keys and streams derived from keys: HKDF (RFC 5869), SHAKE256, AES-256-CTR."""

import hashlib
import hmac
from functools import lru_cache

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

_LENGTHS = [length.to_bytes(4, "big") for length in range(1024)]
# Of so many bytes, AES-256-CTR takes less time than SHAKE256, with its set-up.
_SHORT = 2048


def join_fields(*fields):
    """Join bytes, strings and integers so that no two field lists look alike."""
    encoded = []
    for field in fields:
        if isinstance(field, str):
            field = field.encode()
        elif isinstance(field, int):
            field = field.to_bytes(8, "big")
        size = len(field)
        encoded += _LENGTHS[size] if size < 1024 else size.to_bytes(4, "big"), field
    return b"".join(encoded)


def extract(secret, salt=b""):
    """HKDF-Extract: turn a secret of any shape into a uniform 32-byte key."""
    return hmac.digest(salt or bytes(32), secret, "sha256")


def expand(key, info, length=32):
    """HKDF-Expand: `length` bytes bound to `info`, from a uniform key."""
    if not 0 < length <= 255 * 32:
        raise ValueError("HKDF gives between 1 and 8160 bytes")
    if length <= 32:  # most keys: one block
        return hmac.digest(key, info + b"\x01", "sha256")[:length]
    block, output = b"", b""
    for counter in range(1, -(-length // 32) + 1):
        block = hmac.digest(key, block + info + bytes([counter]), "sha256")
        output += block
    return output[:length]


def session_binding(context):
    """Digest of the session and of everything its parties agreed on. Public."""
    fields = join_fields("skprivbn session", context.session, context.roster_hash)
    return hashlib.sha256(fields).digest()


class KeyStream:
    """Bytes that look random, from one key: a piece of their own for every sum.

    SHAKE256 of the key, the number of the sum, the length of the piece and all that it
    is bound to. A long piece is the AES-256-CTR key stream under such a key instead,
    which takes less time.

    Parameters
    ----------
    key : bytes of length 32
        Fresh and uniform.
    """

    __slots__ = ("_key",)  # parties have one for each neighbour

    def __init__(self, key):
        self._key = key

    def piece(self, number, name, n_bytes):
        """Return the bytes of one sum.

        Parameters
        ----------
        number : int
            Of the sum.
        name : bytes
            What else the bytes are bound to.
        n_bytes : int
            How many.

        Returns
        -------
        piece : bytes
        """
        return self.pieces([self], number, name, n_bytes)[0]

    @staticmethod
    def pieces(streams, number, name, n_bytes):
        """Return the bytes of one sum from several streams; as of :meth:`piece`."""
        end = number.to_bytes(4, "big") + n_bytes.to_bytes(8, "big") + name
        derive = hashlib.shake_256
        if n_bytes <= _SHORT:
            return [derive(stream._key + end).digest(n_bytes) for stream in streams]
        keys = [derive(stream._key + end).digest(32) for stream in streams]
        ciphers = [Cipher(algorithms.AES(key), modes.CTR(bytes(16))) for key in keys]
        return [cipher.encryptor().update(_zeros(n_bytes)) for cipher in ciphers]


@lru_cache(maxsize=4)  # sums of a fit are of a few lengths
def _zeros(n_bytes):
    return bytes(n_bytes)
