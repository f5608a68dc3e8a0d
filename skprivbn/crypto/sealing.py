"""Identities and sealed channels between parties.

Ed25519 identities (RFC 8032) sign ephemeral X25519 keys (RFC 7748); HKDF-SHA256
(RFC 5869) derives one ChaCha20-Poly1305 key (RFC 8439) per direction. A relay that
carries the messages sees sealed bytes and cannot put itself in the middle, provided
that the identities were pinned beforehand.
"""

from functools import lru_cache

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from nacl import bindings as sodium
from nacl.exceptions import CryptoError

from skprivbn.crypto._derive import expand, extract
from skprivbn.exceptions import ProtocolError

__all__ = ["EphemeralKey", "Identity", "PairSecret", "SealedChannel", "check_signature"]


#: of a signature
SIGNATURE_BYTES = 64
_LENGTHS = [length.to_bytes(8, "little") for length in range(1024)]


def _framed(*fields):
    """Join byte strings so that no two different lists give the same bytes."""
    try:
        return b"".join([_LENGTHS[len(field)] + field for field in fields])
    except IndexError:
        return b"".join([len(field).to_bytes(8, "little") + field for field in fields])


class Identity:
    """A party's long-term signing key.

    Parameters
    ----------
    private_bytes : bytes of length 32, default=None
        The Ed25519 seed; drawn from the operating system if None.
    """

    def __init__(self, private_bytes=None):
        self._key = (
            Ed25519PrivateKey.generate()
            if private_bytes is None
            else Ed25519PrivateKey.from_private_bytes(private_bytes)
        )
        self.public = self._key.public_key().public_bytes_raw()

    def sign(self, *fields):
        """Sign a list of byte strings."""
        return self._key.sign(_framed(*fields))

    def __reduce__(self):
        raise TypeError("an Identity holds a private key and cannot be pickled")


def check_signature(public, signature, *fields):
    """Raise ProtocolError unless the holder of `public` signed these byte strings."""
    if len(public) != 32 or len(signature) != SIGNATURE_BYTES:
        raise ProtocolError("a signature does not verify")
    try:
        _verify(signature + _framed(*fields), public)
    except CryptoError:
        raise ProtocolError("a signature does not verify") from None


# Whether a signature is good depends on these bytes alone, so it is checked once in a
# process. Parties on machines of their own do not share this; K simulated ones would
# check the same K signatures K times. Failures raise and are not kept.
@lru_cache(maxsize=1024)
def _verify(signed, public):
    # libsodium takes half the time of OpenSSL here
    sodium.crypto_sign_open(signed, public)


class EphemeralKey:
    """An X25519 key pair for one session."""

    def __init__(self, private_bytes=None):
        self._key = (
            X25519PrivateKey.generate()
            if private_bytes is None
            else X25519PrivateKey.from_private_bytes(private_bytes)
        )
        self.public = self._key.public_key().public_bytes_raw()

    def exchange(self, peer_public):
        """Return the shared secret; the all-zero one (a low-order point) is refused."""
        try:
            return self._key.exchange(X25519PublicKey.from_public_bytes(peer_public))
        except ValueError:
            raise ProtocolError("an X25519 public key is not valid") from None

    def __reduce__(self):
        raise TypeError("an EphemeralKey holds a private key and cannot be pickled")


class PairSecret:
    """What two parties share in one session; keys for any purpose derive from it.

    Parameters
    ----------
    shared : bytes
        X25519 shared secret.
    session, roster_hash : bytes
        Bind the keys to this session, its roster and its public parameters.
    *ends : tuple of bytes
        (name, identity, ephemeral public key) of both; order does not matter.
    """

    def __init__(self, shared, session, roster_hash, *ends):
        self._key = extract(shared)
        first, second = sorted(ends)
        self._info = _framed(session, roster_hash, *first, *second)

    def key(self, purpose):
        """Derive 32 bytes for a purpose; the same on both sides."""
        return expand(self._key, _framed(b"skprivbn", purpose, self._info))

    def __reduce__(self):
        raise TypeError("a PairSecret cannot be pickled")


class SealedChannel:
    """One end of the two-way channel between two parties.

    One key per direction, the nonce is the message counter, and the session, both
    names, the operation and the counter are authenticated with each message. Only
    the next message is accepted, so replay, reordering and loss are errors.

    Parameters
    ----------
    secret : PairSecret
    session : bytes
    mine, peer : str
        Names of the two ends.
    """

    def __init__(self, secret, session, mine, peer):
        ends = mine.encode(), peer.encode()
        #: what is authenticated with every message that is sent, or received
        self._headers = _framed(session, *ends), _framed(session, *ends[::-1])
        self._sending = ChaCha20Poly1305(secret.key(_framed(b"seal", *ends)))
        self._receiving = ChaCha20Poly1305(secret.key(_framed(b"seal", *ends[::-1])))
        self._sent = self._received = 0

    def seal(self, operation, message):
        """Encrypt and authenticate the next message."""
        count, self._sent = self._sent, self._sent + 1
        nonce = count.to_bytes(12, "little")
        header = self._headers[0] + _framed(operation.encode(), nonce)
        return self._sending.encrypt(nonce, message, header)

    def open(self, operation, sealed):
        """Return the next message, or raise ProtocolError if it is not authentic."""
        nonce = self._received.to_bytes(12, "little")
        header = self._headers[1] + _framed(operation.encode(), nonce)
        try:
            message = self._receiving.decrypt(nonce, sealed, header)
        except (InvalidTag, ValueError):
            raise ProtocolError("a sealed message is not authentic") from None
        self._received += 1
        return message

    def __reduce__(self):
        raise TypeError("a SealedChannel holds keys and cannot be pickled")
