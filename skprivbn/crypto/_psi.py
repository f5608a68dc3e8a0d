"""Private set intersection: which records do all parties have?

Each party hashes its keys to points of Curve25519 and multiplies them by a secret
number; the lists go round until every party's number is in every point. Equal points
then mean equal keys, and say nothing else about a key (Huberman, Franklin, Hogg, ACM EC
1999, for more than two lists). The order of the points is an order of the records
that everybody agrees on and that no single party chose.

Multiplication is that of X25519 (RFC 7748): of first coordinates, by numbers that are
multiples of eight, so that nothing can be told by points of small order, and as hard to
undo on the twist as on the curve. It takes a third of the time of ed25519 with a check
of every point. Lists travel in parts, which all parties and cores work on at a time.
"""

import hashlib
import os
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import gmpy2
import numpy as np
from nacl import bindings as sodium
from nacl.exceptions import CryptoError

from skprivbn.crypto._derive import join_fields
from skprivbn.crypto.shares._conversation import together
from skprivbn.crypto.shares._hash import random_words
from skprivbn.exceptions import ProtocolError

#: a longer list is refused: whoever may ask for everything can enumerate
MAX_KEYS = 1_000_000
#: points of a list in a round: less than a second's work, whatever the list is
_PART = 1 << 13
_POINT = 32
#: Curve25519: v**2 = u**3 + _CURVE u**2 + u
_PRIME, _CURVE = 2**255 - 19, 486662


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
    """Map a key to a point of the curve whose logarithm nobody knows.

    The first number that is a first coordinate of the curve, of those that a hash
    gives one after another: half of all numbers are, the others belong to the twist.
    Which of the two a point is on survives multiplication, and would tell a peer half
    of the keys that it is not.
    """
    digest = hashlib.sha512(b"skprivbn psi" + session + text.encode()).digest()
    while True:
        u = int.from_bytes(digest, "little") % _PRIME
        if gmpy2.jacobi(u * (u * (u + _CURVE) + 1) % _PRIME, _PRIME) == 1:
            return u.to_bytes(_POINT, "little")
        digest = hashlib.sha512(digest).digest()


def _multiply(secret, points):
    try:
        return [sodium.crypto_scalarmult(secret, point) for point in points]
    except CryptoError:
        raise ProtocolError("a list of points has an invalid one") from None


def _multiply_all(secret, points):
    """Multiply points, on all cores: the library lets other threads run."""
    n_threads = os.cpu_count() or 1
    parts = [points[i::n_threads] for i in range(n_threads)]
    with ThreadPoolExecutor(n_threads) as threads:
        found = threads.map(partial(_multiply, secret), parts)
    multiplied = [b""] * len(points)
    for i, part in enumerate(found):
        multiplied[i::n_threads] = part
    return multiplied


def _receive_points(talk, peer, n):
    message = yield from talk.receive(peer)
    if type(message) is not bytes or len(message) != n * _POINT:
        raise ProtocolError("a list of points has the wrong length")
    return [message[i : i + _POINT] for i in range(0, len(message), _POINT)]


def _pass_round(talk, owner, n_keys, secret, own=None):
    """Send a party's list round; return its points under everybody's secrets.

    Parameters
    ----------
    talk : Conversation
    owner : str
    n_keys : int
        Length of the list.
    secret : bytes
        This party's own.
    own : callable, default=None
        The owner's points of a slice of its list.
    """
    roster = talk.roster
    start, mine = roster.index(owner), roster.index(talk.name)
    previous, following = roster[mine - 1], roster[(mine + 1) % len(roster)]
    last = roster[start - 1]
    parts = [slice(i, min(i + _PART, n_keys)) for i in range(0, n_keys, _PART)]
    hidden = []
    for part in parts:
        if owner == talk.name:
            points = own(part)
        else:
            n_points = part.stop - part.start
            points = yield from _receive_points(talk, previous, n_points)
        points = _multiply_all(secret, points)
        if talk.name == last:
            hidden += points
        for peer in talk.peers if talk.name == last else [following]:
            talk.send(peer, b"".join(points))
        if owner == talk.name:
            # the next one works on this part while the following part is made
            yield from talk.flush()
    if talk.name != last:
        for part in parts:
            n_points = part.stop - part.start
            hidden += yield from _receive_points(talk, last, n_points)
    return hidden


