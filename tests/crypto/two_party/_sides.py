"""Run all sides of a protocol in this process, on real links, and keep what is said."""

import os

import numpy as np

from skprivbn.crypto.two_party._conversation import Conversation, run_together
from skprivbn.crypto.two_party._ot_extension import open_links

NAMES = ("alice", "bob", "carol", "dave")


def run_sides(side, n_parties=2, *, transcript=None):
    """Run ``side(talk, links, i)`` for every party; return the list of results."""
    roster, session = NAMES[:n_parties], os.urandom(16)

    def whole(i):
        talk = Conversation(roster[i], roster, session)
        links = yield from open_links(talk)
        result = yield from side(talk, links, i)
        yield from talk.finish()
        return result

    def note(sender, receiver, payload):
        if transcript is not None:
            transcript.append((sender, receiver, payload))

    sides = {name: whole(i) for i, name in enumerate(roster)}
    results = run_together(sides, note)
    return [results[name] for name in roster]


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
    return message.encode() if isinstance(message, str) else bytes(message)
