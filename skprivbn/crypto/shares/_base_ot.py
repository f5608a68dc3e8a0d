"""Base oblivious transfers over the prime-order group of ed25519.

Chou and Orlandi, "The Simplest Protocol for Oblivious Transfer" (Latincrypt 2015):
the sender offers A = aG, the receiver answers B = bG + cA, and the two keys are the
hashes of aB and a(B - A), of which the receiver can compute one. Secure against
semi-honest parties.
"""

import hashlib
import os

import numpy as np
from nacl import bindings as sodium

from skprivbn.exceptions import ProtocolError

_POINT = 32


def _random_scalar():
    return sodium.crypto_core_ed25519_scalar_reduce(os.urandom(64))


def _check_point(point):
    # also refuses points of small order and points outside the prime-order subgroup
    if len(point) != _POINT or not sodium.crypto_core_ed25519_is_valid_point(point):
        raise ProtocolError("a base oblivious transfer got an invalid point")
    return point


def _key(index, session, offer, answer, shared):
    digest = hashlib.sha256(b"skprivbn base OT")
    for part in (index.to_bytes(4, "little"), session, offer, answer, shared):
        digest.update(len(part).to_bytes(4, "little"))
        digest.update(part)
    return digest.digest()[:16]


def send_base_keys(talk, peer, n):
    """Offer `n` transfers; return the list of (key of 0, key of 1)."""
    secret = _random_scalar()
    offer = sodium.crypto_scalarmult_ed25519_base_noclamp(secret)
    talk.send(peer, offer)
    answers = yield from talk.receive(peer)
    if len(answers) != n * _POINT:
        raise ProtocolError("wrong number of base oblivious transfers")
    keys = []
    for index in range(n):
        answer = _check_point(answers[index * _POINT : (index + 1) * _POINT])
        minus = _check_point(sodium.crypto_core_ed25519_sub(answer, offer))
        shared = [
            sodium.crypto_scalarmult_ed25519_noclamp(secret, point)
            for point in (answer, minus)
        ]
        keys.append([_key(index, talk.session, offer, answer, s) for s in shared])
    return keys


def receive_base_keys(talk, peer, choices):
    """Choose in `len(choices)` transfers; return the list of chosen keys."""
    offer = _check_point((yield from talk.receive(peer)))
    answers, keys = [], []
    # 0 or 255: selecting by mask runs the same instructions for both choices
    for index, mask in enumerate(-np.asarray(choices, dtype=np.uint8)):
        secret = _random_scalar()
        zero = sodium.crypto_scalarmult_ed25519_base_noclamp(secret)
        both = np.frombuffer(
            zero + sodium.crypto_core_ed25519_add(zero, offer), dtype=np.uint8
        ).reshape(2, _POINT)
        answer = bytes(both[0] ^ ((both[0] ^ both[1]) & mask))
        shared = sodium.crypto_scalarmult_ed25519_noclamp(secret, offer)
        answers.append(answer)
        keys.append(_key(index, talk.session, offer, answer, shared))
    talk.send(peer, b"".join(answers))
    return keys
