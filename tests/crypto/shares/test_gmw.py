"""Circuits on shared bits against plain ones."""

import numpy as np
import pytest

from skprivbn.crypto.shares import _gmw as gmw
from skprivbn.crypto.shares._circuits import add_all, is_greater
from skprivbn.crypto.shares._gmw import SharedBits, open_numbers
from tests.crypto.shares._sides import run_sides, split


@pytest.mark.parametrize("n_parties", [2, 3, 4])
def test_circuits_on_everybodys_inputs(n_parties):
    rng = np.random.default_rng(n_parties)
    numbers = rng.integers(0, 64, (n_parties, 50))

    def side(talk, links, i):
        engine = SharedBits(talk, links, talk.roster)
        bits = ((numbers[i] >> np.arange(8)[:, None]) & 1).astype(np.uint8)
        inputs = yield from engine.share(bits)
        total = yield from add_all(engine, inputs)
        greater = yield from is_greater(engine, inputs[0], inputs[1])
        wires = np.concatenate([total, greater, engine.invert(greater)])
        wires = np.concatenate([wires, engine.constant(np.ones((1, 50)))])
        return (yield from engine.open(wires))

    for bits in run_sides(side, n_parties):
        total = (bits[:8].astype(int) << np.arange(8)[:, None]).sum(axis=0)
        np.testing.assert_array_equal(total, numbers.sum(axis=0))
        np.testing.assert_array_equal(bits[8], numbers[0] > numbers[1])
        np.testing.assert_array_equal(bits[9], numbers[0] <= numbers[1])
        assert bits[10].all()


def test_opening_numbers():
    numbers = np.arange(-5, 5)
    shares = split(np.random.default_rng(0), numbers, 3)

    def side(talk, links, i):
        return open_numbers(talk, talk.roster, shares[i])

    for opened in run_sides(side, 3):
        np.testing.assert_array_equal(opened.astype(np.int64), numbers)


def shared_zeros():
    """What the peers get of a party's input of zeros."""
    said = []

    def side(talk, links, i):
        return SharedBits(talk, links, talk.roster).share(np.zeros((8, 40), np.uint8))

    run_sides(side, 3, transcript=said)
    return np.concatenate([m for _, _, p in said for m in p["messages"]])


def test_inputs_are_masked(monkeypatch):
    ones = np.unpackbits(shared_zeros())
    assert abs(ones.mean() - 0.5) < 7 * 0.5 / np.sqrt(ones.size)
    # the twin that draws no masks sends its input
    monkeypatch.setattr(
        gmw, "random_words", lambda shape, dtype: np.zeros(shape, dtype)
    )
    assert not shared_zeros().any()
