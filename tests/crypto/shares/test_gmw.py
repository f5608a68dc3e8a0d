"""Circuits on shared bits against plain ones."""

import numpy as np
import pytest

from skprivbn.crypto.shares import _gmw as gmw
from skprivbn.crypto.shares._circuits import add_all, is_greater, sign_of_sum
from skprivbn.crypto.shares._gmw import (
    AndCounter,
    SharedBits,
    make_triples,
    open_bits,
    open_numbers,
)
from skprivbn.exceptions import ProtocolError
from tests.crypto.shares._sides import run_sides, split


def to_bits(numbers, width):
    return ((numbers >> np.arange(width)[:, None]) & 1).astype(np.uint8)


@pytest.mark.parametrize("n_parties", [2, 3, 4])
def test_circuits_on_everybodys_inputs(n_parties):
    rng = np.random.default_rng(n_parties)
    numbers = rng.integers(-30, 30, (n_parties, 50))

    def circuit(engine, own):
        inputs = engine.inputs(own)
        total = yield from add_all(engine, inputs)
        greater = yield from is_greater(engine, inputs[0], inputs[1])
        negative = yield from sign_of_sum(engine, inputs)
        return np.concatenate([total, greater, engine.invert(greater), negative[None]])

    def side(talk, links, i):
        own, counter = to_bits(numbers[i], 9), AndCounter(n_parties)
        with pytest.raises(StopIteration):
            next(circuit(counter, own))
        triples = yield from make_triples(talk, links, talk.roster, counter.n_products)
        engine = SharedBits(talk, talk.roster, triples)
        wires = yield from circuit(engine, own)
        # every triple was used
        with pytest.raises(ProtocolError, match="more ANDs"):
            next(engine.conjunction(wires, wires))
        wires = np.concatenate([wires, engine.constant(np.ones((1, 50)))])
        return (yield from engine.open(wires))

    for bits in run_sides(side, n_parties):
        total = (bits[:9].astype(int) << np.arange(9)[:, None]).sum(axis=0)
        np.testing.assert_array_equal(total, numbers.sum(axis=0) % 512)
        np.testing.assert_array_equal(bits[9], numbers[0] > numbers[1])
        np.testing.assert_array_equal(bits[10], numbers[0] <= numbers[1])
        np.testing.assert_array_equal(bits[11], numbers.sum(axis=0) < 0)
        assert bits[12].all()


@pytest.mark.parametrize("n_parties", [2, 3])
def test_triples(n_parties):
    def side(talk, links, i):
        return make_triples(talk, links, talk.roster, np.ones(4001, int))

    shares = run_sides(side, n_parties)
    a, b, c = np.bitwise_xor.reduce(shares)
    np.testing.assert_array_equal(a & b, c)
    for bits in (*shares, [a, b]):
        assert np.all(abs(np.mean(bits, axis=1) - 0.5) < 7 * 0.5 / np.sqrt(4001))


def test_triples_of_a_bit_with_several():
    n_products = np.arange(4000) % 8 + 1

    def side(talk, links, i):
        return make_triples(talk, links, talk.roster, n_products)

    shares = run_sides(side, 3)
    a, b, c = np.bitwise_xor.reduce(shares)
    np.testing.assert_array_equal(b * a, c)
    assert np.all(b < 1 << n_products)
    # what a party has of the products says nothing about them
    for share in shares:
        spread = np.mean(
            (share[2] ^ c)[n_products == 8] & 1 << np.arange(8)[:, None] > 0
        )
        assert abs(spread - 0.5) < 0.06


def test_rows_that_several_ands_have_in_common():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 2, (3, 50)), rng.integers(0, 2, (21, 50))
    # more than eight of one row, one of another, none of the last but one
    of = np.array([0] * 19 + [2, 0])

    def side(talk, links, i):
        counter = AndCounter(2)
        with pytest.raises(StopIteration):
            next(counter.conjunction(a, b, of))
        n_products = counter.n_products
        assert sorted(set(n_products)) == [1, 4, 8] and len(n_products) == 4 * 50
        triples = yield from make_triples(talk, links, talk.roster, n_products)
        engine = SharedBits(talk, talk.roster, triples)
        wires = (x.astype(np.uint8) * np.uint8(i == 0) for x in (a, b))
        wires = yield from engine.conjunction(*wires, of)
        return (yield from engine.open(wires))

    for bits in run_sides(side, 2):
        np.testing.assert_array_equal(bits, a[of] & b)


def test_bits_of_another_number_are_refused():
    def side(talk, links, i):
        return open_bits(talk, talk.roster, np.zeros(8 * (i + 1), np.uint8))

    with pytest.raises(ProtocolError, match="another number of bits"):
        run_sides(side)


def test_opening_numbers():
    numbers = np.arange(-5, 5)
    shares = split(np.random.default_rng(0), numbers, 3)

    def side(talk, links, i):
        return open_numbers(talk, talk.roster, shares[i])

    for opened in run_sides(side, 3):
        np.testing.assert_array_equal(opened.astype(np.int64), numbers)


def said_about_zeros():
    """Bits that three parties open while they compute ANDs of inputs of zeros."""
    said = []

    def side(talk, links, i):
        n = 8 * 40
        triples = yield from make_triples(talk, links, talk.roster, np.ones(n, int))
        before = len(said)
        engine = SharedBits(talk, talk.roster, triples)
        one, other, _ = engine.inputs(np.zeros((8, 40), np.uint8))
        yield from engine.conjunction(one, other)
        return before

    before = run_sides(side, 3, transcript=said)[0]
    opened = [m for _, _, payload in said[before:] for m in payload["messages"]]
    return np.concatenate([m for m in opened if len(m) == 80])


def test_inputs_are_masked(monkeypatch):
    ones = np.unpackbits(said_about_zeros())
    assert abs(ones.mean() - 0.5) < 7 * 0.5 / np.sqrt(ones.size)
    # the twin that draws no random bits opens its input
    monkeypatch.setattr(
        gmw, "random_words", lambda shape, dtype: np.zeros(shape, dtype)
    )
    assert not said_about_zeros().any()


def test_a_triple_serves_once():
    # under one triple, two inputs of a party would show whether they are equal
    said = []

    def side(talk, links, i):
        triples = yield from make_triples(talk, links, talk.roster, np.ones(4000, int))
        engine = SharedBits(talk, talk.roster, triples)
        zeros = np.zeros(2000, np.uint8)
        for _ in range(2):
            yield from engine.conjunction(zeros, zeros)

    run_sides(side, 2, transcript=said)
    opened = [m for *_, p in said for m in p["messages"] if len(m) == 500]
    # the corrections of the triples come first
    opened = opened[2:]
    assert len(opened) == 4
    same = np.unpackbits(opened[0] ^ opened[2])
    assert abs(same.mean() - 0.5) < 7 * 0.5 / np.sqrt(same.size)
