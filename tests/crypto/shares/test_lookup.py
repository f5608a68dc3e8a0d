"""Lookups on shares against plain indexing."""

import numpy as np
import pytest

from skprivbn.crypto.shares import _lookup as lookup
from skprivbn.crypto.shares._hash import random_words
from skprivbn.crypto.shares._lookup import _Randomness, _Shape, shared_lookup
from tests.crypto.shares._sides import flatten, run_sides, split


@pytest.mark.parametrize("n_parties", [2, 3, 4])
@pytest.mark.parametrize("k", [1, 2, 3, 4, 9])
def test_equals_indexing(n_parties, k):
    rng = np.random.default_rng(k)
    tables = rng.integers(-(2**40), 2**40, (3, 1 << k))
    numbers = np.concatenate([[0, (1 << k) - 1], rng.integers(0, 1 << k, 60)])
    which = rng.integers(0, 3, len(numbers))
    shares = split(rng, numbers, n_parties, np.uint32)

    def side(talk, links, i):
        return shared_lookup(talk, links, talk.roster, shares[i], tables, which)

    values = sum(run_sides(side, n_parties))
    np.testing.assert_array_equal(values.astype(np.int64), tables[which, numbers])


def test_many_chunks(monkeypatch):
    start = lookup.SharedLookup.__init__
    monkeypatch.setattr(
        lookup.SharedLookup,
        "__init__",
        lambda self, *arguments: start(self, *arguments, max_bytes=40_000),
    )
    for n_parties in (2, 3):
        test_equals_indexing(n_parties, 9)


@pytest.mark.parametrize("n_parties", [2, 3])
@pytest.mark.parametrize("k", [1, 2, 3, 6, 8])
def test_one_hot_vectors(k, n_parties):
    def side(talk, links, i):
        ready = _Randomness(talk.roster, 100, _Shape(k, 5))
        yield from ready.prepare(talk, links)
        return ready._vectors, ready._bits, ready._index, ready._numbers, ready._hiding

    vectors, bits, index, numbers, hiding = zip(*run_sides(side, n_parties))
    n_low = _Shape(k, 5).n_low
    vectors = np.bitwise_xor.reduce(vectors)
    bits = np.bitwise_xor.reduce(bits)
    vectors = np.unpackbits(vectors, axis=1, bitorder="little", count=1 << (k - n_low))
    high = (bits[:, n_low:].astype(int) << np.arange(k - n_low)).sum(axis=1)
    np.testing.assert_array_equal(vectors, np.eye(1 << (k - n_low))[high])
    # the same bits as numbers
    whole = (bits.astype(int) << np.arange(k)).sum(axis=1)
    np.testing.assert_array_equal(sum(index).astype(int) % (1 << k), whole)
    np.testing.assert_array_equal(sum(numbers), np.bitwise_xor.reduce(hiding))


@pytest.mark.parametrize("k, n_bytes", [(1, 1), (3, 1), (5, 1), (8, 8)])
@pytest.mark.parametrize("change", [-1, 0])
def test_sums_of_rows_of_few_and_of_many_vectors(monkeypatch, k, n_bytes, change):
    # several groups of rows at a time, and one at a time
    monkeypatch.setattr(lookup, "_SUMS_BYTES", 1 << 14)
    rng, m = np.random.default_rng(0), lookup._MANY_VECTORS + change
    table = random_words(1 << k)
    bits = rng.integers(0, 2, (m, min(8 * n_bytes, 1 << k)), dtype=np.uint8)
    distance = rng.integers(0, 1 << k, m)
    vectors = np.packbits(bits, axis=1, bitorder="little")
    found = lookup._sum_of_rows(table, vectors, distance)
    for own, d, row in zip(bits, distance, found):
        rows = np.roll(table, -d).reshape(len(own), -1)
        expected = np.bitwise_xor.reduce(rows[own == 1], axis=0)
        np.testing.assert_array_equal(row, expected)


def test_few_rounds_are_left_when_the_numbers_are_known():
    rounds = []
    tables, which = np.arange(1 << 11)[None], np.zeros(30, dtype=int)

    def side(talk, links, i):
        prepared = lookup.SharedLookup(talk.roster, tables, which)
        yield from prepared.prepare(talk, links)
        rounds.append(len(said))
        yield from prepared.look_up(talk, links, np.zeros(30, dtype=np.uint16))

    said = []
    run_sides(side, transcript=said)
    # choices, and a round for each of nine high bits but one; then the
    # distance, two low bits, the entry
    assert max(rounds) <= 2 * 9 + 1 and len(said) == 2 * (9 + 4)


def test_message_sizes_do_not_depend_on_the_numbers():
    tables = np.arange(256)[None] ** 3
    sizes = []
    for fill in (0, 255):
        transcript = []
        shares = np.full((2, 40), fill, dtype=np.uint16)

        def side(talk, links, i, shares=shares):
            which = np.zeros(40, dtype=int)
            return shared_lookup(talk, links, talk.roster, shares[i], tables, which)

        run_sides(side, transcript=transcript)
        sizes.append([(s, r, len(flatten(p))) for s, r, p in transcript])
    assert sizes[0] == sizes[1]


def test_shares_of_the_results_look_uniform():
    tables = np.full((1, 16), 7)
    shares = np.zeros((2, 4000), dtype=np.uint8)

    def side(talk, links, i):
        which = np.zeros(4000, dtype=int)
        return shared_lookup(talk, links, talk.roster, shares[i], tables + 1, which)

    for own in run_sides(side):
        ones = np.unpackbits(own.view(np.uint8)).mean()
        assert abs(ones - 0.5) < 7 * 0.5 / np.sqrt(64 * 4000)


def test_a_table_must_have_a_power_of_two_entries():
    with pytest.raises(ValueError, match="power of two"):
        next(shared_lookup(None, None, (), np.zeros(1), np.zeros((1, 6)), None))
