"""No tweak serves twice in a session, whatever is computed in it."""

from collections import Counter

import numpy as np

from skprivbn.crypto.shares import (
    Indicators,
    JointTable,
    joint_counts,
    shared_lookup,
)
from skprivbn.crypto.shares import _tree_counts as trees
from skprivbn.crypto.shares._hash import TweakableHash
from tests.crypto.shares._sides import run_sides, shared_argmax


def tweaks_used(monkeypatch):
    """How often each (hash, tweak) was used while two parties did everything twice."""
    used, call = Counter(), TweakableHash.__call__

    def spy(self, x, tweaks, n_blocks=1):
        of_rows = tweaks
        if np.ndim(tweaks) == 0:
            of_rows = tweaks + n_blocks * np.arange(len(x))
        of_blocks = of_rows[:, None].astype(int) + np.arange(n_blocks)
        used.update((id(self), tweak) for tweak in of_blocks.ravel().tolist())
        return call(self, x, tweaks, n_blocks)

    codes = np.arange(200).reshape(2, 100) % 3

    def side(talk, links, i):
        for _ in range(2):
            own = Indicators([(codes[i], 2)])
            # two tables each way
            holders = (talk.roster, talk.roster[::-1]) * 2
            tables = [JointTable(order, own, [2, 2]) for order in holders]
            counts = yield from joint_counts(
                talk, links, tables, 100, np.dtype(np.uint8)
            )
            scores = yield from shared_lookup(
                talk,
                links,
                talk.roster,
                counts[0].ravel(),
                np.arange(256)[None],
                np.zeros(4, dtype=int),
            )
            yield from shared_argmax(talk, links, scores, [2, 2], 10)
        # hashes stay alive, so that their ids stay theirs
        return links

    with monkeypatch.context() as patch:
        patch.setattr(TweakableHash, "__call__", spy)
        # several rounds, of several pieces of tables
        patch.setattr(trees, "_MESSAGE_BYTES", 4000)
        patch.setattr(trees, "_ROUND_BYTES", 12_000)
        kept = run_sides(side)
    assert len(kept) == 2
    return used


def test_no_tweak_is_used_for_two_wires(monkeypatch):
    used = tweaks_used(monkeypatch)
    # twice: who sends or garbles hashes the labels of 0 and of 1 under one tweak
    assert set(used.values()) == {1, 2}


def test_a_twin_that_starts_again_is_caught(monkeypatch):
    monkeypatch.setattr(TweakableHash, "take_tweaks", lambda self, n: 0)
    assert max(tweaks_used(monkeypatch).values()) > 2
