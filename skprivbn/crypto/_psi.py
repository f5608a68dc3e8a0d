"""Private set intersection: which records do all parties have?

Each party hashes its keys to points of ed25519 and multiplies them by a secret number;
the lists go round until every party's number is in every point. Equal points then
mean equal keys, and say nothing else about a key (Huberman, Franklin, Hogg, ACM EC
1999, for more than two lists). The order of the points is an order of the records
that everybody agrees on and that no single party chose.
"""

import hashlib
import os
import unicodedata

import numpy as np
from nacl import bindings as sodium

from skprivbn.crypto.shares._hash import random_words
from skprivbn.exceptions import ProtocolError

__all__ = ["align_records", "normalise_key"]

#: a longer list is refused: whoever may ask for everything can enumerate
MAX_KEYS = 1_000_000
_POINT = 32


def normalise_key(key):
    """Write a key in one way: composed Unicode, no outer spaces, 7.0 as 7.

    Parameters
    ----------
    key : str, int or float

    Returns
    -------
    text : str
    """
    if isinstance(key, bytes):
        key = key.decode()
    if isinstance(key, float | np.floating) and float(key).is_integer():
        key = int(key)
    text = unicodedata.normalize("NFC", str(key)).strip()
    if not text or text == "nan":
        raise ValueError("a key is missing or empty")
    return text


def _hash_to_point(session, text):
    """Map a key to a point of the prime-order group whose logarithm nobody knows."""
    digest = hashlib.sha512(b"skprivbn psi" + session + text.encode()).digest()
    # a sum of two images of the map is uniform; one alone reaches half of the group
    return sodium.crypto_core_ed25519_add(
        sodium.crypto_core_ed25519_from_uniform(digest[:32]),
        sodium.crypto_core_ed25519_from_uniform(digest[32:]),
    )


def _multiply_all(secret, points):
    if len(points) % _POINT or len(points) > MAX_KEYS * _POINT:
        raise ProtocolError("a list of points has the wrong length")
    multiplied = []
    for start in range(0, len(points), _POINT):
        point = points[start : start + _POINT]
        if not sodium.crypto_core_ed25519_is_valid_point(point):
            raise ProtocolError("a list of points has an invalid one")
        multiplied.append(sodium.crypto_scalarmult_ed25519_noclamp(secret, point))
    return b"".join(multiplied)


def align_records(talk, keys):
    """One party's side: find the own records that all parties have.

    With more than two parties each also learns, of the others' pairs, which hidden
    keys they have in common.

    Parameters
    ----------
    talk : Conversation
    keys : array-like of shape (n_records,)
        Distinct keys.

    Returns
    -------
    records : ndarray of int
        Positions in `keys`, in an order that is the same at every party.
    """
    texts = [normalise_key(key) for key in np.asarray(keys).tolist()]
    if len(set(texts)) != len(texts):
        raise ValueError("keys must be distinct: a record would be counted twice")
    if len(texts) > MAX_KEYS:
        raise ValueError(f"more than {MAX_KEYS} keys")
    # shuffled, so that peers do not learn where common records are in the own file
    order = np.argsort(random_words(len(texts)))
    secret = sodium.crypto_core_ed25519_scalar_reduce(os.urandom(64))
    travelling = _multiply_all(
        secret, b"".join(_hash_to_point(talk.session, texts[i]) for i in order)
    )
    mine, n_parties = talk.roster.index(talk.name), len(talk.roster)
    following = talk.roster[(mine + 1) % n_parties]
    previous = talk.roster[mine - 1]
    for _ in range(n_parties - 1):
        talk.send(following, travelling)
        travelling = _multiply_all(secret, (yield from talk.receive(previous)))
    # after n - 1 steps this party holds the list of the one that follows it
    for peer in talk.peers:
        talk.send(peer, travelling)
    lists = {following: travelling}
    for position, name in enumerate(talk.roster):
        if name != talk.name:
            owner = talk.roster[(position + 1) % n_parties]
            lists[owner] = yield from talk.receive(name)
    hidden = {
        name: [points[i : i + _POINT] for i in range(0, len(points), _POINT)]
        for name, points in lists.items()
    }
    if len(hidden[talk.name]) != len(texts):
        raise ProtocolError("this party's list came back with another length")
    common = sorted(set.intersection(*(set(points) for points in hidden.values())))
    position = {point: i for i, point in zip(order, hidden[talk.name])}
    yield from talk.finish()
    return np.array([position[point] for point in common], dtype=np.int64)
