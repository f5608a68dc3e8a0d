"""Identities and sealed channels between parties.

Ed25519 identities (RFC 8032) sign ephemeral X25519 keys (RFC 7748); HKDF-SHA256
(RFC 5869) derives one ChaCha20-Poly1305 key (RFC 8439) per direction. A relay that
carries the messages sees sealed bytes and cannot put itself in the middle, provided
that the identities were pinned beforehand.
"""

import os
from functools import lru_cache

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from nacl import bindings as sodium
from nacl.exceptions import CryptoError

from skprivbn.crypto._derive import expand, extract, join_fields
from skprivbn.exceptions import ProtocolError

__all__ = ["EphemeralKey", "Identity", "PairSecret", "SealedChannel", "check_signature"]


#: of a signature
SIGNATURE_BYTES = 64


class Identity:
    """A party's long-term signing key.

    Parameters
    ----------
    private_bytes : bytes of length 32, default=None
        The Ed25519 seed; drawn from the operating system if None.
    """

    def __init__(self, private_bytes=None):
        # libsodium takes half the time of OpenSSL for signatures, and more for X25519
        seed = os.urandom(32) if private_bytes is None else private_bytes
        self.public, self._key = sodium.crypto_sign_seed_keypair(seed)

    def sign(self, *fields):
        """Sign a list of byte strings."""
        message = join_fields(*fields)
        return sodium.crypto_sign(message, self._key)[:SIGNATURE_BYTES]

    def __reduce__(self):
        raise TypeError("an Identity holds a private key and cannot be pickled")


def check_signature(public, signature, *fields):
    """Raise ProtocolError unless the holder of `public` signed these byte strings."""
    if len(public) != 32 or len(signature) != SIGNATURE_BYTES:
        raise ProtocolError("a signature does not verify")
    try:
        _verify(signature + join_fields(*fields), public)
    except CryptoError:
        raise ProtocolError("a signature does not verify") from None


# Whether a signature is good depends on these bytes alone, so it is checked once in a
# process. Parties on machines of their own do not share this; K simulated ones would
# check the same K signatures K times. Failures raise and are not kept.
@lru_cache(maxsize=1024)
def _verify(signed, public):
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
        first, second = sorted(ends)
        info = join_fields(b"skprivbn", session, roster_hash, *first, *second)
        self._key = expand(extract(shared), info)

    def key(self, purpose):
        """Derive 32 bytes for a purpose; the same on both sides."""
        return expand(self._key, purpose)

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
        #: what is authenticated with every message that is sent, or received
        ends = (mine, peer), (peer, mine)
        self._headers = [join_fields(b"seal", session, *names) for names in ends]
        keys = map(secret.key, self._headers)
        self._sending, self._receiving = map(ChaCha20Poly1305, keys)
        self._sent = self._received = 0

    def seal(self, operation, message):
        """Encrypt and authenticate the next message."""
        count, self._sent = self._sent, self._sent + 1
        nonce = count.to_bytes(12, "little")
        header = self._headers[0] + join_fields(operation, nonce)
        return self._sending.encrypt(nonce, message, header)

    def open(self, operation, sealed):
        """Return the next message, or raise ProtocolError if it is not authentic."""
        nonce = self._received.to_bytes(12, "little")
        header = self._headers[1] + join_fields(operation, nonce)
        try:
            message = self._receiving.decrypt(nonce, sealed, header)
        except (InvalidTag, ValueError):
            raise ProtocolError("a sealed message is not authentic") from None
        self._received += 1
        return message

    def __reduce__(self):
        raise TypeError("a SealedChannel holds keys and cannot be pickled")
