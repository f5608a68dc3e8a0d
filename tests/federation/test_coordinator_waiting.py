"""Parties that wait for messages which nobody sends: the session ends, and says so."""

import numpy as np
import pytest

from skprivbn.exceptions import ProtocolError
from skprivbn.federation import (
    ALL_ROWS,
    InProcessFederation,
    Sum,
    Tell,
    Terms,
    coordinator,
    program,
)


def wait_for_the_last(me, waits):
    """Wait for a word of the last party, which never says any."""
    heard = {}
    while me.name != me.roster[-1] and not heard:
        heard = yield Tell({}, "a word", waits=waits)


@program(Terms)
def wait_then_add(me):
    """The last party waits at a sum for the others, who wait for it."""
    yield from wait_for_the_last(me, waits=True)
    total = yield Sum(me.block["X"], "rows", ALL_ROWS)
    return {"total": total}


@program(Terms)
def ask_then_add(me):
    """The same, by parties that ask again and again instead of waiting."""
    yield from wait_for_the_last(me, waits=False)
    total = yield Sum(me.block["X"], "rows", ALL_ROWS)
    return {"total": total}


@program(Terms)
def wait_after_a_sum(me):
    """The last party has ended, as far as it is concerned."""
    total = yield Sum(me.block["X"], "rows", ALL_ROWS)
    yield from wait_for_the_last(me, waits=True)
    return {"total": total}


@program(Terms)
def wait_for_each_other(me):
    """Everybody waits for everybody."""
    while not (yield Tell({}, "a word")):
        pass
    return None


@program(Terms)
def count_rounds(me):
    """Some say nothing for a while, which is their right."""
    for _ in range(20):
        if me.name != me.roster[-1]:
            yield Tell({}, "a word", waits=False)
    total = yield Sum(me.block["X"], "rows", ALL_ROWS)
    return {"total": total}


def run(protocol, n_parties=3):
    blocks = {f"party {i}": {"X": np.ones(2) * i} for i in range(n_parties)}
    with InProcessFederation(blocks, protocol, Terms(), "masking") as federation:
        return federation.run()


@pytest.mark.parametrize(
    ("protocol", "who"),
    [
        (wait_then_add, r"\['party 0', 'party 1'\]"),
        (ask_then_add, r"\['party 0', 'party 1'\]"),
        (wait_after_a_sum, r"\['party 0', 'party 1'\]"),
        (wait_for_each_other, r"\['party 0', 'party 1', 'party 2'\]"),
    ],
)
def test_waiting_for_nobody_ends(protocol, who, monkeypatch):
    monkeypatch.setattr(coordinator, "MAX_IDLE_ROUNDS", 40)
    with pytest.raises(ProtocolError, match=f"{who} wait for messages nobody sends"):
        run(protocol)


def test_rounds_without_a_word_are_allowed(monkeypatch):
    monkeypatch.setattr(coordinator, "MAX_IDLE_ROUNDS", 40)
    np.testing.assert_array_equal(run(count_rounds)["total"], [3.0, 3.0])
    # the limit is on rounds in a row, of which there are 19
    monkeypatch.setattr(coordinator, "MAX_IDLE_ROUNDS", 10)
    with pytest.raises(ProtocolError, match="nobody sends"):
        run(count_rounds)
