"""Keys and identifiers derived from other keys: HKDF (RFC 5869) with SHA-256."""

import hashlib
import hmac

__all__ = ["expand", "extract", "join_fields", "session_binding"]


def join_fields(*fields):
    """Join bytes, strings and integers so that no two field lists look alike."""
    encoded = []
    for field in fields:
        if isinstance(field, str):
            field = field.encode()
        elif isinstance(field, int):
            field = field.to_bytes(8, "big")
        encoded += [len(field).to_bytes(4, "big"), field]
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
