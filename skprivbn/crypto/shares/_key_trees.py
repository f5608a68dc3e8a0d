"""Small trees of keys, of which one party knows all leaves and its peer all but one.

From four base transfers, with a key for each side, comes a tree of sixteen leaves
(Goldreich, Goldwasser, Micali, "How to construct random functions", 1986). At every
level the peer may open the sum of the nodes on the side that it chose, and with it all
nodes but one; which one, the maker of the trees does not learn.
"""

import hashlib
import os

import numpy as np

from skprivbn.exceptions import ProtocolError

DEPTH, N_TREES = 4, 32
N_LEAVES = 1 << DEPTH
_KEY = 16


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
