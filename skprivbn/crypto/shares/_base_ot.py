"""Base oblivious transfers, and the trees of keys that grow from them.

Chou and Orlandi, "The Simplest Protocol for Oblivious Transfer" (Latincrypt 2015):
the sender offers A = aG, the receiver answers B = bG + cA, and the two keys are the
hashes of aB and a(B - A), of which the receiver can compute one, over the prime-order
group of ed25519. An answer is a uniform point whatever the choice is, also for an offer
that is made up; who knows both keys of a transfer has computed a Diffie-Hellman square.

From four base transfers, with a key for each side, comes a tree of sixteen leaves
(Goldreich, Goldwasser, Micali, "How to construct random functions", 1986), of which one
party knows all and its peer all but one. At every level the peer may open the sum of
the nodes on the side that it chose, and with it all nodes but one; which one, the maker
of the trees does not learn.
"""

import hashlib
import os

import numpy as np
from nacl import bindings as sodium

from skprivbn.crypto._derive import join_fields
from skprivbn.exceptions import ProtocolError

_POINT, _KEY = 32, 16
DEPTH, N_TREES = 4, 32
N_LEAVES = 1 << DEPTH


def _random_scalar():
    return sodium.crypto_core_ed25519_scalar_reduce(os.urandom(64))


def _check_point(point):
    # also refuses points of small order and points outside the prime-order subgroup
    if len(point) != _POINT or not sodium.crypto_core_ed25519_is_valid_point(point):
        raise ProtocolError("a base oblivious transfer got an invalid point")
    return point


def _key(index, direction, offer, answer, shared):
    # the direction: else a peer could offer and answer what this party did
    fields = join_fields("base OT", index, *direction, offer, answer, shared)
    return hashlib.sha256(b"skprivbn " + fields).digest()[:_KEY]


def send_base_keys(talk, peer, n):
    """Offer `n` transfers; return pairs of keys (of 0, of 1), and what was said."""
    direction = talk.session, talk.name, peer
    secret = _random_scalar()
    offer = sodium.crypto_scalarmult_ed25519_base_noclamp(secret)
    talk.send(peer, offer)
    squared = sodium.crypto_scalarmult_ed25519_noclamp(secret, offer)
    answers = yield from talk.receive(peer)
    if len(answers) != n * _POINT:
        raise ProtocolError("wrong number of base oblivious transfers")
    keys = []
    for index in range(n):
        answer = _check_point(answers[index * _POINT : (index + 1) * _POINT])
        if answer == offer:
            # of differences of two points of the group, only the identity is invalid
            raise ProtocolError("a base oblivious transfer got an invalid point")
        shared = sodium.crypto_scalarmult_ed25519_noclamp(secret, answer)
        both = shared, sodium.crypto_core_ed25519_sub(shared, squared)
        keys.append([_key(index, direction, offer, answer, s) for s in both])
    return keys, offer + answers


def receive_base_keys(talk, peer, choices):
    """Choose in `len(choices)` transfers; return chosen keys, and what was said."""
    direction = talk.session, peer, talk.name
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
        keys.append(_key(index, direction, offer, answer, shared))
    talk.send(peer, b"".join(answers))
    return keys, offer + b"".join(answers)


def _children(key):
    digest = hashlib.sha256(b"skprivbn tree of keys" + key).digest()
    return digest[:_KEY], digest[_KEY:]


def _sum(*blocks):
    words = np.frombuffer(b"".join(blocks), dtype=np.uint64).reshape(-1, 2)
    return np.bitwise_xor.reduce(words).tobytes()


def grow_trees(key_pairs):
    """Make all trees.

    Parameters
    ----------
    key_pairs : list of (bytes, bytes)
        Keys of both choices of the base transfers, those of a tree after another.

    Returns
    -------
    leaves : list of list of bytes
    message : bytes
        To the peer: sums of both sides of every level, each hidden by its key.
    """
    trees, message, pairs = [], [], iter(key_pairs)
    for _ in range(N_TREES):
        nodes = [os.urandom(_KEY)]
        for _ in range(DEPTH):
            nodes = [child for node in nodes for child in _children(node)]
            for side, key in enumerate(next(pairs)):
                message.append(_sum(key, *nodes[side::2]))
        trees.append(nodes)
    return trees, b"".join(message)


def puncture_trees(message, keys, choices):
    """Open what the choices allow.

    Parameters
    ----------
    message : bytes
    keys : list of bytes
        The chosen keys of the base transfers.
    choices : sequence of int
        The side that was chosen, for every transfer.

    Returns
    -------
    leaves : list of list of bytes
        None in the place of the unknown leaf.
    places : list of int
        Where the unknown leaf of every tree is.
    """
    if len(message) != 2 * N_TREES * DEPTH * _KEY:
        raise ProtocolError("trees of keys have the wrong size")
    sums = [message[i : i + _KEY] for i in range(0, len(message), _KEY)]
    trees, places = [], []
    for tree in range(N_TREES):
        nodes, place = [None], 0
        for number in range(tree * DEPTH, (tree + 1) * DEPTH):
            nodes = [
                child
                for node in nodes
                for child in ((None, None) if node is None else _children(node))
            ]
            side = int(choices[number])
            known = [node for node in nodes[side::2] if node is not None]
            nodes[2 * place + side] = _sum(
                sums[2 * number + side], keys[number], *known
            )
            place = 2 * place + 1 - side
        trees.append(nodes)
        places.append(place)
    return trees, places
