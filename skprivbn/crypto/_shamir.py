"""Shamir's secret sharing of 32-byte secrets.

Any `threshold` shares give the secret back, fewer tell nothing about it.
"""

import secrets
from functools import lru_cache

from skprivbn.exceptions import ProtocolError

#: the smallest prime above 2**256, so that every 32-byte secret is a field element
PRIME = 2**256 + 297
SECRET_BYTES = 32
SHARE_BYTES = 33


def split_secret(secret, threshold, points):
    """Share a secret among parties.

    Parameters
    ----------
    secret : bytes of length 32
    threshold : int
        How many shares it takes.
    points : sequence of int
        One distinct positive number per party.

    Returns
    -------
    shares : list of bytes

    Examples
    --------
    >>> shares = split_secret(bytes(range(32)), 2, [1, 2, 3])
    >>> join_shares({1: shares[0], 3: shares[2]}) == bytes(range(32))
    True
    """
    if len(secret) != SECRET_BYTES:
        raise ValueError("secrets of 32 bytes only")
    if len(set(points)) != len(points) or not all(0 < x < PRIME for x in points):
        raise ValueError("points must be distinct and positive")
    if not 1 <= threshold <= len(points):
        raise ValueError("the threshold must be between 1 and the number of shares")
    coefficients = [secrets.randbelow(PRIME) for _ in range(threshold - 1)]
    coefficients.append(int.from_bytes(secret, "big"))
    shares = []
    for x in points:
        value = 0
        for coefficient in coefficients:
            value = (value * x + coefficient) % PRIME
        shares.append(value.to_bytes(SHARE_BYTES, "big"))
    return shares


def join_shares(shares):
    """Recover a secret from at least as many shares as its threshold.

    Parameters
    ----------
    shares : dict of int to bytes
        Shares by point.

    Returns
    -------
    secret : bytes of length 32
        Nonsense if the shares are too few or do not belong together: callers check
        it against something public.
    """
    secret = 0
    for share, weight in zip(shares.values(), _weights_at_zero(tuple(shares))):
        value = int.from_bytes(share, "big")
        if len(share) != SHARE_BYTES or value >= PRIME:
            raise ProtocolError("malformed share of a secret")
        secret += value * weight
    secret %= PRIME
    if secret >> 8 * SECRET_BYTES:
        raise ProtocolError("the shares do not belong to one secret")
    return secret.to_bytes(SECRET_BYTES, "big")


@lru_cache(maxsize=32)
def _weights_at_zero(points):
    """Lagrange weights: the same survivors rebuild many secrets."""
    weights = []
    for x in points:
        numerator = denominator = 1
        for other in points:
            if other != x:
                numerator = numerator * other % PRIME
                denominator = denominator * (other - x) % PRIME
        weights.append(numerator * pow(denominator, -1, PRIME) % PRIME)
    return weights
