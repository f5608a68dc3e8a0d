"""Run all sides of a protocol in this process, on real links, and keep what is said."""

import os

import numpy as np

from skprivbn.crypto.shares._argmax import SharedArgmax
from skprivbn.crypto.shares._base_ot import grow_trees, puncture_trees
from skprivbn.crypto.shares._conversation import Conversation, run_together
from skprivbn.crypto.shares._hash import TweakableHash, random_words
from skprivbn.crypto.shares._ot_extension import Link, OTReceiver, OTSender

NAMES = ("alice", "bob", "carol", "dave")


def deal_links(roster, session):
    """Links as base transfers would make them, from a dealer: {name: {peer: Link}}."""
    ends = {}
    for sender in roster:
        for receiver in roster:
            pairs = [(os.urandom(16), os.urandom(16)) for _ in range(128)]
            choices = random_words(128, np.uint8) & 1
            keys = [pair[bit] for pair, bit in zip(pairs, choices)]
            leaves, sums = grow_trees(pairs)
            domain = f"{sender} {receiver}".encode()
            hashes = [TweakableHash(session, domain) for _ in range(2)]
            ends[sender, receiver] = (
                OTSender(*puncture_trees(sums, keys, choices), hashes[0]),
                OTReceiver(leaves, hashes[1]),
            )

    def link(name, peer):
        garbling = TweakableHash(session, " and ".join(sorted((name, peer))).encode())
        return Link(ends[name, peer][0], ends[peer, name][1], garbling)

    return {
        name: {peer: link(name, peer) for peer in roster if peer != name}
        for name in roster
    }


def run_sides(side, n_parties=2, *, transcript=None):
    """Run ``side(talk, links, i)`` for every party; return the list of results."""
    roster, session = NAMES[:n_parties], os.urandom(16)
    links = deal_links(roster, session)

    def whole(i):
        talk = Conversation(roster[i], roster, session)
        result = yield from side(talk, links[roster[i]], i)
        yield from talk.finish()
        return result

    def note(sender, receiver, payload):
        if transcript is not None:
            transcript.append((sender, receiver, payload))

    sides = {name: whole(i) for i, name in enumerate(roster)}
    results = run_together(sides, note)
    return [results[name] for name in roster]


def messages_of(payload):
    """All messages of a payload, branch by branch."""
    return [message for messages in payload.values() for message in messages]


def split(rng, numbers, n_parties, dtype=np.uint64):
    """Additive shares of numbers."""
    info = np.iinfo(dtype)
    shares = rng.integers(0, info.max, (n_parties, len(numbers)), dtype, endpoint=True)
    shares[0] = numbers.astype(dtype) - shares[1:].sum(axis=0, dtype=dtype)
    return shares


def flatten(message):
    """All bytes of a message, in order."""
    if isinstance(message, dict):
        return b"".join(flatten(value) for value in message.values())
    if isinstance(message, list):
        return b"".join(flatten(value) for value in message)
    if isinstance(message, np.ndarray):
        return message.tobytes()
    return message.encode() if isinstance(message, str) else bytes(message or b"")


def shared_argmax(talk, links, shares, sizes, width):
    """Open the index of the largest number of each list, at once."""
    argmax = SharedArgmax(talk.roster, sizes, width)
    yield from argmax.prepare(talk, links)
    return (yield from argmax.open(talk, links, shares))
