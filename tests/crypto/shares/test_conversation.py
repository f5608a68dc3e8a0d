"""Branches of a conversation: order, shared rounds, turns."""

import numpy as np
import pytest

from skprivbn.crypto.shares import Conversation, run_together, together
from skprivbn.exceptions import ProtocolError

THREE = ("a", "b", "c")


def run(side, roster=("a", "b"), said=None):
    def whole(name):
        talk = Conversation(name, roster, b"session")
        result = yield from side(talk)
        yield from talk.finish()
        return result

    def note(sender, receiver, payload):
        if said is not None:
            said.append((sender, receiver, sorted(payload)))

    return run_together({name: whole(name) for name in roster}, note)


def exchange(talk, n_turns, word):
    """Send each peer some words, one a turn; return what they sent."""
    heard = []
    for turn in range(n_turns):
        for peer in talk.peers:
            talk.send(peer, f"{word} {turn} of {talk.name}")
        for peer in talk.peers:
            heard.append((yield from talk.receive(peer)))
    return heard


def test_branches_share_rounds():
    said = []

    def side(talk):
        return together(
            talk,
            {
                "long": lambda branch: exchange(branch, 3, "x"),
                "short": lambda branch: exchange(branch, 1, "y"),
            },
        )

    heard = run(side, said=said)
    assert heard["a"]["long"] == [f"x {turn} of b" for turn in range(3)]
    assert heard["a"]["short"] == ["y 0 of b"]
    # three rounds, as the longest alone; both leave in the first
    assert [labels for sender, _, labels in said if sender == "a"] == [
        ["messages/long", "messages/short"],
        ["messages/long"],
        ["messages/long"],
    ]


def test_parties_may_take_part_in_different_branches():
    pairs = [("a", "b"), ("b", "c"), ("a", "c")]

    def talk_to(branch, peer):
        branch.send(peer, branch.name)
        return (yield from branch.receive(peer))

    def side(talk):
        sides = {}
        for pair in pairs:
            if talk.name in pair:
                (peer,) = set(pair) - {talk.name}
                sides[" ".join(pair)] = lambda branch, peer=peer: talk_to(branch, peer)
        return together(talk, sides)

    heard = run(side, THREE)
    assert heard == {
        "a": {"a b": "b", "a c": "c"},
        "b": {"a b": "a", "b c": "c"},
        "c": {"b c": "b", "a c": "a"},
    }


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_branches_wait_for_their_turn(limit):
    running, most = set(), []

    def counted(branch, number):
        running.add((branch.name, number))
        most.append(sum(name == branch.name for name, _ in running))
        heard = yield from exchange(branch, 2, number)
        running.discard((branch.name, number))
        return len(heard)

    def side(talk):
        sides = {str(i): lambda branch, i=i: counted(branch, i) for i in range(6)}
        return together(talk, sides, dict.fromkeys(sides, 1), limit)

    heard = run(side)
    assert heard["a"] == {str(i): 2 for i in range(6)}
    assert max(most) == limit


def test_branches_may_branch():
    def inner(talk):
        return together(talk, {"x": lambda branch: exchange(branch, 1, "deep")})

    heard = run(lambda talk: together(talk, {"x": inner, "y": inner}))
    assert heard["b"] == {"x": {"x": ["deep 0 of a"]}, "y": {"x": ["deep 0 of a"]}}


def test_what_nobody_reads_is_an_error():
    def side(talk):
        branch = talk.branch("one" if talk.name == "a" else "other")
        for peer in talk.peers:
            branch.send(peer, np.zeros(3))
        yield from talk.flush()

    with pytest.raises(ProtocolError, match="more than the protocol asks for"):
        run(side)