def _check_aligned(talk, texts):
    """Make sure, with each peer, that both have the same keys in the same order.

    A third party passes the points of both on, and could swap some. The two compare
    digests of their lists without showing them: each multiplies the digest's point by
    a secret, then what the other has sent, and tells a hash of that with its name. A
    peer can try one list by it, its own. Without the names, who sends back all that it
    gets would have whatever keys the other has.
    """
    listed = hashlib.sha256(join_fields(*texts)).hexdigest()
    point = _hash_to_point(b"aligned" + talk.session, listed)
    secrets, common = {peer: os.urandom(32) for peer in talk.peers}, {}
    for peer, secret in secrets.items():
        talk.send(peer, _multiply(secret, [point])[0])
    for peer, secret in secrets.items():
        theirs = yield from _receive_points(talk, peer, 1)
        (common[peer],) = _multiply(secret, theirs)
        talk.send(peer, _said_by(talk.name, common[peer]))
    for peer in talk.peers:
        told = yield from _receive_points(talk, peer, 1)
        if told != [_said_by(peer, common[peer])]:
            raise ProtocolError("a peer has aligned other keys, or in another order")


def _said_by(name, point):
    """Hash the point that two parties have in common if their lists are the same."""
    return hashlib.sha256(join_fields("skprivbn aligned", name, point)).digest()


def align_records(talk, keys, check_sizes=None, n_padded=None):
    """One party's side: find the own records that all parties have.

    With more than two parties each also learns, of the others' pairs, which hidden
    keys they have in common.

    Parameters
    ----------
    talk : Conversation
    keys : array-like of shape (n_records,)
        Distinct keys.
    check_sizes : callable, default=None
        Called with everybody's number of keys, by name, before the first point is
        sent; raises if the party had better not take part.
    n_padded : int, default=None
        Every list is filled up to this number with points of no key, and a longer one
        is refused. None shows how many keys a party has.

    Returns
    -------
    records : ndarray of int
        Positions in `keys`, in an order that is the same at every party.
    """
    texts = [normalise_key(key) for key in np.asarray(keys).tolist()]
    if len(set(texts)) != len(texts):
        raise ValueError("keys must be distinct: a record would be counted twice")
    most = MAX_KEYS if n_padded is None else min(n_padded, MAX_KEYS)
    if len(texts) > most:
        raise ValueError(f"more than {most} keys")
    n_own = len(texts) if n_padded is None else most
    # what fills the list is text that no key can be, and that nobody else has
    listed = texts + [f" {os.urandom(32).hex()}" for _ in range(n_own - len(texts))]
    # shuffled, so that peers do not learn where common records are in the own file
    order = np.argsort(random_words(n_own))
    secret = os.urandom(32)
    n_keys = {talk.name: n_own}
    for peer in talk.peers:
        talk.send(peer, n_own)
    for peer in talk.peers:
        n_keys[peer] = yield from talk.receive(peer)
        fits = type(n_keys[peer]) is int and 0 <= n_keys[peer] <= most
        if not fits or (n_padded is not None and n_keys[peer] != most):
            raise ProtocolError("a peer's list of keys has the wrong length")
    if check_sizes is not None:
        check_sizes(n_keys)

    def own(part):
        return [_hash_to_point(talk.session, listed[i]) for i in order[part]]

    sides = {
        str(position): partial(
            _pass_round,
            owner=name,
            n_keys=n_keys[name],
            secret=secret,
            own=own if name == talk.name else None,
        )
        for position, name in enumerate(talk.roster)
    }
    found = yield from together(talk, sides)
    hidden = dict(zip(talk.roster, found.values()))
    common = sorted(set.intersection(*(set(points) for points in hidden.values())))
    position = {point: i for i, point in zip(order, hidden[talk.name])}
    records = np.array([position[point] for point in common], dtype=np.int64)
    yield from _check_aligned(talk, [listed[i] for i in records])
    return records
